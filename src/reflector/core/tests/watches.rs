//! Watches, their events and their ends: RF-21..RF-49, B9, B11, B18.

use super::{Row, Stage, check, row};

/// A story up to an open watch at version 5.
const OPEN: &str = "start -> list 0 limit=500
    page 5 -> commit 5
    committed -> watch 5
    opened -> read";

fn open(options: &str) -> Stage {
    let mut stage = Stage::new(options);
    stage.tell(OPEN);
    stage
}

/// Rows that begin with an open watch.
fn check_open(rows: &[(&str, &str, &str)]) {
    for (id, options, story) in rows {
        let mut stage = open(options);
        for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (input, expected) = line.split_once("->").unwrap();
            let (action, expected) = (stage.play(input.trim()), expected.trim());
            assert!(
                super::matches(&action, expected),
                "{id}: {input}-> {action}, expected {expected}"
            );
        }
    }
}

const OPENINGS: &[Row] = &[
    row(
        "RF-23, RF-40: refused or 429: a backoff each, the watch again, no list",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error refused  -> pause 800ms
        paused              -> watch 5
        open-error 429      -> pause 1.6s
        paused              -> watch 5
        open-error 429      -> pause 3.2s
        paused              -> watch 5
        open-error 429      -> pause 6.4s
        paused              -> watch 5
        opened              -> read
    ",
    ),
    row(
        "RF-41: expired: soon a list at the last version, the most recent if that is refused",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Expired -> soon
        paused              -> list 5 limit=0
        page-error 410 Expired -> list most-recent limit=0
        page 9              -> commit 9 consistent expired
    ",
    ),
    row(
        "RF-42: 5xx, 403, EOF: backoff and a list",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 403      -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 500      -> pause 1.6s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error eof      -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 504 too-large -> pause 1.6s
        paused              -> list 5 limit=0
    ",
    ),
    row(
        "RS-1: a server error that names a wait: the watch again after exactly that",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 503 ServiceUnavailable retry-after=7 -> pause 7s
        paused              -> watch 5
        open-error 500 InternalError retry-after=3 -> pause 3s
        paused              -> watch 5
    ",
    ),
    row(
        "RF-45: a stop before the watch opens leaves it unopened",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        stop                -> end
    ",
    ),
];

#[test]
fn openings() {
    check(OPENINGS);
}

const EVENTS: &[(&str, &str, &str)] = &[
    (
        "RF-24, RF-26: additions, changes, deletions are applied",
        "",
        "
        added 6             -> apply
        applied             -> read
        modified 7          -> apply
        applied             -> read
        deleted 8           -> apply
        applied             -> read
        +5s ended           -> watch 8
    ",
    ),
    (
        "RF-25: what has no version moves nothing and does not count",
        "",
        "
        skipped             -> read
        +500ms ended        -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-26: a sink that refuses a change costs a backoff and a list, instead of the change",
        "",
        "
        added 6             -> apply
        apply-error sink    -> pause 800ms
        paused              -> list 6 limit=0
    ",
    ),
    (
        "RF-27: a bookmark moves the position only, its annotation says nothing here",
        "",
        "
        bookmark 9          -> bookmark 9
        applied             -> read
        final-bookmark 11   -> bookmark 11
        applied             -> read
        +5s ended           -> watch 11
    ",
    ),
    (
        "RF-28: an unknown type moves the position and counts",
        "",
        "
        skipped 12          -> read
        +500ms ended        -> pause 50ms
        paused              -> watch 12
    ",
    ),
    (
        "RF-29 replaced by B18: the position never goes back",
        "",
        "
        modified 55         -> apply
        applied             -> read
        added 32            -> apply
        applied             -> read
        +5s ended           -> watch 55
    ",
    ),
    (
        "B12: an object that does not decode is a change",
        "",
        "
        undecodable 6       -> apply
        applied             -> read
        +5s ended           -> watch 6
    ",
    ),
];

#[test]
fn events() {
    check_open(EVENTS);
}

