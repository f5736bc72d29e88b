//! The state that all runs of one manager share: the registry, and the work that they leave to the
//! keeper.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use super::entry::{WatchAction, WatchEntry, WatchedObject};
use super::run::{PendingWork, Run};
use super::state_machine::WatchEffect;
use crate::error::{clone_of, default_of};
use crate::guard::guard;
use crate::manager::kinds::cache_name;
use crate::manager::registry::Registry;
use crate::object::Object;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::StopToken;

/// How long a thread of the manager pauses after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// How many threads may confirm absences at a time. Those that hang leave threads for the checks
/// that readers wait for.
pub(crate) const CONFIRMATIONS_MAX: usize = 8;

/// The state that all runs of one manager share.
pub(crate) struct RunContext<K: Object> {
    pub(crate) registry: Arc<Registry<K, WatchEntry<K>>>,
    pub(crate) work: Arc<Monitor<PendingWork>>,
    pub(crate) checks: Arc<Monitor<CheckQueue<K>>>,
    /// How many watches of namespaces there are.
    pub(crate) namespace_watches: Arc<AtomicUsize>,
}

clone_of!([K: Object] RunContext<K>: registry, work, checks, namespace_watches);

impl<K: Object> RunContext<K> {
    pub(crate) fn new(registry: Arc<Registry<K, WatchEntry<K>>>) -> Self {
        Self {
            registry,
            work: Arc::new(Monitor::ranked(Rank::HOUSEKEEPER, PendingWork::default())),
            checks: Arc::new(Monitor::ranked(Rank::CHECKS, CheckQueue::default())),
            namespace_watches: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// Changes an entry and ends the runs that this leaves over. Returns the rest of the decision.
    pub(crate) fn act(
        &self,
        object: &WatchedObject<K>,
        change: impl FnOnce(&mut WatchEntry<K>) -> WatchAction,
    ) -> WatchEffect {
        let action = self.registry.change(object, change);
        self.end_all(action.ending);
        action.effect
    }

    /// Raises the stop of each run. Then it leaves the joins to the keeper, or joins them if the
    /// keeper has ended.
    pub(crate) fn end_all(&self, runs: impl IntoIterator<Item = Run>) {
        let stopped = runs.into_iter().filter_map(|run| match run {
            Run::ByName(run) => {
                run.handle.stop();
                Some(run)
            }
            Run::Shared(run) => {
                run.stop();
                None
            }
        });
        let stopped: Vec<_> = stopped.collect();
        if stopped.is_empty() {
            return;
        }
        let mut work = self.work.lock();
        if work.is_closed {
            drop(work);
            return stopped.into_iter().for_each(|run| run.handle.join());
        }
        work.ended.extend(stopped);
        drop(work);
        self.work.notify_all();
    }

    /// Works on a thread of the manager until `work` returns. A panic fails the manager's health.
    /// Then `panicked` runs, and the work begins again after a pause.
    pub(crate) fn work_through_panics(
        &self,
        thread: &str,
        stop: &StopToken,
        mut work: impl FnMut(),
        mut panicked: impl FnMut(&crate::Error),
    ) {
        let port = format!("the {thread} of {}", cache_name::<K>());
        while let Err(panic) = guard(&port, &mut work) {
            log::error!("{panic}; it goes on in {AFTER_PANIC:?}");
            self.work.lock().failure = Some(panic.clone());
            panicked(&panic);
            let clock = self.registry.clock();
            stop.wait_until(clock, clock.after(AFTER_PANIC));
        }
    }

    /// Asks the keeper to look at the watches of namespaces now.
    pub(crate) fn tend_namespaces(&self) {
        self.tend_at(self.registry.clock().now());
    }

    /// Asks the keeper to look at the watches of namespaces, and at the absences to be confirmed,
    /// at that time at the latest.
    pub(crate) fn tend_at(&self, at: Instant) {
        let mut work = self.work.lock();
        work.tend_at = Some(work.tend_at.map_or(at, |before| before.min(at)));
        drop(work);
        self.work.notify_all();
    }

    /// Schedules the confirmation of an absence that a cache of the server claims. Called when a
    /// reader was told of it, and when a list without the object was behind.
    pub(crate) fn confirm_later(&self, object: &WatchedObject<K>) {
        let now = self.registry.clock().now();
        let mut own = DefaultHasher::new();
        object.key.hash(&mut own);
        let seed = self.registry.clock().seed() ^ own.finish();
        let Some(at) = object.state.lock().absence.given(now, seed) else {
            return;
        };
        self.checks.lock().later.push((at, Arc::clone(object)));
        self.tend_at(at);
    }

    /// Asks the keeper to shorten the backoffs of all objects: the server answers again.
    pub(crate) fn server_recovered(&self) {
        self.work.lock().recovered = true;
        self.work.notify_all();
    }

    /// Wakes the readers that wait for the entry, and notifies subscribers if there is news.
    pub(crate) fn notify(&self, object: &WatchedObject<K>, is_news: bool) {
        object.state.notify_all();
        if is_news {
            self.registry.changes.notify(&object.key);
        }
    }
}

/// The objects to be checked or confirmed, and the threads that do that.
pub(crate) struct CheckQueue<K: Object> {
    pub(crate) waiting: Vec<WatchedObject<K>>,
    /// The absences to be confirmed later, each with its time.
    pub(crate) later: Vec<(Instant, WatchedObject<K>)>,
    /// The absences whose time has come.
    pub(crate) absent: Vec<WatchedObject<K>>,
    /// Threads that confirm an absence.
    pub(crate) confirming: usize,
    /// Threads that look for work, each before it is started and until it has found none.
    pub(crate) threads: usize,
    /// Threads that are being started and that their owner does not have yet.
    pub(crate) starting: usize,
}

default_of!([K: Object] CheckQueue<K>: waiting, later, absent, confirming, threads, starting);

impl<K: Object> CheckQueue<K> {
    /// The next object, and whether its absence is confirmed.
    pub(crate) fn next(&mut self) -> Option<(WatchedObject<K>, bool)> {
        if let Some(check) = take_most_urgent(&mut self.waiting) {
            return Some((check, false));
        }
        let is_room = self.confirming < CONFIRMATIONS_MAX;
        let absent = is_room.then(|| take_most_urgent(&mut self.absent))??;
        self.confirming = self.confirming.saturating_add(1);
        Some((absent, true))
    }

    pub(crate) fn take_all(&mut self) -> Vec<WatchedObject<K>> {
        let mut all = std::mem::take(&mut self.waiting);
        all.append(&mut self.absent);
        all
    }
}

/// The first object that a reader waits for, else the first.
pub(crate) fn take_most_urgent<K: Object>(
    waiting: &mut Vec<WatchedObject<K>>,
) -> Option<WatchedObject<K>> {
    let urgent = waiting.iter().position(|object| object.waiters.any());
    let first = (!waiting.is_empty()).then_some(0);
    urgent.or(first).map(|index| waiting.remove(index))
}
