//! The content under the cache's one lock: entries, the global time and the waiters. It decides,
//! and never calls code of the program.

use std::collections::BTreeMap;
use std::time::Instant;

use hashbrown::HashMap;

use super::reading::{PodReading, Timestamp};
use crate::clock::Deadline;
use crate::error::default_of;
use crate::sync::{Arc, Bell};

/// Entries, the global time and the waiters.
///
/// A pod without an entry has an empty reading. The table hands removed values to the caller, which
/// drops them after the lock.
pub(super) struct PodTable<S> {
    pods: HashMap<Arc<str>, PodReading<S>>,
    /// `None` until it is first set, which is not the same as the zero time (PC-6).
    global: Option<Timestamp>,
    /// Only pods with a waiter, or with an answer that a waiter has not taken yet.
    waited: HashMap<Arc<str>, Waited<S>>,
    tickets: u64,
    closed: bool,
    evented: bool,
}

/// The waiters of one pod.
struct Waited<S> {
    bell: Arc<Bell>,
    /// By ticket, which is the order of arrival.
    waiters: BTreeMap<u64, Waiter<S>>,
}

struct Waiter<S> {
    wait: PodWaiter,
    /// The slot for its only answer (PC-11): later changes of the entry do not change the answer
    /// (PC-8).
    answer: Option<PodReading<S>>,
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

/// A waiter's place in the table. `take_answer` or `leave` frees it.
pub(super) struct Ticket {
    uid: Arc<str>,
    number: u64,
    pub(super) bell: Arc<Bell>,
}

default_of!([S] PodTable<S>: pods, global, waited, tickets, closed, evented);

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
        let waited = self.waited.values();
        let waiters = waited.flat_map(|waited| waited.waiters.values());
        let unanswered = waiters.filter(|waiter| waiter.answer.is_none());
        unanswered.map(|waiter| &waiter.wait)
    }

    /// The answer to a call that begins now: its time is strictly after `min_time` (PC-6).
    pub(super) fn newer_than(&self, uid: &str, min_time: Timestamp) -> Option<PodReading<S>> {
        let entry = self.pods.get(uid);
        let known = entry.and_then(|entry| entry.modified.max(entry.observed));
        let newest = known.max(self.global);
        newest
            .is_some_and(|time| time > min_time)
            .then(|| found(entry))
    }

    /// Stores an entry. Returns whether it did, the replaced or refused entry, and the bell of the
    /// waiters that it answers.
    pub(super) fn set(
        &mut self,
        uid: &str,
        entry: PodReading<S>,
    ) -> (bool, Option<PodReading<S>>, Option<Arc<Bell>>) {
        let time = entry.modified;
        let replaced = match self.pods.get_mut(uid) {
            Some(stored) if self.evented && stored.modified > time => {
                return (false, Some(entry), None);
            }
            Some(stored) => Some(std::mem::replace(stored, entry)),
            None => self.pods.insert(Arc::from(uid), entry),
        };
        (true, replaced, time.and_then(|time| self.notify(uid, time)))
    }

    pub(super) fn delete(&mut self, uid: &str) -> Option<PodReading<S>> {
        self.pods.remove(uid)
    }

    pub(super) fn update_time(&mut self, time: Timestamp) -> Vec<Arc<Bell>> {
        self.global = Some(time);
        let (pods, waited) = (&self.pods, &mut self.waited);
        let notified = waited
            .iter_mut()
            .filter_map(|(uid, waited)| waited.notify(time, pods.get(uid)));
        notified.collect()
    }

    pub(super) fn set_observed_time(&mut self, uid: &str, time: Timestamp) -> Option<Arc<Bell>> {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.observed = Some(time);
        }
        self.notify(uid, time)
    }

    pub(super) fn close(&mut self) -> Vec<Arc<Bell>> {
        self.closed = true;
        let waited = self.waited.values();
        waited.map(|waited| Arc::clone(&waited.bell)).collect()
    }

    pub(super) fn subscribe(&mut self, wait: PodWaiter) -> Ticket {
        let number = self.tickets;
        self.tickets = number.wrapping_add(1);
        let uid = Arc::clone(&wait.uid);
        let of_pod = self.waited.entry(Arc::clone(&uid));
        let of_pod = of_pod.or_insert_with(|| Waited {
            bell: Arc::default(),
            waiters: BTreeMap::new(),
        });
        of_pod.waiters.insert(number, Waiter { wait, answer: None });
        let bell = Arc::clone(&of_pod.bell);
        Ticket { uid, number, bell }
    }

    /// Takes the answer, if there is one, which uses the ticket up.
    pub(super) fn take_answer(&mut self, ticket: &Ticket) -> Option<PodReading<S>> {
        let waited = self.waited.get_mut(&ticket.uid)?;
        let answer = waited.waiters.get_mut(&ticket.number)?.answer.take()?;
        self.leave(ticket);
        Some(answer)
    }

    /// Gives up a place without an answer.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        if let Some(waited) = self.waited.get_mut(&ticket.uid) {
            waited.waiters.remove(&ticket.number);
            if waited.waiters.is_empty() {
                self.waited.remove(&ticket.uid);
            }
        }
    }

    fn notify(&mut self, uid: &str, time: Timestamp) -> Option<Arc<Bell>> {
        let waited = self.waited.get_mut(uid)?;
        waited.notify(time, self.pods.get(uid))
    }
}

/// The entry of a pod, or the empty reading without one.
fn found<S>(entry: Option<&PodReading<S>>) -> PodReading<S> {
    entry
        .cloned()
        .unwrap_or_else(|| PodReading::new(None, None, None))
}

impl<S> Waited<S> {
    /// Answers the waiters for whom `time` is not before the time they asked for; an equal time
    /// counts (PC-8). Returns the bell if it must ring.
    fn notify(&mut self, time: Timestamp, entry: Option<&PodReading<S>>) -> Option<Arc<Bell>> {
        let mut is_anybody_met = false;
        for waiter in self.waiters.values_mut() {
            if waiter.answer.is_none() && time >= waiter.wait.min_time {
                waiter.answer = Some(found(entry));
                is_anybody_met = true;
            }
        }
        is_anybody_met.then(|| Arc::clone(&self.bell))
    }
}

/// What tests see of the waiters.
#[cfg(test)]
mod counts {
    use super::*;

    impl<S> PodTable<S> {
        /// The number of pods with a waiter or an answer not taken yet, and the number of waiters.
        pub(crate) fn waiters(&self) -> (usize, usize) {
            let waited = self.waited.values();
            let waiters = waited.map(|waited| waited.waiters.len()).sum();
            (self.waited.len(), waiters)
        }
    }
}
