//! SIGHUP has the agent read its references again; it never ends it. And an end that comes while
//! an object of many keys is written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::testing::{Act, ApiServer, Fault, Received, objects};
use rustix::process::Signal;

use super::AGENT;
use super::probes::soon;
use super::slow_readers::wait_for_file;
use crate::support::{TempDirectory, until};

fn secret(server: &ApiServer, name: &str) {
    let secret = objects::secret("shop", name, "", &[("key", name)]);
    server.apply(&secret).unwrap();
}

#[test]
fn a_hang_up_has_it_read_its_references_again_and_a_bad_file_changes_nothing() {
    let server = ApiServer::new().unwrap();
    for name in ["db", "old", "new"] {
        secret(&server, name);
    }
    let directory = TempDirectory::new("agent-reload");
    let (output, file) = (directory.join("out"), directory.join("references"));
    fs::write(&file, "secret shop/old\n").unwrap();
    let (url, path) = (server.url(), output.to_str().unwrap());
    let flags = [
        &["--server", &url, "--output-dir", path][..],
        &[
            "--secret",
            "shop/db",
            "--references",
            file.to_str().unwrap(),
        ],
    ];
    let mut agent = AGENT.start(&flags.concat());
    let key = |name: &str| output.join(format!("shop/secrets/{name}/key"));
    wait_for_file(&key("old"), "old");
    agent.wait_for("its row", |line| line.contains("secret/old "));

    fs::write(&file, "secret shop/new\n").unwrap();
    agent.signal(Signal::HUP);
    wait_for_file(&key("new"), "new");
    // It is named no more.
    until(|| !key("old").exists());
    agent.wait_for("the row of what went", |line| {
        line.contains("secret/old ") && line.contains("Removed")
    });

    fs::write(&file, "secret new\n").unwrap();
    agent.signal(Signal::HUP);
    let warning = "line 1: \"secret new\": write secret NAMESPACE/NAME or configmap \
        NAMESPACE/NAME; what was read before stays";
    while !agent.next_told().unwrap().ends_with(warning) {}
    for name in ["db", "new"] {
        assert_eq!(fs::read_to_string(key(name)).unwrap(), name);
    }
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: it was killed by the signal, and its hook and its snapshot with it.
#[test]
fn a_hang_up_ends_no_run_that_waits() {
    let server = ApiServer::new().unwrap();
    server.add_fault(Fault::new(Act::Hang));
    let agent = AGENT.start(&[
        "--server",
        &server.url(),
        "--node-name",
        "n1",
        "--once",
        "-v",
    ]);
    assert!(server.wait_for_requests(soon(), |asked: &[Received]| !asked.is_empty()));
    agent.signal(Signal::HUP);
    let ended = agent.stop(Signal::INT);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let told = "error: interrupted before each object had its answer\n";
    assert!(ended.stderr.ends_with(told), "{}", ended.stderr);
}

/// Seen: the end took eight seconds, which is how long the thread that writes files waited for an
/// answer yet.
#[test]
fn a_server_that_does_not_answer_holds_up_no_end_of_an_agent_that_writes_files() {
    for strategy in ["Get", "Cache"] {
        // Its own request alone shows that this agent listens for signals.
        let name = format!("silent-{strategy}").to_lowercase();
        let server = ApiServer::new().unwrap();
        server.add_fault(Fault::new(Act::Hang));
        let directory = TempDirectory::new("agent-silent-server");
        let (url, path) = (server.url(), directory.join("out"));
        let agent = AGENT.start(&[
            "--server",
            &url,
            "--secret",
            &format!("shop/{name}"),
            "--output-dir",
            path.to_str().unwrap(),
            "--change-detection",
            strategy,
        ]);
        let asked = |asked: &[Received]| asked.iter().any(|one| one.path().ends_with(&name));
        assert!(server.wait_for_requests(soon(), asked));
        let clock = Clock::system();
        let late = clock.after(Duration::from_secs(5));
        assert_eq!(agent.stop(Signal::TERM).code, 0);
        assert!(
            !clock.has_passed(late),
            "{strategy}: it takes some milliseconds"
        );
    }
}

/// How many files the folders of an object have, readable or not, and whether they can be read.
fn written(folder: &Path) -> (usize, bool) {
    let Ok(entries) = fs::read_dir(folder) else {
        return (0, false);
    };
    let folders = entries.map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir() && !path.ends_with("..data"));
    let files = folders.map(|folder| fs::read_dir(folder).map_or(0, Iterator::count));
    (files.sum(), folder.join("..data").exists())
}

/// Seen: the end of one with 20,000 keys took five seconds, until it was written. What was begun is
/// removed by the next agent.
#[test]
fn an_object_of_5_000_keys_does_not_hold_up_the_end() {
    const KEYS: usize = 5_000;
    let server = ApiServer::new().unwrap();
    let keys = (0..KEYS).map(|number| (format!("key-{number}"), "x".to_owned()));
    let map = ConfigMap {
        data: Some(keys.collect()),
        ..objects::config_map("shop", "many", "", &[])
    };
    server.apply(&map).unwrap();
    // A machine that holds the signal up long enough has it written in full.
    for _ in 0..10 {
        let directory = TempDirectory::new("agent-many-keys");
        let (url, path) = (server.url(), directory.to_str().unwrap());
        let flags = [
            "--server",
            &url,
            "--configmap",
            "shop/many",
            "--output-dir",
            path,
        ];
        let agent = AGENT.start(&flags);
        let folder = directory.join("shop/configmaps/many");
        let limit = soon();
        while written(&folder).0 == 0 {
            assert!(!Clock::system().has_passed(limit), "nothing is written");
        }
        assert_eq!(agent.stop(Signal::TERM).code, 0);
        let (before, is_whole) = written(&folder);
        if is_whole || before == KEYS {
            continue;
        }
        let next = AGENT.run(&[&flags[..], &["--once"]].concat());
        assert_eq!(next.code, 0, "{}", next.stderr);
        assert_eq!(written(&folder), (KEYS, true), "what was begun is gone");
        return;
    }
    panic!("each end waited for the whole object");
}
