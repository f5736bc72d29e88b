//! A reflector and its store against a real server: streamed and plain lists, a restart, and
//! agreement with a list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::hooks::Hook;
use kubecache::http::{ClientMetric, ClientOptions, KubeconfigOptions};
use kubecache::list_watch::{ListRequest, ListerWatcher, StoredPosition};
use kubecache::object::{Scope, StoredObject};
use kubecache::reflector::{Phase, Reflector, ReflectorOptions};
use kubecache::store::{Indexers, Store};

use super::support::*;
use crate::support::until;

fn write(namespace: &str, name: &str, value: &str) {
    apply(&format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\
         \"namespace\":\"{namespace}\"}},\"data\":{{\"value\":\"{value}\"}}}}"
    ));
}

/// Each test has a namespace of its own, since it compares all that is there.
fn start(
    namespace: &str,
    watch_list: bool,
) -> (
    Store<ConfigMap>,
    Reflector,
    Arc<dyn ListerWatcher<ConfigMap>>,
) {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#
    ));
    write(namespace, "first", "1");
    let source = watcher::<ConfigMap>(&client_of("admin.yaml"), Scope::namespace(namespace));
    let options = ReflectorOptions::default().watch_list(watch_list);
    let indexers = Indexers::new().by_namespace();
    let (store, reflector) =
        Store::spawn("stores", Arc::clone(&source), indexers, options).unwrap();
    store
        .wait_until_synced(Clock::system().after(PATIENCE))
        .unwrap();
    (store, reflector, source)
}

type Contents = BTreeMap<Option<String>, (Option<String>, Option<String>)>;

fn contents(objects: &[Arc<StoredObject<ConfigMap>>]) -> Contents {
    let each = objects.iter().map(|object| {
        let metadata = &object.metadata;
        let state = (metadata.uid.clone(), metadata.resource_version.clone());
        (metadata.name.clone(), state)
    });
    each.collect()
}

/// Waits for the change the caller made last, and compares the store with a list at the most recent
/// version.
fn assert_agrees(
    store: &Store<ConfigMap>,
    source: &dyn ListerWatcher<ConfigMap>,
    (namespace, last): (&str, &str),
) {
    let written = get::<ConfigMap>(&client_of("admin.yaml"), namespace, last).unwrap();
    let version = written.metadata.resource_version.as_deref().unwrap().into();
    let deadline = Clock::system().after(PATIENCE);
    store.wait_until_at_least(&version, deadline).unwrap();
    let (listed, _) = list(source, &ListRequest::default()).unwrap();
    assert_eq!(contents(&store.list()), contents(&listed));
    assert_eq!(store.refused(), 0);
    assert!(store.undecodable().is_empty());
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_store_follows_the_server_by_streamed_and_by_plain_lists() {
    let (_up, namespace) = (cluster(), "stores-lists");
    let (streamed, one, source) = start(namespace, true);
    let (listed, two, _) = start(namespace, false);
    for round in 0..5 {
        write(namespace, "changing", &format!("round {round}"));
        write(namespace, &format!("new-{round}"), "here to stay");
    }
    write(namespace, "last", "of the changes");
    for store in [&streamed, &listed] {
        assert_agrees(store, &*source, (namespace, "last"));
        assert_eq!(store.status().lists, 1, "{:?}", store.status());
        assert!(store.is_fresh_within(PATIENCE));
    }
    one.join().unwrap();
    two.join().unwrap();
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_store_survives_a_restart_of_the_server() {
    let (_alone, namespace) = (cluster_alone(), "stores-restart");
    let (store, reflector, source) = start(namespace, true);
    let before = store.get(namespace, "first").unwrap().unwrap();
    restart_the_server();
    write(namespace, "after-the-restart", "1");
    assert_agrees(&store, &*source, (namespace, "after-the-restart"));
    let after = store.get(namespace, "first").unwrap().unwrap();
    assert_eq!(before.metadata.uid, after.metadata.uid);
    // A list brought it, perhaps.
    until(|| reflector.status().phase == Phase::Watching);
    let status = reflector.status();
    assert!(status.failures.last().is_none(), "{status:?}");
    assert!(store.is_fresh_within(Duration::from_secs(60)));
    reflector.join().unwrap();
}

/// The server sends one object, whose list has its version, and then what has changed. A version
/// that it has not reached, as after a restored backup, leads to a whole list.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_store_goes_on_from_a_stored_position() {
    let (_up, namespace) = (cluster(), "stores-stored");
    let (store, reflector, source) = start(namespace, false);
    write(namespace, "since-then", "old");
    assert_agrees(&store, &*source, (namespace, "since-then"));
    let position =
        |version: &str| StoredPosition::new(version.into(), SystemTime::now(), store.list());
    let version = store.resource_version();
    reflector.join().unwrap();
    write(namespace, "since-then", "new");

    let far = "9000000000000000000";
    for (version, lists) in [(version.as_str(), 1), (far, 2)] {
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ended);
        let options = ClientOptions::default().metrics(Hook::new(move |metric| {
            if matches!(metric, ClientMetric::RequestEnded { .. }) {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let client = connect("admin.yaml", KubeconfigOptions::default(), options);
        let from = position(version).over(watcher(&client, Scope::namespace(namespace)));
        let options = ReflectorOptions::default();
        let (next, reflector) = Store::spawn("next", from, Indexers::new(), options).unwrap();
        let deadline = Clock::system().after(PATIENCE);
        next.wait_until_synced(deadline).unwrap();
        assert_agrees(&next, &*source, (namespace, "since-then"));
        assert_eq!(ended.load(Ordering::SeqCst), lists, "{version}");
        reflector.join().unwrap();
    }
}
