//! The path and query of each request: pure.

use std::fmt::Write as _;
use std::time::Duration;

use crate::error::{Error, ErrorKind, visible};
use crate::list_watch::{ListRequest, VersionMatch, WatchRequest};
use crate::object::{Object, ObjectKey, Resource, ResourceVersion, Scope};
use crate::wire::Trim;

/// The parameter of a version.
const VERSION: &str = "resourceVersion";

/// The methods that a request may have.
pub(crate) const METHODS: &str = "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE";

/// The method of that name.
pub(crate) fn known_method(name: &str) -> Option<&'static str> {
    METHODS.split(", ").find(|known| *known == name)
}

/// What stays as it is in a path, beside letters and digits (RFC 3986).
const UNRESERVED: &str = "-._~";

/// The representation of objects in full.
pub(crate) const JSON: &str = "application/json";

/// Returns the representation that requests for a `K` ask for; with `is_list`, the form of a list.
/// Servers that do not know the metadata form send whole objects.
///
/// Where the decoder skips the managed fields, each form comes first without them (KEP-5958). API
/// servers that do not know this parameter ignore it. A server that refuses it takes the next form.
pub(crate) fn accept<K: Object>(is_list: bool, trim: Trim) -> &'static str {
    match (K::METADATA_ONLY, is_list, trim) {
        (false, _, Trim::Keep) => JSON,
        (false, _, Trim::Skip) => "application/json;drop=metadata.managedFields,application/json",
        (true, false, Trim::Keep) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        }
        (true, true, Trim::Keep) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
        (true, false, Trim::Skip) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;\
             drop=metadata.managedFields,\
             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
             application/json;drop=metadata.managedFields,application/json"
        }
        (true, true, Trim::Skip) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;\
             drop=metadata.managedFields,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;drop=metadata.managedFields,application/json"
        }
    }
}

/// The path of a kind's objects: all of them, or those of one namespace.
///
/// # Errors
///
/// `Config`, for a part that is no path segment, for a namespace that the kind does not have, and
/// for a resource without version or plural. That error names the `call`.
fn collection(call: &str, resource: &Resource, namespace: Option<&str>) -> Result<String, Error> {
    if resource.version().is_empty() || resource.plural().is_empty() {
        return Err(Error::config(format!(
            "{call}: the resource {resource} has no version or no plural; Dynamic has no resource \
             of its own: ask by client.with_resource(Resource::new(group, version, plural, kind))"
        )));
    }
    let mut path = "/api".to_owned();
    if !resource.group().is_empty() {
        path.push_str("s/");
        segment(&mut path, "group", resource.group())?;
    }
    path.push('/');
    segment(&mut path, "version", resource.version())?;
    if let Some(namespace) = namespace {
        if !resource.is_namespaced() {
            let kind = resource.kind();
            let message = format!("{kind} in namespace {namespace:?}: the kind has no namespaces");
            return Err(Error::new(ErrorKind::Config, message));
        }
        path.push_str("/namespaces/");
        segment(&mut path, "namespace", namespace)?;
    }
    path.push('/');
    segment(&mut path, "plural", resource.plural())?;
    Ok(path)
}

/// The path of the objects in `scope`.
///
/// # Errors
///
/// As [`collection`]; for one object, also as [`get`].
fn scoped(call: &str, resource: &Resource, scope: &Scope) -> Result<String, Error> {
    let name = scope.object_name();
    if scope.lacks_namespace() && resource.is_namespaced() {
        return Err(no_namespace(resource, name.unwrap_or_default()));
    }
    let path = collection(call, resource, scope.namespace_name())?;
    name.map_or(Ok(()), |name| usable("name", name))?;
    Ok(path)
}

/// The path and query of a list of `scope`.
///
/// # Errors
///
/// `Config`, for a part that is no path segment, or a namespace that the kind does not have. For
/// one object, as [`get`].
pub(crate) fn list(
    resource: &Resource,
    scope: &Scope,
    request: &ListRequest,
) -> Result<String, Error> {
    let mut path = scoped("list", resource, scope)?;
    add_selectors(&mut path, scope);
    if request.limit > 0 {
        add(&mut path, "limit", &request.limit.to_string());
    }
    let token = request.continue_token.as_deref();
    add(&mut path, "continue", token.unwrap_or_default());
    add(&mut path, VERSION, request.resource_version.as_str());
    let version_match = match request.version_match {
        Some(VersionMatch::Exact) => "Exact",
        Some(VersionMatch::NotOlderThan) => "NotOlderThan",
        None => "",
    };
    add(&mut path, "resourceVersionMatch", version_match);
    Ok(path)
}

