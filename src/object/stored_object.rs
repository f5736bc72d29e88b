//! An object as the caches hold it: shared, silent in `Debug`, secret values overwritten when the
//! last holder drops it.

use std::fmt;
use std::ops::Deref;

use super::Object;
use crate::sync::Arc;

/// An object as the caches hold it; it derefs to `K`.
///
/// Its `Debug` prints key and version only, and the values of a `Secret` are overwritten when it is
/// dropped. An object out of a cache is not for writing back: `metadata.managedFields` and the
/// last-applied annotation were skipped while it was decoded, unless they were asked for.
pub struct StoredObject<K: Object>(K);

impl<K: Object> StoredObject<K> {
    /// Wraps an object for a cache.
    pub fn new(object: K) -> Self {
        Self(object)
    }

    /// The object after `edit`: in place if nobody else holds it, else a copy of it. For
    /// transforms.
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

    /// The object, which nothing else refers to yet.
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
        let (key, version) = (self.0.key(), self.0.version());
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

    /// What is shared is never changed: no detector has to look for it.
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
