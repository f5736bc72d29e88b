//! The reflector's thread: does what the core decides, one action at a time, and tells it how that went.

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{
    Backlog, EventKind, ListPage, ListRequest, Listed, ListerWatcher, Next, ObjectEvent,
    WatchEvent, WatchRequest, WatchStream,
};
use crate::object::{Object, ResourceVersion};
use crate::reflector::core::{Action, Core, Effect, Facts, Input, Seen};
use crate::reflector::demand::RestEnd;
use crate::reflector::metrics::Measured;
use crate::reflector::{
    Demand, ErrorHook, FailedAttempt, Phase, ReflectorOptions, ReflectorStatus, Replacement, Sink,
};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopToken, Wake, panic_literal};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// One run of a reflector, and what its actions hold open.
pub(super) struct Driver<K: Object, S: Sink<K>> {
    name: String,
    source: Arc<dyn ListerWatcher<K>>,
    sink: S,
    core: Core,
    clock: Clock,
    demand: Demand,
    status: Arc<Mutex<ReflectorStatus>>,
    stream: Option<Box<dyn WatchStream<K>>>,
    staging: Option<S::Staging>,
    /// The event that the core is deciding about.
    event: Option<ObjectEvent<K>>,
    measured: Measured,
    on_error: Option<ErrorHook>,
    /// The source's word that it lists one object.
    one_object: bool,
}

impl<K: Object, S: Sink<K>> Driver<K, S> {
    pub(super) fn new(
        name: String,
        source: Arc<dyn ListerWatcher<K>>,
        sink: S,
        options: ReflectorOptions,
        status: Arc<Mutex<ReflectorStatus>>,
    ) -> Self {
        let mut core = Core::new(&options, source.describe(), options.clock.now());
        core.shows(source.progress());
        let measured = Measured::new(options.metrics, options.clock.clone());
        Self {
            one_object: source.lists_one_object(),
            name,
            source,
            sink,
            core,
            measured,
            on_error: options.on_error,
            clock: options.clock,
            demand: options.demand.unwrap_or_default(),
            status,
            stream: None,
            staging: None,
            event: None,
        }
    }

