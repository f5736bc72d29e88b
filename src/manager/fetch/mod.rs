//! The fetching store: each read asks the server, and no object is kept (SC-2).

mod outcome;
pub(super) mod store;
