//! Refuses objects that a client writes: with impossible names, or changes of immutable fields.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::refusal::{FieldComplaint, Refusal};
use super::resources::{ApiResource, CRD_GROUP, CRDS};
use super::storage::metadata_text;
use crate::object::LabelMatcher;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Refuses an object with an invalid name, or an invalid beginning of it, or invalid metadata.
pub(super) fn check_name(resource: &ApiResource, object: &Value) -> Result<(), Refusal> {
    let (name, prefix) = (
        metadata_text(object, "name"),
        metadata_text(object, "generateName"),
    );
    let mut complaints = Vec::new();
    if !prefix.is_empty() {
        // Letters follow a dash at the end, and the character before it may be a dash too.
        let masked = match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => {
                let mut letters = rest.chars();
                letters.next_back();
                format!("{}a", letters.as_str())
            }
            _ => prefix.to_owned(),
        };
        complaints.extend(complaint(
            resource,
            "metadata.generateName",
            prefix,
            &masked,
        ));
    }
    if name.is_empty() {
        let message = "name or generateName is required";
        complaints.push(FieldComplaint::required("metadata.name", message));
    } else {
        complaints.extend(complaint(resource, "metadata.name", name, name));
    }
    complaints.extend(metadata_complaints(resource, object));
    match complaints.as_slice() {
        [] => Ok(()),
        complaints => Err(Refusal::invalid(resource, name, complaints)),
    }
}

const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
    regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, \
    '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
    'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The maximum size of all annotations of an object.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Finalizers without a domain that objects of built-in kinds may have.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The complaints about labels, annotations and finalizers.
fn metadata_complaints(resource: &ApiResource, object: &Value) -> Vec<FieldComplaint> {
    let told = |field: &str, text: &str, why: &str| {
        FieldComplaint::invalid(&format!("metadata.{field}"), &Value::from(text), why)
    };
    let mut complaints = Vec::new();
    for (key, value) in texts(object, "labels") {
        complaints.extend((!is_label(key, "")).then(|| told("labels", key, KEY)));
        complaints.extend((!is_label("a", value)).then(|| told("labels", value, VALUE)));
    }
    let mut bytes = 0_usize;
    for (key, value) in texts(object, "annotations") {
        bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
        let is_known = is_label(&key.to_lowercase(), "");
        complaints.extend((!is_known).then(|| told("annotations", key, KEY)));
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let field = "metadata.annotations";
        complaints.push(FieldComplaint::too_long(field, ANNOTATION_BYTES_MAX));
    }
    complaints.extend(owner_complaints(object));
    let finalizers = finalizers(object);
    for name in &finalizers {
        complaints.extend((!is_label(name, "")).then(|| told("finalizers", name, KEY)));
    }
    let (orphan, foreground) = ("orphan", "foregroundDeletion");
    if finalizers.contains(&orphan) && finalizers.contains(&foreground) {
        let why = format!("finalizer {orphan} and {foreground} cannot be both set");
        let all = Value::from(finalizers.clone());
        complaints.push(FieldComplaint::invalid("metadata.finalizers", &all, &why));
    }
    if resource.traits().is_built_in && !resource.is(CRD_GROUP, CRDS) {
        for (index, name) in finalizers.iter().enumerate() {
            let is_known = name.contains('/') || STANDARD_FINALIZERS.contains(name);
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            let field = format!("finalizers[{index}]");
            complaints.extend((!is_known).then(|| told(&field, name, why)));
        }
    }
    complaints
}

