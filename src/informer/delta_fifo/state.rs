//! What a queue knows, and its transitions: plain data that knows no lock, no clock and no view of the consumer.
//!
//! A transition returns what is to be dropped once the lock is released.

use std::num::NonZeroUsize;
use std::time::Instant;

use hashbrown::{HashMap, HashSet};

use super::compressed::Compressed;
use super::hand::{Debts, Fate, Hand, fate, fate_of_bunch};
use super::in_order::InOrder;
use crate::informer::delta::{Deletion, Delta, Deltas};
use crate::object::{Held, Object, ObjectKey};
use crate::reflector::{ReflectorStatus, Replacement};
use crate::sync::Arc;

/// What waits, in one of the two orders.
pub(super) enum Lane<K: Object> {
    Compressed(Compressed<K>),
    InOrder(InOrder<K>),
}

/// How far the consumer is with what the first list brought (DF-14, RQ-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initial {
    /// Neither a list nor a change has come.
    Unpopulated,
    /// So many places in the queue belong to the first list and are not processed yet.
    Remaining(NonZeroUsize),
    /// The consumer is done with the first list.
    Synced,
}

/// Whether the queue goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    /// What waits is still handed over (DF-17).
    Closed,
    /// The consumer is gone: nothing will ever be taken.
    Abandoned,
}

/// What a consumer took, to be given back to [`State::finish`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    /// The queue had not synced when this was taken (DF-13, RQ-7).
    pub(super) is_in_initial_list: bool,
    /// So many places of the first list this settles.
    settles: usize,
}

/// Objects of the consumer that a list goes without, with the last state that decodes.
pub(super) type Missing<K> = Vec<(Arc<ObjectKey>, Option<Arc<Held<K>>>)>;

/// What a list made superfluous, to be dropped once the lock is released: deltas that were merged away, the last states
/// of objects that turned out to wait, and the list's own tables.
pub(super) type Leftovers<K> = (Vec<Delta<K>>, Missing<K>, Relist<K>);

/// What the consumer's store answered to a debt; it is queued if nothing has come of the object meanwhile.
pub(super) type Payment<K> = (Arc<ObjectKey>, Delta<K>);

/// A list, prepared outside of the lock.
pub(super) struct Relist<K: Object> {
    /// What each item becomes, in the list's order, each key once.
    pub(super) items: Vec<(Arc<ObjectKey>, Delta<K>)>,
    /// The keys of the items.
    pub(super) listed: HashMap<Arc<ObjectKey>, usize>,
    /// Objects that the consumer has or will have, and that the list goes without.
    pub(super) missing: Missing<K>,
    /// Objects that were being deleted when `missing` was made. In the end, those with which the consumer was done before
    /// the list was queued.
    pub(super) doubtful: Vec<Arc<ObjectKey>>,
    /// Where in `missing` an object stands: there may be many, and all of them may wait.
    pub(super) places: HashMap<Arc<ObjectKey>, usize>,
    pub(super) of: Arc<Replacement>,
}

impl<K: Object> Relist<K> {
    /// The last state that decodes of an object that waits: it may have come before all that waits.
    fn last_known(&self, key: &ObjectKey, waiting: Option<&Arc<Held<K>>>) -> Option<Arc<Held<K>>> {
        let before = || {
            let (_, object) = self.missing.get(*self.places.get(key)?)?;
            object.as_ref()
        };
        waiting.or_else(before).map(Arc::clone)
    }
}

/// Everything under the queue's one mutex.
pub(super) struct State<K: Object> {
    lane: Lane<K>,
    initial: Initial,
    /// Empty when nobody asks for it: in a queue without a view of the consumer.
    hand: Hand<K>,
    keeps_hand: bool,
    is_in_hand: bool,
    pub(super) end: End,
    pub(super) status: ReflectorStatus,
    pub(super) since: Instant,
}

impl<K: Object> State<K> {
    pub(super) fn new(lane: Lane<K>, keeps_hand: bool, since: Instant) -> Self {
        Self {
            lane,
            initial: Initial::Unpopulated,
            hand: Hand::new(),
            keeps_hand,
            is_in_hand: false,
            end: End::Open,
            status: ReflectorStatus::default(),
            since,
        }
    }

