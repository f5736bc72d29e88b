//! The watch of one namespace: one reflector for all its watched objects. It passes each event on
//! to the entry of its object, and skips the objects that no owner references.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::clock::later;
use crate::error::{Error, ErrorKind, default_of};
use crate::list_watch::{ObjectEvent, Selection};
use crate::manager::consistent_reads::is_reached;
use crate::manager::watch::context::RunContext;
use crate::manager::watch::entry::WatchedObject;
use crate::manager::watch::run::SharedRun;
use crate::manager::watch::writer::{ObjectStaging, Writer};
use crate::object::{KeyRef, Object, ResourceVersion};
use crate::reflector::{Phase, ReflectorStatus, Replacement, Sink, Waiters};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, Rank};

/// How often the objects of a namespace learn that the server confirmed them, while they have no
/// other news. An event of one object confirms all.
pub(crate) const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);
/// How long a watch is open without an event before it counts as served: some servers cut a watch
/// at once.
const PROOF: Duration = Duration::from_secs(1);
/// How many refusals of a server that answers, over at least [`REFUSED_FOR`], count as final.
const REFUSALS: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// The watch of one namespace. Its reflector, the attached entries and the keeper share it.
pub(crate) struct NamespaceWatch<K: Object> {
    pub(crate) namespace: Box<str>,
    objects: Mutex<AttachedObjects<K>>,
    /// The readers for whom its reflector ends a backoff early.
    pub(crate) waiters: Waiters,
    context: RunContext<K>,
    /// With this many objects or fewer, the keeper looks whether the watch still pays.
    few: usize,
}

/// The objects whose events are passed on, by name.
struct AttachedObjects<K: Object> {
    by_name: HashMap<Box<str>, AttachedObject<K>>,
    attached: u64,
    /// No event that was skipped or passed on is newer than this, nor is the last list.
    position: ResourceVersion,
    /// A list is under way: the objects that it has skipped already are not known.
    is_listing: bool,
    has_listed: bool,
    has_opened: bool,
    status: ReflectorStatus,
    /// From when on the open watch takes objects over from their watches by name. `None` while it
    /// is not open.
    serves_from: Option<Instant>,
    refusals: Refusals,
    /// The object that is watched by name first, to see whether the server allows that.
    trial: Option<WatchedObject<K>>,
    /// Why the objects are better watched by name.
    refusal: Option<Error>,
    life: NamespaceLife,
}

