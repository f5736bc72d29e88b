//! Patches: merge patches (RFC 7386), JSON patches (RFC 6902), and strategic merge patches with the
//! keys by which the common kinds merge their lists.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::resources::ApiResource;

/// Why a JSON patch does not apply; the server does not tell its clients.
#[derive(Debug)]
struct NotApplicable;

/// Applies the patch of a request, of the type that its header names.
pub(super) fn apply(
    resource: &ApiResource,
    content_type: &str,
    object: &Value,
    patch: &[u8],
) -> Result<Value, Refusal> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let read = || {
        serde_json::from_slice::<Value>(patch)
            .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))
    };
    let mut patched = object.clone();
    match media_type {
        "application/merge-patch+json" => {
            let patch = read()?;
            if !patch.is_object() {
                return Err(Refusal::bad_request("the merge patch is not an object"));
            }
            merge(&mut patched, patch);
        }
        "application/json-patch+json" => {
            let steps = read()?;
            let steps = steps
                .as_array()
                .ok_or_else(|| Refusal::bad_request("error decoding patch: not an array"))?;
            let done = json_patch(&mut patched, steps);
            done.map_err(|NotApplicable| Refusal::patch_does_not_apply())?;
        }
        "application/strategic-merge-patch+json" if resource.traits().is_built_in => {
            let patch = read()?;
            let Value::Object(patch) = patch else {
                return Err(Refusal::bad_request(
                    "the strategic merge patch is not an object",
                ));
            };
            strategic_merge(&mut patched, patch);
        }
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            return Err(Refusal::unsupported_patch(format!(
                "server-side apply ({media_type}) is not part of this test server, which keeps no \
                 managed fields: use a merge patch, a JSON patch or an update"
            )));
        }
        _ => {
            let strategic = if resource.traits().is_built_in {
                ", application/strategic-merge-patch+json"
            } else {
                ""
            };
            return Err(Refusal::unsupported_patch(format!(
                "the body of the request was in an unknown format - accepted media types \
                 include: application/json-patch+json, application/merge-patch+json{strategic}"
            )));
        }
    }
    Ok(patched)
}

/// RFC 7386.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902. Of a patch that fails, the target is left as it is half way.
fn json_patch(target: &mut Value, steps: &[Value]) -> Result<(), NotApplicable> {
    for step in steps {
        let text = |field: &str| step.get(field).and_then(Value::as_str).ok_or(NotApplicable);
        let value = || step.get("value").cloned().ok_or(NotApplicable);
        let at = text("path")?;
        match text("op")? {
            "add" => add(target, at, value()?)?,
            "remove" => drop(remove(target, at)?),
            "replace" => *target.pointer_mut(at).ok_or(NotApplicable)? = value()?,
            "move" => {
                let moved = remove(target, text("from")?)?;
                add(target, at, moved)?;
            }
            "copy" => {
                let copied = target.pointer(text("from")?).cloned();
                add(target, at, copied.ok_or(NotApplicable)?)?;
            }
            "test" => {
                if *target.pointer(at).unwrap_or(&Value::Null) != value()? {
                    return Err(NotApplicable);
                }
            }
            _ => return Err(NotApplicable),
        }
    }
    Ok(())
}

