//! The state of the relist loop, shared between its thread and its owner: the basis of health and
//! the report.

use std::time::{Duration, Instant};

use super::go_duration::go_duration;
use crate::error::{Error, ErrorKind};
use crate::pod_status::StatusError;

/// The state that the loop's thread shares with its owner.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(super) report: RelistReport,
    /// Why the last relist failed, until one succeeds.
    last_error: Option<StatusError>,
    /// The running call into the runtime, in words, and when it began.
    pub(super) call: Option<(String, Instant)>,
}

/// The counters and times of a relist loop, for logs and metrics.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::RelistReport;
///
/// let report = RelistReport::default();
/// assert_eq!((report.relists, report.failures), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelistReport {
    /// When the loop asked for its last successful list; `None` before the first one.
    #[doc(alias = "kubelet_pleg_last_seen_seconds")]
    pub last_relist: Option<Instant>,
    /// How long the last relist took, with its inspections; `None` before the end of the first one.
    #[doc(alias = "kubelet_pleg_relist_duration_seconds")]
    pub last_duration: Option<Duration>,
    /// The time between the beginnings of the last two successful relists.
    #[doc(alias = "kubelet_pleg_relist_interval_seconds")]
    pub last_interval: Option<Duration>,
    /// How many relists of all pods succeeded.
    pub relists: u64,
    /// How many relists failed, also those on request: the runtime could not list its pods, or
    /// panicked.
    pub failures: u64,
    /// How many pods were relisted on request.
    pub requested: u64,
    /// How many requests were dropped because the queue was full.
    pub dropped_requests: u64,
    /// How many inspections failed.
    pub failed_inspections: u64,
    /// The number of pods known at the end of the last relist: those of the last successful list,
    /// or before it those in the cache.
    pub pods: usize,
    /// The number of pods whose last inspection failed. The loop inspects them again.
    pub failing_pods: usize,
}

impl Progress {
    /// Notes a successful list, asked for at `asked`.
    pub(super) fn listed(&mut self, asked: Instant) {
        let before = self.report.last_relist.replace(asked);
        self.report.last_interval = before.map(|before| asked.saturating_duration_since(before));
    }

    /// Notes the end of a relist, and returns the earlier failure for the caller to drop.
    pub(super) fn relisted(
        &mut self,
        failure: Option<StatusError>,
        took: Duration,
        (pods, failing_pods): (usize, usize),
    ) -> Option<StatusError> {
        let report = &mut self.report;
        let ends = match failure {
            None => &mut report.relists,
            Some(_) => &mut report.failures,
        };
        *ends = ends.saturating_add(1);
        report.last_duration = Some(took);
        (report.pods, report.failing_pods) = (pods, failing_pods);
        self.call = None;
        std::mem::replace(&mut self.last_error, failure)
    }

    /// Notes that a relist on request failed.
    pub(super) fn request_failed(&mut self) {
        let report = &mut self.report;
        report.failures = report.failures.saturating_add(1);
    }

    /// Notes that a pod was relisted on request.
    pub(super) fn pod_relisted(&mut self) {
        let report = &mut self.report;
        report.requested = report.requested.saturating_add(1);
    }

    /// Notes a failed inspection.
    pub(super) fn inspection_failed(&mut self) {
        let report = &mut self.report;
        report.failed_inspections = report.failed_inspections.saturating_add(1);
    }

    /// Whether the runtime answers, by the kubelet's rule and in its words (PL-6).
    pub(super) fn health(&self, now: Instant, threshold: Duration) -> Result<(), Error> {
        let unhealthy = match self.report.last_relist {
            None => Error::new(ErrorKind::NotSynced, "pleg has yet to be successful"),
            Some(last) => {
                let elapsed = now.saturating_duration_since(last);
                if elapsed <= threshold {
                    return Ok(());
                }
                let (elapsed, threshold) = (go_duration(elapsed), go_duration(threshold));
                let text =
                    format!("pleg was last seen active {elapsed} ago; threshold is {threshold}");
                Error::new(ErrorKind::Timeout, text)
            }
        };
        Err(self.because(unhealthy, now))
    }

    /// Adds the cause of the delay: the call that does not return, and below it the last failure.
    pub(super) fn because(&self, error: Error, now: Instant) -> Error {
        let because_of_failure = |error: Error| error.caused_by(self.last_error.clone());
        match &self.call {
            Some((call, since)) => {
                let elapsed = go_duration(now.saturating_duration_since(*since));
                let text = format!("the runtime has been {call} for {elapsed}");
                error.with_source(because_of_failure(Error::new(ErrorKind::Timeout, text)))
            }
            None => because_of_failure(error),
        }
    }
}
