//! One handler and its thread: the informer queues notifications, the thread calls the handler.

use std::time::Duration;

use super::reclaimer::Reclaimer;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::{guard, guard_with_words};
use crate::hooks::Hook;
use crate::informer::handlers::state::{
    HandlerEffects, HandlerPhase, HandlerReadings, HandlerState,
};
use crate::informer::{EventHandler, HandlerOptions, Notification};
use crate::object::{Object, StoredObject};
use crate::store::Store;
use crate::sync::{
    Arc, Monitor, Rank, ThreadId,
    atomic::{AtomicBool, Ordering},
    current_thread,
};
use crate::worker::{StopSource, ThreadWait};

/// How many notifications may wait for a sleeping handler while more events come.
const UNWOKEN_MAX: usize = 32;

/// The shared side of one handler.
///
/// The informer pushes, the handler's thread takes, and any thread may read or end it.
pub(crate) struct Listener<K: Object> {
    /// The name in logs, and in errors about the handler alone.
    pub(super) name: String,
    /// Whether the options gave that name.
    is_named: bool,
    /// The name in errors of waits for its first sync (WT-4).
    pub(super) sync_name: String,
    pub(super) clock: Clock,
    store: Store<K>,
    state: Arc<Monitor<HandlerState<K>>>,
    stop: StopSource,
    /// Whether the updates of a resync are for this handler (SI-24).
    is_syncing: AtomicBool,
    /// Notifications wait, and the handler's thread was not woken for them.
    is_wake_due: AtomicBool,
    reclaimer: Arc<Reclaimer<K>>,
}

impl<K: Object> Listener<K> {
    /// Creates the listener of a handler of the type `type_name`, which `thread` will call.
    pub(super) fn new(
        store: &Store<K>,
        clock: Clock,
        reclaimer: Arc<Reclaimer<K>>,
        options: HandlerOptions,
        (type_name, thread): (&str, &str),
    ) -> Self {
        let (owner, label) = (store.name(), type_label(type_name));
        let sync_name = match &options.name {
            Some(name) => format!("{owner} + event handler {name}"),
            None => format!("{owner} + event handler {label} ({thread})"),
        };
        let state = HandlerState::new(options.queue_max);
        Self {
            is_named: options.name.is_some(),
            name: options.name.unwrap_or_else(|| thread.to_owned()),
            sync_name,
            clock,
            store: store.clone(),
            state: Arc::new(Monitor::ranked(Rank::HANDLER_QUEUE, state)),
            stop: StopSource::new(),
            // Before the first check of the clock every handler counts as due (SI-24).
            is_syncing: AtomicBool::new(true),
            is_wake_due: AtomicBool::new(false),
            reclaimer,
        }
    }

    /// Queues a notification; never blocks. `false` if the handler has ended.
    ///
    /// The handler's thread may sleep on until [`wake`](Self::wake): waking it costs more than the
    /// rest of an event.
    pub(super) fn push(&self, notification: Notification<K>, is_resync: bool) -> bool {
        let now = self.clock.now();
        let mut running = false;
        self.change(|state| {
            running = state.phase == HandlerPhase::Running;
            let mut effects = state.push(notification, is_resync, now);
            let is_due = effects.wake || self.is_wake_due.load(Ordering::SeqCst);
            effects.wake = is_due && state.queued() >= UNWOKEN_MAX;
            self.is_wake_due
                .store(is_due && !effects.wake, Ordering::SeqCst);
            effects
        });
        running
    }

    /// Wakes the handler's thread for pushed notifications.
    pub(super) fn wake(&self) {
        if self.is_wake_due.swap(false, Ordering::SeqCst) {
            self.state.notify_all();
        }
    }

    /// Queues the objects that the store holds when the handler joins.
    pub(super) fn push_initial(&self, objects: &[Arc<StoredObject<K>>]) {
        let now = self.clock.now();
        self.change(|state| state.push_initial(objects, now));
    }

    /// Notes that the initial list is complete.
    pub(super) fn complete_initial(&self) {
        self.change(HandlerState::complete_initial);
    }

    /// Prevents further calls, and raises the stop for a handler that blocks. Returns at once.
    pub(crate) fn end(&self, why: &str) {
        self.change(|state| state.end(why));
        self.stop.stop();
    }

