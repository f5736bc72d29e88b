//! What client-go's work queues promise, and what the guard of a key adds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::clock::FakeClock;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::ZERO;

fn queue() -> (WorkQueue, FakeClock) {
    let fake = FakeClock::new();
    let options = WorkQueueOptions::default().clock(Clock::from(fake.clone()));
    (WorkQueue::new(options), fake)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

fn add(queue: &WorkQueue, names: &[&str]) {
    for name in names {
        queue.add(key(name));
    }
}

/// The name of the key that is taken without a wait.
fn next(queue: &WorkQueue) -> (String, WorkItem) {
    let item = queue.get(NOW).unwrap();
    (item.key().name().to_owned(), item)
}

fn is_empty(queue: &WorkQueue) -> bool {
    let nothing = queue.get(NOW).map(drop);
    assert!(nothing.is_ok() || queue.is_empty());
    nothing.is_err_and(|error| error.kind() == ErrorKind::Timeout)
}

#[test]
fn a_key_waits_once_and_the_oldest_comes_first() {
    let (queue, _fake) = queue();
    add(&queue, &["b", "a", "b", "c", "b"]);
    assert_eq!(queue.len(), 3);
    let taken: Vec<_> = (0..3).map(|_| next(&queue).0).collect();
    assert_eq!(taken, ["b", "a", "c"]);
    assert!(is_empty(&queue));
}

#[test]
fn a_key_that_is_added_while_it_is_worked_on_comes_again_once_when_that_is_done() {
    let (queue, _fake) = queue();
    add(&queue, &["a"]);
    let (_, item) = next(&queue);
    add(&queue, &["a", "a", "b"]);
    assert_eq!(queue.len(), 1, "no two workers have one key");
    assert_eq!(next(&queue).0, "b");
    assert!(is_empty(&queue));
    drop(item);
    assert_eq!(next(&queue).0, "a");
    assert!(is_empty(&queue));
}

#[test]
fn a_failed_key_comes_again_after_a_pause_of_its_own_that_doubles_up_to_a_maximum() {
    let (queue, fake) = queue();
    let mut pauses = Vec::new();
    for failures in 0..20 {
        queue.add(key("a"));
        let (_, item) = next(&queue);
        assert_eq!(item.failures(), failures);
        let pause = item.retry();
        pauses.push(pause.as_millis());
        assert!(is_empty(&queue));
        let early = pause.saturating_sub(Duration::from_millis(1));
        fake.advance(early);
        assert!(is_empty(&queue));
        fake.advance(Duration::from_millis(1));
        assert_eq!(queue.len(), 1);
    }
    assert_eq!(pauses[..5], [5, 10, 20, 40, 80]);
    assert_eq!(pauses[17..], [655_360, 1_000_000, 1_000_000]);
    add(&queue, &["b"]);
    next(&queue).1.forget();
    assert_eq!(
        next(&queue).1.retry(),
        Duration::from_millis(5),
        "of another"
    );
    add(&queue, &["a"]);
    let (_, item) = next(&queue);
    assert_eq!(item.failures(), 0, "a success ends the row");
    assert_eq!(item.retry(), Duration::from_millis(5));
}

#[test]
fn no_pause_is_longer_than_the_longest_even_the_first() {
    let fake = FakeClock::new();
    let options = WorkQueueOptions::default().clock(Clock::from(fake.clone()));
    let most = Duration::from_millis(1);
    let queue = WorkQueue::new(options.retry_max(most));
    for _ in 0..3 {
        add(&queue, &["a"]);
        assert_eq!(next(&queue).1.retry(), most);
        fake.advance(most);
    }
}

#[test]
fn work_that_ends_otherwise_leaves_the_count() {
    let (queue, fake) = queue();
    add(&queue, &["a"]);
    fake.advance(next(&queue).1.retry());
    drop(next(&queue));
    add(&queue, &["a"]);
    assert_eq!(next(&queue).1.failures(), 1);
}

/// A worker that panics gives its key back, to be tried again.
#[test]
fn a_panic_is_a_failure_of_the_key() {
    let (queue, fake) = queue();
    add(&queue, &["a"]);
    let worker = queue.clone();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let (_, _item) = next(&worker);
        panic!("mine");
    }));
    assert!(panicked.is_err());
    assert!(is_empty(&queue));
    fake.advance(Duration::from_millis(5));
    assert_eq!(next(&queue).1.failures(), 1);
}

#[test]
fn the_earliest_time_of_a_key_counts_and_an_add_does_not_cancel_it() {
    let (queue, fake) = queue();
    for wait in [3, 1, 2] {
        queue.add_after(key("a"), wait * SECOND);
    }
    queue.add_after(key("b"), Duration::ZERO);
    assert_eq!(next(&queue).0, "b");
    add(&queue, &["a"]);
    assert_eq!(next(&queue).0, "a");
    fake.advance(SECOND);
    assert_eq!(next(&queue).0, "a");
    fake.advance(9 * SECOND);
    assert!(is_empty(&queue));
    queue.add_after(key("a"), Duration::MAX);
    fake.advance(9 * SECOND);
    assert!(is_empty(&queue));
}

