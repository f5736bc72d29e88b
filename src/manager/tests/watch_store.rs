//! The rows of the watch-based store, one test each, over runs without threads and a clock that
//! stands still.

use std::time::Duration;

use super::fake::{ROUND, commit, immutable, pod, secret, with_uid};
use super::stage::{Stage, failed};
use crate::tests::until::until;
use k8s_openapi::api::core::v1::Secret;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::object::{ObjectKey, Status};
use crate::reflector::{ReflectorStatus, Sink as _};
use crate::sync::Arc;
use crate::worker::Worker;

/// Reads on a thread of its own; the result comes out of the channel.
fn get_elsewhere(
    stage: &Stage,
    name: &'static str,
) -> (Worker, crossbeam_channel::Receiver<Result<String, Error>>) {
    let manager = stage.manager.clone();
    let (send, receive) = crossbeam_channel::bounded(1);
    let worker = Worker::spawn("t-get", move |_| {
        let result = manager.get("ns", name);
        let version = result.map(|cached| cached.metadata.resource_version.clone().unwrap());
        send.send(version).unwrap();
    });
    (worker.unwrap(), receive)
}

/// OC-7, OC-10, OC-14; `TestSecretCache`: not found, appears, changes, disappears, unregistered.
#[test]
fn a_secret_comes_and_goes() {
    let stage = Stage::by_hand();
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRegistered);
    assert_eq!(error.to_string(), "object \"ns\"/\"s\" not registered");
    let pod = pod("p", &["s"]);
    stage.manager.register_pod(&pod);
    stage.runs.list("s", "10", None).unwrap();
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), "secret \"s\" not found");
    stage.runs.modified(secret("s", "11"));
    assert_eq!(stage.version_now("s"), 11);
    stage.runs.modified(secret("s", "12"));
    assert_eq!(stage.version_now("s"), 12);
    stage.runs.deleted(secret("s", "13"));
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    stage.manager.unregister_pod(&pod);
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRegistered);
}

/// OC-2, OC-3; `TestSecretCacheMultipleRegistrations`: one run, whatever the references do.
#[test]
fn more_references_start_nothing_more() {
    let stage = Stage::by_hand();
    let first = pod("first", &["s"]);
    stage.manager.register_pod(&first);
    for number in 0..20 {
        let more = pod(&format!("more-{number}"), &["s"]);
        stage.manager.register_pod(&more);
        stage.manager.unregister_pod(&more);
    }
    assert_eq!(stage.runs.count(), 1);
    assert!(!stage.runs.is_stopped("s"));
    stage.manager.unregister_pod(&first);
    assert!(stage.runs.is_stopped("s"));
    stage.runs.wait_for_join(0);
    assert_eq!(stage.runs.count(), 1);
}

/// OC-9, OC-13, B1, B2: the kubelet's line first, then the server's words, attempts and since when.
#[test]
fn a_wait_in_vain_says_why() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    let status = ReflectorStatus {
        failures: crate::failures::Failures::of(
            4,
            Some(stage.clock.now()),
            Error::from_status(Status::new(503, "etcd is on holiday")),
        ),
        ..ReflectorStatus::default()
    };
    stage.runs.report("s", &status);
    stage.clock.wait_for_timer(Duration::from_secs(1));
    stage.clock.advance(Duration::from_secs(1));
    let error = answer.recv().unwrap().unwrap_err();
    worker.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        error.to_string(),
        "failed to sync secret cache: timed out waiting for the condition\n\
         4 attempts in 1.0s, the last one failed: etcd is on holiday"
    );
    assert_eq!(error.attempts(), 4);
}

/// B1: the wait ends with the list, not with a poll or a deadline.
#[test]
fn a_wait_ends_with_the_answer() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    assert_eq!(answer.recv().unwrap().unwrap(), "9");
    worker.join().unwrap();
}

/// B1: an answer in memory wins over a deadline that has passed; without one there is no wait.
#[test]
fn success_beats_the_deadline() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    assert_eq!(stage.get_now("s").unwrap_err().kind(), ErrorKind::NotSynced);
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    assert_eq!(stage.version_now("s"), 9);
}

