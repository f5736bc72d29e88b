//! How the relist loop is doing, shared between its thread and its owner: what health and the report are made of.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use super::go_duration::GoDuration;
use crate::error::{Error, ErrorKind};
use crate::pod_status::StatusError;

/// What the loop's thread tells; under a mutex of rank 30.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) report: RelistReport,
    /// Why the last relist failed, until one succeeds.
    pub(super) last_failure: Option<StatusError>,
    /// The call into the runtime that is under way.
    pub(super) call: Option<(Call, Instant)>,
    /// Whether the thread is at its end.
    pub(super) ended: bool,
}

/// A call into the runtime.
#[derive(Clone, Debug)]
pub(super) enum Call {
    List,
    Inspect {
        uid: String,
        namespace: String,
        name: String,
    },
    /// Its drop, at the end of the loop.
    End,
}

/// The numbers of a relist loop, for logs and metrics.
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
    /// When the last successful list was asked for; `None` before the first one.
    #[doc(alias = "kubelet_pleg_last_seen_seconds")]
    pub last_relist: Option<Instant>,
    /// How long the last relist took, inspections included; `None` before the end of the first one.
    #[doc(alias = "kubelet_pleg_relist_duration_seconds")]
    pub last_duration: Option<Duration>,
    /// From the begin of the last successful relist but one to that of the last one.
    #[doc(alias = "kubelet_pleg_relist_interval_seconds")]
    pub last_interval: Option<Duration>,
    /// Relists that reached their end.
    pub relists: u64,
    /// Relists that did not: the runtime failed to list, or panicked.
    pub failures: u64,
    /// Failed inspections.
    pub failed_inspections: u64,
    /// Pods known at the end of the last relist: those of the last list that did not fail, and before it those which the
    /// cache held.
    pub pods: usize,
    /// Pods whose last inspection failed: they are inspected again.
    pub failing_pods: usize,
}

impl Progress {
    /// Takes a successful list that was asked for at `asked`.
    pub(super) fn listed(&mut self, asked: Instant) {
        let before = self.report.last_relist.replace(asked);
        self.report.last_interval = before.map(|before| asked.saturating_duration_since(before));
    }

    /// Takes the end of a relist, and gives back the failure before it for the caller to drop.
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
        std::mem::replace(&mut self.last_failure, failure)
    }

    /// Takes a failed inspection.
    pub(super) fn inspection_failed(&mut self) {
        let report = &mut self.report;
        report.failed_inspections = report.failed_inspections.saturating_add(1);
    }

    /// Whether the runtime answers, by the kubelet's rule and in its words (PL-6).
    pub(super) fn health(&self, now: Instant, threshold: Duration) -> Result<(), Error> {
        if self.ended {
            return Err(Error::stopped("relist loop"));
        }
        let unhealthy = match self.report.last_relist {
            None => Error::new(ErrorKind::NotSynced, "pleg has yet to be successful"),
            Some(last) => {
                let elapsed = now.saturating_duration_since(last);
                if elapsed <= threshold {
                    return Ok(());
                }
                let (elapsed, threshold) = (GoDuration(elapsed), GoDuration(threshold));
                Error::new(
                    ErrorKind::Timeout,
                    format!("pleg was last seen active {elapsed} ago; threshold is {threshold}"),
                )
            }
        };
        Err(match self.cause(now) {
            Some(cause) => unhealthy.with_source(cause),
            None => unhealthy,
        })
    }

    /// What keeps the loop: the call that does not return, and below it the last failure.
    pub(super) fn cause(&self, now: Instant) -> Option<Cause> {
        let failure = self.last_failure.clone().map(Cause::Failed);
        match &self.call {
            Some((call, since)) => Some(Cause::Calling {
                call: call.clone(),
                elapsed: now.saturating_duration_since(*since),
                before: failure.map(Box::new),
            }),
            None => failure,
        }
    }
}

/// Why the loop is unhealthy, or does not end.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// The runtime has not returned from a call.
    Calling {
        call: Call,
        elapsed: Duration,
        before: Option<Box<Cause>>,
    },
    /// The last relist failed.
    Failed(StatusError),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calling { call, elapsed, .. } => {
                let elapsed = GoDuration(*elapsed);
                write!(f, "the runtime has been {call} for {elapsed}")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Calling { before, .. } => before.as_deref().map(|cause| {
                let cause: &(dyn StdError + 'static) = cause;
                cause
            }),
            Self::Failed(error) => error.source(),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("listing its pods"),
            Self::End => f.write_str("shutting down"),
            Self::Inspect {
                uid,
                namespace,
                name,
            } => write!(f, "inspecting pod {namespace}/{name} ({uid})"),
        }
    }
}
