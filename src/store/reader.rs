//! The reading side of a store: cheap to clone; only the explicit waits block.

use std::borrow::Cow;

use std::time::{Duration, SystemTime};

use hashbrown::HashMap;

use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, clone_of, debug_of};
use crate::failures::Failures;
use crate::list_watch::{Listed, ListerWatcher, StoredPosition, Undecodable};
use crate::object::{KeyRef, Object, ObjectKey, ResourceVersion, StoredObject, resource_name};
use crate::reflector::{Reflector, ReflectorOptions, ReflectorStatus, Waiters};
use crate::store::index::{Indexers, Values};
use crate::store::state::{Copies, StoreContent, index};
use crate::store::writer::StoreWriter;
use crate::sync::{Arc, Monitor, Rank};

/// A collection of objects in memory that one reflector keeps equal to the server. Cheap to clone,
/// for any number of readers. Only the `wait_until_…` methods block.
///
/// Every read sees all or nothing of a replacement. Reads share the objects and copy nothing. Do
/// not send an object from a cache back to the server as an update.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::reflector::ReflectorOptions;
/// use kubecache::store::{Indexers, Store};
/// use kubecache::testing::FakeSource;
///
/// let source = FakeSource::<ConfigMap>::new();
/// let mut settings = ConfigMap::default();
/// settings.metadata.namespace = Some("shop".into());
/// settings.metadata.name = Some("settings".into());
/// source.set(settings);
///
/// let options = ReflectorOptions::default();
/// let (store, reflector) =
///     Store::spawn("settings", Arc::new(source), Indexers::new().by_namespace(), options)?;
/// store.wait_until_synced(Duration::from_secs(10))?;
/// assert!(store.get("shop", "settings")?.is_some());
/// assert_eq!(store.by_index("namespace", "shop")?.len(), 1);
/// reflector.join().expect("it did not panic");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias("Indexer", "ThreadSafeStore"))]
pub struct Store<K: Object> {
    state: Arc<Monitor<StoreContent<K>>>,
    /// The same copies as in the state, for reads without its lock.
    copies: Arc<Copies<K>>,
    waiters: Waiters,
    clock: Clock,
    /// The name of the content in errors. Default: the kind of its objects.
    name: Option<Arc<str>>,
}

impl<K: Object> Store<K> {
    /// Makes an empty store and its only writer.
    ///
    /// Give [`waiters`](Self::waiters) to the reflector that gets the writer, so that it retries
    /// fast while a caller waits.
    pub fn new(indexers: Indexers<K>, clock: Clock) -> (Self, StoreWriter<K>) {
        let functions = Arc::new(indexers);
        let state = StoreContent::new(Arc::clone(&functions), clock.now());
        let copies = Arc::clone(&state.copies);
        let state = Arc::new(Monitor::ranked(Rank::STORE, state));
        let writer = StoreWriter::new(Arc::clone(&state), functions);
        let store = Self {
            state,
            copies,
            waiters: Waiters::new(),
            clock,
            name: None,
        };
        (store, writer)
    }

    /// Starts a reflector that fills a new store from `source`. Log lines show `name`.
    ///
    /// Returns at once; only the reflector's thread uses the network.
    ///
    /// # Errors
    ///
    /// As [`Reflector::spawn`](crate::reflector::Reflector::spawn).
    pub fn spawn(
        name: impl Into<String>,
        source: Arc<dyn ListerWatcher<K>>,
        indexers: Indexers<K>,
        options: ReflectorOptions,
    ) -> Result<(Self, Reflector), Error> {
        let (store, writer) = Self::new(indexers, options.clock.clone());
        let options = options.waiters(store.waiters());
        let reflector = Reflector::spawn(name, source, writer, options)?;
        Ok((store, reflector))
    }

