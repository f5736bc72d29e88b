//! Replaces secret values in the bodies of answers, in place, with made-up ones of the same length.
//!
//! Equal lengths preserve what a replay needs: the sizes, the content length, and the cuts between
//! pieces of a body. Equal values get equal replacements and different values different ones, so
//! that a changed value still shows.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::testing::json::{self, JsonNode};

/// The annotation in which kubectl keeps the object as it was applied, secret values included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The annotation that ends a streamed list: a word of the protocol.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Shorter runs with two dots in them are version numbers and host names, not signed tokens.
const TOKEN_BYTES_MIN: usize = 30;

/// The filler for a body that cannot be read.
const UNREADABLE: u8 = b'x';

/// Replaces secret values. Keeps only keyed hashes, whose key is dropped with it.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    key: RandomState,
    numbers: HashMap<u64, usize>,
}

/// A place in the text, and its replacement.
struct Redaction {
    span: Range<usize>,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    /// A string: made-up text; made-up text in base64 if it is base64.
    Text,
    /// A number: its digits.
    Digits,
}

impl Redactor {
    /// Replaces the secrets in one JSON text, whole or cut off. Returns whether it could be read as
    /// JSON.
    ///
    /// `of_secrets` says that the request was for Secrets, whatever kind the text names. A text
    /// that is not JSON may contain anything, so none of it is kept.
    pub(super) fn redact(&mut self, text: &mut [u8], of_secrets: bool) -> bool {
        let Ok(scanned) = json::scan(text) else {
            blank(text);
            return false;
        };
        let mut changes = Vec::new();
        // A cut text may end before the kind of its objects, so all of it counts as secret.
        collect(text, &scanned.root, of_secrets || scanned.cut, &mut changes);
        for change in changes {
            self.change(text, change);
        }
        self.tokens(text);
        true
    }

    fn change(&mut self, text: &mut [u8], change: Redaction) {
        let Some(value) = text.get_mut(change.span) else {
            return;
        };
        match change.how {
            How::Digits => value
                .iter_mut()
                .filter(|byte| byte.is_ascii_digit())
                .for_each(|digit| *digit = b'1'),
            How::Text => {
                let number = self.number(value);
                let made_up = made_up(number, value);
                value.copy_from_slice(&made_up);
            }
        }
    }

    fn number(&mut self, value: &[u8]) -> usize {
        let next = self.numbers.len().saturating_add(1);
        *self.numbers.entry(self.key.hash_one(value)).or_insert(next)
    }

    /// Replaces signed tokens and bearer headers anywhere, such as a `ServiceAccount`'s token in an
    /// env value, or a log line in a status.
    fn tokens(&mut self, text: &mut [u8]) {
        for span in token_spans(text) {
            let how = How::Text;
            self.change(text, Redaction { span, how });
        }
    }
}

/// Overwrites everything but line ends.
pub(super) fn blank(text: &mut [u8]) {
    text.iter_mut()
        .filter(|byte| **byte != b'\n')
        .for_each(|byte| *byte = UNREADABLE);
}

/// Finds the parts to replace. `secret` is true below a Secret or a list of them.
fn collect(text: &[u8], node: &JsonNode, secret: bool, changes: &mut Vec<Redaction>) {
    let secret = secret || is_secret(text, node);
    match node {
        JsonNode::Object(members) => {
            for member in members {
                match (member.key.as_str(), &member.value) {
                    // Whatever their shape: a server that is wrong about one thing may be wrong
                    // about another.
                    ("data" | "stringData", value) if secret => leaves(value, changes),
                    ("annotations", JsonNode::Object(annotations)) if secret => {
                        let private = annotations
                            .iter()
                            .filter(|one| one.key != INITIAL_EVENTS_END);
                        private.for_each(|annotation| leaves(&annotation.value, changes));
                    }
                    ("annotations", value) if secret => leaves(value, changes),
                    (LAST_APPLIED | "token", value @ JsonNode::String(_)) => leaves(value, changes),
                    (_, value) => collect(text, value, secret, changes),
                }
            }
        }
        JsonNode::Array(items) => items
            .iter()
            .for_each(|item| collect(text, item, secret, changes)),
        JsonNode::String(_) | JsonNode::Literal(_) => {}
    }
}

