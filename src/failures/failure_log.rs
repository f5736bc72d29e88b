//! Logs failures: the first of a cause at once, repeats every ten minutes with the count of those
//! left out, and the end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use log::Level;

use crate::error::{Error, ErrorKind, visible};
use crate::sync::{Arc, Mutex, Rank};

/// How long repeats of a cause are left out after a logged one.
const REPEAT_AFTER: Duration = Duration::from_secs(10 * 60);
/// A failure within this time after the last one continues the series.
const SERIES_GAP: Duration = Duration::from_secs(2 * 60);

/// The logged state of each cause. Reporters that share it fill the log only once, however many
/// they are.
#[derive(Clone, Debug)]
pub(crate) struct FailureLog(Arc<Mutex<Causes>>);

/// A cause: a kind of object or work, and a kind of error.
type Causes = HashMap<(Box<str>, ErrorKind), Cause>;

#[derive(Debug, Default)]
struct Cause {
    /// How many reporters fail for this cause now.
    failing: usize,
    /// When it last came, and when it was last told of. `None` until it was.
    last_at: Option<Instant>,
    told_at: Option<Instant>,
    left_out: u64,
    /// A failure was logged, but not its end.
    is_open: bool,
}

/// The reporter of one owner that may fail, such as a reflector. Its drop ends the failure.
#[derive(Debug)]
pub(crate) struct FailureReporter {
    log: FailureLog,
    /// The target of its lines, for log filters: a module's path.
    target: &'static str,
    /// The name of the owner, such as a reflector.
    name: String,
    /// The objects that it asks for.
    resource: String,
    /// The part of a cause that reporters share.
    group: Box<str>,
    present: Option<ErrorKind>,
    /// Its failures in a row, whatever the cause.
    failures: u64,
}

/// The content and the level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureLine {
    pub(crate) level: Level,
    /// The failures of this reporter.
    pub(crate) failures: u64,
    /// The failures of all reporters with the same cause that this level left out.
    pub(crate) left_out: u64,
    /// How many reporters fail for this cause now.
    failing: usize,
}

impl Default for FailureLog {
    fn default() -> Self {
        let causes = Mutex::ranked(Rank::FAILURE_LOG, HashMap::default());
        Self(Arc::new(causes))
    }
}

impl FailureLog {
    /// Creates a reporter whose lines have the module path `target`.
    pub(crate) fn reporter(
        &self,
        target: &'static str,
        group: impl Into<Box<str>>,
        name: &str,
        resource: &str,
    ) -> FailureReporter {
        FailureReporter {
            log: self.clone(),
            target,
            name: visible(name).into_owned(),
            resource: visible(resource).into_owned(),
            group: group.into(),
            present: None,
            failures: 0,
        }
    }
}

impl FailureReporter {
    /// Logs a failure, as a warning if it is the first of its cause or ten minutes have passed.
    pub(crate) fn failed(&mut self, error: &Error, now: Instant) -> FailureLine {
        let line = self.fail(error.kind(), now);
        let (level, failures) = (line.level, line.failures);
        let (left_out, failing) = (line.left_out, line.failing);
        let (resource, name) = (self.resource.as_str(), self.name.as_str());
        if left_out == 0 || level > Level::Warn {
            log::log!(target: self.target, level, resource, name, failures; "failing: {error}");
        } else {
            log::log!(
                target: self.target, level, resource, name, failures, left_out, failing;
                "still failing: {error}"
            );
        }
        line
    }

    /// Logs that the owner works again, if it failed. If many failed for one cause, only the last
    /// one logs it.
    pub(crate) fn recovered(&mut self) -> Option<FailureLine> {
        let line = self.end()?;
        let (level, failures, left_out) = (line.level, line.failures, line.left_out);
        let (resource, name) = (self.resource.as_str(), self.name.as_str());
        log::log!(target: self.target, level, resource, name, failures, left_out; "recovered");
        Some(line)
    }

    /// Logs another message with the same fields.
    pub(crate) fn note(&self, level: Level, text: &str) {
        let (resource, name) = (self.resource.as_str(), self.name.as_str());
        log::log!(target: self.target, level, resource, name; "{}", visible(text));
    }

    fn fail(&mut self, kind: ErrorKind, now: Instant) -> FailureLine {
        if self.present != Some(kind) {
            self.leave();
        }
        let joins = self.present.replace(kind).is_none();
        self.failures = self.failures.saturating_add(1);
        let mut causes = self.log.0.lock();
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        causes.retain(|_, cause| {
            cause.failing > 0 || since(cause.last_at).is_some_and(|since| since < SERIES_GAP)
        });
        let cause = causes.entry((self.group.clone(), kind)).or_default();
        cause.failing = cause.failing.saturating_add(usize::from(joins));
        cause.last_at = Some(now);
        let is_due = since(cause.told_at).is_none_or(|since| since >= REPEAT_AFTER);
        let (level, left_out) = if is_due {
            (cause.told_at, cause.is_open) = (Some(now), true);
            (Level::Warn, std::mem::take(&mut cause.left_out))
        } else {
            cause.left_out = cause.left_out.saturating_add(1);
            (Level::Debug, cause.left_out)
        };
        FailureLine {
            level,
            failures: self.failures,
            left_out,
            failing: cause.failing,
        }
    }

