//! The way from a request to its answer: the user, the object, and the module that answers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::access::{AccessRequest, ApiUser};
use super::defaults;
use super::patches::{self, PatchType};
use super::reads::{self, ListedObjects};
use super::refusal::Refusal;
use super::representation::{
    AnswerForm, DropParameter, TableContext, aggregated_version, takes_json,
};
use super::resources::ApiResource;
use super::routes::{ApiVerb, ObjectRoute, Route};
use super::selectors::ObjectFilter;
use super::storage::{Storage, StorageState, StoredVersion};
use super::watches::{OpenWatches, ServedWatchBody, WatchSettings};
use super::write_options::{DeleteRequest, is_dry_run};
use super::writes::ObjectWriter;
use super::{discovery, openapi};
use crate::sync::{Arc, Mutex};
use crate::testing::http::message::RequestMessage;
use crate::testing::http::{Answered, Backend, Caller, Reply};
use crate::testing::recording::Target;

/// Shorter bodies are not compressed, as on a real server.
#[cfg(feature = "gzip")]
const GZIP_BYTES_MIN: usize = 128 * 1024;

/// The API server behind its connections.
#[derive(Debug)]
pub(super) struct ApiBackend {
    pub(super) storage: Arc<Storage>,
    pub(super) access: Mutex<AccessRequest>,
    pub(super) open: OpenWatches,
    pub(super) bookmark_every: Duration,
    pub(super) drop_parameter: DropParameter,
}

/// A body of JSON with its status.
struct JsonAnswer {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
}

impl JsonAnswer {
    fn ok(body: Vec<u8>) -> Self {
        Self {
            status: 200,
            content_type: "application/json",
            body,
        }
    }

    fn of(value: &Value) -> Self {
        Self::ok(value.to_string().into_bytes())
    }
}

impl Backend for ApiBackend {
    fn answer<'a>(&'a self, request: &RequestMessage, _at: Instant, caller: &Caller) -> Reply<'a> {
        let accept = request.header("accept").unwrap_or_default();
        match self.route(request, caller) {
            Ok(Route::Objects(route)) if route.verb == ApiVerb::Watch => {
                self.watch(&route, request, accept)
            }
            Ok(Route::Objects(route)) => whole(request, self.objects(&route, request, accept)),
            Ok(Route::Server) => whole(request, self.own_path(request, accept)),
            Err(refusal) => whole(request, Err(refusal)),
        }
    }
}

impl ApiBackend {
    /// The route of the request, if its user may take it.
    fn route(&self, request: &RequestMessage, caller: &Caller) -> Result<Route, Refusal> {
        if is_open(&request.target.path) {
            return Ok(Route::Server);
        }
        let access = self.access.lock().clone();
        let own: ApiUser = access.user(request, caller)?;
        let registry = self.storage.lock().registry.clone();
        let route = Route::of(&registry, &request.method, &request.target)?;
        let selected = match &route {
            Route::Objects(route) => {
                let namespace = route.namespace.as_deref();
                let selected = ObjectFilter::of(&route.resource, namespace, &request.target);
                let selected = selected.as_ref().ok().and_then(ObjectFilter::name);
                let is_read = matches!(route.verb, ApiVerb::List | ApiVerb::Watch);
                selected.filter(|_| is_read).map(str::to_owned)
            }
            Route::Server => None,
        };
        let user = access.acting(own, request, &route, selected.as_deref())?;
        if let Route::Objects(route) = &route {
            access.check(&user, route, selected.as_deref())?;
        }
        Ok(route)
    }

