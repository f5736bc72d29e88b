//! Requests that must not go out: a key that names no object, and a deadline that has passed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, Patch, Request as OwnRequest, WriteOptions};
use kubecache::manager::{ChangeDetection, ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::{Error, ErrorKind};
use serde_json::{Value, json};

use super::server::Server;
use super::{PATIENCE, client, list, watch_from};
use crate::support::until;

const KEYS: [(&str, &str); 6] = [
    ("", "a"),
    ("", ""),
    ("shop", ""),
    ("shop", "a/b"),
    ("shop", ".."),
    ("..", "a"),
];

fn refused(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Config, "{what}: {error}");
    let text = error.to_string();
    let is_told = text.contains("a namespace is needed") || text.contains("cannot be the n");
    assert!(is_told, "{what}: {text}");
}

#[test]
fn a_key_that_names_no_object_is_refused_by_each_call_before_it_is_sent() {
    let server = Server::start();
    let client = client(&server.url());
    let soon = Duration::from_secs(5);
    for (namespace, name) in KEYS {
        let key = ObjectKey::new(namespace, name);
        let what = format!("{namespace:?} {name:?}");
        refused(&client.get_by::<Secret>(&key, soon).unwrap_err(), &what);
        let waited = client.wait_until::<ConfigMap>(&key, |map| map.is_none(), soon);
        refused(&waited.unwrap_err(), &what);
        let source = client.lister_watcher::<Secret>(Scope::object(&key));
        refused(&source.check().unwrap_err(), &what);
        let never = kubecache::worker::StopToken::never();
        refused(&list(&*source, &never).unwrap_err(), &what);
        let watch = source.watch(&watch_from("1"), &never).map(drop);
        refused(&watch.unwrap_err(), &what);
    }
    assert!(!server.has_visitors());
    // A kind without namespaces needs none, and a name may be selected in all namespaces.
    let node = ObjectKey::new("", "node-1");
    let source = client.lister_watcher::<Node>(Scope::object(&node));
    source.check().unwrap();
    let by_name = kubecache::object::FieldSelector::name("db");
    let source = client.lister_watcher::<Secret>(Scope::all().fields(by_name));
    source.check().unwrap();
}

#[test]
fn a_manager_refuses_a_key_that_names_no_object_in_each_mode() {
    let server = Server::start();
    for mode in [
        ChangeDetection::Watch,
        ChangeDetection::Cache,
        ChangeDetection::Get,
    ] {
        for (namespace, name) in KEYS {
            let options = ManagerOptions::default().change_detection(mode);
            let manager = SecretManager::new(client(&server.url()), options).unwrap();
            let owner = Owner::new("pod", ObjectKey::new(namespace, "p"));
            manager.add_reference(&owner, &ObjectKey::new(namespace, name));
            // On a busy machine the watch may not have begun when the first read gives up.
            let mut error = manager.get(namespace, name).unwrap_err();
            until(|| {
                error = manager.get(namespace, name).unwrap_err();
                error.kind() == ErrorKind::Config
            });
            refused(&error, &format!("{mode:?} {namespace:?} {name:?}"));
        }
    }
    assert!(!server.has_visitors());
}

/// Asks in each way.
fn asked(client: &Client, deadline: Deadline) -> Vec<(&'static str, Error)> {
    let (key, options) = (ObjectKey::new("shop", "a"), WriteOptions::default());
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "shop"}
    }))
    .unwrap();
    let note = Patch::Merge(json!({}));
    let own = OwnRequest::new("POST", "/api/v1/namespaces/shop/pods/a/eviction");
    let created = client.create(&map, &options, deadline).map(drop);
    let replaced = client.replace(&map, &options, deadline).map(drop);
    let patched = client.patch::<ConfigMap>(&key, &note, &options, deadline);
    let deleted = client.delete::<ConfigMap>(&key, &Value::Null, &options, deadline);
    let got = client.get_by::<ConfigMap>(&key, deadline).map(drop);
    let listed = client.list_by::<ConfigMap>(Scope::namespace("shop"), deadline);
    vec![
        ("POST ", created.unwrap_err()),
        ("PUT ", replaced.unwrap_err()),
        ("PATCH ", patched.map(drop).unwrap_err()),
        ("DELETE ", deleted.unwrap_err()),
        ("POST ", client.send(&own, deadline).map(drop).unwrap_err()),
        (
            "POST ",
            client.stream(&own, deadline).map(drop).unwrap_err(),
        ),
        ("GET ", got.unwrap_err()),
        ("GET ", listed.map(drop).unwrap_err()),
    ]
}

#[test]
fn nothing_is_sent_after_the_deadline() {
    let server = Server::start();
    let client = client(&server.url());
    let now = Clock::system().now();
    let past = now.checked_sub(Duration::from_secs(60)).unwrap_or(now);
    for deadline in [Clock::system().after(Duration::ZERO), Deadline::at(past)] {
        for (method, error) in asked(&client, deadline) {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{method}: {text}");
            assert!(text.starts_with(method), "{method}: {text}");
            let is_told = text.contains("no request was sent: the deadline had passed");
            assert!(is_told && !text.contains("applied"), "{method}: {text}");
        }
    }
    assert!(!server.has_visitors());
}

#[test]
fn nothing_is_sent_on_a_kept_connection_after_the_deadline() {
    let server = Server::start();
    let client = client(&server.url());
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.send(&OwnRequest::get("/version"), PATIENCE));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, "{}");
        asking.join().unwrap().unwrap();
        let _refused = asked(&client, Clock::system().after(Duration::ZERO));
        // The next request on this connection is one that may go.
        let asking = scope.spawn(|| client.send(&OwnRequest::get("/livez"), PATIENCE));
        assert!(peer.request().line.contains("/livez"));
        peer.json(200, "{}");
        asking.join().unwrap().unwrap();
    });
    assert!(!server.has_visitors());
}
