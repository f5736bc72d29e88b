//! Reports to readers and the log: B14, RF-6, RF-7, RF-43's text, log levels.

use super::{Bench, Effect};
use crate::error::ErrorKind;
use crate::reflector::Phase;
use log::Level;

/// B14, B2: attempts, since when and the last error of the series; all clear once a request
/// succeeds.
#[test]
fn the_status_tells_the_series_of_failures() {
    let mut bench = Bench::new("");
    let began = bench.now;
    assert_eq!(bench.core.status().phase, Phase::Starting);
    bench.tell("start");
    assert_eq!(bench.core.status().phase, Phase::Listing);
    bench.tell("+1s page-error 500\npaused\npage-error 401");
    let status = bench.core.status();
    assert_eq!(
        (status.phase, status.failures.count()),
        (Phase::BackingOff, 2)
    );
    assert_eq!(
        status.failures.since(),
        Some(began),
        "counted from the beginning of the run"
    );
    let error = status.failures.last().cloned().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert_eq!(error.to_string(), "failed to list things: 401", "RF-16");
    assert_eq!(status.last_contact, None);
    bench.tell("paused\npage 5\ncommitted");
    let status = bench.core.status();
    assert_eq!((status.phase, status.failures.count()), (Phase::Opening, 0));
    assert!(status.failures.last().is_none() && status.failures.since().is_none());
    assert_eq!(status.last_contact, Some(bench.now));
    bench.tell("opened");
    assert_eq!(bench.core.status().phase, Phase::Watching);
    assert_eq!(
        (bench.core.status().lists, bench.core.status().watches),
        (1, 1)
    );
    bench.tell("+3s error 429");
    let (status, now) = (bench.core.status(), bench.now);
    assert_eq!(status.failures.since(), Some(now), "a new series");
    assert!(status.is_fresh_within(super::duration("10s"), now));
    assert!(!status.is_fresh_within(super::duration("10s"), now + super::duration("11s")));
    bench.tell("stop");
    assert_eq!(bench.core.status().phase, Phase::Stopped);
}

/// RF-6 is not kept: the cause of a stream's end is reported as well. RF-43: the text.
#[test]
fn stream_errors_and_very_short_watches_are_told() {
    let mut bench = Bench::new("");
    bench.tell("start\npage 5\ncommitted\nopened\nerror 403 Forbidden");
    let told = bench
        .core
        .status()
        .failures
        .last()
        .cloned()
        .unwrap()
        .to_string();
    assert_eq!(told, "the watch of things ended: 403 Forbidden");
    bench.tell("paused\npage 5\ncommitted\nopened\n+10ms ended");
    let told = bench
        .core
        .status()
        .failures
        .last()
        .cloned()
        .unwrap()
        .to_string();
    assert_eq!(
        told,
        "things: very short watch: Unexpected watch close - watch lasted less than a second and \
         no items received"
    );
}

/// The log gets each failure with its cause, and the end of the series only once a watch is open.
#[test]
fn failures_and_their_end_are_told() {
    let told = |bench: &Bench| {
        let is_failure = |effect: &&Effect| matches!(effect, Effect::Failed { .. });
        let is_end = |effect: &&Effect| matches!(effect, Effect::Recovered);
        let effects = || bench.effects.iter();
        let (failures, ends) = (effects().filter(is_failure), effects().filter(is_end));
        (failures.count(), ends.count())
    };
    let mut bench = Bench::new("");
    bench.tell("start\npage-error 500\npaused\npage-error 500\npaused\npage-error 500");
    assert_eq!(told(&bench), (3, 0));
    bench.tell("paused\npage 5\ncommitted\nopened");
    assert_eq!(told(&bench), (3, 1));

    let mut flapping = Bench::new("");
    flapping.tell("start\npage 5\ncommitted");
    for _ in 0..5 {
        flapping.tell("open-error 403\npaused\npage 5\ncommitted");
    }
    assert_eq!(told(&flapping), (5, 0), "lists succeed, watches fail");
}

/// RF-25, RF-28: reported once at a level that is seen, and counted.
#[test]
fn skipped_events_are_counted() {
    let mut bench = Bench::new("");
    bench.tell("start\npage 5\ncommitted\nopened\nskipped\nskipped\nskipped 9");
    assert_eq!(bench.core.status().skipped, 3);
    assert_eq!(bench.logged(Level::Warn), ["unexpected"]);
    assert_eq!(bench.core.status().resource_version.as_str(), "9");
}
