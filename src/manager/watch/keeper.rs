//! The keeper of a manager that watches: carries out the decisions of entries, joins ended runs,
//! sweeps, and checks immutable objects (B7) and absences at the server.
//!
//! Its thread is the housekeeper. Each check is one GET on a short-lived thread.

use std::time::Duration;

use super::context::{CheckQueue, RunContext};
use super::entry::{WatchAction, WatchEntry, WatchedObject};
use super::run::{PendingWork, ThreadRun};
use super::starts::Starts;
use super::starts::launch::Launcher;
use super::state_machine::{WatchEffect, WatchInput, WatchState};
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::guard::guard;
use crate::manager::consistent_reads::begin_read;
use crate::manager::entry::content::ReadPosition;
use crate::manager::entry::object_entry::EntryState as _;
use crate::manager::registry::{Registry, RequestContext};
use crate::object::{Object, ResourceVersion, StoredObject, resource_name};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake, Worker, WorkerGroup};

/// How often the keeper sweeps (OC-18). The first sweep is at once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How long one check may take, counted from its own request. Readers wait at most a second of it.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// The most checks in flight at once. Another one waits only if all of them hang.
pub(crate) const CHECKS_MAX: usize = 32;

/// How long the keeper itself waits for the end of a run.
const JOIN_PATIENCE: Duration = Duration::from_secs(1);

/// The keeper of one manager.
pub(crate) struct Keeper<K: Object> {
    pub(crate) context: RunContext<K>,
    pub(crate) starts: Starts<K>,
    check_threads: WorkerGroup,
    /// Its caller does the work of its threads.
    pub(crate) is_stepped: bool,
}

impl<K: Object> Keeper<K> {
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        registry: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Self {
        let context = RunContext::new(registry);
        Self {
            starts: Starts::new(launcher, context.clone()),
            check_threads: WorkerGroup::default(),
            is_stepped: false,
            context,
        }
    }

    /// Changes an entry, and carries out its decision.
    pub(crate) fn act(
        self: &Arc<Self>,
        object: &WatchedObject<K>,
        change: impl FnOnce(&mut WatchEntry<K>) -> WatchAction,
    ) {
        self.perform(object, self.context.registry.change(object, change));
    }

    /// Carries out the decision of an entry. Called under no lock; never blocks on the network or
    /// on the end of a thread.
    pub(crate) fn perform(self: &Arc<Self>, object: &WatchedObject<K>, action: WatchAction) {
        self.context.end_all(action.ending);
        match action.effect {
            WatchEffect::Start(run) => self.starts.begin(object, run),
            WatchEffect::CheckState => self.check(object),
            WatchEffect::End | WatchEffect::Replace => {
                // Readers that wait for this run look again: another answer is there, or none will
                // come.
                object.state.notify_all();
            }
            WatchEffect::Nothing | WatchEffect::Keep | WatchEffect::Discard => {}
        }
    }
}

/// The housekeeper's thread.
impl<K: Object> Keeper<K> {
    /// Joins ended runs, stops the watches of idle objects, starts the watches that had no room,
    /// and shares the room out where it is short.
    ///
    /// After a panic the work goes on, since the manager's drop waits until the ended runs are
    /// joined.
    pub(crate) fn maintain(self: &Arc<Self>, stop: &StopToken) {
        let maintain = || self.maintain_until_stopped(stop);
        self.context
            .work_through_panics("housekeeper", stop, maintain, |_| ());
    }

    /// After its stop it joins the runs that are left, those that just end themselves included.
    fn maintain_until_stopped(self: &Arc<Self>, stop: &StopToken) {
        let (context, registry) = (&self.context, &self.context.registry);
        let wake: Arc<dyn Wake> = Arc::<Monitor<PendingWork>>::clone(&context.work);
        let _registration = stop.register(&wake);
        let mut sweep_at = registry.clock().after(Duration::ZERO);
        while !self.work_once(&mut sweep_at, Deadline::NEVER, stop) {}
    }

