//! The content of a store: transitions of plain data, which return the values to drop after
//! unlocking.

use std::time::Instant;

use crate::error::Error;
use crate::list_watch::{Bound, Listed, OBJECTS_MAX};
use crate::object::{Object, ObjectKey, StoredObject, is_same_state};
use crate::reflector::ReflectorStatus;
use crate::store::index::{Indexers, Indices, Values};
use crate::store::items::{Items, StoreEntry};
use crate::store::version_guard::VersionGuard;
use crate::sync::{Arc, Monitor, ReadCopies};

/// The objects that each group of threads has read.
pub(super) type Copies<K> = ReadCopies<Arc<ObjectKey>, Arc<StoredObject<K>>>;

/// Everything under the store's one mutex.
pub(super) struct StoreContent<K: Object> {
    pub(super) items: Items<K>,
    pub(super) indices: Indices<K>,
    /// A change takes back the copies of objects that it replaces.
    pub(super) copies: Arc<Copies<K>>,
    /// Refuses states that are too old for the content, and knows its version.
    pub(super) guard: VersionGuard,
    pub(super) bound: Bound,
    pub(super) synced: bool,
    /// The writer was dropped, so nothing will ever change.
    pub(super) ended: bool,
    /// The cause of the end, if it was not asked for.
    pub(super) cause: Option<Error>,
    pub(super) status: ReflectorStatus,
    pub(super) since: Instant,
}

impl<K: Object> StoreContent<K> {
    pub(super) fn new(functions: Arc<Indexers<K>>, since: Instant) -> Self {
        Self {
            items: Items::default(),
            indices: Indices::new(functions),
            copies: Arc::new(Copies::default()),
            guard: VersionGuard::of_collection(),
            bound: Bound::new(OBJECTS_MAX),
            synced: false,
            ended: false,
            cause: None,
            status: ReflectorStatus::default(),
            since,
        }
    }

    /// Takes the reflector's status, and wakes the waiters if it has a final answer for them.
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

    /// Notes that the content will not change any more, and ends every wait. The first cause stays.
    pub(super) fn end(monitor: &Monitor<Self>, cause: Option<Error>) {
        let mut state = monitor.lock();
        state.ended = true;
        state.cause = state.cause.take().or(cause);
        state.show_end();
        drop(state);
        monitor.notify_all();
    }

    /// A reflector's report may come after the end; the status must still show the end.
    fn show_end(&mut self) {
        self.status.end();
        if let Some(cause) = &self.cause {
            self.status.failures.end_with(cause.clone());
        }
    }

    /// The objects that decode and have any of the values, each once.
    pub(super) fn by_values(
        &self,
        index: &str,
        values: &[&str],
    ) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let keys = self.indices.keys(index, values)?.into_iter();
        let objects = keys.filter_map(|key| self.items.get(key)?.object());
        Ok(objects.map(Arc::clone).collect())
    }

    /// Puts an item in, unless that would take its object back in time, or there is no room.
    /// Returns the outcome, and the values to drop after unlocking.
    pub(super) fn put(
        &mut self,
        item: Listed<K>,
        values: Values,
    ) -> (Applied<K>, Option<StoreEntry<K>>) {
        let (key, held) = self.items.get_key_value(&item.key_ref()).unzip();
        let identity = held.map(|held| held.item.identity());
        let admitted = self.guard.admits_change(identity, item.identity());
        let last_good = held.and_then(|held| held.last_good_of(&item));
        let entry = StoreEntry::new(item, last_good, values);
        if !admitted {
            return (Applied::Stale, Some(entry));
        }
        if held.is_none() && !self.bound.has_room(self.items.len()) {
            return (Applied::NoRoom, Some(entry));
        }
        if let Some(key) = key {
            self.copies.renew(key, entry.object(), |_| ());
        }
        let key = key.map_or_else(|| Arc::new(entry.item.key()), Arc::clone);
        let none = Values::default();
        let before = held.map_or(&none, |held| &held.values);
        self.indices.replace(&key, before, &entry.values);
        let change = Change::of(held, Some(&entry));
        (Applied::Accepted(change), self.items.put(key, entry))
    }

    /// Removes the object whose last state is `item`, unless the store has a newer one (B18).
    /// Returns the outcome, and the values to drop after unlocking.
    pub(super) fn delete(&mut self, item: &Listed<K>) -> (Applied<K>, Option<StoreEntry<K>>) {
        let held = self.items.get(&item.key_ref());
        let identity = held.map(|held| held.item.identity());
        if !self.guard.admits_delete(identity, item.identity()) {
            return (Applied::Stale, None);
        }
        let Some((key, gone)) = self.items.take(&item.key_ref()) else {
            return (Applied::Accepted(None), None);
        };
        self.copies.renew(&key, None, |_| ());
        self.indices.replace(&key, &gone.values, &Values::default());
        let change = Change::of(Some(&gone), None);
        (Applied::Accepted(change), Some(gone))
    }
}

