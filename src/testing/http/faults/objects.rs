//! The changes of a fault to an object, as JSON.

use serde_json::{Map, Value, json};

use super::act::Act;
use super::fault::Fault;

/// A placeholder for bytes that no [`Value`] can contain.
const MARK: &str = "@@fault-of-the-test-server@@";

/// Spoils an API object, or a list of them.
pub(super) fn spoil(document: &mut Value, faults: &[Fault]) {
    if let Some(Value::Array(items)) = document.get_mut("items") {
        for item in items {
            for fault in faults {
                spoil_object(item, fault);
            }
        }
        for fault in faults.iter().filter(|fault| fault.name.is_none()) {
            spoil_list(document, &fault.act);
        }
        return;
    }
    for fault in faults {
        spoil_object(document, fault);
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "each file knows its own acts"
)]
fn spoil_list(list: &mut Value, act: &Act) {
    match act {
        Act::WrongKind => set(list, "kind", "WrongList".into()),
        Act::OlderVersions(by) => set_back(list, *by),
        _ => {}
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "each file knows its own acts"
)]
fn spoil_object(object: &mut Value, fault: &Fault) {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str);
    let is = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
    };
    let is_met = is(&fault.namespace, text("/metadata/namespace"))
        && is(&fault.name, text("/metadata/name"));
    let is_object = object.get("metadata").is_some() && text("/kind") != Some("Status");
    if !is_met || !is_object {
        return;
    }
    match &fault.act {
        Act::WrongKind => set(object, "kind", "Wrong".into()),
        Act::OlderVersions(by) => set_back(object, *by),
        Act::WrongNames => {
            let name = format!("other-{}", text("/metadata/name").unwrap_or_default());
            in_metadata(object, "name", Some(name.into()));
        }
        Act::Unnamed => in_metadata(object, "name", None),
        Act::Undecodable => in_metadata(object, "labels", Some(7.into())),
        Act::NotUtf8 | Act::Deep(_) => {
            in_metadata(object, "annotations", Some(json!({ "fault": MARK })));
        }
        Act::HugeNumber => in_metadata(object, "generation", Some(MARK.into())),
        _ => {}
    }
}

/// Writes a document, with bytes in place of the placeholders.
pub(super) fn write(document: &Value, faults: &[Fault]) -> Vec<u8> {
    let text = document.to_string();
    let mark = format!("\"{MARK}\"");
    let Some(instead) = faults.iter().find_map(|fault| bytes(&fault.act)) else {
        return text.into_bytes();
    };
    let mut written = Vec::with_capacity(text.len());
    for (index, part) in text.split(&mark).enumerate() {
        if index > 0 {
            written.extend_from_slice(&instead);
        }
        written.extend_from_slice(part.as_bytes());
    }
    written
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "each file knows its own acts"
)]
fn bytes(act: &Act) -> Option<Vec<u8>> {
    match act {
        Act::NotUtf8 => Some(b"\"a\xff\xfeb\"".to_vec()),
        Act::Deep(levels) => Some(
            ["[".repeat(*levels), "]".repeat(*levels)]
                .concat()
                .into_bytes(),
        ),
        Act::HugeNumber => Some(b"123456789e999999".to_vec()),
        _ => None,
    }
}

fn set(document: &mut Value, field: &str, value: Value) {
    if let Value::Object(members) = document {
        members.insert(field.to_owned(), value);
    }
}

fn in_metadata(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let metadata: &mut Map<_, _> = metadata;
        match value {
            Some(value) => drop(metadata.insert(field.to_owned(), value)),
            None => drop(metadata.remove(field)),
        }
    }
}

fn set_back(document: &mut Value, by: u64) {
    let version = document.pointer("/metadata/resourceVersion");
    let version = version
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<u64>().ok());
    if let Some(version) = version {
        let older = version.saturating_sub(by).max(1).to_string();
        in_metadata(document, "resourceVersion", Some(older.into()));
    }
}
