//! The policy's rows, as the reflector follows them: named waits, streams refused twice, positions
//! that the server cannot read.

use std::time::Duration;

use super::{Action, Input, Row, Seen, Stage, check, error, page, paged, row};
use crate::policy::{self, Chance, NextRequest, PolicyRequest, WaitRule};

const NAMED_WAITS: &[Row] = &[
    row(
        "RS-1, R19: a wait that is named is a wait, whatever the answer: the watch again, no list",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        error 500 InternalError retry-after=1 -> pause 1s firm
        paused              -> watch 5
        opened              -> read
        error 503 ServiceUnavailable retry-after=7 -> pause 7s firm
        paused              -> watch 5
        opened              -> read
        error 504 Timeout retry-after=1 -> pause 1.6s firm
        paused              -> watch 5
        opened              -> read
        error 429 retry-after=1 -> pause 3.2s firm
        paused              -> watch 5
        opened              -> read
        error 403 retry-after=7 -> pause 7s firm
        paused              -> watch 5
        open-error 504 Timeout retry-after=1 -> pause 1s firm
        paused              -> watch 5
        open-error 409 Conflict retry-after=1 -> pause 1s firm
        paused              -> watch 5
    ",
    ),
    row(
        "R19: a page of a list, too: the same page again, of the list that is staged",
        "",
        "
        start               -> list 0 limit=500
        page-error 503 ServiceUnavailable retry-after=1 -> pause 1s firm
        paused              -> list 0 limit=500
        page 5 more=next    -> list most-recent limit=500 continue=next
        page-error 429 retry-after=1 -> pause-in-list 1s
        paused              -> list most-recent limit=500 continue=next
        page-error 429      -> pause 800ms
        paused              -> list 0 limit=500
    ",
    ),
    row(
        "B9: a position that is gone is listed once with the wait; then the pauses grow, whatever \
         lists say, until a watch has served",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 504 too-large retry-after=1 -> pause 1s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 504 too-large retry-after=1 -> pause 1.6s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        open-error 410 Expired retry-after=1 -> pause 3.2s
        paused              -> list 5 limit=0
        page 5              -> commit 5 expired
        committed           -> watch 5
        opened              -> read
        error 504 too-large retry-after=1 -> pause 6.4s
        paused              -> list 5 limit=0
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        modified 6          -> apply
        applied             -> read
        error 504 too-large retry-after=1 -> pause 1s
    ",
    ),
    row(
        "B9: a named wait costs no list that follows soon",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        opened              -> read
        error 429 retry-after=1 -> pause 1s firm
        paused              -> watch 5
        opened              -> read
        error 410 Expired   -> soon
    ",
    ),
];

const REFUSED_STREAMS: &[Row] = &[
    row(
        "WL-7: a named wait, once; the second in a row leads to a plain list",
        "streams",
        "
        start               -> stream most-recent
        open-error 503 ServiceUnavailable retry-after=4 -> pause 4s
        paused              -> stream most-recent
        open-error 500 InternalError retry-after=4 -> pause 4s
        paused              -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
    ",
    ),
    row(
        "WL-7: so do two refusals by other answers",
        "streams",
        "
        start               -> stream most-recent
        open-error 403 retry-after=1 -> pause 1s
        paused              -> stream most-recent
        opened              -> read
        error 429           -> pause 800ms
        paused              -> list 0 limit=500
    ",
    ),
    row(
        "WL-8: a position that is gone: the most recent at once, then a plain list of it",
        "streams",
        "
        start               -> stream most-recent
        opened              -> read
        final-bookmark 8    -> commit 8 consistent
        committed           -> read
        error 403           -> pause
        paused              -> stream 8
        open-error 410 Expired -> stream most-recent
        open-error 410 Expired -> pause 1.6s
        paused              -> list most-recent limit=500
    ",
    ),
    row(
        "WL-8: at the most recent already: twice, then a plain list",
        "streams",
        "
        start               -> stream most-recent
        open-error 504 too-large retry-after=1 -> pause 1s
        paused              -> stream most-recent
        open-error 504 too-large retry-after=1 -> pause 1.6s
        paused              -> list most-recent limit=500
    ",
    ),
];

