//! The kinds that the server has: the common ones of Kubernetes, and those that a test registers.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::object::Resource;
use crate::sync::Arc;

/// A kind of an [`ApiServer`](super::ApiServer): its resource, and its discovery data.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::object::Resource;
/// use kubecache::testing::{ApiResource, ApiServer};
///
/// let racks = Resource::new("example.com", "v1", "racks", "Rack").cluster_scoped();
/// let server = ApiServer::builder()
///     .resource(ApiResource::new(racks).short_name("rk").with_status())
///     .start()?;
/// # drop(server);
/// # }
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    resource: Resource,
    singular: Cow<'static, str>,
    /// The kind of its lists, if a CRD names one.
    list_kind: Option<String>,
    short_names: Vec<Cow<'static, str>>,
    categories: Vec<Cow<'static, str>>,
    traits: Traits,
    /// The columns of a table that a CRD names.
    columns: Vec<Value>,
}

/// The special traits of a kind.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Whether clients write the status through a subresource.
    pub(super) has_status: bool,
    /// Whether the server counts changes of the desired state in `metadata.generation`.
    pub(super) has_generation: bool,
    /// Whether it is built in: strategic patches, and items of lists without kind.
    pub(super) is_built_in: bool,
    /// Whether an update of a missing object creates it.
    pub(super) creates_on_update: bool,
    /// Whether a delete answers with the object instead of a `Status`.
    pub(super) returns_deleted: bool,
    /// Whether an update must name the version that it replaces.
    pub(super) needs_version: bool,
}

impl ApiResource {
    /// Makes a kind as a CRD registers it: without short names and without the subresource
    /// `status`.
    pub fn new(resource: Resource) -> Self {
        let singular = Cow::Owned(resource.kind().to_ascii_lowercase());
        Self {
            resource,
            singular,
            list_kind: None,
            short_names: Vec::new(),
            categories: Vec::new(),
            traits: Traits {
                has_generation: true,
                needs_version: true,
                ..Traits::default()
            },
            columns: Vec::new(),
        }
    }

    /// Makes the kind of a `k8s-openapi` type.
    pub fn of<K: k8s_openapi::Resource>() -> Self
    where
        K::Scope: 'static,
    {
        Self::new(Resource::of::<K>())
    }

    /// Adds a short name, such as `po`.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Adds a category, such as `all`.
    #[must_use]
    pub fn category(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.categories.push(name.into());
        self
    }

    /// Sets the singular. Default: the kind in lower case.
    #[must_use]
    pub fn singular(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.singular = name.into();
        self
    }

    /// Adds the subresource `status`: other writes then leave `status` as it is.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.traits.has_status = true;
        self
    }

    pub(super) fn with_columns(mut self, columns: Vec<Value>) -> Self {
        self.columns = columns;
        self
    }

    /// The kind that errors about the options of a request name.
    pub(super) fn options(kind: &'static str) -> Self {
        Self::new(Resource::new("meta.k8s.io", "v1", "options", kind))
    }

    pub(super) fn group(&self) -> &str {
        self.resource.group()
    }

    pub(super) fn version(&self) -> &str {
        self.resource.version()
    }

    pub(super) fn api_version(&self) -> &str {
        self.resource.api_version()
    }

    pub(super) fn plural(&self) -> &str {
        self.resource.plural()
    }

    pub(super) fn kind(&self) -> &str {
        self.resource.kind()
    }

    /// The kind of its lists.
    pub(super) fn list_kind(&self) -> Cow<'_, str> {
        match &self.list_kind {
            Some(kind) => Cow::Borrowed(kind),
            None => Cow::Owned(format!("{}List", self.kind())),
        }
    }

    pub(super) fn is_namespaced(&self) -> bool {
        self.resource.is_namespaced()
    }

    pub(super) fn singular_name(&self) -> &str {
        &self.singular
    }

    pub(super) fn short_names(&self) -> &[Cow<'static, str>] {
        &self.short_names
    }

    pub(super) fn categories(&self) -> &[Cow<'static, str>] {
        &self.categories
    }

    pub(super) fn columns(&self) -> &[Value] {
        &self.columns
    }

    /// Whether all objects of it can be deleted at once.
    pub(super) fn deletes_collections(&self) -> bool {
        !self.is("", "namespaces")
    }

    pub(super) fn traits(&self) -> Traits {
        self.traits
    }

    /// Whether it is that built-in kind.
    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.group() == group && self.plural() == plural
    }

    /// The key of the storage that all versions of the kind share.
    pub(super) fn storage_key(&self) -> StorageKey {
        StorageKey {
            group: self.group().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

impl From<Resource> for ApiResource {
    fn from(resource: Resource) -> Self {
        Self::new(resource)
    }
}

/// Writes plural and group: `secrets`, `deployments.apps`.
impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.fmt(f)
    }
}

