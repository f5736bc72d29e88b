//! One object of the API: trimmed, decoded, or set aside with its key and the reason.

use serde::de::IgnoredAny;

use super::members::Members;
use super::message::Undecodable;
use super::options::{DecodeOptions, Trim};
use super::reason;
use super::scan::{Cutting, Shape, Span};
use super::secret_data::{DataFault, SecretData};
use crate::error::{Error, ErrorKind};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
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
pub(super) fn decode<K: Object>(bytes: &mut [u8], shape: &Shape) -> Result<Arc<Held<K>>, Fault> {
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
    SecretData::decode(bytes, shape).map_err(|fault| match fault {
        DataFault::Malformed(why) => Fault::Malformed(why),
        DataFault::Undecodable(why) => {
            let json = cut(bytes, &shape.cuts);
            set_aside(json, K::KIND, &why).map_or_else(|fault| fault, Fault::Undecodable)
        }
    })
}

/// Decodes an object, and gives it what stood apart.
pub(super) fn decode_json<K: Object>(json: &[u8], data: SecretData) -> Result<Arc<Held<K>>, Fault> {
    match serde_json::from_slice::<K>(json) {
        Ok(object) if has_name(&object) => Ok(hold(object, data)),
        Ok(_) => Err(match set_aside(json, K::KIND, "metadata.name: missing") {
            Ok(aside) => Fault::Undecodable(aside),
            Err(fault) => fault,
        }),
        Err(error) => Err(fault(json, K::KIND, &error)),
    }
}

/// An object with what stood apart.
pub(super) fn hold<K: Object>(mut object: K, data: SecretData) -> Arc<Held<K>> {
    data.put_into(&mut object);
    Arc::new(Held::new(object))
}

/// Sets an object of another kind aside.
#[cold]
fn set_foreign_aside<K: Object>(json: &[u8], found: String) -> Fault {
    let why = format!("it is {found}, not {} {}", K::API_VERSION, K::KIND);
    match set_aside(json, K::KIND, &why) {
        Ok(aside) => Fault::Foreign { found, aside },
        Err(fault) => fault,
    }
}

pub(super) fn has_name<K: Object>(object: &K) -> bool {
    object
        .metadata()
        .name
        .as_ref()
        .is_some_and(|name| !name.is_empty())
}

#[cold]
fn fault(json: &[u8], kind: &str, error: &serde_json::Error) -> Fault {
    let why = reason::why(json, error);
    match set_aside(json, kind, &why) {
        Ok(aside) => Fault::Undecodable(aside),
        Err(fault) => fault,
    }
}

/// What can be known of an object that is not decoded. Fails when it is not even JSON.
#[cold]
fn set_aside(json: &[u8], kind: &str, why: &str) -> Result<Undecodable, Fault> {
    serde_json::from_slice::<IgnoredAny>(json)
        .map_err(|error| Fault::Malformed(reason::without_values(&error)))?;
    let identity = Identity::of(json);
    let key = identity.key();
    let name = match key.name() {
        "" => "without a name".to_owned(),
        _ => key.to_string(),
    };
    let message = format!("{kind} {name} does not decode: {why}");
    Ok(Undecodable {
        key,
        uid: identity.uid,
        resource_version: ResourceVersion::from(identity.resource_version),
        error: Error::new(ErrorKind::Undecodable, message),
    })
}

/// What an object of any type says of itself.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

impl Identity {
    /// Fields that are missing, or no strings, are empty.
    pub(super) fn of(json: &[u8]) -> Self {
        let Some(metadata) = Members::find(json, "metadata") else {
            return Self::default();
        };
        let text = |name| text(Members::find(metadata, name));
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&*self.namespace, &*self.name)
    }
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
    let differs = |said: Option<Span>, ours: &str| {
        said.is_some_and(|said| !super::scan::spells(said.of(bytes), ours))
    };
    if !differs(shape.kind, K::KIND) && !differs(shape.api_version, K::API_VERSION) {
        return None;
    }
    let word = |said: Option<Span>| {
        let word = text(said.map(|said| said.of(bytes)));
        reason::clip(&word).escape_debug().to_string()
    };
    let (version, kind) = (word(shape.api_version), word(shape.kind));
    Some(format!("{version} {kind}").trim().to_owned())
}

/// Moves what stays to the front and hands it out.
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
