//! What is special about a kind of object for its manager: a value, with a default for every kind.

use std::any::Any;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::object::{Object, resource_name};

/// What a manager reads out of the objects of its kind.
///
/// The default knows `Secret` and `ConfigMap`. For every other kind it says that the object may
/// change and has no keys of data.
pub struct KindTraits<K> {
    is_immutable: fn(&K) -> bool,
    data_size: fn(&K) -> (usize, usize),
}

impl<K> Clone for KindTraits<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for KindTraits<K> {}

impl<K> fmt::Debug for KindTraits<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindTraits").finish_non_exhaustive()
    }
}

impl<K: Object> Default for KindTraits<K> {
    fn default() -> Self {
        Self {
            is_immutable: says_immutable,
            data_size,
        }
    }
}

impl<K: Object> KindTraits<K> {
    /// Whether the object says that it never changes (OC-17).
    pub(crate) fn is_immutable(&self, object: &K) -> bool {
        (self.is_immutable)(object)
    }

    /// How many keys of data the object has, and the bytes of their values.
    pub(crate) fn data_size(&self, object: &K) -> (usize, usize) {
        (self.data_size)(object)
    }
}

/// What a message calls the manager's memory.
pub(crate) fn cache_name<K: Object>() -> String {
    format!("the {} cache", resource_name::<K>())
}

fn says_immutable<K: Object>(object: &K) -> bool {
    let object: &dyn Any = object;
    let secret = object.downcast_ref::<Secret>();
    let config_map = object.downcast_ref::<ConfigMap>();
    let field = secret.map(|secret| secret.immutable);
    field.or_else(|| config_map.map(|map| map.immutable)) == Some(Some(true))
}

fn data_size<K: Object>(object: &K) -> (usize, usize) {
    let object: &dyn Any = object;
    if let Some(secret) = object.downcast_ref::<Secret>() {
        let values = secret.data.iter().flat_map(|data| data.values());
        return count(values.map(|ByteString(bytes)| bytes.len()));
    }
    if let Some(map) = object.downcast_ref::<ConfigMap>() {
        let texts = map.data.iter().flat_map(|data| data.values());
        let binary = map.binary_data.iter().flat_map(|data| data.values());
        let binary = binary.map(|ByteString(bytes)| bytes.len());
        return count(texts.map(String::len).chain(binary));
    }
    (0, 0)
}

fn count(lengths: impl Iterator<Item = usize>) -> (usize, usize) {
    lengths.fold((0, 0), |(keys, bytes): (usize, usize), length| {
        (keys.saturating_add(1), bytes.saturating_add(length))
    })
}
