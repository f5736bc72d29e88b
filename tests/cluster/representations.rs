//! The representations of an object at a real server: text that is decoded on read, metadata alone,
//! and a type that is known at run time only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::manager::{ChangeDetection, ManagerOptions, ObjectManager, Owner};
use kubecache::object::{LabelMatcher, LabelSelector, Object, ObjectKey, Resource, Scope};
use kubecache::{Compact, Dynamic, ErrorKind, Metadata};

use super::support::*;

/// A namespace that exists for these tests alone.
const NAMESPACE: &str = "representations";

fn write(name: &str, value: &str) {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}","namespace":
        "{NAMESPACE}","labels":{{"app":"{name}"}}}},"stringData":{{"value":"{value}"}}}}"#
    ));
}

fn prepare() {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}"}}}}"#
    ));
    write("one", "1");
    write("two", "2");
}

/// Follows the Secrets of the namespace as `K`s through a change.
fn followed<K: Object>() -> SharedInformer<K> {
    let source = watcher::<K>(&client_of("admin.yaml"), Scope::namespace(NAMESPACE));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let deadline = Clock::system().after(PATIENCE);
    informer.wait_until_synced(deadline).unwrap();
    write("one", "changed");
    let written = get::<Secret>(&client_of("admin.yaml"), NAMESPACE, "one").unwrap();
    let store = informer.store();
    store
        .wait_until_at_least(&written.resource_version(), deadline)
        .unwrap();
    assert!(store.undecodable().is_empty());
    informer
}

fn versions<K: Object>(informer: &SharedInformer<K>) -> BTreeMap<String, String> {
    let objects = informer.store().list();
    let each = objects
        .iter()
        .map(|object| (object.name().to_owned(), object.version().to_owned()));
    each.collect()
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn each_representation_follows_the_same_objects() {
    let _up = cluster();
    prepare();
    let compact = followed::<Compact<Secret>>();
    let metadata = followed::<Metadata<Secret>>();
    let whole = followed::<Secret>();
    let deadline = Clock::system().after(PATIENCE);
    let newest = whole
        .store()
        .get(NAMESPACE, "one")
        .unwrap()
        .unwrap()
        .resource_version();
    compact
        .store()
        .wait_until_at_least(&newest, deadline)
        .unwrap();
    metadata
        .store()
        .wait_until_at_least(&newest, deadline)
        .unwrap();
    assert_eq!(versions(&compact), versions(&whole));
    assert_eq!(versions(&metadata), versions(&whole));

    let kept = compact.store().get(NAMESPACE, "one").unwrap().unwrap();
    assert_eq!(
        kept.get().unwrap().data.as_ref().unwrap()["value"].0,
        b"changed"
    );
    assert_eq!(kept.field("/data/value").unwrap(), Some("Y2hhbmdlZA=="));
    let text = std::str::from_utf8(kept.json()).unwrap();
    assert!(
        !text.contains("managedFields") && !text.contains("last-applied"),
        "{text}"
    );
    let alone = metadata.store().get(NAMESPACE, "one").unwrap().unwrap();
    assert_eq!(alone.metadata.labels.as_ref().unwrap()["app"], "one");
    assert!(alone.metadata.managed_fields.is_none());
    let two = LabelMatcher::parse(&LabelSelector::new("app=two")).unwrap();
    let is_two = |object: &Compact<Secret>| two.matches_object(object);
    let listed = compact.store().list();
    assert_eq!(listed.iter().filter(|object| is_two(object)).count(), 1);
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn managers_and_reads_take_each_representation() {
    let _up = cluster();
    prepare();
    let client = client_of("admin.yaml");
    let key = ObjectKey::new(NAMESPACE, "two");
    let deadline = Clock::system().after(PATIENCE);
    let strategies = [
        ChangeDetection::Watch,
        ChangeDetection::Cache,
        ChangeDetection::Get,
    ];
    for strategy in strategies {
        let options = || ManagerOptions::default().change_detection(strategy);
        let texts = ObjectManager::<Compact<Secret>>::new(client.clone(), options()).unwrap();
        let alone = ObjectManager::<Metadata<Secret>>::new(client.clone(), options()).unwrap();
        let owner = Owner::new("Test", key.clone());
        texts.add_reference(&owner, &key);
        alone.add_reference(&owner, &key);
        let text = texts.get_by(NAMESPACE, "two", deadline).unwrap();
        assert_eq!(text.get().unwrap().data.as_ref().unwrap()["value"].0, b"2");
        let alone = alone.get_by(NAMESPACE, "two", deadline).unwrap();
        assert_eq!(alone.label("app"), Some("two"));
    }
    let found = client.get::<Metadata<Secret>>(&key).unwrap();
    assert_eq!(
        found.version(),
        client.get::<Compact<Secret>>(&key).unwrap().version()
    );
    let missing = ObjectKey::new(NAMESPACE, "none");
    let error = client.get::<Metadata<Secret>>(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_resource_that_is_known_at_run_time_only_is_followed() {
    let _up = cluster();
    prepare();
    let secrets = Resource::new("", "v1", "secrets", "Secret");
    let client = client_of("admin.yaml").with_resource(secrets);
    let scope = Scope::namespace(NAMESPACE);
    let listed = client.list::<Dynamic>(scope.clone()).unwrap();
    assert!(listed.len() >= 2);
    let source = client.lister_watcher::<Dynamic>(scope);
    assert!(source.describe().contains("secrets"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let deadline = Clock::system().after(PATIENCE);
    informer.wait_until_synced(deadline).unwrap();
    let two = informer.store().get(NAMESPACE, "two").unwrap().unwrap();
    assert_eq!(two.field("/data/value").unwrap(), Some("Mg=="));

    let roles = Resource::new(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
    );
    let roles = client.with_resource(roles.cluster_scoped());
    let admin = roles
        .get::<Dynamic>(&ObjectKey::new("", "cluster-admin"))
        .unwrap();
    assert_eq!(admin.field("/rules/0/verbs/0").unwrap(), Some("*"));
}
