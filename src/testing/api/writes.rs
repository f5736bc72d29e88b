//! Creates, updates and deletes: the server's changes to a written object, and the outcome of a
//! delete.

use std::time::Duration;

use serde_json::{Value, json};

use super::defaults;
use super::definitions::{await_objects, definition_of, end_definition};
use super::garbage;
use super::refusal::Refusal;
use super::resources::{self, ApiResource, CRD_GROUP, CRDS};
use super::routes::{ObjectRoute, storage_key_of};
use super::storage::{
    Storage, StorageState, StoredVersion, is_marked, metadata_mut, metadata_text, set_metadata,
    set_type,
};
use super::validation::{check_name, check_update, finalizers};
use super::write_options::{DeleteRequest, Propagation};
use crate::sync::Arc;

/// The writer of an object, and its mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectWriter<'a> {
    pub(super) storage: &'a Storage,
    /// The server stores nothing, but answers as if it did.
    pub(super) is_dry_run: bool,
    /// The test itself writes: a status counts, a missing namespace is created, and deletes are
    /// immediate.
    pub(super) is_test: bool,
}

/// The outcome of a write.
#[derive(Debug)]
pub(super) struct WrittenObject {
    pub(super) object: Arc<StoredVersion>,
    pub(super) is_created: bool,
}

/// The outcome of a delete.
#[derive(Debug)]
pub(super) struct DeletedObject {
    pub(super) object: Arc<StoredVersion>,
    /// It waits for finalizers, or for the end of its grace period.
    pub(super) is_pending: bool,
}

