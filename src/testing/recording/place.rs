//! The target of a request's path: a collection of one kind, or one object in it.

use super::target::Target;

/// A kind's place in the API, such as secrets of the core group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::testing) struct PathResource {
    /// `api/v1`, `apis/apps/v1`.
    pub(in crate::testing) group_version: String,
    /// The plural, such as `secrets`.
    pub(in crate::testing) plural: String,
}

/// One object's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::testing) struct PathPlace {
    pub(in crate::testing) resource: PathResource,
    pub(in crate::testing) object: PathName,
}

/// An object of its kind; the namespace is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::testing) struct PathName {
    pub(in crate::testing) namespace: String,
    pub(in crate::testing) name: String,
}

/// The objects of a list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::testing) struct PathScope {
    pub(in crate::testing) resource: PathResource,
    namespace: Option<String>,
    name: Option<String>,
    /// Whether it selects by more than namespace and name, so that an object which it does not
    /// mention may exist.
    picks: bool,
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Path {
    Collection(PathResource, Option<String>),
    Object(PathPlace),
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let (group_version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => (format!("api/{version}"), rest),
            ["apis", group, version, rest @ ..] => (format!("apis/{group}/{version}"), rest),
            _ => return None,
        };
        let resource = |plural: &str| PathResource {
            group_version: group_version.clone(),
            plural: plural.to_owned(),
        };
        let object = |plural: &str, namespace: &str, name: &str| {
            Self::Object(PathPlace {
                resource: resource(plural),
                object: PathName {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
            })
        };
        match rest {
            [plural] => Some(Self::Collection(resource(plural), None)),
            // A namespace is an object too; objects in it have a third segment.
            [plural, name] => Some(object(plural, "", name)),
            ["namespaces", namespace, plural] => Some(Self::Collection(
                resource(plural),
                Some((*namespace).to_owned()),
            )),
            ["namespaces", namespace, plural, name] => Some(object(plural, namespace, name)),
            _ => None,
        }
    }
}

impl PathPlace {
    /// The object which a plain get of `target` would read.
    pub(in crate::testing) fn of(target: &Target) -> Option<Self> {
        match Path::parse(&target.path)? {
            Path::Object(place) => Some(place),
            Path::Collection(..) => None,
        }
    }

    /// The object whose subresource `target` names, such as `status`.
    fn of_subresource(target: &Target) -> Option<Self> {
        let (path, subresource) = target.path.rsplit_once('/')?;
        let Path::Object(place) = Path::parse(path)? else {
            return None;
        };
        // What follows a namespace is a collection in it, but for its own subresources.
        let is_in_space =
            place.resource.plural == "namespaces" && place.object.namespace.is_empty();
        let is_its_own =
            place.resource.group().is_empty() && matches!(subresource, "status" | "finalize");
        (!is_in_space || is_its_own).then_some(place)
    }
}

impl PathResource {
    /// The plural as the server's messages write it: `secrets`, `deployments.apps`.
    pub(in crate::testing) fn in_messages(&self) -> String {
        match self.group() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub(in crate::testing) fn group(&self) -> &str {
        let mut parts = self.group_version.split('/');
        match (parts.next(), parts.next()) {
            (Some("apis"), Some(group)) => group,
            _ => "",
        }
    }
}

impl PathScope {
    /// The objects of a list or watch of `target`.
    pub(in crate::testing) fn of(target: &Target) -> Option<Self> {
        let Path::Collection(resource, namespace) = Path::parse(&target.path)? else {
            return None;
        };
        let labels = target.value("labelSelector").unwrap_or_default();
        let mut scope = Self {
            resource,
            namespace,
            name: None,
            picks: !labels.is_empty(),
        };
        let fields = target.value("fieldSelector").unwrap_or_default();
        for term in fields.split(',').filter(|term| !term.is_empty()) {
            let (field, value) = term.split_once('=').unwrap_or((term, ""));
            let value = value.strip_prefix('=').unwrap_or(value);
            match field {
                "metadata.name" => scope.name = Some(value.to_owned()),
                "metadata.namespace" => scope.namespace = Some(value.to_owned()),
                _ => scope.picks = true,
            }
        }
        Some(scope)
    }

    /// Whether it would contain the object, if that existed.
    pub(in crate::testing) fn covers(&self, place: &PathPlace) -> bool {
        let is = |wanted: &Option<String>, value: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        !self.picks
            && self.resource == place.resource
            && is(&self.namespace, &place.object.namespace)
            && is(&self.name, &place.object.name)
    }
}

/// The names in a request, for a collection, one object, or a subresource of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::testing) struct Selected {
    /// The plural, such as `secrets`.
    pub(in crate::testing) plural: String,
    pub(in crate::testing) namespace: Option<String>,
    pub(in crate::testing) name: Option<String>,
    /// Whether the path itself has the name.
    pub(in crate::testing) is_object: bool,
}

