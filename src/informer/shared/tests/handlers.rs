//! The notifications of handlers, and their order (SI-10 to SI-14, SI-20, CT-4 to CT-6, CT-14).

use super::*;
use crate::informer::Handlers;
use std::collections::BTreeMap;

#[test]
fn si_10_a_handler_added_before_the_start_gets_the_initial_list_as_such() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.informer();
    let (_, told) = follow(&informer);
    stage.run(&informer);
    assert_eq!(next_sorted(&told, 2), ["*a2", "*b3"]);
    stage.set("c");
    stage.set("a");
    stage.source.delete("", "b");
    assert_eq!(next(&told, 3), ["+c4", "a2>5", "-b6"]);
}

/// `TestAddWhileActive`, `TestSharedInformerMultipleRegistration`.
#[test]
fn si_11_si_13_a_handler_added_while_it_runs_gets_everything_then_what_follows() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.running();
    let (first, early) = follow(&informer);
    assert_eq!(next_sorted(&early, 2), ["*a2", "*b3"]);
    stage.set("a");
    assert_eq!(next(&early, 1), ["a2>4"]);
    let (second, late) = follow(&informer);
    assert_eq!(next_sorted(&late, 2), ["*a4", "*b3"]);
    stage.source.delete("", "a");
    assert_eq!(next(&early, 1), ["-a5"]);
    assert_eq!(next(&late, 1), ["-a5"]);
    assert_ne!(first.name(), second.name());
    assert_eq!(informer.registrations().len(), 2);
}

/// `TestSharedInformerInitializationRace`, `TestSharedInformerStartRace`: no gap and no duplicate,
/// whenever it comes.
#[test]
fn si_11_a_handler_that_comes_at_any_moment_misses_nothing_and_hears_nothing_twice() {
    let stage = Stage::with(&["a", "b", "c"]);
    let informer = Arc::new(stage.informer());
    let adding = Arc::clone(&informer);
    let (_worker, added) = apart(move || (0..20).map(|_| follow(&adding).1).collect::<Vec<_>>());
    let churn = || {
        for round in 0..30 {
            stage.set(["a", "b", "c"][round % 3]);
            if round % 4 == 0 {
                stage.source.delete("", "b");
            }
        }
    };
    churn();
    informer.start().unwrap();
    churn();
    stage.source.delete("", "a");
    let last = stage.set("z");
    let there = stage.source.objects().into_iter();
    let there: BTreeMap<_, _> = there
        .map(|object| (object.key().to_string(), number(&object)))
        .collect();
    assert_eq!(there.get("z"), Some(&last));
    for told in added.recv().unwrap() {
        let mut view = BTreeMap::new();
        for notification in &told {
            follows(&mut view, &notification);
            if view == there {
                break;
            }
        }
        assert!(told.is_empty());
    }
}

/// Takes a notification into a handler's view, if it fits the earlier ones.
fn follows(view: &mut BTreeMap<String, u64>, notification: &Told) {
    let key = notification.key().to_string();
    let text = written(notification);
    match notification {
        Notification::Added { object, .. } => {
            assert_eq!(view.insert(key, number(object)), None, "{text}");
        }
        Notification::Updated { old, new } => {
            assert_eq!(view.insert(key, number(new)), Some(number(old)), "{text}");
            assert!(number(new) > number(old), "{text}");
        }
        Notification::Deleted(_) => assert!(view.remove(&key).is_some(), "{text}"),
    }
}

fn number(object: &StoredObject<ConfigMap>) -> u64 {
    object.resource_version().as_str().parse().unwrap()
}

/// `TestRemoveWhileActive`, `TestSharedInformerRemoveHandler`.
#[test]
fn si_14_a_removed_handler_hears_nothing_more_and_the_others_go_on() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (registration, removed) = follow(&informer);
    let (_, stays) = follow(&informer);
    assert_eq!(next(&removed, 1), ["*a2"]);
    registration.remove(Deadline::NEVER).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    stage.set("a");
    assert!(removed.recv().is_err());
    assert_eq!(next(&stays, 2), ["*a2", "a2>3"]);
    assert_eq!(informer.registrations().len(), 1);
}

#[test]
fn si_20_the_store_is_never_behind_what_a_handler_is_told() {
    let stage = Stage::new();
    let informer = stage.informer();
    let store = informer.store().clone();
    let (send, seen) = unbounded();
    let handler = Handlers::<ConfigMap>::new()
        .on_add({
            let (store, send) = (store.clone(), send.clone());
            move |object, _| {
                let stored = store.get("", object.key().name()).unwrap();
                send.send(stored.map(|stored| number(&stored) >= number(object)))
                    .unwrap();
            }
        })
        .on_update({
            let send = send.clone();
            move |_, new| {
                let stored = store.get("", new.key().name()).unwrap();
                send.send(stored.map(|stored| number(&stored) >= number(new)))
                    .unwrap();
            }
        });
    informer.add_handler(handler).unwrap();
    stage.run(&informer);
    for _ in 0..50 {
        stage.set("a");
    }
    for fine in seen.iter().take(50) {
        assert_eq!(fine, Some(true));
    }
}

