//! The objects of a store by key, and once more in blocks, which a list takes under the lock and
//! copies after it: readers who list hold up neither the writer nor each other.

use std::ops::Deref;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::error::default_of;
use crate::list_watch::Listed;
use crate::object::{KeyRef, Object, ObjectKey, StoredObject};
use crate::store::index::Values;
use crate::sync::Arc;

/// The states of one object, with its index values; both change together.
pub(super) struct StoreEntry<K: Object> {
    pub(super) item: Listed<K>,
    /// The last state that decoded, if the present one does not (B12).
    pub(super) last_good: Option<Arc<StoredObject<K>>>,
    pub(super) values: Values,
    /// Where its object stands in the blocks, once it is among the items.
    place: usize,
}

impl<K: Object> StoreEntry<K> {
    pub(super) fn new(
        item: Listed<K>,
        last_good: Option<Arc<StoredObject<K>>>,
        values: Values,
    ) -> Self {
        Self {
            item,
            last_good,
            values,
            place: 0,
        }
    }

    pub(super) fn object(&self) -> Option<&Arc<StoredObject<K>>> {
        self.item.decoded()
    }

    pub(super) fn last_good(&self) -> Option<&Arc<StoredObject<K>>> {
        self.object().or(self.last_good.as_ref())
    }

    /// The last state that decoded, for an undecodable `item` that replaces this one.
    pub(super) fn last_good_of(&self, item: &Listed<K>) -> Option<Arc<StoredObject<K>>> {
        let Listed::Undecodable(why) = item else {
            return None;
        };
        let last_good = self.last_good()?;
        let is_same = why.uid.is_empty() || last_good.uid() == why.uid;
        is_same.then(|| Arc::clone(last_good))
    }
}

/// The entries by key, read as a map.
pub(super) struct Items<K: Object> {
    entries: HashMap<Arc<ObjectKey>, StoreEntry<K>>,
    blocks: Vec<Block<K>>,
    free: Vec<usize>,
}

/// The objects of some places. A change of one that a list holds copies the block.
type Block<K> = Arc<Vec<Option<Arc<StoredObject<K>>>>>;

/// A list takes each block under the lock, and a change may copy one: neither takes long.
const PLACES: usize = 256;

default_of!([K: Object] Items<K>: entries, blocks, free);

impl<K: Object> Deref for Items<K> {
    type Target = HashMap<Arc<ObjectKey>, StoreEntry<K>>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<K: Object> Items<K> {
    /// Puts an entry in. Returns the one that it replaces, to drop after unlocking.
    pub(super) fn put(
        &mut self,
        key: Arc<ObjectKey>,
        mut entry: StoreEntry<K>,
    ) -> Option<StoreEntry<K>> {
        let object = entry.object().map(Arc::clone);
        let count = self.entries.len();
        match self.entries.entry(key) {
            Entry::Occupied(mut held) => {
                entry.place = held.get().place;
                show(&mut self.blocks, entry.place, object);
                Some(held.insert(entry))
            }
            Entry::Vacant(vacant) => {
                // If none is free, the entries have all places before.
                entry.place = self.free.pop().unwrap_or(count);
                show(&mut self.blocks, entry.place, object);
                vacant.insert(entry);
                None
            }
        }
    }

    /// Takes an entry out, to drop after unlocking.
    pub(super) fn take(&mut self, key: &KeyRef<'_>) -> Option<(Arc<ObjectKey>, StoreEntry<K>)> {
        let (key, gone) = self.entries.remove_entry(key)?;
        show(&mut self.blocks, gone.place, None);
        self.free.push(gone.place);
        Some((key, gone))
    }

    /// The entries, whose index values may change.
    pub(super) fn entries_mut(
        &mut self,
    ) -> impl Iterator<Item = (&Arc<ObjectKey>, &mut StoreEntry<K>)> {
        self.entries.iter_mut()
    }

    /// The objects that decode, as they are now. It is quick: it is done under the lock.
    pub(super) fn snapshot(&self) -> ItemsSnapshot<K> {
        ItemsSnapshot {
            blocks: self.blocks.clone(),
            count: self.entries.len(),
        }
    }
}

/// Shows the object at its place, which is one of those so far or the next one.
fn show<K: Object>(blocks: &mut Vec<Block<K>>, place: usize, object: Option<Arc<StoredObject<K>>>) {
    if blocks.len() == place / PLACES {
        blocks.push(Block::<K>::default());
    }
    let Some(block) = blocks.get_mut(place / PLACES).map(Arc::make_mut) else {
        return;
    };
    match block.get_mut(place % PLACES) {
        Some(shown) => *shown = object,
        None => block.push(object),
    }
}

/// The objects that decoded at one moment.
pub(super) struct ItemsSnapshot<K: Object> {
    blocks: Vec<Block<K>>,
    /// How many there are at most.
    count: usize,
}

impl<K: Object> ItemsSnapshot<K> {
    /// Copies them out, which takes its time.
    pub(super) fn objects(&self) -> Vec<Arc<StoredObject<K>>> {
        let mut objects = Vec::with_capacity(self.count);
        let places = self.blocks.iter().flat_map(|block| block.iter());
        objects.extend(places.flatten().map(Arc::clone));
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::held;

    #[test]
    fn the_places_of_what_went_are_taken_again() {
        let mut items = Items::default();
        for round in 0..10 {
            for nth in 0..600 {
                let item = Listed::Object(held(&format!("map-{round}-{nth}"), "1", &[]));
                let key = Arc::new(item.key());
                let entry = StoreEntry::new(item, None, Values::default());
                assert!(items.put(key, entry).is_none());
            }
            let list = items.snapshot().objects();
            assert_eq!(list.len(), 600);
            for object in &list {
                assert!(items.take(&KeyRef::of(&***object)).is_some());
            }
            assert!(items.snapshot().objects().is_empty());
        }
        let places = items.blocks.iter().map(|block| block.len());
        assert_eq!(places.sum::<usize>(), 600);
    }
}
