//! The nanoseconds of a read on one thread and on each of two, and the look of a reader at what it
//! has read: the same for each side.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use crate::reads::{at_random, nanos_each, time, time_two};

/// How often reads are measured; the median counts.
const REPEATS: usize = 7;

/// A busy machine leaves two threads side by side only now and then.
///
/// # Panics
///
/// When they never ran so.
pub(crate) fn medians(names: &[String], read: impl Fn(&str) + Copy + Send) -> [f64; 2] {
    let names = at_random(names);
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        one.push(time(&names, read));
        two.extend(time_two(&names, read));
    }
    assert!(!two.is_empty(), "two threads never ran side by side");
    [one, two].map(|mut times| {
        times.sort_unstable();
        nanos_each(times[times.len() / 2])
    })
}

/// What a reader has of a Secret: the first byte of each value.
pub(crate) fn look(secret: &Secret) -> usize {
    let values = secret.data.iter().flat_map(BTreeMap::values);
    let first = values.filter_map(|value| value.0.first());
    first.map(|byte| usize::from(*byte)).sum()
}