const UNREADABLE: &[Row] = &[
    row(
        "RF-9: one refusal at a version says nothing of the version",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 400      -> pause 800ms
        paused              -> list 5 limit=0
        page 6              -> commit 6
        committed           -> watch 6
        open-error 500 InternalError -> pause 1.6s
        paused              -> list 6 limit=0
        page-error 503      -> pause 3.2s
        paused              -> list 6 limit=0
        page-error 422      -> pause 800ms
        paused              -> list 6 limit=0
    ",
    ),
    row(
        "RF-9: a list that succeeds ends the row of such refusals",
        "",
        "
        start               -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 400      -> pause 800ms
        paused              -> list 5 limit=0
        page 6              -> commit 6
        committed           -> watch 6
        open-error eof      -> pause 1.6s
        paused              -> list 6 limit=0
        page-error 422      -> pause 800ms
    ",
    ),
    row(
        "RF-9: streams that are not known do not count",
        "streams",
        "
        start               -> stream most-recent
        open-error 422      -> list 0 limit=500
        page 5              -> commit 5
        committed           -> watch 5
        open-error 400      -> pause 800ms
        paused              -> stream 5
        open-error 422      -> list 5 limit=0
        page-error 400      -> list most-recent limit=0
        page 3              -> commit 3 consistent expired
    ",
    ),
];

#[test]
fn a_named_wait_is_no_reason_to_list() {
    check(NAMED_WAITS);
}

#[test]
fn a_stream_that_is_refused_twice_gives_way_to_a_plain_list() {
    check(REFUSED_STREAMS);
}

#[test]
fn one_refusal_at_a_version_is_about_the_request() {
    check(UNREADABLE);
}

/// RF-9, RF-16: once per pass, then a backoff; the version may be older than the position.
#[test]
fn a_position_that_is_not_read_leads_to_the_most_recent_list() {
    for answer in ["400", "422", "500 InternalError", "400 BadRequest"] {
        let mut stage = Stage::new("");
        stage.tell(&format!(
            "start -> list 0 limit=500
            page 77 -> commit 77
            committed -> watch 77
            open-error {answer} -> pause 800ms
            paused -> list 77 limit=0
            page-error {answer} -> list most-recent limit=0
            page-error {answer} -> pause 1.6s
            paused -> list most-recent limit=500
            page-error {answer} -> pause 3.2s
            paused -> list most-recent limit=500
            page 5 -> commit 5 consistent expired
            committed -> watch 5"
        ));
    }
}

/// The same where each answer names a wait: it is followed ten times.
#[test]
fn a_position_that_is_not_read_is_given_up_after_ten_named_waits() {
    let mut stage = Stage::new("");
    stage.tell("start\npage 77\ncommitted -> watch 77");
    for _ in 0..9 {
        stage.tell("open-error 500 InternalError retry-after=1 -> pause 1s\npaused -> watch 77");
    }
    stage.tell(
        "open-error 500 InternalError retry-after=1 -> pause 1s
        paused -> list most-recent limit=500",
    );
    let mut stage = Stage::new("");
    stage.tell("start\npage 77\ncommitted\nopen-error eof\npaused -> list 77 limit=0");
    let refused = "page-error 500 InternalError retry-after=1";
    for _ in 0..9 {
        stage.tell(&format!("{refused} -> pause 1s\npaused -> list 77 limit=0"));
    }
    stage.tell(&format!(
        "{refused} -> pause 1.6s\npaused -> list most-recent limit=500"
    ));
}

/// R19: ten waits are followed as they are named, then they grow until a watch has served.
#[test]
fn named_waits_grow_after_ten_in_a_row() {
    let mut stage = Stage::new("");
    stage.tell("start\npage 5\ncommitted -> watch 5");
    for _ in 0..10 {
        stage.tell("open-error 429 retry-after=1 -> pause 1s\npaused -> watch 5");
    }
    for pause in ["1s", "1.6s", "3.2s", "6.4s"] {
        stage.tell(&format!(
            "open-error 429 retry-after=1 -> pause {pause}\npaused -> watch 5"
        ));
    }
    stage.tell("opened\nmodified 6\napplied\nerror 429 retry-after=1 -> pause 1s");
    stage.tell("paused\nopen-error 429 retry-after=1 -> pause 1s");
}

