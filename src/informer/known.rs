//! The view of what the consumer of a queue holds, by which the queue finds what a list went without.

use crate::error::Error;
use crate::object::{Held, Object, ObjectKey};
use crate::store::Store;
use crate::sync::Arc;

/// What the consumer of a queue has stored: a [`Store`], or whatever else it applies deltas to (DF-1).
///
/// The queue asks it on the reflector's thread, and on the consumer's while that takes something or lets it go, under no
/// lock of its own. It must show what the deltas processed so
/// far have made, and nothing else may write to it; deltas that wait or are being processed are the queue's business.
#[doc(alias = "KeyListerGetter")]
pub trait KnownObjects<K: Object>: Send + Sync {
    /// Every key, those of objects that do not decode included.
    #[doc(alias = "ListKeys")]
    fn keys(&self) -> Vec<ObjectKey>;

    /// The present object of that key; `None` when there is none.
    ///
    /// # Errors
    ///
    /// Why it cannot be had although it may be there: a deletion is queued then (DF-5), a resync leaves it out (DF-16).
    #[doc(alias = "GetByKey")]
    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<Held<K>>>, Error>;

    /// The last state of that key that decoded, which may not be its present one: for deletions (B12).
    fn last_good(&self, key: &ObjectKey) -> Option<Arc<Held<K>>> {
        self.get(key).ok().flatten()
    }
}

impl<K: Object> KnownObjects<K> for Store<K> {
    fn keys(&self) -> Vec<ObjectKey> {
        self.keys()
    }

    fn get(&self, key: &ObjectKey) -> Result<Option<Arc<Held<K>>>, Error> {
        self.get(key.namespace(), key.name())
    }

    fn last_good(&self, key: &ObjectKey) -> Option<Arc<Held<K>>> {
        self.get_last_good(key.namespace(), key.name())
    }
}
