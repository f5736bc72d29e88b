//! The handlers of an informer: their trait, their queues, and the threads that call them.

mod adapters;
mod handler;
pub(crate) mod listener;
mod options;
mod processor;
mod queue;
pub(super) mod reclaimer;
mod registration;
mod resync;
#[cfg(all(test, shuttle))]
mod schedules;
mod state;
#[cfg(test)]
mod tests;

pub use adapters::{FilteringHandler, Forward};
pub use handler::{EventHandler, Handlers, Notification};
pub use options::HandlerOptions;
pub(crate) use processor::Processor;
pub use registration::Registration;
pub use state::HandlerReadings;
