//! Start, stop, and the state after each (SI-2, SI-4, SI-5, SI-9, SI-12).

use super::*;
use crate::informer::Handlers;
use crate::tests::until::{until, until_some};
use std::sync::OnceLock;

#[test]
fn si_2_a_second_start_is_an_error_and_changes_nothing() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let error = informer.start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.to_string(), "informer has already started");
    let (_, told) = follow(&informer);
    assert_eq!(next(&told, 1), ["*a2"]);
    assert_eq!(stage.source.open_watches(), 1);
}

/// `TestStateSharedInformer`, `TestShutdown`.
#[test]
fn si_4_a_stopped_informer_stays_stopped_and_its_content_readable() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (registration, told) = follow(&informer);
    assert_eq!(next(&told, 1), ["*a2"]);
    assert!(!informer.is_stopped());
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(informer.is_stopped());
    assert_eq!(stage.source.open_watches(), 0, "its watch is closed");
    assert!(registration.readings().has_ended);
    stage.set("b");
    assert!(told.recv().is_err(), "nothing more comes");
    assert_eq!(words(informer.store()), ["a2"]);
    assert!(informer.has_synced());
    assert_eq!(informer.start().unwrap_err().kind(), ErrorKind::Stopped);
    informer.stop();
    informer.shutdown(stage.now()).unwrap();
}

/// `TestShutdown`: handlers of an informer that never ran end with it.
#[test]
fn si_4_an_informer_that_never_ran_ends_by_a_stop_or_by_being_dropped() {
    let stage = Stage::new();
    let informer = stage.informer();
    let (registration, told) = follow(&informer);
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(registration.readings().has_ended && told.recv().is_err());
    let error = informer.wait_until_synced(Deadline::NEVER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);

    let informer = stage.informer();
    let (registration, told) = follow(&informer);
    drop(informer);
    assert!(registration.readings().has_ended && told.recv().is_err());
    assert!(stage.source.requests().is_empty());
}

#[test]
fn si_4_dropping_a_running_informer_ends_everything_it_started() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    let (registration, _told) = follow(&informer);
    let store = informer.store().clone();
    drop(informer);
    assert!(registration.readings().has_ended);
    assert_eq!(stage.source.open_watches(), 0);
    assert_eq!(words(&store), ["a2"]);
    assert_eq!(store.status().phase, crate::reflector::Phase::Stopped);
}

/// A handler whose calls report their argument, then wait until the test releases them.
fn gated(
    informer: &Informer,
) -> (
    Registration,
    Receiver<String>,
    crossbeam_channel::Sender<()>,
) {
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    let handler = Handlers::<ConfigMap>::new().on_add(move |object, _| {
        drop(begun.send(word(object)));
        let _ = pass.recv_timeout(OPENS);
    });
    let options = HandlerOptions::default().name("slow");
    (
        informer.add_handler_with(handler, options).unwrap(),
        calls,
        gate,
    )
}

/// The error of a shutdown at its deadline, once the crate's own threads have ended.
#[track_caller]
fn shut_down_but_for_the_users(informer: &Informer, stage: &Stage) -> Error {
    until_some(|| {
        let error = informer.shutdown(stage.now()).unwrap_err();
        (!error.to_string().contains("thread")).then_some(error)
    })
}

#[test]
fn si_5_what_waits_for_a_handler_is_dropped_by_a_stop_and_the_late_one_is_named() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.informer();
    let (registration, calls, gate) = gated(&informer);
    informer.start().unwrap();
    assert_eq!(calls.recv().unwrap(), "a2");
    let error = shut_down_but_for_the_users(&informer, &stage);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error
            .to_string()
            .starts_with("timed out waiting for handlers that still run: slow (on_add for"),
        "{error}"
    );
    assert_eq!(stage.source.open_watches(), 0, "the rest has ended");
    gate.send(()).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    assert!(calls.recv().is_err(), "b was never told");
    informer.shutdown(Deadline::NEVER).unwrap();
}

