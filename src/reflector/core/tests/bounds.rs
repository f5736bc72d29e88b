//! The list that follows the end of an object while others are left out (promise 6).

use super::Stage;
use crate::error::ErrorKind;

/// An open watch, and a sink that has left out `left_out` objects.
fn watching(left_out: usize) -> Stage {
    let mut stage = Stage::new("bookmarks");
    stage.core.bounded(2);
    stage.left_out = left_out;
    stage.tell(
        "start -> list 0 limit=500
         page 5 -> commit 5
         committed -> watch 5
         opened -> read",
    );
    stage
}

/// The seconds, in steps of ten, until the watch ends for a list; `None` if none follows within an
/// hour. Each step brings a bookmark, or each tenth does.
fn seconds_until_list(stage: &mut Stage, is_busy: bool) -> Option<u64> {
    for step in 1..360 {
        let mut action = if is_busy || step % 10 == 0 {
            assert_eq!(stage.play("+10s bookmark 9"), "bookmark 9");
            stage.play("applied")
        } else {
            stage.play("+10s quiet 0s")
        };
        if action.starts_with("pause") {
            assert_eq!(action, "pause 0ns");
            stage.tell("paused -> list 9 limit=0");
            return Some(step * 10);
        }
        if action.starts_with("watch") {
            // The watch has outlived its time-out.
            action = stage.play("opened");
        }
        assert!(action.starts_with("read"), "{action}");
    }
    None
}

fn one_goes(stage: &mut Stage) {
    stage.tell("deleted 9 -> apply\n applied -> read");
}

#[test]
fn a_list_follows_the_end_of_an_object_only_while_others_are_left_out() {
    for is_busy in [false, true] {
        assert_eq!(seconds_until_list(&mut watching(3), is_busy), None);
        let mut all_are_held = watching(0);
        one_goes(&mut all_are_held);
        assert_eq!(seconds_until_list(&mut all_are_held, is_busy), None);
        let mut stage = watching(3);
        one_goes(&mut stage);
        stage.play("+60s quiet 0s");
        one_goes(&mut stage);
        let waited = seconds_until_list(&mut stage, is_busy).unwrap();
        assert!((240..=540).contains(&waited), "{is_busy}: {waited}");
        // Another list does as well.
        let mut stage = watching(3);
        one_goes(&mut stage);
        stage.tell("error 403\npaused -> list 9 limit=0\npage 9\ncommitted\nopened -> read");
        assert_eq!(seconds_until_list(&mut stage, is_busy), None);
    }
}

/// B14: a list on its way is no silence, although objects are left out.
#[test]
fn b14_the_pages_of_a_list_for_what_was_left_out_count() {
    let mut stage = watching(3);
    one_goes(&mut stage);
    seconds_until_list(&mut stage, true).unwrap();
    stage.tell("+100s page 9 more=a -> list most-recent limit=0 continue=a");
    let due = stage.now + super::duration("130s");
    assert_eq!(stage.core.status().contact_deadline, Some(due));
}

#[test]
fn health_tells_of_what_is_left_out_until_a_list_has_all() {
    let mut stage = watching(3);
    let told = "things: the maximum is 2 objects, and 3 more found no room: \
                DecodeOptions::list_items_max raises the limit";
    let check = |stage: &Stage, told: Option<&str>| {
        let status = stage.core.status();
        let health = status.health(stage.now).err();
        assert_eq!(health.as_ref().map(ToString::to_string).as_deref(), told);
        assert!(health.is_none_or(|error| error.kind() == ErrorKind::TooLarge));
        let last = status.failures.last().map(ToString::to_string);
        assert_eq!((last.as_deref(), status.failures.count()), (told, 0));
    };
    check(&stage, Some(told));
    assert_eq!(stage.logged(log::Level::Warn), [told]);
    stage.left_out = 4;
    stage.tell("added 6 -> apply\n applied -> read");
    let more = told.replace("and 3", "and 4");
    check(&stage, Some(&more));
    assert_eq!(
        stage.logged(log::Level::Warn),
        [told],
        "once for the whole time"
    );
    // The next watch ends a failure, but not the lack of objects.
    stage.tell("+10s ended -> watch 6\n open-error 500 -> pause\n paused -> list 6 limit=0");
    stage.tell("page 7 -> commit 7\n committed -> watch 7\n opened -> read");
    check(&stage, Some(&more));
    one_goes(&mut stage);
    seconds_until_list(&mut stage, false).unwrap();
    stage.left_out = 0;
    stage.tell("page 9 -> commit 9\n committed -> watch 9");
    check(&stage, None);
    stage.tell("opened -> read");
    check(&stage, None);
}
