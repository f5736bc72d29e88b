//! The trial of one mutant: the unit tests of its room, until the first one fails.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Longer than the tests themselves need to notice that all of them wait, or that one of them looks
/// for what does not come.
const SILENCE: Duration = Duration::from_secs(40);
/// How long a test looks for something, in seconds (`src/tests/until.rs`).
const PATIENCE: &str = "15";
/// A mutant may loop and fill the memory.
const LIMITED: &str = "ulimit -v 8000000; exec \"$0\" \"$@\"";

pub enum Verdict {
    /// The first test that failed, or the end of the program.
    Caught(String),
    /// The tests that had not ended.
    Hung(String),
    Survived,
}

/// Tries the tests of `module`, without those of the module `tried`.
pub fn try_one(
    program: &Path,
    tree: &Path,
    mutant: Option<usize>,
    module: &str,
    tried: Option<&str>,
) -> io::Result<Verdict> {
    let skipped = tried.map_or(Vec::new(), |tried| vec!["--skip", tried]);
    let filters = &[&[module], &*skipped].concat();
    let mut command = command(program, tree, filters);
    if let Some(number) = mutant {
        command.env("KUBECACHE_MUTANT", number.to_string());
    }
    let mut child = command.spawn()?;
    let verdict = follow(&mut child, || names(program, tree, filters));
    // Programs that a test started end with it, also those in process groups of their own.
    let session = child.id().to_string();
    let kill = Command::new("pkill")
        .args(["-KILL", "--session", &session])
        .status();
    let ended = child.wait()?;
    kill?;
    match verdict {
        Verdict::Survived if !ended.success() => Ok(Verdict::Caught(format!("{ended}"))),
        verdict => Ok(verdict),
    }
}

fn command(program: &Path, tree: &Path, filters: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command
        .args(["sh", "-c", LIMITED])
        .arg(program)
        .args(filters)
        .current_dir(tree)
        .env("RUST_TEST_THREADS", "8")
        .env("KUBECACHE_TEST_PATIENCE", PATIENCE)
        .env("CARGO_MANIFEST_DIR", tree)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn follow(child: &mut Child, all: impl FnOnce() -> BTreeSet<String>) -> Verdict {
    let Some(output) = child.stdout.take() else {
        return Verdict::Survived;
    };
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    let mut ended = BTreeSet::new();
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                let Some((name, end)) = line
                    .strip_prefix("test ")
                    .and_then(|rest| rest.split_once(" ... "))
                else {
                    continue;
                };
                if end.starts_with("FAILED") {
                    return Verdict::Caught(name.to_string());
                }
                ended.insert(name.to_string());
            }
            Err(RecvTimeoutError::Timeout) => {
                let open: Vec<_> = all().difference(&ended).cloned().collect();
                return Verdict::Hung(open.join(" "));
            }
            Err(RecvTimeoutError::Disconnected) => return Verdict::Survived,
        }
    }
}

fn names(program: &Path, tree: &Path, filters: &[&str]) -> BTreeSet<String> {
    let output = command(program, tree, filters).arg("--list").output();
    let text = output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_string).collect()
}
