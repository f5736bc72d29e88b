//! The end of a definition: it waits for its objects, which go as clients would delete them.

use serde_json::{Value, json};

use super::resources::{ApiResource, CRD_GROUP, CRDS};
use super::storage::{StorageState, StoredVersion, is_marked, set_metadata};
use super::validation::finalizers;
use crate::sync::Arc;

/// What holds a definition back until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Has a deleted definition wait for the end of its objects.
pub(super) fn await_objects(definition: &mut Value) {
    if !finalizers(definition).contains(&CLEANUP) {
        let mut all: Vec<_> = finalizers(definition)
            .into_iter()
            .map(Value::from)
            .collect();
        all.push(Value::from(CLEANUP));
        set_metadata(definition, "finalizers", Value::Array(all));
    }
    let conditions = definition.pointer_mut("/status/conditions");
    if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
        conditions.retain(|one| one.get("type") != Some(&Value::from("Terminating")));
        conditions.push(json!({
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion \
                will begin soon",
        }));
    }
}

/// The definition that made a kind, with the kind of definitions.
pub(super) fn definition_of(
    state: &StorageState,
    resource: &ApiResource,
) -> Option<(Arc<ApiResource>, Arc<StoredVersion>)> {
    if resource.traits().is_built_in {
        return None;
    }
    let definitions = state.registry.find(CRD_GROUP, "v1", CRDS)?;
    let name = format!("{}.{}", resource.plural(), resource.group());
    let found = state.get(&definitions.storage_key(), &name)?;
    Some((Arc::clone(definitions), found))
}

/// Lets go of a deleted definition whose last object is gone.
pub(super) fn end_definition(state: &mut StorageState, resource: &ApiResource) {
    let Some((definitions, found)) = definition_of(state, resource) else {
        return;
    };
    let is_empty = state.collection(&resource.storage_key()).objects.is_empty();
    if !is_empty || !is_marked(&found.value) {
        return;
    }
    let rest = finalizers(&found.value).into_iter();
    let rest: Vec<_> = rest
        .filter(|one| *one != CLEANUP)
        .map(Value::from)
        .collect();
    let kind = definitions.storage_key();
    if rest.is_empty() {
        state.remove(&kind, &found.key, None);
        return;
    }
    let mut object = found.value.clone();
    set_metadata(&mut object, "finalizers", Value::Array(rest));
    state.put(&kind, &found.key, object);
}
