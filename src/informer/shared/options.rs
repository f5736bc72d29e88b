//! What can be set about a shared informer.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::informer::{DeltaFifoOptions, InformerMetrics, KnownObjects, QueueMode, Relisted};
use crate::object::{Held, Object};
use crate::reflector::ReflectorOptions;
use crate::store::{Indexers, Store};
use crate::sync::Arc;

/// In which order an informer's changes reach its store and its handlers. Deletions are never lost, and the changes of one
/// object come in their order, in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueOrder {
    /// Everything in the order of the watch; a list takes the store's place in one step (RQ-10). As client-go from 1.36 on.
    ///
    /// A handler that reads the store while it is told of a deletion sees the whole new content (CT-6). Of a list, it is told
    /// first what is gone, then the objects in the list's order.
    #[default]
    InOrderAtomic,
    /// Everything in the order of the watch, a list object by object (RQ-1 to RQ-9). As client-go from 1.33 to 1.35.
    ///
    /// While a list is on its way, readers of the store see some of its objects already and others not yet.
    InOrder,
    /// The changes of one object that wait together come together (DF-1 to DF-19). As client-go before 1.33.
    ///
    /// An object that changes often is overtaken by others that changed later; two deletions in a row are one. Of a list, a
    /// handler is told first of the objects, then of what is gone.
    Compressed,
}

/// Options of a [`SharedInformer`](crate::informer::SharedInformer); start from the default and set what differs.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::informer::InformerOptions;
/// use kubecache::object::Held;
/// use kubecache::store::Indexers;
/// use std::time::Duration;
///
/// let options = InformerOptions::<Pod>::default()
///     .resync_period(Duration::from_secs(600))
///     .indexers(Indexers::new().by_namespace())
///     .transform(|pod| Ok(Held::edited(pod, |pod: &mut Pod| pod.status = None)));
/// # drop(options);
/// ```
#[must_use = "options do nothing before an informer is made with them"]
pub struct InformerOptions<K: Object> {
    pub(super) name: Option<String>,
    pub(super) resync_period: Duration,
    pub(super) order: QueueOrder,
    pub(super) indexers: Indexers<K>,
    pub(super) reflector: ReflectorOptions,
    pub(super) queue: DeltaFifoOptions<K>,
    pub(super) metrics: Option<Arc<dyn InformerMetrics>>,
}

impl<K: Object> InformerOptions<K> {
    /// What the informer is called in logs and errors. Default: the plural of its kind, such as `pods`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How often handlers that say nothing else get every object once more. Default zero: never, for no handler (SI-22).
    ///
    /// A resync asks nothing of the server, and passes through the queue, so that it never overtakes a change (SI-25).
    #[doc(alias = "defaultEventHandlerResyncPeriod")]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = period;
        self
    }

    /// In which order changes reach store and handlers. Default: [`QueueOrder::InOrderAtomic`].
    pub fn order(mut self, order: QueueOrder) -> Self {
        self.order = order;
        self
    }

    /// The indices of the store. Default: none. More can be added to a running informer.
    pub fn indexers(mut self, indexers: Indexers<K>) -> Self {
        self.indexers = indexers;
        self
    }

    /// Changes each object before it is stored and told of: once per object that the server sent (SI-26).
    ///
    /// It runs on the reflector's thread, under no lock. It must leave namespace and name as they are. An error or a panic
    /// of it leaves everything as it was, is told by the status and by waits, and makes the reflector list again after a
    /// backoff. Default: none, which costs nothing.
    #[doc(alias = "SetTransform")]
    pub fn transform(
        mut self,
        transform: impl Fn(Arc<Held<K>>) -> Result<Arc<Held<K>>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.queue = self.queue.transform(transform);
        self
    }

    /// How the server is listed and watched, and the clock of the whole informer.
    ///
    /// `resync_period` and `demand` in it are the informer's own business: what is set there is not used. Nor are its `metrics`
    /// if the informer has some.
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.reflector = options;
        self
    }

    /// Who is told of lists, watches and the queue's work, for metrics (RF-52). Default: nobody, which costs nothing.
    ///
    /// The informer lets go of it when its threads have ended.
    pub fn metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }
}

/// The functions and hooks in it are shared by the clones.
impl<K: Object> Clone for InformerOptions<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            resync_period: self.resync_period,
            order: self.order,
            indexers: self.indexers.clone(),
            reflector: self.reflector.clone(),
            queue: self.queue.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

impl<K: Object> Default for InformerOptions<K> {
    fn default() -> Self {
        Self {
            name: None,
            resync_period: Duration::ZERO,
            order: QueueOrder::default(),
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: DeltaFifoOptions::default(),
            metrics: None,
        }
    }
}

impl<K: Object> fmt::Debug for InformerOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerOptions")
            .field("name", &self.name)
            .field("resync_period", &self.resync_period)
            .field("order", &self.order)
            .field("indexers", &self.indexers)
            .field("reflector", &self.reflector)
            .field("queue", &self.queue)
            .field("metrics", &self.metrics)
            .finish()
    }
}

impl QueueOrder {
    /// The queue's mode, over what the store holds.
    pub(super) fn mode<K: Object>(self, store: &Store<K>) -> QueueMode<K> {
        let known: Arc<dyn KnownObjects<K>> = Arc::new(store.clone());
        match self {
            Self::InOrderAtomic => QueueMode::InOrderAtomic {
                known: Some(known),
                bookmarks: true,
            },
            Self::InOrder => QueueMode::InOrder {
                known,
                bookmarks: true,
            },
            Self::Compressed => QueueMode::Compressed {
                known: Some(known),
                relisted: Relisted::Replaced,
                bookmarks: true,
            },
        }
    }
}
