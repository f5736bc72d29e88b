//! Handlers that pass notifications on: filtered to another handler, or all to a channel.

use std::collections::HashSet;
use std::fmt;

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};

use crate::error::debug_of;
use crate::informer::{Deleted, EventHandler, Notification};
use crate::object::{Object, ObjectKey, StoredObject};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Passes the notifications of objects that match `filter` on to `handler`.
///
/// An object that begins to match comes as added, but not as part of the initial list. An object
/// that no longer matches comes as deleted:
///
/// | notification | old matches | new matches | the handler gets |
/// |---|---|---|---|
/// | added | | yes | `on_add`, with the initial list's mark as it was |
/// | updated | yes | yes | `on_update` |
/// | updated | no | yes | `on_add(new, false)` |
/// | updated | yes | no | `on_delete` with `old` as the final state: the last one that matched |
/// | deleted | last known state matches | | `on_delete`, as it was |
///
/// It keeps the keys of the objects that the handler was told of, and counts their old states as
/// matching. So no delete of them is lost: a queue at its bound joins the last change and the
/// delete, and an object may not decode in between. client-go has no such memory.
///
/// The filter always sees an object, even for a missed delete; client-go's typed filter sees a null
/// pointer there. It runs on the handler's thread.
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
    /// What the handler was told of.
    told: HashSet<ObjectKey>,
}

impl<F, H> FilteringHandler<F, H> {
    /// Puts `filter` in front of `handler`.
    pub fn new<K: Object>(filter: F, handler: H) -> Self
    where
        F: FnMut(&K) -> bool + Send + 'static,
        H: EventHandler<K>,
    {
        Self {
            filter,
            handler,
            told: HashSet::new(),
        }
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
            self.told.insert(object.key());
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        let key = new.key();
        let old_matches = self.told.contains(&key) || (self.filter)(old);
        let new_matches = (self.filter)(new);
        if new_matches {
            self.told.insert(key);
        } else {
            self.told.remove(&key);
        }
        match (old_matches, new_matches) {
            (true, true) => self.handler.on_update(old, new),
            (false, true) => self.handler.on_add(new, false),
            (true, false) => self.handler.on_delete(Deleted::seen(Arc::clone(old))),
            (false, false) => {}
        }
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        if self.told.remove(&deleted.last_known.key()) || (self.filter)(&deleted.last_known) {
            self.handler.on_delete(deleted);
        }
    }

    fn is_finished(&self) -> bool {
        self.handler.is_finished()
    }
}

debug_of!([F, H: fmt::Debug] FilteringHandler<F, H>, |it| handler: it.handler, ..);

/// Sends every notification to a crossbeam channel.
///
/// While the channel is full, only the handler's own thread waits. Its queue grows up to the bound
/// of every handler's queue. The wait ends when the receiver takes a notification, when the
/// receiver is gone, or when the handler is removed. In the last two cases the notification is
/// dropped. Once the receiver is gone, the handler ends at its next notification.
///
/// The channel closes when the handler ends, so `for notification in &receiver` ends with the
/// informer.
///
/// The handler counts as synced when the initial objects are *in the channel*. With a capacity of 0
/// that means: the receiver has taken them.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::informer::{Forward, Notification};
/// use kubecache::object::StoredObject;
/// # use kubecache::testing::objects;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::Arc;
///
/// let (mut handler, notifications) = Forward::<Pod>::bounded(16);
///
/// // An informer does this, on the handler's thread.
/// let object = Arc::new(StoredObject::new(objects::pod("shop", "web-0", "node-1", &[], &[])));
/// Notification::Added { object, is_in_initial_list: true }.deliver(&mut handler);
///
/// match notifications.recv()? {
///     Notification::Added { object, .. } => println!("there is {object:?}"),
///     Notification::Updated { new, .. } => println!("now {new:?}"),
///     Notification::Deleted(gone) => println!("gone: {:?}", gone.last_known),
/// }
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct Forward<K: Object> {
    sender: Sender<Notification<K>>,
    stop: StopToken,
    receiver_is_gone: bool,
}

impl<K: Object> Forward<K> {
    /// Makes a handler and the receiver of its notifications. The channel holds at most
    /// `notifications_max`.
    ///
    /// Keep the capacity small. The handler's queue coalesces notifications and shows its lag; the
    /// channel does neither.
    pub fn bounded(notifications_max: usize) -> (Self, Receiver<Notification<K>>) {
        let (sender, receiver) = bounded(notifications_max);
        (Self::from(sender), receiver)
    }

    /// Makes a handler and the receiver of its notifications. The channel is unbounded.
    ///
    /// If the receiver is too slow, memory grows without bound, because the handler's queue never
    /// fills.
    pub fn unbounded() -> (Self, Receiver<Notification<K>>) {
        let (sender, receiver) = unbounded();
        (Self::from(sender), receiver)
    }

    fn send(&mut self, notification: Notification<K>) {
        select! {
            send(self.sender, notification) -> sent => self.receiver_is_gone = sent.is_err(),
            recv(self.stop.channel()) -> _ => {}
        }
    }
}

impl<K: Object> From<Sender<Notification<K>>> for Forward<K> {
    fn from(sender: Sender<Notification<K>>) -> Self {
        Self {
            sender,
            stop: StopToken::never(),
            receiver_is_gone: false,
        }
    }
}

impl<K: Object> EventHandler<K> for Forward<K> {
    fn on_start(&mut self, stop: &StopToken) {
        self.stop = stop.clone();
    }

    fn on_add(&mut self, object: &Arc<StoredObject<K>>, is_in_initial_list: bool) {
        self.send(Notification::added(Arc::clone(object), is_in_initial_list));
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        let (old, new) = (Arc::clone(old), Arc::clone(new));
        self.send(Notification::Updated { old, new });
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        self.send(Notification::Deleted(deleted));
    }

    fn is_finished(&self) -> bool {
        self.receiver_is_gone
    }
}

debug_of!([K: Object] Forward<K>, |it|
    queued: it.sender.len(), receiver_is_gone: it.receiver_is_gone, ..);
