//! Decides when to send a recorded piece: at its time, faster, at once, or when a test says so.

use std::time::{Duration, Instant};

use crate::clock::{Clock, Deadline};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, WaitEnd, Wake};

/// How fast a replay sends its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Speed {
    /// Sends each answer at once and whole.
    #[default]
    AtOnce,
    /// Sends this many times as fast as recorded: 1.0 keeps the recorded times.
    Times(f64),
    /// Each piece of a watch, and its end, waits for
    /// [`FixtureServer::step`](super::FixtureServer::step); other answers come at once.
    Stepped,
}

/// A piece that a step released.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The path of the watch.
    pub path: String,
    /// The piece; empty for the end of the watch.
    pub text: String,
}

/// The clock and speed of a server, and its gate.
#[derive(Debug)]
pub(super) struct StepPace {
    pub(super) speed: Speed,
    pub(super) clock: Clock,
    pub(super) gate: Gate,
}

impl StepPace {
    /// Waits until `after` of recorded time has passed since `from`. Returns false if the stop
    /// comes first.
    pub(super) fn wait(&self, from: Instant, after: Duration, stop: &StopToken) -> bool {
        let Speed::Times(factor) = self.speed else {
            return !stop.is_stopped();
        };
        let seconds = after.as_secs_f64() / factor;
        let scaled = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let due = from
            .checked_add(scaled)
            .map_or(Deadline::NEVER, Deadline::at);
        self.until(due, stop)
    }

    /// The recorded time that passes in that time; zero if recorded times do not count.
    pub(super) fn recorded(&self, passed: Duration) -> Duration {
        let Speed::Times(factor) = self.speed else {
            return Duration::ZERO;
        };
        Duration::try_from_secs_f64(passed.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    pub(super) fn until(&self, due: Deadline, stop: &StopToken) -> bool {
        stop.wait_until(&self.clock, due) == WaitEnd::DeadlinePassed
    }
}

/// The gate at which stepped answers wait.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Monitor<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    next_id: u64,
    waiting: Vec<Waiting>,
    released: Vec<u64>,
    /// How many were released and have not come back or ended.
    moving: usize,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    /// Since the recording's start: the earliest one passes first.
    at: Duration,
    step: Step,
}

struct Knock(Arc<Monitor<Queue>>);

impl Wake for Knock {
    fn wake(&self) {
        drop(self.0.lock());
        self.0.notify_all();
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self(Arc::new(Monitor::new(Queue::default())))
    }

    /// Waits until `count` answers are at the gate, at most until `deadline`. Returns whether they
    /// are.
    pub(super) fn gathered(&self, count: usize, clock: &Clock, deadline: Deadline) -> bool {
        let mut queue = self.0.lock();
        loop {
            if queue.waiting.len() >= count {
                return true;
            }
            if clock.has_passed(deadline) {
                return false;
            }
            queue = clock.wait_until(&self.0, queue, deadline);
        }
    }

    /// Releases the earliest waiting piece. Waits for one, and for those on the way, at most until
    /// `deadline`.
    pub(super) fn step(&self, clock: &Clock, deadline: Deadline) -> Option<Step> {
        let mut queue = self.0.lock();
        loop {
            let first = queue
                .waiting
                .iter()
                .enumerate()
                .min_by_key(|(_, waiting)| (waiting.at, waiting.id));
            let first = first.map(|(index, _)| index);
            if let (Some(index), 0) = (first, queue.moving) {
                let waiting = queue.waiting.remove(index);
                queue.released.push(waiting.id);
                queue.moving = queue.moving.saturating_add(1);
                self.0.notify_all();
                return Some(waiting.step);
            }
            if clock.has_passed(deadline) {
                return None;
            }
            queue = clock.wait_until(&self.0, queue, deadline);
        }
    }
}

/// One answer's way through the gate, which knows whether it is at the gate or on the way.
pub(super) struct Passage<'a> {
    gate: &'a Gate,
    moving: bool,
}

impl<'a> Passage<'a> {
    pub(super) fn new(gate: &'a Gate) -> Self {
        Self {
            gate,
            moving: false,
        }
    }

    /// Waits for its turn. Returns false if the stop comes first.
    pub(super) fn pass(&mut self, at: Duration, piece: Step, stop: &StopToken) -> bool {
        let monitor = &self.gate.0;
        let wake: Arc<dyn Wake> = Arc::new(Knock(Arc::clone(monitor)));
        let registration = stop.register(&wake);
        let mut queue = monitor.lock();
        // One lock for both. Otherwise a step could come between this piece's arrival and its place
        // in the queue.
        if std::mem::take(&mut self.moving) {
            queue.moving = queue.moving.saturating_sub(1);
        }
        let id = queue.next_id;
        queue.next_id = id.wrapping_add(1);
        queue.waiting.push(Waiting {
            id,
            at,
            step: piece,
        });
        monitor.notify_all();
        let passed = loop {
            if let Some(index) = queue.released.iter().position(|released| *released == id) {
                queue.released.remove(index);
                self.moving = true;
                break !stop.is_stopped();
            }
            if stop.is_stopped() {
                queue.waiting.retain(|waiting| waiting.id != id);
                break false;
            }
            queue = monitor.wait(queue);
        };
        drop(queue);
        drop(registration);
        passed
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.moving {
            let mut queue = self.gate.0.lock();
            queue.moving = queue.moving.saturating_sub(1);
            drop(queue);
            self.gate.0.notify_all();
        }
    }
}
