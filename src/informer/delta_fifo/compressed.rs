//! What waits, one bunch per object: plain data (DF-1, DF-4, DF-6).

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::CAPACITY_KEPT;
use crate::informer::delta::{Delta, Deltas};
use crate::object::{Object, ObjectKey};
use crate::sync::Arc;

/// The bunches by key, and the keys in the order in which they first came; a key has a place iff it has deltas.
pub(super) struct Compressed<K: Object> {
    bunches: HashMap<Arc<ObjectKey>, Deltas<K>>,
    places: VecDeque<Arc<ObjectKey>>,
}

impl<K: Object> Compressed<K> {
    pub(super) fn new() -> Self {
        Self {
            bunches: HashMap::new(),
            places: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Deltas<K>> {
        self.bunches.get(key)
    }

    /// The bunches, in the order in which they will be taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<ObjectKey>, &Deltas<K>)> {
        let places = self.places.iter();
        places.filter_map(|key| self.bunches.get_key_value(&**key))
    }

    /// Adds a delta to its object's bunch, which keeps its place (DF-4). Returns what was merged away (DF-6).
    pub(super) fn push(&mut self, key: Arc<ObjectKey>, delta: Delta<K>) -> Option<Delta<K>> {
        if let Some(bunch) = self.bunches.get_mut(&*key) {
            return bunch.push(delta);
        }
        self.places.push_back(Arc::clone(&key));
        let bunch = Deltas::new(Some(Arc::clone(&key)), delta);
        self.bunches.insert(key, bunch);
        None
    }

    pub(super) fn pop(&mut self) -> Option<Deltas<K>> {
        let key = self.places.pop_front()?;
        let bunch = self.bunches.remove(&*key);
        if self.places.is_empty() && self.places.capacity() > CAPACITY_KEPT {
            *self = Self::new();
        }
        bunch
    }
}