/// OC-15, OC-16, OC-17; `TestImmutableSecretStopsTheReflector`.
#[test]
fn an_immutable_secret_stops_its_run() {
    let absent_then = |then: crate::object::StoredObject<_>| (None, Some(then));
    let held = crate::object::StoredObject::new;
    let rows = [
        (
            "absent, mutable",
            absent_then(held(secret("s", "11"))),
            false,
        ),
        (
            "absent, immutable",
            absent_then(held(immutable("s", "11"))),
            true,
        ),
        (
            "mutable, mutable",
            (Some(secret("s", "9")), Some(held(secret("s", "11")))),
            false,
        ),
        (
            "mutable, immutable",
            (Some(secret("s", "9")), Some(held(immutable("s", "11")))),
            true,
        ),
        (
            "immutable from the start",
            (Some(immutable("s", "9")), None),
            true,
        ),
    ];
    for (what, (first, then), stops) in rows {
        let stage = Stage::by_hand();
        stage.manager.register_pod(&pod("p", &["s"]));
        stage.runs.list("s", "10", first).unwrap();
        if let Some(then) = then {
            assert!(!stage.runs.is_stopped("s"), "{what}");
            let object: &Secret = &then;
            stage.runs.modified(object.clone());
        }
        assert!(!stage.get_now("s").unwrap().is_stale(), "{what}");
        assert_eq!(stage.runs.is_stopped("s"), stops, "{what}");
        assert_eq!(stage.runs.count(), 1, "{what}: a read restarts nothing");
    }
}

/// OC-15: no reader has seen it yet, so its end, and another in its place, must not be missed.
/// Seen: both were.
#[test]
fn oc_15_an_immutable_object_that_nobody_has_read_keeps_its_watch() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let first = immutable("s", "9");
    stage.runs.list("s", "10", Some(first.clone())).unwrap();
    assert!(!stage.runs.is_stopped("s"));
    stage.runs.deleted(Secret {
        metadata: secret("s", "11").metadata,
        ..first
    });
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    stage
        .runs
        .modified(with_uid(immutable("s", "12"), "another"));
    assert!(!stage.runs.is_stopped("s"));
    assert_eq!(stage.version_now("s"), 12);
    assert!(stage.runs.is_stopped("s"), "the first read stops it");
    assert_eq!(stage.version_now("s"), 12);
    assert_eq!(stage.runs.count(), 1, "it goes on being served");
}

/// OC-15: whichever read comes first.
#[test]
fn oc_15_each_kind_of_read_stops_the_watch_of_an_immutable_object() {
    type Read = fn(&Stage);
    let reads: [(&str, Read); 4] = [
        ("get", |stage| drop(stage.get_now("s").unwrap())),
        ("get_cached", |stage| {
            drop(stage.manager.get_cached("ns", "s").unwrap().unwrap());
        }),
        ("get_at_least", |stage| {
            let version = "9".into();
            let read = stage
                .manager
                .get_at_least("ns", "s", &version, Deadline::NEVER);
            drop(read.unwrap());
        }),
        ("get_fresh", |stage| {
            stage.getter.answer(Ok(immutable("s", "9")));
            drop(stage.manager.get_fresh("ns", "s", Deadline::NEVER).unwrap());
        }),
    ];
    for (what, read) in reads {
        let stage = Stage::by_hand();
        stage.manager.register_pod(&pod("p", &["s"]));
        let object = Some(immutable("s", "9"));
        stage.runs.list("s", "10", object).unwrap();
        assert!(!stage.runs.is_stopped("s"), "{what}");
        read(&stage);
        assert!(stage.runs.is_stopped("s"), "{what}");
    }
}

/// OC-15: who waits for it reads it when it comes.
#[test]
fn oc_15_an_immutable_object_that_is_waited_for_is_read_when_it_comes() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    let object = Some(immutable("s", "9"));
    stage.runs.list("s", "10", object).unwrap();
    assert_eq!(answer.recv().unwrap().unwrap(), "9");
    worker.join().unwrap();
    assert!(stage.runs.is_stopped("s"));
}