impl ObjectWriter<'_> {
    /// Creates an object in a namespace.
    pub(super) fn create(
        self,
        state: &mut StorageState,
        resource: &Arc<ApiResource>,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<StoredVersion>, Refusal> {
        place(resource, namespace, &mut object)?;
        defaults::drop_server_fields(&mut object);
        let number = state.next_object();
        let prefix = metadata_text(&object, "generateName").to_owned();
        if metadata_text(&object, "name").is_empty() && !prefix.is_empty() {
            let name = defaults::generated_name(&prefix, number);
            set_metadata(&mut object, "name", Value::from(name));
        }
        let name = metadata_text(&object, "name").to_owned();
        if !namespace.is_empty() {
            self.check_namespace(state, resource, &name, namespace)?;
        }
        // A version that is not a number counts as none, except in an update.
        if written_version(&object).is_ok_and(|version| version != 0) && !self.is_test {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::internal(message));
        }
        check_name(resource, &object)?;
        if definition_of(state, resource).is_some_and(|(_, found)| is_marked(&found.value)) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Refusal::forbidden(resource, &name, why));
        }
        let (kind, key) = (resource.storage_key(), storage_key_of(namespace, &name));
        if let Some(old) = state.get(&kind, &key) {
            let is_going = recorded_grace(&old.value).is_some();
            return Err(Refusal::already_exists(resource, &name, is_going));
        }
        self.set_managed_fields(&mut object, None);
        if resource.traits().has_status && !self.is_test {
            remove_field(&mut object, "status");
        }
        if let Some(metadata) = metadata_mut(&mut object) {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
                metadata.remove(field);
            }
            metadata.insert("uid".to_owned(), Value::from(defaults::uid(number)));
            let created = self.storage.timestamp(Duration::ZERO);
            metadata.insert("creationTimestamp".to_owned(), Value::from(created));
            if resource.traits().has_generation {
                metadata.insert("generation".to_owned(), Value::from(1));
            }
        }
        defaults::fill_in(resource, &mut object);
        Ok(self.store(state, resource, &key, object))
    }

    /// Refuses a create in a namespace that is missing, or being deleted.
    fn check_namespace(
        self,
        state: &mut StorageState,
        resource: &ApiResource,
        name: &str,
        namespace: &str,
    ) -> Result<(), Refusal> {
        let Some(namespaces) = state.registry.find("", "v1", "namespaces").cloned() else {
            return Ok(());
        };
        match state.get(&namespaces.storage_key(), namespace) {
            Some(found) if metadata_text(&found.value, "deletionTimestamp").is_empty() => Ok(()),
            Some(_) => Err(Refusal::terminating(resource, name, namespace)),
            None if self.is_test => {
                let object = json!({"metadata": {"name": namespace}});
                self.create(state, &namespaces, "", object).map(drop)
            }
            None => Err(Refusal::not_found(&namespaces, namespace)),
        }
    }

    /// Replaces an object, or its status, with the client's.
    pub(super) fn update(
        self,
        state: &mut StorageState,
        route: &ObjectRoute,
        mut object: Value,
    ) -> Result<WrittenObject, Refusal> {
        let resource = &route.resource;
        let namespace = route.namespace.as_deref().unwrap_or_default();
        let name = metadata_text(&object, "name");
        if name != route.name {
            return Err(Refusal::bad_request(if name.is_empty() {
                format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be \
                     provided",
                    route.name
                )
            } else {
                let in_path = &route.name;
                format!(
                    "the name of the object ({name}) does not match the name on the URL \
                     ({in_path})"
                )
            }));
        }
        place(resource, namespace, &mut object)?;
        match state.get(&resource.storage_key(), &route.key()) {
            Some(old) => {
                let object = self.replace(state, route, &old, object)?;
                Ok(WrittenObject {
                    object,
                    is_created: false,
                })
            }
            None if resource.traits().creates_on_update && route.subresource.is_empty() => {
                set_metadata(&mut object, "resourceVersion", Value::from(""));
                let object = self.create(state, resource, namespace, object)?;
                Ok(WrittenObject {
                    object,
                    is_created: true,
                })
            }
            None => Err(Refusal::not_found(resource, &route.name)),
        }
    }

    /// Replaces the state `old`, which is the present one.
    pub(super) fn replace(
        self,
        state: &mut StorageState,
        route: &ObjectRoute,
        old: &Arc<StoredVersion>,
        new: Value,
    ) -> Result<Arc<StoredVersion>, Refusal> {
        let resource = &route.resource;
        check_preconditions(route, old, &new)?;
        let mut object = self.merged(route, old, new);
        check_update(resource, &old.value, &object)?;
        let mut unchanged = old.value.clone();
        for value in [&mut unchanged, &mut object] {
            set_type(value, resource);
            set_metadata(
                value,
                "resourceVersion",
                Value::from(old.version.to_string()),
            );
        }
        if unchanged == object {
            return Ok(Arc::clone(old));
        }
        let counts = resource.traits().has_generation
            && counted(route, &old.value) != counted(route, &object);
        if counts {
            let old = old
                .value
                .pointer("/metadata/generation")
                .and_then(Value::as_i64);
            let generation = old.unwrap_or_default().saturating_add(1);
            set_metadata(&mut object, "generation", Value::from(generation));
        }
        Ok(self.settle(state, resource, old, object))
    }

    /// Stores an object's new state, or removes the object if nothing holds it back any more. The
    /// last state that watches are told is then the one before, as it was stored.
    fn settle(
        self,
        state: &mut StorageState,
        resource: &Arc<ApiResource>,
        old: &StoredVersion,
        object: Value,
    ) -> Arc<StoredVersion> {
        let is_over = is_due_to_go(&object) && !self.is_dry_run;
        if !is_over || resource.is("", "namespaces") && has_objects(state, &old.key) {
            return self.store(state, resource, &old.key, object);
        }
        remove(state, resource, &old.key, None);
        Arc::new(StoredVersion::new(old.key.clone(), old.version, object))
    }

    /// The new object, with the fields that a client cannot write from the old one.
    fn merged(self, route: &ObjectRoute, old: &StoredVersion, new: Value) -> Value {
        let has_status = route.resource.traits().has_status;
        let mut object = if route.subresource == "status" {
            let mut object = old.value.clone();
            set_field(&mut object, "status", new.get("status").cloned());
            if route.resource.traits().is_built_in {
                copy_metadata(&new, &mut object, &["labels", "annotations", "finalizers"]);
            }
            object
        } else {
            let mut object = new;
            if has_status && !self.is_test {
                set_field(&mut object, "status", old.value.get("status").cloned());
            }
            defaults::fill_in(&route.resource, &mut object);
            object
        };
        defaults::drop_server_fields(&mut object);
        copy_metadata(&old.value, &mut object, SERVERS_OWN);
        self.set_managed_fields(&mut object, Some(old));
        object
    }

    /// Only the test sets managed fields. Writes of clients leave them as they are.
    fn set_managed_fields(self, object: &mut Value, old: Option<&StoredVersion>) {
        if !self.is_test {
            let old = old.map_or(&Value::Null, |old| &old.value);
            copy_metadata(old, object, &["managedFields"]);
        }
    }

    /// Marks an object as deleted if a recorded state of it is.
    pub(super) fn mark_as(self, state: &mut StorageState, route: &ObjectRoute, recorded: &Value) {
        let resource = &route.resource;
        let Some(old) = state.get(&resource.storage_key(), &route.key()) else {
            return;
        };
        let mut object = old.value.clone();
        let fields = ["deletionTimestamp", "deletionGracePeriodSeconds"];
        copy_metadata(recorded, &mut object, &fields);
        if is_marked(recorded) && object != old.value {
            self.store(state, resource, &old.key, object);
        }
    }

    fn store(
        self,
        state: &mut StorageState,
        resource: &Arc<ApiResource>,
        key: &str,
        mut object: Value,
    ) -> Arc<StoredVersion> {
        set_type(&mut object, resource);
        if self.is_dry_run {
            let stored = state.get(&resource.storage_key(), key);
            let version = stored.map_or(0, |stored| stored.version);
            return Arc::new(StoredVersion::new(key.to_owned(), version, object));
        }
        state.put(&resource.storage_key(), key, object)
    }

    /// Deletes one object, as far as its finalizers and its grace period allow.
    pub(super) fn delete(
        self,
        state: &mut StorageState,
        route: &ObjectRoute,
        request: &DeleteRequest,
    ) -> Result<DeletedObject, Refusal> {
        let (resource, kind) = (&route.resource, route.resource.storage_key());
        let old = state.get(&kind, &route.key());
        let old = old.ok_or_else(|| Refusal::not_found(resource, &route.name))?;
        check_delete(resource, &old, request)?;
        let is_namespace = resource.is("", "namespaces") && !self.is_dry_run;
        let is_definition = resource.is(CRD_GROUP, CRDS);
        let Some(grace) = self.grace(resource, &old.value, request.grace) else {
            return Ok(DeletedObject {
                object: old,
                is_pending: true,
            });
        };
        let mut object = self.marked(resource, &old.value, grace);
        if is_definition {
            await_objects(&mut object);
        } else {
            garbage::mark(resource, &mut object, self.propagation(request));
        }
        if finalizers(&object).is_empty() && grace == 0 && !is_namespace {
            // A graceful delete first marks the object as deleted, which watches see as a change.
            let is_graceful = resource.is("", "pods");
            if is_graceful && !self.is_test {
                self.store(state, resource, &old.key, object.clone());
            }
            let last = is_graceful.then_some(object);
            let gone = if self.is_dry_run {
                Some(Arc::clone(&old))
            } else {
                remove(state, resource, &old.key, last)
            };
            return Ok(DeletedObject {
                object: gone.unwrap_or(old),
                is_pending: false,
            });
        }
        // A delete that changes nothing makes no version.
        let object = if object == old.value {
            old
        } else {
            self.store(state, resource, &old.key, object)
        };
        if let Some(unmarked) = garbage::unmarked(&object.value)
            && !self.is_dry_run
        {
            self.settle(state, resource, &object, unmarked);
        }
        if is_namespace {
            self.empty_namespace(state, &object.key);
        }
        if is_definition && !self.is_dry_run {
            self.empty_definition(state, &object);
        }
        Ok(DeletedObject {
            object,
            is_pending: true,
        })
    }

    /// What the delete says about dependents. A test's own is immediate.
    fn propagation(self, request: &DeleteRequest) -> Option<Propagation> {
        if self.is_test {
            return Some(Propagation::Background);
        }
        request.propagation
    }

    /// The object, marked as deleted, to go after `grace` seconds.
    fn marked(self, resource: &ApiResource, object: &Value, grace: i64) -> Value {
        let mut object = object.clone();
        let is_namespace = resource.is("", "namespaces");
        let is_definition = resource.is(CRD_GROUP, CRDS);
        let marked = metadata_text(&object, "deletionTimestamp").to_owned();
        let first = recorded_grace(&object).unwrap_or_default();
        if !marked.is_empty() && grace == first {
            return object;
        }
        // A shorter grace period counts from the first delete.
        let moved = grace.saturating_sub(first);
        let (at, is_past) = self.storage.timestamp_from(&marked, moved);
        set_metadata(&mut object, "deletionTimestamp", Value::from(at));
        if !is_namespace && !is_definition {
            // A pod whose time is over still waits for its kubelet.
            let grace = if is_past { grace.min(1) } else { grace };
            let field = "deletionGracePeriodSeconds";
            set_metadata(&mut object, field, Value::from(grace));
        }
        if !marked.is_empty() {
            return object;
        }
        if !is_definition && let Some(generation) = object.pointer_mut("/metadata/generation") {
            let count = generation.as_i64().unwrap_or_default();
            *generation = Value::from(count.saturating_add(1));
        }
        if is_namespace && let Some(phase) = object.pointer_mut("/status/phase") {
            *phase = Value::from("Terminating");
        }
        object
    }

    /// The seconds until the object goes: pods on a node have a grace period, which their kubelet
    /// may shorten. `None` if that time runs already, and this delete makes it no shorter.
    fn grace(self, resource: &ApiResource, object: &Value, asked: Option<i64>) -> Option<i64> {
        let text = |path: &str| {
            let found = object.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default()
        };
        // The server takes a negative value for one second.
        let asked = asked.map(|asked| if asked < 0 { 1 } else { asked });
        let recorded = recorded_grace(object);
        if !resource.is("", "pods") || self.is_test {
            return Some(0);
        }
        match recorded {
            Some(0) => Some(0),
            Some(recorded) => asked.filter(|asked| *asked < recorded),
            None => {
                let has_ended = matches!(text("/status/phase"), "Succeeded" | "Failed");
                if has_ended || text("/spec/nodeName").is_empty() {
                    return Some(0);
                }
                let own = object.pointer("/spec/terminationGracePeriodSeconds");
                asked.or_else(|| Some(own.and_then(Value::as_i64).unwrap_or(30)))
            }
        }
    }

    /// Acts as the namespace controller: deletes the objects in a namespace, and the namespace once
    /// it is empty.
    fn empty_namespace(self, state: &mut StorageState, namespace: &str) {
        let prefix = format!("{namespace}/");
        let inside: Vec<_> = state
            .collections()
            .flat_map(|(kind, collection)| {
                let keys = collection.objects.keys();
                let keys = keys.filter(|key| key.starts_with(&prefix));
                keys.map(|key| (kind.clone(), key.clone()))
            })
            .collect();
        let by_test = Self {
            is_test: true,
            ..self
        };
        for (kind, key) in inside {
            let resource = state.registry.stored_as(&kind).cloned();
            let (Some(resource), Some((namespace, name))) = (resource, key.split_once('/')) else {
                continue;
            };
            let route = ObjectRoute::to_object(&resource, namespace, name);
            if let Err(refusal) = by_test.delete(state, &route, &DeleteRequest::default()) {
                log::debug!("API server: {kind:?} {key}: {}", refusal.message());
            }
        }
        end_namespace(state, namespace);
    }

    /// Acts as the server's own controller: deletes the objects of a definition, and the definition
    /// once there are none.
    fn empty_definition(self, state: &mut StorageState, definition: &StoredVersion) {
        let Some(kind) = resources::stored_by_definition(&definition.value) else {
            return;
        };
        let kind = Arc::new(kind);
        let objects = state.collection(&kind.storage_key()).objects.values();
        let objects: Vec<_> = objects.cloned().collect();
        for object in objects {
            let route = ObjectRoute::to_object(&kind, object.namespace(), object.name());
            if let Err(refusal) = self.delete(state, &route, &DeleteRequest::default()) {
                log::debug!("API server: {kind} {}: {}", object.key, refusal.message());
            }
        }
        end_definition(state, &kind);
    }
}

