//! The watch-based store: each referenced object is kept by a watch of its own (OC-1..OC-29).

mod answer;
mod ceiling;
pub(super) mod checker;
mod housekeeper;
pub(super) mod item;
pub(super) mod launch;
pub(super) mod past;
mod report;
pub(super) mod slot;
pub(super) mod store;
pub(super) mod works;
pub(super) mod writer;

#[cfg(all(test, shuttle))]
mod schedules;
