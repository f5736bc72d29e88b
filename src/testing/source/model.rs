//! A small model of an API server for one kind: all its versions, and the part of the history that
//! it still knows.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::list_watch::{EventKind, Listed, ObjectEvent, Undecodable, WatchEvent};
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, Status};

/// One step of the server's history.
#[derive(Debug)]
pub(super) struct SourceChange<K: Object> {
    pub(super) version: u64,
    pub(super) key: ObjectKey,
    pub(super) kind: EventKind,
    /// The state after it; for a deletion, the last one.
    pub(super) item: Listed<K>,
}

impl<K: Object> SourceChange<K> {
    pub(super) fn event(&self) -> WatchEvent<K> {
        WatchEvent::Object(ObjectEvent {
            kind: self.kind,
            object: self.item.clone(),
        })
    }
}

/// The objects of one kind, through time.
#[derive(Debug)]
pub(super) struct Model<K: Object> {
    version: u64,
    present: BTreeMap<ObjectKey, Listed<K>>,
    history: Vec<SourceChange<K>>,
    /// Versions below this one are forgotten.
    compacted: u64,
    uids: u64,
}

impl<K: Object> Model<K> {
    pub(super) fn new() -> Self {
        Self {
            version: 1,
            present: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            uids: 0,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn present(&self) -> &BTreeMap<ObjectKey, Listed<K>> {
        &self.present
    }

    pub(super) fn change(&self, at: usize) -> Option<&SourceChange<K>> {
        self.history.get(at)
    }

    /// The position in the history of the first change after `version`.
    pub(super) fn after(&self, version: u64) -> usize {
        self.history
            .partition_point(|change| change.version <= version)
    }

    /// A uid as the server assigns them: that of the object under the key, otherwise a new one.
    pub(super) fn uid(&mut self, key: &ObjectKey) -> String {
        if let Some(item) = self.present.get(key) {
            return item.uid().to_owned();
        }
        self.uids = self.uids.wrapping_add(1);
        format!("uid-{}", self.uids)
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.version = self.version.wrapping_add(1);
        self.version
    }

    /// Moves the server's version on without a change here, as objects of other kinds do.
    pub(super) fn skip_to(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Records a state at the present version.
    pub(super) fn record(&mut self, key: ObjectKey, item: Listed<K>) {
        let kind = if self.present.contains_key(&key) {
            EventKind::Updated
        } else {
            EventKind::Added
        };
        self.present.insert(key.clone(), item.clone());
        self.history.push(SourceChange {
            version: self.version,
            key,
            kind,
            item,
        });
    }

    /// Records a deletion at the present version.
    pub(super) fn remove(&mut self, key: ObjectKey, last: Listed<K>) {
        self.present.remove(&key);
        self.history.push(SourceChange {
            version: self.version,
            key,
            kind: EventKind::Deleted,
            item: last,
        });
    }

    /// Forgets everything before the present version.
    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Goes back to the state at `version`, as a restored backup does: later history is gone.
    pub(super) fn restore(&mut self, version: u64) {
        self.present = self.at(version);
        self.history.retain(|change| change.version <= version);
        self.version = version;
        self.compacted = self.compacted.min(version);
    }

    /// The objects as they were at `version`.
    pub(super) fn at(&self, version: u64) -> BTreeMap<ObjectKey, Listed<K>> {
        let mut objects = BTreeMap::new();
        for change in self
            .history
            .iter()
            .take_while(|change| change.version <= version)
        {
            match change.kind {
                EventKind::Added | EventKind::Updated => {
                    objects.insert(change.key.clone(), change.item.clone());
                }
                EventKind::Deleted => {
                    objects.remove(&change.key);
                }
            }
        }
        objects
    }
}

/// Whether a scope selects a key: namespace and `metadata.name` count, other selectors select
/// everything.
pub(super) fn selects(scope: &Scope, key: &ObjectKey) -> bool {
    let in_namespace = scope
        .namespace_name()
        .is_none_or(|namespace| namespace == key.namespace());
    let named = scope
        .field_selector()
        .as_str()
        .strip_prefix("metadata.name=");
    in_namespace && named.is_none_or(|name| name == key.name())
}

/// "The version fell out of the history", in the API's words.
pub(super) fn expired(asked: u64, oldest: u64) -> Error {
    let message = format!("too old resource version: {asked} ({oldest})");
    status(410, "Expired", message, false)
}

/// "The version lies in the future", in the API's words (RF-13).
pub(super) fn too_large(asked: u64, current: u64) -> Error {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    status(504, "Timeout", message, true)
}

fn status(code: i32, reason: &str, message: String, too_large: bool) -> Error {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
    let cause = too_large.then(|| meta::StatusCause {
        message: Some("Too large resource version".to_owned()),
        reason: Some("ResourceVersionTooLarge".to_owned()),
        ..meta::StatusCause::default()
    });
    Error::from_status(Status::from(meta::Status {
        code: Some(code),
        reason: Some(reason.to_owned()),
        message: Some(message),
        details: Some(meta::StatusDetails {
            causes: cause.map(|cause| vec![cause]),
            ..meta::StatusDetails::default()
        }),
        ..meta::Status::default()
    }))
}

/// A version from a request; `None` if it is not a number.
pub(super) fn number(version: &ResourceVersion) -> Option<u64> {
    version.as_str().parse().ok()
}

/// An object that exists but does not decode (B12).
pub(super) fn undecodable(key: &ObjectKey, uid: String, version: u64) -> Undecodable {
    Undecodable {
        key: key.clone(),
        uid,
        resource_version: ResourceVersion::from(version.to_string()),
        error: Error::new(
            ErrorKind::Undecodable,
            format!("{key}: invalid type: made so for a test"),
        ),
    }
}
