//! Streamed lists: WL-1..WL-14, B8.

use super::{Effect, Row, Stage, check, row};

const STREAMED_LISTS: &[Row] = &[
    row(
        "WL-1, LW-5: only where the source supports it",
        "",
        "
        start               -> list 0 limit=500
    ",
    ),
    row(
        "WL-1, B8: not where it is switched off",
        "streams no-watch-list",
        "
        start               -> list 0 limit=500
    ",
    ),
    row(
        "WL-2..WL-4: collect, publish at the final bookmark, go on with the same watch",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read 10s
        added 3             -> stage
        applied             -> read
        undecodable 4       -> stage
        applied             -> read
        modified 5          -> stage
        applied             -> read
        deleted 6           -> stage
        applied             -> read
        final-bookmark 8    -> commit 8 consistent
        committed           -> read
        modified 9          -> apply
        applied             -> read
    ",
    ),
    row(
        "WL-2: at the last version later, at the most recent when that is unavailable",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 8    -> commit 8 consistent
        committed           -> read
        error 410 Expired   -> pause
        paused              -> stream 8
        open-error 410 Expired -> stream most-recent
        opened              -> read
        final-bookmark 9    -> commit 9 consistent expired
    ",
    ),
    row(
        "WL-6: closed before the bookmark: the stream again, with the wait of B9, three times at \
         most",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        added 3             -> stage
        applied             -> read
        +1s ended           -> pause 50ms
        paused              -> stream most-recent
        opened              -> read
        added 3             -> stage
        applied             -> read
        +1s ended           -> pause 100ms
        paused              -> stream most-recent
        opened              -> read
        added 3             -> stage
        applied             -> read
        +1s ended           -> list 0 limit=500
    ",
    ),
    row(
        "WL-6: so is one that is very short, but began",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        added 3             -> stage
        applied             -> read
        +500ms ended        -> pause 50ms
        paused              -> stream most-recent
    ",
    ),
    row(
        "WL-7: refused: backoff, the stream again; a second 429: backoff, a plain list",
        "streams",
        "
        start               -> stream most-recent
        open-error 429      -> pause 800ms
        paused              -> stream most-recent
        open-error refused  -> pause 1.6s
        paused              -> stream most-recent
        opened              -> read
        error 429           -> pause 3.2s
        paused              -> list 0 limit=500
    ",
    ),
    row(
        "WL-8: expired: at once at the most recent, then a backoff and a plain list (B9)",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 8    -> commit 8 consistent
        committed           -> read
        error 403           -> pause
        paused              -> stream 8
        opened              -> read
        error 504 too-large -> stream most-recent
        opened              -> read
        error 410 Expired   -> pause
        paused              -> list most-recent limit=500
    ",
    ),
    row(
        "WL-8: at the most recent already: a backoff",
        "streams",
        "
        start               -> stream most-recent
        open-error 410 Expired -> pause 800ms
    ",
    ),
    row(
        "WL-9: any other error: a plain list for this cycle; the next one streams again",
        "streams",
        "
        start               -> stream most-recent
        open-error 422 Invalid -> list 0 limit=500
        page 1              -> commit 1
        committed           -> watch 1
        opened              -> read
        error 403           -> pause 800ms
        paused              -> stream 1
    ",
    ),
    row(
        "WL-9: a very short stream, a decode error",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        +999ms ended        -> list 0 limit=500
        page-error 500      -> pause
        paused              -> stream most-recent
        opened              -> read
        error 500 InternalError -> list 0 limit=500
    ",
    ),
    row(
        "WL-9, B9: no answer calls for no other request: the plain list comes after a backoff",
        "streams",
        "
        start               -> stream most-recent
        open-error eof      -> pause 800ms
        paused              -> list 0 limit=500
    ",
    ),
    row(
        "WL-9, B9: larger than the options allow: plain lists, each after a backoff, and no \
         stream again",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        added 3             -> stage
        applied             -> read
        error too-long      -> pause 800ms
        paused              -> list 0 limit=500
        page-error too-long -> pause 1.6s
        paused              -> list 0 limit=500
        page-error too-long -> pause 3.2s
    ",
    ),
    row(
        "WL-7, RS-1: a wait the server names comes before the plain list",
        "streams",
        "
        start               -> stream most-recent
        open-error 503 ServiceUnavailable retry-after=4 -> pause 4s
        paused              -> stream most-recent
    ",
    ),
    row(
        "WL-11: a bookmark without the annotation does not end the list",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        bookmark 8          -> read
        final-bookmark 9    -> commit 9 consistent
    ",
    ),
    row(
        "WL-12: after the hand-over it is a watch: reopened as one, and 8.5 holds",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 2    -> commit 2 consistent
        committed           -> read
        modified 3          -> apply
        applied             -> read
        +6s ended           -> watch 3
        opened              -> read
        error 410 Expired   -> soon
        paused              -> stream 3
    ",
    ),
    row(
        "WL-14: a sink that refuses: a plain list",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 2    -> commit 2 consistent
        commit-error sink   -> list 0 limit=500
    ",
    ),
    row(
        "B4, WL-14: a sink that knows better, from elsewhere: a stream at the most recent, once \
         per cycle",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 8    -> commit 8 consistent
        committed           -> read
        error 403           -> pause
        paused              -> stream 8
        opened              -> read
        final-bookmark 9    -> commit 9
        commit-error stale  -> stream most-recent
        opened              -> read
        final-bookmark 12   -> commit 12 consistent
        commit-error stale  -> list 8 limit=0
    ",
    ),
    row(
        "B4: a stream at the most recent calls for no other one: a plain list (WL-14)",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 8    -> commit 8 consistent
        commit-error stale  -> list 0 limit=500
    ",
    ),
    row(
        "B4, B18: a stream that goes back is asked for at the most recent once per cycle, and that \
         is always taken",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 9    -> commit 9 consistent
        committed           -> read
        error 403           -> pause
        paused              -> stream 9
        opened              -> read
        final-bookmark 8    -> stream most-recent
        opened              -> read
        +1s ended           -> pause 50ms
        paused              -> stream 9
        opened              -> read
        final-bookmark 8    -> pause 1.6s
        paused              -> stream 9
        opened              -> read
        final-bookmark 8    -> stream most-recent
        opened              -> read
        final-bookmark 7    -> commit 7 consistent
    ",
    ),
    row(
        "RF-25 in a stream: skipped",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        skipped             -> read
        skipped 7           -> read
        final-bookmark 9    -> commit 9 consistent
    ",
    ),
    row(
        "RF-49: no resync while the stream is collected",
        "streams resync=1s",
        "
        start               -> stream most-recent
        opened              -> read 10s
        +1s added 3         -> stage
        applied             -> read 10s
        +1s final-bookmark 4 -> commit 4 consistent
        committed           -> read 1s
    ",
    ),
    row(
        "a final bookmark without a version is no end",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark      -> list 0 limit=500
    ",
    ),
];

