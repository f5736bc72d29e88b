//! The kubelet's object caches as a synchronous, thread-based library. No async runtime, no unsafe code.
//!
//! A node agent, a command line tool or a plugin says which pods it runs; kubecache watches exactly
//! the Secrets and ConfigMaps those pods name, keeps them in memory, drops them when the last pod
//! is gone, and answers from memory (or fetches them with a time to live, or at each read:
//! [`ChangeDetection`](manager::ChangeDetection)). The same holds for any owner and any namespaced
//! kind ([`owners`](manual::owners)). Beside them stands the cache of pod statuses on which the
//! kubelet's pod workers wait. What all this is made of is public too: a list/watch client,
//! reflectors on one thread each, indexed stores, a delta FIFO, shared informers.
//!
//! # The promises
//!
//! 1. A reader never waits for the network while a current answer is in memory, and never longer than its deadline (by
//!    default a second for a watch, ten for a request);
//!    [`get_cached`](manager::ObjectManager::get_cached) gives what is there, whatever its age, at once.
//! 2. An error says why: the server's own words, the attempt count, since when ([`Error`]).
//! 3. Cached reads of one registration never go back in time, and their age can be asked
//!    ([`Cached::age`](manager::Cached::age)); a fresh read raises the floor for the cached reads after it.
//! 4. Every thread has a name, an owner and an end. A stop returns in milliseconds, whatever the thread was blocked in
//!    (your own code in an event handler or a runtime excepted); dropping the owner joins it
//!    ([`threads_and_locks`](manual::threads_and_locks)).
//! 5. Secret bytes appear in no log line, no `Debug`, no panic text, no metric, no recording; they are overwritten when the last
//!    holder drops them ([`Held`](object::Held)), and so are the client's read and send buffers before they are freed.
//! 6. Whatever the server sends (cut, slow, huge, wrong, hostile), nothing panics, memory stays bounded, the rest goes
//!    on.
//!
//! Not promised: that a cached read sees a write made elsewhere a moment ago (that is
//! [`get_fresh`](manager::ObjectManager::get_fresh)), or any order between changes of different objects.
//!
//! # A tour
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use kubecache::clock::Clock;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::list_watch::Api;
//! use kubecache::object::{FieldSelector, Scope};
//! use kubecache::reflector::ReflectorOptions;
//! use kubecache::store::{Indexers, Store};
//! use k8s_openapi::api::core::v1::Pod;
//! use std::time::Duration;
//! # use kubecache::testing::{FixtureServer, Recording};
//! # let recording = Recording::load("fixtures/recordings/node-1.jsonl")?;
//! # let server = FixtureServer::replaying(recording).start()?;
//!
//! // A fixture server here; in a cluster, or with a kubeconfig: Config::infer()?
//! let config = Config::for_server(&server.url())?;
//! let client = Client::new(&config, ClientOptions::default())?; // connects to nothing yet
//!
//! // The pods of one node, kept in a store by a reflector on one thread.
//! let scope = Scope::all().fields(FieldSelector::node_name("node-1"));
//! let source = Api::<Pod>::lister_watcher(&client, scope);
//! let indexers = Indexers::new().by_namespace();
//! let (pods, reflector) = Store::spawn("pods", source, indexers, ReflectorOptions::default())?;
//! pods.wait_until_synced(Clock::system().after(Duration::from_secs(10)))?; // or the reason why not
//! println!("{} pods in shop, as of {:?}", pods.by_index("namespace", "shop")?.len(), pods.age());
//! drop(reflector); // its thread has ended when this returns; the store still answers
//! # }
//! # Ok::<_, kubecache::Error>(())
//! ```
//!
//! # The map
//!
//! Layers from the ground up; imports point down, and a test holds them to that.
//!
//! | room | what it is |
//! |---|---|
//! | [`clock`], [`worker`] | ground: time that tests own, named threads with a stop |
//! | [`object`], [`Error`] | vocabulary: keys, versions, selectors, statuses, the one error |
//! | [`wire`] | bytes to vocabulary: bounded frames, list bodies item by item, watch events |
//! | [`list_watch`] | the port: list a page, open a watch, get one object |
//! | [`http`] | the adapter to a real server: configuration, TLS, connections |
//! | [`reflector`] | the loop: a pure core that decides, a driver that does |
//! | [`store`] | memory: many readers, one writer, indices |
//! | [`delta_fifo`] | client-go's queue of changes, for programs with a consumer thread of their own |
//! | [`informer`] | the shared informer: a reflector, a store, and handlers on threads of their own; sets of informers |
//! | [`manager`] | what people came for: objects that pods or other owners reference, watched, cached for a time, or fetched |
//! | [`pod_status`] | the pod-status cache with blocking waits, and the relist loop that fills it |
//! | `metrics` | feature `metrics`: what reflectors, informers and managers count, as Prometheus text |
//! | `testing` | feature `testing`: fixture server, recorder, fakes |
//! | [`manual`] | pages: the architecture, owners, failures, the behaviours by ID, the differences from the originals, threads and locks |
//!
//! Data flows one way, and three words are never mixed: the server sends an *event*, the store makes a *change*, a handler
//! gets a *notification*. *Resync* delivers again what is known, without network; *relist* asks the server again.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `ring` | yes | TLS by rustls with ring where no provider is handed in; nothing is installed process-wide |
//! | `gzip` | yes | compressed lists |
//! | `metrics` | no | Prometheus text of reflectors, informers and managers; the hooks it uses are always there |
//! | `testing` | no | the fixture server, the recorder, the fake lister-watcher and builders of objects, for tests of this crate and of others |
//! | `latest` | no | k8s-openapi's `latest`, for plain builds and docs of this crate; programs choose their own version |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(windows)]
compile_error!(
    "kubecache runs on Linux (tested) and other Unix systems (untested), not on Windows"
);

mod sync;

pub mod clock;
pub mod worker;

mod error;
mod failures;
mod guard;
pub mod object;

pub mod wire;

pub mod list_watch;

pub mod http;

pub mod reflector;

pub mod store;

pub mod delta_fifo;

pub mod informer;

pub mod manager;

pub mod pod_status;

#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics;

pub mod manual;

#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

pub use error::{Error, ErrorKind};
pub use failures::Failures;

#[cfg(test)]
mod dice;

/// The README's program runs as a doc test.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
