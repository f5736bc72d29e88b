//! Tests of the manager room that are too long to stand beside the code.

mod fake;
mod object_manager;
mod pod_references;
mod reflect;
mod watch_store;
