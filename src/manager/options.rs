//! The options of a manager, each with its unit, default and reason.

use std::time::Duration;

use super::change_detection::ChangeDetection;
use super::metrics::ManagerMetric;
use super::node_ttl::NodeTtl;
use crate::clock::Clock;
use crate::hooks::Hook;
use crate::reflector::{FailedAttempt, ReflectorOptions};
use crate::setters::setters;

/// The kubelet's wait for an object that is not there yet.
const WATCH_GET_TIMEOUT: Duration = Duration::from_secs(1);
/// Leaves time for a request to a slow server. The kubelet waits for as long as its client does.
const REQUEST_GET_TIMEOUT: Duration = Duration::from_secs(10);
/// The kubelet's time to live where the node has none.
const TTL: Duration = Duration::from_secs(60);
/// Five times the kubelet's default sync period.
const IDLE_MAX: Duration = Duration::from_secs(5 * 60);
/// The least the kubelet allows.
const IDLE_MAX_LEAST: Duration = Duration::from_secs(60);
/// Thousands of watches on a node are a burden to the server before they are one to the node.
const WATCHES_MAX: usize = 1_000;
/// The kubelet's least watch time-out for single objects; the server draws up to twice this.
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(30 * 60);

/// The scope of the watches that a manager with the strategy `Watch` opens.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::manager::{ManagerOptions, Owner, SecretManager, WatchScope};
/// use kubecache::object::ObjectKey;
/// use kubecache::testing::{FakeSource, objects};
/// use std::time::Duration;
///
/// // The cluster. In a program, an `http::Client` stands in its place.
/// let server = FakeSource::<Secret>::new();
/// let options = ManagerOptions::default().watch_scope(WatchScope::Namespace { above: 2 });
/// let secrets = SecretManager::new(server.clone(), options)?;
///
/// let shop = Owner::new("Shop", ObjectKey::new("shop", "till"));
/// let by = Duration::from_secs(10);
/// for number in 0..20 {
///     let name = format!("key-{number}");
///     server.set(objects::secret("shop", &name, "", &[("password", "...")]));
///     secrets.add_reference(&shop, &ObjectKey::new("shop", name.as_str()));
///     secrets.get_by("shop", &name, by)?; // never waits for the namespace's watch
/// }
/// // The watches by name have handed the objects over.
/// server.wait_for_watches(1);
/// assert_eq!(secrets.namespace_reports()[0].namespace, "shop");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchScope {
    /// One watch per object. The identity needs no more than the objects by name, as the kubelet's.
    #[default]
    ByName,
    /// One watch per namespace in which more objects than `above` are watched, and one per object
    /// in the others. The identity needs the objects by name, and to list and watch the namespace.
    ///
    /// The manager asks by trying. Where the server refuses the namespace, its objects are watched
    /// by name, and [`namespace_reports`](crate::manager::ObjectManager::namespace_reports) has the
    /// reason; five minutes later the manager tries again. With half as many objects as `above` or
    /// fewer, they are watched by name again.
    ///
    /// All objects of the namespace cross the wire, once with each list and at each change. Those
    /// without a reference are neither decoded nor kept.
    ///
    /// An object that is new to the manager is listed by name first. So a read of it never waits
    /// for the namespace's watch, nor takes an older state from it. That watch takes the object
    /// over once it misses no change of it. On the way back, each object is read from the
    /// namespace's watch until its own has listed it. A list that exceeds a limit of
    /// [`DecodeOptions`](crate::http::DecodeOptions) counts as a refusal. Any other failure counts
    /// for each object: reads return it with that error and its age, and
    /// [`health`](crate::manager::ObjectManager::health) fails.
    Namespace {
        /// The most objects of a namespace that are watched by name.
        above: usize,
    },
}

