//! What stands under the cache's one lock: entries, the global time and who waits; decides, and never calls user code.

use std::collections::BTreeMap;
use std::time::Instant;

use hashbrown::HashMap;

use super::Timestamp;
use super::reading::Entry;
use crate::clock::Deadline;
use crate::sync::{Arc, Bell};

/// What an answer found: the pod's entry, or that it has none.
pub(super) type Found<S> = Option<Entry<S>>;

/// Entries, the global time and the waiters.
///
/// Values that fall out of it are handed to the caller, who drops them after the lock is released.
pub(super) struct Table<S> {
    pods: HashMap<Arc<str>, Entry<S>>,
    /// `None` until it is first set, which is not the same as the zero time (PC-6).
    global: Option<Timestamp>,
    /// Only pods for which somebody waits, or has an answer to collect.
    waited: HashMap<Arc<str>, Waited<S>>,
    tickets: u64,
    closed: bool,
    evented: bool,
}

/// Those who wait for one pod.
struct Waited<S> {
    bell: Arc<Bell>,
    /// By ticket, so in the order in which they came.
    waiters: BTreeMap<u64, Waiter<S>>,
}

struct Waiter<S> {
    wait: Wait,
    /// The slot into which its answer is put, once (PC-11): later changes of the entry do not change the answer (PC-8).
    answer: Option<Found<S>>,
}

/// What somebody waits for.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) min_time: Timestamp,
    pub(super) since: Instant,
    pub(super) deadline: Deadline,
}

/// A waiter's place in the table; given back by `take_answer` or `leave`.
pub(super) struct Ticket {
    uid: Arc<str>,
    number: u64,
    pub(super) bell: Arc<Bell>,
}

/// What a set did.
pub(super) struct SetEffect<S> {
    pub(super) is_stored: bool,
    /// The entry that was replaced or refused.
    pub(super) unused: Option<Entry<S>>,
    pub(super) bell: Option<Arc<Bell>>,
}

impl<S> Table<S> {
    pub(super) fn new(evented: bool) -> Self {
        Self {
            pods: HashMap::new(),
            global: None,
            waited: HashMap::new(),
            tickets: 0,
            closed: false,
            evented,
        }
    }

    pub(super) fn get(&self, uid: &str) -> Found<S> {
        self.pods.get(uid).cloned()
    }

    pub(super) fn entries(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Entry<S>)> {
        self.pods.iter()
    }

    pub(super) fn global(&self) -> Option<Timestamp> {
        self.global
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = (&Arc<str>, &Wait)> {
        self.waited.iter().flat_map(|(uid, waited)| {
            let waiters = waited.waiters.values();
            let unanswered = waiters.filter(|waiter| waiter.answer.is_none());
            unanswered.map(move |waiter| (uid, &waiter.wait))
        })
    }

    /// The answer to who asks now: strictly after what was asked for (PC-6).
    pub(super) fn newer_than(&self, uid: &str, min_time: Timestamp) -> Option<Found<S>> {
        let all_newer = self.global.is_some_and(|global| global > min_time);
        match self.pods.get(uid) {
            Some(entry) => {
                let newer = entry.modified > min_time || entry.observed > min_time || all_newer;
                newer.then(|| Some(entry.clone()))
            }
            None => all_newer.then_some(None),
        }
    }

    pub(super) fn set(&mut self, uid: &str, entry: Entry<S>) -> SetEffect<S> {
        let time = entry.modified;
        let unused = if let Some(stored) = self.pods.get_mut(uid) {
            if self.evented && stored.modified > time {
                return SetEffect {
                    is_stored: false,
                    unused: Some(entry),
                    bell: None,
                };
            }
            Some(std::mem::replace(stored, entry))
        } else {
            self.pods.insert(Arc::from(uid), entry)
        };
        SetEffect {
            is_stored: true,
            unused,
            bell: self.notify(uid, time),
        }
    }

    pub(super) fn delete(&mut self, uid: &str) -> Option<Entry<S>> {
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
            entry.observed = time;
        }
        self.notify(uid, time)
    }

    pub(super) fn close(&mut self) -> Vec<Arc<Bell>> {
        self.closed = true;
        let waited = self.waited.values();
        waited.map(|waited| Arc::clone(&waited.bell)).collect()
    }

    pub(super) fn subscribe(&mut self, uid: &str, wait: Wait) -> Ticket {
        let number = self.tickets;
        self.tickets = number.wrapping_add(1);
        let waiter = Waiter { wait, answer: None };
        if let Some((uid, waited)) = self.waited.get_key_value_mut(uid) {
            waited.waiters.insert(number, waiter);
            return Ticket {
                uid: Arc::clone(uid),
                number,
                bell: Arc::clone(&waited.bell),
            };
        }
        let (uid, bell) = (Arc::<str>::from(uid), Arc::new(Bell::default()));
        let first = Waited {
            bell: Arc::clone(&bell),
            waiters: BTreeMap::from([(number, waiter)]),
        };
        self.waited.insert(Arc::clone(&uid), first);
        Ticket { uid, number, bell }
    }

    /// The answer, if there is one; the ticket is used up then.
    pub(super) fn take_answer(&mut self, ticket: &Ticket) -> Option<Found<S>> {
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

    /// Pods for which somebody waits or has an answer to collect, and how many those are.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> (usize, usize) {
        let waited = self.waited.values();
        let waiters = waited.map(|waited| waited.waiters.len()).sum();
        (self.waited.len(), waiters)
    }

    fn notify(&mut self, uid: &str, time: Timestamp) -> Option<Arc<Bell>> {
        let waited = self.waited.get_mut(uid)?;
        waited.notify(time, self.pods.get(uid))
    }
}

impl<S> Waited<S> {
    /// Answers those who are told of `time`: not before what they asked for, so the same time counts (PC-8). Gives the
    /// bell if there is anybody to wake.
    fn notify(&mut self, time: Timestamp, entry: Option<&Entry<S>>) -> Option<Arc<Bell>> {
        let mut is_anybody_met = false;
        for waiter in self.waiters.values_mut() {
            if waiter.answer.is_none() && time >= waiter.wait.min_time {
                waiter.answer = Some(entry.cloned());
                is_anybody_met = true;
            }
        }
        is_anybody_met.then(|| Arc::clone(&self.bell))
    }
}
