//! Health (B14): the deadline for the server's next sign of life, in each state, so that quiet and
//! silent servers are told apart.

use super::{Effect, Stage, duration};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::reflector::ReflectorOptions;
use std::time::Duration;

/// Plays a story whose lines have the time until the server must give a sign of life: `input =
/// 130s`, `input = overdue`, or `input = timeout`, the requested time-out plus half a minute; or
/// `input = opening`, the same during the wait for the head of its answer.
fn check(options: &str, story: &str) {
    let mut stage = Stage::new(options);
    let mut allowed = Duration::ZERO;
    for line in super::lines(story) {
        let (input, expected) = line.rsplit_once(" = ").unwrap();
        let action = stage.play(input.trim());
        if let Some(read) = action.strip_prefix("read ") {
            allowed = duration(read);
        }
        let status = stage.core.status();
        let due = status.contact_deadline.unwrap();
        let left = due.saturating_duration_since(stage.now);
        let healthy = status.health(stage.now).is_ok();
        match expected.trim() {
            "overdue" => assert!(!healthy, "{line}: {left:?} left\n{story}"),
            "opening" => assert!(
                healthy && left >= duration("330s"),
                "{line}: {left:?}\n{story}"
            ),
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
         committed = opening
         opened = timeout
         +10s bookmark 6 = 130s
         applied = 130s
         +129s quiet 129s = 1s
         +1s quiet 130s = overdue
         +30s open-error silence = overdue
         paused = overdue
         page 6 = overdue
         committed = 130s
         opened = 130s",
    );
}

/// A server whose history is behind ours sends one bookmark and then opens silent watches: an
/// opened watch confirms nothing.
#[test]
fn b14_an_opened_watch_confirms_nothing() {
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         bookmark 6 = 130s
         applied = 130s
         +130s quiet 130s = overdue
         opened = overdue
         +130s quiet 130s = overdue
         probed 4 = overdue
         paused = overdue
         page 4 = overdue
         committed = 130s
         opened = 130s",
    );
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted\n+7s opened");
    let status = stage.core.status();
    assert_eq!(status.age(stage.now), Some(duration("7s")));
}

/// A watch that was found dead leaves a doubt. The opening of the next one does not end it, and
/// neither does a probe that shows changes: they may get lost as well.
#[test]
fn b14_what_a_dead_watch_made_bad_stays_bad_until_the_next_one_serves() {
    // The events of the dead watch do not let the next one be quiet.
    let dead = "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +10s added 6 = opening
         applied = timeout
         +640s quiet 640s = overdue
         opened = overdue";
    check(
        "",
        &format!("{dead}\n+1s added 7 = 130s\napplied = timeout"),
    );
    check("", &format!("{dead}\n+200s quiet 0s = overdue"));
    let silent = "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +130s quiet 130s = overdue";
    let changes = format!("{silent}\nprobed 9 = overdue\nopened = overdue");
    check("bookmarks", &format!("{changes}\n+30s bookmark 9 = 130s"));
    check(
        "bookmarks",
        &format!("{changes}\n+130s quiet 130s = overdue"),
    );
    let twice = format!("{changes}\n+130s quiet 130s = overdue\nprobed 9 = overdue");
    check("bookmarks", &format!("{twice}\nopened = overdue"));
    // Nothing at all has changed.
    check(
        "bookmarks",
        &format!("{silent}\nprobed 5 = 130s\nopened = 130s"),
    );
    let held_back = "start = 130s
         page 5 = 130s
         committed = 130s
         +130s open-error silence = overdue
         probed 9 = overdue
         opened = overdue";
    check("bookmarks", &format!("{held_back}\nadded 9 = 130s"));
}

/// The end of a watch by its server comes behind all events. A quiet server without bookmarks is
/// healthy again with it.
#[test]
fn b14_a_watch_that_its_server_ends_ends_the_doubt_of_a_dead_one() {
    let dead = "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +640s quiet 640s = overdue
         probed 9 = overdue
         opened = overdue";
    check(
        "",
        &format!("{dead}\n+300s ended = overdue\nprobed 9 = opening"),
    );
    check(
        "",
        &format!("{dead}\n+300s ended eof = overdue\nprobed 9 = overdue"),
    );
}

