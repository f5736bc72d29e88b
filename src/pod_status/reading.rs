//! What a read of the cache gives: a status, an error, either or both, and their times. These are
//! monotonic, with a zero before all others.

use std::error::Error as StdError;
use std::time::Instant;

use super::status::CachedStatus;
use crate::clock::Clock;
use crate::error::{clone_of, debug_of};
use crate::sync::Arc;

/// The error of an inspection, shared by all readers of the pod.
pub type StatusError = Arc<dyn StdError + Send + Sync>;

/// What the cache knows of a pod: a status, an error, either or both. Cheap to clone.
///
/// The status is shared with the cache and with other readers, and cannot be modified.
pub struct PodReading<S> {
    pub(super) status: Option<Arc<S>>,
    pub(super) error: Option<StatusError>,
    /// `None` of a pod without an entry.
    pub(super) modified: Option<Timestamp>,
    pub(super) observed: Option<Timestamp>,
}

impl<S> PodReading<S> {
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

    /// The status that was set; `None` after a failed inspection. A pod that is not stored has a
    /// status with nothing but its UID.
    pub fn status(&self) -> Option<&Arc<S>> {
        self.status.as_ref()
    }

    /// The error of the inspection, if it failed.
    pub fn error(&self) -> Option<&StatusError> {
        self.error.as_ref()
    }

    /// Whether the cache has an entry for the pod; if not, the status has only the UID set.
    pub fn is_stored(&self) -> bool {
        self.modified.is_some()
    }

    /// The timestamp with which the entry was set; `None` if there is no entry.
    pub fn modified_time(&self) -> Option<Timestamp> {
        self.modified
    }

    /// When the runtime last agreed with the entry: the timestamp of the last set, or of a later
    /// [`set_observed_time`](super::PodStatusCache::set_observed_time); `None` if there is no
    /// entry.
    pub fn observed_time(&self) -> Option<Timestamp> {
        self.observed
    }
}

impl<S: CachedStatus> PodReading<S> {
    /// Gives a pod without an entry a status with nothing but its UID (PC-2). Runs the user's code.
    pub(super) fn of(uid: &str, found: Self) -> Self {
        if found.is_stored() {
            return found;
        }
        Self::new(Some(Arc::new(S::with_id(uid))), None, None)
    }
}

// Derived, it would ask for `S: Clone`.
clone_of!([S] PodReading<S>: status, error, modified, observed);

// Leaves the status out: it need not be printable, and reading it is the user's code.
debug_of!([S] PodReading<S>, |it|
    has_status: it.status.is_some(), error: it.error, modified_time: it.modified,
    observed_time: it.observed, ..);

/// A point on the monotonic clock, or [`ZERO`](Self::ZERO), which lies before every other.
///
/// Timestamps of one process can be compared with each other, whatever happens to the wall clock
/// meanwhile: a step back of the wall clock cannot make a fresh status look old, as it does in the
/// kubelet. They mean nothing in another process or on another machine. On Linux the clock stands
/// still while the machine is suspended.
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
    /// The time before every other. A worker that has never synced its pod asks with it.
    pub const ZERO: Self = Self(None);

    /// The current time of `clock`.
    pub fn now(clock: &Clock) -> Self {
        Self(Some(clock.now()))
    }

    /// The instant; `None` for [`ZERO`](Self::ZERO).
    pub fn instant(self) -> Option<Instant> {
        self.0
    }
}

impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Self {
        Self(Some(instant))
    }
}
