//! A queue of changes: one reflector writes, one consumer takes, each object's changes in their order.

mod compressed;
mod hand;
mod handle;
mod in_order;
mod options;
mod popped;
#[cfg(all(test, shuttle))]
mod schedules;
mod staging;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use handle::DeltaFifoHandle;
pub use options::{DeltaFifoOptions, QueueMode, Relisted};
pub use popped::{Popped, Processing};
pub use staging::DeltaFifoStaging;
pub use writer::DeltaFifoWriter;

use std::fmt;
use std::num::NonZeroUsize;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::informer::delta::{Deletion, Delta};
use crate::informer::{Deltas, KnownObjects};
use crate::object::Object;
use crate::reflector::Demand;
use crate::sync::{Arc, Bell, Mutex, MutexGuard};

use compressed::Compressed;
use hand::{Debt, Debts};
use in_order::InOrder;
use state::{End, Lane, State};

/// Places for which an emptied queue keeps its memory; what a larger burst took is given back.
const CAPACITY_KEPT: usize = 1_024;

/// A queue of changes between one reflector and one consumer, which this is.
///
/// The consumer takes deltas with [`pop`](Self::pop), applies them to a store of its own, and tells whoever wants to
/// know. No lock is held meanwhile: the producer goes on. What the consumer holds in its hands still counts: a list
/// that comes in the meantime and goes without that object queues its deletion, a resync that comes in the meantime
/// queues the object as it is once it has been processed, and the queue has not synced before the last initial item is
/// dropped. Only one thing can be in the consumer's hands, because taking borrows the queue.
///
/// Dropping this drops what waits, and makes every further write an error.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::informer::{DeltaFifo, DeltaFifoOptions, DeltaType, QueueMode};
/// use kubecache::reflector::{Reflector, ReflectorOptions};
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<ConfigMap>::new();
/// source.set(objects::config_map("shop", "settings", "", &[]));
///
/// let mode = QueueMode::InOrderAtomic { known: None, bookmarks: false };
/// let (mut queue, writer) = DeltaFifo::new(mode, DeltaFifoOptions::default());
/// let reflector =
///     Reflector::spawn("settings", Arc::new(source), writer, ReflectorOptions::default())?;
///
/// let deltas = queue.pop(Clock::system().after(Duration::from_mins(1)))?;
/// assert_eq!(deltas.newest().delta_type(), DeltaType::ReplacedAll);
/// assert!(deltas.is_in_initial_list());
/// drop(deltas); // processed
/// assert!(queue.handle().has_synced());
/// reflector.join().expect("it did not panic");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "DeltaFIFO")]
#[doc(alias = "RealFIFO")]
pub struct DeltaFifo<K: Object> {
    shared: Shared<K>,
    /// What this consumer holds.
    view: Option<Arc<dyn KnownObjects<K>>>,
}

impl<K: Object> DeltaFifo<K> {
    /// A queue and its one writer, which is a [`Sink`](crate::reflector::Sink) for a reflector.
    pub fn new(mode: QueueMode<K>, options: DeltaFifoOptions<K>) -> (Self, DeltaFifoWriter<K>) {
        let lane = match &mode {
            QueueMode::Compressed { .. } => Lane::Compressed(Compressed::new()),
            QueueMode::InOrder { .. } | QueueMode::InOrderAtomic { .. } => {
                Lane::InOrder(InOrder::new())
            }
        };
        let clock = options.clock.clone();
        let state = State::new(lane, mode.known().is_some(), clock.now());
        let shared = Shared {
            state: Arc::new(Mutex::new(state)),
            arrived: Arc::default(),
            changed: Arc::default(),
            demand: Demand::new(),
            clock,
        };
        let view = mode.view().map(Arc::clone);
        let writer = DeltaFifoWriter::new(shared.clone(), mode, options);
        (Self { shared, view }, writer)
    }

