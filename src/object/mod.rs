//! The vocabulary of objects: keys, versions, selectors, statuses, and objects as the caches hold
//! them. Plain data.

mod data;
mod key;
mod label_matcher;
mod resource;
mod secret_text;
mod selector;
mod stored_object;
mod transform;
mod version;
pub(crate) mod wipe;

pub use crate::error::{Reason, Status, visible};
pub use data::ObjectData;
pub(crate) use key::KeyRef;
pub use key::ObjectKey;
pub use label_matcher::LabelMatcher;
pub use resource::Resource;
pub use secret_text::SecretText;
pub use selector::{FieldSelector, LabelSelector, Scope};
pub use stored_object::StoredObject;
pub(crate) use transform::Transform;
pub use version::ResourceVersion;
pub(crate) use version::numeric_order;

use std::any::Any;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;

/// A type that the caches can hold: any `k8s-openapi` type with `ObjectMeta`, or your own.
///
/// Every type that implements `k8s_openapi::Resource`, `k8s_openapi::Metadata` and `Deserialize`
/// also implements this trait, such as a struct with three fields of a pod. Implement it for other
/// types, such as those that a derive macro makes for a CRD: by
/// [`impl_object!`](crate::impl_object), or by hand, as here.
///
/// # Examples
///
/// ```
/// use kubecache::object::{Object, Resource};
/// use serde::Deserialize;
/// # use serde_derive::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Rack {
///     metadata: Metadata,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Metadata {
///     name: String,
///     uid: String,
///     resource_version: String,
/// }
///
/// impl Object for Rack {
///     fn resource() -> Resource {
///         Resource::new("example.com", "v1", "racks", "Rack").cluster_scoped()
///     }
///     fn name(&self) -> &str {
///         &self.metadata.name
///     }
///     fn namespace(&self) -> &str {
///         ""
///     }
///     fn uid(&self) -> &str {
///         &self.metadata.uid
///     }
///     fn resource_version_text(&self) -> &str {
///         &self.metadata.resource_version
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `impl kubecache::object::Object`",
    label = "not known as an object of Kubernetes",
    note = "types of `k8s-openapi` have one; for a type of your own, write it as in the example at \
            `kubecache::object::Object`"
)]
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Whether to ask the server for metadata alone, as `PartialObjectMetadata`. If a server does
    /// not know that form and sends whole objects, the decoder decodes only their metadata.
    /// Default: false.
    const METADATA_ONLY: bool = false;

    /// Whether a plain get leaves out the fields that only writers need. Lists and watches do so,
    /// unless the client keeps them ([`Trim::Keep`](crate::http::Trim)). Default: false, so that a
    /// program can write the object back.
    const TRIMMED_ON_GET: bool = false;

    /// Returns the resource of this type.
    fn resource() -> Resource;

    /// Returns the object's name; empty when the server sent none.
    fn name(&self) -> &str;

    /// Returns the object's namespace; empty for cluster-scoped objects.
    fn namespace(&self) -> &str;

    /// Returns the object's uid; empty when the server sent none.
    fn uid(&self) -> &str;

    /// Returns the text of the object's resource version; empty when the server sent none.
    /// [`resource_version`](Self::resource_version) returns the version itself.
    fn resource_version_text(&self) -> &str;

    /// Returns the value of one label. The default knows no labels.
    fn label(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns when the server created the object. Default: `None`.
    fn creation_timestamp(&self) -> Option<Time> {
        None
    }

    /// Removes the fields that only writers need: the managed fields and the last-applied
    /// annotation. The default changes nothing.
    fn trim(&mut self) {}

    /// Overwrites values that must not stay in memory, before the object is dropped. The default
    /// does nothing. For `Secret` it overwrites the values and kubectl's copy of them.
    ///
    /// The caches overwrite the bytes that they read, and their decoder's copies. The fields of the
    /// program's own type are this method's task, for a whole object. The cache does not call it
    /// for an object with a field that does not decode; a [`SecretText`] is overwritten even then.
    /// Serde makes its own copies for flattened fields, untagged enums and raw values.
    fn wipe(&mut self) {}

    /// Returns the object's namespace and name.
    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    /// Returns the object's resource version; empty when the server sent none.
    fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::from(self.resource_version_text())
    }
}

/// Implements [`Object`] for a type with a field `metadata` of the type `ObjectMeta`:
/// `impl_object!(TYPE, RESOURCE)`.
///
/// # Examples
///
/// ```
/// use kubecache::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use kubecache::object::{Object as _, Resource};
/// use serde::Deserialize;
/// # use serde_derive::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Rack {
///     metadata: ObjectMeta,
///     height: u32,
/// }
///
/// kubecache::impl_object!(Rack, Resource::new("example.com", "v1", "racks", "Rack"));
///
/// let rack: Rack = serde_json::from_str(r#"{"metadata": {"name": "a"}, "height": 42}"#)?;
/// assert_eq!((rack.name(), rack.height), ("a", 42));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! impl_object {
    // The methods alone, by the metadata: a field or a method.
    (@methods $($metadata:tt)+) => {
        fn name(&self) -> &str {
            self.$($metadata)+.name.as_deref().unwrap_or_default()
        }

        fn namespace(&self) -> &str {
            self.$($metadata)+.namespace.as_deref().unwrap_or_default()
        }

        fn uid(&self) -> &str {
            self.$($metadata)+.uid.as_deref().unwrap_or_default()
        }

        fn resource_version_text(&self) -> &str {
            self.$($metadata)+.resource_version.as_deref().unwrap_or_default()
        }

        fn label(&self, name: &str) -> ::std::option::Option<&str> {
            self.$($metadata)+.labels.as_ref()?.get(name).map(::std::string::String::as_str)
        }

        fn creation_timestamp(&self)
        -> ::std::option::Option<$crate::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
            self.$($metadata)+.creation_timestamp.clone()
        }
    };
    ($object:ty, $resource:expr $(,)?) => {
        impl $crate::object::Object for $object {
            fn resource() -> $crate::object::Resource {
                $resource
            }

            $crate::impl_object!(@methods metadata);
        }
    };
}

pub(crate) use impl_object;

#[diagnostic::do_not_recommend]
impl<K> Object for K
where
    K: k8s_openapi::Resource<Scope: 'static>
        + k8s_openapi::Metadata<Ty = ObjectMeta>
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    fn resource() -> Resource {
        Resource::of::<K>()
    }

    impl_object!(@methods metadata());

    fn trim(&mut self) {
        wipe::trim(self.metadata_mut());
    }

    fn wipe(&mut self) {
        wipe::overwrite_copy(self.metadata_mut());
        let object: &mut dyn Any = self;
        if let Some(secret) = object.downcast_mut::<Secret>() {
            wipe::overwrite(secret);
        }
    }
}

impl<'a> KeyRef<'a> {
    /// The key of an object.
    pub(crate) fn of<K: Object>(object: &'a K) -> Self {
        Self {
            namespace: object.namespace(),
            name: object.name(),
        }
    }
}

/// Whether two objects with one key are the same state of the same object.
pub(crate) fn is_same_state<K: Object>(a: &K, b: &K) -> bool {
    let version = a.resource_version_text();
    !version.is_empty() && version == b.resource_version_text() && a.uid() == b.uid()
}

/// The word for one object of the type in Kubernetes messages: `secret`, `deployment.apps` (OC-9).
pub(crate) fn resource_name<K: Object>() -> String {
    K::resource().singular()
}