    /// Counts the threads that wait for this store, for [`ReflectorOptions::waiters`].
    pub fn waiters(&self) -> Waiters {
        self.waiters.clone()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads one consistent state. `read` runs under the lock, and must not call code of the
    /// program.
    pub(super) fn look<R>(&self, read: impl FnOnce(&StoreContent<K>) -> R) -> R {
        read(&self.state.lock())
    }

    /// Adapts the store for an informer: with a name for errors, and the informer's waiters.
    pub(crate) fn of_informer(mut self, name: Arc<str>, waiters: Waiters) -> Self {
        (self.name, self.waiters) = (Some(name), waiters);
        self
    }

    /// The failures of a wait for the first sync so far; `None` once it is synced.
    pub(crate) fn sync_failures(&self) -> Option<Failures> {
        let state = self.state.lock();
        let now = self.clock.now();
        (!state.synced).then(|| state.status.failures_of_wait(state.since, now))
    }

    /// The error of a store that nothing will fill any more, otherwise `None`.
    pub(crate) fn end_error(&self) -> Option<Error> {
        let state = self.state.lock();
        state.ended.then(|| ended(&state, &self.name()))
    }

    /// Ends every wait, although the writer may be held up. `cause` is the error that ended the
    /// run, unless a stop did.
    pub(crate) fn end(&self, cause: Option<Error>) {
        StoreContent::end(&self.state, cause);
    }

    /// Whether the store has the result of a list.
    pub fn has_synced(&self) -> bool {
        self.state.lock().synced
    }

    /// Blocks until the store has the result of a list, at most until `deadline`.
    ///
    /// During the wait, the reflector retries a failing first list fast. It also ends when the
    /// reflector ends, and when the server has refused the resource, or not known it, for the grace
    /// period.
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the last failure, the attempts and the time of the first.
    /// `Forbidden` or `NotFound` when the server refuses the resource or does not know it.
    /// `Stopped` when nothing will fill the store any more.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(self.clock());
        if self.has_synced() {
            return Ok(());
        }
        self.wait_for(deadline, |state| state.synced)
    }

    /// Blocks until the content is at least at `version`, at most until `deadline`: for reads after
    /// one's own write.
    ///
    /// Lists, events and bookmarks move the version of the content; without them it stands still.
    /// Before the first list, the wait also expedites that. It also ends when a refusal of the
    /// server has outlasted the grace period, and when the reflector ends.
    ///
    /// # Errors
    ///
    /// `NotSynced` at the deadline, with the version of the content; the server's refusal
    /// (`Forbidden`); `Stopped` when nothing will change the store any more. `Config` at once if
    /// `version` is not a number, because no cache compares with it. The same if the source made
    /// the version of the content itself ([`is_local`](ResourceVersion::is_local)).
    pub fn wait_until_at_least(
        &self,
        version: &ResourceVersion,
        deadline: impl IntoDeadline,
    ) -> Result<(), Error> {
        let deadline = deadline.into_deadline(self.clock());
        let has_order = version.numeric_order(version).is_some();
        if !has_order && !version.is_empty() && !version.is_local() {
            let text = format!(
                "waiting for version {:?}: it is not a number; pass metadata.resourceVersion of \
                 what the server answered",
                version.as_str()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        let is_there = |state: &StoreContent<K>| {
            state.synced && !state.guard.position().is_older_than(version)
        };
        let is_there_now = is_there(&self.state.lock());
        if !is_there_now {
            self.wait_for(deadline, is_there)
                .map_err(|error| self.not_reached(version, error))?;
        }
        let held = self.resource_version();
        if held.is_local() && !version.is_local() && !version.is_unset() {
            let text = format!(
                "waiting for version {version}: the source of this store has no versions of a \
                 server, only its own such as {held}; wait for the object with wait_until"
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        Ok(())
    }

    /// Returns the object of that name; `None` if the store has none.
    ///
    /// Threads that read at the same time share no lock: each group of threads keeps a pointer to
    /// each object that it has read, while the store has the object. Only the first read by a group
    /// allocates. While another thread holds the store's lock, it reads the pointer of any group.
    /// It waits where none is to be had at once.
    ///
    /// # Errors
    ///
    /// `Undecodable` when the object exists but is not a `K`;
    /// [`get_last_good`](Self::get_last_good) returns the state before.
    #[doc(alias = "GetByKey")]
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let key = KeyRef { namespace, name };
        let own = self.copies.read(&key, |object| Arc::clone(object));
        if own.is_some() {
            return Ok(own);
        }
        let free = self.state.try_lock();
        if free.is_none()
            && let Some(borrowed) = self.copies.borrow(&key)
        {
            return Ok(Some(borrowed));
        }
        let state = free.unwrap_or_else(|| self.state.lock_soon());
        let Some((key, held)) = state.items.get_key_value(&key) else {
            return Ok(None);
        };
        match &held.item {
            Listed::Object(object) => {
                self.copies.add(Arc::clone(key), Arc::clone(object));
                Ok(Some(Arc::clone(object)))
            }
            Listed::Undecodable(why) => Err(why.error.clone()),
        }
    }

    /// Returns the last state of the object that could be decoded. The server may have a newer one.
    pub fn get_last_good(&self, namespace: &str, name: &str) -> Option<Arc<StoredObject<K>>> {
        let state = self.state.lock();
        let held = state.items.get(&KeyRef { namespace, name })?;
        held.last_good().map(Arc::clone)
    }

    /// Returns every object that decodes, in no particular order.
    pub fn list(&self) -> Vec<Arc<StoredObject<K>>> {
        let snapshot = self.state.lock().items.snapshot();
        snapshot.objects()
    }

    /// Returns the content with its version: a [`StoredPosition`] from which the next run of the
    /// program can begin.
    ///
    /// `None` before the first list, and while an object does not decode or found no room: a cache
    /// that began without it would not say so.
    pub fn position(&self) -> Option<StoredPosition<K>> {
        let state = self.state.lock();
        // Between a list and the report of its contact the store has no age yet.
        let age = state.status.age(self.clock.now()).unwrap_or_default();
        let snapshot = state.items.snapshot();
        let count = state.items.len();
        let is_filled = state.synced && state.bound.left_out == 0;
        let version = state.guard.position().clone();
        drop(state);
        let objects = snapshot.objects();
        let is_whole = is_filled && objects.len() == count;
        let taken = SystemTime::now().checked_sub(age).filter(|_| is_whole)?;
        Some(StoredPosition::new(version, taken, objects))
    }

    /// The last state that decoded of every object that has one.
    pub(crate) fn last_good_of_all(&self) -> Vec<Arc<StoredObject<K>>> {
        let state = self.state.lock();
        let last_good = state.items.values().filter_map(|held| held.last_good());
        last_good.map(Arc::clone).collect()
    }

    /// Returns every key, including those of undecodable objects, in no particular order.
    #[doc(alias = "ListKeys")]
    pub fn keys(&self) -> Vec<ObjectKey> {
        let state = self.state.lock();
        state.items.keys().map(|key| (**key).clone()).collect()
    }

    /// Returns how many objects there are, undecodable ones included.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects that do not decode into `K`, each with the reason.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        let state = self.state.lock();
        let set_aside = state.items.values().filter_map(|held| match &held.item {
            Listed::Object(_) => None,
            Listed::Undecodable(why) => Some((**why).clone()),
        });
        set_aside.collect()
    }

    /// Returns the objects that an index has under a value. The cost grows with the answer, not
    /// with the store.
    ///
    /// # Errors
    ///
    /// `Config` for an unknown index: `Index with name … does not exist`.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        self.state.lock().by_values(index, &[value])
    }

    /// Returns the objects that share an index value with `object`, each once. `object` need not be
    /// in the store.
    ///
    /// # Errors
    ///
    /// As [`by_index`](Self::by_index); `Panicked` when the index's function panics at `object`.
    #[doc(alias = "Index")]
    pub fn like(&self, index: &str, object: &K) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let functions = Arc::clone(self.state.lock().indices.functions());
        let values = functions.values_in(index, object)?;
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.state.lock().by_values(index, &values)
    }

