//! The limiter on the fake clock, and its queue against random histories.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use super::super::admission::{OVERTAKEN_MAX, QueuedRequest, SupplyQueue, WaitQueue};
use super::*;
use crate::clock::FakeClock;
use crate::tests::dice::Dice;
use crate::worker::{StopSource, Worker};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(per_second: u32, burst: u32) -> (Limiter, FakeClock) {
    let fake = FakeClock::new();
    let limiter = Limiter::new(
        NonZeroU32::new(per_second).unwrap(),
        NonZeroU32::new(burst).unwrap(),
        &Clock::from(fake.clone()),
    );
    (limiter, fake)
}

/// Counts the requests that go without a wait: the stop of each is raised already.
fn goes_at_once(limiter: &Limiter) -> usize {
    let source = StopSource::new();
    source.stop();
    let token = source.token();
    std::iter::repeat_with(|| limiter.acquire(&token, Deadline::NEVER, &Urgency::new(false)))
        .take_while(Result::is_ok)
        .count()
}

/// RS-1: 50 per second, burst 100.
#[test]
fn the_burst_goes_at_once_and_then_the_rate_holds() {
    let (limiter, fake) = limiter(PER_SECOND.get(), BURST.get());
    assert_eq!(goes_at_once(&limiter), 100);
    fake.advance(Duration::from_millis(19));
    assert_eq!(goes_at_once(&limiter), 0);
    fake.advance(Duration::from_millis(1));
    assert_eq!(goes_at_once(&limiter), 1);
    fake.advance(SECOND);
    assert_eq!(goes_at_once(&limiter), 50);
    fake.advance(Duration::from_secs(60));
    assert_eq!(goes_at_once(&limiter), 100, "no more than a full bucket");
}

/// Requests that wait, each on a thread of its own, and the channel that names those that went.
struct Waiting {
    limiter: Limiter,
    fake: FakeClock,
    told: crossbeam_channel::Sender<u32>,
    tell: crossbeam_channel::Receiver<u32>,
    workers: Vec<Worker>,
}

impl Waiting {
    /// A limiter of one request per second whose bucket is empty.
    fn new() -> Self {
        let (limiter, fake) = limiter(1, 1);
        assert_eq!(goes_at_once(&limiter), 1);
        let (told, tell) = crossbeam_channel::unbounded();
        Self {
            limiter,
            fake,
            told,
            tell,
            workers: Vec::new(),
        }
    }

    /// Queues request `number`, which sends its number when it goes.
    fn queue(&mut self, number: u32, urgency: &Urgency) {
        let (limiter, told) = (self.limiter.clone(), self.told.clone());
        let urgency = urgency.clone();
        let worker = Worker::spawn(format!("t-limit-{number}"), move |stop| {
            if limiter.acquire(stop, Deadline::NEVER, &urgency).is_ok() {
                told.send(number).unwrap();
            }
        });
        self.workers.push(worker.unwrap());
        self.fake.wait_for_parked(self.workers.len());
    }

    /// The request that goes with the next permit.
    fn next(&mut self) -> u32 {
        assert!(self.tell.is_empty());
        self.fake.wait_for_timer(SECOND);
        self.fake.advance(SECOND);
        self.tell.recv().unwrap()
    }
}

#[test]
fn waiters_of_a_class_are_served_in_the_order_they_came() {
    for is_urgent in [false, true] {
        let mut waiting = Waiting::new();
        for number in 0..3 {
            waiting.queue(number, &Urgency::new(is_urgent));
        }
        for number in 0..3 {
            assert_eq!(waiting.next(), number);
        }
    }
}

/// A2: a read waited 15.5 s behind 900 registrations.
#[test]
fn a_request_somebody_waits_for_overtakes_the_background() {
    let mut waiting = Waiting::new();
    for number in 0..5 {
        waiting.queue(number, &Urgency::new(false));
    }
    waiting.queue(9, &Urgency::new(true));
    assert_eq!(waiting.next(), 9);
    assert_eq!(waiting.next(), 0);
}

