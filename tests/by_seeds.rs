//! Seeds of the simulation, a core for ten seconds, and how many they were.

use std::io::{self, Write as _};

use kubecache::testing::world::{Coverage, RunOptions, run};
use rustix::time::{ClockId, clock_gettime};

/// Seconds of a core, however many of the other tests want one.
const SEARCH: i64 = 10;

#[test]
fn the_promises_hold_for_ten_seconds_of_seeds() {
    let spent = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
    let (options, mut coverage) = (RunOptions::default(), Coverage::default());
    let mut seeds = 0_u64;
    while spent() < SEARCH {
        if let Some(failure) = run(seeds, &options, &mut coverage).failure {
            panic!("seed {seeds} fails: {failure}\nsimulate --seed {seeds} has its story");
        }
        seeds += 1;
    }
    // Not captured, unlike a macro's: the count is for whoever runs the tests.
    drop(writeln!(
        io::stderr(),
        "simulation: {seeds} seeds kept all promises"
    ));
}
