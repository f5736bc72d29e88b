//! How late each cache of the soak was after each trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// The times until a cache was equal, by trouble and cache.
#[derive(Default)]
pub(super) struct Table {
    times: BTreeMap<(String, String), Vec<Duration>>,
    lines: Vec<String>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn add(&mut self, trouble: &str, cache: &str, late: Duration) {
        let of = (cache.to_owned(), trouble.to_owned());
        self.times.entry(of).or_default().push(late);
    }

    pub(super) fn add_line(&mut self, line: String) {
        self.lines.push(line);
    }

    /// A row for each cache, a column for each trouble: the longest time in seconds.
    pub(super) fn text(&self) -> String {
        let troubles: BTreeSet<_> = self.times.keys().map(|(_, trouble)| trouble).collect();
        let caches: BTreeSet<_> = self.times.keys().map(|(cache, _)| cache).collect();
        let mut text = "The longest time in seconds until a cache was equal after:\n".to_owned();
        for (number, trouble) in troubles.iter().enumerate() {
            let times = self.times.iter().find(|((_, of), _)| of == *trouble);
            let count = times.map_or(0, |(_, times)| times.len());
            writeln!(text, "  {number:2}: {trouble}, {count} times").unwrap();
        }
        write!(text, "{:28}", "").unwrap();
        for number in 0..troubles.len() {
            write!(text, "{number:6}").unwrap();
        }
        for cache in caches {
            write!(text, "\n{cache:28}").unwrap();
            for trouble in &troubles {
                let times = self.times.get(&(cache.clone(), (*trouble).clone()));
                let longest = times.and_then(|times| times.iter().max());
                let longest = longest.map_or(0.0, Duration::as_secs_f64);
                write!(text, "{longest:6.1}").unwrap();
            }
        }
        for line in &self.lines {
            write!(text, "\n{line}").unwrap();
        }
        text
    }
}
