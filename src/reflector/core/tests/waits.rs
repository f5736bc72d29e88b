//! Backoffs, fast first syncs, refusals and waits the server asks for: B3, B9, B10, R4, BK-8.

use super::{Row, Stage, check, row};
use std::time::Duration;

const BACKOFFS: &[Row] = &[
    row(
        "RF-8: one sequence for lists, openings and streams",
        "streams",
        "
        start               -> stream most-recent
        open-error 429      -> pause 800ms
        paused              -> stream most-recent
        open-error 422 Invalid -> list 0 limit=500
        page-error 500      -> pause 1.6s
        paused              -> stream most-recent
        opened              -> read
        error 500           -> list 0 limit=500
        page-error 500      -> pause 3.2s
        paused              -> stream most-recent
        open-error 429      -> pause 6.4s
    ",
    ),
    row(
        "B10: a watch that lived five seconds starts it again, a shorter one without an event \
         does not",
        "",
        "
        start               -> list 0 limit=500
        page-error 500      -> pause 800ms
        paused              -> list 0 limit=500
        page-error 500      -> pause 1.6s
        paused              -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        +4s error 500       -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        +4s error 500       -> pause 1.6s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        +5s error 500       -> pause 800ms
    ",
    ),
    row(
        "B10 instead of BK-4: continuous failure stays at the cap",
        "",
        "
        start -> list 0 limit=500
        page-error 500 -> pause 800ms
        paused -> list 0 limit=500
        page-error 500 -> pause 1.6s
        paused -> list 0 limit=500
        page-error 500 -> pause 3.2s
        paused -> list 0 limit=500
        page-error 500 -> pause 6.4s
        paused -> list 0 limit=500
        page-error 500 -> pause 12.8s
        paused -> list 0 limit=500
        page-error 500 -> pause 25.6s
        paused -> list 0 limit=500
        page-error 500 -> pause 30s
        paused -> list 0 limit=500
        page-error 500 -> pause 30s
        paused -> list 0 limit=500
        page-error 500 -> pause 30s
        paused -> list 0 limit=500
        page-error 500 -> pause 30s
    ",
    ),
    row(
        "Retry-After wins over every backoff, and has a maximum",
        "waited",
        "
        start               -> list 0 limit=500
        page-error 429 retry-after=7 -> pause 7s firm
        paused              -> list 0 limit=500
        page-error 429 retry-after=90000 -> pause 300s
    ",
    ),
    row(
        "Retry-After uses nothing up of the backoff: it is the server's wait and not ours",
        "",
        "
        start               -> list 0 limit=500
        page-error 429 retry-after=7 -> pause 7s firm
        paused              -> list 0 limit=500
        page-error 500      -> pause 800ms
        paused              -> list 0 limit=500
        page-error 429 retry-after=7 -> pause 7s firm
        paused              -> list 0 limit=500
        page-error 500      -> pause 1.6s
    ",
    ),
];

#[test]
fn backoffs() {
    check(BACKOFFS);
}

/// BK-5: two minutes without a failure start the backoff again, however short each watch was. That
/// holds before a Retry-After, too.
#[test]
fn bk_5_lasting_health_starts_the_backoff_again() {
    let healthy = |minutes: u64| {
        let mut stage = Stage::new("");
        stage.tell("start\npage 5\ncommitted\nopen-error 403 -> pause 800ms");
        stage.tell("paused\npage 5\ncommitted\nopen-error 403 -> pause 1.6s");
        stage.tell("paused\npage 5\ncommitted\nopened");
        let end = stage.now + Duration::from_secs(60 * minutes);
        while stage.now < end {
            stage.tell("+4s ended -> pause\npaused -> probe\nprobed 5 -> watch 5\nopened");
        }
        stage
    };
    healthy(1).tell("error 500 -> pause 3.2s");
    healthy(2).tell("error 500 -> pause 800ms");
    let named = "error 429 retry-after=7 -> pause 7s firm\npaused -> watch 5";
    healthy(2).tell(&format!("{named}\nopen-error 429 -> pause 800ms"));
}

