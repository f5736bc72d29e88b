//! Writes of objects, against the API server in memory.

use std::io::{BufRead as _, BufReader};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubecache::clock::Deadline;
use kubecache::http::{Client, ClientOptions, Config, Patch, Request, WriteOptions};
use kubecache::object::{Object, ObjectKey, StoredObject};
use kubecache::testing::ApiServer;
use kubecache::{Compact, Dynamic, Error, ErrorKind, Metadata};
use serde_json::{Value, json};

const NEVER: Deadline = Deadline::NEVER;

fn whole() -> WriteOptions {
    WriteOptions::default()
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

/// A server in which the namespace exists, and a client of it.
fn start() -> (ApiServer, Client) {
    let server = ApiServer::new().unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.create_value(&namespace).unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    (server, client)
}

fn map(value: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": "web", "namespace": "shop"}, "data": {"k": value}});
    serde_json::from_value(map).unwrap()
}

fn value(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("k").map(String::as_str)
}

/// The code and the reason of the server's status.
fn refusal<T>(result: Result<T, Error>) -> (u16, String) {
    let error = result.err().unwrap();
    let status = error.status().unwrap();
    assert!(!error.to_string().contains("applied"), "{error}");
    (status.code(), status.reason_text().to_owned())
}

#[test]
fn an_object_is_created_replaced_and_deleted_once() {
    let (_server, client) = start();
    let created = client.create(&map("1"), &whole(), NEVER).unwrap();
    assert_eq!((value(&created), created.key()), (Some("1"), key()));
    assert!(!created.uid().is_empty() && !created.resource_version_text().is_empty());
    let exists = refusal(client.create(&map("1"), &whole(), NEVER));
    assert_eq!(exists, (409, "AlreadyExists".to_owned()));

    let edit = |map: &mut ConfigMap| map.data = Some([("k".into(), "2".into())].into());
    let edited = StoredObject::edited(std::sync::Arc::clone(&created), edit);
    let replaced = client.replace(&**edited, &whole(), NEVER).unwrap();
    assert_eq!(value(&replaced), Some("2"));
    let stale = refusal(client.replace(&**created, &whole(), NEVER));
    assert_eq!(stale, (409, "Conflict".to_owned()));
    assert_eq!(value(&client.get::<ConfigMap>(&key()).unwrap()), Some("2"));

    let other = json!({"preconditions": {"uid": "another"}});
    let delete = |how: &Value| client.delete::<ConfigMap>(&key(), how, &whole(), NEVER);
    assert_eq!(refusal(delete(&other)).0, 409);
    let this = json!({"preconditions": {"uid": created.uid()}});
    delete(&this).unwrap();
    assert_eq!(refusal(delete(&Value::Null)), (404, "NotFound".to_owned()));
    let gone = client.get::<ConfigMap>(&key()).unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
}

/// Seen: beside preconditions, a server reads no parameter, and a dry run deleted the object.
#[test]
fn a_dry_run_deletes_nothing_wherever_it_is_named() {
    let (server, client) = start();
    client.create(&map("1"), &whole(), NEVER).unwrap();
    let dry = whole().query("dryRun", "All");
    let count = server.requests().len();
    let error = client.delete::<ConfigMap>(&key(), &json!({}), &dry, NEVER);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("dryRun"), "{error}");
    assert_eq!(server.requests().len(), count);
    let delete = |how, options| client.delete::<ConfigMap>(&key(), how, options, NEVER);
    delete(&Value::Null, &dry).unwrap();
    delete(&json!({"dryRun": ["All"]}), &whole()).unwrap();
    assert_eq!(value(&client.get::<ConfigMap>(&key()).unwrap()), Some("1"));
}

#[test]
fn each_patch_has_its_content_type() {
    let (server, client) = start();
    client.create(&map("1"), &whole(), NEVER).unwrap();
    let sent = || {
        let requests = server.requests();
        let last = requests.last().unwrap();
        last.header("content-type").map(str::to_owned)
    };
    let manager = whole().query("fieldManager", "tests");
    let replace = json!([{"op": "replace", "path": "/data/k", "value": "3"}]);
    for (patch, expected, content_type) in [
        (
            Patch::Merge(json!({"data": {"k": "2"}})),
            "2",
            "application/merge-patch+json",
        ),
        (Patch::Json(replace), "3", "application/json-patch+json"),
        (
            Patch::Strategic(json!({"data": {"k": "4"}})),
            "4",
            "application/strategic-merge-patch+json",
        ),
    ] {
        let patched = client.patch::<ConfigMap>(&key(), &patch, &manager, NEVER);
        assert_eq!(value(&patched.unwrap()), Some(expected));
        assert_eq!(sent().as_deref(), Some(content_type));
    }
    // The server in memory has no server-side apply.
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "5"}});
    let applied = client.patch::<ConfigMap>(&key(), &Patch::Apply(apply), &manager, NEVER);
    assert_eq!(refusal(applied).0, 415);
    assert_eq!(sent().as_deref(), Some("application/apply-patch+yaml"));
    let mut invalid = map("1");
    invalid.metadata.name = Some("No Name".to_owned());
    let invalid = refusal(client.create(&invalid, &whole(), NEVER));
    assert_eq!(invalid, (422, "Invalid".to_owned()));
    let absent = ObjectKey::new("shop", "absent");
    let nothing = Patch::Merge(json!({}));
    let absent = client.patch::<ConfigMap>(&absent, &nothing, &whole(), NEVER);
    assert_eq!(refusal(absent), (404, "NotFound".to_owned()));
}