    /// Does the work that is there, or that comes until `patience`. Returns whether it has ended.
    fn work_once(
        self: &Arc<Self>,
        sweep_at: &mut Deadline,
        patience: Deadline,
        stop: &StopToken,
    ) -> bool {
        let (context, registry) = (&self.context, &self.context.registry);
        let (ended, recovered, is_due) = self.wait_for_work(*sweep_at, patience, stop);
        let made_room = !ended.is_empty();
        for run in ended {
            self.join(run, stop);
        }
        if stop.is_stopped() {
            let mut work = context.work.lock();
            work.is_closed |= work.alive == 0;
            return work.is_closed;
        }
        // The end of a manager makes room for nothing.
        if made_room && !registry.stop.token().is_stopped() {
            self.use_room();
        }
        if recovered {
            // Each shortens its backoff to the first step, once per failure (B10).
            for object in registry.entries() {
                object.waiters.expedite();
                object.state.lock().expedite_shared();
            }
        }
        let sweeps = registry.clock().has_passed(*sweep_at);
        if is_due || sweeps {
            self.starts.tend_namespaces();
            self.confirm_absences();
        }
        if sweeps {
            self.sweep();
            let mended = context.work.lock().failure.take();
            drop(mended);
            *sweep_at = registry.clock().after(SWEEP_INTERVAL);
        }
        false
    }

    /// Does the present work of the housekeeper, of the checks and of the poller, without blocking:
    /// of the housekeeper also what its first round asks for. Returns whether that has ended.
    #[cfg(feature = "testing")]
    pub(crate) fn step(self: &Arc<Self>, sweep_at: &mut Deadline, stop: &StopToken) -> bool {
        let now = Deadline::at(self.context.registry.clock().now());
        let has_ended = self.work_once(sweep_at, now, stop) || self.work_once(sweep_at, now, stop);
        self.check_all(&self.context.registry.stop.token());
        if let Some(poller) = &self.starts.poller {
            poller.step();
        }
        has_ended
    }

    /// Waits for ended runs, a recovered server, namespaces or absences that are due, the next
    /// sweep or the stop. After the stop it waits for ended runs only, and for the last of them,
    /// unless the thread that starts one waits for this thread.
    fn wait_for_work(
        &self,
        sweep_at: Deadline,
        patience: Deadline,
        stop: &StopToken,
    ) -> (Vec<ThreadRun>, bool, bool) {
        let clock = self.context.registry.clock();
        let mut work = self.context.work.lock();
        while work.ended.is_empty() && !work.recovered {
            let stopped = stop.is_stopped();
            work.is_ending |= stopped;
            let next = sweep_at.earlier(work.tend_at.map_or(Deadline::NEVER, Deadline::at));
            let until = if stopped { Deadline::NEVER } else { next };
            let until = until.earlier(patience);
            if clock.has_passed(until) || stopped && work.alive == 0 {
                break;
            }
            let start = work.starts.first().filter(|_| stopped);
            let waiting = start.map(|start| start.wait("the start of a watch"));
            let Ok(_waiting) = waiting.transpose() else {
                work.is_closed = true;
                break;
            };
            work = clock.wait_until(&self.context.work, work, until);
        }
        let recovered = std::mem::take(&mut work.recovered);
        let now = clock.now();
        let is_due = work.tend_at.take_if(|at| *at <= now).is_some();
        (std::mem::take(&mut work.ended), recovered, is_due)
    }

    /// Waits for the end of a run's thread, which [`PendingWork::late`] names meanwhile:
    /// milliseconds, since its stop was raised. Code of the program may hold it up. Another thread
    /// waits for it then.
    fn join(&self, run: ThreadRun, stop: &StopToken) {
        let work = Arc::clone(&self.context.work);
        let thread = run.handle.thread_name();
        work.lock().joining.push(thread.clone());
        let until = if cfg!(shuttle) {
            Deadline::NEVER
        } else {
            Clock::system().after(JOIN_PATIENCE)
        };
        if stop.is_stopped() || run.handle.ends_by(until) {
            return run.join(&work);
        }
        log::warn!("thread {thread} was asked to end {JOIN_PATIENCE:?} ago: its code hangs");
        // Without another thread, the run is dropped here, which waits.
        if let Ok(waiting) = Worker::spawn("hk-late", move |_| run.join(&work)) {
            self.check_threads.add(waiting);
        }
    }