/// RF-22: after `0` or none, additions come in no order and move nothing until another event.
#[test]
fn synthetic_additions_do_not_move_the_position() {
    for (until, last) in [
        ("modified 21", "21"),
        ("bookmark 30", "30"),
        ("deleted 22", "22"),
    ] {
        let mut stage = Stage::new("");
        stage.tell(
            "start -> list 0 limit=500
            page none -> commit most-recent
            committed -> watch most-recent
            opened -> read
            added 20 -> apply
            applied -> read
            undecodable 9 -> apply
            applied -> read
            added 15 -> apply
            applied -> read",
        );
        assert_eq!(stage.core.status().resource_version.as_str(), "");
        stage.play(until);
        assert_eq!(stage.core.status().resource_version.as_str(), last);
        stage.tell("applied -> read\nadded 40 -> apply");
        assert_eq!(stage.core.status().resource_version.as_str(), "40");
    }
}

const ENDINGS: &[(&str, &str, &str)] = &[
    (
        "RF-31: a stop",
        "",
        "
        stop                -> end
    ",
    ),
    (
        "RF-32, B11: closed after a second, and silent from its opening: a probe, then the watch \
         at the last version",
        "",
        "
        +1s ended           -> pause 50ms
        paused              -> probe
        probed 5            -> watch 5
    ",
    ),
    (
        "RF-32: closed after an event",
        "",
        "
        modified 8          -> apply
        applied             -> read
        +1ms ended          -> pause 50ms
        paused              -> watch 8
    ",
    ),
    (
        "RF-32, RS-4: broken off is as good as closed",
        "",
        "
        modified 8          -> apply
        applied             -> read
        +2s ended eof       -> pause 50ms
        paused              -> watch 8
    ",
    ),
    (
        "RF-33: closed within a second without an event: backoff and a list",
        "",
        "
        +999ms ended        -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-34: expired: soon a list at the last version, not at the most recent",
        "",
        "
        error 410 Expired   -> soon
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-34: Gone is expired",
        "",
        "
        error 410 Gone      -> soon
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-35: 429: backoff, then the watch, no list",
        "",
        "
        error 429           -> pause 800ms
        paused              -> watch 5
    ",
    ),
    (
        "RF-36: too large: backoff and a list at the last version",
        "",
        "
        error 504 too-large -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-37: anything else",
        "",
        "
        error 403           -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-37: a line beyond its maximum",
        "",
        "
        error too-long      -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-37: an internal error, as the window is off by default",
        "",
        "
        +10s error 500 InternalError -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-38: an internal error in the window: the watch again, with the wait of B9",
        "internal=30s",
        "
        error 500 InternalError -> pause 50ms
        paused              -> watch 5
        opened              -> read
        error 500           -> pause 100ms
        paused              -> watch 5
        opened              -> read
        +31s error 500      -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-38, RS-1: in the window, too, a wait that the server names is kept",
        "internal=30s",
        "
        +10s error 500 InternalError retry-after=7 -> pause 7s firm
        paused              -> watch 5
    ",
    ),
    (
        "RF-20: an object the server cannot read is no internal error: a list",
        "internal=30s",
        "
        error 500 StoreReadError -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-39: a resync that fails",
        "resync=60s",
        "
        +60s quiet 0s       -> resync
        resync-error sink   -> pause 800ms
        paused              -> list 5 limit=0
    ",
    ),
    (
        "RF-43: bookmarks count as events",
        "",
        "
        bookmark 6          -> bookmark 6
        applied             -> read
        +1ms ended          -> pause 50ms
        paused              -> watch 6
    ",
    ),
];

#[test]
fn endings() {
    check_open(ENDINGS);
}

#[test]
fn b11_a_bookmark_from_before_the_position_confirms_nothing() {
    check_open(&[(
        "B11, B18: the server may have gone back in its history, and a probe asks it",
        "",
        "
        +60s bookmark 4     -> read
        +60s ended          -> probe
    ",
    )]);
}

