//! The representations of an object at a real server: text that is decoded on read, metadata alone,
//! and a type that is known at run time only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::hooks::Hook;
use kubecache::http::{Client, ClientMetric, ClientOptions, KubeconfigOptions, Request, Response};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::manager::{ChangeDetection, ManagerOptions, ObjectManager, Owner};
use kubecache::object::{LabelMatcher, LabelSelector, Object, ObjectKey, Resource, Scope};
use kubecache::{Compact, Dynamic, ErrorKind, Metadata};

use super::support::*;

/// A namespace that exists for these tests alone.
fn write(namespace: &str, name: &str, value: &str) {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}","namespace":
        "{namespace}","labels":{{"app":"{name}"}}}},"stringData":{{"value":"{value}"}}}}"#
    ));
}

/// Each test has a namespace of its own, since the others write the same names.
fn prepare(namespace: &str) {
    apply(&format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#
    ));
    write(namespace, "one", "1");
    write(namespace, "two", "2");
}

/// Follows the Secrets of the namespace as `K`s through a change.
fn followed<K: Object>(namespace: &str) -> SharedInformer<K> {
    let source = watcher::<K>(&client_of("admin.yaml"), Scope::namespace(namespace));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let deadline = Clock::system().after(PATIENCE);
    informer.wait_until_synced(deadline).unwrap();
    write(namespace, "one", "changed");
    let written = get::<Secret>(&client_of("admin.yaml"), namespace, "one").unwrap();
    let store = informer.store();
    store
        .wait_until_at_least(&written.resource_version(), deadline)
        .unwrap();
    assert!(store.undecodable().is_empty());
    informer
}

fn versions<K: Object>(informer: &SharedInformer<K>) -> BTreeMap<String, String> {
    let objects = informer.store().list();
    let each = objects.iter().map(|object| {
        (
            object.name().to_owned(),
            object.resource_version_text().to_owned(),
        )
    });
    each.collect()
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn each_representation_follows_the_same_objects() {
    let (_up, namespace) = (cluster(), "represented");
    prepare(namespace);
    let compact = followed::<Compact<Secret>>(namespace);
    let metadata = followed::<Metadata<Secret>>(namespace);
    let whole = followed::<Secret>(namespace);
    let deadline = Clock::system().after(PATIENCE);
    let newest = whole
        .store()
        .get(namespace, "one")
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

    let kept = compact.store().get(namespace, "one").unwrap().unwrap();
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
    let alone = metadata.store().get(namespace, "one").unwrap().unwrap();
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
    let (_up, namespace) = (cluster(), "represented-reads");
    prepare(namespace);
    let client = client_of("admin.yaml");
    let key = ObjectKey::new(namespace, "two");
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
        let text = texts.get_by(namespace, "two", deadline).unwrap();
        assert_eq!(text.get().unwrap().data.as_ref().unwrap()["value"].0, b"2");
        let alone = alone.get_by(namespace, "two", deadline).unwrap();
        assert_eq!(alone.label("app"), Some("two"));
    }
    let found = client.get::<Metadata<Secret>>(&key).unwrap();
    assert_eq!(
        found.resource_version_text(),
        client
            .get::<Compact<Secret>>(&key)
            .unwrap()
            .resource_version_text()
    );
    let missing = ObjectKey::new(namespace, "none");
    let error = client.get::<Metadata<Secret>>(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_resource_that_is_known_at_run_time_only_is_followed() {
    let (_up, namespace) = (cluster(), "represented-dynamic");
    prepare(namespace);
    let secrets = Resource::new("", "v1", "secrets", "Secret");
    let client = client_of("admin.yaml").with_resource(secrets);
    let scope = Scope::namespace(namespace);
    let listed = client.list::<Dynamic>(scope.clone()).unwrap();
    assert!(listed.len() >= 2);
    let source = client.lister_watcher::<Dynamic>(scope);
    assert!(source.describe().contains("secrets"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let deadline = Clock::system().after(PATIENCE);
    informer.wait_until_synced(deadline).unwrap();
    let two = informer.store().get(namespace, "two").unwrap().unwrap();
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

/// A client whose hook adds up the bytes that its decoder passed over.
fn counting() -> (Client, Arc<AtomicUsize>) {
    let skipped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&skipped);
    let options = ClientOptions::default().metrics(Hook::new(move |metric| {
        if let ClientMetric::BodyDecoded { skipped_bytes, .. } = metric {
            counter.fetch_add(*skipped_bytes, Ordering::SeqCst);
        }
    }));
    let client = connect("admin.yaml", KubeconfigOptions::default(), options);
    (client, skipped)
}

/// A server that does not know the parameter ignores it: core types, definitions of custom
/// resources and the aggregator's own have a negotiation each. Then the managed fields come, and
/// the client passes over them.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn the_wish_for_no_managed_fields_is_no_reason_to_refuse() {
    let (_up, namespace) = (cluster(), "represented-lean");
    prepare(namespace);
    let (client, skipped) = counting();
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let mut sent = BTreeSet::new();
    for path in [
        "/api/v1/namespaces/represented-lean/secrets",
        "/apis/apps/v1/deployments",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/apiregistration.k8s.io/v1/apiservices",
    ] {
        for form in ["application/json", metadata] {
            let deadline = Clock::system().after(PATIENCE);
            let ask = |accept: &str| {
                let request = Request::get(path).header("Accept", accept);
                client.send(&request, deadline).unwrap()
            };
            let whole = ask(form);
            // Without a second choice: a server that refuses the parameter answers with 406.
            let lean = ask(&format!("{form};drop=metadata.managedFields"));
            assert_eq!(lean.status(), 200, "{path} {form}");
            let has = |response: &Response| {
                response
                    .body()
                    .windows(13)
                    .any(|word| word == b"managedFields")
            };
            if has(&whole) {
                sent.insert(has(&lean));
            }
            ask(&format!("{form};unheard=of"));
        }
    }
    assert_eq!(sent.len(), 1, "all negotiations agree");
    let ignores = sent.contains(&true);
    let version = std::env::var("KUBECACHE_CLUSTER_VERSION").unwrap();
    println!("{version} ignores the parameter: {ignores}");
    let is_skipped = || skipped.swap(0, Ordering::SeqCst) > 0;
    let scope = || Scope::namespace(namespace);
    let listed = client.list::<Secret>(scope()).unwrap();
    assert!(
        listed
            .iter()
            .all(|secret| secret.metadata.managed_fields.is_none())
    );
    assert_eq!(is_skipped(), ignores);
    let listed = client.list::<Metadata<Secret>>(scope()).unwrap();
    assert!(
        listed
            .iter()
            .all(|secret| secret.metadata.managed_fields.is_none())
    );
    assert_eq!(is_skipped(), ignores);
    let source = watcher::<Secret>(&client, scope());
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let deadline = Clock::system().after(PATIENCE);
    informer.wait_until_synced(deadline).unwrap();
    skipped.store(0, Ordering::SeqCst);
    write(namespace, "one", "watched");
    let is_watched = |secret: Option<&Secret>| {
        let data = secret.and_then(|secret| secret.data.as_ref());
        data.is_some_and(|data| data["value"].0 == b"watched")
    };
    let key = ObjectKey::new(namespace, "one");
    informer.wait_until(&key, is_watched, deadline).unwrap();
    assert_eq!(is_skipped(), ignores);
    // What may be written back keeps them, on every server.
    let own = client.get::<Secret>(&key).unwrap();
    assert!(own.metadata.managed_fields.is_some());
}
