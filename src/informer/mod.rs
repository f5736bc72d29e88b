//! Shared informers: caches of objects of one kind, with handlers that receive the changes.
//!
//! # The informer
//!
//! A [`SharedInformer`] has one reflector, one indexed [`Store`](crate::store::Store), and any
//! number of handlers.
//!
//! # Several informers
//!
//! An [`InformerSet`] has informers by type over one client, as client-go's factory does. It makes
//! an informer at the first request for its type, and starts, waits for and stops all of them
//! together. An informer that does not sync holds up no other.
//!
//! # The handlers
//!
//! Each [`EventHandler`] has a thread and a bounded queue of its own.
//!
//! - A handler gets one notification at a time, without a lock, in order for each object.
//! - A handler that is slow or panics delays no other.
//! - Once [`Registration::remove`] has returned, no call runs or will run.
//!
//! There is no order between handlers, nor between different objects.

mod deleted;
mod handlers;
mod metrics;
mod set;
mod shared;
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
