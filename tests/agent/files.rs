//! `--output-dir`: the objects as files, and the program that is told of changes.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use kubecache::testing::{ApiServer, objects};
use rustix::process::Signal;
use serde_json::Value;

use super::AGENT;
use super::probes::{FLAG, told, wait_for_answer};
use crate::support::example::Killed;
use crate::support::small_disk::{SmallDisk, alone_with_mounts, small_disk};
use crate::support::{TempDirectory, until};

/// The folders of objects, as `namespace/kind/name`.
fn folders(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::from([String::new()]);
    for _ in 0..3 {
        let deeper = found.iter().flat_map(|path| {
            let entries = fs::read_dir(directory.join(path)).unwrap();
            let entries = entries.filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                !name.to_string_lossy().starts_with(".kubecache")
            });
            entries.map(move |entry| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                format!("{path}/{name}").trim_start_matches('/').to_owned()
            })
        });
        found = deeper.collect();
    }
    found
}

/// What is left of an earlier agent goes, and what is named now is there, and nothing else.
#[test]
fn each_object_that_is_there_has_its_files_and_no_other() {
    let directory = TempDirectory::new("agent-files");
    let path = directory.to_str().unwrap();
    let left = directory.join("shop/secrets/of-a-pod-that-is-gone");
    fs::create_dir_all(left.join("..5")).unwrap();
    fs::write(left.join("..5/key"), "old").unwrap();
    symlink("..5", left.join("..data")).unwrap();
    symlink("..data/key", left.join("key")).unwrap();
    let demo = ["--demo", "--demo-speed", "0", "--once", "-o", "json"];
    let ended = AGENT.run(&[&demo[..], &["--output-dir", path]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let node: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut expected = BTreeSet::new();
    for pod in node["pods"].as_array().unwrap() {
        for object in pod["objects"].as_array().unwrap() {
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let (namespace, name) = (&pod["namespace"], &object["name"]);
            if object["state"] == "Synced" {
                let name = name.as_str().unwrap();
                let folder = format!("{}/{kind}s/{name}", namespace.as_str().unwrap());
                let keys = fs::read_dir(directory.join(&folder).join("..data")).unwrap();
                assert_eq!(object["keys"], keys.count(), "{folder}");
                expected.insert(folder);
            }
        }
    }
    assert!(expected.len() > 30, "{expected:?}");
    assert_eq!(folders(&directory), expected);
}

#[test]
fn a_program_is_told_that_files_have_changed() {
    let directory = TempDirectory::new("agent-tells");
    let path = directory.to_str().unwrap();
    let command = "echo the files have changed";
    let flags = ["--demo", "--output-dir", path, "--exec-on-change", command];
    let mut agent = AGENT.start_in(&flags, &[("PATH", "/usr/bin:/bin")]);
    while agent.next_told().expect("it ends with the test") != "the files have changed" {}
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    assert!(!folders(&directory).is_empty(), "the files stay");
}

/// To the system a negative number is a group of processes, and -1 is all of them.
#[test]
fn a_number_that_is_no_process_is_told_and_signals_nobody() {
    let directory = TempDirectory::new("agent-signals");
    let group = Command::new("sleep").arg("600").process_group(0).spawn();
    let mut group = Killed(group.unwrap());
    let (out, file) = (directory.join("out"), directory.join("pid"));
    fs::write(&file, format!("-{}\n", group.0.id())).unwrap();
    let [out, file] = [&out, &file].map(|path| path.to_str().unwrap());
    let mut agent = AGENT.start(&["--demo", "--output-dir", out, "--signal-on-change", file]);
    let told = format!("--signal-on-change {file}: it holds \"-{}\"", group.0.id());
    while !agent.next_told().unwrap().contains(&told) {}
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    assert_eq!(group.0.try_wait().unwrap(), None, "it got the signal");
}

/// The flags of an agent that writes the files of the recordings and ends.
fn demo_into(directory: &str) -> [&str; 5] {
    [
        "--demo",
        "--demo-speed=0",
        "--once",
        "--output-dir",
        directory,
    ]
}

/// Seen: with `--output-dir /home` all that stood so deep was removed, with exit code 0.
#[test]
fn a_directory_of_somebodys_is_refused_until_it_is_adopted_and_loses_nothing() {
    let directory = TempDirectory::new("agent-home");
    let list = directory.join("alice/secrets/passwords/list");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, "hers").unwrap();
    let path = directory.to_str().unwrap();
    let flags = demo_into(path);
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for told in ["alice/secrets/passwords/list", "--output-adopt", path] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    let ended = AGENT.run(&[&flags[..], &["--output-adopt"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("is adopted"), "{}", ended.stderr);
    let ended = AGENT.run(&flags);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("is adopted"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(list).unwrap(), "hers");
    assert!(folders(&directory).len() > 30);
}

/// Seen: two agents removed each other's files, and both said `files ok`.
#[test]
fn a_second_agent_is_refused_and_the_first_is_named() {
    let directory = TempDirectory::new("agent-two");
    let path = directory.to_str().unwrap();
    let flags = ["--demo", "--output-dir", path];
    let mut first = AGENT.start(&[&flags[..], &["-o", "name"]].concat());
    first.wait_for("its first object", |_| true);
    let second = AGENT.run(&[&flags[..], &["--once"]].concat());
    assert_eq!(second.code, 1, "{}", second.stderr);
    let told = format!("error: the output directory {path}: another process writes there: ");
    let (_, process) = second.stderr.split_once(&told).expect("it is named");
    assert!(
        process.starts_with(&format!("{} on ", first.id())),
        "{process}"
    );
    assert_eq!(first.stop(Signal::TERM).code, 0);
    assert_eq!(AGENT.run(&[&flags[..], &["--once"]].concat()).code, 0);
}

/// Seen: a folder that the agent may not open made each round fail.
#[test]
fn a_folder_that_cannot_be_opened_is_told_once_and_passed_over() {
    let directory = TempDirectory::new("agent-stray");
    let path = directory.to_str().unwrap();
    let flags = demo_into(path);
    // Everything can be opened by root.
    let mut command = AGENT.command(&flags);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
        std::os::unix::fs::chown(&*directory, Some(65534), Some(65534)).unwrap();
    }
    for round in 0..2 {
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let told = "is left alone: stray (Permission denied";
        assert_eq!(stderr.matches(told).count(), round, "{stderr}");
        if round == 0 {
            let stray = directory.join("stray");
            fs::create_dir(&stray).unwrap();
            fs::set_permissions(&stray, Permissions::from_mode(0o0)).unwrap();
        }
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let directory = TempDirectory::new("agent-no-directory");
    let file = directory.join("file");
    fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap();
    let ended = AGENT.run(&["--demo", "--once", "--output-dir", path]);
    assert_eq!(ended.code, 1);
    let told = format!("error: the output directory {path}: ");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
}

#[test]
fn a_full_disk_fails_the_probe_of_files_until_there_is_room() {
    alone_with_mounts(|| writes_once_there_is_room(&small_disk()));
}

fn writes_once_there_is_room(disk: &SmallDisk) {
    let server = ApiServer::new().unwrap();
    for (name, text) in [("large", "x".repeat(100_000)), ("small", "x".to_owned())] {
        let map = objects::config_map("shop", name, "", &[("key", &text)]);
        server.apply(&map).unwrap();
    }
    let (url, path) = (server.url(), disk.directory.to_str().unwrap());
    let flags = [
        &["--server", &url, "--output-dir", path][..],
        &["--configmap", "shop/large", "--configmap", "shop/small"],
    ]
    .concat();
    let once = AGENT.run(&[&flags[..], &["--once"]].concat());
    assert_eq!(once.code, 1, "{}", once.stderr);
    let line = once.stderr.lines().last().unwrap();
    assert!(
        line.contains("shop/configmaps/large") && line.contains("No space left on device"),
        "{line}"
    );

    let mut agent = AGENT.start(&[&flags[..], &[FLAG, "127.0.0.1:0"]].concat());
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let probes = probes.parse().unwrap();
    while !agent
        .next_told()
        .unwrap()
        .contains("No space left on device")
    {}
    let small = disk.directory.join("shop/configmaps/small/key");
    assert_eq!(fs::read_to_string(small).unwrap(), "x");
    let said = "[-]files failed: objects that could not be written: 1 (last failure: Resources)\n\
        healthz/files check failed\n";
    wait_for_answer(probes, "/healthz/files", (500, said));

    disk.remount("size=1m");
    wait_for_answer(probes, "/healthz/files", (200, "ok"));
    let large = fs::read(disk.directory.join("shop/configmaps/large/key")).unwrap();
    assert_eq!(large.len(), 100_000);
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: a removed file was not there 70 s later, and no line told of it.
#[test]
fn what_somebody_removes_or_replaces_is_told_and_comes_back() {
    let directory = TempDirectory::new("agent-harm");
    let path = directory.to_str().unwrap();
    let told_by = TempDirectory::new("agent-harm-hook");
    let (hook, log) = (told_by.join("hook"), told_by.join("log"));
    let script = format!(
        "#!/bin/sh\necho \"$KUBECACHE_CHANGED\" >> {}\n",
        log.display()
    );
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    let server = ApiServer::new().unwrap();
    for name in ["first", "second"] {
        let map = objects::config_map("shop", name, "", &[("key", "1")]);
        server.apply(&map).unwrap();
    }
    let url = server.url();
    let mut agent = AGENT.start(
        &[
            &["--server", &url, "--output-dir", path, FLAG, "127.0.0.1:0"][..],
            &["--configmap", "shop/first", "--configmap", "shop/second"],
            &["--exec-on-change", hook.to_str().unwrap()],
        ]
        .concat(),
    );
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let probes = probes.parse().unwrap();
    wait_for_answer(probes, "/readyz/files", (200, "ok"));
    // The agent tells of a write once it knows the files again.
    let is_told = |name| fs::read_to_string(&log).is_ok_and(|log| log.contains(name));
    until(|| is_told("first") && is_told("second"));
    let folders = ["first", "second"].map(|name| directory.join("shop/configmaps").join(name));
    until(|| folders.iter().all(|folder| folder.join("key").exists()));
    fs::remove_file(folders[0].join("..data/key")).unwrap();
    fs::rename(&folders[1], directory.join("shop/configmaps/moved")).unwrap();
    let told = "another program changed or removed files of ";
    while !agent.next_told().expect("it tells").contains(told) {}
    wait_for_answer(probes, "/healthz/files", (200, "ok"));
    until(|| {
        folders
            .iter()
            .all(|folder| fs::read(folder.join("key")).ok() == Some(b"1".to_vec()))
    });
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: each write failed for ever. Root can open everything, so the agent is not run by root.
#[test]
fn files_that_their_owner_cannot_open_any_more_are_written_again() {
    let directory = TempDirectory::new("agent-locked");
    let path = directory.to_str().unwrap();
    let mut command = AGENT.command(&demo_into(path));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
        std::os::unix::fs::chown(&*directory, Some(65534), Some(65534)).unwrap();
    }
    let mut run = || {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run();
    let folders: Vec<_> = folders(&directory).into_iter().collect();
    let [files, whole] = [&folders[0], &folders[1]].map(|path| directory.join(path).join("..data"));
    let file = fs::read_dir(&files)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for locked in [&file, &whole] {
        fs::set_permissions(locked, Permissions::from_mode(0o0)).unwrap();
    }
    run();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(&file), mode(&whole)], [0o600, 0o700]);
}

/// The mask takes the owner's own rights away.
#[test]
fn files_and_folders_have_their_modes_under_any_mask() {
    let directory = TempDirectory::new("agent-mask");
    let out = directory.join("out");
    let demo = ["--demo", "--demo-speed", "0", "--once", "--output-dir"];
    let ended = Command::new("sh")
        .args(["-c", "umask 0777; exec \"$0\" \"$@\""])
        .arg(AGENT.program())
        .args(demo)
        .arg(&out)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for folder in folders(&out) {
        let files = out.join(folder).join("..data");
        for path in files.ancestors().take(5) {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        for file in fs::read_dir(&files).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
    }
}
