//! What stands on the wire, decoded: list pages, their items, watch events.

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
#[derive(Debug)]
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
#[derive(Debug)]
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
