//! The API server as clients see it: over its socket, and with the crate's own client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};

mod deletes;
mod options;
mod protocol;
mod upstream;
mod writes;

use super::{AccessRule, ApiResource, ApiServer};
use crate::ErrorKind;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::object::Resource;
use crate::testing::{Act, Fault, objects};

/// An answer with its body as JSON.
struct Answer {
    status: u16,
    headers: String,
    body: Value,
}

fn send(server: &ApiServer, head: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    write!(
        socket,
        "{head} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    BufReader::new(socket)
}

fn ask_with(server: &ApiServer, head: &str, headers: &str, body: &str) -> Answer {
    let headers = format!("connection: close\r\n{headers}");
    let mut text = Vec::new();
    send(server, head, &headers, body)
        .read_to_end(&mut text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let (headers, body) = text.split_once("\r\n\r\n").unwrap();
    Answer {
        status: headers.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.to_owned(),
        body: serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())),
    }
}

fn ask(server: &ApiServer, head: &str, body: &Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    ask_with(server, head, "", &body)
}

fn get(server: &ApiServer, path: &str) -> Answer {
    ask(server, &format!("GET {path}"), &Value::Null)
}

/// A running watch: its events one by one.
struct Watch(BufReader<TcpStream>);

impl Watch {
    fn open(server: &ApiServer, path: &str) -> Self {
        let mut stream = send(server, &format!("GET {path}"), "", "");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        Self(stream)
    }

