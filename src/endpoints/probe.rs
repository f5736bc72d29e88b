//! The probes of endpoints, and the reason that a probe shows of a check's error.

use std::error::Error as StdError;

use crate::error::{Error, visible};

/// The probes of endpoints, from the mildest to the strictest. Each also asks the checks of those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "Kubernetes has these three")]
pub enum Probe {
    /// `/livez`: the process works. For a liveness probe, whose failure restarts the container. No
    /// restart brings an API server back, so a check that needs one does not belong here.
    Live,
    /// `/healthz`: the content of the program is fresh. For alerts.
    Health,
    /// `/readyz`: the program can do its work. For a readiness probe.
    Ready,
}

/// A path below a probe's.
pub(super) struct ProbePath<'a> {
    pub(super) probe: Probe,
    /// The path without its first slash.
    pub(super) name: &'a str,
    /// The one check that it names; empty for all.
    pub(super) check: &'a str,
}

impl<'a> ProbePath<'a> {
    /// `None` for another path.
    pub(super) fn of(path: &'a str) -> Option<Self> {
        let name = path.strip_prefix('/')?;
        let (probe, check) = name.split_once('/').unwrap_or((name, ""));
        let probe = match probe {
            "livez" => Probe::Live,
            "healthz" => Probe::Health,
            "readyz" => Probe::Ready,
            _ => return None,
        };
        Some(Self { probe, name, check })
    }
}

/// The reason for a check's error: its text on one line. Of an error of this crate, the last
/// failure is shown by its kind. Its words may be a server's, and so go to the log alone.
pub(super) fn reason(check: &str, error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    if let Some(cause) = cause {
        log::debug!("check {check:?}: {text}: {cause}");
        text = format!("{text} (last failure: {:?})", Error::kind(cause));
    } else if let Some(last) = error.downcast_ref().and_then(Error::last_error) {
        log::debug!("check {check:?}: {text}");
        text = text.replace(&last.to_string(), &format!("{:?}", last.kind()));
    }
    visible(&text).into_owned()
}
