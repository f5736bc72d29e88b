//! Copies of guarded data, so that concurrent readers do not write to shared memory.

use std::hash::Hash;

use hashbrown::{Equivalent, HashMap};

use super::atomic::{AtomicBool, Ordering};
use super::{Mutex, Rank, thread_number};

/// The number of places for copies, which threads share out in turn.
const PLACES: usize = if cfg!(shuttle) { 2 } else { 8 };

/// Copies of the values that readers found behind a master's lock, one for each group of threads. A
/// reader finds them again without that lock.
///
/// The master adds and takes back copies under its own lock, and takes them back before it releases
/// a change. So a reader that misses waits for the change, and no reader sees an older state than
/// another saw before.
#[derive(Debug)]
pub(crate) struct ReadCopies<K, V>([CopyPlace<K, V>; PLACES]);

/// Two places share neither a cache line nor a pair of lines that some processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct CopyPlace<K, V> {
    copies: Mutex<HashMap<K, V>>,
    /// Whether a copy was ever put here. A change then need not lock it: few caches have readers
    /// in each group. The master's lock orders the accesses.
    is_used: AtomicBool,
}

impl<K, V> Default for ReadCopies<K, V> {
    fn default() -> Self {
        let place = |_| CopyPlace {
            copies: Mutex::ranked(Rank::READ_COPIES, HashMap::new()),
            is_used: AtomicBool::new(false),
        };
        Self(std::array::from_fn(place))
    }
}

impl<K: Eq + Hash, V> ReadCopies<K, V> {
    /// Reads the copy of the calling thread's group. Allocates nothing.
    pub(crate) fn read<R>(
        &self,
        key: &(impl Hash + Equivalent<K>),
        look: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let mut copies = self.own().copies.lock();
        copies.get_mut(key).map(look)
    }

    /// Adds a copy for the calling thread's group. The caller holds the master's lock.
    pub(crate) fn add(&self, key: K, copy: V) {
        let own = self.own();
        own.is_used.store(true, Ordering::Relaxed);
        own.copies.lock().insert(key, copy);
    }

    /// Shows each copy. The caller holds the master's lock.
    pub(crate) fn each(&self, key: &(impl Hash + Equivalent<K>), mut look: impl FnMut(&V)) {
        for copies in self.used() {
            copies.lock().get(key).map(&mut look);
        }
    }

    /// Takes back and drops each copy. The caller holds the master's lock, and keeps alive any
    /// value that must not be dropped under it.
    pub(crate) fn take_back(&self, key: &(impl Hash + Equivalent<K>), mut look: impl FnMut(&V)) {
        for copies in self.used() {
            let copy = copies.lock().remove(key);
            copy.as_ref().map(&mut look);
        }
    }

    /// Takes back all copies, with the same conditions.
    pub(crate) fn take_back_all(&self) {
        for copies in self.used() {
            copies.lock().clear();
        }
    }

    fn used(&self) -> impl Iterator<Item = &Mutex<HashMap<K, V>>> {
        let used = self.0.iter();
        let used = used.filter(|place| place.is_used.load(Ordering::Relaxed));
        used.map(|place| &place.copies)
    }

    #[expect(clippy::indexing_slicing, reason = "of its length")]
    fn own(&self) -> &CopyPlace<K, V> {
        &self.0[thread_number() % PLACES]
    }
}
