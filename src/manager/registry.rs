//! The referenced objects of one manager: found by key, changed together with the answers that
//! plain readers find at once, and requested from the server.

use std::collections::BTreeMap;
use std::time::Instant;

use super::cached::{Cached, ReadyObject};
use super::changes::Notifier;
use super::entry::object_entry::{AnswerContext, EntryState, ObjectEntry};
use super::entry::read_cache::ReadCache;
#[cfg(feature = "snapshot")]
use super::entry::seed::KeptObject;
use super::entry::seed::{Seed, SeedEnd, SeedSource};
use super::kinds::{KindTraits, cache_name};
use super::metrics::ManagerState;
use super::options::ManagerOptions;
use super::references::{Affected, Owner, ReferenceChange, References};
use super::report::{ObjectReport, ObjectState};
#[cfg(feature = "snapshot")]
use super::strategy::KeptObjects;
use super::strategy::ReferencedObjects;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::guard::{guard_call, guard_logged};
use crate::list_watch::Getter;
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject, resource_name};
use crate::policy::PolicyRequest;
use crate::reflector::{FailedAttempt, Phase};
use crate::retry::patiently;
use crate::sync::{self, Arc, Mutex, Rank};
use crate::worker::{StopSource, StopToken};

/// The object of a request, and the limits of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) clock: &'a Clock,
    pub(crate) deadline: Deadline,
    pub(crate) stop: &'a StopToken,
    /// Whether a reader may wait for it.
    pub(crate) is_urgent: bool,
}

impl RequestContext<'_> {
    /// Whether a request may be sent at all.
    ///
    /// # Errors
    ///
    /// `Stopped` once the stop is raised, `Timeout` once the deadline has passed.
    pub(crate) fn check<K: Object>(&self, version: &ResourceVersion) -> Result<(), Error> {
        if self.stop.is_stopped() {
            return Err(Error::stopped(&cache_name::<K>()));
        }
        if self.clock.has_passed(self.deadline) {
            let what = self.describe::<K>(version);
            let message = format!("no request for {what} was sent: the deadline had passed");
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        Ok(())
    }

    /// Whether the error means that the caller's own deadline passed, and not a limit of the
    /// transport.
    pub(crate) fn was_ended_by_deadline(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Timeout && self.clock.has_passed(self.deadline)
    }

    pub(crate) fn describe<K: Object>(&self, version: &ResourceVersion) -> String {
        let (resource, key) = (resource_name::<K>(), self.key);
        if version.is_unset() {
            format!("{resource} {key}")
        } else {
            format!("{resource} {key} at version {version} or later")
        }
    }
}

/// The values that a change of an entry replaced. The drop of an object overwrites its secrets, and
/// may run code of the program, so this is dropped under no lock.
#[must_use = "a manager settles it"]
struct Leftovers<K: Object> {
    seed: Option<(Seed<K>, SeedEnd)>,
    _object: Option<Arc<StoredObject<K>>>,
    _answer: Option<Cached<K>>,
    _aside: Option<(Arc<StoredObject<K>>, Instant)>,
    _ready: Option<Arc<ReadyObject<K>>>,
}

/// The parts of an entry that a change may replace, as they were before.
struct Before<K: Object> {
    object: Option<Arc<StoredObject<K>>>,
    answer: Option<Cached<K>>,
    aside: Option<(Arc<StoredObject<K>>, Instant)>,
    was_detached: bool,
}

impl<K: Object> Drop for Leftovers<K> {
    fn drop(&mut self) {
        debug_assert!(
            sync::held().next().is_none() || std::thread::panicking(),
            "an object is dropped under a lock"
        );
    }
}

/// The entries of one manager, and the parts that all its reads use.
pub(crate) struct Registry<K: Object, S> {
    pub(crate) options: ManagerOptions,
    pub(crate) changes: Notifier,
    pub(crate) read_cache: ReadCache<K>,
    pub(crate) references: Mutex<References<Arc<ObjectEntry<S>>>>,
    /// Ends the requests of readers.
    pub(crate) stop: StopSource,
    getter: Arc<dyn Getter<K>>,
    pub(crate) kind: KindTraits<K>,
    /// The newest version that the server gave for this kind.
    newest: Mutex<ResourceVersion>,
    /// The objects that an earlier process knew.
    seeds: Mutex<Option<Arc<dyn SeedSource<K>>>>,
}

