//! An absence that came out of a cache of the server: one consistent read confirms it, where a
//! reader was told of it.

use std::time::Duration;

use super::fake::{pod, secret, with_uid};
use super::stage::{Stage, failed, unavailable, until};
use crate::manager::watch::absence::ABSENCE_PAUSE;

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
fn nothing_more(stage: &Stage, asked: usize) {
    stage.manager.register_pod(&pod("other", &["other"]));
    stage.runs.list("other", "10", None).unwrap();
    stage.getter.answer(Err(failed(404, "not found")));
    assert!(stage.get("other").unwrap_err().is_not_found());
    pause(stage);
    let asked = asked.saturating_add(1);
    stage.getter.wait_for_asked(asked);
    let checks = stage.manager.store().checks();
    until(|| (!checks.is_at_work()).then_some(()));
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
    let version = until(|| stage.get("s").ok());
    assert_eq!(super::stage::version(&version), 15);
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
    let checks = stage.manager.store().checks();
    stage.getter.wait_for_asked(1);
    until(|| (!checks.is_at_work()).then_some(()));
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

#[test]
fn a_confirmation_that_fails_is_tried_again_for_a_reader_and_after_a_pause() {
    let stage = stuck();
    stage.getter.answer(Err(unavailable()));
    pause(&stage);
    stage.getter.wait_for_asked(1);
    let checks = stage.manager.store().checks();
    until(|| (!checks.is_at_work()).then_some(()));
    assert!(stage.inspect("s").last_error.is_none(), "the watch is well");
    assert!(stage.get("s").unwrap_err().is_not_found());
    let nearly = ABSENCE_PAUSE.checked_sub(Duration::from_millis(1));
    stage.clock.advance(nearly.unwrap());
    assert_eq!(stage.getter.asked(), 1, "not before the pause has passed");
    stage.getter.answer(Ok(secret("s", "15")));
    pause(&stage);
    assert_eq!(super::stage::version(&until(|| stage.get("s").ok())), 15);
}

/// What readers were told, a fresh read or an event may settle before.
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

#[test]
fn an_object_that_is_let_go_is_asked_for_no_more() {
    let stage = stuck();
    stage.manager.unregister_pod(&pod("p", &["s"]));
    pause(&stage);
    nothing_more(&stage, 0);
}