#[test]
fn si_5_a_handler_may_stop_its_own_informer() {
    let stage = Stage::with(&["a", "b"]);
    let cell: Arc<OnceLock<Informer>> = Arc::default();
    let informer = Arc::clone(&cell);
    let (ended, end) = unbounded();
    let handler = Handlers::<ConfigMap>::new().on_add(move |object, _| {
        let informer = informer.get().unwrap();
        ended
            .send((word(object), informer.shutdown(Deadline::NEVER)))
            .unwrap();
    });
    let informer = cell.get_or_init(|| stage.informer());
    let registration = informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    let (object, shutdown) = end.recv().unwrap();
    assert_eq!(object, "a2");
    shutdown.unwrap();
    informer.shutdown(Deadline::NEVER).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    assert!(end.try_recv().is_err(), "that call was the last");
}

/// `TestAddOnStoppedSharedInformer`.
#[test]
fn si_12_a_handler_is_not_added_after_the_stop() {
    let stage = Stage::new();
    let informer = stage.running();
    informer.stop();
    let options = HandlerOptions::default().name("late");
    let error = informer
        .add_handler_with(Handlers::new(), options)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(
        error.to_string(),
        "handler late was not added to shared informer configmaps because it has stopped already"
    );
}

/// `TestSharedInformerHandlerAbuse`: handlers come and go while the informer stops.
#[test]
fn si_14_handlers_may_come_and_go_while_the_informer_stops() {
    let stage = Stage::with(&["a", "b"]);
    let informer = Arc::new(stage.running());
    let abusers: Vec<_> = (0..4)
        .map(|_| {
            let informer = Arc::clone(&informer);
            apart(move || {
                let mut added = 0_u32;
                until(|| {
                    let Ok(registration) = informer.add_handler(Handlers::new()) else {
                        return true;
                    };
                    added = added.wrapping_add(1);
                    registration.remove(Deadline::NEVER).unwrap();
                    false
                });
                added
            })
        })
        .collect();
    for _ in 0..50 {
        stage.set("a");
    }
    informer.shutdown(Deadline::NEVER).unwrap();
    for (_worker, added) in abusers {
        added.recv().unwrap();
    }
    assert!(informer.registrations().is_empty());
}

/// `TestIndexer`: before the start, while it runs, and not after the stop.
#[test]
fn si_9_indices_are_added_before_and_while_it_runs_and_refused_after_the_stop() {
    let by_name = |index: &str| {
        Indexers::<ConfigMap>::new().with(index, |object| vec![object.key().name().to_owned()])
    };
    let stage = Stage::with(&["a"]);
    let informer = stage.informer();
    informer.add_indexers(&by_name("before")).unwrap();
    stage.run(&informer);
    informer.add_indexers(&by_name("while")).unwrap();
    let (_, told) = follow(&informer);
    stage.set("b");
    next(&told, 2);
    let store = informer.store();
    for index in ["before", "while"] {
        assert_eq!(store.by_index(index, "a").unwrap().len(), 1, "{index}");
        assert_eq!(store.by_index(index, "b").unwrap().len(), 1, "{index}");
    }
    let conflict = informer.add_indexers(&by_name("while")).unwrap_err();
    assert_eq!(conflict.to_string(), "indexer conflict: while");
    informer.stop();
    let error = informer.add_indexers(&by_name("after")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "indexer was not added because it has stopped already"
    );
}

/// Each of them would wait for the other one's end.
#[test]
fn si_5_all_handlers_may_stop_their_informer_at_once() {
    let stage = Stage::with(&["a"]);
    let cell: Arc<OnceLock<Informer>> = Arc::default();
    let informer = cell.get_or_init(|| stage.informer());
    let (ended, end) = unbounded();
    let together = Arc::new(std::sync::Barrier::new(3));
    for _ in 0..2 {
        let (own, ended) = (Arc::clone(&cell), ended.clone());
        let together = Arc::clone(&together);
        let handler = Handlers::<ConfigMap>::new().on_add(move |_, _| {
            together.wait();
            let informer = own.get().unwrap();
            ended.send(informer.shutdown(Deadline::NEVER)).unwrap();
        });
        informer.add_handler(handler).unwrap();
    }
    informer.start().unwrap();
    together.wait();
    informer.shutdown(Deadline::NEVER).unwrap();
    for _ in 0..2 {
        end.recv().unwrap().unwrap();
    }
}
