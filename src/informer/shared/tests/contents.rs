//! The store's content and the handlers' notifications: odd objects, old news, transforms,
//! allocations (B12, B18, SI-26).

use super::custom::{Call, Custom};
use super::*;
use crate::informer::Handlers;
use crate::list_watch::ObjectEvent;
use crate::sync::Mutex;
use crate::tests::until::until;

/// To all handlers an undecodable object keeps its last good state, until it changes or goes.
#[test]
fn b12_an_object_that_does_not_decode_is_told_of_by_its_last_good_state() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.running();
    let (_, early) = follow(&informer);
    assert_eq!(next_sorted(&early, 2), ["*a2", "*b3"]);
    stage.source.set_undecodable("", "a");
    stage.source.set_undecodable("", "b");
    stage.source.set_undecodable("", "x");
    stage.set("c");
    assert_eq!(next(&early, 1), ["+c7"], "nothing of a and b");
    assert_eq!(informer.store().undecodable().len(), 3);
    let (_, late) = follow(&informer);
    assert_eq!(next_sorted(&late, 3), ["*a2", "*b3", "*c7"]);
    stage.set("a");
    stage.source.delete("", "b");
    stage.source.delete("", "x");
    stage.set("d");
    for told in [&early, &late] {
        assert_eq!(next(told, 3), ["a2>8", "?b3", "+d11"]);
    }
    assert!(informer.store().undecodable().is_empty());
}

#[test]
fn b12_a_list_with_an_object_that_does_not_decode_deletes_nothing() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    assert_eq!(next_sorted(&told, 2), ["*a2", "*b3"]);
    stage.behind_its_back(|stage| {
        stage.source.set_undecodable("", "a");
        stage.set("c");
    });
    stage.set("a");
    assert_eq!(next(&told, 2), ["+c5", "a2>6"]);
}

/// B18: an older state is neither stored nor told, and a late repetition brings nothing back.
#[test]
fn b18_old_news_is_told_to_nobody_and_counted() {
    let stage = Stage::with(&["a"]);
    stage.set("a");
    let informer = stage.running();
    let (_, told) = follow(&informer);
    stage
        .source
        .send(|| ObjectEvent::updated(stored("a2")).into());
    stage
        .source
        .send(|| ObjectEvent::deleted(stored("a2")).into());
    stage.source.delete("", "a");
    assert_eq!(next(&told, 2), ["*a3", "-a4"]);
    stage
        .source
        .send(|| ObjectEvent::updated(stored("a3")).into());
    stage.set("b");
    assert_eq!(next(&told, 1), ["+b5"]);
    assert!(informer.store().refused() >= 3);
}

/// B18: the informer follows a server that was restored from a backup, which it learns from an
/// expired history.
#[test]
fn b18_a_server_that_went_back_in_time_is_followed() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    assert_eq!(next_sorted(&told, 2), ["*a2", "*b3"]);
    stage.set("a");
    assert_eq!(next(&told, 1), ["a2>4"]);
    stage.source.restore(2);
    stage.pass_until(|| !told.is_empty());
    assert_eq!(next_sorted(&told, 2), ["?b3", "a4>2"]);
    stage.source.wait_for_watches(1);
    assert_eq!(words(informer.store()), ["a2"]);
}

/// `TestSharedInformerTransformer`, `TestTransformingInformer`.
#[test]
fn si_26_a_transform_runs_once_per_object_before_anybody_sees_it() {
    let stage = Stage::with(&["a", "b"]);
    let (ran, runs) = unbounded();
    let options = stage.options().transform(move |object| {
        ran.send(word(&object)).unwrap();
        Ok(StoredObject::edited(object, |object: &mut ConfigMap| {
            let data = [("transformed".to_owned(), "yes".to_owned())];
            object.data = Some(data.into());
        }))
    });
    let informer = stage.informer_with(options);
    let (_, told) = follow(&informer);
    stage.run(&informer);
    stage.set("a");
    stage.source.delete("", "b");
    for notification in told.iter().take(4) {
        let data = notification.object().data.clone().unwrap();
        assert_eq!(data["transformed"], "yes", "{notification:?}");
    }
    assert!(
        informer
            .store()
            .list()
            .iter()
            .all(|object| object.data.is_some())
    );
    stage.behind_its_back(|stage| {
        stage.set("c");
    });
    assert_eq!(next(&told, 1), ["+c6"]);
    let runs: Vec<String> = runs.try_iter().collect();
    assert_eq!(runs, ["a2", "b3", "a4", "b5", "c6"], "a4 is known");
}

