//! A handler that receives only the objects that pass a filter.

use std::fmt;

use crate::error::debug_of;
use crate::informer::{Deleted, EventHandler};
use crate::object::{Object, StoredObject};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Passes the notifications of those objects that match `filter` on to `handler`.
///
/// The handler gets an object that begins to match as added, though not as part of the initial
/// list. It gets an object that no longer matches as deleted:
///
/// | notification | old matches | new matches | the handler gets |
/// |---|---|---|---|
/// | added | | yes | `on_add`, with the initial list's mark as it was |
/// | updated | yes | yes | `on_update` |
/// | updated | no | yes | `on_add(new, false)` |
/// | updated | yes | no | `on_delete` with `old` as the final state: the last one that matched |
/// | deleted | last known state matches | | `on_delete`, as it was |
///
/// The filter always sees an object, also for a delete that was missed; client-go's typed filter
/// sees a null pointer there. It runs on the handler's thread. A filter must depend on the object
/// alone. Otherwise the handler may get the add of an object and never its delete.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::informer::{Deleted, FilteringHandler, Handlers, Notification};
/// use kubecache::object::StoredObject;
/// # use kubecache::testing::objects;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::Arc;
///
/// let (seen, names) = std::sync::mpsc::channel();
/// let handler = Handlers::<Pod>::new()
///     .on_add(move |pod, _| seen.send(pod.metadata.name.clone()).unwrap());
/// let mut web = FilteringHandler::new(
///     |pod: &Pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("web-")),
///     handler,
/// );
/// for name in ["db-0", "web-0"] {
///     let object = Arc::new(StoredObject::new(objects::pod("shop", name, "node-1", &[], &[])));
///     Notification::Added { object, is_in_initial_list: false }.deliver(&mut web);
/// }
/// assert_eq!(names.try_iter().flatten().collect::<Vec<_>>(), ["web-0"]);
/// # }
/// ```
#[doc(alias = "FilteringResourceEventHandler")]
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct FilteringHandler<F, H> {
    filter: F,
    handler: H,
}

impl<F, H> FilteringHandler<F, H> {
    /// Puts `filter` in front of `handler`.
    pub fn new<K: Object>(filter: F, handler: H) -> Self
    where
        F: FnMut(&K) -> bool + Send + 'static,
        H: EventHandler<K>,
    {
        Self { filter, handler }
    }
}

impl<K: Object, F, H> EventHandler<K> for FilteringHandler<F, H>
where
    F: FnMut(&K) -> bool + Send + 'static,
    H: EventHandler<K>,
{
    fn on_start(&mut self, stop: &StopToken) {
        self.handler.on_start(stop);
    }

    fn on_add(&mut self, object: &Arc<StoredObject<K>>, is_in_initial_list: bool) {
        if (self.filter)(object) {
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        match ((self.filter)(old), (self.filter)(new)) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(Deleted::seen(Arc::clone(old))),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        if (self.filter)(&deleted.last_known) {
            self.handler.on_delete(deleted);
        }
    }

    fn is_finished(&self) -> bool {
        self.handler.is_finished()
    }
}

debug_of!([F, H: fmt::Debug] FilteringHandler<F, H>, |it| handler: it.handler, ..);