/// The complaints about the owners that an object names.
fn owner_complaints(object: &Value) -> Vec<FieldComplaint> {
    const FIELD: &str = "metadata.ownerReferences";
    let owners = object.pointer("/metadata/ownerReferences");
    let owners = owners
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let (mut complaints, mut controller) = (Vec::new(), None);
    for (index, owner) in owners.iter().enumerate() {
        let text = |name| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = format!("{FIELD}[{index}]");
        for name in ["apiVersion", "kind", "name", "uid"] {
            let field = format!("{field}.{name}");
            if text(name).is_empty() {
                complaints.push(FieldComplaint::required(&field, "must not be empty"));
            } else if name == "apiVersion" && !is_api_version(text(name)) {
                let why = "must be <group>/<version> or <version>";
                complaints.push(FieldComplaint::invalid(
                    &field,
                    &Value::from(text(name)),
                    why,
                ));
            }
        }
        if matches!(text("apiVersion"), "v1" | "/v1") && text("kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            complaints.push(FieldComplaint::invalid(&field, &owner_text(owner), why));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let all: Vec<_> = owners.iter().map(owner_text).collect();
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in \
                         references for {first} and {name}"
                    );
                    let all = format!("[{}]", all.join(","));
                    complaints.push(FieldComplaint::invalid(FIELD, &all, &why));
                }
            }
        }
    }
    complaints
}

fn is_api_version(text: &str) -> bool {
    let version = text.split_once('/').map_or(text, |(_, version)| version);
    !version.is_empty() && !version.contains('/')
}

/// An owner as the server writes it, in the order of its type.
pub(super) fn owner_text(owner: &Value) -> String {
    let texts = ["apiVersion", "kind", "name", "uid"].map(|name| {
        let text = owner.get(name).and_then(Value::as_str);
        (name, Some(Value::from(text.unwrap_or_default())))
    });
    let flags = ["controller", "blockOwnerDeletion"].map(|name| {
        let flag = owner.get(name).filter(|flag| flag.is_boolean());
        (name, flag.cloned())
    });
    let fields = texts.into_iter().chain(flags);
    let fields = fields.filter_map(|(name, value)| Some(format!("{name:?}:{}", value?)));
    let fields: Vec<_> = fields.collect();
    format!("{{{}}}", fields.join(","))
}

/// Whether an object can have that label.
fn is_label(key: &str, value: &str) -> bool {
    let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let selector = LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    };
    LabelMatcher::of_object(&selector).is_ok()
}

/// The texts in a field of the metadata, by their keys.
fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let metadata = object.get("metadata");
    let texts = metadata.and_then(|metadata| metadata.get(field)?.as_object());
    let texts = texts.into_iter().flatten();
    texts.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// The complaint about a name in that field, which it shows as `told`.
fn complaint(
    resource: &ApiResource,
    field: &str,
    told: &str,
    name: &str,
) -> Option<FieldComplaint> {
    let is_label = resource.is("", "namespaces") || resource.is("", "services");
    let max = if is_label { 63 } else { 253 };
    let is_valid =
        name.len() <= max && name.split('.').all(is_dns_label) && !(is_label && name.contains('.'));
    if is_valid {
        return None;
    }
    let rule = if is_label { LABEL } else { SUBDOMAIN };
    let message = if is_label && name.contains('.') {
        "must not contain dots".to_owned()
    } else if name.len() > max {
        format!("must be no more than {max} characters")
    } else {
        rule.to_owned()
    };
    Some(FieldComplaint::invalid(field, &Value::from(told), &message))
}

