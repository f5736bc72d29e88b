//! The client's rate limit: a token bucket in front of every request but the opening of watches (RS-1).

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopToken, WaitEnd};

/// Requests per second, as the kubelet's `kubeAPIQPS`.
pub(crate) const PER_SECOND: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// Requests that may go at once after a rest, as the kubelet's `kubeAPIBurst`.
pub(crate) const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// A token bucket whose waiters are served in the order they came. Clones share the bucket.
///
/// It has no thread: each waiter is given its instant when it comes, and waits for it on the clock.
#[derive(Clone, Debug)]
pub(crate) struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    /// From one request to the next at the steady rate.
    interval: Duration,
    /// How far the plan may lie in the past: a full bucket less the request that is asked for.
    credit: Duration,
    /// The instant at which the next request would go if the bucket held nothing; `None` for a full bucket.
    next: Mutex<Option<Instant>>,
}

impl Limiter {
    pub(crate) fn new(per_second: NonZeroU32, burst: NonZeroU32, clock: &Clock) -> Self {
        let interval = Duration::from_secs(1)
            .checked_div(per_second.get())
            .unwrap_or_default();
        let credit = interval.saturating_mul(burst.get().saturating_sub(1));
        Self(Arc::new(Shared {
            clock: clock.clone(),
            interval,
            credit,
            next: Mutex::new(None),
        }))
    }

    /// Takes one request out of the bucket. Blocks until it may go, or until `stop` is raised.
    ///
    /// # Errors
    ///
    /// `Stopped`; the request's place is given back to those who come later.
    pub(crate) fn acquire(&self, stop: &StopToken) -> Result<(), Error> {
        self.acquire_by(stop, Deadline::NEVER)
    }

    /// The same, for a caller whose deadline may come before the request may go: then it is told so at once.
    ///
    /// # Errors
    ///
    /// `Stopped`, or `Timeout`; the request's place is given back to those who come later.
    pub(crate) fn acquire_by(&self, stop: &StopToken, deadline: Deadline) -> Result<(), Error> {
        let slot = self.take();
        if self.0.clock.now() >= slot {
            return Ok(());
        }
        if deadline.has_passed(slot) {
            self.give_back();
            return Err(Error::new(
                ErrorKind::Timeout,
                "the client's rate limit lets no request go before the caller's deadline",
            ));
        }
        match stop.wait_until(&self.0.clock, Deadline::at(slot)) {
            WaitEnd::DeadlinePassed => Ok(()),
            WaitEnd::Stopped => {
                self.give_back();
                Err(Error::stopped("waiting for the client's rate limit"))
            }
        }
    }

    /// The instant from which the request may go.
    fn take(&self) -> Instant {
        let now = self.0.clock.now();
        let mut next = self.0.next.lock();
        // Credit grows while nobody asks, up to the burst: the plan never lags further behind than that.
        let oldest = now.checked_sub(self.0.credit).unwrap_or(now);
        let slot = next.map_or(oldest, |planned| planned.max(oldest));
        *next = slot.checked_add(self.0.interval);
        slot
    }

    /// Moves all who come from now on forward by one place; those who wait keep their instants.
    fn give_back(&self) {
        let mut next = self.0.next.lock();
        // `take` forgets what lies further back than a full bucket.
        *next = next.and_then(|planned| planned.checked_sub(self.0.interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::worker::{StopSource, Worker};

    fn limiter(per_second: u32, burst: u32) -> (Limiter, FakeClock) {
        let fake = FakeClock::new();
        let limiter = Limiter::new(
            NonZeroU32::new(per_second).unwrap(),
            NonZeroU32::new(burst).unwrap(),
            &Clock::from(fake.clone()),
        );
        (limiter, fake)
    }

    /// How many requests go without a wait: each is asked with a stop that is raised already.
    fn goes_at_once(limiter: &Limiter) -> usize {
        let source = StopSource::new();
        source.stop();
        let token = source.token();
        std::iter::repeat_with(|| limiter.acquire(&token))
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
        fake.advance(Duration::from_secs(1));
        assert_eq!(goes_at_once(&limiter), 50);
        fake.advance(Duration::from_mins(1));
        assert_eq!(goes_at_once(&limiter), 100, "no more than a full bucket");
    }

    #[test]
    fn waiters_are_served_in_the_order_they_came() {
        let (limiter, fake) = limiter(1, 1);
        assert_eq!(goes_at_once(&limiter), 1);
        let (told, tell) = crossbeam_channel::unbounded();
        let workers: Vec<_> = (0..3_u32)
            .map(|number| {
                let (limiter, told) = (limiter.clone(), told.clone());
                let worker = Worker::spawn(format!("t-limit-{number}"), move |stop| {
                    limiter.acquire(stop).unwrap();
                    told.send(number).unwrap();
                })
                .unwrap();
                fake.wait_for_timer(Duration::from_secs(u64::from(number) + 1));
                worker
            })
            .collect();
        for number in 0..3 {
            assert!(tell.is_empty());
            fake.advance(Duration::from_secs(1));
            assert_eq!(tell.recv(), Ok(number));
        }
        for worker in workers {
            worker.join().unwrap();
        }
    }

    /// Those who stop waiting do so in any order: the first to come may be the first to go.
    #[test]
    fn places_given_back_in_any_order_leave_nobody_waiting() {
        for backwards in [false, true] {
            let (limiter, fake) = limiter(PER_SECOND.get(), BURST.get());
            assert_eq!(goes_at_once(&limiter), 100);
            let mut places: Vec<_> = (0..1_000).map(|_| limiter.take()).collect();
            if backwards {
                places.reverse();
            }
            for place in places {
                assert!(place > fake.now());
                limiter.give_back();
            }
            assert_eq!(goes_at_once(&limiter), 0, "what was used up stays so");
            fake.advance(Duration::from_millis(20));
            assert_eq!(goes_at_once(&limiter), 1);
        }
    }

    /// What comes back late, when the bucket has filled anew, makes it no fuller than full.
    #[test]
    fn places_given_back_late_do_not_add_up() {
        let (limiter, fake) = limiter(PER_SECOND.get(), BURST.get());
        assert_eq!(goes_at_once(&limiter), 100);
        for _ in 0..10 {
            assert!(limiter.take() > fake.now());
        }
        fake.advance(Duration::from_mins(1));
        for _ in 0..10 {
            limiter.give_back();
        }
        assert_eq!(goes_at_once(&limiter), 100);
    }

    #[test]
    fn a_stop_ends_the_wait_and_gives_the_place_back() {
        let (limiter, fake) = limiter(1, 1);
        assert_eq!(goes_at_once(&limiter), 1);
        let (told, tell) = crossbeam_channel::bounded(1);
        let waiting = limiter.clone();
        let worker = Worker::spawn("t-limit-stop", move |stop| {
            told.send(waiting.acquire(stop).unwrap_err().kind())
                .unwrap();
        })
        .unwrap();
        fake.wait_for_timer(Duration::from_secs(1));
        worker.join().unwrap();
        assert_eq!(tell.recv(), Ok(ErrorKind::Stopped));
        fake.advance(Duration::from_secs(1));
        assert_eq!(goes_at_once(&limiter), 1);
    }
}