    /// Places that wait: objects when compressed, deltas when in order.
    pub(super) fn len(&self) -> usize {
        match &self.lane {
            Lane::Compressed(lane) => lane.len(),
            Lane::InOrder(lane) => lane.len(),
        }
    }

    pub(super) fn has_synced(&self) -> bool {
        self.initial == Initial::Synced
    }

    /// Whether the queue can never sync any more.
    pub(super) fn is_hopeless(&self) -> bool {
        match self.end {
            End::Open => false,
            End::Closed => !self.has_synced() && self.len() == 0 && !self.is_in_hand,
            End::Abandoned => !self.has_synced(),
        }
    }

    /// A change came: without a first list, the queue counts as synced from here on (DF-14). Ignored deletions count
    /// (DF-5), and changes that a transform refuses (DF-7).
    /// Whether it has just synced.
    pub(super) fn populate(&mut self) -> bool {
        let first = self.initial == Initial::Unpopulated;
        if first {
            self.initial = Initial::Synced;
        }
        first
    }

    /// Queues a change; what it merges away is returned.
    pub(super) fn push(
        &mut self,
        key: Option<Arc<ObjectKey>>,
        delta: Delta<K>,
    ) -> Option<Delta<K>> {
        match (&mut self.lane, key) {
            (Lane::Compressed(lane), Some(key)) => lane.push(key, delta),
            (Lane::InOrder(lane), key) => {
                lane.push(key, delta);
                None
            }
            (Lane::Compressed(lane), None) => lane.push_alone(delta),
        }
    }

    /// What is known here of an object that waits or is being processed; `None` leaves it to the view.
    ///
    /// In order, what waits is not searched.
    pub(super) fn fate(&self, key: &ObjectKey) -> Option<Fate<K>> {
        let in_hand = self.hand.fate(key);
        let waiting = match &self.lane {
            Lane::Compressed(lane) => lane.get(key).map(fate_of_bunch),
            Lane::InOrder(_) => None,
        };
        match waiting {
            Some(waiting) => Some(waiting.after(in_hand)),
            None => in_hand,
        }
    }

    /// Whether a deletion of the object has a meaning (DF-5, RQ-2); otherwise that is left to the view.
    ///
    /// It has one too while another deletion is in hand: that may be refused as old news (B18).
    pub(super) fn is_deletable(&self, key: &ObjectKey) -> bool {
        match &self.lane {
            Lane::InOrder(_) => true,
            Lane::Compressed(_) => self.fate(key).is_some(),
        }
    }

    /// Every object that waits or is being processed. Only these change in the consumer's store until the next push.
    pub(super) fn fates(&self) -> HashMap<Arc<ObjectKey>, Fate<K>> {
        let mut fates: HashMap<_, _> = self.hand.fates().collect();
        let mut then = |key: &Arc<ObjectKey>, fate: Fate<K>| {
            let fate = fate.after(fates.remove(key));
            fates.insert(Arc::clone(key), fate);
        };
        match &self.lane {
            Lane::Compressed(lane) => {
                for (key, bunch) in lane.iter() {
                    then(key, fate_of_bunch(bunch));
                }
            }
            Lane::InOrder(lane) => {
                for (key, waiting) in lane.objects() {
                    then(key, fate(waiting.newest, waiting.last_object));
                }
            }
        }
        fates
    }

    /// Queues a list: what each item became, and a deletion of each object it goes without (DF-8, RQ-3).
    pub(super) fn relist(&mut self, list: Relist<K>) -> Leftovers<K> {
        let before = self.initial;
        let is_listed = |key: &ObjectKey| list.listed.contains_key(key);
        self.hand.owe_ends(is_listed, &list.of);
        let (count, mut leftovers) = match &mut self.lane {
            Lane::Compressed(lane) => relist_compressed(lane, list),
            Lane::InOrder(lane) => relist_in_order(lane, list),
        };
        let doubtful = &mut leftovers.2.doubtful;
        doubtful.retain(|key| self.hand.fate(key).is_none());
        if before == Initial::Unpopulated {
            self.initial = NonZeroUsize::new(count).map_or(Initial::Synced, Initial::Remaining);
        }
        leftovers
    }

    /// A resync begins: what is in hand gets it later (DF-16). Gives everything that waits or is being processed.
    pub(super) fn resync(&mut self) -> HashMap<Arc<ObjectKey>, Fate<K>> {
        self.hand.owe_resync();
        self.fates()
    }

