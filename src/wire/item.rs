//! One object of the API: trimmed, decoded, or set aside with its key and the reason.

use serde::de::IgnoredAny;

use super::members::find;
use super::message::Undecodable;
use super::options::{DecodeOptions, Trim};
use super::reason;
use super::scan::{Cutting, Shape, Span};
use super::secret_data::SecretData;
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject};
use crate::sync::Arc;

/// Why an object was not decoded.
pub(super) enum Fault {
    /// It is no JSON; the parser's own words.
    Malformed(String),
    /// It says that it is of another kind or version.
    Foreign { found: String, aside: Undecodable },
    /// It is well-formed and not a `K`, or has no name.
    Undecodable(Undecodable),
}

/// What is cut out of the text of a `K`.
pub(super) fn cutting<K: Object>(options: &DecodeOptions) -> Cutting {
    Cutting {
        trim: options.trim == Trim::Skip,
        secret_data: SecretData::is_of::<K>(),
    }
}

/// Decodes an object that was scanned; its bytes are used up.
pub(super) fn decode<K: Object>(
    bytes: &mut [u8],
    shape: &Shape,
) -> Result<Arc<StoredObject<K>>, Fault> {
    let data = secret_data::<K>(bytes, shape)?;
    decode_json(cut(bytes, &shape.cuts), data)
}

/// Decodes what stands apart of an object that was scanned, if it says that it is a `K`. When that
/// fails, its bytes are used up.
pub(super) fn secret_data<K: Object>(bytes: &mut [u8], shape: &Shape) -> Result<SecretData, Fault> {
    if let Some(found) = foreign_kind::<K>(bytes, shape) {
        let json = cut(bytes, &shape.cuts);
        return Err(set_foreign_aside::<K>(json, found));
    }
    SecretData::decode(bytes, shape).map_err(|why| {
        // No other code looks at what is cut out.
        malformed(bytes).unwrap_or_else(|| {
            let json = cut(bytes, &shape.cuts);
            set_aside(json, K::resource().kind(), &why)
        })
    })
}

/// Decodes an object, and gives it what stood apart.
pub(super) fn decode_json<K: Object>(
    json: &[u8],
    data: SecretData,
) -> Result<Arc<StoredObject<K>>, Fault> {
    match serde_json::from_slice::<K>(json) {
        Ok(object) if has_name(&object) => Ok(hold(object, data)),
        Ok(_) => Err(set_aside(
            json,
            K::resource().kind(),
            "metadata.name: missing",
        )),
        Err(error) => Err(set_aside(
            json,
            K::resource().kind(),
            &reason::why(json, &error),
        )),
    }
}

/// An object with what stood apart.
pub(super) fn hold<K: Object>(mut object: K, data: SecretData) -> Arc<StoredObject<K>> {
    data.put_into(&mut object);
    Arc::new(StoredObject::new(object))
}

/// Sets an object of another kind aside.
#[cold]
fn set_foreign_aside<K: Object>(json: &[u8], found: String) -> Fault {
    let resource = K::resource();
    let why = format!(
        "it is {found}, not {} {}",
        resource.api_version(),
        resource.kind()
    );
    match set_aside(json, resource.kind(), &why) {
        Fault::Undecodable(aside) => Fault::Foreign { found, aside },
        fault @ (Fault::Malformed(_) | Fault::Foreign { .. }) => fault,
    }
}

pub(super) fn has_name<K: Object>(object: &K) -> bool {
    !object.name().is_empty()
}

/// What can be known of an object that is not decoded; `Malformed` when it is not even JSON.
#[cold]
fn set_aside(json: &[u8], kind: &str, why: &str) -> Fault {
    if let Some(fault) = malformed(json) {
        return fault;
    }
    let key = key_of(json);
    let name = match key.name() {
        "" => "without a name".to_owned(),
        _ => key.to_string(),
    };
    let message = format!("{kind} {name} does not decode: {why}");
    Fault::Undecodable(Undecodable {
        key,
        uid: metadata_text(json, "uid"),
        resource_version: ResourceVersion::from(metadata_text(json, "resourceVersion")),
        error: Error::new(ErrorKind::Undecodable, message),
    })
}

/// Why it is no JSON, if it is none.
#[cold]
fn malformed(json: &[u8]) -> Option<Fault> {
    let parsed = serde_json::from_slice::<IgnoredAny>(json);
    let error = parsed.err()?;
    Some(Fault::Malformed(reason::without_values(&error)))
}

/// The key of an object of any type.
pub(super) fn key_of(json: &[u8]) -> ObjectKey {
    let text = |name| metadata_text(json, name);
    ObjectKey::new(text("namespace"), text("name"))
}

/// A field of the metadata of an object of any type; empty if it is missing, or no string.
pub(super) fn metadata_text(json: &[u8], name: &str) -> String {
    text(find(json, "metadata").and_then(|metadata| find(metadata, name)))
}

/// The text of a JSON string; empty for anything else.
pub(super) fn text(value: Option<&[u8]>) -> String {
    value
        .and_then(|value| serde_json::from_slice(value).ok())
        .unwrap_or_default()
}

/// What the object says that it is, when that is not what a `K` is (RF-25). Items of a list may say
/// nothing.
pub(super) fn foreign_kind<K: Object>(bytes: &[u8], shape: &Shape) -> Option<String> {
    let resource = K::resource();
    let is = |said: Option<Span>, ours: &str| {
        said.is_none_or(|said| super::scan::spells(said.of(bytes), ours))
    };
    if is(shape.kind, resource.kind()) && is(shape.api_version, resource.api_version()) {
        return None;
    }
    let word = |said: Option<Span>| {
        let word = text(said.map(|said| said.of(bytes)));
        reason::clip(&word).escape_debug().to_string()
    };
    let (version, kind) = (word(shape.api_version), word(shape.kind));
    Some(format!("{version} {kind}").trim().to_owned())
}

/// Moves what stays to the front and returns it.
pub(super) fn cut<'a>(bytes: &'a mut [u8], cuts: &[Span]) -> &'a [u8] {
    let mut length = bytes.len();
    if let Some(first) = cuts.first() {
        length = first.start;
        for (nth, cut) in cuts.iter().enumerate() {
            let next = cuts
                .get(nth.saturating_add(1))
                .map_or(bytes.len(), |next| next.start);
            bytes.copy_within(cut.end..next, length);
            length = length.saturating_add(next.saturating_sub(cut.end));
        }
    }
    bytes.get(..length).unwrap_or_default()
}