    /// Starts the watches that had no room, until one finds none again. Another failure of a watch
    /// does not keep the next one from starting. Polled objects come last.
    fn use_room(self: &Arc<Self>) {
        let registry = &self.context.registry;
        for object in registry.entries() {
            self.act(&object, |entry| entry.act(WatchInput::Room));
            if object.state.lock().found_no_room() {
                return;
            }
        }
        self.starts.promote();
    }

    fn sweep(self: &Arc<Self>) {
        let registry = &self.context.registry;
        let (now, instant) = (registry.clock().coarse(), registry.clock().now());
        for object in registry.entries() {
            let action = registry.change(&object, |entry| {
                entry.note_read(registry.read_cache.mark(&object.key));
                entry.history.sweep(entry.read_at);
                // An unfilled entry goes on trying for as long as it is referenced (OC-20).
                let input = if entry.is_idle(now, registry.options.idle_max) {
                    WatchInput::Idle
                } else {
                    WatchInput::Retry
                };
                entry.try_again(input, instant)
            });
            let changed = action.effect == WatchEffect::End;
            self.perform(&object, action);
            if changed {
                registry.changes.notify(&object.key);
            }
            self.starts.attach_left_out(&object);
        }
        // The limits of the process may have been raised.
        self.starts.promote();
        self.starts.rebalance();
    }
}

/// The checks of immutable objects whose watches are stopped (B7), and of absences.
impl<K: Object> Keeper<K> {
    /// Queues the check of an object. It gets a thread of its own while there are not too many.
    pub(crate) fn check(self: &Arc<Self>, object: &WatchedObject<K>) {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        registry.change(object, |entry| entry.begin_check(now));
        self.enqueue(|queue| queue.waiting.push(Arc::clone(object)));
    }

    /// Queues the confirmations of absences whose time has come.
    pub(crate) fn confirm_absences(self: &Arc<Self>) {
        let now = self.context.registry.clock().now();
        let mut queue = self.context.checks.lock();
        let all = std::mem::take(&mut queue.later).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = all.partition(|(at, _)| *at <= now);
        let next = later.iter().map(|(at, _)| *at).min();
        queue.later = later;
        drop(queue);
        for (_, object) in due {
            self.enqueue(|queue| queue.absent.push(object));
        }
        if let Some(next) = next {
            self.context.tend_at(next);
        }
    }

    /// Puts an object in the queue, and starts a thread if there are not too many.
    fn enqueue(self: &Arc<Self>, enqueue: impl FnOnce(&mut CheckQueue<K>)) {
        let checks = &self.context.checks;
        let stop = self.context.registry.stop.token();
        let mut queue = checks.lock();
        if stop.is_stopped() {
            // Its drop takes locks.
            drop(queue);
            return;
        }
        enqueue(&mut queue);
        if self.is_stepped || queue.threads >= CHECKS_MAX {
            return;
        }
        queue.threads = queue.threads.saturating_add(1);
        queue.starting = queue.starting.saturating_add(1);
        drop(queue);
        let keeper = Arc::clone(self);
        let name = format!("ck-{}", resource_name::<K>());
        match Worker::spawn(name, move |_| keeper.check_all(&stop)) {
            Ok(worker) => self.check_threads.add(worker),
            Err(error) => self.refuse(error),
        }
        let mut queue = checks.lock();
        queue.starting = queue.starting.saturating_sub(1);
        drop(queue);
        checks.notify_all();
    }

    /// The system has no thread to give. The threads at work take the queue over; without any, the
    /// checks have failed.
    fn refuse(self: &Arc<Self>, why: std::io::Error) {
        let mut queue = self.context.checks.lock();
        queue.threads = queue.threads.saturating_sub(1);
        if queue.threads > 0 {
            return;
        }
        let waiting = queue.take_all();
        drop(queue);
        let failure = Error::no_thread("the check of an object")(why);
        let latest = ResourceVersion::most_recent();
        for object in waiting {
            let read = begin_read(&self.context.registry, &object, &latest);
            self.complete_check(&object, &read, Err(failure.clone()));
        }
    }

    /// The body of a checking thread.
    fn check_all(self: &Arc<Self>, stop: &StopToken) {
        let mut next = self.next_check(stop, false);
        while let Some((object, is_confirmed)) = next {
            let port = format!("the check of {} {}", resource_name::<K>(), object.key);
            if let Err(error) = guard(port, || self.check_object(&object, stop)) {
                log::error!("{error}");
            }
            drop(object);
            next = self.next_check(stop, is_confirmed);
        }
    }

