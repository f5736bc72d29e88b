//! The client's rate limit: a token bucket in front of every request but the opening of watches (RS-1).

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::clock::{Clock, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::sync::{
    Arc, Bell, Belled, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{StopToken, Wake};

/// Requests per second, as the kubelet's `kubeAPIQPS`.
pub(crate) const PER_SECOND: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// Requests that may go at once after a rest, as the kubelet's `kubeAPIBurst`.
pub(crate) const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// So many urgent requests go in a row while a background request is queued: one permit in eight is
/// the background's.
const URGENT_IN_A_ROW: usize = 7;

/// A token bucket with a queue of two classes: requests somebody waits for go first. Clones share
/// the bucket.
///
/// It has no thread: the request at the front waits for its permit on the clock, the others for
/// their turn.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    clock: Clock,
    queue: Arc<Mutex<Queue>>,
}

/// Whether somebody waits for a request. It may become urgent while it is queued. Clones are the
/// same request.
#[derive(Clone, Debug)]
pub(crate) struct Urgency(Arc<AtomicBool>);

/// Resets an [`Urgency`] at the end of its request.
#[must_use = "the request ends when the guard is dropped"]
pub(crate) struct UrgencyReset<'a>(&'a Urgency);

/// The bucket and its waiters; pure.
#[derive(Debug)]
struct Queue {
    /// From one request to the next at the steady rate.
    interval: Duration,
    /// How far the plan may lie in the past: a full bucket less the request that is asked for.
    credit: Duration,
    /// When the next request would go if the bucket held nothing; `None` for a full bucket.
    next: Option<Instant>,
    urgent: VecDeque<Arc<Waiter>>,
    background: VecDeque<Arc<Waiter>>,
    /// Urgent requests since the last background one, as far as they count.
    urgent_in_a_row: usize,
}

/// A queued request.
#[derive(Debug)]
struct Waiter {
    urgency: Urgency,
    bell: Arc<Bell>,
}

/// Where in the queue a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// So many requests go first, as far as is known now.
    before: usize,
    /// When it would go then.
    at: Instant,
}

impl Urgency {
    pub(crate) fn new(is_urgent: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_urgent)))
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether both are of the same request.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Makes the next request a background one again when the guard is dropped.
    pub(crate) fn reset_at_end(&self) -> UrgencyReset<'_> {
        UrgencyReset(self)
    }
}

impl Drop for UrgencyReset<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}

impl Limiter {
    pub(crate) fn new(per_second: NonZeroU32, burst: NonZeroU32, clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            queue: Arc::new(Mutex::new(Queue::new(per_second, burst))),
        }
    }

    /// Takes one permit out of the bucket.
    ///
    /// Blocks until the request may go, `stop` is raised, or `deadline` passes. A deadline that
    /// comes before the request's turn fails at once. A request that gives up delays nobody behind
    /// it.
    ///
    /// # Errors
    ///
    /// `Stopped`, or `Timeout`, which says how many requests go first.
    pub(crate) fn acquire(
        &self,
        stop: &StopToken,
        deadline: Deadline,
        urgency: &Urgency,
    ) -> Result<(), Error> {
        let waiter = Arc::new(Waiter {
            urgency: urgency.clone(),
            bell: Arc::default(),
        });
        {
            let mut queue = self.queue.lock();
            let now = self.clock.now();
            queue.enter(&waiter);
            if queue.grant(&waiter, now) {
                return Ok(());
            }
            let turn = queue.turn(&waiter, now);
            if deadline.has_passed(turn.at) {
                queue.leave(&waiter);
                return Err(too_late(turn));
            }
        }
        let wake: Arc<dyn Wake> = Arc::new(Belled {
            mutex: Arc::clone(&self.queue),
            bell: Arc::clone(&waiter.bell),
        });
        let _registration = stop.register(&wake);
        self.wait(stop, deadline, &waiter)
    }

    fn wait(
        &self,
        stop: &StopToken,
        deadline: Deadline,
        waiter: &Arc<Waiter>,
    ) -> Result<(), Error> {
        let mut queue = self.queue.lock();
        loop {
            if stop.is_stopped() {
                queue.leave(waiter);
                return Err(Error::stopped("waiting for the client's rate limit"));
            }
            let now = self.clock.now();
            if queue.grant(waiter, now) {
                return Ok(());
            }
            if deadline.has_passed(now) {
                let turn = queue.turn(waiter, now);
                queue.leave(waiter);
                return Err(too_late(turn));
            }
            // The others are rung for when the front is theirs.
            let until = if queue.is_front(waiter) {
                deadline.earlier(Deadline::at(queue.next_permit(now)))
            } else {
                deadline
            };
            queue = self
                .clock
                .wait_for_bell(&self.queue, &waiter.bell, queue, until);
        }
    }

    /// Moves a queued request to the urgent ones; one that is not queued yet will queue there.
    /// Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        // Before the look at the queue: a request that queues after it sees this.
        urgency.set();
        self.queue.lock().expedite(urgency);
    }
}

