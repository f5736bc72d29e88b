//! `--change-detection`: the same rows whichever way changes are noticed, and the requests of each.

use std::time::Duration;

use kubecache::testing::{Act, End, Exchange, Fault, FixtureServer, Received, Recording, Speed};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::AGENT;
use super::demo::{RECORDING, secret_values};
use super::rows::{agent, list, node, node_that_changes, object, open_watch, pod, secret};
use crate::support::example::IsLine;

const STRATEGIES: [&str; 3] = ["Watch", "Cache", "Get"];
const TLS: &str = "/api/v1/namespaces/shop/secrets/tls";
const NODES: &str = "/api/v1/nodes?fieldSelector=metadata.name%3Dn1";

/// Adds the node's own object, with that time to live.
fn own_node(recording: Recording, ttl: &str) -> Recording {
    let node = json!({"metadata": {
        "name": "n1", "uid": "1", "resourceVersion": "3",
        "annotations": {"node.alpha.kubernetes.io/ttl": ttl},
    }});
    let watch = format!("{NODES}&watch=true&allowWatchBookmarks=true");
    recording
        .with(Exchange::get(NODES, list("NodeList", &[node])))
        .with(Exchange::get(&watch, open_watch()))
}

/// A node with one pod that names the Secret `tls`.
fn with_tls() -> Recording {
    let tls = secret("tls", &[("a", "canary")]);
    let pods = node(&[pod("web", &["tls"], &[], "Running")]);
    object(pods, "secrets", "tls", &[tls])
}

/// The versions at which a Secret was asked for, one request after the other.
fn gets<'a>(requests: &'a [Received], path: &str) -> Vec<&'a str> {
    let gets = requests.iter().filter(|request| request.path() == path);
    gets.map(|request| request.query("resourceVersion").unwrap_or_default())
        .collect()
}

