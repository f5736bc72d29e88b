//! Rounds of one target: an input from the dice, and its outcome.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kubecache::testing::FuzzTarget;

use crate::dice::Dice;
use crate::grammar::{self, Grammar};
use crate::watchdog::Progress;

/// How long a fault's input is made smaller.
const SHRINKING: Duration = Duration::from_secs(20);

/// How much is played, from which seed.
pub struct Options {
    pub rounds: u64,
    pub seconds: u64,
    pub seed: u64,
    pub jobs: u64,
    /// How long one input may take, in seconds.
    pub limit: u64,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            rounds: 1_000_000,
            seconds: u64::MAX,
            seed: 1,
            jobs: 2,
            limit: 10,
        };
        for pair in words.chunks(2) {
            let place = match pair[0] {
                "--rounds" => &mut options.rounds,
                "--seconds" => {
                    options.rounds = u64::MAX;
                    &mut options.seconds
                }
                "--seed" => &mut options.seed,
                "--jobs" => &mut options.jobs,
                "--limit" => &mut options.limit,
                other => return Err(format!("unknown option {other}")),
            };
            let value = pair.get(1).and_then(|value| value.parse().ok());
            *place = value.ok_or_else(|| format!("{} needs a number", pair[0]))?;
        }
        options.jobs = options.jobs.max(1);
        Ok(options)
    }

    /// The words that `parse` reads as these options.
    pub fn words(&self) -> Vec<String> {
        let amount = if self.seconds == u64::MAX {
            ("--rounds", self.rounds)
        } else {
            ("--seconds", self.seconds)
        };
        let options = [
            amount,
            ("--seed", self.seed),
            ("--jobs", self.jobs),
            ("--limit", self.limit),
        ];
        let words = options.map(|(name, value)| [name.to_owned(), value.to_string()]);
        words.concat()
    }

    /// Each of the targets gets a part of the seconds.
    pub fn share_time(&mut self, targets: usize) {
        if self.seconds != u64::MAX {
            self.seconds = (self.seconds / targets as u64).max(1);
        }
    }
}

/// What the inputs of a target come from.
pub struct Inputs {
    target: &'static str,
    corpus: Vec<Vec<u8>>,
    grammar: Grammar,
}

impl Inputs {
    pub fn new(target: &'static str) -> Self {
        Self {
            target,
            corpus: corpus(target),
            grammar: Grammar::new(),
        }
    }

    /// The input of a round: it depends on the state of the dice only.
    pub fn next(&self, dice: &mut Dice) -> Vec<u8> {
        let grown = self.grammar.grow(self.target, dice);
        match dice.below(4) {
            0 | 1 => grown,
            2 if !self.corpus.is_empty() => {
                let mut input = self.corpus[dice.below(self.corpus.len())].clone();
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
}

/// What comes of an input: whether it is taken, or what is wrong.
pub fn outcome(target: &FuzzTarget, input: &[u8]) -> Result<bool, String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Plays rounds until enough are played or one fails. Returns whether none did.
pub fn play(target: &'static FuzzTarget, options: &Options, progress: &Progress) -> bool {
    let inputs = Inputs::new(target.name);
    // A panic of a decoder is a finding, which is told below.
    std::panic::set_hook(Box::new(|_| ()));
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let (rounds, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Duration::from_secs(options.seconds.min(1 << 40));
    let work = |job: u64| {
        let mut dice = Dice::seeded(options.seed.wrapping_mul(0x1_0000_0001).wrapping_add(job));
        let (mut own, mut own_taken) = (0_u64, 0_u64);
        let share = options.rounds / options.jobs;
        while own < share && !stop.load(Ordering::Relaxed) {
            if own % 256 == 0 && began.elapsed() >= until {
                break;
            }
            own += 1;
            let round = dice.state();
            progress.begin(job, round);
            let input = inputs.next(&mut dice);
            match outcome(target, &input) {
                Ok(takes) => own_taken += u64::from(takes),
                Err(why) => {
                    progress.pause(job);
                    if !stop.swap(true, Ordering::Relaxed) {
                        tell(target, &format!("{why}, round {round}"), &input);
                        shrink(target, input);
                    }
                }
            }
        }
        progress.pause(job);
        rounds.fetch_add(own, Ordering::Relaxed);
        taken.fetch_add(own_taken, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for job in 0..options.jobs {
            let work = &work;
            scope.spawn(move || work(job));
        }
    });
    let (rounds, taken) = (rounds.into_inner(), taken.into_inner());
    let took = began.elapsed().as_secs_f64();
    println!(
        "{}: seed {}, {rounds} rounds in {took:.1} s, {:.0} a second; {taken} inputs were taken",
        target.name,
        options.seed,
        rounds as f64 / took
    );
    !stop.into_inner()
}

/// Prints an input with its fault, and writes it to a file. Returns the file.
pub fn tell(target: &FuzzTarget, why: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let sum = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let path = folder.join(format!("{}-{sum:016x}", target.name));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input));
    println!(
        "{}: {why}\nthe input: {:?}\nreplay it: replay {} {}",
        target.name,
        String::from_utf8_lossy(input),
        target.name,
        path.display()
    );
    if let Err(error) = written {
        println!("it could not be written: {error}");
    }
    path
}

/// Makes an input that fails small, and tells it again.
fn shrink(target: &FuzzTarget, mut input: Vec<u8>) {
    let until = Instant::now() + SHRINKING;
    let mut length = input.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < input.len() && Instant::now() < until {
            let mut smaller = input.clone();
            smaller.drain(at..(at + length).min(input.len()));
            if outcome(target, &smaller).is_err() {
                input = smaller;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    let why = outcome(target, &input).err().unwrap_or_default();
    tell(target, &format!("in a small form, {why}"), &input);
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
