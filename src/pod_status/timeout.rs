//! Describes a wait that ended without an answer: the pod, the length of the wait, and the pod's
//! entry.

use std::time::Instant;

use super::reading::{PodReading, Timestamp};
use super::table::PodWaiter;
use crate::error::{Error, ErrorKind};

/// The error of a wait at its deadline, with the pod's entry and the global time.
pub(super) fn timed_out<S>(
    wait: &PodWaiter,
    found: &PodReading<S>,
    global: Option<Timestamp>,
    now: Instant,
) -> Error {
    let described = |time| format!("{}{}", relative(time, now), shortfall(time, wait.min_time));
    let entry = match (found.modified, &found.error) {
        (None, _) => "no status is stored".to_owned(),
        (Some(set), error) => {
            let what = error.as_ref().map_or("its status", |_| "an error");
            let observed = found.observed.filter(|observed| *observed != set);
            let observed = observed.map(|at| format!(", observed {}", relative(at, now)));
            let (set, observed) = (described(set), observed.unwrap_or_default());
            format!("{what} was set {set}{observed}")
        }
    };
    let global = match global {
        None => "the global time was never set".to_owned(),
        Some(global) => format!("the global time is {}", described(global)),
    };
    let waited = now.saturating_duration_since(wait.since);
    let (uid, asked) = (&wait.uid, relative(wait.min_time, now));
    let message = format!(
        "pod \"{uid}\": timed out after {waited:.1?} waiting for a status newer than {asked}: \
         {entry}; {global}"
    );
    Error::new(ErrorKind::Timeout, message)
}

/// A time in words, as seen at `now`: `3.2s ago`, `1.0s ahead`, `the zero time`.
pub(super) fn relative(time: Timestamp, now: Instant) -> String {
    match time.instant() {
        None => "the zero time".to_owned(),
        Some(time) if time > now => format!("{:.1?} ahead", time.saturating_duration_since(now)),
        Some(time) => format!("{:.1?} ago", now.saturating_duration_since(time)),
    }
}

/// How far a time falls short of the time asked for: rounded, both may look the same.
fn shortfall(time: Timestamp, min_time: Timestamp) -> String {
    match (time.instant(), min_time.instant()) {
        (Some(time), Some(asked)) if time == asked => ", at that very time".to_owned(),
        (Some(time), Some(asked)) if time < asked => {
            format!(", {:.1?} too early", asked.saturating_duration_since(time))
        }
        _ => String::new(),
    }
}

/// The error of a wait on a closed cache.
pub(super) fn closed(uid: &str) -> Error {
    let text = format!("pod \"{uid}\": waiting for a newer status: the cache is closed");
    Error::new(ErrorKind::Stopped, text)
}

/// The error of a wait whose thread was stopped.
pub(super) fn stopped(uid: &str) -> Error {
    Error::stopped(&format!("pod \"{uid}\": waiting for a newer status"))
}
