//! What plain readers find at once, in one table behind one lock: the way of nearly all reads.
//!
//! The entries are the masters. Each change of an entry puts its ready answer in here, or takes it
//! out, before the entry's lock is released (rank: above the entries).

use hashbrown::HashMap;

use crate::clock::Coarse;
use crate::manager::cached::{Cached, ReadyObject};
use crate::object::{KeyRef, Object, ObjectKey};
use crate::sync::{Arc, Mutex, Rank};

/// The answers that are ready, by key; each with a mark of its strategy: when it was last read, or
/// when it was fetched.
#[derive(Debug)]
pub(crate) struct ReadCache<K: Object>(Mutex<HashMap<ObjectKey, Marked<K>>>);

type Marked<K> = (Arc<ReadyObject<K>>, Coarse);

impl<K: Object> Default for ReadCache<K> {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::READY_OBJECTS, HashMap::new()))
    }
}

impl<K: Object> ReadCache<K> {
    /// The answer, if one is ready and `may_use` says so of its mark, which it may change.
    /// Allocates nothing.
    pub(crate) fn read(
        &self,
        namespace: &str,
        name: &str,
        may_use: impl FnOnce(&mut Coarse) -> bool,
    ) -> Option<Cached<K>> {
        let mut answers = self.0.lock();
        let (ready, mark) = answers.get_mut(&KeyRef { namespace, name })?;
        may_use(mark).then(|| Cached::new(Arc::clone(ready)))
    }

    /// The mark on the answer.
    pub(crate) fn mark(&self, key: &ObjectKey) -> Coarse {
        let answers = self.0.lock();
        answers.get(key).map(|(_, mark)| *mark).unwrap_or_default()
    }

    /// Makes `ready` the answer, with its mark unless the present one is later. Returns what it
    /// replaces, to be dropped under no lock, and the mark on an answer that was taken out.
    pub(crate) fn publish(
        &self,
        key: &ObjectKey,
        ready: Option<(ReadyObject<K>, Coarse)>,
    ) -> (Option<Arc<ReadyObject<K>>>, Coarse) {
        let mut answers = self.0.lock();
        let Some((ready, mark)) = ready else {
            let removed = answers.remove(key);
            return removed.map_or((None, Coarse::default()), |(ready, mark)| {
                (Some(ready), mark)
            });
        };
        if let Some((present, marked)) = answers.get_mut(key) {
            *marked = mark.max(*marked);
            let same = present.is_same(&ready);
            let old = (!same).then(|| std::mem::replace(present, Arc::new(ready)));
            return (old, Coarse::default());
        }
        answers.insert(key.clone(), (Arc::new(ready), mark));
        (None, Coarse::default())
    }
}
