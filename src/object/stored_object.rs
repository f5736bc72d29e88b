//! An object as the caches hold it: shared, silent in `Debug`, secret values overwritten when the
//! last holder drops it.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use zeroize::Zeroize;

use super::Object;
use crate::sync::Arc;

/// Where kubectl keeps a copy of the whole object, the values of a Secret included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object out of a cache; derefs to `K`.
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

    /// Whether both are the same state of the same object, by its UID and version.
    pub(crate) fn is_same_state(&self, other: &Self) -> bool {
        let version = self.metadata().resource_version.as_deref();
        version.is_some_and(|version| !version.is_empty())
            && other.metadata().resource_version.as_deref() == version
            && other.uid() == self.uid()
    }

    /// Leaves out what only writers need, of an object that was not trimmed while it was decoded
    /// (B19).
    pub(crate) fn trim(&mut self) {
        let metadata = self.0.metadata_mut();
        metadata.managed_fields = None;
        overwrite_copy(metadata);
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(LAST_APPLIED);
        }
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
        write!(
            f,
            "{} {} @{}",
            K::KIND,
            self.0.key(),
            self.0.resource_version()
        )
    }
}

impl<K: Object> Drop for StoredObject<K> {
    fn drop(&mut self) {
        let object: &mut dyn Any = &mut self.0;
        if let Some(secret) = object.downcast_mut::<Secret>() {
            overwrite(secret);
        }
    }
}

fn overwrite_copy(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.as_mut();
    if let Some(copy) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) {
        copy.zeroize();
    }
}

fn overwrite(secret: &mut Secret) {
    overwrite_copy(&mut secret.metadata);
    for value in secret.data.iter_mut().flat_map(|data| data.values_mut()) {
        value.0.zeroize();
    }
    for value in secret
        .string_data
        .iter_mut()
        .flat_map(|data| data.values_mut())
    {
        value.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

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

    #[test]
    fn overwriting_empties_every_value() {
        let mut secret = Secret {
            data: Some([("a".to_owned(), ByteString(b"canary".to_vec()))].into()),
            string_data: Some([("b".to_owned(), "canary".to_owned())].into()),
            ..Secret::default()
        };
        let applied = (LAST_APPLIED.to_owned(), "canary".to_owned());
        let other = ("a".to_owned(), "b".to_owned());
        secret.metadata.annotations = Some([applied, other].into());
        overwrite(&mut secret);
        assert!(secret.data.unwrap()["a"].0.is_empty());
        assert!(secret.string_data.unwrap()["b"].is_empty());
        let annotations = secret.metadata.annotations.unwrap();
        assert!(annotations[LAST_APPLIED].is_empty());
        assert_eq!(annotations["a"], "b");
    }
}
