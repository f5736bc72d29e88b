//! Decodes JSON in one pass over its bytes, and passes over the fields that a cache does not keep.
//!
//! It finds the end of the value while it decodes, so no scan for the end comes first. Its errors
//! quote no value.
//!
//! `serde_json` under a filter of members was tried in its place. It took 1.1 to 1.35 times as long
//! for lists of Secrets and `ConfigMap`s, and 1.08 to 1.15 times for events. It names no path, and
//! the buffer in which it unescapes strings keeps their text when it is freed.

use std::mem;

use memchr::memchr;
use serde::de::value::MapDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IgnoredAny, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Number;

use super::json_text::{JsonError, Text, WipedText, broken, same, special, unescape, visit_number};
use super::place::{MemberUse, Noted, Place, Skipped};
use super::reason::{PathStep, path};
use super::scan::{Scan, Span, is_space, parse};
use super::time::beyond;
use super::verbatim::{TextCuts, VERBATIM, Verbatim};

/// The maximum depth of nesting that is decoded, as in `serde_json`.
const DEPTH_MAX: usize = 128;

/// The maximum number of maps and lists in a value: a struct may take hundreds of times the memory
/// of its `{}`. No JSON of 1.5 MiB, which etcd takes by default, has more.
const NESTED_MAX: usize = 1536 * 1024 / "{}".len();

/// Decodes the value that begins at the first byte.
#[derive(Debug, Default)]
pub(super) struct Decoder<'de> {
    bytes: &'de [u8],
    at: usize,
    depth: usize,
    nested: usize,
    /// The place of a map that begins here.
    place: Place,
    skipped: Skipped,
    pub(super) noted: Noted<'de>,
    /// The bytes of members that were passed over, their names and commas included.
    pub(super) skipped_bytes: usize,
    /// After an error: the way to it, from the inside to the outside.
    steps: Vec<PathStep>,
}

