//! All handlers of one informer: who is told of what, who is due for a resync, who comes and who goes.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::informer::handlers::listener::{Listener, Names, still_run};
use crate::informer::handlers::resync::{CheckPeriod, Resync, is_resync};
use crate::informer::handlers::state::{Life, Why};
use crate::informer::spent::Spent;
use crate::informer::{EventHandler, HandlerOptions, InformerMetrics, Notification, Registration};
use crate::object::{Held, Object};
use crate::reflector::DemandGuard;
use crate::store::{Outlook, Store};
use crate::sync::{Arc, Mutex, ProcessCounter, atomic::Ordering};
use crate::worker::Worker;

/// Numbers the handlers of the process, so that each thread's name is its own.
static NUMBER: ProcessCounter = ProcessCounter::new(1);

/// The informer's side of its handlers.
///
/// Programs register and remove from any thread. The rest is called on the informer's one queue thread, so that nothing is
/// distributed between a look at the indexer and a handler's joining: no gap and no duplicate (SI-11). In order:
/// [`start`](Self::start) once; then for each round [`admit`](Self::admit), and [`distribute`](Self::distribute) for what the
/// indexer took in; [`complete_initial`](Self::complete_initial) when the queue has synced; at each tick of
/// [`check_period`](Self::check_period), [`resync_is_due`](Self::resync_is_due), and if it is, a resync of the queue.
///
/// Dropping it stops all handlers and joins their threads: it blocks for as long as a call runs. Handlers which an earlier
/// [`stop`](Self::stop) named as late are not waited for again. On a handler's own thread that handler is not waited for.
#[derive(Debug)]
pub(crate) struct Processor<K: Object>(Arc<Front<K>>);

/// What the processor shares with the registrations.
pub(super) struct Front<K: Object> {
    informer: String,
    store: Store<K>,
    clock: Clock,
    resync_period: Duration,
    table: Mutex<Table<K>>,
    spent: Arc<Spent<K>>,
}

struct Table<K: Object> {
    members: Vec<Member<K>>,
    /// Who is told: replaced when it changes, so that telling needs no lock.
    targets: Arc<[Target<K>]>,
    /// Threads of handlers that were removed and whose last call has not returned.
    leaving: Vec<Leaving<K>>,
    check: CheckPeriod,
    initial_complete: bool,
    /// The server's refusal, while it is an answer (R4).
    denied: Option<Error>,
    stopped: bool,
    /// Is told of panics of the handlers; gone at the stop.
    metrics: Option<Arc<dyn InformerMetrics>>,
}

struct Member<K: Object> {
    listener: Arc<Listener<K>>,
    /// `None` in models of thread schedules, whose threads are the checker's.
    worker: Option<Worker>,
    resync: Resync,
    /// It has been told of what was there; from then on it is told of what comes.
    admitted: bool,
}

struct Leaving<K: Object> {
    listener: Arc<Listener<K>>,
    worker: Option<Worker>,
    /// A stop with a deadline has named it.
    named: bool,
}

struct Target<K: Object> {
    listener: Arc<Listener<K>>,
    syncing: bool,
}

impl<K: Object> Processor<K> {
    /// No handlers yet. `store` is what they follow. `resync_period` is the informer's own; zero switches resyncs off for all handlers (SI-22).
    pub(crate) fn new(
        informer: impl Into<String>,
        store: Store<K>,
        resync_period: Duration,
        clock: Clock,
    ) -> Self {
        let table = Table {
            members: Vec::new(),
            targets: Arc::new([]),
            leaving: Vec::new(),
            check: CheckPeriod::new(resync_period),
            initial_complete: false,
            denied: None,
            stopped: false,
            metrics: None,
        };
        Self(Arc::new(Front {
            informer: informer.into(),
            store,
            clock,
            resync_period,
            table: Mutex::new(table),
            spent: Arc::new(Spent::new()),
        }))
    }

    /// Has these metrics told of panics of the handlers that are added from now on.
    pub(crate) fn measured_by(self, metrics: Option<Arc<dyn InformerMetrics>>) -> Self {
        self.0.table.lock().metrics = metrics;
        self
    }

