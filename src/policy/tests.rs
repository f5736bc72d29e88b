//! The rows of the table: they are complete, the manual prints them, and they keep their promises.

use std::io;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::*;
use crate::error::ErrorKind;
use crate::object::Status;

const REQUESTS: [RequestKind; 12] = [
    RequestKind::Read,
    RequestKind::FirstRead,
    RequestKind::Raw,
    RequestKind::Sent,
    RequestKind::Update,
    RequestKind::List,
    RequestKind::ListAt,
    RequestKind::LaterPage,
    RequestKind::Stream,
    RequestKind::Open,
    RequestKind::Watch,
    RequestKind::Probe,
];

const ANSWERS: [Answer; 19] = [
    Answer::Refused,
    Answer::Cut,
    Answer::Ended,
    Answer::Silent,
    Answer::Unsent,
    Answer::Malformed,
    Answer::OverLimit,
    Answer::Unauthorized,
    Answer::Forbidden,
    Answer::NotFound,
    Answer::NotAcceptable,
    Answer::Unreadable,
    Answer::Expired,
    Answer::Gone,
    Answer::TooLarge,
    Answer::TooMany,
    Answer::Internal,
    Answer::Unavailable,
    Answer::Other,
];

fn cases() -> impl Iterator<Item = (RequestKind, Answer, bool)> {
    let pairs = REQUESTS
        .into_iter()
        .flat_map(|request| ANSWERS.into_iter().map(move |answer| (request, answer)));
    pairs.flat_map(|(request, answer)| [true, false].map(|named| (request, answer, named)))
}

