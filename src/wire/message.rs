//! What stands on the wire, decoded: list pages, their items, watch events.

use std::fmt;

use crate::error::Error;
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::sync::Arc;

/// What stands around the items of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the list metadata of the API")]
pub struct ListPage {
    /// The version of the whole list.
    pub resource_version: ResourceVersion,
    /// Where the next page starts; `None` on the last page.
    pub continue_token: Option<String>,
}

/// One item of a list.
#[expect(clippy::exhaustive_enums, reason = "an item decodes or it does not")]
pub enum Listed<K: Object> {
    /// The decoded object.
    Object(Arc<Held<K>>),
    /// A well-formed item that is not a `K` (B12).
    Undecodable(Undecodable),
}

/// A well-formed object that does not decode into its type: set aside, counted, present (B12).
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
    /// Why it does not decode; names the field.
    pub error: Error,
}

/// What the server sent on a watch.
#[non_exhaustive]
pub enum WatchEvent<K: Object> {
    /// The object appeared, or is part of the initial events.
    Added(Arc<Held<K>>),
    /// The object changed.
    Modified(Arc<Held<K>>),
    /// The object is gone; this is its last state.
    Deleted(Arc<Held<K>>),
    /// The object is gone, and its last state is not a `K` (B12): delete by key.
    DeletedUndecodable(Undecodable),
    /// A position without an object.
    Bookmark {
        /// The position.
        resource_version: ResourceVersion,
        /// Whether it ends the initial events (`k8s.io/initial-events-end` is `"true"`).
        initial_events_end: bool,
    },
    /// The server ends the watch; the error carries its [`Status`](crate::object::Status).
    Error(Error),
    /// A well-formed object of an ADDED or MODIFIED event that is not a `K` (B12).
    Undecodable(Undecodable),
    /// An event that is no change: an unknown type, another kind, no metadata (RF-25, RF-28).
    Skipped {
        /// What was wrong with it.
        reason: String,
        /// Its version, where it moves the position (an unknown type); empty where it does not.
        resource_version: ResourceVersion,
    },
}

// By hand, because a derived one would ask `K` for `Debug`, which these never print.
impl<K: Object> fmt::Debug for Listed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => f.debug_tuple("Object").field(object).finish(),
            Self::Undecodable(aside) => f.debug_tuple("Undecodable").field(aside).finish(),
        }
    }
}

impl<K: Object> fmt::Debug for WatchEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, field): (&str, &dyn fmt::Debug) = match self {
            Self::Added(object) => ("Added", object),
            Self::Modified(object) => ("Modified", object),
            Self::Deleted(object) => ("Deleted", object),
            Self::DeletedUndecodable(aside) => ("DeletedUndecodable", aside),
            Self::Error(error) => ("Error", error),
            Self::Undecodable(aside) => ("Undecodable", aside),
            Self::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                return f
                    .debug_struct("Bookmark")
                    .field("resource_version", resource_version)
                    .field("initial_events_end", initial_events_end)
                    .finish();
            }
            Self::Skipped {
                reason,
                resource_version,
            } => {
                return f
                    .debug_struct("Skipped")
                    .field("reason", reason)
                    .field("resource_version", resource_version)
                    .finish();
            }
        };
        f.debug_tuple(name).field(field).finish()
    }
}
