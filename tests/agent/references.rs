//! `--secret`, `--configmap` and `--references`: objects that no pod names.

use std::fs;

use kubecache::testing::{ApiServer, objects};
use kubecache::testing::{FixtureServer, Recording};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::AGENT;
use super::rows::{node, object, pod};
use crate::support::TempDirectory;

pub(crate) fn secret(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": version, "uid": name},
        "data": {"password": "bWFkZS11cA=="},
    })
}

fn objects(recording: Recording) -> FixtureServer {
    let recording = object(recording, "secrets", "db", &[secret("db", "7")]);
    let recording = object(recording, "configmaps", "flags", &[]);
    FixtureServer::replaying(recording).start().unwrap()
}

#[test]
fn a_machine_without_pods_gets_its_objects_as_files_and_the_program_is_run_to_its_end() {
    let server = objects(Recording::new());
    let directory = TempDirectory::new("agent-references");
    let file = directory.join("references");
    fs::write(&file, "configmap shop/flags\n").unwrap();
    let (script, told) = (directory.join("script"), directory.join("told"));
    // Work that takes longer than the agent's end did when it did not wait.
    let text = format!(
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo told > {}",
        told.display()
    );
    fs::write(&script, text).unwrap();
    let (output, url) = (directory.join("out"), server.url());
    let flags = [
        "--server",
        &url,
        "--secret",
        "shop/db",
        "--references",
        file.to_str().unwrap(),
        "--once",
        "-o",
        "json",
        "--output-dir",
        output.to_str().unwrap(),
        "--exec-on-change",
        &format!("/bin/sh {}", script.display()),
    ];
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["node"], Value::Null);
    assert_eq!(printed["pods"], json!([]));
    let references = printed["references"].as_array().unwrap();
    assert_eq!(references.len(), 1, "one namespace");
    assert_eq!(references[0]["namespace"], "shop");
    let states = references[0]["objects"].as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|object| format!("{} {} {}", object["kind"], object["name"], object["state"]))
        .collect();
    assert_eq!(
        states,
        [
            r#""ConfigMap" "flags" "NotFound""#,
            r#""Secret" "db" "Synced""#
        ]
    );
    let value = fs::read_to_string(output.join("shop/secrets/db/password")).unwrap();
    assert_eq!(value, "made-up");
    assert_eq!(fs::read_to_string(told).unwrap(), "told\n");
    let asked = server.requests();
    assert!(
        asked.iter().all(|request| !request.path().contains("pods")),
        "{asked:?}"
    );
}

#[test]
fn references_stand_beside_the_pods_of_a_node() {
    let recording = node(&[pod("web-1", &["db"], &[], "Running")]);
    let server = objects(recording);
    let url = server.url();
    let flags = [
        "--server",
        &url,
        "--node-name",
        "n1",
        "--configmap",
        "shop/flags",
    ];
    let more = ["--secret", "shop/db", "-o", "wide"];
    let mut agent = AGENT.start(&[&flags[..], &more].concat());
    let line = |words: &'static [&str]| -> crate::support::example::IsLine {
        Box::new(move |line| {
            line.split_whitespace()
                .skip(1)
                .take(5)
                .eq(words.iter().copied())
        })
    };
    agent.wait_for_all(
        "a row per reference",
        vec![
            line(&["shop", "<none>", "ConfigMap", "flags", "NotFound"]),
            line(&["shop", "<none>", "Secret", "db", "Synced"]),
            line(&["shop", "web-1", "Secret", "db", "Synced"]),
        ],
    );
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn what_does_not_fit_together_is_told() {
    let rows = [
        (
            &["--demo", "--secret", "a/b"][..],
            "--demo shows recorded pods",
        ),
        (&["--secret", "a/b", "-n", "a"], "give --node-name"),
        (&["--secret", "b"], "--secret \"b\": write NAMESPACE/NAME"),
        (
            &["--references", "/nowhere"],
            "--references /nowhere: no such file",
        ),
    ];
    for (flags, told) in rows {
        let ended = AGENT.run(flags);
        assert_eq!(ended.code, 2, "{flags:?}");
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[test]
fn what_is_not_there_is_a_failure_where_the_flag_says_so() {
    let server = ApiServer::new().unwrap();
    let map = objects::config_map("shop", "flags", "", &[("tax", "7")]);
    server.apply(&map).unwrap();
    let url = server.url();
    let flags = ["--server", &url, "--once", "--configmap", "shop/flags"];
    let strict = [&flags[..], &["--fail-on-missing"]].concat();
    assert_eq!(AGENT.run(&strict).code, 0);
    let missing = ["--secret", "shop/none"];
    assert_eq!(AGENT.run(&[&flags[..], &missing].concat()).code, 0);
    let ended = AGENT.run(&[&strict[..], &missing].concat());
    assert_eq!(ended.code, 1);
    let words = "error: 1 objects are not there, or may not be read\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);
    assert!(ended.stdout.contains("NotFound"), "{}", ended.stdout);
}
