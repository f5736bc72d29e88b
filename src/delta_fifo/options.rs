//! The options of a queue, and its view of the objects that the consumer holds.

use crate::clock::Clock;
use crate::error::{Error, debug_of};
use crate::guard::guard;
use crate::list_watch::OBJECTS_MAX;
use crate::object::{Object, ObjectKey, StoredObject, Transform};
use crate::setters::setters;
use crate::store::Store;
use crate::sync::Arc;

/// Events of the watch that wait before the writer does.
const EVENTS_MAX: usize = 2_000;

/// What the consumer of a queue holds: a [`Store`], or another collection to which it applies
/// deltas.
///
/// The queue asks the view under no lock of its own. It asks on the reflector's thread, and there
/// for many objects only while nothing is processed. It asks on the consumer's thread before that
/// processes a deletion.
///
/// The view must show what the deltas processed so far have made, and nothing else may change that.
/// A view that panics is an error of the call that asked it.
#[doc(alias = "KeyListerGetter")]
pub trait KnownObjects<K: Object>: Send + Sync {
    /// Returns every key, those of objects that do not decode included.
    #[doc(alias = "ListKeys")]
    fn keys(&self) -> Vec<ObjectKey>;

    /// Returns the present object with that key; `None` when there is none.
    ///
    /// # Errors
    ///
    /// Why the view cannot give an object that may be there. A deletion of it is queued then, and a
    /// resync leaves it out.
    #[doc(alias = "GetByKey")]
    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<StoredObject<K>>>, Error>;

    /// Returns the last state with that key that decoded, for deletions. It may not be the present
    /// one.
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

/// Asks the program's view; a panic of it is an error of that question.
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

/// Options of a queue; start from the default and set what differs.
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
    /// How many events of the watch may wait; the writer waits above that. Items of lists
    /// have a [bound of their own](Self::max_objects). Default and least: 2,000 and 1.
    #[doc(alias = "UnlockWhileProcessing")]
    max_events(events: usize) in events_max = events.max(1);

    /// How many objects of lists and resyncs may wait before the next list or resync waits for the
    /// consumer. Default and least: 5,000,000 and 1.
    ///
    /// One list brings no more objects than its source's
    /// [maximum](crate::list_watch::ListerWatcher::objects_max); the reflector's status says how
    /// many it refused. The queue hands on every event, so the consumer bounds what a watch adds.
    max_objects(objects: usize) in objects_max = objects.max(1);

    /// Sets the view of the objects that the consumer holds. Default: none.
    ///
    /// Without it, only queued objects can be found missing from a list, and a resync does nothing.
    /// A compressed queue then leaves out the deletion of an object that is not queued. With
    /// [`atomic_lists`](Self::atomic_lists) it only keeps the memory of a list's unchanged objects.
    #[doc(alias = "KnownObjects")]
    known(known: Arc<dyn KnownObjects<K>>) = Some(known);

    /// Changes each object before it is queued: once per object that the server sent, final states
    /// included, and not what a list or a resync brings up from memory. Default:
    /// objects are queued as they came.
    ///
    /// It runs on the reflector's thread, under no lock. It must leave namespace and name as they
    /// are. An error or a panic of it leaves the queue as it was, and the reflector lists again
    /// after a backoff.
    #[doc(alias = "SetTransform")]
    transform(transform: impl Fn(Arc<StoredObject<K>>)
        -> Result<Arc<StoredObject<K>>, Error> + Send + Sync + 'static)
        = Some(Transform::new(transform));

    /// Sets the clock. Default: the system's.
    clock(clock: Clock);
}

impl<K: Object> DeltaFifoOptions<K> {
    /// One delta after the other, in the order in which they came. Default: the changes of one
    /// object wait together, at the place of the first of them.
    ///
    /// In order, the consumer sees every change in the order of the watch, across objects too. Of a
    /// list, it sees the deletions first, and then the items in the list's order.
    ///
    /// By default, an object that changes often is overtaken by others that changed later. Two
    /// deletions in a row are one. Of a list, the consumer sees the items first.
    #[doc(alias = "RealFIFO")]
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// In order, and a list and a resync are one delta each. Default: one delta per object.
    ///
    /// The consumer finds out itself what a list went without, and so can exchange its content in
    /// one step. Such a list waits for no processing.
    #[doc(alias = "AtomicEvents")]
    pub fn atomic_lists(mut self) -> Self {
        self.in_order = true;
        self.atomic_lists = true;
        self
    }

    /// The server's bookmarks come through the queue too, each after everything that was queued
    /// before it; compressed, of several in a row the last. Default: they do not.
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
