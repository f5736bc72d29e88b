//! The queue, and the consumer's side of it.

use std::num::NonZeroUsize;

use crate::clock::IntoDeadline;
use crate::error::{Error, ErrorKind, debug_of};
use crate::guard::guard;
use crate::object::Object;
use crate::reflector::Waiters;
use crate::sync::{Arc, Monitor, Rank, current_thread};

use super::delta::Deltas;
use super::handle::DeltaFifoHandle;
use super::options::{DeltaFifoOptions, KnownObjects, ask};
use super::state::{QueueEnd, QueueState};
use super::writer::DeltaFifoWriter;

/// The consuming side of a queue of changes between one reflector and one consumer.
///
/// The consumer takes deltas with [`pop`](Self::pop) and applies them to a store of its own. It
/// holds no lock meanwhile, so the queue still takes events. A list and a resync wait until nothing
/// is being processed, and then ask for the consumer's [known objects](KnownObjects).
///
/// Dropping this drops all waiting entries, and makes every further write fail.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::delta_fifo::{Delta, DeltaFifo, DeltaFifoOptions};
/// use kubecache::reflector::{Reflector, ReflectorOptions};
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<ConfigMap>::new();
/// source.set(objects::config_map("shop", "settings", "", &[]));
///
/// let (mut queue, writer) = DeltaFifo::new(DeltaFifoOptions::default().atomic_lists());
/// let reflector =
///     Reflector::spawn("settings", Arc::new(source), writer, ReflectorOptions::default())?;
///
/// queue.pop(Duration::from_secs(60), |deltas, is_in_initial_list| {
///     assert!(matches!(deltas.newest(), Delta::ReplacedAll(list) if list.items.len() == 1));
///     assert!(is_in_initial_list);
/// })?;
/// assert!(queue.handle().has_synced());
/// reflector.join().expect("it did not panic");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias("DeltaFIFO", "RealFIFO"))]
pub struct DeltaFifo<K: Object> {
    queue: DeltaFifoHandle<K>,
    known: Option<Arc<dyn KnownObjects<K>>>,
}

impl<K: Object> DeltaFifo<K> {
    /// Makes a queue and its only writer, which is a [`Sink`](crate::reflector::Sink) for a
    /// reflector.
    pub fn new(options: DeltaFifoOptions<K>) -> (Self, DeltaFifoWriter<K>) {
        let clock = options.clock.clone();
        let state = QueueState::new(!options.in_order, clock.now());
        let queue = DeltaFifoHandle {
            state: Arc::new(Monitor::ranked(Rank::DELTA_FIFO, state)),
            waiters: Waiters::new(),
            clock,
        };
        let known = options.known.as_ref().map(Arc::clone);
        let writer = DeltaFifoWriter::new(queue.clone(), options);
        (Self { queue, known }, writer)
    }

    /// Takes the first entry and processes it: the changes of one object that waited together, or
    /// one delta in an ordered queue. `process` also learns whether the entry is initial: taken
    /// before the queue had synced.
    ///
    /// Blocks until an entry waits, the queue is closed and empty, or `deadline`; then while
    /// `process` runs, without a lock. An entry in processing no longer waits, and a panic ends its
    /// processing too.
    ///
    /// # Errors
    ///
    /// `Stopped` once the queue is closed and empty: `DeltaFIFO: manipulating with closed queue`;
    /// `Timeout` at the deadline, but an entry that waits wins over both; `Panicked` when `process`
    /// panicked.
    pub fn pop<R>(
        &mut self,
        deadline: impl IntoDeadline,
        process: impl FnOnce(Deltas<K>, bool) -> R,
    ) -> Result<R, Error> {
        self.run(1, deadline, |deltas, _, is_initial| {
            process(deltas, is_initial)
        })
    }

    /// Takes up to `max` entries at once, each of a different object, and processes them together,
    /// for example under one lock of the consumer's store.
    ///
    /// A batch contains only entries of the first list, or none of them. A delta that belongs to no
    /// single object comes alone. Blocks and ends as [`pop`](Self::pop).
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    pub fn pop_batch<R>(
        &mut self,
        max: NonZeroUsize,
        deadline: impl IntoDeadline,
        process: impl FnOnce(Vec<Deltas<K>>, bool) -> R,
    ) -> Result<R, Error> {
        self.run(max.get(), deadline, |first, more, is_initial| {
            let batch = std::iter::once(first).chain(more);
            process(batch.collect(), is_initial)
        })
    }

    /// Returns a handle for other threads, to inspect the queue, wait for its sync, or close it.
    pub fn handle(&self) -> DeltaFifoHandle<K> {
        self.queue.clone()
    }

    /// Adds the last state to a deletion whose final state does not decode (B12). All earlier
    /// deltas have been processed, so the view shows that state.
    pub(super) fn complete(&self, deltas: &mut Deltas<K>) {
        let known = self.known.as_deref();
        deltas.complete(|key| ask(known?, |known| known.last_good(key)).ok().flatten());
    }

    fn run<R>(
        &mut self,
        max: usize,
        deadline: impl IntoDeadline,
        process: impl FnOnce(Deltas<K>, Vec<Deltas<K>>, bool) -> R,
    ) -> Result<R, Error> {
        let deadline = deadline.into_deadline(&self.queue.clock);
        let DeltaFifoHandle { state, clock, .. } = &self.queue;
        let thread = current_thread();
        let locked = state.lock();
        let (taken, locked) = clock.wait_for(state, locked, deadline, |state| {
            if state.paused {
                return None;
            }
            let taken = state.take(max, thread);
            (taken.is_some() || state.end != QueueEnd::Open).then_some(taken)
        });
        drop(locked);
        let resource = K::resource();
        let kind = resource.kind();
        let text = format!("waiting for a change of a {kind}: the deadline passed");
        let taken = taken.ok_or_else(|| Error::new(ErrorKind::Timeout, text))?;
        let text = "DeltaFIFO: manipulating with closed queue";
        let (mut first, mut more, initial) =
            taken.ok_or_else(|| Error::new(ErrorKind::Stopped, text))?;
        for deltas in std::iter::once(&mut first).chain(&mut more) {
            self.complete(deltas);
        }
        let result = guard(
            format_args!("the process function of a {kind} queue"),
            || process(first, more, initial),
        );
        state.lock().finish(result.as_ref().err());
        state.notify_all();
        result
    }
}

impl<K: Object> Drop for DeltaFifo<K> {
    fn drop(&mut self) {
        let left = self.queue.state.lock().abandon();
        self.queue.state.notify_all();
        drop(left);
    }
}

debug_of!([K: Object] DeltaFifo<K>, |it| queue: it.queue, known: it.known.is_some());
