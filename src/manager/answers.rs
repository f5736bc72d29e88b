//! What can be read at once, in one table behind one lock: the way of nearly all reads, as cheap as a bare map.
//!
//! The stores' places, one per object, are the masters. Each change of a place puts its ready answer in here, or takes
//! it out, before the place's lock is released (rank: above the places).

use hashbrown::HashMap;

use super::cached::{Cached, Ready};
use crate::clock::Coarse;
use crate::object::{KeyRef, Object, ObjectKey};
use crate::sync::{Arc, Mutex};

/// The answers that are ready, by key. `O` is whose they are.
#[derive(Debug)]
pub(crate) struct Answers<K: Object, O>(Mutex<HashMap<ObjectKey, Entry<K, O>>>);

#[derive(Debug)]
struct Entry<K: Object, O> {
    /// Whose answer it is: an item that was let go does not touch that of its successor under the same key.
    owner: Arc<O>,
    ready: Arc<Ready<K>>,
    /// The store's own: when it was last read, or when it was fetched.
    mark: Coarse,
}

impl<K: Object, O> Default for Answers<K, O> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Object, O> Answers<K, O> {
    /// The answer, if one is ready; marks the read. Allocates nothing.
    pub(crate) fn read(&self, namespace: &str, name: &str, now: Coarse) -> Option<Cached<K>> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(&KeyRef { namespace, name })?;
        entry.mark = now;
        Some(Cached::new(Arc::clone(&entry.ready)))
    }

    /// The answer, if one is ready and its mark says that it may be used. Allocates nothing.
    pub(crate) fn read_if(
        &self,
        namespace: &str,
        name: &str,
        may_use: impl FnOnce(Coarse) -> bool,
    ) -> Option<Cached<K>> {
        let entries = self.0.lock();
        let entry = entries.get(&KeyRef { namespace, name })?;
        may_use(entry.mark).then(|| Cached::new(Arc::clone(&entry.ready)))
    }

    /// The mark on the answer of `owner`.
    pub(crate) fn mark(&self, key: &ObjectKey, owner: &Arc<O>) -> Coarse {
        let entries = self.0.lock();
        let own = entries.get(key).filter(|entry| entry.is_of(owner));
        own.map(|entry| entry.mark).unwrap_or_default()
    }

    /// Makes `ready` the answer of `owner`, with `mark` unless the present one is later. Gives back what it replaces, to
    /// be dropped under no lock, and the mark on an answer that was taken out.
    pub(crate) fn publish(
        &self,
        key: &ObjectKey,
        owner: &Arc<O>,
        ready: Option<Ready<K>>,
        mark: Coarse,
    ) -> (Option<Arc<Ready<K>>>, Coarse) {
        let mut entries = self.0.lock();
        let Some(ready) = ready else {
            let own = entries.get(key).is_some_and(|entry| entry.is_of(owner));
            let gone = own.then(|| entries.remove(key)).flatten();
            return gone.map_or((None, Coarse::default()), |entry| {
                (Some(entry.ready), entry.mark)
            });
        };
        if let Some(entry) = entries.get_mut(key) {
            entry.owner = Arc::clone(owner);
            entry.mark = entry.mark.max(mark);
            if entry.ready.is_same(&ready) {
                return (None, Coarse::default());
            }
            let old = std::mem::replace(&mut entry.ready, Arc::new(ready));
            return (Some(old), Coarse::default());
        }
        let entry = Entry {
            owner: Arc::clone(owner),
            ready: Arc::new(ready),
            mark,
        };
        entries.insert(key.clone(), entry);
        (None, Coarse::default())
    }
}

impl<K: Object, O> Entry<K, O> {
    fn is_of(&self, owner: &Arc<O>) -> bool {
        Arc::ptr_eq(&self.owner, owner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::clock::Clock;
    use crate::object::Held;

    fn ready(clock: &Clock) -> Ready<Secret> {
        Ready {
            object: Arc::new(Held::new(Secret::default())),
            contact: clock.now(),
            failure: None,
            stale: false,
            clock: clock.clone(),
        }
    }

    /// B6: an item that was let go has no say about the answer of the one after it.
    #[test]
    fn an_answer_is_taken_back_by_its_owner_only() {
        let (clock, answers) = (Clock::system(), Answers::default());
        let key = ObjectKey::new("ns", "s");
        let (old, new) = (Arc::new(1), Arc::new(1));
        let start = Coarse::default();
        answers.publish(&key, &old, Some(ready(&clock)), start);
        answers.publish(&key, &old, None, start);
        assert!(answers.read("ns", "s", clock.coarse()).is_none());
        answers.publish(&key, &new, Some(ready(&clock)), start);
        answers.publish(&key, &old, None, start);
        assert!(answers.read("ns", "s", clock.coarse()).is_some());
        assert_eq!(answers.mark(&key, &old), start);
        assert!(answers.mark(&key, &new) > start);
        assert!(answers.read_if("ns", "s", |mark| mark == start).is_none());
        assert!(answers.read_if("ns", "s", |mark| mark > start).is_some());
    }
}