impl<K: Object, S: EntryState<K>> Registry<K, S> {
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
            newest: Mutex::ranked(Rank::NEWEST, ResourceVersion::any()),
            seeds: Mutex::ranked(Rank::SEEDS, None),
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.reflector.clock
    }

    pub(crate) fn context<'a>(&'a self, key: &'a ObjectKey) -> AnswerContext<'a> {
        // In this order, so that the marks in the read cache err on the early side.
        let coarse = self.clock().coarse();
        AnswerContext {
            key,
            clock: self.clock(),
            now: self.clock().now(),
            coarse,
            ttl: self.options.ttl_now(),
        }
    }

    /// The newest version that the server has given of this kind. Those of another kind may come
    /// from another etcd.
    pub(crate) fn newest_version(&self) -> ResourceVersion {
        self.newest.lock().clone()
    }

    /// Notes a version that the server gave.
    pub(crate) fn note_version(&self, version: &ResourceVersion) {
        let mut newest = self.newest.lock();
        if newest.is_older_than(version) {
            newest.clone_from(version);
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

    /// Every object that is referenced now, in the order of the keys: who comes first does not
    /// depend on the hashes of one process.
    pub(crate) fn entries(&self) -> Vec<Arc<ObjectEntry<S>>> {
        let mut entries: Vec<_> = self.references.lock().entries().cloned().collect();
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        entries
    }

    /// Changes an entry and the answer that plain readers find at once, in one step. Drops the
    /// replaced values under no lock: the caller holds none either.
    pub(crate) fn change<R>(&self, entry: &ObjectEntry<S>, change: impl FnOnce(&mut S) -> R) -> R {
        let (result, left) = self.change_under_lock(entry, change);
        self.settle(entry, left);
        result
    }

    /// As [`Self::change`], for a change that takes `incoming` in. Code of the program decides
    /// under no lock whether that is immutable.
    pub(crate) fn take_in<R>(
        &self,
        entry: &ObjectEntry<S>,
        incoming: Option<&Arc<StoredObject<K>>>,
        change: impl FnOnce(&mut S) -> R,
    ) -> R {
        let is_immutable = incoming.is_some_and(|object| self.kind.is_immutable(object));
        self.change(entry, |state| {
            state.content().judge(is_immutable);
            let result = change(state);
            state.content().judge(false);
            result
        })
    }

    /// As [`Self::change`], for a caller that holds a lock. It [settles](Self::settle) the
    /// leftovers when it holds none.
    fn change_under_lock<R>(
        &self,
        entry: &ObjectEntry<S>,
        change: impl FnOnce(&mut S) -> R,
    ) -> (R, Leftovers<K>) {
        let mut state = entry.state.lock();
        let before = Self::before(&mut state);
        let result = change(&mut state);
        (result, self.publish(&entry.key, &mut state, before))
    }

    /// The parts that a change may replace. Not part of the generic function above, of which there
    /// are many.
    fn before(state: &mut S) -> Before<K> {
        Before {
            object: state.content().object().map(Arc::clone),
            answer: state.kept_answer().cloned(),
            aside: state.set_aside().cloned(),
            was_detached: state.is_detached(),
        }
    }

    /// Shows plain readers the state after a change.
    fn publish(&self, key: &ObjectKey, state: &mut S, before: Before<K>) -> Leftovers<K> {
        self.note_version(state.content().known_version());
        // The key of a detached entry may belong to another one already.
        let ready = (!before.was_detached).then(|| {
            let ready = state.ready(self.clock());
            let ready = ready.filter(|_| !state.is_detached());
            let (replaced, mark) = self.read_cache.publish(key, ready);
            state.note_read(mark);
            replaced
        });
        Leftovers {
            seed: state.content().end_seed(),
            _object: before.object,
            _answer: before.answer,
            _aside: before.aside,
            _ready: ready.flatten(),
        }
    }

    /// Reports a seed that has ended, and drops the leftovers of a change.
    fn settle(&self, entry: &ObjectEntry<S>, left: Leftovers<K>) {
        if let Some((_, end)) = &left.seed
            && let Some(seeds) = self.seeds()
        {
            seeds.ended(&entry.key, *end);
        }
        guard_logged("the drop of an object", || drop(left));
    }

    /// Changes the references of `owner`, and the affected entries in the same step. `renews` is as
    /// in [`References::change`]; `make` makes the state of a new entry.
    pub(crate) fn change_references<R>(
        &self,
        (owner, change): (&Owner, ReferenceChange),
        renews: bool,
        mut make: impl FnMut() -> S,
        mut react: impl FnMut(&Affected<Arc<ObjectEntry<S>>>, &mut S) -> R,
    ) -> Vec<(Affected<Arc<ObjectEntry<S>>>, R)> {
        let mut references = self.references.lock();
        let make = |key: &ObjectKey| ObjectEntry::new(key, make());
        let (affected, goes) = references.change(owner, change, renews, make);
        let changed = affected.into_iter().map(|affected| {
            let react = |state: &mut S| react(&affected, state);
            let (result, left) = self.change_under_lock(affected.entry(), react);
            (affected, result, left)
        });
        let changed: Vec<_> = changed.collect();
        drop(references);
        let claims = goes && cfg!(feature = "snapshot");
        if claims && let Some(seeds) = self.seeds() {
            seeds.claim_owner(owner);
        }
        let settled = changed.into_iter().map(|(affected, result, left)| {
            self.settle(affected.entry(), left);
            (affected, result)
        });
        settled.collect()
    }

    pub(crate) fn seeds(&self) -> Option<Arc<dyn SeedSource<K>>> {
        self.seeds.lock().clone()
    }

    /// Seeds a new entry with its object as an earlier process knew it.
    pub(crate) fn sow(&self, entry: &ObjectEntry<S>) {
        let Some(seeds) = self.seeds() else {
            return;
        };
        let Some(seed) = seeds.look(&entry.key, self.clock()) else {
            return;
        };
        let object = Arc::clone(&seed.object);
        let left = self.take_in(entry, Some(&object), |state| {
            let late = state.content().set_seed(seed);
            // Under the lock that a release takes too. After a release another entry may need the
            // seed.
            let is_claimed = late.is_some() || !state.is_detached();
            (late, is_claimed.then(|| seeds.claim(&entry.key)))
        });
        drop(left);
        entry.state.notify_all();
        self.changes.notify(&entry.key);
    }

    /// A request for a reader who waits for it until the deadline.
    pub(crate) fn request_by<'a>(
        &'a self,
        key: &'a ObjectKey,
        deadline: Deadline,
        stop: &'a StopToken,
    ) -> RequestContext<'a> {
        RequestContext {
            key,
            clock: self.clock(),
            deadline,
            stop,
            is_urgent: true,
        }
    }

    /// Sends one request on the caller's thread, and trims the object as a watch would (B19).
    ///
    /// # Errors
    ///
    /// The error of the server or of the transport; `Panicked` if the getter panicked.
    pub(crate) fn request(
        &self,
        context: &RequestContext<'_>,
        version: &ResourceVersion,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let key = context.key;
        let what = format_args!("{} {key}", resource_name::<K>()).to_string();
        guard_call(format_args!("the getter of {what}"), || {
            let (getter, deadline, stop) = (&self.getter, context.deadline, context.stop);
            let found = if context.is_urgent {
                getter.get(key, version, deadline, stop)
            } else {
                getter.get_in_background(key, version, deadline, stop)
            };
            let named = |error: Error| error.of_request(&format!("get {what}"));
            found.map(|object| self.trimmed(object)).map_err(named)
        })
    }

    /// Tells the program's error hook of the last failure of a get.
    pub(crate) fn tell_failed(&self, key: &ObjectKey, failures: &Failures) {
        if let (Some(hook), Some(error)) = (&self.options.reflector.on_error, failures.last()) {
            let failed = FailedAttempt {
                reflector: cache_name::<K>(),
                what: format!("{} {key}", resource_name::<K>()),
                phase: Phase::Listing,
                error: error.clone(),
                attempts: failures.count(),
            };
            hook.tell(&failed.port(), &failed);
        }
    }

    /// Sends a request as [`request`](Self::request) does, and repeats it while the server refuses
    /// it for a time. It is for a reader that has nothing else to return. Passes the tries to
    /// `told` before each wait.
    ///
    /// # Errors
    ///
    /// As [`request`](Self::request).
    pub(crate) fn request_patiently(
        &self,
        kind: PolicyRequest,
        context: &RequestContext<'_>,
        version: &ResourceVersion,
        told: &dyn Fn(&Failures),
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let send = || self.request(context, version);
        let until = (context.deadline, context.stop);
        patiently(kind, context.clock, until, told, send)
    }

    fn trimmed(&self, mut found: Arc<StoredObject<K>>) -> Arc<StoredObject<K>> {
        if let Some(own) = Arc::get_mut(&mut found) {
            own.inner_mut().trim();
            return found;
        }
        // The getter keeps a reference to it.
        let mut own = StoredObject::new(self.kind.copy(&found));
        own.inner_mut().trim();
        Arc::new(own)
    }
}

