//! Throws inputs at the crate's decoders, from a grammar and by mutation of the corpus. Compares
//! each outcome with another reader of the same bytes.
//!
//! ```sh
//! cargo run --release --manifest-path tests/fuzz/Cargo.toml -- TARGET|all
//!     [--rounds N | --seconds N] [--seed N] [--jobs N]
//! ```
//!
//! It prints the first input that fails, in a small form, and writes it to `target/fuzz`. An input
//! that once mattered belongs into `fixtures/corpus/fuzz/TARGET`, where a test replays it.

mod dice;
mod grammar;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kubecache::testing::{FUZZ_TARGETS, FuzzTarget};

use dice::Dice;
use grammar::Grammar;

const USAGE: &str = "TARGET|all [--rounds N | --seconds N] [--seed N] [--jobs N]";

struct Options {
    rounds: u64,
    seconds: u64,
    seed: u64,
    jobs: u64,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(name) = words.next() else {
        eprintln!("usage: {USAGE}\ntargets: {}", names());
        return ExitCode::from(2);
    };
    let mut options = Options {
        rounds: 1_000_000,
        seconds: u64::MAX,
        seed: 1,
        jobs: 2,
    };
    while let Some(option) = words.next() {
        let value = words.next().and_then(|value| value.parse().ok());
        let place = match &*option {
            "--rounds" => &mut options.rounds,
            "--seconds" => {
                options.rounds = u64::MAX;
                &mut options.seconds
            }
            "--seed" => &mut options.seed,
            "--jobs" => &mut options.jobs,
            _ => {
                eprintln!("unknown option {option}; usage: {USAGE}");
                return ExitCode::from(2);
            }
        };
        let Some(value) = value else {
            eprintln!("{option} needs a number");
            return ExitCode::from(2);
        };
        *place = value;
    }
    let targets = FUZZ_TARGETS
        .iter()
        .filter(|target| name == "all" || target.name == name);
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        eprintln!("no target {name}; there are: {}", names());
        return ExitCode::from(2);
    }
    if options.seconds != u64::MAX {
        options.seconds = (options.seconds / targets.len() as u64).max(1);
    }
    let failed = targets
        .into_iter()
        .filter(|target| !fuzz(target, &options))
        .count();
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn names() -> String {
    let names: Vec<_> = FUZZ_TARGETS.iter().map(|target| target.name).collect();
    names.join(", ")
}

/// What is wrong with the outcome of an input.
fn fault(target: &FuzzTarget, input: &[u8]) -> Result<bool, String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

fn fuzz(target: &FuzzTarget, options: &Options) -> bool {
    let (corpus, grammar) = (corpus(target.name), Grammar::new());
    // A panic of a decoder is a finding, which is told below.
    std::panic::set_hook(Box::new(|_| ()));
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let (rounds, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Duration::from_secs(options.seconds.min(1 << 40));
    let work = |job: u64| {
        let mut dice = Dice::seeded(options.seed.wrapping_mul(0x1_0000_0001).wrapping_add(job));
        let mut own = 0_u64;
        let share = options.rounds / options.jobs.max(1);
        while own < share && !stop.load(Ordering::Relaxed) {
            if own % 256 == 0 && began.elapsed() >= until {
                break;
            }
            own += 1;
            let input = next_input(target.name, (&corpus, &grammar), &mut dice);
            match fault(target, &input) {
                Ok(takes) => drop(taken.fetch_add(u64::from(takes), Ordering::Relaxed)),
                Err(_) => {
                    if !stop.swap(true, Ordering::Relaxed) {
                        tell(target, input);
                    }
                }
            }
        }
        rounds.fetch_add(own, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for job in 0..options.jobs.max(1) {
            let work = &work;
            scope.spawn(move || work(job));
        }
    });
    let (rounds, taken) = (rounds.into_inner(), taken.into_inner());
    let took = began.elapsed().as_secs_f64();
    let name = target.name;
    println!(
        "{name}: {rounds} rounds in {took:.1} s, {:.0} a second; {taken} inputs were taken",
        rounds as f64 / took
    );
    !stop.into_inner()
}

fn next_input(target: &str, (corpus, grammar): (&[Vec<u8>], &Grammar), dice: &mut Dice) -> Vec<u8> {
    let grown = grammar.grow(target, dice);
    match dice.below(4) {
        0 | 1 => grown,
        2 if !corpus.is_empty() => {
            let mut input = corpus[dice.below(corpus.len())].clone();
            grammar::mutate(&mut input, &grown, dice);
            input
        }
        _ => {
            let mut input = grown.clone();
            grammar::mutate(&mut input, &grown, dice);
            input
        }
    }
}

/// Makes the input small, prints it with its fault, and writes it to a file.
fn tell(target: &FuzzTarget, mut input: Vec<u8>) {
    let mut length = input.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < input.len() {
            let mut smaller = input.clone();
            smaller.drain(at..(at + length).min(input.len()));
            if fault(target, &smaller).is_err() {
                input = smaller;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    let why = fault(target, &input).err().unwrap_or_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let path = folder.join(format!("{}-{}", target.name, input.len()));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &input));
    let text = String::from_utf8_lossy(&input);
    println!(
        "{}: {why}\nthe input: {text:?}\nin {}: {written:?}",
        target.name,
        path.display()
    );
}

/// The small bodies of the corpus of a target.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus");
    let folders: [PathBuf; 2] = [root.join(target), root.join("fuzz").join(target)];
    let files = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_none()).collect();
    paths.sort();
    let bodies = paths.iter().filter_map(|path| fs::read(path).ok());
    bodies.filter(|body| body.len() < 1_000).collect()
}
