//! What the crate reads from texts that client-go reads too, in the words of its peer
//! `tests/cluster/gotools/parsers`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::http::read_text;
use crate::object::{LabelMatcher, LabelSelector};

/// The sets of labels that a selector is asked about.
const SETS: [&[(&str, &str)]; 7] = [
    &[],
    &[("a", "b")],
    &[("a", "1")],
    &[("a", "")],
    &[("b", "c"), ("a", "b")],
    &[("x/y", "z")],
    &[("example.com/a", "7"), ("in", "notin"), ("b", "1")],
];

/// What is read from an input of the fuzzer's target with this name. `None` if it is refused, or if
/// client-go has no reader for the target.
pub fn fuzz_reading(target: &str, input: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(input).ok()?;
    match target {
        "selector" => selector(text),
        "kubeconfig" => kubeconfig(text),
        _ => None,
    }
}

/// Which of the sets match.
fn selector(text: &str) -> Option<String> {
    let matcher = LabelMatcher::parse(&LabelSelector::new(text)).ok()?;
    let answers = SETS.iter().map(|set| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels: BTreeMap<_, _> = set.iter().map(owned).collect();
        if matcher.matches(Some(&labels)) {
            '1'
        } else {
            '0'
        }
    });
    Some(answers.collect())
}

/// Some of what a client would be made of.
fn kubeconfig(text: &str) -> Option<String> {
    let config = read_text(text).ok()??;
    let mut reading = String::new();
    let name = config.tls.name();
    let written = write!(reading, "namespace {}\nname {name}\n", config.namespace());
    written.is_ok().then_some(reading)
}
