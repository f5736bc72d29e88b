//! Two signals: the first asks the agent to end, the second ends it where it stands.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::testing::{Act, Fault, FixtureServer, Received};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use super::AGENT;
use super::rows::{node, object, pod, secret};
use crate::support::example::Killed;

/// A page: the smallest pipe there is, and much less than the table of the demonstration.
const PIPE_BYTES: usize = 4096;

/// The agent stands in a write that nobody takes, so the first signal cannot end it.
#[test]
fn a_second_signal_ends_it_at_once_wherever_it_stands() {
    let (stdout, write_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setpipe_size(&stdout, PIPE_BYTES).unwrap();
    let mut command = AGENT.command(&["--demo", "--once", "-o", "json", "-v"]);
    let mut agent = Killed(command.stdout(Stdio::from(write_end)).spawn().unwrap());
    // It holds the other copy of the pipe's end.
    drop(command);
    let mut stderr = BufReader::new(agent.0.stderr.take().unwrap());
    let mut stdout = std::fs::File::from(stdout);
    stdout.read_exact(&mut [0]).unwrap();

    let pid = Pid::from_child(&agent.0);
    kill_process(pid, Signal::INT).unwrap();
    let told = "signal 2: stopping; another ends the process at once\n";
    let mut line = String::new();
    while !line.ends_with(told) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "{told}: not told");
    }
    assert_eq!(agent.0.try_wait().unwrap(), None, "it ended by the first");

    kill_process(pid, Signal::TERM).unwrap();
    let status = agent.0.wait().unwrap();
    assert_eq!(
        status.signal(),
        None,
        "it ends by itself, not by the signal"
    );
    assert_eq!(status.code(), Some(128 + 15), "as a shell tells of SIGTERM");
    let mut printed = String::new();
    stdout.read_to_string(&mut printed).unwrap();
    assert!(printed.len() <= PIPE_BYTES, "the table was printed in full");
}

/// D14: interrupted, it prints the answers it has, and for the others what their requests wait for.
#[test]
fn d14_an_interrupted_once_prints_what_it_knows() {
    let pods = [pod("web", &["here"], &["slow"], "Running")];
    let recording = object(
        node(&pods),
        "secrets",
        "here",
        &[secret("here", &[("a", "b")])],
    );
    let silent = Fault::new(Act::Hang).on("/api/v1/namespaces/shop/configmaps");
    let server = FixtureServer::replaying(recording)
        .fault(silent)
        .start()
        .unwrap();
    let url = server.url();
    let agent = AGENT.start(&[
        "--server",
        &url,
        "--node-name",
        "n1",
        "--once",
        "-o",
        "wide",
    ]);
    let soon = Clock::system().after(Duration::from_secs(60));
    let asked = server.wait_for_requests(soon, |requests: &[Received]| {
        let of = |part: &str, watch| {
            let mut requests = requests.iter();
            requests.any(|request| request.path().contains(part) && request.is_watch() == watch)
        };
        of("secrets", true) && of("configmaps", false)
    });
    assert!(asked);
    let ended = agent.stop(Signal::INT);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let row = |name: &str| {
        let mut lines = ended.stdout.lines();
        lines.find(|line| line.contains(name)).unwrap_or_default()
    };
    assert!(row("here").contains("Synced"), "{}", ended.stdout);
    let slow = row("slow");
    // The server has the request an instant before the client notes that it was sent.
    let told = ["waiting for the head", "connecting to"];
    let told = told.iter().any(|phase| slow.contains(phase));
    assert!(slow.contains("Waiting") && told, "{slow}");
    assert!(
        ended.stderr.contains("interrupted before"),
        "{}",
        ended.stderr
    );
}
