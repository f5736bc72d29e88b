//! The options of a queue, and its view of the objects that the consumer holds.

use crate::clock::Clock;
use crate::error::{Error, debug_of};
use crate::guard::guard;
use crate::list_watch::OBJECTS_MAX;
use crate::object::{Object, ObjectKey, StoredObject, Transform};
use crate::setters::setters;
use crate::store::Store;
use crate::sync::Arc;

/// How many watch events may wait before the writer does.
const EVENTS_MAX: usize = 2_000;

/// The objects of a queue's consumer: a [`Store`], or another collection to which it applies
/// deltas.
///
/// The queue asks the view without holding its own lock. On the reflector's thread it asks for each
/// object of a list, also while the consumer processes. It asks for all keys only while nothing is
/// being processed. It asks on the consumer's thread before that processes a deletion.
///
/// The view must show the result of the deltas processed so far, and nothing else may change it. If
/// a view panics, the call that asked it fails.
#[doc(alias = "KeyListerGetter")]
pub trait KnownObjects<K: Object>: Send + Sync {
    /// Returns every key, including those of undecodable objects.
    #[doc(alias = "ListKeys")]
    fn keys(&self) -> Vec<ObjectKey>;

    /// Returns the present object with that key; `None` when there is none.
    ///
    /// # Errors
    ///
    /// Why the view cannot return an object that may exist. The queue then still takes a deletion
    /// of it, and a resync skips it.
    #[doc(alias = "GetByKey")]
    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<StoredObject<K>>>, Error>;

    /// Returns the last state with that key that decoded, for deletions. It may be outdated.
    fn last_good(&self, key: &ObjectKey) -> Option<Arc<StoredObject<K>>> {
        self.get(key).ok().flatten()
    }
}

impl<K: Object> KnownObjects<K> for Store<K> {
    fn keys(&self) -> Vec<ObjectKey> {
        self.keys()
    }

    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        self.get(key.namespace(), key.name())
    }

    fn last_good(&self, key: &ObjectKey) -> Option<Arc<StoredObject<K>>> {
        self.get_last_good(key.namespace(), key.name())
    }
}

/// Asks the program's view, and turns a panic into an error.
pub(super) fn ask<K: Object, T>(
    known: &dyn KnownObjects<K>,
    question: impl FnOnce(&dyn KnownObjects<K>) -> T,
) -> Result<T, Error> {
    let resource = K::resource();
    guard(
        format_args!("the known objects of a {} queue", resource.kind()),
        || question(known),
    )
}

/// Options of a queue. Start from the default and change what you need.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::delta_fifo::DeltaFifoOptions;
/// use kubecache::object::StoredObject;
///
/// // Keep the names of the settings, not their values.
/// let options = DeltaFifoOptions::default().in_order().transform(|object| {
///     Ok(StoredObject::edited(object, |settings: &mut ConfigMap| {
///         settings.data.iter_mut().flat_map(|data| data.values_mut()).for_each(String::clear);
///     }))
/// });
/// # drop(options);
/// ```
#[must_use = "options do nothing before a queue is made with them"]
pub struct DeltaFifoOptions<K: Object> {
    pub(super) in_order: bool,
    pub(super) atomic_lists: bool,
    pub(super) bookmarks: bool,
    pub(super) events_max: usize,
    pub(super) objects_max: usize,
    pub(super) known: Option<Arc<dyn KnownObjects<K>>>,
    pub(super) transform: Option<Transform<K>>,
    pub(super) clock: Clock,
}

setters! { [K: Object] DeltaFifoOptions<K>;
    /// Sets how many watch events may wait before the writer waits, too. Items of lists have [their
    /// own bound](Self::max_objects). Default: 2,000. Minimum: 1.
    #[doc(alias = "UnlockWhileProcessing")]
    max_events(events: usize) in events_max = events.max(1);

    /// Sets how many objects of lists and resyncs may wait before the next list or resync waits for
    /// the consumer. Default: 5,000,000. Minimum: 1.
    ///
    /// One list brings no more objects than its source's
    /// [maximum](crate::list_watch::ListerWatcher::objects_max); the reflector's status says how
    /// many it refused. The queue passes on every event, so the consumer must bound the objects
    /// that a watch adds.
    max_objects(objects: usize) in objects_max = objects.max(1);

    /// Sets the view of the objects that the consumer holds. Default: none.
    ///
    /// Without it, the queue finds only queued objects missing from a list, and a resync does
    /// nothing. A compressed queue then ignores the deletion of an object that is not queued. With
    /// [`atomic_lists`](Self::atomic_lists), the view only lets unchanged objects of a list share
    /// memory.
    #[doc(alias = "KnownObjects")]
    known(known: Arc<dyn KnownObjects<K>>) = Some(known);

    /// Sets a function that changes each object from the server once, before it is queued. It also
    /// gets final states, but not objects that a list or a resync brings up from memory. Default:
    /// none.
    ///
    /// It runs on the reflector's thread, without a lock. It must not change namespace or name. If
    /// it fails or panics, the queue stays as it was, and the reflector lists again after a
    /// backoff.
    #[doc(alias = "SetTransform")]
    transform(transform: impl Fn(Arc<StoredObject<K>>)
        -> Result<Arc<StoredObject<K>>, Error> + Send + Sync + 'static)
        = Some(Transform::new(transform));

    /// Sets the clock. Default: the system's.
    clock(clock: Clock);
}

impl<K: Object> DeltaFifoOptions<K> {
    /// Keeps all deltas in their order of arrival. Default: the changes of one object wait
    /// together, at the place of the first.
    ///
    /// With it, the consumer sees every change in the order of the watch, across objects too. It
    /// sees a list's deletions first, then its items in the list's order.
    ///
    /// By default, a change may overtake later changes of other objects, because it joins the first
    /// one of its object. Two deletions in a row become one. The consumer sees a list's items
    /// first.
    #[doc(alias = "RealFIFO")]
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Keeps all deltas in order, and makes each list and each resync one delta. Default: one delta
    /// per object.
    ///
    /// The consumer itself finds the objects that a list lacks, and so can replace its content in
    /// one step. Such a list does not wait for the processing.
    #[doc(alias = "AtomicEvents")]
    pub fn atomic_lists(mut self) -> Self {
        self.in_order = true;
        self.atomic_lists = true;
        self
    }

    /// Passes the server's bookmarks through the queue, each after all earlier deltas. A compressed
    /// queue keeps only the last of several in a row. Default: no bookmarks.
    #[doc(alias = "EmitDeltaTypeBookmark")]
    pub fn bookmarks(mut self) -> Self {
        self.bookmarks = true;
        self
    }
}

impl<K: Object> Default for DeltaFifoOptions<K> {
    fn default() -> Self {
        Self {
            in_order: false,
            atomic_lists: false,
            bookmarks: false,
            events_max: EVENTS_MAX,
            objects_max: OBJECTS_MAX,
            known: None,
            transform: None,
            clock: Clock::system(),
        }
    }
}

debug_of!([K: Object] DeltaFifoOptions<K>, |it|
    in_order: it.in_order, atomic_lists: it.atomic_lists, bookmarks: it.bookmarks,
    events_max: it.events_max, known: it.known.is_some(), transforms: it.transform.is_some(), ..);
