//! Delta FIFOs, for programs with their own consumer thread: a reflector writes, and the consumer
//! takes each object's changes in order.
//!
//! A [`DeltaFifo`] is client-go's queue of that name, or its `RealFIFO` with
//! [`in_order`](DeltaFifoOptions::in_order). Its writing side is a [`Sink`](crate::reflector::Sink)
//! for a [`Reflector`](crate::reflector::Reflector). A [`Controller`] is client-go's low-level
//! controller: reflector, queue, and a thread for your process function. If you only want
//! notifications of changes, use a [`SharedInformer`](crate::informer::SharedInformer), which needs
//! no queue.
//!
//! - No deletion is lost, whether the watch or a list reports it.
//! - The changes of one object come in order. Only [`in_order`](DeltaFifoOptions::in_order) keeps
//!   the order of different objects.
//! - An event waits for the consumer only above a [bound](DeltaFifoOptions::max_events).
//! - [`has_synced`](DeltaFifoHandle::has_synced) is true only after the consumer has processed the
//!   last initial item.
//!
//! # Examples
//!
//! client-go's informer, built from its parts. The controller runs a reflector and a queue whose
//! known objects are the indexer. Its process function writes the indexer and calls a handler.
//!
//! A [`Store`](crate::store::Store) refuses events that would take an object back in time. After a
//! restore of the server to an older state, only a whole list takes it back. A program that needs
//! this asks for [`atomic_lists`](DeltaFifoOptions::atomic_lists), and commits each list to the
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
//!         let stored = || indexer.get_last_good(key.namespace(), key.name());
//!         let old = stored();
//!         let is_resync = matches!(delta, Delta::Sync(_));
//!         let (event, end) = match delta {
//!             Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => {
//!                 (Some(ObjectEvent::updated(object)), None)
//!             }
//!             Delta::Sync(object) => (Some(ObjectEvent::updated(object)), None),
//!             // A list came without the object: it is gone whatever the watch told of its end.
//!             Delta::Deleted(end) if end.unlisted => {
//!                 (old.clone().map(ObjectEvent::deleted), None)
//!             }
//!             Delta::Deleted(end) => (end.seen.map(ObjectEvent::deleted), end.last_known),
//!             Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => continue,
//!         };
//!         let Some(event) = event else { continue };
//!         writer.apply(event).expect("a store takes every event");
//!         match (old, stored()) {
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
//!     .on_add(move |object, initial| {
//!         drop(adds.send(format!("{} added, {initial}", object.key())));
//!     })
//!     .on_delete(move |deleted| drop(deletes.send(format!("{} deleted", deleted.key()))));
//!
//! let (reads, options) = (indexer.clone(), ReflectorOptions::default());
//! let lister_watcher = Arc::new(source.clone());
//! let controller =
//!     Controller::spawn("settings", lister_watcher, queue, options, move |deltas, initial| {
//!         process(deltas, initial, (&reads, &mut writer), &mut handler);
//!     })?;
//!
//! controller.queue().wait_until_synced(Duration::from_secs(60))?;
//! assert_eq!(indexer.by_index("namespace", "shop")?.len(), 1);
//! source.delete("shop", "settings");
//! assert_eq!(told.recv().as_deref(), Ok("shop/settings added, true"));
//! assert_eq!(told.recv().as_deref(), Ok("shop/settings deleted"));
//! controller.shutdown(Duration::from_secs(60))?;
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```

mod controller;
mod delta;
mod handle;
mod options;
mod queue;
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
pub use queue::DeltaFifo;
pub use writer::{DeltaFifoStaging, DeltaFifoWriter};