/// A server that was away for longer than the idle limit leaves the same doubt as a dead watch.
/// What it said before lets no later watch be quiet, and a probe that shows changes is not enough.
#[test]
fn b14_what_an_outage_made_bad_stays_bad_until_a_watch_serves() {
    let away = "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         bookmark 6 = 130s
         applied = 130s
         +100s ended eof = 30s
         +20s open-error refused = 10s
         paused = 9200ms
         +30s open-error refused = overdue
         paused = overdue
         opened = overdue
         +6s ended eof = overdue
         probed 9 = overdue
         opened = overdue";
    check("bookmarks", &format!("{away}\n+30s bookmark 9 = 130s"));
    check(
        "bookmarks",
        &format!("{away}\n+30s ended = overdue\nprobed 9 = 130s"),
    );
    // Without bookmarks, neither a list nor an event before the outage lets a watch after it be
    // quiet.
    let listed = "start = 130s
         page 5 = 130s
         committed = opening
         +600s open-error refused = overdue
         paused = overdue
         opened = overdue";
    let served = "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         added 6 = opening
         applied = timeout
         +10s ended eof = opening
         +10s open-error refused = 130s
         paused = 129200ms
         +200s open-error refused = overdue
         paused = overdue
         opened = overdue";
    for away in [listed, served] {
        check(
            "",
            &format!("{away}\n+1s added 7 = 130s\napplied = timeout"),
        );
        check(
            "",
            &format!("{away}\n+300s ended = overdue\nprobed 9 = opening"),
        );
    }
}

/// The end of a watch by its server ends the doubt for an idle limit. An outage that goes on after
/// it, or was there before it, leaves the doubt again.
#[test]
fn b14_an_end_in_an_outage_ends_no_later_doubt() {
    let known = "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +140s ended = overdue
         probe-error refused = overdue
         paused = overdue
         +60s probe-error refused = overdue
         paused = overdue";
    check("bookmarks", &format!("{known}\nprobed 9 = 130s"));
    check(
        "bookmarks",
        &format!(
            "{known}\n+70s probe-error refused = overdue\npaused = overdue\nprobed 9 = overdue"
        ),
    );
    let unknown = "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +640s quiet 640s = overdue
         probed 9 = overdue
         opened = overdue
         +6s ended = overdue
         probe-error refused = overdue
         paused = overdue
         +3600s probe-error refused = overdue
         paused = overdue
         probed 9 = overdue";
    check("", unknown);
    // A list that is late when it reaches the sink.
    check(
        "bookmarks",
        "start = 130s
         page 5 = 130s
         +140s committed = overdue
         opened = overdue
         +6s ended eof = overdue
         probed 9 = overdue",
    );
}

/// A proxy cuts each idle watch before the first bookmark, and each probe shows changes.
#[test]
fn b14_where_watches_only_break_off_a_list_ends_the_doubt_of_an_outage() {
    let away = "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +50s ended eof = 80s
         probe-error refused = 80s
         paused = 79200ms
         +140s probe-error refused = overdue
         paused = overdue
         probed 6 = overdue
         opened = overdue
         +50s ended eof = overdue
         probed 7 = overdue
         opened = overdue
         +50s ended eof = overdue";
    check(
        "bookmarks",
        &format!("{away}\nprobed 8 = overdue\npage 8 = 130s\ncommitted = 130s"),
    );
    let again = "committed\nopened\n+50s ended eof\nprobed 9 -> watch 8\nopened\n+50s ended eof
         probed 10 -> watch 8";
    let mut stage = Stage::new("bookmarks");
    for line in super::lines(away) {
        stage.play(line.split_once(" = ").unwrap().0);
    }
    stage.tell("probed 8 -> list 5 limit=0\npage 8").tell(again);
    stage.core.status().health(stage.now).unwrap();
}

/// Until the first list, a refusal is an answer that lasts until the next request. A reader may
/// expedite that one.
#[test]
fn b14_a_refusal_counts_no_longer_than_until_the_first_list() {
    let mut stage = Stage::new("bookmarks");
    let mut action = stage.play("start");
    loop {
        action = if action.starts_with("list") {
            stage.play("page-error 403 Forbidden")
        } else if stage.pause_until.unwrap() - stage.now > duration("140s") {
            break;
        } else {
            stage.play("paused")
        };
    }
    stage.tell("+60s demanded\npage 5\ncommitted\nopened");
    let due = stage.core.status().contact_deadline.unwrap();
    assert_eq!(due - stage.now, duration("130s"));
}

