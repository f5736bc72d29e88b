//! Objects that owners reference, such as the Secrets of pods: watched, cached for a time, or
//! fetched, behind one type.
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
//! One option says how a manager learns of changes: [`ManagerOptions::change_detection`], in the
//! kubelet's words. `Watch` is right unless something speaks against it. Take `Cache` for a server
//! that must bear no watches. Take `Get` for objects that are read seldom and must never be behind.
//!
//! | | [`Watch`](ChangeDetection::Watch) | [`Cache`](ChangeDetection::Cache) | [`Get`](ChangeDetection::Get) |
//! |---|---|---|---|
//! | a read is answered | from memory; the first one waits for the list | from memory while that is fresh, else by a get that all readers of the object share | by a get of its own |
//! | a read lags behind the server by | the delay of the watch, usually milliseconds | the time to live: the node's, else [`ManagerOptions::ttl`], a minute | nothing |
//! | the server bears | a list and an open watch per object | a get per object and time to live, when it is read | a get per read |
//! | an object costs here | a thread and a socket; idle ones, and immutable ones that were read, only their size | its size | nothing but its row |
//! | a missing object is | an answer from memory | asked for by each read | asked for by each read |
//! | while the API fails, a read gives | what the watch brought last | the cached object, with the failure and its age; gets back off per object | the failure |
//! | an added reference | starts a watch, if it is the first | drops what is cached of the object | gives the object a row |
//! | a read without a reference is | `NotRegistered` | `NotRegistered` | answered |
//! | a plain [`get`](ObjectManager::get) waits | 1 s | 10 s | 10 s |
//! | [`get_cached`](ObjectManager::get_cached) gives | what the watch brought | what was fetched last, whatever its age | nothing |
//! | [`Cached::is_stale`] says that | no filled watch, and no checked immutability, stands behind it | its time to live is over and it could not be renewed | never |
//! | threads | one per watch, a housekeeper, at most 32 short-lived ones for checks | none: readers ask on their own | none: readers ask on their own |
//!
//! [`get_fresh`](ObjectManager::get_fresh) and [`get_at_least`](ObjectManager::get_at_least) ask
//! the server, for readers that cannot accept the lag. They mean the same with each strategy.
//!
//! # What is promised
//!
//! With each strategy:
//!
//! - [`add_reference`](ObjectManager::add_reference),
//!   [`set_references`](ObjectManager::set_references),
//!   [`register_pod`](ObjectManager::register_pod) and their opposites never touch the network,
//!   never wait for it and never fail.
//! - A read does not wait while a current answer is in memory. Such a read takes one lock, clones
//!   one pointer and allocates nothing. Every other wait has an end.
//! - An error says why: the server's words, the attempts, and since when.
//! - The reads of one reference never go back in time. [`Cached::age`] says how old an answer is.
//! - A cached read never goes back behind a [fresh read](ObjectManager::get_fresh) before it, nor
//!   behind one of a state [not older than a version](ObjectManager::get_at_least).
//! - One slow answer delays only the readers of that object.
//! - Dropping a manager ends and joins every thread, watch and socket of it, in milliseconds.
//! - No value of a Secret appears in a `Debug`, an error, a report or a log line. Its bytes are
//!   overwritten when the last holder drops them.
//!
//! With `Watch`, an object has one watch while at least one owner references it. It has none while
//! it is immutable and was read, while nobody has read it for [`ManagerOptions::idle_max`], or
//! while the limit of reflectors is reached. A read of an idle object starts its watch again.
//!
//! # What is not promised
//!
//! - Freshness of plain reads, beyond the table. A reader that must not lag calls
//!   [`get_fresh`](ObjectManager::get_fresh).
//! - With `Watch`, that a deletion or re-creation of an immutable object is noticed at once. Its
//!   first read stops its watch; the next reference has it checked.
//! - With `Cache`, that all objects of one owner are of one moment: each has a time to live of its
//!   own.
//! - That the reader is the owner that holds the reference.
//!
//! # "Not registered"
//!
//! `object "ns"/"name" not registered` is not an answer of the API. It says that no owner
//! references the object in this manager: add the reference first, remove it last.
//! [`owners`](crate::manual::owners) says who can be an owner. Of a pod, names count in its own
//! namespace only, and only those of [`ReferencedByPods::visit_pod`].
//!
//! # Threads and locks
//!
//! With `Cache` and `Get` a manager has no thread. A request runs on the thread of the reader that
//! needs it, and ends with that reader's deadline or the manager's stop. With `Watch`:
//!
//! | thread | how many | ends |
//! |---|---|---|
//! | `rf-secret-17` | one per watched object | when the last reference goes, the object was read and is immutable, nobody has read it for five minutes, or the manager goes |
//! | `hk-secret` | one per manager | with the manager; it joins ended reflectors, stops idle ones each minute, and starts what had no room |
//! | `ck-secret` | one per check that is under way, at most 32 | with the check, the stop or the manager |
//!
//! [`threads_and_locks`](crate::manual::threads_and_locks) has the order of the locks. Pure
//! functions decide under them. The manager starts and stops threads, sends requests and notifies
//! subscribers after it has released them.
//!
//! # What a watched object costs
//!
//! It costs a thread, a socket and a wake-up descriptor; the benchmarks measure its memory. Idle
//! objects, and immutable ones that were read, cost their own size only.
//!
//! The number of watches is limited to the least of [`ManagerOptions::reflectors_max`], half of the
//! descriptor limit, an eighth of `vm.max_map_count` and the process limit. Beyond it, reads of an
//! object return `TooManyReflectors` until another object's watch has ended. Reflectors that a
//! program starts itself do not count. The process limit is the user's or `pids.max` at the root of
//! the cgroup mount, which in a container is the container's own. A limit deeper in the tree is not
//! seen.
//!
//! [`differences`](crate::manual::differences) says where a manager differs from the kubelet's.

mod cached;
mod change_detection;
mod changes;
mod entry;
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

pub use cached::Cached;
pub use change_detection::ChangeDetection;
pub use changes::{Changed, Changes};
pub use kinds::KindTraits;
pub use metrics::{ManagerMetric, ManagerState};
pub use node_ttl::NodeTtl;
pub use object_manager::{ConfigMapManager, ObjectManager, SecretManager};
pub use options::ManagerOptions;
pub use pod_references::{AnyContainer, ContainerKinds, ReferencedByPods, visit_containers};
pub use references::Owner;
pub use report::{ObjectReport, ObjectState};

#[cfg(test)]
mod tests;
