//! The simulation: a world on one thread, drawn from a seed, and the promises that each step is
//! held against. The real parts of the crate run in it, against a model of a server.
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
//! - The core and the driver of the reflector, the store, and the informer's sink are those that
//!   ship. So are the queues of its handlers, and the guard around their calls. The world calls the
//!   driver instead of the loop of the reflector's thread. A pause, and a read without an event,
//!   end a step.
//!   A pause ends early for a caller that waits, and not for one that reads.
//! - The loop of a handler's thread is five lines, and the world has its own.
//! - A manager is the real one: references, entries, state machines, writers, keeper and fetches.
//!   Its launcher makes runs that the world steps, those of whole namespaces included. The work of
//!   its housekeeper, of its checks and of its poller is done in the world's thread.
//! - A call that waits for time, such as the backoff of a fetch, moves the clock to its end.
//! - The server is [`FakeSource`](crate::testing::FakeSource), without sockets, so the rooms `http`
//!   and `wire` take no part.
//! - Files take no part: an outlet and a snapshot are threads over a real disk, whose order no seed
//!   decides. Their own random histories stand in, with failing disks and killed processes.
//! - A delta FIFO that a program pops itself has random histories of its own, too. Proxies and
//!   half-dead backends stand in the tests of the client, over real sockets.
//! - Two orders are those of hash maps, and differ between processes: the initial list of a handler
//!   that joins late, and a resync. Such handlers have no bound, so that no promise depends on it.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "a simulation counts small numbers, and an overflow is a failure of it"
)]

mod absences;
mod coverage;
mod handler;
mod healing;
mod immutables;
mod informer;
mod launcher;
mod link;
mod manager;
mod oracle;
mod play;
mod pods;
mod promises;
mod restarts;
mod runtime;
mod sent;
mod server_side;
mod shrink;
mod stepped;
#[cfg(test)]
mod tests;
mod truth;
mod weather;

pub use coverage::Coverage;
pub use oracle::{BrokenPromise, Oracle};
pub use shrink::{RunOptions, RunOutcome, run, shrink};
