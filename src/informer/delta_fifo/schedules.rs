//! Thread schedules of the queue's waits, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use shuttle::thread;

use super::tests::{Rig, View, apply, compressed_mode, held, in_order_mode, replace, shown};
use super::{DeltaFifo, DeltaFifoOptions, QueueMode, Relisted};
use crate::ErrorKind;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::list_watch::ObjectEvent;
use crate::object::Object as _;
use crate::reflector::Sink;
use crate::sync::{
    Arc, Bell, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

fn rig(clock: Clock, compressed: bool) -> Rig {
    let known = Arc::<View>::default();
    let mode = if compressed {
        compressed_mode(Some(&known), Relisted::Replaced)
    } else {
        in_order_mode(&known)
    };
    Rig::new(mode, known, DeltaFifoOptions::default().clock(clock))
}

/// A pop hears of a change, and of the end that follows it.
#[test]
fn a_change_and_the_end_are_never_missed_by_a_pop() {
    shuttle::check_random(
        || {
            let Rig {
                mut queue,
                mut writer,
                ..
            } = rig(Clock::system(), true);
            let consumer = thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    match queue.pop(Deadline::NEVER) {
                        Ok(popped) => seen.push(shown(&popped)),
                        Err(error) => break (seen.join(","), error.kind()),
                    }
                }
            });
            for change in ["a1", "a2"] {
                writer.apply(ObjectEvent::modified(held(change))).unwrap();
            }
            drop(writer);
            let end = consumer.join().unwrap();
            assert_eq!(end, ("Ua1,Ua2".to_owned(), ErrorKind::Stopped));
        },
        SCHEDULES,
    );
}

/// A change, the end and the deadline at once: some answer comes, and a change that was there before wins.
#[test]
fn every_end_of_a_pop_at_once() {
    shuttle::check_random(
        || {
            let fake = FakeClock::new();
            let clock = Clock::from(fake.clone());
            let Rig {
                mut queue,
                mut writer,
                handle,
                ..
            } = rig(clock.clone(), false);
            let deadline = clock.after(Duration::from_secs(1));
            let consumer = thread::spawn(move || {
                let first = queue.pop(deadline).map(drop);
                let second = queue.pop(Deadline::NEVER).map(drop);
                (first, second)
            });
            let time = thread::spawn(move || fake.advance(Duration::from_secs(1)));
            let closer = thread::spawn(move || handle.close());
            let written = writer.apply(ObjectEvent::added(held("a1")));
            time.join().unwrap();
            closer.join().unwrap();
            let (first, second) = consumer.join().unwrap();
            let ends = |error: crate::Error| {
                matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Stopped)
            };
            match (first.is_ok(), second.is_ok()) {
                (true, true) => panic!("one change was taken twice"),
                // What is written after the end is handed over, unless the consumer has gone by then.
                (true, false) | (false, true) => written.unwrap(),
                (false, false) => {
                    assert!(written.is_ok() || written.is_err_and(|error| error.is_stopped()))
                }
            }
            assert!(first.map_or_else(ends, |()| true));
            assert!(second.map_or_else(|error| error.is_stopped(), |()| true));
        },
        SCHEDULES,
    );
}

/// Who waits for the first list is woken by the end of its processing, not before it.
#[test]
fn the_end_of_the_first_list_is_never_missed() {
    for compressed in [true, false] {
        shuttle::check_random(
            move || {
                let Rig {
                    mut queue,
                    mut writer,
                    handle,
                    known,
                } = rig(Clock::system(), compressed);
                let waiters = [handle.clone(), handle].map(|handle| {
                    let known = Arc::clone(&known);
                    thread::spawn(move || {
                        handle.wait_until_synced(Deadline::NEVER).unwrap();
                        assert_eq!(
                            known.objects.lock().len(),
                            2,
                            "synced before it was applied"
                        );
                    })
                });
                let view = Arc::clone(&known);
                let consumer = thread::spawn(move || {
                    while let Ok(popped) = queue.pop(Deadline::NEVER) {
                        apply(&view, &popped);
                    }
                });
                replace(&mut writer, vec![held("a1"), held("b1")]).unwrap();
                drop(writer);
                for thread in waiters {
                    thread.join().unwrap();
                }
                consumer.join().unwrap();
            },
            SCHEDULES,
        );
    }
}

/// Who waits for a list that never comes hears that, whichever end goes first.
#[test]
fn a_queue_that_cannot_sync_is_never_waited_for() {
    shuttle::check_random(
        || {
            let Rig {
                queue,
                writer,
                handle,
                ..
            } = rig(Clock::system(), true);
            let waiter = thread::spawn(move || handle.wait_until_synced(Deadline::NEVER));
            let consumer = thread::spawn(move || drop(queue));
            drop(writer);
            consumer.join().unwrap();
            assert!(waiter.join().unwrap().unwrap_err().is_stopped());
        },
        SCHEDULES,
    );
}

/// A list that comes while an object is being added, and goes without it, deletes it; whatever the schedule, what the
/// consumer holds at the end is what the list said.
#[test]
fn a_list_during_the_processing_loses_no_deletion() {
    for compressed in [true, false] {
        shuttle::check_random(
            move || {
                let Rig {
                    mut queue,
                    mut writer,
                    known,
                    ..
                } = rig(Clock::system(), compressed);
                let view = Arc::clone(&known);
                let consumer = thread::spawn(move || {
                    while let Ok(popped) = queue.pop(Deadline::NEVER) {
                        thread::yield_now();
                        apply(&view, &popped);
                    }
                });
                for change in ["a1", "b1"] {
                    writer.apply(ObjectEvent::added(held(change))).unwrap();
                }
                writer.apply(ObjectEvent::deleted(held("a2"))).unwrap();
                writer.resync().unwrap();
                replace(&mut writer, vec![held("c1")]).unwrap();
                drop(writer);
                consumer.join().unwrap();
                let left: Vec<_> = known
                    .objects
                    .lock()
                    .keys()
                    .map(ToString::to_string)
                    .collect();
                assert_eq!(left, ["c"]);
            },
            SCHEDULES,
        );
    }
}