#[test]
fn si_26_a_transform_that_fails_leaves_everything_as_it_was_and_leads_to_a_list() {
    let stage = Stage::with(&["a"]);
    let (allow, allowed) = unbounded::<()>();
    let options = stage.options().transform(move |object| {
        if object.key().name() == "bad" && allowed.is_empty() {
            return Err(Error::new(ErrorKind::Config, "not this one"));
        }
        Ok(object)
    });
    let informer = stage.informer_with(options);
    let (_, told) = follow(&informer);
    stage.run(&informer);
    stage.set("bad");
    stage.source.wait_for_watches(0);
    assert_eq!(words(informer.store()), ["a2"]);
    allow.send(()).unwrap();
    stage.pass_until(|| stage.source.open_watches() == 1);
    assert_eq!(next(&told, 2), ["*a2", "+bad3"]);
}

#[test]
fn st_7_objects_that_a_list_brings_unchanged_keep_their_allocation() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let before = informer.store().get("", "a").unwrap().unwrap();
    let (_, told) = follow(&informer);
    assert_eq!(next(&told, 1), ["*a2"]);
    stage.behind_its_back(|stage| {
        stage.set("b");
    });
    // Nothing about `a`, although each handler counts as syncing until the first check (SI-24).
    assert_eq!(next(&told, 1), ["+b3"]);
    let after = informer.store().get("", "a").unwrap().unwrap();
    assert!(Arc::ptr_eq(&before, &after));
}

/// The position of the content, for reads after one's own write.
#[test]
fn store_version_follows_events_lists_and_bookmarks() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let version = stage.set("a");
    let at = |version: u64| ResourceVersion::from(version.to_string());
    let store = informer.store();
    store
        .wait_until_at_least(&at(version), Deadline::NEVER)
        .unwrap();
    stage.behind_its_back(|stage| {
        stage.set("b");
        stage.source.skip_to(90);
    });
    store.wait_until_at_least(&at(90), Deadline::NEVER).unwrap();
    assert_eq!(words(store), ["a3", "b4"]);
    stage.source.skip_to(120);
    stage.source.bookmark();
    store
        .wait_until_at_least(&at(120), Deadline::NEVER)
        .unwrap();
    let version = stage.set("c");
    store
        .wait_until_at_least(&at(version), Deadline::NEVER)
        .unwrap();
    assert_eq!(words(store), ["a3", "b4", "c121"]);
}

/// ST-9, RF-27: an empty list has a version, too.
#[test]
fn st_9_an_empty_first_list_gives_the_store_its_version() {
    let stage = Stage::new();
    stage.source.skip_to(40);
    let informer = stage.running();
    let at = |version: &str| ResourceVersion::from(version);
    assert_eq!(informer.store().resource_version(), at("40"));
    assert_eq!(informer.status().resource_version, at("40"));
    stage.source.skip_to(50);
    stage.source.bookmark();
    informer
        .store()
        .wait_until_at_least(&at("50"), Deadline::NEVER)
        .unwrap();
}

/// ST-9, ST-8: no part of a list is in the store before the whole.
#[test]
fn st_9_the_store_is_never_ahead_of_its_content() {
    let stage = Stage::with(&["a", "b"]);
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    let indexers = Indexers::new().with("slow", move |object: &ConfigMap| {
        if object.key().name() == "b" {
            begun.send(()).unwrap();
            pass.recv_timeout(OPENS).unwrap();
        }
        Vec::new()
    });
    let informer = stage.informer_with(stage.options().indexers(indexers));
    let (registration, told) = follow(&informer);
    informer.start().unwrap();
    calls.recv().unwrap();
    assert!(informer.store().is_empty() && told.is_empty());
    assert_eq!(informer.store().resource_version().as_str(), "");
    assert!(!informer.has_synced() && !registration.has_synced());
    gate.send(()).unwrap();
    informer.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(informer.store().resource_version().as_str(), "3");
}