/// The collection of a kind, whatever the version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StorageKey {
    pub(super) group: String,
    pub(super) plural: String,
}

/// All kinds, in the order in which they were registered; those of definitions come last.
#[derive(Clone, Debug)]
pub(super) struct KindRegistry {
    all: Vec<Arc<ApiResource>>,
    /// How many of them no definition registered.
    own: usize,
}

impl KindRegistry {
    /// The common kinds of Kubernetes.
    pub(super) fn built_in() -> Self {
        let all = BUILT_IN.iter().map(|row| Arc::new(row.resource()));
        Self {
            all: all.collect(),
            own: BUILT_IN.len(),
        }
    }

    /// Adds a kind that needs no definition, or replaces the one with its name.
    pub(super) fn register(&mut self, resource: ApiResource) {
        self.all.truncate(self.own);
        self.all.retain(|known| {
            !(known.version() == resource.version()
                && known.is(resource.group(), resource.plural()))
        });
        self.all.push(Arc::new(resource));
        self.own = self.all.len();
    }

    /// Replaces all defined kinds with those of these definitions. Built-in kinds stay.
    pub(super) fn define(&mut self, definitions: &[&Value]) {
        self.all.truncate(self.own);
        for made in definitions.iter().copied().flat_map(of_definition) {
            if self
                .find(made.group(), made.version(), made.plural())
                .is_none()
            {
                self.all.push(Arc::new(made));
            }
        }
    }

    pub(super) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<ApiResource>> {
        let mut all = self.all.iter();
        all.find(|known| known.version() == version && known.is(group, plural))
    }

    /// The kind of an object with that type.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ApiResource>> {
        let mut all = self.all.iter();
        all.find(|known| known.api_version() == api_version && known.kind() == kind)
    }

    pub(super) fn all(&self) -> &[Arc<ApiResource>] {
        &self.all
    }

    /// The kind whose objects this storage has; the first of several versions.
    pub(super) fn stored_as(&self, key: &StorageKey) -> Option<&Arc<ApiResource>> {
        self.all
            .iter()
            .find(|known| known.is(&key.group, &key.plural))
    }

    /// Groups with their versions, in the order in which they were registered.
    pub(super) fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for known in &self.all {
            match groups.iter_mut().find(|(group, _)| *group == known.group()) {
                Some((_, versions)) if versions.contains(&known.version()) => {}
                Some((_, versions)) => versions.push(known.version()),
                None => groups.push((known.group(), vec![known.version()])),
            }
        }
        groups
    }

    /// The kinds of a group and version.
    pub(super) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ApiResource>> {
        let all = self.all.iter();
        all.filter(move |known| known.group() == group && known.version() == version)
    }
}

/// One line of the table of built-in kinds.
struct BuiltInKind {
    /// Group and version, as objects have them.
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    /// Separated by spaces.
    short_names: &'static str,
    /// The marks below, one letter each.
    marks: &'static str,
}

impl BuiltInKind {
    fn resource(&self) -> ApiResource {
        let (group, version) = self
            .api_version
            .rsplit_once('/')
            .unwrap_or(("", self.api_version));
        let has = |mark: char| self.marks.contains(mark);
        let mut resource = Resource::new(group, version, self.plural, self.kind);
        if has('c') {
            resource = resource.cluster_scoped();
        }
        let mut made = ApiResource::new(resource);
        made.short_names = self
            .short_names
            .split_whitespace()
            .map(Cow::Borrowed)
            .collect();
        if has('a') {
            made.categories.push(Cow::Borrowed("all"));
        }
        if has('x') {
            made.categories.push(Cow::Borrowed("api-extensions"));
        }
        made.traits = Traits {
            has_status: has('s'),
            has_generation: has('g'),
            is_built_in: true,
            creates_on_update: has('u'),
            returns_deleted: has('d'),
            needs_version: has('v'),
        };
        made
    }
}

const fn row(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static str,
    marks: &'static str,
) -> BuiltInKind {
    BuiltInKind {
        api_version,
        plural,
        kind,
        short_names,
        marks,
    }
}

