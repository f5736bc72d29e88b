//! Tests of the manager room that are too long to stand beside the code.

mod absences;
#[cfg(feature = "testing")]
mod at_least;
mod budget;
#[cfg(feature = "testing")]
mod checks;
#[cfg(all(feature = "testing", not(shuttle)))]
mod clones;
#[cfg(not(shuttle))]
mod drops;
#[cfg(feature = "testing")]
mod end_to_end;
#[cfg(feature = "testing")]
mod error_hook;
pub(super) mod fake;
#[cfg(feature = "testing")]
mod fetch;
#[cfg(all(feature = "testing", not(shuttle)))]
mod follow_pods;
mod fresh_reads;
#[cfg(feature = "testing")]
mod health;
mod launch;
#[cfg(feature = "testing")]
mod metrics;
#[cfg(feature = "testing")]
mod namespace_histories;
mod namespaces;
mod object_manager;
#[cfg(feature = "testing")]
mod panics;
mod pod_references;
mod reflect;
mod simulation;
pub(super) mod stage;
#[cfg(feature = "testing")]
mod strategies;
#[cfg(feature = "testing")]
mod ttl_model;
#[cfg(feature = "testing")]
mod ttl_promises;
#[cfg(feature = "testing")]
mod ttl_store;
#[cfg(feature = "testing")]
mod ttl_waiting;
mod watch_at_least;
mod watch_store;
