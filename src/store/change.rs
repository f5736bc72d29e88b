//! What a writer says of each change it made: for the informer that tells handlers of them.

use crate::clock::Clock;
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::object::{KeyRef, Object, ObjectKey, StoredObject};
use crate::reflector::{Demand, Replacement};
use crate::store::index::Indexers;
use crate::store::reader::Store;
use crate::store::state::{Content, Entry, State};
use crate::store::writer::{Staging, StoreWriter};
use crate::sync::{Arc, Monitor};

/// What became of one object, by the last states of it that decode: what somebody who follows the store knows of it.
///
/// An object that does not decode stays what it last was, until it decodes again or goes (B12).
pub(crate) enum Change<K: Object> {
    /// It was not known, and is.
    Appeared(Arc<StoredObject<K>>),
    /// It is in a new state, or was put in once more as it is.
    Changed {
        old: Arc<StoredObject<K>>,
        new: Arc<StoredObject<K>>,
    },
    /// It was known, and is not any more.
    Gone(Arc<StoredObject<K>>),
}

impl<K: Object> Change<K> {
    fn of(before: Option<&Content<K>>, after: Option<&Content<K>>) -> Option<Self> {
        let old = before.and_then(Content::last_good).map(Arc::clone);
        let new = after.and_then(Content::last_good).map(Arc::clone);
        let decodes = after.is_some_and(|after| after.object().is_some());
        match (old, new) {
            (Some(old), Some(new)) => decodes.then_some(Self::Changed { old, new }),
            (None, Some(new)) => Some(Self::Appeared(new)),
            (Some(old), None) => Some(Self::Gone(old)),
            (None, None) => None,
        }
    }
}

/// Ends the waits on a store whose writer is on another thread.
pub(crate) struct Reporter<K: Object>(Arc<Monitor<State<K>>>);

impl<K: Object> Reporter<K> {
    /// Ends every wait on the store, although its writer may be held up: `cause` is what ended it, if nobody asked.
    pub(crate) fn end(&self, cause: Option<Error>) {
        State::end(&self.0, cause);
    }
}

impl<K: Object> Clone for Reporter<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Object> Store<K> {
    /// As [`new`](Store::new), for a store of an informer: with a name for errors, and the demand of the queue before it.
    pub(crate) fn behind(
        name: Arc<str>,
        demand: Demand,
        indexers: Indexers<K>,
        clock: Clock,
    ) -> (Self, StoreWriter<K>) {
        let (mut store, writer) = Self::new(indexers, clock);
        store.of_informer(name, demand);
        (store, writer)
    }

    /// The last state that decodes of every object that has one.
    pub(crate) fn last_good_of_all(&self) -> Vec<Arc<StoredObject<K>>> {
        self.look(|state| {
            let entries = state.items.values();
            let last_good = entries.filter_map(|entry| entry.content.last_good());
            last_good.map(Arc::clone).collect()
        })
    }
}

impl<K: Object> StoreWriter<K> {
    /// What ends the waits on the store.
    pub(crate) fn reporter(&self) -> Reporter<K> {
        Reporter(Arc::clone(self.shared()))
    }

    /// Applies one event of the watch, and says what it changed; nothing if it was refused (B18).
    pub(crate) fn apply_and_tell(&mut self, event: ObjectEvent<K>) -> Option<Change<K>> {
        let ObjectEvent { kind, object } = event;
        if kind == EventKind::Deleted {
            let version = object.resource_version();
            let gone = self.delete(&object.key(), object.uid(), &version);
            return Self::gone(gone);
        }
        let (key, content) = self.content(object);
        self.put_and_tell(key, &content)
    }

    /// Replaces the whole content, and says what that changed: first what is gone, then the items
    /// in the list's order (CT-6).
    ///
    /// # Errors
    ///
    /// As [`commit`](crate::reflector::Sink::commit).
    pub(crate) fn commit_and_tell(
        &mut self,
        mut staging: Staging<K>,
        of: &Replacement,
    ) -> Result<Vec<Change<K>>, Error> {
        let listed = staging.take_order();
        let before = self.replace(staging, of)?;
        let state = self.shared().lock();
        let of_listed = listed.iter().filter_map(|key| {
            let key = KeyRef::from(&**key);
            let before = before.get(&key).map(|entry| &entry.content);
            Change::of(before, state.get(&key).map(|entry| &entry.content))
        });
        let gone = before
            .iter()
            .filter(|(key, _)| !state.items.contains_key(*key));
        let of_gone = gone.filter_map(|(_, entry)| Change::of(Some(&entry.content), None));
        let changes = of_gone.chain(of_listed).collect();
        drop(state);
        Ok(changes)
    }

    fn content(&self, object: Listed<K>) -> (ObjectKey, Content<K>) {
        match object {
            Listed::Object(object) => (object.key(), Content::Object(object)),
            Listed::Undecodable(why) => self.set_aside(why),
        }
    }

    fn put_and_tell(&mut self, key: ObjectKey, content: &Content<K>) -> Option<Change<K>> {
        let before = self.put(key, content).ok()?;
        Change::of(before.map(|entry| entry.content).as_ref(), Some(content))
    }

    fn gone(entry: Option<Entry<K>>) -> Option<Change<K>> {
        Change::of(entry.map(|entry| entry.content).as_ref(), None)
    }
}
