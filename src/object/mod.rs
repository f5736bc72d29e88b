//! The vocabulary of objects: keys, versions, selectors, statuses, and objects as the caches hold
//! them. Plain data.

mod key;
mod label_matcher;
mod selector;
mod stored_object;
mod transform;
mod version;

pub use crate::error::{Reason, Status, visible};
pub(crate) use key::KeyRef;
pub use key::ObjectKey;
pub use label_matcher::LabelMatcher;
pub use selector::{FieldSelector, LabelSelector, Scope};
pub use stored_object::StoredObject;
pub(crate) use transform::Transform;
pub use version::ResourceVersion;
pub(crate) use version::numeric_order;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

/// A type the caches can hold: any `k8s-openapi` type with `ObjectMeta`, or a lean type of your
/// own.
///
/// Implemented for everything that has the bounds; there is nothing to write. A program that reads
/// three fields of a pod implements `k8s_openapi::Resource`, `k8s_openapi::Metadata` and
/// `Deserialize` for a struct of those fields, and pays for those alone.
pub trait Object:
    k8s_openapi::Resource
    + k8s_openapi::Metadata<Ty = ObjectMeta>
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The object's namespace and name; the namespace is empty for cluster-scoped objects.
    fn key(&self) -> ObjectKey {
        let KeyRef { namespace, name } = KeyRef::of(self);
        ObjectKey::new(namespace, name)
    }

    /// The object's resource version; empty when the server sent none.
    fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::from(version_of(self))
    }

    /// The object's uid; empty when the server sent none.
    fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }
}

impl<K> Object for K where
    K: k8s_openapi::Resource
        + k8s_openapi::Metadata<Ty = ObjectMeta>
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

impl<'a> KeyRef<'a> {
    /// The key of an object.
    pub(crate) fn of<K: Object>(object: &'a K) -> Self {
        let metadata = object.metadata();
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

/// The object's version, borrowed; empty when the server sent none.
pub(crate) fn version_of<K: Object>(object: &K) -> &str {
    let version = object.metadata().resource_version.as_deref();
    version.unwrap_or_default()
}

/// Whether two objects of one key are the same state of the same object.
pub(crate) fn is_same_state<K: Object>(a: &K, b: &K) -> bool {
    !version_of(a).is_empty() && version_of(a) == version_of(b) && a.uid() == b.uid()
}

/// The resource as the field's messages write it: `secret`, `deployment.apps` (OC-9).
pub(crate) fn resource_name<K: Object>() -> String {
    let kind = K::KIND.to_ascii_lowercase();
    if K::GROUP.is_empty() {
        kind
    } else {
        format!("{kind}.{}", K::GROUP)
    }
}