/// OC-15, B4: an unread one that idleness stops is an idle item, which a read watches again.
#[test]
fn oc_15_an_immutable_object_that_stays_unread_falls_idle() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let object = Some(immutable("s", "9"));
    stage.runs.list("s", "10", object).unwrap();
    stage.round();
    assert!(!stage.runs.is_stopped("s"));
    stage.round();
    assert!(stage.runs.is_stopped("s"));
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced, "it is asked for anew");
    assert_eq!(stage.runs.count(), 2);
    stage.runs.list("s", "20", None).unwrap();
    assert!(stage.get_now("s").unwrap_err().is_not_found());
}

/// OC-18, OC-21, OC-22 (B4); `TestMaxIdleTimeStopsTheReflector`.
#[test]
fn an_idle_run_is_stopped_and_a_read_starts_another() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.runs.write(0, |writer| writer.bookmark(&"15".into()));
    for _ in 0..3 {
        stage.clock.advance(Duration::from_secs(20));
        assert_eq!(stage.version_now("s"), 9);
    }
    stage.clock.wait_for_timer(ROUND);
    stage.round();
    assert!(
        !stage.runs.is_stopped("s"),
        "the limit itself is not beyond it"
    );
    stage.round();
    assert!(stage.runs.is_stopped("s"));
    let cached = stage.manager.get_cached("ns", "s").unwrap().unwrap();
    assert!(cached.is_stale(), "the data stays");
    assert_eq!(stage.runs.count(), 2, "and a look wants the watch again");
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotSynced,
        "a get waits for a new list"
    );
    stage.runs.last("s", |run| {
        assert_eq!(
            run.known_version,
            Some("15".into()),
            "B4: what was known before"
        );
        assert!(run.waits_for_previous, "OC-23");
    });
    stage.runs.list("s", "17", Some(secret("s", "16"))).unwrap();
    assert_eq!(stage.version_now("s"), 16);
}

/// OC-19 is not kept (B5): idleness is counted from the item's creation.
#[test]
fn an_item_that_was_never_read_has_its_time_too() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(Duration::from_secs(3 * 60)))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    for _ in 0..3 {
        stage.round();
        assert!(!stage.runs.is_stopped("s"));
    }
    stage.round();
    assert!(stage.runs.is_stopped("s"));
}

/// OC-20; `TestReflectorNotStoppedOnSlowInitialization`.
#[test]
fn an_item_that_is_not_filled_is_never_idle() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    for _ in 0..3 {
        stage.round();
    }
    assert!(!stage.runs.is_stopped("s"));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    assert_eq!(stage.version_now("s"), 9);
}

/// OC-25: references count on, nothing starts, an immutable object is served; others fail, at once.
#[test]
fn a_manager_that_was_shut_down_starts_nothing() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["mutable", "fixed"]));
    stage
        .runs
        .list("mutable", "10", Some(secret("mutable", "9")))
        .unwrap();
    stage
        .runs
        .list("fixed", "10", Some(immutable("fixed", "9")))
        .unwrap();
    assert_eq!(stage.version_now("fixed"), 9);
    stage.manager.stop();
    assert!(stage.runs.is_stopped("mutable"));
    stage
        .manager
        .register_pod(&pod("late", &["mutable", "fixed", "late"]));
    assert_eq!(stage.runs.count(), 2);
    assert_eq!(stage.version_now("fixed"), 9);
    for name in ["mutable", "late"] {
        let error = stage.manager.get("ns", name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped, "as with Cache and Get");
        assert_eq!(error.to_string(), "the secret cache: stopped");
    }
    assert_eq!(stage.getter.asked(), 0);
}

