//! One object of the API: trimmed, decoded, or set aside with its key and the reason. Bodies that
//! are one object: the response to a `get`, and the API's status.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::de::IgnoredAny;

use super::json::Decoder;
use super::members::find;
use super::message::Undecodable;
use super::options::{DecodeOptions, ITEM_LIMIT, Trim, too_large};
use super::place::Skipped;
use super::reason::{self, protocol};
use super::scan::{Scan, parse, spells};
use super::secret_data::SecretData;
use super::shrink::shrink;
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ObjectKey, ResourceVersion, Status, StoredObject};
use crate::sync::Arc;

/// Why an object was not decoded.
pub(super) enum ItemFault {
    /// It is not JSON; the parser's own words.
    Malformed(String),
    /// It says that it is of another kind or version.
    Foreign { found: String, aside: Undecodable },
    /// It is well-formed and not a `K`, or has no name.
    Undecodable(Undecodable),
}

/// Tells what to pass over in the text of a `K`.
pub(super) fn skipped<K: Object>(options: &DecodeOptions) -> Skipped {
    Skipped {
        trim: options.trim == Trim::Skip,
        secret: SecretData::is_of::<K>(),
        rest: K::METADATA_ONLY,
    }
}

/// Decodes the object that the bytes begin with. The decoder then knows how many bytes the object
/// took, and how many of them were passed over. Fails with the reason if the bytes do not begin
/// with a `K`, or end within it.
pub(super) fn read<K: Object>(
    bytes: &[u8],
    skipped: Skipped,
) -> Result<(Arc<StoredObject<K>>, Decoder<'_>), String> {
    let mut decoder = Decoder::of_object(bytes, skipped);
    // From here on its values are overwritten, even if the object is refused.
    let mut object = StoredObject::new(decoder.decode::<K>()?);
    let noted = decoder.noted;
    let data = SecretData::decode::<K>(&noted)?;
    if let Some(found) = foreign_kind::<K>(noted.kind, noted.api_version) {
        return Err(found);
    }
    if object.name().is_empty() {
        return Err("metadata.name: missing".to_owned());
    }
    data.put_into(object.inner_mut());
    shrink(object.inner_mut());
    Ok((Arc::new(object), decoder))
}

/// Decodes bytes that are one object from their first to their last. Adds the bytes that it passed
/// over to `skipped_bytes`.
pub(super) fn decode<K: Object>(
    bytes: &[u8],
    skipped: Skipped,
    skipped_bytes: &mut usize,
) -> Result<Arc<StoredObject<K>>, ItemFault> {
    let why = match read(bytes, skipped) {
        Ok((object, decoder)) if decoder.used() == bytes.len() => {
            *skipped_bytes = skipped_bytes.saturating_add(decoder.skipped_bytes);
            return Ok(object);
        }
        Ok(_) => "trailing characters".to_owned(),
        Err(why) => why,
    };
    let [kind, api_version] = ["kind", "apiVersion"].map(|name| find(bytes, name));
    let found = foreign_kind::<K>(kind, api_version);
    let foreign = |found: &String| format!("it is {found}, not {}", expected_words::<K>(""));
    let why = found.as_ref().map_or(why, foreign);
    let aside = set_aside(bytes, K::resource().kind(), &why)?;
    Err(match found {
        Some(found) => ItemFault::Foreign { found, aside },
        None => ItemFault::Undecodable(aside),
    })
}

/// The key and the reason of an object that is not decoded; `Malformed` if it is not JSON.
#[cold]
fn set_aside(json: &[u8], kind: &str, why: &str) -> Result<Undecodable, ItemFault> {
    well_formed(json).map_err(ItemFault::Malformed)?;
    let key = key_of(json);
    let name = match key.name() {
        "" => "without a name".to_owned(),
        _ => key.to_string(),
    };
    let message = format!("{kind} {name} does not decode: {why}");
    Ok(Undecodable {
        key,
        uid: metadata_text(json, "uid"),
        resource_version: ResourceVersion::from(metadata_text(json, "resourceVersion")),
        error: Error::new(ErrorKind::Undecodable, message),
    })
}

/// Fails with the reason if `json` is not JSON.
pub(super) fn well_formed(json: &[u8]) -> Result<(), String> {
    let parsed = parse::<IgnoredAny>(json);
    parsed.map(drop).map_err(|error| reason::not_json(&error))
}

/// The key of an object of any type.
pub(super) fn key_of(json: &[u8]) -> ObjectKey {
    let text = |name| metadata_text(json, name);
    ObjectKey::new(text("namespace"), text("name"))
}

/// A field of the metadata of an object of any type; empty if it is missing, or not a string.
pub(super) fn metadata_text(json: &[u8], name: &str) -> String {
    text(find(json, "metadata").and_then(|metadata| find(metadata, name)))
}

/// The text of a JSON string; empty for anything else.
pub(super) fn text(value: Option<&[u8]>) -> String {
    value
        .and_then(|value| parse(value).ok())
        .unwrap_or_default()
}

/// A group and version, and a kind.
pub(super) type TypeNames = (Cow<'static, str>, Cow<'static, str>);

