//! Searches the simulation for a seed whose run breaks a promise of the crate, and tells its story.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program on the system's time, with threads that read the output of processes"
)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "seeds and seconds are small numbers"
)]

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubecache::testing::world::{Coverage, Oracle, RunOptions, run, shrink};

const HELP: &str = "\
simulate runs the parts of kubecache in a world without threads, sockets and
real time. A seed draws each run. A run that breaks a promise is shrunk to the
fewest steps, and its story is printed; the exit code is 1 then.

Usage: simulate [flags]

      --seeds A..B      the seeds to run (default 0..10000)
      --jobs N          processes that run at a time (default 1)
      --keep-going      runs on after a failure, and prints each failed seed
      --seed N          runs one seed, and shrinks it if it fails
      --trace           with --seed: prints the story of the whole run
      --steps N         the steps of a run before its world heals (default 300)
      --expect-coverage fails unless each fault, answer and action was met that
                        runs are made to meet
      --without A,B     holds nothing against these promises
      --oracles         prints the promises
  -h, --help            prints this
";

/// The seeds that a process runs before the next process begins.
const PER_PROCESS: u64 = 2_000;

/// A seed that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Flags {
    seeds: Range<u64>,
    jobs: u64,
    keeps_going: bool,
    expects_coverage: bool,
    seed: Option<u64>,
    traces: bool,
    steps: u64,
    /// This process runs the seeds for another one, and reports to it.
    is_worker: bool,
    without: Vec<Oracle>,
    shows_oracles: bool,
    needs_help: bool,
}

fn flags() -> Fallible<Flags> {
    let mut flags = Flags {
        seeds: 0..10_000,
        jobs: 1,
        keeps_going: false,
        expects_coverage: false,
        seed: None,
        traces: false,
        steps: 300,
        is_worker: false,
        without: Vec::new(),
        shows_oracles: false,
        needs_help: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        match &*flag {
            "--seeds" => {
                let value = value()?;
                let (from, to) = value.split_once("..").ok_or("--seeds is A..B")?;
                flags.seeds = from.parse()?..to.parse()?;
            }
            "--jobs" => flags.jobs = value()?.parse()?,
            "--seed" => flags.seed = Some(value()?.parse()?),
            "--steps" => flags.steps = value()?.parse()?,
            "--trace" => flags.traces = true,
            "--keep-going" => flags.keeps_going = true,
            "--expect-coverage" => flags.expects_coverage = true,
            "--worker" => flags.is_worker = true,
            "--without" => flags.without = oracles(&value()?)?,
            "--oracles" => flags.shows_oracles = true,
            "-h" | "--help" => flags.needs_help = true,
            other => return Err(format!("{other} is no flag; see --help").into()),
        }
    }
    Ok(flags)
}

