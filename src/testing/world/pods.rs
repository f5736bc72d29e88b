//! The pod-status cache of the world: the real cache and relist loop over a scripted runtime.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::coverage::Counts;
use super::oracle::{BrokenPromise, Oracle};
use super::runtime::{NumberedStatus, PODS, Pods, ScriptedRuntime};
use super::weather::Weather;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::pod_status::relist::driver::RelistLoop;
use crate::pod_status::{PodReading, PodStatusCache, RelistOptions, RelistRequests, Timestamp};
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::worker::StopSource;

/// The pause between two relists.
const PERIOD: Duration = Duration::from_secs(1);
/// The workers that wait at a time.
const WAITS_MAX: usize = 4;

/// A worker that waits for a status of a time.
struct WorldWait {
    uid: String,
    since: Instant,
    /// The cache's time when the wait began.
    before: Option<Timestamp>,
    answer: Box<dyn Fn() -> Option<PodReading<NumberedStatus>>>,
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
    waits: Vec<WorldWait>,
}

impl WorldPods {
    pub(super) fn new(fake: &FakeClock, weather: &Weather, chance: &mut Chance) -> Self {
        let clock = Clock::from(fake.clone());
        let pods = Arc::new(Mutex::new(Pods::new(weather, chance)));
        let cache = if weather.pod_events {
            PodStatusCache::evented(clock.clone())
        } else {
            PodStatusCache::new(clock.clone())
        };
        let runtime = ScriptedRuntime {
            pods: Arc::clone(&pods),
            cache: cache.clone(),
            clock: fake.clone(),
        };
        let requests = RelistRequests::new();
        let shared = (requests.clone(), Arc::default());
        let options = RelistOptions::default();
        Self {
            relist: RelistLoop::new(runtime, cache.clone(), options, shared),
            cache,
            requests,
            pods,
            due: clock.now(),
            clock,
            stop: StopSource::new(),
            waits: Vec::new(),
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
        let story = match chance.below(7) {
            0 => {
                let mut pods = self.pods.lock();
                pods.chance = chance.clone();
                pods.change(now);
                "a pod of the runtime changes".to_owned()
            }
            1 => {
                counts.met("pod status", "request");
                self.requests.request_relist(&uid);
                format!("a worker requests a relist of {uid}")
            }
            2 => {
                let requested = self.requests.take();
                if !requested.is_empty() {
                    counts.met("pod status", "relist on request");
                    let due = Deadline::at(self.due);
                    self.relist
                        .relist_requested(&requested, due, &self.stop.token());
                }
                format!("a relist of {requested:?}")
            }
            3 => {
                self.round(counts)?;
                "a relist".to_owned()
            }
            4 => self.wait(uid, now, counts),
            _ => self.read(&uid, chance, counts)?,
        };
        self.check_waits(counts)?;
        self.pods.lock().take_broken().map_or(Ok(story), Err)
    }

    /// The pods whose relist waits.
    fn requested(&self) -> BTreeSet<String> {
        let requested = self.requests.take();
        for uid in &requested {
            self.requests.request_relist(uid);
        }
        requested.into_iter().collect()
    }

    fn round(&mut self, counts: &mut Counts) -> Result<(), BrokenPromise> {
        let now = self.clock.now();
        if now < self.due {
            return Ok(());
        }
        counts.met("pod status", "relist");
        let requested = self.requested();
        self.pods.lock().lists_all = true;
        self.relist.round(&self.stop.token());
        self.pods.lock().lists_all = false;
        self.due = self.clock.now().checked_add(PERIOD).unwrap_or(now);
        if self.pods.lock().list_failed {
            counts.met("pod status", "failed relist");
            let left = self.requested();
            if let Some(lost) = requested.difference(&left).next() {
                let seen = format!("a relist failed, and the request of {lost} is lost");
                return Err(BrokenPromise::new(Oracle::Requests, seen));
            }
        }
        Ok(())
    }

    /// A worker waits for a status of this time.
    fn wait(&mut self, uid: String, now: Instant, counts: &mut Counts) -> String {
        if self.waits.len() >= WAITS_MAX {
            return "too many workers wait".to_owned();
        }
        counts.met("pod status", "wait");
        let story = format!("a worker of {uid} begins to wait");
        let answer = self.cache.enter_waiter(&uid, Timestamp::from(now));
        self.waits.push(WorldWait {
            uid,
            since: now,
            before: self.cache.global_time(),
            answer: Box::new(answer),
        });
        story
    }

    /// Each worker has its answer once the cache has reached the time that it waits for.
    fn check_waits(&mut self, counts: &mut Counts) -> Result<(), BrokenPromise> {
        let global = self.cache.global_time();
        for wait in std::mem::take(&mut self.waits) {
            if let Some(reading) = (wait.answer)() {
                counts.met("pod status", "answer to a wait");
                let pods = self.pods.lock();
                pods.check_time(&wait.uid, wait.since, &reading)?;
            } else if global != wait.before && global >= Some(Timestamp::from(wait.since)) {
                let seen = format!(
                    "a worker of {} waits for a time that the cache has reached",
                    wait.uid
                );
                return Err(BrokenPromise::new(Oracle::Waits, seen));
            } else {
                self.waits.push(wait);
            }
        }
        Ok(())
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
            return Ok(format!("a worker of {uid} finds nothing that is newer"));
        };
        let what = match (reading.error(), reading.is_stored()) {
            (Some(_), _) => "read of an error",
            (None, true) => "read",
            (None, false) => "read of no pod",
        };
        counts.met("pod status", what);
        self.pods.lock().check(uid, since, &reading)
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
        self.pods.lock().heal();
        for _ in 0..2 {
            wait(PERIOD);
            self.round(counts)?;
            self.check_waits(counts)?;
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