/// OC-28: a run that has ended cannot commit, whatever it still brings.
#[test]
fn an_ended_run_cannot_commit() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    // Keeps the first run's writer from its thread's end, as a slow list would.
    let late = stage.runs.write(0, |writer| {
        stage.clock.advance(ROUND + ROUND);
        until(|| {
            let is_stopped = stage.runs.is_stopped("s");
            if !is_stopped {
                stage.clock.wait_for_timer(ROUND);
                stage.clock.advance(ROUND);
            }
            is_stopped
        });
        assert_eq!(stage.get_now("s").unwrap_err().kind(), ErrorKind::NotSynced);
        let gone = Arc::new(crate::object::StoredObject::new(secret("s", "18")));
        let deleted = writer.apply(ObjectEvent::deleted(gone));
        assert!(deleted.unwrap_err().is_stopped());
        commit(writer, "20", Some(secret("s", "19")), false)
    });
    assert!(late.unwrap_err().is_stopped());
    assert_eq!(stage.get_now("s").unwrap_err().kind(), ErrorKind::NotSynced);
    stage.runs.list("s", "12", Some(secret("s", "11"))).unwrap();
    assert_eq!(stage.version_now("s"), 11);
}

/// B18: older answers out of the server's cache, and older events, do not replace what is known.
#[test]
fn reads_never_go_back_in_time() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    stage.runs.modified(secret("s", "20"));
    stage.runs.modified(secret("s", "15"));
    assert_eq!(stage.version_now("s"), 20);
    stage.runs.deleted(secret("s", "16"));
    assert_eq!(stage.version_now("s"), 20);
    let older = stage.runs.list("s", "12", Some(secret("s", "9")));
    assert_eq!(older.unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(stage.version_now("s"), 20);
    let consistent = stage.runs.write(0, |writer| {
        commit(writer, "12", Some(secret("s", "9")), true)
    });
    consistent.unwrap();
    assert_eq!(
        stage.version_now("s"),
        9,
        "the server's history was put back"
    );
    let report = stage.manager.inspect_object(&ObjectKey::new("ns", "s"));
    assert_eq!(report.unwrap().refused, 3, "an event, a deletion, a list");
}

/// R11: a fresh read raises the known version for the cached reads after it.
#[test]
fn cached_reads_do_not_go_back_behind_a_fresh_one() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    stage.getter.answer(Ok(secret("s", "30")));
    let never = Deadline::NEVER;
    let fresh = stage.manager.get_fresh("ns", "s", never).unwrap();
    assert_eq!(fresh.metadata.resource_version.as_deref(), Some("30"));
    stage.runs.modified(secret("s", "29"));
    assert_eq!(stage.version_now("s"), 30);
    stage.getter.answer(Err(Error::not_found("secret", "s")));
    let gone = stage.manager.get_fresh("ns", "s", never).unwrap_err();
    assert!(gone.is_not_found());
    stage.runs.modified(secret("s", "31"));
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    stage
        .runs
        .modified(with_uid(secret("s", "40"), "uid-again"));
    assert_eq!(stage.version_now("s"), 40);
}

/// R4: a refusal is an answer only once the reflector says that it outlasted its grace.
#[test]
fn a_refusal_becomes_an_answer() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let forbidden = Error::from_status(Status::new(403, "secrets \"s\" is forbidden"));
    let mut status = ReflectorStatus {
        failures: crate::failures::Failures::of(1, None, forbidden.clone()),
        ..ReflectorStatus::default()
    };
    stage.runs.report("s", &status);
    assert_eq!(stage.get_now("s").unwrap_err().kind(), ErrorKind::NotSynced);
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    status.refusal = Some(forbidden);
    stage.runs.report("s", &status);
    let error = answer.recv().unwrap().unwrap_err();
    worker.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert_eq!(error.to_string(), "secrets \"s\" is forbidden");
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    assert_eq!(
        stage.version_now("s"),
        9,
        "and it is forgotten once it is lifted"
    );
}

