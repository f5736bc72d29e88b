//! Decides which waiting request is admitted next: urgent requests first, and every request in the
//! end.
//!
//! The rate limiter admits by permits, the slots by the number of working requests. Admission has
//! no thread: the first request waits for the supply, the others wait for their turn. A request
//! without a thread is admitted by the thread that made the supply grow.

#[cfg(all(test, shuttle))]
mod schedules;

use std::collections::VecDeque;
use std::time::Instant;

use crate::clock::{Clock, Deadline};
use crate::error::clone_of;
use crate::guard::guard_logged;
use crate::sync::{
    Arc, Bell, Mutex, MutexGuard, Rank, Wake,
    atomic::{AtomicBool, Ordering},
    wake_at,
};
use crate::worker::StopToken;

/// The turns of other classes after which a class is next. Background work keeps one turn in eight.
pub(super) const OVERTAKEN_MAX: u32 = 7;

/// The resource that requests wait for.
pub(crate) trait Supply: Send + 'static {
    /// When one unit is available behind `before` other requests; `None` when that is unknown.
    fn available(&self, now: Instant, before: usize) -> Option<Instant>;

    /// Takes one unit that is available `now`.
    fn take(&mut self, now: Instant);
}

/// A supply, and the requests that wait for it. Clones share both.
pub(crate) struct Admission<S> {
    clock: Clock,
    state: Arc<Mutex<SupplyQueue<S>>>,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionRefusal {
    Stopped,
    /// Its turn would come after its deadline: `before` requests go first.
    TooLate {
        before: usize,
    },
}

/// Whether a reader waits for a request. A queued request may become urgent. Clones share the flag.
#[derive(Clone, Debug)]
pub(crate) struct Urgency(Arc<AtomicBool>);

/// A supply and its queue; pure.
pub(super) struct SupplyQueue<S> {
    pub(super) supply: S,
    pub(super) queue: WaitQueue,
    /// The functions of the requests just admitted without a thread, called once the lock is
    /// released.
    pub(super) admitted: Vec<Arc<dyn Wake>>,
    /// Whether a thread is calling them.
    pub(super) is_calling: bool,
}

/// A waiting request. Clones are the same request.
#[derive(Clone)]
pub(crate) struct QueuedRequest {
    pub(super) urgency: Urgency,
    /// Whether its response has begun.
    resumed: bool,
    bell: Arc<Bell>,
    /// The function to call when a request without a thread is admitted; `None` when a thread
    /// waits.
    on_turn: Option<Arc<dyn Wake>>,
}

/// The requests that wait, in the order of [`QueuedRequest::line`].
#[derive(Default)]
pub(super) struct WaitQueue([ClassQueue; 4]);

/// Requests of one class, in the order they came.
#[derive(Default)]
struct ClassQueue {
    waiting: VecDeque<QueuedRequest>,
    /// Turns of other classes since the first request of this class could have been admitted.
    overtaken: u32,
}

impl Urgency {
    pub(crate) fn new(is_urgent: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_urgent)))
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, is_urgent: bool) {
        self.0.store(is_urgent, Ordering::SeqCst);
    }
}

clone_of!([S] Admission<S>: clock, state);

impl<S: Supply> Admission<S> {
    pub(crate) fn new(supply: S, clock: &Clock) -> Self {
        let state = SupplyQueue {
            supply,
            queue: WaitQueue::default(),
            admitted: Vec::new(),
            is_calling: false,
        };
        Self {
            clock: clock.clone(),
            state: Arc::new(Mutex::ranked(Rank::ADMISSION, state)),
        }
    }

    /// Takes one unit from the supply. If the request has to wait, calls `queued` with the number
    /// of requests that go first.
    ///
    /// Blocks until the request is admitted, `stop` is raised, or `deadline` passes. Fails at once
    /// when the deadline is known to come before the request's turn. A request that gives up delays
    /// no other request.
    ///
    /// # Errors
    ///
    /// The stop, or the deadline.
    pub(crate) fn admit(
        &self,
        waiter: &QueuedRequest,
        stop: &StopToken,
        deadline: Deadline,
        queued: impl FnOnce(usize),
    ) -> Result<(), AdmissionRefusal> {
        let before = {
            let mut state = self.state.lock();
            let now = self.clock.now();
            if state.queue.is_empty() && state.take(now) {
                return Ok(());
            }
            state.queue.push(waiter);
            let before = state.queue.before(waiter);
            let turn = state.supply.available(now, before);
            if turn.is_some_and(|turn| deadline.has_passed(turn)) {
                state.leave(waiter, now);
                self.unlock(state);
                return Err(AdmissionRefusal::TooLate { before });
            }
            before
        };
        queued(before);
        let wake = wake_at(&self.state, &waiter.bell);
        let _registration = stop.register(&wake);
        self.wait(waiter, stop, deadline)
    }

