//! The content of a work queue: transitions of plain data, without a clock and threads.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::object::ObjectKey;
use crate::policy::doubled;
use crate::sync::ThreadId;

/// The keys of a queue, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    /// The keys that workers may take, oldest first.
    ready: VecDeque<ObjectKey>,
    /// Those keys, and the keys that were added while a worker had them.
    waiting: HashSet<ObjectKey>,
    /// The keys that workers have, each with the thread that took it.
    working: HashMap<ObjectKey, ThreadId>,
    /// The threads that wait for the end of the work. The keys that they have cannot end before
    /// that wait does.
    pub(super) ending: Vec<ThreadId>,
    /// The keys that are added later, by time.
    delayed: BTreeSet<(Instant, ObjectKey)>,
    /// The time of each of them.
    dues: HashMap<ObjectKey, Instant>,
    /// The failures in a row of each key, and its last pause.
    failures: HashMap<ObjectKey, (u32, Duration)>,
    retry_first: Duration,
    retry_max: Duration,
    is_closed: bool,
}

impl WorkState {
    pub(super) fn new(retry_first: Duration, retry_max: Duration) -> Self {
        Self {
            retry_first,
            retry_max,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, key: ObjectKey) {
        if !self.is_closed && self.waiting.insert(key.clone()) && !self.working.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    /// Adds the key at `due`, unless it is added earlier.
    pub(super) fn add_at(&mut self, key: ObjectKey, due: Instant) {
        let known = self.dues.get(&key).copied();
        if self.is_closed || known.is_some_and(|known| known <= due) {
            return;
        }
        if let Some(known) = self.dues.insert(key.clone(), due) {
            self.delayed.remove(&(known, key.clone()));
        }
        self.delayed.insert((due, key));
    }

    /// Adds the keys whose time has come.
    pub(super) fn add_due(&mut self, now: Instant) {
        while let Some((due, key)) = self.delayed.pop_first() {
            if due > now {
                self.delayed.insert((due, key));
                return;
            }
            self.dues.remove(&key);
            self.add(key);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }

    /// Gives the oldest key to the worker on this thread.
    pub(super) fn take(&mut self, now: Instant, thread: ThreadId) -> Option<ObjectKey> {
        self.add_due(now);
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.working.insert(key.clone(), thread);
        Some(key)
    }

    /// Notes that a worker has done a key, which comes again if it was added meanwhile.
    pub(super) fn done(&mut self, key: &ObjectKey) {
        self.working.remove(key);
        if self.waiting.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// Notes a failure. Returns the pause before the next try.
    pub(super) fn failed(&mut self, key: &ObjectKey) -> Duration {
        let (count, last) = self.failures.get(key).copied().unzip();
        let pause = doubled(last, self.retry_first, self.retry_max).min(self.retry_max);
        let count = count.unwrap_or(0_u32).saturating_add(1);
        self.failures.insert(key.clone(), (count, pause));
        pause
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.failures.remove(key);
    }

    pub(super) fn failures(&self, key: &ObjectKey) -> u32 {
        self.failures.get(key).map_or(0, |(count, _)| *count)
    }

    /// Takes no further key, and drops those whose time has not come.
    pub(super) fn close(&mut self, now: Instant) {
        self.add_due(now);
        self.is_closed = true;
        self.delayed.clear();
        self.dues.clear();
    }

    pub(super) fn stop(&mut self, now: Instant) {
        self.close(now);
        self.ready.clear();
        self.waiting.clear();
    }

    /// Whether no worker will get a key any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && self.waiting.is_empty()
    }

    /// How many keys a worker could take at `now`.
    pub(super) fn ready(&mut self, now: Instant) -> usize {
        self.add_due(now);
        self.ready.len()
    }

    /// Whether the work has ended, but for the keys of threads that wait for that end.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.waiting() == 0 && self.late().is_empty()
    }

    /// How many keys wait for a worker, with those that a worker has, unless it waits for the end.
    pub(super) fn waiting(&self) -> usize {
        let working = self.working.iter();
        let held = working
            .filter(|(key, worker)| self.ending.contains(worker) && self.waiting.contains(*key));
        self.waiting.len().saturating_sub(held.count())
    }

    /// The keys of the workers that do not wait for the end, sorted.
    pub(super) fn late(&self) -> Vec<&ObjectKey> {
        let working = self.working.iter();
        let late = working.filter(|(_, worker)| !self.ending.contains(worker));
        let mut late: Vec<_> = late.map(|(key, _)| key).collect();
        late.sort_unstable();
        late
    }
}
