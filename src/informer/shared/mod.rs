//! The shared informer: one reflector, one store, any number of handlers.

mod life;
mod options;
#[cfg(all(test, shuttle, feature = "testing"))]
mod schedules;
pub(crate) mod sink;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;

pub use options::InformerOptions;

use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::hooks::Hook;
use crate::informer::InformerMetric;
use crate::informer::handlers::Processor;
use crate::informer::{EventHandler, HandlerOptions, Handlers, Registration};
use crate::list_watch::ListerWatcher;
use crate::object::{Object, ObjectKey, StoredObject};
use crate::reflector::{ReflectorOptions, ReflectorStatus, Waiters};
use crate::store::{Indexers, Store};
use crate::sync::{
    Arc, Monitor, Rank,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{Task, WorkerGroup};

use sink::InformerSink;

/// One reflector and one indexed store of a collection, shared by any number of handlers.
///
/// Each handler has a thread of its own. The reflector's thread puts each event of the watch into
/// the store and into the queues of the handlers before it reads the next one. So index functions
/// and the transform must be quick: the reflector does not read the watch while one runs. A list
/// replaces the content of the store in one step. The handlers first get its deletions, then its
/// other changes in the list's order.
///
/// A program may add and remove handlers at any time. Each handler gets the present objects, then
/// every change, without a gap or a duplicate. The store is never behind a handler's notifications.
/// Readers use [`store`](Self::store) and its listers; that never blocks on the network. The store
/// decides whether an object is new to the handlers, not the type of the server's event.
///
/// The store sets an undecodable object aside. Handlers get no notification of that, and keep the
/// last state that decoded. The next state that decodes comes as an update, and the object's end as
/// a delete.
///
/// An informer does nothing until [`start`](Self::start), runs until [`stop`](Self::stop) and
/// cannot be started again. Dropping it stops it and joins all its threads, so the drop blocks
/// while code of the program runs on them. It does not wait for threads that a
/// [`shutdown`](Self::shutdown) has named as late. All methods take `&self`, so an `Arc` can share
/// it between threads.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
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
/// let deadline = Duration::from_secs(60);
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
/// No handler can change an object that others share: the compiler refuses that. client-go can only
/// detect it at run time, with its mutation detector.
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
    name: Arc<str>,
    clock: Clock,
    store: Store<K>,
    processor: Arc<Processor<K>>,
    life: Arc<Monitor<InformerPhase<K>>>,
    /// The reflector's thread, once it is started.
    thread: WorkerGroup,
    stopped: AtomicBool,
}

/// Whether an informer was started. The thread and the stop are kept elsewhere.
enum InformerPhase<K: Object> {
    /// It was not started.
    Ready(Box<ReflectorParts<K>>, Option<Hook<InformerMetric>>),
    /// A thread is starting it, which runs code of the program.
    Starting(Task),
    /// It was started or stopped.
    Over,
}

/// The parts from which a start makes the informer's reflector.
type ReflectorParts<K> = (Arc<dyn ListerWatcher<K>>, InformerSink<K>, ReflectorOptions);

