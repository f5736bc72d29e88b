//! The client's rate limit: a token bucket in front of every request but the opening of watches
//! (RS-1).

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use super::admission::{Admission, AdmissionRefusal, QueuedRequest, Supply, Urgency};
use crate::clock::{Clock, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::worker::StopToken;

/// Requests per second, as the kubelet's `kubeAPIQPS`.
pub(crate) const PER_SECOND: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// Requests that may go at once after a quiet time, as the kubelet's `kubeAPIBurst`.
pub(crate) const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// A token bucket, and the requests that wait for a permit of it. Clones share the bucket.
#[derive(Clone)]
pub(crate) struct Limiter(Admission<TokenBucket>);

/// Permits that grow with time; pure.
#[derive(Debug)]
struct TokenBucket {
    /// From one request to the next at the steady rate.
    interval: Duration,
    /// How far `next` may lie in the past: a full bucket less the present request.
    credit: Duration,
    /// When the next request would go if the bucket held nothing; `None` for a full bucket.
    next: Option<Instant>,
}

impl TokenBucket {
    fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let second = Duration::from_secs(1);
        let interval = second.checked_div(per_second.get()).unwrap_or_default();
        Self {
            interval,
            credit: interval.saturating_mul(burst.get().saturating_sub(1)),
            next: None,
        }
    }

    /// When the bucket has a permit. Credit grows while no request comes, up to the burst.
    fn next_permit(&self, now: Instant) -> Instant {
        let oldest = now.checked_sub(self.credit).unwrap_or(now);
        self.next.map_or(oldest, |next| next.max(oldest))
    }
}

impl Supply for TokenBucket {
    fn available(&self, now: Instant, before: usize) -> Option<Instant> {
        let rounds = u32::try_from(before).unwrap_or(u32::MAX);
        Some(later(
            self.next_permit(now),
            self.interval.saturating_mul(rounds),
        ))
    }

    fn take(&mut self, now: Instant) {
        self.next = self.next_permit(now).checked_add(self.interval);
    }
}

impl Limiter {
    pub(crate) fn new(per_second: NonZeroU32, burst: NonZeroU32, clock: &Clock) -> Self {
        Self(Admission::new(TokenBucket::new(per_second, burst), clock))
    }

    /// Takes one permit out of the bucket. Blocks as [`Admission::admit`] says.
    ///
    /// # Errors
    ///
    /// `Stopped`, or `Timeout`, which says how many requests go first.
    pub(crate) fn acquire(
        &self,
        stop: &StopToken,
        deadline: Deadline,
        urgency: &Urgency,
    ) -> Result<(), Error> {
        let waiter = QueuedRequest::new(urgency, false);
        let admitted = self.0.admit(&waiter, stop, deadline, |_before| {});
        admitted.map_err(|refusal| match refusal {
            AdmissionRefusal::Stopped => Error::stopped("waiting for the client's rate limit"),
            AdmissionRefusal::TooLate { before } => {
                let before = match before {
                    1 => "1 request goes first".to_owned(),
                    count => format!("{count} requests go first"),
                };
                let message = format!(
                    "the client's rate limit lets the request not go before the caller's \
                     deadline: {before}"
                );
                Error::new(ErrorKind::Timeout, message)
            }
        })
    }

    /// Moves a request before background requests, even if it is queued already. Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        self.0.expedite(urgency);
    }
}