/// The limit: the entry's error names it, and the housekeeper tries again when a run has ended.
#[test]
fn an_entry_over_the_limit_waits_for_room() {
    let stage = Stage::watching()
        .options(|options| options.watches_max(1))
        .by_hand();
    let (first, second) = (pod("first", &["a"]), pod("second", &["b"]));
    stage.manager.register_pod(&first);
    stage.manager.register_pod(&second);
    assert_eq!(stage.runs.count(), 1);
    let error = stage.manager.get("ns", "b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyReflectors);
    let report = stage
        .manager
        .inspect_object(&ObjectKey::new("ns", "b"))
        .unwrap();
    assert_eq!(report.state, crate::manager::ObjectState::TooManyReflectors);
    stage.manager.unregister_pod(&first);
    stage.runs.wait_for_count(2);
    stage.runs.list("b", "10", Some(secret("b", "9"))).unwrap();
    assert_eq!(stage.version_now("b"), 9);
}

/// A thread that cannot be had is an answer for readers and is tried again each round; so is one
/// that crashed.
#[test]
fn what_could_not_be_started_is_tried_again() {
    let stage = Stage::by_hand();
    stage
        .runs
        .refuse(Some(Error::new(ErrorKind::Resources, "no threads")));
    stage.manager.register_pod(&pod("p", &["s"]));
    let error = stage.manager.get("ns", "s").unwrap_err();
    assert_eq!(error.to_string(), "no threads");
    stage.runs.refuse(None);
    stage.round();
    assert_eq!(stage.runs.count(), 1);
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    stage.runs.crash(0);
    stage.runs.wait_for_join(0);
    stage.clock.wait_for_timer(ROUND);
    stage.round();
    assert_eq!(stage.runs.count(), 2);
}

/// A run that crashes each time is not started by each read; a second later a read may, and each
/// round does.
#[test]
fn reads_do_not_start_a_run_that_crashes_over_and_over() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.crash(0);
    for _ in 0..10 {
        assert!(stage.manager.get("ns", "s").is_err());
        assert!(stage.manager.get_cached("ns", "s").unwrap().is_none());
    }
    assert_eq!(stage.runs.count(), 1);
    stage.clock.advance(Duration::from_secs(1));
    assert!(stage.get_now("s").is_err());
    assert_eq!(stage.runs.count(), 2);
}

/// B7, R4: a failed check is not tried again before the server wants it.
#[test]
fn a_failed_check_waits_for_as_long_as_the_server_says() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let object = Some(immutable("s", "9"));
    stage.runs.list("s", "10", object).unwrap();
    assert_eq!(stage.version_now("s"), 9);
    let busy = Error::new(ErrorKind::Protocol, "too many requests");
    let busy = busy.with_retry_after(Duration::from_secs(90));
    stage.getter.answer(Err(busy));
    stage.manager.register_pod(&pod("q", &["s"]));
    assert!(stage.manager.get("ns", "s").unwrap().is_stale());
    stage.manager.register_pod(&pod("r", &["s"]));
    stage.round();
    let report = stage.manager.inspect_object(&ObjectKey::new("ns", "s"));
    assert!(report.unwrap().reason.contains("too many requests"));
    assert_eq!(stage.getter.asked(), 1);
    stage.getter.answer(Ok(immutable("s", "9")));
    stage.round();
    stage.getter.wait_for_asked(2);
}

/// B7: beyond five minutes a server's wait is a mistake, which would leave the object unchecked.
#[test]
fn a_failed_check_waits_for_five_minutes_at_most() {
    for asked in [Duration::MAX, Duration::from_secs(30 * 366 * 86_400)] {
        let stage = Stage::by_hand();
        stage.manager.register_pod(&pod("p", &["s"]));
        let object = Some(immutable("s", "9"));
        stage.runs.list("s", "10", object).unwrap();
        assert_eq!(stage.version_now("s"), 9);
        let busy = Error::new(ErrorKind::Protocol, "too many requests");
        stage.getter.answer(Err(busy.with_retry_after(asked)));
        stage.manager.register_pod(&pod("q", &["s"]));
        assert!(stage.manager.get("ns", "s").unwrap().is_stale());
        assert_eq!(stage.getter.asked(), 1);
        stage.getter.answer(Ok(immutable("s", "9")));
        stage.clock.advance(Duration::from_secs(5 * 60));
        stage.manager.register_pod(&pod("r", &["s"]));
        stage.getter.wait_for_asked(2);
    }
}

