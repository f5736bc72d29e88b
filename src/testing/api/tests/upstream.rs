//! Rules of kube-apiservers by which tests of clients would pass or fail wrongly.

use std::io::Read as _;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::{
    AccessRule, Answer, MAPS, Watch, ask, ask_with, config_map, definition, get, send, soon,
};
use crate::testing::{Answer as RecordedAnswer, ApiServer, Exchange, Recording, objects};

const MERGE: &str = "content-type: application/merge-patch+json\r\n";
const STRATEGIC: &str = "content-type: application/strategic-merge-patch+json\r\n";

fn patch(server: &ApiServer, kind: &str, path: &str, change: &Value) -> Answer {
    ask_with(server, &format!("PATCH {path}"), kind, &change.to_string())
}

/// The names of the objects of a list, and whether it goes on.
fn names(answer: &Answer) -> (Vec<&str>, bool) {
    let items = answer.body["items"].as_array().unwrap().iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap());
    let goes_on = answer.body["metadata"]["continue"].is_string();
    (names.collect(), goes_on)
}

fn with_maps(names: &[&str]) -> ApiServer {
    let server = ApiServer::new().unwrap();
    for name in names {
        let mut object = config_map(name, "1");
        object.metadata.labels = Some([("n".to_owned(), (*name).to_owned())].into());
        server.create(&object).unwrap();
    }
    server
}

#[test]
fn a_delete_takes_its_options_from_its_body_or_else_from_its_parameters() {
    let server = with_maps(&["a"]);
    let delete = |path: &str, body: &Value| ask(&server, &format!("DELETE {MAPS}{path}"), body);
    let is_there = || get(&server, &format!("{MAPS}/a")).status == 200;
    assert_eq!(delete("/a", &json!({"dryRun": ["All"]})).status, 200);
    assert_eq!(delete("", &json!({"dryRun": ["All"]})).status, 200);
    assert_eq!(delete("/a?dryRun=All", &Value::Null).status, 200);
    assert!(is_there());
    let rows = [
        ("/a", json!({"dryRun": ["All", "Some"]}), 422),
        ("/a?dryRun=Some", Value::Null, 422),
        ("?dryRun=Some", Value::Null, 422),
        ("/a", json!({"propagationPolicy": "Never"}), 422),
        ("/a?propagationPolicy=Never", Value::Null, 422),
        (
            "/a",
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            422,
        ),
        ("/a", json!({"dryRun": "All"}), 400),
        ("/a", json!({"gracePeriodSeconds": "x"}), 400),
        ("/a", json!({"kind": "ConfigMap"}), 400),
        ("/a", json!([1]), 400),
    ];
    for (path, body, code) in rows {
        assert_eq!(delete(path, &body).status, code, "{path} {body}");
        assert!(is_there(), "{path} {body}");
    }
    // The body has it all, so that its parameters count for nothing.
    assert_eq!(delete("/a?dryRun=Some", &json!({})).status, 200);
    assert!(!is_there());
}

#[test]
fn a_write_with_an_unknown_kind_of_dry_run_is_refused() {
    let server = with_maps(&["a"]);
    let object = json!({"metadata": {"name": "a"}});
    let query = "dryRun=Some";
    let post = ask(&server, &format!("POST {MAPS}?{query}"), &object);
    let put = ask(&server, &format!("PUT {MAPS}/a?{query}"), &object);
    let merge = patch(&server, MERGE, &format!("{MAPS}/a?{query}"), &json!({}));
    for (answer, kind) in [(post, "Create"), (put, "Update"), (merge, "Patch")] {
        let why = format!(
            "{kind}Options.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
             supported values: \"All\""
        );
        assert_eq!((answer.status, &answer.body["message"]), (422, &json!(why)));
    }
}

/// Objects with lists of each sort.
fn with_lists() -> ApiServer {
    let server = ApiServer::new().unwrap();
    let apply = |object: Value| server.apply_value(&object).unwrap();
    apply(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    );
    apply(json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "default", "name": "s"},
        "imagePullSecrets": [{"name": "a"}], "secrets": [{"name": "a"}]}));
    apply(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default", "name": "p"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}}}),
    );
    apply(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": "w"},
        "spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}],
            "containers": [{"name": "c", "image": "c"}]},
        "status": {"containerStatuses": [{"name": "a"}]}}));
    server
}

