//! What a writer says of each change it made: for the informer that tells handlers of them.

use crate::clock::Clock;
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::object::{Held, KeyRef, Object, ObjectKey, ResourceVersion};
use crate::reflector::{Demand, ReflectorStatus, Replacement, Sink as _};
use crate::store::index::Indexers;
use crate::store::reader::Store;
use crate::store::state::{Content, Entry, State};
use crate::store::writer::{Rule, Staging, StoreWriter};
use crate::sync::{Arc, Monitor};

/// What became of one object, by the last states of it that decode: what somebody who follows the store knows of it.
///
/// An object that does not decode stays what it last was, until it decodes again or goes (B12).
pub(crate) enum Change<K: Object> {
    /// It was not known, and is.
    Appeared(Arc<Held<K>>),
    /// It is in a new state, or was put in once more as it is.
    Changed {
        old: Arc<Held<K>>,
        new: Arc<Held<K>>,
    },
    /// It was known, and is not any more.
    Gone(Arc<Held<K>>),
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

/// Passes a reflector's status on to the readers of a store whose writer is on another thread.
pub(crate) struct Reporter<K: Object>(Arc<Monitor<State<K>>>);

impl<K: Object> Reporter<K> {
    pub(crate) fn report(&self, status: &ReflectorStatus) {
        State::report(&self.0, status);
    }

    /// A list was refused before it came to the store (B18).
    pub(crate) fn count_refusal(&self) {
        self.0.lock().count_refusal();
    }

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
}

impl<K: Object> StoreWriter<K> {
    /// What tells the store's readers how the reflector is.
    pub(crate) fn reporter(&self) -> Reporter<K> {
        Reporter(Arc::clone(self.shared()))
    }

    /// Applies one event of the watch, and says what it changed; nothing if it was refused (B18).
    ///
    /// `advances` says whether everything before the event is here, so that the content is at its version.
    pub(crate) fn apply_and_tell(
        &mut self,
        event: ObjectEvent<K>,
        advances: bool,
    ) -> Option<Change<K>> {
        let rule = Rule::Event { advances };
        let ObjectEvent { kind, object } = event;
        if kind == EventKind::Deleted {
            let version = object.resource_version();
            let gone = self.delete(&object.key(), object.uid(), &version, rule);
            return Self::gone(gone);
        }
        let (key, content) = self.content(object);
        self.put_and_tell(key, &content, rule)
    }

    /// Whether a list may change the content, item by item from now on (B18); ask once per list.
    ///
    /// One that goes back in time leaves the content at no version to wait for, until it is whole.
    pub(crate) fn admits(&mut self, of: &Replacement) -> bool {
        let content = self.shared().lock().resource_version.clone();
        let goes_back = of.resource_version.is_older_than(&content);
        if let Err(error) = self.admits_list(of, goes_back) {
            log::debug!("{} list refused: {error}", K::KIND);
            return false;
        }
        if goes_back {
            self.shared().lock().resource_version = ResourceVersion::any();
        }
        true
    }

    /// Puts in one item of a list that [`admits`](Self::admits) let pass. The content's version stays.
    pub(crate) fn put_listed(&mut self, item: Listed<K>) -> Option<Change<K>> {
        let (key, content) = self.content(item);
        self.put_and_tell(key, &content, Rule::Listed)
    }

    /// Takes out one object that such a list goes without.
    pub(crate) fn remove_unlisted(
        &mut self,
        key: &ObjectKey,
        of: &Replacement,
    ) -> Option<Change<K>> {
        Self::gone(self.delete_unlisted(key, of))
    }

    /// As [`commit_and_tell`](Self::commit_and_tell), of a list that was not staged: first what is gone.
    pub(crate) fn replace_and_tell(
        &mut self,
        items: Vec<Listed<K>>,
        of: &Replacement,
    ) -> Result<Vec<Change<K>>, Error> {
        let mut staging = self.begin();
        for item in items {
            self.stage(&mut staging, ObjectEvent::added(item));
        }
        let mut changes = self.commit_and_tell(staging, of)?;
        changes.sort_by_key(|change| !matches!(change, Change::Gone(_)));
        Ok(changes)
    }

    /// Replaces the whole content, and says what that changed: first the items in the list's order, then what is gone.
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
        let changes = of_listed.chain(of_gone).collect();
        drop(state);
        Ok(changes)
    }

    /// Everything up to `version` is applied.
    pub(crate) fn come_to(&mut self, version: &ResourceVersion) {
        self.shared().lock().advance(version);
        self.shared().notify_all();
    }

    /// A list, or what came after one, is applied to its end: the content is whole, and at `version` (ST-9, RF-27).
    ///
    /// Says whether that is back in time: only the list of a server that went back may do so. A list of which nothing is to
    /// be done has no other word than this (B18).
    pub(crate) fn settle(&mut self, version: &ResourceVersion) -> bool {
        let mut state = self.shared().lock();
        let went_back = version.is_older_than(&state.resource_version);
        state.synced = true;
        if went_back {
            state.resource_version = version.clone();
        } else {
            state.advance(version);
        }
        drop(state);
        self.shared().notify_all();
        self.settle_floor(version, went_back);
        went_back
    }

    /// The last state that decodes of every object that has one.
    pub(crate) fn last_good_of_all(&self) -> Vec<Arc<Held<K>>> {
        let state = self.shared().lock();
        let entries = state.items.values();
        let last_good = entries.filter_map(|entry| entry.content.last_good());
        last_good.map(Arc::clone).collect()
    }

    fn content(&self, object: Listed<K>) -> (ObjectKey, Content<K>) {
        match object {
            Listed::Object(object) => (object.key(), Content::Object(object)),
            Listed::Undecodable(why) => self.set_aside(why),
        }
    }

    fn put_and_tell(
        &mut self,
        key: ObjectKey,
        content: &Content<K>,
        rule: Rule,
    ) -> Option<Change<K>> {
        let before = self.put(key, content, rule).ok()?;
        Change::of(before.map(|entry| entry.content).as_ref(), Some(content))
    }

    fn gone(entry: Option<Entry<K>>) -> Option<Change<K>> {
        Change::of(entry.map(|entry| entry.content).as_ref(), None)
    }
}
