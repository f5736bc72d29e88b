//! What a read gives: the object, how old the news is, and what went wrong since.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::object::{Object, StoredObject};
use crate::sync::Arc;

/// An object as a manager gave it; derefs to `K`. Cloning copies a pointer.
///
/// Its `Debug` prints kind, key and version only. `{:?}` on the object inside prints all of it. The
/// values of a Secret are overwritten when the last holder, this one included, drops it. Do not
/// write it back: it lacks `metadata.managedFields` and the last-applied annotation.
pub struct Cached<K: Object>(Arc<ReadyObject<K>>);

/// What a store has ready for its readers: one allocation, shared by all of them.
#[derive(Debug)]
pub(crate) struct ReadyObject<K: Object> {
    pub(crate) object: Arc<StoredObject<K>>,
    pub(crate) contact: Instant,
    pub(crate) failure: Option<Error>,
    pub(crate) stale: bool,
    pub(crate) clock: Clock,
}

impl<K: Object> ReadyObject<K> {
    /// Whether readers could not tell the two apart.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
            && self.contact == other.contact
            && self.stale == other.stale
            && self.failure.is_none()
            && other.failure.is_none()
    }
}

impl<K: Object> Clone for Cached<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Object> Cached<K> {
    pub(crate) fn new(ready: Arc<ReadyObject<K>>) -> Self {
        Self(ready)
    }

    pub(crate) fn of(ready: ReadyObject<K>) -> Self {
        Self(Arc::new(ready))
    }

    /// What the server has just said.
    pub(crate) fn confirmed(object: Arc<StoredObject<K>>, contact: Instant, clock: &Clock) -> Self {
        Self::of(ReadyObject {
            object,
            contact,
            failure: None,
            stale: false,
            clock: clock.clone(),
        })
    }

    /// The time from when the server last confirmed this state until now; it grows while you hold
    /// the object. A watch confirms it at each event and each bookmark, about once a minute. With
    /// `Cache` and `Get` the answer to each get does.
    pub fn age(&self) -> Duration {
        self.0.clock.now().saturating_duration_since(self.0.contact)
    }

    /// When the server last confirmed this state, on the manager's clock.
    pub fn last_contact(&self) -> Instant {
        self.0.contact
    }

    /// The last failure, if nothing has succeeded since: with `Watch`, of the watch or of the check
    /// of an immutable object; with `Cache`, of the gets that were to renew it. With `Get` there is
    /// none: a failure is an error.
    pub fn last_error(&self) -> Option<&Error> {
        self.0.failure.as_ref()
    }

    /// Whether the manager could not do what its strategy promises, and gave what it had.
    ///
    /// With `Watch`:
    ///
    /// - [`get_cached`](super::ObjectManager::get_cached) read it while the watch was stopped or
    ///   not filled yet;
    /// - the check of an immutable object had no answer in time;
    /// - the watch is known to be behind the server: its position expired, a change was lost, or a
    ///   list that had to follow failed, and no list has come since.
    ///
    /// With `Cache`, its time to live was over, and:
    ///
    /// - the get that was to renew it failed, or had no answer by the deadline;
    /// - no get was made because of earlier failures;
    /// - the get was answered by a server that is behind what is known;
    /// - or the reader called [`get_cached`](super::ObjectManager::get_cached).
    ///
    /// With `Get`, never.
    pub fn is_stale(&self) -> bool {
        self.0.stale
    }

    /// The stored object, which clones of this share.
    pub fn stored(&self) -> &Arc<StoredObject<K>> {
        &self.0.object
    }
}

impl<K: Object> Deref for Cached<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0.object
    }
}

impl<K: Object> fmt::Debug for Cached<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0.object, f)
    }
}
