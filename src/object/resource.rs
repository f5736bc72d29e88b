//! A resource of the API server as a value: the location of its objects, and their name in
//! messages.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;

use k8s_openapi::NamespaceResourceScope;

/// A resource of the API server: group, version, plural, kind, and whether it has namespaces.
///
/// Each [`Object`](crate::object::Object) type has one. A program makes one for its own type, such
/// as one for a CRD.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use kubecache::object::{Object, Resource};
///
/// let deployments = Deployment::resource();
/// assert_eq!(deployments.to_string(), "deployments.apps");
/// assert!(deployments.is_namespaced());
///
/// let racks = Resource::new("example.com", "v1", "racks", "Rack").cluster_scoped();
/// assert_eq!(racks.api_version(), "example.com/v1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    api_version: Cow<'static, str>,
    plural: Cow<'static, str>,
    kind: Cow<'static, str>,
    namespaced: bool,
}

impl Resource {
    /// Makes a resource whose objects have namespaces. The core group is the empty text.
    pub fn new(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        plural: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (group, version) = (group.into(), version.into());
        let api_version = match &*group {
            "" => version.clone(),
            group => Cow::Owned(format!("{group}/{version}")),
        };
        Self {
            group,
            version,
            api_version,
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
        }
    }

    /// Makes the resource cluster-scoped: its objects have no namespace.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Returns the resource of a type that knows it at compile time.
    pub fn of<K: k8s_openapi::Resource>() -> Self
    where
        K::Scope: 'static,
    {
        Self {
            group: Cow::Borrowed(K::GROUP),
            version: Cow::Borrowed(K::VERSION),
            api_version: Cow::Borrowed(K::API_VERSION),
            plural: Cow::Borrowed(K::URL_PATH_SEGMENT),
            kind: Cow::Borrowed(K::KIND),
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }

    /// Returns the API group, such as `apps`; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version within the group, such as `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the plural, as in paths: `deployments`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Returns the kind, as in objects: `Deployment`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Group and version, and the kind, as in objects.
    pub(crate) fn type_names(self) -> (Cow<'static, str>, Cow<'static, str>) {
        (self.api_version, self.kind)
    }

    /// The kind as an owned value.
    pub(crate) fn kind_name(self) -> Cow<'static, str> {
        self.kind
    }

    /// Whether the objects have namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Returns group and version, as in objects: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The word for one object in Kubernetes messages: `secret`, `deployment.apps` (OC-9).
    pub(crate) fn singular(&self) -> String {
        let kind = self.kind.to_ascii_lowercase();
        match self.group() {
            "" => kind,
            group => format!("{kind}.{group}"),
        }
    }
}

/// Writes plural and group: `secrets`, `deployments.apps`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}
