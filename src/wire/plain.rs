//! Reads members of a JSON object that is not an API object, and may be secret.

use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::json::Decoder;
use super::members::members_of;
use super::scan::{parse, spells};

/// A JSON object as text. If a member occurs twice, it holds several texts, and each adds to those
/// before, as in Go.
pub(crate) struct PlainObject<'a>(Vec<&'a [u8]>);

impl<'a> PlainObject<'a> {
    /// Takes `bytes` as one object, with optional white space around it; `None` if they are
    /// anything else.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let is_object = bytes.trim_ascii_start().starts_with(b"{");
        (is_object && parse::<IgnoredAny>(bytes).is_ok()).then(|| Self(vec![bytes]))
    }

    /// The values of all members of that name.
    fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let members = self.0.iter().flat_map(|object| members_of(object));
        let named = members.flatten().filter(move |(key, _)| spells(key, name));
        named.map(|(_, value)| value)
    }

    /// The object in a member; `None` if it is missing, or if the last is null.
    ///
    /// # Errors
    ///
    /// A member of that name is something else.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, NotOfType> {
        let mut objects = Vec::new();
        for value in self.values(name) {
            match value {
                [b'{', ..] => objects.push(value),
                b"null" => objects.clear(),
                _ => return Err(NotOfType),
            }
        }
        Ok(Some(Self(objects)).filter(|object| !object.0.is_empty()))
    }

    /// The texts in all members of that name, and nulls. They leave no copy in freed memory.
    ///
    /// # Errors
    ///
    /// A member of that name is something else.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<Option<Zeroizing<String>>>, NotOfType> {
        let text = |value: &[u8]| {
            let text = Decoder::new(value).decode::<Option<String>>();
            let text = text.map_err(|_quotes_no_value| NotOfType)?;
            Ok(text.map(Zeroizing::new))
        };
        self.values(name).map(text).collect()
    }
}

/// A member has another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOfType;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_by_name_and_type() {
        let json = br#" {"a":"x\ny","b":{"c":"d"},"e":null,"f":"","g":7} "#;
        let object = PlainObject::parse(json).unwrap();
        let texts = |object: &PlainObject<'_>, name| {
            let texts = object.texts(name)?;
            Ok(texts
                .iter()
                .map(|text| text.as_ref().map(|text| text.to_string()))
                .collect())
        };
        let some = |text: &str| Ok(vec![Some(text.to_owned())]);
        assert_eq!(texts(&object, "a"), some("x\ny"));
        let inner = object.object("b").unwrap().unwrap();
        assert_eq!(texts(&inner, "c"), some("d"));
        assert_eq!(texts(&object, "e"), Ok(vec![None]));
        assert_eq!(texts(&object, "f"), some(""));
        assert_eq!(texts(&object, "z"), Ok(vec![]));
        assert_eq!(texts(&object, "g"), Err(NotOfType));
        assert!(object.object("a").is_err() && object.object("e").unwrap().is_none());
        for wrong in [
            &b"[]"[..],
            b"{",
            b"{} {}",
            b"",
            b"text",
            b"\"{}\"",
            b"{\"a\":{b}}",
        ] {
            assert!(PlainObject::parse(wrong).is_none());
        }
    }

    #[test]
    fn a_member_that_stands_twice_adds_to_the_first_and_null_clears_it() {
        let json = br#"{"a":{"b":"1","c":"2"},"a":{"b":"3"},"x":{"b":"4"},"x":null,"x":{"c":"5"}}"#;
        let object = PlainObject::parse(json).unwrap();
        let count = |member, name| {
            let inner = object.object(member).unwrap().unwrap();
            inner.texts(name).unwrap().len()
        };
        assert_eq!([count("a", "b"), count("a", "c")], [2, 1]);
        assert_eq!([count("x", "b"), count("x", "c")], [0, 1]);
        let wrong = PlainObject::parse(br#"{"a":7,"a":{}}"#).unwrap();
        assert!(wrong.object("a").is_err());
    }
}
