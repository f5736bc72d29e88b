//! Stores: many readers, one writer; a replacement is a value that is committed or dropped.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::object::Scope;
//! use kubecache::reflector::ReflectorOptions;
//! use kubecache::store::{Indexers, Store};
//! # use kubecache::http::{Client, ClientOptions, Config};
//! # use kubecache::testing::{ApiServer, objects};
//!
//! # let server = ApiServer::new()?;
//! # server.apply(&objects::pod("shop", "web-0", "node-1", &[], &[]))?;
//! # let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
//! let source = client.lister_watcher::<Pod>(Scope::all());
//! let by_node = |pod: &Pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect();
//! let indexes = Indexers::new().with("node", by_node);
//! let (pods, _reflector) = Store::spawn("pods", source, indexes, ReflectorOptions::default())?;
//! pods.wait_until_synced(std::time::Duration::from_secs(60))?; // or the reason why not
//! assert!(pods.get("shop", "web-0")?.is_some()); // from memory
//! assert_eq!(pods.by_index("node", "node-1")?.len(), 1);
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! The [reflector] is the [store][stores]'s one writer, and its drop ends the thread
//! that fills the store.
//!
//! A store promises: a read sees all or nothing of a replacement. An [object][objects] goes back to
//! an older version only if the server's history expired, or if a list at the most recent version
//! says so. A wait ends when the content has come, when nothing can fill the store any more, or at
//! its [deadline][threads]. In time the content follows the server, as far behind as the
//! [watch][objects]; `status()` shows the progress. A read right after a write elsewhere need not
//! see that write.
//!
//! [objects]: crate::manual::glossary#objects-and-the-server
//! [reflector]: crate::manual::glossary#reflector
//! [stores]: crate::manual::glossary#stores-and-queues
//! [threads]: crate::manual::glossary#threads-time-and-failures

mod index;
mod items;
mod lister;
mod mutation_cache;
mod reader;
#[cfg(all(test, shuttle))]
mod schedules;
mod state;
#[cfg(test)]
mod tests;
mod version_guard;
mod wait_until;
mod writer;

pub use index::{Indexers, NAMESPACE_INDEX};
pub use lister::Lister;
pub use mutation_cache::{MutationCache, MutationCacheOptions};
pub use reader::Store;
pub(crate) use state::{Applied, Change};
pub(crate) use version_guard::VersionGuard;
pub use writer::{Staging, StoreWriter};
