//! Times of the pod-status cache: monotonic, with a zero before all others.

use std::time::{Duration, Instant};

use crate::clock::Clock;

/// A point on the monotonic clock, or [`ZERO`](Self::ZERO), which lies before every other (PL-11).
///
/// Timestamps of one process can be compared with each other, whatever happens to the wall clock meanwhile: a step back
/// of the wall clock cannot make a fresh status look old, as it does in the kubelet (PC-15). They mean nothing in another
/// process or on another machine. On Linux the clock stands still while the machine is suspended.
///
/// # Examples
///
/// ```
/// use kubecache::clock::Clock;
/// use kubecache::pod_status::Timestamp;
///
/// let now = Timestamp::now(&Clock::system());
/// assert!(Timestamp::ZERO < now);
/// assert!(Timestamp::default().is_zero());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(Option<Instant>);

impl Timestamp {
    /// The time before every other: what a worker asks with that has never synced its pod (PL-11).
    pub const ZERO: Self = Self(None);

    /// The current time of `clock`.
    pub fn now(clock: &Clock) -> Self {
        Self(Some(clock.now()))
    }

    /// Whether this is [`ZERO`](Self::ZERO).
    pub fn is_zero(self) -> bool {
        self.0.is_none()
    }

    /// The instant; `None` for [`ZERO`](Self::ZERO).
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// The time `duration` later; `None` if the clock cannot count that far, and for [`ZERO`](Self::ZERO), from which
    /// nothing can be counted.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let instant = self.0?.checked_add(duration)?;
        Some(Self(Some(instant)))
    }

    /// The time `duration` earlier; `None` if the clock cannot count that far, and for [`ZERO`](Self::ZERO), from which
    /// nothing can be counted.
    #[must_use]
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        let instant = self.0?.checked_sub(duration)?;
        Some(Self(Some(instant)))
    }

    /// How long before `later` this lies; zero if it does not, `None` if either is [`ZERO`](Self::ZERO).
    pub fn duration_until(self, later: Self) -> Option<Duration> {
        Some(later.0?.saturating_duration_since(self.0?))
    }

    /// The time in words, as seen at `now`: `3.2s ago`, `1.0s ahead`, `the zero time`.
    pub fn relative_to(self, now: Instant) -> String {
        match self.0 {
            None => "the zero time".to_owned(),
            Some(time) if time > now => {
                format!("{:.1?} ahead", time.saturating_duration_since(now))
            }
            Some(time) => format!("{:.1?} ago", now.saturating_duration_since(time)),
        }
    }
}

impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Self {
        Self(Some(instant))
    }
}
