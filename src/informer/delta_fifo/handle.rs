//! What others than producer and consumer can do with a queue: look, wait until it has synced, close it.

use std::fmt;

use super::Shared;
use super::state::State;
use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, resource_name};
use crate::reflector::{Demand, ReflectorStatus};
use crate::store::refusal;

/// A look at a [`DeltaFifo`](crate::informer::DeltaFifo) from outside. Cheap to clone.
pub struct DeltaFifoHandle<K: Object> {
    shared: Shared<K>,
}

impl<K: Object> DeltaFifoHandle<K> {
    pub(super) fn new(shared: Shared<K>) -> Self {
        Self { shared }
    }

    /// Whether the consumer is done with everything that the first list brought (DF-14, RQ-6).
    ///
    /// Done means that the processing has ended, not that it has begun. A queue whose first input is a change and not
    /// a list counts as synced from then on; an empty first list syncs at once.
    pub fn has_synced(&self) -> bool {
        self.shared.lock().has_synced()
    }

    /// Blocks until the consumer is done with everything that the first list brought, at most until `deadline`.
    ///
    /// While somebody waits, a reflector that has this queue's [`demand`](Self::demand) retries a failing first list
    /// fast (B3). Also ends when the server's refusal, or its word that it knows no such resource, has become an answer
    /// (R4), and when the queue can no longer sync.
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and since when (B2); the server's refusal
    /// (`Forbidden`, `NotFound`); `Stopped` when the queue was closed before a list came, or the consumer is gone.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        if self.has_synced() {
            return Ok(());
        }
        let shared = &self.shared;
        let _demand = shared.demand.wait();
        let mut state = shared.lock();
        loop {
            if state.has_synced() {
                return Ok(());
            }
            if let Some(refusal) = refusal(&state.status) {
                return Err(refusal.clone());
            }
            if state.is_hopeless() {
                return Err(ended(&state));
            }
            if shared.clock.has_passed(deadline) {
                return Err(not_synced(&state, shared.clock.now()));
            }
            state = shared
                .clock
                .wait_for_bell(&shared.state, &shared.changed, state, deadline);
        }
    }

    /// Who waits for the queue to sync: for [`ReflectorOptions::demand`](crate::reflector::ReflectorOptions::demand).
    pub fn demand(&self) -> Demand {
        self.shared.demand.clone()
    }

    /// How much waits: objects in a compressed queue, deltas in the others. What is being processed does not count.
    pub fn len(&self) -> usize {
        self.shared.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: the consumer still gets what waits, and then an error (DF-17). Never blocks; closing twice
    /// does nothing.
    ///
    /// What is written after this is still queued, as long as the consumer is there.
    pub fn close(&self) {
        self.shared.close();
    }

    /// What the reflector that fills the queue last reported (B14).
    pub fn status(&self) -> ReflectorStatus {
        self.shared.lock().status.clone()
    }
}

fn not_synced<K: Object>(state: &State<K>, now: std::time::Instant) -> Error {
    let failures = state.status.failures_of_wait(state.since, now);
    failures.not_synced(&resource_name::<K>(), now)
}

/// The error of a wait that nobody can end any more.
fn ended<K: Object>(state: &State<K>) -> Error {
    let stopped = Error::stopped(&format!("waiting for the {} queue", resource_name::<K>()));
    match state.status.failures.last() {
        Some(failure) => stopped.with_source(failure.clone()),
        None => stopped,
    }
}

impl<K: Object> Clone for DeltaFifoHandle<K> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

impl<K: Object> fmt::Debug for DeltaFifoHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.show("DeltaFifoHandle", f)
    }
}