/// A2: a reader arrives for an object whose list is queued already.
#[test]
fn a_queued_request_that_becomes_urgent_overtakes_the_background() {
    let mut waiting = Waiting::new();
    let urgency = Urgency::new(false);
    for number in 0..3 {
        waiting.queue(number, &Urgency::new(false));
    }
    waiting.queue(9, &urgency);
    waiting.limiter.expedite(&urgency);
    assert_eq!(waiting.next(), 9);
    assert_eq!(waiting.next(), 0);
    // It may be told before the request is queued.
    let early = Urgency::new(false);
    waiting.limiter.expedite(&early);
    assert!(early.is_urgent());
}

#[test]
fn a_stop_ends_the_wait_and_delays_nobody() {
    let mut waiting = Waiting::new();
    for number in 0..3 {
        waiting.queue(number, &Urgency::new(false));
    }
    let first = waiting.workers.remove(0);
    first.join().unwrap();
    assert_eq!(waiting.next(), 1);
    assert_eq!(waiting.next(), 2);
    waiting.fake.advance(SECOND);
    assert_eq!(goes_at_once(&waiting.limiter), 1);
}

#[test]
fn a_deadline_before_the_turn_is_told_at_once_and_one_that_passes_ends_the_wait() {
    let mut waiting = Waiting::new();
    for number in 0..9 {
        waiting.queue(number, &Urgency::new(false));
    }
    let clock = Clock::from(waiting.fake.clone());
    let never = StopToken::never();
    let error = waiting
        .limiter
        .acquire(&never, clock.after(SECOND / 2), &Urgency::new(true))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error.to_string().ends_with("0 requests go first"),
        "{error}"
    );
    let error = waiting
        .limiter
        .acquire(&never, clock.after(9 * SECOND), &Urgency::new(false))
        .unwrap_err();
    assert!(
        error.to_string().ends_with("9 requests go first"),
        "{error}"
    );
    // The tenth background request would go in time, but urgent ones come: it waits until its
    // deadline.
    let (limiter, late) = (
        waiting.limiter.clone(),
        clock.after(10 * SECOND + SECOND / 2),
    );
    let (told, tell) = crossbeam_channel::bounded(1);
    let worker = Worker::spawn("t-limit-late", move |stop| {
        let ended = limiter.acquire(stop, late, &Urgency::new(false));
        told.send(ended.unwrap_err().kind()).unwrap();
    });
    waiting.fake.wait_for_parked(10);
    for number in 20..27 {
        let (limiter, told) = (waiting.limiter.clone(), waiting.told.clone());
        let worker = Worker::spawn(format!("t-limit-{number}"), move |stop| {
            if limiter
                .acquire(stop, Deadline::NEVER, &Urgency::new(true))
                .is_ok()
            {
                told.send(number).unwrap();
            }
        });
        waiting.workers.push(worker.unwrap());
        waiting.fake.wait_for_parked(waiting.workers.len() + 1);
    }
    for _ in 0..10 {
        waiting.next();
    }
    waiting.fake.advance(SECOND / 2);
    assert_eq!(tell.recv(), Ok(ErrorKind::Timeout));
    drop(worker);
}

fn pick(dice: &mut Dice, sides: usize) -> usize {
    usize::try_from(dice.roll(u64::try_from(sides).unwrap())).unwrap()
}

fn waiter(is_urgent: bool) -> QueuedRequest {
    QueuedRequest::new(&Urgency::new(is_urgent), false)
}

fn state(bucket: TokenBucket) -> SupplyQueue<TokenBucket> {
    SupplyQueue {
        supply: bucket,
        queue: WaitQueue::default(),
        admitted: Vec::new(),
        is_calling: false,
    }
}

/// A queue, and the model to compare it with: the waiters of each class in their order.
struct History {
    state: SupplyQueue<TokenBucket>,
    urgent: Vec<QueuedRequest>,
    background: Vec<QueuedRequest>,
    /// Urgent requests since the last background one, counted while a background request is queued.
    overtaken: u32,
    granted: Vec<Instant>,
}