    /// Queues what was owed, unless something has come of the object meanwhile. Gives what is to be dropped.
    pub(super) fn pay(&mut self, payments: Vec<Payment<K>>) -> Vec<Delta<K>> {
        let mut left_out = Vec::new();
        match &mut self.lane {
            Lane::Compressed(lane) => {
                for (key, delta) in payments {
                    match lane
                        .get(&key)
                        .map(|bunch| bunch.iter().all(Delta::is_deleted))
                    {
                        None => left_out.extend(lane.push(key, delta)),
                        Some(only_deletions) => {
                            if let (true, Some(of)) = (only_deletions, delta.list()) {
                                lane.lend(&key, of);
                            }
                            left_out.push(delta);
                        }
                    }
                }
            }
            Lane::InOrder(lane) => pay_in_order(lane, payments, &mut left_out),
        }
        left_out
    }

    /// Queues a list as one delta (RQ-10).
    pub(super) fn relist_at_once(&mut self, delta: Delta<K>) -> Option<Delta<K>> {
        let merged = self.push(None, delta);
        if self.initial == Initial::Unpopulated {
            let count = NonZeroUsize::new(self.len());
            self.initial = count.map_or(Initial::Synced, Initial::Remaining);
        }
        merged
    }

    /// Hands the first place over.
    pub(super) fn take(&mut self) -> Option<(Deltas<K>, Receipt)> {
        let taken = self.pop()?;
        let receipt = self.receipt(1);
        Some((taken, receipt))
    }

    /// Hands over up to `max` places, each about another object, and either all of the first list or none (RQ-13).
    pub(super) fn take_batch(&mut self, max: NonZeroUsize) -> Option<(Vec<Deltas<K>>, Receipt)> {
        let max = match self.initial {
            Initial::Remaining(count) => max.min(count),
            Initial::Unpopulated | Initial::Synced => max,
        };
        let first = self.pop()?;
        let mut keys: HashSet<Arc<ObjectKey>> =
            first.shared_key().map(Arc::clone).into_iter().collect();
        let is_alone = keys.is_empty();
        let mut batch = vec![first];
        while !is_alone && batch.len() < max.get() && self.is_next_another(&keys) {
            let Some(next) = self.pop() else { break };
            keys.extend(next.shared_key().map(Arc::clone));
            batch.push(next);
        }
        let receipt = self.receipt(batch.len());
        Some((batch, receipt))
    }

    /// What is owed to the objects in hand, to be answered before the processing ends.
    pub(super) fn debts(&mut self) -> Debts {
        self.hand.take_debts()
    }

    /// The consumer is done with what it took. The initial count falls here, after the processing (RQ-6, RQ-15).
    pub(super) fn finish(&mut self, receipt: Receipt) -> Hand<K> {
        self.is_in_hand = false;
        if let Initial::Remaining(count) = self.initial {
            let left = count.get().saturating_sub(receipt.settles);
            self.initial = NonZeroUsize::new(left).map_or(Initial::Synced, Initial::Remaining);
        }
        std::mem::replace(&mut self.hand, Hand::new())
    }

    /// The consumer is gone: what waits is returned, to be dropped.
    pub(super) fn abandon(&mut self) -> Lane<K> {
        self.end = End::Abandoned;
        let empty = match &self.lane {
            Lane::Compressed(_) => Lane::Compressed(Compressed::new()),
            Lane::InOrder(_) => Lane::InOrder(InOrder::new()),
        };
        std::mem::replace(&mut self.lane, empty)
    }

    fn pop(&mut self) -> Option<Deltas<K>> {
        let taken = match &mut self.lane {
            Lane::Compressed(lane) => lane.pop(),
            Lane::InOrder(lane) => lane.pop(),
        }?;
        self.is_in_hand = true;
        if self.keeps_hand {
            self.hand.take_in(&taken);
        }
        Some(taken)
    }

    fn receipt(&self, places: usize) -> Receipt {
        let counts = matches!(self.initial, Initial::Remaining(_));
        Receipt {
            is_in_initial_list: !self.has_synced(),
            settles: if counts { places } else { 0 },
        }
    }

