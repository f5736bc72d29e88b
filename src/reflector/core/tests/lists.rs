//! Lists and pages: RF-5..RF-20, PG-1..PG-8, B4, B18.

use super::{Row, Stage, check, row};

const LISTS_AND_THEIR_VERSIONS: &[Row] = &[
    row(
        "RF-9: 0 first, then the last version",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        +10s modified 10    -> apply
        applied             -> read
        error 410 Expired   -> soon
        paused              -> list 10 limit=0
        page 11             -> commit 11 expired
        committed           -> watch 11
    ",
    ),
    row(
        "RF-9: the most recent after a version was found unavailable",
        "",
        "
        start               -> list 0 limit=500
        page 10             -> commit 10
        committed           -> watch 10
        open-error 403      -> pause
        paused              -> list 10 limit=0
        page-error 410 Expired -> list most-recent limit=0
        page-error 500      -> pause
        paused              -> list most-recent limit=500
        page 12             -> commit 12 consistent expired
        committed           -> watch 12
        open-error 403      -> pause
        paused              -> list 12 limit=0
    ",
    ),
    row(
        "RF-10, PG-2: a page size of one's own holds at every version, and no page is an old one",
        "page=4",
        "
        start               -> list 0 limit=4
        page 10             -> commit 10
        committed           -> watch 10
        open-error 500      -> pause
        paused              -> list at-least 10 limit=4
    ",
    ),
    row(
        "RF-10: a page size of zero is none",
        "page=0",
        "
        start               -> list 0 limit=500
    ",
    ),
    row(
        "RF-10: without a watch cache later lists are paged too",
        "",
        "
        start               -> list 0 limit=500
        page 10 more=C1     -> list most-recent limit=500 continue=C1
        page 10             -> commit 10
        committed           -> watch 10
        open-error 500      -> pause
        paused              -> list at-least 10 limit=500
    ",
    ),
    row(
        "RF-11: only a list at 0 tells that there is no watch cache",
        "page=2",
        "
        start               -> list 0 limit=2
        page-error 410 Gone -> list most-recent limit=2
        page 10 more=C1     -> list most-recent limit=2 continue=C1
        page 10             -> commit 10 consistent expired
    ",
    ),
    row(
        "RF-12: TestReflectorFullListIfTooLarge",
        "",
        "
        start               -> list 0 limit=500
        page 20             -> commit 20
        committed           -> watch 20
        open-error 500      -> pause
        paused              -> list 20 limit=0
        page-error 504 too-large -> list most-recent limit=0
        page 30             -> commit 30 consistent expired
        committed           -> watch 30
    ",
    ),
    row(
        "RF-12: the second list's error is final",
        "",
        "
        start               -> list 0 limit=500
        page-error 410 Expired -> list most-recent limit=500
        page-error 410 Expired -> pause 800ms
        paused              -> list most-recent limit=500
        page-error 410 Expired -> pause 1.6s
    ",
    ),
    row(
        "RF-16, RF-42: any other failure is a backoff and a new cycle",
        "",
        "
        start               -> list 0 limit=500
        page-error 500      -> pause 800ms
        paused              -> list 0 limit=500
        page-error eof      -> pause 1.6s
        paused              -> list 0 limit=500
        page-error 503      -> pause 3.2s
    ",
    ),
    row(
        "RF-17: a sink that refuses leaves the position where it was",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        commit-error sink   -> pause 800ms
        paused              -> list 0 limit=500
    ",
    ),
    row(
        "RF-17: the version is no longer taken as unavailable, although the sink refused",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Gone -> pause
        paused              -> list 5 limit=0
        page-error 410 Gone -> list most-recent limit=0
        page 7              -> commit 7 consistent expired
        commit-error sink   -> pause
        paused              -> list 5 limit=0
    ",
    ),
    row(
        "RF-18: an empty version is taken, and the next list is at 0",
        "",
        "
        start               -> list 0 limit=500
        page none           -> commit most-recent
        committed           -> watch most-recent
        open-error 500      -> pause
        paused              -> list 0 limit=500
    ",
    ),
];

