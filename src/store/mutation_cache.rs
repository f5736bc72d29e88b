//! The mutation cache: overlays a store with the program's own writes until the watch has brought
//! them (MX-4).

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::error::{Error, ErrorKind, debug_of};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject, numeric_order};
use crate::setters::setters;
use crate::store::Store;
use crate::store::state::StoreContent;
use crate::sync::{Arc, Mutex, Rank};

/// Options of a [`MutationCache`]. Start from the default and change what you need.
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a cache is made with them"]
pub struct MutationCacheOptions {
    ttl: Duration,
    capacity: usize,
}

setters! { [] MutationCacheOptions;
    /// Sets how long the cache shows a write that the watch does not bring. Default: 5 minutes.
    ///
    /// This matters only if the watch stands still for that long, or the server went back in time.
    /// Otherwise the cache drops a write as soon as the store has caught up with it.
    ttl(ttl: Duration);

    /// Sets how many writes the cache keeps. Beyond that it drops the oldest. Default: 100.
    capacity(capacity: usize);
}

impl Default for MutationCacheOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(5 * 60),
            capacity: 100,
        }
    }
}

/// Reads a [`Store`] and shows the program's own writes at once, before the watch brings them.
///
/// After a create, update or patch, the program passes the server's answer to
/// [`mutated`](Self::mutated); after a delete, it calls [`deleted`](Self::deleted). Reads through
/// the cache then show that state until the store's version has reached the write's. So the cache
/// never shows a write after the store has learned of the object's end, nor once the store is past
/// it. Reads of the store itself do not change. The cache also shows a write outside the store's
/// scope for that time.
///
/// Share it behind an `Arc`. It never blocks on the network and has no thread. Index functions run
/// on the caller's thread, without a lock. A program that must not act before the store itself has
/// its writes, and those of others until then, waits instead: for one version with
/// [`Store::wait_until_at_least`](crate::store::Store::wait_until_at_least), for all that it wrote
/// for an owner with a [`WriteFence`](crate::fence::WriteFence).
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::store::{Indexers, MutationCache, MutationCacheOptions, Store};
/// use kubecache::testing::objects;
///
/// let (store, _writer) = Store::new(Indexers::<ConfigMap>::new().by_namespace(), Clock::system());
/// let cache = MutationCache::new(store.clone(), MutationCacheOptions::default());
///
/// // What the server answered to the program's own PUT.
/// cache.mutated(objects::config_map("shop", "settings", "42", &[("tax", "7")]))?;
/// assert!(cache.get("shop", "settings")?.is_some(), "one's own write is there at once");
/// assert_eq!(cache.by_index("namespace", "shop")?.len(), 1);
/// assert!(store.get("shop", "settings")?.is_none(), "the watch has not brought it yet");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
pub struct MutationCache<K: Object> {
    store: Store<K>,
    options: MutationCacheOptions,
    /// The own writes, at most one per key, oldest first.
    own: Mutex<Vec<Arc<Write<K>>>>,
}

/// One own write.
struct Write<K: Object> {
    key: Arc<ObjectKey>,
    uid: Box<str>,
    /// The version of the written object, or of the deleted one before its deletion.
    version: ResourceVersion,
    /// `None` if it was deleted.
    object: Option<Arc<StoredObject<K>>>,
    /// When the program handed it in.
    at: Instant,
}

impl<K: Object> MutationCache<K> {
    /// Makes a cache over `store`, without any write. It uses the store's clock.
    pub fn new(store: Store<K>, options: MutationCacheOptions) -> Self {
        Self {
            store,
            options,
            own: Mutex::ranked(Rank::OWN_WRITES, Vec::new()),
        }
    }

