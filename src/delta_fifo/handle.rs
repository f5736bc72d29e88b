//! A queue's handle for threads other than its writer and consumer: inspect it, wait for its sync,
//! close it.

use super::state::{QueueEnd, QueueState};
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, clone_of, debug_of};
use crate::object::{Object, resource_name};
use crate::reflector::{ReflectorStatus, Waiters};
use crate::sync::{Arc, Monitor};

/// A handle to a [`DeltaFifo`](super::DeltaFifo) for threads other than its consumer. Cheap to
/// clone.
pub struct DeltaFifoHandle<K: Object> {
    pub(super) state: Arc<Monitor<QueueState<K>>>,
    pub(super) waiters: Waiters,
    pub(super) clock: Clock,
}

impl<K: Object> DeltaFifoHandle<K> {
    /// Whether the consumer has processed the whole first list.
    ///
    /// A queue whose first input is a change instead of a list counts as synced from then on. An
    /// empty first list syncs at once, except with
    /// [`atomic_lists`](super::DeltaFifoOptions::atomic_lists).
    pub fn has_synced(&self) -> bool {
        self.state.lock().has_synced()
    }

    /// Blocks until the consumer has processed the whole first list, at most until `deadline`.
    ///
    /// The wait also ends when the server refuses the resource or does not know it, and when the
    /// queue can no longer sync. During the wait, a reflector that has this queue's
    /// [`waiters`](Self::waiters) retries a failing first list fast.
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and the time of the first.
    /// `Forbidden` or `NotFound` for the server's refusal. `Stopped` when the queue was closed
    /// before a list came, or when the consumer is gone; its source names the cause.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.clock);
        if self.has_synced() {
            return Ok(());
        }
        let _waiting = self.waiters.wait();
        let (clock, state) = (&self.clock, self.state.lock());
        let (end, state) = clock.wait_for(&self.state, state, deadline, |state| outcome(state));
        end.unwrap_or_else(|| Err(not_synced(&state, clock)))
    }

    /// Counts the callers that wait for the queue to sync, for
    /// [`ReflectorOptions::waiters`](crate::reflector::ReflectorOptions::waiters).
    pub fn waiters(&self) -> Waiters {
        self.waiters.clone()
    }

    /// Returns how many entries wait: objects in a compressed queue, deltas in an ordered one. An
    /// entry in processing does not count.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue. The consumer still gets the queued entries, and then an error. Never
    /// blocks; closing twice does nothing.
    ///
    /// The queue still takes later writes, as long as the consumer exists and the writer need not
    /// wait.
    pub fn close(&self) {
        {
            let mut state = self.state.lock();
            if state.end == QueueEnd::Open {
                state.end = QueueEnd::Closed;
            }
        }
        self.state.notify_all();
    }

    /// Returns the last status of the reflector that fills the queue.
    pub fn status(&self) -> ReflectorStatus {
        self.state.lock().status.clone()
    }
}

/// The result of a wait for the first list, once it ends.
fn outcome<K: Object>(state: &QueueState<K>) -> Option<Result<(), Error>> {
    if state.has_synced() {
        return Some(Ok(()));
    }
    if let Some(refusal) = &state.status.refusal {
        return Some(Err(refusal.clone()));
    }
    state.is_hopeless().then(|| {
        let stopped = Error::stopped(&format!("waiting for the {} queue", resource_name::<K>()));
        let cause = state.cause.as_ref().or(state.status.failures.last());
        Err(stopped.caused_by(cause.cloned()))
    })
}

fn not_synced<K: Object>(state: &QueueState<K>, clock: &Clock) -> Error {
    let now = clock.now();
    let failures = state.status.failures_of_wait(state.since, now);
    failures.not_synced(&resource_name::<K>(), now)
}

clone_of!([K: Object] DeltaFifoHandle<K>: state, waiters, clock);

debug_of!([K: Object] DeltaFifoHandle<K>, |it|
    kind: K::resource().kind(), waiting: it.len(), synced: it.has_synced(),
    end: { it.state.lock().end }, ..);
