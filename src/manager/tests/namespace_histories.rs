//! Random histories of managers that watch namespaces as a whole, or have fewer watches than
//! objects, over real reflectors and the fake server. Whatever happens, each object comes to what
//! the server has, and never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::fake::{pod, secret};
use super::stage::{MINUTE, SECOND, refused, version};
use crate::clock::{Clock, FakeClock, later};
use crate::manager::{Cached, ManagerOptions, PastLimit, SecretManager, WatchScope};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::testing::{FakeSource, SourceFault};
use crate::tests::dice::Dice;
use k8s_openapi::api::core::v1::Secret;

const STEPS: usize = 300;
const OBJECTS: u64 = 8;
/// Far more looks than the threads need for what is under way.
const LOOKS_MAX: u32 = 20_000;
/// And not before so much time of the system has passed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves a processor to the threads that do the work. Beside a busy thread, a yield costs a whole
/// slice of time; this does not.
fn give_way(micros: u64) {
    std::thread::park_timeout(Duration::from_micros(micros));
}

struct History {
    dice: Dice,
    clock: FakeClock,
    source: FakeSource<Secret>,
    manager: SecretManager,
    /// Whether the server refuses requests for the namespace.
    refuses: Arc<AtomicBool>,
    pods: BTreeMap<String, BTreeSet<String>>,
    /// The newest version read of each object since it is referenced.
    read: BTreeMap<String, u64>,
    /// Until when the server had each state of an object that is no more.
    replaced: BTreeMap<u64, Instant>,
    watches_max: usize,
}

impl History {
    /// With watches of the namespace, and as many as they like.
    fn of_namespaces(dice: Dice) -> Self {
        let scope = WatchScope::Namespace { above: 2 };
        Self::new(dice, |options| options.watch_scope(scope), usize::MAX)
    }

    /// With two watches, and perhaps one of the namespace among them.
    fn of_a_budget(mut dice: Dice) -> Self {
        let scope = match dice.roll(2) {
            0 => WatchScope::ByName,
            _ => WatchScope::Namespace { above: 1 },
        };
        let set = |options: ManagerOptions| {
            let options = options.watches_max(3).past_limit(PastLimit::Poll);
            options.watch_scope(scope)
        };
        Self::new(dice, set, 2)
    }

    fn new(
        dice: Dice,
        set: impl FnOnce(ManagerOptions) -> ManagerOptions,
        watches_max: usize,
    ) -> Self {
        let clock = FakeClock::new();
        let source = FakeSource::with_clock(Clock::from(clock.clone()));
        let refuses = Arc::new(AtomicBool::new(false));
        let decides = Arc::clone(&refuses);
        source.plan(move |request| {
            let is_refused = decides.load(Ordering::Relaxed) && !request.scope.is_one_object();
            is_refused.then(|| SourceFault::Fail(refused()))
        });
        let options = ManagerOptions::default()
            .clock(Clock::from(clock.clone()))
            .idle_max(MINUTE.saturating_mul(600));
        let options = set(options);
        Self {
            dice,
            manager: SecretManager::new(source.clone(), options).unwrap(),
            clock,
            source,
            refuses,
            pods: BTreeMap::new(),
            read: BTreeMap::new(),
            replaced: BTreeMap::new(),
            watches_max,
        }
    }

    fn name(&mut self) -> String {
        format!("s{}", self.dice.roll(OBJECTS))
    }

    fn referenced(&self) -> BTreeSet<String> {
        self.pods.values().flatten().cloned().collect()
    }

    fn step(&mut self) {
        match self.dice.roll(24) {
            0..4 => self.register(),
            4 => self.unregister(),
            5..10 => {
                let name = self.name();
                self.replace(&name);
                self.source.set(secret(&name, ""));
            }
            10 => {
                let name = self.name();
                self.replace(&name);
                self.source.delete("ns", &name);
            }
            11..13 => {
                self.source.set(secret("nobody-reads-it", ""));
            }
            13 => self.source.bookmark(),
            14 => self.source.end_watches(None),
            15 => self.source.expire_watches(),
            16 => self.source.compact(),
            17 => {
                let behind = self.dice.roll(4);
                let lags = behind > 0;
                let version = self.source.version().saturating_sub(behind);
                self.source.lag(lags.then_some(version));
            }
            18 => {
                let refuses = self.dice.roll(2) == 0;
                self.refuses.store(refuses, Ordering::Relaxed);
            }
            19 => self.clock.advance(SECOND.saturating_mul(5)),
            20 if self.dice.roll(4) == 0 => self.clock.advance(MINUTE.saturating_mul(6)),
            _ => self.read(),
        }
        give_way(self.dice.roll(64));
        assert!(self.source.open_watches() <= self.watches_max);
    }

    /// The present state of the object, if there is one, is about to go.
    fn replace(&mut self, name: &str) {
        for object in self.source.objects() {
            if object.metadata.name.as_deref() == Some(name) {
                self.replaced.insert(version(&object), self.clock.now());
            }
        }
    }

