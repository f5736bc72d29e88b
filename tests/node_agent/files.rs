//! `--output-dir`: the objects as files, and the program that is told of changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::AGENT;
use crate::support::TempDirectory;

/// The folders of objects, as `namespace/kind/name`.
fn folders(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::from([String::new()]);
    for _ in 0..3 {
        let deeper = found.iter().flat_map(|path| {
            let entries = fs::read_dir(directory.join(path)).unwrap();
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
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("key"), "old").unwrap();
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