    /// Takes one unit from the supply for a request without a thread, and calls its `on_turn`: at
    /// once, or later on the thread that makes the supply grow. If the request has to wait, calls
    /// `queued` under the lock, as [`admit`](Self::admit) does without it. Never blocks.
    pub(crate) fn admit_later(&self, waiter: &QueuedRequest, queued: impl FnOnce(usize)) {
        let mut state = self.state.lock();
        if state.queue.is_empty() && state.take(self.clock.now()) {
            state.admitted.extend(waiter.on_turn.clone());
        } else {
            state.queue.push(waiter);
            queued(state.queue.before(waiter));
        }
        self.unlock(state);
    }

    /// Takes a request out of the queue, if it still is in it. Never blocks.
    pub(crate) fn leave(&self, waiter: &QueuedRequest) {
        let mut state = self.state.lock();
        state.leave(waiter, self.clock.now());
        self.unlock(state);
    }

    fn wait(
        &self,
        waiter: &QueuedRequest,
        stop: &StopToken,
        deadline: Deadline,
    ) -> Result<(), AdmissionRefusal> {
        let mut state = self.state.lock();
        loop {
            let now = self.clock.now();
            if stop.is_stopped() {
                state.leave(waiter, now);
                self.unlock(state);
                return Err(AdmissionRefusal::Stopped);
            }
            if state.admit(waiter, now) {
                self.unlock(state);
                return Ok(());
            }
            if deadline.has_passed(now) {
                let before = state.queue.before(waiter);
                state.leave(waiter, now);
                self.unlock(state);
                return Err(AdmissionRefusal::TooLate { before });
            }
            // The other requests are woken when they come to the front.
            let next = state.supply.available(now, 0);
            let until = match next.filter(|_| state.queue.is_front(waiter)) {
                Some(next) => deadline.earlier(Deadline::at(next)),
                None => deadline,
            };
            let bell = &waiter.bell;
            state = self.clock.wait_for_bell(&self.state, bell, state, until);
        }
    }

    /// Makes a request urgent. A queued request moves before background requests. Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        // Set before the queue is locked: a request that is queued later sees it.
        urgency.set(true);
        let mut state = self.state.lock();
        state.queue.expedite(urgency);
        state.advance(self.clock.now());
        self.unlock(state);
    }

    /// Changes the supply.
    pub(crate) fn change(&self, change: impl FnOnce(&mut S)) {
        let mut state = self.state.lock();
        change(&mut state.supply);
        state.advance(self.clock.now());
        self.unlock(state);
    }

    /// Unlocks the queue. Then calls the functions of the requests that were admitted without a
    /// thread.
    ///
    /// A call may change the queue again. One thread makes all calls, so that they do not nest.
    fn unlock<'a>(&'a self, mut state: MutexGuard<'a, SupplyQueue<S>>) {
        if std::mem::replace(&mut state.is_calling, true) {
            return;
        }
        while !state.admitted.is_empty() {
            let admitted = std::mem::take(&mut state.admitted);
            drop(state);
            for on_turn in admitted {
                guard_logged("a request that has its turn", || on_turn.wake());
            }
            state = self.state.lock();
        }
        state.is_calling = false;
    }
}

impl<S: Supply> SupplyQueue<S> {
    fn take(&mut self, now: Instant) -> bool {
        let is_there = self.supply.available(now, 0).is_some_and(|at| at <= now);
        if is_there {
            self.supply.take(now);
        }
        is_there
    }

    /// Whether it is the waiter's turn and a unit is available. If so, takes the unit, takes the
    /// waiter out of the queue, and wakes the next request.
    pub(super) fn admit(&mut self, waiter: &QueuedRequest, now: Instant) -> bool {
        let admitted = self.queue.is_front(waiter) && self.take(now);
        if admitted {
            self.queue.pop();
            self.advance(now);
        }
        admitted
    }

    pub(super) fn leave(&mut self, waiter: &QueuedRequest, now: Instant) {
        self.queue.remove(waiter);
        self.advance(now);
    }

