//! The example `node_agent` as a user meets it: what it prints, how it ends, what it says of bad input.
#![cfg(feature = "testing")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "node_agent/bad_input.rs"]
mod bad_input;
#[path = "node_agent/demo.rs"]
mod demo;
#[path = "node_agent/probes.rs"]
mod probes;
#[path = "node_agent/program.rs"]
mod program;
#[path = "node_agent/rows.rs"]
mod rows;
#[cfg(target_os = "linux")]
#[path = "node_agent/signals.rs"]
mod signals;
#[path = "node_agent/strategies.rs"]
mod strategies;

/// What [`program`] runs.
const EXAMPLE: &str = "node_agent";