fn is_secret(text: &[u8], node: &JsonNode) -> bool {
    let Some(JsonNode::String(kind)) = node.member("kind").map(|member| &member.value) else {
        return false;
    };
    matches!(text.get(kind.clone()), Some(b"Secret" | b"SecretList"))
}

fn leaves(node: &JsonNode, changes: &mut Vec<Redaction>) {
    match node {
        JsonNode::Object(members) => members
            .iter()
            .for_each(|member| leaves(&member.value, changes)),
        JsonNode::Array(items) => items.iter().for_each(|item| leaves(item, changes)),
        JsonNode::String(span) => changes.push(Redaction {
            span: span.clone(),
            how: How::Text,
        }),
        JsonNode::Literal(span) => changes.push(Redaction {
            span: span.clone(),
            how: How::Digits,
        }),
    }
}

/// A value of the same length that shows that it is made up; base64 if the original was base64.
fn made_up(number: usize, original: &[u8]) -> Vec<u8> {
    let decoded = STANDARD
        .decode(original)
        .ok()
        .filter(|decoded| !decoded.is_empty());
    let made = match decoded {
        Some(decoded) => STANDARD
            .encode(pattern(number, decoded.len(), &decoded))
            .into_bytes(),
        None => pattern(number, original.len(), original),
    };
    if made.len() == original.len() {
        made
    } else {
        pattern(number, original.len(), original)
    }
}

/// `redacted-7.redacted-7.…`, or as much of `7redacted` as fits.
fn pattern(number: usize, length: usize, original: &[u8]) -> Vec<u8> {
    let word = if length < 12 {
        format!("{number}redacted")
    } else {
        format!("redacted-{number}.")
    };
    let mut made: Vec<u8> = word.bytes().cycle().take(length).collect();
    if made == original
        && let Some(last) = made.last_mut()
    {
        *last = b'_';
    }
    made
}

/// The bearer tokens of a JSON text, and the signed tokens.
fn token_spans(text: &[u8]) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut at = 0_usize;
    for run in text.split(|byte| !is_token_byte(*byte)) {
        let end = at.saturating_add(run.len());
        if run.is_empty() {
            // Two bytes between two runs.
        } else if is_named(text.get(..at).unwrap_or_default(), run) {
            spans.push(at..end);
        } else if let Some(begin) = (at..end).find(|begin| is_signed(text, *begin..end)) {
            spans.push(begin..end);
        }
        at = end.saturating_add(1);
    }
    spans
}

/// Whether the text before a run says that it is a token. In small letters it may be a sentence,
/// whose next word has no digit.
fn is_named(before: &[u8], run: &[u8]) -> bool {
    let word = before.trim_ascii_end();
    let name = word.len().checked_sub(b"bearer".len());
    let name = name.and_then(|from| word.get(from..));
    let is_named = name.is_some_and(|name| name.eq_ignore_ascii_case(b"bearer"));
    let is_random = run.len() >= TOKEN_BYTES_MIN || run.iter().any(u8::is_ascii_digit);
    word.len() < before.len() && is_named && (is_random || name == Some(b"Bearer"))
}

