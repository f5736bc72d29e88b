//! The runtime of the world's pods: it fails, takes time, changes by itself, and readers and events
//! come amid its calls.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::oracle::{BrokenPromise, Oracle};
use super::weather::Weather;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::guard::PlannedPanic;
use crate::pod_status::{
    CachedStatus, ContainerState, PodReading, PodStatusCache, Runtime, RuntimeError, RuntimePod,
    Timestamp,
};
use crate::policy::Chance;
use crate::sync::{Arc, Mutex};
use crate::worker::StopToken;

/// The pods of the runtime.
pub(super) const PODS: u64 = 4;
/// The time that passes before an event: two states of one instant have no order.
const INSTANT: Duration = Duration::from_millis(1);

/// The status of a pod: the number of its last change; 0 if it has none.
#[derive(Debug, Default)]
pub(super) struct NumberedStatus(pub(super) u64);

impl CachedStatus for NumberedStatus {
    fn with_id(_uid: &str) -> Self {
        Self::default()
    }
}

/// The pods of the runtime through time.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a habit of the runtime, or what a call of it notes"
)]
pub(super) struct Pods {
    /// The number of the last change of each pod that exists.
    pub(super) present: BTreeMap<String, u64>,
    /// Each change: the pod, its number (0 for its end), and when it came.
    changes: Vec<(String, u64, Instant)>,
    next: u64,
    pub(super) chance: Chance,
    fails: bool,
    panics: bool,
    changes_itself: bool,
    is_slow: bool,
    events: bool,
    /// Whether the last list failed.
    pub(super) list_failed: bool,
    /// A relist of all pods is under way.
    pub(super) lists_all: bool,
    /// The newest status that was read of each pod.
    latest: BTreeMap<String, u64>,
    /// A promise that broke amid a call.
    broken: Option<BrokenPromise>,
}

impl Pods {
    pub(super) fn new(weather: &Weather, chance: &mut Chance) -> Self {
        Self {
            present: BTreeMap::new(),
            changes: Vec::new(),
            next: 1,
            chance: Chance::new(chance.below(u64::MAX)),
            fails: weather.fault_rate > 0,
            panics: weather.panics,
            changes_itself: weather.bursts,
            is_slow: !weather.latency.is_zero(),
            events: weather.pod_events,
            list_failed: false,
            lists_all: false,
            latest: BTreeMap::new(),
            broken: None,
        }
    }

    pub(super) fn heal(&mut self) {
        (self.fails, self.panics, self.changes_itself) = (false, false, false);
        (self.is_slow, self.events) = (false, false);
    }

