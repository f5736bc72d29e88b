//! The content of the server: the objects, the history of their changes, and its beginning.
//!
//! Each change makes a version. A former state is the present one with later changes undone, so the
//! cost of a page at an old version grows with the changes since.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::resources::{ApiResource, CRD_GROUP, CRDS, KindRegistry, StorageKey};
use crate::clock::{Clock, Deadline};
use crate::sync::{Arc, Bell, Mutex, MutexGuard, Wake, wake_at};

/// The maximum number of changes kept for a collection. The server compacts older ones, so that a
/// long test does not keep all.
const CHANGES_MAX: usize = 100_000;

/// The maximum size of the text of all kept changes. The server compacts the oldest ones, of any
/// kind.
const HISTORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// An object at one version, with its text, which all answers share. Immutable.
#[derive(Clone, Debug)]
pub(super) struct StoredVersion {
    /// `namespace/name`, or the name alone: the order of lists.
    pub(super) key: String,
    pub(super) version: u64,
    pub(super) value: Value,
    /// The JSON text behind kind and API version: `"metadata":…}`.
    rest: Arc<[u8]>,
}

impl StoredVersion {
    /// Version 0 means none, for an object that is not stored.
    pub(super) fn new(key: String, version: u64, mut value: Value) -> Self {
        if let Some(metadata) = metadata_mut(&mut value) {
            match version {
                0 => metadata.remove("resourceVersion"),
                _ => metadata.insert("resourceVersion".to_owned(), version.to_string().into()),
            };
        }
        let rest = text_behind_type(&value).into();
        Self {
            key,
            version,
            value,
            rest,
        }
    }

    /// The same state at another version, for a watch that loses the object.
    pub(super) fn at_version(&self, version: u64) -> Self {
        Self::new(self.key.clone(), version, self.value.clone())
    }

    /// The same object without its managed fields; `None` if it has none.
    pub(super) fn without_managed_fields(&self) -> Option<Self> {
        self.value.pointer("/metadata/managedFields")?;
        let mut value = self.value.clone();
        metadata_mut(&mut value)?.remove("managedFields");
        Some(Self::new(self.key.clone(), self.version, value))
    }

    /// Writes the object as one of that kind.
    pub(super) fn write_as(&self, resource: &ApiResource, text: &mut Vec<u8>) {
        text.extend_from_slice(br#"{"kind":"#);
        text.extend_from_slice(Value::from(resource.kind()).to_string().as_bytes());
        text.extend_from_slice(br#","apiVersion":"#);
        text.extend_from_slice(Value::from(resource.api_version()).to_string().as_bytes());
        if !self.rest.starts_with(b"}") {
            text.push(b',');
        }
        text.extend_from_slice(&self.rest);
    }

    /// Writes the object as an item of a list: the server's own types have no kind there.
    pub(super) fn write_item(&self, resource: &ApiResource, text: &mut Vec<u8>) {
        if resource.traits().is_built_in {
            text.push(b'{');
            text.extend_from_slice(&self.rest);
        } else {
            self.write_as(resource, text);
        }
    }

    /// The object as one of that kind.
    pub(super) fn value_as(&self, resource: &ApiResource) -> Value {
        let mut value = self.value.clone();
        set_type(&mut value, resource);
        value
    }

    /// About how long the text is.
    pub(super) fn text_len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub(super) fn name(&self) -> &str {
        self.key
            .rsplit_once('/')
            .map_or(&*self.key, |(_, name)| name)
    }
}

/// Sets kind and API version.
pub(super) fn set_type(value: &mut Value, resource: &ApiResource) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".to_owned(), Value::from(resource.kind()));
        fields.insert("apiVersion".to_owned(), Value::from(resource.api_version()));
    }
}

/// Sets a field of the metadata, which it makes if it is missing.
pub(super) fn set_metadata(value: &mut Value, field: &str, to: Value) {
    if let Some(metadata) = metadata_mut(value) {
        metadata.insert(field.to_owned(), to);
    }
}

/// The metadata, made if it is missing; `None` if the value is not an object.
pub(super) fn metadata_mut(value: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = value.as_object_mut()?.entry("metadata");
    let metadata = metadata.or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// A field of the metadata that is a text.
pub(super) fn metadata_text<'a>(value: &'a Value, field: &str) -> &'a str {
    let text = value
        .get("metadata")
        .and_then(|metadata| metadata.get(field));
    text.and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is being deleted.