impl<'de> Decoder<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Creates a decoder of an API object.
    pub(super) fn of_object(bytes: &'de [u8], skipped: Skipped) -> Self {
        Self {
            place: Place::Object,
            skipped,
            ..Self::new(bytes)
        }
    }

    /// Decodes the value. The error says where in it, and why.
    pub(super) fn decode<T: Deserialize<'de>>(&mut self) -> Result<T, String> {
        let decoded = T::deserialize(&mut *self);
        #[cfg(test)]
        super::tests::steps::count(self.at);
        decoded.map_err(|error| {
            self.steps.reverse();
            match &*path(&self.steps) {
                "" => error.to_string(),
                path => format!("{path}: {error}"),
            }
        })
    }

    /// Decodes bytes that are one string; `None` if they are anything else.
    pub(super) fn string(bytes: &'de [u8]) -> Option<Text<'de>> {
        let mut decoder = Self::new(bytes);
        let text = (decoder.byte() == Some(b'"')).then(|| decoder.text());
        text?.ok().filter(|_| decoder.at == bytes.len())
    }

    /// The number of bytes that the value took.
    pub(super) fn used(&self) -> usize {
        self.at
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is not white space, which is not consumed.
    fn blank(&mut self) -> Option<u8> {
        while let Some(byte) = self.byte() {
            if !is_space(byte) {
                return Some(byte);
            }
            self.pass();
        }
        None
    }

    fn pass(&mut self) {
        self.at = self.at.wrapping_add(1);
    }

    fn rest_from(&self, from: usize) -> &'de [u8] {
        self.bytes.get(from..).unwrap_or_default()
    }

    fn slice(&self, from: usize, to: usize) -> &'de [u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Passes over a value without decoding it.
    fn skip(&mut self) -> Result<&'de [u8], JsonError> {
        let Ok(Some(length)) = Scan::default().advance(self.rest_from(self.at)) else {
            return Err(broken("a value that has no end"));
        };
        let start = self.at;
        self.at = start.wrapping_add(length);
        Ok(self.slice(start, self.at))
    }

    /// The inside of the string whose opening quote stands here, and how many escapes it has.
    fn raw_text(&mut self) -> Result<(&'de [u8], usize), JsonError> {
        let from = self.at.wrapping_add(1);
        let mut end = from;
        let mut shorter = 0_usize;
        loop {
            end = special(self.bytes, end);
            match self.bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    shorter = shorter.wrapping_add(1);
                    end = end.wrapping_add(2);
                }
                Some(_) => return Err(broken("a control character in a string")),
                None => return Err(broken("a string that has no end")),
            }
        }
        self.at = end.wrapping_add(1);
        Ok((self.slice(from, end), shorter))
    }

    /// The string whose opening quote stands here.
    fn text(&mut self) -> Result<Text<'de>, JsonError> {
        let (raw, shorter) = self.raw_text()?;
        if shorter == 0 {
            let plain = std::str::from_utf8(raw).map(Text::Plain);
            return plain.map_err(|_invalid| broken("invalid unicode code point"));
        }
        WipedText::unescaped(raw, shorter).map(Text::Unescaped)
    }

    /// Reads the next key, and the colon behind it; `None` at the end of the map.
    fn key(&mut self, is_first: bool) -> Result<Option<Text<'de>>, JsonError> {
        let mut byte = self.blank();
        if byte == Some(b'}') {
            return Ok(None);
        }
        if !is_first {
            if byte != Some(b',') {
                return Err(broken("expected `,` or `}`"));
            }
            self.pass();
            byte = self.blank();
        }
        if byte != Some(b'"') {
            return Err(broken("key must be a string"));
        }
        let key = self.text()?;
        if self.blank() != Some(b':') {
            return Err(broken("expected `:`"));
        }
        self.pass();
        self.blank();
        Ok(Some(key))
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.byte() {
            self.pass();
        }
        visit_number(self.slice(start, self.at), visitor)
    }

    /// The error of a next value whose type is not the one that was asked for.
    #[cold]
    fn unlike(&mut self, expected: &dyn Expected) -> JsonError {
        let met = match self.byte() {
            Some(b'"') => Unexpected::Str(""),
            Some(b'{') => Unexpected::Map,
            Some(b'[') => Unexpected::Seq,
            Some(b't' | b'f') => Unexpected::Bool(false),
            Some(b'n') => Unexpected::Unit,
            Some(b'-' | b'0'..=b'9') => match Number::deserialize(self) {
                Ok(number) if number.is_f64() => Unexpected::Float(0.0),
                Ok(_) => Unexpected::Signed(0),
                Err(error) => return error,
            },
            _ => return broken("expected value"),
        };
        de::Error::invalid_type(met, expected)
    }

    fn word(&mut self, word: &str) -> Result<(), JsonError> {
        let end = self.at.wrapping_add(word.len());
        if self.slice(self.at, end) != word.as_bytes() {
            return Err(broken("expected value"));
        }
        self.at = end;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), JsonError> {
        self.depth = self.depth.wrapping_add(1);
        if self.depth >= DEPTH_MAX {
            return Err(broken(&format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.nested = self.nested.wrapping_add(1);
        if self.nested > NESTED_MAX {
            return Err(broken(&format!("more than {NESTED_MAX} maps and lists")));
        }
        self.pass();
        Ok(())
    }

    fn leave(&mut self, bracket: u8) -> Result<(), JsonError> {
        if self.blank() != Some(bracket) {
            return Err(broken("trailing characters"));
        }
        self.pass();
        self.depth = self.depth.wrapping_sub(1);
        Ok(())
    }

    /// Copies the value that begins here, with its white space and its escapes.
    fn verbatim(&mut self) -> Result<Verbatim, JsonError> {
        let mut kept = TextCuts::default();
        self.blank();
        let start = self.at;
        self.check(&mut kept)?;
        Ok(kept.copy(self.bytes, (start, self.at)))
    }

    /// Passes over a value that must be JSON.
    fn check(&mut self, kept: &mut TextCuts) -> Result<(), JsonError> {
        match self.blank() {
            Some(b'"') => {
                let (raw, escapes) = self.raw_text()?;
                std::str::from_utf8(raw)
                    .map_err(|_invalid| broken("invalid unicode code point"))?;
                if escapes > 0 {
                    unescape(raw, |_| ())?;
                }
                Ok(())
            }
            Some(b'{') => self.check_map(kept),
            Some(b'[') => self.check_list(kept),
            Some(b'-' | b'0'..=b'9') => self.number(IgnoredAny).map(drop),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(broken("expected value")),
        }
    }

    fn check_map(&mut self, kept: &mut TextCuts) -> Result<(), JsonError> {
        let mut members = MapMembers::enter(self)?;
        let is_object = members.place == Place::Object;
        let mut is_first = true;
        let mut end = members.decoder.at;
        while let Some(key) = members.next()? {
            let start = members.key.0;
            // Members were passed over before this one. The first that stays loses its comma.
            if start > end {
                let quote = memchr(b'"', members.decoder.rest_from(start)).unwrap_or_default();
                let quote = if is_first { quote } else { 0 };
                kept.cut(end, start.wrapping_add(quote));
            }
            is_first = false;
            members.decoder.blank();
            let from = members.decoder.at;
            members.decoder.place = members.inner;
            let checked = members.decoder.check(kept);
            checked.inspect_err(|_error| members.note_step())?;
            end = members.decoder.at;
            if is_object && key.as_str() == "metadata" {
                kept.metadata = Span { start: from, end };
            }
        }
        let last = members.decoder.at;
        if last > end {
            kept.cut(end, last);
        }
        self.leave(b'}')
    }

    fn check_list(&mut self, kept: &mut TextCuts) -> Result<(), JsonError> {
        self.place = Place::Elsewhere;
        self.enter()?;
        for item in 0_usize.. {
            let byte = self.blank();
            if byte == Some(b']') {
                break;
            }
            if item > 0 {
                if byte != Some(b',') {
                    return Err(broken("expected `,` or `]`"));
                }
                self.pass();
            }
            let checked = self.check(kept);
            checked.inspect_err(|_error| self.steps.push(PathStep::Index(item)))?;
        }
        self.leave(b']')
    }

    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        let mut members = MapMembers::enter(self)?;
        let value = visitor.visit_map(&mut members)?;
        self.leave(b'}')?;
        Ok(value)
    }

    fn list<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, JsonError> {
        self.place = Place::Elsewhere;
        self.enter()?;
        let value = visitor.visit_seq(&mut ListItems {
            decoder: self,
            items: 0,
        })?;
        self.leave(b']')?;
        Ok(value)
    }
}

/// The members of a map, as its type asks for them.
struct MapMembers<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    place: Place,
    is_first: bool,
    /// The position where the search for the last key began, and whether that key is the first.
    key: (usize, bool),
    /// The place of the next value, if it is a map.
    inner: Place,
}

