//! The errors of requests: the request, what went wrong, and the server's own words if it sent
//! some.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};

use super::interrupt::Interrupt;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::object::{Status, visible};
use crate::wire::decode_status;

/// Names the decoder in the error of a panic in it.
pub(crate) const DECODER: &str = "the decoder of the objects";

/// How much an error repeats at most of a text that is no `Status`.
const TEXT_CHARS_MAX: usize = 200;

/// Makes the error of a request without an answer.
pub(crate) fn failed(what: &str, interrupt: Interrupt) -> Error {
    let eof = "the server closed the connection without an answer";
    ended(what, interrupt, (ErrorKind::Unreachable, eof))
}

/// Makes the error of an answer whose body broke off.
pub(crate) fn cut_off(what: &str, interrupt: Interrupt) -> Error {
    let eof = "the answer was cut off";
    ended(what, interrupt, (ErrorKind::Protocol, eof))
}

/// Adds that the first try ended after this silence.
pub(crate) fn after_silence(first: Option<Duration>, error: Error) -> Error {
    let Some(silence) = first else {
        return error;
    };
    error.with_hint(&format!(
        "on a second connection, after {silence:.1?} of silence on the first"
    ))
}

/// Refuses a request whose deadline has passed before it asks for its turn.
///
/// # Errors
///
/// `Timeout`, which says whether a try was sent before.
pub(crate) fn unsent_after(deadline: Deadline, clock: &Clock, is_retry: bool) -> Result<(), Error> {
    if !clock.has_passed(deadline) {
        return Ok(());
    }
    let what = if is_retry {
        "the request was not sent again"
    } else {
        "no request was sent"
    };
    let message = format!("{what}: the deadline had passed");
    Err(Error::new(ErrorKind::Timeout, message))
}

/// Adds that the server may have applied the update, and what to do.
pub(crate) fn maybe_applied_if(maybe_applied: bool, error: Error) -> Error {
    if !maybe_applied {
        return error;
    }
    error.with_hint(
        "the server may have applied it; read the object before you send the request again",
    )
}

fn ended(what: &str, interrupt: Interrupt, (kind_of_eof, eof): (ErrorKind, &str)) -> Error {
    let error = match interrupt {
        Interrupt::Stopped => Error::stopped(what),
        Interrupt::Limit(limit) => Error::new(ErrorKind::Timeout, limit.to_string()),
        Interrupt::WouldBlock => Error::new(ErrorKind::Timeout, "nothing came"),
        Interrupt::Failed(error) => error,
        Interrupt::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let is_plain = what.contains(" http://") && kind_of_eof == ErrorKind::Unreachable;
            // As OpenSSL answers plain HTTP.
            let hint = if is_plain {
                ": does it speak TLS on this port (https://)?"
            } else {
                ""
            };
            Error::new(kind_of_eof, format!("{eof} (unexpected EOF){hint}")).with_source(error)
        }
        Interrupt::Io(error) => {
            let message = format!("the connection failed: {error}");
            Error::new(ErrorKind::Unreachable, message).with_source(error)
        }
        Interrupt::Protocol(error) => of_the_protocol(error),
    };
    error.of_request(what)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most errors of ureq mean the same here"
)]
fn of_the_protocol(error: ureq::Error) -> Error {
    let (kind, why) = match &error {
        ureq::Error::LargeResponseHeader(..) => (
            ErrorKind::TooLarge,
            format!("the head of the answer is too large: {error}"),
        ),
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => (
            ErrorKind::Config,
            format!("the request cannot be written: {error}"),
        ),
        _ => (
            ErrorKind::Protocol,
            format!("the answer is not what HTTP says: {error}"),
        ),
    };
    Error::new(kind, why).with_source(error)
}