    /// Runs until the stop is raised. A panic, of the source's or the sink's, is reported like a failure before it goes on.
    pub(super) fn run(&mut self, stop: &StopToken) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.go_on(stop)));
        if let Err(payload) = ran {
            self.report_panic(payload.as_ref());
            resume_unwind(payload);
        }
    }

    fn report_panic(&mut self, payload: &(dyn Any + Send)) {
        let (name, said) = (&self.name, panic_literal(payload));
        let text = format!("the thread of reflector {name} panicked{said}");
        let mut status = self.core.status().clone();
        status.phase = Phase::Stopped;
        status.last_error = Some(Error::new(ErrorKind::Panicked, text));
        self.status.lock().clone_from(&status);
        self.sink.report(&status);
    }

    fn go_on(&mut self, stop: &StopToken) {
        self.sink.start(stop);
        let mut input = Input::Start;
        loop {
            let action = self.decide(input, stop);
            match self.perform(action, stop) {
                Some(next) => input = next,
                None => return,
            }
        }
    }

    /// Asks the core what follows an input. A stop comes before whatever was to be done.
    pub(super) fn decide(&mut self, input: Input, stop: &StopToken) -> Action {
        let input = if stop.is_stopped() {
            Input::Stop
        } else {
            input
        };
        let facts = self.facts(&input);
        let action = self.core.step(input, &facts);
        self.let_go(&action);
        self.have_effects();
        action
    }

    /// What holds now, as far as the input's decision can ask for it: events come too often to look at everything.
    fn facts(&self, input: &Input) -> Facts {
        let begins = matches!(input, Input::Start | Input::Rested | Input::Demanded);
        let of_the_watch = matches!(
            input,
            Input::Seen(_) | Input::Applied(_) | Input::Quiet { .. } | Input::Resynced(_)
        );
        Facts {
            now: self.clock.now(),
            waited_for: !self.core.status().synced && self.demand.is_waited_for(),
            streams: begins && self.source.supports_watch_list(),
            bookmarks: if of_the_watch {
                None
            } else {
                self.source.bookmark_interval()
            },
            one_object: self.one_object,
        }
    }

    /// Does an action, and says how it went; `None` at the end of the run.
    pub(super) fn perform(&mut self, action: Action, stop: &StopToken) -> Option<Input> {
        let input = match action {
            Action::Apply => self.apply(),
            Action::Stage => self.stage(),
            Action::Bookmark(version) => self.bookmark(&version),
            Action::Read { until } => {
                self.look_up();
                self.read(until)
            }
            Action::List { request, fresh } => {
                self.publish_and_rest();
                self.list(&request, fresh, stop)
            }
            Action::Open(request) => {
                self.publish_and_rest();
                self.open(&request, stop)
            }
            Action::Probe(request) => {
                self.publish_and_rest();
                Input::Probed(self.source.list(&request, stop, &mut drop))
            }
            Action::Commit(of) => self.commit(&of),
            Action::Resync => Input::Resynced(self.sink.resync()),
            Action::Rest { until, on_demand } => {
                self.core.pauses(Some(until));
                self.publish_and_rest();
                let ended = self.rest(until, on_demand, stop);
                self.core.pauses(None);
                ended
            }
            Action::End => return None,
        };
        Some(input)
    }

    /// Closes what the action does not go on with (RF-44): a watch ends before the next request begins.
    fn let_go(&mut self, action: &Action) {
        match action {
            Action::Read { .. }
            | Action::Apply
            | Action::Stage
            | Action::Bookmark(_)
            | Action::Resync
            | Action::Commit(_)
            | Action::List { fresh: false, .. } => {}
            Action::List { fresh: true, .. }
            | Action::Open(_)
            | Action::Probe(_)
            | Action::Rest { .. }
            | Action::End => {
                if self.stream.take().is_some() {
                    self.measured.watch_over();
                }
                self.staging = None;
                self.event = None;
            }
        }
    }

    fn have_effects(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Log(level, text) => {
                    let what = self.source.describe();
                    log::log!(level, "{text} resource={what:?} reflector={}", self.name);
                }
                Effect::Failed {
                    phase,
                    error,
                    attempts,
                } => self.tell_of(phase, &error, attempts),
                Effect::WatchListFailed => self.source.watch_list_failed(),
                Effect::BookmarkCame(interval) => self.source.bookmark_came(interval),
                Effect::Disconnect => self.source.disconnect(),
            }
        }
    }

    fn tell_of(&self, phase: Phase, error: &Error, attempts: u32) {
        if let Some(hook) = &self.on_error {
            hook.tell(&FailedAttempt {
                reflector: &self.name,
                what: &self.source.describe(),
                phase,
                error,
                attempts,
            });
        }
    }

    /// Before a read of the watch.
    fn look_up(&mut self) {
        let stream = self.stream.as_ref();
        let backlog = stream.map_or(Backlog::Unknown, |stream| stream.backlog());
        self.sink.backlog(backlog);
        self.publish();
    }

    /// Before a wait for anything but the watch.
    fn publish_and_rest(&mut self) {
        self.sink.backlog(Backlog::Unknown);
        self.publish();
    }

    /// Shows the status to readers; called before everything that may block.
    fn publish(&mut self) {
        let status = self.core.status();
        self.status.lock().clone_from(status);
        self.sink.report(status);
    }

    fn list(&mut self, request: &ListRequest, fresh: bool, stop: &StopToken) -> Input {
        if fresh || self.staging.is_none() {
            self.staging = Some(self.sink.begin());
            self.measured.list_begins();
        }
        let Some(staging) = self.staging.as_mut() else {
            return Input::Page(Err(Error::new(ErrorKind::Protocol, "nothing is staged")));
        };
        let sink = &mut self.sink;
        let measured = &mut self.measured;
        let mut is_empty = true;
        let mut each = |item: Listed<K>| {
            is_empty = false;
            measured.listed(matches!(item, Listed::Undecodable(_)));
            sink.stage(staging, ObjectEvent::added(item));
        };
        // Who comes for a first sync while its list is queued makes the list urgent.
        let expedites = !request.waited_for && !self.core.status().synced;
        let expediting = expedites.then(|| {
            let source = Arc::clone(&self.source);
            self.demand.expedites(Arc::new(Expedite(source)))
        });
        let page = self.source.list(request, stop, &mut each);
        drop(expediting);
        let more = |page: &ListPage| {
            page.continue_token
                .as_deref()
                .is_some_and(|t| !t.is_empty())
        };
        match page {
            Ok(page) if more(&page) && is_empty => Input::EmptyPage(page),
            Ok(page) if more(&page) => Input::Page(Ok(page)),
            Ok(page) => {
                self.measured.list_is_complete();
                Input::Page(Ok(page))
            }
            Err(error) => Input::Page(Err(error)),
        }
    }

    fn open(&mut self, request: &WatchRequest, stop: &StopToken) -> Input {
        self.measured.watch_begins(request.send_initial_events);
        let opened = self.source.watch(request, stop).map(|stream| {
            if request.send_initial_events {
                self.staging = Some(self.sink.begin());
            }
            self.stream = Some(stream);
            self.measured.watch_is_open();
        });
        Input::Opened(opened)
    }

    fn read(&mut self, until: Instant) -> Input {
        let Some(stream) = self.stream.as_mut() else {
            return Input::Ended(None);
        };
        match stream.next(Deadline::at(until)) {
            Ok(Next::Event(event)) => Input::Seen(self.see(event)),
            Ok(Next::Ended(end)) => {
                self.measured.watch_is_at_its_end();
                Input::Ended(end)
            }
            Ok(Next::DeadlinePassed) => Input::Quiet {
                last_contact: stream.last_contact(),
            },
            Err(error) => Input::Seen(Seen::Error(error)),
        }
    }

    /// Keeps an object's event for the action to come.
    fn see(&mut self, event: WatchEvent<K>) -> Seen {
        match event {
            WatchEvent::Object(event) => {
                let (kind, version) = (event.kind, event.object.resource_version());
                self.event = Some(event);
                Seen::Object { kind, version }
            }
            WatchEvent::Bookmark {
                resource_version: version,
                initial_events_end: ends_initial,
            } => Seen::Bookmark {
                version,
                ends_initial,
            },
            WatchEvent::Error(error) => Seen::Error(error),
            WatchEvent::Skipped {
                reason,
                resource_version: version,
            } => Seen::Skipped { reason, version },
        }
    }

    fn apply(&mut self) -> Input {
        let Some(event) = self.event.take() else {
            return Input::Applied(Ok(()));
        };
        self.measured.applied(is_set_aside(&event));
        Input::Applied(self.sink.apply(event))
    }

    fn stage(&mut self) -> Input {
        if let (Some(event), Some(staging)) = (self.event.take(), self.staging.as_mut()) {
            if event.kind != EventKind::Deleted {
                self.measured.listed(is_set_aside(&event));
            }
            self.sink.stage(staging, event);
        }
        Input::Applied(Ok(()))
    }

    fn bookmark(&mut self, version: &ResourceVersion) -> Input {
        self.measured.applied(false);
        self.sink.bookmark(version);
        Input::Applied(Ok(()))
    }

    fn commit(&mut self, of: &Replacement) -> Input {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => self.sink.begin(),
        };
        // A plain list was complete with its last page; a streamed one is now.
        self.measured.list_is_complete();
        Input::Committed(self.sink.commit(staging, of))
    }

    fn rest(&mut self, until: Instant, on_demand: bool, stop: &StopToken) -> Input {
        let deadline = Deadline::at(until);
        match self.demand.rest(&self.clock, deadline, stop, on_demand) {
            RestEnd::Stopped => Input::Stop,
            RestEnd::DeadlinePassed => Input::Rested,
            RestEnd::Demanded => Input::Demanded,
        }
    }
}

/// Makes a list urgent; on the thread of whoever waits for it.
struct Expedite<K: Object>(Arc<dyn ListerWatcher<K>>);

impl<K: Object> Wake for Expedite<K> {
    fn wake(&self) {
        self.0.expedite();
    }
}

/// A run that ends, by whatever means, says so in its status; the sink hears it by being dropped.
impl<K: Object, S: Sink<K>> Drop for Driver<K, S> {
    fn drop(&mut self) {
        self.source.disconnect();
        self.status.lock().phase = Phase::Stopped;
    }
}

/// Whether an object that is there does not decode (B12).
fn is_set_aside<K: Object>(event: &ObjectEvent<K>) -> bool {
    event.kind != EventKind::Deleted && event.object.decoded().is_none()
}
