//! The readings of the owners that share a series: added as owners start, let go once they are over.

use crate::sync::{Mutex, Rank};

/// So many readings are kept before it is worth looking for those that are over.
const LOOK_AT: usize = 16;

#[derive(Debug)]
pub(super) struct Readings<R> {
    is_over: fn(&R) -> bool,
    kept: Mutex<Kept<R>>,
}

#[derive(Debug)]
struct Kept<R> {
    readings: Vec<R>,
    /// Twice as many as there were at the last look, so that looking costs each reading a constant.
    look_at: usize,
}

impl<R: Clone> Readings<R> {
    /// `is_over` takes no lock.
    pub(super) fn new(is_over: fn(&R) -> bool) -> Self {
        let kept = Mutex::ranked(
            Rank::METRICS,
            Kept {
                readings: Vec::new(),
                look_at: LOOK_AT,
            },
        );
        Self { is_over, kept }
    }

    pub(super) fn add(&self, reading: R) {
        let mut kept = self.kept.lock();
        if kept.readings.len() >= kept.look_at {
            kept.let_go(self.is_over);
        }
        kept.readings.push(reading);
    }

    /// Those that are not over, to be looked at under no lock.
    pub(super) fn all(&self) -> Vec<R> {
        let mut kept = self.kept.lock();
        kept.let_go(self.is_over);
        kept.readings.clone()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.lock().readings.len()
    }
}

impl<R> Kept<R> {
    fn let_go(&mut self, is_over: fn(&R) -> bool) {
        self.readings.retain(|reading| !is_over(reading));
        self.look_at = self.readings.len().saturating_mul(2).max(LOOK_AT);
    }
}