impl History {
    fn step(&mut self, dice: &mut Dice, now: Instant) {
        match dice.roll(7) {
            0..4 => {
                let is_urgent = dice.roll(3) > 0;
                let waiter = waiter(is_urgent);
                self.state.queue.push(&waiter);
                if is_urgent {
                    self.urgent.push(waiter);
                } else {
                    self.background.push(waiter);
                }
            }
            4 if !self.background.is_empty() => {
                let waiter = self.background.remove(pick(dice, self.background.len()));
                waiter.urgency.set(true);
                self.state.queue.expedite(&waiter.urgency);
                self.urgent.push(waiter);
            }
            5 if !self.urgent.is_empty() => {
                let waiter = self.urgent.remove(pick(dice, self.urgent.len()));
                self.state.leave(&waiter, now);
            }
            6 if !self.background.is_empty() => {
                let waiter = self.background.remove(pick(dice, self.background.len()));
                self.state.leave(&waiter, now);
            }
            _ => {}
        }
        if self.background.is_empty() {
            self.overtaken = 0;
        }
    }

    fn grant_all(&mut self, now: Instant) {
        while let Some(front) = self.state.queue.front().cloned() {
            assert_eq!(self.state.queue.before(&front), 0);
            if !self.state.admit(&front, now) {
                break;
            }
            self.granted.push(now);
            if self.urgent.first().is_some_and(|first| first.is(&front)) {
                self.urgent.remove(0);
                self.overtaken += u32::from(!self.background.is_empty());
                assert!(self.overtaken <= OVERTAKEN_MAX, "the background waits");
            } else {
                assert!(self.background.remove(0).is(&front), "out of order");
                let is_share = std::mem::take(&mut self.overtaken) >= OVERTAKEN_MAX;
                assert!(
                    self.urgent.is_empty() || is_share,
                    "an urgent request waits"
                );
            }
        }
        let waiting = self.urgent.len() + self.background.len();
        assert_eq!(self.state.queue.len(), waiting);
    }
}

/// A2: in every history the rate holds, and urgent requests go first. Each class is first come
/// first served. At most seven in a row overtake a queued background request. A request that gives
/// up uses no permit.
#[test]
fn random_histories_keep_the_rate_the_order_and_the_share() {
    let (mut dice, _seed) = Dice::new();
    for _ in 0..300 {
        let burst = NonZeroU32::new(u32::try_from(1 + dice.roll(4)).unwrap()).unwrap();
        let mut history = History {
            state: state(TokenBucket::new(NonZeroU32::new(10).unwrap(), burst)),
            urgent: Vec::new(),
            background: Vec::new(),
            overtaken: 0,
            granted: Vec::new(),
        };
        let mut now = Clock::system().now();
        for _ in 0..400 {
            history.step(&mut dice, now);
            history.grant_all(now);
            now += Duration::from_millis(50) * u32::try_from(dice.roll(4)).unwrap();
        }
        for (index, first) in history.granted.iter().enumerate() {
            for (count, last) in history.granted[index..].iter().enumerate() {
                let refilled = last.duration_since(*first).as_millis() / 100;
                let allowed = u128::from(burst.get()) + refilled;
                assert!(u128::try_from(count).unwrap() < allowed, "too fast");
            }
        }
    }
}

/// The turn told in advance is the actual turn, as long as no request joins or leaves.
#[test]
fn the_turn_told_is_the_turn_that_comes() {
    let (mut dice, _seed) = Dice::new();
    for _ in 0..100 {
        let mut state = state(TokenBucket::new(PER_SECOND, NonZeroU32::MIN));
        let mut now = Clock::system().now();
        let mut waiters: Vec<QueuedRequest> = Vec::new();
        for _ in 0..dice.roll(60) {
            let waiter = waiter(dice.roll(3) > 0);
            state.queue.push(&waiter);
            waiters.push(waiter);
            // Some turns behind them.
            if dice.roll(3) == 0
                && let Some(front) = state.queue.front().cloned()
            {
                now = state.supply.available(now, 0).unwrap();
                assert!(state.admit(&front, now));
                waiters.retain(|waiter| !waiter.is(&front));
            }
        }
        let told: Vec<_> = waiters
            .iter()
            .map(|waiter| {
                let before = state.queue.before(waiter);
                (before, state.supply.available(now, before).unwrap())
            })
            .collect();
        let mut before = 0;
        while let Some(front) = state.queue.front().cloned() {
            now = state.supply.available(now, 0).unwrap();
            let place = waiters.iter().position(|waiter| waiter.is(&front));
            assert_eq!(told[place.unwrap()], (before, now));
            assert!(state.admit(&front, now));
            before += 1;
        }
    }
}