/// What the server answers comes in each representation; only what a type can write is written.
#[test]
fn a_patch_returns_each_representation() {
    let (_server, client) = start();
    client.create(&map("1"), &whole(), NEVER).unwrap();
    let note = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let compact = client.patch::<Compact<ConfigMap>>(&key(), &note, &whole(), NEVER);
    assert_eq!(compact.unwrap().label("a"), Some("b"));
    let metadata = client.patch::<Metadata<ConfigMap>>(&key(), &note, &whole(), NEVER);
    assert_eq!(metadata.unwrap().label("a"), Some("b"));
    let maps = client.with_resource(ConfigMap::resource());
    let dynamic = maps
        .patch::<Dynamic>(&key(), &note, &whole(), NEVER)
        .unwrap();
    assert_eq!(dynamic.field::<&str>("/data/k").unwrap(), Some("1"));
    maps.delete::<Dynamic>(&key(), &Value::Null, &whole(), NEVER)
        .unwrap();
}

#[test]
fn a_status_is_written_by_its_subresource_alone() {
    let (_server, client) = start();
    let pod = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    client.create(&pod, &whole(), NEVER).unwrap();
    let running = Patch::Merge(json!({"status": {"message": "m"}}));
    for (options, expected) in [(whole(), None), (whole().subresource("status"), Some("m"))] {
        let pod = client.patch::<Pod>(&key(), &running, &options, NEVER);
        let pod = pod.unwrap();
        let message = pod
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref());
        assert_eq!(message, expected);
    }
}

#[test]
fn a_key_that_is_no_path_is_refused_before_anything_is_sent() {
    let (server, client) = start();
    let before = server.requests().len();
    let unnamed = serde_json::from_value::<ConfigMap>(json!({})).unwrap();
    let without = json!({"metadata": {"name": "web"}});
    let without = serde_json::from_value::<ConfigMap>(without).unwrap();
    let odd = whole().subresource("a/b");
    for result in [
        client.create(&unnamed, &whole(), NEVER),
        client.create(&without, &whole(), NEVER),
        client.replace(&without, &whole(), NEVER),
        client.replace(&map("1"), &odd, NEVER),
        client.create(&map("1"), &whole().subresource(".."), NEVER),
        client.patch(
            &ObjectKey::new("shop", ".."),
            &Patch::Merge(json!({})),
            &whole(),
            NEVER,
        ),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    assert_eq!(server.requests().len(), before);
}

/// A stream of any path: here a watch, line by line.
#[test]
fn a_watch_is_read_as_a_stream() {
    let (_server, client) = start();
    let watch = Request::get("/api/v1/namespaces/shop/configmaps").query("watch", "true");
    let mut lines = BufReader::new(client.stream(&watch, NEVER).unwrap()).lines();
    for name in ["1", "2"] {
        if name == "1" {
            client.create(&map(name), &whole(), NEVER).unwrap();
        } else {
            client.replace(&map(name), &whole(), NEVER).unwrap();
        }
        let line = lines.next().unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event.pointer("/object/data/k"), Some(&json!(name)));
    }
}

/// A large object over TLS, through the pieces in which the body goes out.
#[test]
#[cfg(feature = "ring")]
fn a_large_object_is_written_over_tls() {
    use kubecache::testing::TestAuthority;
    let provider = rustls::crypto::ring::default_provider();
    let authority = TestAuthority::new("test-authority", provider.into()).unwrap();
    let builder = ApiServer::builder().token("t", "u", &["system:masters"]);
    let server = builder.tls_by(&authority).unwrap().start().unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config
        .with_authorities(authority.pem())
        .with_token("t")
        .unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let mut large = map(&"x".repeat(700_000));
    large.metadata.namespace = Some("default".to_owned());
    let created = client.create(&large, &whole(), NEVER).unwrap();
    assert_eq!(value(&created), value(&large));
}
