//! The readings of owners that share a series: added when an owner starts, dropped after its end.

use crate::hooks::Reading;
use crate::sync::{Mutex, Rank};

/// The minimum number of readings that makes a search for ended owners worthwhile.
const LOOK_AT: usize = 16;

#[derive(Debug)]
pub(super) struct Readings<S>(Mutex<Vec<Reading<S>>>);

impl<S> Default for Readings<S> {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::METRICS, Vec::with_capacity(LOOK_AT)))
    }
}

impl<S> Readings<S> {
    pub(super) fn add(&self, reading: &Reading<S>) {
        let mut kept = self.0.lock();
        if kept.len() == kept.capacity() {
            kept.retain(|reading| !reading.is_over());
            // Reserves twice the size, so that the search costs a constant per reading.
            let room = kept.len();
            kept.reserve(room);
        }
        kept.push(reading.clone());
    }

    /// The states of the owners that still live, read without a lock.
    pub(super) fn states(&self) -> Vec<S> {
        let readings = {
            let mut kept = self.0.lock();
            kept.retain(|reading| !reading.is_over());
            kept.clone()
        };
        readings.iter().filter_map(Reading::state).collect()
    }
}

/// What tests see of the readings.
#[cfg(test)]
mod counts {
    use super::*;

    impl<S> Readings<S> {
        pub(crate) fn len(&self) -> usize {
            self.0.lock().len()
        }
    }
}