const PROOFS_OF_LIFE: &[Row] = &[
    row(
        "B10: a 410 starts the backoff again; the list follows soon, and after that the first step",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error refused  -> pause 800ms
        paused              -> watch 5
        open-error refused  -> pause 1.6s
        paused              -> watch 5
        open-error refused  -> pause 3.2s
        paused              -> watch 5
        opened              -> read
        error 410 Expired   -> soon
        paused              -> list 5 limit=0
        page-error refused  -> pause 800ms
    ",
    ),
    row(
        "B9: once; the next 410 has to wait unless a watch has served meanwhile",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Expired -> soon
        paused              -> list 5 limit=0
        page 5              -> commit 5 expired
        committed           -> watch 5
        open-error 410 Expired -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5 expired
        committed           -> watch 5
        opened              -> read
        error 410 Expired   -> pause 1.6s
        paused              -> list 5 limit=0
        page 5              -> commit 5 expired
        committed           -> watch 5
        opened              -> read
        modified 6          -> apply
        applied             -> read
        error 410 Expired   -> soon
        paused              -> list 6 limit=0
        page 7              -> commit 7 expired
        committed           -> watch 7
        opened              -> read
        +5s error 410 Expired -> soon
    ",
    ),
    row(
        "B10: a 410 starts the backoff again after answers, too",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 403      -> pause 800ms
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 403      -> pause 1.6s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Expired -> soon
        paused              -> list 5 limit=0
        page-error refused  -> pause 800ms
    ",
    ),
    row(
        "B10: so does the answer to a probe after failures that say nothing of life",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        +4s ended           -> pause 50ms
        paused              -> probe
        probe-error refused -> pause 800ms
        paused              -> probe
        probe-error refused -> pause 1.6s
        paused              -> probe
        probed 5            -> watch 5
        open-error refused  -> pause 800ms
    ",
    ),
    row(
        "B10: and a watch that lived, although it was silent",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error refused  -> pause 800ms
        paused              -> watch 5
        open-error refused  -> pause 1.6s
        paused              -> watch 5
        opened              -> read
        +630s quiet 630s    -> probe
        probe-error refused -> pause 800ms
    ",
    ),
    row(
        "B10: and the end of a streamed list",
        "streams",
        "
        start               -> stream most-recent
        open-error refused  -> pause 800ms
        paused              -> stream most-recent
        open-error refused  -> pause 1.6s
        paused              -> stream most-recent
        opened              -> read
        final-bookmark 5    -> commit 5 consistent
        committed           -> read
        error 500           -> pause 800ms
    ",
    ),
    row(
        "B10: a 410 that names a wait: after exactly that",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Expired retry-after=7 -> pause 7s firm
        paused              -> list 5 limit=0
    ",
    ),
    row(
        "B10: a Status other than 5xx and 429 after those that say nothing of life; itself it \
         backs off as before",
        "",
        "
        start               -> list 0 limit=500
        page-error 500      -> pause 800ms
        paused              -> list 0 limit=500
        page-error 429      -> pause 1.6s
        paused              -> list 0 limit=500
        page-error refused  -> pause 3.2s
        paused              -> list 0 limit=500
        page-error 401      -> pause 800ms
        paused              -> list 0 limit=500
        page-error 401      -> pause 1.6s
        paused              -> list 0 limit=500
        page-error 500      -> pause 3.2s
        paused              -> list 0 limit=500
        page-error 401      -> pause 6.4s
    ",
    ),
    row(
        "B10: three kills of the server: what a watch brings starts the backoff again",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        modified 6          -> apply
        applied             -> read
        +20s ended eof      -> watch 6
        open-error refused  -> pause 800ms
        paused              -> watch 6
        open-error refused  -> pause 1.6s
        paused              -> watch 6
        opened              -> read
        bookmark 7          -> bookmark 7
        applied             -> read
        +20s ended eof      -> watch 7
        open-error refused  -> pause 800ms
        paused              -> watch 7
        open-error refused  -> pause 1.6s
        paused              -> watch 7
        opened              -> read
        +5s ended           -> probe
        probe-error refused -> pause 800ms
    ",
    ),
];

#[test]
fn b10_a_proof_of_life_starts_the_backoff_again() {
    check(PROOFS_OF_LIFE);
}

/// The list after a 410 comes at a moment that is uniform in a second, so that a thousand caches do
/// not ask at once.
#[test]
fn b9_the_list_after_a_410_is_spread_over_a_second() {
    let mut waits: Vec<Duration> = (0..200)
        .map(|seed| {
            let mut stage = Stage::new(&format!("seed={seed}"));
            stage.tell("start\npage 5\ncommitted\nopen-error 410 Expired -> soon");
            stage.pause_until.unwrap() - stage.now
        })
        .collect();
    waits.sort_unstable();
    let at = |place: usize| waits[place].as_millis();
    assert!(at(0) == 50 && at(199) > 950 && at(199) < 1000, "{waits:?}");
    assert!((400..600).contains(&at(100)), "{waits:?}");
}

