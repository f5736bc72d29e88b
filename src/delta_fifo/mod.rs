//! Delta FIFOs, for programs with a consumer thread of their own: a reflector writes, the consumer
//! takes each object's changes in their order.
//!
//! A [`DeltaFifo`] is client-go's queue of that name, or its `RealFIFO` with
//! [`in_order`](DeltaFifoOptions::in_order). Its writing side is a [`Sink`](crate::reflector::Sink)
//! for a [`Reflector`](crate::reflector::Reflector). A [`Controller`] is client-go's low-level
//! controller: reflector, queue, and your process function on a thread of its own. If you only want
//! to be told of changes, take a [`SharedInformer`](crate::informer::SharedInformer), which needs
//! no queue.
//!
//! - No deletion is lost, whether the watch or a list tells of it.
//! - The changes of one object come in their order. The order of different objects of a list is
//!   only kept with [`in_order`](DeltaFifoOptions::in_order).
//! - An event waits for the consumer only above a [bound](DeltaFifoOptions::max_events).
//! - [`has_synced`](DeltaFifoHandle::has_synced) is true only after the consumer has processed the
//!   last initial item.
//!
//! # Examples
//!
//! The originals' informer, built from its parts: a reflector and a queue whose known objects are
//! the indexer, in a controller, whose process function writes the indexer and tells a handler.
//!
//! A [`Store`](crate::store::Store) refuses events that would take an object back in time. After a
//! restore of the server to an older state, only a whole list takes it back: a program for which
//! that matters asks for [`atomic_lists`](DeltaFifoOptions::atomic_lists), and commits each to the
//! store.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use std::sync::{Arc, mpsc};
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubecache::clock::Clock;
//! use kubecache::delta_fifo::{Controller, Delta, DeltaFifo, DeltaFifoOptions, Deltas};
//! use kubecache::informer::{Deleted, EventHandler, Handlers};
//! use kubecache::list_watch::ObjectEvent;
//! use kubecache::object::Object;
//! use kubecache::reflector::{ReflectorOptions, Sink};
//! use kubecache::store::{Indexers, Store, StoreWriter};
//! use kubecache::testing::{FakeSource, objects};
//!
//! /// Applies deltas to the indexer, which decides what is new, and tells the handler.
//! fn process<K: Object>(
//!     deltas: Deltas<K>,
//!     is_in_initial_list: bool,
//!     (indexer, writer): (&Store<K>, &mut StoreWriter<K>),
//!     handler: &mut impl EventHandler<K>,
//! ) {
//!     for delta in deltas {
//!         let Some(key) = delta.key() else { continue };
//!         let held = || indexer.get_last_good(key.namespace(), key.name());
//!         let old = held();
//!         let is_resync = matches!(delta, Delta::Sync(_));
//!         let (event, end) = match delta {
//!             Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => {
//!                 (Some(ObjectEvent::modified(object)), None)
//!             }
//!             Delta::Sync(object) => (Some(ObjectEvent::modified(object)), None),
//!             // A list came without the object: it is gone whatever the watch told of its end.
//!             Delta::Deleted(end) if end.unlisted => (old.clone().map(ObjectEvent::deleted), None),
//!             Delta::Deleted(end) => (end.seen.map(ObjectEvent::deleted), end.last_known),
//!             Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => continue,
//!         };
//!         let Some(event) = event else { continue };
//!         writer.apply(event).expect("a store takes every event");
//!         match (old, held()) {
//!             (None, Some(new)) => handler.on_add(&new, is_in_initial_list),
//!             // The store refuses old news: nothing has changed then.
//!             (Some(old), Some(new)) if is_resync || !Arc::ptr_eq(&old, &new) => {
//!                 handler.on_update(&old, &new);
//!             }
//!             (Some(old), None) => handler.on_delete(match end {
//!                 Some(last_known) => Deleted::seen(last_known),
//!                 None => Deleted::missed(old),
//!             }),
//!             (None, None) | (Some(_), Some(_)) => {}
//!         }
//!     }
//! }
//!
//! let source = FakeSource::<ConfigMap>::new();
//! source.set(objects::config_map("shop", "settings", "", &[]));
//!
//! let (indexer, mut writer) = Store::new(Indexers::new().by_namespace(), Clock::system());
//! let known = Arc::new(indexer.clone());
//! let queue = DeltaFifo::new(DeltaFifoOptions::default().in_order().known(known));
//!
//! let (tells, told) = mpsc::channel();
//! let (adds, deletes) = (tells.clone(), tells);
//! let mut handler = Handlers::<ConfigMap>::new()
//!     .on_add(move |object, initial| drop(adds.send(format!("{} added, {initial}", object.key()))))
//!     .on_delete(move |deleted| drop(deletes.send(format!("{} deleted", deleted.key()))));
//!
//! let (reads, options) = (indexer.clone(), ReflectorOptions::default());
//! let controller =
//!     Controller::spawn("settings", Arc::new(source.clone()), queue, options, move |deltas, initial| {
//!         process(deltas, initial, (&reads, &mut writer), &mut handler);
//!     })?;
//!
//! controller.queue().wait_until_synced(Clock::system().after(Duration::from_mins(1)))?;
//! assert_eq!(indexer.by_index("namespace", "shop")?.len(), 1);
//! source.delete("shop", "settings");
//! assert_eq!(told.recv().as_deref(), Ok("shop/settings added, true"));
//! assert_eq!(told.recv().as_deref(), Ok("shop/settings deleted"));
//! controller.shutdown(Clock::system().after(Duration::from_mins(1)))?;
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```

mod controller;
mod delta;
mod handle;
mod options;
#[cfg(all(test, shuttle))]
mod schedules;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use controller::Controller;
pub use delta::{Deletion, Delta, Deltas, ReplacedAll};
pub use handle::DeltaFifoHandle;
pub use options::{DeltaFifoOptions, KnownObjects};
pub use writer::{DeltaFifoStaging, DeltaFifoWriter};

use std::fmt;
use std::num::NonZeroUsize;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::guard::guard;
use crate::object::Object;
use crate::reflector::Waiters;
use crate::sync::{Arc, Monitor, Rank, current_thread};

use options::ask;
use state::{QueueEnd, QueueState};

/// A queue of changes between one reflector and one consumer, which this is.
///
/// The consumer takes deltas with [`pop`](Self::pop) and applies them to a store of its own. It
/// holds no lock meanwhile, so events go on to be queued. A list and a resync wait until nothing is
/// being processed, and then ask what the consumer [knows](KnownObjects).
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
/// queue.pop(Clock::system().after(Duration::from_mins(1)), |deltas, is_in_initial_list| {
///     assert!(matches!(deltas.newest(), Delta::ReplacedAll(list) if list.items.len() == 1));
///     assert!(is_in_initial_list);
/// })?;
/// assert!(queue.handle().has_synced());
/// reflector.join().expect("it did not panic");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "DeltaFIFO")]
#[doc(alias = "RealFIFO")]
pub struct DeltaFifo<K: Object> {
    queue: DeltaFifoHandle<K>,
    known: Option<Arc<dyn KnownObjects<K>>>,
}

impl<K: Object> DeltaFifo<K> {
    /// A queue and its one writer, which is a [`Sink`](crate::reflector::Sink) for a reflector.
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

    /// Takes what waits first and processes it: the changes of one object that came together, in
    /// order one delta. `process` is told too whether the queue had not synced when they were
    /// taken.
    ///
    /// Blocks until something waits, the queue is closed and empty, or `deadline`; then as long as
    /// `process` does, under no lock. What is processed does not wait any more, and a panic ends
    /// its processing too.
    ///
    /// # Errors
    ///
    /// `Stopped` once the queue is closed and empty: `DeltaFIFO: manipulating with closed queue`;
    /// `Timeout` at the deadline, though something that waits wins over both; `Panicked` when
    /// `process` panicked.
    pub fn pop<R>(
        &mut self,
        deadline: Deadline,
        process: impl FnOnce(Deltas<K>, bool) -> R,
    ) -> Result<R, Error> {
        self.run(1, deadline, |deltas, _, is_initial| {
            process(deltas, is_initial)
        })
    }

    /// Takes up to `max` entries at once, each about another object, and processes them together:
    /// under one lock of the consumer's store, say.
    ///
    /// A batch holds entries of the first list only, or none of them. A delta about no single
    /// object comes alone. Blocks and ends as [`pop`](Self::pop).
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    pub fn pop_batch<R>(
        &mut self,
        max: NonZeroUsize,
        deadline: Deadline,
        process: impl FnOnce(Vec<Deltas<K>>, bool) -> R,
    ) -> Result<R, Error> {
        self.run(max.get(), deadline, |first, more, is_initial| {
            let batch = std::iter::once(first).chain(more);
            process(batch.collect(), is_initial)
        })
    }

    /// For others than writer and consumer: to wait until the queue has synced, to look at it, to
    /// close it.
    pub fn handle(&self) -> DeltaFifoHandle<K> {
        self.queue.clone()
    }

    /// The consumer ends by `cause`, which every wait for a sync is told.
    fn fail(&self, cause: Error) {
        self.queue.state.lock().cause = Some(cause);
    }

    /// Adds the last state to a deletion whose final state does not decode (B12): everything before
    /// it has been processed, so the view shows that.
    fn complete(&self, deltas: &mut Deltas<K>) {
        let known = self.known.as_deref();
        deltas.complete(|key| ask(known?, |known| known.last_good(key)).ok().flatten());
    }

    fn run<R>(
        &mut self,
        max: usize,
        deadline: Deadline,
        process: impl FnOnce(Deltas<K>, Vec<Deltas<K>>, bool) -> R,
    ) -> Result<R, Error> {
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
        let text = format!(
            "waiting for a change of a {}: the deadline passed",
            K::resource().kind()
        );
        let taken = taken.ok_or_else(|| Error::new(ErrorKind::Timeout, text))?;
        let text = "DeltaFIFO: manipulating with closed queue";
        let (mut first, mut more, initial) =
            taken.ok_or_else(|| Error::new(ErrorKind::Stopped, text))?;
        for deltas in std::iter::once(&mut first).chain(&mut more) {
            self.complete(deltas);
        }
        let resource = K::resource();
        let port = format_args!("the process function of a {} queue", resource.kind());
        let result = guard(port, || process(first, more, initial));
        state.lock().finish();
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

impl<K: Object> fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("queue", &self.queue)
            .field("known", &self.known.is_some())
            .finish()
    }
}