const DELAYS_BETWEEN_WATCHES: &[(&str, &str, &str)] = &[(
    "B9: short watches wait 50 ms doubling to 5 s",
    "",
    "
        +1s ended           -> pause 50ms
        paused              -> probe
        probed 5            -> watch 5
        opened              -> read
        +1s ended           -> pause 100ms
        paused              -> probe
        probed 5            -> watch 5
        opened              -> read
        +4s ended           -> pause 200ms
        paused              -> probe
        probed 5            -> watch 5
        opened              -> read
        bookmark 5          -> bookmark 5
        applied             -> read
        +5s ended           -> watch 5
        opened              -> read
        +4s ended           -> pause 400ms
        paused              -> probe
        probed 5            -> watch 5
        opened              -> read
        +30s ended          -> probe
        probed 5            -> watch 5
        opened              -> read
        bookmark 5          -> bookmark 5
        applied             -> read
        +1s ended           -> pause 50ms
    ",
)];

#[test]
fn delays_between_watches() {
    check_open(DELAYS_BETWEEN_WATCHES);
}

const RESYNC: &[(&str, &str, &str)] = &[
    (
        "RF-47: the timer is armed again after each firing",
        "resync=60s",
        "
        +60s quiet 0s       -> resync
        resynced            -> read 60s
        +60s quiet 0s       -> resync
        resynced            -> read 60s
    ",
    ),
    (
        "RF-47: events without a pause do not hold it up",
        "resync=60s",
        "
        +59s added 6        -> apply
        applied             -> read 1s
        +1s added 7         -> apply
        applied             -> resync
        resynced            -> read 60s
    ",
    ),
    (
        "RF-47: a watch that is opened again keeps the timer",
        "resync=60s",
        "
        +40s ended          -> probe
        probed 5            -> watch 5
        opened              -> read 20s
        +20s quiet 0s       -> resync
    ",
    ),
    (
        "RF-47: a list starts the timer anew",
        "resync=60s",
        "
        +40s error 403      -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read 60s
    ",
    ),
    (
        "RF-3: without a period there is none",
        "",
        "
        +60s quiet 0s       -> read
    ",
    ),
];

#[test]
fn resync() {
    check_open(RESYNC);
}

fn disconnects(stage: &Stage) -> bool {
    let is_told = |effect: &super::Effect| matches!(effect, super::Effect::Disconnect);
    stage.effects.iter().any(is_told)
}

/// B11: silence opens the watch anew at the last version, without a list.
#[test]
fn silence() {
    let mut stage = open("");
    stage.tell("bookmark 7 -> bookmark 7\napplied -> read 130s");
    stage.tell("+130s quiet 130s -> watch 7");
    assert!(disconnects(&stage), "the dead connection is not used again");
    assert_eq!(stage.core.status().failures.count(), 1);
    stage.tell("opened -> read 130s");
    assert_eq!(stage.core.status().failures.count(), 0);

    let mut stage = open("");
    let first = stage.play("skipped");
    let seconds: u64 = first
        .trim_start_matches("read ")
        .trim_end_matches('s')
        .parse()
        .unwrap();
    assert!(
        (330..630).contains(&seconds),
        "before the first bookmark: the server's time-out and 30 s, {first}"
    );
    stage.tell("+329s quiet 329s -> read");
    stage.tell("+301s quiet 630s -> probe\nprobed 5 -> watch 5");
}

/// B11: bytes of an incomplete event keep the connection for as long as the largest event takes,
/// and no longer. The same holds for blank lines.
#[test]
fn a_trickle_of_bytes_keeps_a_connection_for_a_bounded_time() {
    let mut stage = open("bookmarks");
    stage.tell(
        "bookmark 7          -> bookmark 7
        applied             -> read 130s
        +130s quiet 1s      -> read 60s
        +60s quiet 1s       -> watch 7
        opened              -> read 130s
        +130s quiet 1s      -> read 60s
        +59s modified 8     -> apply
        applied             -> read 130s",
    );
}

