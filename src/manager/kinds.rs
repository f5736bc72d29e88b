//! The traits of a kind of object that its manager needs: a value, with a default for every kind.

use std::any::Any;
use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::error::debug_of;
use crate::guard::guard_logged;
use crate::object::{Object, resource_name};

/// Tells a manager which objects of its kind are immutable, and how much data they have.
///
/// The default knows `Secret` and `ConfigMap`. Objects of every other kind may change and have no
/// keys of data, unless the program says otherwise.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::coordination::v1::Lease;
/// use kubecache::clock::Deadline;
/// use kubecache::manager::{KindTraits, ManagerOptions, ObjectManager, Owner};
/// use kubecache::object::ObjectKey;
/// use kubecache::testing::{FakeSource, objects};
///
/// // In this program a lease that has a holder never changes hands.
/// let kind = KindTraits::default().immutable_when(|lease: &Lease| {
///     lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.is_some())
/// });
/// let server = FakeSource::<Lease>::new();
/// let mut lease = Lease { metadata: objects::metadata("shop", "till", ""), ..Lease::default() };
/// lease.spec.get_or_insert_default().holder_identity = Some("a".to_owned());
/// server.set(lease);
///
/// let leases = ObjectManager::of_kind(kind, server, ManagerOptions::default())?;
/// let key = ObjectKey::new("shop", "till");
/// leases.add_reference(&Owner::new("Till", key.clone()), &key);
/// leases.get_by("shop", "till", Deadline::NEVER)?;
/// let report = leases.inspect_object(&key);
/// assert!(report.is_some_and(|report| report.immutable));
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
pub struct KindTraits<K> {
    is_immutable: fn(&K) -> bool,
    data_size: fn(&K) -> (usize, usize),
    copy: fn(&K) -> K,
}

impl<K> Clone for KindTraits<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for KindTraits<K> {}

debug_of!([K] KindTraits<K>, |_it| ..);

impl<K: Object + Clone> Default for KindTraits<K> {
    fn default() -> Self {
        let predefined: [&dyn Any; 2] = [&SECRETS, &CONFIG_MAPS];
        let mut of_this_kind = predefined.iter().filter_map(|kind| kind.downcast_ref());
        of_this_kind.next().copied().unwrap_or(Self {
            is_immutable: |_| false,
            data_size: |_| (0, 0),
            copy: K::clone,
        })
    }
}

const SECRETS: KindTraits<Secret> = KindTraits {
    is_immutable: |secret| secret.immutable == Some(true),
    data_size: |secret| {
        let values = secret.data.iter().flat_map(BTreeMap::values);
        count(values.map(|ByteString(bytes)| bytes.len()))
    },
    copy: Secret::clone,
};

const CONFIG_MAPS: KindTraits<ConfigMap> = KindTraits {
    is_immutable: |map| map.immutable == Some(true),
    data_size: |map| {
        let texts = map.data.iter().flat_map(BTreeMap::values);
        let binary = map.binary_data.iter().flat_map(BTreeMap::values);
        let binary = binary.map(|ByteString(bytes)| bytes.len());
        count(texts.map(String::len).chain(binary))
    },
    copy: ConfigMap::clone,
};

impl<K: Object> KindTraits<K> {
    /// Sets the test for immutable objects: those that `is_immutable` returns true for never change
    /// again. With `Watch`, the first read of such an object stops its watch.
    ///
    /// The manager calls it once for each state that it takes in, under no lock. If it panics, the
    /// log says so, and the object counts as one that may change.
    #[must_use]
    pub fn immutable_when(mut self, is_immutable: fn(&K) -> bool) -> Self {
        self.is_immutable = is_immutable;
        self
    }

    pub(crate) fn copy(&self, object: &K) -> K {
        (self.copy)(object)
    }

    /// Whether the object says that it never changes. Called under no lock.
    pub(crate) fn is_immutable(&self, object: &K) -> bool {
        let kind = resource_name::<K>();
        guard_logged(format_args!("the immutable_when of {kind}"), || {
            (self.is_immutable)(object)
        })
    }

    /// How many keys of data the object has, and the bytes of their values.
    pub(crate) fn data_size(&self, object: &K) -> (usize, usize) {
        (self.data_size)(object)
    }
}

/// The name of the manager's memory in messages.
pub(crate) fn cache_name<K: Object>() -> String {
    format!("the {} cache", resource_name::<K>())
}

fn count(lengths: impl Iterator<Item = usize>) -> (usize, usize) {
    lengths.fold((0, 0), |(keys, bytes): (usize, usize), length| {
        (keys.saturating_add(1), bytes.saturating_add(length))
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;

    use super::*;

    /// OC-17: the field has to be there and true.
    #[test]
    fn the_default_knows_secrets_and_config_maps() {
        let data = [("a".to_owned(), ByteString(vec![0; 3]))].into();
        let secret = |immutable| Secret {
            immutable,
            data: Some(BTreeMap::clone(&data)),
            ..Secret::default()
        };
        let kind = KindTraits::default();
        for (immutable, is) in [(None, false), (Some(false), false), (Some(true), true)] {
            assert_eq!(kind.is_immutable(&secret(immutable)), is);
        }
        assert_eq!(kind.data_size(&secret(None)), (1, 3));
        let map = ConfigMap {
            immutable: Some(true),
            data: Some([("a".to_owned(), "four".to_owned())].into()),
            binary_data: Some(data),
            ..ConfigMap::default()
        };
        let kind = KindTraits::default();
        assert!(kind.is_immutable(&map));
        assert_eq!(kind.data_size(&map), (2, 7));
    }

    #[test]
    fn a_program_describes_its_own_kind() {
        let kind = KindTraits::<Lease>::default();
        let lease = Lease::default();
        assert!(!kind.is_immutable(&lease));
        assert_eq!(kind.data_size(&lease), (0, 0));
        let kind = kind.immutable_when(|_| true);
        assert!(kind.is_immutable(&lease));
    }
}