/// Marks: `c` cluster scope, `s` a separate status, `g` generations, `a` the category `all`, `x`
/// the category `api-extensions`, `u` an update creates, `d` a delete answers with the object, `v`
/// an update must name its version.
const BUILT_IN: &[BuiltInKind] = &[
    row("v1", "configmaps", "ConfigMap", "cm", ""),
    row("v1", "endpoints", "Endpoints", "ep", "u"),
    row("v1", "events", "Event", "ev", "u"),
    row("v1", "namespaces", "Namespace", "ns", "csd"),
    row("v1", "nodes", "Node", "no", "cs"),
    row("v1", "pods", "Pod", "po", "sgad"),
    row("v1", "secrets", "Secret", "", ""),
    row("v1", "serviceaccounts", "ServiceAccount", "sa", "d"),
    row("v1", "services", "Service", "svc", "saud"),
    row("apps/v1", "daemonsets", "DaemonSet", "ds", "sga"),
    row("apps/v1", "deployments", "Deployment", "deploy", "sga"),
    row("apps/v1", "replicasets", "ReplicaSet", "rs", "sga"),
    row("apps/v1", "statefulsets", "StatefulSet", "sts", "sga"),
    row("batch/v1", "jobs", "Job", "", "sga"),
    row("networking.k8s.io/v1", "ingresses", "Ingress", "ing", "sg"),
    row(
        "apiextensions.k8s.io/v1",
        CRDS,
        "CustomResourceDefinition",
        "crd crds",
        "csgxv",
    ),
    row("coordination.k8s.io/v1", "leases", "Lease", "", "uv"),
    row(
        "discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        "",
        "g",
    ),
    row(
        "policy/v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "pdb",
        "sgv",
    ),
];

/// The group of CRDs.
pub(super) const CRD_GROUP: &str = "apiextensions.k8s.io";

/// The plural of CRDs, which register kinds.
pub(super) const CRDS: &str = "customresourcedefinitions";

/// The kinds that a CRD registers: one for each version that is served.
pub(super) fn of_definition(definition: &Value) -> Vec<ApiResource> {
    versions_of(definition, |version| {
        version.get("served").and_then(Value::as_bool) == Some(true)
    })
}

/// The kind of the objects of a CRD, which are there even if no version is served.
pub(super) fn stored_by_definition(definition: &Value) -> Option<ApiResource> {
    versions_of(definition, |_| true).into_iter().next()
}

fn versions_of(definition: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<ApiResource> {
    let text = |path: &str| {
        let value = definition.pointer(path).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let texts = |path: &str| {
        let all = definition.pointer(path).and_then(Value::as_array);
        let all = all.into_iter().flatten().filter_map(Value::as_str);
        all.map(|text| Cow::Owned(text.to_owned()))
            .collect::<Vec<_>>()
    };
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let wanted = versions
        .into_iter()
        .flatten()
        .filter(|version| is_wanted(version));
    let made = wanted.filter_map(|version| {
        let name = version.get("name")?.as_str()?.to_owned();
        let mut resource = Resource::new(
            text("/spec/group"),
            name,
            text("/spec/names/plural"),
            text("/spec/names/kind"),
        );
        if text("/spec/scope") == "Cluster" {
            resource = resource.cluster_scoped();
        }
        let mut made = ApiResource::new(resource);
        let singular = text("/spec/names/singular");
        if !singular.is_empty() {
            made = made.singular(singular);
        }
        made.list_kind = Some(text("/spec/names/listKind")).filter(|kind| !kind.is_empty());
        made.short_names = texts("/spec/names/shortNames");
        made.categories = texts("/spec/names/categories");
        if version.pointer("/subresources/status").is_some() {
            made = made.with_status();
        }
        let columns = version
            .get("additionalPrinterColumns")
            .and_then(Value::as_array);
        Some(made.with_columns(columns.cloned().unwrap_or_default()))
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_path_and_by_its_type() {
        let registry = KindRegistry::built_in();
        let deployments = registry.find("apps", "v1", "deployments").unwrap();
        assert_eq!(deployments.to_string(), "deployments.apps");
        assert_eq!(registry.of_kind("apps/v1", "Deployment"), Some(deployments));
        assert!(
            registry
                .find("", "v1", "nodes")
                .is_some_and(|nodes| !nodes.is_namespaced())
        );
        assert!(registry.find("", "v1", "deployments").is_none());
    }

    #[test]
    fn a_definition_registers_the_versions_that_are_served() {
        let definition = serde_json::json!({"spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "racks", "kind": "Rack", "shortNames": ["rk"]},
            "versions": [
                {"name": "v1", "served": true, "subresources": {"status": {}}},
                {"name": "v1alpha1", "served": false},
            ],
        }});
        let racks = of_definition(&definition);
        assert_eq!(racks.len(), 1);
        let rack = &racks[0];
        assert_eq!(
            (rack.api_version(), rack.singular_name()),
            ("example.com/v1", "rack")
        );
        assert!(rack.traits().has_status && !rack.is_namespaced() && rack.short_names() == ["rk"]);
    }
}
