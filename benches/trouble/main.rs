//! How much of the work one bad peer holds up, as figures: dead connections, a full rate limit,
//! unfinished lines, a killed server.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a benchmark prints, and fails by panicking"
)]

mod connections;
mod herd;
mod limit;
mod memory;
mod restart;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};

/// Prints its figures; `false` when one is over its budget.
type Run = fn() -> bool;

fn main() -> ExitCode {
    // Cargo hands `--bench` to each bench.
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let runs: [(&str, Run); 5] = [
        ("connections", connections::run),
        ("herd", herd::run),
        ("limit", limit::run),
        ("memory", memory::run),
        ("restart", restart::run),
    ];
    let wanted = |name: &str| {
        if asked.is_empty() {
            !matches!(name, "herd" | "restart")
        } else {
            asked.iter().any(|word| word == name)
        }
    };
    let mut met = true;
    for (name, run) in runs {
        if wanted(name) {
            println!("{name}:");
            met &= run();
        }
    }
    println!("{}", if met { "met" } else { "MISSED" });
    ExitCode::from(u8::from(!met))
}

fn client(url: &str) -> Client {
    let config = Config::for_server(url).unwrap();
    Client::new(&config, ClientOptions::default()).unwrap()
}

fn now() -> Instant {
    Clock::system().now()
}

fn pause(time: Duration) {
    let _passed = crossbeam_channel::never::<()>().recv_timeout(time);
}
