//! What a read of the cache gives: a status, an error, either or both, and their times.

use std::error::Error as StdError;
use std::fmt;

use super::Timestamp;
use super::status::Status;
use crate::sync::Arc;

/// Why the runtime could not say how a pod is doing; shared by all who read it.
pub type StatusError = Arc<dyn StdError + Send + Sync>;

/// What is stored of a pod.
pub(super) struct Entry<S> {
    pub(super) status: Option<Arc<S>>,
    pub(super) error: Option<StatusError>,
    pub(super) modified: Timestamp,
    pub(super) observed: Timestamp,
}

// Derived, it would ask for `S: Clone`.
impl<S> Clone for Entry<S> {
    fn clone(&self) -> Self {
        Self {
            status: self.status.clone(),
            error: self.error.clone(),
            modified: self.modified,
            observed: self.observed,
        }
    }
}

/// What the cache knows of a pod: a status, an error, either or both (PC-2, PC-3). Cheap to clone.
///
/// The status is shared with the cache and everybody else who reads it; nobody can modify it (PC-12).
pub struct Reading<S> {
    entry: Entry<S>,
    is_stored: bool,
}

impl<S> Reading<S> {
    /// The status that was set. `None` only where somebody set none, which is what a failed inspection does (PC-3); a pod
    /// that is not stored has a status with nothing but its UID (PC-2).
    pub fn status(&self) -> Option<&Arc<S>> {
        self.entry.status.as_ref()
    }

    /// Why the runtime could not say how the pod is doing, if that is what was set.
    pub fn error(&self) -> Option<&StatusError> {
        self.entry.error.as_ref()
    }

    /// Whether the cache has an entry for the pod; if not, the status has only the UID set.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// The time the entry was set with; `None` if there is no entry.
    pub fn modified_time(&self) -> Option<Timestamp> {
        self.is_stored.then_some(self.entry.modified)
    }

    /// When the runtime was last seen to agree with the entry: the time of the last set, or that of a later
    /// [`set_observed_time`](super::PodStatusCache::set_observed_time) (PC-14); `None` if there is no entry.
    pub fn observed_time(&self) -> Option<Timestamp> {
        self.is_stored.then_some(self.entry.observed)
    }

    /// Status and error, as the kubelet's `Get` returns them.
    pub fn into_parts(self) -> (Option<Arc<S>>, Option<StatusError>) {
        (self.entry.status, self.entry.error)
    }
}

impl<S: Status> Reading<S> {
    /// A pod without an entry reads as a status with nothing but its UID (PC-2). Runs the user's code.
    pub(super) fn new(uid: &str, entry: Option<Entry<S>>) -> Self {
        let is_stored = entry.is_some();
        let entry = entry.unwrap_or_else(|| Entry {
            status: Some(Arc::new(S::with_id(uid))),
            error: None,
            modified: Timestamp::ZERO,
            observed: Timestamp::ZERO,
        });
        Self { entry, is_stored }
    }
}

impl<S> Clone for Reading<S> {
    fn clone(&self) -> Self {
        Self {
            entry: self.entry.clone(),
            is_stored: self.is_stored,
        }
    }
}

// Leaves the status out: it need not be printable, and reading it is the user's code.
impl<S> fmt::Debug for Reading<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("has_status", &self.status().is_some())
            .field("error", &self.error())
            .field("modified_time", &self.modified_time())
            .field("observed_time", &self.observed_time())
            .finish_non_exhaustive()
    }
}
