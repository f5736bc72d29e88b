//! Tries small errors in the crate's source, one at a time, against the unit tests of their room.
//! An error that no test notices survives: a promise without a test, or dead code.
//!
//! ```sh
//! cargo run --release --manifest-path tests/mutants/Cargo.toml -- [core|FILE…]
//!     [--sample N [--seed N]] [--only NUMBER,…] [--jobs N] [--built]
//! ```
//!
//! `core` stands for the rooms whose errors would be the worst. `--sample` adds N mutants of the
//! other rooms, drawn by the seed. One build has all mutants; a number in the environment variable
//! `KUBECACHE_MUTANT` switches one on. Mutants that do not compile do not count. `--built` tries
//! those of the last build, without another.

mod build;
mod mutations;
mod trial;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use build::File;
use mutations::{Change, Mutant};
use trial::{Verdict, try_one};

const USAGE: &str = "[core|FILE…] [--sample N [--seed N]] [--only NUMBER,…] [--jobs N] [--built]";
/// The watch's state machine, the reflector's core, the version guard, the handlers' queue, the
/// policy's table.
const CORE: &[&str] = &[
    "src/manager/watch/state_machine.rs",
    "src/reflector/core/",
    "src/store/version_guard.rs",
    "src/informer/handlers/queue.rs",
    "src/policy/",
];

struct Options {
    wanted: Vec<String>,
    sample: usize,
    seed: u64,
    jobs: usize,
    only: BTreeSet<usize>,
    built: bool,
}

fn options() -> Option<Options> {
    let mut options = Options {
        wanted: Vec::new(),
        sample: 0,
        seed: 1,
        jobs: 2,
        only: BTreeSet::new(),
        built: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match &*word {
            "--sample" => options.sample = words.next()?.parse().ok()?,
            "--seed" => options.seed = words.next()?.parse().ok()?,
            "--jobs" => options.jobs = words.next()?.parse().ok()?,
            "--only" => {
                let numbers: Result<_, _> = words.next()?.split(',').map(str::parse).collect();
                options.only = numbers.ok()?;
            }
            "--built" => options.built = true,
            "core" => options.wanted.extend(CORE.iter().map(ToString::to_string)),
            file => options.wanted.push(file.to_string()),
        }
    }
    (!options.wanted.is_empty() || options.sample > 0).then_some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every mutant was caught.
fn run(options: &Options) -> io::Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let tree = root.join("target/mutants/tree");
    let mut mutants = Vec::new();
    let mut files = Vec::new();
    for path in sources(&root, "src")? {
        let source = fs::read_to_string(root.join(&path))?;
        let places = mutations::find(&path, &source, &mut mutants).map_err(io::Error::other)?;
        files.push(File {
            path,
            source,
            places,
        });
    }
    let is_wanted = |mutant: &Mutant| options.wanted.iter().any(|of| mutant.file.starts_with(of));
    let (core, mut others): (Vec<_>, Vec<_>) =
        (0..mutants.len()).partition(|id| is_wanted(&mutants[*id]));
    let is_elsewhere = |file: &str| !CORE.iter().any(|core| file.starts_with(core));
    others.retain(|id| is_elsewhere(&mutants[*id].file));
    others.retain(|id| !mutants[*id].file.starts_with("src/testing/"));
    shuffle(&mut others, options.seed);
    // Some do not compile.
    others.truncate(options.sample * 2);
    let mut alive: BTreeSet<usize> = core.iter().chain(&others).copied().collect();
    if !options.only.is_empty() {
        alive.retain(|id| options.only.contains(id));
    }
    files.retain(|file| file.places.iter().any(|place| has(&place.change, &alive)));
    let program = if options.built {
        build::last(&tree, &mut alive)?
    } else {
        build::copy(&root, &tree)?;
        build::build(&tree, &files, &mut alive)?
    };
    others.retain(|id| alive.contains(id));
    let late: BTreeSet<_> = others.into_iter().skip(options.sample).collect();
    alive.retain(|id| !late.contains(id));
    try_all(options, &program, &tree, &mutants, &alive)
}

