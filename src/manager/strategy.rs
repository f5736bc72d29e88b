//! The interface between a manager and its strategy.

use std::collections::BTreeMap;

use super::cached::Cached;
use super::changes::Notifier;
#[cfg(feature = "snapshot")]
use super::entry::seed::{KeptObject, SeedSource};
use super::metrics::ManagerState;
use super::options::ManagerOptions;
use super::references::{Owner, ReferenceChange};
use super::report::{NamespaceReport, ObjectReport};
use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::sync::Arc;
use crate::sync::atomic::AtomicUsize;

/// The referenced objects of one manager. Its drop never waits for a thread.
pub(crate) trait ReferencedObjects: Send + Sync {
    fn options(&self) -> &ManagerOptions;

    fn changes(&self) -> &Notifier;

    /// The owners, sorted, each with the keys that it references, sorted.
    fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>>;

    /// Reports one object, if it is referenced. Does not count as a read.
    fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport>;

    /// The counts, without the watches that several objects share.
    fn state(&self) -> ManagerState;
}

/// The objects of one manager, to be kept for the next process and brought by an earlier one.
#[cfg(feature = "snapshot")]
pub(crate) trait KeptObjects<K: Object>: ReferencedObjects {
    /// Answers readers from these seeds until the server has answered, for references from now on.
    /// Returns those before, which the caller drops under no lock.
    ///
    /// # Errors
    ///
    /// `Config` if it does so already, and those are not over.
    fn seed_from(
        &self,
        seeds: Arc<dyn SeedSource<K>>,
    ) -> Result<Option<Arc<dyn SeedSource<K>>>, Error>;

    /// The objects in memory, and the seeds of those that the server has not answered for.
    fn kept(&self) -> Vec<KeptObject<K>>;
}

/// Keeps the objects of one manager: by watches, for a time to live, or not at all.
pub(crate) trait Strategy<K: Object>: Send + Sync {
    fn entries(&self) -> Arc<dyn ReferencedObjects>;

    /// The entries of a strategy that keeps objects.
    #[cfg(feature = "snapshot")]
    fn kept_objects(&self) -> Option<Arc<dyn KeptObjects<K>>>;

    /// How many watches several objects share.
    fn shared_watches(&self) -> Arc<AtomicUsize> {
        Arc::new(AtomicUsize::new(0))
    }

    /// Changes the references of `owner`, and starts or stops watches as that requires. Never
    /// blocks.
    fn change_references(&self, owner: &Owner, change: ReferenceChange);

    /// See [`ObjectManager::get_by`](crate::manager::ObjectManager::get_by).
    fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<Cached<K>, Error>;

    /// See [`ObjectManager::get_cached`](crate::manager::ObjectManager::get_cached).
    fn get_cached(&self, namespace: &str, name: &str) -> Result<Option<Cached<K>>, Error>;

    /// See [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least); an empty
    /// version is the most recent one.
    fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error>;

    /// The last panic of the strategy's threads, until they work again.
    fn housekeeping_failure(&self) -> Option<Error> {
        None
    }

    /// See [`ObjectManager::namespace_reports`](crate::manager::ObjectManager::namespace_reports).
    fn namespace_reports(&self) -> Vec<NamespaceReport> {
        Vec::new()
    }

    /// See [`ObjectManager::stop`](crate::manager::ObjectManager::stop).
    fn stop(&self);

    /// See [`ObjectManager::shutdown`](crate::manager::ObjectManager::shutdown).
    fn shutdown(&self, _deadline: Deadline) -> Result<(), Error> {
        self.stop();
        Ok(())
    }

    /// The store itself, for tests that take a read apart.
    #[cfg(test)]
    fn watch_store(&self) -> Option<&super::watch::store::WatchStore<K>> {
        None
    }
}