/// A probe that finds changes confirms nothing, but its server lives: the next watch has the idle
/// limit from then on.
#[test]
fn b14_an_answer_to_a_probe_of_changes_is_a_sign_of_life() {
    check(
        "bookmarks",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +100s ended = 30s
         +10s probed 9 = 120s
         +5s opened = 115s",
    );
}

/// Blank lines, bytes of an endless event, foreign events and errors confirm nothing.
#[test]
fn b14_only_events_bookmarks_and_answers_to_lists_are_contacts() {
    for nothing in [
        "quiet 0s",
        "skipped",
        "error too-long",
        "error 500 InternalError",
        "error 410 Expired",
        "error 403 Forbidden",
        "ended",
        "ended eof",
    ] {
        let mut stage = Stage::new("bookmarks");
        stage.tell("start\npage 5\ncommitted\nopened\nbookmark 6\napplied");
        stage.play(&format!("+9s {nothing}"));
        let status = stage.core.status();
        assert_eq!(status.age(stage.now), Some(duration("9s")), "{nothing}");
    }
    for something in [
        "bookmark 7",
        "added 7",
        "deleted 7",
        "undecodable 7",
        "skipped 7",
    ] {
        let mut stage = Stage::new("bookmarks");
        stage.tell("start\npage 5\ncommitted\nopened\nbookmark 6\napplied");
        stage.play(&format!("+9s {something}"));
        let status = stage.core.status();
        assert_eq!(status.age(stage.now), Some(duration("0s")), "{something}");
    }
}

/// Bytes keep the connection alive, but not the health: with a byte each second it fails at the
/// idle limit.
#[test]
fn b14_a_trickle_of_bytes_is_no_health() {
    check(
        "bookmarks",
        "start = 130s
         page 5 = 130s
         committed = 130s
         opened = 130s
         +129s quiet 0s = 1s
         +1s quiet 0s = overdue
         +1s quiet 0s = overdue
         added 6 = 130s",
    );
}

/// Each confirmation allows only one watch to be quiet to its end.
#[test]
fn b14_a_watch_may_be_quiet_for_its_time_out_once() {
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +10s error 429 = 130s
         paused = 129200ms
         opened = 129200ms
         +4s error 429 = 125200ms
         paused = 123600ms
         opened = 123600ms
         +20s added 6 = 130s
         applied = timeout",
    );
}

/// Content that is known to be behind is not healthy, however lately it was confirmed.
#[test]
fn b14_a_cache_that_is_known_to_be_behind_says_so() {
    check(
        "",
        "start = 130s
         page-error 500 = 130s
         paused = 129200ms
         page 5 = 129200ms
         committed = opening
         opened = timeout
         +1s error 410 Expired = overdue
         paused = overdue
         page-error refused = overdue
         paused = overdue
         page 9 = overdue
         committed = opening
         opened = timeout",
    );
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted\nopened");
    assert!(!stage.core.status().is_behind());
    stage.tell("+1s added 6 -> apply\napply-error sink -> pause 800ms");
    let status = stage.core.status();
    assert_eq!(status.behind_since, Some(stage.now));
    assert!(status.is_behind() && status.failures.last().is_some());
    let later = stage.now + duration("2s");
    let error = status.health(later).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "the cache is known to be behind the server for 2s: it waits for a new list; 1 attempt \
         failed in 2s, the last one: things: a change of the watch could not be applied: the sink \
         refuses"
    );
    assert_eq!(
        error.last_error().map(Error::kind),
        Some(ErrorKind::Protocol)
    );
    stage.tell("paused -> list 6 limit=0\npage 7\ncommitted");
    assert!(!stage.core.status().is_behind());
    // A necessary list failed, or was too old. The refused watch before says nothing.
    let begun = "start\npage 5\ncommitted\nopen-error 403\npaused -> list 5 limit=0";
    let streams = "start\nopened\nfinal-bookmark 9\ncommitted\nmodified 9\napplied
        +6s ended\nopen-error 403\npaused -> stream 9";
    let older = format!(
        "{streams}\nopened\nfinal-bookmark 8\nopened\n+1s ended\npaused -> stream 9\nopened"
    );
    for (options, story, last) in [
        ("", begun, "page-error refused"),
        ("", &format!("{begun}\npage 6"), "commit-error sink"),
        ("streams", streams, "open-error 429"),
        ("streams", &older, "final-bookmark 8"),
    ] {
        let mut stage = Stage::new(options);
        stage.tell(story);
        assert!(!stage.core.status().is_behind());
        assert!(stage.play(last).starts_with("pause"), "{last}");
        assert!(stage.core.status().is_behind(), "{last}");
    }
    // A server that is away is not known to have changed.
    stage.tell("opened\n+300s ended\nprobe-error refused");
    assert!(!stage.core.status().is_behind());
    let mut stage = Stage::new("one-object");
    stage.tell("start\npage 5\ncommitted\nopened\n+300s ended\npage-error refused");
    assert!(!stage.core.status().is_behind());
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
    // Also while the watch is opened.
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted");
    stage.bookmarks = Some(Duration::ZERO);
    stage.tell("opened -> read 130s");
}

