//! Every behaviour that the project names by its ID has an entry in the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{root, rust_files};

/// An ID as the manual writes it: capitals, a hyphen or none, a number.
struct Id<'a> {
    family: &'a str,
    number: u32,
}

fn split(text: &str) -> Option<Id<'_>> {
    let end = text.find(|c: char| !c.is_ascii_uppercase())?;
    let (family, rest) = text.split_at(end);
    let number = rest.strip_prefix('-').unwrap_or(rest);
    let number = number.parse().ok()?;
    (!family.is_empty()).then_some(Id { family, number })
}

/// The IDs with which the entries begin: `- **RF-1**`, `- **RF-1, RF-2**`, `- **RF-1..3**`.
fn listed() -> BTreeMap<String, BTreeSet<u32>> {
    let mut listed = BTreeMap::<String, BTreeSet<u32>>::new();
    for page in ["behaviours", "differences", "excluded"] {
        let text = fs::read_to_string(root().join(format!("src/manual/{page}.md"))).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("- **"));
        for part in lines.flat_map(|line| line.split("**").next().unwrap().split(", ")) {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let Some(first) = split(first) else { continue };
            let last = split(last).map_or_else(|| last.parse().unwrap(), |id| id.number);
            let numbers = listed.entry(first.family.to_owned()).or_default();
            numbers.extend(first.number..=last);
        }
    }
    listed
}

/// Whether a text names a behaviour by its ID.
pub(super) fn is_named_in(text: &str) -> bool {
    let listed = listed();
    ids(text).any(|(_, id)| {
        listed
            .get(id.family)
            .is_some_and(|numbers| numbers.contains(&id.number))
    })
}

fn ids(text: &str) -> impl Iterator<Item = (&str, Id<'_>)> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter_map(|word| split(word).map(|id| (word, id)))
}

/// The comment of a line, or else its string literals.
fn texts(line: &str) -> Vec<&str> {
    match line.split_once("//") {
        Some((_, comment)) => vec![comment],
        None => line.split('"').skip(1).step_by(2).collect(),
    }
}

#[test]
fn every_behaviour_that_is_named_has_its_entry() {
    let listed = listed();
    assert!(
        listed.len() > 20,
        "the manual's entries were not read: {listed:?}"
    );
    let mut missing = BTreeMap::<String, String>::new();
    let sources = ["src", "tests", "examples", "benches"];
    for source in sources.iter().flat_map(|folder| rust_files(folder)) {
        for (word, id) in source.text.lines().flat_map(texts).flat_map(ids) {
            let known = listed
                .get(id.family)
                .is_none_or(|numbers| numbers.contains(&id.number));
            if !known {
                missing.insert(word.to_owned(), source.path.display().to_string());
            }
        }
    }
    assert!(
        missing.is_empty(),
        "IDs without an entry in src/manual: {missing:#?}"
    );
}
