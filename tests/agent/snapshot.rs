//! `--snapshot`: an agent that starts while its server is away has what the one before it had.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kubecache::testing::{Answer, Exchange, FixtureServer, Recording};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::AGENT;
use super::probes::{FLAG, get, told, wait_for_answer};
use super::references::secret;
use super::rows::{PODS, node, object, pod};
use crate::support::example::IsLine;
use crate::support::{TempDirectory, until};

/// The first columns of a row behind the time.
fn line(words: &'static [&str]) -> IsLine {
    Box::new(move |line| {
        line.split_whitespace()
            .skip(1)
            .take(words.len())
            .eq(words.iter().copied())
    })
}

fn key_in(directory: &Path, mode: u32) -> PathBuf {
    let key = directory.join("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
    key
}

/// An agent with a snapshot has followed these pods, and its server is gone.
struct Left {
    directory: TempDirectory,
    pods: [Value; 2],
    flags: Vec<String>,
    port: u16,
}

fn left(name: &str) -> Left {
    let directory = TempDirectory::new(name);
    let key = key_in(&directory, 0o600).display().to_string();
    let snapshot = directory.join("snapshot").display().to_string();
    let pods = [
        pod("web-1", &["db", "tls"], &["ca"], "Running"),
        pod("web-2", &["db"], &[], "Running"),
    ];
    let recording = object(node(&pods), "secrets", "db", &[secret("db", "7")]);
    let recording = object(recording, "secrets", "tls", &[secret("tls", "5")]);
    let recording = object(recording, "configmaps", "ca", &[map("ca", "6")]);
    let server = FixtureServer::replaying(recording).start().unwrap();
    let port = server.address().port();
    let flags = [("--server", server.url()), ("--node-name", "n1".to_owned())];
    let keeps = [
        ("--snapshot", snapshot),
        ("--snapshot-key", key),
        ("--output", "wide".to_owned()),
    ];
    let flags = flags.into_iter().chain(keeps);
    let flags: Vec<_> = flags
        .map(|(flag, value)| format!("{flag}={value}"))
        .collect();
    let mut agent = AGENT.start(&texts(&flags));
    agent.wait_for_all(
        "rows",
        vec![
            line(&["shop", "web-1", "Secret", "db", "Synced"]),
            line(&["shop", "web-1", "Secret", "tls", "Synced"]),
            line(&["shop", "web-1", "ConfigMap", "ca", "Synced"]),
            line(&["shop", "web-2", "Secret", "db", "Synced"]),
        ],
    );
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    server.stop();
    Left {
        directory,
        pods,
        flags,
        port,
    }
}

/// The server comes back.
fn serve_at(port: u16, recording: Recording) -> FixtureServer {
    let server = FixtureServer::replaying(recording).endless().port(port);
    server.start().unwrap()
}

fn map(name: &str, version: &str) -> Value {
    let mut map = secret(name, version);
    map["data"] = json!({"ca.crt": "made-up"});
    map
}

fn texts(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
fn a_node_without_a_server_has_rows_and_files_and_says_that_the_answers_are_missing() {
    let Left {
        directory, flags, ..
    } = left("agent-offline-once");
    let flags = texts(&flags);
    let output = directory.join("out").display().to_string();
    let once = ["--once", "--timeout", "1s", "--output-dir", &output];
    let ended = AGENT.run(&[&flags[..], &once].concat());
    assert_eq!(ended.code, 1, "no answer of the server: {}", ended.stderr);
    assert!(
        ended.stderr.contains("error: 4 of 4 rows have no answer"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        ended.stdout.matches("Restored").count(),
        4,
        "{}",
        ended.stdout
    );
    let value = fs::read_to_string(directory.join("out/shop/secrets/db/password")).unwrap();
    assert_eq!(value, "made-up");
}

/// Seen: it ended well with the pods of the snapshot alone.
#[test]
fn once_with_a_snapshot_ends_well_only_if_the_server_has_told_of_the_pods() {
    let Left {
        directory,
        flags,
        port,
        ..
    } = left("agent-once-pods");
    let out = directory.join("out").display().to_string();
    let once = ["--once", "--timeout", "1s", "--output-dir", &out];
    let flags = [&texts(&flags)[..], &once].concat();
    let busy = Recording::new().with(Exchange::get(PODS, Answer::text(503, "busy\n")));
    for (recording, told) in [
        // Waiting does not mend that.
        (
            Recording::new(),
            "Error from server (NotFound): no recorded answer for GET /api/v1/pods?",
        ),
        (busy, "Error from server (Unknown): answered 503"),
    ] {
        let recording = object(recording, "secrets", "db", &[secret("db", "7")]);
        let recording = object(recording, "secrets", "tls", &[secret("tls", "5")]);
        let recording = object(recording, "configmaps", "ca", &[map("ca", "6")]);
        let _server = serve_at(port, recording);
        // On a busy machine an object may not have its answer either.
        until(|| {
            let ended = AGENT.run(&flags);
            assert_eq!(ended.code, 1, "{}", ended.stderr);
            ended.stderr.contains(told)
        });
    }
}

#[test]
fn a_node_that_boots_offline_has_its_objects_and_then_the_servers_word() {
    let Left {
        pods,
        flags,
        port,
        directory: _directory,
    } = left("agent-offline");
    let mut flags = texts(&flags);
    flags.extend([FLAG, "127.0.0.1:0"]);
    let mut agent = AGENT.start(&flags);
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let probes = probes.parse().unwrap();
    agent.wait_for_all(
        "rows",
        vec![
            line(&["shop", "web-1", "Secret", "db", "Restored", "7"]),
            line(&["shop", "web-1", "Secret", "tls", "Restored", "5"]),
            line(&["shop", "web-1", "ConfigMap", "ca", "Restored", "6"]),
            line(&["shop", "web-2", "Secret", "db", "Restored", "7"]),
        ],
    );
    let why = "the server has not confirmed all that the snapshot brought";
    let unconfirmed = format!("[-]snapshot failed: {why}\nhealthz/snapshot check failed\n");
    assert_eq!(get(probes, "/healthz/snapshot"), (500, unconfirmed));
    assert_eq!(get(probes, "/healthz").0, 500);
    let recording = object(node(&pods[..1]), "secrets", "db", &[secret("db", "9")]);
    let recording = object(recording, "secrets", "tls", &[]);
    let recording = object(recording, "configmaps", "ca", &[map("ca", "6")]);
    let _server = serve_at(port, recording);
    agent.wait_for_all(
        "rows",
        vec![
            line(&["shop", "web-1", "Secret", "db", "Synced", "9"]),
            line(&["shop", "web-1", "Secret", "tls", "NotFound"]),
            line(&["shop", "web-1", "ConfigMap", "ca", "Synced", "6"]),
            line(&["shop", "web-2", "Secret", "db", "Removed"]),
        ],
    );
    wait_for_answer(probes, "/healthz", (200, "ok"));
    let ended = agent.stop(Signal::TERM);
    for told in ["db changed while", "tls was deleted while"] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[test]
fn a_second_agent_with_the_snapshot_is_refused_and_the_first_is_named() {
    let Left {
        directory, flags, ..
    } = left("agent-snapshot-two");
    let flags = texts(&flags);
    let mut first = AGENT.start(&flags);
    first.wait_for("a row of the snapshot", |line| line.contains("Restored"));
    let second = AGENT.run(&[&flags[..], &["--once"]].concat());
    assert_eq!(second.code, 1, "{}", second.stderr);
    let told = format!(
        "error: the snapshot {}: another process writes it: {} on ",
        directory.join("snapshot").display(),
        first.id()
    );
    assert!(second.stderr.contains(&told), "{}", second.stderr);
    assert_eq!(first.stop(Signal::TERM).code, 0);
}

#[test]
fn a_key_that_others_can_read_and_a_file_of_another_server_are_named() {
    let directory = TempDirectory::new("agent-snapshot-key");
    let key = key_in(&directory, 0o644);
    let snapshot = directory.join("snapshot");
    fs::write(&snapshot, "something else").unwrap();
    let [snapshot, path] = [&snapshot, &key].map(|path| path.to_str().unwrap());
    let flags = [
        "--server",
        "http://127.0.0.1:1",
        "--secret",
        "a/b",
        "--once",
        "--timeout",
        "1ms",
    ];
    let flags = [
        &flags[..],
        &["--snapshot", snapshot, "--snapshot-key", path],
    ]
    .concat();
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 1);
    let told = format!("error: the key of the snapshot, {path}: its rights are 644");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let ended = AGENT.run(&flags);
    let told = format!("the snapshot {snapshot}: it is no snapshot of kubecache; it is not used");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    let alone = AGENT.run(&["--secret", "a/b", "--snapshot", snapshot]);
    assert_eq!(alone.code, 2, "{}", alone.stderr);
}
