//! The store of the strategies `Cache` and `Get`. A reader that finds no fresh object fetches it on
//! its own thread; other readers wait for that fetch. With `Get` each reader fetches (SC-2).

use super::entry::{Completion, NextStep, TtlEntry};
use crate::clock::{Coarse, Deadline};
use crate::error::Error;
use crate::failures::Failures;
use crate::manager::cached::Cached;
use crate::manager::change_detection::ChangeDetection;
use crate::manager::consistent_reads::read_from_server;
use crate::manager::entry::content::ReadPosition;
use crate::manager::entry::object_entry::{EntryState as _, ObjectEntry};
use crate::manager::kinds::cache_name;
use crate::manager::references::{Affected, Owner, ReferenceChange};
use crate::manager::registry::Registry;
use crate::manager::strategy::{ReferencedObjects, Strategy};
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject};
use crate::policy::PolicyRequest;
use crate::sync::Arc;

/// The store of one manager. It has no thread: fetches are made on the threads of readers.
pub(crate) struct TtlStore<K: Object> {
    registry: Arc<Registry<K, TtlEntry<K>>>,
    /// With `Get` no object is kept.
    keeps: bool,
}

impl<K: Object> TtlStore<K> {
    /// A store without references. Touches no network.
    pub(crate) fn new(registry: Arc<Registry<K, TtlEntry<K>>>) -> Self {
        Self {
            keeps: registry.options.change_detection != ChangeDetection::Get,
            registry,
        }
    }

    /// Reads one entry; `None` when no owner references it any more.
    fn read_entry(
        &self,
        entry: &Arc<ObjectEntry<TtlEntry<K>>>,
        deadline: Deadline,
    ) -> Option<Result<Cached<K>, Error>> {
        let (registry, stop) = (&self.registry, self.registry.stop.token());
        let mut waited_for = None;
        let mut state = entry.state.lock();
        loop {
            let at = registry.context(&entry.key);
            match state.next_step(&at, waited_for) {
                NextStep::FindAgain => return None,
                NextStep::Return(result) if state.is_fresh(&at) => return Some(result),
                _ if stop.is_stopped() => return Some(Err(Error::stopped(&cache_name::<K>()))),
                NextStep::Return(result) => return Some(result),
                NextStep::Fetch | NextStep::Wait(_) if deadline.has_passed(at.now) => {
                    return Some(state.late(None, &at));
                }
                NextStep::Fetch => {
                    let is_first = !self.keeps || !state.has_begun();
                    let fetch = state.start_fetch(&at);
                    drop(state);
                    return Some(self.fetch_as_leader(entry, &fetch, is_first, deadline));
                }
                NextStep::Wait(number) => {
                    waited_for = Some(number);
                    state = registry.clock().wait_until(&entry.state, state, deadline);
                }
            }
        }
    }

    /// Fetches for all readers that wait. `is_first`: the entry has neither an object nor a
    /// backoff, so the fetch waits as long as the server asks.
    fn fetch_as_leader(
        &self,
        entry: &Arc<ObjectEntry<TtlEntry<K>>>,
        fetch: &ReadPosition,
        is_first: bool,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let stop = self.registry.stop.token();
        let context = self.registry.request_by(&entry.key, deadline, &stop);
        let checked = context.check::<K>(&fetch.version);
        let found = checked.and_then(|()| {
            if is_first {
                let kind = if self.keeps {
                    PolicyRequest::FirstRead
                } else {
                    PolicyRequest::Read
                };
                let told = |tries: &Failures| entry.state.lock().waits(fetch, tries);
                self.registry
                    .request_patiently(kind, &context, &fetch.version, &told)
            } else {
                self.registry.request(&context, &fetch.version)
            }
        });
        let error = found.as_ref().err();
        let late = error.is_some_and(|error| context.was_ended_by_deadline(error));
        self.complete_read(entry, fetch, (found, late), deadline)
    }

