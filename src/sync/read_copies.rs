//! Copies of what a lock guards, so that threads which read it at once write nothing in common.

use std::hash::Hash;

use hashbrown::{Equivalent, HashMap};

use super::{Mutex, Rank, thread_number};

/// Places for copies. Threads share them out in turns.
const PLACES: usize = if cfg!(shuttle) { 2 } else { 8 };

/// What readers have found behind a master's lock, once for each group of threads: a reader finds
/// it again without that lock.
///
/// The master adds and takes back copies under its own lock, and takes them back before it releases
/// a change. So who misses waits for the change, and no reader sees an older state than another
/// has seen before.
#[derive(Debug)]
pub(crate) struct ReadCopies<K, V>([CopyPlace<K, V>; PLACES]);

/// Two places share no cache line, nor the pair of lines that some processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct CopyPlace<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for ReadCopies<K, V> {
    fn default() -> Self {
        let place = |_| CopyPlace(Mutex::ranked(Rank::READ_COPIES, HashMap::new()));
        Self(std::array::from_fn(place))
    }
}

impl<K: Eq + Hash, V> ReadCopies<K, V> {
    /// Looks at the copy of the calling thread's group. Allocates nothing.
    pub(crate) fn read<R>(
        &self,
        key: &(impl Hash + Equivalent<K>),
        look: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let mut copies = self.own().lock();
        copies.get_mut(key).map(look)
    }

    /// Adds a copy for the calling thread's group. The caller holds the master's lock.
    pub(crate) fn add(&self, key: K, copy: V) {
        self.own().lock().insert(key, copy);
    }

    /// Shows each copy. The caller holds the master's lock.
    pub(crate) fn each(&self, key: &(impl Hash + Equivalent<K>), mut look: impl FnMut(&V)) {
        for CopyPlace(copies) in &self.0 {
            copies.lock().get(key).map(&mut look);
        }
    }

    /// Takes back each copy, which is dropped here. The caller holds the master's lock, and what
    /// else keeps alive whatever is not to be dropped under it.
    pub(crate) fn take_back(&self, key: &(impl Hash + Equivalent<K>), mut look: impl FnMut(&V)) {
        for CopyPlace(copies) in &self.0 {
            let copy = copies.lock().remove(key);
            copy.as_ref().map(&mut look);
        }
    }

    /// Takes back all copies, with the same conditions.
    pub(crate) fn take_back_all(&self) {
        for CopyPlace(copies) in &self.0 {
            copies.lock().clear();
        }
    }

    #[expect(clippy::indexing_slicing, reason = "of its length")]
    fn own(&self) -> &Mutex<HashMap<K, V>> {
        &self.0[thread_number() % PLACES].0
    }
}
