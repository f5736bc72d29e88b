//! An object as the caches hold it: shared, silent in `Debug`, secret values overwritten when the last holder drops it.

use std::any::Any;
use std::fmt;
use std::ops::Deref;

use k8s_openapi::api::core::v1::Secret;
use zeroize::Zeroize;

use super::Object;

/// An object out of a cache; derefs to `K`.
///
/// Its `Debug` prints key and version only, and the values of a `Secret` are overwritten when it is dropped. An
/// object out of a cache is not for writing back: `metadata.managedFields` and the last-applied annotation were
/// skipped while it was decoded, unless they were asked for (B19).
pub struct Held<K: Object>(K);

impl<K: Object> Held<K> {
    /// Wraps an object for a cache.
    pub fn new(object: K) -> Self {
        Self(object)
    }
}

impl<K: Object> Deref for Held<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Object> fmt::Debug for Held<K> {
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

impl<K: Object> Drop for Held<K> {
    fn drop(&mut self) {
        let object: &mut dyn Any = &mut self.0;
        if let Some(secret) = object.downcast_mut::<Secret>() {
            overwrite(secret);
        }
    }
}

fn overwrite(secret: &mut Secret) {
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
        assert_eq!(format!("{:?}", Held::new(secret)), "Secret shop/db @7");
    }

    #[test]
    fn overwriting_empties_every_value() {
        let mut secret = Secret {
            data: Some([("a".to_owned(), ByteString(b"canary".to_vec()))].into()),
            string_data: Some([("b".to_owned(), "canary".to_owned())].into()),
            ..Secret::default()
        };
        overwrite(&mut secret);
        assert!(secret.data.unwrap()["a"].0.is_empty());
        assert!(secret.string_data.unwrap()["b"].is_empty());
    }
}
