//! The measurements that a reflector passes to the program's metrics hook.

use std::time::{Duration, Instant};

use crate::hooks::Reading;
use crate::reflector::ReflectorStatus;

/// One measurement of a reflector, as client-go's reflector metrics had it.
///
/// Give a [`Hook`](crate::hooks::Hook) to
/// [`ReflectorOptions::metrics`](crate::reflector::ReflectorOptions::metrics); several reflectors
/// may share one. The feature `metrics` has a hook for Prometheus. The reflector's own thread calls
/// the hook; only [`Started`](Self::Started) comes on the thread that starts the reflector. A
/// measurement never contains an object or an object's name.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "MetricsProvider")]
pub enum ReflectorMetric {
    /// A reflector starts. The reading gives its status and the present time of the reflector's
    /// clock, for [`ReflectorStatus::silence`].
    Started(Reading<(ReflectorStatus, Instant)>),
    /// The reflector asks for a list. Reported once for all pages of a list; streamed lists count
    /// too.
    ListStarted,
    /// A whole list has come and is decoded. A list that failed does not count.
    Listed {
        /// How many items it has, undecodable ones included.
        items: usize,
        /// How long it took, from its request on.
        took: Duration,
    },
    /// The reflector asks for a watch. The watch of a streamed list counts too.
    WatchStarted,
    /// An open watch has ended, for any reason.
    WatchEnded {
        /// How many events and bookmarks came, not counting those of a streamed list.
        events: usize,
        /// How long the watch was open.
        lived: Duration,
    },
    /// The server ended a watch within a second, without an event. Reported before the watch's end.
    ShortWatch,
    /// An item of a list, or an event, was set aside because it does not decode.
    Undecodable,
}
