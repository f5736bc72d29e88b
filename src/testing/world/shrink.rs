//! Runs by their seed, and the search for the fewest steps with which one still fails.

use std::collections::BTreeSet;

use super::coverage::{Counts, Coverage};
use super::oracle::{BrokenPromise, Oracle};
use super::play::Play;
use crate::guard::guard;
use crate::setters::setters;

/// The options of a run.
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a run has them"]
pub struct RunOptions {
    pub(crate) steps: u64,
    pub(crate) skipped: BTreeSet<u64>,
    pub(crate) traces: bool,
    pub(crate) without: Vec<Oracle>,
}

setters! { [] RunOptions;
    /// Sets the number of steps before the world heals. Default: 300.
    steps(steps: u64);

    /// Sets the steps that are left out. The others stay as they are. Default: none.
    skipped(steps: BTreeSet<u64>);

    /// Sets the promises that nothing is held against. Default: none.
    without(oracles: Vec<Oracle>);

    /// Sets whether the outcome has the story of the run. Default: false.
    traces(traces: bool);
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            steps: 300,
            skipped: BTreeSet::new(),
            traces: false,
            without: Vec::new(),
        }
    }
}

/// The outcome of one run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The seed of the run.
    pub seed: u64,
    /// The promise that did not hold; `None` if all held.
    pub failure: Option<BrokenPromise>,
    /// The steps that the run took.
    pub steps: u64,
    /// The story, one event a line, if the options ask for it.
    pub story: Vec<String>,
}

/// Plays the run of a seed, and adds what it met to `coverage`. Blocks for less than a millisecond
/// or two; starts no thread.
///
/// # Examples
///
/// ```
/// use kubecache::testing::world::{Coverage, RunOptions, run};
///
/// let outcome = run(1, &RunOptions::default(), &mut Coverage::default());
/// assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
/// ```
pub fn run(seed: u64, options: &RunOptions, coverage: &mut Coverage) -> RunOutcome {
    let mut story = Vec::new();
    let mut steps = 0;
    let mut counts = Counts::default();
    Oracle::switch_off(&options.without);
    let played = guard("the simulation", || {
        let mut play = match Play::new(seed, options.traces) {
            Ok(play) => play,
            Err(error) => return Err(BrokenPromise::new(Oracle::Stops, error.to_string())),
        };
        let skips = |step| options.skipped.contains(&step);
        let result = guard("the simulation", || play.run(options.steps, &skips));
        story = std::mem::take(&mut play.story);
        counts = std::mem::take(&mut play.counts);
        steps = play.steps;
        result.unwrap_or_else(|panic| Err(BrokenPromise::panicked(&panic)))
    });
    let result = played.unwrap_or_else(|panic| Err(BrokenPromise::panicked(&panic)));
    counts.add_to(coverage);
    let failure = result.err().filter(|broken| !broken.oracle.is_off());
    if let (Some(failure), true) = (&failure, options.traces) {
        story.push(failure.to_string());
    }
    RunOutcome {
        seed,
        failure,
        steps,
        story,
    }
}

/// Searches for the fewest steps with which the run of a seed still breaks the same promise, and
/// returns its options. `None` if the run fails in no such way.
pub fn shrink(seed: u64, options: &RunOptions) -> Option<RunOptions> {
    let mut coverage = Coverage::default();
    let mut fails = |options: &RunOptions| {
        let failure = run(seed, options, &mut coverage).failure;
        failure.map(|failure| failure.oracle)
    };
    let broken = fails(options)?;
    let mut best = options.clone();
    let mut kept: Vec<u64> = (0..options.steps)
        .filter(|step| !best.skipped.contains(step))
        .collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < kept.len() {
            let end = at.saturating_add(size).min(kept.len());
            let mut tried = best.clone();
            tried
                .skipped
                .extend(kept.get(at..end).into_iter().flatten());
            if fails(&tried) == Some(broken) {
                best = tried;
                kept.drain(at..end);
                has_shrunk = true;
            } else {
                at = end;
            }
        }
        if !has_shrunk || size > 1 {
            size /= 2;
        }
    }
    Some(best)
}