#[test]
fn each_answer_to_each_request_has_a_row_and_each_row_an_answer() {
    let mut used = vec![false; ROWS.len()];
    for (request, answer, named) in cases() {
        let row = ROWS.iter().position(|row| row.fits(request, answer, named));
        let row = row.unwrap_or_else(|| panic!("{request:?} {answer:?} {named} has no row"));
        used[row] = true;
    }
    let idle: Vec<_> = ROWS.iter().zip(used).filter(|(_, used)| !used).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

/// A row as the manual has it.
fn printed(row: &Row) -> String {
    let answers: Vec<_> = row.answers.iter().map(|it| format!("`{it:?}`")).collect();
    let answers = if answers.is_empty() {
        "any other".to_owned()
    } else {
        answers.join(", ")
    };
    let named = match row.named {
        Some(true) => "yes",
        Some(false) => "no",
        None => "either",
    };
    let step = |step: PolicyStep| {
        let fails = step.next == NextRequest::Fail;
        let wait = if fails {
            String::new()
        } else {
            format!(" {:?}", step.wait)
        };
        format!("`{:?}{wait}`", step.next)
    };
    let first = step(row.first);
    let follows = match row.times {
        EVER => first,
        1 => format!("{first}, then {}", step(row.then)),
        times => format!("{times} times {first}, then {}", step(row.then)),
    };
    format!("| {answers} | {named} | {follows} |")
}

#[test]
fn the_manual_prints_the_table() {
    let page = include_str!("../manual/policy.md");
    for request in REQUESTS {
        let of_request = ROWS.iter().filter(|row| row.requests.contains(&request));
        let expected: Vec<_> = of_request.map(printed).collect();
        let section = page
            .split_once(&format!("\n# `{request:?}`"))
            .unwrap_or_default()
            .1;
        let section = section.split("\n# ").next().unwrap_or_default();
        let rows: Vec<_> = section
            .lines()
            .filter(|line| line.starts_with('|'))
            .skip(2)
            .collect();
        let is_to_be = expected.join("\n");
        assert!(
            rows == expected,
            "the table of {request:?} is to be:\n{is_to_be}"
        );
    }
    let words = page.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    for answer in ANSWERS {
        let word = format!("- `{answer:?}`");
        let explained = page.contains(&word) || words.contains(&format!("{answer:?}").as_str());
        assert!(explained, "{answer:?} is not explained");
    }
}

/// A row of the credentials as the manual has it.
fn printed_renewal(name: &str, row: &RenewalRow) -> String {
    let wait = |wait: Duration| match wait {
        Duration::ZERO => "none".to_owned(),
        Duration::MAX => "its end".to_owned(),
        wait => format!("{wait:?}"),
    };
    let retry = match row.retry_with {
        Duration::MAX => "after a 401".to_owned(),
        retry => format!("{retry:?}"),
    };
    let pauses = match row.pauses {
        (Duration::ZERO, _) => "at once".to_owned(),
        (first, longest) => format!("{first:?}, doubling to {longest:?}"),
    };
    let rejected = match row.between_rejections {
        Duration::ZERO => "at once".to_owned(),
        between => format!("at once, then not for {between:?}"),
    };
    let kept = if row.keeps_rejected {
        "kept"
    } else {
        "dropped"
    };
    let waits = [row.wait_with, row.wait_without].map(wait).join(", ");
    format!("| {name} | {waits} | {retry} | {pauses} | {rejected} | {kept} |")
}

#[test]
fn the_manual_prints_the_rows_of_credentials() {
    let page = include_str!("../manual/policy.md");
    let rows = [
        ("a plugin", &PLUGIN),
        ("a token source", &PROGRAM),
        ("a token file", &TOKEN_FILE),
        ("a kubeconfig", &KUBECONFIG),
    ];
    let rows = rows
        .map(|(name, row)| printed_renewal(name, row))
        .join("\n");
    assert!(
        page.contains(&format!("|---|\n{rows}\n\n")),
        "to be:\n{rows}"
    );
}

/// Each answer of the protocol, and its class in the policy.
#[test]
fn answers_are_told_apart() {
    let status = |code: u16, reason: &str| {
        let status = meta::Status {
            code: Some(code.into()),
            reason: Some(reason.to_owned()),
            ..meta::Status::default()
        };
        Error::from_status(Status::from(status))
    };
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let unreachable = || Error::new(ErrorKind::Unreachable, "could not connect");
    let rows = [
        (unreachable().with_source(refused), Answer::Refused),
        (unreachable(), Answer::Cut),
        (
            unreachable().with_source(io::Error::from(io::ErrorKind::NotFound)),
            Answer::Unsent,
        ),
        (Error::new(ErrorKind::Timeout, ""), Answer::Silent),
        (Error::new(ErrorKind::Tls, ""), Answer::Unsent),
        (Error::new(ErrorKind::Credentials, ""), Answer::Unsent),
        (
            Error::new(ErrorKind::Protocol, "no JSON"),
            Answer::Malformed,
        ),
        (Error::new(ErrorKind::TooLarge, ""), Answer::OverLimit),
        (status(401, ""), Answer::Unauthorized),
        (status(403, ""), Answer::Forbidden),
        (status(404, ""), Answer::NotFound),
        (status(406, "NotAcceptable"), Answer::NotAcceptable),
        (status(400, ""), Answer::Unreadable),
        (status(0, "BadRequest"), Answer::Unreadable),
        (status(422, "Invalid"), Answer::Unreadable),
        (status(410, "Expired"), Answer::Expired),
        (status(410, ""), Answer::Gone),
        (status(429, "TooManyRequests"), Answer::TooMany),
        (status(500, ""), Answer::Internal),
        (status(500, "InternalError"), Answer::Internal),
        (status(500, "StoreReadError"), Answer::Unavailable),
        (status(502, ""), Answer::Unavailable),
        (status(503, ""), Answer::Unavailable),
        (status(504, "Timeout"), Answer::Unavailable),
        (status(405, "MethodNotAllowed"), Answer::Other),
        (status(408, ""), Answer::Other),
        (status(409, "Conflict"), Answer::Other),
        (status(415, "UnsupportedMediaType"), Answer::Other),
    ];
    for (error, expected) in rows {
        assert_eq!(Answer::of(&error), expected, "{error}");
    }
    let future = Status::new(504, "Timeout: Too large resource version: 9, current: 3");
    let mut future = future.as_api().clone();
    future.details = Some(meta::StatusDetails::default());
    let future = Error::from_status(Status::from(future));
    assert_eq!(Answer::of(&future), Answer::TooLarge);
}

/// The requests with a waiting caller. A reflector makes the others.
const FOR_CALLERS: [RequestKind; 5] = [
    RequestKind::Read,
    RequestKind::FirstRead,
    RequestKind::Raw,
    RequestKind::Sent,
    RequestKind::Update,
];

/// No row of a reflector ends the requests.
#[test]
fn a_reflector_never_ends_and_a_read_ends_after_ten_tries() {
    for (request, answer, named) in cases() {
        let ends = step(request, answer, named, 10).next == NextRequest::Fail;
        // Each such try uses up one kept connection.
        let uses_up = (request, answer) == (RequestKind::Sent, Answer::Ended);
        let is_to_end = FOR_CALLERS.contains(&request) && !uses_up;
        assert_eq!(ends, is_to_end, "{request:?} {answer:?}");
    }
}

/// A request that the program composed is never repeated. No connection gets a second copy of an
/// update that may have been applied: only a server that did not read it says 401.
#[test]
fn what_may_change_something_is_sent_once() {
    for (request, answer, named) in cases() {
        let next = step(request, answer, named, 1).next;
        let expected = match (request, answer) {
            (RequestKind::Update, Answer::Unauthorized) => NextRequest::Renewed,
            (RequestKind::Update | RequestKind::Raw, _) => NextRequest::Fail,
            _ => continue,
        };
        assert_eq!(next, expected, "{request:?} {answer:?}");
        assert_eq!(step(request, answer, named, 2).next, NextRequest::Fail);
    }
}

/// A first read leaves answers without a named wait to its manager's backoff, and is otherwise like
/// any read.
#[test]
fn a_first_read_waits_as_the_server_asks_alone() {
    for (_, answer, named) in cases() {
        let [any, first] =
            [RequestKind::Read, RequestKind::FirstRead].map(|kind| step(kind, answer, named, 1));
        let is_soon = any.wait == WaitRule::Soon;
        assert_eq!(
            first.next == NextRequest::Fail,
            any.next == NextRequest::Fail || is_soon
        );
        assert!(first == any || is_soon, "{answer:?}");
    }
}

/// A named wait is never shortened. The first time, the same request follows it, unless the
/// position is gone.
#[test]
fn a_named_wait_is_a_wait() {
    let gone = [Answer::Expired, Answer::Gone, Answer::TooLarge];
    for (request, answer, _) in cases().filter(|(_, _, named)| *named) {
        let step = step(request, answer, true, 1);
        let is_read = matches!(request, RequestKind::Read | RequestKind::FirstRead);
        let else_gone = is_read && answer == Answer::NotFound
            || (request, answer) == (RequestKind::Stream, Answer::OverLimit)
            || FOR_CALLERS.contains(&request) && !is_read;
        if !gone.contains(&answer) && !else_gone {
            let is_wait = matches!(step.wait, WaitRule::Named | WaitRule::Longer);
            assert!(
                is_wait && step.next == NextRequest::Same,
                "{request:?} {answer:?} {step:?}"
            );
        }
    }
}