    fn register(&mut self) {
        let name = format!("p{}", self.dice.roll(3));
        let names: BTreeSet<String> = (0..self.dice.roll(6)).map(|_| self.name()).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        self.manager.register_pod(&pod(&name, &borrowed));
        self.pods.insert(name, names);
        self.forget_unreferenced();
    }

    fn unregister(&mut self) {
        let name = format!("p{}", self.dice.roll(3));
        self.manager.unregister_pod(&pod(&name, &[]));
        self.pods.remove(&name);
        self.forget_unreferenced();
    }

    fn forget_unreferenced(&mut self) {
        let referenced = self.referenced();
        self.read.retain(|name, _| referenced.contains(name));
    }

    fn read(&mut self) {
        let name = self.name();
        let now = crate::clock::Deadline::at(self.clock.now());
        if let Ok(cached) = self.manager.get_by("ns", &name, now) {
            self.note_read(&name, &cached);
        }
    }

    fn note_read(&mut self, name: &str, cached: &Cached<Secret>) {
        let version = version(cached);
        let replaced = self.replaced.get(&version).filter(|_| cached.is_polled());
        if let Some(replaced) = replaced.filter(|_| !cached.is_stale()) {
            let old = self.clock.now().saturating_duration_since(*replaced);
            assert!(old < MINUTE, "{name}: {version} was replaced {old:?} ago");
        }
        let before = self.read.insert(name.to_owned(), version);
        assert!(
            version >= before.unwrap_or_default(),
            "{name}: {version} after {before:?}"
        );
    }

    /// Whether the referenced object is read as the server has it.
    fn is_right(&mut self, name: &str) -> bool {
        let objects = self.source.objects();
        let truth = objects
            .iter()
            .find(|object| object.metadata.name.as_deref() == Some(name));
        let now = crate::clock::Deadline::at(self.clock.now());
        match (self.manager.get_by("ns", name, now), truth) {
            (Ok(cached), truth) => {
                self.note_read(name, &cached);
                truth.is_some_and(|truth| version(truth) == version(&cached))
            }
            (Err(error), truth) => truth.is_none() && error.is_not_found(),
        }
    }

    /// Advances the clock until all is right.
    fn settle(&mut self, mut is_settled: impl FnMut(&mut Self) -> bool) -> bool {
        let (began, mut looks) = (Clock::system().now(), 0_u32);
        // The threads that do the work need processors, however busy those are.
        while looks < LOOKS_MAX || Clock::system().now() < later(began, PATIENCE) {
            if is_settled(self) {
                return true;
            }
            looks = looks.saturating_add(1);
            if looks.is_multiple_of(64) {
                self.clock.advance(SECOND.saturating_mul(4));
            }
            give_way(20);
        }
        false
    }

    fn end(&mut self, seed: impl std::fmt::Display) {
        self.source.lag(None);
        self.refuses.store(false, Ordering::Relaxed);
        let names = self.referenced();
        let are_right = |history: &mut Self| names.iter().all(|name| history.is_right(name));
        let settled = self.settle(are_right);
        assert!(settled, "{seed}: {names:?}\n{}", self.reports());
        // By now nothing refuses the namespace for longer than the pause after a refusal.
        self.clock.advance(MINUTE.saturating_mul(6));
        if self.watches_max == usize::MAX {
            self.becomes_one_watch(&seed, &names);
        }
        for name in &names {
            self.source.set(secret(name, ""));
        }
        assert!(self.settle(are_right), "{seed}: after a change");
        assert!(self.source.open_watches() <= self.watches_max, "{seed}");
    }

    /// The namespace comes to one watch, or its few objects to one each.
    fn becomes_one_watch(&mut self, seed: impl std::fmt::Display, names: &BTreeSet<String>) {
        let is_one = names.len() > 2;
        let source = self.source.clone();
        let as_few = self.settle(|history| {
            history.source.bookmark();
            for name in names {
                history.is_right(name);
            }
            let open = source.open_watches();
            open <= if is_one { 1 } else { names.len() }
        });
        assert!(
            as_few,
            "{seed}: {names:?}: {} watches\n{}",
            source.open_watches(),
            self.reports()
        );
    }

    fn reports(&self) -> String {
        let objects: Vec<_> = self.manager.inspect().into_values().collect();
        format!("{objects:#?}\n{:#?}", self.manager.namespace_reports())
    }
}

fn run(begin: fn(Dice) -> History) {
    for (dice, seed) in Dice::histories(12) {
        let mut history = begin(dice);
        for _ in 0..STEPS {
            history.step();
        }
        history.end(seed);
        let History {
            manager, source, ..
        } = history;
        drop(manager);
        source.wait_for_watches(0);
    }
}

#[test]
fn b18_whatever_happens_to_the_namespace_each_object_comes_to_what_the_server_has() {
    run(History::of_namespaces);
}

/// The same with fewer watches than objects: no answer that is polled is older than the time to
/// live, unless it says so.
#[test]
fn b18_whatever_happens_with_few_watches_each_object_comes_to_what_the_server_has() {
    run(History::of_a_budget);
}