    pub(super) fn change(&mut self, now: Instant) {
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

    /// The state of a pod before a time: its number; `None` if it did not exist. What came at that
    /// very time may have come later.
    fn at(&self, uid: &str, time: Instant) -> Option<u64> {
        let mut changes = self.changes.iter().rev();
        let last = changes.find(|(own, _, at)| own == uid && *at < time);
        last.map(|(_, number, _)| *number)
            .filter(|number| *number > 0)
    }

    /// Whether the pod has existed all the time since then.
    fn has_lasted(&self, uid: &str, since: Instant) -> bool {
        let mut changes = self.changes.iter();
        !changes.any(|(own, number, at)| own == uid && *number == 0 && *at >= since)
    }

    /// A call of the runtime ends: it may fail.
    fn answer(&mut self) -> Result<(), RuntimeError> {
        if self.fails && self.chance.below(5) == 0 {
            return Err("the runtime fails".into());
        }
        if self.panics && self.chance.below(20) == 0 {
            // Without the hook, which would print it.
            std::panic::resume_unwind(Box::new(PlannedPanic));
        }
        Ok(())
    }

    /// Holds an answer of the cache against what the worker asked for, and against earlier answers.
    pub(super) fn check(
        &mut self,
        uid: &str,
        since: Instant,
        reading: &PodReading<NumberedStatus>,
    ) -> Result<String, BrokenPromise> {
        let story = self.check_time(uid, since, reading)?;
        let number = reading.status().map_or(0, |status| status.0);
        let latest = self.latest.entry(uid.to_owned()).or_default();
        if reading.error().is_none() && reading.is_stored() {
            if number < *latest {
                let seen = format!("{story} after {latest}");
                return Err(BrokenPromise::new(Oracle::Backwards, seen));
            }
            *latest = number;
        }
        Ok(story)
    }

    /// Holds an answer that may have come a while ago against what the worker asked for.
    pub(super) fn check_time(
        &self,
        uid: &str,
        since: Instant,
        reading: &PodReading<NumberedStatus>,
    ) -> Result<String, BrokenPromise> {
        if reading.error().is_some() {
            return Ok(format!("a worker of {uid} reads an error"));
        }
        let number = reading.status().map_or(0, |status| status.0);
        let story = format!("a worker of {uid} reads change {number}");
        let then = self.at(uid, since);
        let is_old = if reading.is_stored() {
            then.is_some_and(|then| number < then)
        } else {
            // It may have been gone for a moment in between.
            then.is_some() && self.present.contains_key(uid) && self.has_lasted(uid, since)
        };
        if is_old {
            let seen = format!("{story}, which had {then:?} at the time that it asked for");
            return Err(BrokenPromise::new(Oracle::Status, seen));
        }
        Ok(story)
    }

    /// The promise that broke amid a call of the runtime, if one did.
    pub(super) fn take_broken(&mut self) -> Option<BrokenPromise> {
        self.broken.take()
    }
}

#[derive(Clone)]
pub(super) struct ScriptedRuntime {
    pub(super) pods: Arc<Mutex<Pods>>,
    pub(super) cache: PodStatusCache<NumberedStatus>,
    pub(super) clock: FakeClock,
}

impl ScriptedRuntime {
    /// The world goes on while a call is under way.
    fn meanwhile(&self) {
        let mut pods = self.pods.lock();
        if pods.changes_itself && pods.chance.below(4) == 0 {
            pods.change(self.clock.now());
        }
        if pods.is_slow && pods.chance.below(4) == 0 {
            let takes = pods.chance.within(Duration::from_millis(300));
            self.clock.advance(takes);
            let now = self.clock.now();
            pods.change(now);
        }
        let uid = format!("pod-{}", pods.chance.below(PODS));
        if pods.events && pods.chance.below(2) == 0 {
            self.clock.advance(INSTANT);
            let now = self.clock.now();
            pods.change(now);
            self.clock.advance(INSTANT);
            let event = pods.present.get(&uid).copied();
            drop(pods);
            if let Some(number) = event {
                let time = Timestamp::now(&Clock::from(self.clock.clone()));
                let status = Some(Arc::new(NumberedStatus(number)));
                let _stored = self.cache.set(&uid, status, None, time);
            }
            pods = self.pods.lock();
        }
        let now = self.clock.now();
        let since = now.checked_sub(pods.chance.within(Duration::from_secs(1)));
        drop(pods);
        let since = since.unwrap_or(now);
        let read = self
            .cache
            .get_newer_than_by(&uid, Timestamp::from(since), Deadline::at(now));
        if let Ok(reading) = read {
            let mut pods = self.pods.lock();
            let broken = pods.check(&uid, since, &reading).err();
            pods.broken = pods.broken.take().or(broken);
        }
    }
}

impl Runtime for ScriptedRuntime {
    type Status = NumberedStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.meanwhile();
        let mut pods = self.pods.lock();
        pods.list_failed = true;
        pods.answer()?;
        pods.list_failed = false;
        let present = pods.present.iter();
        let listed = present.map(|(uid, number)| {
            let container = format!("c{number}");
            RuntimePod::new(uid.clone(), "a", uid.clone())
                .container(container, ContainerState::Running)
        });
        Ok(listed.collect())
    }

    /// The status has what the list showed, or what is there now: some runtimes take the containers
    /// from the list.
    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<NumberedStatus, RuntimeError> {
        let present = self.pods.lock().present.get(pod.uid()).copied();
        self.meanwhile();
        let mut pods = self.pods.lock();
        pods.answer()?;
        let number = present.ok_or("the pod is gone")?;
        // A record may still have containers of earlier lists.
        let listed = pod.containers().keys();
        let listed = listed.filter_map(|id| id.strip_prefix('c')?.parse().ok());
        let listed = listed.max();
        let from_list = pods.events || pods.is_slow;
        Ok(NumberedStatus(
            listed.filter(|_| from_list).unwrap_or(number),
        ))
    }
}
