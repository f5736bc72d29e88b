//! How long the writer of a store waits while 50 threads list and get 100,000 objects, and how long
//! these wait: a `Store` beside one read-write lock around one map, which is client-go's store.
//!
//! The writer puts events in at full rate, and then 2,000 a second, before all other threads if it
//! may. `KUBECACHE_READERS_OBJECTS` and `KUBECACHE_READERS_SECONDS` change the amounts.
//! `benches/peers/run readers` has client-go's own store beside them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    reason = "a program for people, which fails by panicking; its readers pause by the clock"
)]

mod load;

use std::time::Duration;

use load::{Load, Played, READERS, Waits};

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn main() {
    let count = number("KUBECACHE_READERS_OBJECTS", 100_000);
    let length = Duration::from_secs(number("KUBECACHE_READERS_SECONDS", 5));
    println!(
        "{count} ConfigMaps, {READERS} threads: each lists twice a second and gets 5,000; us: \
         median, p99, p99.9, longest"
    );
    let mut load = Load::new(count, length);
    show("Store", &load.of_store());
    show("one lock", &load.of_one_lock());
}

fn show(name: &str, parts: &[Played; 2]) {
    for (how, played) in ["full rate", "paced"].iter().zip(parts) {
        println!(
            "{name:9} {how:10} {:7} writes/s  write {}  list {}  get {}",
            played.rate,
            shown(played.write),
            shown(played.list),
            shown(played.get),
        );
    }
}

fn shown([median, p99, p999, longest]: Waits) -> String {
    format!("{median:6.1} {p99:7.1} {p999:7.1} {longest:7.0}")
}