/// The indices of a whole content, built before the lock is taken (IX-11).
pub(super) fn index<K: Object>(items: &Items<K>, functions: &Arc<Indexers<K>>) -> Indices<K> {
    let mut indices = Indices::new(Arc::clone(functions));
    for (key, entry) in items.iter() {
        indices.replace(key, &Values::default(), &entry.values);
    }
    indices
}

/// The outcome of an event.
pub(crate) enum Applied<K: Object> {
    /// The store took it in; the change for handlers, if any.
    Accepted(Option<Change<K>>),
    /// It would have taken its object back in time (B18).
    Stale,
    /// The object is new, and there is no room for it.
    NoRoom,
}

/// The change of one object between states that decode, as a handler that follows the store sees
/// it.
///
/// An undecodable object keeps its last good state, until it decodes again or goes (B12).
pub(crate) enum Change<K: Object> {
    /// The object is new.
    Appeared(Arc<StoredObject<K>>),
    /// The object has a new state, or came again unchanged.
    Changed {
        old: Arc<StoredObject<K>>,
        new: Arc<StoredObject<K>>,
    },
    /// Another object has its name: the old one ended unseen.
    Remade {
        old: Arc<StoredObject<K>>,
        new: Arc<StoredObject<K>>,
    },
    /// The object is gone.
    Gone(Arc<StoredObject<K>>),
}

impl<K: Object> Change<K> {
    pub(super) fn of(
        before: Option<&StoreEntry<K>>,
        after: Option<&StoreEntry<K>>,
    ) -> Option<Self> {
        let old = before.and_then(StoreEntry::last_good).map(Arc::clone);
        let new = after.and_then(StoreEntry::last_good).map(Arc::clone);
        let decodes = after.is_some_and(|after| after.object().is_some());
        match (old, new) {
            (Some(old), Some(new)) if old.uid() != new.uid() => Some(Self::Remade { old, new }),
            (Some(old), Some(new)) => decodes.then_some(Self::Changed { old, new }),
            (None, Some(new)) => Some(Self::Appeared(new)),
            (Some(old), None) => Some(Self::Gone(old)),
            (None, None) => None,
        }
    }

    /// The end that a list implies.
    pub(super) fn end(self) -> Option<Self> {
        match self {
            Self::Gone(old) | Self::Remade { old, .. } => Some(Self::Gone(old)),
            Self::Appeared(_) | Self::Changed { .. } => None,
        }
    }

    /// The change that a list's object brings.
    pub(super) fn news(self) -> Option<Self> {
        match self {
            Self::Gone(_) => None,
            Self::Changed { old, new } if is_same_state::<K>(&old, &new) => None,
            Self::Remade { new, .. } => Some(Self::Appeared(new)),
            Self::Appeared(_) | Self::Changed { .. } => Some(self),
        }
    }
}
