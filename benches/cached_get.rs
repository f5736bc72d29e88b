//! A cached `get_secret` of 1,000 Secrets at random, against a bare map behind a lock in the same run; allocations counted.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "a program for people, which fails by panicking"
)]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kubecache::clock::Clock;
use kubecache::manager::{Cached, ManagerOptions, SecretManager};
use kubecache::object::{Held, ObjectKey};
use kubecache::testing::{FakeSource, objects};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Secrets in memory.
const OBJECTS: usize = 1_000;

/// Reads per repeat.
const READS: usize = 200_000;

/// Repeats per side, in turns; the least counts, as the one that was disturbed least.
const REPEATS: usize = 15;

/// The budget: our time over the bare map's.
const RATIO_MAX: f64 = 1.5;

/// A bare map behind a lock: one `parking_lot` mutex around one hashbrown map with the hasher we use ourselves, looked
/// up by a borrowed key, the `Arc` cloned under the lock.
struct Bare(Mutex<HashMap<ObjectKey, Arc<Held<Secret>>>>);

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
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Held<Secret>>> {
        let key = Borrowed { namespace, name };
        self.0.lock().get(&key).cloned()
    }
}

fn main() {
    let names: Vec<String> = (0..OBJECTS)
        .map(|number| format!("secret-{number:04}"))
        .collect();
    let manager = filled_manager(&names);
    let bare = filled_map(&manager, &names);
    let reads = random_reads(&names);
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..REPEATS {
        theirs = theirs.min(time(&reads, |name| {
            black_box(bare.get("shop", name).unwrap());
        }));
        ours = ours.min(time(&reads, |name| {
            black_box(manager.get_secret("shop", name).unwrap());
        }));
    }
    let region = Region::new(ALLOCATOR);
    for name in &reads {
        black_box(manager.get_secret("shop", name).unwrap());
    }
    let allocations = region.change().allocations;
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let within = ratio <= RATIO_MAX && allocations == 0;
    println!(
        "cached get_secret of {OBJECTS} Secrets at random, least of {REPEATS} x {READS} reads on one thread"
    );
    println!(
        "bare map {:.1} ns  get_secret {:.1} ns  ratio {ratio:.2} (budget {RATIO_MAX:.2})  allocations in {READS} reads: \
         {allocations} (budget 0)  {}",
        nanos_each(theirs),
        nanos_each(ours),
        if within { "PASS" } else { "OVER BUDGET" },
    );
    std::process::exit(i32::from(!within));
}

/// A manager that has each Secret in memory, its watch open.
fn filled_manager(names: &[String]) -> SecretManager {
    let source = FakeSource::<Secret>::new();
    for name in names {
        source.set(objects::secret(
            "shop",
            name,
            "",
            &[("password", "hunter2")],
        ));
    }
    let manager = SecretManager::new(source.clone(), ManagerOptions::default()).unwrap();
    manager.register_pod(&pod(names));
    let patient = Clock::system().after(Duration::from_mins(1));
    for name in names {
        let cached: Cached<Secret> = manager.get_secret_by("shop", name, patient).unwrap();
        assert!(!cached.is_stale());
    }
    source.wait_for_watches(names.len());
    manager
}

fn pod(names: &[String]) -> Pod {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    objects::pod("shop", "pod", "node", &names, &[])
}

fn filled_map(manager: &SecretManager, names: &[String]) -> Bare {
    let entries = names.iter().map(|name| {
        let cached = manager.get_secret("shop", name).unwrap();
        (
            ObjectKey::new("shop", name.as_str()),
            Arc::clone(cached.held()),
        )
    });
    Bare(Mutex::new(entries.collect()))
}

/// Names in a random order, the same for both sides, in memory of their own.
fn random_reads(names: &[String]) -> Vec<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..READS)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let index = usize::try_from(state % OBJECTS as u64).unwrap();
            names.get(index).unwrap().clone()
        })
        .collect()
}

fn time(reads: &[String], mut read: impl FnMut(&str)) -> Duration {
    let before = thread_time();
    for name in reads {
        read(name);
    }
    thread_time().saturating_sub(before)
}

fn nanos_each(total: Duration) -> f64 {
    total.as_secs_f64() * 1e9 / READS as f64
}

/// CPU time of this thread: others on the machine do not count.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
