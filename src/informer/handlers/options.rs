//! How one handler is served.

use std::time::Duration;

/// Notifications that may wait for a handler before its queue coalesces, unless an option says
/// otherwise.
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

    /// From how many waiting notifications on the handler's queue coalesces per object. Default:
    /// 10,000.
    ///
    /// Up to the bound a handler is told of everything, in the order in which it happened. Beyond
    /// it, several changes of one object are told as one, and resyncs are left out first. The
    /// handler still ends with what the server has. The notifications of one object stay in order,
    /// and the delete of every object that it was told of is kept. The order between different
    /// objects is lost then.
    ///
    /// A new object that was deleted again before the handler was told of it counts too. It is told
    /// of by an add and a delete, unless it has come again since. Only beyond another 10,000
    /// notifications is it left out, so that memory is bounded by the number of objects.
    ///
    /// `None` never coalesces: a handler that is too slow then grows memory without bound, as in
    /// client-go.
    pub fn queue_max(mut self, notifications: Option<usize>) -> Self {
        self.queue_max = notifications;
        self
    }

    /// How often every object is delivered once more as an update; zero is never. Default: the
    /// informer's own period.
    ///
    /// At least a second, and not more often than the informer looks. The informer looks at the
    /// shortest period of its own and of the handlers added before its start. An own period of zero
    /// switches resyncs off for all its handlers. A resync sends no request to the server.
    #[doc(alias = "AddEventHandlerWithResyncPeriod")]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }
}
