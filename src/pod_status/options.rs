//! What can be set about a pod-status cache: each option with its default and reason.

use crate::clock::Clock;

/// Options of a pod-status cache; start from the default and set what differs.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::{PodStatus, PodStatusCache, PodStatusOptions};
///
/// let options = PodStatusOptions::default().evented_pleg(true);
/// let cache = PodStatusCache::<PodStatus>::with_options(options);
/// # drop(cache);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PodStatusOptions {
    pub(super) clock: Clock,
    pub(super) evented_pleg: bool,
}

impl PodStatusOptions {
    /// Where time comes from. Default: the system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Whether the cache refuses a status that is older than the one it holds, as with the
    /// kubelet's gate `EventedPLEG`
    /// (PC-13): for statuses that come in from several sides. Default false, as in the kubelet.
    #[must_use]
    #[doc(alias = "EventedPLEG")]
    pub fn evented_pleg(mut self, evented: bool) -> Self {
        self.evented_pleg = evented;
        self
    }
}
