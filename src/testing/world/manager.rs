//! A manager of the world: the real one, with stepped runs and a stepped housekeeper, the pods that
//! reference its objects, and what its reads must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};
use k8s_openapi::api::core::v1::ConfigMap;

use super::coverage::Counts;
use super::launcher::{RunSlot, RunSlots, WorldLauncher};
use super::link::Link;
use super::oracle::{BrokenPromise, Oracle};
use super::stepped::{SETTLE_STEPS, Stepped};
use super::truth::{KEYS, Key, Shown, StateKind, Truth, key_of, name};
use super::weather::Weather;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::manager::kinds::KindTraits;
use crate::manager::registry::Registry;
use crate::manager::ttl::store::TtlStore;
use crate::manager::watch::keeper::Keeper;
use crate::manager::watch::store::WatchStore;
use crate::manager::{
    ChangeDetection, Changed, Changes, ConfigMapManager, ManagerOptions, NamespaceState, PastLimit,
    WatchScope,
};
use crate::object::ResourceVersion;
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::testing::objects;
use crate::worker::StopSource;

/// The pods that reference objects.
const PODS: u64 = 4;
/// The longest time-out of a watch, and the wait for its end.
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);
const TIMEOUT_SLACK: Duration = Duration::from_secs(30);
/// By how much a coarse clock may be behind.
const TICK: Duration = Duration::from_secs(1);
/// How long a read may wait for the server.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// One manager, its runs and its users.
pub(super) struct WorldManager {
    pub(super) manager: ConfigMapManager,
    pub(super) mode: ChangeDetection,
    keeper: Option<Arc<Keeper<ConfigMap>>>,
    sweep_at: Deadline,
    pub(super) stop: StopSource,
    pub(super) slots: RunSlots,
    pub(super) link: Link,
    pub(super) clock: Clock,
    /// The objects that each pod references.
    pods: BTreeMap<u64, BTreeSet<Key>>,
    /// The newest state read of each object since it is referenced.
    pub(super) latest: [Option<Shown>; KEYS.len()],
    /// The end of each object that readers were told of: no earlier state may come back.
    pub(super) ended: [usize; KEYS.len()],
    /// When the object of each uid was first read.
    pub(super) uids: BTreeMap<u64, Instant>,
    /// When a pod last began to reference each object.
    pub(super) referenced_at: [Option<Instant>; KEYS.len()],
    /// Since when some pod references each object.
    pub(super) held_since: [Option<Instant>; KEYS.len()],
    pub(super) weather: Weather,
    changes: Changes,
    /// What the subscriber has seen after it was told.
    pub(super) told: [Option<Shown>; KEYS.len()],
    /// When the last fresh read began that found no such object.
    pub(super) absent: [Option<Instant>; KEYS.len()],
    /// When each object was last referenced anew, or read so that its watch goes on.
    wanted: [Instant; KEYS.len()],
    idle_max: Duration,
    /// With fewer watches than objects, the others are polled.
    watches_max: usize,
    healed: bool,
}

