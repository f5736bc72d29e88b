//! The [kubelet][kubernetes]'s [object][objects] caches as a synchronous, thread-based library. No
//! async runtime, no `unsafe`.
//!
//! A program names the [pods][kubernetes] that it runs, or other [owners][manager] and the objects
//! that they [reference][manager]. kubecache [watches][objects] exactly the referenced
//! [Secrets][kubernetes], [ConfigMaps][kubernetes] or other objects, and keeps them in memory. It
//! stops when the last reference goes. It answers reads from memory, or fetches the object with a
//! [time to live][manager], or at each read ([`ChangeDetection`](manager::ChangeDetection)). It
//! also has the cache of pod statuses on which the kubelet's pod workers wait.
//!
//! Its parts are public too: a [list/watch][objects] client, [reflectors][reflector] on one thread
//! each, indexed [stores], a [delta FIFO][stores], shared [informers][informer].
//!
#![doc = include_str!("manual/watches.svg")]
//!
//! # The promises
//!
//! 1. A reader never waits for the network while a current answer is in memory. It never waits
//!    longer than its [deadline][threads] (by default a second for a watch, ten for a request).
//!    [`get_cached`](manager::ObjectManager::get_cached) returns the present content at once,
//!    whatever its age.
//! 2. An error has its cause: the server's own words, the number of attempts, and the time of the
//!    first ([`Error`]).
//! 3. Cached reads of one registration never go back in time, and show their age
//!    ([`Cached::age`](manager::Cached::age)). No cached read is older than a fresh read before it.
//! 4. Every thread has a name, an owner and an end. A stop returns in milliseconds, even if the
//!    thread is blocked, unless it is in your own code, such as an event [handler][informer] or a
//!    runtime. Dropping the owner joins the thread
//!    ([`threads_and_locks`](manual::threads_and_locks)).
//! 5. Secret bytes appear in no log line, no `Debug`, no panic text, no metric, no recording. They
//!    are overwritten when the last holder drops them ([`StoredObject`](object::StoredObject)), and
//!    so are the client's read and send buffers before they are freed.
//! 6. Whatever the server sends (cut, slow, huge, wrong, hostile), nothing panics, the number and
//!    size of objects bound the memory ([`DecodeOptions`](http::DecodeOptions)), and the rest goes
//!    on.
//!
//! kubecache does not promise that a cached read sees a write made elsewhere a moment ago
//! ([`get_fresh`](manager::ObjectManager::get_fresh) does), nor any order between changes of
//! different objects.
//!
//! # Four programs
//!
//! Each is complete: put it into `main.rs`, and run it in a pod or with a [kubeconfig][kubernetes].
//! More are in [`manual::programs`]: types of your own, files, a rollout, leader election, tests
//! with faults.
//!
//! ## Follow a Secret
//!
//! The [manager] watches the Secret while an owner references it. The program blocks in `recv_by`
//! until the Secret changes, and prints its new version or the reason why there is none.
//!
//! ```
//! # #[cfg(feature = "testing")] mod program {
//! use kubecache::Error;
//! use kubecache::clock::Deadline;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::manager::{ManagerOptions, Owner, SecretManager};
//! use kubecache::object::{Object as _, ObjectKey};
//!
//! fn follow(config: &Config, key: &ObjectKey) -> Result<(), Error> {
//!     let client = Client::new(config, ClientOptions::default())?; // connects to nothing yet
//!     let secrets = SecretManager::new(client, ManagerOptions::default())?;
//!     let changes = secrets.subscribe();
//!     let program = Owner::new("Program", ObjectKey::new("default", "follower"));
//!     secrets.add_reference(&program, key); // starts the watch, and returns at once
//!     loop {
//!         match secrets.get(key.namespace(), key.name()) {
//!             Ok(secret) => println!("{key} is at {:?}", secret.resource_version()),
//!             Err(error) => println!("{error}"),
//!         }
//!         # let seen = secrets.get_cached(key.namespace(), key.name())?;
//!         # let version = seen.map(|secret| secret.resource_version());
//!         # if version.is_some_and(|version| version.as_str() == "301") { return Ok(()); }
//!         changes.recv_by(Deadline::NEVER)?; // blocks until the Secret changes
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     follow(&Config::infer()?, &ObjectKey::new("shop", "storefront-session"))
//! }
//! # pub fn test(config: &Config) -> Result<(), Error> {
//! #     let _ = main;
//! #     follow(config, &ObjectKey::new("shop", "storefront-session"))
//! # }
//! # }
//! # fn main() -> Result<(), kubecache::Error> {
//! #     #[cfg(feature = "testing")] {
//! #     use kubecache::testing::{FixtureServer, Recording};
//! #     let recording = Recording::load("fixtures/recordings/node-1.jsonl")?;
//! #     let server = FixtureServer::replaying(recording).start()?;
//! #     program::test(&kubecache::http::Config::for_server(&server.url())?)?;
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! ## Pods by node, with handlers, until Ctrl-C
//!
//! The informer lists and watches on its own thread, and calls the handlers on another. Both end in
//! `shutdown`, which names a late handler. Signals come from the crate `signal-hook`.
//!
//! ```
//! # #[cfg(feature = "testing")] mod program {
//! use std::error::Error;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::object::{Object as _, Scope};
//! use kubecache::store::Indexers;
//! use signal_hook::consts::{SIGINT, SIGTERM};
//! use signal_hook::iterator::Signals;
//!
//! fn run(config: &Config) -> Result<(), Box<dyn Error>> {
//!     let client = Client::new(config, ClientOptions::default())?;
//!     let by_node = |pod: &Pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect();
//!     let options = InformerOptions::default().indexers(Indexers::new().with("node", by_node));
//!     let source = client.lister_watcher(Scope::namespace("shop"));
//!     let informer = SharedInformer::new(source, options);
//!     informer.add_handler(
//!         informer
//!             .handlers()
//!             .on_add(|pod, _is_in_initial_list| println!("{} is there", pod.key()))
//!             .on_delete(|pod| println!("{} is gone", pod.key())),
//!     )?;
//!     let mut signals = Signals::new([SIGINT, SIGTERM])?;
//!     informer.start()?;
//!     informer.wait_until_synced(Duration::from_secs(60))?; // or the reason why not
//!     println!("{} pods run on node-1", informer.store().by_index("node", "node-1")?.len());
//!     # signal_hook::low_level::raise(SIGINT)?;
//!     signals.forever().next(); // blocks until the first signal
//!     Ok(informer.shutdown(Duration::from_secs(60))?)
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     run(&Config::infer()?)
//! }
//! # pub fn test(config: &Config) -> Result<(), Box<dyn Error>> {
//! #     let _ = main;
//! #     run(config)
//! # }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #     #[cfg(feature = "testing")] {
//! #     use kubecache::testing::{FixtureServer, Recording};
//! #     let recording = Recording::load("fixtures/recordings/shop-pods.jsonl")?;
//! #     let server = FixtureServer::replaying(recording).start()?;
//! #     program::test(&kubecache::http::Config::for_server(&server.url())?)?;
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! ## A node agent with the managers
//!
//! This is the kubelet's way: the pods of the [node][kubernetes] decide which Secrets the manager
//! watches. A deleted pod takes its watches with it.
//!
//! ```
//! # #[cfg(feature = "testing")] mod program {
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::Error;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::manager::{ManagerOptions, SecretManager};
//! use kubecache::object::{FieldSelector, Scope};
//!
//! fn run(config: &Config) -> Result<(), Error> {
//!     let client = Client::new(config, ClientOptions::default())?;
//!     let secrets = SecretManager::new(client.clone(), ManagerOptions::default())?;
//!     let of_node = Scope::all().fields(FieldSelector::node_name("node-1"));
//!     let source = client.lister_watcher(of_node);
//!     let pods = SharedInformer::<Pod>::new(source, InformerOptions::default());
//!     let followed = secrets.follow_pods(&pods)?; // until this drops
//!     pods.start()?;
//!     followed.wait_until_synced(Duration::from_secs(60))?;
//!     // Any thread may read. A read blocks a second at most, and not once the Secret is known.
//!     let secret = secrets.get("shop", "storefront-session")?;
//!     println!("{secret:?} has {} keys", secret.data.as_ref().map_or(0, |data| data.len()));
//!     Ok(()) // dropping informer and manager ends and joins their threads
//! }
//!
//! fn main() -> Result<(), Error> {
//!     run(&Config::infer()?)
//! }
//! # pub fn test(config: &Config) -> Result<(), Error> {
//! #     let _ = main;
//! #     run(config)
//! # }
//! # }
//! # fn main() -> Result<(), kubecache::Error> {
//! #     #[cfg(feature = "testing")] {
//! #     use kubecache::testing::{FixtureServer, Recording};
//! #     let recording = Recording::load("fixtures/recordings/node-1.jsonl")?;
//! #     let server = FixtureServer::replaying(recording).start()?;
//! #     program::test(&kubecache::http::Config::for_server(&server.url())?)?;
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! ## Pod status
//!
//! A [relist loop][pods] asks your runtime for its pods, and keeps their statuses. A worker blocks
//! until its pod has a newer status than the one that it acted on.
//!
//! ```
//! use std::time::Duration;
//!
//! use kubecache::clock::Clock;
//! use kubecache::pod_status::{
//!     ContainerState, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime, RuntimeError,
//!     RuntimePod, Timestamp,
//! };
//! use kubecache::worker::StopToken;
//!
//! type Inspected = Result<PodStatus, RuntimeError>;
//!
//! /// A container runtime that has one pod. Yours asks containerd, or lists child processes.
//! struct OnePod;
//!
//! impl Runtime for OnePod {
//!     type Status = PodStatus;
//!
//!     fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
//!         let pod = RuntimePod::new("uid-1", "shop", "web");
//!         Ok(vec![pod.container("c-1", ContainerState::Running)])
//!     }
//!
//!     fn inspect_pod(&mut self, pod: &RuntimePod, _: &StopToken) -> Inspected {
//!         let mut status = PodStatus::default();
//!         status.id = pod.uid().to_owned();
//!         status.name = pod.name().to_owned();
//!         Ok(status)
//!     }
//! }
//!
//! fn main() -> Result<(), kubecache::Error> {
//!     let clock = Clock::system();
//!     let cache = PodStatusCache::new(clock.clone());
//!     let relist = Relist::spawn(OnePod, cache.clone(), RelistOptions::default())?;
//!     // Ends with a status, with an error of the runtime, or when the cache is closed.
//!     let reading = cache.get_newer_than("uid-1", Timestamp::ZERO)?;
//!     println!("{:?}", reading.status().map(|status| &status.name));
//!     relist.shutdown(clock.after(Duration::from_secs(10)))
//! }
//! ```
//!
//! # The map
//!
//! Layers from the ground up. Imports point down, and a test enforces that.
//!
//! | room | what it is |
//! |---|---|
//! | [`clock`], [`worker`] | ground: time that tests own, named threads with a stop |
//! | [`object`], [`Error`] | vocabulary: keys, versions, selectors, statuses, the one error |
//! | [`failures`], [`hooks`] | the record of failed attempts; functions that receive events |
//! | [`list_watch`] | the port: list a page, open a watch, get one object |
//! | [`http`] | the adapter to a real server: configuration, TLS, connections |
//! | [`kubelet_pods`] | a source that polls a kubelet for the pods of its node |
//! | [`reflector`] | the loop: a pure core that decides, a driver that does |
//! | [`store`] | memory: many readers, one writer, indices |
//! | [`delta_fifo`] | [client-go][kubernetes]'s queue of changes, for a program's own thread |
//! | [`informer`] | shared informers: a reflector, a store, handlers on threads of their own |
//! | [`work_queue`] | keys for the worker threads of a reconcile loop, with retries |
//! | [`manager`] | objects that owners reference: watched, cached for a time, or fetched |
//! | [`fence`] | waits until caches have seen what the program wrote for an owner |
//! | [`outlet`] | objects as files, which change as a whole, for programs outside of pods |
//! | `snapshot` | feature `snapshot`: a manager's content in a sealed file, for an offline boot |
//! | [`pod_status`] | the pod-status cache with blocking waits, and the relist loop that fills it |
//! | `metrics` | feature `metrics`: the counts of reflectors, informers and managers as text |
//! | `endpoints` | feature `endpoints`: health probes, metrics and pages of a program over HTTP |
//! | `testing` | feature `testing`: API server, fixture server, recorder, fakes |
//! | [`local_file`] | whole local files, bounded, that are never waited for |
//! | [`manual`] | pages: architecture, failures, security, a glossary, differences, and more |
//!
//! Data flows one way, and three words are never mixed: the server sends an *event*, the store
//! makes a *change*, a handler gets a *[notification][informer]*. A *[resync][reflector]* repeats
//! the known content, without the network. A *relist* asks the server again.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `ring` | yes | TLS by rustls with ring where the program hands in no provider |
//! | `gzip` | yes | compressed lists and streamed lists |
//! | `metrics` | no | Prometheus text; the hooks it uses are always there |
//! | `endpoints` | no | health probes, metrics and pages of a program over HTTP |
//! | `snapshot` | no | what a manager holds in a sealed file; `ring` seals it |
//! | `testing` | no | servers for your tests, a recorder, fakes and builders of objects |
//! | `latest` | no | k8s-openapi's `latest`, to build this crate alone; programs choose theirs |
//!
//! [informer]: manual::glossary#informer
//! [kubernetes]: manual::glossary#kubernetes
//! [manager]: manual::glossary#manager
//! [objects]: manual::glossary#objects-and-the-server
//! [pods]: manual::glossary#pod-status
//! [reflector]: manual::glossary#reflector
//! [stores]: manual::glossary#stores-and-queues
//! [threads]: manual::glossary#threads-time-and-failures
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(windows)]
compile_error!(
    "kubecache runs on Linux (tested) and other Unix systems (untested), not on Windows"
);

