//! The pending events of one open watch of the fake server, and its end.

use std::collections::VecDeque;

use crate::error::Error;
use crate::list_watch::{Next, ObjectEvent, WatchEvent};
use crate::object::{Object, ResourceVersion, Scope};

use super::faults::{SourceFault, cut};
use super::model::{Model, expired, selects};

/// The end of a watch, once it has delivered all due events.
#[derive(Debug)]
enum FeedEnd {
    Open,
    Clean,
    Broken(Error),
}

/// The pending events of one watch.
#[derive(Debug)]
pub(super) struct Feed<K: Object> {
    /// Sent before the history goes on: initial events, and events of the test's own.
    queued: VecDeque<WatchEvent<K>>,
    /// Sent once the history is delivered, so that its version skips nothing.
    bookmark: bool,
    /// The version up to which the history was delivered.
    position: u64,
    end: FeedEnd,
    cut_after: Option<usize>,
    silent: bool,
    /// Whether bytes come all the time.
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
            feed.end = FeedEnd::Clean;
        }
        feed
    }

    fn at(position: u64) -> Self {
        Self {
            queued: VecDeque::new(),
            bookmark: false,
            position,
            end: FeedEnd::Open,
            cut_after: None,
            silent: false,
            trickles: false,
        }
    }

    /// The present objects as additions in no useful order, then everything after. A bookmark ends
    /// the initial events for a client that takes them (WL-4).
    pub(super) fn initial(model: &Model<K>, bookmarks: bool) -> Self {
        let mut feed = Self::at(model.version());
        let present = model.present().values().rev().cloned();
        let added = present.map(|object| ObjectEvent::added(object).into());
        let end = bookmarks.then(|| WatchEvent::Bookmark {
            resource_version: ResourceVersion::from(model.version().to_string()),
            initial_events_end: true,
        });
        feed.queued = added.chain(end).collect();
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
            Some(error) => FeedEnd::Broken(error.clone()),
            None => FeedEnd::Clean,
        };
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether bytes come on it all the time.
    pub(super) fn trickles(&self) -> bool {
        self.trickles
    }

    /// The next event of a scope to deliver now, if any.
    pub(super) fn due(&mut self, model: &Model<K>, scope: &Scope) -> Option<Next<K>> {
        if self.silent {
            return None;
        }
        if self.cut_after == Some(0) {
            return Some(Next::Ended(Some(cut())));
        }
        match self.next_event(model, scope) {
            Some(event) => {
                self.cut_after = self.cut_after.map(|left| left.saturating_sub(1));
                Some(Next::Event(event))
            }
            None => match &self.end {
                FeedEnd::Open => None,
                FeedEnd::Clean => Some(Next::Ended(None)),
                FeedEnd::Broken(error) => Some(Next::Ended(Some(error.clone()))),
            },
        }
    }

    fn next_event(&mut self, model: &Model<K>, scope: &Scope) -> Option<WatchEvent<K>> {
        while let Some(event) = self.queued.pop_front() {
            if is_selected(&event, scope) {
                return Some(event);
            }
        }
        let mut at = model.after(self.position);
        while let Some(change) = model.change(at) {
            self.position = change.version;
            if selects(scope, &change.key) {
                return Some(change.event());
            }
            at = at.saturating_add(1);
        }
        std::mem::take(&mut self.bookmark).then(|| WatchEvent::Bookmark {
            resource_version: ResourceVersion::from(model.version().to_string()),
            initial_events_end: false,
        })
    }
}

fn is_selected<K: Object>(event: &WatchEvent<K>, scope: &Scope) -> bool {
    match event {
        WatchEvent::Object(event) => selects(scope, &event.object.key()),
        WatchEvent::Bookmark { .. }
        | WatchEvent::Unselected { .. }
        | WatchEvent::Error(_)
        | WatchEvent::Skipped { .. } => true,
    }
}