/// The container of a path, and the last name in it.
fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), NotApplicable> {
    let (parent, last) = path.rsplit_once('/').ok_or(NotApplicable)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let container = target.pointer_mut(parent).ok_or(NotApplicable)?;
    Ok((container, last))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), NotApplicable> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (container, last) = parent(target, path)?;
    match container {
        Value::Object(fields) => drop(fields.insert(last, value)),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at = last.parse::<usize>().ok().filter(|at| *at <= items.len());
            items.insert(at.ok_or(NotApplicable)?, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(NotApplicable);
        }
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, NotApplicable> {
    let (container, last) = parent(target, path)?;
    match container {
        Value::Object(fields) => fields.remove(&last).ok_or(NotApplicable),
        Value::Array(items) => {
            let at = last.parse::<usize>().ok().filter(|at| *at < items.len());
            Ok(items.remove(at.ok_or(NotApplicable)?))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(NotApplicable),
    }
}

/// Names under which the lists of the common kinds merge their items, by the field that holds the
/// list. Where a field is not here, the patch replaces the list.
const MERGE_KEYS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("containerStatuses", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("hostIPs", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    // Of a container, then of a Service.
    ("ports", &["containerPort", "port"]),
    ("resourceClaims", &["name"]),
    ("secrets", &["name"]),
    ("taints", &["key"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Lists of plain values that are merged as sets.
const MERGED_SETS: &[&str] = &["finalizers", "podCIDRs"];

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";
const DIRECTIVE: &str = "$patch";

/// Merges objects as their Go types say, with the directives of `kubectl apply`.
fn strategic_merge(target: &mut Value, mut patch: Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    let directive = patch.remove(DIRECTIVE);
    match directive.as_ref().and_then(Value::as_str) {
        Some("replace") => {
            *fields = patch;
            return;
        }
        Some("delete") => {
            fields.clear();
            return;
        }
        _ => {}
    }
    if let Some(Value::Array(kept)) = patch.remove(RETAIN) {
        fields.retain(|name, _| kept.iter().any(|kept| kept.as_str() == Some(name)));
    }
    let orders: Vec<_> = patch
        .iter()
        .filter_map(|(name, order)| {
            let field = name.strip_prefix(ORDER)?;
            Some((field.to_owned(), order.as_array()?.clone()))
        })
        .collect();
    for (name, value) in patch {
        if name.starts_with(ORDER) {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = fields.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        match value {
            Value::Null => drop(fields.remove(&name)),
            Value::Object(patch) => {
                strategic_merge(fields.entry(name).or_insert(Value::Null), patch);
            }
            Value::Array(items) => {
                let target = fields.entry(name.clone()).or_insert(Value::Null);
                merge_list(&name, target, items);
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                fields.insert(name, value);
            }
        }
    }
    for (field, order) in orders {
        if let Some(items) = fields.get_mut(&field).and_then(Value::as_array_mut) {
            set_order(&field, items, &order);
        }
    }
}

/// The key by which items of that list are the same.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == field)?;
    let mut keys = keys.iter();
    keys.find(|key| items.iter().all(|item| item.get(**key).is_some()))
        .copied()
}

fn merge_list(field: &str, target: &mut Value, mut patch: Vec<Value>) {
    let replaces = |item: &Value| {
        let fields = item.as_object();
        fields.is_some_and(|fields| {
            fields.len() == 1 && fields.get(DIRECTIVE).and_then(Value::as_str) == Some("replace")
        })
    };
    if patch.iter().any(replaces) {
        patch.retain(|item| !replaces(item));
        *target = Value::Array(patch);
        return;
    }
    let present = target
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default();
    let is_set = MERGED_SETS.contains(&field);
    let Some(key) = merge_key(field, &patch) else {
        let mut merged = if is_set { present } else { Vec::new() };
        for item in patch {
            if !is_set || !merged.contains(&item) {
                merged.push(item);
            }
        }
        *target = Value::Array(merged);
        return;
    };
    let mut merged = present;
    for item in patch {
        let Value::Object(item) = item else {
            continue;
        };
        let is_same = |known: &Value| known.get(key) == item.get(key);
        let place = merged.iter().position(is_same);
        if item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") {
            if let Some(place) = place {
                merged.remove(place);
            }
            continue;
        }
        if let Some(known) = place.and_then(|place| merged.get_mut(place)) {
            strategic_merge(known, item);
        } else {
            let mut made = Value::Null;
            strategic_merge(&mut made, item);
            merged.push(made);
        }
    }
    *target = Value::Array(merged);
}

/// Orders items as the patch lists them; those that it does not list come after.
fn set_order(field: &str, items: &mut [Value], order: &[Value]) {
    let key = merge_key(field, order);
    let place = |item: &Value| {
        let is_same = |listed: &Value| match key {
            Some(key) => listed.get(key) == item.get(key),
            None => listed == item,
        };
        order.iter().position(is_same).unwrap_or(order.len())
    };
    items.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::api::resources::Registry;

    fn patched(kind: &str, object: &Value, patch: &Value) -> Result<Value, u16> {
        let registry = Registry::built_in();
        let pods = registry.find("", "v1", "pods").unwrap();
        let text = patch.to_string();
        let content_type = format!("application/{kind}");
        apply(pods, &content_type, object, text.as_bytes()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_merge_patch_sets_and_removes_fields() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        let patch = json!({"a": {"b": null, "d": {"e": null, "f": 3}}, "l": [3]});
        let expected = json!({"a": {"c": 2, "d": {"f": 3}}, "l": [3]});
        assert_eq!(patched("merge-patch+json", &object, &patch), Ok(expected));
        assert_eq!(patched("merge-patch+json", &object, &json!([1])), Err(400));
    }

    #[test]
    fn a_json_patch_applies_whole_or_not_at_all() {
        let object = json!({"a": {"b/c": [1, 2]}});
        let patch = json!([
            {"op": "test", "path": "/a/b~1c/0", "value": 1},
            {"op": "add", "path": "/a/b~1c/1", "value": 9},
            {"op": "add", "path": "/a/b~1c/-", "value": 8},
            {"op": "copy", "from": "/a/b~1c/0", "path": "/d"},
            {"op": "move", "from": "/d", "path": "/e"},
            {"op": "replace", "path": "/e", "value": 7},
            {"op": "remove", "path": "/a/b~1c/0"},
        ]);
        let expected = json!({"a": {"b/c": [9, 2, 8]}, "e": 7});
        assert_eq!(patched("json-patch+json", &object, &patch), Ok(expected));
        let rows = [
            (json!([{"op": "test", "path": "/a", "value": 1}]), 422),
            (json!([{"op": "remove", "path": "/x"}]), 422),
            (json!([{"op": "add", "path": "/x/y", "value": 1}]), 422),
            (json!([{"op": "jump", "path": "/x"}]), 422),
            (json!({}), 400),
        ];
        for (patch, code) in rows {
            assert_eq!(
                patched("json-patch+json", &object, &patch),
                Err(code),
                "{patch}"
            );
        }
    }

    #[test]
    fn a_strategic_patch_merges_lists_by_their_keys() {
        let object = json!({"metadata": {"finalizers": ["a"]}, "spec": {
            "containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}],
            "tolerations": [{"key": "x"}],
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        }});
        let patch = json!({"metadata": {"finalizers": ["b", "a"]}, "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [
                {"name": "a", "image": "a:2"},
                {"name": "b", "$patch": "delete"},
                {"name": "c", "image": "c:1"},
            ],
            "tolerations": [{"key": "y"}],
            "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}],
        }});
        let expected = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {
            "containers": [{"name": "c", "image": "c:1"}, {"name": "a", "image": "a:2"}],
            "tolerations": [{"key": "y"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }});
        assert_eq!(
            patched("strategic-merge-patch+json", &object, &patch),
            Ok(expected)
        );
    }

    #[test]
    fn server_side_apply_is_refused_by_name() {
        let registry = Registry::built_in();
        let pods = registry.find("", "v1", "pods").unwrap();
        let refused = apply(pods, "application/apply-patch+yaml", &json!({}), b"{}");
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, 415);
        assert!(
            refused.message().contains("server-side apply"),
            "{}",
            refused.message()
        );
        assert_eq!(patched("json", &json!({}), &json!({})), Err(415));
    }
}
