//! Patches: merge patches (RFC 7386), JSON patches (RFC 6902), and strategic merge patches with the
//! keys by which the common kinds merge their lists.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::resources::ApiResource;

/// The maximum number of operations of a JSON patch, as on a real server.
const OPERATIONS_MAX: usize = 10_000;

/// The maximum number of bytes that a JSON patch may copy, as on a real server.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The maximum depth of nesting from a JSON patch, as in the body of a request.
const DEPTH_MAX: usize = 128;

/// The maximum number of values that a JSON patch may read or move.
const STEPS_MAX: usize = 50_000_000;

/// A JSON patch that does not apply. The server does not tell its clients why.
#[derive(Debug)]
struct NotApplicable;

/// The costs of one JSON patch so far.
#[derive(Debug, Default)]
struct PatchCosts {
    copied: usize,
    steps: usize,
}

impl PatchCosts {
    fn copy(&mut self, value: &Value) -> Result<(), NotApplicable> {
        self.copied = self.copied.saturating_add(value.to_string().len());
        (self.copied <= COPIED_BYTES_MAX)
            .then_some(())
            .ok_or(NotApplicable)
    }

    fn step(&mut self, steps: usize) -> Result<(), NotApplicable> {
        self.steps = self.steps.saturating_add(steps);
        (self.steps <= STEPS_MAX).then_some(()).ok_or(NotApplicable)
    }

    /// Refuses a value that would be nested too deep below `depth` levels.
    fn nest(&mut self, value: &Value, depth: usize) -> Result<(), NotApplicable> {
        self.step(1)?;
        if depth > DEPTH_MAX {
            return Err(NotApplicable);
        }
        let below = depth.saturating_add(1);
        match value {
            Value::Object(fields) => fields.values().try_for_each(|one| self.nest(one, below)),
            Value::Array(items) => items.iter().try_for_each(|one| self.nest(one, below)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }
}

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
            if steps.len() > OPERATIONS_MAX {
                return Err(Refusal::too_large(format!(
                    "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                    steps.len()
                )));
            }
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

/// RFC 6902. A patch that fails leaves the target half changed.
fn json_patch(target: &mut Value, steps: &[Value]) -> Result<(), NotApplicable> {
    let mut costs = PatchCosts::default();
    for step in steps {
        let text = |field: &str| step.get(field).and_then(Value::as_str).ok_or(NotApplicable);
        let value = || step.get("value").ok_or(NotApplicable);
        let at = text("path")?;
        match text("op")? {
            "add" => add(target, at, value()?.clone(), &mut costs)?,
            "remove" => drop(remove(target, at, &mut costs)?),
            "replace" => {
                costs.nest(value()?, levels(at))?;
                *target.pointer_mut(at).ok_or(NotApplicable)? = value()?.clone();
            }
            "move" => {
                let moved = remove(target, text("from")?, &mut costs)?;
                add(target, at, moved, &mut costs)?;
            }
            "copy" => {
                let copied = target.pointer(text("from")?).ok_or(NotApplicable)?;
                costs.copy(copied)?;
                let copied = copied.clone();
                add(target, at, copied, &mut costs)?;
            }
            "test" => {
                if target.pointer(at).unwrap_or(&Value::Null) != value()? {
                    return Err(NotApplicable);
                }
            }
            _ => return Err(NotApplicable),
        }
    }
    Ok(())
}

/// The container that a path leads to, and the last name in it.
fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), NotApplicable> {
    let (parent, last) = path.rsplit_once('/').ok_or(NotApplicable)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let container = target.pointer_mut(parent).ok_or(NotApplicable)?;
    Ok((container, last))
}

/// How many containers a path leads through.
fn levels(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

fn add(
    target: &mut Value,
    path: &str,
    value: Value,
    costs: &mut PatchCosts,
) -> Result<(), NotApplicable> {
    costs.nest(&value, levels(path))?;
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
            let at = at.ok_or(NotApplicable)?;
            costs.step(items.len().saturating_sub(at))?;
            items.insert(at, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(NotApplicable);
        }
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str, costs: &mut PatchCosts) -> Result<Value, NotApplicable> {
    let (container, last) = parent(target, path)?;
    match container {
        Value::Object(fields) => fields.remove(&last).ok_or(NotApplicable),
        Value::Array(items) => {
            let at = last.parse::<usize>().ok().filter(|at| *at < items.len());
            let at = at.ok_or(NotApplicable)?;
            costs.step(items.len().saturating_sub(at))?;
            Ok(items.remove(at))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(NotApplicable),
    }
}

/// The keys by which lists of the common kinds merge their items, by the field of the list. A patch
/// replaces the list of any other field.
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
    // For a container, then for a Service.
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

/// Merges objects like their Go types, with the directives of `kubectl apply`.
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
        let kept: HashSet<_> = kept.iter().filter_map(Value::as_str).collect();
        fields.retain(|name, _| kept.contains(name.as_str()));
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
            let gone = value.as_array().into_iter().flatten();
            let gone: HashSet<_> = gone.map(Value::to_string).collect();
            if let Some(items) = fields.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(&item.to_string()));
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

/// The key that identifies the items of that list.
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
        let mut known: HashSet<_> = merged.iter().map(Value::to_string).collect();
        for item in patch {
            if !is_set || known.insert(item.to_string()) {
                merged.push(item);
            }
        }
        *target = Value::Array(merged);
        return;
    };
    let mut places = places(&present, Some(key));
    let mut merged: Vec<_> = present.into_iter().map(Some).collect();
    for item in patch {
        let name = item.get(key).map(Value::to_string);
        let Value::Object(item) = item else {
            continue;
        };
        if item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") {
            let place = places.remove(&name);
            drop(place.and_then(|place| merged.get_mut(place)?.take()));
            continue;
        }
        let place = *places.entry(name).or_insert(merged.len());
        if place == merged.len() {
            merged.push(Some(Value::Null));
        }
        if let Some(Some(known)) = merged.get_mut(place) {
            strategic_merge(known, item);
        }
    }
    *target = merged.into_iter().flatten().collect();
}

