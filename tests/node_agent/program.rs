//! Runs the program of the example that the test names as `EXAMPLE`: built once, with an environment of its own, ended with the test.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use kubecache::worker::Worker;
use rustix::process::{Pid, Signal, kill_process};

/// The longest silence of a program that goes on: far more than it needs, so that a hang is told and not waited out.
const PATIENCE: Duration = Duration::from_mins(1);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, built if it is not there or older than its sources.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        // What cargo tells a test about its package would make build scripts run again, here and after.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_CRATE_",
                "CARGO_BIN_",
            ]
            .iter()
            .any(|prefix| name_text.starts_with(prefix))
            {
                cargo.env_remove(&name);
            }
        }
        let built = cargo
            .args([
                "build",
                "--quiet",
                "--features",
                "testing",
                "--example",
                crate::EXAMPLE,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", target())
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the example does not build");
        target().join("debug/examples").join(crate::EXAMPLE)
    })
}

/// The directory this test was built into: `…/debug/deps/node_agent-…`.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
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
    _readers: [Worker; 2],
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = unbounded();
        let reader = Worker::spawn("t-stdout", move |_stop| {
            for line in stdout.lines().map_while(Result::ok) {
                drop(send.send(line));
            }
        });
        // Read all along: a program that finds the pipe full stands still.
        let mut pipe = child.stderr.take().unwrap();
        let (told, stderr) = unbounded();
        let second_reader = Worker::spawn("t-stderr", move |_stop| {
            let mut text = String::new();
            drop(pipe.read_to_string(&mut text));
            drop(told.send(text));
        });
        Self {
            lines,
            stderr,
            child: Killed(child),
            seen: String::new(),
            _readers: [reader.unwrap(), second_reader.unwrap()],
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
        let stderr = self.stderr.recv_timeout(PATIENCE).unwrap();
        let status = self.child.0.wait().unwrap();
        Ended {
            code: status.code().expect("it ends by itself, not by the signal"),
            stdout: std::mem::take(&mut self.seen),
            stderr,
        }
    }

    fn see(&mut self, line: &str) {
        self.seen.push_str(line);
        self.seen.push('\n');
    }
}