    /// The next event; `None` at the end of the body.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 || line == "0\r\n" {
                return None;
            }
            // Other lines are the framing.
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    /// The next event as `TYPE name@version`.
    fn told(&mut self) -> String {
        self.next().map_or_else(
            || "end".to_owned(),
            |event| {
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str().unwrap_or("-");
                let version = object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or("-");
                format!("{} {name}@{version}", event["type"].as_str().unwrap())
            },
        )
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    objects::config_map("default", name, "", &[("k", value)])
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn soon() -> Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

#[test]
fn an_object_lives_as_clients_know_it() {
    let server = ApiServer::new().unwrap();
    let made = ask(
        &server,
        &format!("POST {MAPS}"),
        &json!({"metadata": {"name": "a"}}),
    );
    assert_eq!(made.status, 201);
    let metadata = &made.body["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert!(metadata["uid"].is_string() && metadata["creationTimestamp"].is_string());
    let again = ask(
        &server,
        &format!("POST {MAPS}"),
        &json!({"metadata": {"name": "a"}}),
    );
    assert_eq!(
        (again.status, &again.body["reason"]),
        (409, &json!("AlreadyExists"))
    );
    assert_eq!(again.body["message"], "configmaps \"a\" already exists");

    let mut changed = made.body.clone();
    changed["data"] = json!({"k": "v"});
    let updated = ask(&server, &format!("PUT {MAPS}/a"), &changed);
    assert_eq!(updated.status, 200);
    assert_eq!(updated.body["metadata"]["uid"], metadata["uid"]);
    changed["data"] = json!({"k": "w"});
    let late = ask(&server, &format!("PUT {MAPS}/a"), &changed);
    assert_eq!(
        (late.status, &late.body["reason"]),
        (409, &json!("Conflict"))
    );

    let patch = "content-type: application/merge-patch+json\r\n";
    let patched = ask_with(
        &server,
        &format!("PATCH {MAPS}/a"),
        patch,
        r#"{"data":{"l":"x"}}"#,
    );
    assert_eq!(patched.body["data"], json!({"k": "v", "l": "x"}));
    let unchanged = ask_with(&server, &format!("PATCH {MAPS}/a"), patch, "{}");
    assert_eq!(
        unchanged.body, patched.body,
        "a write that changes nothing makes no version"
    );

    let deleted = ask(&server, &format!("DELETE {MAPS}/a"), &Value::Null);
    assert_eq!(deleted.body["status"], "Success");
    assert_eq!(
        get(&server, &format!("{MAPS}/a")).body["message"],
        "configmaps \"a\" not found"
    );
}

#[test]
fn a_list_in_pages_is_of_one_version_until_that_is_compacted() {
    let server = ApiServer::new().unwrap();
    for name in ["a", "b", "c", "d"] {
        server.create(&config_map(name, "1")).unwrap();
    }
    let first = get(&server, &format!("{MAPS}?limit=2"));
    let metadata = &first.body["metadata"];
    assert_eq!(metadata["remainingItemCount"], 2);
    let names = |answer: &Answer| -> Vec<String> {
        let items = answer.body["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&first), ["a", "b"]);
    server.delete::<ConfigMap>("default", "c").unwrap();
    let token = metadata["continue"].as_str().unwrap();
    let next = format!("{MAPS}?limit=2&continue={token}");
    let second = get(&server, &next);
    assert_eq!(names(&second), ["c", "d"], "as it was at the first page");
    assert_eq!(
        second.body["metadata"]["resourceVersion"],
        metadata["resourceVersion"]
    );

    server.compact();
    let expired = get(&server, &next);
    assert_eq!(
        (expired.status, &expired.body["reason"]),
        (410, &json!("Expired"))
    );
    let token = expired.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_default();
    let rest = get(&server, &format!("{MAPS}?limit=2&continue={token}"));
    assert_eq!(names(&rest), ["d"], "the rest of the present state");
}

#[test]
fn a_list_has_the_version_that_was_asked_for() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let first = server.version();
    server.create(&config_map("b", "1")).unwrap();
    let count = |query: &str| {
        let answer = get(&server, &format!("{MAPS}?{query}"));
        (answer.status, answer.body["items"].as_array().map(Vec::len))
    };
    assert_eq!(
        count(&format!(
            "resourceVersion={first}&resourceVersionMatch=Exact"
        )),
        (200, Some(1))
    );
    assert_eq!(count(&format!("resourceVersion={first}")), (200, Some(2)));
    assert_eq!(count("resourceVersion=0"), (200, Some(2)));
    assert_eq!(count("resourceVersion=999999"), (504, None));
    assert_eq!(count("resourceVersion=x"), (400, None));
    assert_eq!(count("limit=x"), (400, None));
    server.compact();
    assert_eq!(
        count(&format!(
            "resourceVersion={first}&resourceVersionMatch=Exact"
        )),
        (410, None)
    );
}

#[test]
fn a_watch_tells_each_change_of_what_it_selects() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let version = server.version();
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&labelSelector=in%3Dyes");
    let mut watch = Watch::open(&server, &path);
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    let mut object = config_map("a", "1");
    object.metadata.labels = Some([("in".to_owned(), "yes".to_owned())].into());
    server.apply(&object).unwrap();
    server.apply(&config_map("b", "1")).unwrap();
    object.data = None;
    server.apply(&object).unwrap();
    server.apply(&config_map("a", "1")).unwrap();
    server.apply(&object).unwrap();
    server.delete::<ConfigMap>("default", "a").unwrap();
    let at = |ahead: u64| version + ahead;
    assert_eq!(watch.told(), format!("ADDED a@{}", at(1)));
    assert_eq!(watch.told(), format!("MODIFIED a@{}", at(3)));
    assert_eq!(watch.told(), format!("DELETED a@{}", at(4)));
    assert_eq!(watch.told(), format!("ADDED a@{}", at(5)));
    assert_eq!(watch.told(), format!("DELETED a@{}", at(6)));
    drop(watch);
    assert!(server.wait_for_watches(soon(), |open| open == 0));
}

#[test]
fn a_streamed_list_ends_with_its_bookmark() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let version = server.version();
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
        &allowWatchBookmarks=true";
    let mut watch = Watch::open(&server, &format!("{MAPS}?{query}"));
    assert_eq!(watch.told(), format!("ADDED a@{version}"));
    let bookmark = watch.next().unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["resourceVersion"], version.to_string());
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    server.create(&config_map("b", "1")).unwrap();
    assert_eq!(watch.told(), format!("ADDED b@{}", version + 1));
}

fn on_fake_clock() -> (FakeClock, ApiServer) {
    let fake = FakeClock::new();
    let server = ApiServer::builder().clock(Clock::from(fake.clone()));
    (fake, server.start().unwrap())
}

