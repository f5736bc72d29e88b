//! Thread schedules of the channel, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::thread;

use super::super::admission::Urgency;
use super::super::call_context::{CallContext, NamedDeadline};
use super::super::interrupt::Interrupt;
use super::super::slots::Slots;
use super::channel;
use crate::clock::Deadline;
use crate::list_watch::RequestProgress;
use crate::sync::Arc;
use crate::worker::{StopSource, StopToken};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 3_000;

fn call(stop: &StopToken) -> CallContext {
    CallContext::new(stop, NamedDeadline::NEVER).unwrap()
}

/// A call that works with one of `slots`.
fn call_with_slot(slots: &Slots) -> CallContext {
    let stop = StopToken::never();
    let progress = RequestProgress::new("t".into());
    let slot = slots.enter(&Urgency::new(false), &progress, &stop, Deadline::NEVER);
    call(&stop).with_slot(slot.unwrap())
}

/// The two ends share one slot. Each releases it for its wait, and the items arrive in order.
#[test]
fn every_item_arrives_and_no_wait_keeps_the_slot() {
    shuttle::check_random(
        || {
            let slots = Arc::new(Slots::new(1));
            let (sender, receiver) = channel();
            let sending = Arc::clone(&slots);
            let sending = thread::spawn(move || {
                let call = call_with_slot(&sending);
                for number in 0..3 {
                    sender.send(number, Some(&call)).unwrap();
                }
            });
            let call = call_with_slot(&slots);
            let mut received = Vec::new();
            while let Some(number) = receiver.receive(&call).unwrap() {
                received.push(number);
            }
            assert_eq!(received, [0, 1, 2]);
            sending.join().unwrap();
            drop(call);
            assert_eq!(slots.free(), 1);
        },
        SCHEDULES,
    );
}

/// A stop ends the wait of the receiver. Then the sender has no receiver, and its wait ends too.
#[test]
fn a_stop_ends_the_waits_of_both_ends() {
    shuttle::check_random(
        || {
            let source = StopSource::new();
            let (sender, receiver) = channel();
            let call = call(&source.token());
            let receiving = thread::spawn(move || {
                for number in 0.. {
                    match receiver.receive(&call) {
                        Ok(item) => assert_eq!(item, Some(number)),
                        Err(interrupt) => {
                            assert!(matches!(interrupt, Interrupt::Stopped));
                            return;
                        }
                    }
                }
            });
            let stopping = thread::spawn(move || source.stop());
            let mut number = 0;
            while number < 3 && sender.send(number, None).is_ok() {
                number += 1;
            }
            receiving.join().unwrap();
            stopping.join().unwrap();
            assert!(!sender.has_receiver());
            assert!(sender.send(number, None).is_err());
        },
        SCHEDULES,
    );
}

/// The receiver gets the item of a sender that is gone, and then the end.
#[test]
fn a_sender_that_goes_leaves_its_item() {
    shuttle::check_random(
        || {
            let (sender, receiver) = channel();
            let sending = thread::spawn(move || {
                sender.send(1, None).unwrap();
            });
            let call = call(&StopToken::never());
            assert_eq!(receiver.receive(&call).unwrap(), Some(1));
            assert_eq!(receiver.receive(&call).unwrap(), None);
            sending.join().unwrap();
        },
        SCHEDULES,
    );
}