    /// Admits the requests at the front that have no thread. Wakes the thread of the next one.
    fn advance(&mut self, now: Instant) {
        while let Some(front) = self.queue.front() {
            let Some(on_turn) = front.on_turn.clone() else {
                if self.supply.available(now, 0).is_some() {
                    front.bell.ring();
                }
                return;
            };
            if !self.take(now) {
                return;
            }
            self.queue.pop();
            self.admitted.push(on_turn);
        }
    }
}

impl QueuedRequest {
    /// A request that begins, or one that goes on with a response. The latter goes first.
    pub(crate) fn new(urgency: &Urgency, resumed: bool) -> Self {
        Self {
            urgency: urgency.clone(),
            resumed,
            bell: Arc::default(),
            on_turn: None,
        }
    }

    /// A request that begins, and for which no thread waits. `on_turn` is called under no lock,
    /// with a unit of the supply in hand.
    pub(crate) fn without_thread(urgency: &Urgency, on_turn: Arc<dyn Wake>) -> Self {
        Self {
            on_turn: Some(on_turn),
            ..Self::new(urgency, false)
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bell, &other.bell)
    }

    /// An urgent request goes first. Of two urgent ones, the one whose response has begun goes
    /// first.
    fn line(&self) -> usize {
        match (self.urgency.is_urgent(), self.resumed) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }
    }
}

impl WaitQueue {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|line| line.waiting.is_empty())
    }

    pub(super) fn push(&mut self, waiter: &QueuedRequest) {
        if let Some(line) = self.0.get_mut(waiter.line()) {
            if line.waiting.is_empty() {
                line.overtaken = 0;
            }
            line.waiting.push_back(waiter.clone());
        }
    }

    fn remove(&mut self, waiter: &QueuedRequest) {
        for line in &mut self.0 {
            line.waiting.retain(|other| !other.is(waiter));
        }
    }

    /// Puts a request that has become urgent into its new line.
    pub(super) fn expedite(&mut self, urgency: &Urgency) {
        let moved = self.0.iter_mut().enumerate().find_map(|(at, line)| {
            let is_it = |waiter: &QueuedRequest| Arc::ptr_eq(&waiter.urgency.0, &urgency.0);
            let place = line.waiting.iter().position(is_it)?;
            let is_moved = line.waiting.get(place)?.line() != at;
            is_moved.then(|| line.waiting.remove(place)).flatten()
        });
        if let Some(waiter) = moved {
            self.push(&waiter);
        }
    }

    /// How many wait in each line, and how often it was overtaken.
    fn counts(&self) -> [(usize, u32); 4] {
        self.0
            .each_ref()
            .map(|line| (line.waiting.len(), line.overtaken))
    }

    pub(super) fn front(&self) -> Option<&QueuedRequest> {
        self.0.get(next_line(&self.counts())?)?.waiting.front()
    }

    fn is_front(&self, waiter: &QueuedRequest) -> bool {
        self.front().is_some_and(|front| front.is(waiter))
    }

    fn pop(&mut self) {
        let mut counts = self.counts();
        let next = next_line(&counts);
        let Some(line) = next.and_then(|next| self.0.get_mut(next)) else {
            return;
        };
        line.waiting.pop_front();
        count_turn(&mut counts, next);
        for (line, (_, overtaken)) in self.0.iter_mut().zip(counts) {
            line.overtaken = overtaken;
        }
    }

    /// How many requests go before a queued one, if none joins or leaves.
    pub(super) fn before(&self, waiter: &QueuedRequest) -> usize {
        let own = waiter.line();
        let line = self.0.get(own).map(|line| &line.waiting);
        // Usually it is the last one pushed.
        let place = line.and_then(|line| line.iter().rposition(|other| other.is(waiter)));
        let Some(mut ahead) = place else {
            return 0;
        };
        let mut counts = self.counts();
        let others = counts.iter().enumerate().filter(|(line, _)| *line != own);
        if others.map(|(_, (waiting, _))| waiting).sum::<usize>() == 0 {
            return ahead;
        }
        let mut before = 0_usize;
        loop {
            let next = next_line(&counts);
            if next == Some(own) || next.is_none() {
                if ahead == 0 || next.is_none() {
                    return before;
                }
                ahead = ahead.saturating_sub(1);
            }
            count_turn(&mut counts, next);
            before = before.saturating_add(1);
        }
    }
}

