//! Decodes the values of a Secret, and kubectl's copy of them, apart from the object. A JSON
//! decoder that fails would leave copies of values in memory.
//!
//! The errors of such a decoder quote values, and it drops decoded values without overwriting them.
//! So the JSON decoder never sees the values: it passes over them, like fields that a cache does
//! not keep.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use memchr::memchr;
use serde::de::DeserializeOwned;
use zeroize::{Zeroize as _, Zeroizing};

use super::json::Decoder;
use super::members::members_of;
use super::metadata::Metadata;
use super::place::Noted;
use super::reason::{self, PathStep, path};
use super::scan::inner;
use crate::object::Object;
use crate::object::wipe::LAST_APPLIED;

/// The decoded parts of a Secret; empty for objects of other types. Overwritten on drop.
#[derive(Default)]
pub(super) struct SecretData(Secret);

impl SecretData {
    /// Whether the values of a `K` are decoded here.
    pub(super) fn is_of<K: Object>() -> bool {
        Self::is_whole::<K>() || TypeId::of::<K>() == TypeId::of::<Metadata<Secret>>()
    }

    fn is_whole<K: Object>() -> bool {
        TypeId::of::<K>() == TypeId::of::<Secret>()
    }

    /// Decodes the values that a `K` has. Fails with the reason, which quotes no value.
    pub(super) fn decode<K: Object>(noted: &Noted<'_>) -> Result<Self, String> {
        let mut secret = Self::default();
        if Self::is_whole::<K>() {
            let [data, string_data] = [noted.data, noted.string_data];
            decode(("data", data), &mut secret.0.data, bytes, |it| {
                it.0.zeroize();
            })?;
            let texts = &mut secret.0.string_data;
            decode(("stringData", string_data), texts, text, String::zeroize)?;
        }
        if let Some(json) = noted.last_applied {
            let copy = text(json).ok_or_else(|| {
                unlike::<String>(&["metadata", "annotations", LAST_APPLIED], json)
            })?;
            let annotations = secret.0.metadata.annotations.get_or_insert_default();
            drop(annotations.insert(LAST_APPLIED.to_owned(), copy));
        }
        Ok(secret)
    }

    /// Moves the values into the object that they were cut out of.
    pub(super) fn put_into<K: Object>(mut self, object: &mut K) {
        let object: &mut dyn Any = object;
        let metadata = if let Some(secret) = object.downcast_mut::<Secret>() {
            secret.data = self.0.data.take();
            secret.string_data = self.0.string_data.take();
            &mut secret.metadata
        } else if let Some(of_secret) = object.downcast_mut::<Metadata<Secret>>() {
            &mut of_secret.metadata
        } else {
            return;
        };
        let copy = self.0.metadata.annotations.take();
        if let (Some(annotations), Some(copy)) = (&mut metadata.annotations, copy) {
            annotations.extend(copy);
        }
    }
}

