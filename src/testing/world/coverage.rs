//! The coverage of runs: which faults, answers and transitions were met, and how often.

use std::collections::BTreeMap;

/// How often each point was met, by its group and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "coverage is for a person to read"]
pub struct Coverage(BTreeMap<(String, String), u64>);

/// The actions of the reflector's core.
const ACTIONS: &[&str] = &[
    "list",
    "probe",
    "commit",
    "open",
    "stream",
    "read",
    "apply",
    "stage",
    "bookmark",
    "resync",
    "pause",
    "pause for a reader",
    "pause in a list",
    "end",
];

/// The answers that the policy tells apart, and that a network without sockets can give to lists
/// and to watches.
const ANSWERS: &[&str] = &[
    "refused",
    "cut",
    "silent",
    "unauthorized",
    "forbidden",
    "not found",
    "unreadable",
    "gone",
    "too large",
    "too many",
    "internal",
    "unavailable",
];

/// The points that runs are made to meet.
const EXPECTED: &[(&str, &[&str])] = &[
    ("action", ACTIONS),
    ("answer to a list", ANSWERS),
    ("answer to a list", &["expired"]),
    ("answer to a watch, or commit", ANSWERS),
    ("answer to a watch, or commit", &["malformed"]),
    (
        "error in a watch",
        &["cut", "expired", "too many", "internal"],
    ),
    (
        "manager",
        &[
            "watches a namespace as a whole",
            "polls objects without room",
        ],
    ),
];

impl Coverage {
    /// Returns the points that runs are made to meet, each with a count of 0.
    pub fn expected() -> Self {
        let mut coverage = Self::default();
        for (group, names) in EXPECTED {
            for name in *names {
                coverage.add(group, name, 0);
            }
        }
        coverage
    }

    /// Returns each point with its group, its name and how often it was met, in order. A point that
    /// was never met counts 0.
    pub fn points(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.0
            .iter()
            .map(|((group, name), count)| (&**group, &**name, *count))
    }

    /// Adds the counts of another run, or of another process.
    pub fn add(&mut self, group: &str, name: &str, count: u64) {
        let point = self.0.entry((group.to_owned(), name.to_owned()));
        let known = point.or_default();
        *known = known.saturating_add(count);
    }
}

/// The counts of one run, without allocations.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<(&'static str, &'static str), u64>);

impl Counts {
    pub(super) fn met(&mut self, group: &'static str, name: &'static str) {
        let count = self.0.entry((group, name)).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn add_to(&self, coverage: &mut Coverage) {
        for ((group, name), count) in &self.0 {
            coverage.add(group, name, *count);
        }
    }
}
