//! What waits, one bunch per object: plain data (DF-1, DF-4, DF-6).

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::CAPACITY_KEPT;
use crate::informer::delta::{Delta, Deltas};
use crate::object::{Object, ObjectKey};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// The bunches by key, and the keys in the order in which they first came; a key has a place iff it has deltas.
pub(super) struct Compressed<K: Object> {
    bunches: HashMap<Arc<ObjectKey>, Deltas<K>>,
    places: VecDeque<Place<K>>,
}

enum Place<K: Object> {
    Object(Arc<ObjectKey>),
    /// Boxed, because hardly any place is one.
    Alone(Box<Delta<K>>),
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
        places.filter_map(|place| match place {
            Place::Object(key) => self.bunches.get_key_value(&**key),
            Place::Alone(_) => None,
        })
    }

    /// Adds a delta to its object's bunch, which keeps its place (DF-4). Returns what was merged away (DF-6).
    pub(super) fn push(&mut self, key: Arc<ObjectKey>, delta: Delta<K>) -> Option<Delta<K>> {
        if let Some(bunch) = self.bunches.get_mut(&*key) {
            return bunch.push(delta);
        }
        self.places.push_back(Place::Object(Arc::clone(&key)));
        let bunch = Deltas::new(Some(Arc::clone(&key)), delta);
        self.bunches.insert(key, bunch);
        None
    }

    /// Adds a delta about no single object: everything before it was queued before. Of several bookmarks in a row the last
    /// is enough; returns what that leaves out.
    pub(super) fn push_alone(&mut self, delta: Delta<K>) -> Option<Delta<K>> {
        if let (Some(Place::Alone(last)), Delta::Bookmark(_)) = (self.places.back_mut(), &delta)
            && matches!(**last, Delta::Bookmark(_))
        {
            return Some(std::mem::replace(last, delta));
        }
        self.places.push_back(Place::Alone(Box::new(delta)));
        None
    }

    /// A list comes, which joins places before them: bookmarks that wait may speak of what it takes back.
    pub(super) fn forget_bookmarks(&mut self) {
        self.places.retain(|place| match place {
            Place::Object(_) => true,
            Place::Alone(delta) => !matches!(**delta, Delta::Bookmark(_)),
        });
    }

    /// A list went without an object whose bunch says that it is gone: the list's word is added to that.
    pub(super) fn lend(&mut self, key: &ObjectKey, of: &Arc<Replacement>) {
        let bunch = self.bunches.get_mut(key);
        if let Some(deletion) = bunch.and_then(|bunch| bunch.newest_mut().as_deleted_mut()) {
            deletion.lend(Arc::clone(of));
        }
    }

    pub(super) fn pop(&mut self) -> Option<Deltas<K>> {
        let popped = match self.places.pop_front()? {
            Place::Object(key) => self.bunches.remove(&*key),
            Place::Alone(delta) => Some(Deltas::new(None, *delta)),
        };
        if self.places.is_empty() && self.places.capacity() > CAPACITY_KEPT {
            *self = Self::new();
        }
        popped
    }

    /// Whether the first place is an object's.
    pub(super) fn is_object_next(&self) -> bool {
        matches!(self.places.front(), Some(Place::Object(_)))
    }
}