/// The treatment of an object for whose watch there is no room.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::manager::{ManagerOptions, Owner, PastLimit, SecretManager};
/// use kubecache::object::ObjectKey;
/// use kubecache::testing::{FakeSource, objects};
/// use std::time::Duration;
///
/// // The cluster. In a program, an `http::Client` stands in its place.
/// let server = FakeSource::<Secret>::new();
/// let options = ManagerOptions::default().watches_max(3).past_limit(PastLimit::Poll);
/// let secrets = SecretManager::new(server.clone(), options)?;
///
/// let shop = Owner::new("Shop", ObjectKey::new("shop", "till"));
/// let by = Duration::from_secs(10);
/// for name in ["a", "b", "c", "d"] {
///     server.set(objects::secret("shop", name, "", &[("password", "...")]));
///     secrets.add_reference(&shop, &ObjectKey::new("shop", name));
/// }
/// assert!(!secrets.get_by("shop", "a", by)?.is_polled()); // it has one of the two watches
/// assert!(secrets.get_by("shop", "d", by)?.is_polled());
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PastLimit {
    /// Reads of the object fail with `TooManyReflectors` until another watch has ended.
    #[default]
    Fail,
    /// The object is polled: all such objects are got one after the other over one connection, each
    /// twice in its time to live. While a get is slow, up to four are under way, each over a
    /// connection of its own. The time to live is the
    /// [`node_ttl`](ManagerOptions::node_ttl), else the [`ttl`](ManagerOptions::ttl), and at least
    /// a second. A new value holds from each object's next poll on.
    ///
    /// - The poller takes the place of one watch of
    ///   [`watches_max`](ManagerOptions::watches_max), with or without polled objects.
    /// - A read is answered from memory until the time to live is over. Then it waits for the poll,
    ///   until its deadline. Past the deadline, or once a poll has failed, it gets the
    ///   [stale](crate::manager::Cached::is_stale) object with the failure.
    /// - A poll may take a quarter of the time to live, from one to ten seconds. Polls of other
    ///   objects wait 200 ms for it. An object whose poll failed is polled after the others.
    /// - The objects that are read most have the watches. Each minute the manager counts which
    ///   objects were read since the minute before. An object gets the watch of one that was read
    ///   less than half as often in the last sixteen. A change between watch and poll loses no
    ///   answer: the one ends when the other has brought the object.
    /// - Subscribers hear of a change with the poll that finds it. Immutable objects are polled
    ///   once.
    /// - With [`WatchScope::Namespace`], the watch of a namespace counts as one, and begins only if
    ///   there is room. Polled objects do not count towards its `above`, but it takes them over: so
    ///   `above` should be well below the limit.
    Poll,
}

/// Options of a manager. Start from the default and set the ones that differ.
///
/// # Examples
///
/// ```
/// use kubecache::manager::ManagerOptions;
/// use std::time::Duration;
///
/// let slow_link = ManagerOptions::default().get_timeout(Duration::from_secs(10));
/// # drop(slow_link);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a manager is made with them"]
#[non_exhaustive]
pub struct ManagerOptions {
    /// The options of each watch, with the clock and the error hook of the whole manager.
    pub(crate) reflector: ReflectorOptions,
    pub(crate) change_detection: ChangeDetection,
    pub(crate) watch_scope: WatchScope,
    pub(crate) get_timeout: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) node_ttl: NodeTtl,
    pub(crate) invalidate_on_update: bool,
    pub(crate) idle_max: Duration,
    pub(crate) watches_max: usize,
    pub(crate) past_limit: PastLimit,
    pub(crate) recheck_immutable: bool,
    pub(crate) metrics: Option<Hook<ManagerMetric>>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            reflector: ReflectorOptions {
                watch_timeout_min: WATCH_TIMEOUT_MIN,
                ..ReflectorOptions::default()
            },
            change_detection: ChangeDetection::default(),
            watch_scope: WatchScope::default(),
            get_timeout: None,
            ttl: TTL,
            node_ttl: NodeTtl::new(),
            invalidate_on_update: false,
            idle_max: IDLE_MAX,
            watches_max: WATCHES_MAX,
            past_limit: PastLimit::default(),
            recheck_immutable: true,
            metrics: None,
        }
    }
}