    /// Adds a handler and starts its thread; from any thread, before or while the informer runs.
    ///
    /// It is told of nothing before [`admit`](Self::admit), for which the informer's queue thread is to be woken.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop (SI-12); `Resources` when the system has no thread to give.
    pub(crate) fn register<H: EventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        let front = &self.0;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let thread = format!("hd-{number}");
        let names = names::<H>(&front.store.name(), options.name, &thread);
        let metrics = {
            let table = front.table.lock();
            if table.stopped {
                drop(table);
                return Err(front.refusal(&names.name));
            }
            table.metrics.clone()
        };
        let listener = Listener::new(names, options.queue_max, front.clock.clone());
        let listener = Arc::new(listener.leaving_to(&front.spent));
        let body = Arc::clone(&listener);
        let worker =
            Worker::spawn(thread, move |_| body.run(handler, metrics)).map_err(|error| {
                Error::new(
                    ErrorKind::Resources,
                    format!("no thread for handler {}: {error}", listener.name()),
                )
            })?;
        if let Some(thread) = worker.thread_id() {
            listener.runs_on(thread);
        }
        let requested = options.resync_period.unwrap_or(front.resync_period);
        self.enter(listener, Some(worker), requested)
    }

    pub(super) fn enter(
        &self,
        listener: Arc<Listener<K>>,
        worker: Option<Worker>,
        requested: Duration,
    ) -> Result<Registration, Error> {
        if !self.0.enter(&listener, worker, requested) {
            listener.end(Why::InformerStopped(self.0.store.outlook().ended));
            return Err(self.0.refusal(listener.name()));
        }
        Ok(Registration::new(listener, Arc::downgrade(&self.0)))
    }

    /// Adds a handler whose thread is the caller's business: models of thread schedules have threads of their own.
    #[cfg(all(test, shuttle))]
    pub(super) fn enter_unattended(
        &self,
        listener: &Arc<Listener<K>>,
    ) -> Result<Registration, Error> {
        self.enter(Arc::clone(listener), None, Duration::ZERO)
    }

    /// Lets those join who were registered since, if there are any: each is told of the objects of the snapshot.
    pub(crate) fn admit(&self, snapshot: impl FnOnce() -> Vec<Arc<Held<K>>>) {
        let joining = |table: &Table<K>| -> Vec<_> {
            let joining = table.members.iter().filter(|member| !member.admitted);
            joining.map(|member| Arc::clone(&member.listener)).collect()
        };
        let (joiners, complete) = {
            let table = self.0.table.lock();
            (joining(&table), table.initial_complete)
        };
        if joiners.is_empty() {
            return;
        }
        let objects = snapshot();
        for listener in &joiners {
            listener.push_initial(&objects);
            if complete {
                listener.complete_initial();
            }
        }
        let mut table = self.0.table.lock();
        for member in &mut table.members {
            member.admitted |= joiners
                .iter()
                .any(|joined| Arc::ptr_eq(joined, &member.listener));
        }
        table.retarget();
    }

    /// Tells every handler that is to be told; a resync's update only those that are syncing (SI-24).
    pub(crate) fn distribute(&self, notification: &Notification<K>) {
        let targets = Arc::clone(&self.0.table.lock().targets);
        let is_resync = is_resync(notification);
        let mut someone_left = false;
        for target in targets.iter().filter(|target| !is_resync || target.syncing) {
            someone_left |= !target.listener.push(notification.clone(), is_resync);
        }
        if someone_left {
            self.0.table.lock().let_leave();
        }
    }

    /// The informer's initial list has been distributed to its last object (SI-16).
    pub(crate) fn complete_initial(&self) {
        let targets = {
            let mut table = self.0.table.lock();
            table.initial_complete = true;
            table.deny(None);
            Arc::clone(&table.targets)
        };
        for target in targets.iter() {
            target.listener.complete_initial();
        }
    }

    /// The server's refusal has become an answer, or is one no more: handlers that wait for the first list hear of it (R4).
    pub(crate) fn deny(&self, denied: Option<&Error>) {
        let mut table = self.0.table.lock();
        if !table.initial_complete {
            table.deny(denied);
        }
    }

    /// The informer runs: from now on the check period stays as it is (SI-22).
    pub(crate) fn start(&self) {
        self.0.table.lock().check.start();
    }

    /// Where the threads of the informer leave what they are done with.
    pub(crate) fn spent(&self) -> Arc<Spent<K>> {
        Arc::clone(&self.0.spent)
    }

    /// How often the informer is to look whether a resync is due; `None` is never.
    pub(crate) fn check_period(&self) -> Option<Duration> {
        self.0.table.lock().check.get()
    }

    /// Looks who is due for a resync at this tick, and says whether anybody is (SI-23).
    pub(crate) fn resync_is_due(&self) -> bool {
        let now = self.0.clock.now();
        let mut table = self.0.table.lock();
        let mut any = false;
        for member in &mut table.members {
            any |= member.resync.evaluate(now);
        }
        table.retarget();
        any
    }

    /// The handlers that have not been removed, oldest first.
    pub(crate) fn registrations(&self) -> Vec<Registration> {
        Front::registrations(&self.0)
    }

    /// A way to the handlers for readings, which does not keep them.
    pub(crate) fn roll(&self) -> Roll<K> {
        Roll(Arc::downgrade(&self.0))
    }

    /// Lets no further call begin, for good, and does not wait: a [`stop`](Self::stop) or the drop does that.
    pub(crate) fn end(&self) {
        drop(self.0.end_all());
    }

    /// Stops all handlers for good: no further call begins, what waits is dropped (SI-4, SI-5).
    ///
    /// Blocks until no call runs and the threads have ended, at most until `deadline`. A handler on whose thread this is
    /// called is not waited for, nor one that waits, over others or not, for the end of the calling
    /// thread. Who else stops
    /// or removes them is no matter.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the handlers whose call still runs; their threads end when it returns.
    pub(crate) fn stop(&self, deadline: Deadline) -> Result<(), Error> {
        let mut late = self.0.end_all();
        late.retain(|listener| matches!(listener.wait_until_ended(deadline), Ok(false)));
        let ended = {
            let mut table = self.0.table.lock();
            for leaving in &mut table.leaving {
                let is_late = |late: &Arc<_>| Arc::ptr_eq(late, &leaving.listener);
                leaving.named |= late.iter().any(is_late);
            }
            table.take_ended()
        };
        drop(ended);
        if late.is_empty() {
            return Ok(());
        }
        let stragglers: Vec<_> = late.iter().map(|listener| listener.straggler()).collect();
        Err(Error::new(ErrorKind::Timeout, still_run(&stragglers)))
    }
}