/// The store decides, not the type of the event. `TestUpdate`.
#[test]
fn ct_4_whether_an_object_is_new_is_for_the_store_to_say() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    assert_eq!(next(&told, 1), ["*a2"]);
    stage
        .source
        .send(|| ObjectEvent::added(stored("a5")).into());
    stage
        .source
        .send(|| ObjectEvent::updated(stored("b6")).into());
    assert_eq!(next(&told, 2), ["a2>5", "+b6"]);
}

/// Unlike in client-go, a handler gets no delete of an object that it never had.
#[test]
fn ct_5_a_delete_of_what_nobody_was_told_of_is_told_to_nobody() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    stage
        .source
        .send(|| ObjectEvent::deleted(stored("x8")).into());
    stage
        .source
        .send(|| ObjectEvent::deleted(stored("a9")).into());
    stage
        .source
        .send(|| ObjectEvent::deleted(stored("a9")).into());
    stage
        .source
        .send(|| ObjectEvent::added(stored("c10")).into());
    assert_eq!(next(&told, 3), ["*a2", "-a9", "+c10"]);
}

/// `TestReplaceEvents`: handlers get the changes of a list, deletions typed; the store is complete
/// at once. They get nothing about the unchanged `c`, although all count as syncing (SI-24).
#[test]
fn ct_6_of_a_list_handlers_are_told_what_is_gone_and_what_changed() {
    let stage = Stage::with(&["a", "b", "c"]);
    let informer = stage.informer();
    let store = informer.store().clone();
    let (send, at_delete) = unbounded();
    let handler = Handlers::<ConfigMap>::new().on_delete(move |_| {
        send.send(words(&store)).unwrap();
    });
    informer.add_handler(handler).unwrap();
    let (_, told) = follow(&informer);
    stage.run(&informer);
    assert_eq!(next(&told, 3), ["*a2", "*b3", "*c4"]);
    stage.behind_its_back(|stage| {
        stage.source.delete("", "a");
        stage.set("b");
        stage.set("d");
    });
    let changes = next(&told, 3);
    assert_eq!(changes, ["?a2", "b3>6", "+d7"]);
    let seen = at_delete.recv().unwrap();
    assert_eq!(seen, ["b6", "c4", "d7"], "the whole new content");
    assert_eq!(words(informer.store()), ["b6", "c4", "d7"]);
}

/// An object that was deleted and created again while the watch was away has another uid. The store
/// has the new object before handlers get the delete of the old one.
#[test]
fn ct_5_an_object_that_was_made_again_is_a_deletion_that_was_missed_and_an_addition() {
    for streams in [false, true] {
        let stage = Stage::with(&["a", "b", "c", "d"]);
        stage.source.stream_lists(streams);
        let informer = stage.informer();
        let store = informer.store().clone();
        let (send, at_delete) = unbounded();
        let handler = Handlers::<ConfigMap>::new().on_delete(move |_| {
            send.send(words(&store)).unwrap();
        });
        informer.add_handler(handler).unwrap();
        let (_, told) = follow(&informer);
        let (_, crowded) = follow_with(&informer, HandlerOptions::default().queue_max(Some(0)));
        stage.run(&informer);
        assert_eq!(next_sorted(&told, 4), ["*a2", "*b3", "*c4", "*d5"]);
        assert_eq!(next_sorted(&crowded, 4), ["*a2", "*b3", "*c4", "*d5"]);
        stage.source.end_watches(None);
        stage.source.wait_for_watches(0);
        stage.source.delete("", "b");
        stage.set("b");
        stage.source.delete("", "a");
        stage.set("c");
        stage.source.delete("", "c");
        stage.set("c");
        stage.source.compact();
        stage.pass_until(|| !words(informer.store()).contains(&"a2".to_owned()));
        for told in [&told, &crowded] {
            assert_eq!(next_sorted(told, 3), ["?a2", "?b3", "?c4"], "{streams}");
            assert_eq!(next_sorted(told, 2), ["+b7", "+c11"], "{streams}");
        }
        for _ in 0..3 {
            assert_eq!(at_delete.recv().unwrap(), ["b7", "c11", "d5"]);
        }
    }
}

/// The watch may report it as a change, if the server merged or lost an event.
#[test]
fn ct_5_a_change_to_another_uid_is_a_deletion_that_was_missed_and_an_addition() {
    let stage = Stage::with(&["a", "b", "c"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    assert_eq!(next_sorted(&told, 3), ["*a2", "*b3", "*c4"]);
    let source = &stage.source;
    source.send(|| ObjectEvent::updated(stored("b8")).into());
    source.send(|| ObjectEvent::added(stored("c9")).into());
    source.send(|| ObjectEvent::updated(stored("a10")).into());
    let expected = ["?b3", "+b8", "?c4", "+c9", "a2>10"];
    assert_eq!(next(&told, 5), expected);
    assert_eq!(words(informer.store()), ["a10", "b8", "c9"]);
}

/// `TestResetWatch`.
#[test]
fn ct_14_what_was_missed_while_disconnected_is_no_part_of_the_initial_list() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (_, told) = follow(&informer);
    assert_eq!(next(&told, 1), ["*a2"]);
    stage.behind_its_back(|stage| {
        stage.set("a");
        stage.set("b");
    });
    assert_eq!(next(&told, 2), ["a2>3", "+b4"]);
}
