//! All handlers of one informer: how they join, get notifications and resyncs, and leave.

use std::time::Duration;

use super::reclaimer::Reclaimer;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, default_of};
use crate::hooks::Hook;
use crate::informer::handlers::listener::{Listener, still_run};
use crate::informer::handlers::resync::{CheckPeriod, Resync, is_resync};
use crate::informer::handlers::state::HandlerPhase;
use crate::informer::{EventHandler, HandlerOptions, Notification};
use crate::object::Object;
use crate::store::Store;
use crate::sync::{
    Arc, Monitor, ProcessCounter, Rank,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::Worker;

/// Numbers the handlers of the process, so that each thread has a name of its own.
static NUMBER: ProcessCounter = ProcessCounter::new(1);

/// The informer's side of its handlers.
///
/// The store changes, and the handlers are told, only in a [`turn`](Self::turn). A new handler
/// joins between two turns, so that it misses nothing and gets nothing twice (SI-11).
///
/// Dropping it stops all handlers and joins their threads, so the drop blocks while a call runs. It
/// does not wait again for handlers that an earlier [`stop`](Self::stop) named as late, nor for the
/// handler whose thread drops it.
pub(crate) struct Processor<K: Object> {
    informer: String,
    store: Store<K>,
    clock: Clock,
    resync_period: Duration,
    table: Monitor<HandlerTable<K>>,
    /// The next event has come already, so the handlers' threads are woken for several together.
    is_burst: AtomicBool,
    pub(in crate::informer) reclaimer: Arc<Reclaimer<K>>,
}

struct HandlerTable<K: Object> {
    /// The running handlers, and the ending or ended ones whose threads are not joined yet.
    members: Vec<HandlerEntry<K>>,
    /// The members that have joined. Replaced on each change, so that telling them needs no lock.
    joined: Arc<[Arc<Listener<K>>]>,
    /// A thread is changing the store, or joining handlers.
    is_turn: bool,
    check: CheckPeriod,
    initial_complete: bool,
    /// The server's refusal, while it is an answer (R4).
    denied: Option<Error>,
    stopped: bool,
    /// Receives the handlers' panics; dropped at the stop.
    metrics: Option<Hook<Option<Arc<str>>>>,
}

struct HandlerEntry<K: Object> {
    listener: Arc<Listener<K>>,
    /// `None` in models of thread schedules, whose threads belong to the checker.
    worker: Option<Worker>,
    resync: Resync,
    /// It has received the store's content, and receives each change from then on.
    has_joined: bool,
    /// A stop or a removal with a deadline has named it as late.
    named_late: bool,
}

impl<K: Object> Processor<K> {
    /// Creates a processor without handlers, which will follow `store`.
    ///
    /// `resync_period` is the informer's own; zero switches resyncs off for all handlers (SI-22).
    /// `metrics` gets the handlers' panics.
    pub(crate) fn new(
        informer: impl Into<String>,
        store: Store<K>,
        resync_period: Duration,
        clock: Clock,
        metrics: Option<Hook<Option<Arc<str>>>>,
    ) -> Arc<Self> {
        let table = HandlerTable {
            check: CheckPeriod::new(resync_period),
            metrics,
            ..HandlerTable::default()
        };
        Arc::new(Self {
            informer: informer.into(),
            store,
            clock,
            resync_period,
            table: Monitor::ranked(Rank::HANDLERS, table),
            is_burst: AtomicBool::new(false),
            reclaimer: Arc::new(Reclaimer::new()),
        })
    }

    /// Creates a listener without a thread.
    pub(crate) fn listener(
        &self,
        options: HandlerOptions,
        type_name: &str,
        thread: &str,
    ) -> Listener<K> {
        let reclaimer = Arc::clone(&self.reclaimer);
        let clock = self.clock.clone();
        Listener::new(&self.store, clock, reclaimer, options, (type_name, thread))
    }

    /// Starts a handler's thread. The handler does not join yet.
    pub(super) fn spawn<H: EventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Arc<Listener<K>>, Error> {
        let thread = format!("hd-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let requested = options.resync_period.unwrap_or(self.resync_period);
        let listener = self.listener(options, std::any::type_name::<H>(), &thread);
        let metrics = {
            let table = self.table.lock();
            if table.stopped {
                drop(table);
                return Err(self.refusal(&listener));
            }
            table.metrics.clone()
        };
        let listener = Arc::new(listener);
        let body = Arc::clone(&listener);
        let worker = Worker::spawn(thread, move |_| body.run(handler, metrics));
        let worker = worker.map_err(Error::no_thread(&format!("handler {}", listener.name)))?;
        listener.runs_on(worker.thread_id());
        self.enter(&listener, Some(worker), requested)?;
        Ok(listener)
    }

    /// Takes a handler in. After the stop, a wait for the handlers includes its thread.
    pub(crate) fn enter(
        &self,
        listener: &Arc<Listener<K>>,
        worker: Option<Worker>,
        requested: Duration,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        table.check.admit(requested);
        let member = HandlerEntry {
            listener: Arc::clone(listener),
            worker,
            resync: Resync::new(requested, table.check, now),
            has_joined: false,
            named_late: false,
        };
        if table.stopped {
            table.members.push(member);
            drop(table);
            listener.end(&self.why_stopped());
            return Err(self.refusal(listener));
        }
        listener.deny(table.denied.as_ref());
        table.members.push(member);
        let ended = table.take_ended();
        drop(table);
        // Joins threads that have ended.
        drop(ended);
        Ok(())
    }

    /// Changes the store and tells the handlers, one thread at a time.
    ///
    /// `change` receives a function that tells the handlers of one change, and runs without a lock.
    /// Handlers added meanwhile join at the end. Blocks while another thread joins handlers, which
    /// calls no code of the program.
    pub(crate) fn turn<T>(&self, change: impl FnOnce(&dyn Fn(Notification<K>)) -> T) -> T {
        let joined = {
            let mut table = self.table.lock();
            while table.is_turn {
                table = self.table.wait(table);
            }
            table.is_turn = true;
            Arc::clone(&table.joined)
        };
        let changed = change(&|notification| self.tell(&joined, notification));
        if !self.is_burst.load(Ordering::SeqCst) {
            joined.iter().for_each(|listener| listener.wake());
        }
        self.end_turn();
        changed
    }

    /// Sets whether the next event has come already, so that its turn comes at once.
    ///
    /// While it has, the handlers' threads are not woken for each event.
    pub(crate) fn set_burst(&self, is_burst: bool) {
        if self.is_burst.swap(is_burst, Ordering::SeqCst) && !is_burst {
            let joined = Arc::clone(&self.table.lock().joined);
            joined.iter().for_each(|listener| listener.wake());
        }
    }

    /// Joins new handlers, unless the end of another thread's turn does.
    pub(crate) fn let_join(&self) {
        let was_turn = std::mem::replace(&mut self.table.lock().is_turn, true);
        if !was_turn {
            self.end_turn();
        }
    }

    /// Joins new handlers one by one until none is left.
    pub(in crate::informer) fn end_turn(&self) {
        let mut snapshots = Vec::new();
        loop {
            let mut table = self.table.lock();
            let joining = table.members.iter().filter(|member| !member.has_joined);
            let joining: Vec<_> = joining.map(|member| Arc::clone(&member.listener)).collect();
            if joining.is_empty() {
                table.is_turn = false;
                drop(table);
                self.table.notify_all();
                // This may be the last pointer to an object, whose drop may run code of the
                // program.
                drop(snapshots);
                return;
            }
            let complete = table.initial_complete;
            drop(table);
            let objects = self.store.last_good_of_all();
            for listener in &joining {
                listener.push_initial(&objects);
                if complete {
                    listener.complete_initial();
                }
            }
            snapshots.push(objects);
            let mut table = self.table.lock();
            for member in &mut table.members {
                let is_joining = |listener| Arc::ptr_eq(listener, &member.listener);
                member.has_joined |= joining.iter().any(is_joining);
            }
            table.retarget();
        }
    }

    /// Tells the handlers of a change. Tells only syncing handlers of a resync (SI-24).
    fn tell(&self, joined: &[Arc<Listener<K>>], notification: Notification<K>) {
        let is_resync = is_resync(&notification);
        let mut has_one_left = false;
        for listener in joined {
            if !is_resync || listener.is_syncing() {
                has_one_left |= !listener.push(notification.clone(), is_resync);
            }
        }
        self.reclaimer.release_all(notification);
        if has_one_left {
            self.let_leave();
        }
    }

    /// Notes that the handlers have got the whole initial list (SI-16). Called in a turn.
    pub(crate) fn complete_initial(&self) {
        let joined = {
            let mut table = self.table.lock();
            table.initial_complete = true;
            table.deny(None);
            Arc::clone(&table.joined)
        };
        for listener in joined.iter() {
            listener.complete_initial();
        }
    }

    /// Ends waits for the first list with the server's refusal, or takes the refusal back (R4).
    pub(crate) fn deny(&self, denied: Option<&Error>) {
        let mut table = self.table.lock();
        if !table.initial_complete {
            table.deny(denied);
        }
    }

    /// Notes that the informer runs, which fixes the check period (SI-22).
    pub(crate) fn start(&self) {
        self.table.lock().check.start();
    }

    /// How often the informer must check for a due resync; `None` means never.
    pub(crate) fn check_period(&self) -> Option<Duration> {
        self.table.lock().check.get()
    }

    /// Finds the handlers that are due for a resync at this tick; `false` if none is (SI-23).
    pub(crate) fn resync_is_due(&self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        let mut table = self.table.lock();
        let check = table.check;
        for member in &mut table.members {
            let is_due = member.resync.evaluate(check, now);
            member.listener.set_syncing(is_due);
            any |= is_due;
        }
        any
    }

    /// The handlers that have not been removed, oldest first.
    pub(super) fn running(&self) -> Vec<Arc<Listener<K>>> {
        let table = self.table.lock();
        let listeners = table.members.iter().map(|member| &member.listener);
        let running = listeners.filter(|listener| listener.phase() == HandlerPhase::Running);
        running.map(Arc::clone).collect()
    }

    /// Drops handlers that have ended from the list of those to tell.
    pub(crate) fn let_leave(&self) {
        self.table.lock().retarget();
    }

    /// Marks handlers for which a stop or a removal waited in vain, and joins those that have
    /// ended.
    pub(super) fn name_late(&self, late: &[Arc<Listener<K>>]) {
        let ended = {
            let mut table = self.table.lock();
            for member in &mut table.members {
                let is_member = |late| Arc::ptr_eq(late, &member.listener);
                member.named_late |= late.iter().any(is_member);
            }
            table.take_ended()
        };
        drop(ended);
    }

    /// Prevents further calls for good, without waiting.
    pub(crate) fn end(&self) {
        drop(self.end_all());
    }

    /// Ends every handler, and returns those to wait for.
    ///
    /// Their threads stay in the table, so that every thread that stops them can wait for them.
    fn end_all(&self) -> Vec<Arc<Listener<K>>> {
        let why = self.why_stopped();
        let mut table = self.table.lock();
        table.stopped = true;
        table.joined = Arc::new([]);
        let metrics = table.metrics.take();
        let members = table.members.iter();
        let listeners: Vec<_> = members.map(|member| Arc::clone(&member.listener)).collect();
        drop(table);
        drop(metrics);
        for listener in &listeners {
            listener.end(&why);
        }
        listeners
    }

    /// Stops all handlers for good: no further call begins, and queued notifications are dropped
    /// (SI-4, SI-5).
    ///
    /// Blocks until no call runs and the threads have ended, at most until `deadline`. It does not
    /// wait for the handler whose thread calls it, nor for one that waits, directly or through
    /// others, for the calling thread to end. Other threads may stop or remove the handlers
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the handlers whose call still runs; their threads end when it
    /// returns.
    pub(crate) fn stop(&self, deadline: Deadline) -> Result<(), Error> {
        let mut late = self.end_all();
        late.retain(|listener| matches!(listener.wait_until_ended(deadline), Ok(false)));
        self.name_late(&late);
        if late.is_empty() {
            return Ok(());
        }
        let stragglers: Vec<_> = late.iter().map(|listener| listener.straggler()).collect();
        Err(Error::new(ErrorKind::Timeout, still_run(&stragglers)))
    }

    /// Stops all handlers and joins their threads. Threads that a stop named as late end detached.
    pub(crate) fn close(&self) {
        self.end();
        let members = std::mem::take(&mut self.table.lock().members);
        for member in members {
            let (listener, worker) = (member.listener, member.worker);
            let has_ended = listener.phase() == HandlerPhase::Ended;
            if !has_ended && (member.named_late || listener.is_own_thread()) {
                log::warn!(
                    "handler {} still runs while its informer is dropped: its thread ends detached",
                    listener.name
                );
                if let Some(worker) = worker {
                    worker.abandon();
                }
            }
        }
    }

    /// The reason of the handlers' end, in the words of waits for the first sync.
    fn why_stopped(&self) -> String {
        let why = "the informer stopped before it was synced";
        match self.store.end_error() {
            Some(cause) => format!("{why}\n{cause}"),
            None => why.to_owned(),
        }
    }

    /// SI-12: the error of a handler that is added after the stop.
    fn refusal(&self, listener: &Listener<K>) -> Error {
        let (handler, informer) = (&listener.name, &self.informer);
        let text = format!(
            "handler {handler} was not added to shared informer {informer} because it has stopped \
             already"
        );
        Error::new(ErrorKind::Stopped, text)
    }
}

impl<K: Object> Drop for Processor<K> {
    fn drop(&mut self) {
        self.close();
    }
}

default_of!([K: Object] HandlerTable<K>:
    members, joined, is_turn, check, initial_complete, denied, stopped, metrics);

impl<K: Object> HandlerTable<K> {
    /// Takes the handlers' locks under the table's lock, so that a handler that enters gets the
    /// present refusal.
    fn deny(&mut self, denied: Option<&Error>) {
        self.denied = denied.cloned();
        for member in &self.members {
            member.listener.deny(denied);
        }
    }

    fn retarget(&mut self) {
        let members = self.members.iter().filter(|member| member.has_joined);
        let joined = members.map(|member| &member.listener);
        let joined = joined.filter(|listener| listener.phase() == HandlerPhase::Running);
        self.joined = joined.map(Arc::clone).collect();
    }

    fn take_ended(&mut self) -> Vec<HandlerEntry<K>> {
        let members = &mut self.members;
        let ended = members.extract_if(.., |member| member.listener.phase() == HandlerPhase::Ended);
        ended.collect()
    }
}
