//! Handlers: the trait, the notification, and handlers made of closures.

use std::fmt;

use crate::error::{debug_of, default_of};
use crate::informer::Deleted;
use crate::object::{Object, ObjectKey, StoredObject};
use crate::setters::setters;
use crate::sync::Arc;
use crate::worker::StopToken;

/// Receives the objects of one informer: the present ones, every change and every delete.
///
/// Every handler has a thread of its own, such as `hd-1`. That thread makes all calls, one at a
/// time and without a lock of the crate. So a handler may block: only its own queue grows meanwhile
/// (see [`HandlerOptions`](crate::informer::HandlerOptions)). A method that panics loses only that
/// notification. The panic is counted and logged, and the next notification comes as usual.
///
/// For one object the calls come in order: `on_add`, any number of `on_update`, `on_delete`, and so
/// on. Between different objects, and between different handlers, there is no order.
///
/// The default methods do nothing. [`Handlers`] makes a handler from closures;
/// [`Forward`](crate::informer::Forward) sends to a channel.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::informer::{Deleted, EventHandler, Notification};
/// use kubecache::object::{StoredObject, Object, ObjectKey};
/// # use kubecache::testing::objects;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::collections::BTreeSet;
/// use std::sync::Arc;
///
/// #[derive(Default)]
/// struct Names(BTreeSet<ObjectKey>);
///
/// impl EventHandler<Pod> for Names {
///     fn on_add(&mut self, pod: &Arc<StoredObject<Pod>>, _is_in_initial_list: bool) {
///         self.0.insert(pod.key());
///     }
///
///     fn on_delete(&mut self, pod: Deleted<Pod>) {
///         self.0.remove(&pod.key());
///     }
/// }
///
/// // An informer does this, on the handler's thread.
/// let mut names = Names::default();
/// let pod = Arc::new(StoredObject::new(objects::pod("shop", "web-0", "node-1", &[], &[])));
/// Notification::Added { object: pod, is_in_initial_list: true }.deliver(&mut names);
/// assert!(names.0.contains(&ObjectKey::new("shop", "web-0")));
/// # }
/// ```
#[doc(alias = "ResourceEventHandler")]
pub trait EventHandler<K: Object>: Send + 'static {
    /// Called once, on the handler's thread, before anything else.
    ///
    /// `stop` is raised when the handler is removed or its informer stops. A handler that blocks
    /// must end its wait then.
    fn on_start(&mut self, _stop: &StopToken) {}

    /// Called for an object that is new to the handler. `is_in_initial_list` says whether it
    /// belongs to the handler's initial list.
    #[doc(alias = "OnAdd")]
    fn on_add(&mut self, _object: &Arc<StoredObject<K>>, _is_in_initial_list: bool) {}

    /// Called when the object changed from `old` to `new`, and at a resync, when nothing changed.
    /// Both states have the same uid. An object that was deleted and created again comes as
    /// `on_delete` and `on_add`.
    ///
    /// One call may stand for several changes, after a relist or beyond the bound of the handler's
    /// queue.
    #[doc(alias = "OnUpdate")]
    fn on_update(&mut self, _old: &Arc<StoredObject<K>>, _new: &Arc<StoredObject<K>>) {}

    /// Called when the object is gone. [`Deleted`] says whether its final state is known.
    #[doc(alias = "OnDelete")]
    fn on_delete(&mut self, _deleted: Deleted<K>) {}

    /// Whether the handler is finished. The informer asks after each notification, and removes the
    /// handler on `true`.
    fn is_finished(&self) -> bool {
        false
    }
}

impl<K: Object, H: EventHandler<K> + ?Sized> EventHandler<K> for Box<H> {
    fn on_start(&mut self, stop: &StopToken) {
        (**self).on_start(stop);
    }

    fn on_add(&mut self, object: &Arc<StoredObject<K>>, is_in_initial_list: bool) {
        (**self).on_add(object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        (**self).on_update(old, new);
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        (**self).on_delete(deleted);
    }

    fn is_finished(&self) -> bool {
        (**self).is_finished()
    }
}

/// One change of one object, as a handler receives it. Cloning copies pointers; `Debug` prints keys
/// and versions only.
#[expect(clippy::exhaustive_enums, reason = "what a handler is told")]
pub enum Notification<K: Object> {
    /// The object is new to the handler.
    Added {
        /// The object.
        object: Arc<StoredObject<K>>,
        /// Whether it belongs to the handler's initial list.
        is_in_initial_list: bool,
    },
    /// The object changed. A resync repeats it without a change.
    Updated {
        /// The state that this handler received before.
        old: Arc<StoredObject<K>>,
        /// The present state.
        new: Arc<StoredObject<K>>,
    },
    /// The object is gone.
    Deleted(Deleted<K>),
}

impl<K: Object> Notification<K> {
    /// Calls the handler's method for this notification.
    pub fn deliver<H: EventHandler<K> + ?Sized>(self, handler: &mut H) {
        let is_initial = self.is_initial();
        match self {
            Self::Added { object, .. } => handler.on_add(&object, is_initial),
            Self::Updated { old, new } => handler.on_update(&old, &new),
            Self::Deleted(deleted) => handler.on_delete(deleted),
        }
    }

