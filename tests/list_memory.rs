//! The heap's peak while a list is decoded: what is kept, one item, and little more. `--nocapture`
//! prints the figures.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::object::Object;

use crate::HEAP;
use crate::bodies::{self, Dress, Kind};
use crate::support::alone;

/// Objects per body.
const OBJECTS: usize = 1_000;

/// The budget, in hundredths of what is kept.
const PEAK_MAX_PERCENT: usize = 110;

#[test]
fn the_peak_of_a_list_is_what_is_kept_and_little_more() {
    alone(|| {
        for dress in [Dress::Bare, Dress::AsServed] {
            measure::<Secret>(Kind::Secret, dress);
            measure::<ConfigMap>(Kind::ConfigMap, dress);
            measure::<Pod>(Kind::Pod, dress);
        }
    });
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
        "{kind:?}s {dress:?}: body {} KiB, kept {} KiB, peak {} KiB, {percent} % of what is kept \
         (budget {PEAK_MAX_PERCENT})",
        body.len() / 1024,
        kept / 1024,
        peak / 1024
    );
    assert!(
        percent <= PEAK_MAX_PERCENT,
        "{kind:?}s {dress:?}: {percent} %"
    );
}