/// While all workers are busy, nobody moves it.
#[test]
fn a_key_whose_time_has_come_goes_before_those_that_are_added_later() {
    let (queue, fake) = queue();
    queue.add_after(key("a"), SECOND);
    fake.advance(SECOND);
    add(&queue, &["b"]);
    assert_eq!([next(&queue).0, next(&queue).0], ["a", "b"]);
}

#[test]
fn a_worker_that_waits_wakes_for_a_key_for_its_time_and_for_the_end() {
    let (queue, fake) = queue();
    std::thread::scope(|scope| {
        let get = || {
            let of_worker = queue.clone();
            let worker = scope.spawn(move || {
                let item = of_worker.get(Deadline::NEVER)?;
                Ok::<_, Error>(item.key().name().to_owned())
            });
            fake.wait_for_parked(1);
            worker
        };
        let worker = get();
        add(&queue, &["a"]);
        assert_eq!(worker.join().unwrap().unwrap(), "a");
        let worker = get();
        queue.add_after(key("b"), 2 * SECOND);
        fake.wait_for_timer(2 * SECOND);
        fake.advance(2 * SECOND);
        assert_eq!(worker.join().unwrap().unwrap(), "b");
        let worker = get();
        queue.stop();
        let error = worker.join().unwrap().unwrap_err();
        assert!(error.is_stopped());
        assert_eq!(
            error.to_string(),
            "waiting for a key of the work queue: stopped"
        );
    });
}

#[test]
fn a_closed_queue_takes_nothing_and_gives_what_waits() {
    let (queue, fake) = queue();
    add(&queue, &["a", "b"]);
    queue.add_after(key("later"), SECOND);
    let (_, item) = next(&queue);
    add(&queue, &["a"]);
    queue.close();
    add(&queue, &["c"]);
    queue.add_after(key("c"), Duration::ZERO);
    fake.advance(SECOND);
    assert_eq!(next(&queue).0, "b");
    assert!(
        is_empty(&queue),
        "the key comes again when its work is done"
    );
    item.retry();
    next(&queue).1.retry();
    assert!(queue.get(Deadline::NEVER).unwrap_err().is_stopped());
    queue.drain(Deadline::NEVER).unwrap();
}

#[test]
fn the_end_keeps_a_key_whose_time_has_come() {
    let (queue, fake) = queue();
    queue.add_after(key("due"), SECOND);
    queue.add_after(key("later"), 2 * SECOND);
    fake.advance(SECOND);
    queue.close();
    fake.advance(SECOND);
    let error = queue.drain(NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out waiting for a work queue: 1 keys wait, and 0 are worked on: "
    );
    assert_eq!(next(&queue).0, "due");
    queue.drain(Deadline::NEVER).unwrap();
}

#[test]
fn a_drain_of_a_worker_leaves_out_its_own_key_even_if_that_was_added_again() {
    let (queue, _fake) = queue();
    add(&queue, &["a", "b"]);
    let (_, own) = next(&queue);
    add(&queue, &["a"]);
    let error = queue.drain(NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out waiting for a work queue: 1 keys wait, and 0 are worked on: "
    );
    assert_eq!(next(&queue).0, "b");
    queue.drain(NOW).unwrap();
    drop(own);
    assert_eq!(next(&queue).0, "a", "the key comes again");
    assert!(queue.get(NOW).unwrap_err().is_stopped());
}

#[test]
fn two_workers_that_end_the_queue_do_not_wait_for_each_other() {
    for is_drain in [false, true] {
        let (queue, fake) = queue();
        add(&queue, &["a", "b"]);
        let (_, own) = next(&queue);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (_, _item) = next(&queue);
                queue.drain(Deadline::NEVER)
            });
            fake.wait_for_parked(1);
            let ended = if is_drain {
                queue.drain(NOW)
            } else {
                queue.shutdown(NOW)
            };
            // Ends the other wait in any case.
            drop(own);
            other.join().unwrap().unwrap();
            ended.unwrap();
        });
        queue.stop();
        assert!(queue.get(NOW).unwrap_err().is_stopped());
    }
}

#[test]
fn a_drain_waits_for_what_waits_and_a_shutdown_for_what_is_worked_on() {
    let (queue, _fake) = queue();
    add(&queue, &["a", "b", "c"]);
    std::thread::scope(|scope| {
        let (taken, took) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let of_worker = queue.clone();
        scope.spawn(move || {
            let (_, item) = next(&of_worker);
            taken.send(()).unwrap();
            ended.recv().unwrap_err();
            drop(item);
        });
        took.recv().unwrap();
        let error = queue.drain(NOW).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(
            error.to_string(),
            "timed out waiting for a work queue: 2 keys wait, and 1 are worked on: shop/a"
        );
        let (_, own) = next(&queue);
        let error = queue.shutdown(NOW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timed out waiting for a work queue: 0 keys wait, and 1 are worked on: shop/a"
        );
        drop(end);
        queue.shutdown(Deadline::NEVER).unwrap();
        drop(own);
    });
    assert!(queue.is_empty());
    assert!(format!("{queue:?}").contains("ended: true"));
}
