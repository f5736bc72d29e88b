//! Thread schedules of the stop, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use shuttle::thread;

use crate::clock::{Clock, FakeClock};
use crate::sync::{
    Arc, Monitor,
    atomic::{AtomicUsize, Ordering},
};
use crate::worker::{StopSource, WaitEnd, Wake};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

#[test]
fn a_stop_is_never_missed_by_a_wait() {
    shuttle::check_random(
        || {
            let stop = StopSource::new();
            let tokens = [stop.token(), stop.token()];
            let waiters = tokens.map(|token| thread::spawn(move || token.wait()));
            stop.stop();
            for waiter in waiters {
                waiter.join().unwrap();
            }
        },
        SCHEDULES,
    );
}

#[test]
fn a_stop_and_the_clock_at_once() {
    shuttle::check_random(
        || {
            let fake = FakeClock::new();
            let clock = Clock::from(fake.clone());
            let stop = StopSource::new();
            let (token, deadline) = (stop.token(), clock.after(Duration::from_secs(1)));
            let waiter = thread::spawn(move || token.wait_until(&clock, deadline));
            let time = thread::spawn(move || fake.advance(Duration::from_secs(1)));
            stop.stop();
            time.join().unwrap();
            let end = waiter.join().unwrap();
            assert!(matches!(end, WaitEnd::Stopped | WaitEnd::DeadlinePassed));
        },
        SCHEDULES,
    );
}

/// A thread's blocking call, which the stop wakes through its registration.
struct Blocked {
    woken: Monitor<bool>,
    calls: AtomicUsize,
}

impl Wake for Blocked {
    fn wake(&self) {
        *self.woken.lock() = true;
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.woken.notify_all();
    }
}

/// A wake-up that is registered before or after the stop is called exactly once.
#[test]
fn a_stop_is_never_missed_by_a_registration() {
    shuttle::check_random(
        || {
            let stop = StopSource::new();
            let token = stop.token();
            let blocked = Arc::new(Blocked {
                woken: Monitor::new(false),
                calls: AtomicUsize::new(0),
            });
            let inside = Arc::clone(&blocked);
            let thread = thread::spawn(move || {
                let wake: Arc<dyn Wake> = Arc::<Blocked>::clone(&inside);
                let _registration = token.register(&wake);
                let mut woken = inside.woken.lock();
                while !*woken {
                    woken = inside.woken.wait(woken);
                }
            });
            stop.stop();
            thread.join().unwrap();
            assert_eq!(blocked.calls.load(Ordering::SeqCst), 1);
        },
        SCHEDULES,
    );
}

/// Negative control: a wake-up that is registered after a check of the flag, without a second
/// check, is missed, and the checker sees that.
#[test]
#[should_panic(expected = "deadlock")]
fn a_wait_that_looks_before_it_registers_misses_the_stop() {
    shuttle::check_random(
        || {
            let stopped = Arc::new(AtomicUsize::new(0));
            let wakes: Arc<Monitor<Vec<Arc<Blocked>>>> = Arc::new(Monitor::new(Vec::new()));
            let (flag, list) = (Arc::clone(&stopped), Arc::clone(&wakes));
            let thread = thread::spawn(move || {
                if flag.load(Ordering::SeqCst) == 1 {
                    return;
                }
                let blocked = Arc::new(Blocked {
                    woken: Monitor::new(false),
                    calls: AtomicUsize::new(0),
                });
                list.lock().push(Arc::clone(&blocked));
                let mut woken = blocked.woken.lock();
                while !*woken {
                    woken = blocked.woken.wait(woken);
                }
            });
            stopped.store(1, Ordering::SeqCst);
            let registered = std::mem::take(&mut *wakes.lock());
            for blocked in registered {
                blocked.wake();
            }
            thread.join().unwrap();
        },
        SCHEDULES,
    );
}
