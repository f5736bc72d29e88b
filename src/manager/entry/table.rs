//! The referenced objects of one manager: found by key, and changed together with what plain
//! readers find at once.

use std::fmt;
use std::time::{Duration, Instant};

use super::consistent_reads::RequestContext;
use super::content::Content;
use super::read_cache::ReadCache;
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::guard::guard_call;
use crate::list_watch::Getter;
use crate::manager::cached::{Cached, Ready};
use crate::manager::changes::Notifier;
use crate::manager::kinds::KindTraits;
use crate::manager::metrics::ManagerState;
use crate::manager::options::ManagerOptions;
use crate::manager::references::References;
use crate::manager::report::ObjectReport;
use crate::object::{Held, Object, ObjectKey, ResourceVersion, resource_name};
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

/// When something happens, and how long what was fetched lives at that time (OS-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
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
        key: &ObjectKey,
        version: &ResourceVersion,
        at: &Moment<'_>,
    ) -> Option<Result<Cached<K>, Error>>;

    /// Fills in the object's row.
    fn report(&self, row: ObjectReport, at: &Moment<'_>) -> ObjectReport;

    /// Whether a watch is open or being opened.
    fn is_watched(&self) -> bool {
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
        &self.options.clock
    }

    pub(crate) fn moment(&self) -> Moment<'_> {
        // In this order: the marks in the read cache are to err on the early side.
        let coarse = self.clock().coarse();
        Moment {
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
        entry.ok_or_else(|| Error::not_registered(&ObjectKey::new(namespace, name)))
    }

    /// Every object that is referenced now.
    pub(crate) fn entries(&self) -> Vec<Arc<ObjectEntry<S>>> {
        self.references.lock().items().cloned().collect()
    }

    /// Changes an entry, and what plain readers find of it at once, in one step.
    pub(crate) fn change<R>(&self, entry: &ObjectEntry<S>, change: impl FnOnce(&mut S) -> R) -> R {
        let (result, _replaced) = {
            let mut state = entry.state.lock();
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
            (result, replaced)
        };
        result
    }

    /// What is known of one object, if it is referenced. Does not count as a read.
    pub(crate) fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        let (entry, owners) = {
            let references = self.references.lock();
            let entry = references.get(key.namespace(), key.name())?;
            (Arc::clone(entry), references.owners_of(key))
        };
        let row = ObjectReport::unknown::<K>(key.clone(), owners);
        let mut row = entry.state.lock().report(row, &self.moment());
        if row.reason.is_empty() && self.stop.token().is_stopped() {
            "the manager was shut down".clone_into(&mut row.reason);
        }
        Some(row)
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
    ) -> Result<Arc<Held<K>>, Error> {
        let key = context.key;
        let port = format_args!("the getter of {} {key}", resource_name::<K>());
        guard_call(port, || {
            let found = self
                .getter
                .get(key, version, context.deadline, context.stop);
            found.map(|object| self.trimmed(object))
        })
    }

    fn trimmed(&self, mut found: Arc<Held<K>>) -> Arc<Held<K>> {
        if let Some(held) = Arc::get_mut(&mut found) {
            held.trim();
            return found;
        }
        // The getter kept a share of it.
        let mut own = Held::new(self.kind.copy(&found));
        own.trim();
        Arc::new(own)
    }
}

impl<K: Object, S: EntryState<K>> EntryTable<K, S> {
    pub(crate) fn state(&self) -> ManagerState {
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
