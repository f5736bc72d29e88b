//! The producing side of a queue: a sink for one reflector. Dropping it closes the queue.

use hashbrown::{HashMap, HashSet, hash_map::Entry};

use super::delta::{Deletion, Delta, ReplacedAll};
use super::handle::DeltaFifoHandle;
use super::options::{DeltaFifoOptions, KnownObjects, ask};
use super::state::{QueueEnd, QueueState};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind, debug_of};
use crate::list_watch::{Bound, EventKind, Listed, OBJECTS_MAX, ObjectEvent};
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject, is_same_state};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::store::VersionGuard;
use crate::sync::{Arc, Monitor, MutexGuard, current_thread};
use crate::worker::{StopToken, Wake, WakeRegistration};

/// The producing side of a [`DeltaFifo`](super::DeltaFifo): exclusive, and a [`Sink`]. Dropping it
/// closes the queue.
///
/// An event waits for the consumer only if more than [`max_events`](DeltaFifoOptions::max_events)
/// wait. A list and a resync wait until nothing is being processed, because they ask for the
/// consumer's objects. The stop of the reflector, the close of the queue and the end of the
/// consumer end these waits. A list is all or nothing.
///
/// Every write from inside the process function fails, because it could wait for itself.
///
/// The queue refuses a list that is older than an earlier write, so that the reflector asks for the
/// most recent. It does not compare events: the store that holds the final content refuses old
/// news.
pub struct DeltaFifoWriter<K: Object> {
    queue: DeltaFifoHandle<K>,
    options: DeltaFifoOptions<K>,
    /// Knows the version up to which the queue has been written.
    guard: VersionGuard,
    /// The maximum number of objects of a list, and how many the last one left out.
    bound: Bound,
    /// The stop of the reflector that writes.
    stop: Option<(StopToken, WakeRegistration)>,
}

/// A list on its way into a queue; dropping it leaves the queue as it was.
pub struct DeltaFifoStaging<K: Object> {
    /// The items, each with its place in the list's order, from 0 on.
    pub(super) items: HashMap<Arc<ObjectKey>, (usize, Listed<K>)>,
    /// How many places were assigned so far. Those of removed items stay empty.
    places: usize,
    bound: Bound,
    /// The objects that the consumer had still to see when the list went beyond the bound.
    waiting: Option<HashSet<ObjectKey>>,
    /// The first item that a transform refused: the list cannot be committed (DF-10, RQ-10).
    failed: Option<Error>,
}

impl<K: Object> DeltaFifoWriter<K> {
    pub(super) fn new(queue: DeltaFifoHandle<K>, options: DeltaFifoOptions<K>) -> Self {
        Self {
            queue,
            options,
            guard: VersionGuard::of_collection(),
            bound: Bound::new(OBJECTS_MAX),
            stop: None,
        }
    }

    /// The consumer's object, if the listed one is the same state.
    fn unchanged(&self, key: &ObjectKey, object: &StoredObject<K>) -> Option<Arc<StoredObject<K>>> {
        let known = self.options.known.as_deref()?;
        let known_object = ask(known, |known| known.get(key)).ok()?.ok().flatten()?;
        is_same_state::<K>(object, &known_object).then_some(known_object)
    }

    /// Whether a list that has no room for the object would be its deletion.
    fn is_held(&self, staging: &mut DeltaFifoStaging<K>, key: &ObjectKey) -> bool {
        let waiting = match &mut staging.waiting {
            Some(waiting) => waiting,
            none => none.insert(self.queue.state.lock().unfinished()),
        };
        waiting.contains(key) || self.is_known(key)
    }

    /// Whether the consumer has the object, or cannot say.
    fn is_known(&self, key: &ObjectKey) -> bool {
        let known = self.options.known.as_deref();
        known.is_some_and(|known| !matches!(ask(known, |known| known.get(key)), Ok(Ok(None))))
    }

