//! Copies of guarded data, so that concurrent readers do not write to shared memory.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::{DefaultHashBuilder, Equivalent, HashTable};

use super::atomic::{AtomicBool, Ordering};
use super::{Mutex, Rank, thread_number};

/// The number of places for copies, which threads share out in turn.
const PLACES: usize = if cfg!(shuttle) { 2 } else { 8 };

/// Copies of the values that readers found behind a master's lock, one for each group of threads. A
/// reader finds them again without that lock.
///
/// The master changes copies under its own lock. No group has a new state before all have lost the
/// old one, so no reader sees an older state than another saw before. A reader that misses waits
/// for the master.
#[derive(Debug)]
pub(crate) struct ReadCopies<K, V> {
    places: [CopyPlace<K, V>; PLACES],
    hasher: DefaultHashBuilder,
}

/// Two places share neither a cache line nor a pair of lines that some processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct CopyPlace<K, V> {
    /// Each copy with its key and the hash of this: a table that grows reads no key, which would
    /// take milliseconds under the master's lock. `None` while a change is under way.
    copies: Mutex<HashTable<(u64, K, Option<V>)>>,
    /// Whether a copy was ever put here. A change then need not lock it: few caches have readers
    /// in each group. The master's lock orders the accesses.
    is_used: AtomicBool,
}

impl<K, V> Default for ReadCopies<K, V> {
    fn default() -> Self {
        let place = |_| CopyPlace {
            copies: Mutex::ranked(Rank::READ_COPIES, HashTable::new()),
            is_used: AtomicBool::new(false),
        };
        Self {
            places: std::array::from_fn(place),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K: Eq + Hash, V> ReadCopies<K, V> {
    /// Reads the copy of the calling thread's group, unless another thread holds its lock. Waits
    /// for nothing, and allocates nothing.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        key: &(impl Hash + Equivalent<K>),
        look: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let hash = self.hasher.hash_one(key);
        let mut copies = self.own().copies.try_lock()?;
        held(&mut copies, hash, key)?.as_mut().map(look)
    }

    /// Reads the copy of any group, while the master's lock is not to be had. Waits for nothing.
    pub(crate) fn borrow(&self, key: &(impl Hash + Equivalent<K>)) -> Option<V>
    where
        V: Clone,
    {
        let hash = self.hasher.hash_one(key);
        let mut free = self.used().filter_map(|copies| copies.try_lock());
        free.find_map(|mut copies| held(&mut copies, hash, key)?.clone())
    }

    /// Adds a copy for the calling thread's group, unless another thread holds its lock. The
    /// caller holds the master's lock.
    pub(crate) fn add(&self, key: K, copy: V) {
        let own = self.own();
        own.is_used.store(true, Ordering::Relaxed);
        if let Some(mut copies) = own.copies.try_lock() {
            let hash = self.hasher.hash_one(&key);
            let entry = copies.entry(hash, |(_, held, _)| *held == key, |(hash, ..)| *hash);
            entry.insert((hash, key, Some(copy)));
        }
    }

    /// Shows each copy. The caller holds the master's lock.
    pub(crate) fn each(&self, key: &(impl Hash + Equivalent<K>), mut look: impl FnMut(&mut V)) {
        let hash = self.hasher.hash_one(key);
        for copies in self.used() {
            let mut copies = copies.lock();
            held(&mut copies, hash, key)
                .and_then(Option::as_mut)
                .map(&mut look);
        }
    }

    /// Puts `copy` in the place of each copy, or takes them back, and shows each. All groups lose
    /// theirs before any has the new one. The caller holds the master's lock, and keeps alive any
    /// value that must not be dropped under it.
    pub(crate) fn renew(
        &self,
        key: &(impl Hash + Equivalent<K>),
        copy: Option<&V>,
        mut look: impl FnMut(&V),
    ) where
        V: Clone,
    {
        let hash = self.hasher.hash_one(key);
        for copies in self.used() {
            let mut copies = copies.lock();
            if let Ok(mut entry) = copies.find_entry(hash, |(_, held, _)| key.equivalent(held)) {
                entry.get_mut().2.take().as_ref().map(&mut look);
                if copy.is_none() {
                    entry.remove();
                }
            }
        }
        for copies in copy.iter().flat_map(|_| self.used()) {
            if let Some(held) = held(&mut copies.lock(), hash, key) {
                *held = copy.cloned();
            }
        }
    }

    /// Takes back all copies, with the same conditions.
    pub(crate) fn take_back_all(&self) {
        for copies in self.used() {
            copies.lock().clear();
        }
    }

    #[expect(clippy::indexing_slicing, reason = "of its length")]
    fn own(&self) -> &CopyPlace<K, V> {
        &self.places[thread_number() % PLACES]
    }

    fn used(&self) -> impl Iterator<Item = &Mutex<HashTable<(u64, K, Option<V>)>>> {
        let used = self.places.iter();
        let used = used.filter(|place| place.is_used.load(Ordering::Relaxed));
        used.map(|place| &place.copies)
    }
}

#[inline]
fn held<'a, K, V>(
    copies: &'a mut HashTable<(u64, K, Option<V>)>,
    hash: u64,
    key: &impl Equivalent<K>,
) -> Option<&'a mut Option<V>> {
    let (.., copy) = copies.find_mut(hash, |(_, held, _)| key.equivalent(held))?;
    Some(copy)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// A thread may hold a lock while it has no core.
    #[test]
    fn a_reader_waits_for_no_other_thread() {
        let copies = ReadCopies::<&str, u32>::default();
        copies.add("db", 1);
        assert_eq!(copies.borrow(&"db"), Some(1));
        let (held, looked) = (Barrier::new(PLACES + 1), Barrier::new(PLACES + 1));
        thread::scope(|scope| {
            for place in &copies.places {
                let (held, looked) = (&held, &looked);
                scope.spawn(move || {
                    let _copies = place.copies.lock();
                    held.wait();
                    looked.wait();
                });
            }
            held.wait();
            copies.add("web", 2);
            let read = (copies.read(&"db", |copy| *copy), copies.borrow(&"db"));
            looked.wait();
            assert_eq!(read, (None, None));
        });
        assert_eq!(copies.borrow(&"web"), None, "it would have waited");
        assert_eq!(copies.borrow(&"db"), Some(1));
    }

    #[test]
    fn a_renewal_reaches_each_copy_and_makes_none() {
        let copies = ReadCopies::<&str, u32>::default();
        copies.renew(&"db", Some(&1), |_| ());
        assert_eq!(copies.read(&"db", |copy| *copy), None);
        copies.add("db", 1);
        copies.renew(&"db", Some(&2), |_| ());
        assert_eq!(copies.borrow(&"db"), Some(2));
        copies.renew(&"db", None, |_| ());
        assert_eq!(copies.borrow(&"db"), None);
    }
}
