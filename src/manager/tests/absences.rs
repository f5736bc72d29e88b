//! An absence that came out of a cache of the server: one consistent read confirms it, where a
//! reader was told of it, or where the cache was behind.

use std::time::Duration;

use super::fake::{commit, commit_into, opened, pod, secret, with_uid};
use super::stage::{Stage, failed, unavailable, version};
use crate::manager::watch::entry::ABSENCE_PAUSE;
use crate::reflector::Sink as _;
use crate::tests::until::{until, until_some};

/// A manager whose Secret `s` is on the server, and in no list of its stuck cache.
fn stuck() -> Stage {
    let stage = Stage::listed(None);
    assert!(stage.get("s").unwrap_err().is_not_found());
    stage
}

/// The pause passes, and what it has due is done.
fn pause(stage: &Stage) {
    stage.clock.advance(ABSENCE_PAUSE);
}

/// Everything that is due is done: another object's absence is confirmed.
#[track_caller]
fn nothing_more(stage: &Stage, asked: usize) {
    stage.manager.register_pod(&pod("other", &["other"]));
    stage.runs.list("other", "10", None).unwrap();
    stage.getter.answer(Err(failed(404, "not found")));
    assert!(stage.get("other").unwrap_err().is_not_found());
    pause(stage);
    let asked = asked.saturating_add(1);
    stage.getter.wait_for_asked(asked);
    let checks = stage.manager.store().keeper();
    until(|| !checks.is_at_work());
    assert_eq!(stage.getter.asked(), asked);
}

/// Seen: `NotFound`, and healthy, for as long as bookmarks came.
#[test]
fn an_object_that_a_stuck_cache_leaves_out_is_found_once_a_reader_missed_it() {
    let stage = stuck();
    for _ in 0..5 {
        assert!(stage.get("s").unwrap_err().is_not_found());
    }
    assert_eq!(stage.getter.asked(), 0, "after a pause");
    stage.getter.answer(Ok(secret("s", "15")));
    pause(&stage);
    assert_eq!(version(&until_some(|| stage.get("s").ok())), 15);
    assert_eq!(stage.getter.asked_in_background(), 1, "no reader waits");
    nothing_more(&stage, 1);
}

#[test]
fn an_absence_that_no_reader_was_told_of_costs_no_request() {
    let stage = Stage::listed(None);
    pause(&stage);
    nothing_more(&stage, 0);
}

#[test]
fn an_absence_that_is_confirmed_is_asked_for_no_more() {
    let stage = stuck();
    stage.getter.answer(Err(failed(404, "not found")));
    pause(&stage);
    let checks = stage.manager.store().keeper();
    stage.getter.wait_for_asked(1);
    until(|| !checks.is_at_work());
    // The same absence, in another list of the cache.
    stage.runs.list("s", "11", None).unwrap();
    assert!(stage.get("s").unwrap_err().is_not_found());
    assert!(stage.get_cached("s").is_none());
    pause(&stage);
    nothing_more(&stage, 1);
    // Another absence.
    stage.runs.modified(with_uid(secret("s", "20"), "again"));
    stage.runs.list("s", "21", None).unwrap();
    assert!(stage.get_cached("s").is_none());
    stage.getter.answer(Err(failed(404, "not found")));
    pause(&stage);
    stage.getter.wait_for_asked(3);
}

/// Seen: what was asked before the object came and went settled that it was gone.
#[test]
fn a_confirmation_that_began_before_the_doubt_settles_nothing() {
    let stage = stuck();
    pause(&stage);
    stage.getter.wait_for_asked(1);
    stage.runs.modified(secret("s", "12"));
    stage.runs.list("s", "13", None).unwrap();
    assert!(stage.get("s").unwrap_err().is_not_found());
    stage.getter.answer(Err(failed(404, "not found")));
    let checks = stage.manager.store().keeper();
    until(|| !checks.is_at_work());
    let object = stage.manager.store().entry_to_read("ns", "s").unwrap();
    assert!(object.state.lock().is_absence_due());
    stage.getter.answer(Ok(secret("s", "15")));
    pause(&stage);
    assert_eq!(version(&until_some(|| stage.get("s").ok())), 15);
}

#[test]
fn a_confirmation_that_fails_is_tried_again_for_a_reader_and_after_a_pause() {
    let stage = stuck();
    stage.getter.answer(Err(unavailable()));
    pause(&stage);
    stage.getter.wait_for_asked(1);
    let checks = stage.manager.store().keeper();
    until(|| !checks.is_at_work());
    assert!(stage.inspect("s").last_error.is_none(), "the watch is well");
    assert!(stage.get("s").unwrap_err().is_not_found());
    let nearly = ABSENCE_PAUSE.checked_sub(Duration::from_millis(1));
    stage.clock.advance(nearly.unwrap());
    assert_eq!(stage.getter.asked(), 1, "not before the pause has passed");
    stage.getter.answer(Ok(secret("s", "15")));
    pause(&stage);
    assert_eq!(version(&until_some(|| stage.get("s").ok())), 15);
}

/// A fresh read or an event may settle the doubt before the confirmation.
#[test]
fn what_settles_the_absence_meanwhile_saves_the_request() {
    let stage = stuck();
    let read = stage.begin("s", "").unwrap();
    let absent = stage.complete(&read, Err(failed(404, "not found")));
    assert!(absent.unwrap_err().is_not_found());
    pause(&stage);
    nothing_more(&stage, 0);
    let stage = stuck();
    stage.runs.modified(secret("s", "12"));
    pause(&stage);
    nothing_more(&stage, 0);
}