/// A resync delivers the object once more wherever it is, in hand too, and never takes it back (DF-16, RQ-9).
#[test]
fn a_resync_during_the_processing_reaches_the_object() {
    for compressed in [true, false] {
        shuttle::check_random(
            move || {
                let Rig {
                    mut queue,
                    mut writer,
                    known,
                    ..
                } = rig(Clock::system(), compressed);
                let ticked = Arc::new(AtomicBool::new(false));
                let at_the_tick = Arc::clone(&ticked);
                let consumer = thread::spawn(move || {
                    let mut told = Vec::new();
                    let mut since = 0;
                    while let Ok(popped) = queue.pop(Deadline::NEVER) {
                        since += u32::from(at_the_tick.load(Ordering::SeqCst));
                        thread::yield_now();
                        apply(&known, &popped);
                        told.extend(
                            popped
                                .iter()
                                .map(|delta| delta.object().unwrap().resource_version()),
                        );
                    }
                    (told, since)
                });
                for change in ["a1", "a2"] {
                    writer.apply(ObjectEvent::modified(held(change))).unwrap();
                }
                ticked.store(true, Ordering::SeqCst);
                writer.resync().unwrap();
                drop(writer);
                let (told, since) = consumer.join().unwrap();
                assert!(since > 0, "told nothing since the tick: {told:?}");
                let back =
                    |pair: &[crate::object::ResourceVersion]| pair[1].is_older_than(&pair[0]);
                assert!(!told.windows(2).any(back), "{told:?}");
            },
            SCHEDULES,
        );
    }
}

/// A list that goes without an object whose deletion the consumer refuses as old news ends it, wherever that deletion
/// is (B18, RQ-3).
#[test]
fn a_list_ends_what_a_refused_deletion_leaves() {
    for compressed in [true, false] {
        shuttle::check_random(
            move || {
                let Rig {
                    mut queue,
                    mut writer,
                    known,
                    ..
                } = rig(Clock::system(), compressed);
                let view = Arc::clone(&known);
                let consumer = thread::spawn(move || {
                    while let Ok(popped) = queue.pop(Deadline::NEVER) {
                        thread::yield_now();
                        // Only a list's word counts.
                        if !popped.newest().is_deleted() || popped.newest().list().is_some() {
                            apply(&view, &popped);
                        }
                    }
                });
                writer.apply(ObjectEvent::added(held("a5"))).unwrap();
                replace(&mut writer, vec![held("a5")]).unwrap();
                writer.apply(ObjectEvent::deleted(held("a2"))).unwrap();
                replace(&mut writer, vec![]).unwrap();
                drop(writer);
                consumer.join().unwrap();
                assert!(known.objects.lock().is_empty(), "lost a deletion");
            },
            SCHEDULES,
        );
    }
}

/// Negative control: a list that looks only at what waits and at what the consumer shows loses the deletion of what is
/// in its hands, and the checker sees that.
#[test]
#[should_panic(expected = "lost a deletion")]
fn a_list_that_forgets_what_is_in_hand_loses_a_deletion() {
    shuttle::check_random(
        || {
            // This mode does not look for what a list goes without: the test does it, and forgets the hand.
            let mode = QueueMode::InOrderAtomic {
                known: None,
                bookmarks: false,
            };
            let (mut queue, mut writer) = DeltaFifo::new(mode, DeltaFifoOptions::default());
            let handle = queue.handle();
            let known = Arc::<View>::default();
            let view = Arc::clone(&known);
            let consumer = thread::spawn(move || {
                while let Ok(popped) = queue.pop(Deadline::NEVER) {
                    thread::yield_now();
                    apply(&view, &popped);
                }
            });
            writer.apply(ObjectEvent::added(held("a1"))).unwrap();
            let waits = !handle.is_empty();
            let shows = !known.objects.lock().is_empty();
            if waits || shows {
                writer.apply(ObjectEvent::deleted(held("a1"))).unwrap();
            }
            drop(writer);
            consumer.join().unwrap();
            assert!(known.objects.lock().is_empty(), "lost a deletion");
        },
        SCHEDULES,
    );
}

/// Negative control: an end that is set outside the mutex which the pop holds loses its wake-up.
#[test]
#[should_panic(expected = "deadlock")]
fn an_end_outside_the_mutex_loses_the_wake_up() {
    shuttle::check_random(
        || {
            let shared = Arc::new((Mutex::new(()), Bell::default(), AtomicBool::new(false)));
            let waiting = Arc::clone(&shared);
            let waiter = thread::spawn(move || {
                let (mutex, bell, closed) = &*waiting;
                let mut guard = mutex.lock();
                while !closed.load(Ordering::SeqCst) {
                    guard = bell.wait(guard);
                }
            });
            let (_, bell, closed) = &*shared;
            closed.store(true, Ordering::SeqCst);
            bell.ring();
            waiter.join().unwrap();
        },
        SCHEDULES,
    );
}