#[test]
fn b11_the_source_is_told_once_of_bookmarks_that_come_by_themselves() {
    let told = |stage: &Stage| {
        let told = |effect: &&Effect| matches!(effect, Effect::BookmarkCame(_));
        stage.effects.iter().filter(told).count()
    };
    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\nfinal-bookmark 5\ncommitted");
    assert_eq!(told(&stage), 0, "every streamed list ends in one");
    stage.tell("bookmark 6\napplied");
    assert_eq!(told(&stage), 1);
    stage.tell("bookmark 7\napplied\n+100s ended eof\nopened\nbookmark 8\napplied");
    assert_eq!(told(&stage), 1);
    stage.tell("+100s bookmark 9\napplied");
    assert_eq!(told(&stage), 2, "and of intervals that matter");
}

#[test]
fn b14_a_quiet_server_without_bookmarks_is_healthy_through_its_own_time_out() {
    let mut stage = Stage::new("");
    let read = stage.tell("start\npage 5\ncommitted").play("opened");
    let allowed = duration(read.strip_prefix("read ").unwrap());
    let opened = stage.now;
    for gone in [Duration::from_secs(131), allowed - Duration::from_secs(1)] {
        let status = stage.core.status();
        status.health(opened + gone).unwrap();
    }
    // The server ends the watch as it was asked to. The probe after that is the sign of life.
    stage.now = opened + allowed - Duration::from_secs(30);
    stage.play("ended");
    let status = stage.core.status();
    assert_eq!(status.age(stage.now), Some(stage.now - opened));
    status.health(stage.now + duration("29s")).unwrap();
    stage.play("probed 5");
    let status = stage.core.status();
    assert_eq!(status.age(stage.now), Some(Duration::ZERO));
    // The server does not end it, and the connection counts as dead.
    let mut stage = Stage::new("");
    let read = stage.tell("start\npage 5\ncommitted").play("opened");
    stage.now += duration(read.strip_prefix("read ").unwrap());
    stage.step(super::Input::Quiet {
        last_contact: opened,
    });
    assert!(stage.core.status().health(stage.now).is_err());
}

#[test]
fn b14_a_watch_that_broke_off_in_its_time_leaves_the_idle_limit_and_failures_extend_nothing() {
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +200s ended eof = 130s
         probe-error refused = 130s
         paused = 129200ms
         probed 5 = opening",
    );
    check(
        "",
        "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +1s bookmark 6 = 130s
         applied = 130s
         +100s ended eof = 30s
         +20s open-error 500 = 10s
         paused = 9200ms",
    );
}

#[test]
fn b14_before_the_first_answer_the_idle_limit_counts_from_the_start() {
    check(
        "",
        "start = 130s
         +60s page-error 500 = 70s
         paused = 69200ms
         +70s page-error 500 = overdue
         paused = overdue
         page 5 = overdue
         committed = opening",
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
         paused = overdue
         +1s page 5 more=a = overdue
         page 5 = overdue
         committed = opening",
    );
    // An expired position is not a failure of the server, but the cache is behind until the whole
    // list has come.
    check(
        "page=1",
        "start = 130s
         page 5 = 130s
         committed = opening
         opened = timeout
         +1s error 410 Expired = overdue
         paused = overdue
         +100s page 9 more=a = overdue
         page 9 = overdue
         committed = opening",
    );
    check(
        "streams",
        "start = 130s
         opened = 130s
         +9s quiet 0s = 130s
         +5s added 3 = 130s
         applied = 130s
         +5s added 4 = 130s
         applied = 130s
         final-bookmark 9 = 130s
         committed = 130s",
    );
}

