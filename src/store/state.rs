//! What a store holds: transitions of plain data, which return what is to be dropped after unlocking.

use std::time::Instant;

use hashbrown::HashMap;

use crate::error::Error;
use crate::list_watch::Undecodable;
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::{Phase, ReflectorStatus};
use crate::store::index::{Indexers, Indices, Values};
use crate::sync::{Arc, Monitor};

/// What is known of one object.
pub(super) enum Content<K: Object> {
    Object(Arc<StoredObject<K>>),
    /// It is there but does not decode (B12).
    Undecodable {
        why: Box<Undecodable>,
        last_good: Option<Arc<StoredObject<K>>>,
    },
}

impl<K: Object> Content<K> {
    pub(super) fn object(&self) -> Option<&Arc<StoredObject<K>>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Undecodable { .. } => None,
        }
    }

    pub(super) fn last_good(&self) -> Option<&Arc<StoredObject<K>>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Undecodable { last_good, .. } => last_good.as_ref(),
        }
    }

    pub(super) fn uid(&self) -> &str {
        match self {
            Self::Object(object) => object.uid(),
            Self::Undecodable { why, .. } => &why.uid,
        }
    }

    /// Uid and version of the latest state, decodable or not.
    pub(super) fn identity(&self) -> (&str, ResourceVersion) {
        let version = match self {
            Self::Object(object) => object.resource_version(),
            Self::Undecodable { why, .. } => why.resource_version.clone(),
        };
        (self.uid(), version)
    }
}

impl<K: Object> Clone for Content<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::Undecodable { why, last_good } => Self::Undecodable {
                why: why.clone(),
                last_good: last_good.clone(),
            },
        }
    }
}

/// An object with the index values it stands under; both change together.
pub(super) struct Entry<K: Object> {
    pub(super) content: Content<K>,
    pub(super) values: Values,
}

impl<K: Object> Entry<K> {
    /// Runs the index functions: not under a lock.
    pub(super) fn new(content: Content<K>, functions: &Indexers<K>) -> Self {
        let values = content
            .object()
            .map(|object| functions.values(object))
            .unwrap_or_default();
        Self { content, values }
    }
}

pub(super) type Items<K> = HashMap<Arc<ObjectKey>, Entry<K>>;

/// Everything under the store's one mutex.
pub(super) struct State<K: Object> {
    pub(super) items: Items<K>,
    pub(super) indices: Indices<K>,
    pub(super) synced: bool,
    /// The writer is gone: nothing will ever change.
    pub(super) ended: bool,
    /// What ended it, if nobody asked it to end.
    pub(super) cause: Option<Error>,
    pub(super) resource_version: ResourceVersion,
    pub(super) refused: u64,
    pub(super) status: ReflectorStatus,
    pub(super) since: Instant,
}

impl<K: Object> State<K> {
    pub(super) fn new(functions: Arc<Indexers<K>>, since: Instant) -> Self {
        Self {
            items: Items::new(),
            indices: Indices::new(functions),
            synced: false,
            ended: false,
            cause: None,
            resource_version: ResourceVersion::default(),
            refused: 0,
            status: ReflectorStatus::default(),
            since,
        }
    }

    /// Takes in how the reflector is; wakes those who wait when it has a final answer for them.
    pub(super) fn report(monitor: &Monitor<Self>, status: &ReflectorStatus) {
        let mut status = status.clone();
        let mut state = monitor.lock();
        let told = state.status.refusal.is_some() != status.refusal.is_some();
        std::mem::swap(&mut state.status, &mut status);
        if state.ended {
            state.show_end();
        }
        drop(state);
        if told {
            monitor.notify_all();
        }
    }

    /// Nothing will ever change; ends every wait. The first cause that is told stays.
    pub(super) fn end(monitor: &Monitor<Self>, cause: Option<Error>) {
        let mut state = monitor.lock();
        state.ended = true;
        state.cause = state.cause.take().or(cause);
        state.show_end();
        drop(state);
        monitor.notify_all();
    }

    /// A reflector's report may come after the end; the end is what the status shows.
    fn show_end(&mut self) {
        self.status.phase = Phase::Stopped;
        if let Some(cause) = &self.cause {
            self.status.failures.end_with(cause.clone());
        }
    }

    pub(super) fn get(&self, key: &KeyRef<'_>) -> Option<&Entry<K>> {
        self.items.get(key)
    }

    /// The key as it is held, to be shared.
    pub(super) fn held_key(&self, key: &ObjectKey) -> Option<&Arc<ObjectKey>> {
        self.items
            .get_key_value(&KeyRef::from(key))
            .map(|(held, _)| held)
    }

    /// Puts an entry under its key; what it replaces is for dropping after unlocking.
    pub(super) fn put(&mut self, key: ObjectKey, entry: Entry<K>) -> Option<Entry<K>> {
        if let Some((key, held)) = self.items.get_key_value_mut(&KeyRef::from(&key)) {
            self.indices.replace(key, &held.values, &entry.values);
            return Some(std::mem::replace(held, entry));
        }
        let key = Arc::new(key);
        self.indices.insert(&key, &entry.values);
        self.items.insert(key, entry)
    }

    /// Takes an entry out; it is for dropping after unlocking.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        let entry = self.items.remove(&KeyRef::from(key))?;
        self.indices.remove(key, &entry.values);
        Some(entry)
    }

    pub(super) fn count_refusal(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// Moves the position, never back unless the content was replaced.
    pub(super) fn advance(&mut self, version: &ResourceVersion) {
        if !version.is_empty() && !version.is_older_than(&self.resource_version) {
            self.resource_version = version.clone();
        }
    }
}

/// The indices of a whole content, built before the lock is taken (IX-11).
pub(super) fn index<K: Object>(items: &Items<K>, functions: &Arc<Indexers<K>>) -> Indices<K> {
    let mut indices = Indices::new(Arc::clone(functions));
    for (key, entry) in items {
        indices.insert(key, &entry.values);
    }
    indices
}
