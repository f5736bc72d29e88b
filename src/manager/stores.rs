//! The one type behind which the strategies stand: a manager asks it, and it asks the store of its strategy.

use std::collections::BTreeMap;
use std::sync::Weak;

use super::cached::Cached;
use super::changes::Notifier;
use super::fetch::store::FetchStore;
use super::health::Overdue;
use super::metrics::Books;
use super::options::ManagerOptions;
use super::references::{Owner, ReferenceChange};
use super::report::ObjectReport;
use super::ttl::store::TtlStore;
use super::watch::store::WatchStore;
use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, ObjectKey, ResourceVersion};

/// The store of one manager.
#[derive(Debug)]
pub(crate) enum Stores<K: Object> {
    Watch(WatchStore<K>),
    Cache(TtlStore<K>),
    Get(FetchStore<K>),
}

impl<K: Object> Stores<K> {
    pub(crate) fn options(&self) -> &ManagerOptions {
        match self {
            Self::Watch(store) => &store.works().options,
            Self::Cache(store) => store.options(),
            Self::Get(store) => store.options(),
        }
    }

    /// What a reading of the manager looks at.
    pub(crate) fn books(&self) -> Weak<dyn Books> {
        match self {
            Self::Watch(store) => store.books(),
            Self::Cache(store) => store.books(),
            Self::Get(store) => store.books(),
        }
    }

    pub(crate) fn changes(&self) -> &Notifier {
        match self {
            Self::Watch(store) => &store.works().changes,
            Self::Cache(store) => store.changes(),
            Self::Get(store) => store.changes(),
        }
    }

    /// Changes the references of `owner` and does what that asks for. Never blocks.
    pub(crate) fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        match self {
            Self::Watch(store) => store.change_references(owner, change),
            Self::Cache(store) => store.change_references(owner, change),
            Self::Get(store) => store.change_references(owner, change),
        }
    }

    /// The owners and what each references, sorted.
    pub(crate) fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        match self {
            Self::Watch(store) => store.owners(),
            Self::Cache(store) => store.owners(),
            Self::Get(store) => store.owners(),
        }
    }

    pub(crate) fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: impl FnOnce() -> Deadline,
    ) -> Result<Cached<K>, Error> {
        match self {
            Self::Watch(store) => store.get(namespace, name, deadline),
            Self::Cache(store) => store.get(namespace, name, deadline),
            Self::Get(store) => store.get(namespace, name, deadline()),
        }
    }

    pub(crate) fn get_cached(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Cached<K>>, Error> {
        match self {
            Self::Watch(store) => store.get_cached(namespace, name),
            Self::Cache(store) => store.get_cached(namespace, name),
            Self::Get(_) => Ok(None),
        }
    }

    pub(crate) fn get_fresh(
        &self,
        namespace: &str,
        name: &str,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        match self {
            Self::Watch(store) => store.get_fresh(namespace, name, deadline),
            Self::Cache(store) => store.get_fresh(namespace, name, deadline),
            Self::Get(store) => store.get(namespace, name, deadline),
        }
    }

    pub(crate) fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        // As the API means them: the most recent state, and any.
        if version.is_empty() {
            return self.get_fresh(namespace, name, deadline);
        }
        if version.is_unset() {
            return self.get(namespace, name, || deadline);
        }
        match self {
            Self::Watch(store) => store.get_at_least(namespace, name, version, deadline),
            Self::Cache(store) => store.get_at_least(namespace, name, version, deadline),
            Self::Get(store) => store.get_at_least(namespace, name, version, deadline),
        }
    }

    pub(crate) fn inspect(&self, key: &ObjectKey) -> Option<ObjectReport> {
        match self {
            Self::Watch(store) => store.inspect(key),
            Self::Cache(store) => store.inspect(key),
            Self::Get(store) => store.inspect(key),
        }
    }

    /// The objects whose watch is overdue; what is not watched owes nothing.
    pub(crate) fn overdue(&self) -> Vec<Overdue> {
        match self {
            Self::Watch(store) => store.overdue(),
            Self::Cache(_) | Self::Get(_) => Vec::new(),
        }
    }

    /// What keeps the store's helper thread from its work, if it has one and anything does.
    pub(crate) fn housekeeping_failure(&self) -> Option<Error> {
        match self {
            Self::Watch(store) => store.housekeeping_failure(),
            Self::Cache(_) | Self::Get(_) => None,
        }
    }

    pub(crate) fn shut_down(&self) {
        match self {
            Self::Watch(store) => store.shut_down(),
            Self::Cache(store) => store.shut_down(),
            Self::Get(store) => store.shut_down(),
        }
    }

    /// How many objects are referenced.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Watch(store) => store.len(),
            Self::Cache(store) => store.len(),
            Self::Get(store) => store.len(),
        }
    }
}