/// Removes a namespace that is being deleted, if it is empty.
fn end_namespace(state: &mut StorageState, namespace: &str) {
    let Some(namespaces) = state.registry.find("", "v1", "namespaces").cloned() else {
        return;
    };
    let kind = namespaces.storage_key();
    let Some(found) = state.get(&kind, namespace) else {
        return;
    };
    let is_held = has_objects(state, namespace) || !finalizers(&found.value).is_empty();
    if is_marked(&found.value) && !is_held {
        state.remove(&kind, namespace, None);
    }
}

/// Whether there are objects in a namespace.
fn has_objects(state: &StorageState, namespace: &str) -> bool {
    let prefix = format!("{namespace}/");
    let mut keys = state
        .collections()
        .flat_map(|(_, collection)| collection.objects.keys());
    keys.any(|key| key.starts_with(&prefix))
}

/// Removes an object, and the objects that go with it.
fn remove(
    state: &mut StorageState,
    resource: &ApiResource,
    key: &str,
    last: Option<Value>,
) -> Option<Arc<StoredVersion>> {
    let gone = state.remove(&resource.storage_key(), key, last)?;
    end_definition(state, resource);
    if !gone.namespace().is_empty() {
        end_namespace(state, gone.namespace());
    }
    Some(gone)
}

