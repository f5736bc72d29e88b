//! The measurements of a reflector, and their order (RF-51).

use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::hooks::{Hook, Reading};
use crate::reflector::{Phase, ReflectorMetric, ReflectorStatus};
use crate::testing::{RequestKind, SourceFault};

/// Records the calls of its hook.
struct Measured {
    world: World,
    words: Receiver<String>,
    readings: Receiver<Reading<(ReflectorStatus, Instant)>>,
}

impl Measured {
    fn new() -> Self {
        let (words, told) = unbounded();
        let (readings, given) = unbounded();
        let mut world = World::new();
        world.options.metrics = Some(Hook::new(move |metric| {
            let told = match metric {
                ReflectorMetric::Started(reading) => return drop(readings.send(reading.clone())),
                ReflectorMetric::ListStarted => "list".to_owned(),
                ReflectorMetric::Listed { items, took } => format!("listed {items} in {took:?}"),
                ReflectorMetric::WatchStarted => "watch".to_owned(),
                ReflectorMetric::WatchEnded { events, lived } => {
                    format!("ended {events} in {lived:?}")
                }
                ReflectorMetric::ShortWatch => "short".to_owned(),
                ReflectorMetric::Undecodable => "undecodable".to_owned(),
            };
            drop(words.send(told));
        }));
        Self {
            world,
            words: told,
            readings: given,
        }
    }

    fn next<const N: usize>(&self) -> [String; N] {
        std::array::from_fn(|_| self.words.recv().unwrap())
    }
}

#[test]
fn rf_51_lists_and_watches_are_told_with_their_items_and_durations() {
    let measured = Measured::new();
    let world = &measured.world;
    world.set("a", "1");
    world.set("b", "1");
    world.source.set_undecodable("shop", "odd");
    let (store, _reflector) = world.synced();
    // An item that does not decode is one of the list's (B12).
    assert_eq!(
        measured.next(),
        ["list", "undecodable", "listed 3 in 0ns", "watch"]
    );
    world.set("a", "2");
    world.source.bookmark();
    world.catch_up(&store);
    world.fake.advance(seconds(10));
    world.source.end_watches(None);
    assert_eq!(measured.next(), ["ended 2 in 10s", "watch"]);
    world.source.wait_for_watches(1);
    world.source.set_undecodable("shop", "a");
    assert_eq!(measured.next(), ["undecodable"]);
}

#[test]
fn rf_51_what_is_asked_for_in_vain_counts_and_has_no_duration() {
    let measured = Measured::new();
    let world = &measured.world;
    world
        .source
        .fail_next(RequestKind::List, SourceFault::Fail(status(500)));
    world
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(500)));
    let (_store, _reflector) = world.start();
    assert_eq!(measured.next(), ["list"]);
    world.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    world.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
}

#[test]
fn rf_51_pages_are_one_list() {
    let mut measured = Measured::new();
    measured.world.options.page_size = Some(2);
    let world = &measured.world;
    world.source.page_at_zero(true);
    for name in ["a", "b", "c"] {
        world.set(name, "1");
    }
    let (_store, _reflector) = world.synced();
    assert_eq!(world.requests().len(), 3, "two pages and a watch");
    assert_eq!(measured.next(), ["list", "listed 3 in 0ns", "watch"]);
}

#[test]
fn rf_51_rf_33_a_watch_that_ends_at_once_is_short_and_one_that_is_stopped_is_not() {
    let measured = Measured::new();
    let world = &measured.world;
    let (_store, reflector) = world.synced();
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    world.source.end_watches(None);
    assert_eq!(measured.next(), ["short", "ended 0 in 0ns"]);
    world.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    world.source.wait_for_watches(1);
    reflector.join().unwrap();
    assert_eq!(measured.next(), ["ended 0 in 0ns"]);
    assert!(measured.words.is_empty());
}

/// The initial events are the list's, not the watch's (WL-4).
#[test]
fn rf_51_a_streamed_list_is_a_list_and_a_watch() {
    let measured = Measured::new();
    let world = &measured.world;
    world.source.stream_lists(true);
    world.set("a", "1");
    world.set("b", "1");
    let (store, reflector) = world.synced();
    assert_eq!(measured.next(), ["list", "watch", "listed 2 in 0ns"]);
    world.set("c", "1");
    world.catch_up(&store);
    reflector.join().unwrap();
    assert_eq!(measured.next(), ["ended 1 in 0ns"]);
}

#[test]
fn b14_a_reading_tells_the_state_and_the_silence_and_ends_with_the_reflector() {
    let measured = Measured::new();
    let world = &measured.world;
    world.source.fail_all(RequestKind::List, status(500));
    let (store, reflector) = world.start();
    let reading = measured.readings.recv().unwrap();
    world.fake.wait_for_timer(millis(800));
    let (status, _) = reading.state().unwrap();
    assert_eq!(
        (status.failures.count(), status.phase),
        (1, Phase::BackingOff)
    );
    // Nothing came yet: the silence lasts since the start.
    world.fake.advance(millis(500));
    let (status, now) = reading.state().unwrap();
    assert_eq!(status.silence(now), millis(500));
    world.source.heal();
    world.fake.advance(millis(300));
    store.wait_until_synced(Deadline::NEVER).unwrap();
    world.source.wait_for_watches(1);
    world.fake.wait_for_next_timer();
    world.fake.advance(seconds(7));
    let (status, now) = reading.state().unwrap();
    assert_eq!(status.failures.count(), 0);
    assert_eq!(status.silence(now), seconds(7));
    assert!(!reading.is_over());
    reflector.join().unwrap();
    assert!(reading.state().is_none() && reading.is_over());
}
