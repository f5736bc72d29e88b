//! The manager: owners reference objects, and the chosen strategy answers reads.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

use super::cached::Cached;
use super::change_detection::ChangeDetection;
use super::changes::Changes;
use super::kinds::{KindTraits, cache_name};
use super::metrics::{ManagerMetric, ManagerState};
use super::options::ManagerOptions;
use super::pod_references::ReferencedByPods;
use super::references::{Owner, ReferenceChange};
use super::report::{NamespaceReport, ObjectReport};
use super::strategy::{ReferencedObjects, Strategy};
use super::ttl::store::TtlStore;
use super::watch::store::WatchStore;
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind, clone_of, debug_of};
use crate::guard::guard;
use crate::hooks::Telemetry;
use crate::list_watch::Api;
use crate::manager::registry::Registry;
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Keeps the Secrets that pods and other owners reference.
#[doc(alias = "secret.Manager")]
pub type SecretManager = ObjectManager<Secret>;

/// Keeps the ConfigMaps that pods and other owners reference.
#[doc(alias = "configmap.Manager")]
pub type ConfigMapManager = ObjectManager<ConfigMap>;

/// Reads the objects of one kind that owners reference. Its options select a strategy: a watch of
/// each object, a cache with a time to live, or a fetch for each read. [The module](super) compares
/// the strategies. An [owner](crate::manual::owners) is a pod or any other user of objects. The
/// namespace of cluster-scoped objects, such as a `ClusterTrustBundle`, is empty.
///
/// A clone is cheap, and clones are the same manager: give one to each thread and handler that uses
/// it. [`stop`](Self::stop) and [`shutdown`](Self::shutdown) end all of them.
///
/// The drop of the last clone stops and joins every thread of the manager, in milliseconds, except
/// those that a shutdown has named as late. Any thread may drop it. If that is one of the manager's
/// own, such as the thread of a hook, this thread ends detached when the program's code returns.
/// The log says so. A clone in the manager's own [`Api`] or hooks keeps the manager alive for ever.
pub struct ObjectManager<K: Object>(Arc<ManagerInner<K>>);

/// The one manager of all clones. Its fields drop in this order: the threads end first.
struct ManagerInner<K: Object> {
    strategy: Box<dyn Strategy<K>>,
    entries: Arc<dyn ReferencedObjects>,
    telemetry: Telemetry<ManagerMetric, ManagerState>,
}

clone_of!([K: Object] ObjectManager<K>: 0);

debug_of!([K: Object] ObjectManager<K>, |it|
    kind: K::resource().kind(), objects: it.0.entries.state().objects, ..);

impl<K: Object + Clone> ObjectManager<K> {
    /// Makes a manager without owners. Sends no request. With `Watch` it starts the housekeeper's
    /// thread; with `Cache` and `Get` it starts no thread.
    ///
    /// # Errors
    ///
    /// - `Resources`: the system has no thread to give.
    /// - `Panicked`: `api` panicked while it made its getter, or the hook of
    ///   [`ManagerOptions::metrics`] did.
    /// - The error of the ready-made metrics, if they refuse a manager of this kind and strategy.
    pub fn new(api: impl Api<K> + 'static, options: ManagerOptions) -> Result<Self, Error> {
        Self::of_kind(KindTraits::default(), api, options)
    }

    /// Makes a manager as [`new`](Self::new) does, with the traits of the program's own kind.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn of_kind(
        kind: KindTraits<K>,
        api: impl Api<K> + 'static,
        options: ManagerOptions,
    ) -> Result<Self, Error> {
        let resource = K::resource();
        let api: Arc<dyn Api<K>> = Arc::new(api);
        let getter = guard(format_args!("the Api's getter for {resource}"), || {
            api.getter()
        })?;
        let strategy: Box<dyn Strategy<K>> = match options.change_detection {
            ChangeDetection::Watch => {
                let registry = Registry::new(kind, getter, options);
                Box::new(WatchStore::new(Box::new(api), registry)?)
            }
            ChangeDetection::Cache | ChangeDetection::Get => {
                Box::new(TtlStore::new(Registry::new(kind, getter, options)))
            }
        };
        Self::over(strategy)
    }
}

impl<K: Object> ObjectManager<K> {
    fn clock(&self) -> &Clock {
        &self.0.entries.options().reflector.clock
    }