/// Sets an object's namespace and name from its path.
fn place(resource: &ApiResource, namespace: &str, object: &mut Value) -> Result<(), Refusal> {
    let Some(metadata) = metadata_mut(object) else {
        return Err(Refusal::bad_request(
            "the body of the request is not an object",
        ));
    };
    if !resource.is_namespaced() {
        metadata.remove("namespace");
        return Ok(());
    }
    let own = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !own.is_empty() && own != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on \
            the request";
        return Err(Refusal::bad_request(message));
    }
    metadata.insert("namespace".to_owned(), Value::from(namespace));
    Ok(())
}

/// Refuses an update of another object, or of another version of it.
fn check_preconditions(
    route: &ObjectRoute,
    old: &StoredVersion,
    new: &Value,
) -> Result<(), Refusal> {
    let resource = &route.resource;
    let uid = metadata_text(new, "uid");
    let own = metadata_text(&old.value, "uid");
    if !uid.is_empty() && uid != own {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(Refusal::conflict(resource, &route.name, &why));
    }
    match written_version(new)? {
        0 if resource.traits().needs_version => {
            Err(Refusal::without_version(resource, &route.name))
        }
        version if version == 0 || version == old.version => Ok(()),
        _ => Err(Refusal::modified_meanwhile(resource, &route.name)),
    }
}