    fn end(&mut self) -> Option<FailureLine> {
        let key = (self.group.clone(), self.present?);
        self.leave();
        let failures = std::mem::take(&mut self.failures);
        let mut causes = self.log.0.lock();
        let cause = causes.get_mut(&key);
        let (level, left_out) = match cause.filter(|cause| cause.failing == 0 && cause.is_open) {
            Some(cause) => {
                cause.is_open = false;
                (Level::Info, std::mem::take(&mut cause.left_out))
            }
            None => (Level::Debug, 0),
        };
        Some(FailureLine {
            level,
            failures,
            left_out,
            failing: 0,
        })
    }

    /// Notes that the owner no longer fails for this cause.
    fn leave(&mut self) {
        let Some(kind) = self.present.take() else {
            return;
        };
        let mut causes = self.log.0.lock();
        if let Some(cause) = causes.get_mut(&(self.group.clone(), kind)) {
            cause.failing = cause.failing.saturating_sub(1);
        }
    }
}

impl Drop for FailureReporter {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, later};

    fn reporter(log: &FailureLog) -> FailureReporter {
        log.reporter("kubecache::tests", "secret", "one", "secrets")
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "no")
    }

    /// The levels of repeated failures, one each `step` seconds.
    fn levels(of: &mut FailureReporter, at: &mut Instant, step: u64, count: usize) -> Vec<Level> {
        let failed = (0..count).map(|_| {
            *at = later(*at, Duration::from_secs(step));
            of.failed(&error(ErrorKind::Forbidden), *at).level
        });
        failed.collect()
    }

    fn warnings(levels: &[Level]) -> usize {
        levels.iter().filter(|level| **level == Level::Warn).count()
    }

    #[test]
    fn the_fields_of_a_line_forge_no_other_line() {
        let evil = "db\nERROR all is lost\u{1b}[31m";
        let reporter = FailureLog::default().reporter("kubecache::tests", "secret", evil, evil);
        for field in [&reporter.name, &reporter.resource] {
            assert!(!field.contains(char::is_control), "{field:?}");
        }
    }

    #[test]
    fn an_hour_of_one_cause_is_six_warnings_that_count_what_was_left_out() {
        let (log, mut now) = (FailureLog::default(), Clock::system().now());
        let mut one = reporter(&log);
        assert_eq!(warnings(&levels(&mut one, &mut now, 40, 90)), 6);
        let mut last = one.failed(&error(ErrorKind::Forbidden), now);
        while last.level != Level::Warn {
            now = later(now, Duration::from_secs(40));
            last = one.failed(&error(ErrorKind::Forbidden), now);
        }
        assert!(last.left_out >= 14, "{last:?}");
        let recovered = one.recovered().unwrap();
        assert_eq!((recovered.level, recovered.left_out), (Level::Info, 0));
        assert_eq!(recovered.failures, last.failures);
        assert_eq!(one.recovered(), None);
    }

    #[test]
    fn tries_that_are_rarer_than_a_series_are_still_one() {
        let (log, mut now) = (FailureLog::default(), Clock::system().now());
        let mut one = reporter(&log);
        assert_eq!(warnings(&levels(&mut one, &mut now, 299, 12)), 4);
    }

    #[test]
    fn many_that_fail_by_one_cause_are_told_as_one() {
        let (log, now) = (FailureLog::default(), Clock::system().now());
        let mut all: Vec<_> = (0..50).map(|_| reporter(&log)).collect();
        let failed = all
            .iter_mut()
            .map(|one| one.failed(&error(ErrorKind::Forbidden), now).level);
        assert_eq!(warnings(&failed.collect::<Vec<_>>()), 1);
        // An ended reporter no longer counts. The last one to recover logs it, with the count left
        // out.
        drop(all.pop());
        let ends: Vec<_> = all
            .iter_mut()
            .filter_map(FailureReporter::recovered)
            .collect();
        let told = |line: &&FailureLine| line.level == Level::Info;
        assert_eq!(ends.iter().filter(told).count(), 1);
        assert_eq!(ends.last().map(|line| line.left_out), Some(49));
    }

    #[test]
    fn another_cause_is_told_at_once_and_each_once() {
        let (log, now) = (FailureLog::default(), Clock::system().now());
        let mut one = reporter(&log);
        let kinds = [ErrorKind::Unreachable, ErrorKind::Forbidden];
        let told = kinds.iter().cycle().take(6);
        let told: Vec<_> = told
            .map(|kind| one.failed(&error(*kind), now).level)
            .collect();
        assert_eq!(warnings(&told), 2, "{told:?}");
        assert_eq!(told[..2], [Level::Warn, Level::Warn]);
        let mut pods = log.reporter("kubecache::tests", "pod", "two", "pods");
        assert_eq!(pods.failed(&error(kinds[0]), now).level, Level::Warn);
    }

    #[test]
    fn what_fails_again_soon_is_told_no_more_and_what_was_well_is() {
        let (log, mut now) = (FailureLog::default(), Clock::system().now());
        let mut one = reporter(&log);
        let mut again = |after: u64| {
            now = later(now, Duration::from_secs(after));
            let failed = one.failed(&error(ErrorKind::Forbidden), now).level;
            (failed, one.recovered().unwrap().level)
        };
        assert_eq!(again(0), (Level::Warn, Level::Info));
        assert_eq!(again(60), (Level::Debug, Level::Debug));
        assert_eq!(again(60), (Level::Debug, Level::Debug));
        assert_eq!(again(121), (Level::Warn, Level::Info));
    }
}