#[test]
fn bookmarks_and_time_outs_follow_the_clock() {
    let (fake, server) = on_fake_clock();
    let version = server.version();
    let query = format!("watch=1&resourceVersion={version}&allowWatchBookmarks=1");
    let mut watch = Watch::open(&server, &format!("{MAPS}?{query}&timeoutSeconds=90"));
    server
        .apply_value(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .unwrap();
    fake.wait_for_timer(Duration::from_secs(60));
    fake.advance(Duration::from_secs(60));
    assert_eq!(watch.told(), format!("BOOKMARK -@{}", version + 1));
    // The last one comes shortly before the end, so that the next watch begins late.
    fake.wait_for_timer(Duration::from_secs(28));
    fake.advance(Duration::from_secs(28));
    assert_eq!(watch.told(), format!("BOOKMARK -@{}", version + 1));
    fake.wait_for_timer(Duration::from_secs(2));
    fake.advance(Duration::from_secs(2));
    assert_eq!(watch.told(), "end");
}

#[test]
fn a_watch_of_some_seconds_has_a_bookmark_before_its_end() {
    let (fake, server) = on_fake_clock();
    let version = server.version();
    for (takes, timeout, expected) in [
        ("&allowWatchBookmarks=1", 3, true),
        ("&allowWatchBookmarks=1", 2, false),
        ("&allowWatchBookmarks=1", 1, false),
        ("", 3, false),
    ] {
        let query = format!("watch=1&resourceVersion={version}&timeoutSeconds={timeout}{takes}");
        let mut watch = Watch::open(&server, &format!("{MAPS}?{query}"));
        let end = if expected {
            fake.wait_for_timer(Duration::from_secs(timeout - 2));
            fake.advance(Duration::from_secs(timeout - 2));
            assert_eq!(watch.told(), format!("BOOKMARK -@{version}"), "{query}");
            2
        } else {
            timeout
        };
        fake.wait_for_timer(Duration::from_secs(end));
        fake.advance(Duration::from_secs(end));
        assert_eq!(watch.told(), "end", "{query}");
    }
}

#[test]
fn a_watch_of_heartbeats_is_open_until_the_server_ends_its_watches() {
    let (fake, server) = on_fake_clock();
    let every = Duration::from_secs(5);
    server.add_fault(Fault::new(Act::Heartbeats { every }));
    server.create(&config_map("a", "0")).unwrap();
    let backup = server.version();
    let ends: [fn(&ApiServer, u64); 3] = [
        |server, _| server.cut_watches(),
        |server, _| server.expire_watches(),
        |server, backup| server.restore(backup).unwrap(),
    ];
    for end in ends {
        let mut watch = Watch::open(&server, &format!("{MAPS}?watch=1&timeoutSeconds=3"));
        assert_eq!(server.open_watches(), 1);
        server.apply(&config_map("a", "1")).unwrap();
        fake.wait_for_timer(every);
        fake.advance(every);
        // One blank line in a chunk: neither an event, nor the end of the watch's time.
        let mut chunk = [0; 6];
        watch.0.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk, b"1\r\n\n\r\n");
        end(&server, backup);
        assert_eq!(watch.told(), "end");
        drop(watch);
        assert!(server.wait_for_watches(soon(), |open| open == 0));
    }
}

#[test]
fn a_version_expires_before_a_watch_and_in_the_middle_of_one() {
    let server = ApiServer::new().unwrap();
    let old = server.version();
    server.create(&config_map("a", "1")).unwrap();
    server.compact();
    let mut late = Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion={old}"));
    let event = late.next().unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (&event["object"]["code"], &event["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert_eq!(late.told(), "end");

    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=1"));
    assert!(watch.told().starts_with("ADDED a@"));
    server.expire_watches();
    assert_eq!(watch.next().unwrap()["object"]["code"], 410);
    assert_eq!(watch.told(), "end");
}

#[test]
fn an_open_watch_goes_on_over_a_compaction() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "0")).unwrap();
    let from = server.version();
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion={from}"));
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    for n in 0..3 {
        let name = format!("s{n}");
        server
            .apply(&objects::secret("default", &name, "", &[]))
            .unwrap();
    }
    // Changes of another kind leave a quiet watch at its position.
    server.compact();
    for n in 1..=50_u64 {
        // The watch may not have got the change yet when the history goes.
        server.apply(&config_map("a", &n.to_string())).unwrap();
        server.compact();
    }
    for n in 1..=50_u64 {
        assert_eq!(watch.told(), format!("MODIFIED a@{}", from + 3 + n));
    }
    let mut late = Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion={from}"));
    assert_eq!(late.next().unwrap()["object"]["code"], 410);
}

