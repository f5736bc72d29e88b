//! The strategies `Cache` and `Get`: each referenced object is fetched when it is read, and served
//! until its time to live is over (OS-1..OS-17), or kept not at all (SC-2).

pub(super) mod entry;
pub(crate) mod store;

#[cfg(all(test, shuttle))]
mod schedules;
