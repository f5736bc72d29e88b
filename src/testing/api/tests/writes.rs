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
