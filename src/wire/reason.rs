//! Explains why an object does not decode: with the field and the types, never with a value.

use std::fmt::Write as _;

/// Levels of nesting that the decoder follows; `serde_json`'s own limit.
const DEPTH_MAX: usize = 128;

/// Levels of a path that are named.
const PATH_LEVELS_MAX: usize = 24;

/// Bytes of a key, or of what the decoder expected, that are repeated.
const WORD_MAX: usize = 80;

/// What `serde` calls the type it met, before the value it quotes.
const TYPES_MET: [&str; 17] = [
    "boolean",
    "integer",
    "floating point",
    "character",
    "string",
    "byte array",
    "unit value",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "enum",
    "unit variant",
    "newtype variant",
    "tuple variant",
    "struct variant",
    "null",
];

/// How messages begin that quote the object behind it.
const HEADS: [&str; 5] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "unknown variant",
    "unknown field",
];

/// Why `json` does not decode: `spec.replicas: invalid type: string, expected i32`.
pub(super) fn why(json: &[u8], error: &serde_json::Error) -> String {
    let what = without_values(error);
    // Where a map ends, what is missing is the map's fault; anything else is that of its last
    // member.
    let of_whole = ["missing", "invalid length", "invalid type: map"]
        .iter()
        .any(|head| what.starts_with(head));
    let path = path_to(json, offset_of(json, error), of_whole);
    if path.is_empty() {
        what
    } else {
        format!("{path}: {what}")
    }
}

/// The decoder's message without what it quotes of the object.
pub(super) fn without_values(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message
        .rsplit_once(" at line ")
        .map_or(&*message, |(text, _)| text);
    if !error.is_data() {
        // These texts are the parser's own and quote nothing.
        return match message {
            "recursion limit exceeded" => format!("nested deeper than {DEPTH_MAX} levels"),
            _ => message.to_owned(),
        };
    }
    for head in ["missing field `", "duplicate field `"] {
        // The field is the type's, not the object's.
        let field = message.strip_prefix(head);
        if let Some((name, _)) = field.and_then(|field| field.split_once('`'))
            && is_plain(name)
        {
            return format!("{head}{name}`");
        }
    }
    let Some((head, rest)) = HEADS.iter().find_map(|head| {
        let rest = message.strip_prefix(head)?;
        Some((*head, rest))
    }) else {
        return "the value is not acceptable".to_owned();
    };
    let mut text = head.to_owned();
    if let Some(met) = rest.strip_prefix(": ") {
        let met = TYPES_MET.iter().find(|name| met.starts_with(**name));
        text = format!("{text}: {}", met.copied().unwrap_or("value"));
    }
    if let Some(expected) = expected(message) {
        text = format!("{text}, expected {expected}");
    }
    text
}

/// What the type expected: its own words, which stand last, behind anything that quotes the object.
fn expected(message: &str) -> Option<&str> {
    if message.ends_with(", there are no fields") || message.ends_with(", there are no variants") {
        return None;
    }
    let (_, expected) = message.rsplit_once(", expected ")?;
    Some(clip(expected))
}

pub(super) fn clip(text: &str) -> &str {
    let end = text
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| *at >= WORD_MAX);
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= WORD_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

/// The last byte the decoder looked at, counted from the first of `json`.
fn offset_of(json: &[u8], error: &serde_json::Error) -> usize {
    let lines = error.line().saturating_sub(1);
    let line_start = match lines.checked_sub(1) {
        None => 0,
        Some(nth) => memchr::memchr_iter(b'\n', json)
            .nth(nth)
            .map_or(0, |at| at.saturating_add(1)),
    };
    line_start
        .saturating_add(error.column())
        .saturating_sub(1)
        .min(json.len())
}

/// One open container on the way to a byte.
enum Level<'a> {
    Key(&'a [u8]),
    Index(usize),
}

/// The path of the value that ends, or is about to begin, at the byte at `offset`, in the API's
/// spelling.
fn path_to(json: &[u8], offset: usize, of_whole: bool) -> String {
    let mut levels: Vec<Level<'_>> = Vec::new();
    // Levels deeper than are named: only counted.
    let mut deeper = 0_usize;
    let mut at = 0_usize;
    let mut last_text: &[u8] = b"";
    while let Some(&byte) = json.get(at)
        && at <= offset
    {
        let next = at.saturating_add(1);
        match byte {
            b'"' => {
                let end = end_of_text(json, next);
                last_text = json.get(at..end).unwrap_or_default();
                at = end;
                continue;
            }
            b':' if deeper == 0 => {
                if let Some(Level::Key(key)) = levels.last_mut() {
                    *key = last_text;
                }
            }
            b',' if deeper == 0 => match levels.last_mut() {
                Some(Level::Index(index)) => *index = index.saturating_add(1),
                Some(Level::Key(key)) => *key = b"",
                None => {}
            },
            b'{' | b'[' if at == offset => break,
            b'{' | b'[' if levels.len() >= PATH_LEVELS_MAX => deeper = deeper.saturating_add(1),
            b'{' => levels.push(Level::Key(b"")),
            b'[' => levels.push(Level::Index(0)),
            b'}' | b']' if deeper > 0 => deeper = deeper.saturating_sub(1),
            b'}' if at == offset && !of_whole => break,
            b'}' | b']' => drop(levels.pop()),
            _ => {}
        }
        at = next;
    }
    spell(&levels)
}

/// The path of these keys, each with its quotes, in the API's spelling.
pub(super) fn path_of(keys: &[&[u8]]) -> String {
    spell(&keys.iter().copied().map(Level::Key).collect::<Vec<_>>())
}

fn spell(levels: &[Level<'_>]) -> String {
    let mut path = String::new();
    for level in levels {
        let written = match level {
            Level::Index(index) => write!(path, "[{index}]"),
            Level::Key(b"") => Ok(()),
            Level::Key(quoted) => {
                let key = serde_json::from_slice::<String>(quoted).unwrap_or_default();
                if is_plain(&key) {
                    let dot = if path.is_empty() { "" } else { "." };
                    write!(path, "{dot}{key}")
                } else {
                    write!(path, "[{:?}]", clip(&key))
                }
            }
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    path
}

fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => return at.saturating_add(1),
            b'\\' => at = at.saturating_add(2),
            _ => at = at.saturating_add(1),
        }
    }
    json.len()
}
