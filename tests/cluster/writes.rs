//! Writes and streams at a real server: the programs of the docs, server-side apply, and the
//! subresources that have types of their own.

use std::io::{BufRead as _, BufReader};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Binding, ConfigMap, Event, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::Eviction;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, Patch, Request, WriteOptions};
use kubecache::object::{Object, ObjectKey, StoredObject};
use kubecache::{Dynamic, Error, Metadata};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::support::*;

/// A namespace that exists for these tests alone.
const NAMESPACE: &str = "writes";

/// A node of these tests alone, so that agents of other tests do not meet its pods.
const WRITES_NODE: &str = "writes-node";

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

/// When a wait that must fail ends.
fn soon_enough() -> Deadline {
    Clock::system().after(std::time::Duration::from_secs(2))
}

fn whole() -> WriteOptions {
    WriteOptions::default()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

fn of<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

/// An object of that name, with these fields.
fn named<K: DeserializeOwned>(name: &str, mut fields: Value) -> K {
    fields["metadata"] = json!({"name": name, "namespace": NAMESPACE});
    of(fields)
}

/// Creates what an earlier test may have created.
fn ensure<K: Object + Serialize>(client: &Client, object: &K) {
    match client.create(object, &whole(), soon()) {
        Err(error) if code(&error) == 409 => {}
        created => drop(created.unwrap()),
    }
}

fn code(error: &Error) -> u16 {
    error.status().unwrap().code()
}

fn prepare() -> Client {
    let client = client_of("admin.yaml");
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    ensure::<Namespace>(&client, &of(namespace));
    ensure::<ServiceAccount>(&client, &named("default", json!({})));
    client
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn an_object_is_written_as_the_server_has_it() {
    let _up = cluster();
    let client = prepare();
    drop(client.delete::<ConfigMap>(&key("web"), &Value::Null, &whole(), soon()));
    let map: ConfigMap = named("web", json!({"data": {"k": "1"}}));
    let created = client.create(&map, &whole(), soon()).unwrap();
    assert!(
        created.metadata.managed_fields.is_some(),
        "nothing is trimmed"
    );
    let exists = client.create(&map, &whole(), soon()).unwrap_err();
    assert_eq!(
        (code(&exists), exists.status().unwrap().reason_text()),
        (409, "AlreadyExists")
    );
    let edit = |map: &mut ConfigMap| map.data = Some([("k".into(), "2".into())].into());
    let edited = StoredObject::edited(std::sync::Arc::clone(&created), edit);
    let replaced = client.replace(&**edited, &whole(), soon()).unwrap();
    assert_eq!(replaced.data, edited.data);
    let stale = client.replace(&**created, &whole(), soon()).unwrap_err();
    assert_eq!(
        (code(&stale), stale.status().unwrap().reason_text()),
        (409, "Conflict")
    );

    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "3"}});
    let apply = Patch::Apply(apply);
    let manager = whole().query("fieldManager", "applier");
    let maps = client.with_resource(ConfigMap::resource());
    let applying =
        |options: &WriteOptions| maps.patch::<Dynamic>(&key("web"), &apply, options, soon());
    assert_eq!(
        code(&applying(&manager).unwrap_err()),
        409,
        "another manager owns the field"
    );
    let applied = applying(&manager.query("force", "true")).unwrap();
    assert_eq!(applied.field::<&str>("/data/k").unwrap(), Some("3"));

    let delete = |how: Value| client.delete::<ConfigMap>(&key("web"), &how, &whole(), soon());
    let other = delete(json!({"preconditions": {"uid": "another"}})).unwrap_err();
    assert_eq!(code(&other), 409);
    delete(json!({"preconditions": {"uid": created.uid()}})).unwrap();
    assert!(delete(Value::Null).unwrap_err().is_not_found());
    let mut odd = map;
    odd.metadata.name = Some("No Name".to_owned());
    assert_eq!(
        code(&client.create(&odd, &whole(), soon()).unwrap_err()),
        422
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn an_event_a_status_and_a_note_are_written() {
    let _up = cluster();
    let client = prepare();
    let event = json!({"metadata": {"generateName": "web-0-", "namespace": NAMESPACE},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "web-0"},
        "reason": "Rotated", "type": "Normal"});
    let event = client
        .create::<Event>(&of(event), &whole(), soon())
        .unwrap();
    assert!(event.metadata.name.as_ref().unwrap().starts_with("web-0-"));

    let name = WRITES_NODE;
    ensure::<Node>(&client, &of(json!({"metadata": {"name": name}})));
    let node = ObjectKey::new("", name);
    let rack = Patch::Merge(json!({"metadata": {"annotations": {"example.com/rack": "7"}}}));
    let noted = client
        .patch::<Metadata<Node>>(&node, &rack, &whole(), soon())
        .unwrap();
    assert_eq!(noted.name(), name);
    let ready = json!({"type": "RackReady", "status": "True", "reason": "InPlace"});
    let ready = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    let status = whole().subresource("status");
    let node = client
        .patch::<Node>(&node, &ready, &status, soon())
        .unwrap();
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "RackReady")
    );
    assert_eq!(
        node.metadata.annotations.as_ref().unwrap()["example.com/rack"],
        "7"
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn tokens_bindings_and_evictions_have_types_of_their_own() {
    let _up = cluster();
    let client = prepare();
    let accounts = client.with_resource(ServiceAccount::resource());
    let asked: TokenRequest = named("default", json!({"spec": {"audiences": []}}));
    let given = accounts
        .create(&asked, &whole().subresource("token"), soon())
        .unwrap();
    assert!(given.status.as_ref().unwrap().token.is_some());

    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    ensure::<Pod>(&client, &named("web", pod));
    let pods = client.with_resource(Pod::resource());
    let target: Binding = named(
        "web",
        json!({"target": {"kind": "Node", "name": WRITES_NODE}}),
    );
    let bound = pods
        .create(&target, &whole().subresource("binding"), soon())
        .unwrap();
    assert_eq!(bound.key(), key("web"), "answered with a status alone");
    let bound = client.get::<Pod>(&key("web")).unwrap();
    assert_eq!(
        bound.spec.as_ref().unwrap().node_name.as_deref(),
        Some(WRITES_NODE)
    );
    let evicted: Eviction = named("web", json!({"deleteOptions": {"gracePeriodSeconds": 0}}));
    pods.create(&evicted, &whole().subresource("eviction"), soon())
        .unwrap();
    assert!(client.get::<Pod>(&key("web")).unwrap_err().is_not_found());
}

/// There is no kubelet, so no logs: a watch and the server's metrics are streams as well.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_response_is_read_as_a_stream() {
    let _up = cluster();
    let client = prepare();
    let map: ConfigMap = named("streamed", json!({}));
    drop(client.delete::<ConfigMap>(&map.key(), &Value::Null, &whole(), soon()));
    let watch = Request::get(format!("/api/v1/namespaces/{NAMESPACE}/configmaps"))
        .query("watch", "true")
        .query("fieldSelector", "metadata.name=streamed");
    let mut lines = BufReader::new(client.stream(&watch, soon()).unwrap()).lines();
    client.create(&map, &whole(), soon()).unwrap();
    let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        event.pointer("/object/metadata/name"),
        Some(&json!("streamed"))
    );
    drop(lines);
    let metrics = client.stream(&Request::get("/metrics"), soon()).unwrap();
    let lines = BufReader::new(metrics).lines();
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("apiserver_request_total"))
    );
    let version: Value = client
        .send(&Request::get("/version"), soon())
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(version["major"], "1");
}

