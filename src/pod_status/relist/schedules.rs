//! Thread schedules of requests against the period and the stop, explored by a model checker.

use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use super::driver::RelistLoop;
use super::progress::Progress;
use super::requests::RelistRequests;
use super::{RelistOptions, Runtime, RuntimeError, RuntimePod};
use crate::clock::{Clock, FakeClock};
use crate::pod_status::{CachedStatus as _, ContainerState, PodStatus, PodStatusCache, Timestamp};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopSource, StopToken};

/// Schedules tried per model.
const SCHEDULES: usize = 3_000;
const PERIOD: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

/// A runtime of two pods, whose containers are of this generation.
struct Generations(Arc<Mutex<u32>>);

impl Runtime for Generations {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        let generation = self.0.lock().to_string();
        let pods = ["a", "b"].map(|uid| {
            RuntimePod::new(uid, "shop", uid).container(&generation, ContainerState::Running)
        });
        Ok(pods.into())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        let mut status = PodStatus::with_id(pod.uid());
        // As the list has it: an inspection may be older than a change after its list.
        status.ips = pod.containers().keys().cloned().collect();
        Ok(status)
    }
}

/// A loop on a thread of the model checker.
struct Model {
    cache: PodStatusCache<PodStatus>,
    generation: Arc<Mutex<u32>>,
    requests: RelistRequests,
    fake: FakeClock,
    stop: StopSource,
    relist: JoinHandle<()>,
}

impl Model {
    fn start() -> Self {
        let fake = FakeClock::new();
        let cache = PodStatusCache::new(Clock::from(fake.clone()));
        let (generation, requests) = (Arc::new(Mutex::new(0)), RelistRequests::new());
        let progress = Arc::new(Mutex::new(Progress::default()));
        let driver = RelistLoop::new(
            Generations(Arc::clone(&generation)),
            cache.clone(),
            RelistOptions::default(),
            (requests.clone(), progress),
        );
        let stop = StopSource::new();
        let token = stop.token();
        Self {
            cache,
            generation,
            requests,
            fake,
            stop,
            relist: thread::spawn(move || driver.run(&token)),
        }
    }

    /// A worker that changes its pod, asks for a relist and waits. It returns whether the status
    /// shows the change; `None` if the loop ended first.
    fn worker(&self, uid: &'static str) -> JoinHandle<Option<bool>> {
        let (cache, requests) = (self.cache.clone(), self.requests.clone());
        let (generation, fake) = (Arc::clone(&self.generation), self.fake.clone());
        thread::spawn(move || {
            let mine = {
                let mut generation = generation.lock();
                *generation = generation.saturating_add(1);
                *generation
            };
            // Time passes, so that no list from before the change has an equal time (PC-8).
            fake.advance(NANO);
            let end_of_sync = Timestamp::from(fake.now());
            fake.advance(NANO);
            requests.request_relist(uid);
            let reading = cache.get_newer_than(uid, end_of_sync).ok()?;
            let seen = reading
                .status()
                .and_then(|status| status.ips.first()?.parse().ok());
            Some(seen >= Some(mine))
        })
    }

    fn end(self) {
        self.stop.stop();
        self.relist.join().unwrap();
    }
}

/// No period ends here, so only the request can answer the worker.
#[test]
fn a_request_is_never_missed() {
    shuttle::check_random(
        || {
            let model = Model::start();
            assert_eq!(model.worker("a").join().unwrap(), Some(true));
            model.end();
        },
        SCHEDULES,
    );
}

/// Whichever of them serves it: the worker sees its own change.
#[test]
fn a_request_at_the_end_of_the_period_is_never_missed() {
    shuttle::check_random(
        || {
            let model = Model::start();
            let worker = model.worker("a");
            model.fake.advance(PERIOD);
            assert_eq!(worker.join().unwrap(), Some(true));
            model.end();
        },
        SCHEDULES,
    );
}

/// Requests, the end of the period and the stop at once: each worker sees its change or the end.
#[test]
fn a_stop_ends_the_loop_and_its_workers_whatever_else_comes() {
    shuttle::check_random(
        || {
            let model = Model::start();
            let workers = ["a", "b"].map(|uid| model.worker(uid));
            model.fake.advance(PERIOD);
            model.end();
            for worker in workers {
                assert_ne!(worker.join().unwrap(), Some(false));
            }
        },
        SCHEDULES,
    );
}
