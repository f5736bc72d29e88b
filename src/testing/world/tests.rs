//! A fixed number of seeds, the same run for the same seed, and a failure that is made shorter.

use super::*;
use crate::tests::dice::seeds;

/// Seeds of each run of the tests, or more if `KUBECACHE_SEEDS` says so.
const SEEDS: u64 = 60;

#[test]
fn whatever_happens_in_the_world_the_promises_hold() {
    let seeds = seeds(SEEDS);
    let mut coverage = Coverage::default();
    for seed in 0..seeds {
        let outcome = run(seed, &RunOptions::default(), &mut coverage);
        if let Some(failure) = outcome.failure {
            panic!("seed {seed} fails: {failure}\nsimulate --seed {seed} has its story");
        }
    }
    println!("{seeds} seeds of the simulation");
}

#[test]
fn a_seed_has_one_story() {
    for seed in [3, 99, 783] {
        let tell = || {
            let options = RunOptions::default().traces(true);
            run(seed, &options, &mut Coverage::default()).story
        };
        let story = tell();
        assert!(story.len() > 20, "{story:?}");
        assert_eq!(story, tell());
    }
}

/// With the steps of a failing run left out that do not matter.
#[test]
fn a_run_without_its_steps_only_heals() {
    let all = (0..300).collect();
    let options = RunOptions::default().skipped(all);
    let outcome = run(7, &options, &mut Coverage::default());
    assert!(outcome.failure.is_none());
    assert_eq!(outcome.steps, 0);
    assert!(shrink(7, &RunOptions::default()).is_none());
}

#[test]
fn each_oracle_has_a_name_and_a_sentence_of_its_own() {
    let page = include_str!("../../manual/contributing.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for oracle in Oracle::ALL {
        let same = |other: &&Oracle| other.name() == oracle.name();
        assert_eq!(Oracle::ALL.iter().filter(same).count(), 1, "{oracle}");
        let row = format!("- **{oracle}**: {}", oracle.sentence());
        assert!(page.contains(&row), "the manual has no line: {row}");
    }
}
