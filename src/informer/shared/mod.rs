//! The shared informer: one reflector, one queue, one store, any number of handlers.

mod applying;
mod consumer;
mod life;
mod options;
mod sink;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;

pub use options::{InformerOptions, QueueOrder};

use std::fmt;
use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::informer::handlers::Processor;
use crate::informer::metrics::{Measured, Seen};
use crate::informer::{DeltaFifo, DeltaFifoHandle, EventHandler, HandlerOptions, Registration};
use crate::list_watch::ListerWatcher;
use crate::object::{Object, ResourceVersion};
use crate::reflector::{Demand, ReflectorOptions, ReflectorStatus};
use crate::store::{Indexers, Store};
use crate::sync::{Arc, Monitor};

use applying::Applying;
use consumer::Consumer;
use life::{Life, Parts, Threads};
use sink::InformerSink;

/// One reflector, one queue and one indexed store for all who are interested in one collection, and a thread for each
/// handler that is told of its changes (SI-1).
///
/// Handlers are added and removed at any time: each is told of what is there, then of every change, without a gap and
/// without a duplicate (SI-11). The store is never behind what a handler was told (SI-20). Readers use [`store`](Self::store)
/// and its listers; that never blocks on the network. Whether an object is new to the handlers is decided by what the
/// store held, not by what the server called the event (CT-4).
///
/// An object that does not decode is set aside in the store (B12). Handlers are told nothing then; they keep the last state
/// that decoded, and are told of the next one as an update, or of the object's end as a delete.
///
/// It does nothing until [`start`](Self::start), runs until [`stop`](Self::stop) and cannot be started again. Dropping it
/// stops it and joins all its threads: it blocks for as long as a handler's call runs.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::informer::{Forward, InformerOptions, Notification, SharedInformer};
/// use kubecache::store::Indexers;
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<ConfigMap>::new();
/// source.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
///
/// let options = InformerOptions::default().indexers(Indexers::new().by_namespace());
/// let informer = SharedInformer::new(Arc::new(source.clone()), options);
/// let (handler, told) = Forward::unbounded();
/// let registration = informer.add_handler(handler)?;
/// informer.start()?;
///
/// let deadline = Clock::system().after(Duration::from_secs(10));
/// informer.wait_until_synced(deadline)?; // or the reason why not
/// assert_eq!(informer.store().by_index("namespace", "shop")?.len(), 1);
/// registration.wait_until_synced(deadline)?;
/// assert!(matches!(told.recv(), Ok(Notification::Added { is_in_initial_list: true, .. })));
///
/// source.delete("shop", "settings");
/// assert!(matches!(told.recv(), Ok(Notification::Deleted(gone)) if gone.final_state_known));
/// informer.shutdown(deadline)?;
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
///
/// What is shared cannot be changed by one of those who share it: the compiler refuses what client-go looks for while it
/// runs (its mutation detector).
///
/// ```compile_fail,E0594
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::informer::Handlers;
///
/// let handler = Handlers::<ConfigMap>::new().on_add(|object, _| {
///     object.data = None; // the store and every other handler hold the same object
/// });
/// ```
#[doc(alias = "SharedIndexInformer")]
pub struct SharedInformer<K: Object> {
    name: String,
    clock: Clock,
    store: Store<K>,
    queue: DeltaFifoHandle<K>,
    processor: Arc<Processor<K>>,
    life: Arc<Monitor<Life<K>>>,
}

impl<K: Object> SharedInformer<K> {
    /// An informer of what `source` lists. It starts no thread and asks nothing of the server yet.
    pub fn new(source: Arc<dyn ListerWatcher<K>>, options: InformerOptions<K>) -> Self {
        let name = options.name.unwrap_or_else(|| plural::<K>());
        let clock = options.reflector.clock.clone();
        let demand = Demand::new();
        let (store, writer) = Store::behind(demand.clone(), options.indexers, clock.clone());
        let (queue, queue_writer) = DeltaFifo::new(
            options.order.mode(&store),
            options.queue.clock(clock.clone()),
        );
        let handle = queue.handle();
        let processor = Processor::new(name.clone(), options.resync_period, clock.clone());
        let processor = Arc::new(processor);
        let sink = InformerSink {
            writer: queue_writer,
            handle: handle.clone(),
            processor: Arc::clone(&processor),
            reporter: writer.reporter(),
        };
        let applying = Applying::new(store.clone(), writer, Arc::clone(&processor), options.order);
        let measured = options.metrics.clone().map(|metrics| {
            let seen = Seen::new(store.clone(), handle.clone(), processor.roll());
            Measured::new(metrics, seen, clock.clone())
        });
        let parts = Parts {
            source,
            sink,
            consumer: Consumer::new(queue, applying, Arc::clone(&processor), measured),
            options: ReflectorOptions {
                demand: Some(demand),
                metrics: match options.metrics {
                    Some(metrics) => Some(metrics),
                    None => options.reflector.metrics,
                },
                ..options.reflector
            },
        };
        Self {
            name,
            clock,
            store,
            queue: handle,
            processor,
            life: Arc::new(Monitor::new(Life::Ready(Box::new(parts)))),
        }
    }

