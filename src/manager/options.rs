//! What can be set about a watch-based manager: each option with its unit, default and reason.

use std::time::Duration;

use crate::clock::Clock;

/// The kubelet's wait for an object that is not there yet (OC-9).
const GET_TIMEOUT: Duration = Duration::from_secs(1);
/// Five times the kubelet's default sync period (OC-18).
const IDLE_MAX: Duration = Duration::from_mins(5);
/// The least the kubelet allows (OC-18).
const IDLE_MAX_LEAST: Duration = Duration::from_mins(1);
/// Thousands of watches on a node are a burden to the server before they are one to the node.
const REFLECTORS_MAX: usize = 1_000;
/// The kubelet's least watch time-out for single objects (OC-6); the server draws up to twice this.
const WATCH_TIMEOUT_MIN: Duration = Duration::from_mins(30);

/// Options of a watch-based manager; start from the default and set what differs.
///
/// # Examples
///
/// ```
/// use kubecache::manager::WatchOptions;
/// use std::time::Duration;
///
/// let slow_link = WatchOptions::default().get_timeout(Duration::from_secs(10));
/// # drop(slow_link);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchOptions {
    pub(crate) clock: Clock,
    pub(crate) get_timeout: Duration,
    pub(crate) idle_max: Duration,
    pub(crate) reflectors_max: usize,
    pub(crate) watch_timeout_min: Duration,
    pub(crate) recheck_immutable: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            get_timeout: GET_TIMEOUT,
            idle_max: IDLE_MAX,
            reflectors_max: REFLECTORS_MAX,
            watch_timeout_min: WATCH_TIMEOUT_MIN,
            recheck_immutable: true,
        }
    }
}

impl WatchOptions {
    /// Where time comes from. Default: the system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long a plain get waits for an object that is not in memory yet. Default 1 s, as the kubelet (OC-9);
    /// 5 to 10 s suit slow links.
    #[must_use]
    pub fn get_timeout(mut self, timeout: Duration) -> Self {
        self.get_timeout = timeout;
        self
    }

    /// How long an object may go unread before its watch is stopped. Default 5 minutes; at least 1 minute (OC-18).
    #[must_use]
    pub fn idle_max(mut self, idle: Duration) -> Self {
        self.idle_max = idle.max(IDLE_MAX_LEAST);
        self
    }

    /// The most watches of this manager at a time. Default 1,000. The limits of the process bind as well.
    #[must_use]
    pub fn reflectors_max(mut self, reflectors: usize) -> Self {
        self.reflectors_max = reflectors;
        self
    }

    /// The server is asked to end each watch after a time drawn from this to twice this. Default 30 minutes (OC-6);
    /// at least 5 minutes (RF-2).
    #[must_use]
    pub fn watch_timeout_min(mut self, timeout: Duration) -> Self {
        self.watch_timeout_min = timeout;
        self
    }

    /// Whether a new reference to an immutable object asks the server once if it is still the same one (B7).
    /// Default true; false is what the kubelet does (OC-15).
    #[must_use]
    pub fn recheck_immutable(mut self, recheck: bool) -> Self {
        self.recheck_immutable = recheck;
        self
    }
}
