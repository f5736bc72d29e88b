//! Repeats a one-shot request by its rows of the policy. The wait holds no slot and no permit: each
//! try is a separate request.
//!
//! A reflector has its own backoff and does not use this.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::policy::{self, Backoff, Chance, NextRequest, PolicyRequest};
use crate::worker::{StopToken, WaitEnd};

/// The maximum that chance adds to a wait, so that many callers do not come back at once.
const SPREAD_MAX: Duration = Duration::from_secs(1);

thread_local! {
    static IS_RETRY: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread's request was sent before, for metrics. A thread-local, because programs
/// implement the traits between a retry and its request.
pub(crate) fn is_retry() -> bool {
    IS_RETRY.get()
}

/// Whether the request around this one was a retry. That counts again from the drop on, even by a
/// panic.
struct OuterRequest(bool);

impl Drop for OuterRequest {
    fn drop(&mut self) {
        IS_RETRY.set(self.0);
    }
}

/// The tries of one request so far.
struct Tries {
    kind: PolicyRequest,
    since: Instant,
    failures: Failures,
    waits: Backoff,
}

impl Tries {
    /// Notes that a try failed. Returns the pause before the next one; `chance` is uniform in
    /// [0, 1).
    ///
    /// # Errors
    ///
    /// The request's error, if no further try follows.
    fn failed(
        &mut self,
        error: Error,
        now: Instant,
        deadline: Deadline,
        chance: f64,
    ) -> Result<Duration, Error> {
        let before = self.failures.last().cloned();
        self.failures.add(error.clone(), self.since, now);
        let failed = self.failures.count();
        let ends = policy::after(self.kind, &error, failed).next != NextRequest::Same;
        if error.is_stopped() || ends && before.is_none() {
            return Err(error);
        }
        let tried = now.saturating_duration_since(self.since);
        let hint = format!("attempt {failed}, {tried:.1?} after the first began");
        let named = error.retry_after().filter(|wait| !wait.is_zero());
        // The random part of a read's wait is added below, within its deadline.
        let wait = named.unwrap_or_else(|| self.waits.next(&mut Chance::new(0)));
        let left = deadline.remaining(now).unwrap_or(Duration::MAX);
        if !ends && wait < left {
            let half = left.saturating_sub(wait).checked_div(2).unwrap_or_default();
            let spread = wait.min(SPREAD_MAX).min(half);
            return Ok(wait.saturating_add(spread.mul_f64(chance)));
        }
        let why = match (named.filter(|_| !ends), before) {
            (Some(named), _) => format!(
                ": the server asks for a wait of {named:?}, and the deadline is in {left:.1?}"
            ),
            (None, Some(before)) if error.kind() == ErrorKind::Timeout => {
                format!(": the attempt before: {}", before.cause())
            }
            (None, _) => String::new(),
        };
        let told = error.clone().with_hint(&[hint, why].concat());
        Err(told.with_failures(failed, self.since, Some(error)))
    }
}

/// Sends `request` by the rows of `kind`, until it is answered, fails for good, or the deadline
/// leaves no time for the wait.
///
/// Blocks as `request` does, and between the tries until the deadline or the stop. Reports the
/// tries to `told` before each wait.
///
/// # Errors
///
/// The error of the last try, with attempts and times if there could have been another. `Stopped`.
pub(crate) fn patiently<T>(
    kind: PolicyRequest,
    clock: &Clock,
    (deadline, stop): (Deadline, &StopToken),
    told: &dyn Fn(&Failures),
    mut request: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tries = Tries {
        kind,
        since: clock.now(),
        failures: Failures::default(),
        waits: Backoff::of_reads(),
    };
    loop {
        let outer = OuterRequest(IS_RETRY.replace(tries.failures.count() > 0));
        let answered = request();
        drop(outer);
        let Err(error) = answered else {
            return answered;
        };
        let chance = Chance::new(clock.seed()).share();
        let pause = tries.failed(error, clock.now(), deadline, chance)?;
        told(&tries.failures);
        if stop.wait_until(clock, clock.after(pause)) == WaitEnd::Stopped {
            return Err(Error::stopped("waiting to send a request again"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;
    use crate::clock::later;
    use crate::object::Status;
    use crate::policy::WaitRule;

    const SECOND: Duration = Duration::from_secs(1);

    fn tries(since: Instant) -> Tries {
        Tries {
            kind: PolicyRequest::Read,
            since,
            failures: Failures::default(),
            waits: Backoff::of_reads(),
        }
    }

    fn answer(code: u16, wait: u64) -> Error {
        let error = Error::from_status(Status::new(code, "told"));
        if wait == 0 {
            return error;
        }
        error.with_retry_after(Duration::from_secs(wait))
    }

    fn cut(kind: io::ErrorKind) -> Error {
        Error::new(ErrorKind::Unreachable, "cut").with_source(io::Error::from(kind))
    }

    #[test]
    fn each_failure_has_its_row() {
        let too_large = r#"{"code":504,"reason":"Timeout","details":{"retryAfterSeconds":1,
            "causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        let too_large: meta::Status = serde_json::from_str(too_large).unwrap();
        let (later, soon) = (Some(WaitRule::Named), Some(WaitRule::Soon));
        let mut rows = vec![
            (answer(429, 0), Some(WaitRule::Backoff)),
            (Error::from_status(too_large.into()), None),
            (cut(io::ErrorKind::UnexpectedEof), soon),
            (cut(io::ErrorKind::ConnectionReset), soon),
            (cut(io::ErrorKind::ConnectionRefused), None),
            (Error::new(ErrorKind::Timeout, "silent"), None),
            (Error::new(ErrorKind::Undecodable, "odd"), None),
            (Error::stopped("it"), None),
            (answer(404, 1), None),
            (answer(410, 1), None),
        ];
        for code in [400, 403, 409, 422, 429, 500, 502, 503, 504] {
            rows.push((answer(code, 1), later));
        }
        for code in [500, 502, 503, 504] {
            rows.push((answer(code, 0), soon));
        }
        for code in [400, 401, 403, 404, 406, 409, 410, 415, 422, 501] {
            rows.push((answer(code, 0), None));
        }
        for (error, expected) in rows {
            let step = policy::after(PolicyRequest::Read, &error, 1);
            let wait = (step.next == NextRequest::Same).then_some(step.wait);
            assert_eq!(wait, expected, "{error:?}");
        }
    }

    /// The pauses of a read that always fails with `error`, and its final error.
    fn pauses(error: &Error, deadline: Duration, chance: f64) -> (Vec<Duration>, Error) {
        let start = Clock::system().now();
        let (mut now, mut pauses, ends) = (start, Vec::new(), later(start, deadline));
        let mut tries = tries(start);
        loop {
            match tries.failed(error.clone(), now, Deadline::at(ends), chance) {
                Ok(pause) => {
                    now = later(now, pause);
                    pauses.push(pause);
                }
                Err(error) => return (pauses, error),
            }
        }
    }

    #[test]
    fn a_named_wait_is_followed_ten_times_at_most() {
        let (waits, error) = pauses(&answer(503, 3), 60 * SECOND, 0.0);
        assert_eq!(waits, [3 * SECOND; 9]);
        assert_eq!(error.attempts(), 10);
        let told = "told: attempt 10, 27.0s after the first began";
        assert_eq!(error.to_string(), told);
        assert_eq!(error.last_error().unwrap().to_string(), "told");
        assert!(error.since().is_some() && error.status().is_some());
    }

    #[test]
    fn a_429_without_a_wait_waits_longer_each_time() {
        let (waits, error) = pauses(&answer(429, 0), 60 * SECOND, 0.0);
        let millis = [200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000];
        assert_eq!(waits, millis.map(Duration::from_millis));
        assert_eq!(error.attempts(), 10);
    }

    #[test]
    fn a_server_that_is_broken_is_asked_once_more() {
        for error in [
            answer(500, 0),
            answer(503, 0),
            cut(io::ErrorKind::BrokenPipe),
        ] {
            let (waits, error) = pauses(&error, 60 * SECOND, 0.5);
            assert_eq!(waits, [Duration::from_millis(300)]);
            assert_eq!(error.attempts(), 2, "{error}");
        }
        let (waits, error) = pauses(&answer(403, 0), 60 * SECOND, 0.5);
        assert!(waits.is_empty() && error.attempts() == 0, "{error}");
    }

    #[test]
    fn a_wait_that_is_longer_than_the_deadline_ends_the_read_at_once() {
        for (wait, deadline, expected) in [(60, 10, 0), (10, 10, 0), (3, 8, 2)] {
            let deadline = deadline * SECOND;
            let (waits, error) = pauses(&answer(429, wait), deadline, 0.0);
            assert_eq!(waits.len(), expected, "{error}");
            let told = format!(": the server asks for a wait of {wait}s, and the deadline is in ");
            assert!(error.to_string().contains(&told), "{error}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(wait)));
        }
    }

    /// Chance is added to the end of the wait, never past the deadline, so that many callers with
    /// the same wait do not come back together.
    #[test]
    fn chance_spreads_the_tries_behind_the_wait() {
        let first = |wait, deadline, chance| {
            let (waits, _) = pauses(&answer(429, wait), deadline, chance);
            waits[0]
        };
        assert_eq!(first(1, 60 * SECOND, 0.0), SECOND);
        assert_eq!(first(1, 60 * SECOND, 0.75), Duration::from_millis(1750));
        assert_eq!(first(30, 60 * SECOND, 0.75), Duration::from_millis(30_750));
        assert_eq!(first(30, 31 * SECOND, 0.5), Duration::from_millis(30_250));
        assert!(first(30, 31 * SECOND, 0.999) < 31 * SECOND);
    }

    #[test]
    fn a_time_limit_after_a_refusal_names_the_refusal() {
        let start = Clock::system().now();
        let mut tries = tries(start);
        let pause = tries.failed(answer(429, 1), start, Deadline::NEVER, 0.0);
        assert_eq!(pause.unwrap(), SECOND);
        let late = Error::new(ErrorKind::Timeout, "late");
        let error = tries.failed(late, start + 2 * SECOND, Deadline::NEVER, 0.0);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let told = "late: attempt 2, 2.0s after the first began: the attempt before: told";
        assert_eq!(error.to_string(), told);
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_retry_that_panics_marks_no_request_after_it() {
        let fake = crate::clock::FakeClock::new();
        let clock = Clock::from(fake.clone());
        let reading = crate::worker::Worker::spawn("reading", move |_| {
            let by = (Deadline::NEVER, &StopToken::never());
            let read = crate::guard::guard_call("the decoder", || {
                patiently(PolicyRequest::Read, &clock, by, &|_| (), || {
                    assert!(!is_retry(), "made up");
                    Err::<(), _>(answer(429, 5))
                })
            });
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Panicked);
            assert!(!is_retry());
        });
        let wait = fake.wait_for_next_timer();
        fake.advance(wait);
        reading.unwrap().join().unwrap();
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_stop_ends_the_wait_and_each_try_knows_whether_it_is_a_retry() {
        let fake = crate::clock::FakeClock::new();
        let source = crate::worker::StopSource::new();
        let (clock, stop) = (Clock::from(fake.clone()), source.token());
        let reading = crate::worker::Worker::spawn("reading", move |_| {
            let mut retries = Vec::new();
            let told = Cell::new(0);
            let tell = |tries: &Failures| told.set(tries.count());
            let (kind, by) = (PolicyRequest::FirstRead, (Deadline::NEVER, &stop));
            let read = patiently(kind, &clock, by, &tell, || {
                assert_eq!(usize::try_from(told.get()).unwrap(), retries.len());
                retries.push(is_retry());
                Err::<(), _>(answer(429, 5))
            });
            assert!(read.unwrap_err().is_stopped());
            assert_eq!(retries, [false, true]);
            assert!(!is_retry());
        });
        let wait = fake.wait_for_next_timer();
        assert!((5 * SECOND..6 * SECOND).contains(&wait), "{wait:?}");
        fake.advance(wait);
        fake.wait_for_timers(1);
        source.stop();
        reading.unwrap().join().unwrap();
    }
}
