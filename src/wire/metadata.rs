//! The metadata of an object. The client asks the server to leave out the rest.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::clone_of;
use crate::object::{Object, Resource, impl_object, wipe};

/// The metadata of a `K`. The client asks the server to send nothing else.
///
/// A server that does not know this form, such as some aggregated APIs, sends whole objects. The
/// decoder then decodes their metadata and overwrites the bytes of the rest. A `K` that names no
/// kind, such as [`Dynamic`](crate::Dynamic), takes whole objects of any kind.
///
/// The metadata of a Secret that `kubectl apply` wrote contains the values too. They stand in the
/// annotation `kubectl.kubernetes.io/last-applied-configuration`, which the server does send. The
/// decoder leaves the annotation out and overwrites its bytes. A client with
/// [`Trim::Keep`](crate::http::Trim) keeps it, and the annotation is overwritten when the object is
/// dropped.
///
/// Use it in place of `K` in a [`Store`](crate::store::Store), an informer, a manager, or with
/// [`Client::list`](crate::http::Client::list).
///
/// # Examples
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::Metadata;
/// use kubecache::http::{Client, ClientOptions, Config};
/// use kubecache::object::Scope;
///
/// let client = Client::new(&Config::infer()?, ClientOptions::default())?;
/// for secret in client.list::<Metadata<Secret>>(Scope::all())? {
///     println!("{:?}", secret.metadata.labels);
/// }
/// # Ok::<(), kubecache::Error>(())
/// ```
pub struct Metadata<K> {
    /// The metadata.
    pub metadata: ObjectMeta,
    kind: PhantomData<fn() -> K>,
}

impl<K> Metadata<K> {
    /// Wraps metadata, for tests.
    pub fn new(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            kind: PhantomData,
        }
    }
}

impl<K: Object> Object for Metadata<K> {
    const METADATA_ONLY: bool = true;
    const TRIMMED_ON_GET: bool = true;

    fn resource() -> Resource {
        K::resource()
    }

    impl_object!(@methods metadata);

    fn trim(&mut self) {
        wipe::trim(&mut self.metadata);
    }

    fn wipe(&mut self) {
        wipe::overwrite_copy(&mut self.metadata);
    }
}

impl<'de, K> Deserialize<'de> for Metadata<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = ObjectMeta;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectMeta, A::Error> {
                let mut metadata = ObjectMeta::default();
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    if key == "metadata" {
                        metadata = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(metadata)
            }
        }

        from.deserialize_map(Members).map(Self::new)
    }
}

clone_of!([K] Metadata<K>: metadata, kind);

impl<K: Object> fmt::Debug for Metadata<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.resource_version_text();
        write!(f, "{} {} @{version}", K::resource().kind(), self.key())
    }
}