impl<'a, 'de> MapMembers<'a, 'de> {
    /// Enters the map that begins here.
    fn enter(decoder: &'a mut Decoder<'de>) -> Result<Self, JsonError> {
        let place = mem::take(&mut decoder.place);
        decoder.enter()?;
        Ok(Self {
            decoder,
            place,
            is_first: true,
            key: (0, true),
            inner: Place::Elsewhere,
        })
    }

    /// The next member that is decoded.
    fn next(&mut self) -> Result<Option<Text<'de>>, JsonError> {
        loop {
            let is_first = mem::take(&mut self.is_first);
            let start = self.decoder.at;
            let Some(key) = self.decoder.key(is_first)? else {
                return Ok(None);
            };
            self.key = (start, is_first);
            if self.place == Place::Elsewhere {
                return Ok(Some(key));
            }
            match self.place.member(key.as_str(), self.decoder.skipped) {
                MemberUse::Value(inner) => {
                    self.inner = inner;
                    return Ok(Some(key));
                }
                MemberUse::Skip => {
                    self.decoder.skip()?;
                    let length = self.decoder.at.wrapping_sub(start);
                    self.decoder.skipped_bytes = self.decoder.skipped_bytes.wrapping_add(length);
                }
                MemberUse::Cut(slot) => {
                    let value = self.decoder.skip()?;
                    *slot(&mut self.decoder.noted) = Some(value);
                }
                MemberUse::Note(slot) => {
                    self.inner = Place::Elsewhere;
                    let is_text = self.decoder.byte() == Some(b'"');
                    let start = self.decoder.at;
                    let value = is_text.then(|| self.decoder.skip()).transpose()?;
                    self.decoder.at = start;
                    *slot(&mut self.decoder.noted) = value;
                    return Ok(Some(key));
                }
            }
        }
    }

    #[cold]
    fn note_step(&mut self) {
        let (at, is_first) = self.key;
        let mut again = Decoder {
            at,
            ..Decoder::new(self.decoder.bytes)
        };
        let key = again.key(is_first).ok().flatten();
        let key = key.map_or_else(String::new, |key| key.as_str().to_owned());
        self.decoder.steps.push(PathStep::Key(key));
    }
}

