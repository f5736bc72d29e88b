//! Thread schedules of the slots, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::thread;

use super::slots::Slots;
use crate::clock::Deadline;
use crate::list_watch::RequestProgress;
use crate::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use crate::worker::{StopSource, StopToken};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 3_000;

fn progress() -> RequestProgress {
    RequestProgress::new("t".into())
}

/// A1: whatever the order, no slot is lost and none is given twice: each request comes to its end,
/// twice through its slot.
#[test]
fn a1_every_request_gets_its_slot_and_never_too_many_work() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new("t", 2));
            let working = Arc::new(AtomicUsize::new(0));
            let requests: Vec<_> = (0..4)
                .map(|number| {
                    let (slots, working) = (Arc::clone(&slots), Arc::clone(&working));
                    thread::spawn(move || {
                        let stop = StopToken::never();
                        let urgent = number % 2 == 0;
                        let slot = slots
                            .enter(urgent, &progress(), &stop, Deadline::NEVER)
                            .unwrap();
                        work(&working);
                        slot.give_back();
                        slot.resume(&stop, Deadline::NEVER).unwrap();
                        work(&working);
                    })
                })
                .collect();
            for request in requests {
                request.join().unwrap();
            }
            assert_eq!(slots.in_use(), 0);
        },
        SCHEDULES,
    );
}

fn work(working: &AtomicUsize) {
    assert!(working.fetch_add(1, Ordering::SeqCst) < 2);
    thread::yield_now();
    working.fetch_sub(1, Ordering::SeqCst);
}

/// A1: a background request comes to its slot beside urgent ones that come back again and again.
#[test]
fn a1_background_work_goes_on_beside_urgent_work() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new("t", 1));
            let done = Arc::new(AtomicUsize::new(0));
            let urgent: Vec<_> = (0..2)
                .map(|_| {
                    let (slots, done) = (Arc::clone(&slots), Arc::clone(&done));
                    thread::spawn(move || {
                        let stop = StopToken::never();
                        // Until the background request is through: if it starved, this would not
                        // end.
                        while done.load(Ordering::SeqCst) == 0 {
                            drop(
                                slots
                                    .enter(true, &progress(), &stop, Deadline::NEVER)
                                    .unwrap(),
                            );
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            drop(
                slots
                    .enter(false, &progress(), &StopToken::never(), Deadline::NEVER)
                    .unwrap(),
            );
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
            let slots = Arc::new(Slots::new("t", 1));
            let source = StopSource::new();
            let held = slots
                .enter(true, &progress(), &source.token(), Deadline::NEVER)
                .unwrap();
            let (waiting, stop) = (Arc::clone(&slots), source.token());
            let waiter = thread::spawn(move || {
                drop(waiting.enter(false, &progress(), &stop, Deadline::NEVER));
            });
            let stopper = thread::spawn(move || source.stop());
            drop(held);
            waiter.join().unwrap();
            stopper.join().unwrap();
            drop(
                slots
                    .enter(false, &progress(), &StopToken::never(), Deadline::NEVER)
                    .unwrap(),
            );
            assert_eq!(slots.in_use(), 0);
        },
        SCHEDULES,
    );
}
