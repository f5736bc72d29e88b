//! The failures of the fetches of one object since one last succeeded, and when the next fetch may
//! be made (B17). Pure.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::failures::Failures;
use crate::reflector::RETRY_AFTER_MAX;

/// The first backoff; each further failure doubles it, up to the time to live.
pub(crate) const BACKOFF: Duration = Duration::from_millis(50);

/// The failures since the last answer.
#[derive(Debug, Default)]
pub(crate) struct FetchFailures {
    pub(super) failures: Failures,
    backoff: Option<Duration>,
    retry_at: Option<Instant>,
}

impl FetchFailures {
    /// A shared fetch that began at `began` failed: the next is made after a pause, the server's
    /// own or one that doubles.
    pub(crate) fn fetch_failed(
        &mut self,
        error: &Error,
        began: Instant,
        now: Instant,
        ttl: Duration,
    ) {
        if self.failed(error, began, now) {
            return;
        }
        let pause = self.backoff.map_or(BACKOFF, |last| last.saturating_mul(2));
        let pause = pause.min(ttl.max(BACKOFF));
        self.backoff = Some(pause);
        self.retry_at = self.retry_at.max(now.checked_add(pause));
    }

    /// A request failed that its caller made for itself: no reason to keep others from asking,
    /// unless the server named a pause. Returns whether it did.
    pub(crate) fn failed(&mut self, error: &Error, began: Instant, now: Instant) -> bool {
        self.failures.add(error.clone(), began, now);
        let pause = error.retry_after().filter(|pause| !pause.is_zero());
        let until = pause.and_then(|pause| now.checked_add(pause.min(RETRY_AFTER_MAX)));
        self.retry_at = self.retry_at.max(until);
        until.is_some()
    }

    /// The failure that is the answer until the backoff is over.
    pub(crate) fn backing_off(&self, now: Instant) -> Option<&Error> {
        let waits = self.retry_at.is_some_and(|at| now < at);
        self.last().filter(|_| waits)
    }

    pub(crate) fn last(&self) -> Option<&Error> {
        self.failures.last()
    }
}