/// ST-9, B18: the content keeps its version until the whole of an older list has come.
#[test]
fn st_9_a_list_that_goes_back_takes_the_version_with_it() {
    let stage = Stage::with(&["a", "b"]);
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    // Called for each state that comes into the store.
    let indexers = Indexers::new().with("slow", move |object: &ConfigMap| {
        if word(&StoredObject::new(object.clone())) == "c6" {
            begun.send(()).unwrap();
            pass.recv_timeout(OPENS).unwrap();
        }
        Vec::new()
    });
    let informer = stage.informer_with(stage.options().indexers(indexers));
    stage.run(&informer);
    let store = informer.store();
    let old = ResourceVersion::from(stage.set("a").to_string());
    store.wait_until_at_least(&old, Deadline::NEVER).unwrap();
    stage.set("c");
    stage.source.skip_to(60);
    stage.source.bookmark();
    let ahead = ResourceVersion::from("60");
    store.wait_until_at_least(&ahead, Deadline::NEVER).unwrap();
    stage.source.end_watches(None);
    stage.source.wait_for_watches(0);
    stage.source.restore(5);
    stage.set("c");
    // The call comes in the midst of a list, without a timer.
    until(|| {
        let is_called = !calls.is_empty();
        if !is_called && let Some(ahead) = stage.fake.next_timer() {
            stage.fake.advance(ahead);
        }
        is_called
    });
    gate.send(()).unwrap();
    until(|| store.resource_version().as_str() == "6");
    assert_eq!(words(store), ["a4", "b3", "c6"]);
}

/// `TestEventPanics` through a whole informer: one notification is lost, the rest goes on.
#[test]
fn si_18_a_handler_that_panics_loses_that_notification_and_goes_on() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.informer();
    let (send, seen) = unbounded();
    let handler = Handlers::<ConfigMap>::new().on_add(move |object, _| {
        assert_ne!(word(object), "a2", "the handler does not like it");
        send.send(word(object)).unwrap();
    });
    let registration = informer.add_handler(handler).unwrap();
    stage.run(&informer);
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(seen.recv().unwrap(), "b3");
    assert_eq!(registration.readings().panics, 1);
}

/// B4, B18: the sink refuses a list that is older than the content, and the reflector asks for the
/// most recent one at once.
#[test]
fn b4_a_list_that_the_store_would_refuse_is_asked_for_once_more_at_the_most_recent_version() {
    let stage = Stage::with(&["a"]);
    // The first list has no version; the second one lags behind the watch.
    let versions = Mutex::new(vec!["1", ""]);
    let source = Custom::new(&stage, move |call| match call {
        Call::Listed(request, page) if !request.resource_version.is_empty() => {
            let version = versions.lock().pop();
            if let Some(version) = version {
                page.resource_version = ResourceVersion::from(version);
            }
        }
        // A server before Kubernetes 1.34 gives it no position either.
        Call::Watch(request) => request.bookmarks = false,
        Call::List | Call::Listed(..) | Call::Describe => {}
    });
    let (allow, allowed) = unbounded::<()>();
    let options = stage.options().transform(move |object| {
        if object.key().name() == "bad" && allowed.is_empty() {
            return Err(Error::new(ErrorKind::Config, "not this one"));
        }
        Ok(object)
    });
    let informer = SharedInformer::new(Arc::new(source), options);
    let (_, told) = follow(&informer);
    stage.run(&informer);
    stage.set("b");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|word| word != "+b3") {
        seen.extend(next(&told, 1));
    }
    let lists = stage.lists();
    stage.set("bad");
    stage.source.wait_for_watches(0);
    allow.send(()).unwrap();
    stage.pass_until(|| stage.source.open_watches() == 1);
    let requests = stage.source.requests();
    let lists: Vec<_> = requests
        .iter()
        .filter(|request| request.kind == RequestKind::List)
        .skip(lists)
        .map(|request| (request.resource_version.as_str(), request.at))
        .collect();
    let [(first, asked), (second, again)] = lists[..] else {
        panic!("{lists:?}");
    };
    assert_eq!((first, second), ("0", ""));
    assert_eq!(asked, again, "at once");
    let last = ResourceVersion::from("4");
    let store = informer.store();
    store.wait_until_at_least(&last, Deadline::NEVER).unwrap();
    assert_eq!(words(store), ["a2", "b3", "bad4"]);
    assert_eq!(store.refused(), 1);
}