/// A refusal that is an answer to readers (R4) keeps a health check green while there is no content
/// to grow old.
#[test]
fn b14_r4_a_refusal_is_an_answer_where_nothing_is_held_and_a_failure_where_something_is() {
    let refused = "+100s page-error 403 Forbidden";
    let mut stage = Stage::new("");
    stage.tell(&format!("start\n{refused}\npaused"));
    assert!(stage.core.status().refusal.is_none());
    stage.tell(refused);
    let status = stage.core.status();
    assert!(status.refusal.is_some() && !status.synced);
    // From the next try on.
    let due = stage.now + duration("1600ms") + duration("130s");
    assert_eq!(status.contact_deadline, Some(due));
    // Also where the server names the time of the next try.
    stage.tell("paused\npage-error 403 Forbidden retry-after=300 -> pause 300s");
    let status = stage.core.status();
    assert!(!status.is_overdue(stage.now + duration("299s")));

    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted\nopened\nerror 403 Forbidden\npaused");
    stage.tell(&format!("{refused}\npaused\n{refused}"));
    let status = stage.core.status();
    assert!(status.refusal.is_some());
    let error = status.health(stage.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        error
            .to_string()
            .starts_with("the cache is known to be behind the server for 20")
    );
    let cause = error.last_error().unwrap().to_string();
    assert_eq!(cause, "failed to list things: 403 Forbidden");
}

#[test]
fn b14_an_ended_reflector_owes_nothing_and_one_that_began_says_since_when() {
    let mut stage = Stage::new("");
    stage.tell("start");
    stage.now += duration("130s");
    let error = stage.core.status().health(stage.now).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server has confirmed nothing for 130s"
    );
    assert!(error.last_error().is_none());
    let progress = RequestProgress::new("api.test:6443".into());
    progress.enter(RequestPhase::LookingUp);
    stage.core.shows(Some(progress));
    let error = stage.core.status().health(stage.now).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server has confirmed nothing for 130s: looking up api.test:6443"
    );
    stage.tell("stop");
    stage.core.status().health(stage.now).unwrap();
}

/// B11: an endless idle limit never ends, and is not taken for zero.
#[test]
fn b11_the_longest_idle_limit_there_is_never_ends() {
    let mut stage = Stage::new("");
    let options = ReflectorOptions {
        idle_limit: Duration::MAX,
        ..ReflectorOptions::default()
    };
    stage.core = super::Core::new(&options, "things".to_owned(), false, stage.now);
    let read = stage
        .tell("start\npage 5\ncommitted\nopened\nbookmark 6")
        .play("applied");
    let read = duration(read.strip_prefix("read ").unwrap());
    assert!(
        (330..631).contains(&read.as_secs()),
        "the watch's own end: {read:?}"
    );
    let due = stage.core.status().contact_deadline.unwrap();
    assert!(due - stage.now > duration("525600m"));
}

/// The age of a list counts from the request of its first page, like the age of a get. Later pages
/// bring nothing newer.
#[test]
fn what_a_list_brought_is_as_old_as_its_request() {
    let mut stage = Stage::new("");
    let asked_at = stage.now;
    stage.tell(
        "start -> list 0 limit=500
        +3s page 5 more=x -> list most-recent limit=500 continue=x
        +3s page 5 -> commit 5
        +1s committed -> watch 5",
    );
    assert_eq!(stage.core.status().last_contact, Some(asked_at));
    stage.tell("opened -> read\n+1s error 403 -> pause 800ms\npaused -> list at-least 5 limit=500");
    let asked_at = stage.now;
    stage.tell("page-error 429 retry-after=2 -> pause 2s\npaused\n+5s page 6\ncommitted");
    let asked_again_at = asked_at + Duration::from_secs(2);
    assert_eq!(stage.core.status().last_contact, Some(asked_again_at));
    stage.tell("opened -> read\n+6s ended -> probe");
    let probed_at = stage.now;
    stage.tell("+4s probed 6 -> watch 6");
    assert_eq!(stage.core.status().last_contact, Some(probed_at));
    // The content is as it was, and the server is not: a sign of life, and no confirmation.
    stage.tell("opened -> read\n+6s ended -> probe");
    let due = stage.core.status().contact_deadline;
    stage.tell("probed 9 -> watch 6");
    let status = stage.core.status();
    assert_eq!(status.last_contact, Some(probed_at));
    assert!(status.contact_deadline > due);
}

