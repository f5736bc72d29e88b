//! The pod-status cache, row by row: reads, answers at once, answers to waiters, ends of waits.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by panicking"
)]

mod drops;
mod model;
mod reads;
mod rules;
mod times;
mod waits;

use std::time::Duration;

use crossbeam_channel::Receiver;

use super::*;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::sync::Arc;
use crate::worker::Worker;
use crate::{Error, ErrorKind};

/// Far from the clock's start, so that tests can use earlier times.
const START: Duration = Duration::from_secs(1_000);

/// After this an answer is lost for good, and the test fails instead of hanging.
const LOST: Duration = Duration::from_secs(5 * 60);

/// A cache with a fake clock, and times around one that the upstream tests call "now".
pub(super) struct Stage {
    pub(super) fake: FakeClock,
    pub(super) clock: Clock,
    pub(super) cache: PodStatusCache,
    start: Timestamp,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::over(PodStatusCache::new)
    }

    fn evented() -> Self {
        Self::over(PodStatusCache::evented)
    }

    fn over(make: fn(Clock) -> PodStatusCache) -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let start = Timestamp::now(&clock);
        fake.advance(START);
        Self {
            fake,
            cache: make(clock.clone()),
            clock,
            start,
        }
    }

    /// The time this many seconds from "now".
    pub(super) fn at(&self, seconds: i64) -> Timestamp {
        let seconds = seconds + i64::try_from(START.as_secs()).unwrap();
        let seconds = Duration::from_secs(seconds.try_into().unwrap());
        later(self.start, seconds)
    }

    /// Sets a status with that name and no error.
    fn set(&self, uid: &str, name: &str, time: Timestamp) {
        assert!(self.cache.set(uid, Some(status(uid, name)), None, time));
    }

    /// Whether a caller that asks now gets an answer at once.
    fn answers(&self, uid: &str, min_time: Timestamp) -> bool {
        let now = self.clock.after(Duration::ZERO);
        match self.cache.get_newer_than_by(uid, min_time, now) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Timeout);
                false
            }
        }
    }

    /// Asks on a new thread, and returns when that waits.
    fn ask(&self, uid: &str, min_time: Timestamp) -> Asking {
        self.ask_until(uid, min_time, Deadline::NEVER)
    }

    fn ask_until(&self, uid: &str, min_time: Timestamp, deadline: Deadline) -> Asking {
        let waiting = self.cache.waiting().len();
        let asking = Asking::new(&self.cache, uid, min_time, deadline);
        self.fake.wait_for_parked(waiting + 1);
        asking
    }

    /// The pods with waiters, and the times they ask for.
    fn waiting(&self) -> Vec<(String, Timestamp)> {
        let waiting = self.cache.waiting();
        let mut waiting: Vec<_> = waiting
            .iter()
            .map(|waiting| (waiting.uid.to_string(), waiting.min_time))
            .collect();
        waiting.sort();
        waiting
    }

    pub(super) fn assert_nobody_is_left(&self) {
        assert_eq!(self.cache.table.lock().waiters(), (0, 0));
    }
}

/// A waiting thread. Its drop stops and joins it.
struct Asking<S: CachedStatus = PodStatus> {
    told: Receiver<Result<PodReading<S>, Error>>,
    worker: Worker,
}

impl<S: CachedStatus> Asking<S> {
    fn new(cache: &PodStatusCache<S>, uid: &str, min_time: Timestamp, deadline: Deadline) -> Self {
        let (tell, told) = crossbeam_channel::bounded(1);
        let (asked, uid) = (cache.clone(), uid.to_owned());
        let worker = Worker::spawn("t-asking", move |stop| {
            let answer = asked.get_newer_than_or_stop(&uid, min_time, deadline, stop);
            // A test that has ended no longer listens.
            drop(tell.send(answer));
        });
        Self {
            told,
            worker: worker.unwrap(),
        }
    }

    fn end(&self) -> Result<PodReading<S>, Error> {
        self.told.recv_timeout(LOST).expect("the wait has an end")
    }

    fn answer(&self) -> PodReading<S> {
        self.end().unwrap()
    }

    fn error(&self) -> Error {
        self.end().unwrap_err()
    }

    fn stop(&self) {
        self.worker.stop();
    }
}

pub(super) fn status(uid: &str, name: &str) -> Arc<PodStatus> {
    Arc::new(PodStatus {
        name: name.to_owned(),
        ..PodStatus::with_id(uid)
    })
}

fn failure(text: &str) -> StatusError {
    Arc::new(Error::new(ErrorKind::Unreachable, text))
}

fn name(reading: &PodReading<PodStatus>) -> &str {
    &reading.status().unwrap().name
}

/// The time `by` later.
pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from(time.instant().unwrap() + by)
}
