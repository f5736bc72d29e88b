//! Why a wait ended without an answer, in words: the pod, how long was waited, and what is known of it.

use std::time::{Duration, Instant};

use super::Timestamp;
use super::table::{Found, Wait};
use crate::error::{Error, ErrorKind};

/// The end of a wait at its deadline, with what is known of the pod then: its entry and the global
/// time.
pub(super) fn timed_out<S>(
    uid: &str,
    wait: Wait,
    (found, global): (&Found<S>, Option<Timestamp>),
    now: Instant,
) -> Error {
    let (min_time, since) = (wait.min_time, wait.since);
    let described = |time: Timestamp| {
        let ago = time.relative_to(now);
        format!("{ago}{}", shortfall(time, min_time))
    };
    let entry = match found {
        None => "no status is stored".to_owned(),
        Some(entry) => {
            let what = match entry.error {
                Some(_) => "an error",
                None => "its status",
            };
            let observed = if entry.observed == entry.modified {
                String::new()
            } else {
                format!(", observed {}", entry.observed.relative_to(now))
            };
            format!("{what} was set {}{observed}", described(entry.modified))
        }
    };
    let global = match global {
        None => "the global time was never set".to_owned(),
        Some(global) => format!("the global time is {}", described(global)),
    };
    let waited = now.saturating_duration_since(since);
    let asked = min_time.relative_to(now);
    let message = format!(
        "pod \"{uid}\": timed out after {waited:.1?} waiting for a status newer than {asked}: {entry}; {global}"
    );
    Error::new(ErrorKind::Timeout, message)
}

/// By how much a time misses what was asked for: both may be the same once they are rounded.
fn shortfall(time: Timestamp, min_time: Timestamp) -> String {
    match time.duration_until(min_time) {
        Some(Duration::ZERO) if time == min_time => ", at that very time".to_owned(),
        Some(short) if time < min_time => format!(", {short:.1?} too early"),
        Some(_) | None => String::new(),
    }
}

/// The end of a wait because nobody will answer any more.
pub(super) fn closed(uid: &str) -> Error {
    Error::new(
        ErrorKind::Stopped,
        format!("pod \"{uid}\": waiting for a newer status: the cache is closed"),
    )
}

/// The end of a wait because whoever waits was stopped.
pub(super) fn stopped(uid: &str) -> Error {
    Error::stopped(&format!("pod \"{uid}\": waiting for a newer status"))
}
