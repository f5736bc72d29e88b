//! The demonstration: the recorded node, once and as its story goes on.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use super::AGENT;
use crate::support::example::{Ended, IsLine};

pub(crate) const RECORDING: &str = include_str!("../../fixtures/recordings/node-1.jsonl");

/// The values of the recorded Secrets, in base64 and in the clear.
pub(crate) fn secret_values() -> BTreeSet<String> {
    use base64::Engine as _;
    let mut values = BTreeSet::new();
    for line in RECORDING.lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).unwrap();
        let mut found = Vec::new();
        find_data(&line, &mut found);
        for value in found {
            let clear = base64::engine::general_purpose::STANDARD.decode(&value);
            values.extend(clear.ok().and_then(|clear| String::from_utf8(clear).ok()));
            values.insert(value);
        }
    }
    values.retain(|value| value.len() > 6);
    values
}

/// Each text under a `data` that stands beside the `type` of a Secret.
fn find_data(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let (Some(Value::Object(data)), true) =
                (fields.get("data"), fields.contains_key("type"))
            {
                found.extend(data.values().filter_map(Value::as_str).map(str::to_owned));
            }
            fields.values().for_each(|value| find_data(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| find_data(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_first_line_says_what_it_is_and_the_table_follows() {
    let ended = AGENT.run(&["--demo", "--once"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mut lines = ended.stdout.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("Demo: no cluster is asked; recordings of ")
    );
    assert!(lines.next().unwrap().starts_with("NAMESPACE/POD   "));
    for (object, state) in [
        ("storefront-tls", "Synced"),
        ("catalog-schema-v3", "Synced"),
        ("search-synonyms", "NotFound"),
        ("payment-provider-key", "Forbidden"),
    ] {
        let row = ended.stdout.lines().find(|line| line.contains(object));
        let row = row.unwrap_or_else(|| panic!("no row for {object}:\n{}", ended.stdout));
        assert!(row.contains(state), "{row}");
    }
    assert_fits(&ended.stdout);
    // The server's words about a refusal stand below its row.
    let refused = ended
        .stdout
        .lines()
        .position(|line| line.contains("Forbidden"));
    let below = ended.stdout.lines().nth(refused.unwrap() + 1).unwrap();
    assert!(below.starts_with("    "), "{}", ended.stdout);
    let wide = AGENT.run(&["--demo", "--once", "-o", "wide"]).stdout;
    let headers = "NAMESPACE POD KIND NAME STATE VERSION IMMUTABLE KEYS BYTES AGE HEARD REASON";
    let second = wide.lines().nth(1).unwrap();
    assert!(second.split_whitespace().eq(headers.split(' ')), "{second}");
}

/// The lines of the table have 80 columns.
fn assert_fits(text: &str) {
    let lines = text.lines().filter(|line| !line.starts_with("Demo: "));
    for line in lines {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn json_has_the_promised_shape_and_no_value_of_a_secret() {
    let ended = AGENT.run(&["--demo", "--once", "-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("Demo: "), "{}", ended.stderr);
    let node: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(node["node"], "node-1");
    let pods = node["pods"].as_array().unwrap();
    assert!(pods.len() >= 12, "a dozen pods");
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    for pod in pods {
        assert_eq!(keys(pod), ["name", "namespace", "objects"]);
        for object in pod["objects"].as_array().unwrap() {
            let expected = [
                "bytes",
                "immutable",
                "keys",
                "kind",
                "name",
                "reason",
                "resourceVersion",
                "state",
            ];
            assert_eq!(keys(object), expected);
            assert_eq!(
                object["state"] == "Synced",
                object["bytes"].is_u64(),
                "{object}"
            );
        }
    }
    let values = secret_values();
    assert!(values.len() > 10, "the recording has Secrets");
    for value in values {
        assert!(
            !ended.stdout.contains(&value) && !ended.stderr.contains(&value),
            "{value}"
        );
    }
}

/// Follows the story to its last phase, ends it, and gives what was printed.
fn follow(output: &str, signal: Signal) -> Ended {
    let mut agent = AGENT.start(&["--demo", "--demo-speed", "10", "-o", output, "-vvvv"]);
    let has = |name: &'static str, state: &'static str| -> IsLine {
        Box::new(move |line| line.contains(name) && line.contains(state))
    };
    // An agent that gets little of the machine sees several changes at once, and prints them by
    // name.
    let changes = vec![
        has("promo-banner", "Synced"),
        has("search-synonyms", "Synced"),
        has("catalog-reindex", "Removed"),
        has("checkout-5f7b8c9d66-c6p2n", "Synced"),
    ];
    agent.wait_for_all("every change of the story", changes);
    let ended = agent.stop(signal);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for value in secret_values() {
        let shown = ended.stdout.contains(&value) || ended.stderr.contains(&value);
        assert!(!shown, "a value of a Secret: {value}");
    }
    ended
}

#[test]
fn the_story_goes_on_in_a_table_until_sigterm() {
    let ended = follow("wide", Signal::TERM);
    let headers = ended.stdout.matches("NAMESPACE").count();
    assert_eq!(headers, 1, "{}", ended.stdout);
}

/// A long name has a mark where it is cut.
#[test]
fn rows_that_follow_have_the_time_and_what_happened_in_80_columns() {
    let mut agent = AGENT.start(&["--demo", "--demo-speed", "10"]);
    agent.wait_for("a removal", |line| line.ends_with("Removed"));
    let ended = agent.stop(Signal::TERM);
    assert_fits(&ended.stdout);
    let mut lines = ended.stdout.lines().skip(1);
    let headers = lines.next().unwrap();
    assert!(
        headers
            .split_whitespace()
            .eq(["TIME", "NAMESPACE/POD", "OBJECT", "STATE"])
    );
    for line in lines.filter(|line| !line.starts_with(' ')) {
        let cells: Vec<_> = line.split_whitespace().collect();
        let is_time = |text: &str| text.len() == 9 && text.ends_with('Z');
        assert!(cells.len() >= 4 && is_time(cells[0]), "{line}");
    }
    assert!(ended.stdout.contains('\u{2026}'), "{}", ended.stdout);
}

#[test]
fn the_story_goes_on_in_a_line_of_json_per_change_until_sigint() {
    let ended = follow("json", Signal::INT);
    for line in ended.stdout.lines() {
        let change: Value = serde_json::from_str(line).unwrap();
        assert_eq!(change["pods"][0]["objects"].as_array().unwrap().len(), 1);
    }
}
