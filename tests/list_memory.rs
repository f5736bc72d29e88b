//! The heap's peak while a list is decoded: what is kept, one item, and little more. `--nocapture` prints the figures.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "../benches/bodies/mod.rs"]
mod bodies;

use bodies::{Dress, Kind};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::object::Object;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Objects per body.
const OBJECTS: usize = 4_000;

/// The budget, in hundredths of what is kept.
const PEAK_MAX_PERCENT: usize = 110;

/// One test, because the counters belong to the whole process.
#[test]
fn the_peak_of_a_list_is_what_is_kept_and_little_more() {
    for dress in [Dress::Bare, Dress::AsServed] {
        measure::<Secret>(Kind::Secret, dress);
        measure::<ConfigMap>(Kind::ConfigMap, dress);
        measure::<Pod>(Kind::Pod, dress);
    }
}

fn measure<K: Object>(kind: Kind, dress: Dress) {
    let body = bodies::list(kind, dress, OBJECTS);
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let objects = bodies::decode::<K>(&body);
    let kept = HEAP.current_usage() - before;
    let peak = HEAP.peak_usage() - before;
    assert_eq!(objects.len(), OBJECTS);
    let percent = peak * 100 / kept;
    println!(
        "{kind:?}s {dress:?}: body {} KiB, kept {} KiB, peak {} KiB, {percent} % of what is kept (budget {PEAK_MAX_PERCENT})",
        body.len() / 1024,
        kept / 1024,
        peak / 1024
    );
    assert!(
        percent <= PEAK_MAX_PERCENT,
        "{kind:?}s {dress:?}: {percent} %"
    );
}