#[test]
fn streamed_lists() {
    check(STREAMED_LISTS);
}

/// WL-5: collected items move no position before the final bookmark.
#[test]
fn the_position_moves_at_the_final_bookmark() {
    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\nadded 1\napplied\nmodified 4\napplied");
    assert_eq!(stage.core.status().resource_version.as_str(), "");
    assert!(!stage.core.status().synced);
    stage.tell("final-bookmark 2\ncommitted");
    assert_eq!(stage.core.status().resource_version.as_str(), "2");
    assert!(stage.core.status().synced);
}

/// B8 and WL-13: without progress for ten seconds the reflector gives streams up for good, and
/// tells the source.
#[test]
fn a_stream_without_progress_is_given_up() {
    let mut stage = Stage::new("streams");
    stage.tell(
        "start -> stream most-recent
        opened -> read 10s
        +4s added 3 -> stage
        applied -> read 10s
        +10s quiet 2s -> read 8s
        +8s quiet 10s -> list 0 limit=500",
    );
    let warned = stage.logged(log::Level::Warn);
    assert_eq!(
        warned,
        [
            "hasn't received required bookmark event marking the end of initial events stream, \
             received last event 18s ago"
        ]
    );
    assert!(
        stage
            .effects
            .iter()
            .any(|e| matches!(e, Effect::WatchListFailed))
    );
    stage.tell(
        "page 5 -> commit 5
        committed -> watch 5
        open-error 500 -> pause
        paused -> list 5 limit=0",
    );

    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\n+10s quiet 10s -> list 0 limit=500");
    let warned = stage.logged(log::Level::Warn);
    let why =
        "awaiting required bookmark event for initial events stream, no events received for 10s";
    assert_eq!(warned, [why]);
    let fallen_back = format!(
        "Data couldn't be fetched in watchlist mode. Falling back to regular list. err={why}"
    );
    assert_eq!(stage.logged(log::Level::Debug), [fallen_back]);
}

