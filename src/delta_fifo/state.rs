//! The entries of a queue and their changes: plain data without a lock, a clock or a view.
//!
//! A change returns the values to drop once the lock is released.

use std::collections::VecDeque;
use std::time::Instant;

use hashbrown::{HashMap, HashSet};

use super::delta::{Deletion, Delta, Deltas};
use crate::error::Error;
use crate::list_watch::Listed;
use crate::object::{Object, ObjectKey, StoredObject};
use crate::reflector::ReflectorStatus;
use crate::sync::{Arc, ThreadId};

/// The number of entries for which an emptied queue keeps memory. The memory of a larger burst is
/// freed (RQ-16).
const CAPACITY_KEPT: usize = 1_024;

/// Whether the queue goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueEnd {
    Open,
    /// Waiting entries are still handed over (DF-17).
    Closed,
    /// The consumer is gone: no entry will ever be taken.
    Abandoned,
}

/// An object of the consumer that a list does not hold, with its last state that decodes.
pub(super) type MissingObject<K> = (Arc<ObjectKey>, Option<Arc<StoredObject<K>>>);

/// Everything under the queue's one mutex.
pub(super) struct QueueState<K: Object> {
    compressed: bool,
    entries: VecDeque<Deltas<K>>,
    /// Compressed: the entry of each object, numbered from the first one ever queued (DF-4).
    places: HashMap<Arc<ObjectKey>, usize>,
    /// The number of entries taken so far.
    taken: usize,
    /// The number of waiting watch events, for the bound (RQ-12).
    pub(super) events: usize,
    /// The number of waiting objects of lists and resyncs, for the other bound.
    pub(super) listed: usize,
    /// The number of entries of the first list that are not processed yet (DF-14, RQ-5); `None`
    /// before a list or a change has come.
    initial: Option<usize>,
    /// The thread that processes the taken entries, how many of those belong to the first list, and
    /// their objects.
    processing: Option<(ThreadId, usize, HashSet<Arc<ObjectKey>>)>,
    /// The writer asks the consumer's view: no entry is taken meanwhile.
    pub(super) paused: bool,
    pub(super) end: QueueEnd,
    /// A panic of the process function ends the consumer.
    pub(super) ends_with_panic: bool,
    /// The cause of the consumer's end, unless it was a stop.
    pub(super) cause: Option<Error>,
    pub(super) status: ReflectorStatus,
    pub(super) since: Instant,
}

impl<K: Object> QueueState<K> {
    pub(super) fn new(compressed: bool, since: Instant) -> Self {
        Self {
            compressed,
            entries: VecDeque::new(),
            places: HashMap::new(),
            taken: 0,
            events: 0,
            listed: 0,
            initial: None,
            processing: None,
            paused: false,
            end: QueueEnd::Open,
            ends_with_panic: false,
            cause: None,
            status: ReflectorStatus::default(),
            since,
        }
    }

