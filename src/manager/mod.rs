//! Objects that owners reference, such as the Secrets of pods: watched, cached for a time, or
//! fetched, behind one type.
//!
//! ```no_run
//! use kubecache::manager::{SecretManager, ManagerOptions};
//! # fn run(api: impl kubecache::list_watch::Api<k8s_openapi::api::core::v1::Secret> + 'static, pod: &k8s_openapi::api::core::v1::Pod)
//! # -> Result<(), kubecache::Error> {
//!
//! let secrets = SecretManager::new(api, ManagerOptions::default())?; // an `http::Client` is an `api`
//! secrets.register_pod(pod); // when the pod is bound to the node, and whenever it changes
//! let database = secrets.get("shop", "database")?; // from memory, else after a wait that has an end
//! println!("{database:?} is {:?} old", database.age());
//! secrets.unregister_pod(pod); // when its containers have ended and its volumes are unmounted
//! # Ok(())
//! # }
//! ```
//!
//! # Three strategies
//!
//! How a manager learns of changes is one word, the kubelet's ([`ManagerOptions::change_detection`], SC-6): a program
//! switches by that word and by nothing else. `Watch` is right unless something speaks against it: a server that must
//! bear no watches (`Cache`), or objects that are read seldom and must never be behind (`Get`).
//!
//! | | [`Watch`](ChangeDetection::Watch) | [`Cache`](ChangeDetection::Cache) | [`Get`](ChangeDetection::Get) |
//! |---|---|---|---|
//! | a read is answered | from memory; the first one waits for the list | from memory while that is fresh, else by a get that all readers of the object share | by a get of its own |
//! | a read lags behind the server by | the delay of the watch, usually milliseconds (OC-14) | the time to live: the node's (OS-18), else [`ManagerOptions::ttl`], a minute (OS-6) | nothing |
//! | the server bears | a list and an open watch per object | a get per object and time to live, when it is read | a get per read |
//! | an object costs here | a thread and a socket; idle ones, and immutable ones that were read, only their size | its size | nothing but its row |
//! | a missing object is | an answer from memory | asked for by each read (OS-16) | asked for by each read |
//! | while the API fails, a read gives | what the watch brought last | the cached object, with the failure and its age; gets back off per object (B17) | the failure |
//! | an added reference | starts a watch, if it is the first | drops what is cached of the object (OS-2) | gives the object a row |
//! | a read without a reference is | `NotRegistered` | `NotRegistered` | answered (SC-2) |
//! | a plain [`get`](ObjectManager::get) waits | 1 s | 10 s | 10 s |
//! | [`get_cached`](ObjectManager::get_cached) gives | what the watch brought | what was fetched last, whatever its age | nothing |
//! | [`Cached::is_stale`] says that | no filled watch, and no checked immutability, stands behind it | its time to live is over and it could not be renewed | never |
//! | threads | one per watch, a housekeeper, at most 32 short-lived ones for checks | none: readers ask on their own | none: readers ask on their own |
//!
//! [`get_fresh`](ObjectManager::get_fresh) and [`get_at_least`](ObjectManager::get_at_least) go past all of this, for
//! readers who cannot accept the lag (R11), and mean the same with each strategy.
//!
//! # What is promised
//!
//! With each strategy:
//!
//! - [`add_reference`](ObjectManager::add_reference), [`set_references`](ObjectManager::set_references),
//!   [`register_pod`](ObjectManager::register_pod) and what undoes them never touch the network, never
//!   wait for it and never fail.
//! - A read never waits while a current answer is in memory, and never waits for ever. Such a read takes one lock, clones
//!   one pointer and allocates nothing.
//! - An error says why: the server's words, the attempts, and since when.
//! - The reads of one reference never go back in time (B18); how old an answer is can be asked
//!   ([`Cached::age`]). A [fresh read](ObjectManager::get_fresh), and one of a state
//!   [not older than a version](ObjectManager::get_at_least), raise the floor for the cached ones after them.
//! - One slow answer holds up nobody but those who read that object.
//! - Dropping a manager ends and joins every thread, watch and socket of it, in milliseconds.
//! - No value of a Secret appears in a `Debug`, an error, a report or a log line, and its bytes are overwritten when the
//!   last holder drops them.
//!
//! With `Watch`, an object is watched while at least one owner references it, and once only,
//! however many owners do; except immutable objects that were read, objects nobody has read for
//! [`ManagerOptions::idle_max`] (a read watches them again), and those beyond the ceiling.
//!
//! # What is not promised
//!
//! - Freshness of plain reads, beyond the table. Who must not lag uses [`get_fresh`](ObjectManager::get_fresh).
//! - With `Watch`, that a deletion or re-creation of an immutable object is noticed at once. Its watch is stopped when it
//!   is first read (OC-15); the next reference has it checked (B7).
//! - With `Cache`, that all objects of one owner are of one moment: each has a time to live of its own.
//! - That the caller is the owner that holds the reference (CM-7).
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
//! With `Cache` and `Get` there are none: a request runs on the thread of the reader who needs it, and ends with that
//! reader's deadline or the manager's shutdown. With `Watch`:
//!
//! | thread | how many | ends |
//! |---|---|---|
//! | `rf-secret-17` | one per watched object | when the last reference goes, the object was read and is immutable, nobody has read it for five minutes, or the manager goes |
//! | `hk-secret` | one per manager | with the manager; it joins ended reflectors, stops idle ones each minute, retries what had no room |
//! | `ck-secret` | one per check (B7) that is under way, at most 32 | with the check, the shutdown or the manager |
//!
//! Locks are taken in this order and no other: references 20, the entry of one object 40, the
//! objects that are ready to be read 45, checks 49, what waits for the housekeeper and
//! subscriptions 50, what one subscriber has not taken yet 51. Decisions are made under them by
//! pure functions; threads are started and stopped, requests made and subscribers told after they
//! are released.
//!
//! # What a watched object costs
//!
//! A thread, a socket and a wake-up descriptor; its resident memory and its cost to the API server are measured by the
//! benchmarks. Idle objects, and immutable ones that were read, cost their own size only. The
//! number of watches has a ceiling: the least of
//! [`ManagerOptions::reflectors_max`], half of the descriptor limit, an eighth of `vm.max_map_count` and the process limit.
//! Beyond it, reads of an object say `TooManyReflectors` until another one's watch has ended. It counts the managers'
//! watches only: reflectors a program starts itself ([`Store::spawn`](crate::store::Store::spawn),
//! [`Reflector::spawn`](crate::reflector::Reflector::spawn)) are not held against it. Of the process limits it reads the
//! user's and `pids.max` at the root of the cgroup mount, which in a container is the container's own; a limit deeper in
//! the tree is not seen.
//!
//! # Other than the kubelet
//!
//! | | the kubelet | here |
//! |---|---|---|
//! | B1 | polls every 10 ms for a fixed second | waits until a deadline that an option or the caller sets |
//! | B2 | swallows the cause (OC-13) | the error carries the last failure, the attempts, and since when |
//! | B3 | a first list that failed is retried after 0.8 to 1.6 s, so never within a read | after 50 ms, doubling, while somebody waits |
//! | B4 | an idle restart lists at the old version and may fail for 3 s (OC-22) | lists at `0`, and once more at the most recent if that was older |
//! | B5 | an item that was never read is stopped at the first round (OC-19) | idle time is counted from the item's creation |
//! | B6 | lost races leave watches without an owner (OC-27), counts reach -1 (OC-5) | neither can be written down |
//! | B7 | an immutable object made again is served stale for ever | a new reference has its uid checked once; until then reads wait a second at most, then take the old copy, marked [stale](Cached::is_stale) |
//! | B16 | a stop does not join, and lists run on | every request can be cancelled; dropping joins |
//! | OC-15 | an immutable object that idleness stops unread stays as it was | its next read lists it anew |
//! | OC-25 | after a shutdown reads fail after a second | at once |
//! | R4 | a refusal looks like silence | it is an answer once it has outlasted the node authorizer's lag of about three seconds |
//!
//! Rows that cannot occur here: OC-5, OC-27, OC-28 and OC-29 (an item is one enum with one owner, and an ended run has
//! no say), OC-11 and SC-4 (an entry holds one type), CM-5 (keys are stored, not pods).

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
