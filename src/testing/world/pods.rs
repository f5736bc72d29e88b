//! The pod-status cache of the world: the real cache and relist loop over a scripted runtime.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::coverage::Counts;
use super::oracle::{BrokenPromise, Oracle};
use super::weather::Weather;
use crate::clock::{Clock, Deadline};
use crate::guard::PlannedPanic;
use crate::pod_status::relist::driver::RelistLoop;
use crate::pod_status::{
    CachedStatus, ContainerState, PodStatusCache, RelistOptions, RelistRequests, Runtime,
    RuntimeError, RuntimePod, Timestamp,
};
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::worker::{StopSource, StopToken};

/// The pods of the runtime.
const PODS: u64 = 4;
/// The pause between two relists.
const PERIOD: Duration = Duration::from_secs(1);

/// The status of a pod: the number of its last change; 0 if it has none.
#[derive(Debug, Default)]
struct NumberedStatus(u64);

impl CachedStatus for NumberedStatus {
    fn with_id(_uid: &str) -> Self {
        Self::default()
    }
}

/// The pods of the runtime through time.
#[derive(Debug)]
struct Pods {
    /// The number of the last change of each pod that exists.
    present: BTreeMap<String, u64>,
    /// Each change: the pod, its number (0 for its end), and when it came.
    changes: Vec<(String, u64, Instant)>,
    next: u64,
    chance: Chance,
    fails: bool,
    panics: bool,
    changes_itself: bool,
}

impl Pods {
    fn change(&mut self, now: Instant) {
        let uid = format!("pod-{}", self.chance.below(PODS));
        let ends = self.present.contains_key(&uid) && self.chance.below(4) == 0;
        let number = if ends { 0 } else { self.next };
        self.next = self.next.saturating_add(1);
        if ends {
            self.present.remove(&uid);
        } else {
            self.present.insert(uid.clone(), number);
        }
        self.changes.push((uid, number, now));
    }

    /// The state of a pod at a time: its number; `None` if it did not exist.
    fn at(&self, uid: &str, time: Instant) -> Option<u64> {
        let mut changes = self.changes.iter().rev();
        let last = changes.find(|(own, _, at)| own == uid && *at <= time);
        last.map(|(_, number, _)| *number)
            .filter(|number| *number > 0)
    }

    /// A call of the runtime begins: it may fail, and the world goes on meanwhile.
    fn call(&mut self, now: Instant) -> Result<(), RuntimeError> {
        if self.changes_itself && self.chance.below(4) == 0 {
            self.change(now);
        }
        if self.fails && self.chance.below(5) == 0 {
            return Err("the runtime fails".into());
        }
        if self.panics && self.chance.below(20) == 0 {
            // Without the hook, which would print it.
            std::panic::resume_unwind(Box::new(PlannedPanic));
        }
        Ok(())
    }
}

#[derive(Clone)]
struct ScriptedRuntime {
    pods: Arc<Mutex<Pods>>,
    clock: Clock,
}

impl Runtime for ScriptedRuntime {
    type Status = NumberedStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut pods = self.pods.lock();
        pods.call(self.clock.now())?;
        let present = pods.present.iter();
        let listed = present.map(|(uid, number)| {
            let container = format!("c{number}");
            RuntimePod::new(uid.clone(), "a", uid.clone())
                .container(container, ContainerState::Running)
        });
        Ok(listed.collect())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<NumberedStatus, RuntimeError> {
        let mut pods = self.pods.lock();
        pods.call(self.clock.now())?;
        let number = pods.present.get(pod.uid());
        let number = number.ok_or("the pod is gone")?;
        Ok(NumberedStatus(*number))
    }
}

/// The cache, the relist loop and the workers of the pods.
pub(super) struct WorldPods {
    relist: RelistLoop<ScriptedRuntime>,
    cache: PodStatusCache<NumberedStatus>,
    requests: RelistRequests,
    pods: Arc<Mutex<Pods>>,
    clock: Clock,
    due: Instant,
    stop: StopSource,
    /// The newest status that was read of each pod.
    latest: BTreeMap<String, u64>,
}

impl WorldPods {
    pub(super) fn new(clock: &Clock, weather: &Weather, chance: &mut Chance) -> Self {
        let pods = Pods {
            present: BTreeMap::new(),
            changes: Vec::new(),
            next: 1,
            chance: Chance::new(chance.below(u64::MAX)),
            fails: weather.fault_rate > 0,
            panics: weather.panics,
            changes_itself: weather.bursts,
        };
        let pods = Arc::new(Mutex::new(pods));
        let cache = PodStatusCache::new(clock.clone());
        let runtime = ScriptedRuntime {
            pods: Arc::clone(&pods),
            clock: clock.clone(),
        };
        let requests = RelistRequests::new();
        let shared = (requests.clone(), Arc::default());
        let options = RelistOptions::default();
        Self {
            relist: RelistLoop::new(runtime, cache.clone(), options, shared),
            cache,
            requests,
            pods,
            clock: clock.clone(),
            due: clock.now(),
            stop: StopSource::new(),
            latest: BTreeMap::new(),
        }
    }

