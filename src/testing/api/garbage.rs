//! The marks by which a delete has a garbage collector take care of an object's dependents first.
//! The server collects no garbage, so that nobody would take them away.

use serde_json::Value;

use super::defaults;
use super::resources::ApiResource;
use super::storage::set_metadata;
use super::validation::finalizers;
use super::write_options::Propagation;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn is_mark(finalizer: &str) -> bool {
    matches!(finalizer, ORPHAN | FOREGROUND)
}

/// Gives a deleted object the mark of its policy, and no other one.
pub(super) fn mark(resource: &ApiResource, object: &mut Value, asked: Option<Propagation>) {
    let before = finalizers(object);
    let mark = match asked {
        _ if resource.is("", "events") => None,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        None => {
            let own = before.iter().copied().find(|one| is_mark(one));
            // Jobs keep what early clients knew.
            own.or_else(|| resource.is("batch", "jobs").then_some(ORPHAN))
        }
    };
    let kept = before.iter().copied().filter(|one| !is_mark(one));
    let after: Vec<_> = kept.chain(mark).collect();
    let is_same = before.len() == after.len() && after.iter().all(|one| before.contains(one));
    if !is_same {
        let after = Value::from(after);
        set_finalizers(object, after);
    }
}

/// The object without marks, as a collector leaves it that finds no dependents; `None` if it has
/// none.
pub(super) fn unmarked(object: &Value) -> Option<Value> {
    let before = finalizers(object);
    let kept: Vec<_> = before.iter().copied().filter(|one| !is_mark(one)).collect();
    (kept.len() < before.len()).then(|| {
        let kept = Value::from(kept);
        let mut object = object.clone();
        set_finalizers(&mut object, kept);
        object
    })
}

fn set_finalizers(object: &mut Value, finalizers: Value) {
    set_metadata(object, "finalizers", finalizers);
    defaults::drop_server_fields(object);
}