    /// The next object. If there is none, the thread is counted out in the same step, so that
    /// nothing is enqueued in between. `confirmed`: the last object's absence was confirmed.
    fn next_check(&self, stop: &StopToken, confirmed: bool) -> Option<(WatchedObject<K>, bool)> {
        let mut queue = self.context.checks.lock();
        queue.confirming = queue.confirming.saturating_sub(usize::from(confirmed));
        let next = (!stop.is_stopped()).then(|| queue.next()).flatten();
        if next.is_none() {
            queue.threads = queue.threads.saturating_sub(1);
        }
        next
    }

    fn check_object(self: &Arc<Self>, object: &WatchedObject<K>, stop: &StopToken) {
        let registry = &self.context.registry;
        let entry = object.state.lock();
        let is_check = matches!(entry.state(), WatchState::Rechecking(_));
        let is_due = is_check || entry.is_absence_due();
        drop(entry);
        if !is_due {
            // It was released, or another read found it, while it was in the queue.
            return;
        }
        let read = begin_read(registry, object, &ResourceVersion::most_recent());
        let deadline = registry.clock().after(CHECK_LIMIT);
        let context = RequestContext {
            is_urgent: is_check,
            ..registry.request_by(&object.key, deadline, stop)
        };
        let found = registry.request(&context, &read.version);
        if !stop.is_stopped() {
            self.complete_check(object, &read, found);
        }
    }

    /// Tells the entry how the check ended. The entry knows whether something newer has come.
    fn complete_check(
        self: &Arc<Self>,
        object: &WatchedObject<K>,
        read: &ReadPosition,
        found: Result<Arc<StoredObject<K>>, Error>,
    ) {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        let (mut found, failure) = match found {
            Ok(found) => (Some(found), None),
            Err(error) if error.is_not_found() => (None, None),
            Err(error) => (None, Some(error)),
        };
        let incoming = found.clone();
        let (is_news, action) = registry.take_in(object, incoming.as_ref(), |entry| {
            let is_check = matches!(entry.state(), WatchState::Rechecking(_));
            let asked = failure.as_ref().and_then(Error::retry_after);
            let result = match failure {
                None => entry.found(read, &mut found),
                Some(error) if is_check => (true, entry.check_failed(error, now)),
                Some(_) => (false, WatchAction::nothing()),
            };
            if entry.is_absence_due() && entry.is_after_doubt(read) {
                entry.absence.unconfirmed(asked, now);
            }
            result
        });
        self.context.notify(object, is_news);
        self.perform(object, action);
    }

    /// Waits until `deadline` for the ends of the checks under way: milliseconds, since the
    /// manager's stop was raised. Returns the names of those that are late.
    pub(crate) fn join_checks(&self, deadline: Deadline) -> Vec<String> {
        self.clear_checks();
        let (clock, checks) = (self.context.registry.clock(), &self.context.checks);
        let mut queue = checks.lock();
        while queue.starting > 0 && !clock.has_passed(deadline) {
            queue = clock.wait_until(checks, queue, deadline);
        }
        drop(queue);
        self.check_threads.join(clock, deadline)
    }

    /// Waits for all checks to end, except those that [`Self::join_checks`] has named as late.
    pub(crate) fn close_checks(&self) {
        self.clear_checks();
        self.check_threads.close();
    }

    /// Forgets the checks that wait, and the absences to be confirmed.
    fn clear_checks(&self) {
        let mut queue = self.context.checks.lock();
        let left = queue.take_all();
        let later = std::mem::take(&mut queue.later);
        drop(queue);
        drop((left, later));
    }
}

/// What tests see of the checks.
#[cfg(test)]
mod counts {
    use super::*;

    impl<K: Object> Keeper<K> {
        pub(crate) fn is_at_work(&self) -> bool {
            self.context.checks.lock().threads > 0
        }

        #[cfg(feature = "testing")]
        pub(crate) fn waiting(&self) -> usize {
            self.context.checks.lock().waiting.len()
        }
    }
}
