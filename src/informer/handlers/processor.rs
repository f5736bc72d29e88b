//! All handlers of one informer: they join, are told, are resynced, and leave.

use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::hooks::Hook;
use crate::informer::handlers::listener::{Listener, still_run};
use crate::informer::handlers::registration::Registered as _;
use crate::informer::handlers::resync::{CheckPeriod, Resync, is_resync};
use crate::informer::handlers::state::Life;
use crate::informer::spent::Spent;
use crate::informer::{EventHandler, HandlerOptions, Notification, Registration};
use crate::object::Object;
use crate::reflector::DemandGuard;
use crate::store::Store;
use crate::sync::{
    Arc, Monitor, ProcessCounter, Rank,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::Worker;

/// Numbers the handlers of the process, so that each thread's name is its own.
static NUMBER: ProcessCounter = ProcessCounter::new(1);

/// The informer's side of its handlers.
///
/// The store changes, and the handlers are told, in a [`turn`](Self::turn) only. A handler that is
/// added joins between two turns, so that it misses nothing and is told nothing twice (SI-11).
///
/// Dropping it stops all handlers and joins their threads: it blocks for as long as a call runs.
/// Handlers which an earlier [`stop`](Self::stop) named as late are not waited for again. On a
/// handler's own thread that handler is not waited for.
pub(crate) struct Processor<K: Object> {
    informer: String,
    store: Store<K>,
    clock: Clock,
    resync_period: Duration,
    table: Monitor<Table<K>>,
    /// The next event is there already: the handlers' threads are woken for all of them together.
    is_burst: AtomicBool,
    spent: Arc<Spent<K>>,
}

struct Table<K: Object> {
    members: Vec<Member<K>>,
    /// The members that have joined; replaced when that changes, so that telling needs no lock.
    joined: Arc<[Arc<Listener<K>>]>,
    /// Handlers that have ended, or are to end, and whose threads are to be joined.
    leaving: Vec<Member<K>>,
    /// A thread changes the store, or lets handlers join.
    is_turn: bool,
    check: CheckPeriod,
    initial_complete: bool,
    /// The server's refusal, while it is an answer (R4).
    denied: Option<Error>,
    stopped: bool,
    /// Is told of panics of the handlers; gone at the stop.
    metrics: Option<Hook<Option<Arc<str>>>>,
}

struct Member<K: Object> {
    listener: Arc<Listener<K>>,
    /// `None` in models of thread schedules, whose threads are the checker's.
    worker: Option<Worker>,
    resync: Resync,
    /// It has been told of the store's content, and is told of each change from then on.
    has_joined: bool,
    /// A stop or a removal with a deadline has named it.
    named_late: bool,
}

impl<K: Object> Processor<K> {
    /// No handlers yet. `store` is what they follow.
    ///
    /// `resync_period` is the informer's own; zero switches resyncs off for all handlers (SI-22).
    /// `metrics` are told of panics of the handlers.
    pub(crate) fn new(
        informer: impl Into<String>,
        store: Store<K>,
        resync_period: Duration,
        clock: Clock,
        metrics: Option<Hook<Option<Arc<str>>>>,
    ) -> Arc<Self> {
        let table = Table {
            members: Vec::new(),
            joined: Arc::new([]),
            leaving: Vec::new(),
            is_turn: false,
            check: CheckPeriod::new(resync_period),
            initial_complete: false,
            denied: None,
            stopped: false,
            metrics,
        };
        Arc::new(Self {
            informer: informer.into(),
            store,
            clock,
            resync_period,
            table: Monitor::ranked(Rank::HANDLERS, table),
            is_burst: AtomicBool::new(false),
            spent: Arc::new(Spent::new()),
        })
    }

    /// Adds a handler and starts its thread; never blocks.
    ///
    /// The handler joins at once, or at the end of the turn that is under way.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop (SI-12); `Resources` when the system has no thread to give.
    pub(crate) fn register<H: EventHandler<K>>(
        self: &Arc<Self>,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        let registration = self.add(handler, options)?;
        self.let_join();
        Ok(registration)
    }

    /// Starts the thread of a handler, which does not join yet.
    pub(in crate::informer) fn add<H: EventHandler<K>>(
        self: &Arc<Self>,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let thread = format!("hd-{number}");
        let requested = options.resync_period.unwrap_or(self.resync_period);
        let listener = Listener::new(self, options, std::any::type_name::<H>(), &thread);
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
        let worker = worker.map_err(|error| {
            let text = format!("no thread for handler {}: {error}", listener.name());
            Error::new(ErrorKind::Resources, text)
        })?;
        listener.runs_on(worker.thread_id());
        self.enter(listener, Some(worker), requested)
    }

    /// Takes a handler in. After the stop its thread is left to those who wait for the others.
    pub(super) fn enter(
        &self,
        listener: Arc<Listener<K>>,
        worker: Option<Worker>,
        requested: Duration,
    ) -> Result<Registration, Error> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        table.check.admit(requested);
        let member = Member {
            listener: Arc::clone(&listener),
            worker,
            resync: Resync::new(requested, table.check, now),
            has_joined: false,
            named_late: false,
        };
        if table.stopped {
            table.leaving.push(member);
            drop(table);
            listener.end(&self.why_stopped());
            return Err(self.refusal(&listener));
        }
        listener.deny(table.denied.as_ref());
        table.members.push(member);
        let ended = table.take_ended();
        drop(table);
        // Joins threads that have passed their last act.
        drop(ended);
        Ok(Registration::new(listener))
    }

    /// Changes the store and tells the handlers, while no other thread does.
    ///
    /// `change` is given what tells the handlers of one change; it runs under no lock. Handlers
    /// that were added meanwhile join at the end. Blocks while handlers join on another thread,
    /// which calls no code of the program.
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

    /// Says whether the next event is there already, so that its turn comes at once.
    ///
    /// Until that is no more so, the handlers' threads are not woken for each event.
    pub(crate) fn set_burst(&self, is_burst: bool) {
        if self.is_burst.swap(is_burst, Ordering::SeqCst) && !is_burst {
            let joined = Arc::clone(&self.table.lock().joined);
            joined.iter().for_each(|listener| listener.wake());
        }
    }

    /// Lets those join who were added since, unless the end of another thread's turn does.
    pub(super) fn let_join(&self) {
        {
            let mut table = self.table.lock();
            if table.is_turn {
                return;
            }
            table.is_turn = true;
        }
        self.end_turn();
    }

    /// Lets handlers join, one after the other, until no more has come.
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
                // The last hold of an object: its drop may be code of the user's.
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

    /// Tells every handler that is to be told; of a resync only those that are syncing (SI-24).
    fn tell(&self, joined: &[Arc<Listener<K>>], notification: Notification<K>) {
        let is_resync = is_resync(&notification);
        let mut has_one_left = false;
        for listener in joined {
            if !is_resync || listener.is_syncing() {
                has_one_left |= !listener.push(notification.clone(), is_resync);
            }
        }
        self.spent.leave_all(notification);
        if has_one_left {
            self.let_leave();
        }
    }

    /// The handlers have been told of the whole initial list (SI-16); called in a turn.
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

    /// Tells those who wait for the first list of the server's refusal, or that it is none (R4).
    pub(crate) fn deny(&self, denied: Option<&Error>) {
        let mut table = self.table.lock();
        if !table.initial_complete {
            table.deny(denied);
        }
    }

    /// The informer runs: from now on the check period stays as it is (SI-22).
    pub(crate) fn start(&self) {
        self.table.lock().check.start();
    }

    /// How often the informer is to look whether a resync is due; `None` is never.
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
    pub(crate) fn registrations(&self) -> Vec<Registration> {
        let table = self.table.lock();
        let members = table.members.iter();
        // One that wanted nothing more is a member until the next notification.
        members
            .filter(|member| member.listener.life() == Life::Running)
            .map(|member| Registration::new(Arc::clone(&member.listener)))
            .collect()
    }

    /// Where the threads of the informer leave what they are done with.
    pub(crate) fn spent(&self) -> &Arc<Spent<K>> {
        &self.spent
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What errors of waits call the informer (WT-4).
    pub(super) fn sync_name(&self) -> String {
        self.store.name().into_owned()
    }

    /// A wait for the informer's first sync.
    pub(super) fn demand(&self) -> DemandGuard {
        self.store.demand().wait()
    }

    /// The failures of a wait for the informer's first sync; `None` once it is synced.
    pub(super) fn sync_failures(&self) -> Option<Failures> {
        self.store.sync_failures()
    }

    /// Moves handlers that were ended, or ended themselves, to the leaving ones.
    pub(super) fn let_leave(&self) {
        let mut table = self.table.lock();
        table.move_out(|member| member.listener.life() != Life::Running);
    }

    /// Marks the handlers that a stop or a removal has waited for in vain, and joins those that
    /// have ended.
    pub(super) fn name_late(&self, late: &[&Listener<K>]) {
        let ended = {
            let mut table = self.table.lock();
            for leaving in &mut table.leaving {
                let listener = Arc::as_ptr(&leaving.listener);
                leaving.named_late |= late.iter().any(|late| std::ptr::eq(*late, listener));
            }
            table.take_ended()
        };
        drop(ended);
    }

    /// Lets no further call begin, for good, and does not wait.
    pub(crate) fn end(&self) {
        drop(self.end_all());
    }

    /// Ends every handler, and gives those that are to be waited for.
    ///
    /// Their threads stay in the table, so that every thread that stops them waits for them.
    fn end_all(&self) -> Vec<Arc<Listener<K>>> {
        let why = self.why_stopped();
        let mut table = self.table.lock();
        table.stopped = true;
        table.move_out(|_| true);
        let metrics = table.metrics.take();
        let leaving = table.leaving.iter();
        let listeners: Vec<_> = leaving
            .map(|leaving| Arc::clone(&leaving.listener))
            .collect();
        drop(table);
        drop(metrics);
        for listener in &listeners {
            listener.end(&why);
        }
        listeners
    }

    /// Stops all handlers for good: no further call begins, what waits is dropped (SI-4, SI-5).
    ///
    /// Blocks until no call runs and the threads have ended, at most until `deadline`. A handler on
    /// whose thread this is called is not waited for, nor one that waits, over others or not, for
    /// the end of the calling thread. Other threads may stop or remove the handlers meanwhile.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the handlers whose call still runs; their threads end when it
    /// returns.
    pub(crate) fn stop(&self, deadline: Deadline) -> Result<(), Error> {
        let mut late = self.end_all();
        late.retain(|listener| matches!(listener.wait_until_ended(deadline), Ok(false)));
        let refs: Vec<&Listener<K>> = late.iter().map(|listener| &**listener).collect();
        self.name_late(&refs);
        if late.is_empty() {
            return Ok(());
        }
        let stragglers: Vec<_> = late.iter().map(|listener| listener.straggler()).collect();
        Err(Error::new(ErrorKind::Timeout, still_run(&stragglers)))
    }

    /// Stops all handlers and joins their threads; those that a stop named as late end detached.
    pub(crate) fn close(&self) {
        self.end();
        let leaving = std::mem::take(&mut self.table.lock().leaving);
        for Member {
            listener,
            worker,
            named_late,
            ..
        } in leaving
        {
            let has_ended = listener.life() == Life::Ended;
            if !has_ended && (named_late || listener.is_own_thread()) {
                log::warn!(
                    "handler {} still runs while its informer is dropped: its thread ends detached",
                    listener.name()
                );
                if let Some(worker) = worker {
                    worker.abandon();
                }
            }
        }
    }

    /// Why handlers end with the informer, in the words of their waits for the first sync.
    fn why_stopped(&self) -> String {
        let why = "the informer stopped before it was synced";
        match self.store.end_error() {
            Some(cause) => format!("{why}\n{cause}"),
            None => why.to_owned(),
        }
    }

    /// SI-12.
    fn refusal(&self, listener: &Listener<K>) -> Error {
        let (handler, informer) = (listener.name(), &self.informer);
        let text = format!(
            "handler {handler} was not added to shared informer {informer} because it has stopped already"
        );
        Error::new(ErrorKind::Stopped, text)
    }
}

impl<K: Object> Drop for Processor<K> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<K: Object> Table<K> {
    /// Under the table's lock also the handlers' own, so that one that enters gets what holds then.
    fn deny(&mut self, denied: Option<&Error>) {
        self.denied = denied.cloned();
        for member in &self.members {
            member.listener.deny(denied);
        }
    }

    fn retarget(&mut self) {
        let joined = self.members.iter().filter(|member| member.has_joined);
        self.joined = joined.map(|member| Arc::clone(&member.listener)).collect();
    }

    fn move_out(&mut self, leaves: impl Fn(&Member<K>) -> bool) {
        let (leaving, staying): (Vec<_>, _) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(leaves);
        self.members = staying;
        self.leaving.extend(leaving);
        self.retarget();
    }

    fn take_ended(&mut self) -> Vec<Member<K>> {
        let (ended, left) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|leaving| leaving.listener.life() == Life::Ended);
        self.leaving = left;
        ended
    }
}