    /// Ends waits for a first sync with the server's refusal, or takes the refusal back.
    pub(super) fn deny(&self, denied: Option<&Error>) {
        self.state.lock().denied = denied.cloned();
        self.state.notify_all();
    }

    /// Sets which thread calls the handler, before another thread can wait for its end.
    pub(super) fn runs_on(&self, thread: ThreadId) {
        self.state.lock().thread = Some(thread);
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.is_syncing.load(Ordering::SeqCst)
    }

    pub(super) fn set_syncing(&self, is_syncing: bool) {
        self.is_syncing.store(is_syncing, Ordering::SeqCst);
    }

    /// The body of the handler's thread: calls the handler, without a lock, until the end.
    ///
    /// Reports its panics to `metrics`.
    pub(super) fn run<H: EventHandler<K>>(
        &self,
        mut handler: H,
        metrics: Option<Hook<Option<Arc<str>>>>,
    ) {
        self.runs_on(current_thread());
        if self.phase() == HandlerPhase::Running {
            self.guard("on_start", || handler.on_start(&self.stop.token()));
        }
        while let Some(notification) = self.next() {
            let told = self.guard_notification(notification, &mut handler);
            if let (Err(_), Some(metrics)) = (&told, &metrics) {
                let name = self.given_name().map(Arc::from);
                metrics.tell(&format!("the metrics of handler {}", self.name), &name);
            }
            self.finish(told.err());
            if self.guard("is_finished", || handler.is_finished()) == Some(true) {
                self.end("it wanted nothing more before it was synced");
            }
        }
        self.guard("drop", || drop(handler));
        self.guard("the drop of its metrics", || drop(metrics));
        self.state.lock().ended();
        self.state.notify_all();
    }

    /// Waits for a notification; `None` at the end.
    pub(crate) fn next(&self) -> Option<Notification<K>> {
        let state = self.state.lock();
        let next = |state: &mut HandlerState<K>| match state.phase {
            HandlerPhase::Running => state.next(self.clock.now()).map(Some),
            HandlerPhase::Ending | HandlerPhase::Ended => Some(None),
        };
        let clock = &self.clock;
        let (next, _) = clock.wait_for(&self.state, state, Deadline::NEVER, next);
        next.flatten()
    }

    /// Notes that the call for the last notification has returned.
    pub(crate) fn finish(&self, panic: Option<String>) {
        let now = self.clock.now();
        self.change(|state| state.finish(panic, now));
    }

    pub(super) fn phase(&self) -> HandlerPhase {
        self.state.lock().phase
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.state.lock().is_own(current_thread())
    }

    /// Blocks until no call runs or will run; `false` if the deadline passed before.
    ///
    /// # Errors
    ///
    /// The running call waits for the caller, or is the caller's own, so neither can go on first.
    pub(super) fn wait_until_ended(&self, deadline: Deadline) -> Result<bool, String> {
        let state = self.state.lock();
        if state.phase == HandlerPhase::Ended {
            return Ok(true);
        }
        let thread = state.thread;
        drop(state);
        let target = thread.map(|thread| ThreadWait::begin(thread, &self.name));
        let _waiting = target.transpose()?;
        let state = self.state.lock();
        let (ended, _) = self.clock.wait_for(&self.state, state, deadline, |state| {
            (state.phase == HandlerPhase::Ended).then_some(())
        });
        Ok(ended.is_some())
    }

