//! How one handler is served.

use std::time::Duration;

/// Notifications that may wait for a handler before its queue coalesces, unless an option says otherwise.
const QUEUE_MAX: usize = 10_000;

/// How one handler is served: its name, the bound of its queue, its resyncs.
///
/// # Examples
///
/// ```
/// use kubecache::informer::HandlerOptions;
/// use std::time::Duration;
///
/// let options = HandlerOptions::default()
///     .name("audit")
///     .queue_max(Some(50_000))
///     .resync_period(Duration::from_secs(600));
/// # assert!(format!("{options:?}").contains("audit"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a handler is added with them"]
pub struct HandlerOptions {
    pub(super) name: Option<String>,
    pub(super) queue_max: Option<usize>,
    pub(super) resync_period: Option<Duration>,
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self {
            name: None,
            queue_max: Some(QUEUE_MAX),
            resync_period: None,
        }
    }
}

impl HandlerOptions {
    /// What the handler is called in logs and errors. By default its thread's name, such as `hd-3`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// From how many waiting notifications on the handler's queue coalesces per object; 10,000 by default.
    ///
    /// Up to the bound a handler is told of everything, in the order in which it happened. Beyond it, several changes of one
    /// object are told as one: the handler still ends with what the server has, an object's notifications stay in order, and
    /// the delete of every object that it was told of is kept. Resyncs are left out first. Between different objects the order
    /// is then not that of the server any more.
    ///
    /// An object that came and went while the handler stood still is told of as well, add and delete, unless it has come again
    /// since, or more than 10,000 notifications wait beyond the bound. So memory is bounded by the number of objects.
    ///
    /// `None` never coalesces: a handler that is too slow grows memory without bound, as in client-go (SI-17).
    pub fn queue_max(mut self, notifications: Option<usize>) -> Self {
        self.queue_max = notifications;
        self
    }

    /// How often every object is delivered once more as an update; zero is never. By default the informer's own period.
    ///
    /// At least a second, and not more often than the informer looks: the shortest period of its own and of the handlers
    /// added before it ran, unless its own is zero, which switches resyncs off for all (SI-21, SI-22). A resync asks nothing
    /// of the server.
    #[doc(alias = "AddEventHandlerWithResyncPeriod")]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }
}
