//! How long credentials last, and when they are fetched again: pure but for the system's clock.

use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

/// The longest time before the end at which credentials are fetched again.
const LEEWAY_MAX: Duration = Duration::from_secs(30);

/// A source that caches its credentials may return the same again, so the next fetch waits this
/// long.
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// Returns how long credentials that expire at `expires_at` last. The error says since when they
/// have expired.
pub(super) fn left(expires_at: SystemTime) -> Result<Duration, String> {
    let now = SystemTime::now();
    let left = expires_at.duration_since(now).unwrap_or_default();
    if left.is_zero() {
        let since = now.duration_since(expires_at).unwrap_or_default();
        let since = Duration::from_secs(since.as_secs());
        return Err(format!(
            "expired {since:?} ago: is the clock of this machine right?"
        ));
    }
    Ok(left)
}

/// The seconds from 1970 back to the zero time of Go, which stands for no time.
const GO_ZERO: i64 = -62_135_596_800;

/// Converts a time; one before 1970 is 1970. `None` is Go's zero time: no end.
pub(super) fn system_time(time: Timestamp) -> Option<SystemTime> {
    let is_zero = Timestamp::from_second(GO_ZERO).is_ok_and(|zero| zero == time);
    let millis = u64::try_from(time.as_millisecond()).unwrap_or_default();
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    time.filter(|_| !is_zero)
}

/// Returns when to fetch credentials again that last for `left`: before their end, so that no
/// request waits for that.
pub(super) fn renew_after(left: Duration) -> Duration {
    let leeway = left.checked_div(5).unwrap_or_default().min(LEEWAY_MAX);
    let after = left.saturating_sub(leeway);
    if after < RENEWAL_MIN { left } else { after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_fetched_again_a_fifth_or_half_a_minute_before_their_end() {
        let millis = Duration::from_millis;
        for (left, after) in [
            (20_000, 16_000),
            (150_000, 120_000),
            (840_000, 810_000),
            (1_250, 1_000),
            (1_249, 1_249),
            (1, 1),
        ] {
            assert_eq!(renew_after(millis(left)), millis(after));
        }
    }

    #[test]
    fn what_has_expired_is_told_with_the_time() {
        let before = SystemTime::now() - Duration::from_secs(90);
        let why = left(before).unwrap_err();
        assert!(
            why.starts_with("expired 90s ago") || why.starts_with("expired 91s ago"),
            "{why}"
        );
        assert!(left(SystemTime::now() + Duration::from_secs(60)).is_ok());
    }
}
