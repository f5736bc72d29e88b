//! JSON strings and numbers: finds their ends and decodes their escapes. Its errors use the words
//! of `serde` without the values that those quote.

use std::fmt::{self, Display};
use std::mem;

use memchr::memchr;
use serde::de::{self, Deserializer, Expected, IntoDeserializer as _, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Number;
use zeroize::Zeroizing;

use super::reason::{clip, not_json};
use super::scan::{HIGH_BITS, LOW_BITS, QUOTES, parse};
use super::wiped::Wiped;
use crate::object::wipe;

const BACKSLASHES: u64 = 0x5c5c_5c5c_5c5c_5c5c;
const SPACES: u64 = 0x2020_2020_2020_2020;

/// A string: as it stands in the text, or without its escapes.
pub(super) enum Text<'de> {
    Plain(&'de str),
    Unescaped(WipedText),
}

/// Text that may be secret, overwritten on drop. Visitors copy it, so that this crate never hands
/// the text itself away.
pub(super) struct WipedText(String);

impl WipedText {
    /// Decodes the escapes in the inside of a string, which has at least `shorter` of them.
    pub(super) fn unescaped(raw: &[u8], shorter: usize) -> Result<Self, JsonError> {
        // The capacity suffices: text that grows leaves its bytes in freed memory.
        let mut text = Zeroizing::new(Vec::with_capacity(raw.len().saturating_sub(shorter)));
        unescape(raw, |part| text.extend_from_slice(part))?;
        let text = wipe::text(text).map(Self);
        text.ok_or_else(|| broken("invalid unicode code point"))
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

/// Decodes several types alike.
macro_rules! same {
    ($($($deserialize:ident)*: $like:ident),*) => {
        $($(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            self.$like(visitor)
        })*)*
    };
}
pub(super) use same;

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

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.as_str().parse() {
            Ok(value) => visitor.visit_bool(value),
            Err(_) => self.deserialize_any(visitor),
        }
    }

    /// Keys that are numbers or truth values stand in quotes.
    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match parse::<Number>(self.as_str().as_bytes()) {
            Ok(_) => visit_number(self.as_str().as_bytes(), visitor),
            Err(_) => self.deserialize_any(visitor),
        }
    }

    same! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64: deserialize_i64
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The position of the next byte that a string cannot contain unescaped: a quote, a backslash, or a
/// control character. Looks at eight bytes at a time.
pub(super) fn special(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let (words, last) = rest.as_chunks::<8>();
    for (nth, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // A zero byte borrows from its top bit, and so does one below a space. The lowest set bit
        // is always right.
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

/// Parses the number in `text` and passes it to the visitor.
pub(super) fn visit_number<'de, V: Visitor<'de>>(
    text: &[u8],
    visitor: V,
) -> Result<V::Value, JsonError> {
    let number = parse::<Number>(text).map_err(|error| broken(&not_json(&error)))?;
    if let Some(number) = number.as_u64() {
        return visitor.visit_u64(number);
    }
    if let Some(number) = number.as_i64() {
        return visitor.visit_i64(number);
    }
    // Closer to the text than the result of `serde_json`.
    let text = std::str::from_utf8(text).unwrap_or_default();
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => visitor.visit_f64(number),
        _ => Err(broken("number out of range")),
    }
}

/// Passes the inside of a string to `put`, part by part, with its escapes decoded.
pub(super) fn unescape(mut rest: &[u8], mut put: impl FnMut(&[u8])) -> Result<(), JsonError> {
    while let Some(at) = memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        put(before);
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
                put(character.encode_utf8(&mut buffer).as_bytes());
                rest = behind;
                continue;
            }
            _ => return Err(broken("invalid escape")),
        };
        put(&[byte]);
    }
    put(rest);
    Ok(())
}

/// The character of the four digits, or of them and a second escape; and the rest of the text.
fn unicode(text: &[u8]) -> Result<(char, &[u8]), JsonError> {
    let (first, behind) = hex(text)?;
    if let Some(Ok(character)) = char::decode_utf16([first]).next() {
        return Ok((character, behind));
    }
    let second = behind.strip_prefix(b"\\u");
    let (second, behind) = hex(second.ok_or_else(|| broken("unexpected end of hex escape"))?)?;
    match char::decode_utf16([first, second]).next() {
        Some(Ok(character)) => Ok((character, behind)),
        _ => Err(broken("lone leading surrogate in hex escape")),
    }
}

fn hex(text: &[u8]) -> Result<(u16, &[u8]), JsonError> {
    let no_digits = || broken("invalid escape");
    let (digits, behind) = text.split_at_checked(4).ok_or_else(no_digits)?;
    let code = digits.iter().try_fold(0_u16, |code, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(code << 4 | u16::try_from(digit).ok()?)
    });
    Ok((code.ok_or_else(no_digits)?, behind))
}

/// Why a text did not decode, in words that quote no value.
#[derive(Debug)]
pub(super) struct JsonError(Box<str>);

/// The error of a text that is not JSON, or cannot become a value.
#[cold]
pub(super) fn broken(message: &str) -> JsonError {
    JsonError(message.into())
}

impl Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

/// The words of `serde`, without the values that it quotes.
impl de::Error for JsonError {
    fn custom<T: Display>(_quotes: T) -> Self {
        broken("the value is not acceptable")
    }

    fn invalid_type(met: Unexpected<'_>, expected: &dyn Expected) -> Self {
        broken(&unexpected("invalid type", met, expected))
    }

    fn invalid_value(met: Unexpected<'_>, expected: &dyn Expected) -> Self {
        broken(&unexpected("invalid value", met, expected))
    }

    fn invalid_length(_length: usize, expected: &dyn Expected) -> Self {
        broken(&format!("invalid length, expected {}", clipped(expected)))
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        broken(&format!("unknown variant{}", one_of(expected)))
    }

    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        broken(&format!("unknown field{}", one_of(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        broken(&format!("missing field `{field}`"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        broken(&format!("duplicate field `{field}`"))
    }
}

fn unexpected(what: &str, met: Unexpected<'_>, expected: &dyn Expected) -> String {
    let met = match met {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "floating point",
        Unexpected::Char(_) => "character",
        Unexpected::Str(_) => "string",
        Unexpected::Unit => "null",
        Unexpected::Other(_) => "value",
        // The words of `serde` for the others quote no value.
        other @ (Unexpected::Bytes(_)
        | Unexpected::Option
        | Unexpected::NewtypeStruct
        | Unexpected::Seq
        | Unexpected::Map
        | Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant) => &other.to_string(),
    };
    format!("{what}: {met}, expected {}", clipped(expected))
}

fn clipped(expected: &dyn Expected) -> String {
    clip(&expected.to_string()).to_owned()
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let text = match &*quoted {
        [] => return String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        more => format!("one of {}", more.join(", ")),
    };
    format!(", expected {}", clip(&text))
}
