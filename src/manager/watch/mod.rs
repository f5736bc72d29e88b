//! The strategy `Watch`: each referenced object is kept by a watch of its own (OC-1..OC-29).

mod answer;
pub(super) mod context;
pub(super) mod entry;
pub(super) mod keeper;
mod read_history;
mod reflector_limit;
pub(super) mod run;
pub(super) mod sources;
pub(super) mod starts;
pub(super) mod state_machine;
pub(super) mod store;
pub(super) mod writer;

#[cfg(all(test, shuttle))]
mod schedules;
