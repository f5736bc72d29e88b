//! An open watch of the fake server: what is due on it, and how it ends.

use std::collections::VecDeque;
use std::time::Instant;

use crate::clock::Deadline;
use crate::error::Error;
use crate::list_watch::{Next, ObjectEvent, WatchEvent, WatchStream};
use crate::object::{Object, ResourceVersion};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake, WakeRegistration};

use super::faults::{SourceFault, cut};
use super::model::{Model, expired, selects};
use super::{FakeSource, Server};

/// How a watch ends once it has delivered what is due.
#[derive(Debug)]
enum End {
    Open,
    Clean,
    Broken(Error),
}

/// What one watch still has to deliver.
#[derive(Debug)]
pub(super) struct Feed<K: Object> {
    /// Sent before the history goes on: initial events, and events of the test's own.
    queued: VecDeque<WatchEvent<K>>,
    /// Sent once the history is delivered, so that its version skips nothing.
    bookmark: bool,
    /// The version up to which the history was delivered.
    position: u64,
    end: End,
    cut_after: Option<usize>,
    silent: bool,
    /// Bytes come all the time.
    trickles: bool,
}

impl<K: Object> Feed<K> {
    /// Everything after a version.
    pub(super) fn after(model: &Model<K>, position: u64) -> Self {
        let mut feed = Self::at(position);
        if position < model.compacted() {
            let error = expired(position, model.compacted());
            feed.position = model.version();
            feed.queued.push_back(WatchEvent::Error(error));
            feed.end = End::Clean;
        }
        feed
    }

    fn at(position: u64) -> Self {
        Self {
            queued: VecDeque::new(),
            bookmark: false,
            position,
            end: End::Open,
            cut_after: None,
            silent: false,
            trickles: false,
        }
    }

    /// The present objects as additions in no useful order, then everything after (a watch at `0`).
    pub(super) fn synthetic(model: &Model<K>) -> Self {
        let mut feed = Self::at(model.version());
        let present = model.present().values().rev().cloned();
        let added = present.map(|object| ObjectEvent::added(object).into());
        feed.queued = added.collect();
        feed
    }

    /// As `synthetic`, with the bookmark that ends the initial events (WL-4).
    pub(super) fn initial(model: &Model<K>) -> Self {
        let mut feed = Self::synthetic(model);
        feed.queued.push_back(WatchEvent::Bookmark {
            resource_version: ResourceVersion::from(model.version().to_string()),
            initial_events_end: true,
        });
        feed
    }

    pub(super) fn meet(&mut self, fault: Option<&SourceFault>) {
        match fault {
            Some(SourceFault::CutAfter(events)) => self.cut_after = Some(*events),
            Some(SourceFault::Silent) => self.silent = true,
            Some(SourceFault::Trickle) => (self.silent, self.trickles) = (true, true),
            Some(SourceFault::Fail(_) | SourceFault::Hang) | None => {}
        }
    }

    pub(super) fn bookmark(&mut self) {
        self.bookmark = true;
    }

    pub(super) fn send(&mut self, event: WatchEvent<K>) {
        self.queued.push_back(event);
    }

    pub(super) fn end(&mut self, end: Option<&Error>) {
        self.end = match end {
            Some(error) => End::Broken(error.clone()),
            None => End::Clean,
        };
    }
}

/// The client's end of a watch.
pub(super) struct Stream<K: Object> {
    source: FakeSource<K>,
    id: u64,
    deadline: Deadline,
    stop: StopToken,
    last_contact: Instant,
    _registration: WakeRegistration,
}

impl<K: Object> Stream<K> {
    pub(super) fn new(
        source: FakeSource<K>,
        id: u64,
        deadline: Deadline,
        stop: &StopToken,
        now: Instant,
    ) -> Self {
        Self {
            _registration: stop.register(&waker(&source.server)),
            source,
            id,
            deadline,
            stop: stop.clone(),
            last_contact: now,
        }
    }
}

impl<K: Object> WatchStream<K> for Stream<K> {
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        let clock = &self.source.clock;
        let mut server = self.source.server.lock();
        loop {
            if self.stop.is_stopped() {
                return Err(Error::stopped("a watch"));
            }
            if let Some(next) = server.due(self.id, &self.source) {
                self.last_contact = clock.now();
                return Ok(next);
            }
            if clock.has_passed(self.deadline) {
                return Ok(Next::Ended(None));
            }
            if clock.has_passed(deadline) {
                if server.trickles(self.id) {
                    self.last_contact = clock.now();
                }
                return Ok(Next::DeadlinePassed);
            }
            let until = deadline.earlier(self.deadline);
            server = clock.wait_until(&self.source.server, server, until);
        }
    }

    fn last_contact(&self) -> Instant {
        self.last_contact
    }
}

impl<K: Object> Drop for Stream<K> {
    fn drop(&mut self) {
        let id = self.id;
        self.source
            .change(|server| server.feeds.retain(|(feed, _)| *feed != id));
    }
}

impl<K: Object> Server<K> {
    fn trickles(&self, id: u64) -> bool {
        let mut feeds = self.feeds.iter();
        feeds.any(|(feed, state)| *feed == id && state.trickles)
    }

    /// What a watch has to deliver now, if anything.
    fn due(&mut self, id: u64, source: &FakeSource<K>) -> Option<Next<K>> {
        let (_, feed) = self.feeds.iter_mut().find(|(feed, _)| *feed == id)?;
        if feed.silent {
            return None;
        }
        if feed.cut_after == Some(0) {
            return Some(Next::Ended(Some(cut())));
        }
        let event = next_event(feed, &self.model, source);
        match event {
            Some(event) => {
                feed.cut_after = feed.cut_after.map(|left| left.saturating_sub(1));
                Some(Next::Event(event))
            }
            None => match &feed.end {
                End::Open => None,
                End::Clean => Some(Next::Ended(None)),
                End::Broken(error) => Some(Next::Ended(Some(error.clone()))),
            },
        }
    }
}

fn next_event<K: Object>(
    feed: &mut Feed<K>,
    model: &Model<K>,
    source: &FakeSource<K>,
) -> Option<WatchEvent<K>> {
    while let Some(event) = feed.queued.pop_front() {
        if is_selected(&event, source) {
            return Some(event);
        }
    }
    let mut at = model.after(feed.position);
    while let Some(change) = model.change(at) {
        feed.position = change.version;
        if selects(&source.scope, &change.key) {
            return Some(change.event());
        }
        at = at.saturating_add(1);
    }
    std::mem::take(&mut feed.bookmark).then(|| WatchEvent::Bookmark {
        resource_version: ResourceVersion::from(model.version().to_string()),
        initial_events_end: false,
    })
}

fn is_selected<K: Object>(event: &WatchEvent<K>, source: &FakeSource<K>) -> bool {
    match event {
        WatchEvent::Object(event) => selects(&source.scope, &event.object.key()),
        WatchEvent::Bookmark { .. } | WatchEvent::Error(_) | WatchEvent::Skipped { .. } => true,
    }
}

/// Wakes whoever waits for the fake server, so that they look at their stop.
pub(super) fn waker<K: Object>(server: &Arc<Monitor<Server<K>>>) -> Arc<dyn Wake> {
    Arc::new(WakeServer(Arc::clone(server)))
}

struct WakeServer<K: Object>(Arc<Monitor<Server<K>>>);

impl<K: Object> Wake for WakeServer<K> {
    fn wake(&self) {
        // Taking the mutex first closes the gap between a waiter's look at its stop and its wait.
        drop(self.0.lock());
        self.0.notify_all();
    }
}
