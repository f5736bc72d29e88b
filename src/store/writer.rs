//! The one writer of a store: a sink for a reflector. Dropping it ends every wait on the store.

use std::fmt;

use hashbrown::HashSet;

use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent, Undecodable};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::store::index::Indexers;
use crate::store::state::{Content, Entry, Items, State, index};
use crate::store::version_guard::{Identity, VersionGuard};
use crate::sync::{Arc, Monitor};

/// The writing side of a [`Store`](crate::store::Store): exclusive, and a [`Sink`].
///
/// News that would take an object back in time is refused and counted (B18). Dropping the writer keeps the content
/// and ends every wait with an error.
pub struct StoreWriter<K: Object> {
    state: Arc<Monitor<State<K>>>,
    guard: VersionGuard,
    /// As in the state when last looked at: index functions run outside the lock.
    functions: Arc<Indexers<K>>,
}

/// A replacement of a store's content in the making; dropping it leaves the content as it was.
///
/// It holds what is new, and shares what has not changed with the content it will replace.
pub struct Staging<K: Object> {
    items: Items<K>,
    /// The keys in the order in which they first came, those that were taken back included.
    order: Vec<Arc<ObjectKey>>,
    functions: Arc<Indexers<K>>,
}

impl<K: Object> Staging<K> {
    /// The keys in the list's order, each once.
    pub(super) fn take_order(&mut self) -> Vec<Arc<ObjectKey>> {
        let mut order = std::mem::take(&mut self.order);
        if order.len() != self.items.len() {
            // A streamed list took objects back, and may have brought them again.
            let mut known = HashSet::new();
            order.retain(|key| self.items.contains_key(key) && known.insert(Arc::clone(key)));
        }
        order
    }
}

/// The change was refused: it would have taken an object back in time.
pub(super) struct Refused;

impl<K: Object> StoreWriter<K> {
    pub(super) fn new(state: Arc<Monitor<State<K>>>, functions: Arc<Indexers<K>>) -> Self {
        Self {
            state,
            guard: VersionGuard::of_collection(),
            functions,
        }
    }

    /// What is staged for an item: the object already held if it has not changed, else the new one.
    fn entry(&self, staging: &Staging<K>, item: Listed<K>) -> (ObjectKey, Entry<K>) {
        match item {
            Listed::Object(object) => {
                let key = object.key();
                let object = self.unchanged(&key, &object).unwrap_or(object);
                (key, Entry::new(Content::Object(object), &staging.functions))
            }
            Listed::Undecodable(why) => {
                let (key, content) = self.set_aside(why);
                (key, Entry::new(content, &staging.functions))
            }
        }
    }

    /// The object that is held already, if the listed one is no other state of it.
    pub(crate) fn unchanged(
        &self,
        key: &ObjectKey,
        object: &StoredObject<K>,
    ) -> Option<Arc<StoredObject<K>>> {
        let state = self.state.lock();
        let held = state.get(&KeyRef::from(key))?.content.object()?;
        object.is_same_state(held).then(|| Arc::clone(held))
    }

    /// The last state that decoded, if it is of the same object.
    fn last_good(&self, of: &Undecodable) -> Option<Arc<StoredObject<K>>> {
        let state = self.state.lock();
        let held = state.get(&KeyRef::from(&of.key))?.content.last_good()?;
        (of.uid.is_empty() || held.uid() == of.uid).then(|| Arc::clone(held))
    }

    pub(super) fn shared(&self) -> &Arc<Monitor<State<K>>> {
        &self.state
    }

    /// What is held of an object that does not decode.
    pub(super) fn set_aside(&self, why: Undecodable) -> (ObjectKey, Content<K>) {
        let key = why.key.clone();
        let content = Content::Undecodable {
            last_good: self.last_good(&why),
            why: Box::new(why),
        };
        (key, content)
    }

    /// Puts one object in, unless that would take it back in time. Gives what was there.
    pub(super) fn put(
        &mut self,
        key: ObjectKey,
        content: &Content<K>,
    ) -> Result<Option<Entry<K>>, Refused> {
        loop {
            let entry = Entry::new(content.clone(), &self.functions);
            let mut state = self.state.lock();
            if !Arc::ptr_eq(state.indices.functions(), &self.functions) {
                self.functions = Arc::clone(state.indices.functions());
                continue;
            }
            let held = state.get(&KeyRef::from(&key)).map(|entry| &entry.content);
            let admitted = with_identities(held, content, |held, incoming| {
                self.guard.admits_change(held, incoming)
            });
            if admitted {
                state.advance(&content.identity().1);
            }
            let before = if admitted {
                Ok(state.put(key, entry))
            } else {
                state.count_refusal();
                Err(entry)
            };
            drop(state);
            self.state.notify_all();
            // Dropped objects overwrite their secrets: not under the lock, and so by the caller.
            return before.map_err(|_refused_entry| Refused);
        }
    }

