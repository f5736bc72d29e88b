//! Creates, updates and patches: what the server makes of their objects, and what it refuses.

use serde_json::{Value, json};

use super::{MAPS, ask, ask_with, get};
use crate::testing::ApiServer;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn content_type(kind: &str) -> String {
    format!("content-type: application/{kind}\r\n")
}

/// `stringData` counts over `data`, and is nowhere to be read.
#[test]
fn a_secret_keeps_its_texts_as_data_in_every_write() {
    let server = ApiServer::new().unwrap();
    let texts = json!({"a": "b"});
    let other = json!({"a": "eA==", "c": "ZA=="});
    let path = format!("{SECRETS}/s");
    let check = |body: &Value, expected: &Value, told: &str| {
        assert!(body.get("stringData").is_none(), "{told}: {body}");
        assert_eq!(&body["data"], expected, "{told}");
        assert_eq!(&get(&server, &path).body["data"], expected, "{told}");
    };
    let alone = json!({"a": "Yg=="});
    let both = json!({"a": "Yg==", "c": "ZA=="});
    for (data, expected) in [
        (Value::Null, &alone),
        (json!({}), &alone),
        (other.clone(), &both),
    ] {
        let object = json!({"metadata": {"name": "s"}, "data": data, "stringData": texts});
        let told = object.to_string();
        let made = ask(&server, &format!("POST {SECRETS}"), &object);
        check(&made.body, expected, &told);
        let first = json!({"metadata": {"name": "s"}, "data": {"z": "eg=="}});
        let reset = || ask(&server, &format!("PUT {path}"), &first);
        reset();
        let put = ask(&server, &format!("PUT {path}"), &object);
        check(&put.body, expected, &told);
        for kind in ["merge-patch+json", "strategic-merge-patch+json"] {
            reset();
            let change = json!({"data": data, "stringData": texts}).to_string();
            let head = format!("PATCH {path}");
            let patched = ask_with(&server, &head, &content_type(kind), &change);
            let mut expected = expected.clone();
            if !data.is_null() {
                expected["z"] = json!("eg==");
            }
            check(&patched.body, &expected, &format!("{kind} {change}"));
        }
        reset();
        let change = json!([{"op": "add", "path": "/data", "value": data},
            {"op": "add", "path": "/stringData", "value": texts}]);
        let kind = content_type("json-patch+json");
        let patched = ask_with(
            &server,
            &format!("PATCH {path}"),
            &kind,
            &change.to_string(),
        );
        check(&patched.body, expected, &change.to_string());
        ask(&server, &format!("DELETE {path}"), &Value::Null);
    }
    let numbers = json!({"metadata": {"name": "s"}, "stringData": {"a": 1}});
    let refused = ask(&server, &format!("POST {SECRETS}"), &numbers);
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
fn data_with_nothing_in_it_is_not_written() {
    let server = ApiServer::new().unwrap();
    for (path, field) in [(SECRETS, "data"), (MAPS, "data"), (MAPS, "binaryData")] {
        for nothing in [Value::Null, json!({})] {
            let object = json!({"metadata": {"generateName": "a-"}, field: nothing});
            let made = ask(&server, &format!("POST {path}"), &object).body;
            assert!(made.get(field).is_none(), "{made}");
        }
    }
}

fn owner(change: &Value) -> Value {
    let mut owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    for (field, value) in change.as_object().unwrap() {
        owner[field] = value.clone();
    }
    owner
}

#[test]
fn owners_that_no_object_can_have_are_refused() {
    let server = ApiServer::new().unwrap();
    let object = json!({"metadata": {"name": "b"}});
    ask(&server, &format!("POST {MAPS}"), &object);
    let event = owner(&json!({"kind": "Event", "blockOwnerDeletion": true}));
    let event_text = "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"a\",\"uid\":\"u\",\
        \"blockOwnerDeletion\":true}";
    let one = owner(&json!({"controller": true}));
    let one_text = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"a\",\"uid\":\"u\",\
        \"controller\":true}";
    let banned = "Invalid value: {EVENT}: /v1, Kind=Event is disallowed from being an owner";
    let banned = banned.replace("{EVENT}", event_text);
    let other = owner(&json!({"controller": true, "name": "b"}));
    let other_text = one_text.replace("\"a\"", "\"b\"");
    let twice = format!(
        "Invalid value: [{one_text},{other_text}]: Only one reference can have Controller set to \
         true. Found \"true\" in references for ConfigMap/a and ConfigMap/b"
    );
    let group = "must be <group>/<version> or <version>";
    let empty = "Required value: must not be empty";
    let rows = [
        (
            json!([owner(&json!({"apiVersion": ""}))]),
            "[0].apiVersion",
            empty.to_owned(),
        ),
        (
            json!([owner(&json!({"kind": null}))]),
            "[0].kind",
            empty.to_owned(),
        ),
        (
            json!([owner(&json!({})), owner(&json!({"name": ""}))]),
            "[1].name",
            empty.to_owned(),
        ),
        (
            json!([owner(&json!({"uid": ""}))]),
            "[0].uid",
            empty.to_owned(),
        ),
        (
            json!([owner(&json!({"apiVersion": "a/b/c"}))]),
            "[0].apiVersion",
            format!("Invalid value: \"a/b/c\": {group}"),
        ),
        (
            json!([owner(&json!({"apiVersion": "a/"}))]),
            "[0].apiVersion",
            format!("Invalid value: \"a/\": {group}"),
        ),
        (json!([event]), "[0]", banned),
        (json!([one, other]), "", twice),
    ];
    for (owners, field, why) in rows {
        let why = format!("ConfigMap \"b\" is invalid: metadata.ownerReferences{field}: {why}");
        let object = json!({"metadata": {"name": "b", "ownerReferences": owners}});
        let put = ask(&server, &format!("PUT {MAPS}/b"), &object);
        let post = ask(&server, &format!("POST {MAPS}?dryRun=All"), &object);
        for answer in [put, post] {
            assert_eq!((answer.status, &answer.body["message"]), (422, &json!(why)));
        }
    }
}

#[test]
fn owners_are_kept_once_if_they_have_the_type_of_owners() {
    let server = ApiServer::new().unwrap();
    let object = json!({"metadata": {"name": "b"}});
    ask(&server, &format!("POST {MAPS}"), &object);
    let good = json!([
        owner(&json!({"controller": true})),
        owner(&json!({"controller": true, "blockOwnerDeletion": null})),
        owner(&json!({"uid": "v", "controller": false})),
        owner(&json!({"uid": "w", "apiVersion": "apps/v1", "kind": "Event"})),
    ]);
    let object = json!({"metadata": {"name": "b", "ownerReferences": good}});
    let put = ask(&server, &format!("PUT {MAPS}/b"), &object);
    // The first one is named twice.
    let owners = put.body["metadata"]["ownerReferences"].as_array();
    assert_eq!((put.status, owners.map(Vec::len)), (200, Some(3)));
    for owners in [json!("a"), json!(["a"]), json!([owner(&json!({"uid": 1}))])] {
        let object = json!({"metadata": {"name": "b", "ownerReferences": owners}});
        let refused = ask(&server, &format!("PUT {MAPS}/b"), &object);
        assert_eq!(refused.status, 400, "{owners}: {}", refused.body);
    }
}

#[test]
fn a_null_among_texts_is_an_empty_text() {
    let server = ApiServer::new().unwrap();
    let texts = json!({"a": null});
    let metadata = json!({"name": "n", "labels": texts, "annotations": texts});
    let secret = json!({"metadata": metadata, "stringData": texts});
    let made = ask(&server, &format!("POST {SECRETS}"), &secret).body;
    let map = json!({"metadata": metadata, "data": texts});
    let map = ask(&server, &format!("POST {MAPS}"), &map).body;
    let empty = json!({"a": ""});
    for found in [
        &made["metadata"]["labels"],
        &made["metadata"]["annotations"],
        &made["data"],
        &map["data"],
    ] {
        assert_eq!(found, &empty);
    }
}