#[test]
fn a_restored_server_cuts_its_watches_and_goes_back() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let backup = server.version();
    server.create(&config_map("b", "1")).unwrap();
    let mut watch = Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion={backup}"));
    assert!(watch.told().starts_with("ADDED b@"));
    server.restore(backup).unwrap();
    assert_eq!(watch.told(), "end");
    assert!(server.get::<ConfigMap>("default", "b").unwrap().is_none());
    assert_eq!(server.version(), backup);
    let lost = backup + 1;
    let mut old = Watch::open(
        &server,
        &format!("{MAPS}?watch=1&resourceVersion={}", backup - 1),
    );
    assert_eq!(old.next().unwrap()["object"]["code"], 410);
    let exact = format!(
        "{MAPS}?resourceVersionMatch=Exact&resourceVersion={}",
        backup - 1
    );
    assert_eq!(get(&server, &exact).status, 200);
    let mut stream = Watch::open(
        &server,
        &format!(
            "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &resourceVersion={lost}"
        ),
    );
    assert_eq!(stream.next().unwrap()["object"]["code"], 504);
    let mut silent = Watch::open(&server, &format!("{MAPS}?watch=1&resourceVersion={lost}"));
    server.create(&config_map("c", "1")).unwrap();
    server.create(&config_map("d", "1")).unwrap();
    assert_eq!(silent.told(), format!("ADDED d@{}", lost + 1));
    server.restore(backup).unwrap();
    assert_eq!(
        server.restore(backup + 1).unwrap_err().kind(),
        ErrorKind::Expired
    );
}

#[test]
fn finalizers_and_grace_hold_an_object_back() {
    let server = ApiServer::new().unwrap();
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}});
    ask(&server, &format!("POST {MAPS}"), &held);
    let pending = ask(&server, &format!("DELETE {MAPS}/a"), &Value::Null);
    assert!(pending.body["metadata"]["deletionTimestamp"].is_string());
    let patch = "content-type: application/json-patch+json\r\n";
    let free = r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#;
    assert_eq!(
        ask_with(&server, &format!("PATCH {MAPS}/a"), patch, free).status,
        200
    );
    assert_eq!(get(&server, &format!("{MAPS}/a")).status, 404);

    server
        .create(&objects::pod("default", "web", "node-1", &[], &[]))
        .unwrap();
    let pod = "/api/v1/namespaces/default/pods/web";
    let deleted = ask(&server, &format!("DELETE {pod}"), &Value::Null);
    assert_eq!(deleted.body["metadata"]["deletionGracePeriodSeconds"], 30);
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(ask(&server, &format!("DELETE {pod}"), &now).status, 200);
    assert!(server.get::<Pod>("default", "web").unwrap().is_none());
}

#[test]
fn a_namespace_goes_with_what_is_in_it() {
    let server = ApiServer::new().unwrap();
    let absent = ask(
        &server,
        "POST /api/v1/namespaces/shop/secrets",
        &json!({"metadata": {"name": "a"}}),
    );
    assert_eq!(
        (absent.status, &absent.body["message"]),
        (404, &json!("namespaces \"shop\" not found"))
    );
    server
        .create(&objects::secret("shop", "db", "", &[]))
        .unwrap();
    let deleted = ask(&server, "DELETE /api/v1/namespaces/shop", &Value::Null);
    assert_eq!(deleted.body["status"]["phase"], "Terminating");
    assert!(server.get::<Secret>("shop", "db").unwrap().is_none());
    assert_eq!(get(&server, "/api/v1/namespaces/shop").status, 404);
}

#[test]
fn the_status_and_the_generation_are_the_servers() {
    let racks = Resource::new("example.com", "v1", "racks", "Rack").cluster_scoped();
    let racks = ApiResource::new(racks).with_status();
    let server = ApiServer::builder().resource(racks).start().unwrap();
    let path = "/apis/example.com/v1/racks";
    let rack = json!({
        "kind": "Rack", "metadata": {"name": "r"}, "spec": {"n": 1}, "status": {"up": true},
    });
    let made = ask(&server, &format!("POST {path}"), &rack).body;
    assert!(made.get("status").is_none() && made["metadata"]["generation"] == 1);
    let mut next = made.clone();
    next["status"] = json!({"up": true});
    let told = ask(&server, &format!("PUT {path}/r/status"), &next).body;
    assert_eq!(
        (&told["status"]["up"], &told["metadata"]["generation"]),
        (&json!(true), &json!(1))
    );
    let mut next = told.clone();
    next["spec"] = json!({"n": 2});
    next["status"] = json!({});
    let wanted = ask(&server, &format!("PUT {path}/r"), &next).body;
    assert_eq!(
        (&wanted["status"]["up"], &wanted["metadata"]["generation"]),
        (&json!(true), &json!(2))
    );
}

