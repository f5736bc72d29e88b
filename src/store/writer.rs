//! The only writer of a store: a sink for a reflector. Dropping it ends every wait on the store.

use hashbrown::HashSet;

use crate::error::{Error, debug_of};
use crate::list_watch::{Bound, EventKind, Listed, ObjectEvent};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject, is_same_state};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::store::index::Indexers;
use crate::store::items::{Items, StoreEntry};
use crate::store::state::{Applied, Change, StoreContent, index};
use crate::sync::{Arc, Monitor};

/// The writing side of a [`Store`](crate::store::Store): exclusive, and a [`Sink`].
///
/// It refuses, and counts, an event that would make an object older. It refuses further objects
/// beyond the [maximum](crate::list_watch::ListerWatcher::objects_max), but applies every change of
/// objects that it holds. Dropping the writer keeps the content and ends every wait with an error.
pub struct StoreWriter<K: Object> {
    state: Arc<Monitor<StoreContent<K>>>,
    /// A copy from the state, because index functions run outside the lock.
    functions: Arc<Indexers<K>>,
    push: Option<Push<K>>,
}

/// The function that gets the whole list after each change.
type Push<K> = Box<dyn FnMut(Vec<Arc<StoredObject<K>>>) + Send>;

/// New content for a store, not yet visible to readers. A drop leaves the old content.
///
/// It shares the unchanged objects with the content that it will replace.
pub struct Staging<K: Object> {
    items: Items<K>,
    /// The keys in the order of their first arrival, including those taken back.
    order: Vec<Arc<ObjectKey>>,
    functions: Arc<Indexers<K>>,
    /// New objects may come beside held ones: only a complete list shows which objects it lacks.
    bound: Bound,
}

impl<K: Object> StoreWriter<K> {
    pub(super) fn new(state: Arc<Monitor<StoreContent<K>>>, functions: Arc<Indexers<K>>) -> Self {
        Self {
            state,
            functions,
            push: None,
        }
    }

    /// Makes a sink of this writer that also calls `push` with the whole list after each change.
    /// This suits programs that work on "all pods of this node" instead of single events, like the
    /// kubelet's source of pods.
    ///
    /// The reflector's thread calls the function without a lock, after every list and every event
    /// that was not refused. It passes the objects that decode, in no particular order. Bookmarks,
    /// reads and failures push nothing. Pushes come in the order of the changes, each with exactly
    /// the content after its change. (In client-go, writers can push the same state twice, or an
    /// older one after a newer one.)
    ///
    /// The function holds up the watch while it runs, and the cost of a push grows with the number
    /// of objects. Pass the list to another thread if the work is long. If the function panics, the
    /// reflector ends, and every wait on the store ends with an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kubecache::clock::Clock;
    /// use kubecache::reflector::{Reflector, ReflectorOptions};
    /// use kubecache::store::{Indexers, Store};
    /// use kubecache::testing::{FakeSource, objects};
    ///
    /// let source = FakeSource::<Pod>::new();
    /// source.set(objects::pod("shop", "web-0", "node-1", &[], &[]));
    ///
    /// let (pushes, all_pods) = std::sync::mpsc::channel();
    /// let (store, writer) = Store::new(Indexers::new(), Clock::system());
    /// let writer = writer.with_snapshots(move |pods| drop(pushes.send(pods)));
    /// let options = ReflectorOptions::default().waiters(store.waiters());
    /// let reflector = Reflector::spawn("pods", Arc::new(source.clone()), writer, options)?;
    ///
    /// assert_eq!(all_pods.recv().map(|pods| pods.len()), Ok(1));
    /// source.set(objects::pod("shop", "web-1", "node-1", &[], &[]));
    /// assert_eq!(all_pods.recv().map(|pods| pods.len()), Ok(2));
    /// # drop(reflector);
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "UndeltaStore")]
    pub fn with_snapshots(
        mut self,
        push: impl FnMut(Vec<Arc<StoredObject<K>>>) + Send + 'static,
    ) -> Self {
        self.push = Some(Box::new(push));
        self
    }

    fn push(&mut self) {
        if let Some(push) = &mut self.push {
            let snapshot = self.state.lock().items.snapshot();
            push(snapshot.objects());
        }
    }

    /// The held object, if the listed one is the same state.
    pub(crate) fn unchanged(&self, item: &Listed<K>) -> Option<Arc<StoredObject<K>>> {
        let state = self.state.lock();
        let held = state.items.get(&item.key_ref())?.object()?;
        is_same_state::<K>(item.decoded()?, held).then(|| Arc::clone(held))
    }

    /// Applies one event of the watch, and returns the outcome.
    pub(crate) fn apply_and_tell(&mut self, event: ObjectEvent<K>) -> Applied<K> {
        let ObjectEvent { kind, object } = event;
        let (applied, before) = if kind == EventKind::Deleted {
            self.state.lock().delete(&object)
        } else {
            let mut values = self.functions.values(&object);
            let mut state = self.state.lock();
            while !Arc::ptr_eq(state.indices.functions(), &self.functions) {
                self.functions = Arc::clone(state.indices.functions());
                drop(state);
                values = self.functions.values(&object);
                state = self.state.lock();
            }
            let (applied, before) = state.put(object, values);
            // A change of an object that was left out does not count again.
            let is_further = kind == EventKind::Added || state.bound.left_out == 0;
            let is_left_out = is_further && matches!(applied, Applied::NoRoom);
            state.bound.leave_out(usize::from(is_left_out));
            (applied, before)
        };
        self.state.notify_all();
        // The drop of objects overwrites their secrets, so it must not happen under the lock.
        drop(before);
        applied
    }

    /// Replaces the whole content, and returns the changes: first the deletions, then the others in
    /// the list's order (CT-6).
    ///
    /// # Errors
    ///
    /// As [`commit`](crate::reflector::Sink::commit).
    pub(crate) fn commit_and_tell(
        &mut self,
        mut staging: Staging<K>,
        of: &Replacement,
    ) -> Result<Vec<Change<K>>, Error> {
        drop(self.fit(&mut staging));
        let mut listed = std::mem::take(&mut staging.order);
        if listed.len() != staging.items.len() {
            // A streamed list may have taken objects back and brought them again.
            let mut known = HashSet::new();
            listed.retain(|key| staging.items.contains_key(key) && known.insert(Arc::clone(key)));
        }
        let before = self.replace(staging, of)?;
        let state = self.state.lock();
        let change = |key| Change::of(before.get(key), state.items.get(key));
        let ends = before.keys().filter_map(|key| change(key)?.end());
        let news = listed.iter().filter_map(|key| change(key)?.news());
        Ok(ends.chain(news).collect())
    }

    /// Removes new objects, the last ones first, down to the bound.
    fn fit(&self, staging: &mut Staging<K>) -> Vec<StoreEntry<K>> {
        let state = self.state.lock();
        let over = staging.items.len().saturating_sub(state.bound.max);
        let last = staging.order.iter().rev();
        let new = last.filter(|key| !state.items.contains_key(*key));
        let taken = new.filter_map(|key| staging.items.take(&KeyRef::from(&**key)));
        let taken = taken.map(|(_, entry)| entry);
        let taken: Vec<_> = taken.take(over).collect();
        staging.bound.leave_out(taken.len());
        taken
    }

    /// Makes the staged objects the content, and returns the old content.
    fn replace(&mut self, mut staging: Staging<K>, of: &Replacement) -> Result<Items<K>, Error> {
        let (before, indices) = loop {
            let indices = index(&staging.items, &staging.functions);
            let mut state = self.state.lock();
            if Arc::ptr_eq(state.indices.functions(), &staging.functions) {
                state.guard.admits_replacement(of)?;
                state.bound.left_out = staging.bound.left_out;
                state.synced = true;
                state.copies.take_back_all();
                let before = std::mem::replace(&mut state.items, staging.items);
                break (before, std::mem::replace(&mut state.indices, indices));
            }
            // An index was added while this was staged.
            staging.functions = Arc::clone(state.indices.functions());
            drop(state);
            for (_, entry) in staging.items.entries_mut() {
                entry.values = staging.functions.values(&entry.item);
            }
        };
        self.state.notify_all();
        drop(indices);
        Ok(before)
    }
}