    /// Tells the metrics hook how a read ended. Without a hook it looks at no clock.
    fn measured(
        &self,
        read: impl FnOnce() -> Result<Cached<K>, Error>,
    ) -> Result<Cached<K>, Error> {
        self.0.telemetry.time(read, |took, result| {
            let failure = result.as_ref().err().cloned();
            ManagerMetric::Read { took, failure }
        })
    }

    /// The address of the content, which all clones of a manager share.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn over(strategy: Box<dyn Strategy<K>>) -> Result<Self, Error> {
        let entries = strategy.entries();
        let options = entries.options();
        let change_detection = options.change_detection;
        let started = |reading| ManagerMetric::Started {
            kind: K::resource().kind_name(),
            change_detection,
            reading,
        };
        let (hook, clock) = (options.metrics.clone(), &options.reflector.clock);
        let look = Box::new(counter(&*strategy));
        let telemetry = Telemetry::start(hook, &cache_name::<K>(), clock, look, started)?;
        Ok(Self(Arc::new(ManagerInner {
            strategy,
            entries,
            telemetry,
        })))
    }

    /// The entries, if the strategy keeps objects.
    #[cfg(feature = "snapshot")]
    pub(crate) fn kept_objects(&self) -> Option<Arc<dyn super::strategy::KeptObjects<K>>> {
        self.0.strategy.kept_objects()
    }

    /// The store, for tests that take a fresh read apart.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &WatchStore<K> {
        self.0.strategy.watch_store().unwrap()
    }

    /// Adds one reference of `owner` to the object. References are counted: each needs its own
    /// [`remove_reference`](Self::remove_reference).
    ///
    /// With `Watch`, the first reference of any owner starts a watch of the object. With `Cache`,
    /// each added reference makes the next read fetch the object anew.
    ///
    /// Sends no request, never blocks on one and never fails. If the watch cannot start, reads of
    /// the object return why.
    pub fn add_reference(&self, owner: &Owner, key: &ObjectKey) {
        let change = ReferenceChange::Add(key.clone());
        self.0.strategy.change_references(owner, change);
    }

    /// Removes one reference of `owner` to the object; does nothing if `owner` has none.
    ///
    /// With the last reference of all owners, the manager drops the object and stops its watch.
    /// Never blocks: the housekeeper joins the thread of the watch.
    pub fn remove_reference(&self, owner: &Owner, key: &ObjectKey) {
        let change = ReferenceChange::Remove(key.clone());
        self.0.strategy.change_references(owner, change);
    }

    /// Makes `owner` reference exactly the objects of `keys`, each once. Adds the new references
    /// first, then removes all others, however often they were added. Without keys, the manager
    /// forgets the owner.
    ///
    /// With `Cache`, the next read fetches each object that the owner did not reference before.
    /// With [`ManagerOptions::invalidate_on_update`] it fetches each object of `keys`. Never blocks
    /// and never fails, as [`add_reference`](Self::add_reference).
    pub fn set_references(&self, owner: &Owner, keys: impl IntoIterator<Item = ObjectKey>) {
        let change = ReferenceChange::Set(keys.into_iter().collect());
        self.0.strategy.change_references(owner, change);
    }

    /// Returns the object: from memory if the answer there is current, else after a wait of at most
    /// [`ManagerOptions::get_timeout`].
    ///
    /// # Errors
    ///
    /// As [`get_by`](Self::get_by).
    #[doc(alias = "GetSecret")]
    #[doc(alias = "GetConfigMap")]
    pub fn get(&self, namespace: &str, name: &str) -> Result<Cached<K>, Error> {
        self.measured(|| {
            self.0.strategy.get(namespace, name, &|| {
                let options = self.0.entries.options();
                options.reflector.clock.after(options.get_limit())
            })
        })
    }

    /// Returns the object: from memory if the answer there is current, else after a wait until
    /// `deadline` at the latest. An answer in memory is returned even if the deadline has passed.
    ///
    /// - `Watch`: the read waits while the object's first list is under way, and has a list that
    ///   failed retried fast. A new reference to an immutable object is checked once at the server.
    ///   Reads wait at most a second for that, then return the old copy, marked stale.
    /// - `Cache`: the first reader of an object that is not fresh fetches it on its own thread.
    ///   Other readers wait for the same answer, each until its own deadline. If the fetch fails,
    ///   or is not sent because others failed just before, they get the cached object, marked
    ///   stale, with the failure.
    /// - `Get`: one consistent read on the caller's thread.
    ///
    /// # Errors
    ///
    /// - `NotRegistered`: no owner references the object. Not an error of the API. Not with `Get`.
    /// - `NotFound`: the server has no such object.
    /// - `Forbidden`: the server refuses the object; with `Watch` once it has for three seconds.
    /// - `Undecodable`: the object is there but is not a `K`. [`get_cached`](Self::get_cached) has
    ///   the last good copy.
    /// - `TooManyReflectors`, `Resources`: with `Watch`, there is no room for the object's watch.
    ///   The manager tries again by itself.
    /// - `NotSynced`: with `Watch` and `Cache`, no answer until the deadline. It has the last
    ///   failure, the attempts, and since when.
    /// - `Timeout`: with `Get`, the same.
    /// - Other errors of the server or the transport: with `Cache` where nothing is cached, and
    ///   with `Get`.
    /// - `Panicked`: the program's [`Api`] or its getter did; with `Watch`, that of the object's
    ///   watch.
    /// - `Stopped`: the manager was stopped.
    pub fn get_by(
        &self,
        namespace: &str,
        name: &str,
        deadline: impl IntoDeadline,
    ) -> Result<Cached<K>, Error> {
        let deadline = || deadline.into_deadline(self.clock());
        self.measured(|| self.0.strategy.get(namespace, name, &deadline))
    }

    /// Returns the object that is in memory, whatever its age, or `None` if there is none. With
    /// `Get` there never is one. Sends no request and never blocks on one.
    ///
    /// If the object no longer decodes, this is the last good copy, with the failure.
    ///
    /// # Errors
    ///
    /// `NotRegistered`; not with `Get`.
    pub fn get_cached(&self, namespace: &str, name: &str) -> Result<Option<Cached<K>>, Error> {
        self.0.strategy.get_cached(namespace, name)
    }

    /// Asks the server for the object and returns its most recent state. If the watch or another
    /// read brings a newer state meanwhile, returns that one. Does not wait for the backoff of
    /// other reads.
    ///
    /// Later cached reads do not go back behind an object it returned. If it found the object in
    /// memory gone, they do not return that one again. With `Cache` the answer is kept as if a
    /// plain read had fetched it. A server whose history was put back is followed.
    ///
    /// With `Watch`, `NotFound` has no version. The watch may still deliver another object that was
    /// made and deleted before it. Of an immutable object whose watch is stopped, the read is the
    /// check: if it is gone, or another one, the watch starts again.
    ///
    /// Blocks on the network until the answer, `deadline`, or a limit of the transport.
    ///
    /// # Errors
    ///
    /// - `NotRegistered`: no owner references the object; not with `Get`.
    /// - The error of the server (`NotFound` included) or of the transport.
    /// - `Timeout`: no answer by `deadline`. The error names the request and the time it took.
    /// - `NotFound`, `Undecodable`: a newer answer than the read's own came in meanwhile.
    /// - `Stopped`: the manager was stopped.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubecache::clock::Deadline;
    /// use kubecache::manager::{ChangeDetection, ConfigMapManager, ManagerOptions};
    /// use kubecache::testing::{FakeSource, objects};
    ///
    /// let server = FakeSource::<ConfigMap>::new();
    /// let options = ManagerOptions::default().change_detection(ChangeDetection::Cache);
    /// let manager = ConfigMapManager::new(server.clone(), options)?;
    /// manager.register_pod(&objects::pod("shop", "till", "node", &[], &["settings"]));
    /// server.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
    /// assert_eq!(manager.get("shop", "settings")?.data.as_ref().unwrap()["tax"], "7");
    ///
    /// // Fresh for a minute, so a plain read does not see the change. A fresh one does.
    /// server.set(objects::config_map("shop", "settings", "", &[("tax", "19")]));
    /// assert_eq!(manager.get("shop", "settings")?.data.as_ref().unwrap()["tax"], "7");
    /// let fresh = manager.get_fresh("shop", "settings", Deadline::NEVER)?;
    /// assert_eq!(fresh.data.as_ref().unwrap()["tax"], "19");
    /// assert_eq!(manager.get("shop", "settings")?.data.as_ref().unwrap()["tax"], "19");
    /// # }
    /// # Ok::<_, kubecache::Error>(())
    /// ```
    pub fn get_fresh(
        &self,
        namespace: &str,
        name: &str,
        deadline: impl IntoDeadline,
    ) -> Result<Cached<K>, Error> {
        self.get_at_least(namespace, name, &ResourceVersion::most_recent(), deadline)
    }

    /// Returns the object in a state that is not older than `version`. It is for a reader that has
    /// seen that version elsewhere, such as in the answer to a write.
    ///
    /// Memory answers at once if it is current and has come that far. Else the caller's thread asks
    /// the server. A server whose own cache is behind is asked again, after the time it names or
    /// after 50 ms, doubling to a second. A watch that comes that far ends the wait, too.
    ///
    /// Later cached reads do not go back behind the answer. Nor does the answer go back behind the
    /// known state of the object. If the server's history was put back, the read waits until
    /// another one, such as [`get_fresh`](Self::get_fresh), has followed the server.
    ///
    /// An empty version asks for the most recent state, as [`get_fresh`](Self::get_fresh); `0` for
    /// any, as [`get_by`](Self::get_by). Versions of other resources of the same server count as
    /// well.
    ///
    /// # Errors
    ///
    /// - `NotRegistered`: no owner references the object; not with `Get`.
    /// - `NotFound`: there is no such object at that version or a later one: an answer.
    /// - `Timeout`: there was no such state by `deadline`, in the server's own words if it said so
    ///   ([`Error::last_error`]).
    /// - Other errors of the server, such as that `version` is no version, or of the transport.
    /// - `Stopped`: the manager was stopped.
    pub fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: impl IntoDeadline,
    ) -> Result<Cached<K>, Error> {
        let deadline = deadline.into_deadline(self.clock());
        if version.is_unset() && !version.is_empty() {
            // Any state will do.
            return self.get_by(namespace, name, deadline);
        }
        let strategy = &self.0.strategy;
        self.measured(|| strategy.get_at_least(namespace, name, version, deadline))
    }

    /// Reports each owner with the objects that it references, sorted by namespace and name.
    /// Never blocks on the network, and does not count as a read.
    ///
    /// What a pod needs and no manager keeps is not here. See
    /// [`unkept_sources`](super::unkept_sources).
    pub fn inspect(&self) -> BTreeMap<Owner, Vec<ObjectReport>> {
        let owners = self.0.entries.owners().into_iter();
        let reports = owners.map(|(owner, keys)| {
            let objects = keys.iter().filter_map(|key| self.inspect_object(key));
            (owner, objects.collect())
        });
        reports.collect()
    }

    /// Reports one object, or `None` if no owner references it. Does not count as a read.
    pub fn inspect_object(&self, key: &ObjectKey) -> Option<ObjectReport> {
        self.0.entries.inspect(key)
    }

    /// Returns the strategy by which this manager learns of changes:
    /// [`ManagerOptions::change_detection`].
    pub fn change_detection(&self) -> ChangeDetection {
        self.0.entries.options().change_detection
    }

    /// Returns an error if the server has stopped confirming a watched object. For health checks.
    /// The rule for each watch is that of
    /// [`ReflectorStatus::health`](crate::reflector::ReflectorStatus::health).
    ///
    /// Objects without a watch are healthy: immutable and idle ones, those beyond the limit of
    /// watches, and all with `Cache` and `Get`. So is an object that the server refuses, and a
    /// manager without owners.
    ///
    /// Never blocks on the network, and does not count as a read.
    /// [`ObjectReport::is_overdue`](crate::manager::ObjectReport::is_overdue) names the objects.
    ///
    /// # Errors
    ///
    /// - `Panicked`: the manager's housekeeper panicked and has not completed a sweep since.
    /// - `Timeout`: how many objects are unhealthy, and how old the oldest confirmation of one is,
    ///   or what its first answer waits for. Its last failure is the source. The text names no
    ///   object.
    pub fn health(&self) -> Result<(), Error> {
        if let Some(failure) = self.0.strategy.housekeeping_failure() {
            return Err(failure);
        }
        let owners = self.0.entries.owners().into_values();
        let keys: BTreeSet<ObjectKey> = owners.flatten().collect();
        let reports = keys.iter().filter_map(|key| self.inspect_object(key));
        let overdue: Vec<ObjectReport> = reports.filter(|report| report.is_overdue).collect();
        let silence = |report: &ObjectReport| {
            let counts = report.attempts > 0 || report.since_contact.is_none();
            let trying_for = report.trying_for.filter(|_| counts);
            report.since_contact.max(trying_for)
        };
        let Some(worst) = overdue.iter().max_by_key(|report| silence(report)) else {
            return Ok(());
        };
        let how = match (worst.since_contact, worst.trying_for.unwrap_or_default()) {
            (Some(age), time) if age < time && worst.attempts > 0 => {
                let attempts = worst.attempts;
                format!("no watch of one has served for {time:.0?}, in {attempts} attempts")
            }
            (Some(age), _) => format!("the server last confirmed one {age:.0?} ago"),
            (None, time) => {
                // After a failure the reason has words of the server, which may name the object.
                let reason = Some(&worst.reason).filter(|_| worst.last_error.is_none());
                let phase = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                format!("the server has confirmed nothing of one for {time:.0?}{phase}")
            }
        };
        let resource = K::resource();
        let (late, all, kind) = (overdue.len(), keys.len(), resource.kind());
        let text = format!("{late} of {all} {kind}s: {how}");
        log::debug!("{text}: {}", worst.key);
        Err(Error::new(ErrorKind::Timeout, text).caused_by(worst.last_error.clone()))
    }

    /// Returns how each namespace is watched, sorted: those that have a watch of their own, and
    /// those that the server does not let have one. Empty with
    /// [`WatchScope::ByName`](crate::manager::WatchScope::ByName).
    ///
    /// Never blocks on the network.
    pub fn namespace_reports(&self) -> Vec<NamespaceReport> {
        self.0.strategy.namespace_reports()
    }

    /// Subscribes to the changes of this manager's objects, for programs that show each change as
    /// it comes.
    ///
    /// With `Watch` the changes come from the server. With `Cache` and `Get` they come from reads,
    /// and from registrations that drop a cached object. The manager never waits for a subscriber
    /// and keeps a bounded number of keys for it.
    pub fn subscribe(&self) -> Changes {
        self.0.entries.changes().subscribe()
    }

    /// Stops every watch and every request for good, and returns at once.
    /// [`shutdown`](Self::shutdown) and a drop wait for the threads.
    ///
    /// Reads that wait end, and later ones return `Stopped` at once. Reads that need no watch and
    /// no request still succeed: of immutable objects, and of those whose time to live is not over.
    pub fn stop(&self) {
        self.0.strategy.stop();
    }

    /// [Stops](Self::stop) the manager, then blocks until its threads have ended, at most until
    /// `deadline`. With `Cache` and `Get` there is no thread to wait for.
    ///
    /// The threads end within milliseconds, also if they are blocked. Code of the program
    /// ends when it returns: a call of its [`Api`], a hook. This does not wait for the thread that
    /// calls it, if that is one of the manager's. Nor does it wait for the threads of readers. It
    /// may be called again with a later deadline, and from several threads.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the threads that still run. They end when their calls return;
    /// dropping the manager does not wait for them.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kubecache::manager::{ManagerOptions, SecretManager};
    /// use kubecache::testing::FakeSource;
    /// use std::time::Duration;
    ///
    /// let secrets = SecretManager::new(FakeSource::new(), ManagerOptions::default())?;
    /// secrets.shutdown(Duration::from_secs(10))?;
    /// # }
    /// # Ok::<_, kubecache::Error>(())
    /// ```
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(self.clock());
        self.0.strategy.shutdown(deadline)
    }
}

