//! Decodes the values of a Secret apart from the object, because a failing JSON decoder leaves
//! copies of values in memory.
//!
//! Its errors quote values, and it drops decoded values without overwriting them. So the JSON
//! decoder never sees the values: they are cut out of the text like fields that a cache does not
//! keep.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use zeroize::{Zeroize as _, Zeroizing};

use super::members::members_of;
use super::reason;
use super::scan::Shape;
use crate::object::Object;

/// The key of the values, with its quotes.
const DATA: &[u8] = b"\"data\"";

/// What `data` of a Secret comes to; nothing for objects of other types. Overwritten when it is
/// dropped.
#[derive(Default)]
pub(super) struct SecretData(Option<BTreeMap<String, ByteString>>);

impl SecretData {
    /// Whether the values of a `K` are decoded here.
    pub(super) fn is_of<K: Object>() -> bool {
        TypeId::of::<K>() == TypeId::of::<Secret>()
    }

    /// Decodes the values of an object that was scanned and is not yet cut; fails with the reason,
    /// which quotes no value.
    pub(super) fn decode(object: &[u8], shape: &Shape) -> Result<Self, String> {
        let Some(member) = shape.secret_data else {
            return Ok(Self::default());
        };
        let json = value_of(member.of(object));
        match json.first() {
            Some(b'{') => {}
            Some(b'n') if json == b"null" => return Ok(Self::default()),
            _ => return Err(no_map(json)),
        }
        let mut data = Self(Some(BTreeMap::new()));
        for member in members_of(json) {
            let (quoted, found) = member.map_err(|_broken| no_map(json))?;
            let value = value(quoted, found)?;
            let key = serde_json::from_slice::<String>(quoted);
            let key = key.map_err(|error| reason::without_values(&error))?;
            let values = data.0.get_or_insert_default();
            if let Some(mut before) = values.insert(key, value) {
                before.0.zeroize();
            }
        }
        Ok(data)
    }

    /// Moves the values into the object they were cut out of.
    pub(super) fn put_into<K: Object>(mut self, object: &mut K) {
        let object: &mut dyn Any = object;
        if let (true, Some(secret)) = (self.0.is_some(), object.downcast_mut::<Secret>()) {
            secret.data = self.0.take();
        }
    }

    fn overwrite(&mut self) {
        for value in self.0.iter_mut().flat_map(BTreeMap::values_mut) {
            value.0.zeroize();
        }
    }
}

impl Drop for SecretData {
    fn drop(&mut self) {
        self.overwrite();
    }
}

/// The value of a member that stands whole: `"data": {…}`.
fn value_of(member: &[u8]) -> &[u8] {
    let colon = memchr::memchr(b':', member);
    let value = colon.and_then(|colon| member.get(colon.saturating_add(1)..));
    value.unwrap_or_default().trim_ascii()
}

fn value(key: &[u8], json: &[u8]) -> Result<ByteString, String> {
    if json == b"null" {
        return Ok(ByteString(Vec::new()));
    }
    let text = json
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let decoded = text.and_then(|text| {
        if memchr::memchr(b'\\', text).is_some() {
            from_base64(&unescaped(text)?)
        } else {
            from_base64(text)
        }
    });
    decoded.ok_or_else(|| unlike::<ByteString>(&[DATA, key], json))
}

#[cold]
fn no_map(json: &[u8]) -> String {
    unlike::<BTreeMap<String, ByteString>>(&[DATA], json)
}

fn from_base64(text: &[u8]) -> Option<ByteString> {
    let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
    let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(ByteString(std::mem::take(&mut *bytes)))
}

/// The text of a JSON string with escapes; `None` for those that base64 has no use for.
fn unescaped(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut plain = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = match escape {
            b'/' => {
                plain.push(b'/');
                after
            }
            b'u' => {
                let (digits, after) = after.split_at_checked(4)?;
                let digits = std::str::from_utf8(digits).ok()?;
                plain.push(u8::from_str_radix(digits, 16).ok()?);
                after
            }
            _ => return None,
        };
    }
    Some(plain)
}

/// The decoder's own words for a value that is no `T`, had from a harmless one of the same JSON
/// type.
#[cold]
fn unlike<T: serde::de::DeserializeOwned>(path: &[&[u8]], json: &[u8]) -> String {
    let harmless = match json.first() {
        Some(b'"') => "\"?\"",
        Some(b'{') => "{}",
        Some(b'[') => "[]",
        Some(b't' | b'f') => "true",
        Some(b'n') => "null",
        _ if json.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => "0.5",
        _ => "0",
    };
    let why = match serde_json::from_str::<T>(harmless) {
        Err(error) => reason::without_values(&error),
        Ok(_) => "the value is not acceptable".to_owned(),
    };
    format!("{}: {why}", reason::path_of(path))
}

#[cfg(test)]
mod tests {
    use super::super::item;
    use super::super::options::{DecodeOptions, Trim};
    use super::super::scan::Scan;
    use super::*;

    const CANARY: &str = "Q0FOQVJZ";

    fn options() -> DecodeOptions {
        DecodeOptions::default().trim(Trim::Keep)
    }

    /// What an object comes to, by this module and by the JSON decoder alone.
    fn both(json: &str) -> [Result<Secret, String>; 2] {
        let options = options();
        let mut scan = Scan::default();
        scan.begin_object(item::cutting::<Secret>(&options));
        assert_eq!(
            scan.advance(json.as_bytes()),
            Ok(Some(json.len())),
            "{json}"
        );
        let mut bytes = json.as_bytes().to_vec();
        let apart = match item::decode::<Secret>(&mut bytes, scan.shape()) {
            Ok(secret) => Ok(Secret::clone(&secret)),
            Err(item::Fault::Undecodable(aside)) => Err(aside.error.to_string()),
            Err(item::Fault::Malformed(why)) => Err(format!("malformed: {why}")),
            Err(item::Fault::Foreign { found, .. }) => Err(found),
        };
        let alone = serde_json::from_str::<Secret>(json);
        let alone = alone.map_err(|error| {
            let why = reason::why(json.as_bytes(), &error);
            if error.is_data() {
                format!("Secret n/a does not decode: {why}")
            } else {
                format!("malformed: {}", reason::without_values(&error))
            }
        });
        [apart, alone]
    }

    /// F21: the values come to what they came to in one piece with their Secret, errors to the
    /// word.
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
            let options = options();
            let mut scan = Scan::default();
            scan.begin_object(item::cutting::<Secret>(&options));
            if scan.advance(json.as_bytes()).is_err() {
                continue;
            }
            let mut bytes = json.into_bytes();
            let decoded = item::decode::<Secret>(&mut bytes, scan.shape());
            assert!(matches!(decoded, Err(item::Fault::Malformed(_))), "{data}");
        }
    }

    #[test]
    fn values_are_overwritten_when_they_are_dropped() {
        let mut data = SecretData(Some(
            [("k".to_owned(), ByteString(b"canary".to_vec()))].into(),
        ));
        data.overwrite();
        assert!(
            data.0
                .as_ref()
                .is_some_and(|values| values["k"].0.is_empty())
        );
    }
}