#[test]
fn a_definition_makes_a_kind_and_takes_it_away() {
    let server = ApiServer::new().unwrap();
    let path = "/apis/example.com/v1/namespaces/default/racks";
    assert_eq!(get(&server, path).status, 404);
    let definition = json!({"metadata": {"name": "racks.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "racks", "kind": "Rack", "singular": "rack"},
        "versions": [{"name": "v1", "served": true, "storage": true}],
    }});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = ask(&server, &format!("POST {definitions}"), &definition);
    assert_eq!(made.body["status"]["conditions"][1]["type"], "Established");
    let rack = ask(
        &server,
        &format!("POST {path}"),
        &json!({"kind": "Rack", "metadata": {"name": "r"}}),
    );
    assert_eq!((rack.status, &rack.body["kind"]), (201, &json!("Rack")));
    assert_eq!(
        get(&server, "/apis/example.com/v1").body["resources"][0]["name"],
        "racks"
    );
    let gone = ask(
        &server,
        &format!("DELETE {definitions}/racks.example.com"),
        &Value::Null,
    );
    assert_eq!((gone.status, get(&server, path).status), (200, 404));
}

#[test]
fn a_definition_says_of_which_kind_the_lists_of_its_objects_are() {
    let server = ApiServer::new().unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/racks.example.com";
    let racks = "/apis/example.com/v1/namespaces/default/racks";
    let mut named = definition(&["v1"]);
    named["spec"]["names"]["listKind"] = json!("RackCollection");
    for (definition, expected) in [(definition(&["v1"]), "RackList"), (named, "RackCollection")] {
        server.apply_value(&definition).unwrap();
        let list = get(&server, racks);
        assert_eq!((list.status, &list.body["kind"]), (200, &json!(expected)));
        let accepted = get(&server, path).body["status"]["acceptedNames"].take();
        let expected_names = json!({
            "plural": "racks", "kind": "Rack", "singular": "rack", "listKind": expected,
        });
        assert_eq!(accepted, expected_names);
    }
}

/// As kubectl takes it.
#[test]
fn an_object_that_names_no_namespace_is_in_the_default_one() {
    let server = ApiServer::new().unwrap();
    let map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"k": value}})
    };
    let made = server.create_value(&map("1")).unwrap();
    assert_eq!(made["metadata"]["namespace"], "default");
    server.apply_value(&map("2")).unwrap();
    let found = get(&server, &format!("{MAPS}/a"));
    assert_eq!((found.status, &found.body["data"]["k"]), (200, &json!("2")));
    for namespace in ["", "default"] {
        let found = server.get::<ConfigMap>(namespace, "a").unwrap().unwrap();
        assert_eq!(found.metadata.namespace.as_deref(), Some("default"));
    }
    server.delete::<ConfigMap>("", "a").unwrap();
    assert_eq!(get(&server, &format!("{MAPS}/a")).status, 404);

    let nowhere = "POST /api/v1/namespaces//configmaps";
    let refused = ask(&server, nowhere, &json!({"metadata": {"name": "a"}}));
    assert_eq!(
        (refused.status, &refused.body["message"]),
        (
            404,
            &json!("the server could not find the requested resource")
        )
    );
    assert_eq!(get(&server, "/api/v1/configmaps").body["items"], json!([]));
}