    /// The newest state of the object that the notification holds.
    pub fn object(&self) -> &Arc<StoredObject<K>> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted(deleted) => &deleted.last_known,
        }
    }

    /// Namespace and name of the object.
    pub fn key(&self) -> ObjectKey {
        self.object().key()
    }

    /// The method of [`EventHandler`] that this notification is for.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Added { .. } => "on_add",
            Self::Updated { .. } => "on_update",
            Self::Deleted(_) => "on_delete",
        }
    }

    pub(in crate::informer) fn added(
        object: Arc<StoredObject<K>>,
        is_in_initial_list: bool,
    ) -> Self {
        Self::Added {
            object,
            is_in_initial_list,
        }
    }

    /// Whether the notification counts for the handler's first sync (SI-16).
    pub(super) fn is_initial(&self) -> bool {
        matches!(self, Self::Added { is_in_initial_list: initial, .. } if *initial)
    }
}

impl<K: Object> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, .. } => Self::added(Arc::clone(object), self.is_initial()),
            Self::Updated { old, new } => Self::Updated {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
        }
    }
}

impl<K: Object> fmt::Debug for Notification<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { object, .. } => f
                .debug_struct("Added")
                .field("object", object)
                .field("is_in_initial_list", &self.is_initial())
                .finish(),
            Self::Updated { old, new } => f
                .debug_struct("Updated")
                .field("old", old)
                .field("new", new)
                .finish(),
            Self::Deleted(deleted) => deleted.fmt(f),
        }
    }
}

type OnAdd<K> = Box<dyn FnMut(&Arc<StoredObject<K>>, bool) + Send>;
type OnUpdate<K> = Box<dyn FnMut(&Arc<StoredObject<K>>, &Arc<StoredObject<K>>) + Send>;

/// A handler made from closures. A method without a closure does nothing.
///
/// [`SharedInformer::handlers`](crate::informer::SharedInformer::handlers) makes an empty one of
/// the informer's type, so that the compiler knows the closures' argument types.
///
/// The handler's own thread calls all of them. So they may block, and need only be `Send`.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::informer::{Handlers, Notification};
/// use kubecache::object::{StoredObject, Object};
/// # use kubecache::testing::objects;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::Arc;
///
/// let mut handler = Handlers::<Pod>::new()
///     .on_add(|pod, is_in_initial_list| println!("{} (initial: {is_in_initial_list})", pod.key()))
///     .on_delete(|gone| println!("{} is gone, seen: {}", gone.key(), gone.final_state_known));
///
/// // An informer does this, on the handler's thread.
/// let pod = Arc::new(StoredObject::new(objects::pod("shop", "web-0", "node-1", &[], &[])));
/// let update = Notification::Updated { old: Arc::clone(&pod), new: pod };
/// update.deliver(&mut handler); // the handler has no closure for it
/// # }
/// ```
#[doc(alias("ResourceEventHandlerFuncs", "ResourceEventHandlerDetailedFuncs"))]
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct Handlers<K: Object> {
    add: Option<OnAdd<K>>,
    update: Option<OnUpdate<K>>,
    delete: Option<Box<dyn FnMut(Deleted<K>) + Send>>,
}

impl<K: Object> Handlers<K> {
    /// Makes a handler that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

setters! { [K: Object] Handlers<K>;
    /// Calls `closure` for every [`on_add`](EventHandler::on_add).
    on_add(closure: impl FnMut(&Arc<StoredObject<K>>, bool) + Send + 'static)
        in add = Some(Box::new(closure));

    /// Calls `closure` with the old and the new state for every
    /// [`on_update`](EventHandler::on_update).
    on_update(closure: impl FnMut(&Arc<StoredObject<K>>, &Arc<StoredObject<K>>) + Send + 'static)
        in update = Some(Box::new(closure));

    /// Calls `closure` for every [`on_delete`](EventHandler::on_delete).
    on_delete(closure: impl FnMut(Deleted<K>) + Send + 'static) in delete = Some(Box::new(closure));
}

default_of!([K: Object] Handlers<K>: add, update, delete);

impl<K: Object> EventHandler<K> for Handlers<K> {
    fn on_add(&mut self, object: &Arc<StoredObject<K>>, is_in_initial_list: bool) {
        if let Some(add) = &mut self.add {
            add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<StoredObject<K>>, new: &Arc<StoredObject<K>>) {
        if let Some(update) = &mut self.update {
            update(old, new);
        }
    }

    fn on_delete(&mut self, deleted: Deleted<K>) {
        if let Some(delete) = &mut self.delete {
            delete(deleted);
        }
    }
}

debug_of!([K: Object] Handlers<K>, |it|
    on_add: it.add.is_some(), on_update: it.update.is_some(), on_delete: it.delete.is_some());
