//! What a reflector tells the program's metrics hook.

use std::time::{Duration, Instant};

use crate::hooks::Reading;
use crate::reflector::ReflectorStatus;

/// One measurement of a reflector, as client-go's reflector metrics had it.
///
/// Give a [`Hook`](crate::Hook) to
/// [`ReflectorOptions::metrics`](crate::reflector::ReflectorOptions::metrics); several reflectors
/// may share one. The feature `metrics` has a hook for Prometheus. The reflector's own thread calls
/// the hook. For the start, the thread that starts the reflector does. A measurement never contains
/// an object or an object's name.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "MetricsProvider")]
pub enum ReflectorMetric {
    /// A reflector starts. The reading gives its status, and the time of the look by the
    /// reflector's clock, for [`ReflectorStatus::silence`].
    Started(Reading<(ReflectorStatus, Instant)>),
    /// The reflector asks for a list. Comes once for all pages of a list; streamed lists count too.
    ListStarted,
    /// A whole list has come and is decoded. A list that failed does not count.
    Listed {
        /// How many items it has, those that do not decode included.
        items: usize,
        /// How long it took since it was asked for.
        took: Duration,
    },
    /// The reflector asks for a watch. The watch of a streamed list counts too.
    WatchStarted,
    /// An open watch has ended, for any reason.
    WatchEnded {
        /// How many events and bookmarks came, without those of a streamed list.
        events: usize,
        /// How long the watch was open.
        lived: Duration,
    },
    /// The server ended a watch within a second, without an event. Comes before the watch's end.
    ShortWatch,
    /// An item of a list, or an event, was set aside because it does not decode.
    Undecodable,
}