#[test]
fn lists_and_their_versions() {
    check(LISTS_AND_THEIR_VERSIONS);
}

const PAGES: &[Row] = &[
    row(
        "PG-3: one page, unchanged",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
    ",
    ),
    row(
        "PG-4, PG-5: later pages carry no version; the first page's version is the list's",
        "page=2",
        "
        start               -> list 0 limit=2
        page 7 more=C1      -> list most-recent limit=2 continue=C1
        page 8 more=C2      -> list most-recent limit=2 continue=C2
        page 9              -> commit 7
    ",
    ),
    row(
        "PG-6, RF-12: TestReflectorFullListIfExpired",
        "page=4",
        "
        start               -> list 0 limit=4
        page 10             -> commit 10
        committed           -> watch 10
        open-error 500      -> pause
        paused              -> list at-least 10 limit=4
        page 11 more=C1     -> list most-recent limit=4 continue=C1
        page-error 410 Expired -> list 10 limit=0
        page 12             -> commit 12
    ",
    ),
    row(
        "PG-6: the full list's error is final",
        "page=4",
        "
        start               -> list 0 limit=4
        page 11 more=C1     -> list most-recent limit=4 continue=C1
        page-error 410 Expired -> list 0 limit=0
        page-error 500      -> pause 800ms
    ",
    ),
    row(
        "PG-6: the reason Gone does not count; it is RF-12 then",
        "page=4",
        "
        start               -> list 0 limit=4
        page 11 more=C1     -> list most-recent limit=4 continue=C1
        page-error 410 Gone -> list most-recent limit=4
    ",
    ),
    row(
        "PG-6: the first page's error is never answered by a full list",
        "page=4",
        "
        start               -> list 0 limit=4
        page-error 500      -> pause 800ms
    ",
    ),
    row(
        "PG-6, B9: one full list per cycle",
        "page=4",
        "
        start               -> list 0 limit=4
        page 11 more=C1     -> list most-recent limit=4 continue=C1
        page-error 410 Expired -> list 0 limit=0
        page 12 more=C1     -> list most-recent limit=4 continue=C1
        page-error 410 Expired -> list most-recent limit=4
        page 13 more=C3     -> list most-recent limit=4 continue=C3
        page-error 410 Expired -> pause 800ms
    ",
    ),
    row(
        "PG-8: a stop ends the list between pages",
        "page=2",
        "
        start               -> list 0 limit=2
        page 7 more=C1      -> list most-recent limit=2 continue=C1
        stop                -> end
    ",
    ),
    row(
        "B9: pages without an item end after a few in a row",
        "page=2",
        "
        start               -> list 0 limit=2
        empty-page 7 more=C1 -> list most-recent limit=2 continue=C1
        empty-page 7 more=C2 -> list most-recent limit=2 continue=C2
        page 7 more=C3      -> list most-recent limit=2 continue=C3
        empty-page 7 more=C4 -> list most-recent limit=2 continue=C4
        empty-page 7 more=C5 -> list most-recent limit=2 continue=C5
        empty-page 7 more=C6 -> list most-recent limit=2 continue=C6
        empty-page 7 more=C7 -> list most-recent limit=2 continue=C7
        empty-page 7 more=C8 -> list most-recent limit=2 continue=C8
        empty-page 7 more=C9 -> pause 800ms
        paused              -> list 0 limit=2
    ",
    ),
    row(
        "a token that repeats is a list without end",
        "page=2",
        "
        start               -> list 0 limit=2
        page 7 more=C1      -> list most-recent limit=2 continue=C1
        page 7 more=C1      -> pause 800ms
    ",
    ),
];

#[test]
fn pages() {
    check(PAGES);
}

