//! The answers that plain readers find at once. Nearly all reads take this way.
//!
//! The entries decide. Each change of an entry puts its ready answer in here, or removes it, before
//! the entry's lock is released (rank: above the entries).
//!
//! One map has all answers. Its lock is taken once per answer and group of threads: then the group
//! has a copy, with a count and a mark of its own. While another thread reads that one, the lock is
//! taken again.

use hashbrown::HashMap;

use crate::clock::Coarse;
use crate::manager::cached::{Cached, ReadyObject};
use crate::object::{KeyRef, Object, ObjectKey};
use crate::sync::{Arc, Mutex, Rank, ReadCopies};

/// The answers that are ready, by key; each with a mark of its strategy: when it was last read, or
/// when it was fetched.
#[derive(Debug)]
pub(crate) struct ReadCache<K: Object> {
    answers: Mutex<HashMap<ObjectKey, Marked<K>>>,
    copies: ReadCopies<ObjectKey, Marked<K>>,
}

type Marked<K> = (Arc<ReadyObject<K>>, Coarse);

impl<K: Object> Default for ReadCache<K> {
    fn default() -> Self {
        Self {
            answers: Mutex::ranked(Rank::READY_OBJECTS, HashMap::new()),
            copies: ReadCopies::default(),
        }
    }
}

impl<K: Object> ReadCache<K> {
    /// The answer, if one is ready and `may_use` accepts its mark, which it may change.
    /// Allocates only for the first read of an answer by a group of threads.
    pub(crate) fn read(
        &self,
        namespace: &str,
        name: &str,
        may_use: impl Fn(&mut Coarse) -> bool,
    ) -> Option<Cached<K>> {
        let key = KeyRef { namespace, name };
        let use_it =
            |(ready, mark): &mut Marked<K>| may_use(mark).then(|| Cached::new(Arc::clone(ready)));
        if let Some(of_copy) = self.copies.read(&key, use_it) {
            return of_copy;
        }
        let mut answers = self.answers.lock();
        let answer = answers.get_mut(&key)?;
        let found = use_it(answer)?;
        let copy = (Arc::new(ReadyObject::clone(&answer.0)), answer.1);
        self.copies.add(ObjectKey::new(namespace, name), copy);
        Some(found)
    }

    /// The mark on the answer.
    pub(crate) fn mark(&self, key: &ObjectKey) -> Coarse {
        let answers = self.answers.lock();
        let mut latest = answers.get(key).map(|(_, mark)| *mark).unwrap_or_default();
        let of_copy = |(_, mark): &mut Marked<K>| latest = latest.max(*mark);
        self.copies.each(&KeyRef::from(key), of_copy);
        latest
    }

    /// Makes `ready` the answer, with its mark unless the present one is later. Returns the
    /// replaced answer, to be dropped under no lock, and the mark of an answer that was removed.
    pub(crate) fn publish(
        &self,
        key: &ObjectKey,
        ready: Option<(ReadyObject<K>, Coarse)>,
    ) -> (Option<Arc<ReadyObject<K>>>, Coarse) {
        let mut answers = self.answers.lock();
        let take_back = |latest: &mut Coarse| {
            let of_copy = |(_, mark): &Marked<K>| *latest = (*latest).max(*mark);
            self.copies.renew(&KeyRef::from(key), None, of_copy);
        };
        let Some((ready, mark)) = ready else {
            let Some((removed, mut mark)) = answers.remove(key) else {
                return (None, Coarse::default());
            };
            take_back(&mut mark);
            return (Some(removed), mark);
        };
        if let Some((present, marked)) = answers.get_mut(key) {
            let same = present.is_same(&ready);
            if same && mark <= *marked {
                return (None, Coarse::default());
            }
            *marked = mark.max(*marked);
            take_back(marked);
            let old = (!same).then(|| std::mem::replace(present, Arc::new(ready)));
            return (old, Coarse::default());
        }
        answers.insert(key.clone(), (Arc::new(ready), mark));
        (None, Coarse::default())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::clock::{Clock, FakeClock};
    use crate::object::StoredObject;

    fn ready(object: &Arc<StoredObject<ConfigMap>>) -> (ReadyObject<ConfigMap>, Coarse) {
        let ready = ReadyObject {
            object: Arc::clone(object),
            contact: Clock::system().now(),
            failure: None,
            stale: false,
            expires: None,
            clock: Clock::system(),
        };
        (ready, Coarse::default())
    }

    fn mark_at(at: Coarse) -> impl Fn(&mut Coarse) -> bool {
        move |mark| {
            *mark = at.max(*mark);
            true
        }
    }

    /// Each group of threads marks a copy of its own; the latest mark counts, and a change keeps
    /// nothing of the old state.
    #[test]
    fn a_change_takes_back_what_each_thread_has_read() {
        let (cache, key) = (ReadCache::default(), ObjectKey::new("shop", "db"));
        let [old, new] = [(), ()].map(|()| Arc::new(StoredObject::new(ConfigMap::default())));
        drop(cache.publish(&key, Some(ready(&old))));
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let early = clock.coarse();
        fake.advance(Duration::from_secs(1));
        let late = clock.coarse();
        let read_on_another_thread = |at| {
            let read = || cache.read("shop", "db", mark_at(at)).unwrap();
            thread::scope(|scope| scope.spawn(read).join().unwrap())
        };
        for at in [early, late, early] {
            assert!(Arc::ptr_eq(read_on_another_thread(at).stored(), &old));
        }
        assert_eq!(cache.mark(&key), late);

        drop(cache.publish(&key, Some(ready(&new))));
        assert_eq!(Arc::strong_count(&old), 1);
        assert_eq!(cache.mark(&key), late, "a change of the object is no read");
        for at in [early, early, early] {
            assert!(Arc::ptr_eq(read_on_another_thread(at).stored(), &new));
        }
        let (removed, _) = cache.publish(&key, None);
        assert!(removed.is_some());
        drop(removed);
        assert_eq!(Arc::strong_count(&new), 1);
        assert!(cache.read("shop", "db", mark_at(late)).is_none());
    }
}
