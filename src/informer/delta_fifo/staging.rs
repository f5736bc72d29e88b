//! A list on its way into the queue, aside until it commits.

use std::fmt;

use hashbrown::HashMap;

use super::hand::Fate;
use super::state::{Missing, Relist};
use crate::error::Error;
use crate::informer::delta::Delta;
use crate::list_watch::{Listed, Undecodable};
use crate::object::{Held, Object, ObjectKey};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// A list on its way into the queue; dropping it leaves the queue as it was.
pub struct DeltaFifoStaging<K: Object> {
    /// In the list's order; an item that was taken back out leaves its place empty.
    items: Vec<Option<(Arc<ObjectKey>, Item<K>)>>,
    places: HashMap<Arc<ObjectKey>, usize>,
    /// What waited or was being processed when the list began.
    pub(super) fates: HashMap<Arc<ObjectKey>, Fate<K>>,
    /// The first item that a transform refused: the list cannot be committed (DF-10, RQ-10).
    failed: Option<Error>,
}

/// [`Listed`] with its rare side boxed: there may be many.
enum Item<K: Object> {
    Object(Arc<Held<K>>),
    Undecodable(Box<Undecodable>),
}

impl<K: Object> From<Listed<K>> for Item<K> {
    fn from(listed: Listed<K>) -> Self {
        match listed {
            Listed::Object(object) => Self::Object(object),
            Listed::Undecodable(why) => Self::Undecodable(Box::new(why)),
        }
    }
}

impl<K: Object> DeltaFifoStaging<K> {
    pub(super) fn new(fates: HashMap<Arc<ObjectKey>, Fate<K>>) -> Self {
        Self {
            items: Vec::new(),
            places: HashMap::new(),
            fates,
            failed: None,
        }
    }

    /// Puts an item in; the last one of a key takes the place of the first (ST-5).
    pub(super) fn put(&mut self, key: ObjectKey, item: Listed<K>) {
        let place = self
            .places
            .get(&key)
            .and_then(|place| self.items.get_mut(*place));
        if let Some(Some((_, staged))) = place {
            *staged = item.into();
            return;
        }
        let key = Arc::new(key);
        self.places.insert(Arc::clone(&key), self.items.len());
        self.items.push(Some((key, item.into())));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let place = self
            .places
            .remove(key)
            .and_then(|place| self.items.get_mut(place));
        if let Some(place) = place {
            *place = None;
        }
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.places.contains_key(key)
    }

    pub(super) fn into_listed(self) -> Vec<Listed<K>> {
        let items = self.items.into_iter().flatten();
        items
            .map(|(_, item)| match item {
                Item::Object(object) => Listed::Object(object),
                Item::Undecodable(why) => Listed::Undecodable(*why),
            })
            .collect()
    }

    /// What each item becomes, and what the list goes without.
    pub(super) fn into_relist(
        self,
        (missing, doubtful): (Missing<K>, Vec<Arc<ObjectKey>>),
        of: Arc<Replacement>,
        as_sync: bool,
    ) -> Relist<K> {
        let delta = |item| match item {
            Item::Object(object) if as_sync => Delta::Sync(object),
            Item::Object(object) => Delta::Replaced {
                object,
                of: Arc::clone(&of),
            },
            Item::Undecodable(why) => Delta::Undecodable {
                why,
                of: Some(Arc::clone(&of)),
            },
        };
        let items = self.items.into_iter().flatten();
        let keys = missing.iter().map(|(key, _)| Arc::clone(key));
        Relist {
            items: items.map(|(key, item)| (key, delta(item))).collect(),
            listed: self.places,
            places: keys.zip(0..).collect(),
            missing,
            doubtful,
            of,
        }
    }
}

impl<K: Object> fmt::Debug for DeltaFifoStaging<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifoStaging")
            .field("items", &self.places.len())
            .finish_non_exhaustive()
    }
}
