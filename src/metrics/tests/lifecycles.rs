//! A series exists as long as its handle does, and owners with the same labels share one.

use super::*;
use crate::ErrorKind;
use crate::hooks::{Hook, Reading, Telemetry};
use crate::informer::{Forward, Handlers};
use crate::manager::{ConfigMapManager, ManagerMetric};
use crate::tests::until::until;
use crate::worker::Worker;

/// Kubernetes removed its reflector metrics because their series were never freed.
#[test]
fn rf_51_a_reflectors_series_are_gone_when_it_has_ended() {
    let stage = Stage::new();
    let (_store, reflector) = stage.reflector("settings", 1);
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "1");
    reflector.join().unwrap();
    assert_eq!(stage.exposition.text(), "");
}

/// A series that an informer has while it runs.
const UNDECODABLE: &str = "kubecache_informer_undecodable_objects";

#[test]
fn rf_52_an_informers_series_are_gone_when_it_has_ended() {
    let stage = Stage::new();
    let informer = stage.informer("settings");
    stage.run(&informer);
    assert_eq!(stage.of(UNDECODABLE, "settings").unwrap(), "0");
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "1");
    informer.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(stage.exposition.text(), "");
    let dropped = stage.informer("settings");
    stage.run(&dropped);
    assert!(stage.of(UNDECODABLE, "settings").is_some());
    drop(dropped);
    assert_eq!(stage.exposition.text(), "");
}

/// It has counted nothing yet, but has a hook, so its counters exist.
#[test]
fn an_informer_that_was_not_started_has_counters_and_no_readings() {
    let stage = Stage::new();
    let informer = stage.informer("settings");
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "0");
    assert_eq!(stage.of(UNDECODABLE, "settings"), None);
    informer.stop();
    assert_eq!(stage.exposition.text(), "");
}

#[test]
fn a_managers_series_are_gone_when_it_is_dropped() {
    for mode in ChangeDetection::ALL {
        let stage = Stage::new();
        let (_source, manager) = stage.manager(mode);
        manager.register_pod(&objects::pod("shop", "till", "node", &["s"], &[]));
        let objects =
            format!(r#"kubecache_object_cache_objects{{kind="Secret",strategy="{mode}"}}"#);
        assert_eq!(stage.value(&objects).unwrap(), "1");
        drop(manager);
        assert_eq!(stage.exposition.text(), "", "{mode}");
    }
}

#[test]
fn who_keeps_a_handle_keeps_what_was_counted_and_no_reading() {
    let stage = Stage::new();
    let kept = stage.exposition.reflector::<ConfigMap>("settings").unwrap();
    let (_store, reflector) = stage.reflector("settings", 1);
    let silence = "kubecache_reflector_silence_seconds";
    assert_eq!(stage.of(silence, "settings").unwrap(), "0");
    reflector.join().unwrap();
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "1");
    assert_eq!(stage.of(silence, "settings"), None);
    drop(kept);
    assert_eq!(stage.exposition.text(), "");
}

#[test]
fn owners_with_the_same_labels_share_a_series_until_the_last_has_ended() {
    let stage = Stage::new();
    let (_store, first) = stage.reflector("settings", 1);
    let (_other, second) = stage.reflector("settings", 2);
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "2");
    first.join().unwrap();
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "2");
    second.join().unwrap();
    // A new owner begins at zero.
    let (_store, _third) = stage.reflector("settings", 1);
    assert_eq!(stage.of("reflector_lists_total", "settings").unwrap(), "1");
}

#[test]
fn expositions_know_nothing_of_each_other() {
    let stage = Stage::new();
    let (_store, _reflector) = stage.reflector("settings", 1);
    assert_eq!(Exposition::new().text(), "");
    assert_eq!(
        stage.exposition.clone().text(),
        stage.exposition.text(),
        "a clone is the same one"
    );
}

#[test]
fn rf_52_a_name_is_not_empty() {
    let exposition = Exposition::new();
    let refused = exposition.informer::<ConfigMap>("").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert_eq!(refused.to_string(), "informer name cannot be empty");
    let refused = exposition.reflector::<ConfigMap>("").unwrap_err();
    assert_eq!(refused.to_string(), "reflector name cannot be empty");
}

/// Counts under the labels of another manager would be worse than no metrics.
#[test]
fn a_manager_of_another_kind_or_strategy_is_refused() {
    let exposition = Exposition::new();
    let metrics = exposition
        .manager::<Secret>(ChangeDetection::Cache)
        .unwrap();
    let options = |metrics: &Hook<ManagerMetric>| {
        ManagerOptions::default()
            .change_detection(ChangeDetection::Cache)
            .metrics(metrics.clone())
    };
    SecretManager::new(FakeSource::<Secret>::new(), options(&metrics)).unwrap();
    let source = FakeSource::<ConfigMap>::new();
    let refused = ConfigMapManager::new(source, options(&metrics)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert_eq!(
        refused.to_string(),
        "metrics for a manager of Secret by Cache were given to one of ConfigMap by Cache"
    );
    let watching = options(&metrics).change_detection(ChangeDetection::Watch);
    let refused = SecretManager::new(FakeSource::<Secret>::new(), watching).unwrap_err();
    assert!(refused.to_string().ends_with("one of Secret by Watch"));
}

/// A scrape holds no lock while it reads owners, and an owner holds none while it calls a hook.
#[test]
fn a_handler_can_ask_for_the_text() {
    let stage = Stage::new();
    stage.set("a");
    let informer = stage.informer("settings");
    let (send, texts) = crossbeam_channel::unbounded();
    let exposition = stage.exposition.clone();
    let handler = Handlers::new().on_add(move |_, _| drop(send.send(exposition.text())));
    informer.add_handler(handler).unwrap();
    stage.run(&informer);
    let text = texts.recv().unwrap();
    assert!(text.contains("kubecache_informer_handler_lag_seconds"));
}

/// Owners come and go while others scrape: each text is whole, and in the end nothing is left.
#[test]
fn scrapes_bear_owners_that_come_and_go() {
    let stage = Stage::new();
    stage.set("a");
    let (done, over) = crossbeam_channel::bounded::<()>(0);
    let exposition = stage.exposition.clone();
    let scraper = Worker::spawn("t-scraper", move |_| {
        until(|| {
            let text = exposition.text();
            assert!(text.is_empty() || text.ends_with('\n'));
            over.try_recv() != Err(crossbeam_channel::TryRecvError::Empty)
        });
    });
    for round in 0..20 {
        let informer = stage.informer(&format!("settings {}", round % 3));
        let (handler, _told) = Forward::unbounded();
        informer.add_handler(handler).unwrap();
        stage.run(&informer);
        drop(informer);
        stage.source.wait_for_watches(0);
    }
    drop(done);
    scraper.unwrap().join().unwrap();
    assert_eq!(stage.exposition.text(), "");
}

/// A manager's reflectors come and go by the thousand; the readings do not accumulate.
#[test]
fn readings_of_owners_that_are_over_are_let_go() {
    let readings = crate::metrics::readings::Readings::default();
    let start = || {
        let (send, given) = crossbeam_channel::bounded(1);
        let hook = Hook::new(move |reading: &Reading<()>| drop(send.send(reading.clone())));
        let clock = Clock::from(FakeClock::new());
        let owner = Telemetry::start(Some(hook), "t", &clock, || (), |reading| reading).unwrap();
        (owner, given.recv().unwrap())
    };
    let (_stays, reading) = start();
    readings.add(&reading);
    for _ in 0..1_000 {
        readings.add(&start().1);
        assert!(readings.len() <= 17);
    }
    assert_eq!(readings.states().len(), 1);
}