    /// Locks the queue for a write, as soon as `is_ready` says so.
    ///
    /// # Errors
    ///
    /// `Stopped` when the consumer is gone, or when the write would have to wait and the queue is
    /// closed or the reflector stopped; `Config` inside the process function.
    fn lock_when(
        &self,
        is_ready: impl Fn(&QueueState<K>) -> bool,
    ) -> Result<MutexGuard<'_, QueueState<K>>, Error> {
        let DeltaFifoHandle { state, clock, .. } = &self.queue;
        let locked = state.lock();
        if locked.is_processed_by(current_thread()) {
            drop(locked);
            let text = format!(
                "DeltaFIFO: the process function of a {} queue wrote to that queue; write from \
                 another thread",
                K::resource().kind()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        let is_stopped = || {
            let stop = self.stop.as_ref();
            stop.is_some_and(|(stop, _)| stop.is_stopped())
        };
        let (end, locked) = clock.wait_for(state, locked, Deadline::NEVER, |state| {
            let goes_on = state.end != QueueEnd::Abandoned && is_ready(state);
            let ended = state.end != QueueEnd::Open || is_stopped();
            (goes_on || ended).then_some(goes_on)
        });
        if end == Some(true) {
            return Ok(locked);
        }
        let gone = locked.end == QueueEnd::Abandoned;
        drop(locked);
        Err(Error::stopped(if gone {
            "DeltaFIFO: the consumer is gone"
        } else {
            "DeltaFIFO: waiting for the consumer"
        }))
    }

    /// Whether a list, or a resync, may be queued.
    fn has_room(&self, state: &QueueState<K>) -> bool {
        state.listed < self.options.objects_max
    }

    /// Asks the view while no entry is processed or taken, and locks the queue, which then agrees
    /// with the answer.
    fn ask_while_idle<T: Default>(
        &self,
        question: impl FnOnce(&dyn KnownObjects<K>) -> T,
    ) -> Result<(T, MutexGuard<'_, QueueState<K>>), Error> {
        let mut state = self.lock_when(|state| state.is_idle() && self.has_room(state))?;
        let Some(known) = self.options.known.as_deref() else {
            return Ok((T::default(), state));
        };
        state.paused = true;
        drop(state);
        let answer = ask(known, question);
        let mut state = self.queue.state.lock();
        state.paused = false;
        self.queue.state.notify_all();
        if state.end == QueueEnd::Abandoned {
            return Err(Error::stopped("DeltaFIFO: the consumer is gone"));
        }
        Ok((answer?, state))
    }

    /// Notes a change, and returns whether to queue it: a deletion only if the queue or the
    /// consumer knows the object (DF-5, RQ-2).
    fn takes(&self, kind: EventKind, key: &ObjectKey) -> Result<bool, Error> {
        let mut state = self.lock_when(|_| true)?;
        state.populate();
        let is_queued = kind != EventKind::Deleted || state.takes_deletion(key);
        let is_idle = state.is_idle();
        drop(state);
        self.queue.state.notify_all();
        // The object may be in processing. It does not wait, so it is not taken later.
        let may_be_processed = self.options.known.is_some() && !is_idle;
        Ok(is_queued || may_be_processed || self.is_known(key))
    }

    /// Queues a delta that belongs to no single object.
    fn queue_for_all(&self, delta: Delta<K>) -> Result<(), Error> {
        let left_out = self.lock_when(|_| true)?.push(None, delta);
        drop(left_out);
        Ok(())
    }
}

impl<K: Object> Sink<K> for DeltaFifoWriter<K> {
    type Staging = DeltaFifoStaging<K>;

    fn start(&mut self, stop: &StopToken) {
        let wake: Arc<dyn Wake> = Arc::<Monitor<QueueState<K>>>::clone(&self.queue.state);
        self.stop = Some((stop.clone(), stop.register(&wake)));
    }

    fn bound(&mut self, objects_max: usize) {
        self.bound.max = objects_max;
    }

    fn left_out(&self) -> usize {
        self.bound.left_out
    }

    fn begin(&mut self) -> DeltaFifoStaging<K> {
        DeltaFifoStaging {
            items: HashMap::new(),
            places: 0,
            waiting: None,
            bound: Bound::new(self.bound.max),
            failed: None,
        }
    }

    fn stage(&mut self, staging: &mut DeltaFifoStaging<K>, event: ObjectEvent<K>) {
        let key = event.object.key();
        let has_room = staging.bound.has_room(staging.items.len());
        let is_deleted = event.kind == EventKind::Deleted;
        let has_place = is_deleted || has_room || staging.items.contains_key(&key);
        match event.object {
            _ if !has_place && !self.is_held(staging, &key) => staging.bound.leave_out(1),
            _ if is_deleted => drop(staging.items.remove(&key)),
            item @ (Listed::Object(_) | Listed::Undecodable(_)) => {
                let known = item.decoded();
                let known = known.and_then(|object| self.unchanged(&key, object));
                let item = match known {
                    Some(known) => Ok(Listed::Object(known)),
                    None => item.transformed(self.options.transform.as_ref()),
                };
                match item {
                    Ok(item) => staging.put(key, item),
                    Err(error) => drop(staging.failed.get_or_insert(error)),
                }
            }
        }
    }

