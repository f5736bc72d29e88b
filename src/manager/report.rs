//! Reports of a manager's owners and objects, for tables and health pages: never a value.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kinds::KindTraits;
use crate::error::Error;
use crate::failures::Failures;
use crate::object::{Object, ObjectKey, ResourceVersion};

/// The state of an object in a manager; with `Get`, the state after the last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectState {
    /// The object is in memory; with `Get`, the last read found it.
    Synced,
    /// The server has no such object: an answer.
    NotFound,
    /// The server has refused the object for three seconds, longer than its authorizer lags: an
    /// answer.
    Forbidden,
    /// The object is in memory, and the server has refused it since, for more than three seconds:
    /// a permission was withdrawn, or its kind is gone (404). Reads give the last copy. With
    /// `Watch` only.
    Refused,
    /// There is no answer yet, or, with `Get`, the last read had none.
    Waiting,
    /// The object is there but does not decode: an answer.
    Undecodable,
    /// There is no room for the object's watch. With `Watch` only.
    TooManyReflectors,
    /// Readers get the object from a snapshot of an earlier process, because the server has not
    /// answered yet.
    Restored,
}

impl ObjectState {
    /// Whether the server has given a definite answer.
    pub fn is_answer(self) -> bool {
        match self {
            Self::Synced | Self::NotFound | Self::Forbidden | Self::Refused | Self::Undecodable => {
                true
            }
            Self::Waiting | Self::TooManyReflectors | Self::Restored => false,
        }
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// A report of one referenced object: its state, version and failures, but no values.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own"
)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Its kind, such as `Secret`.
    pub kind: Cow<'static, str>,
    /// The object.
    pub key: ObjectKey,
    /// Its state.
    pub state: ObjectState,
    /// Why, in words; empty when there is nothing to add.
    pub reason: String,
    /// The version in memory, or with `Get` that of the last read that found the object; empty
    /// without an object.
    pub resource_version: ResourceVersion,
    /// Whether the object says that it never changes.
    pub immutable: bool,
    /// How many keys of data it has.
    pub keys: usize,
    /// The bytes of their values.
    pub bytes: usize,
    /// When the object was created.
    pub created: Option<Time>,
    /// How long ago the server last confirmed the object; `None` before its first answer.
    pub since_contact: Option<Duration>,
    /// Whether a watch is open or being opened. With `Watch` only.
    pub watched: bool,
    /// Whether the object is polled, since there is no room for its watch. With
    /// [`PastLimit::Poll`](crate::manager::PastLimit::Poll) only.
    pub polled: bool,
    /// Whether the object may be old: the server should have confirmed it by now and has not, it is
    /// known to be behind, or its requests keep failing.
    ///
    /// [`ReflectorStatus::health`](crate::reflector::ReflectorStatus::health) has the
    /// rule. With `Watch` only; false for an object whose watch is stopped.
    pub is_overdue: bool,
    /// How many owners reference the object.
    pub owners: usize,
    /// The last failure, if nothing has succeeded since.
    pub last_error: Option<Error>,
    /// How many requests failed one after the other.
    pub attempts: u32,
    /// How long ago the first of the requests that failed one after the other began, or, with
    /// `Watch`, the watch; `None` where nothing failed.
    pub trying_for: Option<Duration>,
    /// How many events and lists were refused because a newer state was known.
    pub refused: u64,
}

/// How a manager watches the objects of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NamespaceState {
    /// Its watch is not open yet. The objects that are read are watched by name.
    Starting,
    /// One watch has all objects but those that were referenced just now.
    Watching,
    /// Its watch ends. Each object has it until its own watch by name is open.
    Draining,
    /// The objects are watched by name, since the namespace cannot be.
    ByName,
}

/// A report of one namespace that a manager watches, or wants to watch, as a whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamespaceReport {
    /// The namespace.
    pub namespace: String,
    /// How its objects are watched.
    pub state: NamespaceState,
    /// Why the objects are watched by name, or how the watch failed last, if it fails now. Else
    /// empty.
    pub reason: String,
    /// How many objects the namespace's watch has.
    pub objects: usize,
    /// How many watches by name there are, with those that just end.
    pub watches_by_name: usize,
    /// How long ago the server last confirmed the content of the namespace's watch.
    pub since_contact: Option<Duration>,
}

/// A summary of an object: everything but its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectSummary {
    pub(crate) resource_version: ResourceVersion,
    pub(crate) immutable: bool,
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) created: Option<Time>,
}

impl ObjectSummary {
    pub(crate) fn of<K: Object>(kind: KindTraits<K>, object: &K, immutable: bool) -> Self {
        let (keys, bytes) = kind.data_size(object);
        Self {
            resource_version: object.resource_version(),
            immutable,
            keys,
            bytes,
            created: object.creation_timestamp(),
        }
    }
}

/// The reason of a row that waits: how often it failed, for how long, and how the last time; `None`
/// where nothing failed.
pub(crate) fn failed_so_far(failures: &Failures, now: Instant) -> Option<String> {
    let (attempts, last) = (failures.count(), failures.last()?);
    let since = now.saturating_duration_since(failures.since().unwrap_or(now));
    Some(format!("{attempts} failed in {since:.1?}: {last}"))
}
