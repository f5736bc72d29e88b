//! The measurements of an informer, and its reading (RF-52).

use super::*;
use crate::hooks::{Hook, Reading};
use crate::informer::{InformerMetric, InformerState};
use crate::reflector::ReflectorMetric;

struct SeenMetrics {
    processed: Receiver<Duration>,
    listed: Receiver<usize>,
    readings: Receiver<Reading<InformerState>>,
}

/// A hook that passes its measurements on.
fn recorder() -> (Hook<InformerMetric>, SeenMetrics) {
    let (processed, was_processed) = unbounded();
    let (listed, was_listed) = unbounded();
    let (readings, were_given) = unbounded();
    let hook = Hook::new(move |metric| match metric {
        InformerMetric::Started(reading) => drop(readings.send(reading.clone())),
        InformerMetric::Processed(took) => {
            let _gone = processed.send(*took);
        }
        InformerMetric::Reflector(ReflectorMetric::Listed { items, .. }) => {
            let _gone = listed.send(*items);
        }
        InformerMetric::HandlerPanicked(_) | InformerMetric::Reflector(_) => {}
    });
    let seen = SeenMetrics {
        processed: was_processed,
        listed: was_listed,
        readings: were_given,
    };
    (hook, seen)
}

#[test]
fn rf_52_each_change_is_told_with_its_latency_and_the_reflectors_part_too() {
    let stage = Stage::with(&["a", "b"]);
    let (hook, seen) = recorder();
    // A store that takes time to fill: its index function advances the clock.
    let fake = stage.fake.clone();
    let slow = Indexers::new().with("slow", move |_: &ConfigMap| {
        fake.advance(Duration::from_millis(3));
        Vec::new()
    });
    let options = stage.options().indexers(slow).metrics(hook);
    let informer = stage.informer_with(options);
    stage.run(&informer);
    assert_eq!(seen.listed.recv(), Ok(2));
    // The items of a list are indexed as they come, and put into the store together.
    assert_eq!(seen.processed.recv(), Ok(Duration::ZERO));
    stage.set("a");
    assert_eq!(seen.processed.recv(), Ok(Duration::from_millis(3)));
}

#[test]
fn rf_52_st_9_a_reading_gives_version_and_handlers_until_the_end() {
    let stage = Stage::with(&["a", "b"]);
    stage.source.set_undecodable("", "odd");
    let (hook, seen) = recorder();
    let informer = stage.informer_with(stage.options().metrics(hook));
    let (registration, told) = follow(&informer);
    stage.run(&informer);
    let reading = seen.readings.recv().unwrap();
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    let shown = reading.state().unwrap();
    assert_eq!(shown.undecodable, 1);
    assert_eq!(shown.resource_version.as_str(), "4");
    let names: Vec<_> = shown.handlers.iter().map(Registration::name).collect();
    assert_eq!(names, [registration.name()]);
    assert_eq!(next(&told, 2).len(), 2);
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(reading.is_over() && reading.state().is_none());
}

/// A kept reading keeps no thread of the informer alive, and its drop waits for none.
#[test]
fn b16_a_reading_does_not_outlive_its_informer() {
    let stage = Stage::with(&["a"]);
    let (hook, seen) = recorder();
    let informer = stage.informer_with(stage.options().metrics(hook));
    stage.run(&informer);
    let reading = seen.readings.recv().unwrap();
    let shown = reading.state();
    drop(informer);
    assert!(reading.is_over());
    assert!(reading.state().is_none());
    drop(shown);
}

#[test]
fn b16_metrics_that_panic_at_the_start_fail_it_and_hold_up_no_end() {
    for of_the_reflector in [false, true] {
        let stage = Stage::with(&["a"]);
        let metrics = Hook::new(move |metric| match metric {
            InformerMetric::Started(_) => assert!(of_the_reflector, "made up"),
            InformerMetric::Reflector(ReflectorMetric::Started(_)) => {
                assert!(!of_the_reflector, "made up");
            }
            InformerMetric::Processed(_)
            | InformerMetric::HandlerPanicked(_)
            | InformerMetric::Reflector(_) => {}
        });
        let options = stage.options().metrics(metrics);
        let informer = stage.informer_with(options);
        let (registration, _told) = follow(&informer);
        let error = informer.start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert!(error.to_string().ends_with("panicked: made up"), "{error}");
        assert!(informer.is_stopped());
        registration.wait_until_synced(Deadline::NEVER).unwrap_err();
        informer.shutdown(Deadline::NEVER).unwrap();
    }
}