impl<K: Object> Processor<K> {
    /// Stops all handlers and joins their threads, except those which a stop named as late: they end detached.
    pub(crate) fn close(&self) {
        drop(self.0.end_all());
        let leaving = std::mem::take(&mut self.0.table.lock().leaving);
        for leaving in leaving {
            let has_ended = leaving.listener.life() == Life::Ended;
            if !has_ended && (leaving.named || leaving.listener.is_own_thread()) {
                log::warn!(
                    "handler {} still runs while its informer is dropped: its thread ends detached",
                    leaving.listener.name()
                );
                if let Some(worker) = leaving.worker {
                    worker.abandon();
                }
            } else {
                drop(leaving.worker);
            }
        }
    }
}

/// The handlers of an informer that may be gone. Holding it for a moment delays no end: only the processor joins.
pub(crate) struct Roll<K: Object>(Weak<Front<K>>);

impl<K: Object> Roll<K> {
    pub(crate) fn registrations(&self) -> Vec<Registration> {
        let front = self.0.upgrade();
        front.as_ref().map(Front::registrations).unwrap_or_default()
    }
}

impl<K: Object> Drop for Processor<K> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<K: Object> Front<K> {
    fn registrations(front: &Arc<Self>) -> Vec<Registration> {
        let table = front.table.lock();
        let members = table.members.iter();
        // One that wanted nothing more is a member until the next notification.
        members
            .filter(|member| member.listener.life() == Life::Running)
            .map(|member| Registration::new(Arc::clone(&member.listener), Arc::downgrade(front)))
            .collect()
    }

    /// Takes a handler in; `false` after the stop: then its thread is left to whoever waits for the others.
    fn enter(
        &self,
        listener: &Arc<Listener<K>>,
        worker: Option<Worker>,
        requested: Duration,
    ) -> bool {
        let now = self.clock.now();
        let listener = Arc::clone(listener);
        let mut table = self.table.lock();
        if table.stopped {
            table.leaving.push(Leaving {
                listener,
                worker,
                named: false,
            });
            return false;
        }
        if table.check.admit(requested) {
            let check = table.check;
            for member in &mut table.members {
                member.resync.check_period_changed(check);
            }
        }
        let member = Member {
            listener,
            worker,
            resync: Resync::new(requested, table.check, now),
            admitted: false,
        };
        member.listener.deny(table.denied.as_ref());
        table.members.push(member);
        let ended = table.take_ended();
        drop(table);
        // Joins threads that have passed their last act.
        drop(ended);
        true
    }