    /// How many entries wait: objects when compressed, deltas when in order.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has_synced(&self) -> bool {
        self.initial == Some(0)
    }

    /// Whether nothing is being processed.
    pub(super) fn is_idle(&self) -> bool {
        self.processing.is_none()
    }

    pub(super) fn is_processed_by(&self, thread: ThreadId) -> bool {
        matches!(self.processing, Some((by, ..)) if by == thread)
    }

    /// Whether the queue takes a deletion of the object, by its own knowledge (DF-5, RQ-2).
    pub(super) fn takes_deletion(&self, key: &ObjectKey) -> bool {
        !self.compressed || self.places.contains_key(key)
    }

    /// The objects that wait, those of whole lists included, or are being processed.
    pub(super) fn unfinished(&self) -> HashSet<ObjectKey> {
        let waiting = self.entries.iter().flat_map(|entry| {
            if let Delta::ReplacedAll(list) = entry.newest() {
                list.items.iter().map(Listed::key).collect()
            } else {
                Vec::from_iter(entry.key().cloned())
            }
        });
        let processing = self.processing.iter().flat_map(|(.., keys)| keys);
        let processing = processing.map(|key| (**key).clone());
        waiting.chain(processing).collect()
    }

    /// Whether the queue can no longer sync.
    pub(super) fn is_hopeless(&self) -> bool {
        match self.end {
            QueueEnd::Open => false,
            QueueEnd::Closed => !self.has_synced() && self.entries.is_empty() && self.is_idle(),
            QueueEnd::Abandoned => !self.has_synced(),
        }
    }

    /// Notes a change: without a first list, the queue counts as synced from now on (DF-14).
    /// Ignored deletions count (DF-5), and so do changes that a transform refuses (DF-7).
    pub(super) fn populate(&mut self) {
        self.initial.get_or_insert(0);
    }

    pub(super) fn push(
        &mut self,
        key: Option<Arc<ObjectKey>>,
        delta: Delta<K>,
    ) -> Option<Delta<K>> {
        let (events, listed) = delta.counts();
        self.events = self.events.saturating_add(events);
        self.listed = self.listed.saturating_add(listed);
        if let Some(entry) = self.entry_to_join(key.as_deref(), &delta) {
            let left_out = entry.push(delta);
            self.count_out(left_out.iter().map(Delta::counts));
            return left_out;
        }
        if let (true, Some(key)) = (self.compressed, &key) {
            let place = self.taken.wrapping_add(self.entries.len());
            self.places.insert(Arc::clone(key), place);
        }
        self.entries.push_back(Deltas::new(key, delta));
        None
    }

    /// The entry that a delta joins instead of getting one of its own.
    fn entry_to_join(
        &mut self,
        key: Option<&ObjectKey>,
        delta: &Delta<K>,
    ) -> Option<&mut Deltas<K>> {
        if !self.compressed {
            return None;
        }
        if let Some(key) = key {
            let place = self.places.get(key)?.wrapping_sub(self.taken);
            return self.entries.get_mut(place);
        }
        let last = self.entries.back_mut()?;
        (delta.is_bookmark() && last.newest().is_bookmark()).then_some(last)
    }

    /// Queues a list: its items, and a deletion of each object that it lacks (DF-8, RQ-3). Those
    /// are waiting objects, and the consumer's in `missing`, each with its last state that decodes.
    pub(super) fn replace(
        &mut self,
        items: HashMap<Arc<ObjectKey>, (usize, Listed<K>)>,
        missing: Vec<MissingObject<K>>,
    ) -> Vec<Delta<K>> {
        if self.compressed {
            self.forget_bookmarks();
        }
        let gone = self.end_unlisted(|key| items.contains_key(key), missing);
        let gone = gone.into_iter();
        let mut items: Vec<_> = items.into_iter().collect();
        items.sort_unstable_by_key(|(_, (place, _))| *place);
        let items = items.into_iter();
        let items = items.map(|(key, (_, item))| (key, Delta::Replaced(item)));
        let deltas: Vec<_> = if self.compressed {
            items.chain(gone).collect()
        } else {
            gone.chain(items).collect()
        };
        let pushed = deltas.into_iter();
        let left_out = pushed.filter_map(|(key, delta)| self.push(Some(key), delta));
        let left_out = left_out.collect();
        self.initial.get_or_insert(self.entries.len());
        left_out
    }

    /// Queues a list as one delta (RQ-10).
    pub(super) fn replace_at_once(&mut self, list: Delta<K>) {
        self.push(None, list);
        self.initial.get_or_insert(self.entries.len());
    }

    /// Queues the known objects that have no waiting entry (DF-16, RQ-9).
    pub(super) fn resync(&mut self, known: &[(Arc<ObjectKey>, Arc<StoredObject<K>>)]) {
        let waiting = self.entries.iter().filter_map(Deltas::shared_key);
        let waiting: HashSet<_> = waiting.map(Arc::clone).collect();
        for (key, object) in known.iter().filter(|(key, _)| !waiting.contains(key)) {
            self.push(Some(Arc::clone(key)), Delta::Sync(Arc::clone(object)));
        }
    }

    /// Drops waiting bookmarks: a compressed list joins entries before them, and may take their
    /// position back.
    fn forget_bookmarks(&mut self) {
        self.entries.retain(|entry| !entry.newest().is_bookmark());
        for (at, entry) in self.entries.iter().enumerate() {
            if let Some(place) = entry.key().and_then(|key| self.places.get_mut(key)) {
                *place = self.taken.wrapping_add(at);
            }
        }
    }

    /// Deletions of the objects that a list lacks, in the order of their entries. If an object's
    /// last waiting change is a deletion, it is marked instead.
    fn end_unlisted(
        &mut self,
        is_listed: impl Fn(&ObjectKey) -> bool,
        missing: Vec<MissingObject<K>>,
    ) -> Vec<(Arc<ObjectKey>, Delta<K>)> {
        // By key: the order, the newest waiting entry, the last state.
        let mut gone: HashMap<Arc<ObjectKey>, (usize, Option<usize>, Option<_>)> = HashMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let key = entry.shared_key().filter(|key| !is_listed(key));
            let Some(key) = key else { continue };
            let unlisted = (gone.len(), None, None);
            let (_, newest, last) = gone.entry(Arc::clone(key)).or_insert(unlisted);
            *newest = Some(at);
            if let Some(object) = entry.last_object() {
                *last = Some(Arc::clone(object));
            }
        }
        for (key, known) in missing {
            let unlisted = (gone.len(), None, None);
            let (.., last) = gone.entry(key).or_insert(unlisted);
            *last = last.take().or(known);
        }
        let mut gone: Vec<_> = gone.into_iter().collect();
        gone.sort_unstable_by_key(|(_, (order, ..))| *order);
        let gone = gone.into_iter().filter_map(|(key, (_, newest, last))| {
            let newest = newest.and_then(|at| self.entries.get_mut(at));
            if let Some(Delta::Deleted(deletion)) = newest.map(Deltas::newest_mut) {
                deletion.unlisted = true;
                return None;
            }
            let deletion = Deletion {
                key: (*key).clone(),
                seen: None,
                last_known: last,
                unlisted: true,
            };
            Some((key, Delta::Deleted(Box::new(deletion))))
        });
        gone.collect()
    }

    /// Hands up to `max` entries over to `thread`, each of a different object, and either all of
    /// the first list or none (RQ-13). Returns whether the queue had not synced yet (DF-13, RQ-7).
    pub(super) fn take(
        &mut self,
        max: usize,
        thread: ThreadId,
    ) -> Option<(Deltas<K>, Vec<Deltas<K>>, bool)> {
        let initial = self.initial.filter(|left| *left > 0);
        let max = initial.map_or(max, |left| max.min(left));
        let first = self.pop()?;
        let mut keys: HashSet<_> = first.shared_key().map(Arc::clone).into_iter().collect();
        let is_alone = keys.is_empty();
        let mut more = Vec::new();
        while !is_alone && more.len().saturating_add(1) < max {
            let next = self.entries.front().and_then(Deltas::shared_key);
            if !next.is_some_and(|key| keys.insert(Arc::clone(key))) {
                break;
            }
            more.extend(self.pop());
        }
        let taken = more.len().saturating_add(1);
        let of_first_list = if initial.is_some() { taken } else { 0 };
        self.processing = Some((thread, of_first_list, keys));
        Some((first, more, !self.has_synced()))
    }

    fn pop(&mut self) -> Option<Deltas<K>> {
        let taken = self.entries.pop_front()?;
        self.taken = self.taken.wrapping_add(1);
        if let Some(key) = taken.key() {
            self.places.remove(key);
        }
        self.count_out(taken.iter().map(Delta::counts));
        if self.entries.is_empty() && self.entries.capacity() > CAPACITY_KEPT {
            self.entries = VecDeque::new();
            self.places = HashMap::new();
        }
        Some(taken)
    }

    fn count_out(&mut self, left: impl Iterator<Item = (usize, usize)>) {
        for (events, listed) in left {
            self.events = self.events.saturating_sub(events);
            self.listed = self.listed.saturating_sub(listed);
        }
    }

    /// Notes that the processing of the taken entries has ended. The count of initial entries falls
    /// here, not before (RQ-6, RQ-15), and not with the consumer's end: no wait for it succeeds.
    pub(super) fn finish(&mut self, panic: Option<&Error>) {
        let taken = self.processing.take();
        if let Some(panic) = panic.filter(|_| self.ends_with_panic) {
            self.cause = Some(panic.clone());
        } else if let (Some((_, entries, _)), Some(left)) = (taken, &mut self.initial) {
            *left = left.saturating_sub(entries);
        }
    }

    /// Notes that the consumer is gone; returns the waiting entries.
    pub(super) fn abandon(&mut self) -> VecDeque<Deltas<K>> {
        self.end = QueueEnd::Abandoned;
        self.places = HashMap::new();
        std::mem::take(&mut self.entries)
    }
}