/// The path and query of a watch of `scope`.
///
/// # Errors
///
/// As [`list`].
pub(crate) fn watch(
    resource: &Resource,
    scope: &Scope,
    request: &WatchRequest,
) -> Result<String, Error> {
    let mut path = scoped("watch", resource, scope)?;
    add_selectors(&mut path, scope);
    add(&mut path, "watch", "true");
    add(&mut path, VERSION, request.resource_version.as_str());
    if request.bookmarks {
        add(&mut path, "allowWatchBookmarks", "true");
    }
    if request.send_initial_events {
        add(&mut path, "sendInitialEvents", "true");
        add(&mut path, "resourceVersionMatch", "NotOlderThan");
    }
    if request.timeout > Duration::ZERO {
        let seconds = whole_seconds(request.timeout).to_string();
        add(&mut path, "timeoutSeconds", &seconds);
    }
    Ok(path)
}

/// The path and query of a get.
///
/// # Errors
///
/// `Config`, for a part that is no path segment, or a namespace the kind does not have or lacks.
pub(crate) fn get(
    resource: &Resource,
    key: &ObjectKey,
    version: &ResourceVersion,
) -> Result<String, Error> {
    let mut path = object("GET", resource, key, "")?;
    add(&mut path, VERSION, version.as_str());
    Ok(path)
}

/// The path of an object, or of its subresource.
///
/// # Errors
///
/// As [`get`], and for a subresource that is no path segment.
pub(crate) fn object(
    call: &str,
    resource: &Resource,
    key: &ObjectKey,
    subresource: &str,
) -> Result<String, Error> {
    let mut path = create(call, resource, key)?;
    path.push('/');
    segment(&mut path, "name", key.name())?;
    if !subresource.is_empty() {
        path.push('/');
        segment(&mut path, "subresource", subresource)?;
    }
    Ok(path)
}

/// The path of the collection in which an object is created.
///
/// # Errors
///
/// As [`get`], but for the name.
pub(crate) fn create(call: &str, resource: &Resource, key: &ObjectKey) -> Result<String, Error> {
    let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
    if namespace.is_none() && resource.is_namespaced() {
        return Err(no_namespace(resource, key.name()));
    }
    collection(call, resource, namespace)
}

fn no_namespace(resource: &Resource, name: &str) -> Error {
    let kind = resource.kind();
    Error::config(format!("{kind} {name:?}: a namespace is needed"))
}

/// Describes a scope for messages: `secrets in namespace "shop" (metadata.name=db)`.
pub(crate) fn describe(resource: &Resource, scope: &Scope) -> String {
    let mut text = resource.plural().to_owned();
    if let Some(namespace) = scope.namespace_name() {
        push(&mut text, format_args!(" in namespace {namespace:?}"));
    }
    for selector in [
        scope.field_selector().as_str(),
        scope.label_selector().as_str(),
    ] {
        if !selector.is_empty() {
            push(&mut text, format_args!(" ({})", visible(selector)));
        }
    }
    text
}

/// Returns a request for messages, without its query, which is long and may have a continue token.
pub(crate) fn shown(what: &str) -> &str {
    what.split_once('?').map_or(what, |(path, _)| path)
}

/// 100 years: a server can count these seconds in nanoseconds.
const SECONDS_MAX: u64 = 100 * 365 * 24 * 3_600;

/// Rounds up, because a server reads 0 as its own choice.
fn whole_seconds(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more).min(SECONDS_MAX)
}

fn segment(path: &mut String, what: &str, value: &str) -> Result<(), Error> {
    usable(what, value)?;
    percent_encode(path, value, UNRESERVED);
    Ok(())
}