/// The position of each item, by its key or its whole value; the first of equal ones.
fn places(items: &[Value], key: Option<&str>) -> HashMap<Option<String>, usize> {
    let names = items.iter().map(|item| name(item, key));
    names
        .zip(0..)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect()
}

fn name(item: &Value, key: Option<&str>) -> Option<String> {
    match key {
        Some(key) => item.get(key).map(Value::to_string),
        None => Some(item.to_string()),
    }
}

/// Orders items as the patch lists them; those that it does not list come after.
fn set_order(field: &str, items: &mut [Value], order: &[Value]) {
    let key = merge_key(field, order);
    let places = places(order, key);
    let place = |item: &Value| places.get(&name(item, key)).copied();
    items.sort_by_cached_key(|item| place(item).unwrap_or(order.len()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::api::resources::KindRegistry;

    fn patched(kind: &str, object: &Value, patch: &Value) -> Result<Value, u16> {
        let registry = KindRegistry::built_in();
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

    /// As on a real server; the other limits bound what a patch of that size can still do.
    #[test]
    fn what_a_json_patch_does_is_bounded() {
        let object = json!({"a": "x".repeat(1000), "l": [0], "d": {}, "m": "old"});
        let patch = |step: &Value, times: usize| {
            let steps = vec![step.clone(); times];
            patched("json-patch+json", &object, &Value::Array(steps))
        };
        let test = json!({"op": "test", "path": "/m", "value": "old"});
        assert!(patch(&test, OPERATIONS_MAX).is_ok());
        assert_eq!(patch(&test, OPERATIONS_MAX + 1), Err(413));
        // Each doubles the content, or adds a text.
        let root = json!({"op": "copy", "from": "/l", "path": "/l/-"});
        assert_eq!(patch(&root, 30), Err(422));
        let copy = json!({"op": "copy", "from": "/a", "path": "/l/-"});
        assert!(patch(&copy, 3000).is_ok());
        assert_eq!(patch(&copy, 4000), Err(422));
        // Each is one level more, or a hundred.
        let down = [
            json!({"op": "move", "from": "/d", "path": "/m"}),
            json!({"op": "add", "path": "/d", "value": {}}),
            json!({"op": "move", "from": "/m", "path": "/d/d"}),
        ];
        let down =
            |times: usize| Value::Array(down.iter().cycle().take(3 * times).cloned().collect());
        assert!(patched("json-patch+json", &object, &down(100)).is_ok());
        assert_eq!(patched("json-patch+json", &object, &down(200)), Err(422));
        // Each moves all items.
        let items = json!({"l": vec![0; 200_000]});
        let insert = json!({"op": "add", "path": "/l/0", "value": 1});
        let steps = Value::Array(vec![insert; 1000]);
        assert_eq!(patched("json-patch+json", &items, &steps), Err(422));
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
        let registry = KindRegistry::built_in();
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