impl<K: Object, S: EntryState<K>> ReferencedObjects for Registry<K, S> {
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
        let content = entry.content();
        let refused = content.refused();
        let seed = content.seed();
        let seed = seed.map(|seed| (content.summary_of(&seed.object), seed.contact));
        let (seeded, kept_since) = seed.unzip();
        let summary = entry.summary().or(seeded).unwrap_or_default();
        let contact = entry.contact().or(kept_since);
        let (watch, failures) = (entry.watch(at.now), entry.failures(at.now));
        let since = |then: Instant| at.now.saturating_duration_since(then);
        Some(ObjectReport {
            kind: K::resource().kind_name(),
            key: key.clone(),
            state,
            reason,
            resource_version: summary.resource_version,
            immutable: summary.immutable,
            keys: summary.keys,
            bytes: summary.bytes,
            created: summary.created,
            since_contact: contact.map(since),
            watched: watch.is_open,
            polled: watch.is_polled,
            is_overdue: watch.is_overdue,
            owners,
            last_error: failures.last().cloned(),
            attempts: failures.count(),
            trying_for: failures.since().map(since),
            refused,
        })
    }

    fn state(&self) -> ManagerState {
        let entries = self.entries();
        let now = self.clock().now();
        let mut all = ManagerState::default();
        for entry in &entries {
            let state = entry.state.lock();
            let (standing, _) = state.standing(&self.context(&entry.key));
            let watch = state.watch(now);
            let is_absent = standing == ObjectState::NotFound;
            all.absent = all.absent.saturating_add(usize::from(is_absent));
            all.watches = all.watches.saturating_add(watch.by_name);
            all.polled = all.polled.saturating_add(usize::from(watch.is_polled));
        }
        all.objects = entries.len();
        all.references = self.references.lock().total();
        all
    }
}

#[cfg(feature = "snapshot")]
impl<K: Object, S: EntryState<K>> KeptObjects<K> for Registry<K, S> {
    fn seed_from(
        &self,
        seeds: Arc<dyn SeedSource<K>>,
    ) -> Result<Option<Arc<dyn SeedSource<K>>>, Error> {
        let mut held = self.seeds.lock();
        if held.as_ref().is_some_and(|before| !before.is_over()) {
            let text = format!("{} has a snapshot already", cache_name::<K>());
            return Err(Error::config(text));
        }
        Ok(held.replace(seeds))
    }

    fn kept(&self) -> Vec<KeptObject<K>> {
        let kept = self.entries().into_iter().filter_map(|entry| {
            let mut state = entry.state.lock();
            let (contact, aside) = (state.contact(), state.set_aside().cloned());
            let content = state.content();
            let known = content.object().map(Arc::clone).zip(contact);
            let (object, contact) = match content.seed() {
                Some(seed) => (Arc::clone(&seed.object), seed.contact),
                None => known.or(aside)?,
            };
            Some(KeptObject {
                key: entry.key.clone(),
                object,
                contact,
            })
        });
        kept.collect()
    }
}
