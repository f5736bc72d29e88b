//! One handler and its thread: notifications come in from the informer's thread and are told one at a time.

use std::fmt;
use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::{guard, guard_with_words};
use crate::informer::handlers::state::{Counts, Effects, Life, Next, State, Why};
use crate::informer::spent::Spent;
use crate::informer::{EventHandler, InformerMetrics, Notification};
use crate::object::{Held, Object};
use crate::store::Outlook;
use crate::sync::{Arc, Monitor, ThreadId, current_thread};
use crate::worker::{Circle, StopSource, Waiting};

/// What a handler is called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// In logs, and in errors about the handler alone.
    pub(super) name: String,
    /// Whether that is the name of its options.
    pub(super) is_given: bool,
    /// In errors of waits for its first sync (WT-4).
    pub(super) sync: String,
}

/// The shared side of one handler: the informer pushes, the handler's thread takes, anybody reads and ends it.
pub(super) struct Listener<K: Object> {
    names: Names,
    clock: Clock,
    state: Arc<Monitor<State<K>>>,
    stop: StopSource,
    spent: Arc<Spent<K>>,
}

impl<K: Object> Listener<K> {
    pub(super) fn new(names: Names, queue_max: Option<usize>, clock: Clock) -> Self {
        Self {
            names,
            clock,
            state: Arc::new(Monitor::new(State::new(queue_max))),
            stop: StopSource::new(),
            spent: Arc::new(Spent::new()),
        }
    }

    /// Where the handler's thread leaves what it is done with.
    pub(super) fn leaving_to(mut self, spent: &Arc<Spent<K>>) -> Self {
        self.spent = Arc::clone(spent);
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.names.name
    }

    pub(super) fn given_name(&self) -> Option<&str> {
        self.names.is_given.then_some(&*self.names.name)
    }

    pub(super) fn sync_name(&self) -> &str {
        &self.names.sync
    }

    /// Something is to be told; never blocks. `false` if the handler has ended and takes nothing more.
    pub(super) fn push(&self, notification: Notification<K>, is_resync: bool) -> bool {
        let now = self.clock.now();
        let mut running = false;
        self.change(|state| {
            running = state.life == Life::Running;
            state.push(notification, is_resync, now)
        });
        running
    }

    /// Tells of the objects that are there when the handler joins.
    pub(super) fn push_initial(&self, objects: &[Arc<Held<K>>]) {
        let now = self.clock.now();
        self.change(|state| state.push_initial(objects, now));
    }

    /// No more of the initial list comes.
    pub(super) fn complete_initial(&self) {
        self.change(State::complete_initial);
    }

    /// Lets no further call begin; returns at once. The stop is raised for a handler that blocks.
    pub(super) fn end(&self, why: Why) {
        self.change(|state| state.end(why));
        self.stop.stop();
    }

    /// What the server's refusal is by now, if it is one: it ends the waits for a first sync.
    pub(super) fn deny(&self, denied: Option<&Error>) {
        self.state.lock().denied = denied.cloned();
        self.state.notify_all();
    }

    /// Which thread calls the handler: known before anybody can wait for its end.
    pub(super) fn runs_on(&self, thread: ThreadId) {
        self.state.lock().thread = Some(thread);
    }

    /// The body of the handler's thread: calls the handler under no lock until the end. `metrics`
    /// is told of its panics.
    pub(super) fn run<H: EventHandler<K>>(
        &self,
        mut handler: H,
        metrics: Option<Arc<dyn InformerMetrics>>,
    ) {
        self.runs_on(current_thread());
        let token = self.stop.token();
        if self.life() == Life::Running {
            self.guard("on_start", || handler.on_start(&token));
        }
        while let Some(notification) = self.next() {
            let told = self.guard_notification(notification, &mut handler);
            if let (Err(_), Some(metrics)) = (&told, &metrics) {
                self.guard("its metrics", || {
                    metrics.handler_panicked(self.given_name());
                });
            }
            self.finish(told.err());
            let finished = self.guard("is_finished", || handler.is_finished());
            if finished == Some(true) {
                self.end(Why::Finished);
            }
        }
        self.guard("drop", || drop(handler));
        self.guard("the drop of its metrics", || drop(metrics));
        self.state.lock().ended();
        self.state.notify_all();
    }

    /// Waits for a notification; `None` at the end.
    pub(super) fn next(&self) -> Option<Notification<K>> {
        let mut state = self.state.lock();
        loop {
            match state.next(self.clock.now()) {
                Next::Call(notification) => return Some(notification),
                Next::End => return None,
                Next::Wait => {
                    state = self.clock.wait_until(&self.state, state, Deadline::NEVER);
                }
            }
        }
    }

    /// The call for the last notification taken is over.
    pub(super) fn finish(&self, panic: Option<String>) {
        let now = self.clock.now();
        self.change(|state| state.finish(panic, now));
    }

    pub(super) fn life(&self) -> Life {
        self.state.lock().life
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.state.lock().is_own(current_thread())
    }

    /// Blocks until no call runs or will run; `false` if the deadline passed before.
    ///
    /// # Errors
    ///
    /// The call under way waits for the caller, or is the caller's: it does not return before the
    /// caller goes on.
    pub(super) fn wait_until_ended(&self, deadline: Deadline) -> Result<bool, Circle> {
        let state = self.state.lock();
        if state.life == Life::Ended {
            return Ok(true);
        }
        let thread = state.thread;
        drop(state);
        let target = thread.map(|thread| Waiting::begin(thread, self.name()));
        let _waiting = target.transpose()?;
        let mut state = self.state.lock();
        while state.life != Life::Ended {
            if self.clock.has_passed(deadline) {
                return Ok(false);
            }
            state = self.clock.wait_until(&self.state, state, deadline);
        }
        Ok(true)
    }