/// B14: what was known when an unread object's watch was stopped is still the last word, whatever
/// it was.
#[test]
fn an_idle_item_reports_its_last_answer() {
    let stage = Stage::watching()
        .options(|options| options.idle_max(ROUND))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["gone", "odd"]));
    stage.runs.list("gone", "10", None).unwrap();
    stage
        .runs
        .list("odd", "10", Some(secret("odd", "9")))
        .unwrap();
    let index = stage.runs.at_work_index("odd").unwrap();
    let event = ObjectEvent::updated(Undecodable {
        key: ObjectKey::new("ns", "odd"),
        uid: "uid-odd".to_owned(),
        resource_version: "11".into(),
        error: Error::new(ErrorKind::Undecodable, "data.key: not base64"),
    });
    stage
        .runs
        .write(index, |writer| writer.apply(event).unwrap());
    for _ in 0..3 {
        stage.round();
    }
    for (name, state) in [
        ("gone", crate::manager::ObjectState::NotFound),
        ("odd", crate::manager::ObjectState::Undecodable),
    ] {
        let report = stage.manager.inspect_object(&ObjectKey::new("ns", name));
        let report = report.unwrap();
        assert_eq!((report.state, report.watched), (state, false), "{name}");
    }
}

/// B12: the last good copy is of the same object; that of a deleted one of the same name is not.
#[test]
fn the_last_good_copy_is_of_the_same_object() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    let event = ObjectEvent::updated(Undecodable {
        key: ObjectKey::new("ns", "s"),
        uid: "another".to_owned(),
        resource_version: "20".into(),
        error: Error::new(ErrorKind::Undecodable, "data.key: not base64"),
    });
    stage.runs.write(0, |writer| writer.apply(event).unwrap());
    assert!(stage.manager.get_cached("ns", "s").unwrap().is_none());
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable);
}

/// B7: a new reference asks once; readers wait for it; the same uid is served on.
#[test]
fn a_new_reference_checks_an_immutable_object_once() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    assert_eq!(stage.getter.asked(), 0);
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.wait_for_asked(1);
    stage.manager.register_pod(&pod("r", &["s"]));
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    stage.getter.answer(Ok(immutable("s", "9")));
    assert_eq!(answer.recv().unwrap().unwrap(), "9");
    worker.join().unwrap();
    assert_eq!(stage.getter.asked(), 1);
    assert_eq!(stage.runs.count(), 1);
    assert!(!stage.get_now("s").unwrap().is_stale());
}

/// B7: another uid restarts the watch, which may not answer with the old object any more.
#[test]
fn an_immutable_object_made_again_is_noticed() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.manager.register_pod(&pod("q", &["s"]));
    stage
        .getter
        .answer(Ok(with_uid(immutable("s", "20"), "uid-again")));
    stage.runs.wait_for_count(2);
    stage
        .runs
        .last("s", |run| assert_eq!(run.known_version, Some("20".into())));
    let lagging = stage.runs.list("s", "12", Some(immutable("s", "9")));
    assert!(lagging.is_err(), "a lagging server's cache");
    stage
        .runs
        .list("s", "21", Some(with_uid(immutable("s", "20"), "uid-again")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 20);
    stage.runs.wait_for_join(1);
}

/// Seen: the first read stopped the watch, which had not brought yet that the object was gone, and
/// the pod that came after its end had it for ever.
#[test]
fn b7_a_watch_goes_on_until_it_has_confirmed_the_object_for_the_last_reference() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "5", Some(immutable("s", "5")))
        .unwrap();
    stage.clock.advance(Duration::from_secs(1));
    stage.manager.register_pod(&pod("q", &["s"]));
    assert!(stage.get("s").is_ok());
    assert!(!stage.runs.is_stopped("s"), "nothing confirms it yet");
    stage
        .runs
        .modified(with_uid(immutable("s", "6"), "another"));
    assert!(stage.get("s").is_ok());
    assert!(!stage.runs.is_stopped("s"), "its end may be on its way");
    stage.clock.advance(Duration::from_secs(1));
    stage.runs.bookmark("s", "7");
    assert!(!stage.runs.is_stopped("s"), "nobody reads it");
    assert!(stage.get("s").is_ok());
    assert!(stage.runs.is_stopped("s"));
}

