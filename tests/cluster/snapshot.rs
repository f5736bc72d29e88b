//! A node that boots while the API server is down: the agent's rows and files out of its snapshot,
//! and then the server's word.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::agent_program::AGENT;
use super::support::{apply, change, cluster_alone, control, directory};
use crate::support::TempDirectory;
use crate::support::example::IsLine;

fn manifest(name: &str, value: &str) -> String {
    let head = "apiVersion: v1\nkind: Secret\nmetadata: {namespace: default, name: ";
    format!("{head}{name}}}\nstringData: {{password: {value}}}\n")
}

fn line(words: &'static [&str]) -> IsLine {
    Box::new(move |line| {
        line.split_whitespace()
            .skip(1)
            .take(words.len())
            .eq(words.iter().copied())
    })
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
#[expect(clippy::too_many_lines, reason = "one story")]
fn an_agent_that_starts_while_the_server_is_down_has_what_it_had() {
    let _alone = cluster_alone();
    let of = TempDirectory::new("cluster-snapshot");
    let key = of.join("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let names = ["kept-same", "kept-changed", "kept-deleted"];
    for name in names {
        apply(&manifest(name, "first"));
    }
    let paths = [
        directory().join("kubeconfig/admin.yaml"),
        of.join("snapshot"),
        key,
        of.join("out"),
    ];
    let paths = paths.map(|path| path.display().to_string());
    let [kubeconfig, snapshot, key, output] = &paths;
    let references = names.map(|name| format!("--secret=default/{name}"));
    let mut flags = vec![
        "-o=wide",
        "--kubeconfig",
        kubeconfig,
        "--output-dir",
        output,
    ];
    flags.extend(["--snapshot", snapshot, "--snapshot-key", key]);
    flags.extend(references.iter().map(String::as_str));

    let mut agent = AGENT.start(&flags);
    agent.wait_for_all(
        "the first rows",
        vec![
            line(&["default", "<none>", "Secret", "kept-same", "Synced"]),
            line(&["default", "<none>", "Secret", "kept-changed", "Synced"]),
            line(&["default", "<none>", "Secret", "kept-deleted", "Synced"]),
        ],
    );
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    fs::remove_dir_all(of.join("out")).unwrap();
    apply(&manifest("kept-changed", "second"));
    change("delete", &manifest("kept-deleted", "first"));

    control("stop-apiserver");
    let mut agent = AGENT.start(&flags);
    agent.wait_for_all(
        "the rows without a server",
        vec![
            line(&["default", "<none>", "Secret", "kept-same", "Restored"]),
            line(&["default", "<none>", "Secret", "kept-changed", "Restored"]),
            line(&["default", "<none>", "Secret", "kept-deleted", "Restored"]),
        ],
    );
    control("start-apiserver");
    agent.wait_for_all(
        "the server's word",
        vec![
            line(&["default", "<none>", "Secret", "kept-same", "Synced"]),
            line(&["default", "<none>", "Secret", "kept-changed", "Synced"]),
            line(&["default", "<none>", "Secret", "kept-deleted", "NotFound"]),
        ],
    );
    let ended = agent.stop(Signal::TERM);
    println!("{}\n{}", ended.stdout, ended.stderr);
    for told in [
        "Secret default/kept-changed changed while this process was down",
        "Secret default/kept-deleted was deleted while this process was down",
    ] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    assert!(
        !ended.stderr.contains("kept-same changed"),
        "{}",
        ended.stderr
    );
    for name in ["kept-same", "kept-changed"] {
        change("delete", &manifest(name, "first"));
    }
}