impl Drop for SecretData {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

/// Decodes the values of a field into memory that is overwritten, even after a failure.
fn decode<T: DeserializeOwned>(
    (name, json): (&str, Option<&[u8]>),
    into: &mut Option<BTreeMap<String, T>>,
    decoded: fn(&[u8]) -> Option<T>,
    wipe: fn(&mut T),
) -> Result<(), String> {
    let Some(json) = json.filter(|json| *json != b"null") else {
        return Ok(());
    };
    let no_map = || unlike::<BTreeMap<String, T>>(&[name], json);
    if !json.starts_with(b"{") {
        return Err(no_map());
    }
    let values = into.insert(BTreeMap::new());
    for member in members_of(json) {
        let (quoted, found) = member.map_err(|_broken| no_map())?;
        let key = serde_json::from_slice::<String>(quoted);
        let value = decoded(found)
            .ok_or_else(|| unlike::<T>(&[name, key.as_deref().unwrap_or_default()], found))?;
        let key = key.map_err(|error| reason::not_json(&error))?;
        values.insert(key, value).as_mut().map(wipe);
    }
    Ok(())
}

/// A string, copied once.
fn text(json: &[u8]) -> Option<String> {
    Decoder::new(json).decode().ok()
}

fn bytes(json: &[u8]) -> Option<ByteString> {
    if json == b"null" {
        return Some(ByteString(Vec::new()));
    }
    // Most values are long and have no escape.
    let plain = inner(json).filter(|text| memchr(b'\\', text).is_none());
    let unescaped = plain.is_none().then(|| Decoder::string(json)).flatten();
    let text = plain.or(unescaped.as_ref().map(|text| text.as_str().as_bytes()))?;
    let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
    let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(ByteString(std::mem::take(&mut *bytes)))
}

/// The decoder's own words for a value that is not a `T`, made with a harmless value of the same
/// JSON type.
#[cold]
fn unlike<T: DeserializeOwned>(steps: &[&str], json: &[u8]) -> String {
    let harmless = match json.first() {
        Some(b'"') => "\"?\"",
        Some(b'{') => "{}",
        Some(b'[') => "[]",
        Some(b't' | b'f') => "true",
        Some(b'n') => "null",
        _ if json.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => "0.5",
        _ => "0",
    };
    let why = match Decoder::new(harmless.as_bytes()).decode::<T>() {
        Err(why) => why,
        // For a broken string the decoder names the position of a bad escape, and quotes nothing.
        Ok(_) => match Decoder::new(json).decode::<String>().map(Zeroizing::new) {
            Err(why) if json.starts_with(b"\"") => why,
            _ => "the value is not acceptable".to_owned(),
        },
    };
    let key = |step: &&str| PathStep::Key((*step).to_owned());
    let steps: Vec<_> = steps.iter().map(key).collect();
    format!("{}: {why}", path(&steps))
}

#[cfg(test)]
mod tests {
    use super::super::item;
    use super::super::options::{DecodeOptions, Trim};
    use super::*;

    const CANARY: &str = "Q0FOQVJZ";

    fn decode(json: &str) -> Result<Secret, String> {
        let options = DecodeOptions::default().trim(Trim::Keep);
        let skipped = item::skipped::<Secret>(&options);
        match item::decode::<Secret>(json.as_bytes(), skipped, &mut 0) {
            Ok(secret) => Ok(Secret::clone(&secret)),
            Err(item::ItemFault::Undecodable(aside)) => Err(aside.error.to_string()),
            Err(item::ItemFault::Malformed(why)) => Err(format!("malformed: {why}")),
            Err(item::ItemFault::Foreign { found, .. }) => Err(found),
        }
    }

    /// Decodes an object with this module, and with the JSON decoder alone.
    fn both(json: &str) -> [Result<Secret, String>; 2] {
        let alone = Decoder::new(json.as_bytes()).decode::<Secret>();
        let alone = alone.map_err(|why| format!("Secret n/a does not decode: {why}"));
        [decode(json), alone]
    }