    /// A pod changes, the loop works, or a worker reads.
    pub(super) fn step(
        &mut self,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<String, BrokenPromise> {
        let now = self.clock.now();
        let uid = format!("pod-{}", chance.below(PODS));
        match chance.below(6) {
            0 => {
                let mut pods = self.pods.lock();
                pods.chance = chance.clone();
                pods.change(now);
                Ok("a pod of the runtime changes".to_owned())
            }
            1 => {
                counts.met("pod status", "request");
                self.requests.request_relist(&uid);
                Ok(format!("a worker requests a relist of {uid}"))
            }
            2 => {
                let requested = self.requests.take();
                if !requested.is_empty() {
                    counts.met("pod status", "relist on request");
                    let due = Deadline::at(self.due);
                    self.relist
                        .relist_requested(&requested, due, &self.stop.token());
                }
                Ok(format!("a relist of {requested:?}"))
            }
            3 => {
                self.round(counts);
                Ok("a relist".to_owned())
            }
            _ => self.read(&uid, chance, counts),
        }
    }

    fn round(&mut self, counts: &mut Counts) {
        let now = self.clock.now();
        if now >= self.due {
            counts.met("pod status", "relist");
            self.relist.round(&self.stop.token());
            self.due = now.checked_add(PERIOD).unwrap_or(now);
        }
    }

    /// A worker wants a status that is newer than a time.
    fn read(
        &mut self,
        uid: &str,
        chance: &mut Chance,
        counts: &mut Counts,
    ) -> Result<String, BrokenPromise> {
        let now = self.clock.now();
        let since = now.checked_sub(chance.within(Duration::from_secs(3)));
        let since = since.unwrap_or(now);
        let newer = self
            .cache
            .get_newer_than_by(uid, Timestamp::from(since), Deadline::at(now));
        let Ok(reading) = newer else {
            counts.met("pod status", "read in vain");
            return Ok(format!("a worker of {uid} waits"));
        };
        if reading.error().is_some() {
            counts.met("pod status", "read of an error");
            return Ok(format!("a worker of {uid} reads an error"));
        }
        let number = reading.status().map_or(0, |status| status.0);
        let story = format!("a worker of {uid} reads change {number}");
        let pods = self.pods.lock();
        let then = pods.at(uid, since);
        let exists = pods.present.contains_key(uid);
        drop(pods);
        let is_old = if reading.is_stored() {
            counts.met("pod status", "read");
            then.is_some_and(|then| number < then)
        } else {
            counts.met("pod status", "read of no pod");
            // It may have been gone for a moment in between.
            then.is_some() && exists && self.has_lasted(uid, since)
        };
        if is_old {
            let seen = format!("{story}, which had {then:?} at the time that it asked for");
            return Err(BrokenPromise::new(Oracle::Status, seen));
        }
        let latest = self.latest.entry(uid.to_owned()).or_default();
        if reading.is_stored() && number < *latest {
            let seen = format!("{story} after {latest}");
            return Err(BrokenPromise::new(Oracle::Backwards, seen));
        }
        *latest = number.max(*latest);
        Ok(story)
    }

    /// Whether the pod has existed all the time since then.
    fn has_lasted(&self, uid: &str, since: Instant) -> bool {
        let pods = self.pods.lock();
        let mut changes = pods.changes.iter();
        !changes.any(|(own, number, at)| own == uid && *number == 0 && *at > since)
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Ends the faults, relists, and compares.
    pub(super) fn check_healed(
        &mut self,
        counts: &mut Counts,
        mut wait: impl FnMut(Duration),
    ) -> Result<(), BrokenPromise> {
        {
            let mut pods = self.pods.lock();
            (pods.fails, pods.panics, pods.changes_itself) = (false, false, false);
        }
        for _ in 0..2 {
            wait(PERIOD);
            self.round(counts);
        }
        for pod in 0..PODS {
            let uid = format!("pod-{pod}");
            let reading = self.cache.get(&uid);
            let cached = reading.status().filter(|_| reading.is_stored());
            let cached = cached.map(|status| status.0);
            let present = self.pods.lock().present.get(&uid).copied();
            if cached != present {
                let seen = format!("{uid} has {cached:?}, the runtime {present:?}");
                return Err(BrokenPromise::new(Oracle::Converges, seen));
            }
        }
        Ok(())
    }
}
