//! Health (B14): by when the server has to be heard from, in each state, so that a quiet server is not taken for a silent
//! one nor a silent one for a quiet one.

use super::{Bench, Effect, duration};
use crate::error::ErrorKind;
use crate::reflector::ReflectorOptions;
use std::error::Error as _;
use std::time::Duration;

/// Plays a story whose lines say in how long the server has to be heard from: `input = 130s`, `input = overdue`, or
/// `input = timeout`: the time-out that was asked of the server, and half a minute.
fn check(options: &str, story: &str) {
    let mut bench = Bench::new(options);
    let mut allowed = Duration::ZERO;
    for line in super::lines(story) {
        let (input, expected) = line.rsplit_once(" = ").unwrap();
        let action = bench.play(input.trim());
        if let Some(read) = action.strip_prefix("read ") {
            allowed = duration(read);
        }
        let status = bench.core.status();
        let due = status.contact_due.unwrap();
        let left = due.saturating_duration_since(bench.now);
        let healthy = status.check_health(bench.now).is_ok();
        match expected.trim() {
            "overdue" => assert!(!healthy, "{line}: {left:?} left\n{story}"),
            "timeout" => {
                assert!(healthy && left == allowed, "{line}: {left:?}\n{story}");
                assert!(left >= duration("330s"), "{line}: {left:?}\n{story}");
            }
            expected => {
                let expected = duration(expected);
                assert!(healthy && left == expected, "{line}: {left:?}\n{story}");
            }
        }
    }
}

#[test]
fn b14_a_silent_server_is_noticed_at_the_idle_limit_once_bookmarks_came() {
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = timeout
         +60s bookmark 6 = 130s
         applied = 130s
         +129s quiet 129s = 1s
         +1s quiet 130s = overdue
         +30s open-error silence = overdue
         rested = overdue
         page 6 = overdue
         committed = 130s
         opened = 130s",
    );
}

/// B11: a bookmark is remembered by server and resource, beyond the run that saw it.
#[test]
fn b11_where_bookmarks_came_to_another_run_silence_means_something_from_the_first_watch_on() {
    check(
        "bookmarks",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +130s quiet 130s = overdue",
    );
}

#[test]
fn b11_the_source_is_told_once_of_bookmarks_that_come_by_themselves() {
    let told = |bench: &Bench| {
        let told = |effect: &&Effect| matches!(effect, Effect::BookmarkCame);
        bench.effects.iter().filter(told).count()
    };
    let mut bench = Bench::new("streams");
    bench.tell("start\nopened\nfinal-bookmark 5\ncommitted");
    assert_eq!(told(&bench), 0, "every streamed list ends in one");
    bench.tell("bookmark 6\napplied");
    assert_eq!(told(&bench), 1);
    bench.tell("bookmark 7\napplied\n+100s ended eof\nopened\nbookmark 8\napplied");
    assert_eq!(told(&bench), 1);
}

#[test]
fn b14_a_quiet_server_without_bookmarks_is_healthy_through_its_own_time_out() {
    let mut bench = Bench::new("");
    let read = bench.tell("start\npage 5\ncommitted").play("opened");
    let allowed = duration(read.strip_prefix("read ").unwrap());
    let opened = bench.now;
    for gone in [Duration::from_secs(131), allowed - Duration::from_secs(1)] {
        let status = bench.core.status();
        status.check_health(opened + gone).unwrap();
    }
    // It ends the watch as it was asked to: that is a sign of life.
    bench.now = opened + allowed - Duration::from_secs(30);
    bench.play("ended");
    let status = bench.core.status();
    assert_eq!(status.age(bench.now), Some(Duration::ZERO));
    assert_eq!(status.contact_due, Some(bench.now + duration("130s")));
    // It does not, and the connection is taken for dead.
    let mut bench = Bench::new("");
    let read = bench.tell("start\npage 5\ncommitted").play("opened");
    bench.now += duration(read.strip_prefix("read ").unwrap());
    bench.step(super::Input::Quiet {
        last_contact: opened,
    });
    assert!(bench.core.status().check_health(bench.now).is_err());
}