    fn watch(&self, route: &ObjectRoute, request: &RequestMessage, accept: &str) -> Reply<'static> {
        let form = AnswerForm::of(accept, &request.target, self.drop_parameter);
        let begun = form.and_then(|form| {
            let settings = WatchSettings {
                form,
                bookmark_every: self.bookmark_every,
                open: Arc::clone(&self.open),
            };
            ServedWatchBody::begin(&self.storage, route, &request.target, &settings)
        });
        match begun {
            Ok(body) => Reply {
                status: 200,
                headers: vec![header("content-type", "application/json")],
                body: Box::new(body),
                answered: Answered::Served,
            },
            Err(refusal) => whole(request, Err(refusal)),
        }
    }

    fn objects(
        &self,
        route: &ObjectRoute,
        request: &RequestMessage,
        accept: &str,
    ) -> Result<JsonAnswer, Refusal> {
        let target = &request.target;
        let form = AnswerForm::of(accept, target, self.drop_parameter)?;
        let now = self.storage.now();
        let mut state = self.storage.lock();
        let writer = |is_dry_run: bool| ObjectWriter {
            storage: &self.storage,
            is_dry_run,
            is_test: false,
        };
        let resource = &route.resource;
        let one = |object: &StoredVersion, status: u16| {
            form.check_object(resource)?;
            let mut body = Vec::new();
            let table = TableContext {
                now,
                with_columns: true,
            };
            form.write_object(resource, object, table, &mut body);
            Ok(JsonAnswer {
                status,
                ..JsonAnswer::ok(body)
            })
        };
        let list = |listed: &ListedObjects| {
            form.check_list(resource)?;
            let (metadata, items) = (&listed.metadata, &listed.items);
            let body = form.write_list(resource, metadata, items, now);
            Ok(JsonAnswer::ok(body))
        };
        match route.verb {
            ApiVerb::Get | ApiVerb::Watch => one(&*reads::get(&state, route, target)?, 200),
            ApiVerb::List => list(&reads::list(&mut state, route, target)?),
            ApiVerb::Create => {
                let writer = writer(is_dry_run("CreateOptions", target)?);
                let object = read_object(resource, request)?;
                let namespace = route.namespace.as_deref().unwrap_or_default();
                let made = writer.create(&mut state, resource, namespace, object)?;
                one(&made, 201)
            }
            ApiVerb::Update => {
                let writer = writer(is_dry_run("UpdateOptions", target)?);
                let object = read_object(resource, request)?;
                let written = writer.update(&mut state, route, object)?;
                one(&written.object, if written.is_created { 201 } else { 200 })
            }
            ApiVerb::Patch => {
                drop(state);
                let content_type = request.header("content-type").unwrap_or_default();
                let kind = PatchType::of(resource, content_type)?;
                let writer = writer(is_dry_run("PatchOptions", target)?);
                let patch = |old: Option<&StoredVersion>| patched(old, route, kind, &request.body);
                one(&*self.patch(route, writer, patch)?, 200)
            }
            ApiVerb::Delete => {
                let asked = DeleteRequest::read(request)?;
                let deleted = writer(asked.is_dry_run).delete(&mut state, route, &asked)?;
                if deleted.is_pending || resource.traits().returns_deleted {
                    return one(&deleted.object, 200);
                }
                Ok(JsonAnswer::of(&success(resource, &deleted.object)))
            }
            ApiVerb::DeleteCollection => {
                let asked = DeleteRequest::read(request)?;
                let writer = writer(asked.is_dry_run);
                list(&delete_all(&mut state, route, target, writer, &asked)?)
            }
        }
    }

    /// Patches an object outside the lock, so that no other client waits for a large patch. Starts
    /// over if the object changed meanwhile.
    pub(super) fn patch(
        &self,
        route: &ObjectRoute,
        writer: ObjectWriter<'_>,
        mut patched: impl FnMut(Option<&StoredVersion>) -> Result<Value, Refusal>,
    ) -> Result<Arc<StoredVersion>, Refusal> {
        let kind = route.resource.storage_key();
        let mut old = self.storage.lock().get(&kind, &route.key());
        loop {
            let made = patched(old.as_deref());
            let mut state = self.storage.lock();
            let present = state.get(&kind, &route.key());
            if old.as_ref().map(Arc::as_ptr) == present.as_ref().map(Arc::as_ptr) {
                let written = writer.update(&mut state, route, made?)?;
                return Ok(written.object);
            }
            old = present;
        }
    }

    /// Answers a path that is not about objects.
    fn own_path(&self, request: &RequestMessage, accept: &str) -> Result<JsonAnswer, Refusal> {
        let path = request.target.path.trim_end_matches('/');
        let is_head = request.method == "HEAD";
        if request.method != "GET" && !(is_head && is_health(path)) {
            return Err(Refusal::method_not_allowed());
        }
        if is_health(path) {
            return Ok(JsonAnswer {
                content_type: "text/plain; charset=utf-8",
                ..JsonAnswer::ok(b"ok".to_vec())
            });
        }
        if path.starts_with("/openapi/v2") {
            return self.openapi_v2(accept);
        }
        let host = request.header("host").unwrap_or_default();
        let state = self.storage.lock();
        let registry = &state.registry;
        let segments: Vec<_> = path.split('/').skip(1).collect();
        if let ["api" | "apis"] = segments.as_slice()
            && let Some(version) = aggregated_version(accept)
        {
            let all = discovery::aggregated(registry, path == "/api", &version);
            return Ok(JsonAnswer {
                content_type: match &*version {
                    "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    _ => {
                        "application/json;g=apidiscovery.k8s.io;v=v2beta1;\
                        as=APIGroupDiscoveryList"
                    }
                },
                ..JsonAnswer::of(&all)
            });
        }
        if !takes_json(accept) {
            return Err(Refusal::not_acceptable());
        }
        let found = match segments.as_slice() {
            ["version"] => Some(discovery::version()),
            ["api"] => Some(discovery::core_versions(host)),
            ["apis"] => Some(discovery::groups(registry)),
            ["api", version] => discovery::resources(registry, "", version),
            ["apis", group] => discovery::group(registry, group),
            ["apis", group, version] => discovery::resources(registry, group, version),
            ["openapi", "v3"] => Some(openapi::index(registry)),
            ["openapi", "v3", "api", version] => openapi::of_version(registry, "", version),
            ["openapi", "v3", "apis", group, version] => {
                openapi::of_version(registry, group, version)
            }
            _ => None,
        };
        found
            .map(|value| JsonAnswer::of(&value))
            .ok_or_else(Refusal::no_page)
    }

    fn openapi_v2(&self, accept: &str) -> Result<JsonAnswer, Refusal> {
        if takes_json(accept) {
            return Ok(JsonAnswer::of(&openapi::v2(&self.storage.lock().registry)));
        }
        if !accept.contains("proto-openapi") {
            return Err(Refusal::not_acceptable());
        }
        // kubectl insists on protobuf before it applies a `kind: List`. An empty body is a document
        // that describes nothing, and kubectl does not check undescribed kinds.
        Ok(JsonAnswer {
            content_type: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            ..JsonAnswer::ok(Vec::new())
        })
    }
}