    /// The result of a wait for the first sync that reached its deadline, or ended before.
    ///
    /// It names the rest of the initial list, the running call, and the informer's last failure
    /// (B2, R28).
    fn late(&self, left: usize, complete: bool, call: Option<(&'static str, Duration)>) -> Error {
        let failures = (!complete).then(|| self.store.sync_failures());
        let informer = match &failures {
            None => "",
            Some(None) => ", and the handler has not been told of all of it",
            Some(Some(_)) => ", and the informer has not synced",
        };
        let call = call.map_or_else(String::new, |(method, taken)| {
            format!("; {method} has been running for {taken:.1?}")
        });
        let detail = format!("{left} additions of the initial list are left{informer}{call}");
        let name = &self.sync_name;
        let text = format!("failed to sync {name}: timed out waiting for the condition");
        let text = match &failures {
            Some(Some(failures)) if !failures.has_begun() => text,
            None | Some(None | Some(_)) => format!("{text}\n{detail}"),
        };
        match failures.flatten() {
            Some(failures) => failures.explain(ErrorKind::NotSynced, text, self.clock.now()),
            None => Error::new(ErrorKind::NotSynced, text),
        }
    }

    fn not_synced(&self, kind: ErrorKind, cause: &str) -> Error {
        Error::new(kind, format!("failed to sync {}: {cause}", self.sync_name))
    }

    /// The handler's name and its running call, for an error that names late handlers.
    pub(super) fn straggler(&self) -> String {
        let call = self.state.lock().call(self.clock.now());
        match call {
            Some((method, taken)) => format!("{} ({method} for {taken:.1?})", self.name),
            None => self.name.clone(),
        }
    }

    /// Changes the state, then performs the effects without the lock.
    fn change(&self, change: impl FnOnce(&mut HandlerState<K>) -> HandlerEffects<K>) {
        let effects = change(&mut self.state.lock());
        if effects.wake {
            self.state.notify_all();
        }
        if let Some((queued, lag)) = effects.warning {
            log::warn!(
                "handler {} is slow: {queued} notifications wait for it, the oldest for {lag:.1?}",
                self.name
            );
        }
        // One by one: a second panic while the first one unwinds would end the process.
        for notification in effects.leftovers {
            self.guard("drop", || drop(notification));
        }
    }

    /// Calls the handler. Catches a panic, and logs it without the object's content.
    pub(crate) fn guard_notification<H: EventHandler<K>>(
        &self,
        notification: Notification<K>,
        handler: &mut H,
    ) -> Result<(), String> {
        let (method, told) = (notification.method(), notification.clone());
        let object = told.object();
        let called = guard_with_words(
            format_args!("handler {}, in {method} of {object:?},", self.name),
            || notification.deliver(handler),
        );
        let called = called.map_err(|(error, words)| {
            log::error!("{error}; the handler goes on with the next notification");
            words
        });
        self.guard("drop", || self.reclaimer.release_all(told));
        called
    }

    /// Calls a method that gets no notification. Only logs a panic of it.
    fn guard<T>(&self, method: &str, call: impl FnOnce() -> T) -> Option<T> {
        let called = guard(format_args!("handler {}, in {method},", self.name), call);
        called.map_err(|error| log::error!("{error}")).ok()
    }

    pub(super) fn given_name(&self) -> Option<&str> {
        self.is_named.then_some(&*self.name)
    }

    pub(crate) fn readings(&self) -> HandlerReadings {
        let now = self.clock.now();
        self.state.lock().readings(now)
    }

    pub(super) fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        if self.state.lock().synced {
            return Ok(());
        }
        let _waiting = self.store.waiters().wait();
        let thread = current_thread();
        let end = |state: &mut HandlerState<K>| {
            let left = state.initial_left();
            match (&state.denied, &state.why) {
                _ if state.synced => Some(Ok(())),
                (Some(denied), _) => Some(Err(denied.clone())),
                (None, Some(why)) => Some(Err(self.not_synced(ErrorKind::Stopped, why))),
                (None, None) => (left > 0 && state.is_own(thread)).then(|| {
                    let rest = format!("{left} additions of the initial list left");
                    let cause = format!("it waits for itself, with {rest}");
                    Err(self.not_synced(ErrorKind::NotSynced, &cause))
                }),
            }
        };
        let state = self.state.lock();
        let (end, state) = self.clock.wait_for(&self.state, state, deadline, end);
        end.unwrap_or_else(|| {
            let (left, complete) = (state.initial_left(), state.initial_complete);
            let call = state.call(self.clock.now());
            drop(state);
            Err(self.late(left, complete, call))
        })
    }
}

/// How the error of a stop or a removal names late handlers.
pub(super) fn still_run(stragglers: &[String]) -> String {
    let names = stragglers.join(", ");
    format!("timed out waiting for handlers that still run: {names}")
}

/// A type's name without its generic parameters and boxes; a type of this crate without its module.
pub(super) fn type_label(full: &str) -> &str {
    let mut label = full;
    while let Some(boxed) = label.strip_prefix("alloc::boxed::Box<") {
        label = boxed;
    }
    label = label.strip_prefix("dyn ").unwrap_or(label);
    label = label.split(['<', '>', ' ']).next().unwrap_or(label);
    let own = concat!(env!("CARGO_CRATE_NAME"), "::");
    match label.rsplit_once("::") {
        Some((_, last)) if label.starts_with(own) => last,
        Some(_) | None => label,
    }
}
