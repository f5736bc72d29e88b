//! A source or a hook of the program's own that panics: an error of that call, after which the
//! reflector goes on.

use super::*;
use crate::error::ErrorKind;
use crate::hooks::Hook;
use crate::reflector::ReflectorMetric;
use crate::testing::bad::{Bad, Faulty};
use crate::tests::until::until;

fn started(stage: &Stage, source: &Bad<ConfigMap>) -> (Store<ConfigMap>, Reflector) {
    let source = Arc::new(source.clone());
    Store::spawn("t", source, Indexers::new(), stage.options.clone()).unwrap()
}

/// Passes as much time as the reflector waits, until the store holds the objects.
#[track_caller]
fn pass_until(stage: &Stage, store: &Store<ConfigMap>, wanted: &[&str]) {
    pass_while(stage, || {
        let is_there = names(store) == wanted;
        assert!(is_there || !store.has_ended(), "the reflector ended");
        !is_there
    });
}

/// Passes as much time as the reflector waits, while that holds.
#[track_caller]
fn pass_while(stage: &Stage, holds: impl Fn() -> bool) {
    until(|| {
        let holds = holds();
        if holds {
            stage.fake.advance(seconds(1));
        }
        !holds
    });
}

/// The call's error is what readers and the status say; a backoff follows as after any other
/// failure.
#[test]
fn a_source_that_panics_is_an_error_of_that_call_and_the_reflector_goes_on() {
    for (method, port) in [
        (
            "list",
            "failed to list configmaps: the source of reflector t panicked: a bad source",
        ),
        ("watch", "the source of reflector t panicked: a bad source"),
        (
            "next",
            "the source of reflector t, reading its watch, panicked: a bad source",
        ),
        (
            "backlog",
            "the source of reflector t, reading its watch, panicked: a bad source",
        ),
    ] {
        let stage = Stage::new();
        let source = Bad::new(stage.source.clone());
        source.faulty.panic_in(method, 1);
        let (store, reflector) = started(&stage, &source);
        stage.fake.wait_for_timer(millis(800));
        let error = reflector.status().failures.last().cloned().unwrap();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{method}");
        assert!(error.to_string().ends_with(port), "{method}: {error}");
        let told = store.status().failures.last().cloned().unwrap();
        assert_eq!(told.to_string(), error.to_string(), "{method}");
        if method == "list" {
            let waited = store
                .wait_until_synced(Deadline::at(stage.fake.now()))
                .unwrap_err();
            assert_eq!(waited.kind(), ErrorKind::NotSynced);
            assert_eq!(waited.last_error().unwrap().kind(), ErrorKind::Panicked);
        }
        stage.set("a", "1");
        pass_until(&stage, &store, &["a"]);
        // The store is full before the watch is open that ends the series of failures.
        pass_while(&stage, || reflector.status().failures.last().is_some());
        assert!(reflector.join().is_ok(), "{method}");
    }
}

/// Calls of a source that cannot fail: a panic is logged and holds up nothing.
#[test]
fn a_panic_in_what_a_source_is_asked_or_told_on_the_way_holds_up_nothing() {
    for method in [
        "supports_watch_list",
        "bookmark_interval",
        "bookmark_came",
        "lists_one_object",
        "objects_max",
        "disconnect",
        "last_contact",
        "drop of the stream",
    ] {
        let stage = Stage::new();
        let source = Bad::new(stage.source.clone());
        source.faulty.panic_in(method, 1);
        let (store, reflector) = started(&stage, &source);
        stage.source.wait_for_watches(1);
        stage.source.skip_to(5);
        stage.source.bookmark();
        stage.catch_up(&store);
        stage.set("a", "1");
        pass_until(&stage, &store, &["a"]);
        stage.source.end_watches(None);
        stage.set("b", "1");
        pass_until(&stage, &store, &["a", "b"]);
        if method != "disconnect" {
            pass_while(&stage, || source.faulty.left() > 0);
        }
        assert!(!reflector.is_finished(), "{method}");
        assert!(reflector.join().is_ok(), "{method}");
        assert_eq!(source.faulty.left(), 0, "{method}: it was called");
    }
}

#[test]
fn a_source_that_panics_when_it_is_asked_what_it_is_fails_the_start() {
    let stage = Stage::new();
    let source = Bad::new(stage.source.clone());
    source.faulty.panic_in("describe", 1);
    let source = Arc::new(source);
    let error = Store::spawn("t", source, Indexers::new(), stage.options.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(
        error.to_string(),
        "the source of reflector t panicked: a bad source"
    );
}

/// A number that is not counted costs nothing else.
#[test]
fn a_hook_of_the_metrics_that_panics_holds_up_nothing() {
    let mut stage = Stage::new();
    let faulty = Faulty::default();
    for hook in [
        "list_started",
        "listed",
        "watch_started",
        "watch_ended",
        "short_watch",
        "undecodable",
    ] {
        faulty.panic_in(hook, 1);
    }
    let in_hook = faulty.clone();
    stage.options.metrics = Some(Hook::new(move |metric| match metric {
        ReflectorMetric::Started(_) => {}
        ReflectorMetric::ListStarted => in_hook.call("list_started"),
        ReflectorMetric::Listed { .. } => in_hook.call("listed"),
        ReflectorMetric::WatchStarted => in_hook.call("watch_started"),
        ReflectorMetric::WatchEnded { .. } => in_hook.call("watch_ended"),
        ReflectorMetric::ShortWatch => in_hook.call("short_watch"),
        ReflectorMetric::Undecodable => in_hook.call("undecodable"),
    }));
    let (store, reflector) = stage.synced();
    stage.source.end_watches(None);
    stage.fake.wait_for_timer(millis(800));
    stage.set("a", "1");
    stage.source.set_undecodable("shop", "b");
    pass_until(&stage, &store, &["a", "b"]);
    // The status follows the content.
    pass_while(&stage, || reflector.status().failures.last().is_some());
    reflector.join().unwrap();
    assert_eq!(faulty.left(), 0, "each was called: {faulty:?}");
}
