//! Thread schedules of rounds, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use shuttle::thread;

use super::Rounds;
use crate::clock::Deadline;
use crate::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use crate::worker::StopToken;

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

/// A worker that does rounds of this work until its stop.
fn rounds_of(
    rounds: &Rounds<usize>,
    woken: &crossbeam_channel::Receiver<()>,
    work: impl Fn() -> usize,
    ends: &AtomicUsize,
    takes_late: bool,
) {
    let _ending = rounds.until_dropped(&StopToken::never());
    while ends.load(Ordering::SeqCst) == 0 {
        if woken.try_recv().is_err() {
            thread::yield_now();
            continue;
        }
        let early = rounds.begin();
        let seen = work();
        thread::yield_now();
        let began = if takes_late { rounds.begin() } else { early };
        rounds.end(began, seen);
    }
}

fn whoever_asks_sees_its_own_change(takes_late: bool) {
    let (rounds, woken) = Rounds::new(0_usize);
    let rounds = Arc::new(rounds);
    let (value, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = {
        let (rounds, value, ends) = (Arc::clone(&rounds), Arc::clone(&value), Arc::clone(&ends));
        let work = move || value.load(Ordering::SeqCst);
        thread::spawn(move || rounds_of(&rounds, &woken, work, &ends, takes_late))
    };
    let askers = [1, 2].map(|_| {
        let (rounds, value) = (Arc::clone(&rounds), Arc::clone(&value));
        thread::spawn(move || {
            let mine = value.fetch_add(1, Ordering::SeqCst) + 1;
            let seen = rounds.wait("the round", Deadline::NEVER).unwrap();
            assert!(seen >= mine, "a round that began before the change");
        })
    });
    for asker in askers {
        asker.join().unwrap();
    }
    ends.store(1, Ordering::SeqCst);
    worker.join().unwrap();
    let late = rounds.wait("the round", Deadline::NEVER);
    assert!(late.unwrap_err().is_stopped());
}

#[test]
fn whoever_asks_for_a_round_waits_for_one_that_began_after_that() {
    shuttle::check_random(|| whoever_asks_sees_its_own_change(false), SCHEDULES);
}

/// Negative control: a round that counts for callers that asked while it ran.
#[test]
#[should_panic(expected = "a round that began before the change")]
fn a_round_that_counts_for_those_who_asked_during_it_misses_their_change() {
    shuttle::check_random(|| whoever_asks_sees_its_own_change(true), SCHEDULES);
}

/// The first round is for at least one of the callers, however late it wakes.
#[test]
fn whoever_waits_for_a_round_gets_the_outcome_of_that_one() {
    let model = || {
        let (rounds, woken) = Rounds::new(0_usize);
        let rounds = Arc::new(rounds);
        let ends = Arc::new(AtomicUsize::new(0));
        let worker = {
            let (rounds, ends) = (Arc::clone(&rounds), Arc::clone(&ends));
            let done = AtomicUsize::new(0);
            let work = move || done.fetch_add(1, Ordering::SeqCst) + 1;
            thread::spawn(move || rounds_of(&rounds, &woken, work, &ends, false))
        };
        let askers = [1, 2].map(|_| {
            let rounds = Arc::clone(&rounds);
            thread::spawn(move || rounds.wait("the round", Deadline::NEVER).unwrap())
        });
        let outcomes = askers.map(|asker| asker.join().unwrap());
        ends.store(1, Ordering::SeqCst);
        worker.join().unwrap();
        assert!(outcomes.contains(&1), "{outcomes:?}: nobody has the first");
    };
    shuttle::check_random(model, SCHEDULES);
}
