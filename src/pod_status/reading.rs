//! The result of a read of the cache: a status, an error, either or both, and their times. These
//! are monotonic, with a zero before all others.

use std::error::Error as StdError;
use std::time::Instant;

use super::status::CachedStatus;
use crate::clock::Clock;
use crate::error::{clone_of, debug_of};
use crate::sync::Arc;

/// The error of an inspection, shared by all readers of the pod.
pub type StatusError = Arc<dyn StdError + Send + Sync>;

/// The cache's knowledge of a pod: a status, an error, either or both. Cheap to clone.
///
/// The cache and all readers share the status, so it cannot be modified.
pub struct PodReading<S> {
    pub(super) status: Option<Arc<S>>,
    pub(super) error: Option<StatusError>,
    /// `None` for a pod without an entry.
    pub(super) modified: Option<Timestamp>,
    pub(super) observed: Option<Timestamp>,
}

impl<S> PodReading<S> {
    /// Creates the reading of a set at `time`.
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

    /// Returns the status that was set; `None` after a failed inspection. A pod without an entry
    /// has a status with only its UID.
    pub fn status(&self) -> Option<&Arc<S>> {
        self.status.as_ref()
    }

    /// Returns the error of the inspection, if it failed.
    pub fn error(&self) -> Option<&StatusError> {
        self.error.as_ref()
    }

    /// Whether the cache has an entry for the pod; if not, the status has only the UID set.
    pub fn is_stored(&self) -> bool {
        self.modified.is_some()
    }

    /// Returns the timestamp of the entry's set; `None` if there is no entry.
    pub fn modified_time(&self) -> Option<Timestamp> {
        self.modified
    }

    /// Returns when the runtime last agreed with the entry: the timestamp of the last set, or of a
    /// later [`set_observed_time`](super::PodStatusCache::set_observed_time); `None` if there is no
    /// entry.
    pub fn observed_time(&self) -> Option<Timestamp> {
        self.observed
    }
}

impl<S: CachedStatus> PodReading<S> {
    /// Adds a status with only the UID for a pod without an entry (PC-2). Runs code of the program.
    pub(super) fn of(uid: &str, found: Self) -> Self {
        if found.is_stored() {
            return found;
        }
        Self::new(Some(Arc::new(S::with_id(uid))), None, None)
    }
}

// A derived impl would require `S: Clone`.
clone_of!([S] PodReading<S>: status, error, modified, observed);

// Leaves the status out: it need not be printable, and printing it would run code of the program.
debug_of!([S] PodReading<S>, |it|
    has_status: it.status.is_some(), error: it.error, modified_time: it.modified,
    observed_time: it.observed, ..);

/// A point on the monotonic clock, or [`ZERO`](Self::ZERO), which lies before every other.
///
/// Timestamps of one process can be compared, whatever the wall clock does: when it is set back, a
/// fresh status does not look old, as in the kubelet. They mean nothing in another process or on
/// another machine. On Linux the clock stands still while the machine is suspended.
///
/// # Examples
///
/// ```
/// use kubecache::clock::Clock;
/// use kubecache::pod_status::Timestamp;
///
/// let now = Timestamp::now(&Clock::system());
/// assert!(Timestamp::ZERO < now);
/// assert_eq!(Timestamp::default(), Timestamp::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(Option<Instant>);

impl Timestamp {
    /// The time before every other. A worker that has never synced its pod asks with this.
    pub const ZERO: Self = Self(None);

    /// Returns the current time of `clock`.
    pub fn now(clock: &Clock) -> Self {
        Self(Some(clock.now()))
    }

    /// Returns the instant; `None` for [`ZERO`](Self::ZERO).
    pub fn instant(self) -> Option<Instant> {
        self.0
    }
}

impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Self {
        Self(Some(instant))
    }
}