/// The server's answer to bytes that are not a request, while the client keeps its side open.
fn told(server: &ApiServer, pieces: &[&[u8]]) -> String {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    for piece in pieces {
        socket.write_all(piece).unwrap();
    }
    let mut text = Vec::new();
    let _may_be_reset = socket.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_port_says_that_it_does_not_speak_what_came() {
    let plain = ApiServer::new().unwrap();
    // A hello of TLS 1.2, one in two pieces, one of SSL 2, and no protocol at all.
    for pieces in [
        &[&b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03 without a line"[..]][..],
        &[b"\x16", b"\x03\x01"],
        &[b"\x80\x2e\x01\x00\x02"],
        &[b"HELLO\r\n"],
        &[b"GET / HTTP/3\r\n"],
    ] {
        let answer = told(&plain, pieces);
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer:?}"
        );
        assert!(answer.ends_with("\r\n\r\n400 Bad Request"), "{answer:?}");
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let authority = crate::testing::TestAuthority::new("a", provider).unwrap();
    let builder = ApiServer::builder().tls_by(&authority).unwrap();
    let server = builder.start().unwrap();
    let answer = told(&server, &[b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"]);
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\n\
        Client sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, expected);
}

fn definition(served: &[&str]) -> Value {
    let version = |name: &&str| json!({"name": name, "served": true, "storage": *name == "v1"});
    let versions: Vec<_> = served.iter().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "racks.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "racks", "kind": "Rack", "singular": "rack"},
            "versions": versions,
        },
    })
}

#[test]
fn the_kinds_are_those_of_the_definitions_that_are_there() {
    let server = ApiServer::new().unwrap();
    let status = |version: &str| {
        let kinds = get(&server, &format!("/apis/example.com/{version}"));
        let path = format!("/apis/example.com/{version}/namespaces/default/racks");
        let objects = get(&server, &path);
        assert_eq!(kinds.status, objects.status, "{version}");
        objects.status
    };
    let before = server.version();
    server.apply_value(&definition(&["v1", "v2"])).unwrap();
    let rack = json!({
        "apiVersion": "example.com/v1", "kind": "Rack",
        "metadata": {"namespace": "default", "name": "r"},
    });
    server.apply_value(&rack).unwrap();
    let with_both = server.version();
    assert_eq!((status("v1"), status("v2")), (200, 200));
    server.apply_value(&definition(&["v1"])).unwrap();
    assert_eq!(
        (status("v1"), status("v2")),
        (200, 404),
        "not served any more"
    );
    let racks = Resource::new("apiextensions.k8s.io", "v1", super::resources::CRDS, "X");
    let key = crate::object::ObjectKey::new("", "racks.example.com");
    server.delete_value(&racks.cluster_scoped(), &key).unwrap();
    assert_eq!((status("v1"), status("v2")), (404, 404), "deleted");
    server.restore(with_both).unwrap();
    assert_eq!((status("v1"), status("v2")), (200, 200), "restored");
    let path = "/apis/example.com/v2/namespaces/default/racks/r";
    assert_eq!(get(&server, path).status, 200);
    server.restore(before).unwrap();
    assert_eq!((status("v1"), status("v2")), (404, 404), "not made yet");
}

#[test]
fn a_grace_period_is_shortened_from_when_it_began_and_never_into_the_past() {
    let fake = FakeClock::new();
    let clock = Clock::from(fake.clone());
    let server = ApiServer::builder().clock(clock).start().unwrap();
    server
        .create(&objects::pod("default", "web", "node-1", &[], &[]))
        .unwrap();
    let delete = |query: &str| {
        let path = format!("DELETE /api/v1/namespaces/default/pods/web{query}");
        let mut metadata = ask(&server, &path, &Value::Null).body["metadata"].take();
        let at = metadata["deletionTimestamp"].as_str().unwrap();
        let at: k8s_openapi::jiff::Timestamp = at.parse().unwrap();
        (
            at.as_second(),
            metadata["deletionGracePeriodSeconds"].take(),
        )
    };
    let (end, _) = delete("?gracePeriodSeconds=60");
    let began = end - 60;
    assert_eq!(delete("?gracePeriodSeconds=90"), (end, json!(60)));
    assert_eq!(delete(""), (end, json!(60)));
    fake.advance(Duration::from_secs(10));
    assert_eq!(delete("?gracePeriodSeconds=40"), (began + 40, json!(40)));
    // Its time is over: it goes now, but like a pod that its kubelet still ends.
    assert_eq!(delete("?gracePeriodSeconds=5"), (began + 10, json!(1)));
    assert_eq!(delete("?gracePeriodSeconds=0"), (began + 10, json!(0)));
    assert!(server.get::<Pod>("default", "web").unwrap().is_none());
}

