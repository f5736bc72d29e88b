//! Thread schedules of the rate limit and of the slots, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::num::NonZeroU32;
use std::time::Duration;

use shuttle::thread;

use super::super::limiter::Limiter;
use super::super::slots::{Slot, Slots};
use super::Urgency;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::list_watch::RequestProgress;
use crate::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use crate::worker::{StopSource, StopToken};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

/// One request per second; the bucket is empty, and holds four after a quiet time.
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
/// for all, in any order of arrival, departure and overtaking.
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
            // Its permit may have come first.
            assert!(stopped.is_ok() || stopped.is_err_and(|error| error.is_stopped()));
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

fn enter(slots: &Slots, urgent: bool, stop: &StopToken) -> Option<Arc<Slot>> {
    let (urgency, progress) = (Urgency::new(urgent), RequestProgress::new("t".into()));
    slots.enter(&urgency, &progress, stop, Deadline::NEVER).ok()
}

/// A1: in any order, no slot is lost and none is given twice: each request comes to its end, twice
/// through its slot.
#[test]
fn a1_every_request_gets_its_slot_and_never_too_many_work() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new(2));
            let working = Arc::new(AtomicUsize::new(0));
            let requests: Vec<_> = (0..4)
                .map(|number| {
                    let (slots, working) = (Arc::clone(&slots), Arc::clone(&working));
                    thread::spawn(move || {
                        let stop = StopToken::never();
                        let urgent = number % 2 == 0;
                        let slot = enter(&slots, urgent, &stop).unwrap();
                        work(&working);
                        slot.release();
                        slot.resume(&stop, Deadline::NEVER).unwrap();
                        work(&working);
                    })
                })
                .collect();
            for request in requests {
                request.join().unwrap();
            }
            assert_eq!(slots.free(), 2);
        },
        SCHEDULES,
    );
}

fn work(working: &AtomicUsize) {
    assert!(working.fetch_add(1, Ordering::SeqCst) < 2);
    thread::yield_now();
    working.fetch_sub(1, Ordering::SeqCst);
}

/// A1: a background request gets its slot beside urgent ones that keep coming back.
#[test]
fn a1_background_work_goes_on_beside_urgent_work() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new(1));
            let done = Arc::new(AtomicUsize::new(0));
            let urgent: Vec<_> = (0..2)
                .map(|_| {
                    let (slots, done) = (Arc::clone(&slots), Arc::clone(&done));
                    thread::spawn(move || {
                        let stop = StopToken::never();
                        // Until the background request is through: if it starved, this would not
                        // end.
                        while done.load(Ordering::SeqCst) == 0 {
                            drop(enter(&slots, true, &stop).unwrap());
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            drop(enter(&slots, false, &StopToken::never()).unwrap());
            done.store(1, Ordering::SeqCst);
            for request in urgent {
                request.join().unwrap();
            }
        },
        SCHEDULES,
    );
}

/// A stop ends the wait for a slot, and a slot that was given in that moment is not lost.
#[test]
fn a_stop_beside_a_grant_loses_no_slot() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new(1));
            let source = StopSource::new();
            let held = enter(&slots, true, &source.token()).unwrap();
            let (waiting, stop) = (Arc::clone(&slots), source.token());
            let waiter = thread::spawn(move || {
                drop(enter(&waiting, false, &stop));
            });
            let stopper = thread::spawn(move || source.stop());
            drop(held);
            waiter.join().unwrap();
            stopper.join().unwrap();
            drop(enter(&slots, false, &StopToken::never()).unwrap());
            assert_eq!(slots.free(), 1);
        },
        SCHEDULES,
    );
}

/// A1: requests without a thread get their slots from the thread that releases one. A request that
/// leaves in the moment of its grant loses none.
#[test]
fn a1_a_request_without_a_thread_gets_its_slot_or_leaves() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new(1));
            let served = Arc::new(AtomicUsize::new(0));
            let working = Arc::new(AtomicUsize::new(1));
            let requests: Vec<_> = (0..3)
                .map(|number| {
                    let (slots, served) = (Arc::clone(&slots), Arc::clone(&served));
                    let working = Arc::clone(&working);
                    thread::spawn(move || {
                        let urgency = Urgency::new(number == 0);
                        let progress = RequestProgress::new("t".into());
                        let request = slots.enter_later(&urgency, &progress, move |slot| {
                            work(&working);
                            served.fetch_add(1, Ordering::SeqCst);
                            drop(slot);
                        });
                        (number > 0).then_some(request)
                    })
                })
                .collect();
            drop(enter(&slots, false, &StopToken::never()).unwrap());
            let requests: Vec<_> = requests
                .into_iter()
                .map(|request| request.join().unwrap())
                .collect();
            assert!(served.load(Ordering::SeqCst) >= 2);
            assert_eq!(slots.free(), 1);
            drop(requests);
        },
        SCHEDULES,
    );
}