impl<K: Object> SharedInformer<K> {
    /// Makes an informer of the objects that `source` lists. It starts no thread and sends no
    /// request yet.
    pub fn new(source: Arc<dyn ListerWatcher<K>>, options: InformerOptions<K>) -> Self {
        let sync_name = match &options.name {
            Some(name) => format!("SharedInformer {} ({name})", K::resource().kind()),
            None => format!("SharedInformer {}", K::resource().kind()),
        };
        let name: Arc<str> = Arc::from(options.name.unwrap_or_else(|| K::resource().to_string()));
        let clock = options.reflector.clock.clone();
        let waiters = Waiters::new();
        let (store, writer) = Store::new(options.indexers, clock.clone());
        let store = store.of_informer(sync_name.into(), waiters.clone());
        let own = options.metrics.as_ref();
        let of_reflector = own.map(|metrics| metrics.of_part(InformerMetric::Reflector));
        let of_handlers = own.map(|metrics| metrics.of_part(InformerMetric::HandlerPanicked));
        let (period, shared) = (options.resync_period, store.clone());
        let processor = Processor::new(&*name, shared, period, clock.clone(), of_handlers);
        let sink = InformerSink::new(store.clone(), writer, &processor, options.transform);
        let reflector = ReflectorOptions {
            waiters: Some(waiters),
            metrics: of_reflector.or(options.reflector.metrics),
            ..options.reflector
        };
        let life = InformerPhase::Ready(Box::new((source, sink, reflector)), options.metrics);
        Self {
            name,
            clock,
            store,
            processor,
            life: Arc::new(Monitor::ranked(Rank::INFORMER_LIFE, life)),
            thread: WorkerGroup::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns closures of the informer's type that do nothing yet, for
    /// [`add_handler`](Self::add_handler).
    ///
    /// Like [`Handlers::new`], but the compiler already knows the closures' argument types, so that
    /// no closure has to name them.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use kubecache::informer::{InformerOptions, SharedInformer};
    /// use kubecache::object::Object as _;
    /// # use kubecache::testing::FakeSource;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use std::sync::Arc;
    ///
    /// # let source = Arc::new(FakeSource::new());
    /// let pods = SharedInformer::<Pod>::new(source, InformerOptions::default());
    /// pods.add_handler(
    ///     pods.handlers()
    ///         .on_add(|pod, _| println!("{} on {:?}", pod.key(), pod.spec))
    ///         .on_delete(|gone| println!("{} is gone", gone.key())),
    /// )?;
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn handlers(&self) -> Handlers<K> {
        Handlers::new()
    }

    /// Adds a handler with the default options, from any thread, at any time before the stop.
    ///
    /// The handler gets all present objects as its initial list, then every change. Handlers of one
    /// type are independent of each other. Starts the handler's thread and never blocks.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop: `handler … was not added to shared informer … because it has
    /// stopped already`. `Resources` when the system refuses a thread.
    #[doc(alias = "AddEventHandler")]
    pub fn add_handler<H: EventHandler<K>>(&self, handler: H) -> Result<Registration, Error> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with its own options: a name, a bound of its queue, a resync period.
    ///
    /// # Errors
    ///
    /// As [`add_handler`](Self::add_handler).
    #[doc(alias("AddEventHandlerWithOptions", "AddEventHandlerWithResyncPeriod"))]
    pub fn add_handler_with<H: EventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        self.processor.register(handler, options)
    }

    /// Returns the handlers that have not been removed, oldest first.
    ///
    /// Empty once the informer has stopped. For a handler's final counts, keep the [`Registration`]
    /// that [`add_handler`](Self::add_handler) returned.
    pub fn registrations(&self) -> Vec<Registration> {
        self.processor.registrations()
    }

    /// The handlers, for a world that calls them itself.
    #[cfg(feature = "testing")]
    pub(crate) fn processor(&self) -> &Arc<Processor<K>> {
        &self.processor
    }

    /// Returns the informer's content, for reads, listers and indices. It stays readable after the
    /// stop.
    #[doc(alias("GetIndexer", "GetStore"))]
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Adds indices, before the start or while the informer runs. They cover the store's present
    /// objects at once.
    ///
    /// # Errors
    ///
    /// `Config` when an index of that name exists; nothing changes then. `Stopped` after the stop:
    /// `indexer was not added because it has stopped already`.
    pub fn add_indexers(&self, indexers: &Indexers<K>) -> Result<(), Error> {
        if self.is_stopped() {
            let text = "indexer was not added because it has stopped already";
            return Err(Error::new(ErrorKind::Stopped, text));
        }
        self.store.add_indexers(indexers)
    }

    /// Whether the first list is in the store. The handlers may not have seen it yet.
    pub fn has_synced(&self) -> bool {
        self.store.has_synced()
    }

    /// Blocks until the first list is in the store, at most until `deadline`.
    ///
    /// The wait also ends when the informer stops. It ends when the server refuses the resource or
    /// does not know it, after a grace of three seconds. During the wait, a first list that fails
    /// is retried fast. [`Registration::wait_until_synced`] waits for a handler.
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and the time of the first.
    /// `Config` at the deadline if the informer was not started. `Forbidden` or `NotFound` for the
    /// server's refusal. `Stopped` when the informer has stopped.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let waited = self.store.wait_until_synced(deadline);
        waited.map_err(|error| self.or_not_started(error))
    }

    /// The error of a wait, unless the reason is that `start` was not called.
    fn or_not_started(&self, error: Error) -> Error {
        if self.is_ready_to_start() {
            return self.not_started();
        }
        error
    }

    pub(in crate::informer) fn not_started(&self) -> Error {
        Error::config(format!("informer {} was not started", self.name()))
    }

