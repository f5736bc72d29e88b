//! Patches: merge patches (RFC 7386), JSON patches (RFC 6902), and strategic merge patches with the
//! keys by which the common kinds merge their lists.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::resources::{ApiResource, CRDS};

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

/// A type of patch that the server applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Merge,
    Json,
    Strategic,
}

impl PatchType {
    /// The type that the header of a request names.
    pub(super) fn of(resource: &ApiResource, content_type: &str) -> Result<Self, Refusal> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        let is_built_in = resource.traits().is_built_in;
        match media_type {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" if is_built_in => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(Refusal::unsupported_patch(format!(
                    "server-side apply ({media_type}) is not part of this test server, which \
                     keeps no managed fields: use a merge patch, a JSON patch or an update"
                )))
            }
            _ => {
                let strategic = if is_built_in {
                    ", application/strategic-merge-patch+json"
                } else {
                    ""
                };
                Err(Refusal::unsupported_patch(format!(
                    "the body of the request was in an unknown format - accepted media types \
                     include: application/json-patch+json, application/merge-patch+json{strategic}"
                )))
            }
        }
    }
}

/// Applies a patch of that type.
pub(super) fn apply(
    resource: &ApiResource,
    kind: PatchType,
    object: &Value,
    patch: &[u8],
) -> Result<Value, Refusal> {
    let patch = serde_json::from_slice::<Value>(patch)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = object.clone();
    match (kind, patch) {
        (PatchType::Merge, patch @ Value::Object(_)) => merge(&mut patched, patch),
        (PatchType::Merge, _) => {
            return Err(Refusal::bad_request("the merge patch is not an object"));
        }
        (PatchType::Json, Value::Array(steps)) => {
            if steps.len() > OPERATIONS_MAX {
                return Err(Refusal::too_large(format!(
                    "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                    steps.len()
                )));
            }
            let done = json_patch(&mut patched, &steps);
            done.map_err(|NotApplicable| Refusal::patch_does_not_apply())?;
        }
        (PatchType::Json, _) => {
            return Err(Refusal::bad_request("error decoding patch: not an array"));
        }
        (PatchType::Strategic, Value::Object(patch)) => {
            let types = StrategicMerge {
                plural: resource.plural(),
            };
            types.object("", &mut patched, patch)?;
        }
        (PatchType::Strategic, _) => {
            let message = "the strategic merge patch is not an object";
            return Err(Refusal::bad_request(message));
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

/// How a patch changes a field that the object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merging {
    /// A list whose items have that key.
    ByKey(&'static str),
    /// A list of plain values.
    AsSet,
    Replaced,
}

use Merging::{AsSet, ByKey, Replaced};

/// One row: the plural of the only kind (empty: any), the fields that have it (between spaces), the
/// field, and its merging. The first row counts.
type MergeRow = (&'static str, &'static str, &'static str, Merging);

const CONTAINERS: &str = "containers initContainers ephemeralContainers";
const CLAIMS: &str = "nodeAllocatableResourceClaimStatuses";

/// What the Go types of the kinds say. A patch replaces any other list, and merges other objects.
const MERGING: &[MergeRow] = &[
    (CRDS, "status", "conditions", Replaced),
    ("poddisruptionbudgets", "spec", "selector", Replaced),
    ("serviceaccounts", "", "secrets", ByKey("name")),
    ("services", "spec", "ports", ByKey("port")),
    ("", "metadata", "finalizers", AsSet),
    ("", "metadata", "ownerReferences", ByKey("uid")),
    ("", "spec", "containers", ByKey("name")),
    ("", "spec", "ephemeralContainers", ByKey("name")),
    ("", "spec", "evictionResponders", ByKey("name")),
    ("", "spec", "hostAliases", ByKey("ip")),
    ("", "spec", "imagePullSecrets", ByKey("name")),
    ("", "spec", "initContainers", ByKey("name")),
    ("", "spec", "podCIDRs", AsSet),
    ("", "spec", "resourceClaims", ByKey("name")),
    ("", "spec", "schedulingGates", ByKey("name")),
    (
        "",
        "spec",
        "topologySpreadConstraints",
        ByKey("topologyKey"),
    ),
    ("", "spec", "volumes", ByKey("name")),
    ("", CONTAINERS, "env", ByKey("name")),
    ("", CONTAINERS, "ports", ByKey("containerPort")),
    ("", CONTAINERS, "volumeDevices", ByKey("devicePath")),
    ("", CONTAINERS, "volumeMounts", ByKey("mountPath")),
    ("", "status", "addresses", ByKey("type")),
    ("", "status", "conditions", ByKey("type")),
    ("", "status", "hostIPs", ByKey("ip")),
    ("", "status", CLAIMS, ByKey("resourceClaimName")),
    ("", "status", "podIPs", ByKey("ip")),
    ("", "status", "resourceClaimStatuses", ByKey("name")),
    ("", CLAIMS, "mapping", ByKey("name")),
    ("", CLAIMS, "overhead", ByKey("name")),
];

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";
const DIRECTIVE: &str = "$patch";

/// Merges objects like their Go types, with the directives of `kubectl apply`.
#[derive(Clone, Copy)]
struct StrategicMerge<'a> {
    plural: &'a str,
}

impl StrategicMerge<'_> {
    fn merging(self, parent: &str, field: &str) -> Option<Merging> {
        let row = MERGING.iter().find(|(plural, parents, name, _)| {
            *name == field
                && parents.split(' ').any(|one| one == parent)
                && (plural.is_empty() || *plural == self.plural)
        });
        row.map(|(_, _, _, merging)| *merging)
    }

    /// Merges into an object, which is that field of the one above.
    fn object(
        self,
        own: &str,
        target: &mut Value,
        mut patch: Map<String, Value>,
    ) -> Result<(), Refusal> {
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let Some(fields) = target.as_object_mut() else {
            return Ok(());
        };
        match directive(&patch)? {
            Some(Directive::Replace) => {
                patch.remove(DIRECTIVE);
                *fields = patch;
                return Ok(());
            }
            Some(Directive::Delete) => {
                fields.clear();
                return Ok(());
            }
            None => {}
        }
        retain_keys(fields, &mut patch)?;
        let mut orders = Vec::new();
        for (name, order) in &patch {
            if let (Some(field), Some(order)) = (name.strip_prefix(ORDER), order.as_array()) {
                let key = self.key(own, field);
                let server = fields.get(field).and_then(Value::as_array);
                let server = places(server.map_or(&[], Vec::as_slice), key);
                let names = order.iter().map(|item| key_of(item, key));
                let names = names.collect::<Result<Vec<_>, _>>()?;
                orders.push((field.to_owned(), key, by_place(names), server));
            }
        }
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
            self.field(own, fields, name, value)?;
        }
        for (field, key, order, server) in orders {
            if let Some(items) = fields.get_mut(&field).and_then(Value::as_array_mut) {
                *items = ordered(std::mem::take(items), &order, &server, key);
            }
        }
        Ok(())
    }

    /// Merges one field of the patch into the fields of the object.
    fn field(
        self,
        own: &str,
        fields: &mut Map<String, Value>,
        name: String,
        value: Value,
    ) -> Result<(), Refusal> {
        let merging = self.merging(own, &name);
        match value {
            Value::Null => drop(fields.remove(&name)),
            Value::Object(patch) => {
                let field = fields.entry(name.clone()).or_insert(Value::Null);
                if merging == Some(Replaced) {
                    *field = Value::Null;
                }
                self.object(&name, field, patch)?;
            }
            Value::Array(items) => {
                let field = fields.entry(name.clone()).or_insert(Value::Null);
                let present = field.as_array_mut().map(std::mem::take);
                let present = present.unwrap_or_default();
                *field = Value::Array(match merging {
                    Some(ByKey(key)) if !present.is_empty() => {
                        self.by_key(&name, present, items, key)?
                    }
                    Some(AsSet) => as_set(present, items),
                    _ => self.added(&name, items)?,
                });
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                fields.insert(name, value);
            }
        }
        Ok(())
    }

    /// The key by which the items of a list are merged.
    fn key(self, parent: &str, field: &str) -> Option<&'static str> {
        match self.merging(parent, field) {
            Some(ByKey(key)) => Some(key),
            Some(AsSet | Replaced) | None => None,
        }
    }

    /// A list that the object did not have, without directives.
    fn added(self, field: &str, items: Vec<Value>) -> Result<Vec<Value>, Refusal> {
        let mut added = Vec::new();
        for item in items {
            match item {
                Value::Object(item) if item.contains_key(DIRECTIVE) => {}
                Value::Object(item) => {
                    let mut made = Value::Null;
                    self.object(field, &mut made, item)?;
                    added.push(made);
                }
                item @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)) => added.push(item),
            }
        }
        Ok(added)
    }

    fn by_key(
        self,
        field: &str,
        mut present: Vec<Value>,
        patch: Vec<Value>,
        key: &'static str,
    ) -> Result<Vec<Value>, Refusal> {
        let (mut gone, mut items) = (HashSet::new(), Vec::new());
        let mut replaces = false;
        for item in patch {
            let Value::Object(item) = item else {
                let why = format!("list element types are not identical: {item}");
                return Err(Refusal::internal(why));
            };
            match directive(&item)? {
                Some(Directive::Replace) => replaces = true,
                Some(Directive::Delete) => drop(gone.insert(key_of(&item.into(), Some(key))?)),
                None => items.push(item),
            }
        }
        present.retain(|item| !replaces && !gone.contains(&name(item, Some(key))));
        let server = places(&present, Some(key));
        let (mut known, mut names) = (server.clone(), Vec::new());
        for item in items {
            let item = Value::Object(item);
            let name = key_of(&item, Some(key))?;
            names.push(name.clone());
            let place = *known.entry(name).or_insert(present.len());
            if place == present.len() {
                present.push(Value::Null);
            }
            if let (Some(known), Value::Object(item)) = (present.get_mut(place), item) {
                self.object(field, known, item)?;
            }
        }
        Ok(ordered(present, &by_place(names), &server, Some(key)))
    }
}

