//! Reads of a state not older than a version: how often the server is asked, and what ends the
//! asking (R11).

use std::time::Duration;

use super::stage::{Reader, SECOND, Stage, version};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::manager::ChangeDetection;
use crate::manager::consistent_reads::is_reached;
use crate::object::{ResourceVersion, Status};
use crate::testing::{RequestKind, SourceFault};

/// Keeps nothing. The Secret is on the server, without a reference.
fn stage() -> Stage {
    let stage = Stage::of(ChangeDetection::Get).start();
    stage.set("s");
    stage
}

type Answer = Result<Option<u64>, Error>;

/// Asks on a thread of its own: the version that was found, or why there is none.
fn ask(stage: &Stage, asked: &str, within: Duration) -> Reader<Answer> {
    let deadline = Clock::from(stage.clock.clone()).after(within);
    let asked = ResourceVersion::from(asked);
    stage.reader(
        move |manager| match manager.get_at_least("ns", "s", &asked, deadline) {
            Ok(found) => Ok(Some(version(&found))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        },
    )
}

/// R11: a server that has come that far is asked once, for that version.
#[test]
fn a_version_the_server_has_costs_one_request() {
    let stage = stage();
    let answer = ask(&stage, "2", SECOND).answer();
    assert_eq!(answer.unwrap(), Some(2));
    stage.source.delete("ns", "s");
    assert_eq!(ask(&stage, "3", SECOND).answer().unwrap(), None);
    assert_eq!(stage.asked(), ["2", "3"]);
}

/// R11: a server that has not is asked again after 50 ms, doubling to a second.
#[test]
fn a_version_from_the_future_is_asked_for_again_until_it_is_there() {
    let stage = stage();
    let asked = ask(&stage, "9", 10 * SECOND);
    for (count, pause) in [50, 100, 200, 400, 800, 1_000, 1_000]
        .into_iter()
        .enumerate()
    {
        stage.source.wait_for_requests(count + 1);
        let pause = Duration::from_millis(pause);
        stage.clock.wait_for_timer(pause);
        if count == 6 {
            stage.source.skip_to(9);
        }
        stage.clock.advance(pause);
    }
    assert_eq!(asked.answer().unwrap(), Some(2));
    assert_eq!(stage.asked(), ["9"; 8]);
}

/// R11, BK-8: the time the server names wins over the doubling, which it does not use up.
#[test]
fn the_server_says_when_it_wants_to_be_asked_again() {
    let stage = stage();
    let too_large = {
        let asked = ask(&stage, "9", Duration::ZERO + Duration::from_nanos(1));
        stage.source.wait_for_requests(1);
        stage.clock.wait_for_timer(Duration::from_nanos(1));
        stage.clock.advance(Duration::from_nanos(1));
        let error = asked.answer().unwrap_err();
        error.last_error().unwrap().clone()
    };
    let fault = SourceFault::Fail(too_large.with_retry_after(3 * SECOND));
    stage.source.fail_next(RequestKind::Get, fault);
    let asked = ask(&stage, "9", 10 * SECOND);
    stage.clock.wait_for_timer(3 * SECOND);
    stage.clock.advance(3 * SECOND);
    let pause = Duration::from_millis(50);
    stage.clock.wait_for_timer(pause);
    stage.source.skip_to(9);
    stage.clock.advance(pause);
    assert_eq!(asked.answer().unwrap(), Some(2));
}

/// R11, B2: the deadline ends it with the server's own words, the requests that were made, and
/// since when.
#[test]
fn the_deadline_ends_it_in_the_servers_words() {
    let stage = stage();
    let begin = stage.clock.now();
    let asked = ask(&stage, "9", SECOND);
    for pause in [50, 100, 200, 400, 250] {
        let pause = Duration::from_millis(pause);
        stage.clock.wait_for_timer(pause);
        stage.clock.advance(pause);
    }
    let error = asked.answer().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "timed out waiting for secret ns/s at version 9 or later\n\
         5 attempts in 1.0s, the last one failed: get secret ns/s: \
         Timeout: Too large resource version: 9, current: 2"
    );
    assert_eq!((error.attempts(), error.since()), (5, Some(begin)));
    let status = error.last_error().and_then(Error::status).unwrap();
    assert!(status.is_too_large_resource_version());
}

/// R11, B2: a request that gets no answer at all ends at the deadline too, and says what was waited
/// for.
#[test]
fn a_request_that_hangs_ends_at_the_deadline() {
    let stage = stage();
    stage.source.fail_next(RequestKind::Get, SourceFault::Hang);
    let asked = ask(&stage, "2", SECOND);
    stage.clock.wait_for_timer(SECOND);
    stage.clock.advance(SECOND);
    let error = asked.answer().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "timed out waiting for secret ns/s at version 2 or later\n1 attempt in 1.0s"
        ),
        "{text}"
    );
    let late = ask(&stage, "2", Duration::ZERO).answer().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    assert_eq!(stage.asked().len(), 1, "nothing is sent when time is up");
}

/// R11: what is no delay of the server's is the answer at once, a version that is none included.
#[test]
fn other_errors_are_the_servers_own_and_come_at_once() {
    let stage = stage();
    let words = "invalid resource version: strconv.ParseUint: parsing \"odd\": invalid syntax";
    let refusal = Error::from_status(Status::new(400, words));
    stage
        .source
        .fail_next(RequestKind::Get, SourceFault::Fail(refusal));
    let error = ask(&stage, "odd", SECOND).answer().unwrap_err();
    assert_eq!(error.to_string(), format!("get secret ns/s: {words}"));
    assert_eq!(stage.asked(), ["odd"]);
}

/// Promise 4: a stop ends the pause between two requests.
#[test]
fn a_stop_ends_the_pause() {
    let stage = stage();
    let asked = ask(&stage, "9", SECOND);
    stage.clock.wait_for_timer(Duration::from_millis(50));
    stage.manager.stop();
    assert!(asked.answer().unwrap_err().is_stopped());
    assert_eq!(stage.asked().len(), 1);
}

/// R11: versions have the order of numbers, and those that are none have no order.
#[test]
fn what_is_reached_is_decided_by_number() {
    let version = ResourceVersion::from;
    for (position, asked, reached) in [
        ("9", "9", true),
        ("10", "9", true),
        ("9", "10", false),
        ("", "9", false),
        ("odd", "odd", true),
        ("odd", "9", false),
        ("9", "odd", false),
    ] {
        let is = is_reached(&version(position), &version(asked));
        assert_eq!(is, reached, "{position} {asked}");
    }
}
