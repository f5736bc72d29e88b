//! Why a wait ended without an answer, in words: the pod, how long was waited, and what is known of it.

use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use super::Timestamp;
use super::table::{Table, Wait};
use crate::error::{Error, ErrorKind};

/// What was known of a pod when a wait ended.
pub(super) struct Known {
    entry: Option<KnownEntry>,
    global: Option<Timestamp>,
}

struct KnownEntry {
    modified: Timestamp,
    observed: Timestamp,
    has_error: bool,
}

impl Known {
    pub(super) fn of<S>(table: &Table<S>, uid: &str) -> Self {
        Self {
            entry: table.get(uid).map(|entry| KnownEntry {
                modified: entry.modified,
                observed: entry.observed,
                has_error: entry.error.is_some(),
            }),
            global: table.global(),
        }
    }

    pub(super) fn timed_out(&self, uid: &str, wait: Wait, now: Instant) -> Error {
        let waited = now.saturating_duration_since(wait.since);
        let asked = wait.min_time.relative_to(now);
        let mut message = format!(
            "pod \"{uid}\": timed out after {waited:.1?} waiting for a status newer than {asked}: "
        );
        let written = self.describe(&mut message, wait.min_time, now);
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        Error::new(ErrorKind::Timeout, message)
    }

    fn describe(&self, message: &mut String, min_time: Timestamp, now: Instant) -> fmt::Result {
        match &self.entry {
            None => message.write_str("no status is stored")?,
            Some(entry) => {
                let what = if entry.has_error {
                    "an error"
                } else {
                    "its status"
                };
                let (set, short) = (
                    entry.modified.relative_to(now),
                    Short(entry.modified, min_time),
                );
                write!(message, "{what} was set {set}{short}")?;
                if entry.observed != entry.modified {
                    write!(message, ", observed {}", entry.observed.relative_to(now))?;
                }
            }
        }
        match self.global {
            None => message.write_str("; the global time was never set"),
            Some(global) => {
                let (set, short) = (global.relative_to(now), Short(global, min_time));
                write!(message, "; the global time is {set}{short}")
            }
        }
    }
}

/// By how much a time misses what was asked for: both may be the same once they are rounded.
struct Short(Timestamp, Timestamp);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(time, min_time) = self;
        match time.duration_until(*min_time) {
            _ if time > min_time => Ok(()),
            None => Ok(()),
            Some(Duration::ZERO) => f.write_str(", at that very time"),
            Some(short) => write!(f, ", {short:.1?} too early"),
        }
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
