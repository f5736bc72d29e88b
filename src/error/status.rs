//! The API's own report of a failure: `Status`, its reasons, and their meaning for a client.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::visible::visible;

/// The API server's report of a failed request.
///
/// The message is the server's own, cut and marked beyond 4 KiB. `Display` and `Debug` escape
/// characters that would control a terminal ([`visible()`]); [`message`](Self::message) is the
/// original text.
#[derive(Clone, PartialEq)]
pub struct Status(meta::Status);

/// The machine-readable reason of a [`Status`]. New servers may send more reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// 401: the server does not know the user.
    Unauthorized,
    /// 403: the server knows the user and refuses the request.
    Forbidden,
    /// 404.
    NotFound,
    /// 410: the server's history no longer has the version.
    Expired,
    /// 410.
    Gone,
    /// 429.
    TooManyRequests,
    /// 500, 503 or 504: the server could not decide in time.
    Timeout,
    /// 504: the server told the client to try again.
    ServerTimeout,
    /// 503.
    ServiceUnavailable,
    /// 500.
    InternalError,
    /// 400.
    BadRequest,
    /// 422.
    Invalid,
    /// 500: an object in the server's storage cannot be read.
    StoreReadError,
    /// Any other reason, as the server wrote it; empty when the server gave none.
    Other(String),
}

/// Each reason, its word, and the code that means it in a status without a word.
static REASONS: [(Reason, &str, Option<u16>); 13] = [
    (Reason::Unauthorized, "Unauthorized", Some(401)),
    (Reason::Forbidden, "Forbidden", Some(403)),
    (Reason::NotFound, "NotFound", Some(404)),
    (Reason::Expired, "Expired", None),
    (Reason::Gone, "Gone", Some(410)),
    (Reason::TooManyRequests, "TooManyRequests", Some(429)),
    (Reason::Timeout, "Timeout", Some(504)),
    (Reason::ServerTimeout, "ServerTimeout", None),
    (Reason::ServiceUnavailable, "ServiceUnavailable", Some(503)),
    (Reason::InternalError, "InternalError", Some(500)),
    (Reason::BadRequest, "BadRequest", Some(400)),
    (Reason::Invalid, "Invalid", Some(422)),
    (Reason::StoreReadError, "StoreReadError", None),
];

/// The message and cause texts with which servers of any age say that a version lies in their
/// future (RF-13).
const TOO_LARGE: &str = "Too large resource version";

/// The maximum length of a message or a reason, because statuses and logs repeat it whole. The
/// longest real ones, about the fields of a custom resource, are shorter.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// An error is kept for each object that fails. A refusal has no room for more causes.
const CAUSES_MAX: usize = 1000;

/// Cuts a text that is too long, between two words, or else two characters.
fn clipped(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let mut ends = (0..=TEXT_BYTES_MAX).rev();
    let kept = ends.find_map(|end| text.get(..end)).unwrap_or_default();
    // Half of a credential would not be hidden.
    let words = kept.rsplit_once(' ').map(|(words, _)| words);
    let kept = words.filter(|words| !words.is_empty()).unwrap_or(kept);
    format!("{kept} … ({} bytes)", text.len())
}

