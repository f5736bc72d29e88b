//! What a shared informer tells the program's metrics hook.

use std::time::Duration;

use crate::hooks::Reading;
use crate::informer::Registration;
use crate::object::ResourceVersion;
use crate::reflector::ReflectorMetric;
use crate::sync::Arc;

/// One measurement of a shared informer, as client-go's informer metrics have it.
///
/// Give a [`Hook`](crate::Hook) to
/// [`InformerOptions::metrics`](crate::informer::InformerOptions::metrics). The feature `metrics`
/// has one that is ready, for Prometheus. No object and no name of one is ever in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "InformerMetricsProvider")]
pub enum InformerMetric {
    /// An informer starts. Told on the thread that starts it.
    Started(Reading<InformerState>),
    /// A list, an event or a resync is in the store and in the queues of the handlers, after so
    /// long. The handlers' own time is not in it: [`Registration::readings`] tells of that. Told on
    /// the reflector's thread; the watch and every handler wait for it.
    Processed(Duration),
    /// A handler lost a notification by a panic. Told on the handler's thread. The name is that of
    /// its options; `None` if it was given none, so that handlers without a name are no series
    /// each.
    HandlerPanicked(Option<Arc<str>>),
    /// What the informer's reflector tells, on the reflector's thread.
    Reflector(ReflectorMetric),
}

/// An informer's state at one look, which looks at every object of the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerState {
    /// The version of the store's content: that of the last list, event or bookmark.
    pub resource_version: ResourceVersion,
    /// How many objects are set aside because they do not decode.
    pub undecodable: usize,
    /// The handlers, for readings of their queues.
    pub handlers: Vec<Registration>,
}
