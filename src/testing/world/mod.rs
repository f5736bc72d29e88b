//! The simulation: a world on one thread, drawn from a seed, in which the real parts of the crate
//! run against a model of a server, and the promises that each step is held against.
//!
//! One seed is one run. No thread, no socket and no real time takes part, so the same seed gives
//! the same run on each machine. A run has a weather: the faults and habits that its seed switched
//! on. After its steps the world heals, and each cache must equal the server.

mod coverage;
mod handler;
mod informer;
mod link;
mod oracle;
mod play;
mod shrink;
mod stepped;
mod truth;
mod weather;

pub use coverage::Coverage;
pub use oracle::{Failure, Oracle};
pub use shrink::{Outcome, RunOptions, run, shrink};
