//! The mutation cache: a store with the program's own writes laid over it until the watch has brought them (MX-4).

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::error::{Error, ErrorKind};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject};
use crate::store::Store;
use crate::store::index::values_of;
use crate::store::state::{Content, State};
use crate::sync::{Arc, Mutex, Rank};

/// Options of a [`MutationCache`]; start from the default and set what differs.
#[derive(Clone, Debug)]
pub struct MutationCacheOptions {
    ttl: Duration,
    capacity: usize,
}

impl MutationCacheOptions {
    /// How long a write is shown that the store does not bring. Default 5 minutes.
    ///
    /// Only a watch that stands still for so long, or a server that went back in time, makes this matter: a write is
    /// dropped as soon as the store has caught up with it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How many writes are kept; beyond it the oldest is dropped. Default 100.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }
}

impl Default for MutationCacheOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_mins(5),
            capacity: 100,
        }
    }
}

/// Reads of a [`Store`] that see the program's own writes at once, before the watch brings them (MX-4).
///
/// After a create, update or patch the program hands in the server's answer ([`mutated`](Self::mutated)); after a delete
/// it says so ([`deleted`](Self::deleted)). Reads through the cache then show that state until the store has it or
/// something newer: until the store's version has reached the write's. So a write is never shown after the store has
/// learned of the object's end, and never again once the store is past it. What others read of the store itself stays
/// as it is. A write that the store's scope leaves out is shown as long.
///
/// Share it behind an `Arc`. Nothing blocks on the network, no thread runs, index functions run on the caller's thread
/// under no lock. To wait for the store itself instead, use
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
    own: Mutex<Own<K>>,
}

/// One own write.
struct Write<K: Object> {
    state: Written<K>,
    /// When it was handed in.
    at: Instant,
    number: u64,
}

enum Written<K: Object> {
    Is(Arc<StoredObject<K>>, ResourceVersion),
    /// The object of that uid was deleted; its version when it was last known.
    Gone(Arc<str>, ResourceVersion),
}

/// The own writes, by key and by age.
struct Own<K: Object> {
    writes: HashMap<ObjectKey, Write<K>>,
    ages: BTreeMap<u64, ObjectKey>,
    next: u64,
}

impl<K: Object> MutationCache<K> {
    /// A cache over `store` that knows of no write yet. Time is that of the store's clock.
    pub fn new(store: Store<K>, options: MutationCacheOptions) -> Self {
        let own = Own {
            writes: HashMap::new(),
            ages: BTreeMap::new(),
            next: 0,
        };
        Self {
            store,
            options,
            own: Mutex::ranked(Rank::OWN_WRITES, own),
        }
    }