/// The line whose first request is next.
fn next_line(counts: &[(usize, u32); 4]) -> Option<usize> {
    let lines = counts.iter().enumerate();
    let waiting = || lines.clone().filter(|(_, (waiting, _))| *waiting > 0);
    let overdue = waiting().filter(|(_, (_, overtaken))| *overtaken >= OVERTAKEN_MAX);
    let next = overdue.max_by_key(|(_, (_, overtaken))| *overtaken);
    next.or_else(|| waiting().next()).map(|(line, _)| line)
}

/// Counts the turn of line `next`, whose first request goes.
fn count_turn(counts: &mut [(usize, u32); 4], next: Option<usize>) {
    for (line, (waiting, overtaken)) in counts.iter_mut().enumerate() {
        if Some(line) == next {
            *waiting = waiting.saturating_sub(1);
            *overtaken = 0;
        } else if *waiting == 0 {
            *overtaken = 0;
        } else {
            *overtaken = overtaken.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<S: Supply> Admission<S> {
        /// Reads the supply.
        pub(crate) fn look<T>(&self, look: impl FnOnce(&S) -> T) -> T {
            look(&self.state.lock().supply)
        }
    }

    impl WaitQueue {
        pub(crate) fn len(&self) -> usize {
            self.0.iter().map(|line| line.waiting.len()).sum()
        }
    }

    const CLASSES: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

    fn waiter((urgent, resumed): (bool, bool)) -> QueuedRequest {
        QueuedRequest::new(&Urgency::new(urgent), resumed)
    }

    /// The classes in the order in which one turn after the other comes.
    fn order(queue: &mut WaitQueue, turns: usize) -> Vec<(bool, bool)> {
        let turns = (0..turns).map_while(|_| {
            let front = queue.front()?.clone();
            assert_eq!(queue.before(&front), 0);
            queue.pop();
            Some((front.urgency.is_urgent(), front.resumed))
        });
        turns.collect()
    }

    /// A1: an urgent request goes first. Of two urgent ones, the one whose response has begun goes
    /// first.
    #[test]
    fn a1_turns_go_by_class_and_within_a_class_by_age() {
        let mut queue = WaitQueue::default();
        let [urgent_resumed, urgent, resumed, new] = CLASSES;
        let mut waiters = Vec::new();
        for (class, before) in [
            (new, 0),
            (urgent, 0),
            (resumed, 1),
            (urgent_resumed, 0),
            (new, 4),
        ] {
            let waiter = waiter(class);
            queue.push(&waiter);
            assert_eq!(queue.before(&waiter), before, "{class:?}");
            waiters.push(waiter);
        }
        for expected in [3, 1, 2, 0, 4] {
            assert!(queue.is_front(&waiters[expected]));
            queue.pop();
        }
        assert!(queue.is_empty());
    }

    /// A1, A2: background work keeps at least one turn in eight, and urgent work keeps the other
    /// seven.
    #[test]
    fn a1_no_class_starves_another() {
        for flood in CLASSES {
            for class in CLASSES {
                let mut queue = WaitQueue::default();
                for _ in 0..100 {
                    queue.push(&waiter(flood));
                }
                queue.push(&waiter(class));
                let order = order(&mut queue, 101);
                assert_eq!(order.len(), 101);
                if class == flood {
                    continue;
                }
                let place = order.iter().position(|turn| *turn == class).unwrap();
                assert!(place < 8, "{class:?} behind {flood:?}: {place}");
            }
        }
        let mut queue = WaitQueue::default();
        for _ in 0..100 {
            for class in CLASSES {
                queue.push(&waiter(class));
            }
        }
        let order = order(&mut queue, 80);
        for class in CLASSES {
            let share = order.iter().filter(|turn| **turn == class).count();
            assert!(share >= 8, "{class:?}: {share} of 80");
        }
        let urgent = order.iter().filter(|turn| **turn == CLASSES[0]);
        assert!(urgent.count() >= 40);
    }

    #[test]
    fn a_request_that_gives_up_has_no_turn_and_one_that_becomes_urgent_has_an_earlier_one() {
        let mut queue = WaitQueue::default();
        let waiters = [(false, false); 4].map(waiter);
        for waiter in &waiters {
            queue.push(waiter);
        }
        queue.remove(&waiters[0]);
        queue.remove(&waiters[0]);
        waiters[2].urgency.set(true);
        for _ in 0..2 {
            queue.expedite(&waiters[2].urgency);
        }
        for expected in [2, 1, 3] {
            assert!(queue.is_front(&waiters[expected]));
            queue.pop();
        }
        assert!(queue.is_empty());
    }
}
