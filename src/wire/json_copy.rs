//! Copies into JSON text everything that a deserializer reads, so that a type can keep an object's
//! text without the parts that are passed over.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

use super::json_text::special;
use crate::object::wipe::append;

/// Text that may be secret, while it grows. No copy of it is left in freed memory.
#[derive(Default)]
pub(super) struct JsonCopy(Zeroizing<Vec<u8>>);

impl JsonCopy {
    /// Copies everything that the deserializer reads.
    pub(super) fn of<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut copy = Self::default();
        Value(&mut copy).deserialize(from)?;
        Ok(copy)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, bytes: &[u8]) {
        append(&mut self.0, bytes);
    }

    /// Ends a list or a map. A comma stands behind its last member.
    fn close(&mut self, bracket: &[u8]) {
        self.0.pop_if(|last| *last == b',');
        self.push(bracket);
    }

    /// Writes a string. Runs without escapes are written in one piece.
    fn push_text(&mut self, text: &str) {
        self.push(b"\"");
        let mut rest = text.as_bytes();
        while let Some((plain, [escaped, behind @ ..])) = rest.split_at_checked(special(rest, 0)) {
            self.push(plain);
            match escaped {
                b'"' => self.push(b"\\\""),
                b'\\' => self.push(b"\\\\"),
                b'\n' => self.push(b"\\n"),
                control => self.push(format!("\\u{control:04x}").as_bytes()),
            }
            rest = behind;
        }
        self.push(rest);
        self.push(b"\"");
    }
}

/// Writes one value behind the text so far.
struct Value<'a>(&'a mut JsonCopy);

/// Writes the name of a member.
struct Name<'a>(&'a mut JsonCopy);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(Value(self.0))
    }
}

/// Writes values that are not secret.
macro_rules! written {
    ($($visit:ident $type:ty)*) => {
        $(fn $visit<E>(self, value: $type) -> Result<(), E> {
            self.0.push(serde_json::Value::from(value).to_string().as_bytes());
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    written! {
        visit_bool bool visit_i64 i64 visit_u64 u64 visit_f64 f64
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.push_text(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push(b"null");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.push(b"[");
        while list.next_element_seed(Value(self.0))?.is_some() {
            self.0.push(b",");
        }
        self.0.close(b"]");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push(b"{");
        while map.next_key_seed(Name(self.0))?.is_some() {
            self.0.push(b":");
            map.next_value_seed(Value(self.0))?;
            self.0.push(b",");
        }
        self.0.close(b"}");
        Ok(())
    }
}