pub(super) fn is_marked(object: &Value) -> bool {
    !metadata_text(object, "deletionTimestamp").is_empty()
}

/// The text of all fields but kind and API version, with the closing brace: metadata first.
fn text_behind_type(value: &Value) -> Vec<u8> {
    let fields = value.as_object();
    let mut text = Vec::new();
    let is_first = |name: &&String| name.as_str() == "metadata";
    let first = fields.into_iter().flat_map(Map::keys).filter(is_first);
    let others = fields.into_iter().flat_map(Map::keys);
    let others = others.filter(|name| !matches!(name.as_str(), "metadata" | "kind" | "apiVersion"));
    for name in first.chain(others) {
        if !text.is_empty() {
            text.push(b',');
        }
        let value = fields.and_then(|fields| fields.get(name));
        text.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
        text.push(b':');
        text.extend_from_slice(value.unwrap_or(&Value::Null).to_string().as_bytes());
    }
    text.push(b'}');
    text
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct StorageChange {
    pub(super) version: u64,
    /// The state before; `None` when the object was created.
    pub(super) before: Option<Arc<StoredVersion>>,
    /// The state afterwards; for a delete, the last state at the version of the delete.
    pub(super) after: Arc<StoredVersion>,
    pub(super) is_delete: bool,
}

/// The objects of a kind at one version, by key.
pub(super) type ObjectsByKey = BTreeMap<String, Arc<StoredVersion>>;

/// The objects of a kind, and their history.
#[derive(Debug, Default)]
pub(super) struct Collection {
    pub(super) objects: ObjectsByKey,
    changes: StoredChanges,
    /// Rings at each change.
    bell: Arc<Bell>,
    /// The version of the newest forgotten change.
    forgotten: u64,
}

/// Changes, oldest first, and the bytes of their text.
#[derive(Debug, Default)]
struct StoredChanges {
    all: VecDeque<StorageChange>,
    bytes: usize,
}

impl StoredChanges {
    fn push(&mut self, change: StorageChange) {
        self.bytes = self.bytes.saturating_add(change.after.text_len());
        self.all.push_back(change);
    }

    fn pop_oldest(&mut self) -> Option<StorageChange> {
        let oldest = self.all.pop_front()?;
        self.bytes = self.bytes.saturating_sub(oldest.after.text_len());
        Some(oldest)
    }

    fn truncate(&mut self, kept: usize) {
        self.all.truncate(kept);
        let lengths = self.all.iter().map(|change| change.after.text_len());
        self.bytes = lengths.fold(0, usize::saturating_add);
    }
}

impl Collection {
    /// The changes after that version, oldest first.
    pub(super) fn changes_after(&self, version: u64) -> impl Iterator<Item = &StorageChange> {
        let first = self
            .changes
            .all
            .partition_point(|change| change.version <= version);
        self.changes.all.range(first..)
    }

    fn record(&mut self, change: StorageChange) {
        self.changes.push(change);
        if self.changes.all.len() > CHANGES_MAX {
            self.forget_oldest();
        }
        self.bell.ring();
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.changes.pop_oldest() {
            self.forgotten = oldest.version;
        }
    }

    fn objects_at(&self, version: u64) -> ObjectsByKey {
        let mut objects = self.objects.clone();
        for change in self.changes.all.iter().rev() {
            if change.version <= version {
                break;
            }
            match &change.before {
                Some(before) => objects.insert(change.after.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.after.key),
            };
        }
        objects
    }

    /// Undoes the changes after that version.
    fn go_back(&mut self, version: u64) {
        self.objects = self.objects_at(version);
        let kept = self
            .changes
            .all
            .partition_point(|change| change.version <= version);
        self.changes.truncate(kept);
    }
}

/// A version that the history no longer reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted {
    /// The oldest version from which the history is known.
    pub(super) oldest: u64,
}

/// Everything that requests change, under one lock.
#[derive(Debug)]
pub(super) struct StorageState {
    pub(super) registry: KindRegistry,
    version: u64,
    /// Versions before this one are compacted.
    compacted: u64,
    /// The version to which the server last went back.
    began: u64,
    collections: BTreeMap<StorageKey, Collection>,
    /// Moves when the server goes back in time, or ends its watches: those of an older epoch end.
    pub(super) epoch: u64,
    /// Moves when running watches must end as expired.
    pub(super) expired_watches: u64,
    /// The number of objects made, for uids and generated names.
    made: u64,
}

