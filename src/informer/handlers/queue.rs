//! The queue of one handler: in order, and beyond a bound coalesced per object. Pure: it owns no
//! lock, clock or thread.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use crate::error::default_of;
use crate::informer::{Deleted, Notification};
use crate::object::{Object, ObjectKey};
use crate::sync::Arc;

/// How far beyond the bound the queue keeps transient objects: those that came and went while they
/// waited.
const TRANSIENT_MAX: usize = 10_000;

/// The queue of one handler.
///
/// Below the bound every notification is kept, in order. At and beyond the bound, the queue first
/// drops resync updates, which bring nothing new. Then a notification joins the last queued one of
/// its object, in that one's place, so that the handler's view of the object stays ordered and
/// true:
///
/// | waits | comes | becomes |
/// |---|---|---|
/// | added a | updated to b | added b, as much part of the initial list as a was |
/// | updated a to b | updated b to c | updated a to c |
/// | updated a to b | deleted | deleted; of a, as missed, if b is another object than a |
/// | added a | deleted | both: deletes are kept |
/// | deleted | added b | both |
/// | added a, deleted | added b | added b: the transient object is left out |
/// | deleted | deleted | one of them, as in the delta FIFO (DF-6) |
///
/// So at most three wait for one object: the delete of a known object, an add, and its delete. From
/// [`TRANSIENT_MAX`] beyond the bound on, the queue drops transient objects. Then only objects that
/// the handler knows, or that exist, take space.
pub(super) struct HandlerQueue<K: Object> {
    /// The notifications, by their places in the order of the queue.
    entries: BTreeMap<u64, QueuedNotification<K>>,
    next: u64,
    bound: Option<usize>,
    /// The places of each object's notifications, oldest first. Kept only while the queue is near
    /// its bound.
    places: Option<HashMap<ObjectKey, VecDeque<u64>>>,
    resyncs: BTreeSet<u64>,
    initial: usize,
    coalesced: u64,
}

pub(super) struct QueuedNotification<K: Object> {
    pub(super) notification: Notification<K>,
    /// Since when it waits. A notification that joins it does not change that.
    pub(super) since: Instant,
}

default_of!([K: Object] HandlerQueue<K>: entries, next, bound, places, resyncs, initial, coalesced);

impl<K: Object> HandlerQueue<K> {
    /// Creates an empty queue. Without a bound it never coalesces.
    pub(super) fn new(bound: Option<usize>) -> Self {
        Self {
            bound,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many additions of the initial list wait.
    pub(super) fn initial(&self) -> usize {
        self.initial
    }

    /// How many notifications have ever been joined with others or dropped.
    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Since when the oldest notification waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(_, entry)| entry.since)
    }

    /// Appends a notification, or joins it with others if the queue is at its bound.
    ///
    /// `is_resync` marks an update without news. The caller drops the leftovers without a lock,
    /// because the drop of an object overwrites secrets.
    pub(super) fn push(
        &mut self,
        notification: Notification<K>,
        is_resync: bool,
        now: Instant,
    ) -> Vec<Notification<K>> {
        let mut leftovers = Vec::new();
        let entry = QueuedNotification {
            notification,
            since: now,
        };
        if self.bound.is_none_or(|bound| self.entries.len() < bound) {
            let place = self.append(entry);
            if is_resync {
                self.resyncs.insert(place);
            }
        } else if is_resync {
            self.leave_out(entry.notification, &mut leftovers);
        } else if let Some(place) = self.resyncs.last().copied() {
            if let Some(resync) = self.remove(place) {
                self.leave_out(resync.notification, &mut leftovers);
            }
            self.append(entry);
        } else {
            self.join(entry, &mut leftovers);
        }
        leftovers
    }

    /// Takes the oldest notification.
    pub(super) fn pop(&mut self) -> Option<QueuedNotification<K>> {
        let place = *self.entries.first_key_value()?.0;
        let entry = self.remove(place);
        // Half the bound, so that a queue that hovers at it does not rebuild the table again and
        // again.
        let is_low = |bound| self.entries.len() <= bound / 2;
        if self.bound.is_some_and(is_low) {
            self.places = None;
        }
        entry
    }

    /// Empties the queue. The handler does not get its notifications.
    pub(super) fn clear(&mut self) -> Vec<Notification<K>> {
        self.places = None;
        self.resyncs.clear();
        self.initial = 0;
        let entries = std::mem::take(&mut self.entries).into_values();
        entries.map(|entry| entry.notification).collect()
    }

