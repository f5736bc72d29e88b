//! Shared informers: what follows the reflector on its way to handlers.
//!
//! # The informer
//!
//! A [`SharedInformer`] puts it all together: one reflector, one indexed
//! [`Store`](crate::store::Store), any number of handlers.
//!
//! # Several informers
//!
//! An [`InformerSet`] has informers by type over one client, as client-go's factory does: made when they are first asked for,
//! started, waited for and stopped together. One that does not sync holds up no other.
//!
//! # The handlers
//!
//! Each [`EventHandler`] has a thread and a bounded queue of its own. What holds: a handler is called with one thing at a
//! time, under no lock, for each object in order; one that is slow or panics costs no other anything; once
//! [`Registration::remove`] has returned, no call runs or will run. Not promised: any order between handlers, or between
//! different objects.

mod deleted;
mod handlers;
mod metrics;
mod set;
mod shared;
mod spent;
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