#[test]
fn a_strategic_patch_merges_the_lists_whose_types_say_so() {
    let server = with_lists();
    let (budgets, core) = (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/api/v1",
    );
    let rows = [
        (
            "/nodes/n",
            "/spec/taints",
            json!([{"key": "b"}]),
            json!([{"key": "b"}]),
        ),
        (
            "/namespaces/default/serviceaccounts/s",
            "/imagePullSecrets",
            json!([{"name": "b"}]),
            json!([{"name": "b"}]),
        ),
        (
            "/namespaces/default/serviceaccounts/s",
            "/secrets",
            json!([{"name": "b"}]),
            json!([{"name": "b"}, {"name": "a"}]),
        ),
        (
            "/namespaces/default/pods/w",
            "/spec/schedulingGates",
            json!([{"name": "a", "$patch": "delete"}]),
            json!([{"name": "b"}]),
        ),
        (
            "/namespaces/default/pods/w/status",
            "/status/containerStatuses",
            json!([{"name": "b"}]),
            json!([{"name": "b"}]),
        ),
        (
            "",
            "/spec/selector",
            json!({"matchLabels": {"c": "d"}}),
            json!({"matchLabels": {"c": "d"}}),
        ),
    ];
    for (path, field, value, expected) in rows {
        let path = match path {
            "" => format!("{budgets}/p"),
            path => format!("{core}{path}"),
        };
        let names = field.split('/').skip(1).collect::<Vec<_>>();
        let nested = names
            .iter()
            .rev()
            .fold(value, |value, name| json!({*name: value}));
        let patched = patch(&server, STRATEGIC, &path, &nested);
        assert_eq!(
            patched.body.pointer(field),
            Some(&expected),
            "{path} {field}"
        );
    }
}

#[test]
fn a_strategic_patch_that_names_no_item_is_refused() {
    let server = ApiServer::new().unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "default", "name": "s"}, "secrets": [{"name": "a"}]});
    server.apply_value(&account).unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/s";
    let rows = [
        (json!({"secrets": [{"namespace": "b"}]}), 500),
        (
            json!({"secrets": [{"namespace": "b", "$patch": "delete"}]}),
            500,
        ),
        (json!({"secrets": [{"name": "b", "$patch": "drop"}]}), 500),
        (json!({"secrets": ["b"]}), 500),
        (
            json!({"$setElementOrder/secrets": [{"namespace": "b"}]}),
            500,
        ),
        (json!({"$patch": "drop"}), 500),
        (
            json!({"metadata": {"$retainKeys": ["name"], "labels": {"a": "b"}}}),
            400,
        ),
    ];
    for (body, code) in rows {
        let refused = patch(&server, STRATEGIC, path, &body);
        assert_eq!(refused.status, code, "{body}: {}", refused.body);
    }
    assert_eq!(get(&server, path).body["secrets"], account["secrets"]);
}

/// Each row goes on from the one before; a real server gave these answers.
#[test]
fn new_items_of_a_strategic_patch_come_where_the_server_puts_them() {
    let server = with_maps(&["m"]);
    let path = format!("{MAPS}/m");
    let rows = [
        (json!({"finalizers": ["x/a", "x/b"]}), "a b"),
        (json!({"finalizers": ["x/c"]}), "c a b"),
        (json!({"finalizers": ["x/b", "x/d", "x/c"]}), "a b d c"),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["x/b"]}),
            "a d c",
        ),
        (
            json!({"$setElementOrder/finalizers": ["x/a", "x/e"], "finalizers": ["x/e"]}),
            "a e d c",
        ),
        (
            json!({"$setElementOrder/finalizers": ["x/c", "x/a"]}),
            "e d c a",
        ),
    ];
    for (metadata, expected) in rows {
        let patched = patch(&server, STRATEGIC, &path, &json!({"metadata": metadata}));
        let found = patched.body["metadata"]["finalizers"].to_string();
        let found = found.replace(['[', ']', '"'], "").replace("x/", "");
        assert_eq!(found.replace(',', " "), expected, "{metadata}");
    }
}