/// Plays a server whose lists come and whose watches fail: with the first input at their opening,
/// or with the second once they are open. Ends in the pause that would last beyond `time`.
fn fail_watches(stage: &mut Stage, (opens, ends): (&str, &str), time: &str) {
    let end = stage.now + duration(time);
    let mut action = stage.play("start");
    loop {
        let input = match action.split(' ').next().unwrap() {
            "list" => "page 5",
            "commit" => "committed",
            "watch" => opens,
            "read" => ends,
            "pause" if stage.pause_until.unwrap() > end => break,
            "pause" => "paused",
            _ => panic!("{action}"),
        };
        action = stage.play(input);
    }
    stage.now = end;
}

/// Lists between the watches confirm the content, and hide no failure of the watches.
#[test]
fn b14_watches_that_keep_failing_are_unhealthy_until_one_serves() {
    let rows = [
        ("open-error 403 Forbidden", "", "403 Forbidden"),
        ("open-error 404 NotFound", "", "404 NotFound"),
        ("open-error 410 Expired", "", "410 Expired"),
        ("open-error 500", "", "500"),
        ("open-error refused", "", "could not connect"),
        ("opened", "error 410 Expired", "410 Expired"),
        ("opened", "ended eof", "very short watch"),
    ];
    for (opens, ends, cause) in rows {
        let mut stage = Stage::new("bookmarks");
        fail_watches(&mut stage, (opens, ends), "20s");
        let error = stage.core.status().health(stage.now).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(cause) && !text.contains('\n'), "{text}");
        assert!(error.attempts() >= 3, "{text}");
        assert_eq!(stage.now - error.since().unwrap(), duration("20s"));
        assert!(error.last_error().unwrap().to_string().contains(cause));

        let mut action = stage.play("paused");
        while action != "read 130s" {
            action = stage.play(match action.split(' ').next().unwrap() {
                "list" => "page 5",
                "commit" => "committed",
                _ => "opened",
            });
        }
        let status = stage.core.status().clone();
        assert!(
            status.health(stage.now).is_err(),
            "{cause}: only just opened"
        );
        assert!(status.health(stage.now + duration("5s")).is_ok(), "{cause}");
        stage.play("bookmark 6");
        assert!(stage.core.status().health(stage.now).is_ok(), "{cause}");
    }
}

/// A lost connection, and a server that is back within ten seconds, raise no alarm.
#[test]
fn b14_a_few_failures_or_a_few_seconds_of_them_are_healthy() {
    for (failure, time) in [
        ("open-error refused", "9s"),
        ("open-error 403 Forbidden", "9s"),
    ] {
        let mut stage = Stage::new("bookmarks");
        fail_watches(&mut stage, (failure, ""), time);
        assert!(stage.core.status().failures.count() > 0);
        stage.core.status().health(stage.now).unwrap();
    }
    let mut stage = Stage::new("bookmarks");
    stage.tell("start\npage 5\ncommitted\nopen-error 429 retry-after=20");
    stage.now += duration("19s");
    stage.core.status().health(stage.now).unwrap();
}

/// Before the first list, too: an answer to the readers of one object is no health of a collection.
#[test]
fn b14_lists_that_keep_failing_say_why() {
    for cause in ["403 Forbidden", "404 NotFound", "401 Unauthorized", "500"] {
        let mut stage = Stage::new("");
        let mut action = stage.play("start");
        let began = stage.now;
        while stage.now < began + duration("20s") {
            action = if action.starts_with("list") {
                stage.play(&format!("page-error {cause}"))
            } else {
                stage.play("paused")
            };
        }
        let error = stage.core.status().health(stage.now).unwrap_err();
        assert!(error.to_string().contains(cause), "{error}");
        assert!(error.attempts() >= 3);
        let is_answer = stage.core.status().refusal.is_some();
        assert_eq!(stage.core.status().is_overdue(stage.now), !is_answer, "R4");
    }
}