/// Seen: a read at a version, which a cache that is behind may answer, settled that it was gone.
#[test]
fn an_absence_at_a_version_settles_nothing_and_is_doubtful_itself() {
    let absent_at_a_version = |stage: &Stage| {
        let read = stage.begin("s", "10").unwrap();
        let absent = stage.complete(&read, Err(failed(404, "not found")));
        assert!(absent.unwrap_err().is_not_found());
    };
    let stage = stuck();
    absent_at_a_version(&stage);
    stage.getter.answer(Ok(secret("s", "15")));
    pause(&stage);
    assert_eq!(version(&until_some(|| stage.get("s").ok())), 15);
    // What it took away comes back, too.
    absent_at_a_version(&stage);
    assert!(stage.get("s").unwrap_err().is_not_found());
    stage
        .getter
        .answer(Ok(with_uid(secret("s", "16"), "again")));
    pause(&stage);
    assert_eq!(version(&until_some(|| stage.get("s").ok())), 16);
}

#[test]
fn an_object_that_is_let_go_is_asked_for_no_more() {
    let stage = stuck();
    stage.manager.unregister_pod(&pod("p", &["s"]));
    pause(&stage);
    nothing_more(&stage, 0);
}

/// A manager that knows nothing yet of its Secrets `s` and `t`.
fn unlisted() -> Stage {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.manager.register_pod(&pod("q", &["t"]));
    stage
}

/// How a version becomes known: its name, and what does it.
type Way = (&'static str, fn(&Stage));

/// Another server, or another object's watch, told of a newer version than the list has.
#[test]
fn an_absence_out_of_a_list_that_is_behind_is_confirmed_without_a_reader() {
    let long = "340282366920938463463374607431768211456";
    let ways: [Way; 7] = [
        ("a list", |stage| {
            stage.runs.list("t", "20", None).unwrap();
        }),
        ("an event", |stage| stage.runs.modified(secret("t", "20"))),
        ("a deletion", |stage| stage.runs.deleted(secret("t", "20"))),
        ("a bookmark", |stage| {
            stage.runs.list("t", "5", None).unwrap();
            stage.runs.write(1, |writer| writer.bookmark(&"20".into()));
        }),
        ("a fresh read", |stage| {
            let read = stage.begin("t", "").unwrap();
            stage.complete(&read, Ok(secret("t", "20"))).unwrap();
        }),
        ("a long version", |stage| {
            let long = "340282366920938463463374607431768211456";
            stage.runs.list("t", long, None).unwrap();
        }),
        ("a list and then an older event", |stage| {
            stage.runs.list("t", "20", None).unwrap();
            stage.manager.register_pod(&pod("r", &["u"]));
            stage.runs.modified(secret("u", "4"));
        }),
    ];
    for (what, see) in ways {
        let stage = unlisted();
        see(&stage);
        let version = if what == "a long version" {
            &long[1..]
        } else {
            "10"
        };
        stage.runs.list("s", version, None).unwrap();
        stage.getter.answer(Ok(secret("s", "15")));
        pause(&stage);
        stage.getter.wait_for_asked(1);
        until(|| !stage.inspect("s").resource_version.is_unset());
        assert_eq!(stage.getter.asked_in_background(), 1, "{what}");
        nothing_more(&stage, 1);
    }
}

#[test]
fn an_absence_out_of_a_list_that_is_not_behind_costs_no_request() {
    let ways: [Way; 5] = [
        ("as new", |stage| {
            stage.runs.list("t", "10", None).unwrap();
            stage.runs.list("s", "10", None).unwrap();
        }),
        ("without an order", |stage| {
            stage.runs.list("t", "odd", None).unwrap();
            stage.runs.list("s", "10", None).unwrap();
        }),
        ("a consistent list", |stage| {
            stage.runs.list("t", "20", None).unwrap();
            let listed = |writer: &mut _| commit(writer, "10", None, true);
            stage.runs.write(0, listed).unwrap();
        }),
        ("an object", |stage| {
            stage.runs.list("t", "20", None).unwrap();
            stage.runs.list("s", "10", Some(secret("s", "9"))).unwrap();
        }),
        ("newer things happen while it is under way", |stage| {
            let listed = stage.runs.write(0, |writer| {
                let staging = writer.begin();
                stage.runs.list("t", "20", None).unwrap();
                commit_into(writer, staging, "10", None, false)
            });
            listed.unwrap();
        }),
    ];
    for (what, see) in ways {
        let stage = unlisted();
        see(&stage);
        pause(&stage);
        assert_eq!(stage.getter.asked(), 0, "{what}");
        nothing_more(&stage, 0);
    }
}

/// The list of a successor counts once its watch is open, by what was known when it began.
#[test]
fn an_absence_out_of_a_held_list_that_is_behind_is_confirmed_too() {
    let stage = super::namespaces::stage_above(1);
    stage.add("a", "pod");
    stage.runs.list("a", "10", Some(secret("a", "9"))).unwrap();
    stage.add("b", "pod");
    stage
        .runs
        .modified_in_namespace(0, secret("stranger", "30"));
    stage.runs.only_list_namespace(0, "20", []).unwrap();
    stage.runs.write_namespace(0, |sink| sink.report(&opened()));
    stage.getter.answer(Ok(secret("a", "25")));
    stage.getter.answer(Ok(secret("b", "25")));
    pause(&stage);
    stage.getter.wait_for_asked(2);
    assert_eq!(stage.getter.asked_in_background(), 2);
}