setters! { [] ManagerOptions;
    /// How the manager learns of changes. Default: [`Watch`](ChangeDetection::Watch), as the
    /// kubelet's.
    change_detection(mode: ChangeDetection);

    /// With `Watch`: whether the objects of a namespace may have one watch together. Default:
    /// [`ByName`](WatchScope::ByName), one watch per object.
    watch_scope(scope: WatchScope);

    /// How long a plain get waits. Default: 1 s with `Watch`, as the kubelet's; 5 to 10 s suit slow
    /// links. With `Cache` and `Get`, where a get waits for the answer to a request, 10 s.
    get_timeout(timeout: Duration) = Some(timeout);

    /// With `Cache`, and for [polled](PastLimit::Poll) objects: how long a fetched object is served
    /// without another request, unless [`node_ttl`](Self::node_ttl) has a value. Default: 1 minute.
    /// With `Cache` and zero each read fetches.
    ttl(ttl: Duration);

    /// With `Cache`, and for [polled](PastLimit::Poll) objects: the time to live that the cluster
    /// gives this node. While it has a value, it takes precedence over [`ttl`](Self::ttl). With
    /// `Cache` each read looks at it. Default: none.
    node_ttl(ttl: NodeTtl);

    /// With `Cache`: whether registering a pod again drops all its objects from the cache, as
    /// kubelets before 1.29 did. Then an update of the pod brings fresh objects. Default: false,
    /// which drops only the objects that the pod did not name before.
    invalidate_on_update(invalidate: bool);

    /// With `Watch`: how long an object may stay unread before its watch is stopped. Default: 5
    /// minutes; at least 1 minute.
    idle_max(idle: Duration) = idle.max(IDLE_MAX_LEAST);

    /// The most watches of this manager at a time, by name and of namespaces. With
    /// [`PastLimit::Poll`] the poller takes the place of one. Default: 1,000. The limits of the
    /// process apply as well. [`past_limit`](Self::past_limit) covers the objects beyond.
    watches_max(watches: usize);

    /// With `Watch`: the treatment of an object for whose watch there is no room. Default:
    /// [`Fail`](PastLimit::Fail), reads of it fail.
    past_limit(past_limit: PastLimit);

    /// With `Watch`: whether a new reference to an immutable object whose watch is stopped makes
    /// the manager check once that the server still has it. Default: true; the kubelet does not
    /// check.
    recheck_immutable(recheck: bool);

    /// The clock of all times and deadlines. Default: the system's.
    clock(clock: Clock) in reflector.clock;

    /// The least time after which each watch asks the server to end it; the most is twice this. The
    /// time is random between the two. Default: 30 minutes; at least 5 minutes.
    watch_timeout_min(timeout: Duration) in reflector.watch_timeout_min;

    /// How long a watch may be silent before it is opened again and
    /// [`health`](crate::manager::ObjectManager::health) fails. A watch is opened again only if the
    /// server has sent a bookmark on a watch of this kind.
    ///
    /// Default: that of
    /// [`ReflectorOptions::idle_limit`](crate::reflector::ReflectorOptions::idle_limit), 130 s.
    /// Servers send a bookmark about once a minute. If three times the longest time between two
    /// bookmarks is more than this limit, that time is the limit.
    idle_limit(limit: Duration) in reflector.idle_limit;

    /// Calls `hook` for each failed list or watch, and with `Cache` for each failed get. It gets
    /// the request, the cause, and the attempts so far. Default: no hook.
    ///
    /// With `Watch` the thread of the object's watch calls it, as
    /// [`ReflectorOptions::on_error`](crate::reflector::ReflectorOptions::on_error) says, or the
    /// poller's; with `Cache` the reader that sent the get. The hook must not block: the watch, all
    /// polls or the reader wait for it. A panic of it is logged. With `Get` each reader has its own
    /// error, and the hook is not called.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kubecache::manager::{ManagerOptions, Owner, SecretManager};
    /// use kubecache::object::{ObjectKey, Status};
    /// use kubecache::testing::{FakeSource, RequestKind};
    /// use kubecache::{Error, ErrorKind};
    ///
    /// let server = FakeSource::<Secret>::new();
    /// let forbidden = Status::new(403, "secrets \"db\" is forbidden");
    /// server.fail_all(RequestKind::List, Error::from_status(forbidden));
    ///
    /// let (send, failures) = std::sync::mpsc::channel();
    /// let options = ManagerOptions::default().on_error(move |failed| {
    ///     eprintln!("{}: attempt {}: {}", failed.what, failed.attempts, failed.error);
    ///     drop(send.send(failed.error.kind()));
    /// });
    /// let secrets = SecretManager::new(server, options)?;
    /// let shop = Owner::new("Shop", ObjectKey::new("shop", "till"));
    /// secrets.add_reference(&shop, &ObjectKey::new("shop", "db"));
    /// assert_eq!(failures.recv(), Ok(ErrorKind::Forbidden));
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    on_error(hook: impl Fn(&FailedAttempt) + Send + Sync + 'static)
        in reflector.on_error = Some(Hook::new(hook));
}

impl ManagerOptions {
    /// Calls the hook for each read, and for the lists and watches of the manager's reflectors.
    /// Default: none, which costs nothing. The manager drops the hook when it is dropped.
    pub fn metrics(mut self, metrics: Hook<ManagerMetric>) -> Self {
        self.reflector.metrics = Some(metrics.of_part(ManagerMetric::Reflector));
        self.metrics = Some(metrics);
        self
    }

    /// The wait of a plain get.
    pub(crate) fn get_limit(&self) -> Duration {
        self.get_timeout.unwrap_or(match self.change_detection {
            ChangeDetection::Watch => WATCH_GET_TIMEOUT,
            ChangeDetection::Cache | ChangeDetection::Get => REQUEST_GET_TIMEOUT,
        })
    }

    /// The time to live in force.
    pub(crate) fn ttl_now(&self) -> Duration {
        self.node_ttl.get().unwrap_or(self.ttl)
    }
}
