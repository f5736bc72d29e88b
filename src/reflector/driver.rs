//! The reflector's thread: performs the core's actions one at a time, and reports the results.

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::failures::FailureReporter;
use crate::hooks::Hook;
use crate::list_watch::{
    Backlog, EventKind, ListRequest, Listed, Next, OBJECTS_MAX, ObjectEvent, WatchEvent,
    WatchRequest, WatchStream,
};
use crate::object::{Object, ResourceVersion, resource_name};
use crate::reflector::core::{Action, Core, Effect, Facts, Input, Seen};
use crate::reflector::guarded::Guarded;
use crate::reflector::measured::Measured;
use crate::reflector::{
    FailedAttempt, Phase, ReflectorOptions, ReflectorStatus, Replacement, Sink, Waiters,
};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopToken, panic_literal};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// The target of the reflector's log lines, for log filters.
const LOG_TARGET: &str = "kubecache::reflector";

/// One run of a reflector, and the resources that its actions hold open.
pub(crate) struct ReflectorDriver<K: Object, S: Sink<K>> {
    name: String,
    source: Arc<Guarded<K>>,
    sink: S,
    core: Core,
    clock: Clock,
    waiters: Waiters,
    status: Arc<Mutex<ReflectorStatus>>,
    stream: Option<Box<dyn WatchStream<K>>>,
    staging: Option<S::Staging>,
    /// The event that the core is deciding about.
    event: Option<ObjectEvent<K>>,
    measured: Measured,
    log: FailureReporter,
    on_error: Option<Hook<FailedAttempt>>,
}

impl<K: Object, S: Sink<K>> ReflectorDriver<K, S> {
    pub(crate) fn new(
        name: String,
        source: Arc<Guarded<K>>,
        mut sink: S,
        options: ReflectorOptions,
        status: Arc<Mutex<ReflectorStatus>>,
    ) -> Result<Self, Error> {
        let measured = Measured::start(options.metrics.clone(), &name, &status, &options.clock)?;
        let what = source.what.clone();
        let one_object = source.ask(|source| source.lists_one_object());
        let mut core = Core::new(&options, what, one_object, options.clock.now());
        core.shows(source.ask(|source| source.progress()));
        let objects_max = source.ask(|source| Some(source.objects_max()));
        let objects_max = objects_max.unwrap_or(OBJECTS_MAX);
        core.bounded(objects_max);
        sink.bound(objects_max);
        let failure_log = options.failure_log.unwrap_or_default();
        let log = failure_log.reporter(LOG_TARGET, resource_name::<K>(), &name, &source.what);
        Ok(Self {
            name,
            log,
            source,
            sink,
            core,
            measured,
            on_error: options.on_error,
            clock: options.clock,
            waiters: options.waiters.unwrap_or_default(),
            status,
            stream: None,
            staging: None,
            event: None,
        })
    }

    /// Runs until the stop is raised. Reports a panic of the source or the sink like a failure,
    /// before it propagates.
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
        let panic = Error::new(ErrorKind::Panicked, text);
        status.failures.end_with(panic.clone());
        status.failing.end_with(panic);
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