#[test]
fn b14_a_watch_that_broke_off_in_its_time_leaves_the_idle_limit_and_failures_extend_nothing() {
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = timeout
         +200s ended eof = 130s
         open-error refused = 130s
         rested = 129200ms",
    );
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = timeout
         +1s bookmark 6 = 130s
         applied = 130s
         +100s ended eof = 30s
         +20s open-error 500 = 10s
         rested = 9200ms",
    );
}

#[test]
fn b14_before_the_first_answer_the_idle_limit_counts_from_the_start() {
    check(
        "",
        "start = 130s
         +60s page-error 500 = 70s
         rested = 69200ms
         +70s page-error 500 = overdue
         rested = overdue
         page 5 = overdue
         committed = 130s",
    );
}

#[test]
fn b14_a_list_on_its_way_is_no_silence_unless_the_one_before_failed() {
    check(
        "page=1",
        "start = 130s
         +100s page 5 more=a = 130s
         +100s page 5 more=b = 130s
         +129s page-error 500 = overdue
         rested = overdue
         +1s page 5 more=a = overdue
         page 5 = overdue
         committed = 130s",
    );
    // A position that expired is no failure of the server.
    check(
        "page=1",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = timeout
         +1s error 410 Expired = 130s
         rested = 129200ms
         +100s page 9 more=a = 130s",
    );
    check(
        "streams",
        "start = 130s
         opened = 130s
         +5s added 3 = 130s
         applied = 130s
         +5s added 4 = 130s
         applied = 130s
         final-bookmark 9 = 130s
         committed = 130s",
    );
}

/// A refusal that is an answer to readers (R4) is one to a health check, as long as nothing is held that grows old.
#[test]
fn b14_r4_a_refusal_is_an_answer_where_nothing_is_held_and_a_failure_where_something_is() {
    let refused = "+100s page-error 403 Forbidden";
    let mut bench = Bench::new("");
    bench.tell(&format!("start\n{refused}\nrested"));
    assert!(bench.core.status().denied.is_none());
    bench.tell(refused);
    let status = bench.core.status();
    assert!(status.denied.is_some() && !status.synced);
    assert_eq!(status.contact_due, Some(bench.now + duration("130s")));

    let mut bench = Bench::new("");
    bench.tell("start\npage 5\ncommitted\nopened\nerror 403 Forbidden\nrested");
    bench.tell(&format!("{refused}\nrested\n{refused}"));
    let status = bench.core.status();
    assert!(status.denied.is_some());
    let error = status.check_health(bench.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error
            .to_string()
            .starts_with("the server last confirmed the content 20")
    );
    let cause = error.source().unwrap().to_string();
    assert_eq!(cause, "failed to list things: 403 Forbidden");
}

#[test]
fn b14_an_ended_reflector_owes_nothing_and_one_that_began_says_since_when() {
    let mut bench = Bench::new("");
    bench.tell("start");
    bench.now += duration("130s");
    let error = bench.core.status().check_health(bench.now).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server has confirmed nothing for 130s"
    );
    assert!(error.source().is_none());
    bench.tell("stop");
    bench.core.status().check_health(bench.now).unwrap();
}

/// B11: an idle limit that is there to be none is none, and not one of zero.
#[test]
fn b11_the_longest_idle_limit_there_is_never_ends() {
    let mut bench = Bench::new("");
    let options = ReflectorOptions {
        idle_limit: Duration::MAX,
        ..ReflectorOptions::default()
    };
    bench.core = super::Core::new(&options, "things".to_owned(), bench.now);
    let read = bench
        .tell("start\npage 5\ncommitted\nopened\nbookmark 6")
        .play("applied");
    assert!(
        duration(read.strip_prefix("read ").unwrap()) > duration("525600m"),
        "{read}"
    );
}
