//! What a store has to bear: 50 threads that list and get its objects while one thread writes.
//!
//! The peers' programs have this file, too.

use std::collections::{BTreeMap, HashMap};
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
use parking_lot::{Mutex, RwLock};
use rustix::process::setpriority_process;

pub(crate) const READERS: u32 = 50;

/// Between two lists of a reader, which gets objects meanwhile.
const LIST_PERIOD: Duration = Duration::from_millis(500);
const GETS_AT_ONCE: usize = 50;
const GET_PERIOD: Duration = Duration::from_millis(10);

/// Between two events of the second part.
const PACE: Duration = Duration::from_micros(500);

/// The priority of the writer: what it waits for is then a lock and not a core. Root alone may have
/// it.
const FIRST: i32 = -20;

const NAMESPACE: &str = "shop";

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
        black_box(Self::get(self, NAMESPACE, name).unwrap()).is_some()
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

fn object(name: &str, version: u64) -> Stored {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some(NAMESPACE.to_owned());
    map.metadata.name = Some(name.to_owned());
    map.metadata.resource_version = Some(version.to_string());
    map.data = Some(BTreeMap::from([("key".to_owned(), "value".to_owned())]));
    Arc::new(StoredObject::new(map))
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

/// Microseconds: the median, the 99th and the 99.9th percentile, and the longest.
pub(crate) type Waits = [f64; 4];

/// How long a part's calls took.
pub(crate) struct Played {
    /// Writes a second.
    pub(crate) rate: u64,
    pub(crate) write: Waits,
    pub(crate) list: Waits,
    pub(crate) get: Waits,
}

/// The objects, and how long each part takes.
pub(crate) struct Load {
    names: Vec<String>,
    length: Duration,
    version: u64,
}

impl Load {
    pub(crate) fn new(count: u64, length: Duration) -> Self {
        Self {
            names: (0..count).map(|of| format!("map-{of:06}")).collect(),
            length,
            version: count,
        }
    }

    /// A `Store`: at full rate, then paced.
    pub(crate) fn of_store(&mut self) -> [Played; 2] {
        let (store, mut writer) = filled(&self.names);
        self.play(&store, |stored| put(&mut writer, stored))
    }

    /// One lock around one map: at full rate, then paced.
    pub(crate) fn of_one_lock(&mut self) -> [Played; 2] {
        let lock = OneLock::default();
        for name in &self.names {
            lock.0.write().insert(name.clone(), object(name, 1));
        }
        self.play(&lock, |stored| {
            let before = lock.0.write().insert(stored.name().to_owned(), stored);
            drop(before);
        })
    }

    fn play(&mut self, side: &dyn Side, mut write: impl FnMut(Stored)) -> [Played; 2] {
        [None, Some(PACE)].map(|pace| self.part(side, &mut write, pace))
    }

    /// Reads on all threads while this one writes.
    fn part(
        &mut self,
        side: &dyn Side,
        write: &mut dyn FnMut(Stored),
        pace: Option<Duration>,
    ) -> Played {
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
                let nth = self.version * 7919 % self.names.len() as u64;
                let name = &self.names[usize::try_from(nth).unwrap()];
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
        Played {
            rate: writes.len() as u64 / self.length.as_secs().max(1),
            write: waits(&mut writes),
            list: waits(&mut lists.into_inner()),
            get: waits(&mut gets.into_inner()),
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

fn waits(times: &mut [Duration]) -> Waits {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    [500, 990, 999, 1000].map(|per_mille| times[last * per_mille / 1000].as_secs_f64() * 1e6)
}
