//! Thread schedules of the waits for a pod's status, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use super::table::{AnswerSlot, PodAnswer, PodTable};
use super::tests::{Stage, later};
use super::{PodReading, PodStatus, PodStatusCache, PodWaiter, Timestamp};
use crate::clock::{Clock, Deadline};
use crate::sync::{Arc, Mutex};
use crate::worker::StopSource;
use crate::{Error, ErrorKind};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

const SECOND: Duration = Duration::from_secs(1);

type Answer = Result<PodReading<PodStatus>, Error>;

impl Stage {
    /// Asks, on a thread of the model checker, for a status newer than "now".
    fn ask_in_model(&self, uid: &'static str, deadline: Deadline) -> JoinHandle<Answer> {
        let (cache, now) = (self.cache.clone(), self.at(0));
        thread::spawn(move || cache.get_newer_than_by(uid, now, deadline))
    }

    fn run(&self, act: impl FnOnce(&PodStatusCache) + Send + 'static) -> JoinHandle<()> {
        let cache = self.cache.clone();
        thread::spawn(move || act(&cache))
    }
}

fn status(uid: &str) -> Option<Arc<PodStatus>> {
    Some(super::tests::status(uid, "set"))
}

fn is_set(reading: &PodReading<PodStatus>) -> bool {
    reading.status().unwrap().name == "set"
}

#[test]
fn a_set_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiters = [
                stage.ask_in_model("uid-1", Deadline::NEVER),
                stage.ask_in_model("uid-1", Deadline::NEVER),
            ];
            stage.cache.set("uid-1", status("uid-1"), None, stage.at(1));
            for waiter in waiters {
                assert!(is_set(&waiter.join().unwrap().unwrap()));
            }
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

#[test]
fn the_global_time_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiters = [
                stage.ask_in_model("uid-1", Deadline::NEVER),
                stage.ask_in_model("uid-2", Deadline::NEVER),
            ];
            stage.cache.update_time(stage.at(1));
            for waiter in waiters {
                assert!(!waiter.join().unwrap().unwrap().is_stored());
            }
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

#[test]
fn an_observed_time_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            stage.cache.set("uid-1", status("uid-1"), None, stage.at(0));
            let waiter = stage.ask_in_model("uid-1", Deadline::NEVER);
            stage.cache.set_observed_time("uid-1", stage.at(1));
            assert!(is_set(&waiter.join().unwrap().unwrap()));
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

#[test]
fn a_close_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiters = [
                stage.ask_in_model("uid-1", Deadline::NEVER),
                stage.ask_in_model("uid-1", Deadline::NEVER),
                stage.ask_in_model("uid-2", Deadline::NEVER),
            ];
            stage.cache.close();
            for waiter in waiters {
                assert!(waiter.join().unwrap().unwrap_err().is_stopped());
            }
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

