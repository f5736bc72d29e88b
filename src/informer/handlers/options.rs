//! The options of one handler.

use std::time::Duration;

use crate::setters::setters;

/// The default bound of a handler's queue, beyond which the queue coalesces.
const QUEUE_MAX: usize = 10_000;

/// Options of one handler: its name, the bound of its queue, its resyncs.
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

setters! { [] HandlerOptions;
    /// Sets the handler's name in logs and errors. Default: its thread's name, such as `hd-3`.
    name(name: impl Into<String>) = Some(name.into());

    /// Sets how many notifications may wait before the queue merges those of the same object.
    /// Default: 10,000.
    ///
    /// Up to the bound, a handler receives every change in the order of the watch. Beyond it, the
    /// queue first drops resyncs, and then merges several changes of one object into one. The
    /// handler still receives the last state of each object. The notifications of one object stay
    /// in order, and no delete of an object that the handler knows is lost. The order between
    /// different objects is lost.
    ///
    /// An object that came and went while the queue was full is still delivered, as an add and a
    /// delete, unless it exists again. Beyond another 10,000 notifications the queue drops both, so
    /// that the number of objects bounds its memory.
    ///
    /// With `None` the queue never merges. If the handler is too slow, memory then grows without
    /// bound, as in client-go.
    queue_max(notifications: Option<usize>);

    /// Sets how often the handler receives every object once more, as an update. Zero means never.
    /// Default: the informer's own period.
    ///
    /// The shortest period is a second. No period is shorter than the period of the informer's
    /// check. The check runs at the shortest period of the informer and of the handlers added
    /// before its start. If the informer's own period is zero, none of its handlers gets resyncs. A
    /// resync sends no request to the server.
    #[doc(alias = "AddEventHandlerWithResyncPeriod")]
    resync_period(period: Duration) = Some(period);
}