const A_RESTART_NEVER_GOES_BACK: &[Row] = &[
    row(
        "B4: an answer at 0 that is older than what was known is asked for once more",
        "known=10",
        "
        start               -> list 0 limit=500
        page 9              -> list most-recent limit=500
        page 12             -> commit 12 consistent
        committed           -> watch 12
    ",
    ),
    row(
        "B4: an answer that is not older is taken",
        "known=10",
        "
        start               -> list 0 limit=500
        page 10             -> commit 10
    ",
    ),
    row(
        "B4: a sink that knows better, from elsewhere, is given the most recent at once, and once \
         per cycle",
        "",
        "
        start               -> list 0 limit=500
        page 9              -> commit 9
        commit-error stale  -> list most-recent limit=500
        page 12             -> commit 12 consistent
        commit-error stale  -> pause 800ms
        paused              -> list 0 limit=500
        page 9              -> commit 9
        commit-error stale  -> list most-recent limit=500
        page 12             -> commit 12 consistent
        committed           -> watch 12
    ",
    ),
    row(
        "B4: a list at the most recent calls for no other one, whatever the sink knows",
        "",
        "
        start               -> list 0 limit=500
        page-error 410 Gone -> list most-recent limit=500
        page 9              -> commit 9 consistent expired
        commit-error stale  -> pause 800ms
    ",
    ),
    row(
        "B4, B18: the most recent is always taken",
        "known=10",
        "
        start               -> list 0 limit=500
        page 9              -> list most-recent limit=500
        page 3              -> commit 3 consistent
        committed           -> watch 3
        open-error 500      -> pause
        paused              -> list 3 limit=0
        page 4              -> commit 4
    ",
    ),
    row(
        "B4: a version that is no number cannot be older",
        "known=10",
        "
        start               -> list 0 limit=500
        page odd            -> commit odd
    ",
    ),
    row(
        "B18: a later list that goes back is asked for once more, too",
        "",
        "
        start               -> list 0 limit=500
        page 20             -> commit 20
        committed           -> watch 20
        open-error 500      -> pause
        paused              -> list 20 limit=0
        page 19             -> list most-recent limit=0
        page 19             -> commit 19 consistent
        committed           -> watch 19
    ",
    ),
];

#[test]
fn a_restart_never_goes_back() {
    check(A_RESTART_NEVER_GOES_BACK);
}

/// RF-5: a stop before the start makes no request; a stop at any time ends.
#[test]
fn a_stop_ends_every_state() {
    let stories = [
        "",
        "start",
        "start\npage 5",
        "start\npage 5\ncommitted",
        "start\npage 5\ncommitted\nopened",
        "start\npage 5\ncommitted\nopened\nadded 6",
        "start\npage-error 500",
        "start\npage 5\ncommitted\nopened\n+2s ended",
    ];
    for story in stories {
        let mut stage = Stage::new("");
        stage.tell(story);
        assert_eq!(stage.play("stop"), "end", "after {story:?}");
        assert_eq!(stage.play("stop"), "end", "twice after {story:?}");
    }
    let mut stage = Stage::new("streams");
    stage.tell("start -> stream most-recent\nopened -> read 10s\nadded 4 -> stage");
    assert_eq!(stage.play("stop"), "end", "WL-10");
}

/// RF-18 and RF-50: an empty list counts as synced; the last version is that of the last success.
#[test]
fn synced_is_a_list_that_reached_the_sink() {
    let mut stage = Stage::new("");
    stage.tell("start\npage 5");
    assert!(!stage.core.status().synced, "not before the sink has it");
    assert_eq!(stage.core.status().resource_version.as_str(), "");
    stage.tell("committed");
    assert!(stage.core.status().synced);
    assert_eq!(stage.core.status().resource_version.as_str(), "5");
    stage.tell("opened\nadded 9\nstop");
    assert_eq!(stage.core.status().resource_version.as_str(), "9");
}

/// Tokens that differ but never end are a list without end, too.
#[test]
fn pages_without_end_end() {
    let mut stage = Stage::new("page=1");
    stage.play("start");
    let mut pages = 0_u32;
    while !stage
        .play(&format!("page 5 more=C{pages}"))
        .starts_with("pause")
    {
        pages = pages.saturating_add(1);
        assert!(pages <= 100_001, "{pages} pages");
    }
    assert_eq!(pages, 100_000);
}