impl Status {
    /// Makes a status for an answer without one.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self::from(meta::Status {
            code: Some(code.into()),
            message: Some(message.into()),
            ..meta::Status::default()
        })
    }

    /// Returns the HTTP status code; 0 when the server sent none.
    pub fn code(&self) -> u16 {
        let code = self.0.code.and_then(|code| u16::try_from(code).ok());
        code.unwrap_or_default()
    }

    /// Returns the server's message, up to 4 KiB; empty when it sent none.
    pub fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or_default()
    }

    /// Returns the reason: the server's word, or the meaning of the code when it sent none.
    pub fn reason(&self) -> Reason {
        let text = self.reason_text();
        let known = REASONS.iter().find(|(_, word, code)| match text {
            "" => *code == Some(self.code()),
            _ => *word == text,
        });
        known.map_or_else(
            || Reason::Other(text.to_owned()),
            |(reason, ..)| reason.clone(),
        )
    }

    /// Returns the server's own word for the reason; empty when it sent none.
    pub fn reason_text(&self) -> &str {
        self.0.reason.as_deref().unwrap_or_default()
    }

    /// Returns how long the server asks to wait before the next try (`details.retryAfterSeconds`).
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.0.details.as_ref()?.retry_after_seconds?;
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }

    /// Whether the history no longer has the requested version: reason `Expired` or `Gone`, or an
    /// unknown reason with 410.
    pub fn is_expired(&self) -> bool {
        let reason = self.reason();
        matches!(reason, Reason::Expired | Reason::Gone)
            || (matches!(reason, Reason::Other(_)) && self.code() == 410)
    }

    /// Whether the requested version lies in the server's future.
    pub fn is_too_large_resource_version(&self) -> bool {
        let Some(details) = &self.0.details else {
            return false;
        };
        let causes = details.causes.as_deref().unwrap_or_default();
        let mut reasons = causes.iter().filter_map(|cause| cause.reason.as_deref());
        let mut messages = causes.iter().filter_map(|cause| cause.message.as_deref());
        if reasons.any(|reason| reason == "ResourceVersionTooLarge") {
            return true;
        }
        let is_said = self.message().contains(TOO_LARGE) || messages.any(|text| text == TOO_LARGE);
        self.reason() == Reason::Timeout && is_said
    }

    /// Whether the server had an internal error: reason `InternalError`, or an unknown reason with
    /// 500.
    pub fn is_internal_error(&self) -> bool {
        let reason = self.reason();
        reason == Reason::InternalError
            || (matches!(reason, Reason::Other(_)) && self.code() == 500)
    }

    /// Takes the code of its HTTP answer, if it has none of its own.
    pub(crate) fn or_code(mut self, code: u16) -> Self {
        if self.code() == 0 {
            self.0.code = Some(code.into());
        }
        self
    }

    /// Applies `change` to each text.
    pub(crate) fn map_texts(self, change: &dyn Fn(&str) -> String) -> Self {
        let mut status = self.0;
        let apply = |text: &mut Option<String>| {
            if let Some(text) = text {
                *text = change(text);
            }
        };
        apply(&mut status.message);
        apply(&mut status.reason);
        apply(&mut status.status);
        apply(&mut status.metadata.continue_);
        apply(&mut status.metadata.resource_version);
        apply(&mut status.metadata.self_link);
        if let Some(details) = &mut status.details {
            apply(&mut details.name);
            apply(&mut details.group);
            apply(&mut details.kind);
            apply(&mut details.uid);
            for cause in details.causes.iter_mut().flatten() {
                apply(&mut cause.field);
                apply(&mut cause.message);
                apply(&mut cause.reason);
            }
        }
        Self(status)
    }

    /// Returns the status as `k8s-openapi`'s type.
    pub fn as_api(&self) -> &meta::Status {
        &self.0
    }
}