    /// The store below, as the watch left it.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Shows `object`, the server's answer to a create, update or patch of the program's own, until the store has caught up.
    ///
    /// Answers may be handed in in any order: an older one does not take a newer one's place, nor that of the same
    /// object's end. One that the store already is past is not kept. As in every cache of this crate,
    /// `managedFields` and the last-applied annotation are left out (B19).
    ///
    /// # Errors
    ///
    /// `Config` if the object's `metadata.resourceVersion` is not a number: nothing says then when the store has caught up.
    /// (Panics in client-go.)
    #[doc(alias = "Mutation")]
    pub fn mutated(&self, object: K) -> Result<(), Error> {
        let mut object = StoredObject::new(object);
        object.trim();
        let key = object.key();
        let version = object.resource_version();
        if version.numeric_order(&version).is_none() {
            let text = format!(
                "{} {key}: metadata.resourceVersion {:?} is not a number; hand in what the server answered",
                K::KIND,
                version.as_str()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        self.put(key, Written::Is(Arc::new(object), version));
        Ok(())
    }

    /// Hides the object that the program has deleted, until the store has learned of it; `last` is the last state the program
    /// knows of it, by whose uid and version it is told from others of its name.
    ///
    /// For a deletion that is complete; while finalizers or a grace period keep the object, hand in the server's answer by
    /// [`mutated`](Self::mutated). An object made anew under the name is not hidden. (client-go's has no such thing.)
    pub fn deleted(&self, last: &K) {
        let gone = Written::Gone(Arc::from(last.uid()), last.resource_version());
        self.put(last.key(), gone);
    }

    /// How many own writes are kept: those the store was not yet seen to have caught up with.
    pub fn pending(&self) -> usize {
        self.own.lock().writes.len()
    }

    /// The object of that name, in the state of the program's own write if the store is not there yet.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    #[doc(alias = "GetByKey")]
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let key = ObjectKey::new(namespace, name);
        let Some(write) = self.written(&key) else {
            return self.store.get(namespace, name);
        };
        let read = self.store.look(|state| {
            let held = state.get(&KeyRef { namespace, name });
            match write.state.shown(held.map(|entry| &entry.content), state) {
                Shown::Own(object) => Ok(object),
                Shown::Stores { for_good } => {
                    Err((held.map(|entry| entry.content.clone()), for_good))
                }
            }
        });
        match read {
            Ok(own) => Ok(own),
            Err((held, for_good)) => {
                if for_good {
                    self.forget(&[(key, write.number)]);
                }
                match held {
                    None => Ok(None),
                    Some(Content::Object(object)) => Ok(Some(object)),
                    Some(Content::Undecodable { why, .. }) => Err(why.error),
                }
            }
        }
    }

    /// Every object that decodes, the program's own writes among them, in no particular order.
    pub fn list(&self) -> Vec<Arc<StoredObject<K>>> {
        let base = |state: &State<K>| {
            let entries = state.items.values();
            let objects = entries.filter_map(|entry| entry.content.object().map(Arc::clone));
            Ok::<_, Error>(objects.collect())
        };
        // Without an index there is none that could be unknown.
        self.read(base, |_own| Ok(true)).unwrap_or_default()
    }

    /// The objects an index lists under a value, the program's own writes by the values they have now.
    ///
    /// # Errors
    ///
    /// `Config` for an unknown index, as [`Store::by_index`]; not as in client-go, where a cache may have been made without
    /// any.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let functions = self
            .store
            .look(|state| Arc::clone(state.indices.functions()));
        let base = |state: &State<K>| {
            let keys = state.indices.keys(index, &[value])?;
            let entries = keys.into_iter().filter_map(|key| state.items.get(key));
            let objects = entries.filter_map(|entry| entry.content.object().map(Arc::clone));
            Ok(objects.collect())
        };
        self.read(base, |own| {
            match values_of(&functions, index, own) {
                Ok(values) => Ok(values.iter().any(|known| known == value)),
                // The store's indices do not list such an object either (IX-6).
                Err(error) if error.kind() == ErrorKind::Panicked => Ok(false),
                Err(unknown) => Err(unknown),
            }
        })
    }

    /// Objects of the store with the own writes that `fits` in the place of what they overtake.
    fn read(
        &self,
        base: impl Fn(&State<K>) -> Result<Vec<Arc<StoredObject<K>>>, Error>,
        fits: impl Fn(&K) -> Result<bool, Error>,
    ) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let writes = self.all_written();
        let (objects, shown) = self.store.look(|state| {
            let shown: Vec<Shown<K>> = writes
                .iter()
                .map(|(key, write)| {
                    let held = state.get(&KeyRef::from(key));
                    write.state.shown(held.map(|entry| &entry.content), state)
                })
                .collect();
            base(state).map(|objects| (objects, shown))
        })?;
        let mut own = HashMap::new();
        let mut caught_up = Vec::new();
        for ((key, write), shown) in writes.into_iter().zip(shown) {
            match shown {
                Shown::Own(object) => drop(own.insert(key, object)),
                Shown::Stores { for_good: true } => caught_up.push((key, write.number)),
                Shown::Stores { for_good: false } => {}
            }
        }
        self.forget(&caught_up);
        let mut objects = objects;
        objects.retain(|object| !own.contains_key(&object.key()));
        for object in own.into_values().flatten() {
            if fits(&object)? {
                objects.push(object);
            }
        }
        Ok(objects)
    }

    fn put(&self, key: ObjectKey, state: Written<K>) {
        let now = self.store.clock().now();
        let is_past = self.store.look(|store| {
            let held = store.get(&KeyRef::from(&key)).map(|entry| &entry.content);
            matches!(state.shown(held, store), Shown::Stores { for_good: true })
        });
        if is_past {
            return;
        }
        let mut own = self.own.lock();
        let mut dropped = own.expired(now, self.options.ttl);
        if own
            .writes
            .get(&key)
            .is_none_or(|held| state.follows(&held.state))
        {
            dropped.extend(own.insert(key, state, now));
        }
        while own.writes.len() > self.options.capacity {
            dropped.extend(own.oldest());
        }
        drop(own);
        // Objects overwrite their secrets when they are dropped: not under the lock.
        drop(dropped);
    }

    fn written(&self, key: &ObjectKey) -> Option<Write<K>> {
        let now = self.store.clock().now();
        let own = self.own.lock();
        let write = own.writes.get(key)?;
        (!write.is_expired(now, self.options.ttl)).then(|| write.clone())
    }

    fn all_written(&self) -> Vec<(ObjectKey, Write<K>)> {
        let now = self.store.clock().now();
        let own = self.own.lock();
        let writes = own.writes.iter();
        let young = writes.filter(|(_, write)| !write.is_expired(now, self.options.ttl));
        young
            .map(|(key, write)| (key.clone(), write.clone()))
            .collect()
    }

    /// Drops writes that the store has caught up with, unless others have taken their place.
    fn forget(&self, caught_up: &[(ObjectKey, u64)]) {
        if caught_up.is_empty() {
            return;
        }
        let mut own = self.own.lock();
        let dropped: Vec<_> = caught_up
            .iter()
            .filter_map(|(key, number)| {
                let write = own.writes.get(key)?;
                let same = write.number == *number;
                same.then(|| own.remove(key)).flatten()
            })
            .collect();
        drop(own);
        drop(dropped);
    }
}

