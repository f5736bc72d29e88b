//! The measurements of a reflector, and their order (RF-51).

use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};

use super::*;
use crate::hooks::{Hook, Reading};
use crate::reflector::{Phase, ReflectorMetric, ReflectorStatus};
use crate::testing::{RequestKind, SourceFault};

/// Records the calls of its hook.
struct Measured {
    stage: Stage,
    words: Receiver<String>,
    readings: Receiver<Reading<(ReflectorStatus, Instant)>>,
}

impl Measured {
    fn new() -> Self {
        let (words, told) = unbounded();
        let (readings, given) = unbounded();
        let mut stage = Stage::new();
        stage.options.metrics = Some(Hook::new(move |metric| {
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
            stage,
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
    let stage = &measured.stage;
    stage.set("a", "1");
    stage.set("b", "1");
    stage.source.set_undecodable("shop", "odd");
    let (store, _reflector) = stage.synced();
    // An item that does not decode is one of the list's (B12).
    assert_eq!(
        measured.next(),
        ["list", "undecodable", "listed 3 in 0ns", "watch"]
    );
    stage.set("a", "2");
    stage.source.bookmark();
    stage.catch_up(&store);
    stage.fake.advance(seconds(10));
    stage.source.end_watches(None);
    assert_eq!(measured.next(), ["ended 2 in 10s", "watch"]);
    stage.source.wait_for_watches(1);
    stage.source.set_undecodable("shop", "a");
    assert_eq!(measured.next(), ["undecodable"]);
}

#[test]
fn rf_51_what_is_asked_for_in_vain_counts_and_has_no_duration() {
    let measured = Measured::new();
    let stage = &measured.stage;
    stage
        .source
        .fail_next(RequestKind::List, SourceFault::Fail(status(500)));
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(500)));
    let (_store, _reflector) = stage.start();
    assert_eq!(measured.next(), ["list"]);
    stage.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    stage.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
}

#[test]
fn rf_51_pages_are_one_list() {
    let mut measured = Measured::new();
    measured.stage.options.page_size = Some(2);
    let stage = &measured.stage;
    stage.source.page_at_zero(true);
    for name in ["a", "b", "c"] {
        stage.set(name, "1");
    }
    let (_store, _reflector) = stage.synced();
    assert_eq!(stage.requests().len(), 3, "two pages and a watch");
    assert_eq!(measured.next(), ["list", "listed 3 in 0ns", "watch"]);
}

#[test]
fn rf_51_rf_33_a_watch_that_ends_at_once_is_short_and_one_that_is_stopped_is_not() {
    let measured = Measured::new();
    let stage = &measured.stage;
    let (_store, reflector) = stage.synced();
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    stage.source.end_watches(None);
    assert_eq!(measured.next(), ["short", "ended 0 in 0ns"]);
    stage.pass(millis(800));
    assert_eq!(measured.next(), ["list", "listed 0 in 0ns", "watch"]);
    stage.source.wait_for_watches(1);
    reflector.join().unwrap();
    assert_eq!(measured.next(), ["ended 0 in 0ns"]);
    assert!(measured.words.is_empty());
}

/// The initial events are the list's, not the watch's (WL-4).
#[test]
fn rf_51_a_streamed_list_is_a_list_and_a_watch() {
    let measured = Measured::new();
    let stage = &measured.stage;
    stage.source.stream_lists(true);
    stage.set("a", "1");
    stage.set("b", "1");
    let (store, reflector) = stage.synced();
    assert_eq!(measured.next(), ["list", "watch", "listed 2 in 0ns"]);
    stage.set("c", "1");
    stage.catch_up(&store);
    reflector.join().unwrap();
    assert_eq!(measured.next(), ["ended 1 in 0ns"]);
}

#[test]
fn b14_a_reading_tells_the_state_and_the_silence_and_ends_with_the_reflector() {
    let measured = Measured::new();
    let stage = &measured.stage;
    stage.source.fail_all(RequestKind::List, status(500));
    let (store, reflector) = stage.start();
    let reading = measured.readings.recv().unwrap();
    stage.fake.wait_for_timer(millis(800));
    let (status, _) = reading.state().unwrap();
    assert_eq!(
        (status.failures.count(), status.phase),
        (1, Phase::BackingOff)
    );
    // Nothing came yet: the silence lasts since the start.
    stage.fake.advance(millis(500));
    let (status, now) = reading.state().unwrap();
    assert_eq!(status.silence(now), millis(500));
    stage.source.heal();
    stage.fake.advance(millis(300));
    store.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.wait_for_watches(1);
    stage.fake.wait_for_next_timer();
    stage.fake.advance(seconds(7));
    let (status, now) = reading.state().unwrap();
    assert_eq!(status.failures.count(), 0);
    assert_eq!(status.silence(now), seconds(7));
    assert!(!reading.is_over());
    reflector.join().unwrap();
    assert!(reading.state().is_none() && reading.is_over());
}