fn too_late(turn: Turn) -> Error {
    let before = match turn.before {
        1 => "1 request goes first".to_owned(),
        count => format!("{count} requests go first"),
    };
    Error::new(
        ErrorKind::Timeout,
        format!(
            "the client's rate limit lets the request not go before the caller's deadline: {before}"
        ),
    )
}

impl Queue {
    fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1)
            .checked_div(per_second.get())
            .unwrap_or_default();
        Self {
            interval,
            credit: interval.saturating_mul(burst.get().saturating_sub(1)),
            next: None,
            urgent: VecDeque::new(),
            background: VecDeque::new(),
            urgent_in_a_row: 0,
        }
    }

    /// When the bucket has a permit. Credit grows while nobody asks, up to the burst.
    fn next_permit(&self, now: Instant) -> Instant {
        let oldest = now.checked_sub(self.credit).unwrap_or(now);
        self.next.map_or(oldest, |next| next.max(oldest))
    }

    fn is_backgrounds_turn(&self) -> bool {
        self.urgent.is_empty() || self.urgent_in_a_row >= URGENT_IN_A_ROW
    }

    fn front(&self) -> Option<&Arc<Waiter>> {
        let background = self.background.front();
        if self.is_backgrounds_turn() && background.is_some() {
            return background;
        }
        self.urgent.front()
    }

    fn is_front(&self, waiter: &Arc<Waiter>) -> bool {
        self.front().is_some_and(|front| Arc::ptr_eq(front, waiter))
    }

    fn enter(&mut self, waiter: &Arc<Waiter>) {
        let class = if waiter.urgency.is_urgent() {
            &mut self.urgent
        } else {
            &mut self.background
        };
        class.push_back(Arc::clone(waiter));
    }

    /// Whether it is the waiter's turn and there is a permit: then it is out of the queue, and the
    /// next one is told.
    fn grant(&mut self, waiter: &Arc<Waiter>, now: Instant) -> bool {
        let permit = self.next_permit(now);
        if permit > now || !self.is_front(waiter) {
            return false;
        }
        let is_urgent = self
            .urgent
            .front()
            .is_some_and(|front| Arc::ptr_eq(front, waiter));
        self.urgent_in_a_row = if is_urgent {
            let count = self.urgent_in_a_row.saturating_add(1);
            count.min(URGENT_IN_A_ROW)
        } else {
            0
        };
        self.next = permit.checked_add(self.interval);
        self.leave(waiter);
        true
    }

    fn leave(&mut self, waiter: &Arc<Waiter>) {
        let others = |other: &Arc<Waiter>| !Arc::ptr_eq(other, waiter);
        self.urgent.retain(others);
        self.background.retain(others);
        self.ring_front();
    }

    fn expedite(&mut self, urgency: &Urgency) {
        let is_it = |waiter: &Arc<Waiter>| Arc::ptr_eq(&waiter.urgency.0, &urgency.0);
        let place = self.background.iter().position(is_it);
        if let Some(waiter) = place.and_then(|place| self.background.remove(place)) {
            self.urgent.push_back(waiter);
            self.ring_front();
        }
    }

    fn ring_front(&self) {
        if let Some(front) = self.front() {
            front.bell.ring();
        }
    }

    fn turn(&self, waiter: &Arc<Waiter>, now: Instant) -> Turn {
        let place = |class: &VecDeque<Arc<Waiter>>| {
            class.iter().position(|other| Arc::ptr_eq(other, waiter))
        };
        let before = match (place(&self.urgent), place(&self.background)) {
            (Some(before), _) => {
                let shares = self.urgent_in_a_row.saturating_add(before) / URGENT_IN_A_ROW;
                before.saturating_add(shares.min(self.background.len()))
            }
            (None, Some(before)) => {
                let rounds = before.saturating_add(1).saturating_mul(URGENT_IN_A_ROW);
                let urgent = rounds.saturating_sub(self.urgent_in_a_row);
                before.saturating_add(urgent.min(self.urgent.len()))
            }
            (None, None) => 0,
        };
        let rounds = u32::try_from(before).unwrap_or(u32::MAX);
        let wait = self.interval.saturating_mul(rounds);
        Turn {
            before,
            at: later(self.next_permit(now), wait),
        }
    }
}
