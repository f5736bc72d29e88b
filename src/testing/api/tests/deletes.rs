//! Deletes: what holds an object back, what lets it go, and what watches are told of its end.

use serde_json::{Value, json};

use super::{Answer, MAPS, Watch, ask, ask_with, definition, get};
use crate::testing::{ApiServer, objects};

const MERGE: &str = "content-type: application/merge-patch+json\r\n";

fn patch(server: &ApiServer, path: &str, change: &Value) -> Answer {
    ask_with(server, &format!("PATCH {path}"), MERGE, &change.to_string())
}

fn delete(server: &ApiServer, path: &str) -> Answer {
    ask(server, &format!("DELETE {path}"), &Value::Null)
}

/// The next event: its type, its version, the finalizers and the data of its object.
fn event(watch: &mut Watch) -> (String, u64, Value, Value) {
    let mut event = watch.next().unwrap();
    let object = &mut event["object"];
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let version = version.parse().unwrap();
    let finalizers = object["metadata"]["finalizers"].take();
    let kind = event["type"].as_str().unwrap().to_owned();
    (kind, version, finalizers, event["object"]["data"].take())
}

/// A real server deletes what is stored. The state of the write that lets the object go is not.
#[test]
fn the_end_of_an_object_tells_of_its_last_stored_state() {
    let held = json!(["example.com/x"]);
    for is_update in [false, true] {
        let server = ApiServer::new().unwrap();
        let object = json!({"metadata": {"name": "a", "finalizers": held}, "data": {"k": "1"}});
        ask(&server, &format!("POST {MAPS}"), &object);
        let path = format!("{MAPS}/a");
        let marked = delete(&server, &path).body;
        let version = server.version();
        let from = format!("{MAPS}?watch=1&resourceVersion={version}");
        let mut watch = Watch::open(&server, &from);
        let change = json!({"metadata": {"finalizers": null}, "data": {"k": "2"}});
        let answer = if is_update {
            let mut next = marked.clone();
            next["metadata"]["finalizers"] = Value::Null;
            next["data"] = json!({"k": "2"});
            ask(&server, &format!("PUT {path}"), &next)
        } else {
            patch(&server, &path, &change)
        };
        assert_eq!(answer.status, 200, "{}", answer.body);
        let metadata = &answer.body["metadata"];
        assert_eq!(answer.body["data"], json!({"k": "2"}));
        assert!(metadata.get("finalizers").is_none(), "{metadata}");
        assert_eq!(metadata["resourceVersion"], version.to_string());
        let expected = (
            "DELETED".to_owned(),
            version + 1,
            held.clone(),
            json!({"k": "1"}),
        );
        assert_eq!(event(&mut watch), expected);
        assert_eq!(get(&server, &path).status, 404);
    }
}

#[test]
fn the_end_of_a_definition_tells_of_its_last_stored_state() {
    let server = ApiServer::new().unwrap();
    server.apply_value(&definition(&["v1"])).unwrap();
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let from = format!("{all}?watch=1&resourceVersion={}", server.version());
    let mut watch = Watch::open(&server, &from);
    delete(&server, &format!("{all}/racks.example.com"));
    let held = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    for kind in ["MODIFIED", "DELETED"] {
        let (found, _, finalizers, _) = event(&mut watch);
        assert_eq!((&*found, &finalizers), (kind, &held));
    }
}

#[test]
fn a_write_to_a_namespace_that_goes_does_not_end_it_before_its_objects() {
    let server = ApiServer::new().unwrap();
    let mut map = objects::config_map("shop", "a", "", &[]);
    map.metadata.finalizers = Some(vec!["example.com/x".to_owned()]);
    server.create(&map).unwrap();
    let (shop, map) = (
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/shop/configmaps/a",
    );
    delete(&server, shop);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(patch(&server, shop, &labels).status, 200);
    assert_eq!(
        (get(&server, shop).status, get(&server, map).status),
        (200, 200)
    );
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, map, &free).status, 200);
    assert_eq!(
        (get(&server, shop).status, get(&server, map).status),
        (404, 404)
    );
}
