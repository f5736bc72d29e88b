//! The third budget: what a read by index costs grows with the answer, and not with the store.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::list_watch::{Listed, ObjectEvent};
use kubecache::object::StoredObject;
use kubecache::reflector::{Replacement, Sink as _};
use kubecache::store::{Indexers, Store, StoreWriter};
use rustix::time::ClockId;

use crate::events::clock;

/// Objects in the smaller and in the larger store.
const STORES: [usize; 2] = [1_000, 20_000];

/// Objects in the answer.
const ANSWERS: [usize; 4] = [1, 10, 100, 1_000];

/// Objects read per repeat, so that small and large answers are timed as long.
const READ: usize = 200_000;

/// Repeats per side, in turns; the least counts.
const REPEATS: usize = 9;

/// The budget: the time in the larger store, twenty times as large, over that in the smaller one.
const RATIO_MAX: f64 = 2.0;

/// Whether the budget is kept.
pub(crate) fn run() -> bool {
    println!(
        "by_index in stores of {} and {} objects, least CPU time of {REPEATS} (budget: ratio \
         {RATIO_MAX:.2}; the store is 20 times as large)",
        STORES[0], STORES[1]
    );
    let stores = STORES.map(filled);
    let mut fine = true;
    for answer in ANSWERS {
        let mut least = [Duration::MAX; 2];
        let mut scan = Duration::MAX;
        for _ in 0..REPEATS {
            for ((store, _), least) in stores.iter().zip(&mut least) {
                *least = (*least).min(time(store, answer));
            }
            scan = scan.min(time_scan(&stores[1].0, answer));
        }
        let nanos = least.map(|time| time.as_secs_f64() * 1e9);
        let ratio = nanos[1] / nanos[0];
        fine &= ratio <= RATIO_MAX;
        println!(
            "  answer of {answer:>5}: {:>9.0} ns and {:>9.0} ns, {:.0} ns per object, ratio \
             {ratio:.2}  {}  (looking at all of the larger one: {:.0} us)",
            nanos[0],
            nanos[1],
            nanos[1] / answer as f64,
            crate::verdict(ratio <= RATIO_MAX),
            scan.as_secs_f64() * 1e6,
        );
    }
    fine
}

/// A store with as many objects, of which 1, 10, 100 and 1,000 share a value; the writer keeps it
/// open.
fn filled(objects: usize) -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    let indexers = Indexers::new().by_namespace().with("share", values);
    let (store, mut writer) = Store::new(indexers, Clock::system());
    let mut staging = writer.begin();
    for nth in 0..objects {
        // Those who share a value stand far from each other, as they do in a store that has lived.
        let place = nth * 7_919 % objects;
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(format!("team-{}", place % 17));
        object.metadata.name = Some(format!("settings-{place}"));
        object.metadata.uid = Some(place.to_string());
        object.metadata.resource_version = Some((place + 1).to_string());
        let item = Listed::Object(Arc::new(StoredObject::new(object)));
        writer.stage(&mut staging, ObjectEvent::added(item));
    }
    writer.commit(staging, &Replacement::default()).unwrap();
    assert_eq!(store.len(), objects);
    (store, writer)
}

fn values(object: &ConfigMap) -> Vec<String> {
    let place: usize = object.metadata.uid.as_deref().unwrap().parse().unwrap();
    let shares = ANSWERS.into_iter().filter(|answer| place < *answer);
    shares.map(|answer| answer.to_string()).collect()
}

/// The time of one read.
fn time(store: &Store<ConfigMap>, answer: usize) -> Duration {
    let value = answer.to_string();
    let reads = READ / answer;
    let before = clock(ClockId::ThreadCPUTime);
    for _ in 0..reads {
        let found = store.by_index("share", black_box(&value)).unwrap();
        assert_eq!(black_box(found).len(), answer);
    }
    let used = clock(ClockId::ThreadCPUTime).saturating_sub(before);
    used / u32::try_from(reads).unwrap()
}

/// The time of finding the same without an index.
fn time_scan(store: &Store<ConfigMap>, answer: usize) -> Duration {
    let value = answer.to_string();
    let before = clock(ClockId::ThreadCPUTime);
    let mut found = store.list();
    found.retain(|object| values(object).contains(&value));
    assert_eq!(black_box(found).len(), answer);
    clock(ClockId::ThreadCPUTime).saturating_sub(before)
}