    /// Takes what waits first: the changes of one object that came together, one delta in the modes in order.
    ///
    /// Blocks until something waits, the queue is closed and empty, or `deadline`. What is taken counts as being
    /// processed until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// `Stopped` once the queue is closed and empty: `DeltaFIFO: manipulating with closed queue` (DF-17); `Timeout` at
    /// the deadline. Something that waits wins over both.
    pub fn pop(&mut self, deadline: Deadline) -> Result<Popped<'_, K>, Error> {
        let (mut taken, receipt) = self.take(deadline, State::take)?;
        self.complete(&mut taken);
        Ok(Popped::new(self, taken, receipt))
    }

    /// Takes up to `max` places at once, each about another object: to be applied under one lock of the consumer's
    /// store (RQ-13).
    ///
    /// A batch holds items of the first list only, or none of them. A delta about no single object comes alone. Blocks
    /// and ends as [`pop`](Self::pop).
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    pub fn pop_batch(
        &mut self,
        max: NonZeroUsize,
        deadline: Deadline,
    ) -> Result<Popped<'_, K, Vec<Deltas<K>>>, Error> {
        let (mut taken, receipt) = self.take(deadline, |state| state.take_batch(max))?;
        for deltas in &mut taken {
            self.complete(deltas);
        }
        Ok(Popped::new(self, taken, receipt))
    }

    /// For others than producer and consumer: to wait until the queue has synced, to look at it, to close it.
    pub fn handle(&self) -> DeltaFifoHandle<K> {
        DeltaFifoHandle::new(self.shared.clone())
    }

    /// Looks up the last state of an object whose final one does not decode (B12): everything before its end has been
    /// processed, so the view shows it.
    fn complete(&self, taken: &mut Deltas<K>) {
        let (Some(view), Some(deletion)) = (&self.view, taken.newest_mut().as_deleted_mut()) else {
            return;
        };
        if deletion.undecodable.is_some() && deletion.last_known.is_none() {
            deletion.last_known = view.last_good(&deletion.key);
        }
    }

    /// Asks the view what came of the objects that were in hand when a list or a resync came, and queues what follows.
    fn settle(&self, debts: Debts) {
        let Some(view) = &self.view else { return };
        let payments = debts.into_iter().filter_map(|(key, debt)| {
            let there = view.get(&key);
            let delta = match (debt, there) {
                (_, Ok(None)) => return None,
                (Debt::Resync, Ok(Some(object))) => Delta::Sync(object),
                (Debt::Resync, Err(error)) => {
                    log::debug!("{} {key} is left out of a resync: {error}", K::KIND);
                    return None;
                }
                (Debt::Unlisted(of), Ok(Some(_)) | Err(_)) => {
                    let last_known = view.last_good(&key);
                    let deletion = Deletion::unlisted((*key).clone(), last_known, &of);
                    Delta::Deleted(Box::new(deletion))
                }
            };
            Some((key, delta))
        });
        let payments: Vec<_> = payments.collect();
        // Nothing of these objects can have been taken since, so the view still shows them as asked.
        let left_out = self.shared.lock().pay(payments);
        drop(left_out);
    }

    fn take<T>(
        &mut self,
        deadline: Deadline,
        mut take: impl FnMut(&mut State<K>) -> Option<T>,
    ) -> Result<T, Error> {
        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return Ok(taken);
            }
            if state.end != End::Open {
                let text = "DeltaFIFO: manipulating with closed queue";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            if shared.clock.has_passed(deadline) {
                let text = format!("waiting for a change of a {}: the deadline passed", K::KIND);
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            state = shared
                .clock
                .wait_for_bell(&shared.state, &shared.arrived, state, deadline);
        }
    }
}

impl<K: Object> Drop for DeltaFifo<K> {
    fn drop(&mut self) {
        let left = self.shared.lock().abandon();
        self.shared.changed.ring();
        drop(left);
    }
}

impl<K: Object> fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.show("DeltaFifo", f)
    }
}

/// What the ends of one queue share.
struct Shared<K: Object> {
    state: Arc<Mutex<State<K>>>,
    /// Something waits, or the queue is closed: for the consumer.
    arrived: Arc<Bell>,
    /// The queue has synced, or never will: for whoever waits for that.
    changed: Arc<Bell>,
    demand: Demand,
    clock: Clock,
}

impl<K: Object> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    fn close(&self) {
        {
            let mut state = self.lock();
            if state.end == End::Open {
                state.end = End::Closed;
            }
        }
        self.arrived.ring();
        self.changed.ring();
    }

    fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let shown = (state.len(), state.has_synced(), state.end != End::Open);
        drop(state);
        f.debug_struct(name)
            .field("kind", &K::KIND)
            .field("waiting", &shown.0)
            .field("synced", &shown.1)
            .field("closed", &shown.2)
            .finish_non_exhaustive()
    }
}

impl<K: Object> Clone for Shared<K> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            arrived: Arc::clone(&self.arrived),
            changed: Arc::clone(&self.changed),
            demand: self.demand.clone(),
            clock: self.clock.clone(),
        }
    }
}
