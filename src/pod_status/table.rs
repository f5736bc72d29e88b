//! The content under the cache's one lock: entries, the global time and the waiters. It decides,
//! and never calls code of the program.

use std::time::Instant;

use hashbrown::HashMap;

use super::reading::{PodReading, Timestamp};
use crate::clock::Deadline;
use crate::error::default_of;
use crate::sync::{Arc, Monitor, Rank};

/// Entries, the global time and the waiters.
///
/// A pod without an entry has an empty reading. The table hands removed values to the caller, which
/// drops them after the lock.
pub(super) struct PodTable<S> {
    pods: HashMap<Arc<str>, PodReading<S>>,
    /// `None` until it is first set, which is not the same as the zero time (PC-6).
    global: Option<Timestamp>,
    /// The waiters without an answer, by pod, in the order of their calls. No pod is here without
    /// one.
    waited: HashMap<Arc<str>, Vec<Waiter<S>>>,
    closed: bool,
    evented: bool,
}

/// A waiter, and where its only answer goes.
struct Waiter<S> {
    wait: PodWaiter,
    slot: AnswerSlot<S>,
}

/// Where a waiter finds its answer without the table's lock, so that many who are answered at once
/// do not queue for that. It is filled under the table's lock, once (PC-11): later changes of the
/// entry do not change the answer (PC-8).
pub(super) type AnswerSlot<S> = Arc<Monitor<Option<PodAnswer<S>>>>;

/// How the table ends a wait.
pub(super) enum PodAnswer<S> {
    Known(PodReading<S>),
    /// The cache is closed.
    Closed,
}

/// A thread that waits in
/// [`PodStatusCache::get_newer_than`](super::PodStatusCache::get_newer_than). It shows why a worker
/// stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodWaiter {
    /// The pod's UID.
    pub uid: Arc<str>,
    /// The time asked for.
    pub min_time: Timestamp,
    /// When the wait began.
    pub since: Instant,
    /// The deadline of the wait.
    pub deadline: Deadline,
}

default_of!([S] PodTable<S>: pods, global, waited, closed, evented);

impl<S> PodTable<S> {
    pub(super) fn new(evented: bool) -> Self {
        Self {
            evented,
            ..Self::default()
        }
    }

    pub(super) fn get(&self, uid: &str) -> PodReading<S> {
        found(self.pods.get(uid))
    }

