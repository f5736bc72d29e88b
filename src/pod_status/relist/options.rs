//! The options of the relist loop, each with its unit, default and reason.

use std::time::Duration;

use super::requests::RelistRequests;
use crate::setters::setters;

/// The kubelet's pause between two relists (PL-6).
const PERIOD: Duration = Duration::from_secs(1);
/// The time after which the kubelet considers its runtime hung (PL-6).
const HEALTH_THRESHOLD: Duration = Duration::from_secs(3 * 60);

/// Options of a [`Relist`](super::Relist). Start from the default and change what you need.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::RelistOptions;
/// use std::time::Duration;
///
/// let busy_node = RelistOptions::default().period(Duration::from_secs(5));
/// # drop(busy_node);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a relist loop is started with them"]
pub struct RelistOptions {
    pub(super) period: Duration,
    pub(super) health_threshold: Duration,
    pub(super) close_cache: bool,
    pub(super) requests: Option<RelistRequests>,
}

impl Default for RelistOptions {
    fn default() -> Self {
        Self {
            period: PERIOD,
            health_threshold: HEALTH_THRESHOLD,
            close_cache: true,
            requests: None,
        }
    }
}

setters! { [] RelistOptions;
    /// Sets the pause from the end of one relist of all pods to the beginning of the next. Default:
    /// 1 second. Zero asks the runtime without a pause. Requests for single pods do not change it.
    #[doc(alias = "RelistPeriod")]
    period(period: Duration);

    /// Sets the age of the last successful list above which [`health`](super::Relist::health) is an
    /// error. Default: 3 minutes. At least twice the period.
    #[doc(alias = "RelistThreshold")]
    health_threshold(threshold: Duration);

    /// Sets whether the end of the loop closes the cache, which ends every wait on it with
    /// [`Stopped`](crate::ErrorKind::Stopped). Default: true, because no other thread would end
    /// those waits. With false, the cache stays open for the next loop, which inspects every pod
    /// anew and deletes the pods that are gone. Until then waiters wait.
    close_cache(close: bool);

    /// Sets the queue of requests that the loop serves: one that the runtime or the workers have
    /// before the loop starts. Default: a queue of its own, which
    /// [`Relist::requests`](super::Relist::requests) returns.
    requests(requests: &RelistRequests) = Some(requests.clone());
}

impl RelistOptions {
    /// The health threshold. The next list is due a period after the end of the one before, so that
    /// a shorter threshold would call each pause a runtime that hangs.
    pub(super) fn threshold(&self) -> Duration {
        self.health_threshold.max(self.period.saturating_mul(2))
    }
}
