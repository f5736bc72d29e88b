//! The options of a work queue, each with its unit, default and reason.

use std::time::Duration;

use crate::clock::Clock;
use crate::setters::setters;

/// Options of a [`WorkQueue`](super::WorkQueue). Start from the default and change what you need.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use kubecache::work_queue::{WorkQueue, WorkQueueOptions};
///
/// let options = WorkQueueOptions::default().retry_max(Duration::from_secs(60));
/// assert!(WorkQueue::new(options).is_empty());
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a queue is made with them"]
pub struct WorkQueueOptions {
    pub(super) clock: Clock,
    pub(super) retry_first: Duration,
    pub(super) retry_max: Duration,
}

setters! { [] WorkQueueOptions;
    /// Sets the clock. Default: the system's.
    clock(clock: Clock);

    /// Sets the pause after the first failure of a key. Default: 5 milliseconds.
    retry_first(pause: Duration);

    /// Sets the longest pause. Default: 1000 seconds.
    retry_max(pause: Duration);
}

impl Default for WorkQueueOptions {
    /// client-go's pauses.
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            retry_first: Duration::from_millis(5),
            retry_max: Duration::from_secs(1000),
        }
    }
}
