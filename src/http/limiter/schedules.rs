//! Thread schedules of the limiter's queue, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::num::NonZeroU32;
use std::time::Duration;

use shuttle::thread;

use super::{Limiter, Urgency};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::worker::{StopSource, StopToken};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

/// One request per second; the bucket is empty, and holds four after a rest.
fn limiter() -> (Limiter, FakeClock) {
    let fake = FakeClock::new();
    let burst = NonZeroU32::new(4).unwrap();
    let limiter = Limiter::new(NonZeroU32::MIN, burst, &Clock::from(fake.clone()));
    for _ in 0..burst.get() {
        let never = StopToken::never();
        let gone = limiter.acquire(&never, Deadline::NEVER, &Urgency::new(false));
        gone.unwrap();
    }
    (limiter, fake)
}

/// A background request, one that becomes urgent, and one that is stopped: three permits are enough
/// for all, whoever comes, goes or overtakes when.
#[test]
fn a_permit_is_never_missed() {
    shuttle::check_random(
        || {
            let (limiter, fake) = limiter();
            let (stop, urgency) = (StopSource::new(), Urgency::new(false));
            let requests = [
                (StopToken::never(), Urgency::new(false)),
                (StopToken::never(), urgency.clone()),
                (stop.token(), Urgency::new(true)),
            ];
            let waiters = requests.map(|(stop, urgency)| {
                let limiter = limiter.clone();
                thread::spawn(move || limiter.acquire(&stop, Deadline::NEVER, &urgency))
            });
            let expediting = limiter.clone();
            let reader = thread::spawn(move || expediting.expedite(&urgency));
            let time = thread::spawn(move || {
                for _ in 0..3 {
                    fake.advance(Duration::from_secs(1));
                }
            });
            stop.stop();
            reader.join().unwrap();
            time.join().unwrap();
            let [background, urgent, stopped] = waiters.map(|waiter| waiter.join().unwrap());
            background.unwrap();
            urgent.unwrap();
            assert!(stopped.is_ok_and(|()| true) || stop.token().is_stopped());
        },
        SCHEDULES,
    );
}

/// A deadline that passes while others come and go ends the wait, and the others get their permits.
#[test]
fn a_deadline_is_never_missed() {
    shuttle::check_random(
        || {
            let (limiter, fake) = limiter();
            let deadline = Clock::from(fake.clone()).after(Duration::from_secs(2));
            let waiters = [
                (deadline, false),
                (Deadline::NEVER, true),
                (Deadline::NEVER, true),
            ];
            let waiters = waiters.map(|(deadline, is_urgent)| {
                let limiter = limiter.clone();
                let never = StopToken::never();
                thread::spawn(move || limiter.acquire(&never, deadline, &Urgency::new(is_urgent)))
            });
            for _ in 0..3 {
                fake.advance(Duration::from_secs(1));
            }
            let [_either, first, second] = waiters.map(|waiter| waiter.join().unwrap());
            first.unwrap();
            second.unwrap();
        },
        SCHEDULES,
    );
}
