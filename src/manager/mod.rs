//! Keeps objects that owners reference, such as the Secrets of pods, and answers reads of them.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use std::time::Duration;
//!
//! use kubecache::manager::{ManagerOptions, SecretManager};
//! # use kubecache::testing::{FakeSource, objects};
//! # let api = FakeSource::new();
//! # api.set(objects::secret("shop", "db", "", &[("password", "...")]));
//! # let pod = objects::pod("shop", "web-0", "node-1", &["db"], &[]);
//!
//! // An `http::Client` is an `api`.
//! let secrets = SecretManager::new(api, ManagerOptions::default())?;
//! secrets.register_pod(&pod); // when the pod is bound to the node, and whenever it changes
//! // From memory, else after a wait that has an end.
//! let db = secrets.get_by("shop", "db", Duration::from_secs(60))?;
//! println!("{db:?} is {:?} old", db.age());
//! secrets.unregister_pod(&pod); // when its containers have ended and its volumes are unmounted
//! # }
//! # Ok::<_, kubecache::Error>(())
//! ```
//!
//! [`follow_pods`](ObjectManager::follow_pods) registers the pods of an informer. Other
//! [owners](crate::manual::owners) reference objects by
//! [`set_references`](ObjectManager::set_references).
//!
//! # Three strategies
//!
//! One option selects how a manager learns of changes: [`ManagerOptions::change_detection`], in the
//! kubelet's words. `Watch` is the default and suits most programs. Take `Cache` for a server that
//! cannot serve the watches. Take `Get` for objects that are rarely read and must never be old.
//!
//! | | `Watch` | `Cache` | `Get` |
//! |---|---|---|---|
//! | a read lags behind the server by | usually milliseconds | the time to live | nothing |
//! | requests per object | a list and a watch | a get per time to live | a get per read |
//! | memory per object | a thread, a socket, its size | its size | a report |
//! | a read without a reference | `NotRegistered` | `NotRegistered` | works |
//! | a plain [`get`](ObjectManager::get) waits | 1 s | 10 s | 10 s |
//! | that an object does not exist | is in memory | is asked for | is asked for |
//! | while the API fails, a read returns | the last state | the cached object | the failure |
//! | [`Cached::is_stale`] is true if | nothing confirms the state | its get failed | never |
//!
//! - [`Watch`](ChangeDetection::Watch): the first reference starts a watch, and the first read
//!   waits for its list. Idle objects, and immutable ones that were read, have no thread and no
//!   socket. With [`WatchScope::Namespace`] many objects of a namespace share one watch.
//! - [`Cache`](ChangeDetection::Cache): the time to live is the node's, else
//!   [`ManagerOptions::ttl`], a minute. After it, all readers of the object share one get. An added
//!   reference drops the cached object. Gets that fail back off per object.
//! - [`Get`](ChangeDetection::Get): nothing is cached, so [`get_cached`](ObjectManager::get_cached)
//!   returns `None`.
//!
//! [`get_fresh`](ObjectManager::get_fresh) and [`get_at_least`](ObjectManager::get_at_least) ask
//! the server, for readers that cannot accept the lag. They mean the same with each strategy.
//!
//! # Guarantees
//!
//! With each strategy:
//!
//! - References never touch the network, never wait for it and never fail.
//! - A read does not wait while a current answer is in memory. Such a read takes one lock, clones
//!   one pointer and allocates nothing. Every other wait has an end.
//! - An error has its cause: the server's words, the attempts, and since when.
//! - The reads of one reference never go back in time, nor behind a fresh read before them.
//!   [`Cached::age`] says how old an answer is.
//! - One slow answer delays only the readers of that object.
//! - The drop of the last clone ends and joins every thread, watch and socket, in milliseconds.
//! - No value of a Secret appears in a `Debug`, an error, a report or a log line. Its bytes are
//!   overwritten when the last holder drops them.
//!
//! Not guaranteed:
//!
//! - With `Watch`, that a deletion or re-creation of an immutable object is noticed at once. Its
//!   first read stops its watch; the next reference makes the manager check it.
//! - With `Cache`, that all objects of one owner are of one moment.
//! - That the reader is the owner that holds the reference.
//!
//! `object "ns"/"name" not registered` is not an answer of the API. It means that no owner
//! references the object in this manager: add the reference first, remove it last. Of a pod, names
//! count in its own namespace only, and only those of [`ReferencedByPods::visit_pod`].
//!
//! # Threads and cost
//!
//! With `Cache` and `Get` a manager has no thread. A request runs on the thread of its reader. With
//! `Watch` there are a thread such as `rf-secret-17` per watched object or namespace and the
//! housekeeper `hk-secret`. Checks run on threads called `ck-secret`, at most 32, and polls on four
//! called `po-secret`. The page on [threads and locks](crate::manual::threads_and_locks) says what
//! ends each.
//!
//! A watched object costs a thread, a socket and a wake-up descriptor. A referenced object has no
//! watch if it is immutable and was read, or was not read for [`ManagerOptions::idle_max`]. Nor has
//! it one if there is no room. The number of watches is limited to the least of
//! [`ManagerOptions::watches_max`], half of the descriptor limit, an eighth of
//! `vm.max_map_count` and the process limit. That is the user's, or `pids.max` at the root of the
//! cgroup mount: a container's own, but no limit deeper in the tree. Beyond it, reads of an object
//! return `TooManyReflectors` until another watch has ended; with [`PastLimit::Poll`] the object is
//! polled until then. Reflectors that a program starts itself do not count.
//!
//! [`differences`](crate::manual::differences) says where a manager differs from the kubelet's.

mod cached;
mod change_detection;
mod changes;
mod consistent_reads;
mod entry;
mod follow_pods;
pub(crate) mod kinds;
mod metrics;
mod node_ttl;
mod object_manager;
mod options;
mod pod_references;
mod references;
pub(crate) mod registry;
mod report;
mod strategy;
pub(crate) mod ttl;
pub(crate) mod watch;

/// The items of a manager that a snapshot uses.
#[cfg(feature = "snapshot")]
pub(crate) mod seeds {
    pub(crate) use super::entry::seed::{KeptObject, Seed, SeedEnd, SeedSource};
    pub(crate) use super::strategy::KeptObjects;
}

pub use cached::Cached;
pub use change_detection::ChangeDetection;
pub use changes::{Changed, Changes};
pub use follow_pods::FollowedPods;
pub use kinds::KindTraits;
pub use metrics::{ManagerMetric, ManagerState};
pub use node_ttl::NodeTtl;
pub use object_manager::{ConfigMapManager, ObjectManager, SecretManager};
pub use options::{ManagerOptions, PastLimit, WatchScope};
pub use pod_references::{
    AnyContainer, ContainerKinds, ReferencedByPods, UnkeptSource, unkept_sources, visit_containers,
};
pub use references::Owner;
pub use report::{NamespaceReport, NamespaceState, ObjectReport, ObjectState};

#[cfg(test)]
mod tests;
