//! Thread schedules of the queue's waits, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use shuttle::thread;

use super::tests::{
    Options, Stage, View, apply, compressed_over, in_order_over, replace, shown, stored, write,
};
use super::{DeltaFifo, DeltaFifoWriter};
use crate::ErrorKind;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::list_watch::ObjectEvent;
use crate::object::{Object as _, ResourceVersion};
use crate::reflector::Sink;
use crate::sync::{
    Arc, Bell, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::StopSource;

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

fn stage(clock: Clock, compressed: bool) -> Stage {
    let known = Arc::<View>::default();
    let options = if compressed {
        compressed_over(&known)
    } else {
        in_order_over(&known)
    };
    Stage::new(options.clock(clock), known)
}

/// Checks a model of the compressed queue, and the same of the queue in order.
fn in_both_modes(model: impl Fn(Stage) + Copy + Send + Sync + 'static) {
    for compressed in [true, false] {
        shuttle::check_random(move || model(stage(Clock::system(), compressed)), SCHEDULES);
    }
}

/// Processes entries until the queue is closed and empty, and applies them to the view.
fn follow(mut queue: DeltaFifo<ConfigMap>, view: &View) {
    let process = |deltas, _| {
        thread::yield_now();
        apply(view, &deltas);
    };
    while queue.pop(Deadline::NEVER, process).is_ok() {}
}

/// A pop returns a change, and then the end that follows it.
#[test]
fn a_change_and_the_end_are_never_missed_by_a_pop() {
    shuttle::check_random(
        || {
            let Stage {
                mut queue,
                mut writer,
                ..
            } = stage(Clock::system(), true);
            let consumer = thread::spawn(move || {
                let mut seen = Vec::new();
                loop {
                    match queue.pop(Deadline::NEVER, |deltas, _| shown(&deltas)) {
                        Ok(popped) => seen.push(popped),
                        Err(error) => break (seen.join(","), error.kind()),
                    }
                }
            });
            for change in ["~a1", "~a2"] {
                write(&mut writer, change).unwrap();
            }
            drop(writer);
            let end = consumer.join().unwrap();
            assert_eq!(end, ("~a1,~a2".to_owned(), ErrorKind::Stopped));
        },
        SCHEDULES,
    );
}

/// A change, the end and the deadline at once: an answer comes, and an earlier change wins.
#[test]
fn every_end_of_a_pop_at_once() {
    shuttle::check_random(
        || {
            let fake = FakeClock::new();
            let clock = Clock::from(fake.clone());
            let Stage {
                mut queue,
                mut writer,
                handle,
                ..
            } = stage(clock.clone(), false);
            let deadline = clock.after(Duration::from_secs(1));
            let consumer = thread::spawn(move || {
                let first = queue.pop(deadline, |_, _| ());
                let second = queue.pop(Deadline::NEVER, |_, _| ());
                (first, second)
            });
            let time = thread::spawn(move || fake.advance(Duration::from_secs(1)));
            let closer = thread::spawn(move || handle.close());
            let written = writer.apply(ObjectEvent::added(stored("a1")));
            time.join().unwrap();
            closer.join().unwrap();
            let (first, second) = consumer.join().unwrap();
            let ends = |error: crate::Error| {
                matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Stopped)
            };
            match (first.is_ok(), second.is_ok()) {
                (true, true) => panic!("one change was taken twice"),
                // A write after the end is handed over, unless the consumer has gone by then.
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

/// The end of the first list's processing wakes a caller that waits for it, and not before.
#[test]
fn the_end_of_the_first_list_is_never_missed() {
    in_both_modes(
        |Stage {
             queue,
             mut writer,
             handle,
             known,
         }| {
            let waiters = [handle.clone(), handle].map(|handle| {
                let known = Arc::clone(&known);
                thread::spawn(move || {
                    handle.wait_until_synced(Deadline::NEVER).unwrap();
                    let applied = known.objects.lock().len();
                    assert_eq!(applied, 2, "synced before it was applied");
                })
            });
            let consumer = thread::spawn(move || follow(queue, &known));
            replace(&mut writer, vec![stored("a1"), stored("b1")]).unwrap();
            drop(writer);
            for thread in waiters {
                thread.join().unwrap();
            }
            consumer.join().unwrap();
        },
    );
}

/// A caller that waits for a list that never comes gets an error, whichever end goes first.
#[test]
fn a_queue_that_cannot_sync_is_never_waited_for() {
    shuttle::check_random(
        || {
            let Stage {
                queue,
                writer,
                handle,
                ..
            } = stage(Clock::system(), true);
            let waiter = thread::spawn(move || handle.wait_until_synced(Deadline::NEVER));
            let consumer = thread::spawn(move || drop(queue));
            drop(writer);
            consumer.join().unwrap();
            assert!(waiter.join().unwrap().unwrap_err().is_stopped());
        },
        SCHEDULES,
    );
}

/// A list without an object that is just being added deletes it: in any schedule, the consumer ends
/// with the content of the list.
#[test]
fn a_list_waits_for_the_processing_and_loses_no_deletion() {
    in_both_modes(
        |Stage {
             queue,
             mut writer,
             known,
             ..
         }| {
            let view = Arc::clone(&known);
            let consumer = thread::spawn(move || follow(queue, &view));
            for word in ["+a1", "+b1", "-a2", "!", "=c1"] {
                write(&mut writer, word).unwrap();
            }
            drop(writer);
            consumer.join().unwrap();
            let objects = known.objects.lock();
            let left: Vec<_> = objects.keys().map(ToString::to_string).collect();
            assert_eq!(left, ["c"], "lost a deletion");
        },
    );
}

/// A resync repeats the object wherever it is, and never takes it back in time (DF-16, RQ-9).
#[test]
fn a_resync_during_the_processing_reaches_the_object() {
    in_both_modes(
        |Stage {
             mut queue,
             mut writer,
             known,
             ..
         }| {
            let ticked = Arc::new(AtomicBool::new(false));
            let at_the_tick = Arc::clone(&ticked);
            let consumer = thread::spawn(move || {
                let mut told = Vec::new();
                let mut since = 0;
                let mut process = |deltas: super::Deltas<_>, _| {
                    since += u32::from(at_the_tick.load(Ordering::SeqCst));
                    thread::yield_now();
                    apply(&known, &deltas);
                    let objects = deltas.iter().filter_map(super::Delta::object);
                    told.extend(objects.map(|object| object.resource_version()));
                };
                while queue.pop(Deadline::NEVER, &mut process).is_ok() {}
                (told, since)
            });
            for word in ["~a1", "~a2"] {
                write(&mut writer, word).unwrap();
            }
            ticked.store(true, Ordering::SeqCst);
            writer.resync().unwrap();
            drop(writer);
            let (told, since) = consumer.join().unwrap();
            assert!(since > 0, "told nothing since the tick: {told:?}");
            let back = |pair: &[ResourceVersion]| pair[1].is_older_than(&pair[0]);
            assert!(!told.windows(2).any(back), "{told:?}");
        },
    );
}

/// A list ends an object whose deletion the consumer refuses as old news, queued or in processing
/// (B18, RQ-3).
#[test]
fn a_list_ends_what_a_refused_deletion_leaves() {
    in_both_modes(
        |Stage {
             mut queue,
             mut writer,
             known,
             ..
         }| {
            let view = Arc::clone(&known);
            let consumer = thread::spawn(move || {
                let process = |deltas: super::Deltas<_>, _| {
                    thread::yield_now();
                    let counts = match deltas.newest() {
                        super::Delta::Deleted(deletion) => deletion.unlisted,
                        _ => true,
                    };
                    if counts {
                        apply(&view, &deltas);
                    }
                };
                while queue.pop(Deadline::NEVER, process).is_ok() {}
            });
            for word in ["+a5", "=a5", "-a2", "="] {
                write(&mut writer, word).unwrap();
            }
            drop(writer);
            consumer.join().unwrap();
            assert!(known.objects.lock().is_empty(), "lost a deletion");
        },
    );
}

/// A consumer whose process function does not return before the write has ended.
fn with_a_stuck_consumer(
    options: fn() -> Options,
    word: &'static str,
    end: fn(&StopSource, &super::DeltaFifoHandle<ConfigMap>),
) {
    shuttle::check_random(
        move || {
            let (mut queue, mut writer) = DeltaFifo::new(options());
            let handle = queue.handle();
            let stop = StopSource::new();
            writer.start(&stop.token());
            write(&mut writer, "+a1").unwrap();
            write(&mut writer, "+b1").unwrap();
            let gate = Arc::new(crate::sync::Monitor::new(false));
            let inside = Arc::clone(&gate);
            let consumer = thread::spawn(move || {
                queue.pop(Deadline::NEVER, |_, _| {
                    let mut open = inside.lock();
                    while !*open {
                        open = inside.wait(open);
                    }
                })
            });
            let ender = thread::spawn(move || end(&stop, &handle));
            // The write comes before, during or after the processing, and waits only during it.
            if let Err(error) = write(&mut writer, word) {
                assert!(error.is_stopped(), "{error}");
            }
            *gate.lock() = true;
            gate.notify_all();
            ender.join().unwrap();
            drop(consumer.join());
        },
        SCHEDULES,
    );
}

#[test]
fn a_stop_during_the_wait_of_a_list_is_never_missed() {
    with_a_stuck_consumer(Options::default, "=c1", |stop, _| stop.stop());
}

#[test]
fn a_close_during_the_wait_of_a_list_is_never_missed() {
    with_a_stuck_consumer(Options::default, "=c1", |_, queue| queue.close());
}

#[test]
fn a_stop_or_close_of_a_writer_at_its_bound_is_never_missed() {
    let bound = || Options::default().max_events(2);
    with_a_stuck_consumer(bound, "+c1", |stop, _| stop.stop());
    with_a_stuck_consumer(bound, "+c1", |_, queue| queue.close());
}

/// A writer at its bound goes on as soon as an entry is taken.
#[test]
fn a_writer_at_its_bound_is_never_left_waiting() {
    for options in [|| Options::default(), || Options::default().in_order()] {
        shuttle::check_random(
            move || {
                let (queue, mut writer) = DeltaFifo::new(options().max_events(1));
                let known = Arc::<View>::default();
                let view = Arc::clone(&known);
                let consumer = thread::spawn(move || follow(queue, &view));
                for word in ["+a1", "+b1", "+c1"] {
                    write(&mut writer, word).unwrap();
                }
                drop(writer);
                consumer.join().unwrap();
                assert_eq!(known.objects.lock().len(), 3);
            },
            SCHEDULES,
        );
    }
}

/// The queue refuses writes of the process function, which would wait for itself, whatever another
/// thread writes meanwhile.
#[test]
fn a_write_inside_the_process_function_never_waits() {
    shuttle::check_random(
        || {
            let (mut queue, writer) = DeltaFifo::new(Options::default().max_events(1));
            let writer: Arc<Mutex<DeltaFifoWriter<ConfigMap>>> = Arc::new(Mutex::new(writer));
            let inside = Arc::clone(&writer);
            let consumer = thread::spawn(move || {
                queue.pop(Deadline::NEVER, |_, _| {
                    for word in ["+c1", "=c1"] {
                        let error = write(&mut inside.lock(), word).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::Config);
                    }
                })
            });
            write(&mut writer.lock(), "+a1").unwrap();
            consumer.join().unwrap().unwrap();
        },
        SCHEDULES,
    );
}

/// Negative control: a list that checks only the queue and the consumer's view loses the deletion
/// of an object in processing, and the checker sees that.
#[test]
#[should_panic(expected = "lost a deletion")]
fn a_list_that_does_not_wait_loses_a_deletion() {
    shuttle::check_random(
        || {
            // Such lists do not find missing objects themselves: the test does, without waiting.
            let (queue, mut writer) = DeltaFifo::new(Options::default().atomic_lists());
            let handle = queue.handle();
            let known = Arc::<View>::default();
            let view = Arc::clone(&known);
            let consumer = thread::spawn(move || follow(queue, &view));
            write(&mut writer, "+a1").unwrap();
            let waits = !handle.is_empty();
            let shows = !known.objects.lock().is_empty();
            if waits || shows {
                write(&mut writer, "-a1").unwrap();
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