/// Whether a signed token begins where `span` does: three parts in base64 of URLs.
fn is_signed(text: &[u8], span: Range<usize>) -> bool {
    let before = text.get(..span.start).unwrap_or_default();
    let run = text.get(span).unwrap_or_default();
    // In JSON text, a letter may be the end of an escape.
    let is_begin = !before.last().is_some_and(|byte| is_base64url(*byte))
        || matches!(before, [.., b'\\', b'b' | b'f' | b'n' | b'r' | b't'])
        || matches!(before, [.., b'\\', b'u', _, _, _, _]);
    let mut parts = run.split(|byte| *byte == b'.');
    run.starts_with(b"eyJ")
        && is_begin
        && run.len() >= TOKEN_BYTES_MIN
        && parts
            .by_ref()
            .take(3)
            .filter(|part| !part.is_empty())
            .count()
            == 3
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

fn is_token_byte(byte: u8) -> bool {
    is_base64url(byte) || b".~+/=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str, of_secrets: bool) -> String {
        let mut bytes = text.as_bytes().to_vec();
        Redactor::default().redact(&mut bytes, of_secrets);
        assert_eq!(bytes.len(), text.len(), "the length is kept");
        String::from_utf8(bytes).unwrap()
    }

    fn base64(text: &str) -> String {
        STANDARD.encode(text)
    }

    /// The canary: no secret value is left in any place, and everything else stays to the byte.
    #[test]
    fn no_canary_survives_and_nothing_else_changes() {
        let canary = base64("canary-of-a-password");
        let applied = r#"{\"data\":{\"password\":\"canary\"}}"#;
        let annotations = format!(r#"{{"{LAST_APPLIED}":"{applied}\n","x":"canary"}}"#);
        let data = format!(r#"{{"password":"{canary}","n":"Nw==","odd":17,"deep":["canary"]}}"#);
        let secret = [
            format!(r#""metadata":{{"name":"db","annotations":{annotations}}},"data":{data}"#),
            r#","stringData":{"a":"can\u0061ry canary"},"type":"Opaque""#.to_owned(),
        ]
        .concat();
        let list = r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":["#;
        let texts = [
            format!(
                r#"{{"type":"ADDED","object":{{"kind":"Secret","apiVersion":"v1",{secret}}}}}"#
            ),
            format!(r#"{{"type":"ADDED","object":{{{secret},"kind":"Secret"}}}}"#),
            format!("{list}{{{secret}}},{{{secret}}}]}}"),
            format!(r#"{{"kind":"List","items":[{{"kind":"Secret",{secret}}}]}}"#),
            format!(r#"{{"kind":"Table","rows":[{{"object":{{"kind":"Secret",{secret}}}}}]}}"#),
        ];
        for text in texts {
            let after = redacted(&text, false);
            assert!(
                !after.contains("canary") && !after.contains(&canary) && !after.contains("Nw=="),
                "{after}"
            );
            assert!(after.contains(r#""name":"db""#) && after.contains(r#""type":"Opaque""#));
            let (before, after): (serde_json::Value, serde_json::Value) = (
                serde_json::from_str(&text).unwrap(),
                serde_json::from_str(&after).unwrap(),
            );
            assert_eq!(before.pointer("/kind"), after.pointer("/kind"));
        }
    }

    /// F21: a member with another shape than the API's is just as secret.
    #[test]
    fn f21_data_of_any_shape_is_replaced() {
        for data in [
            r#""canary""#,
            r#"["canary"]"#,
            r#"{"k":["canary"]}"#,
            r#"{"canary":{"k":"v"}}"#,
        ] {
            for name in ["data", "stringData"] {
                for kind in ["Secret", "SecretList"] {
                    let object = format!(r#"{{"kind":"Secret","{name}":{data}}}"#);
                    let text = match kind {
                        "Secret" => object,
                        _ => format!(r#"{{"kind":"SecretList","items":[{object}]}}"#),
                    };
                    let shows = redacted(&text, false).contains(r#""canary""#);
                    // The keys of a map are names, not values.
                    assert_eq!(shows, data.starts_with(r#"{"canary"#), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_text_cut_at_any_byte_shows_nothing_either() {
        let canary = base64("canary-of-a-password");
        let text =
            format!(r#"{{"items":[{{"data":{{"password":"{canary}"}}}}],"kind":"SecretList"}}"#);
        for end in 0..text.len() {
            let after = redacted(&text[..end], false);
            assert!(!after.contains("Y2FuYXJ5"), "cut at {end}: {after}");
        }
    }

    #[test]
    fn the_request_decides_where_the_text_does_not_say() {
        let text = r#"{"items":[{"data":{"password":"Y2FuYXJ5"}}]}"#;
        assert_eq!(redacted(text, false), text);
        assert!(!redacted(text, true).contains("Y2FuYXJ5"));
    }

    #[test]
    fn config_maps_keep_their_data_but_not_what_was_applied() {
        let annotations = format!(r#"{{"{LAST_APPLIED}":"canary","note":"n"}}"#);
        let metadata = format!(r#"{{"annotations":{annotations}}}"#);
        let text = format!(r#"{{"kind":"ConfigMap","metadata":{metadata},"data":{{"a":"b"}}}}"#);
        let after = redacted(&text, false);
        assert!(!after.contains("canary"));
        assert!(after.contains(r#""note":"n""#) && after.contains(r#""data":{"a":"b"}"#));
    }

    #[test]
    fn the_bookmark_that_ends_the_initial_events_keeps_its_word() {
        let text = concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Secret","#,
            r#""metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        );
        assert_eq!(redacted(text, true), text);
    }

    #[test]
    fn tokens_are_replaced_wherever_they_stand() {
        let token = format!(
            "eyJhbGciOiJSUzI1NiJ9.{}.c2lnbmF0dXJl",
            base64("{\"sub\":\"canary\"}")
        );
        for text in [
            format!(r#"{{"kind":"Pod","env":[{{"value":"{token}"}}]}}"#),
            r#"{"kind":"Status","message":"bad header Bearer c2lnbmF0dXJl"}"#.to_owned(),
            r#"{"kind":"TokenRequest","status":{"token":"c2lnbmF0dXJl"}}"#.to_owned(),
            format!(r#"{{"kind":"Pod","args":["--token={token}"]}}"#),
            format!(r#"{{"kind":"Pod","value":"JWT={token}"}}"#),
            format!(r#"{{"kind":"Pod","value":"https://h/cb?access_token={token}&a=b"}}"#),
            format!(r#"{{"kind":"Pod","value":"https://h/{token}"}}"#),
            format!(r#"{{"kind":"Status","message":"token:\n{token}"}}"#),
            format!(r#"{{"kind":"Status","message":"token:\u0009{token}"}}"#),
            format!(r#"{{"kind":"Status","message":"rejected {token}."}}"#),
            format!(r#"{{"kind":"Status","message":"rejected ...{token}..."}}"#),
            r#"{"kind":"Status","message":"authorization: bearer c2lnbmF0dXJl"}"#.to_owned(),
            r#"{"kind":"Status","message":"authorization: BEARER  c2lnbmF0dXJl"}"#.to_owned(),
        ] {
            assert!(!redacted(&text, false).contains("c2lnbmF0dXJl"), "{text}");
        }
        for text in [
            r#"{"image":"registry.example/a:1.2.3","host":"a.b.example"}"#,
            r#"{"image":"registry.example/monkeyJar.of-the-night-shift.example.com/a:1.2.3"}"#,
            r#"{"message":"the bearer"}"#,
            r#"{"message":"invalid bearer token, or a Bearer. of none"}"#,
        ] {
            assert_eq!(redacted(text, false), text);
        }
    }

    #[test]
    fn equal_values_stay_equal_and_different_ones_different() {
        let text = format!(
            r#"{{"kind":"Secret","data":{{"a":"{0}","b":"{1}","c":"{0}"}}}}"#,
            base64("canary-session-key-2024"),
            base64("canary-session-key-2025"),
        );
        let after: serde_json::Value = serde_json::from_str(&redacted(&text, false)).unwrap();
        let value = |key: &str| {
            STANDARD
                .decode(after["data"][key].as_str().unwrap())
                .unwrap()
        };
        assert_eq!(value("a"), b"redacted-1.redacted-1.r");
        assert_eq!(value("a"), value("c"));
        assert_ne!(value("a"), value("b"));
    }

    #[test]
    fn what_is_not_json_is_not_kept_at_all() {
        let mut text = b"k8s\0canary\nmore".to_vec();
        assert!(!Redactor::default().redact(&mut text, false));
        assert_eq!(text, b"xxxxxxxxxx\nxxxx");
    }
}
