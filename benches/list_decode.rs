//! CPU time of decoding a list into kept objects, against `serde_json::from_slice` over the same
//! bytes in memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

mod bodies;

use std::hint::black_box;
use std::time::Duration;

use bodies::{Dress, Kind};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::{List, ListableResource};
use kubecache::Compact;
use kubecache::object::Object;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;

/// Objects per body.
const OBJECTS: usize = 4_000;

/// Repeats per side; the least counts, as the one that was disturbed least. So many, because a busy
/// machine disturbs most of them, and one side's more than the other's.
const REPEATS: usize = 25;

/// The budgets: our CPU time over `serde_json`'s.
const BARE_MAX: f64 = 1.35;
const AS_SERVED_MAX: f64 = 0.8;

fn main() {
    let mut over = false;
    println!(
        "CPU time of the thread, least of {REPEATS}, {OBJECTS} objects kept; ratio to \
         serde_json::from_slice::<List<K>>"
    );
    for (dress, words, budget) in [
        (Dress::Bare, "without managedFields", BARE_MAX),
        (Dress::AsServed, "as served", AS_SERVED_MAX),
    ] {
        over |= run::<Secret>(Kind::Secret, dress, words, budget);
        over |= run::<ConfigMap>(Kind::ConfigMap, dress, words, budget);
        over |= run::<Pod>(Kind::Pod, dress, words, budget);
    }
    std::process::exit(i32::from(over));
}

fn run<K: Object + ListableResource + DeserializeOwned>(
    kind: Kind,
    dress: Dress,
    words: &str,
    budget: f64,
) -> bool {
    let body = bodies::list(kind, dress, OBJECTS);
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    let (mut compact, mut text_bytes) = (Duration::MAX, 0);
    for _ in 0..REPEATS {
        settle();
        let before = thread_time();
        let list = serde_json::from_slice::<List<K>>(&body).unwrap();
        theirs = theirs.min(thread_time().saturating_sub(before));
        assert_eq!(black_box(list).items.len(), OBJECTS);
        settle();
        let before = thread_time();
        let objects = bodies::decode::<K>(&body);
        ours = ours.min(thread_time().saturating_sub(before));
        assert_eq!(black_box(objects).len(), OBJECTS);
        settle();
        let before = thread_time();
        let texts = bodies::decode::<Compact<K>>(&body);
        compact = compact.min(thread_time().saturating_sub(before));
        text_bytes = texts.iter().map(|text| text.json().len()).sum::<usize>();
    }
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let verdict = if ratio <= budget {
        "PASS"
    } else {
        "OVER BUDGET"
    };
    println!(
        "{:<10} {words:<22} {:>5.1} MB  from_slice {:>6.1} ms  ours {:>6.1} ms  ratio {ratio:.2} \
         (budget {budget:.2}) {verdict}  Compact {:>6.1} ms, {:>5.1} MB of text",
        format!("{kind:?}s"),
        body.len() as f64 / 1e6,
        theirs.as_secs_f64() * 1e3,
        ours.as_secs_f64() * 1e3,
        compact.as_secs_f64() * 1e3,
        text_bytes as f64 / 1e6,
    );
    ratio > budget
}

/// Gives both sides the same heap to start from: freeing this much makes glibc join what small
/// frees have left behind, which otherwise the first large allocation pays for, whoever makes it.
fn settle() {
    drop(black_box(vec![0_u8; 100 * 1024]));
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap(),
        u32::try_from(now.tv_nsec).unwrap(),
    )
}
