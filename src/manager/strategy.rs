//! What a manager asks of its strategy, whichever it is.

use std::collections::BTreeMap;

use super::cached::Cached;
use super::changes::Notifier;
use super::health::Overdue;
use super::metrics::ManagerState;
use super::options::ManagerOptions;
use super::references::{Owner, ReferenceChange};
use super::report::ObjectReport;
use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, ObjectKey, ResourceVersion};

/// Holds the objects of one manager: by watches, for a time to live, or not at all.
pub(crate) trait Strategy<K: Object>: Send + Sync {
    fn options(&self) -> &ManagerOptions;

    fn changes(&self) -> &Notifier;

    /// A look at the strategy's state that keeps nothing alive whose drop waits for a thread.
    fn look(&self) -> Box<dyn Fn() -> ManagerState + Send + Sync>;

    /// Changes the references of `owner` and does what that asks for. Never blocks.
    fn change_references(&self, owner: &Owner, change: ReferenceChange);

    /// The owners and what each references, sorted.
    fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>>;

    /// See [`ObjectManager::get_by`](crate::manager::ObjectManager::get_by).
    fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<Cached<K>, Error>;

    /// See [`ObjectManager::get_cached`](crate::manager::ObjectManager::get_cached).
    fn get_cached(&self, namespace: &str, name: &str) -> Result<Option<Cached<K>>, Error>;

    /// See [`ObjectManager::get_fresh`](crate::manager::ObjectManager::get_fresh).
    fn get_fresh(
        &self,
        namespace: &str,
        name: &str,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        self.get_at_least(namespace, name, &ResourceVersion::most_recent(), deadline)
    }

    /// See [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least); an empty
    /// version is the most recent one.
    fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error>;

    /// See [`ObjectManager::inspect_object`](crate::manager::ObjectManager::inspect_object).
    fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport>;

    /// How many objects are referenced.
    fn len(&self) -> usize;

    /// The objects whose watch is overdue (B14).
    fn overdue(&self) -> Vec<Overdue> {
        Vec::new()
    }

    /// What keeps the strategy's helper thread from its work, if it has one and anything does.
    fn housekeeping_failure(&self) -> Option<Error> {
        None
    }

    /// See [`ObjectManager::shut_down`](crate::manager::ObjectManager::shut_down).
    fn shut_down(&self);

    /// The store itself, for tests that take a read apart.
    #[cfg(test)]
    fn watch_store(&self) -> Option<&super::watch::store::WatchStore<K>> {
        None
    }
}