/// B11: the reflector ends a watch that the server does not end by its time-out. If events came on
/// it, it is opened again without a failure.
#[test]
fn a_watch_that_outlives_its_time_out_is_opened_again() {
    let mut stage = open("bookmarks");
    let left = loop {
        stage.tell("+40s bookmark 7 -> bookmark 7");
        let read = stage.play("applied");
        let left = super::duration(read.strip_prefix("read ").unwrap());
        if left < super::duration("40s") {
            break left.as_secs();
        }
    };
    stage.tell(&format!("+{left}s quiet 1s -> watch 7"));
    assert!(disconnects(&stage), "the server would keep the request");
    assert_eq!(stage.core.status().failures.count(), 0);
    assert!(stage.core.status().failures.last().is_none());
}

const PROBES: &[(&str, &str, &str)] = &[
    (
        "B11: a watch silent from opening to end: a probe; a version that is ours or later opens \
         the watch where it was",
        "",
        "
        +300s ended         -> probe
        probed 5            -> watch 5
        opened              -> read
        +300s ended eof     -> probe
        probed 9            -> watch 5
        opened              -> read
        +630s quiet 630s    -> probe
        probed odd          -> watch 5
    ",
    ),
    (
        "B11, B18: a version below ours is a server that went back: soon a list at the most recent",
        "",
        "
        +300s ended         -> probe
        probed 4            -> soon
        paused              -> list most-recent limit=500
        page 4              -> commit 4 consistent expired
        committed           -> watch 4
    ",
    ),
    (
        "B11: history that expired: soon a list at the most recent",
        "",
        "
        +300s ended         -> probe
        probe-error 410 Expired -> soon
        paused              -> list most-recent limit=500
    ",
    ),
    (
        "B11: a probe that fails is made again after the backoff, before any watch",
        "",
        "
        +300s ended         -> probe
        probe-error 500     -> pause 800ms
        paused              -> probe
        probe-error refused -> pause 1.6s
        paused              -> probe
        probe-error 429 retry-after=7 -> pause 7s firm
        paused              -> probe
        probed 5            -> watch 5
    ",
    ),
    (
        "B11: an event, a bookmark, or one that does not decode is no silence",
        "",
        "
        undecodable 6       -> apply
        applied             -> read
        +300s ended         -> watch 6
    ",
    ),
    (
        "B11: something that is no event of ours is silence",
        "",
        "
        skipped             -> read
        +300s ended         -> probe
    ",
    ),
    (
        "B11: one object is listed as it is, which is as cheap and tells more",
        "one-object",
        "
        +300s ended         -> list most-recent limit=500
        page 5              -> commit 5 consistent
        committed           -> watch 5
        opened              -> read
        +300s ended         -> list most-recent limit=500
        page-error 500      -> pause 800ms
        paused              -> list most-recent limit=500
        page-error refused  -> pause 1.6s
        paused              -> list most-recent limit=500
        page 4              -> commit 4 consistent
        committed           -> watch 4
    ",
    ),
    (
        "A stop in a probe",
        "",
        "
        +300s ended         -> probe
        stop                -> end
    ",
    ),
];

#[test]
fn b11_silence_from_opening_to_end_is_followed_by_a_probe() {
    check_open(PROBES);
}

/// B11: a bookmark that was remembered does not make sparse bookmarks an error.
#[test]
fn b11_the_idle_limit_is_three_times_the_largest_interval_between_bookmarks() {
    check_open(&[
        (
            "counted from the opening, too",
            "",
            "
            +100s bookmark 6    -> bookmark 6
            applied             -> read 300s
            +10s bookmark 6     -> bookmark 6
            applied             -> read 300s
        ",
        ),
        (
            "never below the option",
            "",
            "
            +40s bookmark 6     -> bookmark 6
            applied             -> read 130s
        ",
        ),
        (
            "no longer than a watch lives",
            "",
            "
            +290s bookmark 6    -> bookmark 6
            applied             -> read
            +200s quiet 200s    -> read
        ",
        ),
        (
            "not measured by a program that stood still: a bookmark waits",
            "",
            "
            +40s bookmark 6     -> bookmark 6
            applied             -> read 130s
            +250s bookmark 7    -> bookmark 7
            applied             -> read 130s
        ",
        ),
        (
            "the same: an event waits before it",
            "",
            "
            +40s bookmark 6     -> bookmark 6
            applied             -> read 130s
            +250s modified 7    -> apply
            applied             -> read 130s
            +10s bookmark 8     -> bookmark 8
            applied             -> read 130s
        ",
        ),
    ]);
    check(&[row(
        "remembered with the interval",
        "bookmarks=100s",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read 300s
    ",
    )]);
}

