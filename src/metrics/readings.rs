//! The readings of the owners that share a series: added as owners start, let go once they are over.

use crate::sync::{Mutex, Rank};

/// The fewest readings among which it is worth looking for those that are over.
const LOOK_AT: usize = 16;

#[derive(Debug)]
pub(super) struct Readings<R> {
    is_over: fn(&R) -> bool,
    kept: Mutex<Vec<R>>,
}

impl<R: Clone> Readings<R> {
    /// `is_over` takes no lock.
    pub(super) fn new(is_over: fn(&R) -> bool) -> Self {
        let kept = Mutex::ranked(Rank::METRICS, Vec::with_capacity(LOOK_AT));
        Self { is_over, kept }
    }

    pub(super) fn add(&self, reading: R) {
        let mut kept = self.kept.lock();
        if kept.len() == kept.capacity() {
            kept.retain(|reading| !(self.is_over)(reading));
            // Room for as many again, so that looking costs each reading a constant.
            let room = kept.len();
            kept.reserve(room);
        }
        kept.push(reading);
    }

    /// Those that are not over, to be looked at under no lock.
    pub(super) fn all(&self) -> Vec<R> {
        let mut kept = self.kept.lock();
        kept.retain(|reading| !(self.is_over)(reading));
        kept.clone()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.lock().len()
    }
}