    /// Joins the newcomer with the queued notifications of its object.
    fn join(&mut self, comes: QueuedNotification<K>, leftovers: &mut Vec<Notification<K>>) {
        use Notification::{Added, Deleted, Updated};

        let (before, last) = self.last_two(&comes.notification.key());
        let Some((place, waits)) = last.and_then(|place| Some((place, self.remove(place)?))) else {
            self.append(comes);
            return;
        };
        let transient = before.filter(|place| self.is_add(*place));
        match (&waits.notification, &comes.notification) {
            (Deleted(_), Added { .. } | Updated { .. }) => {
                if let Some((place, transient)) =
                    transient.and_then(|place| Some((place, self.remove(place)?)))
                {
                    self.leave_out(waits.notification, leftovers);
                    self.put(place, comes.notification, transient.since);
                    self.leave_out(transient.notification, leftovers);
                } else {
                    self.put(place, waits.notification, waits.since);
                    self.append(comes);
                }
            }
            (Added { .. }, Deleted(_)) => {
                if self.keeps_transient() {
                    self.put(place, waits.notification, waits.since);
                    self.append(comes);
                } else {
                    self.leave_out(waits.notification, leftovers);
                    self.leave_out(comes.notification, leftovers);
                }
            }
            (Deleted(_) | Updated { .. }, Deleted(_))
            | (Added { .. } | Updated { .. }, Added { .. } | Updated { .. }) => {
                let as_one = joined(&waits.notification, &comes.notification);
                self.coalesced = self.coalesced.saturating_add(1);
                self.put(place, as_one, waits.since);
                leftovers.extend([waits.notification, comes.notification]);
            }
        }
    }

    /// Whether there is room for transient objects.
    fn keeps_transient(&self) -> bool {
        let transient_max = self.bound.map(|bound| bound.saturating_add(TRANSIENT_MAX));
        transient_max.is_none_or(|max| self.entries.len() < max)
    }

    fn is_add(&self, place: u64) -> bool {
        let entry = self.entries.get(&place);
        entry.is_some_and(|entry| matches!(entry.notification, Notification::Added { .. }))
    }

    /// The places of the last notification that waits for the object, and of the one before it.
    fn last_two(&mut self, key: &ObjectKey) -> (Option<u64>, Option<u64>) {
        let entries = &self.entries;
        let places = self.places.get_or_insert_with(|| {
            let mut places: HashMap<_, VecDeque<_>> = HashMap::new();
            for (place, entry) in entries {
                let key = entry.notification.key();
                places.entry(key).or_default().push_back(*place);
            }
            places
        });
        let mut newest_first = places.get(key).into_iter().flatten().rev().copied();
        let last = newest_first.next();
        (newest_first.next(), last)
    }

    fn append(&mut self, entry: QueuedNotification<K>) -> u64 {
        let place = self.next;
        self.next = place.wrapping_add(1);
        self.put(place, entry.notification, entry.since);
        place
    }

    fn put(&mut self, place: u64, notification: Notification<K>, since: Instant) {
        if notification.is_initial() {
            self.initial = self.initial.saturating_add(1);
        }
        if let Some(places) = &mut self.places {
            let places = places.entry(notification.key()).or_default();
            let at = places.partition_point(|other| *other < place);
            places.insert(at, place);
        }
        let entry = QueuedNotification {
            notification,
            since,
        };
        self.entries.insert(place, entry);
    }

    fn remove(&mut self, place: u64) -> Option<QueuedNotification<K>> {
        let entry = self.entries.remove(&place)?;
        self.resyncs.remove(&place);
        if entry.notification.is_initial() {
            self.initial = self.initial.saturating_sub(1);
        }
        if let Some(places) = &mut self.places {
            let key = entry.notification.key();
            if let Some(of_object) = places.get_mut(&key) {
                of_object.retain(|other| *other != place);
                if of_object.is_empty() {
                    places.remove(&key);
                }
            }
        }
        Some(entry)
    }

    fn leave_out(&mut self, notification: Notification<K>, leftovers: &mut Vec<Notification<K>>) {
        self.coalesced = self.coalesced.saturating_add(1);
        leftovers.push(notification);
    }
}

/// Joins two notifications of one object into one.
fn joined<K: Object>(waits: &Notification<K>, comes: &Notification<K>) -> Notification<K> {
    let newest = Arc::clone(comes.object());
    match (waits, comes) {
        // The handler knows the object of the first of two deletes.
        (Notification::Deleted(older), _)
            if older.final_state_known || older.last_known.uid() != newest.uid() =>
        {
            waits.clone()
        }
        // The handler does not know that another object had the name. It gets the delete of the one
        // that it knows.
        (Notification::Updated { old, .. }, Notification::Deleted(_))
            if old.uid() != newest.uid() =>
        {
            Notification::Deleted(Deleted::missed(Arc::clone(old)))
        }
        (
            Notification::Added {
                is_in_initial_list, ..
            },
            Notification::Added { .. } | Notification::Updated { .. },
        ) => Notification::added(newest, *is_in_initial_list),
        (
            Notification::Updated { old, .. },
            Notification::Added { .. } | Notification::Updated { .. },
        ) => Notification::Updated {
            old: Arc::clone(old),
            new: newest,
        },
        (_, comes) => comes.clone(),
    }
}
