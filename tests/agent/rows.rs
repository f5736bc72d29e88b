//! Rows and exit codes against servers that are put together by hand.

use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::testing::{
    Act, Answer, ApiServer, End, Exchange, Fault, FixtureServer, Recording, Speed, objects,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::AGENT;
use crate::support::TempDirectory;
use crate::support::example::{Ended, IsLine};

pub(crate) const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";

/// A list of these items.
pub(crate) fn list(kind: &str, items: &[Value]) -> Answer {
    let list = json!({
        "kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items,
    });
    Answer::text(200, list.to_string())
}

pub(crate) fn open_watch() -> Answer {
    Answer::new(200).ending(End::Open, Duration::ZERO)
}

/// A node `n1` with these pods.
pub(crate) fn node(pods: &[Value]) -> Recording {
    node_that_changes(pods, open_watch())
}

/// The same, with a watch of the pods.
pub(crate) fn node_that_changes(pods: &[Value], watch: Answer) -> Recording {
    Recording::new()
        .with(Exchange::get(PODS, list("PodList", pods)))
        .with(Exchange::get(
            &format!("{PODS}&watch=true&allowWatchBookmarks=true"),
            watch,
        ))
}

pub(crate) fn pod(name: &str, secrets: &[&str], config_maps: &[&str], phase: &str) -> Value {
    let pod = objects::pod("shop", name, "n1", secrets, config_maps);
    let mut pod = serde_json::to_value(pod).unwrap();
    pod["status"]["phase"] = json!(phase);
    pod
}

pub(crate) fn object(
    recording: Recording,
    resource: &str,
    name: &str,
    items: &[Value],
) -> Recording {
    let path = format!("/api/v1/namespaces/shop/{resource}?fieldSelector=metadata.name%3D{name}");
    let kind = if resource == "secrets" {
        "SecretList"
    } else {
        "ConfigMapList"
    };
    let watch = format!("{path}&watch=true&allowWatchBookmarks=true");
    recording
        .with(Exchange::get(&path, list(kind, items)))
        .with(Exchange::get(&watch, open_watch()))
}

pub(crate) fn agent(server: &FixtureServer, more: &[&str]) -> Ended {
    let url = server.url();
    let mut arguments = vec!["--server", &url, "--node-name", "n1", "--once"];
    arguments.extend(more);
    AGENT.run(&arguments)
}

pub(crate) fn secret(name: &str, values: &[(&str, &str)]) -> Value {
    serde_json::to_value(objects::secret("shop", name, "7", values)).unwrap()
}

#[test]
fn a_finished_pod_needs_nothing_and_a_pod_that_names_nothing_is_listed_in_json() {
    let pods = [
        pod("web", &["tls"], &[], "Running"),
        pod("job", &["job-token"], &[], "Succeeded"),
        pod("crashed", &["job-token"], &[], "Failed"),
        pod("plain", &[], &[], "Pending"),
    ];
    let recording = object(
        node(&pods),
        "secrets",
        "tls",
        &[secret("tls", &[("a", "canary"), ("b", "canary!")])],
    );
    let server = FixtureServer::replaying(recording).start().unwrap();
    let ended = agent(&server, &["-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let node: Value = serde_json::from_str(&ended.stdout).unwrap();
    let row = json!({
        "kind": "Secret", "name": "tls", "state": "Synced", "reason": null, "resourceVersion": "7",
        "immutable": false, "keys": 2, "bytes": 13,
    });
    let expected = json!([
        {"namespace": "shop", "name": "plain", "objects": []},
        {"namespace": "shop", "name": "web", "objects": [row]},
    ]);
    assert_eq!(node["pods"], expected);
    assert!(
        server.unused().is_empty()
            || server
                .unused()
                .iter()
                .all(|left| left.query("watch").is_some())
    );
    let asked = server.requests();
    assert!(
        asked
            .iter()
            .all(|request| !request.path().contains("job-token"))
    );
}

/// A program that starts such a pod without a kubelet would miss them without a word.
#[test]
fn what_a_pod_needs_and_the_agent_does_not_keep_has_its_row() {
    let mut pod = pod("web", &[], &[], "Running");
    let sources = json!([
        {"clusterTrustBundle": {"name": "example.org:roots:1", "path": "a.pem"}},
        {"clusterTrustBundle": {"signerName": "example.org/ca", "labelSelector": {},
                                "path": "b.pem"}},
        {"podCertificate": {"signerName": "example.org/tls", "keyType": "ED25519",
                            "credentialBundlePath": "c.pem"}},
    ]);
    pod["spec"]["volumes"] = json!([{"name": "trust", "projected": {"sources": sources}}]);
    let server = FixtureServer::replaying(node(&[pod])).start().unwrap();
    let ended = agent(&server, &["-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let node: Value = serde_json::from_str(&ended.stdout).unwrap();
    let objects = node["pods"][0]["objects"].as_array().unwrap().iter();
    let rows = objects
        .map(|row| [&row["kind"], &row["name"], &row["state"]].map(|cell| cell.as_str().unwrap()));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            ["ClusterTrustBundle", "example.org:roots:1", "NotKept"],
            ["ClusterTrustBundle", "signer=example.org/ca", "NotKept"],
            ["PodCertificate", "signer=example.org/tls", "NotKept"],
        ]
    );
}

/// API servers let a pod name what they can never have: it holds up no other.
#[test]
fn a_name_that_no_object_can_have_is_not_found_and_asked_for_by_no_strategy() {
    for strategy in ["Watch", "Cache", "Get"] {
        let long = "a".repeat(254);
        let names = ["a/b", "..", "50%", &long];
        let server = FixtureServer::replaying(node(&[pod("web", &names, &names, "Running")]));
        let server = server.start().unwrap();
        let ended = agent(&server, &["--change-detection", strategy, "-o", "json"]);
        assert_eq!(ended.code, 0, "{strategy}: {}", ended.stderr);
        let node: Value = serde_json::from_str(&ended.stdout).unwrap();
        let objects = node["pods"][0]["objects"].as_array().unwrap();
        assert_eq!(objects.len(), 8, "{strategy}");
        for row in objects {
            assert_eq!(row["state"], "NotFound", "{strategy}: {row}");
            assert_eq!(row["reason"], "no object can have this name");
        }
    }
}

#[test]
fn an_answer_that_is_missing_at_the_deadline_is_shown_and_ends_with_1() {
    let recording = node(&[pod("web", &["slow"], &[], "Running")]);
    let silent = Fault::new(Act::Hang).on("/api/v1/namespaces/shop/secrets");
    let server = FixtureServer::replaying(recording)
        .fault(silent)
        .start()
        .unwrap();
    // The list of the pods has to come within it.
    let ended = agent(&server, &["--timeout", "20s", "-o", "wide"]);
    assert_eq!(ended.code, 1);
    let row = ended.stdout.lines().nth(1).unwrap();
    // D14: the row says where the request is; on a busy machine it may not be sent yet.
    let phases = [
        "waiting for the head",
        "connecting to",
        "queued in this client",
    ];
    let told = phases.iter().any(|phase| row.contains(phase));
    assert!(row.contains("Waiting") && told, "{row}");
    assert_eq!(ended.stderr, "error: 1 of 1 rows have no answer\n");
}

#[test]
fn why_an_object_waits_is_told_when_it_is_known() {
    let recording = node(&[pod("web", &["slow"], &[], "Running")]);
    let silent = Fault::new(Act::Hang).on("/api/v1/namespaces/shop/secrets");
    let server = FixtureServer::replaying(recording)
        .fault(silent)
        .start()
        .unwrap();
    let url = server.url();
    let flags = [
        "--server",
        &url,
        "--node-name",
        "n1",
        "--request-timeout",
        "20s",
        "-o",
        "wide",
    ];
    let mut agent = AGENT.start(&flags);
    agent.wait_for("the wait", |line| {
        line.contains("Waiting") && !line.contains("no answer within")
    });
    agent.wait_for("its reason", |line| {
        line.contains("Waiting")
            && line.contains("no answer within 15.0s: waiting for the head of the answer")
    });
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn a_node_without_pods_says_so_and_is_no_failure() {
    let server = FixtureServer::replaying(node(&[])).start().unwrap();
    let ended = agent(&server, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
    assert_eq!(
        ended.stderr,
        "No pod that names Secrets or ConfigMaps is bound to node n1.\n"
    );
    let server = FixtureServer::replaying(node(&[])).start().unwrap();
    let ended = agent(&server, &["-o", "json"]);
    let node: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(node, json!({"node": "n1", "pods": []}));
}

/// Seen: a name with a slip had an empty table, as a node that runs nothing.
#[test]
fn a_node_that_does_not_exist_is_told_and_waited_for_and_an_error_with_once() {
    let server = ApiServer::new().unwrap();
    let url = server.url();
    let flags = ["--server", &url, "--node-name", "n1"];
    let ended = AGENT.run(&[&flags[..], &["--once"]].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    let words = "\nerror: node n1 does not exist\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);

    let mut agent = AGENT.start(&flags);
    let warning = "warning: node n1 does not exist; waiting for it";
    while agent.next_told().unwrap() != warning {}
    server.apply(&objects::node("n1", "")).unwrap();
    while agent.next_told().unwrap() != "node n1 exists now" {}
    let pod = objects::pod("shop", "web", "n1", &["tls"], &[]);
    server.apply(&pod).unwrap();
    agent.wait_for("the row", |line| line.contains("secret/tls"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn a_node_that_may_not_be_read_is_no_absent_one() {
    let path = "/api/v1/nodes/n1";
    let status = Act::Status {
        code: 403,
        reason: "Forbidden".to_owned(),
        retry_after: None,
    };
    let server = FixtureServer::replaying(node(&[]))
        .fault(Fault::new(status).on(path))
        .start()
        .unwrap();
    let ended = agent(&server, &["-v=2"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("does not exist"), "{}", ended.stderr);
    let told = ended.stderr.matches("whether node n1 exists is not known");
    assert_eq!(told.count(), 1, "{}", ended.stderr);
}

#[test]
fn a_refusal_of_the_pods_ends_with_1_in_the_servers_words() {
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden")] {
        let refusal = Fault::new(Act::Status {
            code,
            reason: reason.to_owned(),
            retry_after: None,
        });
        let server = FixtureServer::replaying(Recording::new())
            .fault(refusal)
            .start()
            .unwrap();
        let ended = agent(&server, &[]);
        assert_eq!(ended.code, 1);
        let told = format!(
            "Error from server ({reason}): the test server was told to answer {code} {reason}\n"
        );
        assert!(ended.stderr.ends_with(&told), "{}", ended.stderr);
    }
}

#[test]
fn an_impersonated_user_is_named_in_each_request_and_a_local_server_has_no_proxy() {
    let recording = object(
        node(&[pod("web", &["tls"], &[], "Running")]),
        "secrets",
        "tls",
        &[],
    );
    let server = FixtureServer::replaying(recording).start().unwrap();
    let directory = TempDirectory::new("impersonation");
    let kubeconfig = directory.join("config");
    let text = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url()}}],
        "users": [{
            "name": "u",
            "user": {"as": "jane", "as-groups": ["readers"], "token": "canary"},
        }],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let path = kubeconfig.to_str().unwrap();
    let proxy = ("http_proxy", "http://user:canary@proxy.example");
    let ended = AGENT.run_in(
        &["--kubeconfig", path, "--node-name", "n1", "--once"],
        &[proxy],
    );

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let row = ended.stdout.lines().nth(1).unwrap();
    assert!(row.contains("NotFound"), "{row}");
    for request in server.requests() {
        assert_eq!(request.header("impersonate-user"), Some("jane"));
        assert_eq!(request.header("impersonate-group"), Some("readers"));
        assert_eq!(request.header("authorization"), None, "not over http");
    }
    assert!(
        ended.stderr.contains("credentials are not sent"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("canary") && !ended.stderr.contains("proxy"));
}

#[test]
fn the_proxy_of_the_environment_is_named_without_its_password() {
    let args = [
        "--server",
        "http://api.test",
        "--node-name",
        "n1",
        "--once",
        "--timeout",
        "20s",
    ];
    let proxies = [
        ("http_proxy", "user:canary@127.0.0.1:1"),
        ("NO_PROXY", ".api.test,10.0.0.0/8"),
    ];
    let ended = AGENT.run_in(&args, &proxies);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let told = "the proxy http://127.0.0.1:1: connecting to 127.0.0.1:1: ";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
}

#[test]
fn pods_that_finish_are_made_anew_or_are_deleted_let_go_of_their_objects() {
    let mut web = pod("web", &["old"], &[], "Running");
    web["metadata"]["uid"] = json!("1");
    let mut again = pod("web", &["new"], &[], "Running");
    again["metadata"]["uid"] = json!("2");
    let event = |kind: &str, pod: &Value| json!({"type": kind, "object": pod}).to_string();
    let finished = pod("job", &["shared"], &[], "Succeeded");
    let last = pod("last", &["shared"], &[], "Running");
    let watch = open_watch()
        .event(Duration::ZERO, &event("MODIFIED", &finished))
        .event(Duration::ZERO, &event("ADDED", &again))
        .event(Duration::ZERO, &event("DELETED", &last))
        .ending(End::Open, Duration::ZERO);
    let pods = [web, pod("job", &["shared"], &[], "Running"), last.clone()];
    let mut recording = node_that_changes(&pods, watch);
    for name in ["old", "new", "shared"] {
        recording = object(
            recording,
            "secrets",
            name,
            &[secret(name, &[("a", "canary")])],
        );
    }
    let server = FixtureServer::replaying(recording)
        .speed(Speed::Stepped)
        .start()
        .unwrap();
    let url = server.url();
    let mut agent = AGENT.start(&["-s", &url, "--node-name", "n1", "-o", "wide"]);
    let row = |pod: &'static str, name: &'static str, state: &'static str| {
        let is_it: IsLine = Box::new(move |line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            (cells[2], cells[4], cells[5]) == (pod, name, state)
        });
        is_it
    };
    let rows = vec![
        row("job", "shared", "Synced"),
        row("web", "old", "Synced"),
        row("last", "shared", "Synced"),
    ];
    agent.wait_for_all("the first rows", rows);
    let soon = Clock::system().after(Duration::from_secs(5 * 60));
    for _ in 0..3 {
        assert!(server.step(soon).is_some());
    }
    // The changes come close together, so their lines may come in any order.
    let rows = vec![
        row("job", "shared", "Removed"),
        row("web", "old", "Removed"),
        row("web", "new", "Synced"),
        row("last", "shared", "Removed"),
    ];
    agent.wait_for_all("every change", rows);
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stderr, "");
}
