//! `--log-format`: lines on standard error for people, programs and the journal.

use kubecache::testing::{ApiServer, objects};
use rustix::process::Signal;
use serde_json::Value;

use super::AGENT;
use crate::support::TempDirectory;

/// What an agent with this format writes to standard error while it runs a hook, and at its end.
fn told(format: &[&str]) -> Vec<String> {
    let server = ApiServer::new().unwrap();
    let map = objects::config_map("shop", "flags", "", &[("tax", "7")]);
    server.apply(&map).unwrap();
    let directory = TempDirectory::new("agent-logs");
    let url = server.url();
    let flags = ["--server", &url, "--configmap", "shop/flags", "-v"];
    let files = ["--output-dir", directory.to_str().unwrap()];
    let hook = ["--exec-on-change", "echo said-by-the-hook"];
    let flags = [&flags[..], &files, &hook, format].concat();
    let mut agent = AGENT.start_in(&flags, &[("PATH", "/usr/bin:/bin")]);
    while !agent.next_told().unwrap().contains("ended well after") {}
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn each_line_of_json_is_an_object_with_time_level_target_and_message() {
    let lines = told(&["--log-format", "json"]);
    let mut messages = Vec::new();
    for line in &lines {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        for field in ["time", "level", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
        messages.push(line["message"].as_str().unwrap().to_owned());
    }
    assert!(
        messages.contains(&"said-by-the-hook".to_owned()),
        "{messages:?}"
    );
}

#[test]
fn a_record_has_its_time_as_text_and_its_priority_in_the_journal() {
    for (format, begin) in [(&[][..], "20"), (&["--log-format=text"], "20")] {
        let lines = told(format);
        let record = lines
            .iter()
            .find(|line| line.contains("ended well after"))
            .unwrap();
        let words: Vec<_> = record.split(' ').collect();
        assert!(
            words[0].starts_with(begin) && words[0].ends_with('Z'),
            "{record}"
        );
        assert_eq!(words[1], "info", "{record}");
        assert!(
            words[2].starts_with("node_agent::") && words[2].ends_with(':'),
            "{record}"
        );
        assert!(lines.contains(&"said-by-the-hook".to_owned()), "{lines:?}");
    }
    let lines = told(&["--log-format=journal"]);
    let record = lines
        .iter()
        .find(|line| line.contains("ended well after"))
        .unwrap();
    assert!(record.starts_with("<6>info node_agent::"), "{record}");
}

#[test]
fn another_format_is_refused() {
    let ended = AGENT.run(&["--log-format", "xml"]);
    assert_eq!(ended.code, 2);
    let words = "error: --log-format \"xml\": write one of text, json, journal\n";
    assert!(ended.stderr.starts_with(words), "{}", ended.stderr);
}