impl From<meta::Status> for Status {
    fn from(mut status: meta::Status) -> Self {
        let details = status.details.as_mut();
        if let Some(causes) = details.and_then(|details| details.causes.as_mut()) {
            causes.truncate(CAUSES_MAX);
            causes.shrink_to_fit();
        }
        Self(status).map_texts(&clipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, reason) = (visible(self.message()), visible(self.reason_text()));
        match (&*message, self.code(), &*reason) {
            ("", 0, "") => f.write_str("the server sent a status without code, reason and message"),
            ("", 0, reason) => write!(f, "the server says {reason}, without code and message"),
            ("", code, "") => write!(f, "status {code}, without reason and message"),
            ("", code, reason) => write!(f, "status {code} {reason}"),
            (message, ..) => f.write_str(message),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, reason) = (self.code(), self.reason());
        write!(f, "Status({code} {reason:?}: {})", visible(self.message()))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

    use super::*;

    fn status(json: &str) -> Status {
        Status::from(serde_json::from_str::<meta::Status>(json).unwrap())
    }

    /// RF-13, in the three forms servers have used.
    #[test]
    fn a_version_from_the_future_is_recognised_in_all_its_forms() {
        let by_cause = status(
            r#"{"code":504,"reason":"Timeout","details":{"causes":[
            {"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}"#,
        );
        let by_cause_message = status(
            r#"{"reason":"Timeout","details":{"causes":[
            {"message":"Too large resource version"}]}}"#,
        );
        let by_message = status(
            r#"{"reason":"Timeout","details":{},
            "message":"Timeout: Too large resource version: 9, current: 3"}"#,
        );
        for status in [by_cause, by_cause_message, by_message] {
            assert!(status.is_too_large_resource_version(), "{status:?}");
        }
        let without_details =
            status(r#"{"reason":"Timeout","message":"Too large resource version"}"#);
        assert!(!without_details.is_too_large_resource_version());
    }

    #[test]
    fn what_a_server_says_at_length_is_clipped_between_characters_and_marked() {
        let whole = "x".repeat(4096);
        assert_eq!(Status::new(500, whole.as_str()).message(), whole);
        let api = meta::Status {
            message: Some(format!("x{}", "ü".repeat(1 << 20))),
            reason: Some("R".repeat(1 << 20)),
            ..meta::Status::default()
        };
        let status = Status::from(api);
        let words = Status::new(500, format!("{} x{}", "a".repeat(4000), "b".repeat(200)));
        assert_eq!(
            words.message(),
            format!("{} … (4202 bytes)", "a".repeat(4000))
        );
        let expected = format!("x{} … (2097153 bytes)", "ü".repeat(2047));
        assert!(status.message() == expected, "{}", status.message().len());
        assert!(status.reason_text().len() < 4200);
        assert!(format!("{status} {status:?}").len() < 16 * 1024);
    }

    #[test]
    fn a_status_keeps_no_more_of_its_details_than_somebody_reads() {
        let long = || Some("x".repeat(1 << 20));
        let cause = meta::StatusCause {
            field: long(),
            message: long(),
            reason: long(),
        };
        let empty = meta::StatusCause::default();
        let mut causes = vec![empty; 100_000];
        causes.insert(0, cause);
        let status = Status::from(meta::Status {
            metadata: ListMeta {
                continue_: long(),
                resource_version: long(),
                self_link: long(),
                ..ListMeta::default()
            },
            details: Some(meta::StatusDetails {
                causes: Some(causes),
                group: long(),
                kind: long(),
                name: long(),
                uid: long(),
                ..meta::StatusDetails::default()
            }),
            status: long(),
            ..meta::Status::default()
        });
        let text = serde_json::to_string(status.as_api()).unwrap();
        assert!(text.len() < 64 * 1024, "{}", text.len());
        let details = status.as_api().details.as_ref().unwrap();
        let causes = details.causes.as_ref().unwrap();
        assert!(causes.len() == 1000 && causes.capacity() == 1000);
    }

    /// A server may echo a credential in any of them.
    #[test]
    fn each_text_of_a_status_is_redacted() {
        let secret = "hunter2";
        let json = r#"{"code":422,"status":"hunter2","message":"hunter2","reason":"hunter2",
            "metadata":{"continue":"hunter2","resourceVersion":"hunter2","selfLink":"hunter2"},
            "details":{"name":"hunter2","group":"hunter2","kind":"hunter2","uid":"hunter2",
            "causes":[{"field":"hunter2","message":"hunter2","reason":"hunter2"}]}}"#;
        let redacted = status(json).map_texts(&|text| text.replace(secret, "…"));
        let text = serde_json::to_string(redacted.as_api()).unwrap();
        assert!(!text.contains(secret), "{text}");
        assert_eq!(text.matches('…').count(), 13, "{text}");
    }

    /// D16: an empty status does not read as a status of zero.
    #[test]
    fn what_a_status_lacks_is_said_in_words() {
        let rows = [
            (
                "{}",
                "the server sent a status without code, reason and message",
            ),
            (
                r#"{"reason":"Odd"}"#,
                "the server says Odd, without code and message",
            ),
            (r#"{"code":500}"#, "status 500, without reason and message"),
            (r#"{"code":500,"reason":"Odd"}"#, "status 500 Odd"),
            (r#"{"code":500,"message":"a\nb"}"#, "a\\nb"),
        ];
        for (json, expected) in rows {
            assert_eq!(status(json).to_string(), expected);
        }
    }

    /// RF-14 and RF-38: an unknown reason falls back to the code, a known one does not.
    #[test]
    fn the_code_speaks_only_where_the_reason_is_silent_or_unknown() {
        assert!(Status::new(410, "").is_expired());
        assert!(status(r#"{"code":410,"reason":"NewWord"}"#).is_expired());
        assert!(!status(r#"{"code":410,"reason":"NotFound"}"#).is_expired());
        assert!(status(r#"{"code":500,"reason":"NewWord"}"#).is_internal_error());
        assert!(!status(r#"{"code":500,"reason":"StoreReadError"}"#).is_internal_error());
    }
}
