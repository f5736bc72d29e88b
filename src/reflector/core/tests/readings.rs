//! Reports to readers and the log: B14, RF-6, RF-7, RF-43's text, log levels.

use super::{Effect, Stage};
use crate::error::ErrorKind;
use crate::reflector::Phase;
use log::Level;

/// B14, B2: attempts, since when and the last error of the series; all clear once a request
/// succeeds.
#[test]
fn the_status_tells_the_series_of_failures() {
    let mut stage = Stage::new("");
    let began = stage.now;
    assert_eq!(stage.core.status().phase, Phase::Starting);
    stage.tell("start");
    assert_eq!(stage.core.status().phase, Phase::Listing);
    stage.tell("+1s page-error 500\npaused\npage-error 401");
    let status = stage.core.status();
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
    stage.tell("paused\npage 5\ncommitted");
    let status = stage.core.status();
    assert_eq!((status.phase, status.failures.count()), (Phase::Opening, 0));
    assert!(status.failures.last().is_none() && status.failures.since().is_none());
    assert_eq!(status.last_contact, Some(stage.now));
    stage.tell("opened");
    assert_eq!(stage.core.status().phase, Phase::Watching);
    assert_eq!(
        (stage.core.status().lists, stage.core.status().watches),
        (1, 1)
    );
    stage.tell("+3s error 429");
    let (status, now) = (stage.core.status(), stage.now);
    assert_eq!(status.failures.since(), Some(now), "a new series");
    assert!(status.is_fresh_within(super::duration("10s"), now));
    assert!(!status.is_fresh_within(super::duration("10s"), now + super::duration("11s")));
    stage.tell("stop");
    assert_eq!(stage.core.status().phase, Phase::Stopped);
}

/// B14: the phase is that of the request under way, or of the wait for the next.
#[test]
fn the_status_names_the_phase() {
    use Phase::{BackingOff, Listing, Opening, Watching};
    let check = |options, story: &str, phases: &[Phase]| {
        let mut stage = Stage::new(options);
        let seen = super::lines(story).map(|input| {
            stage.play(input);
            stage.core.status().phase
        });
        assert_eq!(seen.collect::<Vec<_>>(), phases, "{story}");
    };
    check(
        "",
        "start\npage 5 more=x\npage-error 429 retry-after=1\npaused",
        &[Listing, Listing, BackingOff, Listing],
    );
    check(
        "",
        "start\npage 5\ncommitted\nopened\n+4s ended\npaused\nprobe-error 500\npaused\nprobed 5",
        &[
            Listing, Listing, Opening, Watching, Opening, Opening, BackingOff, Opening, Opening,
        ],
    );
    check(
        "streams",
        "start\nopen-error 429\npaused\nopened\nfinal-bookmark 5\ncommitted\nerror 410 Expired",
        &[
            Listing, BackingOff, Listing, Listing, Listing, Watching, BackingOff,
        ],
    );
}

/// RF-6 is not kept: the cause of a stream's end is reported as well. RF-43: the text.
#[test]
fn stream_errors_and_very_short_watches_are_told() {
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted\nopened\nerror 403 Forbidden");
    let told = stage
        .core
        .status()
        .failures
        .last()
        .cloned()
        .unwrap()
        .to_string();
    assert_eq!(told, "the watch of things ended: 403 Forbidden");
    stage.tell("paused\npage 5\ncommitted\nopened\n+10ms ended");
    let told = stage
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
    let told = |stage: &Stage| {
        let is_failure = |effect: &&Effect| matches!(effect, Effect::Failed(..));
        let is_end = |effect: &&Effect| matches!(effect, Effect::Recovered);
        let effects = || stage.effects.iter();
        let (failures, ends) = (effects().filter(is_failure), effects().filter(is_end));
        (failures.count(), ends.count())
    };
    let mut stage = Stage::new("");
    stage.tell("start\npage-error 500\npaused\npage-error 500\npaused\npage-error 500");
    assert_eq!(told(&stage), (3, 0));
    stage.tell("paused\npage 5\ncommitted\nopened");
    assert_eq!(told(&stage), (3, 1));

    let mut flapping = Stage::new("");
    flapping.tell("start\npage 5\ncommitted");
    for _ in 0..5 {
        flapping.tell("open-error 403\npaused\npage 5\ncommitted");
    }
    assert_eq!(told(&flapping), (5, 0), "lists succeed, watches fail");

    let mut streamed = Stage::new("streams");
    streamed.tell("start\nopen-error 429\npaused\nopened\nfinal-bookmark 5\ncommitted -> read");
    assert_eq!(told(&streamed), (1, 1));
    assert_eq!(streamed.core.status().watches, 1);
}

/// RF-25, RF-28: reported once at a level that is seen, and counted.
#[test]
fn skipped_events_are_counted() {
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted\nopened\nskipped\nskipped\nskipped 9");
    assert_eq!(stage.core.status().skipped, 3);
    assert_eq!(stage.logged(Level::Warn), ["unexpected"]);
    assert_eq!(stage.core.status().resource_version.as_str(), "9");
    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\nskipped");
    assert_eq!(stage.core.status().skipped, 1);
    assert_eq!(stage.logged(Level::Warn), ["unexpected"]);
}