/// The time from the second refusal of a stream to the next one.
fn time_without_streams(stage: &mut Stage) -> Duration {
    stage.tell("open-error 429 -> pause\npaused\nopen-error 429 -> pause");
    let mut asked = stage.play("paused");
    let since = stage.now;
    while !asked.starts_with("stream ") {
        assert!(asked.starts_with("list "), "{asked}");
        stage.tell("page 5\ncommitted\nopened\nerror 403 -> pause");
        asked = stage.play("+5s paused");
    }
    stage.now - since
}

/// WL-7: plain lists for a pause that grows to ten minutes at most, then a stream again. A complete
/// stream makes the next pause short.
#[test]
fn streams_are_tried_again_later() {
    let mut stage = Stage::new("streams");
    stage.tell("start -> stream most-recent");
    let pauses: Vec<_> = (0..8).map(|_| time_without_streams(&mut stage)).collect();
    let most = Duration::from_secs(10 * 60 + 70);
    assert!(pauses.iter().all(|pause| *pause < most), "{pauses:?}");
    let first = pauses.first().copied().unwrap_or_default();
    assert!(first < Duration::from_secs(140), "{pauses:?}");
    let last = pauses.last().copied().unwrap_or_default();
    assert!(last >= Duration::from_secs(5 * 60), "{pauses:?}");
    stage.tell("opened\nfinal-bookmark 5\ncommitted\nerror 403 -> pause\npaused -> stream 5");
    let next = time_without_streams(&mut stage);
    assert!(next < Duration::from_secs(140), "{next:?}");
}

/// For any answers that name waits, while no watch serves: few lists.
#[test]
fn lists_stay_few_whatever_answers_name_waits() {
    const MINUTES: u64 = 20;
    let answers = [
        "410 Expired",
        "410 Gone",
        "504 too-large",
        "504 Timeout",
        "500 InternalError",
        "429",
        "503 ServiceUnavailable",
        "400",
        "422",
        "403",
        "404",
        "406",
        "409 Conflict",
        "415",
        "502",
    ];
    for seed in 0..400 {
        let options = if seed % 2 == 0 { "streams" } else { "" };
        let mut stage = Stage::new(options);
        let mut chance = Chance::new(seed);
        // Half of the servers always give the same answers.
        let fixed = (seed % 4 < 2).then(|| (chance.below(3), chance.below(15)));
        let begin = stage.now;
        let mut lists = Vec::new();
        let mut action = stage.step(Input::Start);
        while stage.now < begin + Duration::from_secs(60 * MINUTES) {
            let (fails, answer) = fixed.unwrap_or_else(|| (chance.below(3), chance.below(15)));
            let answer = answers.get(usize::try_from(answer).unwrap()).unwrap();
            let failed = || error(&format!("{answer} retry-after=1"));
            let input = match action {
                Action::List { .. } => {
                    lists.push(stage.now);
                    if fails == 0 {
                        paged(Err(failed()), true)
                    } else {
                        paged(Ok(page("7")), false)
                    }
                }
                Action::Open(request) if fails < 2 || request.send_initial_events => {
                    Input::Done(Err(failed()))
                }
                Action::Open(_) | Action::Commit(_) => Input::Done(Ok(())),
                Action::Read { .. } => Input::Seen(Seen::Error(failed())),
                Action::Pause { until, .. } | Action::PauseInList { until } => {
                    stage.now = until;
                    Input::Paused
                }
                other => panic!("seed {seed}: {other:?}"),
            };
            action = stage.step(input);
        }
        let of_minute = |minute: u64| {
            let at = begin + Duration::from_secs(60 * minute);
            let within = |list: &&_| **list >= at && **list < at + Duration::from_secs(60);
            lists.iter().filter(within).count()
        };
        assert!(of_minute(0) <= 20, "seed {seed}: {}", of_minute(0));
        for minute in 3..MINUTES {
            let count = of_minute(minute);
            assert!(count <= 6, "seed {seed}, minute {minute}: {count} lists");
        }
    }
}

const ANSWERS: [&str; 22] = [
    "refused",
    "eof",
    "silence",
    "too-long",
    "sink",
    "400",
    "401",
    "403",
    "404",
    "406",
    "408",
    "409 Conflict",
    "410 Expired",
    "410 Gone",
    "415",
    "422",
    "429",
    "500 InternalError",
    "502",
    "503 ServiceUnavailable",
    "504 Timeout",
    "504 too-large",
];

