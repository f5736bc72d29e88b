//! Each fault of a test server, and what the users of the crate make of it: plain reads, an
//! informer, and managers with each strategy.
//!
//! Each user holds an object before the fault. Under it reads end as the table says, and caches
//! keep what they hold. The object changes; the fault goes; all caches follow.

#[cfg(feature = "ring")]
mod form;
#[cfg(feature = "ring")]
mod in_tls;
mod lives;
mod stage;
mod table;