/// Seen: an event that was on its way brought an object that was gone, and its watch stopped.
#[test]
fn b7_what_comes_after_a_fresh_read_that_found_none_is_watched_until_it_is_confirmed() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "5", None).unwrap();
    let read = stage.begin("s", "").unwrap();
    assert!(
        stage
            .complete(&read, Err(failed(404, "not found")))
            .is_err()
    );
    stage.runs.modified(immutable("s", "6"));
    assert!(stage.get("s").is_ok());
    assert!(!stage.runs.is_stopped("s"));
    stage.clock.advance(Duration::from_secs(1));
    stage.runs.bookmark("s", "7");
    assert!(stage.get("s").is_ok());
    assert!(stage.runs.is_stopped("s"));
}

/// B7: an object that is gone restarts the watch too, and its old state is not taken back.
#[test]
fn an_immutable_object_that_is_gone_is_noticed() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.answer(Err(Error::not_found("secret", "s")));
    stage.runs.wait_for_count(2);
    let lagging = stage.runs.list("s", "12", Some(immutable("s", "9")));
    assert!(lagging.is_err(), "a lagging server's cache");
    stage.runs.list("s", "21", None).unwrap();
    assert!(stage.get_now("s").unwrap_err().is_not_found());
}

/// B7: a check without an answer costs readers a second at most; the old copy comes marked, and the
/// check again.
#[test]
fn a_check_that_fails_serves_the_old_copy_and_is_tried_again() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.manager.register_pod(&pod("q", &["s"]));
    stage.getter.wait_for_asked(1);
    let marked = stage.get_now("s").unwrap();
    assert!(
        marked.is_stale(),
        "its deadline has passed, so it takes what there is"
    );
    let (worker, answer) = get_elsewhere(&stage, "s");
    stage.clock.wait_for_timer(Duration::from_secs(1));
    stage.clock.advance(Duration::from_secs(1));
    assert_eq!(answer.recv().unwrap().unwrap(), "9");
    worker.join().unwrap();
    let impatient = stage.manager.get("ns", "s").unwrap();
    assert!(
        impatient.is_stale(),
        "the second of this check has passed for everybody"
    );
    stage
        .getter
        .answer(Err(Error::new(ErrorKind::Unreachable, "no route")));
    until(|| stage.get_now("s").unwrap().last_error().is_some());
    let report = stage
        .manager
        .inspect_object(&ObjectKey::new("ns", "s"))
        .unwrap();
    let told = "immutable; the check failed: get secret ns/s: no route";
    assert_eq!(report.reason, told);
    stage.clock.advance(ROUND);
    stage.getter.wait_for_asked(2);
    assert!(
        stage.manager.get("ns", "s").unwrap().is_stale(),
        "nobody waits for the second try"
    );
    stage.getter.answer(Ok(immutable("s", "9")));
    until(|| !stage.get_now("s").unwrap().is_stale());
    assert_eq!(stage.runs.count(), 1);
}

/// OC-15 as the kubelet has it, by option.
#[test]
fn the_check_of_immutable_objects_can_be_switched_off() {
    let stage = Stage::watching()
        .options(|options| options.recheck_immutable(false))
        .by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage
        .runs
        .list("s", "10", Some(immutable("s", "9")))
        .unwrap();
    assert_eq!(stage.version_now("s"), 9);
    stage.manager.register_pod(&pod("q", &["s"]));
    assert_eq!(stage.version_now("s"), 9);
    assert_eq!(stage.getter.asked(), 0);
}

