//! Finds the end of a JSON value across refills.
//!
//! The scanner looks at quotes and brackets only. The decoder checks whether the value is JSON.

use memchr::memchr;
use serde::Deserialize;

#[cfg(test)]
use super::tests::steps;

/// The number of eight-byte words that are searched for a quote before `memchr` is called.
const NEAR_WORDS: usize = 3;
pub(super) const LOW_BITS: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
pub(super) const QUOTES: u64 = 0x2222_2222_2222_2222;

/// A half-open range of bytes, from the first byte of the scanned value on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// A byte that is wrong in its place; none if the bytes end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson(pub(super) Option<u8>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanToken {
    /// Nothing of the value has come yet.
    #[default]
    Before,
    /// Inside a container, between strings.
    Between,
    /// In a string; `escaped` when its next byte follows a backslash.
    Text { escaped: bool },
    /// In a number or a word at the top.
    Scalar,
}

/// The scan of one value. The caller hands in the same bytes again, with more behind them, until
/// the end is found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    at: usize,
    token: ScanToken,
    /// Open containers.
    depth: usize,
}

impl Scan {
    /// Begins the next value.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Whether the last bytes are inside a string.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.token, ScanToken::Text { .. })
    }

    /// Notes that the first `count` bytes are gone, for values that are passed over.
    pub(super) fn forget(&mut self, count: usize) {
        self.at = self.at.saturating_sub(count);
    }

    /// Goes on in `bytes`, the value from its first byte on. `None` asks for more bytes, `Some` is
    /// the length.
    ///
    /// A number or a word ends at the byte behind it, which must be there.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotJson> {
        #[cfg(test)]
        let from = self.at;
        let end = self.find_end(bytes);
        #[cfg(test)]
        steps::count(self.at.saturating_sub(from));
        end
    }

    fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotJson> {
        loop {
            let is_there = match self.token {
                ScanToken::Before => match bytes.get(self.at) {
                    None => false,
                    Some(&byte) => {
                        self.open(byte)?;
                        continue;
                    }
                },
                ScanToken::Text { escaped } => self.text(bytes, escaped),
                ScanToken::Scalar => {
                    let rest = bytes.get(self.at..).unwrap_or_default();
                    let length = rest.iter().position(|byte| !is_scalar(*byte));
                    self.at = self.at.saturating_add(length.unwrap_or(rest.len()));
                    length.is_some()
                }
                ScanToken::Between => self.inside(bytes),
            };
            if !is_there || self.depth == 0 {
                return Ok(is_there.then_some(self.at));
            }
        }
    }

    /// Takes the first byte of the value, which never ends it.
    fn open(&mut self, byte: u8) -> Result<(), NotJson> {
        self.token = match byte {
            b'"' => ScanToken::Text { escaped: false },
            b'{' | b'[' => {
                self.depth = 1;
                ScanToken::Between
            }
            _ if is_scalar(byte) => ScanToken::Scalar,
            _ => return Err(NotJson(Some(byte))),
        };
        self.at = self.at.saturating_add(1);
        Ok(())
    }

    /// Goes to the end of the string; false when the bytes end first.
    fn text(&mut self, bytes: &[u8], escaped: bool) -> bool {
        let from = self.at.saturating_add(usize::from(escaped));
        if escaped && from > bytes.len() {
            return false;
        }
        match string_end(bytes, from) {
            Ok(end) => {
                self.at = end;
                self.token = ScanToken::Between;
                true
            }
            Err(escaped) => {
                self.at = bytes.len();
                self.token = ScanToken::Text { escaped };
                false
            }
        }
    }

    /// Goes through containers to the end of the value; false when the bytes end first.
    fn inside(&mut self, bytes: &[u8]) -> bool {
        let mut at = self.at;
        let mut depth = self.depth;
        while let Some(&byte) = bytes.get(at) {
            let next = at.saturating_add(1);
            match byte {
                b'"' => match string_end(bytes, next) {
                    Ok(end) => {
                        at = end;
                        continue;
                    }
                    Err(escaped) => {
                        self.token = ScanToken::Text { escaped };
                        at = bytes.len();
                        break;
                    }
                },
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.at = next;
                        self.depth = 0;
                        return true;
                    }
                }
                _ => {}
            }
            at = next;
        }
        self.at = at;
        self.depth = depth;
        false
    }
}

/// Parses a complete JSON value, without the limits and the words of the decoder.
pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    #[cfg(test)]
    steps::count(json.len());
    serde_json::from_slice(json)
}

/// Whether a JSON string, with its quotes, spells `text`, escaped or not.
pub(super) fn spells(quoted: &[u8], text: &str) -> bool {
    let Some(inner) = inner(quoted) else {
        return false;
    };
    if inner == text.as_bytes() {
        return true;
    }
    // Each escape is longer than its character.
    inner.len() > text.len()
        && memchr(b'\\', inner).is_some()
        && parse::<String>(quoted).is_ok_and(|key| key == text)
}

/// The inside of a JSON string.
pub(super) fn inner(quoted: &[u8]) -> Option<&[u8]> {
    quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// The end of the string whose inside goes on at `from`. If the bytes end first: whether the next
/// byte follows a backslash.
fn string_end(bytes: &[u8], mut from: usize) -> Result<usize, bool> {
    loop {
        let rest = bytes.get(from..).unwrap_or_default();
        let Some(quote) = quote_in(rest) else {
            return Err(is_escaped(rest));
        };
        let before = rest.get(..quote).unwrap_or_default();
        from = from.saturating_add(quote).saturating_add(1);
        if !is_escaped(before) {
            return Ok(from);
        }
    }
}

/// The position of the first quote. Most strings are short: a look at the next words costs less
/// than a call.
#[inline]
fn quote_in(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    for (nth, word) in words.iter().take(NEAR_WORDS).enumerate() {
        // A zero byte borrows from its top bit; bytes below the first zero borrow nothing.
        let differs = u64::from_le_bytes(*word) ^ QUOTES;
        let zeros = differs.wrapping_sub(LOW_BITS) & !differs & HIGH_BITS;
        if zeros != 0 {
            let byte = usize::try_from(zeros.trailing_zeros() / 8).unwrap_or_default();
            return Some(nth.saturating_mul(8).saturating_add(byte));
        }
    }
    let near = words.len().min(NEAR_WORDS).saturating_mul(8);
    memchr(b'"', bytes.get(near..)?).map(|found| found.saturating_add(near))
}

/// Whether `text` ends with an odd number of backslashes.
fn is_escaped(text: &[u8]) -> bool {
    let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
    backslashes % 2 == 1
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// JSON's white space.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
