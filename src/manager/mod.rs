//! Reads objects that owners reference, such as the Secrets of pods. One type watches them, caches
//! them for a time, or fetches them for each read.
//!
//! ```no_run
//! use kubecache::manager::{SecretManager, ManagerOptions};
//! # use k8s_openapi::api::core::v1::{Pod, Secret};
//! # use kubecache::list_watch::Api;
//! # fn run(api: impl Api<Secret> + 'static, pod: &Pod) -> Result<(), kubecache::Error> {
//!
//! // An `http::Client` is an `api`.
//! let secrets = SecretManager::new(api, ManagerOptions::default())?;
//! secrets.register_pod(pod); // when the pod is bound to the node, and whenever it changes
//! // From memory, else after a wait that has an end.
//! let database = secrets.get("shop", "database")?;
//! println!("{database:?} is {:?} old", database.age());
//! secrets.unregister_pod(pod); // when its containers have ended and its volumes are unmounted
//! # Ok(())
//! # }
//! ```
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
//! | threads | see [below](#threads-and-locks) | none | none |
//!
//! [`Watch`](ChangeDetection::Watch):
//!
//! - The first reference starts a watch of the object. Reads are answered from memory. The first
//!   read waits for the list. That an object does not exist is answered from memory, too.
//! - While the API fails, reads return the last state from the watch.
//! - [`Cached::is_stale`] is true unless a watch with a list, or a check of an immutable object,
//!   confirms the state.
//! - Idle objects, and immutable ones that were read, have no thread and no socket.
//!
//! - With [`WatchScope::Namespace`], a namespace with many such objects has
//!   [one watch](#one-watch-for-a-namespace) in place of one per object. Reads are the same.
//!
//! [`Cache`](ChangeDetection::Cache):
//!
//! - The time to live is the node's, else [`ManagerOptions::ttl`], a minute. Reads within it are
//!   answered from memory. After it, all readers of the object share one get. An added reference
//!   drops the cached object.
//! - That an object does not exist is not cached: each read asks the server.
//! - While the API fails, reads return the cached object, with the failure and its age. Gets back
//!   off per object.
//! - [`Cached::is_stale`] is true if the time to live is over and the get failed.
//! - [`get_cached`](ObjectManager::get_cached) returns the last fetched object, whatever its age.
//!
//! [`Get`](ChangeDetection::Get):
//!
//! - Each read sends a get, and returns the object or the failure. Nothing is cached, so
//!   [`get_cached`](ObjectManager::get_cached) returns `None`.
//!
//! [`get_fresh`](ObjectManager::get_fresh) and [`get_at_least`](ObjectManager::get_at_least) ask
//! the server, for readers that cannot accept the lag. They mean the same with each strategy.
//!
//! # One watch for a namespace
//!
//! [`ManagerOptions::watch_scope`] lets a manager watch a namespace as a whole once more than a
//! number of its objects are watched. A thousand objects in ten namespaces then cost the server ten
//! watches. The promises about reads hold as before:
//!
//! - An object that is new to the manager is listed by name first. So a read right after its
//!   registration never waits for the namespace's watch, nor takes an older state from it.
//! - The namespace's watch takes an object over once it misses no change of it: the list by name is
//!   not older than the events that this watch has skipped. The watch by name serves until then.
//! - The way back is the same. Each object is read from the namespace's watch until its own
//!   watch has listed it. That happens when half as many objects as the number, or fewer, are
//!   left. It also happens when the server refuses the namespace, and when a list of it exceeds a
//!   limit of [`DecodeOptions`](crate::http::DecodeOptions). Five minutes after that the manager
//!   tries again.
//! - Objects without a reference are skipped in the bytes that come. They take no memory, but they
//!   cross the wire: once with each list, and with each change.
//! - Any other failure of the namespace's watch counts for each of its objects. Reads return the
//!   object with that error and its age, and [`ObjectManager::health`] fails. Other namespaces are
//!   not affected.
//!
//! [`ObjectManager::namespace_reports`] says how each namespace is watched, and why.
//!
//! # Guarantees
//!
//! With each strategy:
//!
//! - [`add_reference`](ObjectManager::add_reference),
//!   [`set_references`](ObjectManager::set_references),
//!   [`register_pod`](ObjectManager::register_pod) and their opposites never touch the network,
//!   never wait for it and never fail.
//! - A read does not wait while a current answer is in memory. Such a read takes one lock, clones
//!   one pointer and allocates nothing. Every other wait has an end.
//! - An error has its cause: the server's words, the attempts, and since when.
//! - The reads of one reference never go back in time. [`Cached::age`] says how old an answer is.
//! - A cached read never goes back behind a [fresh read](ObjectManager::get_fresh) before it, nor
//!   behind one of a state [not older than a version](ObjectManager::get_at_least).
//! - One slow answer delays only the readers of that object.
//! - Dropping a manager ends and joins every thread, watch and socket of it, in milliseconds.
//! - No value of a Secret appears in a `Debug`, an error, a report or a log line. Its bytes are
//!   overwritten when the last holder drops them.
//!
//! With `Watch`, an object has one watch while at least one owner references it: its own or its
//! namespace's. It has none after the read of an immutable object, after
//! [`ManagerOptions::idle_max`] without a read, and while the limit of reflectors is reached. A
//! read of an idle object starts its watch again.
//!
//! # No guarantees
//!
//! - Freshness of plain reads, beyond the table. A reader that must not lag calls
//!   [`get_fresh`](ObjectManager::get_fresh).
//! - With `Watch`, that a deletion or re-creation of an immutable object is noticed at once. Its
//!   first read stops its watch; the next reference makes the manager check it.
//! - With `Cache`, that all objects of one owner are of one moment: each has a time to live of its
//!   own.
//! - That the reader is the owner that holds the reference.
//!
//! # "Not registered"
//!
//! `object "ns"/"name" not registered` is not an answer of the API. It means that no owner
//! references the object in this manager: add the reference first, remove it last.
//! [`owners`](crate::manual::owners) lists possible owners. Of a pod, names count in its own
//! namespace only, and only those of [`ReferencedByPods::visit_pod`].
//!
//! # Threads and locks
//!
//! With `Cache` and `Get` a manager has no thread. A request runs on the thread of the reader that
//! needs it, and ends with that reader's deadline or the manager's stop. With `Watch`:
//!
//! - `rf-secret-17`, one per watched object or namespace. It ends with the object's last reference,
//!   after the read of an immutable object, after five minutes without a read, or with the manager.
//!   That of a namespace ends when none of its objects is left.
//! - `hk-secret`, one per manager: the housekeeper. It joins ended reflectors, stops idle ones each
//!   minute, and starts those that had no room. It ends with the manager.
//! - `po-secret`, one per manager with [`PastLimit::Poll`]: the poller. It gets the objects that
//!   have no room for a watch, one after the other. It ends with the manager.
//! - `ck-secret`, one per check in flight, at most 32. It ends with the check or the manager.
//!
//! [`threads_and_locks`](crate::manual::threads_and_locks) has the order of the locks. Pure
//! functions decide under them. The manager starts and stops threads, sends requests and notifies
//! subscribers after it has released them.
//!
//! # The cost of a watched object
//!
//! It costs a thread, a socket and a wake-up descriptor; the benchmarks measure its memory. Idle
//! objects, and immutable ones that were read, cost their own size only.
//!
//! The number of watches is limited to the least of [`ManagerOptions::watches_max`], half of the
//! descriptor limit, an eighth of `vm.max_map_count` and the process limit. Beyond it, reads of an
//! object return `TooManyReflectors` until another object's watch has ended; with
//! [`PastLimit::Poll`] the object is polled until then. Reflectors that a program starts itself do
//! not count. The process limit is the user's or `pids.max` at the root of the cgroup mount, which
//! in a container is the container's own. The manager does not see a limit deeper in the tree.
//!
//! [`differences`](crate::manual::differences) says where a manager differs from the kubelet's.

mod cached;
mod change_detection;
mod changes;
mod consistent_reads;
mod entry;
mod follow_pods;
mod kinds;
mod metrics;
mod node_ttl;
mod object_manager;
mod options;
mod pod_references;
mod references;
mod registry;
mod report;
mod strategy;
mod ttl;
mod watch;

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
pub use pod_references::{AnyContainer, ContainerKinds, ReferencedByPods, visit_containers};
pub use references::Owner;
pub use report::{NamespaceReport, NamespaceState, ObjectReport, ObjectState};

#[cfg(test)]
mod tests;