    fn commit(&mut self, mut staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        if let Some(error) = staging.failed.take() {
            return Err(error);
        }
        let left_out = staging.bound.left_out;
        // A list that fails later must not move the position.
        let mut guard = self.guard.clone();
        guard.admits_replacement(of)?;
        if self.options.atomic_lists {
            let mut items: Vec<_> = staging.items.into_values().collect();
            items.sort_unstable_by_key(|(place, _)| *place);
            let list = ReplacedAll {
                of: of.clone(),
                items: items.into_iter().map(|(_, item)| item).collect(),
            };
            let list = Delta::ReplacedAll(Box::new(list));
            let mut state = self.lock_when(|state| self.has_room(state))?;
            state.replace_at_once(list);
            drop(state);
        } else {
            // The items, and the deletions that the list implies.
            let items = staging.items;
            let (missing, mut state) = self.ask_while_idle(|known| {
                let keys = known.keys().into_iter();
                let missing = keys.filter(|key| !items.contains_key(key)).map(|key| {
                    let last_known = known.last_good(&key);
                    (Arc::new(key), last_known)
                });
                missing.collect()
            })?;
            let replaced = state.replace(items, missing);
            drop(state);
            drop(replaced);
        }
        self.guard = guard;
        self.bound.left_out = left_out;
        self.queue.state.notify_all();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        let (key, version) = (object.key(), object.resource_version());
        if !self.takes(kind, &key)? {
            return Ok(());
        }
        let object = object.transformed(self.options.transform.as_ref())?;
        let delta = match kind {
            EventKind::Added => Delta::Added(object),
            EventKind::Updated => Delta::Updated(object),
            EventKind::Deleted => Delta::Deleted(Box::new(Deletion::seen(key.clone(), object))),
        };
        let left_out = self
            .lock_when(|state| state.events < self.options.events_max)?
            .push(Some(Arc::new(key)), delta);
        self.queue.state.notify_all();
        drop(left_out);
        self.guard.raise(&version);
        Ok(())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.guard.raise(version);
        if self.options.bookmarks {
            match self.queue_for_all(Delta::Bookmark(version.clone())) {
                Ok(()) => self.queue.state.notify_all(),
                Err(error) => log::debug!("bookmark {version} is left out: {error}"),
            }
        }
    }

    fn resync(&mut self) -> Result<(), Error> {
        if self.options.atomic_lists {
            self.queue_for_all(Delta::SyncAll)?;
        } else if self.options.known.is_some() {
            let (objects, mut state) = self.ask_while_idle(|known| {
                let object = |key: ObjectKey| match known.get(&key) {
                    Ok(object) => object.map(|object| (Arc::new(key), object)),
                    Err(error) => {
                        log::debug!(
                            "{} {key} is left out of a resync: {error}",
                            K::resource().kind()
                        );
                        None
                    }
                };
                let keys = known.keys().into_iter();
                keys.filter_map(object).collect::<Vec<_>>()
            })?;
            state.resync(&objects);
        }
        self.queue.state.notify_all();
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let mut status = status.clone();
        let mut state = self.queue.state.lock();
        let told = state.status.refusal.is_some() != status.refusal.is_some();
        std::mem::swap(&mut state.status, &mut status);
        drop(state);
        if told {
            self.queue.state.notify_all();
        }
    }
}

impl<K: Object> DeltaFifoStaging<K> {
    /// Puts an item in. The last one of a key replaces the first, at its place (ST-5).
    fn put(&mut self, key: ObjectKey, item: Listed<K>) {
        let new = (self.places, item);
        self.places = self.places.wrapping_add(1);
        match self.items.entry(Arc::new(key)) {
            Entry::Occupied(mut staged) => staged.get_mut().1 = new.1,
            Entry::Vacant(free) => drop(free.insert(new)),
        }
    }
}

impl<K: Object> Drop for DeltaFifoWriter<K> {
    fn drop(&mut self) {
        self.queue.state.lock().status.end();
        self.queue.close();
    }
}

debug_of!([K: Object] DeltaFifoWriter<K>, |it| kind: K::resource().kind(), options: it.options, ..);

debug_of!([K: Object] DeltaFifoStaging<K>, |it| items: it.items.len(), ..);