/// B8: a server that knows no streams keeps such a watch open until its own time-out.
#[test]
fn a_stream_that_lives_as_long_as_a_watch_is_given_up() {
    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\nadded 3\napplied\n+600s ended -> list 0 limit=500");
    assert!(
        stage
            .effects
            .iter()
            .any(|e| matches!(e, Effect::WatchListFailed))
    );
}

fn has_given_up(stage: &Stage) -> bool {
    let given_up = |effect: &Effect| matches!(effect, Effect::WatchListFailed);
    stage.effects.iter().any(given_up)
}

/// B8: a server that ignores `sendInitialEvents` sends changes and bookmarks, which are not
/// progress of the list.
#[test]
fn changes_are_no_progress() {
    let mut stage = Stage::new("streams");
    stage.tell(
        "start -> stream most-recent
        opened -> read 10s
        +4s added 3 -> stage
        applied -> read 10s
        +4s modified 5 -> stage
        applied -> read 6s
        +5s bookmark 6 -> read 1s
        +1s quiet 1s -> list 0 limit=500",
    );
    assert!(has_given_up(&stage));

    let others = ["modified 5", "deleted 5", "bookmark 5", "skipped 5"];
    for event in others {
        let mut stage = Stage::new("streams");
        stage.tell("start\nopened");
        for _ in 0..9 {
            assert_ne!(collect(&mut stage, event), "list 0 limit=500", "{event}");
        }
        // Events that come without a pause leave no time in which the stream could be quiet.
        assert_eq!(collect(&mut stage, event), "list 0 limit=500", "{event}");
        assert!(has_given_up(&stage), "{event}");
    }
}

/// One event after a second, taken in.
fn collect(stage: &mut Stage, event: &str) -> String {
    match stage.play(&format!("+1s {event}")) {
        action if action == "stage" => stage.play("applied"),
        action => action,
    }
}

/// B8: the stream ends at its own time-out, whatever comes, even if the server ignores it.
#[test]
fn a_stream_is_collected_no_longer_than_its_timeout() {
    let mut stage = Stage::new("streams");
    // All times count from the opening, however late that came.
    stage.tell("start\n+299s opened -> read 10s");
    let began = stage.now;
    let mut last = String::new();
    while last != "list 0 limit=500" {
        last = collect(&mut stage, "added 3");
        let took = stage.now - began;
        assert!(took.as_secs() <= 600, "{last} after {took:?}");
    }
    assert!((stage.now - began).as_secs() >= 300, "the least time-out");
    assert!(has_given_up(&stage));
}

/// B8: a large object may come in slowly, though not for ever.
#[test]
fn the_bytes_of_an_object_are_progress_for_a_minute() {
    let mut stage = Stage::new("streams");
    stage.tell("start\nopened\nadded 3\napplied -> read 10s");
    let mut quiet = "+10s quiet 1s";
    let mut waits = 0;
    while stage.play(quiet) == "read 9s" {
        quiet = "+9s quiet 1s";
        waits += 1;
        assert!(waits < 10, "a minute is over");
    }
    assert_eq!(waits, 5, "the sixth is cut at the minute");
    stage.tell("+5s quiet 1s -> list 0 limit=500");
    assert!(has_given_up(&stage));
}