fn is_dns_label(text: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| is_outer(c) || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Refuses a change of an immutable field.
pub(super) fn check_update(
    resource: &ApiResource,
    old: &Value,
    new: &Value,
) -> Result<(), Refusal> {
    let mut complaints = metadata_complaints(resource, new);
    let is_immutable = old.get("immutable").and_then(Value::as_bool) == Some(true);
    let can_be_immutable = resource.is("", "secrets") || resource.is("", "configmaps");
    if is_immutable && can_be_immutable {
        let message = "field is immutable when `immutable` is set";
        for field in ["immutable", "data", "binaryData"] {
            if old.get(field) != new.get(field) {
                complaints.push(FieldComplaint::forbidden(field, message));
            }
        }
    }
    if resource.is("", "secrets") && old.get("type") != new.get("type") {
        let kind = new.get("type").unwrap_or(&Value::Null);
        complaints.push(FieldComplaint::invalid("type", kind, "field is immutable"));
    }
    if !metadata_text(old, "deletionTimestamp").is_empty() {
        let (before, after) = (finalizers(old), finalizers(new));
        let added: Vec<_> = after.iter().filter(|one| !before.contains(one)).collect();
        if !added.is_empty() {
            let names: Vec<_> = added.iter().map(|name| format!("{name:?}")).collect();
            let message = format!(
                "no new finalizers can be added if the object is being deleted, found new \
                 finalizers []string{{{}}}",
                names.join(", ")
            );
            complaints.push(FieldComplaint::forbidden("metadata.finalizers", &message));
        }
    }
    match complaints.as_slice() {
        [] => Ok(()),
        complaints => Err(Refusal::invalid(
            resource,
            metadata_text(new, "name"),
            complaints,
        )),
    }
}

/// The finalizers of an object.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let all = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Resource;
    use crate::testing::api::resources::KindRegistry;

    #[test]
    fn names_are_held_to_the_rules_of_their_kind() {
        let registry = KindRegistry::built_in();
        let code = |plural: &str, name: &str| {
            let resource = registry.find("", "v1", plural).unwrap();
            let object = json!({"metadata": {"name": name}});
            check_name(resource, &object)
                .err()
                .map(|refusal| refusal.code)
        };
        assert_eq!(code("configmaps", "a.b-c"), None);
        for (plural, name) in [
            ("configmaps", "A"),
            ("configmaps", ""),
            ("configmaps", "a..b"),
            ("namespaces", "a.b"),
        ] {
            assert_eq!(code(plural, name), Some(422), "{plural} {name:?}");
        }
    }

    #[test]
    fn the_beginning_of_a_name_is_held_to_the_same_rules() {
        let registry = KindRegistry::built_in();
        let config_maps = registry.find("", "v1", "configmaps").unwrap();
        let told = |prefix: &str| {
            let object = json!({"metadata": {"name": "a", "generateName": prefix}});
            check_name(config_maps, &object)
                .err()
                .map(|refusal| refusal.code)
        };
        for prefix in ["a-", "a--", "--", "a"] {
            assert_eq!(told(prefix), None, "{prefix}");
        }
        for prefix in ["-", "Aa-", "a.", "-a"] {
            assert_eq!(told(prefix), Some(422), "{prefix}");
        }
        let long = format!("{}-", "a".repeat(80));
        assert_eq!(told(&long), None);
        assert_eq!(super::super::defaults::generated_name(&long, 1).len(), 63);
    }

    #[test]
    fn what_is_immutable_does_not_change() {
        let registry = KindRegistry::built_in();
        let secrets = registry.find("", "v1", "secrets").unwrap();
        let old = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "dg=="}});
        let new = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "eA=="}});
        let refused = check_update(secrets, &old, &new).unwrap_err();
        let expected =
            "Secret \"a\" is invalid: data: Forbidden: field is immutable when `immutable` is set";
        assert_eq!(refused.message(), expected);
        assert!(check_update(secrets, &old, &old).is_ok());
    }

    #[test]
    fn kinds_of_other_groups_have_no_rules_of_core_kinds_with_their_names() {
        let of = |group: &'static str, plural: &'static str, kind: &'static str| {
            ApiResource::new(Resource::new(group, "v1", plural, kind))
        };
        let named = json!({"metadata": {"name": "a.b"}});
        for (group, is_taken) in [("", false), ("x.io", true)] {
            let services = of(group, "services", "Service");
            assert_eq!(check_name(&services, &named).is_ok(), is_taken, "{group}");
        }
        let old = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "dg=="}});
        let new = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "eA=="}});
        for (group, may_change) in [("", false), ("x.io", true)] {
            let secrets = of(group, "secrets", "Secret");
            let changed = check_update(&secrets, &old, &new);
            assert_eq!(changed.is_ok(), may_change, "{group}");
        }
    }
}
