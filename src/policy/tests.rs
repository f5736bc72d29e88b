//! The rows of the table: they are complete, the manual prints them, and they keep their promises.

use std::io;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::*;
use crate::error::ErrorKind;
use crate::object::Status;

const REQUESTS: [PolicyRequest; 12] = [
    PolicyRequest::Read,
    PolicyRequest::FirstRead,
    PolicyRequest::Raw,
    PolicyRequest::Sent,
    PolicyRequest::Update,
    PolicyRequest::List,
    PolicyRequest::ListAt,
    PolicyRequest::LaterPage,
    PolicyRequest::Stream,
    PolicyRequest::Open,
    PolicyRequest::Watch,
    PolicyRequest::Probe,
];

const ANSWERS: [AnswerKind; 19] = [
    AnswerKind::Refused,
    AnswerKind::Cut,
    AnswerKind::Ended,
    AnswerKind::Silent,
    AnswerKind::Unsent,
    AnswerKind::Malformed,
    AnswerKind::OverLimit,
    AnswerKind::Unauthorized,
    AnswerKind::Forbidden,
    AnswerKind::NotFound,
    AnswerKind::NotAcceptable,
    AnswerKind::Unreadable,
    AnswerKind::Expired,
    AnswerKind::Gone,
    AnswerKind::TooLarge,
    AnswerKind::TooMany,
    AnswerKind::Internal,
    AnswerKind::Unavailable,
    AnswerKind::Other,
];

fn cases() -> impl Iterator<Item = (PolicyRequest, AnswerKind, bool)> {
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
fn printed(row: &PolicyRow) -> String {
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
        (unreachable().with_source(refused), AnswerKind::Refused),
        (unreachable(), AnswerKind::Cut),
        (
            unreachable().with_source(io::Error::from(io::ErrorKind::NotFound)),
            AnswerKind::Unsent,
        ),
        (Error::new(ErrorKind::Timeout, ""), AnswerKind::Silent),
        (Error::new(ErrorKind::Tls, ""), AnswerKind::Unsent),
        (Error::new(ErrorKind::Credentials, ""), AnswerKind::Unsent),
        (
            Error::new(ErrorKind::Protocol, "no JSON"),
            AnswerKind::Malformed,
        ),
        (
            Error::new(ErrorKind::Protocol, "half an answer")
                .with_source(io::Error::from(io::ErrorKind::UnexpectedEof)),
            AnswerKind::Cut,
        ),
        (Error::new(ErrorKind::TooLarge, ""), AnswerKind::OverLimit),
        (status(401, ""), AnswerKind::Unauthorized),
        (status(403, ""), AnswerKind::Forbidden),
        (status(404, ""), AnswerKind::NotFound),
        (status(406, "NotAcceptable"), AnswerKind::NotAcceptable),
        (status(400, ""), AnswerKind::Unreadable),
        (status(0, "BadRequest"), AnswerKind::Unreadable),
        (status(422, "Invalid"), AnswerKind::Unreadable),
        (status(410, "Expired"), AnswerKind::Expired),
        (status(410, ""), AnswerKind::Gone),
        (status(429, "TooManyRequests"), AnswerKind::TooMany),
        (status(500, ""), AnswerKind::Internal),
        (status(500, "InternalError"), AnswerKind::Internal),
        (status(500, "StoreReadError"), AnswerKind::Unavailable),
        (status(502, ""), AnswerKind::Unavailable),
        (status(503, ""), AnswerKind::Unavailable),
        (status(504, "Timeout"), AnswerKind::Unavailable),
        (status(405, "MethodNotAllowed"), AnswerKind::Other),
        (status(408, ""), AnswerKind::Other),
        (status(409, "Conflict"), AnswerKind::Other),
        (status(415, "UnsupportedMediaType"), AnswerKind::Other),
    ];
    for (error, expected) in rows {
        assert_eq!(AnswerKind::of(&error), expected, "{error}");
    }
    let future = Status::new(504, "Timeout: Too large resource version: 9, current: 3");
    let mut future = future.as_api().clone();
    future.details = Some(meta::StatusDetails::default());
    let future = Error::from_status(Status::from(future));
    assert_eq!(AnswerKind::of(&future), AnswerKind::TooLarge);
}

/// The server may have done what a silent update asked for.
#[test]
fn an_update_is_sent_again_only_with_other_credentials() {
    for answer in ANSWERS {
        let is_refused = answer == AnswerKind::Unauthorized;
        let again = next(true, answer) != NextRequest::Fail;
        assert_eq!(again, is_refused, "{answer:?}");
    }
    assert_eq!(next(false, AnswerKind::Silent), NextRequest::Same);
}

/// The requests with a waiting caller. A reflector makes the others.
const FOR_CALLERS: [PolicyRequest; 5] = [
    PolicyRequest::Read,
    PolicyRequest::FirstRead,
    PolicyRequest::Raw,
    PolicyRequest::Sent,
    PolicyRequest::Update,
];

/// No row of a reflector ends the requests.
#[test]
fn a_reflector_never_ends_and_a_read_ends_after_ten_tries() {
    for (request, answer, named) in cases() {
        let ends = step(request, answer, named, 10).next == NextRequest::Fail;
        // Each such try uses up one kept connection.
        let uses_up = (request, answer) == (PolicyRequest::Sent, AnswerKind::Ended);
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
            (PolicyRequest::Update, AnswerKind::Unauthorized) => NextRequest::Renewed,
            (PolicyRequest::Update | PolicyRequest::Raw, _) => NextRequest::Fail,
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
        let [any, first] = [PolicyRequest::Read, PolicyRequest::FirstRead]
            .map(|kind| step(kind, answer, named, 1));
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
    let gone = [AnswerKind::Expired, AnswerKind::Gone, AnswerKind::TooLarge];
    for (request, answer, _) in cases().filter(|(_, _, named)| *named) {
        let step = step(request, answer, true, 1);
        let is_read = matches!(request, PolicyRequest::Read | PolicyRequest::FirstRead);
        let else_gone = is_read && answer == AnswerKind::NotFound
            || (request, answer) == (PolicyRequest::Stream, AnswerKind::OverLimit)
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
