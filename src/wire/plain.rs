//! Reads members of a JSON object that is no object of the API, and may be secret.

use zeroize::Zeroizing;

use super::json::Decoder;
use super::members::find;
use super::scan::Scan;

/// A JSON object as text. Of several members of a name the last one counts.
#[derive(Clone, Copy)]
pub(crate) struct PlainObject<'a>(&'a [u8]);

impl<'a> PlainObject<'a> {
    /// The object that `bytes` are, spaces around it aside; `None` if they are anything else.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let json = bytes.trim_ascii();
        let is_whole = Scan::default().advance(json) == Ok(Some(json.len()));
        (json.starts_with(b"{") && is_whole).then_some(Self(json))
    }

    /// The value of a member as text; `None` also for null.
    fn value(self, name: &str) -> Option<&'a [u8]> {
        find(self.0, name).filter(|value| *value != b"null")
    }

    /// The object in a member; `None` also for null.
    ///
    /// # Errors
    ///
    /// The member is something else.
    pub(crate) fn object(self, name: &str) -> Result<Option<Self>, NotOfType> {
        let object = |value| Self::parse(value).ok_or(NotOfType);
        self.value(name).map(object).transpose()
    }

    /// The text in a member, which leaves no copy in freed memory; `None` also for null or an empty
    /// text.
    ///
    /// # Errors
    ///
    /// The member is something else.
    pub(crate) fn text(self, name: &str) -> Result<Option<Zeroizing<String>>, NotOfType> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let text = Decoder::new(value).decode::<String>();
        let text = text
            .map(Zeroizing::new)
            .map_err(|_quotes_no_value| NotOfType)?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

/// A member is of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotOfType;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_by_name_and_type() {
        let json = br#" {"a":"x\ny","b":{"c":"d"},"e":null,"f":"","g":7} "#;
        let object = PlainObject::parse(json).unwrap();
        assert_eq!(object.text("a").unwrap().unwrap().as_str(), "x\ny");
        let inner = object.object("b").unwrap().unwrap();
        assert_eq!(inner.text("c").unwrap().unwrap().as_str(), "d");
        for absent in ["e", "f", "z"] {
            assert_eq!(object.text(absent), Ok(None), "{absent}");
        }
        assert_eq!(object.text("g"), Err(NotOfType));
        assert!(object.object("a").is_err() && object.object("e").unwrap().is_none());
        for wrong in [&b"[]"[..], b"{", b"{} {}", b"", b"text", b"\"{}\""] {
            assert!(PlainObject::parse(wrong).is_none());
        }
    }
}