    /// The entry of the object; with `Get` also of one that no owner references.
    fn entry_to_read(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<ObjectEntry<TtlEntry<K>>>, Error> {
        match self.registry.find(namespace, name) {
            Err(_) if !self.keeps => {
                let entry = TtlEntry::detached(self.registry.kind);
                Ok(ObjectEntry::new(&ObjectKey::new(namespace, name), entry))
            }
            found => found,
        }
    }

    /// Takes in the result of a fetch or of a read past the cache. `late`: the deadline ended it.
    fn complete_read(
        &self,
        entry: &Arc<ObjectEntry<TtlEntry<K>>>,
        read: &ReadPosition,
        (found, late): (Result<Arc<StoredObject<K>>, Error>, bool),
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        // A refused object is dropped after the lock.
        let incoming = found.as_ref().ok().map(Arc::clone);
        let take = |state: &mut TtlEntry<K>| {
            let at = self.registry.context(&entry.key);
            let before = state.failures(at.now).count();
            let completed = state.complete(read, found, late, &at);
            let failures = state.failures(at.now);
            let failed = (failures.count() > before).then(|| failures.clone());
            (completed, state.is_detached(), failed)
        };
        let taken = self.registry.take_in(entry, incoming.as_ref(), take);
        let (completed, is_detached, failures) = taken;
        entry.state.notify_all();
        let (result, is_news) = match completed {
            Completion::Done(result, is_news) => (result, is_news),
            Completion::Again(fetch) => {
                return self.fetch_as_leader(entry, &fetch, false, deadline);
            }
        };
        if let Some(failures) = failures.filter(|_| self.keeps) {
            self.registry.tell_failed(&entry.key, &failures);
        }
        if is_news && !is_detached {
            self.registry.changes.notify(&entry.key);
        }
        result
    }
}

impl<K: Object> Strategy<K> for TtlStore<K> {
    fn entries(&self) -> Arc<dyn ReferencedObjects> {
        Arc::<Registry<K, TtlEntry<K>>>::clone(&self.registry)
    }

    #[cfg(feature = "snapshot")]
    fn kept_objects(&self) -> Option<Arc<dyn crate::manager::strategy::KeptObjects<K>>> {
        let registry: Arc<dyn crate::manager::strategy::KeptObjects<K>> =
            Arc::<Registry<K, TtlEntry<K>>>::clone(&self.registry);
        self.keeps.then_some(registry)
    }

    /// Each added reference drops the cached object (OS-2, OS-3).
    fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        let (registry, keeps) = (&self.registry, self.keeps);
        let renews = registry.options.invalidate_on_update;
        let has_snapshot = registry.seeds().is_some();
        let make = || TtlEntry::new(registry.kind, keeps);
        let react = |affected: &Affected<_>, entry: &mut TtlEntry<K>| match affected {
            Affected::Shared(_) if keeps => entry.invalidate(has_snapshot),
            Affected::Made(_) | Affected::Shared(_) => {}
            Affected::Released(_) => entry.detach(),
        };
        for (affected, ()) in registry.change_references((owner, change), renews, make, react) {
            let entry = affected.entry();
            if keeps && matches!(affected, Affected::Made(_)) {
                registry.sow(entry);
                continue;
            }
            entry.state.notify_all();
            if keeps {
                registry.changes.notify(&entry.key);
            }
        }
    }

    fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<Cached<K>, Error> {
        if !self.keeps {
            return self.get_at_least(namespace, name, &ResourceVersion::most_recent(), deadline());
        }
        let now = self.registry.clock().coarse();
        let ttl = self.registry.options.ttl_now();
        let is_fresh = |fetched: &mut Coarse| now.is_surely_within(*fetched, ttl);
        if let Some(cached) = self.registry.read_cache.read(namespace, name, is_fresh) {
            return Ok(cached);
        }
        let deadline = deadline();
        loop {
            let entry = self.registry.find(namespace, name)?;
            if let Some(result) = self.read_entry(&entry, deadline) {
                return result;
            }
        }
    }

    fn get_cached(&self, namespace: &str, name: &str) -> Result<Option<Cached<K>>, Error> {
        let entry = self.entry_to_read(namespace, name)?;
        let state = entry.state.lock();
        Ok(state.cached_copy(&self.registry.context(&entry.key)))
    }

    fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let entry = self.entry_to_read(namespace, name)?;
        let complete = |read: &ReadPosition, found, late| {
            self.complete_read(&entry, read, (found, late), deadline)
        };
        read_from_server(&self.registry, &entry, version, deadline, complete)
    }

    /// Fresh objects are still served.
    fn stop(&self) {
        self.registry.stop.stop();
        for entry in self.registry.entries() {
            // Taking the mutex closes the gap between a waiter's look at the stop and its wait.
            drop(entry.state.lock());
            entry.state.notify_all();
            self.registry.changes.notify(&entry.key);
        }
    }
}

impl<K: Object> Drop for TtlStore<K> {
    fn drop(&mut self) {
        self.registry.stop.stop();
    }
}