/// Whether every user may read the path.
fn is_open(path: &str) -> bool {
    is_health(path) || path == "/version"
}

fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Makes the reply, compressed if the client accepts that and the size is worth it.
fn whole(request: &RequestMessage, answer: Result<JsonAnswer, Refusal>) -> Reply<'static> {
    let mut headers = vec![header("cache-control", "no-cache, private")];
    let answer = answer.unwrap_or_else(|refusal| {
        if let Some(seconds) = refusal.retry_after() {
            headers.push(header("retry-after", &seconds.to_string()));
        }
        if refusal.is_page {
            return JsonAnswer {
                status: refusal.code,
                content_type: "text/plain; charset=utf-8",
                body: format!("{}\n", refusal.message()).into_bytes(),
            };
        }
        JsonAnswer {
            status: refusal.code,
            ..JsonAnswer::of(&refusal.status())
        }
    });
    headers.push(header("content-type", answer.content_type));
    let mut body = answer.body;
    if answer.content_type.starts_with("application/json") {
        body.push(b'\n');
    }
    if let Some(smaller) = compressed(request, &body) {
        headers.push(header("content-encoding", "gzip"));
        headers.push(header("vary", "Accept-Encoding"));
        body = smaller;
    }
    Reply::whole(answer.status, headers, body, Answered::Served)
}

#[cfg(feature = "gzip")]
fn compressed(request: &RequestMessage, body: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write as _;

    let takes = request.header("accept-encoding").unwrap_or_default();
    if body.len() < GZIP_BYTES_MIN || !takes.contains("gzip") {
        return None;
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

#[cfg(not(feature = "gzip"))]
fn compressed(_request: &RequestMessage, _body: &[u8]) -> Option<Vec<u8>> {
    None
}

impl RequestMessage {
    /// Refuses a body of another form than JSON.
    pub(super) fn check_media_type(&self) -> Result<(), Refusal> {
        let media_type = self.header("content-type").unwrap_or("application/json");
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if matches!(media_type, "application/json" | "") {
            return Ok(());
        }
        Err(Refusal::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json; this test server reads no {media_type} (client-go: set \
             rest.Config.ContentType to application/json)"
        )))
    }
}

/// Reads the object in the body of a request, which must be of that kind.
fn read_object(resource: &ApiResource, request: &RequestMessage) -> Result<Value, Refusal> {
    request.check_media_type()?;
    let object: Value = serde_json::from_slice(&request.body).map_err(|error| {
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
             json parse error: {error}",
            resource.kind()
        ))
    })?;
    if !resource.traits().is_built_in && object.get("kind").is_none() {
        return Err(Refusal::bad_request(format!(
            "Object 'Kind' is missing in '{object}'"
        )));
    }
    check_type(resource, &object)?;
    Ok(object)
}

