//! The options of a shared informer.

use std::time::Duration;

use crate::error::{Error, clone_of, debug_of, default_of};
use crate::hooks::Hook;
use crate::informer::InformerMetric;
use crate::object::{Object, StoredObject, Transform};
use crate::reflector::ReflectorOptions;
use crate::setters::setters;
use crate::store::Indexers;
use crate::sync::Arc;

/// Options of a [`SharedInformer`](crate::informer::SharedInformer). Start from the default and
/// change what you need.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::informer::InformerOptions;
/// use kubecache::object::StoredObject;
/// use kubecache::store::Indexers;
/// use std::time::Duration;
///
/// let options = InformerOptions::<Pod>::default()
///     .resync_period(Duration::from_secs(600))
///     .indexers(Indexers::new().by_namespace())
///     .transform(|pod| Ok(StoredObject::edited(pod, |pod: &mut Pod| pod.status = None)));
/// # drop(options);
/// ```
#[must_use = "options do nothing before an informer is made with them"]
pub struct InformerOptions<K: Object> {
    pub(super) name: Option<String>,
    pub(super) resync_period: Duration,
    pub(super) indexers: Indexers<K>,
    pub(super) reflector: ReflectorOptions,
    pub(super) transform: Option<Transform<K>>,
    pub(super) metrics: Option<Hook<InformerMetric>>,
}

setters! { [K: Object] InformerOptions<K>;
    /// Sets the informer's name in logs and errors. Default: the plural of its kind, such as
    /// `pods`.
    name(name: impl Into<String>) = Some(name.into());

    /// Sets how often handlers without a period of their own receive every object once more.
    /// Default: zero, which switches resyncs off for all handlers.
    ///
    /// A resync sends no request to the server. It passes through the handlers' queues, so that it
    /// never overtakes a change.
    #[doc(alias = "defaultEventHandlerResyncPeriod")]
    resync_period(period: Duration);

    /// Sets the indices of the store. Default: none. A program can add more to a running informer.
    indexers(indexers: Indexers<K>);

    /// Sets how the informer lists and watches, and its clock.
    ///
    /// The informer ignores its `resync_period` and `waiters`, and uses its own. It also ignores
    /// its `metrics` if the informer has some.
    reflector(options: ReflectorOptions);

    /// Sets the hook for measurements of lists, watches and changes. Default: none, which costs
    /// nothing.
    ///
    /// The informer drops the hook when its threads have ended.
    metrics(metrics: Hook<InformerMetric>) = Some(metrics);

    /// Sets a function that changes each object, once, before the store and the handlers get it.
    ///
    /// It runs on the reflector's thread, without a lock. It must not change namespace or name. If
    /// it fails or panics, the store stays as it was, and the reflector lists again after a
    /// backoff. The status and waits have the error. Default: none.
    #[doc(alias = "SetTransform")]
    transform(transform: impl Fn(Arc<StoredObject<K>>)
        -> Result<Arc<StoredObject<K>>, Error> + Send + Sync + 'static)
        = Some(Transform::new(transform));
}

// Clones share the functions and hooks.
clone_of!([K: Object] InformerOptions<K>:
    name, resync_period, indexers, reflector, transform, metrics);

default_of!([K: Object] InformerOptions<K>:
    name, resync_period, indexers, reflector, transform, metrics);

debug_of!([K: Object] InformerOptions<K>, |it|
    name: it.name, resync_period: it.resync_period, indexers: it.indexers, reflector: it.reflector,
    transforms: it.transform.is_some(), metrics: it.metrics);
