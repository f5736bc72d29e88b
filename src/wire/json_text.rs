//! The strings of JSON: where they end, and what their escapes stand for.

use std::mem;

use memchr::memchr;
use serde::de::{Deserializer, IntoDeserializer as _, Visitor};
use serde::forward_to_deserialize_any;
use zeroize::Zeroizing;

use super::json_error::{JsonError, broken};
use super::scan::{HIGH_BITS, LOW_BITS, QUOTES};
use super::wiped::Wiped;

const BACKSLASHES: u64 = 0x5c5c_5c5c_5c5c_5c5c;
const SPACES: u64 = 0x2020_2020_2020_2020;

/// A string: as it stands in the text, or without its escapes.
pub(super) enum Text<'de> {
    Plain(&'de str),
    Unescaped(WipedText),
}

/// A text that may be secret, overwritten when it is dropped. Visitors copy it, so that no copy
/// moves out of sight of this crate.
pub(super) struct WipedText(String);

impl WipedText {
    /// Takes the escapes out of the inside of a string, which has `shorter` of them at least.
    pub(super) fn unescaped(raw: &[u8], shorter: usize) -> Result<Self, JsonError> {
        // The room suffices: a text that grows leaves its bytes where it was.
        let mut text = Zeroizing::new(Vec::with_capacity(raw.len().saturating_sub(shorter)));
        unescape(raw, &mut text)?;
        String::from_utf8(mem::take(&mut *text))
            .map(Self)
            .map_err(|invalid| {
                drop(Zeroizing::new(invalid.into_bytes()));
                broken("invalid unicode code point")
            })
    }
}

impl Drop for WipedText {
    fn drop(&mut self) {
        drop(Wiped::from(mem::take(&mut self.0).into_bytes()));
    }
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Unescaped(text) => &text.0,
        }
    }
}

/// Keys that are numbers or truth values stand in quotes.
macro_rules! quoted {
    ($($deserialize:ident $visit:ident $type:ty)*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            match self.as_str().parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => self.deserialize_any(visitor),
            }
        })*
    };
}

/// A key.
impl<'de> Deserializer<'de> for Text<'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Self::Plain(text) => visitor.visit_borrowed_str(text),
            Self::Unescaped(text) => visitor.visit_str(&text.0),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_enum(self.as_str().into_deserializer())
    }

    quoted! {
        deserialize_bool visit_bool bool
        deserialize_i8 visit_i64 i64
        deserialize_i16 visit_i64 i64
        deserialize_i32 visit_i64 i64
        deserialize_i64 visit_i64 i64
        deserialize_u8 visit_u64 u64
        deserialize_u16 visit_u64 u64
        deserialize_u32 visit_u64 u64
        deserialize_u64 visit_u64 u64
        deserialize_f32 visit_f64 f64
        deserialize_f64 visit_f64 f64
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// Where the next byte stands that no string has as it is: a quote, a backslash, or a control
/// character. Looks at eight bytes at a time.
pub(super) fn special(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let (words, last) = rest.as_chunks::<8>();
    for (nth, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // A zero byte borrows from its top bit, and so does one below a space. The lowest bit that
        // is set is always right.
        let (quote, backslash) = (word ^ QUOTES, word ^ BACKSLASHES);
        let found = quote.wrapping_sub(LOW_BITS) & !quote
            | backslash.wrapping_sub(LOW_BITS) & !backslash
            | word.wrapping_sub(SPACES) & !word;
        let found = found & HIGH_BITS;
        if found != 0 {
            let byte = usize::try_from(found.trailing_zeros() / 8).unwrap_or_default();
            return from.wrapping_add(nth.wrapping_mul(8)).wrapping_add(byte);
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    let there = last.iter().position(is_special).unwrap_or(last.len());
    from.wrapping_add(rest.len().wrapping_sub(last.len()))
        .wrapping_add(there)
}

/// Writes the inside of a string without its escapes.
pub(super) fn unescape(mut rest: &[u8], text: &mut Vec<u8>) -> Result<(), JsonError> {
    while let Some(at) = memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        text.extend_from_slice(before);
        let Some((escape, behind)) = escape.get(1..).and_then(<[u8]>::split_first) else {
            return Err(broken("invalid escape"));
        };
        rest = behind;
        let byte = match escape {
            b'"' | b'\\' | b'/' => *escape,
            b'b' => 0x8,
            b'f' => 0xc,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, behind) = unicode(rest)?;
                let mut buffer = [0; 4];
                text.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                rest = behind;
                continue;
            }
            _ => return Err(broken("invalid escape")),
        };
        text.push(byte);
    }
    text.extend_from_slice(rest);
    Ok(())
}

/// The character that the four digits stand for, or they and a second escape; and what is behind.
fn unicode(text: &[u8]) -> Result<(char, &[u8]), JsonError> {
    let (first, behind) = hex(text)?;
    let (code, behind) = match first {
        0xdc00..=0xdfff => return Err(broken("lone leading surrogate in hex escape")),
        0xd800..=0xdbff => {
            let second = behind.strip_prefix(b"\\u");
            let second = second.ok_or_else(|| broken("unexpected end of hex escape"))?;
            let (low, behind) = hex(second)?;
            if !(0xdc00..=0xdfff).contains(&low) {
                return Err(broken("lone leading surrogate in hex escape"));
            }
            let high = first.wrapping_sub(0xd800) << 10;
            let low = low.wrapping_sub(0xdc00);
            (high.wrapping_add(low).wrapping_add(0x1_0000), behind)
        }
        code => (code, behind),
    };
    let character = char::from_u32(code).ok_or_else(|| broken("invalid unicode code point"))?;
    Ok((character, behind))
}

fn hex(text: &[u8]) -> Result<(u32, &[u8]), JsonError> {
    let no_digits = || broken("invalid escape");
    let (digits, behind) = text.split_at_checked(4).ok_or_else(no_digits)?;
    let code = digits.iter().try_fold(0_u32, |code, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(code.wrapping_mul(16).wrapping_add(digit))
    });
    Ok((code.ok_or_else(no_digits)?, behind))
}
