//! The failures since the last success: how many, since when, and the last one.

mod failure_log;

pub(crate) use failure_log::{FailureLog, FailureReporter};

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, visible};

/// The record of failed attempts since the last success. The default is empty.
///
/// Reflectors, the entries of managers and waits that end without an answer all keep this record.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    count: u32,
    since: Option<Instant>,
    last_at: Option<Instant>,
    last: Option<Error>,
    refused_since: Option<Instant>,
    phase: Option<String>,
}

impl Failures {
    /// Makes a record without failures, of attempts that began at `began`.
    #[must_use]
    pub fn none_since(began: Instant) -> Self {
        Self {
            since: Some(began),
            ..Self::default()
        }
    }

    /// Counts a failure at `now` of an attempt that began at `began`.
    pub fn add(&mut self, error: Error, began: Instant, now: Instant) {
        let refused = matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound);
        let again = self.last.as_ref().map(Error::kind) == Some(error.kind());
        self.refused_since = refused.then(|| self.refused_since.filter(|_| again).unwrap_or(now));
        self.count = self.count.saturating_add(1);
        self.since = self.since.or(Some(began));
        self.last_at = Some(now);
        self.last = Some(error);
    }

    /// Replaces the last failure with the error that ended the attempts. The count stays.
    pub fn end_with(&mut self, error: Error) {
        self.last = Some(error);
    }

    /// Sets `began` as the beginning of the attempts, if nothing has failed yet.
    #[must_use]
    pub fn or_since(mut self, began: Instant) -> Self {
        self.since = self.since.or(Some(began));
        self
    }

    /// Adds the phase in which the present attempt waits, such as `connecting to 10.0.0.1:443 for
    /// 2.0s`.
    #[must_use]
    pub fn in_phase(self, phase: Option<String>) -> Self {
        Self { phase, ..self }
    }

    /// Returns how many attempts failed in a row.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns when the first attempt began; `None` if nothing failed and the beginning is unknown.
    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The last failure.
    pub fn last(&self) -> Option<&Error> {
        self.last.as_ref()
    }

    /// When the last failure came.
    pub fn last_at(&self) -> Option<Instant> {
        self.last_at
    }

    /// Returns when the server first refused (403 or 404) in the present series of refusals.
    pub fn refused_since(&self) -> Option<Instant> {
        self.refused_since
    }

    /// Returns the last failure, if the server has refused for at least `grace`. Waits then end
    /// with it.
    pub fn refusal(&self, grace: Duration) -> Option<&Error> {
        let (since, until) = (self.refused_since?, self.last_at?);
        let lasted = until.saturating_duration_since(since);
        self.last.as_ref().filter(|_| lasted >= grace)
    }

    /// Whether an attempt has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.since.is_some() || self.last.is_some()
    }

    /// Makes an error that begins with `text`. The same line has the number of failed attempts,
    /// their time and the last failure.
    pub(crate) fn because(&self, kind: ErrorKind, text: String, now: Instant) -> Error {
        let (Some(last), since) = (&self.last, self.since.unwrap_or(now)) else {
            return Error::new(kind, text);
        };
        let elapsed = now.saturating_duration_since(since).as_secs();
        let attempts = self.attempts();
        let text = format!("{text}; {attempts} failed in {elapsed}s, the last one: {last}");
        Error::new(kind, text).with_failures(self.count, since, Some(last.clone()))
    }

    fn attempts(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!("{} attempt{plural}", self.count)
    }

    /// Makes the error of a cache that was not filled by `now`: the kubelet's line, then the
    /// causes.
    #[must_use]
    pub fn not_synced(&self, resource: &str, now: Instant) -> Error {
        let resource = visible(resource);
        let text = format!("failed to sync {resource} cache: timed out waiting for the condition");
        self.explain(ErrorKind::NotSynced, text, now)
    }

    /// Makes the error of a read without an answer at `now`: the subject of its wait, then the
    /// causes.
    #[must_use]
    pub fn timed_out(&self, what: &str, now: Instant) -> Error {
        let text = format!("timed out waiting for {}", visible(what));
        self.explain(ErrorKind::Timeout, text, now)
    }

    /// Makes an error that begins with `text`. Further lines have the number of failed attempts and
    /// their time, the last failure, and the present attempt's phase.
    #[must_use]
    pub fn explain(&self, kind: ErrorKind, text: String, now: Instant) -> Error {
        let since = self.since.unwrap_or(now);
        let elapsed = now.saturating_duration_since(since);
        let attempts = self.attempts();
        let said = match (&self.last, &self.phase) {
            (Some(last), phase) => {
                let now = phase.as_ref().map(|phase| format!("\nnow {phase}"));
                let now = now.unwrap_or_default();
                format!("\n{attempts} in {elapsed:.1?}, the last one failed: {last}{now}")
            }
            (None, Some(phase)) if self.since.is_none() => format!(": {phase}"),
            (None, phase) => {
                let phase = phase.as_deref().unwrap_or("no answer from the server yet");
                format!("\n{phase}, {elapsed:.1?} after the first attempt began")
            }
        };
        Error::new(kind, text + &said).with_failures(self.count, since, self.last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::object::Status;

    impl Failures {
        /// Makes a record of `count` failures of which only the last is known.
        pub(crate) fn of(count: u32, since: Option<Instant>, last: Error) -> Self {
            Self {
                count,
                since,
                last: Some(last),
                ..Self::default()
            }
        }
    }

    fn forbidden() -> Error {
        Error::from_status(Status::new(403, "secrets \"db\" is forbidden"))
    }

    fn lost() -> Error {
        Error::new(ErrorKind::Unreachable, "no route")
    }

    #[test]
    fn a_failed_sync_says_the_searched_for_line_first_and_then_why() {
        let began = Clock::system().now();
        let now = began + Duration::from_secs(1);
        let mut failures = Failures::default();
        for _ in 0..3 {
            failures.add(forbidden(), began, now);
        }
        let phase = Some("backing off for 0.4s more".to_owned());
        let error = failures.in_phase(phase).not_synced("secret", now);
        assert_eq!(
            error.to_string(),
            "failed to sync secret cache: timed out waiting for the condition\n\
             3 attempts in 1.0s, the last one failed: secrets \"db\" is forbidden\n\
             now backing off for 0.4s more"
        );
        assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Forbidden);
        assert_eq!((error.attempts(), error.since()), (3, Some(began)));
    }

    #[test]
    fn a_wait_without_a_failure_says_what_it_waits_for() {
        let began = Clock::system().now();
        let now = began + Duration::from_secs(2);
        let none = Failures::none_since(began);
        assert_eq!(
            none.timed_out("secret a/b", now).to_string(),
            "timed out waiting for secret a/b\n\
             no answer from the server yet, 2.0s after the first attempt began"
        );
        let connecting = none.in_phase(Some("connecting".to_owned()));
        assert_eq!(
            connecting.timed_out("secret a/b", now).to_string(),
            "timed out waiting for secret a/b\nconnecting, 2.0s after the first attempt began"
        );
    }

    /// R4: only the same refusal, repeated for the whole grace, is an answer.
    #[test]
    fn r4_a_refusal_is_an_answer_once_it_has_lasted() {
        let began = Clock::system().now();
        let grace = Duration::from_secs(10);
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut failures = Failures::default();
        failures.add(forbidden(), began, at(0));
        failures.add(forbidden(), began, at(9));
        assert!(failures.refusal(grace).is_none());
        failures.add(lost(), began, at(10));
        assert_eq!(failures.refused_since(), None);
        failures.add(forbidden(), began, at(11));
        failures.add(forbidden(), began, at(21));
        assert_eq!(failures.refused_since(), Some(at(11)));
        let refusal = failures.refusal(grace).map(Error::kind);
        assert_eq!(refusal, Some(ErrorKind::Forbidden));
        assert_eq!((failures.count(), failures.last_at()), (5, Some(at(21))));
        failures.add(Error::not_found("pods", "a"), began, at(22));
        assert!(failures.refusal(grace).is_none());
    }
}