    /// Returns the store, without the program's own writes.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Shows `object`, the server's answer to the program's own create, update or patch, until the
    /// store has caught up.
    ///
    /// The program may pass answers in any order: an older one replaces neither a newer one nor the
    /// same object's end. The cache ignores an answer that the store is already past. As in every
    /// cache of this crate, `managedFields` and the last-applied annotation are left out.
    ///
    /// # Errors
    ///
    /// `Config` if the object's `metadata.resourceVersion` is not a number, because the cache could
    /// not tell when the store has caught up. (client-go panics.)
    #[doc(alias = "Mutation")]
    pub fn mutated(&self, object: K) -> Result<(), Error> {
        let mut object = StoredObject::new(object);
        object.inner_mut().trim();
        let key = object.key();
        let version = object.resource_version();
        if version.numeric_order(&version).is_none() {
            let text = format!(
                "{} {key}: metadata.resourceVersion {:?} is not a number; hand in what the server \
                 answered",
                K::resource().kind(),
                version.as_str()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        let object = Arc::new(object);
        self.put(key, object.uid(), version, Some(Arc::clone(&object)));
        Ok(())
    }

    /// Hides an object that the program has deleted, until the store has learned of that. `last` is
    /// the last state that the program knows. Its uid and version distinguish it from other objects
    /// of that name.
    ///
    /// Call it after a complete deletion. While finalizers or a grace period keep the object, pass
    /// the server's answer to [`mutated`](Self::mutated) instead. The cache does not hide a new
    /// object of that name. (client-go has no such method.)
    pub fn deleted(&self, last: &K) {
        self.put(last.key(), last.uid(), last.resource_version(), None);
    }

    /// Returns how many own writes the cache still shows, because the store has not caught up with
    /// them.
    pub fn pending(&self) -> usize {
        let writes = self.writes();
        let is_pending =
            |state: &StoreContent<K>| writes.iter().filter(|write| !write.is_past(state)).count();
        self.store.look(is_pending)
    }

    /// Returns the object of that name, in the state of the program's own write if the store has
    /// not caught up.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    #[doc(alias = "GetByKey")]
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let is_it = |key: &ObjectKey| key.namespace() == namespace && key.name() == name;
        let mut writes = self.writes();
        writes.retain(|write| is_it(&write.key));
        if let Some(write) = writes.first() {
            if self.store.look(|state| write.is_ahead_of(state)) {
                return Ok(write.object.clone());
            }
            self.forget_past(&writes);
        }
        self.store.get(namespace, name)
    }

    /// Returns every object that decodes, including the program's own writes, in no particular
    /// order.
    pub fn list(&self) -> Vec<Arc<StoredObject<K>>> {
        let base = |state: &StoreContent<K>| {
            let all = state.items.snapshot();
            move || Ok(all.objects())
        };
        let all = self.read(base, |_own| true);
        // Without an index, none can be unknown.
        all.unwrap_or_default()
    }

    /// Returns the objects that an index lists under a value, with the program's own writes under
    /// their new values.
    ///
    /// # Errors
    ///
    /// `Config` for an unknown index, as [`Store::by_index`]. In client-go a cache may lack
    /// indices.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let functions = self
            .store
            .look(|state| Arc::clone(state.indices.functions()));
        let base = |state: &StoreContent<K>| {
            let found = state.by_values(index, &[value]);
            move || found
        };
        self.read(base, |own| {
            let values = functions.values_in(index, own);
            // An object at which the function panics is not listed by the store's own indices
            // either (IX-6). The error of an unknown index comes from `base`.
            values.is_ok_and(|values| values.iter().any(|known| known == value))
        })
    }

