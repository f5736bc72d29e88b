//! Throws inputs at the crate's decoders, from a grammar and by mutation of the corpus. Compares
//! each outcome with another reader of the same bytes.
//!
//! ```sh
//! cargo run --release --manifest-path tests/fuzz/Cargo.toml -- TARGET|all
//!     [--rounds N | --seconds N] [--seed N] [--jobs N] [--limit N]
//! cargo run --release --manifest-path tests/fuzz/Cargo.toml -- replay TARGET FILE
//! cargo run --release --manifest-path tests/fuzz/Cargo.toml -- peer selector|kubeconfig
//!     [--rounds N | --seconds N] [--seed N]
//! ```
//!
//! It prints the first input that fails with the seed of its round, and writes it to `target/fuzz`;
//! so it does with one that ends the process, or takes longer than the limit in seconds. An input
//! that once mattered belongs into `fixtures/corpus/fuzz/TARGET`, where a test replays it. With
//! `peer` it compares what is read with client-go's readers; that needs Go.

mod dice;
mod grammar;
mod peer;
mod rounds;
mod watchdog;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use kubecache::testing::{FUZZ_TARGETS, FuzzTarget};

use rounds::Options;

const USAGE: &str = "TARGET|all [--rounds N | --seconds N] [--seed N] [--jobs N] [--limit N]
       replay TARGET FILE
       peer selector|kubeconfig [--rounds N | --seconds N] [--seed N]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["replay", name, file] => find(name).and_then(|target| replay(target, file)),
        ["peer", name, ref options @ ..] => find(name).and_then(|target| {
            let options = Options::parse(options)?;
            peer::compare(target, &options)
        }),
        [name, ref options @ ..] => Options::parse(options).and_then(|options| run(name, options)),
        [] => Err("a target is missing".to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            let names: Vec<_> = FUZZ_TARGETS.iter().map(|target| target.name).collect();
            eprintln!("{why}\nusage: {USAGE}\ntargets: {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<&'static FuzzTarget, String> {
    let mut targets = FUZZ_TARGETS.iter();
    let target = targets.find(|target| target.name == name);
    target.ok_or_else(|| format!("no target {name}"))
}

fn run(name: &str, mut options: Options) -> Result<bool, String> {
    if let Some(progress) = watchdog::progress_of_a_child() {
        return Ok(rounds::play(find(name)?, &options, &progress));
    }
    let targets = match name {
        "all" => FUZZ_TARGETS.iter().collect(),
        name => vec![find(name)?],
    };
    options.share_time(targets.len());
    let kept = targets
        .into_iter()
        .map(|target| watchdog::run(target, &options));
    // All of them run, whatever the first one finds.
    let kept: Vec<bool> = kept.collect::<Result<_, _>>()?;
    Ok(kept.into_iter().all(|kept| kept))
}

/// One input, once; without a watchdog, so that a debugger sees it.
fn replay(target: &FuzzTarget, file: &str) -> Result<bool, String> {
    let input = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let began = Instant::now();
    let outcome = rounds::outcome(target, &input);
    let took = began.elapsed();
    match &outcome {
        Ok(true) => println!("{}: taken, in {took:?}", target.name),
        Ok(false) => println!("{}: refused, in {took:?}", target.name),
        Err(why) => println!("{}: {why}\nin {took:?}", target.name),
    }
    Ok(outcome.is_ok())
}
