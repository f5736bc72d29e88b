//! The mutation cache: a store with the program's own writes laid over it until the watch has
//! brought them (MX-4).

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::error::{Error, ErrorKind, debug_of};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject, numeric_order};
use crate::setters::setters;
use crate::store::Store;
use crate::store::state::StoreContent;
use crate::sync::{Arc, Mutex, Rank};

/// Options of a [`MutationCache`]; start from the default and set what differs.
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a cache is made with them"]
pub struct MutationCacheOptions {
    ttl: Duration,
    capacity: usize,
}

setters! { [] MutationCacheOptions;
    /// How long the cache shows a write that the watch does not bring. Default 5 minutes.
    ///
    /// Only a watch that stands still for so long, or a server that went back in time, makes this
    /// matter: a write is dropped as soon as the store has caught up with it.
    ttl(ttl: Duration);

    /// How many writes are kept; beyond it the oldest is dropped. Default 100.
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

/// Reads of a [`Store`] that see the program's own writes at once, before the watch brings them.
///
/// After a create, update or patch the program hands in the server's answer
/// ([`mutated`](Self::mutated)); after a delete it says so ([`deleted`](Self::deleted)). Reads
/// through the cache then show that state until the store has it or something newer: until the
/// store's version has reached the write's. So a write is never shown after the store has learned
/// of the object's end, and never again once the store is past it. Reads of the store itself do not
/// change. A write that the store's scope leaves out is shown as long.
///
/// Share it behind an `Arc`. Nothing blocks on the network, no thread runs, index functions run on
/// the caller's thread under no lock. To wait for the store itself instead, use
/// [`Store::wait_until_at_least`](crate::store::Store::wait_until_at_least).
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
    /// The own writes, one of a key at most, the oldest first.
    own: Mutex<Vec<Arc<Write<K>>>>,
}

/// One own write.
struct Write<K: Object> {
    key: Arc<ObjectKey>,
    uid: Box<str>,
    /// Of the object as it was written, or as it was before its deletion.
    version: ResourceVersion,
    /// `None` if it was deleted.
    object: Option<Arc<StoredObject<K>>>,
    /// When it was handed in.
    at: Instant,
}

impl<K: Object> MutationCache<K> {
    /// Makes a cache over `store` without any write. Time is that of the store's clock.
    pub fn new(store: Store<K>, options: MutationCacheOptions) -> Self {
        Self {
            store,
            options,
            own: Mutex::ranked(Rank::OWN_WRITES, Vec::new()),
        }
    }

    /// The store without the program's own writes.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Shows `object`, the server's answer to a create, update or patch of the program's own, until
    /// the store has caught up.
    ///
    /// Answers may be handed in in any order: an older one does not take a newer one's place, nor
    /// that of the same object's end. One that the store already is past is not kept. As in every
    /// cache of this crate, `managedFields` and the last-applied annotation are left out.
    ///
    /// # Errors
    ///
    /// `Config` if the object's `metadata.resourceVersion` is not a number: nothing says then when
    /// the store has caught up. (Panics in client-go.)
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

    /// Hides the object that the program has deleted, until the store has learned of it. `last` is
    /// the last state the program knows. Its uid and version tell it from other objects of the
    /// name.
    ///
    /// For a deletion that is complete; while finalizers or a grace period keep the object, hand in
    /// the server's answer by [`mutated`](Self::mutated). An object made anew under the name is not
    /// hidden. (client-go's has no such thing.)
    pub fn deleted(&self, last: &K) {
        self.put(last.key(), last.uid(), last.resource_version(), None);
    }

    /// How many own writes the cache still shows, because the store has not caught up with them.
    pub fn pending(&self) -> usize {
        self.own.lock().len()
    }

    /// The object of that name, in the state of the program's own write if the store is not there
    /// yet.
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

    /// Every object that decodes, the program's own writes among them, in no particular order.
    pub fn list(&self) -> Vec<Arc<StoredObject<K>>> {
        let all = self.read(|state| Ok(state.list()), |_own| Ok(true));
        // Without an index there is none that could be unknown.
        all.unwrap_or_default()
    }

    /// The objects an index lists under a value, the program's own writes by the values they have
    /// now.
    ///
    /// # Errors
    ///
    /// `Config` for an unknown index, as [`Store::by_index`]; not as in client-go, where a cache
    /// may have been made without any.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let functions = self
            .store
            .look(|state| Arc::clone(state.indices.functions()));
        let base = |state: &StoreContent<K>| state.by_values(index, &[value]);
        self.read(base, |own| match functions.values_in(index, own) {
            Ok(values) => Ok(values.iter().any(|known| known == value)),
            // The store's indices do not list such an object either (IX-6).
            Err(error) if error.kind() == ErrorKind::Panicked => Ok(false),
            Err(unknown) => Err(unknown),
        })
    }

    /// Objects of the store with the own writes that `fits` in the place of what they overtake.
    fn read(
        &self,
        base: impl Fn(&StoreContent<K>) -> Result<Vec<Arc<StoredObject<K>>>, Error>,
        fits: impl Fn(&K) -> Result<bool, Error>,
    ) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let writes = self.writes();
        let (objects, ahead) = self.store.look(|state| {
            let ahead = writes.iter().map(|write| write.is_ahead_of(state));
            let ahead: Vec<bool> = ahead.collect();
            (base(state), ahead)
        });
        let mut objects = objects?;
        self.forget_past(&writes);
        let ahead = writes.iter().zip(ahead).filter(|(_, ahead)| *ahead);
        let own: HashMap<_, _> = ahead
            .map(|(write, _)| (Arc::clone(&write.key), &write.object))
            .collect();
        objects.retain(|object| !own.contains_key(&KeyRef::of::<K>(object)));
        for object in own.into_values().flatten() {
            if fits(object)? {
                objects.push(Arc::clone(object));
            }
        }
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
        // Objects overwrite their secrets when they are dropped: not under the lock.
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

    /// Drops those of the writes that the store has caught up with, unless others have taken their
    /// place. The caller still shares them, so that they end under no lock.
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
    /// Whether the store has not come to this write yet, so that reads show it.
    fn is_ahead_of(&self, store: &StoreContent<K>) -> bool {
        let held = store.items.get(&KeyRef::from(&*self.key));
        let held = held.map(|held| held.item.identity());
        if self.object.is_none() {
            // An older state of the object, or of another one that was there before it.
            return held.is_some_and(|(uid, by)| *uid == *self.uid || !self.is_reached(by));
        }
        let is_there = held.is_some_and(|(_, by)| self.is_reached(by));
        !is_there && !self.is_reached(store.guard.position().as_str())
    }

    /// Whether the store is past this write for good. One that has not come to where a deleted
    /// object was may bring it yet.
    fn is_past(&self, store: &StoreContent<K>) -> bool {
        let is_reached = || self.is_reached(store.guard.position().as_str());
        !self.is_ahead_of(store) && (self.object.is_some() || is_reached())
    }

    fn is_reached(&self, by: &str) -> bool {
        let order = numeric_order(by, self.version.as_str());
        order.is_some_and(std::cmp::Ordering::is_ge)
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