    /// Takes one object out, unless it is newer than its end. Gives what was there.
    pub(super) fn delete(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        version: &ResourceVersion,
    ) -> Option<Entry<K>> {
        let mut state = self.state.lock();
        let held = state.get(&KeyRef::from(key)).map(|entry| &entry.content);
        let incoming = Identity {
            uid,
            resource_version: version,
        };
        let admitted = match held.map(Content::identity) {
            Some((uid, version)) => {
                let held = Identity {
                    uid,
                    resource_version: &version,
                };
                self.guard.admits_delete(Some(held), incoming)
            }
            None => self.guard.admits_delete(None, incoming),
        };
        if admitted {
            state.advance(version);
        }
        let gone = if admitted {
            state.take(key)
        } else {
            state.count_refusal();
            None
        };
        drop(state);
        self.state.notify_all();
        gone
    }

    /// Makes what is staged the content, and gives what was there.
    pub(super) fn replace(
        &mut self,
        mut staging: Staging<K>,
        of: &Replacement,
    ) -> Result<Items<K>, Error> {
        if !self.guard.admits_replacement(of) {
            self.state.lock().count_refusal();
            return Err(self.guard.stale(of));
        }
        let (before, indices) = loop {
            let indices = index(&staging.items, &staging.functions);
            let mut state = self.state.lock();
            if Arc::ptr_eq(state.indices.functions(), &staging.functions) {
                let items = std::mem::take(&mut staging.items);
                let before = (
                    std::mem::replace(&mut state.items, items),
                    std::mem::replace(&mut state.indices, indices),
                );
                state.resource_version = of.resource_version.clone();
                state.synced = true;
                break before;
            }
            // An index was added while this was staged.
            staging.functions = Arc::clone(state.indices.functions());
            drop(state);
            for entry in staging.items.values_mut() {
                *entry = Entry::new(entry.content.clone(), &staging.functions);
            }
        };
        self.state.notify_all();
        drop(indices);
        Ok(before)
    }
}

fn with_identities<K: Object>(
    held: Option<&Content<K>>,
    incoming: &Content<K>,
    judge: impl FnOnce(Option<Identity<'_>>, Identity<'_>) -> bool,
) -> bool {
    let (uid, version) = incoming.identity();
    let incoming = Identity {
        uid,
        resource_version: &version,
    };
    match held.map(Content::identity) {
        Some((uid, version)) => {
            let held = Identity {
                uid,
                resource_version: &version,
            };
            judge(Some(held), incoming)
        }
        None => judge(None, incoming),
    }
}

impl<K: Object> Sink<K> for StoreWriter<K> {
    type Staging = Staging<K>;

    fn begin(&mut self) -> Staging<K> {
        self.functions = Arc::clone(self.state.lock().indices.functions());
        Staging {
            items: Items::new(),
            order: Vec::new(),
            functions: Arc::clone(&self.functions),
        }
    }

    fn stage(&mut self, staging: &mut Staging<K>, event: ObjectEvent<K>) {
        if event.kind == EventKind::Deleted {
            staging.items.remove(&KeyRef::from(&event.object.key()));
            return;
        }
        let (key, entry) = self.entry(staging, event.object);
        if let Some(staged) = staging.items.get_mut(&KeyRef::from(&key)) {
            *staged = entry;
            return;
        }
        let held = self.state.lock().held_key(&key).map(Arc::clone);
        let key = held.unwrap_or_else(|| Arc::new(key));
        staging.order.push(Arc::clone(&key));
        staging.items.insert(key, entry);
    }

    fn commit(&mut self, staging: Staging<K>, of: &Replacement) -> Result<(), Error> {
        self.replace(staging, of).map(drop)
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        drop(self.apply_and_tell(event));
        Ok(())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.guard.raise(version);
        self.state.lock().advance(version);
        self.state.notify_all();
    }

    fn report(&mut self, status: &ReflectorStatus) {
        State::report(&self.state, status);
    }
}

impl<K: Object> Drop for StoreWriter<K> {
    fn drop(&mut self) {
        State::end(&self.state, None);
    }
}

impl<K: Object> fmt::Debug for StoreWriter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreWriter")
            .field("position", &self.guard.position())
            .finish_non_exhaustive()
    }
}

impl<K: Object> fmt::Debug for Staging<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}
