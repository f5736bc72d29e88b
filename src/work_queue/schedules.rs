//! Thread schedules of a work queue, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::thread;

use super::{WorkQueue, WorkQueueOptions};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::Error;
use crate::object::ObjectKey;
use crate::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Schedules tried per model; each takes about a millisecond.
const SCHEDULES: usize = 2_000;

/// Two workers work on what one thread adds, while another ends the queue.
#[derive(Clone)]
struct Model {
    queue: WorkQueue,
    fake: FakeClock,
    /// The number of the last change, and of the last one that a worker has seen.
    changes: Arc<[AtomicUsize; 2]>,
    is_worked_on: Arc<AtomicBool>,
    had_two_workers: Arc<AtomicBool>,
}

impl Model {
    fn new() -> Self {
        let fake = FakeClock::new();
        let options = WorkQueueOptions::default().clock(Clock::from(fake.clone()));
        Self {
            queue: WorkQueue::new(options),
            fake,
            changes: Arc::default(),
            is_worked_on: Arc::default(),
            had_two_workers: Arc::default(),
        }
    }

    fn worker(&self, fails_first: bool) -> thread::JoinHandle<()> {
        let (model, mut fails) = (self.clone(), fails_first);
        thread::spawn(move || {
            while let Ok(item) = model.queue.get(Deadline::NEVER) {
                if model.is_worked_on.swap(true, Ordering::SeqCst) {
                    model.had_two_workers.store(true, Ordering::SeqCst);
                }
                thread::yield_now();
                let [last, seen] = &*model.changes;
                seen.fetch_max(last.load(Ordering::SeqCst), Ordering::SeqCst);
                model.is_worked_on.store(false, Ordering::SeqCst);
                if std::mem::take(&mut fails) {
                    let pause = item.retry();
                    model.fake.advance(pause);
                } else {
                    item.forget();
                }
            }
        })
    }

    fn adder(&self, changes: usize) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || {
            for _ in 0..changes {
                model.changes[0].fetch_add(1, Ordering::SeqCst);
                model.queue.add(ObjectKey::new("shop", "settings"));
            }
        })
    }
}

/// In any schedule, no two workers have one key, and one of them sees the last change.
#[test]
fn every_change_before_a_drain_is_worked_on_by_one_worker_at_a_time() {
    shuttle::check_random(
        || {
            let model = Model::new();
            let workers = [model.worker(true), model.worker(false)];
            model.adder(3).join().unwrap();
            model.queue.drain(Deadline::NEVER).unwrap();
            let [last, seen] = &*model.changes;
            assert_eq!(seen.load(Ordering::SeqCst), last.load(Ordering::SeqCst));
            assert!(!model.had_two_workers.load(Ordering::SeqCst));
            for worker in workers {
                worker.join().unwrap();
            }
        },
        SCHEDULES,
    );
}

/// A shutdown at any moment ends both workers, and then none has a key.
#[test]
fn a_shutdown_at_any_moment_ends_every_worker() {
    shuttle::check_random(
        || {
            let model = Model::new();
            let workers = [model.worker(true), model.worker(false)];
            let adder = model.adder(2);
            model.queue.shutdown(Deadline::NEVER).unwrap();
            assert!(!model.is_worked_on.load(Ordering::SeqCst) && model.queue.is_empty());
            adder.join().unwrap();
            for worker in workers {
                worker.join().unwrap();
            }
        },
        SCHEDULES,
    );
}

/// Workers that both end the queue while they have a key do not wait for each other.
#[test]
fn two_workers_that_end_the_queue_do_not_wait_for_each_other() {
    type End = fn(&WorkQueue) -> Result<(), Error>;
    let shutdown: End = |queue| queue.shutdown(Deadline::NEVER);
    let drain: End = |queue| queue.drain(Deadline::NEVER);
    for ends in [[shutdown, shutdown], [shutdown, drain], [drain, drain]] {
        shuttle::check_random(
            move || {
                let queue = Model::new().queue;
                for name in ["a", "b"] {
                    queue.add(ObjectKey::new("shop", name));
                }
                let workers = ends.map(|end| {
                    let queue = queue.clone();
                    thread::spawn(move || {
                        let mut end = Some(end);
                        while let Ok(item) = queue.get(Deadline::NEVER) {
                            queue.add(item.key().clone());
                            end.take().map_or(Ok(()), |end| end(&queue)).unwrap();
                        }
                    })
                });
                for worker in workers {
                    worker.join().unwrap();
                }
                assert!(queue.is_empty());
            },
            SCHEDULES,
        );
    }
}