/// A read during a backoff shortens it to its first step, once per failure. No caller shortens a
/// wait that the server asked for, or one after too many requests.
#[test]
fn b10_a_read_shortens_a_backoff_to_its_first_step() {
    check(&[
        row(
            "once per failure",
            "",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error refused  -> pause 800ms on-demand
        paused              -> watch 5
        open-error refused  -> pause 1.6s on-demand
        paused              -> watch 5
        open-error refused  -> pause 3.2s on-demand
        +300ms demanded     -> pause 500ms firm
        paused              -> watch 5
        open-error refused  -> pause 6.4s on-demand
        +800ms demanded     -> watch 5
        open-error refused  -> pause 12.8s on-demand
    ",
        ),
        row(
            "Retry-After wins, and so does 429 without one",
            "",
            "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 503 ServiceUnavailable retry-after=7 -> pause 7s firm
        paused              -> watch 5
        open-error 429      -> pause 800ms firm
    ",
        ),
    ]);
}

fn pause(action: &str) -> Duration {
    let text = action
        .trim_start_matches("pause ")
        .trim_end_matches(" on-demand");
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_secs_f64(millis.parse::<f64>().unwrap() / 1000.0),
        None => Duration::from_secs_f64(text.trim_end_matches('s').parse().unwrap()),
    }
}

/// B3: while a caller waits a first sync is retried after 50 ms, doubling, and falls into the
/// steady backoff.
#[test]
fn a_first_sync_somebody_waits_for_is_retried_fast() {
    let mut stage = Stage::new("waited");
    stage.tell("start -> list 0 limit=500");
    let began = stage.now;
    let mut lists = 1;
    loop {
        let action = stage.play("page-error 500");
        if action.contains("on-demand") {
            break;
        }
        let wait = pause(&action);
        assert!(wait < Duration::from_millis(500), "{action}");
        stage.tell("paused -> list 0 limit=500");
        lists += 1;
    }
    assert_eq!(lists, 5, "requests within the second that a read waits");
    assert!(stage.now - began < Duration::from_secs(1));
    assert_eq!(
        stage.play("demanded"),
        "pause 800ms",
        "the steady backoff from its beginning"
    );
    stage.tell(
        "paused -> list 0 limit=500
        page-error 500 -> pause 1.6s on-demand",
    );
}

/// B3, B9: the next fast series may begin right after a failure, but not at once.
#[test]
fn the_next_fast_series_begins_no_sooner_than_a_first_wait() {
    let mut stage = Stage::new("waited");
    stage.tell("start -> list 0 limit=500");
    let began = stage.now;
    while !stage.play("page-error 500").contains("on-demand") {
        stage.tell("paused -> list 0 limit=500");
    }
    stage.tell("paused -> list 0 limit=500");
    stage.now = began + Duration::from_millis(10_000 - 9);
    stage.tell(
        "page-error 500 -> pause 1.6s on-demand
        demanded -> pause 50ms firm",
    );
}

/// B3: fast retries use nothing up of the steady backoff, which begins at its first base once no
/// caller waits any more.
#[test]
fn who_waited_and_left_costs_no_backoff() {
    let mut stage = Stage::new("waited");
    stage.tell("start");
    for _ in 0..4 {
        stage.tell("page-error 500 -> pause\npaused -> list 0 limit=500");
    }
    stage.urgent = false;
    stage.tell("page-error 500 -> pause 800ms on-demand");
}

const NOBODY_WAITS_OR_IT_IS_SYNCED_ALREADY: &[Row] = &[
    row(
        "B3: nobody waits: the steady backoff, which somebody may expedite",
        "",
        "
        start               -> list 0 limit=500
        page-error 500      -> pause 800ms on-demand
    ",
    ),
    row(
        "B3: synced: the steady backoff, which a read may shorten to its first step",
        "waited",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 403      -> pause 800ms on-demand
    ",
    ),
];

/// B3 holds only while a caller waits, and not after the first sync.
#[test]
fn nobody_waits_or_it_is_synced_already() {
    check(NOBODY_WAITS_OR_IT_IS_SYNCED_ALREADY);
}

/// B3: a caller that begins to wait during a steady backoff wakes it; callers that come and go
/// cannot keep it awake.
#[test]
fn a_reader_who_comes_during_a_backoff_expedites_it() {
    let mut stage = Stage::new("");
    stage.tell(
        "start\npage-error 500 -> pause 800ms on-demand\npaused\npage-error 500 -> pause \
        1.6s on-demand",
    );
    stage.urgent = true;
    assert_eq!(
        stage.play("+1s demanded"),
        "list 0 limit=500",
        "50 ms are long over"
    );
    let mut fast = 0;
    while !stage.play("page-error 500").contains("on-demand") {
        fast += 1;
        stage.play("paused");
    }
    assert_eq!(fast, 3, "what is left of the series");
    let again = stage.play("demanded");
    assert!(pause(&again) <= Duration::from_secs(10), "{again}");
    assert!(
        pause(&again) > Duration::from_secs(3),
        "no second series at once: {again}"
    );
}

