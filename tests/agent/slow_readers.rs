//! Readers of the agent's output and log that take nothing, or have gone.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use kubecache::testing::{ApiServer, objects};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Signal;

use super::AGENT;
use super::probes::{FLAG, get, told};
use crate::support::example::Running;
use crate::support::{TempDirectory, until};

/// More than the smallest pipe has room for.
const MAPS: usize = 100;

/// A page: the smallest pipe there is.
const PIPE_BYTES: usize = 4096;

/// Closed in other processes that the tests start meanwhile.
fn small_pipe() -> (File, OwnedFd) {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setpipe_size(&read_end, PIPE_BYTES).unwrap();
    (File::from(read_end), write_end)
}

fn map_name(number: usize) -> String {
    format!("{number:0>100}")
}

fn change_maps(server: &ApiServer, value: &str) {
    for number in 0..MAPS {
        let map = objects::config_map("shop", &map_name(number), "", &[("key", value)]);
        server.apply(&map).unwrap();
    }
}

/// The flags of an agent that has many rows to print, and files to write.
fn flags(server: &ApiServer, directory: &Path) -> Vec<String> {
    let output = directory.join("out");
    let references = directory.join("references");
    let lines = (0..MAPS).map(|number| format!("configmap shop/{}\n", map_name(number)));
    fs::write(&references, lines.collect::<String>()).unwrap();
    let texts = [
        ["--server", &server.url()],
        ["--node-name", "n1"],
        ["--references", references.to_str().unwrap()],
        ["--output-dir", output.to_str().unwrap()],
        [FLAG, "127.0.0.1:0"],
    ];
    texts.concat().into_iter().map(str::to_owned).collect()
}

/// Waits until a file has this text.
#[track_caller]
pub(super) fn wait_for_file(file: &Path, text: &str) {
    until(|| fs::read_to_string(file).ok().as_deref() == Some(text));
}

fn add_pod(server: &ApiServer) {
    let secret = objects::secret("shop", "db", "", &[("password", "made-up")]);
    server.apply(&secret).unwrap();
    let pod = objects::pod("shop", "web", "n1", &["db"], &[]);
    server.apply(&pod).unwrap();
}

/// Seen: with a full pipe a new pod's Secret had no file after eight seconds, the probes said that
/// all was well, and SIGTERM ended nothing.
#[test]
fn a_reader_of_rows_that_takes_nothing_holds_up_no_pod_and_no_end() {
    let server = ApiServer::new().unwrap();
    change_maps(&server, "0");
    let directory = TempDirectory::new("agent-full-output");
    let flags = flags(&server, &directory);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let (mut stdout, write_end) = small_pipe();
    let mut command = AGENT.command(&flags);
    command.stdout(Stdio::from(write_end));
    let mut agent = Running::new(command);
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    stdout.read_exact(&mut [0]).unwrap();

    add_pod(&server);
    wait_for_file(&directory.join("out/shop/secrets/db/password"), "made-up");
    let mut values = 1..;
    until(|| {
        let is_told = agent.has_told("warning: the reader is too slow: the oldest rows");
        if !is_told {
            change_maps(&server, &values.next().unwrap().to_string());
        }
        is_told
    });
    assert_eq!(get(probes.parse().unwrap(), "/livez").0, 200);
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    let number = last.strip_prefix("warning: ").and_then(|rest| {
        let (number, rest) = rest.split_once(' ')?;
        (rest == "rows of the output were dropped: the reader was too slow").then_some(number)
    });
    let number: usize = number.unwrap_or_else(|| panic!("{last}")).parse().unwrap();
    assert!(number > 1000, "{number}");
    drop(stdout);
}

/// The log goes to standard error: each thread of the library may write there.
#[test]
fn a_reader_of_the_log_that_takes_nothing_holds_up_nothing() {
    let server = ApiServer::new().unwrap();
    change_maps(&server, "0");
    let directory = TempDirectory::new("agent-full-log");
    let flags = flags(&server, &directory);
    let mut flags: Vec<_> = flags.iter().map(String::as_str).collect();
    flags.extend(["-v=4", "-o=wide"]);
    let (mut stderr, write_end) = small_pipe();
    let mut command = AGENT.command(&flags);
    command.stderr(Stdio::from(write_end));
    let mut agent = Running::new(command);
    stderr.read_exact(&mut [0]).unwrap();
    let last = map_name(MAPS - 1);
    agent.wait_for("each row", |line| {
        line.contains(&last) && line.contains("Synced")
    });
    add_pod(&server);
    wait_for_file(&directory.join("out/shop/secrets/db/password"), "made-up");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    drop(stderr);
}

/// Seen: it ended with code 1, as if the server had refused it, and said nothing.
#[test]
fn a_reader_that_has_gone_ends_it_with_a_line_and_a_code() {
    let server = ApiServer::new().unwrap();
    change_maps(&server, "0");
    let directory = TempDirectory::new("agent-no-reader");
    let flags = flags(&server, &directory);
    let mut flags: Vec<_> = flags.iter().map(String::as_str).collect();
    for once in [false, true] {
        flags.extend(once.then_some("--once"));
        let (read_end, write_end) = small_pipe();
        let mut command = AGENT.command(&flags);
        command.stdout(Stdio::from(write_end));
        let agent = Running::new(command);
        drop(read_end);
        let (status, told) = agent.wait();
        assert_eq!(status.code(), Some(3), "{told}");
        let line = told.lines().last().unwrap();
        let expected = "error: the output is not taken any more: Broken pipe (os error 32)";
        assert_eq!(line, expected);
    }
}