    fn is_next_another(&self, keys: &HashSet<Arc<ObjectKey>>) -> bool {
        match &self.lane {
            Lane::Compressed(lane) => lane.is_object_next(),
            Lane::InOrder(lane) => lane.first_key().is_some_and(|key| !keys.contains(key)),
        }
    }
}

pub(super) fn unlisted<K: Object>(
    key: &Arc<ObjectKey>,
    last_known: Option<Arc<Held<K>>>,
    of: &Arc<Replacement>,
) -> Delta<K> {
    Delta::Deleted(Box::new(Deletion::unlisted(
        (**key).clone(),
        last_known,
        of,
    )))
}

/// DF-8: the items first, then what is gone. Returns how many places that makes (DF-14).
fn relist_compressed<K: Object>(
    lane: &mut Compressed<K>,
    mut list: Relist<K>,
) -> (usize, Leftovers<K>) {
    let mut merged = Vec::new();
    lane.forget_bookmarks();
    for (key, delta) in std::mem::take(&mut list.items) {
        merged.extend(lane.push(key, delta));
    }
    list.doubtful.retain(|key| lane.get(key).is_none());
    let gone: Vec<(Arc<ObjectKey>, Delta<K>)> = lane
        .iter()
        .filter(|(key, _)| !list.listed.contains_key(*key))
        .map(|(key, bunch)| {
            let last_known = list.last_known(key, bunch.last_object());
            (Arc::clone(key), unlisted(key, last_known, &list.of))
        })
        .collect();
    for (key, delta) in gone {
        merged.extend(lane.push(key, delta));
    }
    let (waiting, missing): (Missing<K>, Missing<K>) = std::mem::take(&mut list.missing)
        .into_iter()
        .partition(|(key, _)| lane.get(key).is_some());
    for (key, last_known) in missing {
        let delta = unlisted(&key, last_known, &list.of);
        merged.extend(lane.push(key, delta));
    }
    // Every place is of the list now: what waited was listed, or is gone.
    (lane.len(), (merged, waiting, list))
}

/// RQ-3: what is gone first, then the items. Returns how many places wait afterwards (RQ-5).
fn relist_in_order<K: Object>(lane: &mut InOrder<K>, mut list: Relist<K>) -> (usize, Leftovers<K>) {
    let mut waits: HashSet<Arc<ObjectKey>> = HashSet::new();
    let mut gone: Vec<(Arc<ObjectKey>, Delta<K>)> = Vec::new();
    let mut deleted: Vec<usize> = Vec::new();
    for (key, of) in lane.objects() {
        if list.listed.contains_key(key) {
            continue;
        }
        waits.insert(Arc::clone(key));
        if of.newest.is_deleted() {
            deleted.push(of.newest_at);
        } else {
            let last_known = list.last_known(key, of.last_object);
            gone.push((Arc::clone(key), unlisted(key, last_known, &list.of)));
        }
    }
    list.doubtful.retain(|key| !waits.contains(key));
    for at in deleted {
        // What says that it is gone already may be refused as old news (B18): then the list's word counts.
        lane.lend(at, &list.of);
    }
    let (waiting, missing): (Missing<K>, Missing<K>) = std::mem::take(&mut list.missing)
        .into_iter()
        .partition(|(key, _)| waits.contains(key));
    for (key, last_known) in missing {
        let delta = unlisted(&key, last_known, &list.of);
        gone.push((key, delta));
    }
    for (key, delta) in gone.into_iter().chain(std::mem::take(&mut list.items)) {
        lane.push(Some(key), delta);
    }
    (lane.len(), (Vec::new(), waiting, list))
}

fn pay_in_order<K: Object>(
    lane: &mut InOrder<K>,
    payments: Vec<Payment<K>>,
    left_out: &mut Vec<Delta<K>>,
) {
    let waiting: HashMap<Arc<ObjectKey>, Option<usize>> = lane
        .objects()
        .into_iter()
        .map(|(key, of)| {
            let deletion = of.only_deletions.then_some(of.newest_at);
            (Arc::clone(key), deletion)
        })
        .collect();
    for (key, delta) in payments {
        match waiting.get(&key) {
            None => lane.push(Some(key), delta),
            Some(deletion) => {
                if let (Some(at), Some(of)) = (deletion, delta.list()) {
                    lane.lend(*at, of);
                }
                left_out.push(delta);
            }
        }
    }
}