impl WorldManager {
    pub(super) fn new(
        link: Link,
        clock: &Clock,
        weather: &Weather,
        chance: &mut Chance,
    ) -> Result<Self, Error> {
        let mode = match chance.below(4) {
            0 => ChangeDetection::Cache,
            1 => ChangeDetection::Get,
            _ => ChangeDetection::Watch,
        };
        let idle_max = Duration::from_secs(60 + 60 * chance.below(10));
        let mut options = ManagerOptions::default()
            .clock(clock.clone())
            .change_detection(mode)
            .idle_max(idle_max);
        let seed = chance.below(u64::MAX);
        // A stream of its own, so that a run with a watch for each object is the same.
        let mut own = Chance::new(seed ^ 0x2f72_b4b0_1c3c_9d77);
        let above = usize::try_from(own.below(3)).unwrap_or_default();
        let watches_namespaces = mode == ChangeDetection::Watch && own.below(3) == 0;
        if watches_namespaces {
            options.watch_scope = WatchScope::Namespace { above };
        }
        let mut watches_max = usize::MAX;
        if own.below(4) == 0 {
            watches_max = 2 + usize::try_from(own.below(3)).unwrap_or_default();
            options = options.watches_max(watches_max).past_limit(PastLimit::Poll);
        }
        let getter = Arc::new(link.clone());
        let slots = RunSlots::default();
        let mut keeper = None;
        let manager = if mode == ChangeDetection::Watch {
            let registry = Registry::new(KindTraits::default(), getter, options);
            let launcher = WorldLauncher {
                link: link.clone(),
                latency: weather.latency,
                slots: Arc::clone(&slots),
                seeds: Mutex::new(Chance::new(chance.below(u64::MAX))),
            };
            let store = WatchStore::stepped(Box::new(launcher), registry);
            keeper = Some(Arc::clone(store.keeper()));
            ConfigMapManager::over(Box::new(store))?
        } else {
            let registry = Registry::new(KindTraits::default(), getter, options);
            ConfigMapManager::over(Box::new(TtlStore::new(registry)))?
        };
        Ok(Self {
            changes: manager.subscribe(),
            manager,
            mode,
            keeper,
            sweep_at: Deadline::at(clock.now()),
            stop: StopSource::new(),
            slots,
            link,
            clock: clock.clone(),
            pods: BTreeMap::new(),
            latest: [None; KEYS.len()],
            ended: [0; KEYS.len()],
            uids: BTreeMap::new(),
            referenced_at: [None; KEYS.len()],
            held_since: [None; KEYS.len()],
            weather: weather.clone(),
            told: [None; KEYS.len()],
            absent: [None; KEYS.len()],
            wanted: [clock.now(); KEYS.len()],
            idle_max,
            watches_max,
            healed: false,
        })
    }

    pub(super) fn is_referenced(&self, key: Key) -> bool {
        self.pods.values().any(|keys| keys.contains(&key))
    }

    /// A pod comes, changes or goes. Returns it for the story.
    pub(super) fn change_pods(&mut self, chance: &mut Chance, counts: &mut Counts) -> String {
        let number = chance.below(PODS);
        let pod_name = format!("p{number}");
        let mut keys = BTreeSet::new();
        if chance.below(3) > 0 {
            let all: BTreeSet<Key> = (0..KEYS.len() / 2).collect();
            keys = all.into_iter().filter(|_| chance.below(3) == 0).collect();
        }
        let names: Vec<&str> = keys
            .iter()
            .filter_map(|key| KEYS.get(*key).map(|(_, name)| *name))
            .collect();
        let pod = objects::pod("a", &pod_name, "node", &[], &names);
        let new = keys.iter().filter(|key| !self.is_referenced(**key));
        let new: Vec<Key> = new.copied().collect();
        for key in new {
            self.wants(key);
        }
        if keys.is_empty() && chance.below(2) == 0 {
            counts.met("user", "unregisters a pod");
            self.manager.unregister_pod(&pod);
            self.pods.remove(&number);
        } else {
            counts.met("user", "registers a pod");
            let before = self.pods.get(&number);
            let now = self.clock.now();
            let held: BTreeSet<Key> = self.pods.values().flatten().copied().collect();
            for key in keys
                .iter()
                .filter(|key| before.is_none_or(|it| !it.contains(key)))
            {
                if let Some(place) = self.referenced_at.get_mut(*key) {
                    *place = Some(now);
                }
                if let Some(place) = self
                    .held_since
                    .get_mut(*key)
                    .filter(|_| !held.contains(key))
                {
                    *place = Some(now);
                }
            }
            self.manager.register_pod(&pod);
            self.pods.insert(number, keys);
        }
        for key in 0..KEYS.len() {
            if !self.is_referenced(key) {
                self.forget(key);
            }
        }
        format!("pod {pod_name} references {names:?}")
    }

    fn wants(&mut self, key: Key) {
        if let Some(wanted) = self.wanted.get_mut(key) {
            *wanted = self.clock.now();
        }
    }

    fn forget(&mut self, key: Key) {
        let mut forgotten = vec![&mut self.told];
        // Nothing is kept of it, and the next answer may come from a cache that lags.
        if self.mode == ChangeDetection::Watch || self.weather.lags {
            forgotten.push(&mut self.latest);
            if let Some(place) = self.ended.get_mut(key) {
                *place = 0;
            }
        }
        for seen in forgotten {
            if let Some(place) = seen.get_mut(key) {
                *place = None;
            }
        }
        if let Some(absent) = self.absent.get_mut(key) {
            *absent = None;
        }
    }