    pub(super) fn remove(
        &self,
        listener: &Arc<Listener<K>>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        self.table.lock().let_leave();
        if listener.is_own_thread() {
            return Ok(());
        }
        let waited = listener.wait_until_ended(deadline);
        let gone = {
            let mut table = self.table.lock();
            let mut leaving = table.leaving.iter_mut();
            if let Some(late) = leaving.find(|leaving| Arc::ptr_eq(&leaving.listener, listener)) {
                late.named = !matches!(waited, Ok(true));
            }
            table.take_ended()
        };
        drop(gone);
        listener.removed(waited)
    }

    /// A wait for the informer's first sync, and how it stands with that.
    pub(super) fn demand(&self) -> DemandGuard {
        self.store.demand().wait()
    }

    pub(super) fn outlook(&self) -> Outlook {
        self.store.outlook()
    }

    /// Ends every handler and gives those that are to be waited for. Their threads stay in the table, so that everybody who
    /// stops them waits for them.
    fn end_all(&self) -> Vec<Arc<Listener<K>>> {
        let cause = self.store.outlook().ended;
        let mut table = self.table.lock();
        table.stopped = true;
        table.let_all_leave();
        let metrics = table.metrics.take();
        let leaving = table.leaving.iter();
        let listeners: Vec<_> = leaving
            .map(|leaving| Arc::clone(&leaving.listener))
            .collect();
        drop(table);
        drop(metrics);
        for listener in &listeners {
            listener.end(Why::InformerStopped(cause.clone()));
        }
        listeners
    }

    /// SI-12.
    fn refusal(&self, handler: &str) -> Error {
        let informer = &self.informer;
        let text = format!(
            "handler {handler} was not added to shared informer {informer} because it has stopped already"
        );
        Error::new(ErrorKind::Stopped, text)
    }
}

impl<K: Object> Table<K> {
    /// Under the table's lock also the handlers' own: who enters meanwhile gets what holds then.
    fn deny(&mut self, denied: Option<&Error>) {
        self.denied = denied.cloned();
        for member in &self.members {
            member.listener.deny(denied);
        }
    }

    fn retarget(&mut self) {
        let admitted = self.members.iter().filter(|member| member.admitted);
        self.targets = admitted
            .map(|member| Target {
                listener: Arc::clone(&member.listener),
                syncing: member.resync.is_syncing(),
            })
            .collect();
    }

    /// Moves those who were ended, or ended themselves, to the leaving ones.
    fn let_leave(&mut self) {
        self.move_out(|member| member.listener.life() != Life::Running);
    }

    fn let_all_leave(&mut self) {
        self.move_out(|_| true);
    }

    fn move_out(&mut self, leaves: impl Fn(&Member<K>) -> bool) {
        let (leaving, staying) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(leaves);
        self.members = staying;
        let leaving: Vec<Member<K>> = leaving;
        self.leaving
            .extend(leaving.into_iter().map(|member| Leaving {
                listener: member.listener,
                worker: member.worker,
                named: false,
            }));
        self.retarget();
    }

    fn take_ended(&mut self) -> Vec<Leaving<K>> {
        let (ended, left) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|leaving| leaving.listener.life() == Life::Ended);
        self.leaving = left;
        ended
    }
}

impl<K: Object> fmt::Debug for Front<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.lock();
        f.debug_struct("Front")
            .field("informer", &self.informer)
            .field("handlers", &table.members.len())
            .field("leaving", &table.leaving.len())
            .finish_non_exhaustive()
    }
}

/// What a handler is called: as its options say, else as its thread, in waits with its type before that (WT-4).
fn names<H>(informer: &str, given: Option<String>, thread: &str) -> Names {
    let in_waits = match &given {
        Some(name) => name.clone(),
        None => format!("{} ({thread})", type_label(std::any::type_name::<H>())),
    };
    Names {
        is_given: given.is_some(),
        name: given.unwrap_or_else(|| thread.to_owned()),
        sync: format!("{informer} + event handler {in_waits}"),
    }
}

/// A type's name without what it is generic over and what boxes it; of a type of this crate, without where it stands.
pub(super) fn type_label(full: &str) -> &str {
    let mut label = full;
    while let Some(boxed) = label.strip_prefix("alloc::boxed::Box<") {
        label = boxed;
    }
    label = label.strip_prefix("dyn ").unwrap_or(label);
    let end = label.find(['<', '>', ' ']).unwrap_or(label.len());
    label = label.get(..end).unwrap_or(label);
    let own = concat!(env!("CARGO_CRATE_NAME"), "::");
    match label.rsplit_once("::") {
        Some((_, last)) if label.starts_with(own) => last,
        Some(_) | None => label,
    }
}