/// What `$patch` says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Delete,
    Replace,
}

fn directive(patch: &Map<String, Value>) -> Result<Option<Directive>, Refusal> {
    let Some(given) = patch.get(DIRECTIVE) else {
        return Ok(None);
    };
    match given.as_str() {
        Some("delete") => Ok(Some(Directive::Delete)),
        Some("replace") => Ok(Some(Directive::Replace)),
        _ => Err(Refusal::internal(format!("unknown patch type: {given}"))),
    }
}

/// Removes the fields that the patch does not name as those to keep.
fn retain_keys(
    fields: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    let Some(kept) = patch.remove(RETAIN) else {
        return Ok(());
    };
    let kept: HashSet<_> = kept.as_array().into_iter().flatten().collect();
    let is_kept = |name: &String| kept.contains(&Value::from(name.as_str()));
    let is_field = |name: &str| !name.starts_with(DELETE_FROM) && !name.starts_with(ORDER);
    let mut written = patch.iter().filter(|(_, value)| !value.is_null());
    if written.any(|(name, _)| is_field(name) && !is_kept(name)) {
        let message = "invalid patch format of retainKeys";
        return Err(Refusal::bad_request(message));
    }
    fields.retain(|name, _| is_kept(name));
    Ok(())
}

fn as_set(mut all: Vec<Value>, patch: Vec<Value>) -> Vec<Value> {
    let (server, order) = (places(&all, None), places(&patch, None));
    all.extend(patch);
    let mut known = HashSet::new();
    all.retain(|item| known.insert(item.to_string()));
    ordered(all, &order, &server, None)
}

