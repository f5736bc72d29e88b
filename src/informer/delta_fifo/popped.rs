//! What the consumer has in its hands: it counts as processed when this is dropped.

use std::fmt;
use std::ops::Deref;

use super::DeltaFifo;
use super::state::Receipt;
use crate::informer::Deltas;
use crate::object::Object;

/// Deltas that were taken from a [`DeltaFifo`]; they count as processed when this is
/// dropped, by a panic too. Derefs to what was taken.
///
/// Keep it until the deltas are applied and everybody is told: only then does the count of initial items fall, and
/// until then a list that goes without one of the objects finds it here. Drop it under no lock that the consumer's
/// [view](crate::informer::KnownObjects) takes: where a list or a resync came meanwhile, the view is asked what has become
/// of these objects.
#[must_use = "dropping it says that the deltas are processed"]
pub struct Popped<'a, K: Object, T = Deltas<K>> {
    taken: T,
    processing: Processing<'a, K>,
}

/// Stands for the processing of what was taken; its end is the drop.
#[must_use = "dropping it says that the deltas are processed"]
pub struct Processing<'a, K: Object> {
    queue: &'a DeltaFifo<K>,
    receipt: Receipt,
}

impl<'a, K: Object, T> Popped<'a, K, T> {
    pub(super) fn new(queue: &'a DeltaFifo<K>, taken: T, receipt: Receipt) -> Self {
        let processing = Processing { queue, receipt };
        Self { taken, processing }
    }

    /// Whether the queue had not synced when this was taken: what a handler is told as `is_in_initial_list` (DF-13,
    /// RQ-7).
    pub fn is_in_initial_list(&self) -> bool {
        self.processing.receipt.is_in_initial_list
    }

    /// The deltas by value, and apart from them what says that they are being processed: keep that until they are.
    pub fn into_parts(self) -> (T, Processing<'a, K>) {
        (self.taken, self.processing)
    }
}

impl<K: Object, T> Deref for Popped<'_, K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.taken
    }
}

impl<K: Object> Drop for Processing<'_, K> {
    fn drop(&mut self) {
        let shared = &self.queue.shared;
        let mut state = shared.lock();
        // After a panic nobody knows what was applied; and a view that panics now would end the program.
        while !std::thread::panicking() {
            let debts = state.debts();
            if debts.is_empty() {
                break;
            }
            drop(state);
            self.queue.settle(debts);
            state = shared.lock();
        }
        let had_synced = state.has_synced();
        let hand = state.finish(self.receipt);
        let told = (state.has_synced() && !had_synced) || state.is_hopeless();
        drop(state);
        if told {
            shared.changed.ring();
        }
        drop(hand);
    }
}

impl<K: Object, T: fmt::Debug> fmt::Debug for Popped<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Popped")
            .field("taken", &self.taken)
            .field("is_in_initial_list", &self.is_in_initial_list())
            .finish()
    }
}

impl<K: Object> fmt::Debug for Processing<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processing")
            .field("kind", &K::KIND)
            .finish_non_exhaustive()
    }
}
