//! What can be read at once, in one table behind one lock: the way of nearly all reads, as cheap as a bare map.
//!
//! The slots are the masters. Each change of a slot puts its ready answer in here, or takes it out, before the slot's
//! lock is released (rank: above the slots).

use hashbrown::HashMap;

use super::slot::About;
use crate::clock::Coarse;
use crate::manager::cached::{Cached, Ready};
use crate::manager::kinds::ManagedKind;
use crate::manager::references::Borrowed;
use crate::object::ObjectKey;
use crate::sync::{Arc, Mutex};

/// The answers that are ready, by key.
#[derive(Debug)]
pub(crate) struct Answers<K: ManagedKind>(Mutex<HashMap<ObjectKey, Entry<K>>>);

#[derive(Debug)]
struct Entry<K: ManagedKind> {
    /// Whose answer it is: an item that was let go does not touch that of its successor under the same key.
    owner: Arc<About>,
    ready: Arc<Ready<K>>,
    read_at: Coarse,
}

impl<K: ManagedKind> Default for Answers<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: ManagedKind> Answers<K> {
    /// The answer, if one is ready; notes the read. Allocates nothing.
    pub(crate) fn read(&self, namespace: &str, name: &str, now: Coarse) -> Option<Cached<K>> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(&Borrowed { namespace, name })?;
        entry.read_at = now;
        Some(Cached::new(Arc::clone(&entry.ready)))
    }

    /// When the answer of `owner` was last read here.
    pub(crate) fn read_at(&self, owner: &Arc<About>) -> Coarse {
        let entries = self.0.lock();
        let entry = entries.get(&owner.key);
        let own = entry.filter(|entry| Arc::ptr_eq(&entry.owner, owner));
        own.map(|entry| entry.read_at).unwrap_or_default()
    }

    /// Makes `ready` the answer of `owner`. Gives back what it replaces, to be dropped under no lock, and when that
    /// was last read.
    pub(crate) fn publish(
        &self,
        owner: &Arc<About>,
        ready: Option<Ready<K>>,
    ) -> (Option<Arc<Ready<K>>>, Coarse) {
        let mut entries = self.0.lock();
        let Some(ready) = ready else {
            let own = entries
                .get(&owner.key)
                .is_some_and(|entry| Arc::ptr_eq(&entry.owner, owner));
            let gone = own.then(|| entries.remove(&owner.key)).flatten();
            return gone.map_or((None, Coarse::default()), |entry| {
                (Some(entry.ready), entry.read_at)
            });
        };
        if let Some(entry) = entries.get_mut(&owner.key) {
            entry.owner = Arc::clone(owner);
            if entry.ready.is_same(&ready) {
                return (None, Coarse::default());
            }
            let old = std::mem::replace(&mut entry.ready, Arc::new(ready));
            return (Some(old), Coarse::default());
        }
        let entry = Entry {
            owner: Arc::clone(owner),
            ready: Arc::new(ready),
            read_at: Coarse::default(),
        };
        entries.insert(owner.key.clone(), entry);
        (None, Coarse::default())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::clock::Clock;
    use crate::object::Held;
    use crate::reflector::Demand;

    fn about() -> Arc<About> {
        Arc::new(About {
            key: ObjectKey::new("ns", "s"),
            demand: Demand::new(),
        })
    }

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
        let (old, new) = (about(), about());
        answers.publish(&old, Some(ready(&clock)));
        answers.publish(&old, None);
        assert!(answers.read("ns", "s", clock.coarse()).is_none());
        answers.publish(&new, Some(ready(&clock)));
        answers.publish(&old, None);
        assert!(answers.read("ns", "s", clock.coarse()).is_some());
        assert_eq!(answers.read_at(&old), Coarse::default());
        assert!(answers.read_at(&new) > Coarse::default());
    }
}