    /// F21: values decoded apart equal those decoded with their Secret, and errors are the same to
    /// the word.
    #[test]
    fn f21_values_that_are_decoded_apart_come_to_the_same() {
        let datas = [
            "null".to_owned(),
            "{}".to_owned(),
            format!(r#"{{"k":"{CANARY}","l":"","m":null}}"#),
            format!(" {{ \"k\" :\n\"{CANARY}\" , \"\\u006b\\\"\" : \"eA==\" }} "),
            r#"{"k":"\u0065A\u003d\u003D","l":"\/\/\/\/","k2":"++//"}"#.to_owned(),
            r#"{"k":"eA==","k":"eQ=="}"#.to_owned(),
            // These do not decode.
            format!(r#""{CANARY}""#),
            "7".to_owned(),
            "-1.5e7".to_owned(),
            "true".to_owned(),
            format!(r#"["{CANARY}"]"#),
            format!(r#"{{"k":"{CANARY}?"}}"#),
            r#"{"k":"eA="}"#.to_owned(),
            r#"{"k":"eB=="}"#.to_owned(),
            r#"{"k":"e\nA=="}"#.to_owned(),
            r#"{"k":"\ud83d\ude00"}"#.to_owned(),
            r#"{"k":7}"#.to_owned(),
            r#"{"k":7.5}"#.to_owned(),
            r#"{"k":false}"#.to_owned(),
            format!(r#"{{"k":["{CANARY}"]}}"#),
            format!(r#"{{"a.b/c":{{"k":"{CANARY}"}}}}"#),
        ];
        for data in datas {
            for json in [
                format!(r#"{{"data":{data},"metadata":{{"name":"a","namespace":"n"}}}}"#),
                format!(r#"{{"metadata":{{"name":"a","namespace":"n"}},"data":{data}}}"#),
                format!(
                    r#"{{"metadata":{{"name":"a","namespace":"n"}},"d\u0061ta":{data},"type":"t"}}"#
                ),
                format!(
                    r#"{{"data":null,"metadata":{{"name":"a","namespace":"n"}},"data":{data}}}"#
                ),
            ] {
                let [apart, alone] = both(&json);
                assert_eq!(apart, alone, "{json}");
                assert!(!format!("{:?}", apart.err()).contains(CANARY));
            }
        }
    }

    #[test]
    fn what_is_no_json_is_told_as_such() {
        for data in [
            r#"{"k" "v"}"#,
            r#"{"k":}"#,
            r#"{"k":nope}"#,
            r#"{"k":"eA==",}"#,
            r#"{"k":"eA==" "l":"eA=="}"#,
            "{}{}",
            "nul",
            "",
            "{\"k\":\"\n\"}",
        ] {
            let json = format!(r#"{{"metadata":{{"name":"a","namespace":"n"}},"data":{data}}}"#);
            let decoded = decode(&json).unwrap_err();
            assert!(decoded.starts_with("malformed: "), "{data}: {decoded}");
        }
    }

    /// F21: every field with values decodes the same apart, whatever else the metadata has.
    #[test]
    fn f21_the_other_places_of_values_come_to_the_same() {
        let applied = format!(r#""{LAST_APPLIED}":"{{\"data\":\"{CANARY}\"}}\n""#);
        for rest in [
            format!(r#""annotations":{{{applied}}}}}"#),
            format!(r#""annotations":{{"a":"b\n",{applied},"c":"d"}}}}"#),
            format!(r#""annotations":{{"{LAST_APPLIED}":""}}}}"#),
            r#""annotations":null}"#.to_owned(),
            format!(r#""labels":{{{applied}}}}},"data":{{"k":"{CANARY}"}}"#),
            format!(r#""annotations":{{{applied}}}}},"stringData":{{"k":"{CANARY}\n"}}"#),
            r#""annotations":{}},"stringData":null"#.to_owned(),
            r#""uid":"u"},"stringData":{}"#.to_owned(),
        ] {
            let json = format!(r#"{{"metadata":{{"name":"a",{rest}}}"#);
            let [apart, whole] = both(&json);
            assert_eq!(apart.unwrap(), whole.unwrap(), "{json}");
        }
        for (rest, why) in [
            (
                format!(r#""annotations":{{"{LAST_APPLIED}":7}}}}"#),
                format!(
                    "metadata.annotations[{LAST_APPLIED:?}]: invalid type: integer, expected a \
                     string"
                ),
            ),
            (
                r#""uid":"u"},"stringData":{"k":7}"#.to_owned(),
                "stringData.k: invalid type: integer, expected a string".to_owned(),
            ),
            (
                r#""uid":"u"},"stringData":7"#.to_owned(),
                "stringData: invalid type: integer, expected a map".to_owned(),
            ),
        ] {
            let json = format!(r#"{{"metadata":{{"name":"a",{rest}}}"#);
            let text = format!("Secret a does not decode: {why}");
            assert_eq!(decode(&json).unwrap_err(), text);
        }
    }

    #[test]
    fn values_are_overwritten_when_they_are_dropped() {
        let mut data = SecretData::default();
        data.0.data = Some([("k".to_owned(), ByteString(b"canary".to_vec()))].into());
        data.0.wipe();
        assert!(data.0.data.as_ref().unwrap()["k"].0.is_empty());
    }
}