impl<'de> de::MapAccess<'de> for &mut MapMembers<'_, 'de> {
    type Error = JsonError;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, JsonError> {
        let Some(key) = self.next()? else {
            return Ok(None);
        };
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, JsonError> {
        self.decoder.place = self.inner;
        // The value may be large, so it is not moved just to map its error.
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.note_step();
        }
        value
    }
}

/// The items of a list, as its type asks for them.
struct ListItems<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    items: usize,
}

impl<'de> de::SeqAccess<'de> for &mut ListItems<'_, 'de> {
    type Error = JsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, JsonError> {
        let byte = self.decoder.blank();
        if byte == Some(b']') {
            return Ok(None);
        }
        if self.items > 0 {
            if byte != Some(b',') {
                return Err(broken("expected `,` or `]`"));
            }
            self.decoder.pass();
        }
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.steps.push(PathStep::Index(self.items));
        }
        self.items = self.items.wrapping_add(1);
        value.map(Some)
    }

    /// Most lists in objects have one item. Without this hint a vector would reserve four.
    fn size_hint(&self) -> Option<usize> {
        (self.items == 0).then_some(1)
    }
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.blank() {
            Some(b'"') => self.text()?.deserialize_any(visitor),
            Some(b'{') => self.map(visitor),
            Some(b'[') => self.list(visitor),
            Some(b'-' | b'0'..=b'9') => self.number(visitor),
            Some(b't') => self.word("true").and_then(|()| visitor.visit_bool(true)),
            Some(b'f') => self.word("false").and_then(|()| visitor.visit_bool(false)),
            Some(b'n') => self.word("null").and_then(|()| visitor.visit_unit()),
            _ => Err(broken("expected value")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.blank() == Some(b'n') {
            self.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.blank();
        parse::<IgnoredAny>(self.skip()?).map_err(|_broken| broken("expected value"))?;
        visitor.visit_unit()
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.blank() != Some(b'"') {
            return self.deserialize_any(visitor);
        }
        match self.text()? {
            Text::Plain(text) => visitor.visit_borrowed_bytes(text.as_bytes()),
            text @ Text::Unescaped(_) => visitor.visit_bytes(text.as_str().as_bytes()),
        }
    }

    /// A raw value of `serde_json` asks for a map of its name and the text. A time of `k8s-openapi`
    /// beyond its range becomes the last possible one.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        let is_text = self.blank() == Some(b'"');
        if is_text && matches!(name, "Time" | "MicroTime") {
            let text = self.text()?;
            let last = beyond(text.as_str()).map(Text::Plain);
            return visitor.visit_newtype_struct(last.unwrap_or(text));
        }
        if name == VERBATIM {
            return visitor.visit_byte_buf(self.verbatim()?.packed());
        }
        if !name.starts_with("$serde_json::") {
            return visitor.visit_newtype_struct(self);
        }
        let text = std::str::from_utf8(self.skip()?);
        let text = text.map_err(|_invalid| broken("invalid unicode code point"))?;
        let raw = std::iter::once((name, text.to_owned()));
        visitor.visit_map(MapDeserializer::new(raw))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.blank();
        let mut own = serde_json::Deserializer::from_slice(self.skip()?);
        let value = own.deserialize_enum(name, variants, visitor);
        value.map_err(de::Error::custom)
    }

    // Each type gets code only for the values that it asks for. Decoders of all kinds of value for
    // each type would take a quarter of a megabyte.

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.blank() != Some(b'"') {
            return Err(self.unlike(&visitor));
        }
        self.text()?.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.blank() != Some(b'[') {
            return Err(self.unlike(&visitor));
        }
        self.list(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        if self.blank() != Some(b'{') {
            return Err(self.unlike(&visitor));
        }
        self.map(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        let Some(b'-' | b'0'..=b'9') = self.blank() else {
            return Err(self.unlike(&visitor));
        };
        self.number(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.deserialize_map(visitor)
    }

    same! {
        deserialize_byte_buf: deserialize_bytes,
        deserialize_char deserialize_string deserialize_identifier: deserialize_str,
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64: deserialize_i64
    }

    forward_to_deserialize_any! {
        bool i128 u128 unit unit_struct tuple_struct
    }
}