/// How often the server has answered that there is no watch, since it was open or the transport
/// failed.
#[derive(Default)]
struct Refusals {
    count: u32,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Refusals {
    fn note(&mut self, status: &ReflectorStatus) {
        let failed_at = status.failures.last_at();
        let failure = status.failures.last();
        if status.phase == Phase::Watching {
            *self = Self::default();
        } else if failed_at > self.last {
            let is_answer = failure.is_some_and(|error| error.status().is_some());
            let before = if is_answer { self.count } else { 0 };
            self.first = self.first.filter(|_| before > 0).or(failed_at);
            self.count = before.saturating_add(u32::from(is_answer));
            self.last = failed_at;
        }
    }

    fn are_final(&self) -> bool {
        let lasted = self.first.map(|first| later(first, REFUSED_FOR));
        self.count >= REFUSALS && self.last >= lasted
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NamespaceLife {
    #[default]
    Open,
    /// No more objects are attached.
    Closed,
    /// The thread has ended.
    Over,
}

struct AttachedObject<K: Object> {
    writer: Arc<Writer<K>>,
    number: u64,
    /// An entry that knows the object at this version or later misses nothing, or one that knows
    /// the answer of a consistent read that began after this time. `None` while that is not known.
    required: Option<(ResourceVersion, Instant)>,
}

impl<K: Object> NamespaceWatch<K> {
    pub(crate) fn new(namespace: &str, few: usize, context: RunContext<K>) -> Arc<Self> {
        let objects = AttachedObjects {
            is_listing: true,
            ..AttachedObjects::default()
        };
        Arc::new(Self {
            namespace: namespace.into(),
            objects: Mutex::ranked(Rank::NAMESPACE_OBJECTS, objects),
            waiters: Waiters::new(),
            context,
            few,
        })
    }

    /// Passes the object's events on to the writer from now on. Drops the writer and returns `None`
    /// once the watch is [closed](Self::close).
    pub(crate) fn attach(self: &Arc<Self>, writer: Arc<Writer<K>>) -> Option<Attachment<K>> {
        let name: Box<str> = writer.object.key.name().into();
        let mut objects = self.objects.lock();
        if objects.life != NamespaceLife::Open {
            drop(objects);
            return None;
        }
        objects.attached = objects.attached.wrapping_add(1);
        let number = objects.attached;
        let required = (!objects.is_listing).then(|| (objects.position.clone(), self.now()));
        let attached = AttachedObject {
            writer,
            number,
            required,
        };
        let before = objects.by_name.insert(name.clone(), attached);
        drop(objects);
        // The writer of a released entry: its drop takes locks.
        drop(before);
        Some(Attachment {
            watch: Arc::clone(self),
            name,
            number,
        })
    }

    /// Refuses further objects.
    pub(crate) fn close(&self) {
        let mut objects = self.objects.lock();
        if objects.life == NamespaceLife::Open {
            objects.life = NamespaceLife::Closed;
        }
    }

    fn now(&self) -> Instant {
        self.context.registry.clock().now()
    }

    /// The writers of the attached objects.
    pub(crate) fn writers(&self) -> Vec<Arc<Writer<K>>> {
        let objects = self.objects.lock();
        let attached = objects.by_name.values();
        attached.map(|one| Arc::clone(&one.writer)).collect()
    }

    pub(crate) fn object_count(&self) -> usize {
        self.objects.lock().by_name.len()
    }

    /// Whether its first list has come.
    pub(crate) fn has_listed(&self) -> bool {
        self.objects.lock().has_listed
    }

    /// Why the watch is to end: its objects are better watched by name, or its thread has ended.
    pub(crate) fn end_reason(&self) -> Option<Error> {
        let objects = self.objects.lock();
        let is_over = objects.life == NamespaceLife::Over;
        let over = is_over.then(|| {
            let text = "the thread of the namespace's watch has ended";
            Error::new(ErrorKind::Panicked, text)
        });
        objects.refusal.clone().or(over)
    }

    /// Whether the server has ever served it.
    pub(crate) fn has_opened(&self) -> bool {
        self.objects.lock().has_opened
    }

    /// Whether it takes objects over from their watches by name.
    pub(crate) fn serves(&self) -> bool {
        let now = self.now();
        let serves_from = self.objects.lock().serves_from;
        serves_from.is_some_and(|from| now >= from)
    }

    /// Takes over the listed objects if it [serves](Self::serves), or asks for that later.
    pub(crate) fn take_over(&self) {
        let serves_from = self.objects.lock().serves_from;
        if self.serves() {
            for writer in self.writers() {
                if let Some(listed) = writer.take_over() {
                    self.require(&writer, listed);
                    writer.take_over();
                }
            }
        } else if let Some(from) = serves_from {
            self.context.tend_at(from);
        }
    }

    /// The writer's entry misses nothing once it knows its object at `version`.
    fn require(&self, writer: &Arc<Writer<K>>, version: ResourceVersion) {
        let mut objects = self.objects.lock();
        let attached = objects.by_name.get_mut(writer.object.key.name());
        if let Some(attached) = attached.filter(|one| Arc::ptr_eq(&one.writer, writer)) {
            attached.required = Some((version, self.now()));
        }
    }

    /// The object that is watched by name for a trial, and whether a trial is due.
    pub(crate) fn trial(&self) -> (Option<WatchedObject<K>>, bool) {
        let objects = self.objects.lock();
        (objects.trial.clone(), objects.refusals.are_final())
    }

    pub(crate) fn set_trial(&self, trial: Option<WatchedObject<K>>) {
        let before = std::mem::replace(&mut self.objects.lock().trial, trial);
        drop(before);
    }

    /// Ends in favour of watches by name, which the server allows while it refuses this one.
    pub(crate) fn give_up(&self) {
        let mut objects = self.objects.lock();
        objects.refusal = objects.status.failures.last().cloned();
        drop(objects);
        self.context.tend_namespaces();
    }

    pub(crate) fn status(&self) -> ReflectorStatus {
        self.objects.lock().status.clone()
    }

    /// The position of the watch. `None` while it lists.
    pub(crate) fn position(&self) -> Option<ResourceVersion> {
        let objects = self.objects.lock();
        (!objects.is_listing).then(|| objects.position.clone())
    }

    /// The writer of the object, if the event may tell it something. Without one the event is
    /// skipped. The position moves to the event in the same step: an entry that is attached later
    /// does not get it.
    fn writer_of(&self, key: KeyRef<'_>, version: &str) -> Option<Arc<Writer<K>>> {
        let version = ResourceVersion::from(version);
        let mut objects = self.objects.lock();
        let is_here = key.namespace == &*self.namespace;
        let attached = objects.by_name.get(key.name).filter(|_| is_here);
        let found = attached.map(|one| (Arc::clone(&one.writer), one.required.clone()));
        objects.pass(version.clone());
        drop(objects);
        self.context.registry.note_version(&version);
        let (writer, required) = found?;
        let is_past = required.is_some_and(|(required, _)| version.is_older_than(&required));
        // A server may send the past once more: it says nothing of an object that is not known yet.
        (!is_past || writer.has_reached(&version)).then_some(writer)
    }

    /// Removes the object, if it is still the one that was attached with this number.
    fn detach(&self, name: &str, number: u64) {
        let mut objects = self.objects.lock();
        let is_it = objects.by_name.get(name);
        let is_it = is_it.is_some_and(|attached| attached.number == number);
        let detached = is_it.then(|| objects.by_name.remove(name));
        let is_due = objects.by_name.len() <= self.few || objects.trial.is_some();
        drop(objects);
        drop(detached);
        if is_due {
            self.context.tend_namespaces();
        }
    }
}

default_of!([K: Object] AttachedObjects<K>:
    by_name, attached, position, is_listing, has_listed, has_opened, status, serves_from,
    refusals, trial, refusal, life);

impl<K: Object> AttachedObjects<K> {
    /// Moves the position to that version, if versions can be compared.
    fn pass(&mut self, version: ResourceVersion) {
        if !version.is_empty() && !version.is_older_than(&self.position) {
            self.position = version;
        }
    }
}

impl<K: Object> Selection for NamespaceWatch<K> {
    fn selects(&self, namespace: &str, name: &str, version: &str) -> bool {
        self.writer_of(KeyRef { namespace, name }, version)
            .is_some()
    }
}

/// The run of an entry whose object is attached to the watch of a namespace. It has no thread.
pub(crate) struct Attachment<K: Object> {
    watch: Arc<NamespaceWatch<K>>,
    name: Box<str>,
    number: u64,
}

impl<K: Object> SharedRun for Attachment<K> {
    fn stop(&self) {
        self.watch.detach(&self.name, self.number);
    }

    fn covers(&self, version: &ResourceVersion, read: Option<Instant>) -> bool {
        if !self.watch.serves() {
            return false;
        }
        let objects = self.watch.objects.lock();
        let attached = objects.by_name.get(&self.name);
        let attached = attached.filter(|attached| attached.number == self.number);
        let required = attached.and_then(|attached| attached.required.as_ref());
        // Versions without an order never say whether something was missed.
        required.is_some_and(|(required, since)| {
            read > Some(*since) || (!required.is_unset() && is_reached(version, required))
        })
    }

    fn status(&self) -> Option<ReflectorStatus> {
        Some(self.watch.status())
    }

    fn expedite(&self) {
        self.watch.waiters.expedite();
    }
}

/// The sink of a namespace's watch.
pub(crate) struct NamespaceSink<K: Object> {
    watch: Arc<NamespaceWatch<K>>,
    /// The status that the attached objects were told last.
    told: Option<ReflectorStatus>,
    /// A list was committed, and no status reported since.
    has_committed: bool,
}

/// The staged objects of a list of the namespace, by name: those that were attached before the list
/// began. It may have skipped the others.
pub(crate) type NamespaceStaging<K> = HashMap<Box<str>, (Arc<Writer<K>>, ObjectStaging<K>)>;

impl<K: Object> NamespaceSink<K> {
    pub(crate) fn new(watch: &Arc<NamespaceWatch<K>>) -> Self {
        let count = &watch.context.namespace_watches;
        count.fetch_add(1, Ordering::Relaxed);
        Self {
            watch: Arc::clone(watch),
            told: None,
            has_committed: false,
        }
    }

    pub(crate) fn watch(&self) -> &Arc<NamespaceWatch<K>> {
        &self.watch
    }

    /// Whether the objects know the parts of the status that matter to them.
    fn is_told(&self, status: &ReflectorStatus) -> bool {
        let Some(told) = &self.told else {
            return false;
        };
        let soon = |at: Option<Instant>| at.map(|at| later(at, CONFIRM_INTERVAL));
        let (before, deadline) = (told.contact_deadline, status.contact_deadline);
        told.phase == status.phase
            && told.failures.count() == status.failures.count()
            && told.failing.count() == status.failing.count()
            && told.behind_since == status.behind_since
            && told.next_attempt == status.next_attempt
            && (told.lists, told.watches) == (status.lists, status.watches)
            && status.last_contact <= soon(told.last_contact)
            && (before..=soon(before)).contains(&deadline)
    }

    /// Notes an event or a bookmark: the watch is open, and the server serves it.
    fn prove(&mut self) {
        if !self.watch.serves() {
            let now = self.watch.now();
            let mut objects = self.watch.objects.lock();
            (objects.serves_from, objects.has_opened) = (Some(now), true);
            drop(objects);
            self.watch.take_over();
        }
    }
}

impl<K: Object> Sink<K> for NamespaceSink<K> {
    type Staging = NamespaceStaging<K>;

    fn begin(&mut self) -> Self::Staging {
        let mut objects = self.watch.objects.lock();
        (objects.is_listing, objects.serves_from) = (true, None);
        // The watch before may have missed what only the list will tell.
        for attached in objects.by_name.values_mut() {
            attached.required = None;
        }
        drop(objects);
        let writers = self.watch.writers().into_iter();
        let staged = writers.map(|mut writer| {
            let staging = writer.begin();
            (writer.object.key.name().into(), (writer, staging))
        });
        staged.collect()
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        if let Some((writer, staging)) = staging.get_mut(event.object.key_ref().name) {
            writer.stage(staging, event);
        }
    }

    /// Passes its object to each entry. An entry that knows a newer state keeps that.
    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        let mut covered = HashMap::new();
        let mut stale = Ok(());
        for (name, (mut writer, staging)) in staging {
            match writer.commit(staging, of) {
                Ok(()) => drop(covered.insert(name, writer)),
                Err(error) if error.is_stopped() => {}
                // The known state is as new, and the watch goes on from there.
                Err(_) if writer.has_reached(&of.resource_version) => {}
                Err(error) => stale = Err(error),
            }
        }
        let since = self.watch.now();
        let mut objects = self.watch.objects.lock();
        (objects.is_listing, objects.has_listed) = (false, true);
        objects.position = of.resource_version.clone();
        for (name, attached) in &mut objects.by_name {
            let taken = covered.get(name);
            if !taken.is_some_and(|writer| Arc::ptr_eq(writer, &attached.writer)) {
                attached.required = Some((of.resource_version.clone(), since));
            }
        }
        drop(objects);
        (self.told, self.has_committed) = (None, true);
        stale
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        self.prove();
        let (_, version) = event.object.identity();
        let Some(mut writer) = self.watch.writer_of(event.object.key_ref(), version) else {
            return Ok(());
        };
        match writer.apply(event) {
            // The entry has ended its run.
            Err(error) if error.is_stopped() => Ok(()),
            applied => applied,
        }
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.prove();
        self.watch.objects.lock().pass(version.clone());
        for mut writer in self.watch.writers() {
            writer.bookmark(version);
        }
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let is_told = self.is_told(status);
        // That the namespace is refused is no answer about one of its objects.
        let mut status = status.clone();
        status.refusal = None;
        let mut objects = self.watch.objects.lock();
        let failure = status.failures.last();
        let by_name_may_do = [ErrorKind::Forbidden, ErrorKind::TooLarge];
        let refusal = failure.filter(|error| by_name_may_do.contains(&error.kind()));
        let is_refused = refusal.is_some() && objects.refusal.is_none();
        if is_refused {
            objects.refusal = refusal.cloned();
        }
        objects.refusals.note(&status);
        let is_open = status.phase == Phase::Watching;
        let now = self.watch.now();
        let opens = is_open && objects.serves_from.is_none();
        // The stream of a list has carried objects.
        let proof = if self.has_committed {
            now
        } else {
            later(now, PROOF)
        };
        objects.serves_from = objects.serves_from.or(Some(proof)).filter(|_| is_open);
        objects.has_opened |= is_open;
        let is_due = is_refused || objects.refusals.are_final() || opens && objects.trial.is_some();
        objects.status.clone_from(&status);
        drop(objects);
        if is_due {
            self.watch.context.tend_namespaces();
        }
        if opens {
            self.watch.take_over();
        }
        self.has_committed = false;
        if !is_told {
            for writer in self.watch.writers() {
                writer.update(&status);
            }
            self.told = Some(status);
        }
    }
}

impl<K: Object> Drop for NamespaceSink<K> {
    fn drop(&mut self) {
        let mut objects = self.watch.objects.lock();
        objects.life = NamespaceLife::Over;
        let attached = std::mem::take(&mut objects.by_name);
        drop(objects);
        // Each entry learns that its run has ended.
        drop(attached);
        let context = &self.watch.context;
        context.namespace_watches.fetch_sub(1, Ordering::Relaxed);
        context.tend_namespaces();
    }
}