impl StorageState {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The objects of a kind; one without any is empty.
    pub(super) fn collection(&mut self, key: &StorageKey) -> &mut Collection {
        self.collections.entry(key.clone()).or_default()
    }

    pub(super) fn collections(&self) -> impl Iterator<Item = (&StorageKey, &Collection)> {
        self.collections.iter()
    }

    pub(super) fn get(&self, kind: &StorageKey, key: &str) -> Option<Arc<StoredVersion>> {
        self.collections.get(kind)?.objects.get(key).cloned()
    }

    /// The objects as they were at that version, which is not after the present one.
    pub(super) fn objects_at(
        &mut self,
        kind: &StorageKey,
        version: u64,
    ) -> Result<ObjectsByKey, Compacted> {
        self.reaches(kind, version)?;
        Ok(self.collection(kind).objects_at(version))
    }

    /// Whether the changes after that version are still known, compacted or not.
    pub(super) fn remembers(&mut self, kind: &StorageKey, version: u64) -> bool {
        version >= self.collection(kind).forgotten
    }

    /// Whether the history of a kind reaches back to the changes after that version.
    pub(super) fn reaches(&mut self, kind: &StorageKey, version: u64) -> Result<(), Compacted> {
        let oldest = self.compacted.max(self.collection(kind).forgotten);
        if version < oldest {
            return Err(Compacted { oldest });
        }
        Ok(())
    }

    /// Whether the server can send a watch the changes after that version. A restored server began
    /// anew: it knows no former changes, although it can read former states.
    pub(super) fn can_be_watched(
        &mut self,
        kind: &StorageKey,
        version: u64,
    ) -> Result<(), Compacted> {
        self.reaches(kind, version)?;
        if version < self.began {
            let oldest = self.began;
            return Err(Compacted { oldest });
        }
        Ok(())
    }

    /// Creates or replaces an object.
    pub(super) fn put(&mut self, kind: &StorageKey, key: &str, value: Value) -> Arc<StoredVersion> {
        let version = self.next_version();
        let collection = self.collection(kind);
        let after = Arc::new(StoredVersion::new(key.to_owned(), version, value));
        let before = collection
            .objects
            .insert(key.to_owned(), Arc::clone(&after));
        collection.record(StorageChange {
            version,
            before,
            after: Arc::clone(&after),
            is_delete: false,
        });
        self.redefine(kind);
        self.bound_history();
        after
    }

    /// Removes an object. Its last state is `value`, or the present one.
    pub(super) fn remove(
        &mut self,
        kind: &StorageKey,
        key: &str,
        value: Option<Value>,
    ) -> Option<Arc<StoredVersion>> {
        let before = self.collection(kind).objects.remove(key)?;
        let version = self.next_version();
        let value = value.unwrap_or_else(|| before.value.clone());
        let after = Arc::new(StoredVersion::new(key.to_owned(), version, value));
        self.collection(kind).record(StorageChange {
            version,
            before: Some(before),
            after: Arc::clone(&after),
            is_delete: true,
        });
        self.redefine(kind);
        self.bound_history();
        Some(after)
    }

    /// Reads the definitions again if they are the changed objects.
    fn redefine(&mut self, kind: &StorageKey) {
        if (kind.group.as_str(), kind.plural.as_str()) == (CRD_GROUP, CRDS)
            && let Some(definitions) = self.collections.get(kind)
        {
            let definitions = definitions.objects.values();
            let definitions: Vec<_> = definitions.map(|stored| &stored.value).collect();
            self.registry.define(&definitions);
        }
    }

    /// Forgets the oldest changes of all kinds until the rest is small enough.
    fn bound_history(&mut self) {
        loop {
            let sizes = self.collections.values().map(|kind| kind.changes.bytes);
            if sizes.fold(0, usize::saturating_add) <= HISTORY_BYTES_MAX {
                return;
            }
            let oldest = self.collections.values_mut().filter_map(|kind| {
                let version = kind.changes.all.front()?.version;
                Some((version, kind))
            });
            match oldest.min_by_key(|(version, _)| *version) {
                Some((_, kind)) => kind.forget_oldest(),
                None => return,
            }
        }
    }

    fn next_version(&mut self) -> u64 {
        self.version = self.version.saturating_add(1);
        self.version
    }

    /// A number that no other object of this server has.
    pub(super) fn next_object(&mut self) -> u64 {
        self.made = self.made.saturating_add(1);
        self.made
    }