/// The kinds and versions that objects of the type, or lists of them, may name.
#[cold]
pub(super) fn expected_words<K: Object>(list: &str) -> String {
    let names = names::<K>().into_iter().flatten();
    let words = names.map(|(api_version, kind)| format!("{api_version} {kind}{list}"));
    words.collect::<Vec<_>>().join(" or ")
}

/// The type names that an object of a `K` may have; `None` if any will do. Servers that cannot send
/// metadata alone send whole objects.
fn names<K: Object>() -> Option<impl Iterator<Item = TypeNames>> {
    let whole = K::resource().type_names();
    let (group, kind) = ("meta.k8s.io/v1", "PartialObjectMetadata");
    let metadata = K::METADATA_ONLY.then_some((Cow::Borrowed(group), Cow::Borrowed(kind)));
    (!whole.1.is_empty()).then(|| metadata.into_iter().chain([whole]))
}

/// Whether `takes` accepts one of the type names that an object of a `K` may have.
pub(super) fn may_be<K: Object>(takes: impl Fn(&TypeNames) -> bool) -> bool {
    names::<K>().is_none_or(|mut names| names.any(|names| takes(&names)))
}

/// The version and kind that the object names, if they are not those of a `K` (RF-25). Items of a
/// list may omit them, or leave them empty.
pub(super) fn foreign_kind<K: Object>(
    kind: Option<&[u8]>,
    api_version: Option<&[u8]>,
) -> Option<String> {
    let differs = |said: Option<&[u8]>, ours: &str| {
        let said = said.filter(|said| said.starts_with(b"\"") && !spells(said, ""));
        said.is_some_and(|said| !spells(said, ours))
    };
    if may_be::<K>(|(our_version, our_kind)| {
        !differs(kind, our_kind) && !differs(api_version, our_version)
    }) {
        return None;
    }
    let word = |said| {
        let word = text(said);
        reason::clip(&word).escape_debug().to_string()
    };
    let (version, kind) = (word(api_version), word(kind));
    Some(format!("{version} {kind}").trim().to_owned())
}

/// Decodes an answer whose body is one object. Adds the bytes that it passed over to
/// `skipped_bytes`.
///
/// # Errors
///
/// The server's error when the body is a `Status`. `Undecodable` names the field when the object is
/// not a `K`. `TooLarge` beyond `item_bytes_max`. `Protocol` when the body is not a JSON object, or
/// is of another kind.
pub(crate) fn decode_object<K: Object>(
    bytes: &[u8],
    options: &DecodeOptions,
    skipped_bytes: &mut usize,
) -> Result<Arc<StoredObject<K>>, Error> {
    if bytes.len() > options.item_bytes_max {
        return Err(too_large("the object", options.item_bytes_max, ITEM_LIMIT));
    }
    let json = bytes.trim_ascii();
    let ends = Scan::default().advance(json) == Ok(Some(json.len()));
    if !json.starts_with(b"{") || !ends {
        return Err(protocol("the answer is no JSON object, or is cut off"));
    }
    let decoded = decode(json, skipped::<K>(options), skipped_bytes);
    decoded.map_err(|fault| match fault {
        ItemFault::Malformed(why) => protocol(&format!("the answer is not JSON: {why}")),
        ItemFault::Foreign { found, .. } => {
            if let Some(status) = decode_status(bytes) {
                return Error::from_status(status);
            }
            let ours = expected_words::<K>("");
            protocol(&format!("the answer is {found}, not {ours}"))
        }
        // To a type of any kind, a status is not foreign.
        ItemFault::Undecodable(object) => match decode_status(bytes) {
            Some(status) if object.key.name().is_empty() => Error::from_status(status),
            _ => object.error,
        },
    })
}

/// Decodes a body that is a `Status` of the API; `None` for anything else.
pub(crate) fn decode_status(bytes: &[u8]) -> Option<Status> {
    (text(find(bytes, "kind")) == "Status").then(|| read_status(bytes))
}

/// Decodes a stream's report of its failure: a `Status`, even one that does not name its kind.
pub(super) fn decode_failure(bytes: &[u8]) -> Option<Status> {
    let is_object = !text(find(bytes, "kind")).is_empty() || !key_of(bytes).name().is_empty();
    let says = ["message", "reason", "code"].map(|name| find(bytes, name).is_some());
    let says_no_kind = !is_object && says.contains(&true);
    decode_status(bytes).or_else(|| says_no_kind.then(|| read_status(bytes)))
}

/// Reads a status, as far as it can be read.
pub(super) fn read_status(bytes: &[u8]) -> Status {
    let status = Decoder::new(bytes).decode::<meta::Status>();
    Status::from(status.unwrap_or_else(|error| {
        // Fields that can be read are better than none.
        let text = |name| Some(text(find(bytes, name))).filter(|text| !text.is_empty());
        meta::Status {
            code: find(bytes, "code").and_then(|code| parse(code).ok()),
            message: text("message")
                .or_else(|| Some(format!("the server's status does not decode: {error}"))),
            reason: text("reason"),
            ..meta::Status::default()
        }
    }))
}

/// Whether a version and kind are those of a server-side `Table` (RF-16).
pub(super) fn is_table(version_and_kind: &str) -> bool {
    ["meta.k8s.io/v1 Table", "meta.k8s.io/v1beta1 Table"].contains(&version_and_kind)
}