impl<K: Object> Sink<K> for StoreWriter<K> {
    type Staging = Staging<K>;

    fn begin(&mut self) -> Staging<K> {
        let state = self.state.lock();
        self.functions = Arc::clone(state.indices.functions());
        Staging {
            items: Items::default(),
            order: Vec::new(),
            functions: Arc::clone(&self.functions),
            bound: Bound::new(state.bound.max.saturating_add(state.items.len())),
        }
    }

    fn stage(&mut self, staging: &mut Staging<K>, event: ObjectEvent<K>) {
        let mut item = event.object;
        if event.kind == EventKind::Deleted {
            staging.items.take(&item.key_ref());
            return;
        }
        if let Some(held) = self.unchanged(&item) {
            item = Listed::Object(held);
        }
        let held = {
            let state = self.state.lock();
            let held = state.items.get_key_value(&item.key_ref());
            held.map(|(key, held)| (Arc::clone(key), held.last_good_of(&item)))
        };
        let has_room = staging.bound.has_room(staging.items.len());
        if !has_room && held.is_none() && !staging.items.contains_key(&item.key_ref()) {
            staging.bound.leave_out(1);
            return;
        }
        let (key, last_good) = held.unwrap_or_else(|| (Arc::new(item.key()), None));
        let values = staging.functions.values(&item);
        let entry = StoreEntry::new(item, last_good, values);
        if staging.items.put(Arc::clone(&key), entry).is_none() {
            staging.order.push(key);
        }
    }

    fn commit(&mut self, mut staging: Staging<K>, of: &Replacement) -> Result<(), Error> {
        drop(self.fit(&mut staging));
        drop(self.replace(staging, of)?);
        self.push();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        if let Applied::Accepted(_) = self.apply_and_tell(event) {
            self.push();
        }
        Ok(())
    }

    fn bound(&mut self, objects_max: usize) {
        self.state.lock().bound.max = objects_max;
    }

    fn left_out(&self) -> usize {
        self.state.lock().bound.left_out
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.state.lock().guard.raise(version);
        self.state.notify_all();
    }

    fn report(&mut self, status: &ReflectorStatus) {
        StoreContent::report(&self.state, status);
    }
}

impl<K: Object> Drop for StoreWriter<K> {
    fn drop(&mut self) {
        StoreContent::end(&self.state, None);
    }
}

debug_of!([K: Object] StoreWriter<K>, |_it| ..);

debug_of!([K: Object] Staging<K>, |it| items: it.items.len(), ..);