fn usable(what: &str, value: &str) -> Result<(), Error> {
    if matches!(value, "" | "." | "..") || value.contains(['/', '%']) {
        let message = format!("{value:?} cannot be the {what} of an object");
        return Err(Error::config(message));
    }
    Ok(())
}

/// Adds the selectors of a scope.
fn add_selectors(path: &mut String, scope: &Scope) {
    add(path, "fieldSelector", scope.field_selector().as_str());
    add(path, "labelSelector", scope.label_selector().as_str());
}

/// Adds a parameter of the query, unless its value is empty.
fn add(path: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        add_even_empty(path, name, value);
    }
}

/// Adds a parameter of the query. Without a value, some mean `true`.
pub(crate) fn add_even_empty(path: &mut String, name: &str, value: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(name);
    path.push('=');
    percent_encode(path, value, UNRESERVED);
}

/// Percent-encodes all but ASCII letters, digits and some other characters.
pub(crate) fn percent_encode(out: &mut String, value: &str, others: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            push(out, format_args!("%{byte:02X}"));
        }
    }
}

fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(arguments);
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod, Secret};

    use super::*;
    use crate::object::{FieldSelector, LabelSelector};

    fn listing() -> ListRequest {
        ListRequest::default()
    }

    fn watching(version: &str) -> WatchRequest {
        WatchRequest {
            resource_version: ResourceVersion::from(version),
            timeout: Duration::from_millis(300_500),
            head_timeout: Duration::from_secs(30),
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        }
    }

    /// A program may have the words from its user.
    #[test]
    fn a_resource_of_odd_words_asks_for_nothing_else() {
        let path = |group: &'static str, plural: &'static str| {
            let resource = Resource::new(group, "v1", plural, "Rack");
            collection("list", &resource, None)
        };
        assert_eq!(path("", "racks").unwrap(), "/api/v1/racks");
        assert_eq!(path("a.io", "racks").unwrap(), "/apis/a.io/v1/racks");
        let odd = path("", "racks?watch=true").unwrap();
        assert_eq!(odd, "/api/v1/racks%3Fwatch%3Dtrue");
        for (group, plural, what) in [("..", "racks", "group"), ("", "racks/a", "plural")] {
            let error = path(group, plural).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            let words = format!("cannot be the {what} of an object");
            assert!(error.to_string().contains(&words), "{error}");
        }
    }

    #[test]
    fn each_form_is_asked_for_without_managed_fields_first_where_they_are_skipped() {
        use crate::wire::Metadata;

        let drop = ";drop=metadata.managedFields";
        let of_secrets = |is_list| {
            let forms = |trim| accept::<Secret>(is_list, trim);
            (forms(Trim::Skip), forms(Trim::Keep))
        };
        let of_metadata = |is_list| {
            let forms = |trim| accept::<Metadata<Secret>>(is_list, trim);
            (forms(Trim::Skip), forms(Trim::Keep))
        };
        for is_list in [false, true] {
            for (lean, whole) in [of_secrets(is_list), of_metadata(is_list)] {
                let each: Vec<_> = whole
                    .split(',')
                    .flat_map(|form| [drop, ""].map(|drop| format!("{form}{drop}")))
                    .collect();
                assert_eq!(lean, each.join(","));
                assert!(whole.ends_with(JSON) && !whole.contains("drop"));
            }
        }
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(of_secrets(true).1, JSON);
        assert_eq!(of_metadata(true).1, format!("{metadata},{JSON}"));
        assert_eq!(
            of_metadata(false).1,
            format!("{},{JSON}", metadata.replace("List", ""))
        );
    }

    #[test]
    fn lists_are_asked_for_by_group_namespace_selectors_and_page() {
        let shop = Scope::namespace("shop");
        let selected = Scope::all()
            .fields(FieldSelector::node_name("node-1"))
            .labels(LabelSelector::new("app in (a, b),tier!=test"));
        let page = ListRequest {
            resource_version: ResourceVersion::any(),
            version_match: Some(VersionMatch::NotOlderThan),
            limit: 500,
            ..listing()
        };
        let next = ListRequest {
            limit: 500,
            continue_token: Some("eyJ2Ijo+/=".to_owned()),
            ..listing()
        };
        let rows = [
            (
                list(&Secret::resource(), &shop, &listing()),
                "/api/v1/namespaces/shop/secrets",
            ),
            (
                list(&Node::resource(), &Scope::all(), &listing()),
                "/api/v1/nodes",
            ),
            (
                list(&Deployment::resource(), &Scope::all(), &listing()),
                "/apis/apps/v1/deployments",
            ),
            (
                list(&Pod::resource(), &selected, &listing()),
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1\
                 &labelSelector=app%20in%20%28a%2C%20b%29%2Ctier%21%3Dtest",
            ),
            (
                list(&Secret::resource(), &shop, &page),
                "/api/v1/namespaces/shop/secrets?limit=500&resourceVersion=0&\
                 resourceVersionMatch=NotOlderThan",
            ),
            (
                list(&Secret::resource(), &shop, &next),
                "/api/v1/namespaces/shop/secrets?limit=500&continue=eyJ2Ijo%2B%2F%3D",
            ),
        ];
        for (path, expected) in rows {
            assert_eq!(path.unwrap(), expected);
        }
    }

    /// RF-21: the version, bookmarks and the server's own time limit.
    #[test]
    fn watches_are_asked_for_with_bookmarks_and_a_limit_of_whole_seconds() {
        let scope = Scope::object(&ObjectKey::new("shop", "db"));
        assert_eq!(
            watch(&Secret::resource(), &scope, &watching("42")).unwrap(),
            "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb&watch=true\
             &resourceVersion=42&allowWatchBookmarks=true&timeoutSeconds=301"
        );
    }

    /// WL-2: a streamed list names the match its version needs.
    #[test]
    fn a_streamed_list_asks_for_initial_events_not_older_than_its_version() {
        let request = WatchRequest {
            send_initial_events: true,
            timeout: Duration::ZERO,
            ..watching("")
        };
        assert_eq!(
            watch(&Pod::resource(), &Scope::all(), &request).unwrap(),
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan"
        );
    }

    #[test]
    fn an_object_is_asked_for_by_its_path() {
        let newest = ResourceVersion::most_recent();
        let rows = [
            (
                get(&Secret::resource(), &ObjectKey::new("shop", "db"), &newest),
                "/api/v1/namespaces/shop/secrets/db",
            ),
            (
                get(
                    &Secret::resource(),
                    &ObjectKey::new("shop", "a b:ü"),
                    &ResourceVersion::any(),
                ),
                "/api/v1/namespaces/shop/secrets/a%20b%3A%C3%BC?resourceVersion=0",
            ),
            (
                get(&Node::resource(), &ObjectKey::new("", "node-1"), &newest),
                "/api/v1/nodes/node-1",
            ),
        ];
        for (path, expected) in rows {
            assert_eq!(path.unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_path_segment_never_reaches_the_server() {
        let newest = ResourceVersion::most_recent();
        for (namespace, name) in [
            ("shop", ""),
            ("shop", ".."),
            ("shop", "."),
            ("shop", "a/b"),
            ("shop", "a%2fb"),
            ("..", "db"),
            ("a/../b", "db"),
            ("", "db"),
        ] {
            let error = get(
                &Secret::resource(),
                &ObjectKey::new(namespace, name),
                &newest,
            )
            .unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Config,
                "{namespace:?}/{name:?}: {error}"
            );
        }
        let error = get(
            &Node::resource(),
            &ObjectKey::new("shop", "node-1"),
            &newest,
        )
        .unwrap_err();
        assert!(error.to_string().contains("has no namespaces"), "{error}");
        assert!(list(&Secret::resource(), &Scope::namespace(""), &listing()).is_err());
    }

    #[test]
    fn a_query_is_not_shown() {
        for what in ["GET a/pods?limit=5&continue=a?b", "GET a/pods"] {
            assert_eq!(shown(what), "GET a/pods");
        }
    }

    #[test]
    fn a_scope_is_described_in_words() {
        let scope = Scope::object(&ObjectKey::new("shop", "db"));
        assert_eq!(
            describe(&Secret::resource(), &scope),
            "secrets in namespace \"shop\" (metadata.name=db)"
        );
    }
}