    /// Starts the informer's two threads and returns at once; the network is touched on the reflector's thread.
    ///
    /// The periods of the handlers added so far decide how often it looks for a resync that is due (SI-21).
    ///
    /// # Errors
    ///
    /// `Config` when it was started before: `informer has already started` (SI-2); `Stopped` when it was stopped;
    /// `Resources` when the system has no thread to give: it is stopped then.
    #[doc(alias = "Run")]
    pub fn start(&self) -> Result<(), Error> {
        let mut parts = {
            let mut life = self.life.lock();
            match std::mem::replace(&mut *life, Life::Busy) {
                Life::Ready(parts) => parts,
                other @ (Life::Busy
                | Life::Running(_)
                | Life::Stopped(_)
                | Life::Joining
                | Life::Over) => {
                    let refusal = other.refusal();
                    *life = other;
                    return Err(refusal);
                }
            }
        };
        self.processor.start();
        parts.options.resync_period = self.processor.check_period();
        let (life, started) = match parts.start(&self.name) {
            Ok(threads) => (Life::Running(threads), Ok(())),
            Err(error) => (Life::Over, Err(error)),
        };
        *self.life.lock() = life;
        self.life.notify_all();
        started
    }

    /// Adds a handler, with the options' defaults; from any thread, at any time before the stop.
    ///
    /// It is told of everything that is there as part of its initial list, then of every change (SI-10, SI-11). The same
    /// kind of handler may be added many times; each is independent of the others (SI-13). Starts the handler's thread, and
    /// never blocks.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop: `handler … was not added to shared informer … because it has stopped already` (SI-12);
    /// `Resources` when the system has no thread to give.
    #[doc(alias = "AddEventHandler")]
    pub fn add_handler<H: EventHandler<K>>(&self, handler: H) -> Result<Registration, Error> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with a name, a bound of its queue, or a resync period of its own.
    ///
    /// # Errors
    ///
    /// As [`add_handler`](Self::add_handler).
    #[doc(alias = "AddEventHandlerWithOptions")]
    #[doc(alias = "AddEventHandlerWithResyncPeriod")]
    pub fn add_handler_with<H: EventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        let registration = self.processor.register(handler, options)?;
        self.queue.interrupt();
        Ok(registration)
    }

    /// The handlers that have not been removed, oldest first: to read their queues.
    pub fn registrations(&self) -> Vec<Registration> {
        self.processor.registrations()
    }

    /// The informer's content: for reads, listers and indices, also after the stop (SI-4).
    #[doc(alias = "GetIndexer")]
    #[doc(alias = "GetStore")]
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Adds indices, before the start or while it runs; what is in the store is in them at once (SI-9).
    ///
    /// # Errors
    ///
    /// `Config` when an index of that name exists; nothing changes then. `Stopped` after the stop: `indexer was not added
    /// because it has stopped already`.
    pub fn add_indexers(&self, indexers: &Indexers<K>) -> Result<(), Error> {
        if self.is_stopped() {
            let text = "indexer was not added because it has stopped already";
            return Err(Error::new(ErrorKind::Stopped, text));
        }
        self.store.add_indexers(indexers)
    }

    /// Whether the first list is in the store; it says nothing of the handlers (SI-6, CT-3).
    pub fn has_synced(&self) -> bool {
        self.store.has_synced()
    }

    /// Waits until the first list is in the store: by a signal, not by polling (WT-2).
    ///
    /// Blocks until then, until the server's refusal has become an answer (R4), until the informer stops, or until
    /// `deadline`. While somebody waits, a first list that fails is retried fast (B3). Whether a handler has seen it all is
    /// for [`Registration::wait_until_synced`].
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and since when (B2); the server's refusal
    /// (`Forbidden`); `Stopped` when the informer has stopped.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        self.store.wait_until_synced(deadline)
    }

    /// What the reflector does now and how it went (B14). Never blocks on the network.
    pub fn status(&self) -> ReflectorStatus {
        self.store.status()
    }

    /// How long ago the server last confirmed the content; `None` before the first contact (B14).
    pub fn age(&self) -> Option<Duration> {
        self.store.age()
    }

    /// Whether the server keeps confirming the content, for a health check: neither a quiet server fails it nor an
    /// informer that has not begun or has stopped; a server that is silent does, within the idle limit
    /// ([`ReflectorStatus::check_health`] says when). Never blocks (B14).
    ///
    /// # Errors
    ///
    /// `Timeout`: the informer's name and how long ago the server was heard, with the last failure as its source.
    pub fn check_health(&self) -> Result<(), Error> {
        let health = self.store.check_health();
        health.map_err(|error| error.context(&self.name))
    }

    /// The reflector's last position in the server's history; empty before the first success (CT-3, SI-8).
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.store.status().resource_version
    }

    /// How many changes wait between reflector and store: a reading.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// What the informer is called in logs and errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was stopped; it stays so for good (SI-4).
    pub fn is_stopped(&self) -> bool {
        match &*self.life.lock() {
            Life::Ready(_) | Life::Busy | Life::Running(_) => false,
            Life::Stopped(_) | Life::Joining | Life::Over => true,
        }
    }

    /// Asks the informer to end, and returns at once: no further call of a handler begins, what waits is dropped (SI-5).
    ///
    /// From any thread, a handler's own included. Waits for its content to sync end with an error; what is in the store
    /// stays readable (SI-4). Stopping twice does nothing.
    pub fn stop(&self) {
        let mut life = self.life.lock();
        let taken = loop {
            match &*life {
                Life::Busy => {
                    life = self.clock.wait_until(&self.life, life, Deadline::NEVER);
                }
                Life::Ready(_) | Life::Running(_) => {
                    break std::mem::replace(&mut *life, Life::Busy);
                }
                Life::Stopped(_) | Life::Joining | Life::Over => return,
            }
        };
        drop(life);
        let life = match taken {
            Life::Running(threads) => {
                threads.stop();
                self.queue.close();
                Life::Stopped(threads)
            }
            other @ (Life::Ready(_)
            | Life::Busy
            | Life::Stopped(_)
            | Life::Joining
            | Life::Over) => {
                // What was never started ends by being dropped.
                drop(other);
                Life::Over
            }
        };
        self.processor.end();
        *self.life.lock() = life;
        self.life.notify_all();
    }

    /// Stops the informer and waits for the end of its threads: the reflector and the queue first, then the handlers (SI-5).
    ///
    /// The first two end within milliseconds of whatever they are blocked in, a transform or an index function of yours
    /// excepted. Blocks on calls of handlers at most until `deadline`; a handler on whose thread this is called is not
    /// waited for.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the handlers whose call still runs; their threads end when it returns.
    pub fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.stop();
        self.join(deadline)?;
        self.processor.stop(deadline)
    }

    /// Whether it was neither started nor stopped.
    pub(in crate::informer) fn is_ready_to_start(&self) -> bool {
        matches!(&*self.life.lock(), Life::Ready(_))
    }

    /// Ends it as dropping it would, for an owner that is dropped while others hold it still.
    pub(in crate::informer) fn end(&self) {
        drop(self.shutdown(Deadline::NEVER));
    }

    fn join(&self, deadline: Deadline) -> Result<(), Error> {
        if let Some(threads) = self.take_threads() {
            drop(threads);
            *self.life.lock() = Life::Over;
            self.life.notify_all();
            return Ok(());
        }
        let mut life = self.life.lock();
        while !matches!(&*life, Life::Over) {
            if self.clock.has_passed(deadline) {
                let text = format!(
                    "timed out waiting for informer {}, which somebody else stops",
                    self.name
                );
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            life = self.clock.wait_until(&self.life, life, deadline);
        }
        Ok(())
    }

    fn take_threads(&self) -> Option<Threads> {
        let mut life = self.life.lock();
        match std::mem::replace(&mut *life, Life::Joining) {
            Life::Stopped(threads) => Some(threads),
            other @ (Life::Ready(_)
            | Life::Busy
            | Life::Running(_)
            | Life::Joining
            | Life::Over) => {
                *life = other;
                None
            }
        }
    }
}

impl<K: Object> Drop for SharedInformer<K> {
    fn drop(&mut self) {
        self.stop();
        drop(self.take_threads());
    }
}

impl<K: Object> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.name)
            .field("store", &self.store)
            .field("queued", &self.queued())
            .field("stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}

/// `pods`, `deployments.apps`.
pub(in crate::informer) fn plural<K: Object>() -> String {
    if K::GROUP.is_empty() {
        K::URL_PATH_SEGMENT.to_owned()
    } else {
        format!("{}.{}", K::URL_PATH_SEGMENT, K::GROUP)
    }
}
