//! The tests that use the crate as a program does, in one program: each further one would link
//! the crate anew.
//!
//! They start in the order of their names. The agent's come first, since they wait longest.
//!
//! What counts all of a process (its heap, its threads, its log) runs [`alone`](support::alone).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it measures"
)]

mod agent;
#[cfg(feature = "testing")]
#[path = "../benches/bodies/mod.rs"]
mod bodies;
#[cfg(feature = "testing")]
mod by_seeds;
#[cfg(feature = "testing")]
#[path = "../benches/informer/canned.rs"]
mod canned;
mod cluster;
mod cluster_control;
#[cfg(feature = "testing")]
mod corpus;
#[cfg(feature = "testing")]
mod durations;
#[cfg(feature = "testing")]
mod event_allocations;
mod failure_lines;
#[cfg(feature = "testing")]
#[path = "faults/main.rs"]
mod faults;
mod freed_memory;
mod full_disk;
mod hanging_servers;
#[cfg(feature = "testing")]
#[path = "../benches/informer/history.rs"]
mod history;
mod informer_example;
#[cfg(feature = "testing")]
mod informer_memory;
mod informer_set;
mod leaks;
#[cfg(feature = "testing")]
mod list_memory;
mod loud_logs;
mod no_thread_left;
#[cfg(feature = "testing")]
mod outlet_kills;
mod panic_logs;
mod pod_status_example;
mod ports;
#[cfg(feature = "testing")]
mod queue_memory;
mod relist_threads;
mod replay;
#[cfg(feature = "testing")]
mod serve_example;
#[cfg(feature = "snapshot")]
#[cfg(feature = "testing")]
mod snapshot_kills;
#[cfg(feature = "snapshot")]
#[cfg(feature = "testing")]
mod snapshot_memory;
#[path = "sockets/main.rs"]
mod sockets;
mod stored_position;
mod support;
#[cfg(feature = "testing")]
mod trimmed_requests;
#[cfg(feature = "testing")]
mod writes;

use peak_alloc::PeakAlloc;
use stats_alloc::StatsAlloc;

/// Knows the size of the heap, and its peak.
static HEAP: PeakAlloc = PeakAlloc;

/// Counts allocations.
#[global_allocator]
static COUNTED: StatsAlloc<PeakAlloc> = StatsAlloc::new(HEAP);