/// `kubectl wait --for=create`, `--for=condition=Ready` and `--for=delete`, while the predicate
/// itself makes each next step happen.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_wait_follows_an_object_until_it_is_as_wanted() {
    let _up = cluster();
    let client = prepare();
    let at_once = json!({"gracePeriodSeconds": 0});
    let remove_pod = || client.delete::<Pod>(&key("waits"), &at_once, &whole(), soon());
    drop(remove_pod());
    let status = whole().subresource("status");
    let containers = json!({"containers": [{"name": "c", "image": "example.com/c"}]});
    let made: Pod = named("waits", json!({"spec": containers}));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let mut met = Vec::new();
    let is_ready = |pod: Option<&Pod>| {
        let Some(pod) = pod else {
            met.push("absent");
            client.create(&made, &whole(), soon()).unwrap();
            return false;
        };
        let conditions = pod.status.iter().flat_map(|status| &status.conditions);
        let mut conditions = conditions.flatten();
        let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        met.push(if is_ready { "ready" } else { "made" });
        if !is_ready {
            let patch = Patch::Strategic(ready.clone());
            client
                .patch::<Pod>(&key("waits"), &patch, &status, soon())
                .unwrap();
        }
        is_ready
    };
    let pod = client.wait_until(&key("waits"), is_ready, soon()).unwrap();
    assert!(pod.is_some());
    assert_eq!(met, ["absent", "made", "ready"]);

    let mut removed = 0;
    let is_gone = |pod: Option<&Pod>| {
        if pod.is_some() && removed == 0 {
            removed += 1;
            remove_pod().unwrap();
        }
        pod.is_none()
    };
    let gone = client.wait_until(&key("waits"), is_gone, soon()).unwrap();
    assert!(gone.is_none() && removed == 1);
}

/// `kubectl rollout status`, and the error of a wait for what does not come.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_wait_follows_a_rollout() {
    let _up = cluster();
    let client = prepare();
    let status = whole().subresource("status");
    let containers = json!({"containers": [{"name": "c", "image": "example.com/c"}]});
    drop(client.delete::<Deployment>(&key("waits"), &Value::Null, &whole(), soon()));
    let labels = json!({"app": "waits"});
    let template = json!({"metadata": {"labels": labels}, "spec": containers});
    let selector = json!({"matchLabels": labels});
    let spec = json!({"replicas": 2, "selector": selector, "template": template});
    let rollout: Deployment = named("waits", json!({"spec": spec}));
    client.create(&rollout, &whole(), soon()).unwrap();
    let mut available = 0;
    let is_rolled_out = |it: Option<&Deployment>| {
        let Some(status_of) = it.and_then(|it| it.status.as_ref()) else {
            return false;
        };
        if status_of.available_replicas == Some(2) {
            return true;
        }
        available += 1;
        let counts = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
            "readyReplicas": available, "availableReplicas": available});
        let patch = Patch::Merge(json!({"status": counts}));
        client
            .patch::<Deployment>(&key("waits"), &patch, &status, soon())
            .unwrap();
        false
    };
    let done = client.wait_until(&key("waits"), is_rolled_out, soon());
    assert!(done.unwrap().is_some());
    assert_eq!(available, 2);

    let never = client.wait_until::<Deployment>(&key("waits"), |it| it.is_none(), soon_enough());
    let told = never.unwrap_err().to_string();
    assert!(told.contains("last seen version "), "{told}");
}
