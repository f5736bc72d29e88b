//! The example `pod_status` as a newcomer meets it: what it tells, and that it leaves no process
//! behind however it ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::worker::{WaitEnd, Worker};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::example::Example;

/// The longest a run may take: far more than it needs, so that a hang is told and not waited out.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

static POD_STATUS: Example = Example::new("pod_status");

/// A run whose output is read as it comes. Its containers write to the same pipes, so the end of
/// the output is the end of the last of them.
struct Run {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
    seen: Vec<String>,
    _watchdog: Worker,
}

impl Run {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(POD_STATUS.program())
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let watchdog = Worker::spawn("t-watchdog", move |stop| {
            let clock = Clock::system();
            if stop.wait_until(&clock, clock.after(PATIENCE)) == WaitEnd::DeadlinePassed {
                kill_process(pid, Signal::KILL).unwrap();
            }
        });
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            stderr: child.stderr.take().unwrap(),
            child,
            seen: Vec::new(),
            _watchdog: watchdog.unwrap(),
        }
    }

    /// Reads until a line with these words comes, and gives its last ones.
    fn wait_for(&mut self, words: &str) -> String {
        loop {
            let line = match self.lines.next() {
                Some(line) => line.unwrap(),
                None => panic!("{words:?} did not come: {:#?}", self.seen),
            };
            self.seen.push(line.clone());
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
        }
    }

    /// The process of a container that begins to run.
    fn process(&mut self, words: &str) -> Pid {
        let rest = self.wait_for(words);
        let number = rest.trim_start_matches(" (process ");
        let digits = number.find(|letter: char| !letter.is_ascii_digit());
        let (number, _) = number.split_at(digits.unwrap());
        Pid::from_raw(number.parse().unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads to the end of the output; gives the exit code, what was printed, and what was
    /// complained of.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        self.seen.extend((&mut self.lines).map(Result::unwrap));
        let mut complaints = String::new();
        self.stderr.read_to_string(&mut complaints).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.seen), complaints)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What was told of a pod, without the times and the numbers.
fn told_of<'a>(pod: &str, lines: &'a [String]) -> Vec<&'a str> {
    let rows = lines.iter().filter_map(|line| line.split_once("s  "));
    let rows = rows.filter_map(|(_, row)| row.split_once(' '));
    let rows = rows.filter(|(uid, _)| *uid == pod);
    rows.map(|(_, text)| {
        let text = text.trim_start();
        let end = text.find([',', '(']);
        text.get(..end.unwrap_or(text.len())).unwrap().trim_end()
    })
    .collect()
}

#[test]
fn pl_11_the_workers_see_each_pod_start_fail_complete_and_go() {
    let (code, lines, complaints) = Run::start(&["--period", "20"]).end();
    assert_eq!((code, complaints.as_str()), (Some(0), ""), "{lines:#?}");
    // A run that ends by itself may end between two relists of a machine that is busy elsewhere.
    let mut migrate = told_of("migrate", &lines);
    migrate.retain(|text| *text != "schema runs");
    let story = [
        "starts schema",
        "schema exited with code 0",
        "completed",
        "is removed: the story ends",
        "is gone",
    ];
    assert_eq!(migrate, story, "{lines:#?}");
    let db = told_of("db", &lines);
    let story = [
        "starts postgres",
        "postgres runs",
        "is removed: nobody needs it any more",
        "is gone",
    ];
    assert_eq!(db, story, "{lines:#?}");
    // Which of its two containers is told of first is the system's doing.
    let mut web = told_of("web", &lines);
    web.retain(|text| !text.contains("proxy") && *text != "server runs");
    let story = [
        "starts server",
        "server exited with code 1",
        "starts server again",
        "server runs again",
        "is removed: the story ends",
        "is gone",
    ];
    assert_eq!(web, story, "{lines:#?}");
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("Every pod is gone and no process is left"),
        "{last}"
    );
    assert!(last.ends_with(", 0 failed."), "{last}");
}

#[test]
fn a_signal_ends_it_early_and_leaves_no_process() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut run = Run::start(&["--period", "20"]);
        let proxy = run.process("proxy runs");
        run.signal(signal);
        let (code, lines, complaints) = run.end();
        assert_eq!((code, complaints.as_str()), (Some(0), ""), "{lines:#?}");
        assert!(test_kill_process(proxy).is_err(), "{proxy:?} is left");
        assert_eq!(told_of("db", &lines).last(), Some(&"is gone"), "{lines:#?}");
    }
}

#[test]
fn its_containers_end_with_it_also_when_it_is_killed() {
    let mut run = Run::start(&["--period", "20"]);
    run.wait_for("proxy runs");
    run.signal(Signal::KILL);
    // Its output ends only when each container has ended.
    let (code, _, complaints) = run.end();
    assert_eq!((code, complaints.as_str()), (None, ""));
}

#[test]
fn wrong_usage_is_told_with_exit_code_2_and_help_needs_nothing() {
    let (code, lines, complaints) = Run::start(&["--perod", "20"]).end();
    assert_eq!((code, lines.len()), (Some(2), 0));
    assert!(
        complaints.starts_with("error: invalid option '--perod'"),
        "{complaints}"
    );
    let (code, lines, complaints) = Run::start(&["--help"]).end();
    assert_eq!((code, complaints.as_str()), (Some(0), ""));
    assert!(
        lines.iter().any(|line| line.contains("--period")),
        "{lines:#?}"
    );
}
