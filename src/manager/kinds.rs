//! The two kinds of object a manager can keep: how pods name them, and what is particular about each.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

use super::pod_references::{visit_pod_config_map_names, visit_pod_secret_names};
use crate::object::Object;

mod sealed {
    #[expect(
        unnameable_types,
        reason = "nobody else is to name it: the trait is sealed"
    )]
    pub trait Sealed {}
    impl Sealed for k8s_openapi::api::core::v1::Secret {}
    impl Sealed for k8s_openapi::api::core::v1::ConfigMap {}
}

/// A kind of object which pods name and a manager keeps: `Secret` or `ConfigMap`.
pub trait ManagedKind: Object + Clone + sealed::Sealed {
    /// The singular resource word in error texts (OC-9, OC-10).
    const RESOURCE: &'static str;
    /// What a message calls the manager's memory.
    #[doc(hidden)]
    const CACHE: &'static str;
    /// The name of the housekeeper's thread.
    #[doc(hidden)]
    const HOUSEKEEPER: &'static str;
    /// The name of the thread that checks immutable objects.
    #[doc(hidden)]
    const CHECKER: &'static str;

    /// Visits the names of this kind's objects a pod references; see
    /// [`visit_pod_secret_names`].
    fn visit_names<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool;

    /// Whether the object says that it never changes: its field is present and true (OC-17).
    fn is_immutable(&self) -> bool;

    /// How many keys of data it has, and the bytes of their values.
    fn data_size(&self) -> (usize, usize);
}

impl ManagedKind for Secret {
    const RESOURCE: &'static str = "secret";
    const CACHE: &'static str = "the secret cache";
    const HOUSEKEEPER: &'static str = "hk-secret";
    const CHECKER: &'static str = "ck-secret";

    fn visit_names<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        visit_pod_secret_names(pod, visitor)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn data_size(&self) -> (usize, usize) {
        let values = self.data.iter().flat_map(|data| data.values());
        count(values.map(|ByteString(bytes)| bytes.len()))
    }
}

impl ManagedKind for ConfigMap {
    const RESOURCE: &'static str = "configmap";
    const CACHE: &'static str = "the configmap cache";
    const HOUSEKEEPER: &'static str = "hk-configmap";
    const CHECKER: &'static str = "ck-configmap";

    fn visit_names<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        visit_pod_config_map_names(pod, visitor)
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }

    fn data_size(&self) -> (usize, usize) {
        let texts = self.data.iter().flat_map(|data| data.values());
        let binary = self.binary_data.iter().flat_map(|data| data.values());
        let binary = binary.map(|ByteString(bytes)| bytes.len());
        count(texts.map(String::len).chain(binary))
    }
}

fn count(lengths: impl Iterator<Item = usize>) -> (usize, usize) {
    lengths.fold((0, 0), |(keys, bytes): (usize, usize), length| {
        (keys.saturating_add(1), bytes.saturating_add(length))
    })
}