fn main() -> Fallible<ExitCode> {
    let flags = flags()?;
    let mut out = io::stdout().lock();
    if flags.needs_help {
        out.write_all(HELP.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.shows_oracles {
        for oracle in Oracle::ALL {
            writeln!(out, "{:<12} {}", oracle.name(), oracle.sentence())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    drop(out);
    if flags.is_worker {
        work(&flags)?;
        return Ok(ExitCode::SUCCESS);
    }
    match flags.seed {
        Some(seed) => tell(seed, &flags),
        None => search(&flags),
    }
}

fn options(flags: &Flags) -> RunOptions {
    let options = RunOptions::default().steps(flags.steps);
    options.without(flags.without.clone())
}

/// The oracles of these names, which commas separate.
fn oracles(names: &str) -> Fallible<Vec<Oracle>> {
    let find = |name: &str| {
        let mut all = Oracle::ALL.iter().copied();
        let found = all.find(|oracle| oracle.name() == name);
        found.ok_or_else(|| format!("{name} is no promise; see --oracles").into())
    };
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(find)
        .collect()
}

/// The flags that a process of this program passes on to another.
fn passed_on(flags: &Flags) -> Vec<String> {
    let mut passed = vec!["--steps".to_owned(), flags.steps.to_string()];
    let without: Vec<_> = flags.without.iter().map(|oracle| oracle.name()).collect();
    if !without.is_empty() {
        passed.extend(["--without".to_owned(), without.join(",")]);
    }
    passed
}

/// Runs one seed, and prints its story: the whole one, or the shortest that still fails.
fn tell(seed: u64, flags: &Flags) -> Fallible<ExitCode> {
    let mut out = io::stdout().lock();
    let mut coverage = Coverage::default();
    let options = options(flags);
    let outcome = run(seed, &options.clone().traces(flags.traces), &mut coverage);
    for line in &outcome.story {
        writeln!(out, "{line}")?;
    }
    let Some(failure) = outcome.failure else {
        writeln!(
            out,
            "seed {seed}: {} steps, all promises held",
            outcome.steps
        )?;
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(out, "seed {seed} fails: {failure}")?;
    if !flags.traces
        && let Some(shrunk) = shrink(seed, &options)
    {
        let outcome = run(seed, &shrunk.traces(true), &mut coverage);
        writeln!(out, "\nThe same with {} steps:", outcome.steps)?;
        for line in &outcome.story {
            writeln!(out, "{line}")?;
        }
    }
    Ok(ExitCode::FAILURE)
}

/// The runs of a worker: one line before each seed, one for each failure, and the coverage.
fn work(flags: &Flags) -> Fallible<()> {
    let mut out = io::stdout().lock();
    let options = options(flags);
    let mut coverage = Coverage::default();
    for seed in flags.seeds.clone() {
        writeln!(out, "seed {seed}")?;
        if let Some(failure) = run(seed, &options, &mut coverage).failure {
            writeln!(out, "failed {seed} {}", failure.oracle)?;
        }
    }
    for (group, name, count) in coverage.points() {
        writeln!(out, "point {group}\t{name}\t{count}")?;
    }
    writeln!(out, "done")?;
    Ok(())
}

/// What all workers have reported.
#[derive(Default)]
struct Found {
    next: u64,
    ran: u64,
    failed: BTreeSet<u64>,
    coverage: Coverage,
}

fn search(flags: &Flags) -> Fallible<ExitCode> {
    let began = Instant::now();
    let found = Mutex::new(Found {
        next: flags.seeds.start,
        coverage: Coverage::expected(),
        ..Found::default()
    });
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..flags.jobs)
            .map(|_| scope.spawn(|| run_chunks(flags, &found)))
            .collect();
        let mut jobs = jobs.into_iter();
        jobs.try_for_each(|job| job.join().map_err(|_panic| "a job panicked")?)
    })?;
    let found = found.into_inner()?;
    let mut out = io::stdout().lock();
    let mut last = "";
    let mut never = Vec::new();
    for (group, name, count) in found.coverage.points() {
        if group != last {
            writeln!(out, "{group}:")?;
            last = group;
        }
        writeln!(out, "  {count:>12}  {name}")?;
        if count == 0 {
            never.push(format!("{group}: {name}"));
        }
    }
    if !never.is_empty() {
        writeln!(out, "never met: {}", never.join("; "))?;
    }
    let took = began.elapsed().as_secs_f64();
    let rate = f64::from(u32::try_from(found.ran)?) / took;
    writeln!(
        out,
        "{} seeds in {took:.1} s, {rate:.0} a second with {} jobs; {} failed",
        found.ran,
        flags.jobs,
        found.failed.len()
    )?;
    drop(out);
    let Some(first) = found.failed.first() else {
        let asked = flags.seeds.end.saturating_sub(flags.seeds.start);
        if asked == 0 || found.ran < asked {
            return Err(format!("only {} of {asked} seeds were run", found.ran).into());
        }
        if flags.expects_coverage && !never.is_empty() {
            return Err("not everything was met that runs are made to meet".into());
        }
        return Ok(ExitCode::SUCCESS);
    };
    // In a process of its own, which may hang or abort as the seed did.
    let shrinks = Command::new(std::env::current_exe()?)
        .args(["--seed", &first.to_string()])
        .args(passed_on(flags))
        .stdout(Stdio::piped())
        .spawn()?;
    let (lines, mut shrinks) = lines_of(shrinks)?;
    while let Ok(line) = lines.recv_timeout(HANGS_AFTER * 5) {
        writeln!(io::stdout(), "{line}")?;
    }
    shrinks.kill()?;
    shrinks.wait()?;
    writeln!(
        io::stdout(),
        "replay it: simulate --seed {first} {} --trace",
        passed_on(flags).join(" ")
    )?;
    Ok(ExitCode::FAILURE)
}

/// Runs one process after another, each with the next seeds.
fn run_chunks(flags: &Flags, found: &Mutex<Found>) -> Fallible<()> {
    loop {
        let (from, to) = {
            let mut found = found.lock().map_err(|_poisoned| "a job panicked")?;
            let from = found.next;
            if from >= flags.seeds.end || !flags.keeps_going && !found.failed.is_empty() {
                return Ok(());
            }
            let to = (from + PER_PROCESS).min(flags.seeds.end);
            found.next = to;
            (from, to)
        };
        let mut seeds = from..to;
        while let Some(failed) = run_chunk(&seeds, flags, found)? {
            seeds.start = failed + 1;
            if !flags.keeps_going || seeds.is_empty() {
                break;
            }
        }
    }
}

/// Runs the seeds in a process of their own. A seed that hangs or aborts has failed: returns it,
/// since no later one has run.
fn run_chunk(seeds: &Range<u64>, flags: &Flags, found: &Mutex<Found>) -> Fallible<Option<u64>> {
    let range = format!("{}..{}", seeds.start, seeds.end);
    let worker = Command::new(std::env::current_exe()?)
        .args(["--worker", "--seeds", &range])
        .args(passed_on(flags))
        .stdout(Stdio::piped())
        .spawn()?;
    let (lines, mut worker) = lines_of(worker)?;
    let mut present = None;
    loop {
        let line = match lines.recv_timeout(HANGS_AFTER) {
            Ok(line) => line,
            Err(end) => {
                worker.kill()?;
                worker.wait()?;
                let Some(seed) = present else {
                    return Ok(None);
                };
                let how = match end {
                    RecvTimeoutError::Timeout => "hangs",
                    RecvTimeoutError::Disconnected => "ends its process",
                };
                writeln!(io::stdout(), "seed {seed} {how}")?;
                found
                    .lock()
                    .map_err(|_poisoned| "a job panicked")?
                    .failed
                    .insert(seed);
                return Ok(Some(seed));
            }
        };
        let mut found = found.lock().map_err(|_poisoned| "a job panicked")?;
        match line.split_once(' ') {
            Some(("seed", seed)) => {
                present = Some(seed.parse()?);
                found.ran += 1;
            }
            Some(("failed", failure)) => {
                let (seed, oracle) = failure.split_once(' ').unwrap_or((failure, ""));
                found.failed.insert(seed.parse()?);
                writeln!(io::stdout(), "seed {seed} breaks: {oracle}")?;
                if !flags.keeps_going {
                    drop(found);
                    worker.kill()?;
                    worker.wait()?;
                    return Ok(None);
                }
            }
            Some(("point", point)) => {
                let mut parts = point.split('\t');
                let (group, name, count) = (parts.next(), parts.next(), parts.next());
                let count = count.unwrap_or_default().parse()?;
                let (group, name) = (group.unwrap_or_default(), name.unwrap_or_default());
                found.coverage.add(group, name, count);
            }
            _ => {
                present = None;
            }
        }
    }
}

/// The lines that a process prints, as they come.
fn lines_of(mut child: Child) -> Fallible<(Receiver<String>, Child)> {
    let stdout = child.stdout.take().ok_or("a worker without output")?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok((lines, child))
}
