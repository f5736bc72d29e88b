//! Runs the program of an example: built once, with an environment of its own, ended with the test.

#![cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "most tests of examples need recordings")
)]

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use kubecache::worker::Worker;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest silence of a program that goes on: far more than it needs, so that a hang is told
/// and not waited out.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Whether a line is the one that is waited for.
pub(crate) type IsLine = Box<dyn Fn(&str) -> bool>;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An example of the crate.
pub(crate) struct Example {
    name: &'static str,
    program: OnceLock<PathBuf>,
}

impl Example {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            program: OnceLock::new(),
        }
    }

    /// Its program, built once.
    pub(crate) fn program(&self) -> &Path {
        self.program.get_or_init(|| built(self.name))
    }

    /// A run that waits for the server as long as a busy machine needs, if no flag says otherwise.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        if arguments.contains(&"--timeout") {
            return self.plain_command(arguments);
        }
        // The first contact and the first answers may take a busy machine longer than the default.
        self.plain_command(&[&["--timeout", "5m"], arguments].concat())
    }

    /// A run of a program that waits for nobody.
    pub(crate) fn plain_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_in(arguments, &[])
    }

    /// Runs it to its end, with these variables.
    pub(crate) fn run_in(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = self.command(arguments);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        Ended {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts a run that goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_in(arguments, &[])
    }

    /// Starts a run that goes on, with these variables.
    pub(crate) fn start_in(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        Running::new(command)
    }
}

/// Runs one test of this program as a process of its own, with a directory in this variable, until
/// it has written so many lines with this word, and kills it. Returns those lines.
pub(crate) fn kill_after(
    test: &str,
    (variable, directory): (&str, &Path),
    (word, count): (&str, usize),
) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _child = Killed(child);
    let lines = lines
        .map_while(Result::ok)
        .filter(|line| line.contains(word));
    let lines: Vec<_> = lines.take(count).collect();
    assert_eq!(lines.len(), count, "the process ended by itself");
    lines
}

/// A process that ends with the test, whatever becomes of it.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A run that goes on.
pub(crate) struct Running {
    child: Killed,
    lines: Receiver<String>,
    stderr: Receiver<String>,
    seen: String,
    told: String,
    _readers: [Worker; 2],
}

impl Running {
    /// Starts a run that goes on. What the command gives another place is not read.
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (lines, reader) = follow("t-stdout", child.stdout.take());
        // Read all along: a program that finds the pipe full stands still.
        let (stderr, second_reader) = follow("t-stderr", child.stderr.take());
        Self {
            lines,
            stderr,
            child: Killed(child),
            seen: String::new(),
            told: String::new(),
            _readers: [reader, second_reader],
        }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Blocks until a line comes on stderr; `None` at its end.
    pub(crate) fn next_told(&mut self) -> Option<String> {
        match self.stderr.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.told.push_str(&line);
                self.told.push('\n');
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more was told than\n{}", self.told),
        }
    }

    /// Whether this came on stderr by now.
    pub(crate) fn has_told(&mut self, words: &str) -> bool {
        for line in self.stderr.try_iter() {
            self.told.push_str(&line);
            self.told.push('\n');
        }
        self.told.contains(words)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Waits for the end, which may be of any kind.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        while self.next_told().is_some() {}
        (self.child.0.wait().unwrap(), self.told)
    }

    /// Blocks until a line comes that `is_it`.
    pub(crate) fn wait_for(&mut self, what: &str, is_it: impl Fn(&str) -> bool) {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("{what} did not come; it printed\n{}", self.seen);
            };
            self.see(&line);
            if is_it(&line) {
                return;
            }
        }
    }

    /// Blocks until each of these has been true of some line, in whatever order their lines come.
    pub(crate) fn wait_for_all(&mut self, what: &str, mut left: Vec<IsLine>) {
        while !left.is_empty() {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("{what} did not come; it printed\n{}", self.seen);
            };
            self.see(&line);
            left.retain(|is_it| !is_it(&line));
        }
    }

    /// Sends a signal and waits for the end by itself.
    pub(crate) fn stop(mut self, signal: Signal) -> Ended {
        let status = self.end(signal);
        Ended {
            code: status.code().unwrap_or_else(|| {
                panic!("it ends by itself, not by {status}: {}", self.told);
            }),
            stdout: std::mem::take(&mut self.seen),
            stderr: std::mem::take(&mut self.told),
        }
    }

    /// Sends a signal and waits for the end, which the signal may be. Returns its words too.
    pub(crate) fn ended(mut self, signal: Signal) -> (ExitStatus, String) {
        let status = self.end(signal);
        (status, std::mem::take(&mut self.told))
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.see(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {}", self.seen),
            }
        }
        while self.next_told().is_some() {}
        self.child.0.wait().unwrap()
    }

    fn see(&mut self, line: &str) {
        self.seen.push_str(line);
        self.seen.push('\n');
    }
}

/// The lines of a pipe as they come, and the thread that reads them.
fn follow(name: &str, pipe: Option<impl Read + Send + 'static>) -> (Receiver<String>, Worker) {
    let (send, lines) = unbounded();
    let reader = Worker::spawn(name, move |_stop| {
        let pipes = pipe.into_iter();
        for line in pipes
            .flat_map(|pipe| BufReader::new(pipe).lines())
            .map_while(Result::ok)
        {
            drop(send.send(line));
        }
    });
    (lines, reader.unwrap())
}

/// The program of an example, built as cargo does if it is not there or older than its sources.
fn built(example: &str) -> PathBuf {
    // Those of the test: the library is then built already.
    let features = [
        ("testing", cfg!(feature = "testing")),
        ("metrics", cfg!(feature = "metrics")),
        ("snapshot", cfg!(feature = "snapshot")),
    ];
    let features = features
        .iter()
        .filter_map(|(name, has)| has.then_some(*name));
    let features: Vec<_> = features.collect();
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells a test about its package would make build scripts run again, here and after.
    let told = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_CRATE_",
        "CARGO_BIN_",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if told.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .args(["build", "--quiet", "--example", example])
        .args(["--features", &features.join(",")])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the example does not build");
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut programs = messages
        .filter(|message| message.pointer("/target/name").and_then(Value::as_str) == Some(example))
        .filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)));
    programs.next().expect("cargo names the program")
}

/// The directory this test was built into: `…/debug/deps/integration-…`, or the same below a
/// platform's name.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.ancestors().nth(3).unwrap();
    let platform = std::env::var_os("CARGO_BUILD_TARGET");
    match (directory.parent(), platform) {
        (Some(parent), Some(platform)) if directory.ends_with(&platform) => parent.to_owned(),
        _ => directory.to_owned(),
    }
}
