//! The route of a request: the verb of the API, and the target of its path.

use super::refusal::Refusal;
use super::resources::{ApiResource, KindRegistry};
use crate::sync::Arc;
use crate::testing::recording::Target;

/// A verb of the API, as rules name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl ApiVerb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A request for objects of a kind.
#[derive(Clone, Debug)]
pub(super) struct ObjectRoute {
    pub(super) resource: Arc<ApiResource>,
    pub(super) verb: ApiVerb,
    /// The namespace in the path; `None` asks for all namespaces, or for a kind without.
    pub(super) namespace: Option<String>,
    /// Empty for a collection.
    pub(super) name: String,
    /// Empty, or `status`.
    pub(super) subresource: String,
}

impl ObjectRoute {
    /// The way to one object, for the server's own deletes.
    pub(super) fn to_object(resource: &Arc<ApiResource>, namespace: &str, name: &str) -> Self {
        Self {
            resource: Arc::clone(resource),
            verb: ApiVerb::Delete,
            namespace: resource.is_namespaced().then(|| namespace.to_owned()),
            name: name.to_owned(),
            subresource: String::new(),
        }
    }

    /// The object's key in its collection.
    pub(super) fn key(&self) -> String {
        storage_key_of(self.namespace.as_deref().unwrap_or_default(), &self.name)
    }
}

/// The key of an object in its collection.
pub(super) fn storage_key_of(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}

/// The route of a request.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Objects(ObjectRoute),
    /// A path of the server's own, such as `/version`, `/apis` or `/openapi/v2`.
    Server,
}

impl Route {
    pub(super) fn of(
        registry: &KindRegistry,
        method: &str,
        target: &Target,
    ) -> Result<Self, Refusal> {
        let path = target.path.trim_end_matches('/');
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Self::Server),
        };
        let find = |plural: &str| registry.find(group, version, plural).cloned();
        let (resource, namespace, rest) = match rest {
            // Objects in a namespace; the namespace itself, and its status, are below.
            ["namespaces", namespace, plural, rest @ ..]
                if !namespace.is_empty()
                    && find(plural).is_some_and(|found| found.is_namespaced()) =>
            {
                (find(plural), Some((*namespace).to_owned()), rest)
            }
            [plural, rest @ ..] => (find(plural), None, rest),
            [] => (None, None, rest),
        };
        let resource = resource.ok_or_else(|| {
            if registry.of_version(group, version).next().is_none() {
                Refusal::no_page()
            } else {
                Refusal::no_such_path()
            }
        })?;
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, "status"] if !name.is_empty() && resource.traits().has_status => {
                (*name, "status")
            }
            _ => return Err(Refusal::no_such_path()),
        };
        if !name.is_empty() && resource.is_namespaced() && namespace.is_none() {
            return Err(Refusal::no_such_path());
        }
        let verb = verb_of(method, !name.is_empty(), target)?;
        let is_in_all = resource.is_namespaced() && namespace.is_none();
        let is_fixed = verb == ApiVerb::DeleteCollection && !resource.deletes_collections();
        if is_fixed
            || subresource == "status"
                && !matches!(verb, ApiVerb::Get | ApiVerb::Update | ApiVerb::Patch)
            || is_in_all && !matches!(verb, ApiVerb::List | ApiVerb::Watch)
        {
            return Err(Refusal::method_not_allowed());
        }
        Ok(Self::Objects(ObjectRoute {
            resource,
            verb,
            namespace,
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        }))
    }
}

fn verb_of(method: &str, is_one: bool, target: &Target) -> Result<ApiVerb, Refusal> {
    match (method, is_one) {
        ("GET", true) => Ok(ApiVerb::Get),
        ("GET", false) if target.is_watch() => Ok(ApiVerb::Watch),
        ("GET", false) => Ok(ApiVerb::List),
        ("POST", false) => Ok(ApiVerb::Create),
        ("PUT", true) => Ok(ApiVerb::Update),
        ("PATCH", true) => Ok(ApiVerb::Patch),
        ("DELETE", true) => Ok(ApiVerb::Delete),
        ("DELETE", false) => Ok(ApiVerb::DeleteCollection),
        _ => Err(Refusal::method_not_allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, path: &str) -> String {
        match Route::of(&KindRegistry::built_in(), method, &Target::parse(path)) {
            Ok(Route::Objects(route)) => format!(
                "{} {} {:?} {:?} {}",
                route.verb.name(),
                route.resource,
                route.namespace.as_deref().unwrap_or("-"),
                route.name,
                route.subresource
            ),
            Ok(Route::Server) => "server".to_owned(),
            Err(refusal) => refusal.code.to_string(),
        }
    }

    #[test]
    fn a_path_and_a_method_are_a_verb_on_a_kind() {
        let rows = [
            ("GET", "/api/v1/pods", "list pods \"-\" \"\" "),
            ("GET", "/api/v1/pods?watch=1", "watch pods \"-\" \"\" "),
            (
                "GET",
                "/api/v1/namespaces/shop/pods/web",
                "get pods \"shop\" \"web\" ",
            ),
            (
                "PUT",
                "/api/v1/namespaces/shop/pods/web/status",
                "update pods \"shop\" \"web\" status",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/shop/deployments",
                "deletecollection deployments.apps \"shop\" \"\" ",
            ),
            (
                "GET",
                "/api/v1/namespaces/shop",
                "get namespaces \"-\" \"shop\" ",
            ),
            (
                "PUT",
                "/api/v1/namespaces/shop/status",
                "update namespaces \"-\" \"shop\" status",
            ),
            (
                "PATCH",
                "/api/v1/nodes/node-1",
                "patch nodes \"-\" \"node-1\" ",
            ),
            ("DELETE", "/api/v1/namespaces/shop/pods/web/status", "405"),
            ("GET", "/api/v1/pods/web", "404"),
            ("GET", "/api/v1/gadgets", "404"),
            ("GET", "/api/v1/namespaces/shop/nodes", "404"),
            ("PUT", "/api/v1/namespaces/shop/pods", "405"),
            ("POST", "/api/v1/namespaces//configmaps", "404"),
            ("GET", "/api/v1/namespaces//pods", "404"),
            ("GET", "/api/v1/namespaces//pods/web", "404"),
            ("GET", "/api/v1/namespaces//status", "404"),
            ("PUT", "/api/v1/namespaces/shop/pods//status", "404"),
            ("GET", "/api/v1", "server"),
            ("GET", "/apis/apps/v1/", "server"),
            ("GET", "/version", "server"),
        ];
        for (method, path, expected) in rows {
            assert_eq!(told(method, path), expected, "{method} {path}");
        }
    }
}
