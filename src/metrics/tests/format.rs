//! The text as a scraper reads it: a small reader of the format 0.0.4, and random names and counts
//! that must come back.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the numbers are those of the tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::reflector::ReflectorMetric;
use crate::tests::dice::Dice;

/// A sample's name and labels.
type Series = (String, BTreeMap<String, String>);

/// A text as a scraper parses it.
#[derive(Debug, Default)]
struct Scraped {
    types: BTreeMap<String, String>,
    samples: BTreeMap<Series, f64>,
}

/// Reads a text as the format's description asks: a family's HELP and TYPE first, then all its
/// samples, no sample twice.
fn scrape(text: &str) -> Scraped {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut scraped = Scraped::default();
    let mut helped = String::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty());
            name.clone_into(&mut helped);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "HELP stands before TYPE");
            name.clone_into(&mut family);
            let before = scraped.types.insert(name.to_owned(), kind.to_owned());
            assert_eq!(before, None, "{name}: one group per family");
        } else {
            let (series, value) = sample(line);
            let kind = &scraped.types[&family];
            let suffixes: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                "counter" | "gauge" => &[""],
                other => panic!("{other}"),
            };
            let is_of_family = |suffix: &&str| series.0 == format!("{family}{suffix}");
            assert!(suffixes.iter().any(is_of_family), "{line} under {family}");
            let before = scraped.samples.insert(series, value);
            assert_eq!(before, None, "{line}: a sample stands once");
        }
    }
    scraped
}

fn sample(line: &str) -> (Series, f64) {
    let name_end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_a_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_a_name(label), "{line}");
            let (value, after) = quoted(after);
            assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
            let Some(more) = after.strip_prefix(',') else {
                rest = after.strip_prefix('}').unwrap();
                break;
            };
            rest = more;
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    ((name.to_owned(), labels), value.parse().unwrap())
}

fn is_a_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A label's value up to its closing quote, and what follows it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next().unwrap().1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                other => panic!("\\{other} is no escape"),
            },
            plain => value.push(plain),
        }
    }
    panic!("{text} does not end");
}

impl Scraped {
    fn of(&self, metric: &str, labels: &BTreeMap<String, String>) -> Option<f64> {
        let series = (metric.to_owned(), labels.clone());
        self.samples.get(&series).copied()
    }

    /// Buckets are cumulative, and the last of them is the count.
    fn check_histogram(&self, metric: &str, labels: &BTreeMap<String, String>) -> f64 {
        let name = format!("{metric}_bucket");
        let mut buckets: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter_map(|((bucket, all), count)| {
                let mut own = all.clone();
                let le = own.remove("le")?;
                (*bucket == name && own == *labels).then(|| (le.parse().unwrap(), *count))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{buckets:?}"
        );
        let (last, count) = *buckets.last().unwrap();
        assert!(last.is_infinite());
        assert_eq!(self.of(&format!("{metric}_count"), labels), Some(count));
        count
    }
}

/// Random samples, the same for the same seed everywhere.
struct Samples(Dice);

impl Samples {
    fn up_to(&mut self, most: u32) -> u32 {
        u32::try_from(self.0.roll(u64::from(most) + 1)).unwrap()
    }

    /// A name of characters that are awkward in one text format or another.
    fn name(&mut self) -> String {
        let alphabet: Vec<char> = "a\\\"\n\r\t{},= #ö日\u{1f980}n0".chars().collect();
        let last = u32::try_from(alphabet.len() - 1).unwrap();
        let length = self.up_to(7);
        let pick = |_| alphabet[usize::try_from(self.up_to(last)).unwrap()];
        (0..=length).map(pick).collect()
    }
}

#[test]
fn whatever_is_counted_under_whatever_name_is_read_back() {
    for seed in 1..100 {
        let mut dice = Samples(Dice::seeded(seed));
        let exposition = Exposition::new();
        let names: BTreeSet<String> = (0..=dice.up_to(5)).map(|_| dice.name()).collect();
        let mut expected = Vec::new();
        let mut handles = Vec::new();
        for name in &names {
            let metrics = exposition.reflector::<ConfigMap>(name).unwrap();
            let lists = dice.up_to(50);
            let took = Duration::from_millis(dice.up_to(100_000).into());
            for _ in 0..lists {
                metrics.tell("t", &ReflectorMetric::ListStarted);
                let items = usize::try_from(dice.up_to(200_000)).unwrap();
                metrics.tell("t", &ReflectorMetric::Listed { items, took });
            }
            expected.push((name, f64::from(lists), took.as_secs_f64()));
            handles.push(metrics);
        }
        let scraped = scrape(&exposition.text());
        for (name, lists, took) in expected {
            let labels = [
                ("name", name.as_str()),
                ("group", ""),
                ("version", "v1"),
                ("resource", "configmaps"),
            ];
            let labels = labels
                .map(|(label, value)| (label.to_owned(), value.to_owned()))
                .into();
            assert_eq!(
                scraped.of("reflector_lists_total", &labels),
                Some(lists),
                "seed {seed}"
            );
            let duration = "reflector_list_duration_seconds";
            assert_eq!(
                Some(scraped.check_histogram(duration, &labels)),
                Some(lists),
                "seed {seed}"
            );
            assert_eq!(
                Some(scraped.check_histogram("reflector_items_per_list", &labels)),
                Some(lists)
            );
            let sum = scraped.of(&format!("{duration}_sum"), &labels).unwrap();
            assert!((sum - lists * took).abs() < 1e-6, "seed {seed}: {sum}");
        }
    }
}

/// The names that dashboards ask for, with their types.
#[test]
fn rf_51_rf_52_names_and_types_are_those_of_the_originals_and_of_the_page() {
    let page = include_str!("../mod.rs");
    let scraped = scrape(include_str!("golden.txt"));
    let mut documented: BTreeMap<String, String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("//! - `"))
        .filter_map(|entry| {
            let (name, rest) = entry.split_once("` (")?;
            let (kind, _) = rest.split_once("):")?;
            Some((name.to_owned(), kind.to_owned()))
        })
        .collect();
    // They change with time, so the text checked by hand does not have them.
    for name in [
        "rest_client_exec_plugin_ttl_seconds",
        "kubecache_client_certificate_ttl_seconds",
        "kubecache_client_credentials_ttl_seconds",
    ] {
        assert_eq!(documented.remove(name).unwrap(), "gauge");
    }
    assert_eq!(scraped.types, documented);
}
