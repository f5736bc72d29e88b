//! How long the writer of a store waits while 50 threads list and get 100,000 objects, and how long
//! these wait: a `Store` beside one read-write lock around one map, which is client-go's store.
//!
//! The writer puts events in at full rate, and then 2,000 a second, before all other threads if it
//! may. `KUBECACHE_READERS_OBJECTS` and `KUBECACHE_READERS_SECONDS` change the amounts.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    reason = "a program for people, which fails by panicking; its readers pause by the clock"
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, at, bounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::object::{Object as _, ResourceVersion, StoredObject};
use kubecache::reflector::{Replacement, Sink as _};
use kubecache::store::{Indexers, Store, StoreWriter};
use kubecache::testing::objects;
use parking_lot::{Mutex, RwLock};
use rustix::process::setpriority_process;

const READERS: u32 = 50;

/// Between two lists of a reader, which gets objects meanwhile.
const LIST_PERIOD: Duration = Duration::from_millis(500);
const GETS_AT_ONCE: usize = 50;
const GET_PERIOD: Duration = Duration::from_millis(10);

/// Between two events of the second part.
const PACE: Duration = Duration::from_micros(500);

/// The priority of the writer: what it waits for is then a lock and not a core. Root alone may have
/// it.
const FIRST: i32 = -20;

type Stored = Arc<StoredObject<ConfigMap>>;

/// What is compared.
trait Side: Sync {
    fn list(&self) -> usize;
    fn get(&self, name: &str) -> bool;
}

impl Side for Store<ConfigMap> {
    fn list(&self) -> usize {
        black_box(Self::list(self)).len()
    }

    fn get(&self, name: &str) -> bool {
        black_box(Self::get(self, "shop", name).unwrap()).is_some()
    }
}

/// One lock that readers share, as in client-go.
#[derive(Default)]
struct OneLock(RwLock<HashMap<String, Stored>>);

impl Side for OneLock {
    fn list(&self) -> usize {
        let all: Vec<_> = self.0.read().values().map(Arc::clone).collect();
        black_box(all).len()
    }

    fn get(&self, name: &str) -> bool {
        black_box(self.0.read().get(name).map(Arc::clone)).is_some()
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn object(name: &str, version: u64) -> Stored {
    let map = objects::config_map("shop", name, &version.to_string(), &[("key", "value")]);
    Arc::new(StoredObject::new(map))
}

fn main() {
    let count = number("KUBECACHE_READERS_OBJECTS", 100_000);
    let length = Duration::from_secs(number("KUBECACHE_READERS_SECONDS", 5));
    let names: Vec<String> = (0..count).map(|of| format!("map-{of:06}")).collect();
    println!(
        "{count} ConfigMaps, {READERS} threads: each lists twice a second and gets 5,000; us: \
         median, p99, p99.9, longest"
    );
    let mut load = Load {
        names,
        length,
        version: count,
    };
    let (store, mut writer) = filled(&load.names);
    load.play("Store", &store, |stored| put(&mut writer, stored));
    drop((store, writer));

    let lock = OneLock::default();
    for name in &load.names {
        lock.0.write().insert(name.clone(), object(name, 1));
    }
    load.play("one lock", &lock, |stored| {
        let before = lock.0.write().insert(stored.name().to_owned(), stored);
        drop(before);
    });
}

fn filled(names: &[String]) -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    let (store, mut writer) = Store::new(Indexers::new().by_namespace(), Clock::system());
    let mut staging = writer.begin();
    for name in names {
        let item = Listed::Object(object(name, 1));
        writer.stage(&mut staging, ObjectEvent::added(item));
    }
    let of = Replacement {
        resource_version: ResourceVersion::from("1"),
        consistent: true,
        history_expired: false,
    };
    writer.commit(staging, &of).unwrap();
    (store, writer)
}

fn put(writer: &mut StoreWriter<ConfigMap>, stored: Stored) {
    let event = ObjectEvent {
        kind: EventKind::Updated,
        object: Listed::Object(stored),
    };
    writer.apply(event).unwrap();
}

/// What each side has to bear.
struct Load {
    names: Vec<String>,
    length: Duration,
    version: u64,
}

impl Load {
    /// Reads on all threads while this one writes: at full rate, then paced.
    fn play(&mut self, name: &str, side: &dyn Side, mut write: impl FnMut(Stored)) {
        for (how, pace) in [("full rate", None), ("paced", Some(PACE))] {
            let (open, ends) = bounded::<()>(0);
            let (lists, gets) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
            let mut writes = Vec::new();
            let began = Instant::now();
            thread::scope(|scope| {
                for reader in 0..READERS {
                    let (ends, lists, gets, names) = (&ends, &lists, &gets, &self.names);
                    scope.spawn(move || {
                        let (listed, got) = read(side, names, reader, ends);
                        lists.lock().extend(listed);
                        gets.lock().extend(got);
                    });
                }
                // Threads that are made after it would have it, too.
                let is_first = setpriority_process(None, FIRST).is_ok();
                let mut due = Instant::now();
                while began.elapsed() < self.length {
                    self.version += 1;
                    let place = self.version * 7919 % self.names.len() as u64;
                    let name = &self.names[usize::try_from(place).unwrap()];
                    // Made before it counts: to decode is not the store's work.
                    let stored = object(name, self.version);
                    if let Some(pace) = pace {
                        due += pace;
                        at(due).recv().unwrap();
                    }
                    let from = Instant::now();
                    write(stored);
                    writes.push(from.elapsed());
                }
                drop(open);
                assert!(!is_first || setpriority_process(None, 0).is_ok());
            });
            let rate = writes.len() as u64 / self.length.as_secs().max(1);
            println!(
                "{name:9} {how:10} {rate:7} writes/s  write {}  list {}  get {}",
                shown(&mut writes),
                shown(&mut lists.into_inner()),
                shown(&mut gets.into_inner()),
            );
        }
    }
}

/// One reader: how long its lists and its gets took.
fn read(
    side: &dyn Side,
    names: &[String],
    reader: u32,
    ends: &Receiver<()>,
) -> (Vec<Duration>, Vec<Duration>) {
    let (mut lists, mut gets) = (Vec::new(), Vec::new());
    let mut at = usize::try_from(reader).unwrap() * 104_729;
    // The readers do not list in step.
    let mut next_list = Instant::now() + LIST_PERIOD / READERS * reader;
    while ends.recv_timeout(GET_PERIOD) == Err(RecvTimeoutError::Timeout) {
        if Instant::now() >= next_list {
            next_list += LIST_PERIOD;
            let began = Instant::now();
            assert_eq!(side.list(), names.len());
            lists.push(began.elapsed());
        }
        for _ in 0..GETS_AT_ONCE {
            at = (at + 7919) % names.len();
            let began = Instant::now();
            assert!(side.get(&names[at]));
            gets.push(began.elapsed());
        }
    }
    (lists, gets)
}

fn shown(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = |per_mille: usize| times[last * per_mille / 1000].as_secs_f64() * 1e6;
    format!(
        "{:6.1} {:7.1} {:7.1} {:7.0}",
        at(500),
        at(990),
        at(999),
        at(1000)
    )
}