/// The position of each item by its name.
type Places = HashMap<String, usize>;

/// The positions of items, by their key or their whole value; the first of equal ones.
fn places(items: &[Value], key: Option<&str>) -> Places {
    by_place(items.iter().map(|item| name(item, key)).collect())
}

fn by_place(names: Vec<String>) -> Places {
    names
        .into_iter()
        .enumerate()
        .rev()
        .map(|(place, name)| (name, place))
        .collect()
}

fn name(item: &Value, key: Option<&str>) -> String {
    let name = match key {
        Some(key) => item.get(key).unwrap_or(&Value::Null),
        None => item,
    };
    name.to_string()
}

/// The name of an item of the patch, which must have one.
fn key_of(item: &Value, key: Option<&str>) -> Result<String, Refusal> {
    match key {
        Some(key) if item.get(key).is_none() => Err(Refusal::internal(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))),
        _ => Ok(name(item, key)),
    }
}

/// The server's order: items of the patch as it has them, each before all others that were not
/// before it.
fn ordered(items: Vec<Value>, patch: &Places, server: &Places, key: Option<&str>) -> Vec<Value> {
    let place = |places: &Places, item: &Value| places.get(&name(item, key)).copied();
    let (mut ours, mut others): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| place(patch, item).is_some());
    ours.sort_by_cached_key(|item| place(patch, item));
    others.sort_by_cached_key(|item| place(server, item).unwrap_or(usize::MAX));
    let mut others = others.into_iter().peekable();
    let mut all = Vec::new();
    for item in ours {
        let own = place(server, &item);
        let is_before = |other: &Value| place(server, other).is_some_and(|at| Some(at) < own);
        while let Some(other) = others.next_if(is_before) {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(others);
    all
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
        let kind = PatchType::of(pods, &format!("application/{kind}"));
        kind.and_then(|kind| apply(pods, kind, object, text.as_bytes()))
            .map_err(|refusal| refusal.code)
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
        let expected = json!({"metadata": {"finalizers": ["b", "a"]}, "spec": {
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
        let refused = PatchType::of(pods, "application/apply-patch+yaml").unwrap_err();
        assert_eq!(refused.code, 415);
        assert!(
            refused.message().contains("server-side apply"),
            "{}",
            refused.message()
        );
        assert_eq!(patched("json", &json!({}), &json!({})), Err(415));
    }
}
