//! Decodes bodies that are one object: the response to a `get`, and the API's status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use super::item::{self, Fault, key_of, text};
use super::json::Decoder;
use super::members::find;
use super::options::{DecodeOptions, ITEM_LIMIT, too_large};
use super::reason::protocol;
use super::scan::{Scan, parse};
use crate::error::Error;
use crate::object::{Object, Status, StoredObject};
use crate::sync::Arc;

/// Decodes the body of an answer that is one object. Adds the bytes that it passed over to
/// `skipped_bytes`.
///
/// # Errors
///
/// The server's error when the body is a `Status`. `Undecodable` names the field when the object is
/// not a `K`. `TooLarge` beyond `item_bytes_max`. `Protocol` when the body is no JSON object, or of
/// another kind.
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
    let decoded = item::decode(json, item::skipped::<K>(options), skipped_bytes);
    decoded.map_err(|fault| match fault {
        Fault::Malformed(why) => protocol(&format!("the answer is not JSON: {why}")),
        Fault::Foreign { found, .. } => {
            if let Some(status) = decode_status(bytes) {
                return Error::from_status(status);
            }
            let ours = item::expected_words::<K>("");
            protocol(&format!("the answer is {found}, not {ours}"))
        }
        // Of a type of any kind, a status is not foreign.
        Fault::Undecodable(object) => match decode_status(bytes) {
            Some(status) if object.key.name().is_empty() => Error::from_status(status),
            _ => object.error,
        },
    })
}

/// Decodes a body that is a `Status` of the API; `None` for anything else.
pub(crate) fn decode_status(bytes: &[u8]) -> Option<Status> {
    (text(find(bytes, "kind")) == "Status").then(|| read_status(bytes))
}

/// Decodes what a stream says of its failure: a `Status`, also one that does not say its kind.
pub(super) fn decode_failure(bytes: &[u8]) -> Option<Status> {
    let is_object = !text(find(bytes, "kind")).is_empty() || !key_of(bytes).name().is_empty();
    let says = ["message", "reason", "code"].map(|name| find(bytes, name).is_some());
    let says_no_kind = !is_object && says.contains(&true);
    decode_status(bytes).or_else(|| says_no_kind.then(|| read_status(bytes)))
}

/// Reads a status, or what can be read of it.
pub(super) fn read_status(bytes: &[u8]) -> Status {
    let status = Decoder::new(bytes).decode::<meta::Status>();
    Status::from(status.unwrap_or_else(|error| {
        // What can be read of it says more than nothing.
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

/// Whether a version and kind are those of the server's own table of columns (RF-16).
pub(super) fn is_table(version_and_kind: &str) -> bool {
    matches!(
        version_and_kind,
        "meta.k8s.io/v1 Table" | "meta.k8s.io/v1beta1 Table"
    )
}
