//! Runs the program of the example that the test names as `EXAMPLE`: built once, with an environment of its own, ended with the test.

#[path = "../support/built.rs"]
mod built;

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use kubecache::worker::Worker;
use rustix::process::{Pid, Signal, kill_process};

use built::built;

/// The longest silence of a program that goes on: far more than it needs, so that a hang is told and not waited out.
const PATIENCE: Duration = Duration::from_mins(5);

/// Whether a line is the one that is waited for.
pub(crate) type IsLine = Box<dyn Fn(&str) -> bool>;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, built once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    // Those of the test: the library is then built already.
    let features: &[&str] = if cfg!(feature = "metrics") {
        &["testing", "metrics"]
    } else {
        &["testing"]
    };
    PROGRAM.get_or_init(|| built(crate::EXAMPLE, features))
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    // The first contact and the first answers may take a busy machine longer than the default.
    if !arguments.contains(&"--timeout") {
        command.args(["--timeout", "5m"]);
    }
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
pub(crate) fn run(arguments: &[&str]) -> Ended {
    run_in(arguments, &[])
}

/// Runs it to its end, with these variables.
pub(crate) fn run_in(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = command(arguments);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    Ended {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
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
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        let (lines, reader) = follow("t-stdout", child.stdout.take().unwrap());
        // Read all along: a program that finds the pipe full stands still.
        let (stderr, second_reader) = follow("t-stderr", child.stderr.take().unwrap());
        Self {
            lines,
            stderr,
            child: Killed(child),
            seen: String::new(),
            told: String::new(),
            _readers: [reader, second_reader],
        }
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

    /// Sends a signal and waits for the end.
    pub(crate) fn stop(mut self, signal: Signal) -> Ended {
        let pid = Pid::from_child(&self.child.0);
        kill_process(pid, signal).unwrap();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.see(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {}", self.seen),
            }
        }
        while self.next_told().is_some() {}
        let status = self.child.0.wait().unwrap();
        Ended {
            code: status.code().expect("it ends by itself, not by the signal"),
            stdout: std::mem::take(&mut self.seen),
            stderr: std::mem::take(&mut self.told),
        }
    }

    fn see(&mut self, line: &str) {
        self.seen.push_str(line);
        self.seen.push('\n');
    }
}

/// The lines of a pipe as they come, and the thread that reads them.
fn follow(name: &str, pipe: impl Read + Send + 'static) -> (Receiver<String>, Worker) {
    let (send, lines) = unbounded();
    let reader = Worker::spawn(name, move |_stop| {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            drop(send.send(line));
        }
    });
    (lines, reader.unwrap())
}
