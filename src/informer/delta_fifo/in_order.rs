//! What waits, one delta after the other: plain data (RQ-1, RQ-16).

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::CAPACITY_KEPT;
use crate::informer::delta::{Delta, Deltas};
use crate::object::{Held, Object, ObjectKey};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// The deltas in the order in which they came, with the object each is about.
pub(super) struct InOrder<K: Object>(VecDeque<(Option<Arc<ObjectKey>>, Delta<K>)>);

impl<K: Object> InOrder<K> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, key: Option<Arc<ObjectKey>>, delta: Delta<K>) {
        self.0.push_back((key, delta));
    }

    pub(super) fn pop(&mut self) -> Option<Deltas<K>> {
        let (key, delta) = self.0.pop_front()?;
        if self.0.is_empty() && self.0.capacity() > CAPACITY_KEPT {
            self.0 = VecDeque::new();
        }
        Some(Deltas::new(key, delta))
    }

    /// Which object the first delta is about: `None` if it is about no single one, or nothing waits.
    pub(super) fn first_key(&self) -> Option<&Arc<ObjectKey>> {
        self.0.front()?.0.as_ref()
    }

    /// The objects with something waiting, in the order of their first deltas.
    pub(super) fn objects(&self) -> Vec<(&Arc<ObjectKey>, Waiting<'_, K>)> {
        let mut places: HashMap<&Arc<ObjectKey>, usize> = HashMap::new();
        let mut objects: Vec<(&Arc<ObjectKey>, Waiting<'_, K>)> = Vec::new();
        for (at, (key, delta)) in self.0.iter().enumerate() {
            let Some(key) = key else { continue };
            let place = *places.entry(key).or_insert(objects.len());
            if place == objects.len() {
                let first = Waiting {
                    newest: delta,
                    newest_at: at,
                    last_object: object_there(delta),
                    only_deletions: delta.is_deleted(),
                };
                objects.push((key, first));
            } else if let Some((_, waiting)) = objects.get_mut(place) {
                waiting.newest = delta;
                waiting.newest_at = at;
                waiting.only_deletions &= delta.is_deleted();
                waiting.last_object = object_there(delta).or(waiting.last_object);
            }
        }
        objects
    }

    /// A list said, after the deletion at that place, that the object is gone.
    pub(super) fn lend(&mut self, at: usize, of: &Arc<Replacement>) {
        let deletion = self.0.get_mut(at);
        if let Some(deletion) = deletion.and_then(|(_, delta)| delta.as_deleted_mut()) {
            deletion.lend(Arc::clone(of));
        }
    }
}

/// What waits of one object.
pub(super) struct Waiting<'a, K: Object> {
    pub(super) newest: &'a Delta<K>,
    pub(super) newest_at: usize,
    /// The last state that decodes of what is there.
    pub(super) last_object: Option<&'a Arc<Held<K>>>,
    pub(super) only_deletions: bool,
}

/// What a deletion carries may be of an object before the one that is there (B18).
fn object_there<K: Object>(delta: &Delta<K>) -> Option<&Arc<Held<K>>> {
    delta.object().filter(|_| !delta.is_deleted())
}
