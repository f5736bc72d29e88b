//! The strategy `Watch`: each referenced object is kept by a watch of its own (OC-1..OC-29).

pub(super) mod absence;
mod answer;
mod budget;
pub(super) mod check_queue;
pub(super) mod entry;
mod housekeeper;
pub(super) mod immutable_check;
pub(super) mod launch;
pub(super) mod namespace;
mod namespace_table;
mod namespaces;
mod poller;
mod read_history;
mod reflector_limit;
pub(super) mod runs;
pub(super) mod state_machine;
pub(super) mod store;
pub(super) mod writer;

#[cfg(all(test, shuttle))]
mod schedules;
