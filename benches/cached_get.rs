//! A cached `get` of 1,000 Secrets at random, watched and within its time to live, against a
//! bare map behind a lock in the same run; allocations counted.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

mod reads;

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kubecache::clock::Clock;
use kubecache::manager::{Cached, ChangeDetection, ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, StoredObject};
use kubecache::testing::{FakeSource, objects};
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use reads::{READS, at_random, nanos_each, time, time_two};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Secrets in memory.
const OBJECTS: usize = 1_000;

/// Repeats per side, in turns; on one thread the least counts, as the one that was disturbed least.
const REPEATS: usize = 15;

/// The budget: our time over the bare map's.
const RATIO_MAX: f64 = 1.5;

/// A bare map behind a lock: one `parking_lot` mutex around one hashbrown map with the hasher we
/// use ourselves, looked up by a borrowed key, the `Arc` cloned under the lock.
struct Bare(Mutex<HashMap<ObjectKey, Arc<StoredObject<Secret>>>>);

#[derive(Hash)]
struct Borrowed<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Equivalent<ObjectKey> for Borrowed<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        self.name == key.name() && self.namespace == key.namespace()
    }
}

impl Bare {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<StoredObject<Secret>>> {
        let key = Borrowed { namespace, name };
        self.0.lock().get(&key).cloned()
    }
}

fn main() {
    let names: Vec<String> = (0..OBJECTS)
        .map(|number| format!("secret-{number:04}"))
        .collect();
    let watching = watching_manager(&names);
    let caching = caching_manager(&names);
    let bare = filled_map(&watching, &names);
    let reads = at_random(&names);
    let bare = |name: &str| drop(black_box(bare.get("shop", name).unwrap()));
    let watched = |name: &str| drop(black_box(watching.get("shop", name).unwrap()));
    let cached = |name: &str| drop(black_box(caching.get("shop", name).unwrap()));
    let mut sides = ["bare map", "Watch", "Cache"].map(Side::new);
    for _ in 0..REPEATS {
        sides[0].measure(&reads, bare);
        sides[1].measure(&reads, watched);
        sides[2].measure(&reads, cached);
    }
    sides[0].count_allocations(&reads, bare);
    sides[1].count_allocations(&reads, watched);
    sides[2].count_allocations(&reads, cached);
    println!(
        "cached get of {OBJECTS} Secrets at random, {REPEATS} x {READS} reads: on one thread \
         (least CPU time), \
         and on each of two at once (median wall time, no budget)"
    );
    let [bare, ours @ ..] = sides;
    let mut within = true;
    for side in [&bare, &ours[0], &ours[1]] {
        let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
        let alone = ratio(side.alone, bare.alone);
        let fine = alone <= RATIO_MAX && side.allocations == 0;
        within &= fine;
        println!(
            "{:8}  one thread {:5.1} ns, ratio {alone:.2} (budget {RATIO_MAX:.2})  two threads \
             {:6.1} ns, ratio {:.2}  \
             allocations in {READS} reads: {} (budget 0)  {}",
            side.name,
            nanos_each(side.alone),
            nanos_each(side.together()),
            ratio(side.together(), bare.together()),
            side.allocations,
            if fine { "PASS" } else { "OVER BUDGET" },
        );
    }
    std::process::exit(i32::from(!within));
}

/// What was measured of one side.
struct Side {
    name: &'static str,
    alone: Duration,
    /// Of each repeat: the least would be one in which the two did not meet.
    together: Vec<Duration>,
    allocations: usize,
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            alone: Duration::MAX,
            together: Vec::new(),
            allocations: 0,
        }
    }

    fn measure(&mut self, reads: &[String], read: impl Fn(&str) + Copy + Send) {
        self.alone = self.alone.min(time(reads, read));
        self.together.push(time_two(reads, read));
    }

    fn together(&self) -> Duration {
        let mut times = self.together.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap()
    }

    fn count_allocations(&mut self, reads: &[String], read: impl Fn(&str)) {
        let region = Region::new(ALLOCATOR);
        for name in reads {
            read(name);
        }
        self.allocations = region.change().allocations;
    }
}

/// A manager that has each Secret in memory, its watch open.
fn watching_manager(names: &[String]) -> SecretManager {
    let source = filled_source(names);
    let manager = filled_manager(&source, ManagerOptions::default(), names);
    source.wait_for_watches(names.len());
    manager
}

/// A manager that has fetched each Secret and keeps it for longer than this program runs.
fn caching_manager(names: &[String]) -> SecretManager {
    let options = ManagerOptions::default()
        .change_detection(ChangeDetection::Cache)
        .ttl(Duration::from_hours(1));
    filled_manager(&filled_source(names), options, names)
}

fn filled_source(names: &[String]) -> FakeSource<Secret> {
    let source = FakeSource::<Secret>::new();
    for name in names {
        source.set(objects::secret(
            "shop",
            name,
            "",
            &[("password", "hunter2")],
        ));
    }
    source
}

fn filled_manager(
    source: &FakeSource<Secret>,
    options: ManagerOptions,
    names: &[String],
) -> SecretManager {
    let manager = SecretManager::new(source.clone(), options).unwrap();
    manager.register_pod(&pod(names));
    let patient = Clock::system().after(Duration::from_mins(1));
    for name in names {
        let cached: Cached<Secret> = manager.get_by("shop", name, patient).unwrap();
        assert!(!cached.is_stale());
    }
    manager
}

fn pod(names: &[String]) -> Pod {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    objects::pod("shop", "pod", "node", &names, &[])
}

fn filled_map(manager: &SecretManager, names: &[String]) -> Bare {
    let entries = names.iter().map(|name| {
        let cached = manager.get("shop", name).unwrap();
        (
            ObjectKey::new("shop", name.as_str()),
            Arc::clone(cached.stored()),
        )
    });
    Bare(Mutex::new(entries.collect()))
}