    /// Asks the core for the next action. A stop comes before any action.
    pub(crate) fn decide(&mut self, input: Input, stop: &StopToken) -> Action {
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

    /// The facts that the decision on this input can need. Events come too often to gather all of
    /// them.
    fn facts(&self, input: &Input) -> Facts {
        let begins = matches!(input, Input::Start | Input::Paused | Input::Demanded);
        let of_the_watch = matches!(
            input,
            Input::Seen(_) | Input::Applied(_) | Input::Quiet { .. } | Input::Resynced(_)
        );
        let may_change = matches!(input, Input::Applied(_) | Input::Done(_));
        let left_out = if may_change { self.sink.left_out() } else { 0 };
        let interval = || self.source.ask(|source| source.bookmark_interval());
        Facts {
            left_out,
            now: self.clock.now(),
            urgent: !self.core.status().synced && self.waiters.any(),
            streams: begins && self.source.ask(|source| source.supports_watch_list()),
            bookmarks: (!of_the_watch).then(interval).flatten(),
        }
    }

    /// Performs an action and returns its result; `None` at the end of the run.
    pub(crate) fn perform(&mut self, action: Action, stop: &StopToken) -> Option<Input> {
        let input = match action {
            Action::Apply => self.apply(),
            Action::Stage => self.stage(),
            Action::Bookmark(version) => self.bookmark(&version),
            Action::Read { until } => self
                .read(until)
                .unwrap_or_else(|error| Input::Seen(Seen::Error(error))),
            Action::List { request, fresh } => {
                self.publish_and_wait();
                self.list(&request, fresh, stop)
            }
            Action::Open(request) => {
                self.publish_and_wait();
                self.open(&request, stop)
            }
            Action::Probe(request) => {
                self.publish_and_wait();
                Input::Page {
                    page: self.source.list(&request, stop, &mut drop),
                    is_empty: false,
                }
            }
            Action::Commit(of) => self.commit(&of),
            Action::Resync => Input::Resynced(self.sink.resync()),
            Action::Pause { until, on_demand } => self.pause(until, on_demand, stop),
            Action::PauseInList { until } => self.pause(until, false, stop),
            Action::End => return None,
        };
        Some(input)
    }

    fn pause(&mut self, until: Instant, on_demand: bool, stop: &StopToken) -> Input {
        self.core.pauses(Some(until));
        self.publish_and_wait();
        let deadline = Deadline::at(until);
        let is_first = !self.core.status().synced;
        let is_expedited = on_demand && self.waiters.pause(&self.clock, deadline, stop, is_first);
        if !on_demand {
            stop.wait_until(&self.clock, deadline);
        }
        self.core.pauses(None);
        if is_expedited {
            Input::Demanded
        } else {
            Input::Paused
        }
    }

    /// Closes all that the action does not use (RF-44): a watch ends before the next request
    /// begins.
    fn let_go(&mut self, action: &Action) {
        match action {
            Action::Read { .. }
            | Action::Apply
            | Action::Stage
            | Action::Bookmark(_)
            | Action::Resync
            | Action::Commit(_)
            | Action::PauseInList { .. }
            | Action::List { fresh: false, .. } => {}
            Action::List { fresh: true, .. }
            | Action::Open(_)
            | Action::Probe(_)
            | Action::Pause { .. }
            | Action::End => {
                self.close();
                self.staging = None;
                self.event = None;
            }
        }
    }

    fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.source.close(stream);
            self.measured.watch_over();
        }
    }

    fn have_effects(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Log(level, text) => self.log.note(level, &text),
                Effect::Failed(phase, error, attempts) => {
                    self.log_failure(&error);
                    if let Some(hook) = &self.on_error {
                        let failed = FailedAttempt {
                            reflector: self.name.clone(),
                            what: self.source.what.clone(),
                            phase,
                            error,
                            attempts,
                        };
                        hook.tell(&failed.port(), &failed);
                    }
                }
                Effect::Recovered => {
                    self.log.recovered();
                }
                Effect::WatchListFailed => self.source.ask(|source| source.watch_list_failed()),
                Effect::BookmarkCame(interval) => {
                    self.source.ask(|source| source.bookmark_came(interval));
                }
                Effect::Disconnect => self.source.ask(|source| source.disconnect()),
            }
        }
    }

    /// An expired position is part of normal life (RF-7).
    fn log_failure(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Expired {
            self.log
                .note(log::Level::Debug, &format!("relisting: {error}"));
        } else {
            self.log.failed(error, self.clock.now());
        }
    }

    /// Publishes the status before a wait for anything but the watch.
    fn publish_and_wait(&mut self) {
        self.sink.backlog(Backlog::Unknown);
        publish(&self.core, &self.status, &mut self.sink);
    }

    fn list(&mut self, request: &ListRequest, fresh: bool, stop: &StopToken) -> Input {
        let mut staging = match self.staging.take() {
            Some(staging) if !fresh => staging,
            Some(_) | None => {
                self.measured.list_begins();
                self.sink.begin()
            }
        };
        let sink = &mut self.sink;
        let measured = &mut self.measured;
        let mut is_empty = true;
        let mut each = |item: Listed<K>| {
            is_empty = false;
            measured.listed(item.decoded().is_none());
            sink.stage(&mut staging, ObjectEvent::added(item));
        };
        let mut send = || self.source.list(request, stop, &mut each);
        // A caller that begins to wait while the list is queued makes the list urgent.
        let page = if request.urgent || self.core.status().synced {
            send()
        } else {
            self.waiters
                .expediting(Arc::<Guarded<K>>::clone(&self.source), send)
        };
        self.staging = Some(staging);
        is_empty &= page.as_ref().is_ok_and(|page| page.unselected == 0);
        let token = page
            .as_ref()
            .map(|page| page.continue_token.as_deref().unwrap_or_default());
        if token.is_ok_and(str::is_empty) {
            self.measured.list_is_complete();
        }
        Input::Page { page, is_empty }
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
        Input::Done(opened)
    }

    /// Waits for the next event of the watch. A panic of the stream is an error of the watch.
    fn read(&mut self, until: Instant) -> Result<Input, Error> {
        let Some(stream) = &mut self.stream else {
            return Ok(Input::Ended(None));
        };
        let backlog = self.source.reading(|| Ok(stream.backlog()))?;
        self.sink.backlog(backlog);
        publish(&self.core, &self.status, &mut self.sink);
        let mut next = Next::DeadlinePassed;
        if backlog == Backlog::Bytes {
            // An event in bytes that have come is read at once. Bytes of an incomplete event are
            // not a backlog.
            let at_once = Deadline::at(self.clock.now());
            next = self.source.reading(|| stream.next(at_once))?;
            if matches!(next, Next::DeadlinePassed) {
                self.sink.backlog(Backlog::Unknown);
            }
        }
        if matches!(next, Next::DeadlinePassed) {
            next = self.source.reading(|| stream.next(Deadline::at(until)))?;
        }
        Ok(match next {
            Next::Event(event) => Input::Seen(self.see(event)),
            Next::Ended(end) => {
                self.measured.at_its_end = true;
                Input::Ended(end)
            }
            Next::DeadlinePassed => Input::Quiet {
                last_contact: self.source.reading(|| Ok(stream.last_contact()))?,
            },
        })
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
            // Nothing to apply.
            WatchEvent::Unselected {
                kind,
                resource_version: version,
            } => Seen::Object { kind, version },
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
        let staging = self.staging.take();
        let staging = staging.unwrap_or_else(|| self.sink.begin());
        // A plain list was complete with its last page; a streamed list is complete now.
        self.measured.list_is_complete();
        Input::Done(self.sink.commit(staging, of))
    }
}

/// Shows the status to readers; called before everything that may block.
fn publish<K: Object>(core: &Core, shown: &Mutex<ReflectorStatus>, sink: &mut impl Sink<K>) {
    let status = core.status();
    shown.lock().clone_from(status);
    sink.report(status);
}

/// However a run ends, its status says so. The sink learns of it when it is dropped.
impl<K: Object, S: Sink<K>> Drop for ReflectorDriver<K, S> {
    fn drop(&mut self) {
        self.close();
        self.source.ask(|source| source.disconnect());
        self.status.lock().end();
    }
}

/// Whether an object that exists does not decode (B12).
fn is_set_aside<K: Object>(event: &ObjectEvent<K>) -> bool {
    event.kind != EventKind::Deleted && event.object.decoded().is_none()
}
