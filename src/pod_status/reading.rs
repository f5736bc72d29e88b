//! What a read of the cache gives: a status, an error, either or both, and their times.

use std::error::Error as StdError;
use std::fmt;

use super::status::Status;
use super::timestamp::Timestamp;
use crate::sync::Arc;

/// Why the runtime could not say how a pod is doing; shared by all who read it.
pub type StatusError = Arc<dyn StdError + Send + Sync>;

/// What the cache knows of a pod: a status, an error, either or both. Cheap to clone.
///
/// The status is shared with the cache and everybody else who reads it; nobody can modify it.
pub struct Reading<S> {
    pub(super) status: Option<Arc<S>>,
    pub(super) error: Option<StatusError>,
    /// `None` of a pod without an entry.
    pub(super) modified: Option<Timestamp>,
    pub(super) observed: Option<Timestamp>,
}

impl<S> Reading<S> {
    /// What is set at one time.
    pub(super) fn new(
        status: Option<Arc<S>>,
        error: Option<StatusError>,
        time: Option<Timestamp>,
    ) -> Self {
        Self {
            status,
            error,
            modified: time,
            observed: time,
        }
    }

    /// The status that was set. `None` if none was set, which is what a failed inspection does. A
    /// pod that is not stored has a status with nothing but its UID.
    pub fn status(&self) -> Option<&Arc<S>> {
        self.status.as_ref()
    }

    /// Why the runtime could not say how the pod is doing, if that is what was set.
    pub fn error(&self) -> Option<&StatusError> {
        self.error.as_ref()
    }

    /// Whether the cache has an entry for the pod; if not, the status has only the UID set.
    pub fn is_stored(&self) -> bool {
        self.modified.is_some()
    }

    /// The time the entry was set with; `None` if there is no entry.
    pub fn modified_time(&self) -> Option<Timestamp> {
        self.modified
    }

    /// When the runtime was last seen to agree with the entry: the time of the last set, or that of
    /// a later [`set_observed_time`](super::PodStatusCache::set_observed_time); `None` if there is
    /// no entry.
    pub fn observed_time(&self) -> Option<Timestamp> {
        self.observed
    }
}

impl<S: Status> Reading<S> {
    /// Gives a pod without an entry a status with nothing but its UID (PC-2). Runs the user's code.
    pub(super) fn of(uid: &str, found: Self) -> Self {
        if found.is_stored() {
            return found;
        }
        Self::new(Some(Arc::new(S::with_id(uid))), None, None)
    }
}

// Derived, it would ask for `S: Clone`.
impl<S> Clone for Reading<S> {
    fn clone(&self) -> Self {
        Self {
            status: self.status.clone(),
            error: self.error.clone(),
            modified: self.modified,
            observed: self.observed,
        }
    }
}

// Leaves the status out: it need not be printable, and reading it is the user's code.
impl<S> fmt::Debug for Reading<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("has_status", &self.status.is_some())
            .field("error", &self.error)
            .field("modified_time", &self.modified)
            .field("observed_time", &self.observed)
            .finish_non_exhaustive()
    }
}
