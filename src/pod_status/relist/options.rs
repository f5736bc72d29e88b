//! What can be set about the relist loop: each option with its unit, default and reason.

use std::time::Duration;

use crate::setters::setters;

/// The kubelet's pause between two relists (PL-6).
const PERIOD: Duration = Duration::from_secs(1);
/// What the kubelet takes as the sign that its runtime hangs (PL-6).
const HEALTH_THRESHOLD: Duration = Duration::from_secs(3 * 60);

/// Options of a [`Relist`](super::Relist); start from the default and set what differs.
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
}

impl Default for RelistOptions {
    fn default() -> Self {
        Self {
            period: PERIOD,
            health_threshold: HEALTH_THRESHOLD,
            close_cache: true,
        }
    }
}

setters! { [] RelistOptions;
    /// The pause from the end of one relist to the begin of the next. Default 1 s. Zero asks the
    /// runtime without a pause.
    #[doc(alias = "RelistPeriod")]
    period(period: Duration);

    /// How old the last successful list may be before [`health`](super::Relist::health) is an
    /// error: more than this, not exactly this. Default 3 minutes.
    #[doc(alias = "RelistThreshold")]
    health_threshold(threshold: Duration);

    /// Whether the end of the loop closes the cache, which ends every wait on it with
    /// [`Stopped`](crate::ErrorKind::Stopped). Default true: no other thread would end those waits.
    /// With false the cache stays open for the next loop. That loop inspects every pod anew and
    /// deletes the pods that are gone. Until then waiters wait.
    close_cache(close: bool);
}
