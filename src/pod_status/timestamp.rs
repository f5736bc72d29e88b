//! Times of the pod-status cache: monotonic, with a zero before all others.

use std::time::Instant;

use crate::clock::Clock;

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
