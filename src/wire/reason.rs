//! The words of an error about an object: the path of the field, and never a value.

use std::fmt::Write as _;

use crate::error::{Error, ErrorKind};

/// The maximum number of levels of a path that an error names.
const PATH_LEVELS_MAX: usize = 24;

/// The maximum number of bytes that an error repeats of a key, or of an expectation.
const WORD_MAX: usize = 80;

/// One level of the path to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Index(usize),
}

/// The words of `serde_json` about a text that is not JSON, without the position.
pub(super) fn not_json(error: &serde_json::Error) -> String {
    if error.is_data() {
        // These words may quote a value.
        return "the value is not acceptable".to_owned();
    }
    let message = error.to_string();
    let words = message.rsplit_once(" at line ").map(|(words, _)| words);
    words.unwrap_or(&message).to_owned()
}

pub(super) fn clip(text: &str) -> &str {
    let mut starts = text.char_indices().map(|(at, _)| at);
    let end = starts.find(|at| *at >= WORD_MAX);
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
    !name.is_empty() && name.len() <= WORD_MAX && name.bytes().all(is_plain)
}

/// The error of a body that an API server does not send.
pub(super) fn protocol(message: &str) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

/// The path in the API's spelling: `spec.containers[1].image`.
pub(super) fn path(steps: &[PathStep]) -> String {
    let mut path = String::new();
    for step in steps.iter().take(PATH_LEVELS_MAX) {
        let written = match step {
            PathStep::Index(index) => write!(path, "[{index}]"),
            PathStep::Key(key) if is_plain(key) => {
                let dot = if path.is_empty() { "" } else { "." };
                write!(path, "{dot}{key}")
            }
            PathStep::Key(key) => write!(path, "[{:?}]", clip(key)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    path
}