#[test]
fn a_generation_counts_what_its_kind_says() {
    let server = ApiServer::new().unwrap();
    server.apply_value(&definition(&["v1"])).unwrap();
    let object = |api_version: &str, kind: &str| {
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"namespace": "default", "name": "a"}});
        server.apply_value(&object).unwrap();
    };
    object("example.com/v1", "Rack");
    object("apps/v1", "Deployment");
    object("discovery.k8s.io/v1", "EndpointSlice");
    let rows = [
        (
            "example.com/v1",
            "racks/a",
            json!({"status": {"up": true}}),
            2,
        ),
        (
            "apps/v1",
            "deployments/a",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            2,
        ),
        (
            "apps/v1",
            "deployments/a",
            json!({"metadata": {"labels": {"a": "b"}}}),
            2,
        ),
        (
            "apps/v1",
            "deployments/a/status",
            json!({"metadata": {"annotations": {"a": "c"}}}),
            2,
        ),
        (
            "discovery.k8s.io/v1",
            "endpointslices/a",
            json!({"metadata": {"annotations": {"a": "b"}}}),
            1,
        ),
        (
            "discovery.k8s.io/v1",
            "endpointslices/a",
            json!({"metadata": {"labels": {"a": "b"}}}),
            2,
        ),
    ];
    for (group, name, change, expected) in rows {
        let path = format!("/apis/{group}/namespaces/default/{name}");
        let patched = patch(&server, MERGE, &path, &change).body;
        assert_eq!(
            patched["metadata"]["generation"], expected,
            "{name} {change}"
        );
    }
}

#[test]
fn a_rule_for_names_allows_no_delete_of_a_collection() {
    let server = ApiServer::builder()
        .token("t", "bob", &[])
        .rule(AccessRule::for_user("bob").names(&["a"]))
        .start()
        .unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let code = |method: &str, query: &str| {
        let head = format!("{method} {MAPS}?fieldSelector=metadata.name%3Da{query}");
        ask_with(&server, &head, "authorization: Bearer t\r\n", "").status
    };
    assert_eq!(code("GET", ""), 200);
    assert_eq!(code("GET", "&watch=1&timeoutSeconds=1"), 200);
    assert_eq!(code("DELETE", ""), 403);
}

#[test]
fn a_list_at_zero_comes_whole() {
    let server = with_maps(&["a", "b", "c"]);
    for query in ["", "&resourceVersionMatch=NotOlderThan", "&labelSelector=n"] {
        let list = get(&server, &format!("{MAPS}?limit=1&resourceVersion=0{query}"));
        assert_eq!(names(&list), (vec!["a", "b", "c"], false), "{query}");
    }
    let first = get(&server, &format!("{MAPS}?limit=1"));
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let next = format!("{MAPS}?limit=1&resourceVersion=0&continue={token}");
    assert_eq!(names(&get(&server, &next)), (vec!["b"], true));
}

#[test]
fn a_page_goes_on_while_objects_are_left_selected_or_not() {
    let server = with_maps(&["a", "b", "c", "d"]);
    server
        .create(&objects::config_map("zoo", "z", "", &[]))
        .unwrap();
    let rows = [
        ("limit=1&labelSelector=n%3Da", &["a"][..], true),
        ("limit=2&labelSelector=n%3Da", &["a"], false),
        ("limit=1&labelSelector=n%3Dd", &["d"], false),
        (
            "limit=1&fieldSelector=metadata.namespace%3Ddefault",
            &["a"],
            true,
        ),
        (
            "limit=4&fieldSelector=metadata.namespace%3Ddefault",
            &["a", "b", "c", "d"],
            false,
        ),
        // The server reads that object alone.
        ("limit=1&fieldSelector=metadata.name%3Da", &["a"], false),
    ];
    for (query, expected, goes_on) in rows {
        let list = get(&server, &format!("{MAPS}?{query}"));
        assert_eq!(names(&list), (expected.to_vec(), goes_on), "{query}");
        assert!(
            list.body["metadata"].get("remainingItemCount").is_none(),
            "{query}"
        );
    }
    let first = get(&server, &format!("{MAPS}?limit=1&labelSelector=n%3Da"));
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let next = format!("{MAPS}?limit=1&labelSelector=n%3Da&continue={token}");
    assert_eq!(names(&get(&server, &next)), (vec![], false));
}

