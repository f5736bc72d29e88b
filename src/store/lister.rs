//! Listers: reads of a store in the style of generated Go listers, by labels, namespace and name.

use crate::error::{Error, clone_of};
use crate::object::{LabelMatcher, Object, StoredObject, resource_name};
use crate::store::{NAMESPACE_INDEX, Store};
use crate::sync::Arc;

/// Reads a [`Store`] in the style of a generated Go lister. Cheap to clone; never blocks on the
/// network.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::object::LabelMatcher;
/// use kubecache::store::{Indexers, Store};
///
/// let indexers = Indexers::<ConfigMap>::new().by_namespace();
/// let (store, _writer) = Store::new(indexers, Clock::system());
/// let lister = store.lister().namespace("shop");
/// assert!(lister.list(&LabelMatcher::everything()).is_empty());
///
/// let error = lister.get("settings").unwrap_err();
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "configmap \"settings\" not found");
/// # }
/// ```
#[doc(alias("GenericLister", "GenericNamespaceLister"))]
#[derive(Debug)]
pub struct Lister<K: Object> {
    store: Store<K>,
    /// The namespace; empty for all.
    namespace: Arc<str>,
}

impl<K: Object> Store<K> {
    /// Makes a lister of this store.
    pub fn lister(&self) -> Lister<K> {
        Lister {
            store: self.clone(),
            namespace: Arc::default(),
        }
    }
}

impl<K: Object> Lister<K> {
    /// Makes a lister of one namespace. An empty name stands for all.
    #[must_use]
    #[doc(alias = "ByNamespace")]
    pub fn namespace(&self, namespace: impl Into<Arc<str>>) -> Self {
        Self {
            store: self.store.clone(),
            namespace: namespace.into(),
        }
    }

    /// Returns the objects whose labels match, in no particular order.
    ///
    /// [`LabelMatcher::nothing`] does not read the store, and [`LabelMatcher::everything`] does not
    /// read labels. Undecodable objects are left out. If the store has the index
    /// [`by_namespace`](crate::store::Indexers::by_namespace), the cost grows with the namespace.
    /// Without that index, the lister searches the whole store and logs a warning.
    #[doc(alias("ListAll", "ListAllByNamespace"))]
    pub fn list(&self, labels: &LabelMatcher) -> Vec<Arc<StoredObject<K>>> {
        if labels.is_nothing() {
            return Vec::new();
        }
        let mut objects = if self.namespace.is_empty() {
            self.store.list()
        } else {
            self.list_namespace()
        };
        if !labels.is_everything() {
            objects.retain(|object| labels.matches_object::<K>(object));
        }
        objects
    }

    fn list_namespace(&self) -> Vec<Arc<StoredObject<K>>> {
        let objects = self.store.by_index(NAMESPACE_INDEX, &self.namespace);
        objects.unwrap_or_else(|error| {
            log::warn!(
                "listing a namespace of {} without the index for it: {error}",
                K::resource().kind()
            );
            let mut objects = self.store.list();
            objects.retain(|object| object.namespace() == &*self.namespace);
            objects
        })
    }

    /// Returns an object of the namespace by name; in the empty namespace, a cluster-scoped one.
    ///
    /// # Errors
    ///
    /// `NotFound` when the store has none, in the API's words: `deployment.apps "web" not found`.
    /// Before the first list, its source says why the store is empty. `Undecodable` when the object
    /// exists but is not a `K`.
    pub fn get(&self, name: &str) -> Result<Arc<StoredObject<K>>, Error> {
        let found = self.store.get(&self.namespace, name)?;
        found.ok_or_else(|| {
            Error::not_found(&resource_name::<K>(), name).caused_by(self.store.not_synced_yet())
        })
    }
}

clone_of!([K: Object] Lister<K>: store, namespace);
