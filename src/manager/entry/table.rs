//! The referenced objects of one manager: found by key, and changed together with what plain
//! readers find at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::consistent_reads::RequestContext;
use super::content::Content;
use super::read_cache::ReadCache;
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::failures::Failures;
use crate::guard::guard_call;
use crate::list_watch::Getter;
use crate::manager::cached::{Cached, Ready};
use crate::manager::changes::Notifier;
use crate::manager::kinds::KindTraits;
use crate::manager::metrics::ManagerState;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Owner, References};
use crate::manager::report::{ObjectReport, ObjectState, Summary};
use crate::manager::strategy::ReferencedObjects;
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject, resource_name};
use crate::reflector::Demand;
use crate::sync::{Arc, Monitor, Mutex, Rank};
use crate::worker::StopSource;

/// One referenced object. `S` is what its strategy keeps of it.
#[derive(Debug)]
pub(crate) struct ObjectEntry<S> {
    pub(crate) key: ObjectKey,
    /// Who waits for its first sync; each run of its reflector looks at it (B3).
    pub(crate) demand: Demand,
    pub(crate) state: Arc<Monitor<S>>,
}

impl<S> ObjectEntry<S> {
    pub(crate) fn new(key: &ObjectKey, state: S) -> Arc<Self> {
        Arc::new(Self {
            key: key.clone(),
            demand: Demand::new(),
            state: Arc::new(Monitor::ranked(Rank::ENTRY, state)),
        })
    }
}

/// What an entry needs to answer: the key of its object, the time, and how long what was fetched
/// lives at that time (OS-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) clock: &'a Clock,
    pub(crate) now: Instant,
    /// Read before `now`.
    pub(crate) coarse: Coarse,
    pub(crate) ttl: Duration,
}

/// What a strategy keeps of one object.
pub(crate) trait EntryState<K: Object>: Send + 'static {
    fn content(&mut self) -> &mut Content<K>;

    /// What plain readers can have at once, with its mark in the [`ReadCache`].
    fn ready(&self, clock: &Clock) -> Option<(Ready<K>, Coarse)>;

    /// Whether nobody references the object any more, so that another entry may have its key.
    fn is_detached(&self) -> bool;

    /// What memory answers a reader of a state not older than `version` (R11); `None` while it has
    /// not come that far.
    fn reached(
        &self,
        version: &ResourceVersion,
        at: &AnswerContext<'_>,
    ) -> Option<Result<Cached<K>, Error>>;

    /// Where the object stands, and why.
    fn standing(&self, at: &AnswerContext<'_>) -> (ObjectState, String);

    /// When the server last confirmed what is known.
    fn contact(&self) -> Option<Instant>;

    /// The failures since something last went well.
    fn failures(&self) -> &Failures;

    /// What may be told of the object.
    fn summary(&self) -> Option<Summary>;

    /// Whether a watch is open or being opened.
    fn is_watched(&self) -> bool {
        false
    }

    /// Whether a watch should have heard from the server by `now` (B14).
    fn is_overdue(&self, _now: Instant) -> bool {
        false
    }

    /// Takes note of the mark on an answer that was taken out of the [`ReadCache`].
    fn note_read(&mut self, _at: Coarse) {}
}

/// The entries of one manager, and what all its reads need.
pub(crate) struct EntryTable<K: Object, S> {
    pub(crate) options: ManagerOptions,
    pub(crate) changes: Notifier,
    pub(crate) read_cache: ReadCache<K>,
    pub(crate) references: Mutex<References<Arc<ObjectEntry<S>>>>,
    /// Ends the requests of readers.
    pub(crate) stop: StopSource,
    getter: Arc<dyn Getter<K>>,
    pub(crate) kind: KindTraits<K>,
}

impl<K: Object, S> fmt::Debug for EntryTable<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryTable").finish_non_exhaustive()
    }
}

impl<K: Object, S: EntryState<K>> EntryTable<K, S> {
    pub(crate) fn new(
        kind: KindTraits<K>,
        getter: Arc<dyn Getter<K>>,
        options: ManagerOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            changes: Notifier::default(),
            read_cache: ReadCache::default(),
            references: Mutex::ranked(Rank::REFERENCES, References::default()),
            stop: StopSource::new(),
            getter,
            kind,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.reflector.clock
    }

