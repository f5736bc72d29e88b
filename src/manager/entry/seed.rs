//! Seeds: objects as an earlier process knew them, which answer readers until the server has
//! answered. A seed never becomes the entry's content, so its version counts for nothing.

use std::any::Any;
use std::time::Instant;

use crate::clock::Clock;
use crate::error::Error;
use crate::manager::cached::ReadyObject;
use crate::manager::references::Owner;
use crate::object::{Object, ObjectKey, StoredObject};
use crate::sync::Arc;

/// An object as an earlier process knew it.
#[derive(Debug)]
pub(crate) struct Seed<K: Object> {
    pub(crate) object: Arc<StoredObject<K>>,
    /// When the server confirmed it last, on the manager's clock.
    pub(crate) contact: Instant,
}

/// How the server's first answer about an object compares with its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeedEnd {
    Confirmed,
    Changed,
    Deleted,
}

/// The source of the seeds of one manager, which also learns of their ends.
pub(crate) trait SeedSource<K: Object>: Send + Sync {
    /// Makes the seed of an object that is referenced now. Runs code of the program.
    fn look(&self, key: &ObjectKey, clock: &Clock) -> Option<Seed<K>>;

    /// Forgets a seed that the entry has, or does not need any more. Called under the entry's lock.
    /// Returns the leftovers, which the caller drops under no lock.
    fn claim(&self, key: &ObjectKey) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Forgets the references of an owner that has gone. Called under no lock.
    fn claim_owner(&self, owner: &Owner);

    /// Whether it will have no more seeds.
    #[cfg(feature = "snapshot")]
    fn is_over(&self) -> bool;

    /// The server has answered for an object that had a seed. Called under no lock.
    fn ended(&self, key: &ObjectKey, end: SeedEnd);
}

/// An object of a manager, to be kept for the next process.
#[cfg(feature = "snapshot")]
#[derive(Debug)]
pub(crate) struct KeptObject<K: Object> {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<StoredObject<K>>,
    pub(crate) contact: Instant,
}

impl<K: Object> Seed<K> {
    /// The answer to a reader.
    pub(crate) fn ready(&self, failure: Option<Error>, clock: &Clock) -> ReadyObject<K> {
        ReadyObject {
            object: Arc::clone(&self.object),
            contact: self.contact,
            failure,
            stale: true,
            expires: None,
            clock: clock.clone(),
        }
    }
}