    /// Blocks until `predicate` holds for the object with `key`, at most until `deadline`, as
    /// [`Store::wait_until`] does. Sends no request of its own.
    ///
    /// # Errors
    ///
    /// As [`Store::wait_until`]. `Config` at the deadline if the informer was not started.
    /// `Stopped` when the informer has stopped, with the cause if it was not asked to.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use kubecache::informer::{InformerOptions, SharedInformer};
    /// # use kubecache::object::ObjectKey;
    /// # use kubecache::testing::FakeSource;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # let source = FakeSource::<Pod>::new();
    /// # let pod = serde_json::json!({
    /// #     "metadata": { "namespace": "shop", "name": "web" }, "status": { "phase": "Running" },
    /// # });
    /// # source.set(serde_json::from_value(pod)?);
    /// # let pods = SharedInformer::new(Arc::new(source), InformerOptions::default());
    /// # pods.start()?;
    /// let runs = |pod: Option<&Pod>| {
    ///     let status = pod.and_then(|pod| pod.status.as_ref());
    ///     status.and_then(|status| status.phase.as_deref()) == Some("Running")
    /// };
    /// let web = ObjectKey::new("shop", "web");
    /// assert!(pods.wait_until(&web, runs, Duration::from_secs(10))?.is_some());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until(
        &self,
        key: &ObjectKey,
        predicate: impl FnMut(Option<&K>) -> bool,
        deadline: impl IntoDeadline,
    ) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let waited = self.store.wait_until(key, predicate, deadline);
        waited.map_err(|error| self.or_not_started(error))
    }

    /// Returns the state of the informer's reflector. Never blocks on the network.
    pub fn status(&self) -> ReflectorStatus {
        self.store.status()
    }

    /// Whether the server keeps confirming the content, for a health check. Never blocks.
    ///
    /// It fails ten seconds after the first of several failures in a row, whatever the cause, until
    /// a watch serves. It fails within the idle limit when the server is silent
    /// ([`ReflectorStatus::health`] has the rules). It does not fail when the server only has no
    /// news, or when the informer was not started or was stopped.
    ///
    /// # Errors
    ///
    /// The kind of the last failure, or `Timeout` with the time since the last contact. The text
    /// has the informer's name and the last failure with the server's words. The error has the
    /// number of attempts and the time of the first. `Panicked` if a panic ended the informer.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubecache::clock::{Clock, FakeClock};
    /// # use kubecache::informer::{InformerOptions, SharedInformer};
    /// # use kubecache::object::Status;
    /// # use kubecache::reflector::ReflectorOptions;
    /// # use kubecache::testing::{FakeSource, RequestKind};
    /// # use kubecache::{Error, ErrorKind};
    /// # let time = FakeClock::new();
    /// # let reflector = ReflectorOptions::default().clock(Clock::from(time.clone()));
    /// # let options = InformerOptions::default().reflector(reflector);
    /// # let source = FakeSource::<ConfigMap>::new();
    /// let refused = Status::new(403, "configmaps is forbidden: no rule allows \"watch\"");
    /// source.fail_all(RequestKind::Watch, Error::from_status(refused));
    /// let informer = SharedInformer::new(Arc::new(source), options);
    /// informer.start()?;
    /// # while informer.health().is_ok() {
    /// #     let ahead = time.wait_for_next_timer();
    /// #     time.advance(ahead);
    /// # }
    /// // Ten seconds and three attempts later:
    /// let error = informer.health().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Forbidden);
    /// assert!(error.to_string().starts_with("configmaps: no watch serves; "));
    /// assert!(error.to_string().ends_with("no rule allows \"watch\""));
    /// assert!(error.attempts() >= 3);
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn health(&self) -> Result<(), Error> {
        let health = self.store.health();
        health.map_err(|error| error.context(&self.name))
    }

    /// Returns the informer's name in errors of waits: `SharedInformer ConfigMap`, followed by the
    /// name from its options, if any.
    #[doc(alias = "HasSyncedChecker")]
    pub fn sync_name(&self) -> String {
        self.store.name().into_owned()
    }

    /// Returns the informer's name in logs and errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the informer has stopped. A stopped informer never runs again.
    ///
    /// An informer also stops when its thread panics. Then [`status`](Self::status) and waits have
    /// the cause.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.store.has_ended()
    }
}

impl<K: Object> Drop for SharedInformer<K> {
    fn drop(&mut self) {
        self.close();
    }
}

debug_of!([K: Object] SharedInformer<K>, |it|
    name: it.name, store: it.store, stopped: it.is_stopped(), ..);