    /// What a wait for the end says to who removes the handler.
    pub(super) fn removed(&self, waited: Result<bool, Circle>) -> Result<(), Error> {
        let text = match waited {
            Ok(true) => return Ok(()),
            Ok(false) => still_run(&[self.straggler()]),
            Err(circle) => {
                let name = self.name();
                format!("handler {name} still runs, and waits for this call: {circle}")
            }
        };
        Err(Error::new(ErrorKind::Timeout, text))
    }

    pub(super) fn has_synced(&self) -> bool {
        self.state.lock().is_synced()
    }

    /// Blocks until the handler has returned from every addition of the initial list.
    ///
    /// `outlook` says how it stands with the informer's own sync; it is asked under no lock.
    pub(super) fn wait_until_synced(
        &self,
        deadline: Deadline,
        outlook: impl FnOnce() -> Option<Outlook>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.is_synced() {
                return Ok(());
            }
            if let Some(denied) = &state.denied {
                return Err(denied.clone());
            }
            if let Some(why) = state.why() {
                let cause = before_it_was_synced(why);
                drop(state);
                return Err(self.not_synced(ErrorKind::Stopped, &cause));
            }
            let left = state.initial_left();
            if left > 0 && state.is_own(current_thread()) {
                drop(state);
                let cause =
                    format!("it waits for itself, with {left} additions of the initial list left");
                return Err(self.not_synced(ErrorKind::NotSynced, &cause));
            }
            let now = self.clock.now();
            if deadline.has_passed(now) {
                let complete = state.is_initial_complete();
                let call = state.call(now);
                drop(state);
                return Err(self.late(left, complete, call, outlook));
            }
            state = self.clock.wait_until(&self.state, state, deadline);
        }
    }

    /// What a wait says at its deadline: what is left, what the handler is at, and how the informer fares (B2, R28).
    fn late(
        &self,
        left: usize,
        complete: bool,
        call: Option<(&'static str, Duration)>,
        outlook: impl FnOnce() -> Option<Outlook>,
    ) -> Error {
        let outlook = if complete { None } else { outlook() };
        let informer = match &outlook {
            _ if complete => "",
            Some(outlook) if outlook.synced => ", and the handler has not been told of all of it",
            Some(_) | None => ", and the informer has not synced",
        };
        let call = call.map_or_else(String::new, |(method, taken)| {
            format!("; {method} has been running for {taken:.1?}")
        });
        let detail = format!("{left} additions of the initial list are left{informer}{call}");
        let name = self.sync_name();
        let text = format!("failed to sync {name}: timed out waiting for the condition\n{detail}");
        match outlook.filter(|outlook| !outlook.synced) {
            Some(outlook) => {
                let now = self.clock.now();
                outlook.failures.explain(ErrorKind::NotSynced, text, now)
            }
            None => Error::new(ErrorKind::NotSynced, text),
        }
    }

    fn not_synced(&self, kind: ErrorKind, cause: &str) -> Error {
        let name = self.sync_name();
        Error::new(kind, format!("failed to sync {name}: {cause}"))
    }

    pub(super) fn queued(&self) -> usize {
        self.state.lock().queued()
    }

    pub(super) fn lag(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.state.lock().lag(now)
    }

    pub(super) fn coalesced(&self) -> u64 {
        self.state.lock().coalesced()
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    /// The handler's name and what it is at, for an error that names who is late.
    pub(super) fn straggler(&self) -> String {
        let call = self.state.lock().call(self.clock.now());
        match call {
            Some((method, taken)) => format!("{} ({method} for {taken:.1?})", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// Changes the state, then does what follows from it under no lock.
    fn change(&self, change: impl FnOnce(&mut State<K>) -> Effects<K>) {
        let effects = change(&mut self.state.lock());
        if effects.wake {
            self.state.notify_all();
        }
        if let Some(warning) = effects.warning {
            log::warn!(
                "handler {} is slow: {} notifications wait for it, the oldest for {:.1?}",
                self.name(),
                warning.queued,
                warning.lag
            );
        }
        drop(effects.leftovers);
    }

    /// Calls the handler; a panic is caught, and told without what it may have formatted of the object.
    fn guard_notification<H: EventHandler<K>>(
        &self,
        notification: Notification<K>,
        handler: &mut H,
    ) -> Result<(), String> {
        let (method, told) = (notification.method(), notification.clone());
        let object = told.object();
        let port = format_args!("handler {}, in {method} of {object:?},", self.name());
        let called = guard_with_words(port, || notification.deliver(handler));
        let called = called.map_err(|(error, words)| {
            log::error!("{error}; the handler goes on with the next notification");
            words
        });
        self.guard("drop", || self.spent.leave_all(told));
        called
    }

    /// Calls what is no notification; a panic there is told and otherwise ignored.
    fn guard<T>(&self, method: &str, call: impl FnOnce() -> T) -> Option<T> {
        let called = guard(format_args!("handler {}, in {method},", self.name()), call);
        called.map_err(|error| log::error!("{error}")).ok()
    }
}

/// How a stop, or a removal, names who is late.
pub(super) fn still_run(stragglers: &[String]) -> String {
    let names = stragglers.join(", ");
    format!("timed out waiting for handlers that still run: {names}")
}

fn before_it_was_synced(why: &Why) -> String {
    match why {
        Why::Removed => "it was removed before it was synced".to_owned(),
        Why::Finished => "it wanted nothing more before it was synced".to_owned(),
        Why::InformerStopped(None) => "the informer stopped before it was synced".to_owned(),
        Why::InformerStopped(Some(cause)) => {
            format!("the informer stopped before it was synced\n{cause}")
        }
    }
}

impl<K: Object> fmt::Debug for Listener<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("name", &self.name())
            .field("life", &self.life())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}