/// Refuses an object of another type. An object without a type is accepted.
pub(super) fn check_type(resource: &ApiResource, object: &Value) -> Result<(), Refusal> {
    if !object.is_object() {
        return Err(Refusal::bad_request(
            "the body of the request is not an object",
        ));
    }
    for field in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
    ] {
        let found = object.pointer(&format!("/metadata/{field}"));
        if found.is_some_and(|found| !found.is_string() && !found.is_null()) {
            return Err(Refusal::bad_request(format!(
                "json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field} of type \
                 string"
            )));
        }
    }
    for (kind, path) in [
        ("ObjectMeta", "metadata/labels"),
        ("ObjectMeta", "metadata/annotations"),
        ("Secret", "stringData"),
    ] {
        let is_its_own = kind == "ObjectMeta" || resource.is("", "secrets");
        let is_texts = match object.pointer(&format!("/{path}")) {
            None | Some(Value::Null) => true,
            Some(Value::Object(fields)) => fields.values().all(|it| it.is_string() || it.is_null()),
            Some(_) => false,
        };
        if is_its_own && !is_texts {
            let field = path.replace('/', ".");
            return Err(Refusal::bad_request(format!(
                "json: cannot unmarshal into Go struct field {kind}.{field} of type string"
            )));
        }
    }
    if !are_owners(object.pointer("/metadata/ownerReferences")) {
        return Err(Refusal::bad_request(
            "json: cannot unmarshal into Go struct field ObjectMeta.metadata.ownerReferences of \
             type []v1.OwnerReference",
        ));
    }
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = (resource.api_version(), resource.kind());
    if !kind.is_empty() && kind != expected.1 {
        return Err(Refusal::bad_request(format!(
            "{kind} in version {api_version:?} cannot be handled as a {}",
            expected.1
        )));
    }
    if !api_version.is_empty() && api_version != expected.0 {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
             ({})",
            expected.0
        )));
    }
    Ok(())
}

/// Whether the value has the type of a list of owners.
fn are_owners(owners: Option<&Value>) -> bool {
    let is_owner = |owner: &Value| {
        let mut fields = owner.as_object().into_iter().flatten();
        owner.is_object()
            && fields.all(|(name, value)| match name.as_str() {
                "apiVersion" | "kind" | "name" | "uid" => value.is_string() || value.is_null(),
                "controller" | "blockOwnerDeletion" => value.is_boolean() || value.is_null(),
                _ => true,
            })
    };
    match owners {
        None | Some(Value::Null) => true,
        Some(owners) => owners
            .as_array()
            .is_some_and(|all| all.iter().all(is_owner)),
    }
}

/// Applies a patch to the object.
fn patched(
    old: Option<&StoredVersion>,
    route: &ObjectRoute,
    kind: PatchType,
    patch: &[u8],
) -> Result<Value, Refusal> {
    let resource = &route.resource;
    let old = old.ok_or_else(|| Refusal::not_found(resource, &route.name))?;
    let mut patched = patches::apply(resource, kind, &old.value_as(resource), patch)?;
    check_type(resource, &patched)?;
    defaults::drop_server_fields(&mut patched);
    Ok(patched)
}

/// Deletes the objects of a list, or of the page that the request asks for.
fn delete_all(
    state: &mut StorageState,
    route: &ObjectRoute,
    target: &Target,
    writer: ObjectWriter<'_>,
    asked: &DeleteRequest,
) -> Result<ListedObjects, Refusal> {
    let listed = reads::list(state, route, target)?;
    for object in &listed.items {
        let route = ObjectRoute::to_object(&route.resource, object.namespace(), object.name());
        match writer.delete(state, &route, asked) {
            Err(refusal) if refusal.code != 404 => return Err(refusal),
            _ => {}
        }
    }
    Ok(listed)
}

/// The `Status` of an object that is gone.
fn success(resource: &ApiResource, object: &StoredVersion) -> Value {
    let mut details = json!({
        "name": object.name(),
        "kind": resource.plural(),
        "uid": object.value.pointer("/metadata/uid"),
    });
    if let (Some(details), false) = (details.as_object_mut(), resource.group().is_empty()) {
        details.insert("group".to_owned(), Value::from(resource.group()));
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ApiServer;
    use crate::testing::objects;

    /// Other clients write during the patch, which is then applied to their result.
    #[test]
    fn a_patch_makes_no_other_client_wait() {
        let server = ApiServer::new().unwrap();
        server
            .create(&objects::config_map("shop", "a", "", &[("k", "0")]))
            .unwrap();
        let backend = server.backend();
        let config_maps = {
            let state = backend.storage.lock();
            Arc::clone(state.registry.find("", "v1", "configmaps").unwrap())
        };
        let route = ObjectRoute::to_object(&config_maps, "shop", "a");
        let writer = ObjectWriter {
            storage: &backend.storage,
            is_dry_run: false,
            is_test: false,
        };
        let mut turns = 0;
        let patched = backend.patch(&route, writer, |old| {
            turns += 1;
            if turns == 1 {
                let other = objects::config_map("shop", "a", "", &[("k", "1")]);
                server.apply(&other).unwrap();
            }
            let mut object = old.unwrap().value_as(&config_maps);
            object["data"]["mine"] = Value::from("2");
            Ok(object)
        });
        let data = &patched.unwrap().value["data"];
        assert_eq!((turns, data), (2, &json!({"k": "1", "mine": "2"})));
    }
}