fn try_all(
    options: &Options,
    program: &Path,
    tree: &Path,
    mutants: &[Mutant],
    alive: &BTreeSet<usize>,
) -> io::Result<bool> {
    let rooms: BTreeSet<_> = alive.iter().map(|id| room(&mutants[*id].file)).collect();
    for room in &rooms {
        let began = Instant::now();
        if let Verdict::Caught(test) | Verdict::Hung(test) =
            try_one(program, tree, None, &format!("{room}::"), None)?
        {
            return Err(io::Error::other(format!("{test} fails without a mutant")));
        }
        eprintln!("{room}: {:?} without a mutant", began.elapsed());
    }
    let queue: Vec<_> = alive.iter().copied().collect();
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(BTreeMap::<String, [usize; 3]>::new());
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(id) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mutant = &mutants[*id];
                    let room = room(&mutant.file);
                    let verdict = try_near_first(program, tree, *id, &mutant.file);
                    let (kind, word, by) = match verdict {
                        Ok(Verdict::Caught(by)) => (0, "caught", by),
                        Ok(Verdict::Hung(by)) => (1, "HUNG", by),
                        Ok(Verdict::Survived) => (2, "SURVIVED", String::new()),
                        Err(error) => (2, "ERROR", error.to_string()),
                    };
                    let Mutant { file, line, what } = mutant;
                    println!("{word} {id} {file}:{line} {what} [{by}]");
                    if let Ok(mut counts) = counts.lock() {
                        counts.entry(room).or_default()[kind] += 1;
                    }
                }
            });
        }
    });
    let counts = counts
        .into_inner()
        .map_err(|_| io::Error::other("a trial panicked"))?;
    println!(
        "{:<20} {:>8} {:>8} {:>8}",
        "room", "caught", "hung", "survived"
    );
    for (room, [caught, hung, survived]) in &counts {
        println!("{room:<20} {caught:>8} {hung:>8} {survived:>8}");
    }
    Ok(counts
        .values()
        .all(|[_, hung, survived]| hung + survived == 0))
}

/// The tests of the file and of its folder end most trials, in a fraction of the time.
fn try_near_first(program: &Path, tree: &Path, id: usize, file: &str) -> io::Result<Verdict> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module = format!("{}::", path.trim_end_matches("/mod").replace('/', "::"));
    if let Some((folder, name)) = module.trim_end_matches("::").rsplit_once("::") {
        let of_file = format!("{folder}::tests::{name}::");
        let verdict = try_one(program, tree, Some(id), &of_file, None)?;
        if !matches!(verdict, Verdict::Survived) {
            return Ok(verdict);
        }
    }
    let mut tried = None;
    loop {
        let verdict = try_one(program, tree, Some(id), &module, tried.as_deref())?;
        let outer = module.trim_end_matches("::").rsplit_once("::");
        let (Verdict::Survived, Some((outer, _))) = (&verdict, outer) else {
            return Ok(verdict);
        };
        let outer = format!("{outer}::");
        tried = Some(std::mem::replace(&mut module, outer));
    }
}

fn room(file: &str) -> String {
    let name = file.trim_start_matches("src/").trim_end_matches(".rs");
    name.split('/').next().unwrap_or(name).to_string()
}

fn has(change: &Change, alive: &BTreeSet<usize>) -> bool {
    match change {
        Change::Body(all) | Change::Other(all) => all.iter().any(|(id, _)| alive.contains(id)),
        Change::Without(id) => alive.contains(id),
        Change::Guard(all) => all.iter().flatten().any(|id| alive.contains(id)),
        Change::Function => false,
    }
}

/// The crate's sources without tests and models, in a fixed order.
fn sources(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(root.join(folder))?.collect();
    let mut paths: Vec<PathBuf> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let stem = path
            .file_stem()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if matches!(stem, "tests" | "schedules" | "lib") {
            continue;
        }
        let inner = path.strip_prefix(root).map_err(io::Error::other)?;
        let Some(inner) = inner.to_str() else {
            continue;
        };
        if path.is_dir() {
            found.extend(sources(root, inner)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(inner.to_string());
        }
    }
    Ok(found)
}

/// The same order for the same seed, on every machine.
fn shuffle(ids: &mut [usize], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for index in (1..ids.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ids.swap(index, (state % (index as u64 + 1)) as usize);
    }
}