/// Counts the objects, references and watches of a manager. Keeps no thread from ending.
pub(crate) fn counter<K: Object>(
    strategy: &dyn Strategy<K>,
) -> impl Fn() -> ManagerState + Send + Sync + use<K> {
    let (entries, shared) = (strategy.entries(), strategy.shared_watches());
    move || {
        let mut state = entries.state();
        state.watches = state.watches.saturating_add(shared.load(Ordering::Relaxed));
        state
    }
}

impl<K: ReferencedByPods> ObjectManager<K> {
    /// References exactly the objects that the pod names. It is
    /// [`set_references`](Self::set_references) with the pod as the owner. Call it when the pod is
    /// bound to the node and whenever it changes.
    pub fn register_pod(&self, pod: &Pod) {
        let is_namespaced = K::resource().is_namespaced();
        let namespace = pod.metadata.namespace.as_deref().filter(|_| is_namespaced);
        let namespace = namespace.unwrap_or_default();
        let mut keys = BTreeSet::new();
        K::visit_pod(pod, &mut |name| {
            keys.insert(ObjectKey::new(namespace, name));
            true
        });
        self.set_references(&Owner::of(pod), keys);
    }

    /// Removes all references of the pod; does nothing for an unknown pod. Call it when the pod's
    /// containers have ended and its volumes are unmounted: until then they may still read the
    /// objects.
    pub fn unregister_pod(&self, pod: &Pod) {
        self.set_references(&Owner::of(pod), []);
    }
}