    pub(crate) fn context<'a>(&'a self, key: &'a ObjectKey) -> AnswerContext<'a> {
        // In this order: the marks in the read cache are to err on the early side.
        let coarse = self.clock().coarse();
        AnswerContext {
            key,
            clock: self.clock(),
            now: self.clock().now(),
            coarse,
            ttl: self.options.ttl_now(),
        }
    }

    /// The entry of an object that is referenced.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Result<Arc<ObjectEntry<S>>, Error> {
        let references = self.references.lock();
        let entry = references.get(namespace, name).map(Arc::clone);
        entry.ok_or_else(|| Error::not_registered(namespace, name))
    }

    /// Every object that is referenced now.
    pub(crate) fn entries(&self) -> Vec<Arc<ObjectEntry<S>>> {
        self.references.lock().items().cloned().collect()
    }

    /// Changes an entry, and what plain readers find of it at once, in one step. What that drops of
    /// the object, it drops under no lock.
    pub(crate) fn change<R>(&self, entry: &ObjectEntry<S>, change: impl FnOnce(&mut S) -> R) -> R {
        let (result, _before, _replaced) = {
            let mut state = entry.state.lock();
            let before = state.content().object().map(Arc::clone);
            let was_detached = state.is_detached();
            let result = change(&mut state);
            // The key of a detached entry may belong to another one already.
            let replaced = (!was_detached).then(|| {
                let ready = state.ready(self.clock());
                let ready = ready.filter(|_| !state.is_detached());
                let (replaced, mark) = self.read_cache.publish(&entry.key, ready);
                state.note_read(mark);
                replaced
            });
            (result, before, replaced)
        };
        result
    }

    /// Sends one request on the caller's thread, and trims what it brings as a watch would (B19).
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met; `Panicked` if the getter did.
    pub(crate) fn request(
        &self,
        context: &RequestContext<'_>,
        version: &ResourceVersion,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let key = context.key;
        let port = format_args!("the getter of {} {key}", resource_name::<K>());
        guard_call(port, || {
            let found = self
                .getter
                .get(key, version, context.deadline, context.stop);
            found.map(|object| self.trimmed(object))
        })
    }

    fn trimmed(&self, mut found: Arc<StoredObject<K>>) -> Arc<StoredObject<K>> {
        if let Some(held) = Arc::get_mut(&mut found) {
            held.trim();
            return found;
        }
        // The getter kept a share of it.
        let mut own = StoredObject::new(self.kind.copy(&found));
        own.trim();
        Arc::new(own)
    }
}

impl<K: Object, S: EntryState<K>> ReferencedObjects for EntryTable<K, S> {
    fn options(&self) -> &ManagerOptions {
        &self.options
    }

    fn changes(&self) -> &Notifier {
        &self.changes
    }

    fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        self.references.lock().owners()
    }

    fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        let (entry, owners) = {
            let references = self.references.lock();
            let entry = references.get(key.namespace(), key.name())?;
            (Arc::clone(entry), references.owners_of(key))
        };
        let mut entry = entry.state.lock();
        let at = self.context(key);
        let (state, mut reason) = entry.standing(&at);
        if reason.is_empty() && self.stop.token().is_stopped() {
            "the manager was shut down".clone_into(&mut reason);
        }
        let refused = entry.content().refused();
        let summary = entry.summary().unwrap_or_default();
        let failures = entry.failures();
        let since = |then: Instant| at.now.saturating_duration_since(then);
        Some(ObjectReport {
            kind: K::KIND,
            key: key.clone(),
            state,
            reason,
            resource_version: summary.resource_version,
            immutable: summary.immutable,
            keys: summary.keys,
            bytes: summary.bytes,
            created: summary.created,
            since_contact: entry.contact().map(since),
            watched: entry.is_watched(),
            is_overdue: entry.is_overdue(at.now),
            owners,
            last_failure: failures.last().cloned(),
            attempts: failures.count(),
            trying_for: failures.since().map(since),
            refused,
        })
    }

    fn state(&self) -> ManagerState {
        let entries = self.entries();
        let watched = entries
            .iter()
            .filter(|entry| entry.state.lock().is_watched());
        ManagerState {
            objects: entries.len(),
            references: self.references.lock().total(),
            watches: watched.count(),
        }
    }
}