#[test]
fn a_lease_is_updated_only_by_its_version() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let put = |version: &str| {
        let lease = json!({"metadata": {"name": "l", "resourceVersion": version}, "spec": {}});
        ask(&server, &format!("PUT {path}"), &lease)
    };
    let made = put("");
    assert_eq!(made.status, 201);
    for version in ["", "0", "00"] {
        let refused = put(version);
        let why = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: \
            Invalid value: 0: must be specified for an update";
        assert_eq!(
            (refused.status, &refused.body["message"]),
            (422, &json!(why))
        );
    }
    let version = made.body["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!((put(version).status, put("999").status), (200, 409));
}

#[test]
fn answers_come_in_the_form_that_was_asked_for() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let accept = |form: &str| {
        let header = format!("accept: application/json;as={form};v=v1;g=meta.k8s.io\r\n");
        ask_with(&server, &format!("GET {MAPS}"), &header, "").body
    };
    let table = accept("Table");
    assert_eq!(
        (&table["kind"], &table["rows"][0]["cells"][1]),
        (&json!("Table"), &json!(1))
    );
    let metadata = accept("PartialObjectMetadataList");
    assert!(metadata["items"][0].get("data").is_none());
    assert_eq!(metadata["items"][0]["metadata"]["name"], "a");
    let protobuf = "accept: application/vnd.kubernetes.protobuf\r\n";
    assert_eq!(
        ask_with(&server, &format!("GET {MAPS}"), protobuf, "").status,
        406
    );
    let apply = "content-type: application/apply-patch+yaml\r\n";
    let refused = ask_with(
        &server,
        &format!("PATCH {MAPS}/a?fieldManager=x"),
        apply,
        "{}",
    );
    assert_eq!(
        (refused.status, &refused.body["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
}

#[test]
fn kubectl_gets_an_empty_description_in_protobuf_and_others_one_in_json() {
    let server = ApiServer::new().unwrap();
    let accept = |form: &str| {
        let header = format!("accept: {form}\r\n");
        ask_with(&server, "GET /openapi/v2", &header, "")
    };
    let kubectl = accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    assert_eq!((kubectl.status, &kubectl.body), (200, &json!("")));
    let spec = "content-type: application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert!(kubectl.headers.contains(spec), "{}", kubectl.headers);
    assert_eq!(accept("application/json").body["swagger"], "2.0");
    assert_eq!(accept("application/vnd.kubernetes.protobuf").status, 406);
}

#[cfg(feature = "gzip")]
#[test]
fn a_large_list_is_compressed_for_those_who_take_that() {
    let server = ApiServer::new().unwrap();
    server
        .create(&config_map("a", &"x".repeat(200_000)))
        .unwrap();
    let mut text = Vec::new();
    let headers = "connection: close\r\naccept-encoding: gzip\r\n";
    send(&server, &format!("GET {MAPS}"), headers, "")
        .read_to_end(&mut text)
        .unwrap();
    let head = String::from_utf8_lossy(&text[..300]);
    assert!(
        head.contains("content-encoding: gzip") && text.len() < 20_000,
        "{head}"
    );
}

#[test]
fn rules_and_tokens_count_from_the_first_on() {
    let server = ApiServer::builder()
        .token("t", "bob", &[])
        .rule(AccessRule::for_user("bob").verbs(&["get", "list"]))
        .start()
        .unwrap();
    assert_eq!(get(&server, MAPS).status, 401);
    assert_eq!(get(&server, "/version").status, 200);
    let bob = "authorization: Bearer t\r\n";
    assert_eq!(
        ask_with(&server, &format!("GET {MAPS}"), bob, "").status,
        200
    );
    let refused = ask_with(&server, &format!("GET {MAPS}?watch=1"), bob, "");
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.body["message"],
        "configmaps is forbidden: User \"bob\" cannot watch resource \"configmaps\" in API group \
         \"\" in the namespace \"default\""
    );
    server.remove_token("t");
    assert_eq!(
        ask_with(&server, &format!("GET {MAPS}"), bob, "").status,
        401
    );
    assert!(
        server
            .kubeconfig()
            .contains(&format!("server: {}", server.url()))
    );
}

#[test]
fn what_a_list_refuses_for_a_while_says_when_to_come_again() {
    let server = ApiServer::new().unwrap();
    let early = get(&server, &format!("{MAPS}?resourceVersion=99999"));
    assert!(
        early.headers.contains("retry-after: 1"),
        "{}",
        early.headers
    );
    let message = early.body["message"].as_str().unwrap();
    assert!(message.starts_with("Timeout: Too large resource version: 99999, current: "));
}
