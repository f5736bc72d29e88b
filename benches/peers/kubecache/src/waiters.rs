//! From a set to the return of the wait that it ends: one waiter, and a thousand at once.

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use kubecache::clock::Clock;
use kubecache::pod_status::{PodStatus, PodStatusCache, Timestamp};
use parking_lot::{Condvar, Mutex};

use crate::marks::{order, pause, tell};

const HANDOVERS: usize = 4_000;

/// How long the giver lets the waiter, so that it sleeps.
const SETTLE: Duration = Duration::from_micros(50);

const CROWD: usize = 1_000;
const CROWDS: usize = 9;

const POD: &str = "0b3a8f5e-7d0c-4e4e-9a53-6f1f7a1c2d3e";

pub(crate) fn run(way: &str) {
    tell("up");
    order();
    let (one, all) = match way {
        "cache" => (cache_handovers(), cache_crowds()),
        "condvar" => (bare_handovers(), bare_crowds()),
        other => panic!("unknown way {other}"),
    };
    tell(&format!("waited {} {}", one * 1e6, all * 1e3));
    order();
}

fn cache_handovers() -> f64 {
    let clock = Clock::system();
    let cache: PodStatusCache = PodStatusCache::new(clock.clone());
    let mut last = Timestamp::now(&clock);
    let waiting = cache.clone();
    let wait = move || {
        let reading = waiting.get_newer_than(POD, last).unwrap();
        last = reading.modified_time().unwrap();
    };
    let status = Arc::new(PodStatus::default());
    handovers(wait, || {
        cache.set(POD, Some(Arc::clone(&status)), None, Timestamp::now(&clock));
    })
}

fn bare_handovers() -> f64 {
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let waiting = Arc::clone(&shared);
    let wait = move || {
        let (slot, changed) = &*waiting;
        let mut slot = slot.lock();
        while slot.is_none() {
            changed.wait(&mut slot);
        }
        black_box(slot.take());
    };
    handovers(wait, || {
        let (slot, changed) = &*shared;
        *slot.lock() = Some(Instant::now());
        changed.notify_all();
    })
}

/// Seconds from the call of `give` to the return of `wait`, which another thread is blocked in by
/// then: the median.
fn handovers(mut wait: impl FnMut() + Send + 'static, give: impl Fn()) -> f64 {
    let (tell_back, told) = channel();
    let rounds = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&rounds);
    let waiter = thread::spawn(move || {
        for _ in 0..HANDOVERS {
            begun.fetch_add(1, Ordering::Release);
            wait();
            tell_back.send(Instant::now()).unwrap();
        }
    });
    let mut times = Vec::with_capacity(HANDOVERS);
    for round in 1..=HANDOVERS {
        while rounds.load(Ordering::Acquire) < round {
            spin_loop();
        }
        let settling = Instant::now();
        while settling.elapsed() < SETTLE {
            spin_loop();
        }
        let before = Instant::now();
        give();
        times.push(told.recv().unwrap().saturating_duration_since(before));
    }
    waiter.join().unwrap();
    median(times)
}

fn cache_crowds() -> f64 {
    median((0..CROWDS).map(|_| {
        let clock = Clock::system();
        let cache: PodStatusCache = PodStatusCache::new(clock.clone());
        crowd(
            |nth| {
                let (cache, uid) = (cache.clone(), format!("pod-{nth}"));
                move || drop(cache.get_newer_than(&uid, Timestamp::ZERO).unwrap())
            },
            || cache.waiting().len(),
            || cache.update_time(Timestamp::now(&clock)),
        )
    }))
}

fn bare_crowds() -> f64 {
    median((0..CROWDS).map(|_| {
        let shared = Arc::new((Mutex::new((0, false)), Condvar::new()));
        crowd(
            |_| {
                let shared = Arc::clone(&shared);
                move || {
                    let (state, changed) = &*shared;
                    let mut state = state.lock();
                    state.0 += 1;
                    while !state.1 {
                        changed.wait(&mut state);
                    }
                }
            },
            || shared.0.lock().0,
            || {
                shared.0.lock().1 = true;
                shared.1.notify_all();
            },
        )
    }))
}

/// From the call of `release` to the return of the last of the waits.
fn crowd<W: FnOnce() + Send + 'static>(
    wait: impl Fn(usize) -> W,
    waiting: impl Fn() -> usize,
    release: impl FnOnce(),
) -> Duration {
    let (tell_back, told) = channel();
    let left = Arc::new(AtomicUsize::new(CROWD));
    let waiters: Vec<_> = (0..CROWD)
        .map(|nth| {
            let (wait, left, tell_back) = (wait(nth), Arc::clone(&left), tell_back.clone());
            thread::spawn(move || {
                wait();
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    tell_back.send(Instant::now()).unwrap();
                }
            })
        })
        .collect();
    while waiting() < CROWD {
        pause(Duration::from_millis(1));
    }
    // The last one sleeps by then.
    pause(Duration::from_millis(20));
    let before = Instant::now();
    release();
    let took = told.recv().unwrap().saturating_duration_since(before);
    for waiter in waiters {
        waiter.join().unwrap();
    }
    took
}

fn median(times: impl IntoIterator<Item = Duration>) -> f64 {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}