/// Makes the error of an answer that is no success, from its status code and the beginning of its
/// body.
pub(crate) fn refused(code: u16, body: &[u8], retry_after: Option<Duration>) -> Error {
    let error = match decode_status(body) {
        Some(status) => Error::from_status(status.or_code(code)),
        None => without_status(code, body),
    };
    match retry_after {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// Returns the remedy for a 406 to a request that accepts these forms.
pub(crate) fn not_acceptable(accept: &str) -> String {
    format!(
        "the request accepts {accept}, and the server sends none of these: does a proxy change the \
         Accept header? Client::send asks for other forms"
    )
}

/// Makes the error of a 404 for a collection, whose resource the server does not serve.
///
/// The body is a Status, or a page if the server does not serve the API group.
pub(crate) fn not_served(body: &[u8]) -> Error {
    if let Some(status) = decode_status(body) {
        return Error::from_status(status.or_code(404));
    }
    let text = without_status_text(404, body);
    let message = format!("the server could not find the requested resource: {text}");
    Error::new(ErrorKind::NotFound, message)
}

/// Makes the error of an answer from a proxy, or from a server that is not Kubernetes.
fn without_status(code: u16, body: &[u8]) -> Error {
    let message = without_status_text(code, body);
    if code == 404 {
        // The 404 of an absent object has a Status. This one is about the path.
        return Error::new(ErrorKind::Protocol, message);
    }
    Error::from_status(Status::new(code, message))
}

fn without_status_text(code: u16, body: &[u8]) -> String {
    let words = first_words(body);
    let colon = if words.is_empty() { "" } else { ": " };
    let hint = match code {
        404 => ": is this a Kubernetes API server, and does it serve this resource?",
        // Go and nginx say so if they speak TLS on this port.
        400 if words.contains("HTTPS") => ": the kubeconfig's server has to begin with https://",
        _ => "",
    };
    format!("answered {code} without a Status of the API{colon}{words}{hint}")
}

/// Makes the error of a successful answer that is no JSON.
pub(crate) fn not_json(content_type: &str) -> Error {
    let hint = "instead of JSON: is this a Kubernetes API server?";
    let content_type = printable(content_type);
    not_our_protocol(format!("answered with {content_type:?} {hint}"))
}

/// Makes the error of another success than the 200 that a read has (RS-3).
pub(crate) fn not_200(code: u16) -> Error {
    let hint = "is this a Kubernetes API server?";
    not_our_protocol(format!("answered {code} instead of 200: {hint}"))
}

/// Makes the error of a body in an encoding that the request does not accept.
pub(crate) fn unknown_encoding(encoding: &str) -> Error {
    let hint = "which the request does not accept: is there a proxy that compresses?";
    let encoding = printable(encoding);
    not_our_protocol(format!(
        "answered with Content-Encoding {encoding:?}, {hint}"
    ))
}

/// Makes the error of a redirect.
pub(crate) fn redirected(code: u16, location: &str) -> Error {
    let hint = "redirects are not followed, use the address of the API server";
    let location = printable(location);
    not_our_protocol(format!(
        "answered {code}, to ask {location:?} instead: {hint}"
    ))
}

fn not_our_protocol(why: String) -> Error {
    Error::new(ErrorKind::Protocol, why)
}

/// Returns the first line of a text, or the title of an HTML page.
pub(crate) fn first_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start();
    if text.starts_with('<') {
        let title = text.split_once("<title>").map(|(_, rest)| rest);
        let title = title.and_then(|rest| rest.split('<').next());
        return printable(title.unwrap_or("a page of HTML"));
    }
    printable(text.lines().next().unwrap_or_default())
}

pub(crate) fn printable(text: &str) -> String {
    let cut: String = text.trim().chars().take(TEXT_CHARS_MAX).collect();
    visible(&cut).into_owned()
}

/// Returns the wait of a `Retry-After` header: seconds, or a date as proxies send it. A date counts
/// from the answer's own, because the clocks of two machines differ.
pub(crate) fn retry_after(value: &str, date: &str) -> Option<Duration> {
    let second = |text: &str| {
        let parsed = rfc2822::DateTimeParser::new()
            .relaxed_weekday(true)
            .parse_timestamp(text.trim());
        parsed.ok().map(Timestamp::as_second)
    };
    let wait = value.trim().parse().ok().or_else(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let here = || i64::try_from(since_epoch.ok()?.as_secs()).ok();
        u64::try_from(second(value)?.saturating_sub(second(date).or_else(here)?)).ok()
    });
    wait.filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "GET https://shop.test:6443/api/v1/pods";

    #[test]
    fn the_servers_own_words_pass_through_unchanged() {
        let body = br#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,
            "reason":"Forbidden",
            "message":"pods is forbidden: User \"u\" cannot list resource \"pods\""}"#;
        let error = refused(403, body, None);
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert_eq!(
            error.to_string(),
            "pods is forbidden: User \"u\" cannot list resource \"pods\""
        );
    }

    #[test]
    fn a_proxys_page_is_named_and_not_dumped() {
        let page = b"<html>\n<head><title>502 Bad Gateway</title></head><body>secret</body></html>";
        let error = refused(502, page, Some(Duration::from_secs(3)));
        assert_eq!(
            error.to_string(),
            "answered 502 without a Status of the API: 502 Bad Gateway"
        );
        assert_eq!(error.status().unwrap().code(), 502);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        let long = "x".repeat(100_000);
        assert!(refused(500, long.as_bytes(), None).to_string().len() < 400);
    }

    #[test]
    fn the_end_of_a_plain_connection_asks_for_tls() {
        let ended = |what| {
            let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
            failed(what, Interrupt::Io(eof)).to_string()
        };
        let plain = ended("GET http://shop.test:6443/api");
        assert!(
            plain.ends_with(": does it speak TLS on this port (https://)?"),
            "{plain}"
        );
        let over_tls = ended(WHAT);
        assert!(over_tls.ends_with("(unexpected EOF)"), "{over_tls}");
    }

    #[test]
    fn a_server_that_wants_tls_is_told_with_the_remedy() {
        for page in [
            "Client sent an HTTP request to an HTTPS server.\n",
            "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head>",
        ] {
            let error = refused(400, page.as_bytes(), None).to_string();
            let hint = ": the kubeconfig's server has to begin with https://";
            assert!(error.ends_with(hint), "{error}");
        }
    }

    #[test]
    fn a_404_of_somebody_else_does_not_say_that_the_object_is_absent() {
        let error = refused(404, b"404 page not found\n", None);
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains("404 page not found"), "{error}");
    }

    #[test]
    fn a_404_for_a_collection_says_that_the_resource_is_not_served() {
        let page = not_served(b"404 page not found\n");
        assert_eq!(page.kind(), ErrorKind::NotFound);
        let text = page.to_string();
        for part in [
            "the server could not find the requested resource",
            "404 page not found",
            "does it serve this resource?",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let body = br#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,
            "message":"in its own words"}"#;
        let told = not_served(body);
        assert_eq!(told.kind(), ErrorKind::NotFound);
        assert_eq!(told.status().unwrap().message(), "in its own words");
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let sent = "Wed, 21 Oct 2026 07:27:30 GMT";
        let rows = [
            ("7", Some(7)),
            (" 1 ", Some(1)),
            ("0", None),
            ("-1", None),
            ("soon", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", Some(30)),
            (sent, None),
            ("Wed, 21 Oct 2026 07:27:00 GMT", None),
            ("", None),
        ];
        for (value, seconds) in rows {
            assert_eq!(
                retry_after(value, sent),
                seconds.map(Duration::from_secs),
                "{value:?}"
            );
        }
        // Without a date of the answer, this machine's clock says how long.
        let wait = retry_after("Thu, 01 Jan 2970 00:00:00 GMT", "").unwrap();
        assert!(wait > Duration::from_secs(900 * 365 * 86_400), "{wait:?}");
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:00 GMT", ""), None);
    }
}