impl Selected {
    pub(in crate::testing) fn of(target: &Target) -> Option<Self> {
        let place = PathPlace::of_subresource(target).or_else(|| PathPlace::of(target));
        if let Some(PathPlace { resource, object }) = place {
            return Some(Self {
                plural: resource.plural,
                namespace: (!object.namespace.is_empty()).then_some(object.namespace),
                name: Some(object.name),
                is_object: true,
            });
        }
        let scope = PathScope::of(target)?;
        Some(Self {
            plural: scope.resource.plural,
            namespace: scope.namespace,
            name: scope.name,
            is_object: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<(String, PathName)> {
        let place = PathPlace::of(&Target::parse(path))?;
        Some((place.resource.in_messages(), place.object))
    }

    fn name(namespace: &str, name: &str) -> PathName {
        PathName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_path_leads_to_an_object_or_to_none() {
        let rows = [
            (
                "/api/v1/namespaces/shop/secrets/db",
                Some(("secrets", name("shop", "db"))),
            ),
            (
                "/api/v1/nodes/node-1?pretty=1",
                Some(("nodes", name("", "node-1"))),
            ),
            (
                "/api/v1/namespaces/shop",
                Some(("namespaces", name("", "shop"))),
            ),
            (
                "/apis/apps/v1/namespaces/shop/deployments/web",
                Some(("deployments.apps", name("shop", "web"))),
            ),
            ("/api/v1/namespaces/shop/secrets", None),
            ("/api/v1/pods", None),
            ("/api/v1/namespaces/shop/pods/web/status", None),
            ("/version", None),
            ("", None),
        ];
        for (path, expected) in rows {
            let expected = expected.map(|(plural, name)| (plural.to_owned(), name));
            assert_eq!(place(path), expected, "{path}");
        }
    }

    /// The plural, the namespace and the name, and whether they are of one object.
    fn selected(path: &str) -> Option<(String, String, String, bool)> {
        let selected = Selected::of(&Target::parse(path))?;
        Some((
            selected.plural,
            selected.namespace.unwrap_or_default(),
            selected.name.unwrap_or_default(),
            selected.is_object,
        ))
    }

    #[test]
    fn a_subresource_is_of_its_object_and_a_collection_of_its_namespace() {
        let rows = [
            (
                "/apis/apps/v1/namespaces/shop/deployments/web/status",
                ("deployments", "shop", "web", true),
            ),
            (
                "/api/v1/namespaces/shop/pods/web/eviction?dryRun=All",
                ("pods", "shop", "web", true),
            ),
            ("/api/v1/nodes/n1/status", ("nodes", "", "n1", true)),
            (
                "/api/v1/namespaces/shop/status",
                ("namespaces", "", "shop", true),
            ),
            (
                "/api/v1/namespaces/shop/finalize",
                ("namespaces", "", "shop", true),
            ),
            ("/api/v1/namespaces/shop", ("namespaces", "", "shop", true)),
            ("/api/v1/namespaces/shop/pods", ("pods", "shop", "", false)),
            (
                "/apis/x.io/v1/namespaces/shop/status",
                ("status", "shop", "", false),
            ),
            (
                "/api/v1/namespaces/shop/pods/web",
                ("pods", "shop", "web", true),
            ),
        ];
        for (path, (plural, namespace, name, is_object)) in rows {
            let texts = (plural.to_owned(), namespace.to_owned(), name.to_owned());
            let expected = (texts.0, texts.1, texts.2, is_object);
            assert_eq!(selected(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_scope_covers_what_it_would_have_to_tell_of() {
        let db = PathPlace::of(&Target::parse("/api/v1/namespaces/shop/secrets/db")).unwrap();
        let rows = [
            ("/api/v1/secrets", true),
            ("/api/v1/namespaces/shop/secrets", true),
            (
                "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb",
                true,
            ),
            (
                "/api/v1/secrets?fieldSelector=metadata.namespace%3Dshop,metadata.name%3D%3Ddb",
                true,
            ),
            ("/api/v1/namespaces/ops/secrets", false),
            ("/api/v1/namespaces/shop/configmaps", false),
            ("/api/v1/secrets?fieldSelector=metadata.name%3Dweb", false),
            ("/api/v1/secrets?labelSelector=a%3Db", false),
            ("/api/v1/secrets?fieldSelector=type%3DOpaque", false),
        ];
        for (target, covers) in rows {
            let scope = PathScope::of(&Target::parse(target)).unwrap();
            assert_eq!(scope.covers(&db), covers, "{target}");
        }
    }
}
