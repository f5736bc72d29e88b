//! What went wrong with the fetches of one object since one last went well, and when the next may be made (B17). Pure.

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::reflector::{FORBIDDEN_GRACE, RETRY_AFTER_MAX};

/// The first backoff; each further failure doubles it, up to the time to live.
pub(crate) const BACKOFF: Duration = Duration::from_millis(50);

/// The failures since the last answer.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    failure: Option<Error>,
    attempts: u32,
    since: Option<Instant>,
    backoff: Option<Duration>,
    retry_at: Option<Instant>,
    /// Since when every failure was a refusal, and until when.
    refused: Option<(Instant, Instant)>,
}

impl Trouble {
    /// A shared fetch that began at `begun` failed: the next is made after a pause, the server's own or one that doubles.
    pub(crate) fn fetch_failed(
        &mut self,
        why: &Error,
        begun: Instant,
        now: Instant,
        ttl: Duration,
    ) {
        if self.failed(why, begun, now) {
            return;
        }
        let pause = self.backoff.map_or(BACKOFF, |last| last.saturating_mul(2));
        let pause = pause.min(ttl.max(BACKOFF));
        self.backoff = Some(pause);
        self.retry_at = self.retry_at.max(now.checked_add(pause));
    }

    /// A request failed that its caller made for itself: no reason to keep others from asking, unless the server named a
    /// pause. Returns whether it did.
    pub(crate) fn failed(&mut self, why: &Error, begun: Instant, now: Instant) -> bool {
        self.attempts = self.attempts.saturating_add(1);
        self.since = self.since.or(Some(begun));
        let refused = (why.kind() == ErrorKind::Forbidden).then_some(now);
        self.refused = refused.map(|now| (self.refused.map_or(now, |(since, _)| since), now));
        self.failure = Some(why.clone());
        let pause = why.retry_after().filter(|pause| !pause.is_zero());
        let until = pause.and_then(|pause| now.checked_add(pause.min(RETRY_AFTER_MAX)));
        self.retry_at = self.retry_at.max(until);
        until.is_some()
    }

    /// The failure that is the answer until the backoff is over.
    pub(crate) fn backing_off(&self, now: Instant) -> Option<&Error> {
        let waits = self.retry_at.is_some_and(|at| now < at);
        self.failure.as_ref().filter(|_| waits)
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// How many requests failed one after the other.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When the first of them began.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether the server has refused the object for longer than its authorizer lags (R4).
    pub(crate) fn is_denied(&self) -> bool {
        let lasted = self
            .refused
            .map(|(since, until)| until.saturating_duration_since(since));
        lasted.is_some_and(|lasted| lasted >= FORBIDDEN_GRACE)
    }
}
