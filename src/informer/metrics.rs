//! The measurements that a shared informer passes to the program's metrics hook.

use std::time::Duration;

use crate::hooks::Reading;
use crate::informer::Registration;
use crate::object::ResourceVersion;
use crate::reflector::ReflectorMetric;
use crate::sync::Arc;

/// One measurement of a shared informer, as client-go's informer metrics have it.
///
/// Give a [`Hook`](crate::hooks::Hook) to
/// [`InformerOptions::metrics`](crate::informer::InformerOptions::metrics). The feature `metrics`
/// has a hook for Prometheus. A measurement never contains an object or an object's name.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "InformerMetricsProvider")]
pub enum InformerMetric {
    /// An informer starts. The thread that starts it calls the hook.
    Started(Reading<InformerState>),
    /// How long it took to put a list, an event or a resync into the store and the handlers'
    /// queues. This excludes the handlers' own time, which [`Registration::readings`] shows. The
    /// reflector's thread calls the hook, and the watch waits for it.
    Processed(Duration),
    /// A handler lost a notification to a panic. The handler's thread calls the hook. The name
    /// comes from the handler's options; handlers without a name have `None` and share one series.
    HandlerPanicked(Option<Arc<str>>),
    /// A measurement of the informer's reflector, on the reflector's thread.
    Reflector(ReflectorMetric),
}

/// An informer's state at one moment. To make it, the informer looks at every object of the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerState {
    /// The version of the store's content, from the last list, event or bookmark.
    pub resource_version: ResourceVersion,
    /// How many objects of the store are undecodable.
    pub undecodable: usize,
    /// The handlers; [`Registration::readings`] shows their queues.
    pub handlers: Vec<Registration>,
}