/// B12: an object that does not decode is an answer; its last good copy is there for who asks.
#[test]
fn an_object_that_does_not_decode_says_so() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    let set_aside = || Undecodable {
        key: ObjectKey::new("ns", "s"),
        uid: "uid-s".to_owned(),
        resource_version: "11".into(),
        error: Error::new(ErrorKind::Undecodable, "data.key: not base64"),
    };
    let write = |event| stage.runs.write(0, |writer| writer.apply(event).unwrap());
    write(ObjectEvent::updated(set_aside()));
    let error = stage.get_now("s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Undecodable);
    let copy = stage.manager.get_cached("ns", "s").unwrap().unwrap();
    assert_eq!(copy.metadata.resource_version.as_deref(), Some("9"));
    assert!(copy.is_stale());
    assert_eq!(
        copy.last_error().unwrap().to_string(),
        "data.key: not base64"
    );
    let report = stage
        .manager
        .inspect_object(&ObjectKey::new("ns", "s"))
        .unwrap();
    assert_eq!(report.state, crate::manager::ObjectState::Undecodable);
    assert_eq!(report.reason, "data.key: not base64");
    stage.runs.modified(secret("s", "12"));
    assert_eq!(stage.version_now("s"), 12);
    write(ObjectEvent::deleted(Undecodable {
        resource_version: "13".into(),
        ..set_aside()
    }));
    assert!(stage.get_now("s").unwrap_err().is_not_found());
}

/// OC-6: objects of other names, from a server that ignores the field selector, are not ours.
#[test]
fn what_the_server_sends_beside_the_object_is_ignored() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let foreign = stage.runs.write(0, |writer| {
        commit(writer, "10", Some(secret("other", "9")), false)
    });
    foreign.unwrap();
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    let other = Arc::new(crate::object::StoredObject::new(secret("other", "11")));
    stage.runs.write(0, |writer| {
        writer.apply(ObjectEvent::updated(other)).unwrap();
    });
    assert!(stage.get_now("s").unwrap_err().is_not_found());
    stage.runs.modified(secret("s", "12"));
    let other = Arc::new(crate::object::StoredObject::new(secret("other", "13")));
    stage.runs.write(0, |writer| {
        writer.apply(ObjectEvent::deleted(other)).unwrap();
    });
    assert_eq!(stage.version_now("s"), 12);
}

/// B16: the caller that removes the last reference does not wait for the thread's end; the
/// housekeeper does.
#[test]
fn letting_go_does_not_wait_for_threads() {
    let stage = Stage::by_hand();
    let pod = pod("p", &["s"]);
    stage.manager.register_pod(&pod);
    stage.runs.hold(true);
    stage.manager.unregister_pod(&pod);
    stage.manager.register_pod(&pod);
    assert_eq!(stage.runs.count(), 2);
    assert!(!stage.runs.is_joined("s"));
    stage.runs.hold(false);
    stage.runs.wait_for_join(0);
}

/// OC-25, B16: a fresh read that is under way ends with the manager's shutdown.
#[test]
fn a_shutdown_ends_fresh_reads() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let manager = stage.manager.clone();
    let worker = Worker::spawn("t-fresh", move |_| {
        let never = Deadline::NEVER;
        let error = manager.get_fresh("ns", "s", never).unwrap_err();
        assert!(error.is_stopped());
    });
    stage.getter.wait_for_asked(1);
    stage.manager.stop();
    let worker = worker.unwrap();
    until(|| worker.is_finished());
    worker.join().unwrap();
}

/// B14: an answer knows how old it is, growing in the holder's hands, and what went wrong
/// meanwhile.
#[test]
fn an_answer_knows_its_age_and_the_last_error() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
    let first = stage.get_now("s").unwrap();
    assert_eq!(first.age(), Duration::ZERO);
    stage.clock.advance(Duration::from_secs(30));
    assert_eq!(first.age(), Duration::from_secs(30));
    stage.runs.write(0, |writer| writer.bookmark(&"12".into()));
    assert_eq!(stage.get_now("s").unwrap().age(), Duration::ZERO);
    assert_eq!(first.age(), Duration::from_secs(30));
    let status = ReflectorStatus {
        failures: crate::failures::Failures::of(
            1,
            None,
            Error::new(ErrorKind::Unreachable, "no route"),
        ),
        ..ReflectorStatus::default()
    };
    stage.runs.report("s", &status);
    let served = stage.get_now("s").unwrap();
    assert_eq!(served.last_error().unwrap().to_string(), "no route");
    assert!(!served.is_stale(), "its watch goes on trying");
    stage.runs.report("s", &ReflectorStatus::default());
    assert!(stage.get_now("s").unwrap().last_error().is_none());
}