    fn ring_all(&self) {
        for collection in self.collections.values() {
            collection.bell.ring();
        }
    }
}

/// The server's state, its clock, and the waits for its changes.
#[derive(Debug)]
pub(super) struct Storage {
    state: Arc<Mutex<StorageState>>,
    clock: Clock,
    started: Instant,
    /// The time of day at `started`.
    started_at: SystemTime,
}

impl Storage {
    pub(super) fn new(registry: KindRegistry, clock: Clock, started_at: SystemTime) -> Self {
        let state = StorageState {
            registry,
            version: 1,
            compacted: 1,
            began: 0,
            collections: BTreeMap::new(),
            epoch: 0,
            expired_watches: 0,
            made: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            started: clock.now(),
            started_at,
            clock,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StorageState> {
        self.state.lock()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time of day, which passes as the clock does.
    pub(super) fn now(&self) -> SystemTime {
        let passed = self.clock.now().saturating_duration_since(self.started);
        self.started_at
            .checked_add(passed)
            .unwrap_or(self.started_at)
    }

    /// The time of day `after` from now, as objects have it: to the second, in UTC.
    pub(super) fn timestamp(&self, after: Duration) -> String {
        let now = self.now();
        let at = now.checked_add(after).unwrap_or(now);
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
        Timestamp::from_second(seconds)
            .unwrap_or_default()
            .to_string()
    }

    /// The time `seconds` after a time in an object, or the present if that is later, and whether
    /// it has passed. Without a time, it is `seconds` from now.
    pub(super) fn timestamp_from(&self, time: &str, seconds: i64) -> (String, bool) {
        let now = self.timestamp(Duration::ZERO);
        let from = if time.is_empty() { &now } else { time };
        let moved = from.parse::<Timestamp>().ok().and_then(|from| {
            let second = from.as_second().checked_add(seconds)?;
            Timestamp::from_second(second).ok()
        });
        // Both have the same form, in which the later one compares as greater.
        match moved.map(|moved| moved.to_string()) {
            Some(moved) if moved >= now => (moved, false),
            _ => (now, true),
        }
    }

    /// Waits for a change of a kind, at most until `deadline`. Callers check again.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        kind: &StorageKey,
        mut state: MutexGuard<'a, StorageState>,
        deadline: Deadline,
    ) -> MutexGuard<'a, StorageState> {
        let bell = Arc::clone(&state.collection(kind).bell);
        self.clock
            .wait_for_bell(&self.state, &bell, state, deadline)
    }

    /// A wake-up for waits for a change of that kind.
    pub(super) fn wake(&self, kind: &StorageKey) -> Arc<dyn Wake> {
        let bell = Arc::clone(&self.lock().collection(kind).bell);
        wake_at(&self.state, &bell)
    }

    /// Refuses the history up to the present version from now on.
    pub(super) fn compact(&self) {
        let mut state = self.lock();
        // The changes stay for open watches: on a real server these are in the watch cache, which
        // no compaction of etcd reaches.
        state.compacted = state.version;
    }

    /// Ends the running watches as expired.
    pub(super) fn expire_watches(&self) {
        let mut state = self.lock();
        state.expired_watches = state.expired_watches.saturating_add(1);
        state.ring_all();
    }

    /// Cuts off the running watches.
    pub(super) fn cut_watches(&self) {
        let mut state = self.lock();
        state.epoch = state.epoch.saturating_add(1);
        state.ring_all();
    }

    /// Goes back to the state at that version, like a server whose etcd was restored, and cuts off
    /// the running watches.
    pub(super) fn restore(&self, version: u64) -> Result<(), Compacted> {
        let mut state = self.lock();
        let forgotten = state
            .collections
            .values()
            .map(|collection| collection.forgotten);
        let oldest = forgotten.max().unwrap_or_default().max(state.compacted);
        if version < oldest || version > state.version {
            return Err(Compacted { oldest });
        }
        let kinds: Vec<_> = state.collections.keys().cloned().collect();
        for kind in &kinds {
            state.collection(kind).go_back(version);
            state.redefine(kind);
        }
        state.version = version;
        state.began = version;
        state.epoch = state.epoch.saturating_add(1);
        state.ring_all();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind() -> StorageKey {
        let registry = KindRegistry::built_in();
        registry.find("", "v1", "configmaps").unwrap().storage_key()
    }

    fn storage() -> Storage {
        Storage::new(
            KindRegistry::built_in(),
            Clock::system(),
            SystemTime::UNIX_EPOCH,
        )
    }

    fn names(objects: &ObjectsByKey) -> Vec<&str> {
        objects.keys().map(String::as_str).collect()
    }

    #[test]
    fn each_former_state_can_be_read_until_it_is_compacted() {
        let storage = storage();
        let mut state = storage.lock();
        for name in ["b", "a", "a-b"] {
            state.put(
                &kind(),
                &format!("shop/{name}"),
                json!({"metadata": {"name": name}}),
            );
        }
        state.put(&kind(), "shop/a", json!({"data": {"k": "v"}}));
        state.remove(&kind(), "shop/b", None);
        assert_eq!(state.version(), 6);
        let at = |state: &mut StorageState, version| {
            let objects = state.objects_at(&kind(), version).unwrap();
            names(&objects).join(" ")
        };
        assert_eq!(at(&mut state, 1), "");
        assert_eq!(at(&mut state, 2), "shop/b");
        assert_eq!(at(&mut state, 4), "shop/a shop/a-b shop/b");
        assert_eq!(at(&mut state, 6), "shop/a shop/a-b");
        let former = state.objects_at(&kind(), 4).unwrap();
        assert_eq!(former["shop/a"].version, 3);
        assert_eq!(state.collection(&kind()).changes_after(4).count(), 2);
        drop(state);
        storage.compact();
        let mut state = storage.lock();
        assert_eq!(
            state.objects_at(&kind(), 5).err(),
            Some(Compacted { oldest: 6 })
        );
        assert_eq!(at(&mut state, 6), "shop/a shop/a-b");
    }

    /// Also for large objects of several kinds.
    #[test]
    fn the_history_is_bounded_by_its_bytes() {
        let storage = storage();
        let other = {
            let registry = &storage.lock().registry;
            registry.find("", "v1", "secrets").unwrap().storage_key()
        };
        let mut state = storage.lock();
        let text = "x".repeat(1024 * 1024);
        for round in 0..33 {
            for kind in [&kind(), &other] {
                state.put(kind, "shop/a", json!({"data": {"k": text, "n": round}}));
            }
        }
        let kept: Vec<_> = [kind(), other]
            .iter()
            .map(|kind| state.collection(kind).changes.all.len())
            .collect();
        assert_eq!(kept, [31, 32]);
        let version = state.version();
        assert!(state.reaches(&kind(), version - 62).is_ok());
        assert!(state.reaches(&kind(), version - 64).is_err());
    }

    #[test]
    fn a_restored_server_counts_on_from_the_version_to_which_it_went_back() {
        let storage = storage();
        storage.lock().put(&kind(), "shop/a", json!({}));
        storage.lock().put(&kind(), "shop/b", json!({}));
        assert_eq!(storage.restore(9), Err(Compacted { oldest: 1 }));
        storage.restore(2).unwrap();
        let mut state = storage.lock();
        assert_eq!(names(&state.collection(&kind()).objects), ["shop/a"]);
        assert_eq!(state.put(&kind(), "shop/c", json!({})).version, 3);
    }

    #[test]
    fn the_text_of_an_object_has_its_type_first_and_in_lists_of_own_types_none() {
        let registry = KindRegistry::built_in();
        let config_maps = registry.find("", "v1", "configmaps").unwrap();
        let value = json!({"kind": "x", "data": {"k": "v"}, "metadata": {"name": "a"}});
        let stored = StoredVersion::new("shop/a".to_owned(), 7, value);
        let mut text = Vec::new();
        stored.write_as(config_maps, &mut text);
        let metadata = r#""metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}"#;
        let whole = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{metadata}"#);
        assert_eq!(String::from_utf8(text).unwrap(), whole);
        let mut item = Vec::new();
        stored.write_item(config_maps, &mut item);
        assert_eq!(String::from_utf8(item).unwrap(), format!("{{{metadata}"));
        assert_eq!((stored.namespace(), stored.name()), ("shop", "a"));
    }

    #[test]
    fn times_are_those_of_the_clock() {
        let fake = crate::clock::FakeClock::new();
        let started_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let storage = Storage::new(
            KindRegistry::built_in(),
            Clock::from(fake.clone()),
            started_at,
        );
        assert_eq!(storage.timestamp(Duration::ZERO), "2023-11-14T22:13:20Z");
        fake.advance(Duration::from_secs(40));
        assert_eq!(
            storage.timestamp(Duration::from_secs(30)),
            "2023-11-14T22:14:30Z"
        );
    }
}