/// A watch whose head is held back: by a proxy until the first event, or by a server that is gone.
#[test]
fn b11_a_head_that_is_held_back_is_a_silent_watch_and_no_list() {
    check(&[
        row(
            "bookmarks are known: the idle limit",
            "bookmarks",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5 head=130s
        +130s open-error silence -> probe
        probed 5            -> watch 5 head=130s
        +60s opened         -> read 130s
        bookmark 6          -> bookmark 6
        applied             -> read 130s
    ",
        ),
        row(
            "they are not: the watch's own time-out and a margin",
            "seed=3",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        +631s open-error silence -> probe
        probed 5            -> watch 5
    ",
        ),
        row(
            "no connection within its limit is a failure as before",
            "",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        +10s open-error silence -> pause 800ms
        paused              -> list 5 limit=0
    ",
        ),
        row(
            "a head that comes with the end is no very short watch",
            "",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        +300s opened        -> read
        ended               -> probe
        probed 5            -> watch 5
    ",
        ),
    ]);
}

/// B11: neither is the connection used again.
#[test]
fn b11_a_head_that_is_held_back_ends_the_connection() {
    let mut stage = Stage::new("bookmarks");
    stage.tell("start\npage 5\ncommitted\n+130s open-error silence -> probe");
    assert!(disconnects(&stage));
    assert_eq!(stage.core.status().failures.count(), 1);
}

/// The time-out of the first watch of a reflector, which streams its list.
fn first_timeout(options: &super::ReflectorOptions) -> std::time::Duration {
    use super::{Action, Core, Facts, Input};
    let now = options.clock.now();
    let facts = Facts {
        now,
        urgent: false,
        streams: true,
        bookmarks: None,
        left_out: 0,
    };
    let mut core = Core::new(options, String::new(), false, now);
    let Action::Open(request) = core.step(Input::Start, &facts) else {
        panic!("a stream");
    };
    request.timeout
}

/// Copies of options are of other reflectors: in step, all would return to a server at once.
#[test]
fn copies_of_options_draw_their_own_waits_unless_they_have_a_seed() {
    let timeouts = |options: &super::ReflectorOptions| {
        let timeouts = (0..20).map(|_| first_timeout(&options.clone()));
        timeouts.collect::<std::collections::BTreeSet<_>>().len()
    };
    let options = super::ReflectorOptions::default().watch_list(true);
    assert!(timeouts(&options) > 1);
    assert_eq!(timeouts(&options.seed(7)), 1);
}

/// RF-2: unset or small gives 300..600 s, 30 min gives 1800..3600 s; whole seconds.
#[test]
fn watch_timeouts() {
    use std::time::Duration;
    for (minimum, low, high) in [(300, 300, 600), (1, 300, 600), (1800, 1800, 3600)] {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let options = super::ReflectorOptions::default()
                .watch_timeout_min(Duration::from_secs(minimum))
                .watch_list(true)
                .seed(seed);
            let timeout = first_timeout(&options);
            assert_eq!(timeout.subsec_nanos(), 0);
            seen.insert(timeout.as_secs());
        }
        let (first, last) = (*seen.first().unwrap(), *seen.last().unwrap());
        assert!(first >= low && last < high, "{first}..{last}");
        assert!(
            first < low + low / 10 && last > high - low / 10,
            "{first}..{last}"
        );
    }
}