#[test]
fn a_collection_is_deleted_in_pages_by_the_options_of_a_list() {
    let server = with_maps(&["a", "b", "c", "d"]);
    let delete = |query: &str| ask(&server, &format!("DELETE {MAPS}?{query}"), &Value::Null);
    for query in ["resourceVersionMatch=Exact", "sendInitialEvents=true"] {
        assert_eq!(delete(query).status, 422, "{query}");
    }
    assert_eq!(delete("resourceVersion=99999").status, 504);
    let first = delete("limit=1");
    assert_eq!(names(&first), (vec!["a"], true));
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        names(&delete(&format!("limit=2&continue={token}"))),
        (vec!["b", "c"], true)
    );
    assert_eq!(names(&get(&server, MAPS)), (vec!["d"], false));
    assert_eq!(names(&delete("")), (vec!["d"], false));
    assert_eq!(names(&get(&server, MAPS)), (vec![], false));
}

#[test]
fn a_plain_watch_marks_the_end_of_its_initial_events() {
    let server = with_maps(&["a"]);
    let version = server.version();
    for query in ["", "&resourceVersion=", "&resourceVersion=0"] {
        let path = format!("{MAPS}?watch=1{query}");
        let mut watch = Watch::open(&server, &format!("{path}&allowWatchBookmarks=1"));
        assert_eq!(watch.told(), format!("ADDED a@{version}"), "{query}");
        let bookmark = watch.next().unwrap();
        let metadata = &bookmark["object"]["metadata"];
        assert_eq!(
            metadata["annotations"]["k8s.io/initial-events-end"], "true",
            "{query}"
        );
        // Without bookmarks there is nothing to mark it with.
        let mut silent = Watch::open(&server, &format!("{path}&timeoutSeconds=1"));
        assert_eq!(silent.told(), format!("ADDED a@{version}"), "{query}");
        assert_eq!(silent.told(), "end", "{query}");
    }
}

