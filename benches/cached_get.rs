//! A cached `get` of 1,000 Secrets at random, of managers and of a store, against a bare map behind
//! a lock in the same run, on one thread and on two; allocations counted.

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
use kubecache::reflector::{Reflector, ReflectorOptions};
use kubecache::store::{Indexers, Store};
use kubecache::testing::{FakeSource, objects};
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use reads::{READS, TOGETHER, at_random, nanos_each, time, time_two};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Secrets in memory.
const OBJECTS: usize = 1_000;

/// Repeats per side, in turns; on one thread the least counts, as the one that was disturbed least.
const REPEATS: usize = 15;

/// The budget: our time over the bare map's.
const RATIO_MAX: f64 = 1.5;

/// What a read should cost each of two threads at most, over what it costs one alone.
const SCALE_GOAL: f64 = 1.3;

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
    let (store, reflector) = filled_store(&names);
    let bare = filled_map(&watching, &names);
    let reads = at_random(&names);
    let bare = |name: &str| drop(black_box(bare.get("shop", name).unwrap()));
    let watched = |name: &str| drop(black_box(watching.get("shop", name).unwrap()));
    let cached = |name: &str| drop(black_box(caching.get("shop", name).unwrap()));
    let stored = |name: &str| drop(black_box(store.get("shop", name).unwrap().unwrap()));
    let mut sides = ["bare map", "Watch", "Cache", "Store"].map(Side::new);
    for _ in 0..REPEATS {
        sides[0].measure(&reads, bare);
        sides[1].measure(&reads, watched);
        sides[2].measure(&reads, cached);
        sides[3].measure(&reads, stored);
    }
    sides[0].count_allocations(&reads, bare);
    sides[1].count_allocations(&reads, watched);
    sides[2].count_allocations(&reads, cached);
    sides[3].count_allocations(&reads, stored);
    drop(reflector);
    println!(
        "cached get of {OBJECTS} Secrets at random, {REPEATS} x {READS} reads: on one thread \
         (least CPU time), \
         and on each of two at once (median wall time of rounds side by side, no budget)"
    );
    let [bare, ours @ ..] = sides;
    let mut within = true;
    for side in [&bare, &ours[0], &ours[1], &ours[2]] {
        let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
        let alone = ratio(side.alone, bare.alone);
        let fine = alone <= RATIO_MAX && side.allocations == 0;
        within &= fine;
        println!(
            "{:8}  one thread {:5.1} ns, ratio {alone:.2} (budget {RATIO_MAX:.2})  two threads {}  \
             allocations in {READS} reads: {} (budget 0)  {}",
            side.name,
            nanos_each(side.alone),
            side.scale(),
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
    /// The same by the rounds of the two threads.
    of_rounds: Duration,
    /// Of each repeat: the least would be one in which the two did not meet.
    together: Vec<Duration>,
    allocations: usize,
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            alone: Duration::MAX,
            of_rounds: Duration::MAX,
            together: Vec::new(),
            allocations: 0,
        }
    }

    fn measure(&mut self, reads: &[String], read: impl Fn(&str) + Copy + Send) {
        self.alone = self.alone.min(time(reads, read));
        // The rounds of the two, which find their names in the caches.
        let rounds = reads.chunks_exact(TOGETHER).map(|names| {
            time(names, read);
            time(names, read)
        });
        self.of_rounds = self.of_rounds.min(rounds.sum());
        self.together.extend(time_two(reads, read));
    }

    /// What a read costs each of two threads, and that over what it costs one alone.
    fn scale(&self) -> String {
        let mut times = self.together.clone();
        times.sort_unstable();
        let Some(together) = times.get(times.len() / 2) else {
            return "never side by side".to_owned();
        };
        let scale = together.as_secs_f64() / self.of_rounds.as_secs_f64();
        format!(
            "{:6.1} ns, {scale:.2} x one (goal {SCALE_GOAL:.2})",
            nanos_each(*together)
        )
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
        .ttl(Duration::from_secs(60 * 60));
    filled_manager(&filled_source(names), options, names)
}

fn filled_store(names: &[String]) -> (Store<Secret>, Reflector) {
    let (source, options) = (filled_source(names), ReflectorOptions::default());
    let indexers = Indexers::new();
    let (store, reflector) = Store::spawn("secrets", Arc::new(source), indexers, options).unwrap();
    let patient = Clock::system().after(Duration::from_secs(60));
    store.wait_until_synced(patient).unwrap();
    (store, reflector)
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
    let patient = Clock::system().after(Duration::from_secs(60));
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