mod sync;

pub mod clock;
pub mod worker;

mod error;
pub mod failures;
mod guard;
pub mod hooks;
mod jobs;
pub mod object;
mod policy;
mod retry;
mod rounds;
mod setters;
mod unique_name;
mod writer_lock;

#[cfg_attr(
    not(feature = "testing"),
    expect(
        unreachable_pub,
        reason = "its decoders are public with the feature `testing`"
    )
)]
mod wire;

pub mod local_file;

pub mod yaml;

pub mod list_watch;

pub mod http;

pub mod kubelet_pods;

pub mod reflector;

pub mod store;

mod wait_until;

pub mod delta_fifo;

pub mod informer;

pub mod work_queue;

pub mod manager;

pub mod fence;

pub mod outlet;

#[cfg(feature = "snapshot")]
#[cfg_attr(docsrs, doc(cfg(feature = "snapshot")))]
pub mod snapshot;

pub mod pod_status;

#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics;

#[cfg(feature = "endpoints")]
#[cfg_attr(docsrs, doc(cfg(feature = "endpoints")))]
pub mod endpoints;

pub mod manual;

#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

/// The crates whose types appear in this API, in the versions that it uses.
#[doc(no_inline)]
pub use {crossbeam_channel, k8s_openapi, rustls};

pub use error::{Error, ErrorKind};
pub use wire::{Compact, Dynamic, Metadata};

#[cfg(test)]
mod tests;

/// The README's program runs as a doc test.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
