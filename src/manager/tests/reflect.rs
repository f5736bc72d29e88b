//! Builds an API object with every field set to its own path, by asking the type itself which
//! fields it has.

use std::collections::BTreeSet;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor, value::Error, value::StrDeserializer,
};

/// One string field of the type, and the types around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StringField {
    /// Such as `volumes[].azureFile.secretName`.
    pub(crate) path: String,
    /// The name of the struct in which it stands.
    pub(crate) of: String,
}

/// A deserializer that says yes to every field a type asks for.
struct Everything<'a> {
    path: String,
    /// The struct in which the value stands.
    of: &'static str,
    /// Of a `Volume`, only this field beside its name: a volume has one source.
    source: &'a str,
    seen: &'a mut BTreeSet<StringField>,
}

/// The object in which each string is its own path and volumes have the source `source`, and its
/// string fields.
pub(crate) fn everything<T: DeserializeOwned>(source: &str) -> (T, BTreeSet<StringField>) {
    let mut seen = BTreeSet::new();
    let all = Everything {
        path: String::new(),
        of: "",
        source,
        seen: &mut seen,
    };
    let object = T::deserialize(all).unwrap();
    (object, seen)
}

/// The fields a struct type asks for.
pub(crate) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let asked = T::deserialize(Ask(&mut fields));
    assert!(asked.is_err(), "only the question is of interest");
    fields
}

struct Ask<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Ask<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("asked"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("asked"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for Everything<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.seen.insert(StringField {
            path: self.path.clone(),
            of: self.of.to_owned(),
        });
        visitor.visit_string(self.path)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One(Some(Everything {
            path: format!("{}[]", self.path),
            ..self
        })))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            left: &["key"],
            next: "",
            all: self,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            left: fields,
            next: "",
            all: Everything { of: name, ..self },
        })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

struct One<'a>(Option<Everything<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|all| seed.deserialize(all)).transpose()
    }
}

struct Fields<'a> {
    left: &'static [&'static str],
    next: &'static str,
    all: Everything<'a>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        while let [first, rest @ ..] = self.left {
            self.left = rest;
            self.next = first;
            let skipped = self.all.of == "Volume" && *first != "name" && *first != self.all.source;
            // Times and other typed texts do not parse from a path, and name nothing.
            let time = *first == "time" || first.ends_with("Timestamp");
            if !skipped && !time {
                let key: StrDeserializer<'_, Error> = (*first).into_deserializer();
                return seed.deserialize(key).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let path = if self.all.path.is_empty() {
            self.next.to_owned()
        } else {
            format!("{}.{}", self.all.path, self.next)
        };
        seed.deserialize(Everything {
            path,
            of: self.all.of,
            source: self.all.source,
            seen: self.all.seen,
        })
    }
}