    /// Returns the keys that an index has under a value, sorted.
    ///
    /// # Errors
    ///
    /// As [`by_index`](Self::by_index).
    #[doc(alias = "IndexKeys")]
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        let state = self.state.lock();
        let keys = state.indices.keys(index, &[value])?;
        let mut keys: Vec<ObjectKey> = keys.into_iter().map(|key| (**key).clone()).collect();
        drop(state);
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns every value under which an index has an object; nothing for an unknown index.
    #[doc(alias = "ListIndexFuncValues")]
    pub fn index_values(&self, index: &str) -> Vec<String> {
        self.state.lock().indices.all_values(index)
    }

    /// Adds indices. They cover the store's present objects at once.
    ///
    /// # Errors
    ///
    /// `Config` when an index of that name exists: `indexer conflict: …`; `Panicked` when a
    /// function panics at a present object. Nothing changes then.
    pub fn add_indexers(&self, indexers: &Indexers<K>) -> Result<(), Error> {
        let mut known: HashMap<Arc<ObjectKey>, (Arc<StoredObject<K>>, Values)> = HashMap::new();
        let mut state = self.state.lock();
        loop {
            let functions = Arc::new(state.indices.functions().merged(indexers)?);
            let missing = state.items.iter().filter_map(|(key, held)| {
                let object = held.object()?;
                let known = known.get(key);
                let same = known.is_some_and(|(known, _)| Arc::ptr_eq(known, object));
                (!same).then(|| (Arc::clone(key), Arc::clone(object)))
            });
            let missing: Vec<_> = missing.collect();
            if missing.is_empty() {
                for (key, held) in state.items.entries_mut() {
                    if let (Some(_), Some((_, new))) = (held.object(), known.get(key)) {
                        held.values = [&*held.values, &**new].concat().into();
                    }
                }
                state.indices = index(&state.items, &functions);
                return Ok(());
            }
            // Index functions are code of the program: they run outside the lock, on objects that
            // changed since the last pass.
            drop(state);
            for (key, object) in missing {
                let values = functions.values_by(indexers, &object)?;
                known.insert(key, (object, values));
            }
            state = self.state.lock();
        }
    }