/// Whether the reflector pauses as `wait` says, where the server named `named` and the backoff is
/// at `backoff`.
fn pauses(wait: WaitRule, pause: Option<&str>, named: bool, backoff: &str) -> bool {
    match wait {
        WaitRule::AtOnce => pause.is_none(),
        WaitRule::Soon => pause.is_some_and(|pause| pause.contains("ms")),
        WaitRule::Backoff => pause == Some(backoff),
        WaitRule::Named => pause == Some("7s"),
        WaitRule::Longer => pause == Some(if named { "7s" } else { backoff }),
    }
}

/// Whether `action` follows `next`, where `same` is the request that failed.
fn is_next(next: NextRequest, action: &str, same: &str, has_status: bool) -> bool {
    let is_list = action.starts_with("list ") && !action.contains("continue=");
    match next {
        // A page that may be staged in part is not asked for again.
        NextRequest::Same => action == same || !has_status && action == "list 0 limit=500",
        NextRequest::List | NextRequest::ListPlainly => is_list,
        NextRequest::ListWhole => action == "list 0 limit=0",
        NextRequest::MostRecent => is_list && action.starts_with("list most-recent "),
        NextRequest::Fail | NextRequest::Renewed => false,
    }
}

/// Each row of the table that a reflector can meet: the first failure of each request by each
/// answer, with and without a named wait.
#[test]
fn the_reflector_does_what_each_row_says() {
    let begun = "start -> list 0 limit=500\npage 5 -> commit 5\ncommitted -> watch 5";
    let opened = format!("{begun}\nopened -> read");
    let listed = format!("{opened}\nmodified 6\napplied\nerror 403 -> pause 800ms");
    let later = "list most-recent limit=500 continue=x";
    let requests = [
        (PolicyRequest::List, "", "start", "list 0 limit=500"),
        (
            PolicyRequest::ListAt,
            listed.as_str(),
            "paused",
            "list 6 limit=0",
        ),
        (PolicyRequest::LaterPage, "start", "page 5 more=x", later),
        (PolicyRequest::Stream, "", "start", "stream most-recent"),
        (
            PolicyRequest::Stream,
            "start",
            "opened",
            "stream most-recent",
        ),
        (PolicyRequest::Open, "start\npage 5", "committed", "watch 5"),
        (PolicyRequest::Watch, begun, "opened", "watch 5"),
        (PolicyRequest::Probe, opened.as_str(), "+6s ended", "probe"),
    ];
    let named = |answer| [(answer, false), (answer, true)];
    for (request, before, asks, same) in requests {
        for (answer, named) in ANSWERS.into_iter().flat_map(named) {
            let streams = request == PolicyRequest::Stream;
            let mut stage = Stage::new(if streams { "streams" } else { "" });
            stage.tell(before).tell(asks);
            let mut failure = error(answer);
            if named {
                failure = failure.with_retry_after(Duration::from_secs(7));
            }
            let step = policy::after(request, &failure, 1);
            let has_status = failure.status().is_some();
            let action = stage.step(match (request, asks) {
                (_, "opened") => Input::Seen(Seen::Error(failure)),
                (PolicyRequest::Stream | PolicyRequest::Open, _) => Input::Done(Err(failure)),
                _ => paged(Err(failure), true),
            });
            let action = stage.write(&action);
            let row = format!("{request:?} {asks} {answer} {named}: {step:?}, got {action}");
            let in_list = action.strip_prefix("pause-in-list ");
            let pause = in_list.or_else(|| action.strip_prefix("pause "));
            let pause = pause.map(|pause| pause.trim_end_matches(" on-demand"));
            // The list at a version comes after a failure.
            let backoff = if request == PolicyRequest::ListAt {
                "1.6s"
            } else {
                "800ms"
            };
            assert!(pauses(step.wait, pause, named, backoff), "{row}");
            let action = match pause {
                Some(_) => stage.play("paused"),
                None => action.clone(),
            };
            let action = action.split(" head=").next().unwrap_or_default();
            assert!(
                is_next(step.next, action, same, has_status),
                "{row}, then {action}"
            );
        }
    }
}
