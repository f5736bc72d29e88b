//! Requests that must not go out: a key that names no object.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kubecache::manager::{ChangeDetection, ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::{Error, ErrorKind};

use super::server::Server;
use super::{client, list, watch_from};
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
