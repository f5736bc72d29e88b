//! A process per target, which is watched: what ends it or holds it up is an input to tell.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kubecache::testing::FuzzTarget;

use crate::dice::Dice;
use crate::rounds::{Inputs, Options, tell};

/// Where a child says which rounds it plays; a process with this variable is one.
const PROGRESS: &str = "KUBECACHE_FUZZ_PROGRESS";

/// Says that a job plays no round.
const PAUSE: u64 = u64::MAX;

/// The rounds under way, one per job, where the parent still reads them after an abort.
pub struct Progress(File);

impl Progress {
    pub fn begin(&self, job: u64, round: u64) {
        self.0
            .write_at(&round.to_le_bytes(), job * 8)
            .expect("the file of the parent");
    }

    pub fn pause(&self, job: u64) {
        self.begin(job, PAUSE);
    }
}

pub fn progress_of_a_child() -> Option<Progress> {
    let path = std::env::var_os(PROGRESS)?;
    let file = File::options().write(true).open(path);
    Some(Progress(file.expect("the file of the parent")))
}

/// Plays the rounds of a target in a process of its own. Returns whether nothing failed.
pub fn run(target: &'static FuzzTarget, options: &Options) -> Result<bool, String> {
    let path = std::env::temp_dir().join(format!("fuzz-{}-{}", target.name, std::process::id()));
    let outcome = watch(target, options, &path);
    drop(fs::remove_file(&path));
    outcome.map_err(|error| format!("{}: {error}", target.name))
}

fn watch(target: &'static FuzzTarget, options: &Options, path: &PathBuf) -> std::io::Result<bool> {
    let idle = PAUSE.to_le_bytes();
    let jobs = usize::try_from(options.jobs).unwrap_or(1);
    fs::write(path, idle.repeat(jobs))?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(target.name)
        .args(options.words())
        .env(PROGRESS, path)
        .stdin(Stdio::null())
        .spawn()?;
    let limit = Duration::from_secs(options.limit);
    let (_open, tick) = channel::<()>();
    let mut seen = vec![(PAUSE, Instant::now()); jobs];
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match status.code() {
                Some(0) => true,
                // It has told what it found.
                Some(1) => false,
                _ => {
                    tell_death(target, status, &rounds(path)?)?;
                    false
                }
            });
        }
        for (seen, now) in seen.iter_mut().zip(rounds(path)?) {
            if seen.0 != now || now == PAUSE {
                *seen = (now, Instant::now());
            } else if seen.1.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                let input = Inputs::new(target.name).next(&mut Dice::seeded(now));
                let why = format!("takes longer than {limit:?}, round {now}");
                tell(target, &why, &input);
                return Ok(false);
            }
        }
        // Nobody sends.
        let _ = tick.recv_timeout(Duration::from_millis(20));
    }
}

fn rounds(path: &PathBuf) -> std::io::Result<Vec<u64>> {
    let bytes = fs::read(path)?;
    let (rounds, _) = bytes.as_chunks();
    Ok(rounds.iter().copied().map(u64::from_le_bytes).collect())
}

/// The inputs that were under way, each tried in a process of its own: which of them it was.
fn tell_death(
    target: &'static FuzzTarget,
    status: ExitStatus,
    rounds: &[u64],
) -> std::io::Result<()> {
    let inputs = Inputs::new(target.name);
    for round in rounds.iter().filter(|round| **round != PAUSE) {
        let input = inputs.next(&mut Dice::seeded(*round));
        let file = tell(target, &format!("died: {status}, round {round}"), &input);
        let again = Command::new(std::env::current_exe()?)
            .args(["replay", target.name])
            .arg(file)
            .status()?;
        println!("the same input alone: {again}");
    }
    Ok(())
}