    /// An object that a pod references.
    pub(super) fn some_referenced(&self, chance: &mut Chance) -> Option<Key> {
        let keys: Vec<Key> = self.pods.values().flatten().copied().collect();
        let count = u64::try_from(keys.len()).ok()?;
        keys.get(usize::try_from(chance.below(count.max(1))).ok()?)
            .copied()
    }

    /// A step of some run.
    pub(super) fn step_run(
        &mut self,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<Stepped, BrokenPromise> {
        let slots = self.slots.lock().clone();
        let count = u64::try_from(slots.len()).unwrap_or_default();
        let at = usize::try_from(chance.below(count.max(1))).unwrap_or_default();
        match slots.get(at) {
            Some(slot) => self.step_slot(slot, chance, counts),
            None => Ok(Stepped::Blocked),
        }
    }

    pub(super) fn step_slot(
        &self,
        slot: &Arc<Mutex<RunSlot>>,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<Stepped, BrokenPromise> {
        let mut run = slot.lock();
        let is_stopped = run.stop.token().is_stopped();
        let waits =
            |other: &Receiver<Infallible>| matches!(other.try_recv(), Err(TryRecvError::Empty));
        if !is_stopped && run.start_after.iter().any(waits) {
            return Ok(Stepped::Blocked);
        }
        let Some(mut reflector) = run.reflector.take() else {
            return Ok(Stepped::Ended);
        };
        drop(run);
        if self.healed {
            reflector.heal();
        }
        let stepped = reflector.step(self.clock.now(), chance, counts);
        let storm = reflector.take_storm();
        if stepped == Stepped::Ended {
            drop(reflector);
            slot.lock().has_ended = true;
        } else {
            let mut run = slot.lock();
            if run.has_ended {
                drop(run);
                drop(reflector);
            } else {
                run.reflector = Some(reflector);
            }
        }
        self.slots.lock().retain(|slot| !slot.lock().has_ended);
        storm.map_or(Ok(stepped), Err)
    }

    /// A round of the housekeeper, and of the checks. Returns whether the housekeeper has ended.
    pub(super) fn keep(&mut self) -> bool {
        let keeper = self.keeper.as_ref();
        keeper.is_none_or(|keeper| keeper.step(&mut self.sweep_at, &self.stop.token()))
    }

    /// All runs and the housekeeper go as far as they can without time.
    pub(super) fn settle(
        &mut self,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<(), BrokenPromise> {
        let mut steps = 0_u32;
        loop {
            self.keep();
            let slots = self.slots.lock().clone();
            let before = steps;
            for slot in &slots {
                while !matches!(
                    self.step_slot(slot, chance, counts)?,
                    Stepped::Blocked | Stepped::Ended
                ) {
                    steps += 1;
                    if steps > SETTLE_STEPS {
                        let seen = format!("a manager takes {steps} steps without time");
                        return Err(BrokenPromise::new(Oracle::Livelock, seen));
                    }
                }
            }
            if steps == before {
                if self.watches_namespace() {
                    counts.met("manager", "watches a namespace as a whole");
                }
                if self.watches_max < self.pods.values().flatten().count() {
                    counts.met("manager", "polls objects without room");
                }
                return self.check_runs();
            }
        }
    }

    /// How many runs of each object are at work.
    fn runs_at_work(&self) -> [usize; KEYS.len()] {
        let mut at_work = [0_usize; KEYS.len()];
        for slot in self.slots.lock().iter() {
            let slot = slot.lock();
            let is_at_work = !slot.has_ended && !slot.stop.token().is_stopped();
            let key = slot.key.as_ref().and_then(key_of);
            if let Some(count) = key.and_then(|key| at_work.get_mut(key)) {
                *count = count.saturating_add(usize::from(is_at_work));
            }
        }
        at_work
    }

    /// Whether the objects are watched with their namespace, or about to be.
    fn watches_namespace(&self) -> bool {
        let slots = self.slots.lock();
        slots.iter().any(|slot| slot.lock().key.is_none())
    }

    /// Each referenced object has one run at most, and no other object has one. A watch stops only
    /// where no reader has asked for the object for the idle time.
    fn check_runs(&self) -> Result<(), BrokenPromise> {
        let at_work = self.runs_at_work();
        let watches_namespace = self.watches_namespace();
        let now = self.clock.now();
        for ((key, count), wanted) in at_work.into_iter().enumerate().zip(self.wanted) {
            let most = usize::from(self.is_referenced(key));
            let idle = now.saturating_duration_since(wanted).saturating_add(TICK);
            // A run may have ended because its object is immutable.
            let is_watched = self.mode == ChangeDetection::Watch
                && idle < self.idle_max
                && !self.weather.immutables
                && !watches_namespace
                && self.watches_max == usize::MAX;
            let least = most * usize::from(is_watched);
            if count < least || count > most {
                let seen = format!("{count} runs of {} are at work, not {most}", name(key));
                return Err(BrokenPromise::new(Oracle::References, seen));
            }
        }
        let (open, _) = self.link.watches();
        if open > self.watches_max {
            let seen = format!("{open} watches are open, not {}", self.watches_max);
            return Err(BrokenPromise::new(Oracle::Watches, seen));
        }
        Ok(())
    }

    pub(super) fn wakes_at(&self) -> Vec<Instant> {
        let slots = self.slots.lock().clone();
        let reflectors = slots.iter().filter_map(|slot| {
            let slot = slot.lock();
            slot.reflector.as_ref().and_then(|run| run.wakes_at())
        });
        let poller = self
            .keeper
            .as_ref()
            .and_then(|it| it.starts.poller.as_ref());
        let polls = poller.and_then(|poller| poller.wakes_at());
        reflectors
            .chain(self.sweep_at.instant())
            .chain(polls)
            .collect()
    }

    /// A user reads an object, in one of the ways there are.
    pub(super) fn read(
        &mut self,
        chance: &mut Chance,
        truth: &Truth,
        weather: &Weather,
        counts: &mut Counts,
    ) -> Result<String, BrokenPromise> {
        let count = u64::try_from(KEYS.len() / 2).unwrap_or_default();
        let key = usize::try_from(chance.below(count)).unwrap_or_default();
        let way = chance.below(5);
        let what = way_in_words(way);
        counts.met("user", what);
        let Some((namespace, own)) = KEYS.get(key) else {
            return Ok(String::new());
        };
        // A read past the watch starts none that was stopped.
        if way >= 2 || self.runs_at_work().get(key) == Some(&1) {
            self.wants(key);
        }
        let began = self.clock.now();
        let by = self.clock.after(PATIENCE);
        let newest = truth.version();
        let asked = newest.saturating_sub(chance.below(4)).max(1);
        let found = match way {
            0 => self.manager.get_fresh(namespace, own, by),
            1 => {
                let version = ResourceVersion::from(asked.to_string());
                self.manager.get_at_least(namespace, own, &version, by)
            }
            2 => match self.manager.get_cached(namespace, own) {
                Ok(Some(cached)) => Ok(cached),
                Ok(None) => return Ok(format!("{what} {}: none", name(key))),
                Err(error) => Err(error),
            },
            _ if self.mode == ChangeDetection::Watch => {
                self.manager
                    .get_by(namespace, own, Deadline::at(self.clock.now()))
            }
            _ => self.manager.get_by(namespace, own, by),
        };
        let told = match &found {
            Ok(found) => format!("{:?}", Shown::of(found.stored())),
            Err(error) => format!("{:?}", error.kind()),
        };
        let story = format!("{what} {}: {told}", name(key));
        let not_registered = |error: &Error| error.kind() == ErrorKind::NotRegistered;
        // `Get` asks the server for any object.
        let is_known = self.is_referenced(key) || self.mode == ChangeDetection::Get;
        if found.as_ref().is_err_and(not_registered) == is_known {
            let seen = format!("{story}, referenced: {}", self.is_referenced(key));
            return Err(BrokenPromise::new(Oracle::References, seen));
        }
        match found {
            Ok(cached) => {
                let shown = self.note(key, &cached, truth, weather)?;
                let is_old = truth.replaced(&shown).is_some();
                if way == 0 && is_old {
                    return Err(BrokenPromise::new(Oracle::Fresh, story));
                }
                let at_least = truth.last(key, asked);
                if way == 1 && at_least.is_some_and(|state| shown.serial < state.serial) {
                    let seen = format!("{story} at {asked}, where the server had {at_least:?}");
                    return Err(BrokenPromise::new(Oracle::AtLeast, seen));
                }
            }
            Err(error) if error.is_not_found() => {
                if let Some(absent) = self.absent.get_mut(key).filter(|_| way == 0) {
                    *absent = Some(began);
                }
                let at_least = (way == 1).then_some(asked);
                self.check_absence(key, (way == 0, at_least), (truth, weather), &story)?;
                if way != 0 {
                    self.note_absence(key, truth);
                }
            }
            Err(_) => {}
        }
        Ok(story)
    }

    /// The subscriber looks at what has changed.
    pub(super) fn look(&mut self) {
        let keys = match self.changes.take() {
            Changed::Keys(keys) => keys.iter().filter_map(key_of).collect(),
            Changed::Anything => (0..KEYS.len()).collect::<Vec<_>>(),
        };
        for key in keys {
            let Some((namespace, own)) = KEYS.get(key) else {
                continue;
            };
            let cached = self.manager.get_cached(namespace, own);
            let shown = cached.ok().flatten();
            let shown = shown.and_then(|cached| Shown::of(cached.stored()));
            if let Some(place) = self.told.get_mut(key) {
                *place = shown;
            }
        }
    }

    /// How long it may take to find that an open watch is dead.
    pub(super) fn finds_dead_within(&self) -> Duration {
        let limit = self.link.idle_limit(TIMEOUT_MAX);
        limit.unwrap_or(TIMEOUT_MAX + TIMEOUT_SLACK)
    }

    pub(super) fn heal(&mut self) {
        self.healed = true;
    }

    /// Whether each referenced object is read as the server has it.
    pub(super) fn has_converged(
        &mut self,
        truth: &Truth,
        weather: &Weather,
    ) -> Result<Option<String>, BrokenPromise> {
        for key in 0..KEYS.len() {
            let Some((namespace, own)) = KEYS.get(key).filter(|_| self.is_referenced(key)) else {
                continue;
            };
            let by = if self.mode == ChangeDetection::Watch {
                Deadline::at(self.clock.now())
            } else {
                self.clock.after(PATIENCE)
            };
            let found = self.manager.get_by(namespace, own, by);
            let last = truth.last(key, u64::MAX);
            let kind = last.map_or(StateKind::Gone, |state| state.kind);
            let is_right = match (&found, kind) {
                (Ok(cached), StateKind::Decodes) => {
                    let shown = self.note(key, cached, truth, weather)?;
                    last.is_some_and(|state| state.serial == shown.serial)
                        || self.is_kept(&shown, truth)
                }
                (Ok(cached), StateKind::Gone)
                    if Shown::of(cached.stored())
                        .is_some_and(|shown| self.is_kept(&shown, truth)) =>
                {
                    true
                }
                (Err(error), StateKind::Gone) => error.is_not_found(),
                (Ok(_) | Err(_), StateKind::Undecodable) => true,
                (Ok(_), StateKind::Gone) | (Err(_), StateKind::Decodes) => false,
            };
            if !is_right {
                let found = found.map(|found| Shown::of(found.stored()));
                let found = found.map_err(|error| error.kind());
                return Ok(Some(format!(
                    "{}: {found:?}, the server has {last:?}",
                    name(key)
                )));
            }
        }
        if let Err(error) = self.manager.health() {
            return Ok(Some(format!("its health is bad: {error}")));
        }
        Ok(self.double_watches().filter(|_| weather.bookmarks))
    }

    /// The namespaces whose objects are watched both by name and with their namespace. One of the
    /// two watches takes over and ends the other, with the next bookmark at the latest.
    fn double_watches(&self) -> Option<String> {
        let reports = self.manager.namespace_reports();
        let double = reports
            .iter()
            .find(|report| report.state != NamespaceState::ByName && report.watches_by_name > 0);
        double.map(|report| format!("{report:?}"))
    }
}

fn way_in_words(way: u64) -> &'static str {
    match way {
        0 => "reads fresh",
        1 => "reads at a version",
        2 => "reads the copy",
        _ => "reads",
    }
}
