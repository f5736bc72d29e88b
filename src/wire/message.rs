//! The decoded messages of the API: list pages, their items, watch events.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, clone_of};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject, Transform};
use crate::sync::Arc;

/// The metadata of one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the list metadata of the API")]
pub struct ListPage {
    /// The version of the whole list.
    pub resource_version: ResourceVersion,
    /// The token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    /// The number of items on the page that a [`Selection`](super::Selection) did not select. A
    /// page is empty to a reflector if it has neither selected nor unselected items.
    pub unselected: usize,
    /// How old the content of the page was when it was asked for. A server's answer has no age: it
    /// counts from its request. What a program stored has one.
    pub age: Duration,
}

/// One item of a list.
#[expect(clippy::exhaustive_enums, reason = "an item decodes or it does not")]
pub enum Listed<K: Object> {
    /// The decoded object.
    Object(Arc<StoredObject<K>>),
    /// A well-formed item that does not decode into a `K`.
    Undecodable(Box<Undecodable>),
}

/// A well-formed object that does not decode into its type. A cache counts it and reports it to
/// readers.
#[derive(Clone, Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "all that can be known of such an object"
)]
pub struct Undecodable {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid; empty when it has none.
    pub uid: String,
    /// Its version; empty when it has none.
    pub resource_version: ResourceVersion,
    /// Why it does not decode. The error names the field.
    pub error: Error,
}

/// How an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the changes a watch can tell of")]
pub enum EventKind {
    /// The object appeared, or is an item of a list.
    Added,
    /// The object changed: `MODIFIED` on the wire.
    #[doc(alias = "Modified")]
    Updated,
    /// The object is gone; the event holds its last state, if the source knows it.
    Deleted,
}

/// One change of one object. The server sends it, a reflector passes it on, and a sink applies it.
#[expect(
    clippy::exhaustive_structs,
    reason = "an event is a kind and an object"
)]
pub struct ObjectEvent<K: Object> {
    /// How the object changed.
    pub kind: EventKind,
    /// The object. An object that does not decode still has a key.
    pub object: Listed<K>,
}

/// An event of a watch.
#[non_exhaustive]
pub enum WatchEvent<K: Object> {
    /// A change of an object.
    Object(ObjectEvent<K>),
    /// A new position without an object.
    Bookmark {
        /// The position.
        resource_version: ResourceVersion,
        /// Whether the bookmark ends the initial events (`k8s.io/initial-events-end` is `"true"`).
        initial_events_end: bool,
    },
    /// A change of an object that the watch's [`Selection`](super::Selection) does not select. Only
    /// the position is new.
    #[non_exhaustive]
    Unselected {
        /// How the object changed.
        kind: EventKind,
        /// The object's version, which is the new position.
        resource_version: ResourceVersion,
    },
    /// The server ends the watch; the error carries its [`Status`](crate::object::Status).
    Error(Error),
    /// An event that is not a change: the object is of another kind, or has no metadata.
    Skipped {
        /// Why the event is not a change.
        reason: String,
        /// The new position, if the event moves it. Always empty for an event from a server.
        resource_version: ResourceVersion,
    },
}

impl<K: Object> Listed<K> {
    /// The object, if it decodes.
    pub fn decoded(&self) -> Option<&Arc<StoredObject<K>>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Undecodable(_) => None,
        }
    }

    /// Its namespace and name.
    pub fn key(&self) -> ObjectKey {
        let KeyRef { namespace, name } = self.key_ref();
        ObjectKey::new(namespace, name)
    }

    /// The item after `transform`, if there is one. An undecodable object stays as it is.
    ///
    /// # Errors
    ///
    /// As [`Transform::apply`].
    pub(crate) fn transformed(self, transform: Option<&Transform<K>>) -> Result<Self, Error> {
        match (self, transform) {
            (Self::Object(object), Some(transform)) => transform.apply(object).map(Self::Object),
            (item, _) => Ok(item),
        }
    }

    /// Its namespace and name, borrowed.
    pub(crate) fn key_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Object(object) => KeyRef::of(&**object.as_ref()),
            Self::Undecodable(aside) => KeyRef::from(&aside.key),
        }
    }

    /// Its uid and its version, borrowed. A missing one is empty.
    pub(crate) fn identity(&self) -> (&str, &str) {
        match self {
            Self::Object(object) => (object.uid(), object.resource_version_text()),
            Self::Undecodable(aside) => (&aside.uid, aside.resource_version.as_str()),
        }
    }

    /// Its uid; empty when it has none.
    pub fn uid(&self) -> &str {
        self.identity().0
    }

    /// Its version; empty when it has none.
    pub fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::from(self.identity().1)
    }
}

impl<K: Object> ObjectEvent<K> {
    /// The object appeared.
    pub fn added(object: impl Into<Listed<K>>) -> Self {
        Self::new(EventKind::Added, object)
    }

    /// The object changed.
    pub fn updated(object: impl Into<Listed<K>>) -> Self {
        Self::new(EventKind::Updated, object)
    }

    /// The object is gone; this is its last state.
    pub fn deleted(object: impl Into<Listed<K>>) -> Self {
        Self::new(EventKind::Deleted, object)
    }

    fn new(kind: EventKind, object: impl Into<Listed<K>>) -> Self {
        let object = object.into();
        Self { kind, object }
    }
}

impl<K: Object> From<Arc<StoredObject<K>>> for Listed<K> {
    fn from(object: Arc<StoredObject<K>>) -> Self {
        Self::Object(object)
    }
}

impl<K: Object> From<Undecodable> for Listed<K> {
    fn from(aside: Undecodable) -> Self {
        Self::Undecodable(Box::new(aside))
    }
}

impl<K: Object> From<ObjectEvent<K>> for WatchEvent<K> {
    fn from(event: ObjectEvent<K>) -> Self {
        Self::Object(event)
    }
}

impl<K: Object> Clone for Listed<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::Undecodable(aside) => Self::Undecodable(aside.clone()),
        }
    }
}

clone_of!([K: Object] ObjectEvent<K>: kind, object);

// By hand: derived impls would require `K: Debug`, although they never print a `K`.
impl<K: Object> fmt::Debug for Listed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => f.debug_tuple("Object").field(object).finish(),
            Self::Undecodable(aside) => f.debug_tuple("Undecodable").field(aside).finish(),
        }
    }
}

impl<K: Object> fmt::Debug for ObjectEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object: &dyn fmt::Debug = match &self.object {
            Listed::Object(object) => object,
            Listed::Undecodable(aside) => aside,
        };
        f.debug_tuple(&format!("{:?}", self.kind))
            .field(object)
            .finish()
    }
}

impl<K: Object> fmt::Debug for WatchEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(event) => event.fmt(f),
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
            Self::Bookmark {
                resource_version,
                initial_events_end,
            } => f
                .debug_struct("Bookmark")
                .field("resource_version", resource_version)
                .field("initial_events_end", initial_events_end)
                .finish(),
            Self::Unselected {
                kind,
                resource_version,
            } => f
                .debug_struct("Unselected")
                .field("kind", kind)
                .field("resource_version", resource_version)
                .finish(),
            Self::Skipped {
                reason,
                resource_version,
            } => f
                .debug_struct("Skipped")
                .field("reason", reason)
                .field("resource_version", resource_version)
                .finish(),
        }
    }
}