#[test]
fn the_clock_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiter = stage.ask_in_model("uid-1", stage.clock.after(SECOND));
            stage.fake.advance(SECOND);
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// The stop comes before, during or after the wait's check: that wait ends, and no other.
#[test]
fn a_stop_is_never_missed() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let (source, cache, now) = (StopSource::new(), stage.cache.clone(), stage.at(0));
            let token = source.token();
            let stopped = thread::spawn(move || {
                cache.get_newer_than_or_stop("uid-1", now, Deadline::NEVER, &token)
            });
            let other = stage.ask_in_model("uid-1", Deadline::NEVER);
            source.stop();
            assert!(stopped.join().unwrap().unwrap_err().is_stopped());
            stage.cache.set("uid-1", status("uid-1"), None, stage.at(1));
            assert!(is_set(&other.join().unwrap().unwrap()));
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// A set, the deadline and the close at once: a fitting answer comes, and no place remains in the
/// table.
#[test]
fn every_end_of_a_wait_at_once() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiter = stage.ask_in_model("uid-1", stage.clock.after(SECOND));
            let endless = stage.ask_in_model("uid-1", Deadline::NEVER);
            let later = stage.at(1);
            let set = stage.run(move |cache| {
                cache.set("uid-1", status("uid-1"), None, later);
            });
            let close = stage.run(PodStatusCache::close);
            stage.fake.advance(SECOND);
            set.join().unwrap();
            close.join().unwrap();
            for (waiter, may_time_out) in [(waiter, true), (endless, false)] {
                match waiter.join().unwrap() {
                    Ok(reading) => assert!(is_set(&reading)),
                    Err(error) if error.kind() == ErrorKind::Timeout => assert!(may_time_out),
                    Err(error) => assert!(error.is_stopped()),
                }
            }
            let passed = stage.clock.after(Duration::ZERO);
            let answer = stage.ask_in_model("uid-1", passed).join().unwrap();
            assert!(answer.is_ok(), "an answer beats the deadline and the close");
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// Each wait is woken for itself: no waiter takes the wake-up of another pod's waiter.
#[test]
fn two_pods_lose_nothing_to_each_other() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let waiters = ["uid-1", "uid-2"].map(|uid| stage.ask_in_model(uid, Deadline::NEVER));
            let later = stage.at(1);
            let other = stage.run(move |cache| {
                cache.set("uid-2", status("uid-2"), None, later);
            });
            stage.cache.set("uid-1", status("uid-1"), None, later);
            other.join().unwrap();
            for (waiter, uid) in waiters.into_iter().zip(["uid-1", "uid-2"]) {
                let reading = waiter.join().unwrap().unwrap();
                assert_eq!(reading.status().unwrap().id, uid);
            }
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// The pod's last waiter leaves at its deadline while another comes, and takes its place along: the
/// new waiter is answered all the same.
#[test]
fn a_waiter_that_leaves_takes_nobody_with_it() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let leaving = stage.ask_in_model("uid-1", stage.clock.after(SECOND));
            let coming = stage.ask_in_model("uid-1", Deadline::NEVER);
            stage.fake.advance(SECOND);
            stage.cache.set("uid-1", status("uid-1"), None, stage.at(1));
            assert!(is_set(&coming.join().unwrap().unwrap()));
            match leaving.join().unwrap() {
                Ok(reading) => assert!(is_set(&reading)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout),
            }
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// A caller that waits before the set gets its value, although it is deleted at once (PC-8). The
/// global time answers a later caller (PC-4).
#[test]
fn a_delete_in_between_loses_no_answer() {
    shuttle::check_random(
        || {
            let stage = Stage::new();
            let (now, later) = (stage.at(0), stage.at(1));
            let wait = PodWaiter {
                uid: Arc::from("uid-1"),
                min_time: now,
                since: stage.fake.now(),
                deadline: Deadline::NEVER,
            };
            let early = stage.cache.table.lock().subscribe(wait);
            let waiter = stage.ask_in_model("uid-1", Deadline::NEVER);
            let writer = stage.run(move |cache| {
                cache.set("uid-1", status("uid-1"), None, later);
                cache.delete("uid-1");
                cache.update_time(later);
            });
            let reading = waiter.join().unwrap().unwrap();
            assert!(is_set(&reading) || !reading.is_stored());
            writer.join().unwrap();
            let found = early.lock().take();
            assert!(matches!(found, Some(PodAnswer::Known(found)) if is_set(&found)));
            stage.assert_nobody_is_left();
        },
        SCHEDULES,
    );
}

/// A waiter like the cache's, over the same table, whose steps can be run one by one.
struct Parts {
    table: Arc<Mutex<PodTable<PodStatus>>>,
    clock: Clock,
    wait: PodWaiter,
}

impl Parts {
    fn new() -> (Arc<Self>, Timestamp) {
        let clock = Clock::system();
        let since = clock.now();
        let wait = PodWaiter {
            uid: Arc::from("uid-1"),
            min_time: Timestamp::from(since),
            since,
            deadline: Deadline::NEVER,
        };
        let later = later(wait.min_time, SECOND);
        let parts = Self {
            table: Arc::new(Mutex::new(PodTable::new(false))),
            clock,
            wait,
        };
        (Arc::new(parts), later)
    }

    fn entry(time: Timestamp) -> PodReading<PodStatus> {
        PodReading::new(status("uid-1"), None, Some(time))
    }

    fn subscribe(&self) -> AnswerSlot<PodStatus> {
        self.table.lock().subscribe(self.wait.clone())
    }

    fn wait_for_answer(&self, slot: &AnswerSlot<PodStatus>) {
        let mut answer = slot.lock();
        while answer.is_none() {
            answer = self.clock.wait_until(slot, answer, Deadline::NEVER);
        }
    }
}

/// Negative control: a check of the entry and a subscription under two locks miss a set in between.
#[test]
#[should_panic(expected = "deadlock")]
fn a_look_outside_the_lock_loses_the_wake_up() {
    shuttle::check_random(
        || {
            let (parts, later) = Parts::new();
            let waiting = Arc::clone(&parts);
            let waiter = thread::spawn(move || {
                let found = waiting
                    .table
                    .lock()
                    .newer_than("uid-1", waiting.wait.min_time);
                if found.is_none() {
                    waiting.wait_for_answer(&waiting.subscribe());
                }
            });
            let (_, _, answered) = parts.table.lock().set("uid-1", Parts::entry(later));
            for slot in answered {
                slot.notify_all();
            }
            waiter.join().unwrap();
        },
        SCHEDULES,
    );
}

/// Negative control: the wake-up comes before the answer is in the slot. The waiter finds nothing
/// and sleeps on.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_before_the_answer_is_there_is_lost() {
    shuttle::check_random(
        || {
            let (parts, later) = Parts::new();
            let slot = parts.subscribe();
            let (waiting, waits_at) = (Arc::clone(&parts), Arc::clone(&slot));
            let waiter = thread::spawn(move || waiting.wait_for_answer(&waits_at));
            slot.notify_all();
            let _unnotified = parts.table.lock().set("uid-1", Parts::entry(later));
            waiter.join().unwrap();
        },
        SCHEDULES,
    );
}