/// Whose state a read shows.
enum Shown<K: Object> {
    Own(Option<Arc<StoredObject<K>>>),
    /// `for_good` once the store is past the write.
    Stores {
        for_good: bool,
    },
}

impl<K: Object> Written<K> {
    /// The store's, once it has the write's state or a newer one.
    fn shown(&self, held: Option<&Content<K>>, store: &State<K>) -> Shown<K> {
        let held = held.map(Content::identity);
        let is_reached = |version: &ResourceVersion, by: &ResourceVersion| {
            by.numeric_order(version)
                .is_some_and(std::cmp::Ordering::is_ge)
        };
        match self {
            Self::Is(object, version) => {
                let object_is_there = held.is_some_and(|(_, by)| is_reached(version, &by));
                if object_is_there || is_reached(version, &store.resource_version) {
                    Shown::Stores { for_good: true }
                } else {
                    Shown::Own(Some(Arc::clone(object)))
                }
            }
            Self::Gone(uid, last) => {
                let is_of_it =
                    |held: &str, by: &ResourceVersion| *held == **uid || by.is_older_than(last);
                if held.is_some_and(|(held, by)| is_of_it(held, &by)) {
                    Shown::Own(None)
                } else {
                    // A store that has not come to where the object was may bring it yet.
                    let for_good = is_reached(last, &store.resource_version);
                    Shown::Stores { for_good }
                }
            }
        }
    }

    /// Whether this write came after `before`, as far as the two tell.
    fn follows(&self, before: &Self) -> bool {
        match (before, self) {
            (Self::Is(_, before), Self::Is(_, version)) => !version.is_older_than(before),
            (Self::Gone(uid, last), Self::Is(object, version)) => {
                object.uid() != &**uid && !version.is_older_than(last)
            }
            (Self::Is(object, version), Self::Gone(uid, last)) => {
                object.uid() == &**uid || version.is_older_than(last)
            }
            (Self::Gone(_, before), Self::Gone(_, last)) => !last.is_older_than(before),
        }
    }
}

impl<K: Object> Write<K> {
    fn is_expired(&self, now: Instant, ttl: Duration) -> bool {
        now.saturating_duration_since(self.at) > ttl
    }
}

impl<K: Object> Clone for Write<K> {
    fn clone(&self) -> Self {
        Self {
            state: match &self.state {
                Written::Is(object, version) => Written::Is(Arc::clone(object), version.clone()),
                Written::Gone(uid, last) => Written::Gone(Arc::clone(uid), last.clone()),
            },
            at: self.at,
            number: self.number,
        }
    }
}

impl<K: Object> Own<K> {
    fn insert(&mut self, key: ObjectKey, state: Written<K>, at: Instant) -> Option<Write<K>> {
        let before = self.remove(&key);
        let number = self.next;
        self.next = self.next.saturating_add(1);
        self.ages.insert(number, key.clone());
        self.writes.insert(key, Write { state, at, number });
        before
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Write<K>> {
        let write = self.writes.remove(key)?;
        self.ages.remove(&write.number);
        Some(write)
    }

    fn oldest(&mut self) -> Option<Write<K>> {
        let (_, key) = self.ages.pop_first()?;
        self.writes.remove(&key)
    }

    /// Takes out what is too old.
    fn expired(&mut self, now: Instant, ttl: Duration) -> Vec<Write<K>> {
        let mut expired = Vec::new();
        while let Some((_, key)) = self.ages.first_key_value() {
            let is_expired = |write: &Write<K>| write.is_expired(now, ttl);
            if !self.writes.get(key).is_some_and(is_expired) {
                break;
            }
            expired.extend(self.oldest());
        }
        expired
    }
}

impl<K: Object> fmt::Debug for MutationCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationCache")
            .field("store", &self.store)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
