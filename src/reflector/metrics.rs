//! What a reflector tells the program's metrics hook.

use std::time::{Duration, Instant};

use crate::hooks::Reading;
use crate::reflector::ReflectorStatus;

/// What a hook is told that measures reflectors, as client-go's reflector metrics were.
///
/// Give a [`Hook`](crate::Hook) to
/// [`ReflectorOptions::metrics`](crate::reflector::ReflectorOptions::metrics); several reflectors
/// may share one. The feature `metrics` has one that is ready, for Prometheus. The reflector's own
/// thread calls it; of the start, the thread that starts the reflector. No object and no name of
/// one is ever in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "MetricsProvider")]
pub enum ReflectorMetric {
    /// A reflector starts. The reading gives its status, and the time of the look by the
    /// reflector's clock, for [`ReflectorStatus::silence`].
    Started(Reading<(ReflectorStatus, Instant)>),
    /// A list is asked for: once for all its pages, streamed lists included.
    ListStarted,
    /// A whole list has come and is decoded. Not told of one that failed.
    Listed {
        /// How many items it has, those that do not decode included.
        items: usize,
        /// How long it took since it was asked for.
        took: Duration,
    },
    /// A watch is asked for; that of a streamed list included.
    WatchStarted,
    /// An open watch is over, for whatever reason.
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
