//! The TTL store: each referenced object is fetched when it is read and served until its time to live is over
//! (OS-1..OS-17).

mod record;
mod report;
pub(super) mod store;
mod trouble;

#[cfg(all(test, shuttle))]
mod schedules;
