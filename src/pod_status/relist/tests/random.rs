//! Random histories of a runtime with faults: the cache's content was true once, and one clean
//! relist makes it equal.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use super::super::driver::RelistLoop;
use super::super::progress::Progress;
use super::*;
use crate::sync::{Arc, Mutex};
use crate::tests::dice::Dice;
use crate::worker::{StopSource, StopToken};

const HISTORIES: u64 = 100;
const STEPS: usize = 60;

/// A runtime's pods: each has one container, whose id has its generation and whose exit code has
/// the truth.
struct RuntimeState {
    pods: BTreeMap<String, u32>,
    generation: u32,
    dice: Dice,
    /// How likely a call fails, in percent.
    faults: u64,
    stop: StopSource,
}

impl RuntimeState {
    /// Something happens to a pod: it comes, changes or goes.
    fn happen(&mut self) {
        let uid = format!("pod-{}", self.dice.roll(6));
        if self.dice.roll(3) == 0 {
            self.pods.remove(&uid);
        } else {
            self.generation += 1;
            self.pods.insert(uid, self.generation);
        }
    }

    /// Whether this call succeeds. Some end with a panic, or a stop in the middle.
    fn fault(&mut self) -> Result<(), RuntimeError> {
        if self.dice.roll(100) >= self.faults {
            return Ok(());
        }
        match self.dice.roll(4) {
            0 => panic!("a fault"),
            1 => {
                self.stop.stop();
                Ok(())
            }
            _ => Err("a fault".into()),
        }
    }
}

struct FaultyRuntime(Arc<Mutex<RuntimeState>>);

impl Runtime for FaultyRuntime {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut world = self.0.lock();
        world.fault()?;
        let pods = world.pods.iter().map(|(uid, generation)| {
            RuntimePod::new(uid, "shop", uid)
                .container(generation.to_string(), ContainerState::Running)
        });
        Ok(pods.collect())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        let mut world = self.0.lock();
        world.fault()?;
        if world.faults > 0 && world.dice.roll(5) == 0 {
            world.happen();
        }
        let Some(generation) = world.pods.get(pod.uid()) else {
            return Err("no such pod".into());
        };
        Ok(status(pod.uid(), &generation.to_string()))
    }
}

/// The generations of the pods in the cache; an entry with an error has none.
fn cached(cache: &PodStatusCache<PodStatus>) -> BTreeMap<String, Option<u32>> {
    let entries = cache.get_all().into_iter();
    entries
        .map(|(uid, reading)| {
            let ips = reading.status().map(|status| status.ips.join(""));
            (uid.to_string(), ips.and_then(|text| text.parse().ok()))
        })
        .collect()
}

/// After the global time has moved: the cache has the listed pods, each in its state of then or a
/// later one.
fn assert_is_of(
    listed: &BTreeMap<String, u32>,
    cached: &BTreeMap<String, Option<u32>>,
    told: &str,
) {
    assert!(cached.keys().eq(listed.keys()), "{cached:?}, {told}");
    for (listed, (uid, cached)) in listed.values().zip(cached) {
        let is_older = cached.is_some_and(|cached| cached < *listed);
        assert!(!is_older, "{uid}: {cached:?} of {listed}, {told}");
    }
}

fn play((dice, seed): (Dice, u64)) {
    let fake = FakeClock::new();
    let cache = PodStatusCache::new(Clock::from(fake.clone()));
    let world = Arc::new(Mutex::new(RuntimeState {
        pods: BTreeMap::new(),
        generation: 0,
        dice,
        faults: 20,
        stop: StopSource::new(),
    }));
    let requests = RelistRequests::new();
    let mut driver = RelistLoop::new(
        FaultyRuntime(Arc::clone(&world)),
        cache.clone(),
        RelistOptions::default(),
        (requests.clone(), Arc::new(Mutex::new(Progress::default()))),
    );
    let mut global = None;
    for _ in 0..STEPS {
        let stop = StopSource::new();
        {
            let mut world = world.lock();
            world.stop = stop.clone();
            for _ in 0..world.dice.roll(4) {
                world.happen();
            }
        }
        fake.advance(PERIOD);
        // Between two relists, or just before one: requests change the cache only towards what is.
        let (asks, reinspects, is_late) = {
            let dice = &mut world.lock().dice;
            (dice.roll(3), dice.roll(2), dice.roll(2) == 0)
        };
        for number in 0..asks {
            let uid = format!("pod-{number}");
            if reinspects == 0 {
                assert!(requests.request_reinspect(&uid));
            }
            assert!(requests.request_relist(&uid));
        }
        if !is_late {
            let uids = requests.take();
            driver.relist_requested(&uids, Deadline::NEVER, &StopToken::never());
            assert_eq!(cache.global_time(), global, "seed {seed}");
            fake.advance(PERIOD);
        }
        let asked = Timestamp::from(fake.now());
        let listed = world.lock().pods.clone();
        // Whether or not a stop or a panic cut this round off, the next one goes on where it ended.
        driver.round(&stop.token());
        let after = cache.global_time();
        if after == Some(asked) {
            assert_is_of(&listed, &cached(&cache), &format!("seed {seed}"));
        } else {
            assert_eq!(after, global, "seed {seed}");
        }
        global = after;
    }
    let truth: BTreeMap<_, _> = {
        let mut world = world.lock();
        world.faults = 0;
        let pods = world.pods.iter();
        pods.map(|(uid, generation)| (uid.clone(), Some(*generation)))
            .collect()
    };
    fake.advance(PERIOD);
    assert!(!driver.round(&StopToken::never()));
    assert_eq!(cached(&cache), truth, "seed {seed}");
    assert_eq!(
        cache.global_time(),
        Some(Timestamp::from(fake.now())),
        "seed {seed}"
    );
}

#[test]
fn pl_2_pl_3_after_any_history_of_faults_one_clean_relist_makes_the_cache_equal_to_the_runtime() {
    Dice::histories(HISTORIES).for_each(play);
}