/// R4: a refusal is retried fast for three seconds while a caller waits, and is an answer then.
#[test]
fn a_refusal_becomes_an_answer() {
    let mut stage = Stage::new("waited");
    stage.tell("start");
    let began = stage.now;
    let mut lists = 1;
    while stage.core.status().refusal.is_none() {
        let action = stage.play("page-error 403");
        if stage.core.status().refusal.is_some() {
            assert!(
                pause(&action) >= Duration::from_millis(800),
                "steady now: {action}"
            );
            break;
        }
        assert!(pause(&action) < Duration::from_millis(500), "{action}");
        stage.play("paused");
        lists += 1;
    }
    let took = stage.now - began;
    assert!(
        took >= Duration::from_secs(3) && took < Duration::from_millis(3100),
        "{took:?}"
    );
    assert!((10..=13).contains(&lists), "{lists} lists");
    let denied = stage.core.status().refusal.as_ref().unwrap();
    assert_eq!(denied.kind(), crate::ErrorKind::Forbidden);
    stage.tell("paused\npage 5 -> commit 5\ncommitted -> watch 5");
    assert!(
        stage.core.status().refusal.is_none(),
        "the answer was taken back"
    );
}

/// R4: while no caller waits, one try falls exactly on the end of the grace.
#[test]
fn a_refusal_nobody_waits_for() {
    let mut stage = Stage::new("");
    stage.tell(
        "start
        page-error 403 -> pause 800ms on-demand
        paused -> list 0 limit=500
        page-error 403 -> pause 1.6s on-demand
        paused -> list 0 limit=500
        page-error 403 -> pause 600ms on-demand
        paused -> list 0 limit=500",
    );
    assert!(stage.core.status().refusal.is_none());
    stage.tell("page-error 403 -> pause 6.4s on-demand");
    assert!(stage.core.status().refusal.is_some());
    stage.tell("paused\npage-error 500 -> pause");
    assert!(
        stage.core.status().refusal.is_none(),
        "another failure is no refusal"
    );
}

/// BK-8: run, draw, wait; after a stop nothing runs.
#[test]
fn nothing_runs_after_a_stop() {
    check(&[row(
        "BK-8",
        "",
        "
        start               -> list 0 limit=500
        page-error 500      -> pause
        stop                -> end
        paused              -> end
    ",
    )]);
}

/// B9: neither a server nor an option can ask for no wait at all.
#[test]
fn no_wait_is_zero() {
    use super::{Action, Core, Facts, Input, ReflectorOptions, error, paged};
    let mut options = ReflectorOptions::default();
    options.backoff.initial = Duration::ZERO;
    options.backoff.cap = Duration::ZERO;
    let now = options.clock.now();
    let facts = Facts {
        now,
        urgent: false,
        streams: false,
        bookmarks: None,
        left_out: 0,
    };
    let mut core = Core::new(&options, String::new(), false, now);
    core.step(Input::Start, &facts);
    let asked = error("429").with_retry_after(Duration::ZERO);
    let Action::Pause { until, .. } = core.step(paged(Err(asked), true), &facts) else {
        panic!("a pause");
    };
    assert!(until > now);
}

/// R4: a resource that the server does not know is an answer after the same grace, and another one
/// than a refusal.
#[test]
fn a_resource_that_the_server_does_not_know_becomes_an_answer() {
    let mut stage = Stage::new("");
    stage.tell(
        "start
        page-error 404 -> pause 800ms on-demand
        paused -> list 0 limit=500
        page-error 404 -> pause 1.6s on-demand
        paused -> list 0 limit=500
        page-error 404 -> pause 600ms on-demand
        paused -> list 0 limit=500",
    );
    assert!(stage.core.status().refusal.is_none());
    stage.tell("page-error 404 -> pause 6.4s on-demand");
    let unknown = stage.core.status().refusal.as_ref().unwrap();
    assert_eq!(unknown.kind(), crate::ErrorKind::NotFound);
    stage.tell("paused\npage-error 403 -> pause");
    assert!(
        stage.core.status().refusal.is_none(),
        "a refusal begins a grace of its own"
    );
}
