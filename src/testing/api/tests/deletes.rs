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

const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// The server collects no garbage, so that an object which waits for that would never go.
#[test]
fn a_policy_marks_the_object_and_no_dependent_holds_it_back() {
    let server = ApiServer::new().unwrap();
    let orphan = Some("orphan");
    let foreground = Some("foregroundDeletion");
    let rows = [
        ("", json!({"propagationPolicy": "Foreground"}), foreground),
        ("", json!({"propagationPolicy": "Orphan"}), orphan),
        ("", json!({"propagationPolicy": "Background"}), None),
        ("", json!({"orphanDependents": true}), orphan),
        ("", json!({"orphanDependents": false}), None),
        ("?propagationPolicy=Foreground", Value::Null, foreground),
        ("?orphanDependents=", Value::Null, orphan),
        ("", Value::Null, None),
    ];
    for (query, options, expected) in rows {
        let told = format!("{query} {options}");
        ask(
            &server,
            &format!("POST {MAPS}"),
            &json!({"metadata": {"name": "a"}}),
        );
        let from = format!("{MAPS}?watch=1&resourceVersion={}", server.version());
        let mut watch = Watch::open(&server, &from);
        let path = format!("{MAPS}/a");
        let deleted = ask(&server, &format!("DELETE {path}{query}"), &options);
        assert_eq!(deleted.status, 200, "{told}");
        let metadata = &deleted.body["metadata"];
        if let Some(finalizer) = expected {
            assert_eq!(metadata["finalizers"], json!([finalizer]), "{told}");
            assert!(metadata["deletionTimestamp"].is_string(), "{told}");
            assert_eq!(metadata["deletionGracePeriodSeconds"], 0, "{told}");
            let (kind, _, finalizers, _) = event(&mut watch);
            assert_eq!(
                (&*kind, finalizers),
                ("MODIFIED", json!([finalizer])),
                "{told}"
            );
        } else {
            assert_eq!(deleted.body["status"], "Success", "{told}");
        }
        let (kind, _, finalizers, _) = event(&mut watch);
        let left = expected.map_or(Value::Null, |one| json!([one]));
        assert_eq!((&*kind, finalizers), ("DELETED", left), "{told}");
        assert_eq!(get(&server, &path).status, 404, "{told}");
    }
}

#[test]
fn a_policy_leaves_the_other_finalizers_and_the_grace_of_an_object() {
    let server = ApiServer::new().unwrap();
    let policy = |policy: &str| json!({"propagationPolicy": policy});
    let object = |finalizers: &[&str]| json!({"metadata": {"name": "a", "finalizers": finalizers}});
    let path = format!("{MAPS}/a");
    let finalizers = |answer: &Answer| answer.body["metadata"]["finalizers"].clone();

    // A dry run answers as if, and changes nothing.
    ask(&server, &format!("POST {MAPS}"), &object(&["x.io/a"]));
    let dry = format!("DELETE {path}?dryRun=All&propagationPolicy=Foreground");
    let both = json!(["x.io/a", "foregroundDeletion"]);
    assert_eq!(finalizers(&ask(&server, &dry, &Value::Null)), both);
    assert_eq!(finalizers(&get(&server, &path)), json!(["x.io/a"]));

    let deleted = ask(&server, &format!("DELETE {path}"), &policy("Foreground"));
    assert_eq!(finalizers(&deleted), both);
    let held = get(&server, &path);
    assert_eq!(finalizers(&held), json!(["x.io/a"]));
    // Another delete changes its policy, and nothing else.
    assert_eq!(delete(&server, &path).body, held.body);
    assert_eq!(get(&server, &path).body, held.body);
    let orphaned = ask(&server, &format!("DELETE {path}"), &policy("Orphan"));
    assert_eq!(finalizers(&orphaned), json!(["x.io/a", "orphan"]));
    let marks = [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ];
    for field in marks {
        let [before, now] = [&held, &orphaned].map(|answer| &answer.body["metadata"][field]);
        assert_eq!(before, now, "{field}");
    }
    patch(&server, &path, &json!({"metadata": {"finalizers": null}}));
    assert_eq!(get(&server, &path).status, 404);

    // A policy that the object brings counts if the delete names none.
    ask(&server, &format!("POST {MAPS}"), &object(&["orphan"]));
    assert_eq!(finalizers(&delete(&server, &path)), json!(["orphan"]));
    assert_eq!(get(&server, &path).status, 404);
    ask(&server, &format!("POST {MAPS}"), &object(&["orphan"]));
    let deleted = ask(&server, &format!("DELETE {path}"), &policy("Background"));
    assert_eq!(deleted.body["status"], "Success");

    let pod = objects::pod("default", "web", "node-1", &[], &[]);
    server.create(&pod).unwrap();
    let path = format!("{PODS}/web");
    let deleted = ask(&server, &format!("DELETE {path}"), &policy("Foreground"));
    assert_eq!(finalizers(&deleted), json!(["foregroundDeletion"]));
    assert_eq!(deleted.body["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(finalizers(&get(&server, &path)), Value::Null);
    let now = format!("DELETE {path}?gracePeriodSeconds=0");
    assert_eq!(ask(&server, &now, &Value::Null).status, 200);
    assert_eq!(get(&server, &path).status, 404);
}

#[test]
fn some_kinds_have_a_policy_of_their_own() {
    let server = ApiServer::new().unwrap();
    let events = "/api/v1/namespaces/default/events";
    let rows = [
        (JOBS, "", json!(["orphan"])),
        (JOBS, "?propagationPolicy=Background", Value::Null),
        (events, "?propagationPolicy=Foreground", Value::Null),
    ];
    for (all, query, expected) in rows {
        ask(
            &server,
            &format!("POST {all}"),
            &json!({"metadata": {"name": "a"}}),
        );
        let mut deleted = delete(&server, &format!("{all}/a{query}"));
        let found = deleted.body["metadata"]["finalizers"].take();
        assert_eq!(found, expected, "{all}{query}");
        assert_eq!(
            get(&server, &format!("{all}/a")).status,
            404,
            "{all}{query}"
        );
    }
    // The objects of a namespace go with it, whatever their policy.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": "a", "finalizers": ["orphan"]}});
    server.apply_value(&job).unwrap();
    let shop = "/api/v1/namespaces/shop";
    let deleted = delete(&server, &format!("{shop}?propagationPolicy=Foreground"));
    let held = json!(["foregroundDeletion"]);
    assert_eq!(deleted.body["metadata"]["finalizers"], held);
    assert_eq!(get(&server, shop).status, 404);
}
