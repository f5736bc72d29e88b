//! A program of one side, or the server: told what to do by lines, measured from outside, so that
//! all sides are measured alike.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use crate::marks::pause;

/// After this, a program hangs.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Program {
    child: Child,
    to: Option<ChildStdin>,
    lines: Receiver<String>,
    cpu: ClockId,
}

impl Program {
    pub(crate) fn start(path: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(path)
            .args(arguments)
            // The server streams no lists: all sides ask for the same.
            .env("KUBE_FEATURE_WatchListClient", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let from = BufReader::new(child.stdout.take().unwrap());
        let (give, lines) = channel();
        thread::spawn(move || {
            for line in from.lines().map_while(Result::ok) {
                if give.send(line).is_err() {
                    return;
                }
            }
        });
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        Self {
            to: child.stdin.take(),
            cpu: clock_getcpuclockid(pid).unwrap(),
            child,
            lines,
        }
    }

    /// The next line, and what it says after its first word, which must be `mark`.
    pub(crate) fn expect(&self, mark: &str) -> Result<Vec<f64>, String> {
        let line = self.line()?;
        let mut words = line.split(' ');
        if words.next() != Some(mark) {
            return Err(format!("{mark} expected, not {line}"));
        }
        Ok(words.map(|word| word.parse().unwrap()).collect())
    }

    pub(crate) fn line(&self) -> Result<String, String> {
        let error = |_| "the program has ended or hangs".to_owned();
        self.lines.recv_timeout(PATIENCE).map_err(error)
    }

    pub(crate) fn order(&mut self, order: &str) -> Result<(), String> {
        let to = self.to.as_mut().unwrap();
        writeln!(to, "{order}").map_err(|error| error.to_string())
    }

    /// Seconds of CPU so far, of all threads.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu
            .now()
            .map_or(f64::NAN, |time| Duration::from(time).as_secs_f64())
    }

    /// Waits until the program rests, for some seconds at most, and tells its CPU time by then.
    pub(crate) fn cpu_at_rest(&self) -> f64 {
        let begun = Instant::now();
        let mut before = self.cpu();
        loop {
            pause(Duration::from_millis(100));
            let now = self.cpu();
            if now - before < 0.000_5 || begun.elapsed() > Duration::from_secs(3) {
                return now;
            }
            before = now;
        }
    }

    /// Resident bytes now.
    pub(crate) fn resident(&self) -> f64 {
        let file = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Rss:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kib.map_or(f64::NAN, |kib| kib * 1024.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A program ends when nobody is there to order; what it still holds needs no tidying.
        self.to = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