    /// Whether the pod has an entry without an error.
    pub(super) fn has_status(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.error.is_none())
    }

    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &PodReading<S>)> {
        self.pods.iter()
    }

    pub(super) fn global(&self) -> Option<Timestamp> {
        self.global
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = &PodWaiter> {
        self.waited.values().flatten().map(|waiter| &waiter.wait)
    }

    /// The answer to a call that begins now: its time is strictly after `min_time` (PC-6).
    pub(super) fn newer_than(&self, uid: &str, min_time: Timestamp) -> Option<PodReading<S>> {
        let entry = self.pods.get(uid);
        let known = entry.and_then(|entry| entry.modified.max(entry.observed));
        let newest = known.max(self.global);
        let is_newer = newest.is_some_and(|time| time > min_time);
        is_newer.then(|| found(entry))
    }

    /// Stores an entry. Returns whether it did, the replaced or refused entry, and the slots of the
    /// waiters that it answers.
    pub(super) fn set(
        &mut self,
        uid: &str,
        entry: PodReading<S>,
    ) -> (bool, Option<PodReading<S>>, Vec<AnswerSlot<S>>) {
        let time = entry.modified;
        let replaced = match self.pods.get_mut(uid) {
            Some(stored) if self.evented && stored.modified > time => {
                return (false, Some(entry), Vec::new());
            }
            Some(stored) => Some(std::mem::replace(stored, entry)),
            None => self.pods.insert(Arc::from(uid), entry),
        };
        let answered = time.map(|time| self.notify(uid, time));
        (true, replaced, answered.unwrap_or_default())
    }

    pub(super) fn delete(&mut self, uid: &str) -> Option<PodReading<S>> {
        self.pods.remove(uid)
    }

    /// Removes the entries of pods that a list lacks, except those that were set after it was asked
    /// for: of them it says nothing.
    pub(super) fn take_unlisted(
        &mut self,
        asked: Timestamp,
        is_listed: impl Fn(&str) -> bool,
    ) -> Vec<PodReading<S>> {
        let gone = self.pods.extract_if(|uid, entry| {
            let is_older = entry.modified <= Some(asked);
            is_older && !is_listed(uid)
        });
        gone.map(|(_, entry)| entry).collect()
    }

    pub(super) fn update_time(&mut self, time: Timestamp) -> Vec<AnswerSlot<S>> {
        self.global = Some(time);
        let (pods, mut answered) = (&self.pods, Vec::new());
        self.waited.retain(|uid, waiters| {
            answer(waiters, time, pods.get(uid), &mut answered);
            !waiters.is_empty()
        });
        answered
    }

    pub(super) fn set_observed_time(&mut self, uid: &str, time: Timestamp) -> Vec<AnswerSlot<S>> {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.observed = Some(time);
        }
        self.notify(uid, time)
    }

    /// Ends every wait. Returns the slots of those that wait now.
    pub(super) fn close(&mut self) -> Vec<AnswerSlot<S>> {
        self.closed = true;
        let waiters = self.waited.drain().flat_map(|(_, waiters)| waiters);
        let closed = waiters.map(|waiter| {
            *waiter.slot.lock() = Some(PodAnswer::Closed);
            waiter.slot
        });
        closed.collect()
    }

    /// Enters a waiter. Its slot is filled already if the cache is closed.
    pub(super) fn subscribe(&mut self, wait: PodWaiter) -> AnswerSlot<S> {
        let answer = self.closed.then_some(PodAnswer::Closed);
        let slot = Arc::new(Monitor::ranked(Rank::POD_ANSWER, answer));
        if !self.closed {
            let waiters = self.waited.entry(Arc::clone(&wait.uid)).or_default();
            let slot = Arc::clone(&slot);
            waiters.push(Waiter { wait, slot });
        }
        slot
    }

    /// Gives up the place of a waiter. Returns false if its slot is filled.
    pub(super) fn leave(&mut self, uid: &str, slot: &AnswerSlot<S>) -> bool {
        let Some(waiters) = self.waited.get_mut(uid) else {
            return false;
        };
        let before = waiters.len();
        waiters.retain(|waiter| !Arc::ptr_eq(&waiter.slot, slot));
        let was_there = waiters.len() < before;
        if waiters.is_empty() {
            self.waited.remove(uid);
        }
        was_there
    }

    fn notify(&mut self, uid: &str, time: Timestamp) -> Vec<AnswerSlot<S>> {
        let mut answered = Vec::new();
        if let Some(waiters) = self.waited.get_mut(uid) {
            answer(waiters, time, self.pods.get(uid), &mut answered);
            if waiters.is_empty() {
                self.waited.remove(uid);
            }
        }
        answered
    }
}

/// The entry of a pod, or the empty reading without one.
fn found<S>(entry: Option<&PodReading<S>>) -> PodReading<S> {
    let none = || PodReading::new(None, None, None);
    entry.cloned().unwrap_or_else(none)
}

/// Answers the waiters of a pod for whom `time` is not before the time they asked for; an equal
/// time counts (PC-8). Adds their slots to `answered`.
fn answer<S>(
    waiters: &mut Vec<Waiter<S>>,
    time: Timestamp,
    entry: Option<&PodReading<S>>,
    answered: &mut Vec<AnswerSlot<S>>,
) {
    waiters.retain(|Waiter { wait, slot }| {
        let is_met = time >= wait.min_time;
        if is_met {
            *slot.lock() = Some(PodAnswer::Known(found(entry)));
            answered.push(Arc::clone(slot));
        }
        !is_met
    });
}

/// What tests see of the waiters.
#[cfg(test)]
mod counts {
    use super::*;

    impl<S> PodTable<S> {
        /// The number of pods with a waiter, and the number of waiters.
        pub(crate) fn waiters(&self) -> (usize, usize) {
            (self.waited.len(), self.waits().count())
        }
    }
}
