//! What a reflector is doing, and how it went: one value that is cheap to read (B14).

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::object::ResourceVersion;

/// What a reflector's thread is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It has asked for nothing yet.
    #[default]
    Starting,
    /// It lists, page by page or as a stream.
    Listing,
    /// It opens a watch, or waits a moment before it does.
    Opening,
    /// A watch is open.
    Watching,
    /// It waits after a failure.
    BackingOff,
    /// It has ended.
    Stopped,
}

/// A snapshot of a reflector's state.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReflectorStatus {
    /// What it is doing.
    pub phase: Phase,
    /// Whether a list of this run has reached the sink (OC-12).
    pub synced: bool,
    /// When the server last confirmed the content: a finished list, an opened watch, a byte on it.
    pub last_contact: Option<Instant>,
    /// The last failure; `None` again once a list or a watch succeeds.
    pub last_error: Option<Error>,
    /// Requests that failed one after the other; 0 once one succeeds.
    pub attempts: u32,
    /// When the first of these attempts began; before any failure, when the run began.
    pub attempts_since: Option<Instant>,
    /// The server's refusal (403) once it has outlasted the grace of
    /// [`ReflectorOptions::forbidden_grace`](crate::reflector::ReflectorOptions::forbidden_grace): an answer for
    /// readers, although the reflector goes on trying.
    pub denied: Option<Error>,
    /// The last position in the server's history (RF-50); empty before the first success.
    pub resource_version: ResourceVersion,
    /// Lists that reached the sink.
    pub lists: u64,
    /// Watches that were opened.
    pub watches: u64,
    /// Events that were no change: of a foreign type or kind, or without metadata (RF-25).
    pub skipped: u64,
}

impl ReflectorStatus {
    /// How long ago, at `now`, the server last confirmed the content; `None` before the first contact.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last_contact
            .map(|contact| now.saturating_duration_since(contact))
    }

    /// Whether, at `now`, the content is synced and was confirmed within `limit`.
    pub fn is_fresh_within(&self, limit: Duration, now: Instant) -> bool {
        self.synced && self.age(now).is_some_and(|age| age <= limit)
    }
}