/// The version that a written object names. The server reads none as 0.
fn written_version(object: &Value) -> Result<u64, Refusal> {
    match metadata_text(object, "resourceVersion") {
        "" => Ok(0),
        text => text.parse().map_err(|_not_a_number| {
            Refusal::internal(format!(
                "strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

fn check_delete(
    resource: &ApiResource,
    old: &StoredVersion,
    request: &DeleteRequest,
) -> Result<(), Refusal> {
    let own = metadata_text(&old.value, "uid");
    if let Some(uid) = request.uid.as_deref().filter(|uid| *uid != own) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({own}). The \
             object might have been deleted and then recreated"
        );
        return Err(Refusal::unmet_precondition(resource, old.name(), &why));
    }
    let own = old.version.to_string();
    if let Some(version) = request.version.as_ref().filter(|version| **version != own) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the \
             ResourceVersion in record ({own}). The object might have been modified"
        );
        return Err(Refusal::unmet_precondition(resource, old.name(), &why));
    }
    Ok(())
}

/// The grace period of a deleted object; `None` if it is not deleted.
fn recorded_grace(object: &Value) -> Option<i64> {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    is_marked(object).then(|| grace.and_then(Value::as_i64).unwrap_or_default())
}

/// What a generation counts of an object: its fields, without a status that is written apart, and
/// of some kinds a part of the metadata.
fn counted<'a>(
    route: &ObjectRoute,
    object: &'a Value,
) -> (Vec<(&'a String, &'a Value)>, Option<&'a Value>) {
    let resource = &route.resource;
    let is_counted = |name: &str| match name {
        "metadata" | "kind" | "apiVersion" => false,
        "status" => !resource.traits().has_status,
        _ => true,
    };
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| is_counted(name)).collect();
    let metadata = match (resource.group(), resource.plural(), &*route.subresource) {
        // Its ReplicaSets take them over.
        ("apps", "deployments", "") => object.pointer("/metadata/annotations"),
        // They name its Service.
        ("discovery.k8s.io", "endpointslices", _) => object.pointer("/metadata/labels"),
        _ => None,
    };
    (fields, metadata)
}

/// Whether a deleted object has nothing left to wait for.
fn is_due_to_go(object: &Value) -> bool {
    finalizers(object).is_empty() && recorded_grace(object) == Some(0)
}

/// Metadata that an update leaves as it is.
const SERVERS_OWN: &[&str] = &[
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];

fn copy_metadata(from: &Value, to: &mut Value, fields: &[&str]) {
    let Some(metadata) = metadata_mut(to) else {
        return;
    };
    for field in fields {
        match from.pointer(&format!("/metadata/{field}")) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
}

fn remove_field(object: &mut Value, name: &str) {
    set_field(object, name, None);
}

fn set_field(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Some(value) => fields.insert(name.to_owned(), value),
            None => fields.remove(name),
        };
    }
}
