//! An object as the caches hold it: shared, without its values in `Debug`, and with secret values
//! overwritten on the last drop.

use std::fmt;
use std::ops::Deref;

use super::Object;
use crate::sync::Arc;

/// An object as the caches hold it; it derefs to `K`.
///
/// Its `Debug` prints only key and version, and the values of a `Secret` are overwritten on drop.
/// Do not write an object from a cache back to the server: the decoder skipped
/// `metadata.managedFields` and the last-applied annotation, unless the client keeps them.
pub struct StoredObject<K: Object>(K);

impl<K: Object> StoredObject<K> {
    /// Wraps an object for a cache.
    pub fn new(object: K) -> Self {
        Self(object)
    }

    /// Edits the object, for transforms: in place if it is not shared, otherwise on a copy.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubecache::object::StoredObject;
    ///
    /// let shared = Arc::new(StoredObject::new(ConfigMap::default()));
    /// let edit = |object: &mut ConfigMap| object.immutable = Some(true);
    /// let edited = StoredObject::edited(Arc::clone(&shared), edit);
    /// assert_eq!((edited.immutable, shared.immutable), (Some(true), None));
    /// ```
    #[must_use]
    pub fn edited(mut object: Arc<Self>, edit: impl FnOnce(&mut K)) -> Arc<Self>
    where
        K: Clone,
    {
        if let Some(alone) = Arc::get_mut(&mut object) {
            edit(&mut alone.0);
            return object;
        }
        let mut copy = Self(object.0.clone());
        edit(&mut copy.0);
        Arc::new(copy)
    }

    /// The object, before anything else refers to it.
    pub(crate) fn inner_mut(&mut self) -> &mut K {
        &mut self.0
    }
}

impl<K: Object> Deref for StoredObject<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Object> fmt::Debug for StoredObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, version) = (self.0.key(), self.0.resource_version_text());
        write!(f, "{} {key} @{version}", K::resource().kind())
    }
}

impl<K: Object> Drop for StoredObject<K> {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn debug_prints_no_secret_byte() {
        let mut secret = Secret::default();
        secret.metadata.name = Some("db".into());
        secret.metadata.namespace = Some("shop".into());
        secret.metadata.resource_version = Some("7".into());
        secret.data = Some([("password".to_owned(), ByteString(b"canary".to_vec()))].into());
        assert_eq!(
            format!("{:?}", StoredObject::new(secret)),
            "Secret shop/db @7"
        );
    }

    /// A shared object never changes, so no mutation detector is needed.
    #[test]
    fn md_1_who_edits_a_shared_object_edits_a_copy() {
        let alone = Arc::new(StoredObject::new(Secret::default()));
        let address = Arc::as_ptr(&alone);
        let edit = |secret: &mut Secret| secret.immutable = Some(true);
        let shared = StoredObject::edited(alone, edit);
        assert_eq!(Arc::as_ptr(&shared), address, "nobody else holds it");

        let edited = StoredObject::edited(Arc::clone(&shared), |secret| secret.immutable = None);
        assert_ne!(Arc::as_ptr(&edited), address);
        assert_eq!((shared.immutable, edited.immutable), (Some(true), None));
    }
}