    /// The store's objects, where own writes that `fits` replace the states that they overtake.
    /// What `base` returns is called without the store's lock.
    fn read<F: FnOnce() -> Result<Vec<Arc<StoredObject<K>>>, Error>>(
        &self,
        base: impl Fn(&StoreContent<K>) -> F,
        fits: impl Fn(&K) -> bool,
    ) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let writes = self.writes();
        let (objects, ahead) = self.store.look(|state| {
            let ahead = writes.iter().map(|write| write.is_ahead_of(state));
            let ahead: Vec<bool> = ahead.collect();
            (base(state), ahead)
        });
        let mut objects = objects()?;
        self.forget_past(&writes);
        let ahead = writes.iter().zip(ahead).filter(|(_, ahead)| *ahead);
        let ahead = ahead.map(|(write, _)| (Arc::clone(&write.key), &write.object));
        let own: HashMap<_, _> = ahead.collect();
        objects.retain(|object| !own.contains_key(&KeyRef::of::<K>(object)));
        let own = own.into_values().flatten().filter(|object| fits(object));
        objects.extend(own.map(Arc::clone));
        Ok(objects)
    }

    fn put(
        &self,
        key: ObjectKey,
        uid: &str,
        version: ResourceVersion,
        object: Option<Arc<StoredObject<K>>>,
    ) {
        let write = Write {
            key: Arc::new(key),
            uid: uid.into(),
            version,
            object,
            at: self.store.clock().now(),
        };
        if self.store.look(|state| write.is_past(state)) {
            return;
        }
        let mut own = self.own.lock();
        let mut kept = self.young(&own);
        let held = kept.iter().position(|held| held.key == write.key);
        if held.is_some_and(|held| kept.get(held).is_some_and(|held| !write.follows(held))) {
            return;
        }
        kept.retain(|held| held.key != write.key);
        kept.push(Arc::new(write));
        let excess = kept.len().saturating_sub(self.options.capacity);
        kept.drain(..excess);
        let before = std::mem::replace(&mut *own, kept);
        drop(own);
        // The drop of an object overwrites its secrets, so it must not happen under the lock.
        drop(before);
    }

    /// The writes that are not too old to be shown.
    fn writes(&self) -> Vec<Arc<Write<K>>> {
        self.young(&self.own.lock())
    }

    fn young(&self, own: &[Arc<Write<K>>]) -> Vec<Arc<Write<K>>> {
        let now = self.store.clock().now();
        let is_young =
            |write: &&Arc<Write<K>>| now.saturating_duration_since(write.at) <= self.options.ttl;
        own.iter().filter(is_young).map(Arc::clone).collect()
    }

    /// Drops the writes that the store has caught up with, unless others have replaced them. The
    /// caller still shares them, so their memory is freed without the lock.
    fn forget_past(&self, writes: &[Arc<Write<K>>]) {
        let mut past = writes.to_vec();
        self.store
            .look(|state| past.retain(|write| write.is_past(state)));
        let is_past = |write: &Arc<Write<K>>| past.iter().any(|past| Arc::ptr_eq(past, write));
        if !past.is_empty() {
            self.own.lock().retain(|write| !is_past(write));
        }
    }
}

impl<K: Object> Write<K> {
    /// Whether the store has not reached this write yet, so that reads show it.
    fn is_ahead_of(&self, store: &StoreContent<K>) -> bool {
        let held = store.items.get(&KeyRef::from(&*self.key));
        let held = held.map(|held| held.item.identity());
        if self.object.is_none() {
            // An older state of the object, or of an earlier one of that name.
            return held.is_some_and(|(uid, by)| {
                *uid == *self.uid || self.order_of(by) == Some(Ordering::Less)
            });
        }
        let is_there = held.is_some_and(|(_, by)| self.is_reached(by));
        !is_there && !self.is_reached(store.guard.position().as_str())
    }

    /// Whether the store is past this write for good. A store that has not reached a deleted
    /// object's version may still bring it.
    fn is_past(&self, store: &StoreContent<K>) -> bool {
        let is_reached = || self.is_reached(store.guard.position().as_str());
        !self.is_ahead_of(store) && (self.object.is_some() || is_reached())
    }

    fn is_reached(&self, by: &str) -> bool {
        self.order_of(by).is_some_and(Ordering::is_ge)
    }

    fn order_of(&self, version: &str) -> Option<Ordering> {
        numeric_order(version, self.version.as_str())
    }

    /// Whether this write came after `before`, as far as the two tell.
    fn follows(&self, before: &Self) -> bool {
        let is_newer = !self.version.is_older_than(&before.version);
        match (&before.object, &self.object) {
            (Some(_), Some(_)) | (None, None) => is_newer,
            (None, Some(_)) => self.uid != before.uid && is_newer,
            (Some(_), None) => {
                self.uid == before.uid || before.version.is_older_than(&self.version)
            }
        }
    }
}

debug_of!([K: Object] MutationCache<K>, |it| store: it.store, pending: it.pending(), ..);
