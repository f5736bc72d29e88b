//! Shared [informers][informer]: caches of [objects] of one kind, with
//! [handlers][informer] that receive the changes.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use k8s_openapi::api::core::v1::Pod;
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::object::{Object as _, Scope};
//! # use kubecache::http::{Client, ClientOptions, Config};
//! # use kubecache::testing::{ApiServer, objects};
//!
//! # let server = ApiServer::new()?;
//! # server.apply(&objects::pod("shop", "web-0", "node-1", &[], &[]))?;
//! # let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
//! let source = client.lister_watcher::<Pod>(Scope::namespace("shop"));
//! let pods = SharedInformer::new(source, InformerOptions::default());
//! pods.add_handler(
//!     pods.handlers()
//!         .on_add(|pod, _is_in_initial_list| println!("{} is there", pod.key()))
//!         .on_delete(|pod| println!("{} is gone", pod.key())),
//! )?;
//! pods.start()?;
//! pods.wait_until_synced(std::time::Duration::from_secs(60))?; // or the reason why not
//! println!("{} pods", pods.store().len()); // a drop of the informer ends and joins its threads
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! # The informer
//!
//! A [`SharedInformer`] has one [reflector], one indexed [`Store`](crate::store::Store),
//! and any number of handlers.
//!
//! # Several informers
//!
//! An [`InformerSet`] has informers by type over one client, as [client-go][kubernetes]'s factory
//! does. It makes an informer at the first request for its type, and starts, waits for and stops
//! all of them together. An informer that does not sync holds up no other.
//!
//! # The handlers
//!
//! Each [`EventHandler`] has a thread and a bounded queue of its own.
//!
//! - A handler gets one [notification][informer] at a time, without a lock, in order for each
//!   object.
//! - A handler that is slow or panics delays no other.
//! - Once [`Registration::remove`] has returned, no call runs or will run.
//!
//! There is no order between handlers, nor between different objects.
//!
//! [informer]: crate::manual::glossary#informer
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [objects]: crate::manual::glossary#objects-and-the-server
//! [reflector]: crate::manual::glossary#reflector

mod deleted;
pub(crate) mod handlers;
mod metrics;
mod set;
pub(crate) mod shared;
#[cfg(test)]
mod tests;

pub use deleted::Deleted;
pub use handlers::{
    EventHandler, FilteringHandler, Forward, HandlerOptions, HandlerReadings, Handlers,
    Notification, Registration,
};
pub use metrics::{InformerMetric, InformerState};
pub use set::{AnyInformer, InformerSet, InformerSetOptions, SyncOutcome, SyncResult};
pub use shared::{InformerOptions, SharedInformer};
