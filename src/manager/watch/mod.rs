//! The strategy `Watch`: each referenced object is kept by a watch of its own (OC-1..OC-29).

mod answer;
pub(super) mod context;
pub(super) mod entry;
pub(crate) mod keeper;
mod read_history;
mod reflector_limit;
pub(crate) mod run;
pub(crate) mod sources;
pub(crate) mod starts;
pub(super) mod state_machine;
pub(crate) mod store;
pub(crate) mod writer;

#[cfg(all(test, shuttle))]
mod schedules;
