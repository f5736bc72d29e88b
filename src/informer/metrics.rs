//! What a shared informer tells those who measure it: hooks that do nothing by default, and readings for whoever asks.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::guard::guard;
use crate::informer::Registration;
use crate::informer::handlers::Processor;
use crate::object::{Object, ResourceVersion};
use crate::reflector::{ReflectorMetrics, announce};
use crate::store::Store;
use crate::sync::Arc;

/// Is told what a shared informer does, as client-go's informer metrics are (RF-52); its reflector's part is in
/// [`ReflectorMetrics`].
///
/// Implement the methods you want to count; each does nothing by default. Give one to
/// [`InformerOptions::metrics`](crate::informer::InformerOptions::metrics). The feature `metrics` has one that is ready, for
/// Prometheus.
///
/// [`processed`](Self::processed) is called on the reflector's thread, under no lock. It must not
/// block: the watch and every handler wait for it. A panic of its is logged, one of
/// [`informer_started`](Self::informer_started) fails the start (`Panicked`). It is never given an
/// object or its name.
#[doc(alias = "InformerMetricsProvider")]
pub trait InformerMetrics: ReflectorMetrics {
    /// An informer starts; `reading` tells of its state at any later time. Called on the thread that starts it.
    fn informer_started(&self, _reading: InformerReading) {}

    /// A list, an event or a resync is in the store, and in the queues of the handlers; `took` is
    /// how long that took. The handlers' own time is not in it: [`Registration::readings`] tells of
    /// that.
    fn processed(&self, _took: Duration) {}

    /// A handler lost a notification by a panic (SI-18). `handler` is the name of its options;
    /// `None` if it was given none,
    /// so that handlers without a name are no series each.
    ///
    /// Called on the handler's thread; a panic here is logged.
    fn handler_panicked(&self, _handler: Option<&str>) {}
}

/// Looks at one informer's state, for readings that cost nothing between two looks. Does not keep the informer alive.
#[derive(Clone)]
pub struct InformerReading(Weak<dyn Fn() -> InformerState + Send + Sync>);

/// An informer's state at one look.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerState {
    /// The version of the store's content: that of the last list, event or bookmark (ST-9).
    pub resource_version: ResourceVersion,
    /// How many objects are set aside because they do not decode (B12).
    pub undecodable: usize,
    /// The handlers, for readings of their queues.
    pub handlers: Vec<Registration>,
}

impl InformerReading {
    /// What the informer does now; `None` once it has ended. Never blocks on the network or on a handler.
    ///
    /// It looks at every object of the store.
    pub fn state(&self) -> Option<InformerState> {
        self.0.upgrade().map(|look| look())
    }

    /// Whether the informer has ended: from then on there is nothing to read. Takes no lock.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for InformerReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerReading")
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}

/// The reflector's thread's way to its hook; readings end when it is dropped.
pub(super) struct Measured {
    hook: Arc<dyn InformerMetrics>,
    look: Arc<dyn Fn() -> InformerState + Send + Sync>,
    clock: Clock,
}

impl Measured {
    pub(super) fn new<K: Object>(
        hook: Arc<dyn InformerMetrics>,
        store: Store<K>,
        processor: &Arc<Processor<K>>,
        clock: Clock,
    ) -> Self {
        let processor = Arc::downgrade(processor);
        let look = move || {
            let processor = processor.upgrade();
            InformerState {
                resource_version: store.resource_version(),
                undecodable: store.undecodable_len(),
                handlers: processor.map_or_else(Vec::new, |processor| processor.registrations()),
            }
        };
        let look = Arc::new(look);
        Self { hook, look, clock }
    }

    /// # Errors
    ///
    /// `Panicked` if the hook did.
    pub(super) fn announce(&self, informer: &str) -> Result<(), Error> {
        let reading = InformerReading(Arc::downgrade(&self.look));
        announce(&format!("informer {informer}"), || {
            self.hook.informer_started(reading);
        })
    }

    pub(super) fn begin(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn processed(&self, begun: Instant) {
        let took = self.clock.now().saturating_duration_since(begun);
        // A time that could not be counted is lost, and nothing else.
        let called = guard("the metrics of an informer", || self.hook.processed(took));
        if let Err(error) = called {
            log::error!("{error}");
        }
    }
}