#[test]
fn metadata_alone_has_a_form_for_lists_and_one_for_objects() {
    let server = with_maps(&["a", "b"]);
    let code = |head: &str, form: &str, body: &str| {
        let accept = format!("accept: application/json;as={form};v=v1;g=meta.k8s.io\r\n");
        ask_with(&server, head, &format!("{accept}{MERGE}"), body).status
    };
    let (of_one, of_list) = ("PartialObjectMetadata", "PartialObjectMetadataList");
    let one = format!("{MAPS}/a");
    assert_eq!(code(&format!("GET {MAPS}"), of_list, ""), 200);
    assert_eq!(code(&format!("GET {MAPS}"), of_one, ""), 406);
    assert_eq!(code(&format!("GET {one}"), of_one, ""), 200);
    assert_eq!(code(&format!("GET {one}"), of_list, ""), 406);
    // What it refuses is the answer, and the write is done.
    assert_eq!(
        code(&format!("PATCH {one}"), of_list, r#"{"data":{"k":"2"}}"#),
        406
    );
    assert_eq!(get(&server, &one).body["data"]["k"], "2");
    let watch = |form: &str| {
        let accept = format!("accept: application/json;as={form};v=v1;g=meta.k8s.io\r\n");
        let head = format!("GET {MAPS}?watch=1&timeoutSeconds=1");
        ask_with(&server, &head, &accept, "").body.to_string()
    };
    assert!(watch(of_one).contains("ADDED"));
    // A real server cannot write the first event, and says nothing.
    assert!(!watch(of_list).contains("ADDED"));
}

#[test]
fn a_definition_goes_after_the_last_of_its_objects() {
    let server = ApiServer::new().unwrap();
    server.apply_value(&definition(&["v1"])).unwrap();
    let racks = "/apis/example.com/v1/namespaces/default/racks";
    let rack = |name: &str, finalizers: &[&str]| {
        let object = json!({"kind": "Rack", "apiVersion": "example.com/v1",
            "metadata": {"name": name, "finalizers": finalizers}});
        ask(&server, &format!("POST {racks}"), &object).status
    };
    assert_eq!(
        (rack("held", &["example.com/x"]), rack("free", &[])),
        (201, 201)
    );
    let definition =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/racks.example.com".to_owned();
    let deleted = ask(&server, &format!("DELETE {definition}"), &Value::Null);
    let metadata = &deleted.body["metadata"];
    let cleanup = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(metadata["finalizers"], json!([cleanup]));
    assert!(metadata["deletionTimestamp"].is_string());
    let left = get(&server, racks);
    assert_eq!(names(&left), (vec!["held"], false));
    assert!(left.body["items"][0]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(rack("late", &[]), 403);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(
        patch(&server, MERGE, &format!("{racks}/held"), &free).status,
        200
    );
    assert_eq!(
        (get(&server, &definition).status, get(&server, racks).status),
        (404, 404)
    );
}

/// A watch that began early tells of later states than a list that came after it began.
#[test]
fn a_recording_ends_in_the_newest_state_of_each_object() {
    let state = |name: &str, version: &str, value: &str| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": value}, "metadata":
            {"namespace": "shop", "name": name, "resourceVersion": version}})
    };
    let event =
        |kind: &str, object: &Value| format!("{}\n", json!({"type": kind, "object": object}));
    let mut going = state("going", "9", "late");
    going["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
    going["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    going["metadata"]["finalizers"] = json!(["example.com/x"]);
    let watch = [
        event("MODIFIED", &state("changed", "7", "late")),
        event("DELETED", &state("gone", "8", "late")),
        event("MODIFIED", &going),
    ];
    let items: Vec<_> = ["changed", "gone", "going", "kept"]
        .map(|name| state(name, "5", "early"))
        .into();
    let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": "5"}});
    let path = "/api/v1/configmaps";
    let recording = Recording::new()
        .with(Exchange::get(
            &format!("{path}?watch=1"),
            RecordedAnswer::text(200, watch.concat()),
        ))
        .with(Exchange::get(
            path,
            RecordedAnswer::text(200, list.to_string()),
        ));
    let server = ApiServer::new().unwrap();
    server.load_recording(&recording).unwrap();
    let value = |name: &str| {
        let found = server.get::<ConfigMap>("shop", name).unwrap()?;
        found.data?.remove("k")
    };
    assert_eq!(value("changed").as_deref(), Some("late"));
    assert_eq!(value("gone"), None);
    assert_eq!(value("kept").as_deref(), Some("early"));
    let going = server.get::<ConfigMap>("shop", "going").unwrap().unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
}

#[test]
fn metadata_that_no_object_can_have_is_refused() {
    let server = with_maps(&["a"]);
    let long = "x".repeat(64);
    let large = "x".repeat(256 * 1024);
    let rows = [
        (json!({"labels": {"a b": ""}}), 422),
        (json!({"labels": {"a": "b c"}}), 422),
        (json!({"labels": {"a": long}}), 422),
        (json!({"labels": {"a": 1}}), 400),
        (json!({"labels": {"x.io/a": "b", "c": ""}}), 201),
        (json!({"annotations": {"a b": ""}}), 422),
        (json!({"annotations": {"X.io/a": "b c"}}), 201),
        (json!({"annotations": {"a": large}}), 422),
        (json!({"finalizers": ["a"]}), 422),
        (json!({"finalizers": ["x.io/a b"]}), 422),
        (json!({"finalizers": ["orphan", "foregroundDeletion"]}), 422),
        (json!({"finalizers": ["x.io/a", "kubernetes"]}), 201),
    ];
    for (mut metadata, code) in rows {
        let told = metadata.to_string().chars().take(80).collect::<String>();
        let change = json!({"metadata": metadata});
        let path = format!("{MAPS}/a?dryRun=All");
        let patched = patch(&server, MERGE, &path, &change);
        assert_eq!(
            patched.status,
            if code == 201 { 200 } else { code },
            "{told}"
        );
        metadata["name"] = json!("b");
        let made = json!({"metadata": metadata});
        let created = ask(&server, &format!("POST {MAPS}?dryRun=All"), &made);
        assert_eq!(created.status, code, "{told}: {}", created.body);
    }
}

/// A body would be taken for the next answer on the connection.
#[test]
fn an_answer_to_head_has_no_body() {
    let server = with_maps(&["a"]);
    for (path, code) in [("/healthz", 200), ("/version", 405), (MAPS, 405)] {
        let mut text = String::new();
        send(
            &server,
            &format!("HEAD {path}"),
            "connection: close\r\n",
            "",
        )
        .read_to_string(&mut text)
        .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
        assert!(
            head.contains("content-length: ") && body.is_empty(),
            "{path}: {body:?}"
        );
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_as_such() {
    let server = ApiServer::new().unwrap();
    let object = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(3 * 1024 * 1024)}});
    let refused = ask(&server, &format!("POST {MAPS}"), &object);
    let why = "Request entity too large: limit is 3145728";
    assert_eq!(
        (refused.status, &refused.body["message"]),
        (413, &json!(why))
    );
    assert!(server.wait_for_watches(soon(), |open| open == 0));
}
