//! The result of a read: the object, its age, and the failures since.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::{Error, clone_of};
use crate::object::{Object, StoredObject};
use crate::sync::Arc;

/// An object that a read of a manager returned; derefs to `K`. Cloning copies a pointer.
///
/// Its `Debug` prints kind, key and version only. `{:?}` on the object inside prints all of it. The
/// values of a Secret are overwritten when the last holder, this one included, drops it. Do not
/// write it back: it lacks `metadata.managedFields` and the last-applied annotation.
pub struct Cached<K: Object>(Arc<ReadyObject<K>>);

/// A store's answer for its readers: one allocation, shared by those of one group of threads.
#[derive(Debug)]
pub(crate) struct ReadyObject<K: Object> {
    pub(crate) object: Arc<StoredObject<K>>,
    pub(crate) contact: Instant,
    pub(crate) failure: Option<Error>,
    pub(crate) stale: bool,
    /// Until when readers may have it at once, if it is polled.
    pub(crate) expires: Option<Instant>,
    pub(crate) clock: Clock,
}

clone_of!([K: Object] ReadyObject<K>: object, contact, failure, stale, expires, clock);

impl<K: Object> ReadyObject<K> {
    /// Whether the two are the same to readers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
            && self.contact == other.contact
            && self.stale == other.stale
            && self.expires == other.expires
            && self.failure.is_none()
            && other.failure.is_none()
    }
}

clone_of!([K: Object] Cached<K>: 0);

impl<K: Object> Cached<K> {
    pub(crate) fn new(ready: Arc<ReadyObject<K>>) -> Self {
        Self(ready)
    }

    pub(crate) fn of(ready: ReadyObject<K>) -> Self {
        Self(Arc::new(ready))
    }

    /// The server's answer to a request that began at `contact`.
    pub(crate) fn confirmed(object: Arc<StoredObject<K>>, contact: Instant, clock: &Clock) -> Self {
        Self::of(ReadyObject {
            object,
            contact,
            failure: None,
            stale: false,
            expires: None,
            clock: clock.clone(),
        })
    }

    /// Returns the time since the server last confirmed this state; it grows while you keep this
    /// value. With `Watch` each list, each event and each bookmark confirms the state as it comes,
    /// about once a minute. With `Cache` and `Get`, for polled objects, and for reads past the
    /// cache, each answer to a get does.
    ///
    /// After a get the age counts from the start of the request, since the state may have changed
    /// before its answer came.
    pub fn age(&self) -> Duration {
        self.0.clock.now().saturating_duration_since(self.0.contact)
    }

    /// Returns when the server last confirmed this state, on the manager's clock.
    pub fn last_contact(&self) -> Instant {
        self.0.contact
    }

    /// Returns the last failure, if nothing has succeeded since. With `Watch` it is one of the
    /// watch or of the check of an immutable object. With `Cache` it is one of the gets that should
    /// renew the object. With `Get` it is always `None`: the read itself fails.
    pub fn last_error(&self) -> Option<&Error> {
        self.0.failure.as_ref()
    }

    /// Returns whether this state may be older than the manager's strategy allows.
    ///
    /// With `Watch`:
    ///
    /// - [`get_cached`](super::ObjectManager::get_cached) read it while the watch was stopped or
    ///   not filled yet;
    /// - the check of an immutable object had no answer in time;
    /// - the watch is known to be behind the server: its position expired, a change was lost, or a
    ///   list that had to follow failed, and no list has come since;
    /// - the object is [polled](Self::is_polled), its time to live was over, and the poll failed or
    ///   had not come by the deadline.
    ///
    /// With `Cache`, its time to live was over, and:
    ///
    /// - the get that was to renew it failed, or had no answer by the deadline;
    /// - no get was made because of earlier failures;
    /// - the get was answered by a server that is behind the known state;
    /// - or the reader called [`get_cached`](super::ObjectManager::get_cached).
    ///
    /// With `Get`, never.
    pub fn is_stale(&self) -> bool {
        self.0.stale
    }

    /// Returns whether the object is polled, since there is no room for its watch: it may be as old
    /// as the time to live. With [`PastLimit::Poll`](super::PastLimit::Poll) only.
    ///
    /// A read that went to the server, as [`get_fresh`](super::ObjectManager::get_fresh) does, is
    /// not polled.
    pub fn is_polled(&self) -> bool {
        self.0.expires.is_some()
    }

    /// Whether the time to live of a polled object is over.
    pub(crate) fn has_expired(&self) -> bool {
        let expires = self.0.expires;
        expires.is_some_and(|expires| self.0.clock.now() >= expires)
    }

    /// Returns the stored object, which clones of this value share.
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
