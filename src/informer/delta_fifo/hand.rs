//! What the consumer has in its hands, and what is owed to it once it lets go: plain data.

use hashbrown::HashMap;

use crate::informer::delta::{Delta, Deltas, strongest};
use crate::object::{Held, Object, ObjectKey};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// What an object will be to the consumer once everything that waits and is in its hands is processed.
pub(super) enum Fate<K: Object> {
    /// There, with the last state that decodes.
    Present(Option<Arc<Held<K>>>),
    Gone,
}

/// What came for an object in hand that only the consumer's store can answer, once it has been processed.
#[derive(Debug)]
pub(super) enum Debt {
    /// A resync: what is there then is delivered once more (DF-16, RQ-9).
    Resync,
    /// A list without the object, which is being deleted: should the consumer refuse that as old news (B18), the list
    /// still counts.
    Unlisted(Arc<Replacement>),
}

/// What is owed, by object.
pub(super) type Debts = HashMap<Arc<ObjectKey>, Debt>;

/// The objects that are being processed.
pub(super) struct Hand<K: Object> {
    fates: Vec<(Arc<ObjectKey>, Fate<K>)>,
    debts: Debts,
}

impl<K: Object> Hand<K> {
    pub(super) fn new() -> Self {
        Self {
            fates: Vec::new(),
            debts: Debts::new(),
        }
    }

    pub(super) fn take_in(&mut self, taken: &Deltas<K>) {
        if let Some(key) = taken.shared_key() {
            self.fates.push((Arc::clone(key), fate_of_bunch(taken)));
        }
    }

    pub(super) fn fate(&self, key: &ObjectKey) -> Option<Fate<K>> {
        let mut fates = self.fates.iter();
        let (_, fate) = fates.find(|(held, _)| **held == *key)?;
        Some(fate.clone())
    }

    pub(super) fn fates(&self) -> impl Iterator<Item = (Arc<ObjectKey>, Fate<K>)> {
        let fates = self.fates.iter();
        fates.map(|(key, fate)| (Arc::clone(key), fate.clone()))
    }

    /// A resync came: everything in hand is owed it, unless a list has ended it meanwhile.
    pub(super) fn owe_resync(&mut self) {
        for (key, _) in &self.fates {
            self.debts.entry(Arc::clone(key)).or_insert(Debt::Resync);
        }
    }

    /// A list came without what is being deleted.
    pub(super) fn owe_ends(
        &mut self,
        is_listed: impl Fn(&ObjectKey) -> bool,
        of: &Arc<Replacement>,
    ) {
        for (key, fate) in &self.fates {
            if matches!(fate, Fate::Gone) && !is_listed(key) {
                let before = match self.debts.remove(key) {
                    Some(Debt::Unlisted(before)) => Some(before),
                    Some(Debt::Resync) | None => None,
                };
                let of = strongest(before, Some(Arc::clone(of)));
                self.debts
                    .extend(of.map(|of| (Arc::clone(key), Debt::Unlisted(of))));
            }
        }
    }

    pub(super) fn take_debts(&mut self) -> Debts {
        std::mem::take(&mut self.debts)
    }
}

impl<K: Object> Fate<K> {
    /// This fate, which follows on `before`: the last state that decodes may be from then.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (Self::Present(None), Some(Self::Present(object))) => Self::Present(object),
            (fate, _) => fate,
        }
    }
}

impl<K: Object> Clone for Fate<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Present(object) => Self::Present(object.clone()),
            Self::Gone => Self::Gone,
        }
    }
}

pub(super) fn fate<K: Object>(newest: &Delta<K>, last_object: Option<&Arc<Held<K>>>) -> Fate<K> {
    if newest.is_deleted() {
        Fate::Gone
    } else {
        Fate::Present(last_object.map(Arc::clone))
    }
}

pub(super) fn fate_of_bunch<K: Object>(bunch: &Deltas<K>) -> Fate<K> {
    fate(bunch.newest(), bunch.last_object())
}
