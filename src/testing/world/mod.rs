//! The simulation: a world on one thread, drawn from a seed, in which the real parts of the crate
//! run against a model of a server, and the promises that each step is held against.
//!
//! ```
//! use kubecache::testing::world::{Coverage, Oracle, RunOptions, run};
//!
//! let mut coverage = Coverage::expected();
//! for seed in 0..10 {
//!     let outcome = run(seed, &RunOptions::default(), &mut coverage);
//!     assert!(outcome.failure.is_none(), "seed {seed}: {:?}", outcome.failure);
//! }
//! assert!(coverage.points().any(|(_, name, count)| name == "stream" && count > 0));
//! for oracle in Oracle::ALL {
//!     println!("{oracle}: {}", oracle.sentence());
//! }
//! ```
//!
//! One seed is one run. No thread, no socket and no real time takes part, so the same seed gives
//! the same run on each machine. A run has a weather: the faults and habits that its seed switched
//! on. After its steps the world heals, and each cache must equal the server.
//!
//! `cargo run --release --features testing --example simulate -- --seeds 0..100000 --jobs 2`
//! searches many seeds. The page [contributing](crate::manual::contributing) says how to read what
//! it finds.
//!
//! # What is real, and what stands in
//!
//! - The core and the driver of the reflector, the store, the informer's sink, the queues of its
//!   handlers and the guard around a handler's call are those that ship. The world calls the driver
//!   instead of the loop of the reflector's thread: a pause and a read without an event end a step.
//!   A pause ends early for a caller that waits, and not for one that reads.
//! - The loop of a handler's thread is five lines, and the world has its own.
//! - A manager is the real one: references, entries, state machines, writers, keeper and fetches.
//!   Its launcher makes runs that the world steps. The work of its housekeeper and of its checks is
//!   done in the world's thread. It has no watches of namespaces and no poller, whose threads block
//!   on each other.
//! - A call that waits for time, such as the backoff of a fetch, moves the clock to its end.
//! - The server is [`FakeSource`](crate::testing::FakeSource), without sockets, so the rooms `http`
//!   and `wire` take no part.
//! - Two orders are those of hash maps, and differ between processes: the initial list of a handler
//!   that joins late, and a resync. Such handlers have no bound, so that no promise depends on it.

mod coverage;
mod handler;
mod informer;
mod link;
mod manager;
mod oracle;
mod play;
mod pods;
mod shrink;
mod stepped;
#[cfg(test)]
mod tests;
mod truth;
mod weather;

pub use coverage::Coverage;
pub use oracle::{Failure, Oracle};
pub use shrink::{Outcome, RunOptions, run, shrink};
