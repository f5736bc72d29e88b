//! The queue of checks and of absences to confirm: which object is next, and by how many threads.

use std::time::Instant;

use super::entry::WatchedObject;
use crate::error::default_of;
use crate::object::Object;

/// How many of the threads may confirm absences: those that hang leave threads for readers' checks.
pub(crate) const CONFIRMATIONS_MAX: usize = 8;

/// What is to be checked or confirmed, and how many threads do that.
pub(super) struct CheckQueue<K: Object> {
    pub(super) waiting: Vec<WatchedObject<K>>,
    /// Absences that are confirmed later, and when.
    pub(super) later: Vec<(Instant, WatchedObject<K>)>,
    /// Absences whose time has come.
    pub(super) absent: Vec<WatchedObject<K>>,
    /// Threads that confirm an absence.
    pub(super) confirming: usize,
    /// Threads that look for work, each before it is started and until it has found none.
    pub(super) threads: usize,
    /// Threads that are being started and are not among the threads of their owner yet.
    pub(super) starting: usize,
}

default_of!([K: Object] CheckQueue<K>: waiting, later, absent, confirming, threads, starting);

impl<K: Object> CheckQueue<K> {
    /// The next object, and whether its absence is confirmed.
    pub(super) fn next(&mut self) -> Option<(WatchedObject<K>, bool)> {
        if let Some(check) = take_most_urgent(&mut self.waiting) {
            return Some((check, false));
        }
        let is_room = self.confirming < CONFIRMATIONS_MAX;
        let absent = is_room.then(|| take_most_urgent(&mut self.absent))??;
        self.confirming = self.confirming.saturating_add(1);
        Some((absent, true))
    }

    pub(super) fn take_all(&mut self) -> Vec<WatchedObject<K>> {
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