    /// Returns the version of the content, from the last list, event or bookmark.
    #[doc(alias = "LastStoreSyncResourceVersion")]
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.lock().guard.position().clone()
    }

    /// Returns how many events the store refused because they would have taken an object back in
    /// time.
    pub fn refused(&self) -> u64 {
        self.state.lock().guard.refused()
    }

    /// The cause of the end, unless it was a stop.
    pub(crate) fn cause_of_end(&self) -> Option<Error> {
        self.state.lock().cause.clone()
    }

    /// Whether the writer was dropped. Then the content never changes again.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Returns how often an index function panicked. The index does not list such an object.
    pub fn index_panics(&self) -> u64 {
        self.state.lock().indices.functions().panics()
    }

    /// Returns the last status of the reflector that fills the store.
    pub fn status(&self) -> ReflectorStatus {
        self.state.lock().status.clone()
    }

    /// How long ago the server last confirmed the content; `None` before the first contact.
    pub fn age(&self) -> Option<Duration> {
        self.state.lock().status.age(self.clock.now())
    }

    /// Whether the server keeps confirming the content, for a health check
    /// ([`ReflectorStatus::health`]). `Ok` for a store that no reflector fills, or whose reflector
    /// was stopped. Never blocks.
    ///
    /// # Errors
    ///
    /// As [`ReflectorStatus::health`].
    pub fn health(&self) -> Result<(), Error> {
        let now = self.clock.now();
        let state = self.state.lock();
        match &state.cause {
            Some(cause) => Err(cause.clone()),
            None => state.status.health(now),
        }
    }

    /// Whether a list has reached the store, its writer has not ended, and the server confirmed the
    /// content within `limit`.
    pub fn is_fresh_within(&self, limit: Duration) -> bool {
        let now = self.clock.now();
        let state = self.state.lock();
        let age = state.status.age(now);
        state.synced && !state.ended && age.is_some_and(|age| age <= limit)
    }

    /// Waits until `holds` returns a result, or the wait cannot succeed any more.
    pub(super) fn wait_for(
        &self,
        deadline: Deadline,
        holds: impl Fn(&StoreContent<K>) -> bool,
    ) -> Result<(), Error> {
        let _waiting = self.waiters.wait();
        let mut state = self.state.lock();
        loop {
            if holds(&state) {
                return Ok(());
            }
            if let Some(refusal) = state.status.refusal.clone() {
                drop(state);
                // This wait ends before the reflector sees it, but the next one should find more.
                self.waiters.expedite();
                return Err(refusal);
            }
            if state.ended {
                return Err(ended(&state, &self.name()));
            }
            if self.clock.has_passed(deadline) {
                return Err(self.not_synced(&state));
            }
            state = self.clock.wait_until(&self.state, state, deadline);
        }
    }

    /// The address of the content, which all clones of a store share.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.state).addr()
    }

    /// The subject of a wait, as errors name it (WT-4).
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(resource_name::<K>()),
        }
    }

    /// Why the content lacks an object: nothing was listed yet. `None` once the store is synced.
    pub(super) fn not_synced_yet(&self) -> Option<Error> {
        let state = self.state.lock();
        (!state.synced).then(|| self.not_synced(&state))
    }

    pub(super) fn not_synced(&self, state: &StoreContent<K>) -> Error {
        let now = self.clock.now();
        let failures = state.status.failures_of_wait(state.since, now);
        failures.not_synced(&self.name(), now)
    }
}

/// The error of a wait on a store whose content cannot change any more.
fn ended<K: Object>(state: &StoreContent<K>, name: &str) -> Error {
    let what = format!("waiting for the {name} cache");
    if let Some(cause) = &state.cause {
        return Error::new(ErrorKind::Stopped, format!("{what}: stopped\n{cause}"));
    }
    let stopped = Error::stopped(&what);
    match state.status.failures.last() {
        Some(failure) => stopped
            .context(&format!("after {} failures", state.status.failures.count()))
            .with_source(failure.clone()),
        None => stopped,
    }
}

clone_of!([K: Object] Store<K>: state, copies, waiters, clock, name);

debug_of!([K: Object] Store<K>, |it|
    kind: K::resource().kind(), objects: it.len(), synced: it.has_synced(),
    resource_version: it.resource_version(), ..);