/// The version that the recorded watches told last of an object.
fn last_version(name: &str) -> String {
    let lines = RECORDING.lines().filter(|line| line.contains(name));
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let objects = events.map(|event| event["line"]["object"]["metadata"].clone());
    let mut named = objects.filter(|metadata| metadata["name"] == name);
    named.next_back().unwrap()["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn each_strategy_gives_the_same_answers_to_one_look() {
    for strategy in STRATEGIES {
        let arguments = [
            "--demo",
            "--once",
            "--demo-speed",
            "0.1",
            "-o",
            "json",
            "--change-detection",
            strategy,
        ];
        let ended = AGENT.run(&arguments);
        assert_eq!(ended.code, 0, "{strategy}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        let node: Value = serde_json::from_str(&ended.stdout).unwrap();
        let pods = node["pods"].as_array().unwrap();
        let objects = pods
            .iter()
            .flat_map(|pod| pod["objects"].as_array().unwrap());
        let mut synced = 0;
        for object in objects {
            let expected = match object["name"].as_str().unwrap() {
                "search-synonyms" | "search-tuning" => "NotFound",
                "payment-provider-key" => "Forbidden",
                _ => "Synced",
            };
            assert_eq!(object["state"], expected, "{strategy}: {object}");
            synced += usize::from(expected == "Synced");
        }
        assert!(synced > 40, "{strategy}: {synced}");
        for value in secret_values() {
            assert!(!ended.stdout.contains(&value), "{value}");
        }
    }
}

#[test]
fn changes_are_noticed_by_reads_at_the_sync_frequency() {
    for strategy in ["Cache", "Get"] {
        let mut agent = AGENT.start(&[
            "--demo",
            "--sync-frequency",
            "1s",
            "-vvvv",
            "-o=wide",
            "--change-detection",
            strategy,
        ]);
        let changes = [
            (
                "storefront-session",
                "Synced",
                last_version("storefront-session"),
            ),
            (
                "storefront-settings",
                "Synced",
                last_version("storefront-settings"),
            ),
            ("promo-campaign", "Synced", String::new()),
            ("search-synonyms", "Synced", last_version("search-synonyms")),
            ("catalog-reindex-token", "Removed", String::new()),
        ];
        let changes = changes.map(|(name, state, version)| -> IsLine {
            Box::new(move |line| {
                let cells: Vec<_> = line.split_whitespace().collect();
                let row = cells.get(4..7);
                row.is_some_and(|row| {
                    let is_it = row[1] == state || (state, row[1]) == ("Synced", "Changed");
                    row[0] == name && is_it && row[2].contains(&version)
                })
            })
        });
        agent.wait_for_all("every change", changes.into());
        let ended = agent.stop(Signal::TERM);
        assert_eq!(ended.code, 0, "{strategy}: {}", ended.stderr);
        let told = "node node-1: objects are not cached, each read asks for them";
        assert_eq!(ended.stderr.contains(told), strategy == "Cache");
        for value in secret_values() {
            let shown = ended.stdout.contains(&value) || ended.stderr.contains(&value);
            assert!(!shown, "a value of a Secret: {value}");
        }
    }
}

/// SC-2, OS-7: a get of the object for each look, and no list and no watch of it.
#[test]
fn sc_2_os_7_what_is_not_watched_is_only_got() {
    for (strategy, ttl, expected) in [
        ("Get", "0", &["", "", ""][..]),
        ("Cache", "0", &["", "0", "0"]),
    ] {
        let server = FixtureServer::replaying(own_node(with_tls(), ttl))
            .start()
            .unwrap();
        let url = server.url();
        let flags = [
            "-s",
            &url,
            "--node-name",
            "n1",
            "--sync-frequency",
            "1s",
            "--change-detection",
            strategy,
        ];
        let agent = AGENT.start(&flags);
        let soon = kubecache::clock::Clock::system().after(Duration::from_secs(5 * 60));
        let enough = |requests: &[Received]| gets(requests, TLS).len() >= expected.len();
        assert!(server.wait_for_requests(soon, enough), "{strategy}");
        let ended = agent.stop(Signal::INT);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{strategy}");
        let requests = server.requests();
        assert_eq!(
            &gets(&requests, TLS)[..expected.len()],
            expected,
            "{strategy}"
        );
        let listed = requests
            .iter()
            .any(|request| request.path().ends_with("/secrets"));
        assert!(!listed, "{strategy}: {requests:?}");
        let follows_node = requests
            .iter()
            .any(|request| request.path() == "/api/v1/nodes");
        assert_eq!(follows_node, strategy == "Cache");
    }
}

/// OS-6: what is younger than its time to live is not asked for again, although it is read.
#[test]
fn os_6_a_nodes_time_to_live_spares_requests() {
    let (web, late) = (
        pod("web", &["tls"], &[], "Running"),
        pod("web-late", &["other"], &[], "Running"),
    );
    let event = |kind: &str, pod: &Value| json!({"type": kind, "object": pod}).to_string();
    let after = Duration::from_millis(1_200);
    let watch = open_watch()
        .event(after, &event("MODIFIED", &web))
        .event(after, &event("ADDED", &late));
    let recording = node_that_changes(&[web], watch.ending(End::Open, after));
    let recording = object(recording, "secrets", "tls", &[secret("tls", &[])]);
    let recording = object(recording, "secrets", "other", &[]);
    let server = FixtureServer::replaying(own_node(recording, "3600"))
        .speed(Speed::Times(1.0))
        .start()
        .unwrap();
    let url = server.url();
    let mut agent = AGENT.start(&[
        "-s",
        &url,
        "--node-name",
        "n1",
        "-v=1",
        "--change-detection",
        "Cache",
        "--sync-frequency",
        "1s",
    ]);
    // It is read after the other one, which has been read before at least once.
    agent.wait_for("the last row", |line| {
        line.contains("other") && line.contains("NotFound")
    });
    let ended = agent.stop(Signal::TERM);
    let told = "node n1: objects are cached for 3600s";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    assert_eq!(gets(&server.requests(), TLS), [""]);
}

#[test]
fn a_node_that_may_not_be_read_is_told_of_once_and_the_default_applies() {
    let refusing = || {
        let refused = Fault::new(Act::Status {
            code: 403,
            reason: "Forbidden".to_owned(),
            retry_after: None,
        });
        let server = FixtureServer::replaying(with_tls());
        server.fault(refused.on("/api/v1/nodes")).start().unwrap()
    };
    let server = refusing();
    let ended = agent(&server, &["--change-detection", "Cache"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("Synced"), "{}", ended.stdout);
    // The answer may come before the refusal does.
    assert!(ended.stderr.lines().count() <= 1, "{}", ended.stderr);

    let server = refusing();
    let url = server.url();
    let mut agent = AGENT.start(&["-s", &url, "--node-name", "n1", "--change-detection=Cache"]);
    agent.wait_for("the row", |line| line.contains("Synced"));
    let soon = kubecache::clock::Clock::system().after(Duration::from_secs(5 * 60));
    let asked_often = |requests: &[Received]| {
        let of_node = requests
            .iter()
            .filter(|request| request.path() == "/api/v1/nodes");
        of_node.count() > 3
    };
    assert!(server.wait_for_requests(soon, asked_often));
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    let told = "warning: node n1 cannot be followed: ";
    assert!(ended.stderr.starts_with(told), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .ends_with("; objects are cached for the default of a minute\n"),
        "{}",
        ended.stderr
    );
}

/// The reading thread waits for the server; the table goes on, and the end does not wait.
#[test]
fn an_object_that_the_server_does_not_answer_holds_up_neither_the_table_nor_the_end() {
    for strategy in ["Cache", "Get"] {
        let silent = Fault::new(Act::Hang).on(TLS);
        let server = FixtureServer::replaying(own_node(with_tls(), "0"))
            .fault(silent)
            .speed(Speed::AtOnce)
            .start()
            .unwrap();
        let url = server.url();
        let flags = [
            "-s",
            &url,
            "--node-name",
            "n1",
            "--change-detection",
            strategy,
        ];
        let mut agent = AGENT.start(&flags);
        agent.wait_for("the wait", |line| line.contains("Waiting"));
        let ended = agent.stop(Signal::TERM);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        assert_eq!(gets(&server.requests(), TLS).len(), 1, "{strategy}");
    }
}

#[test]
fn objects_that_the_server_does_not_answer_do_not_use_up_the_time_of_cached_ones() {
    assert_the_others_are_answered("Cache");
}

#[test]
fn objects_that_the_server_does_not_answer_do_not_use_up_the_time_of_others_that_are_got() {
    assert_the_others_are_answered("Get");
}

fn assert_the_others_are_answered(strategy: &str) {
    let names = ["a", "b", "c", "tls"];
    let pods = node(&[pod("web", &names, &[], "Running")]);
    let recording = object(pods, "secrets", "tls", &[secret("tls", &[("a", "canary")])]);
    let mut server = FixtureServer::replaying(own_node(recording, "0"));
    for name in &names[..3] {
        let path = format!("/api/v1/namespaces/shop/secrets/{name}");
        server = server.fault(Fault::new(Act::Hang).on(&path));
    }
    let server = server.start().unwrap();
    // Shorter than three reads that are not answered, one after the other.
    let flags = [
        "-o=wide",
        "--change-detection",
        strategy,
        "--timeout",
        "20s",
    ];
    let ended = agent(&server, &flags);
    assert_eq!(ended.code, 1);
    assert_eq!(ended.stderr, "error: 3 of 4 rows have no answer\n");
    let states: Vec<_> = ended
        .stdout
        .lines()
        .skip(1)
        .map(|line| line.contains("Synced"))
        .collect();
    assert_eq!(states, [false, false, false, true], "{}", ended.stdout);
}
