//! A process for one test.

use std::any::type_name;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use super::TempDirectory;

/// Set in the process that runs one test.
const ALONE: &str = "KUBECACHE_TEST_ALONE";

/// Runs a closure of the test in a process of its own: this program again, with that test and no
/// other.
///
/// For what counts all of a process: its heap, its threads, its descriptors, its log.
pub(crate) fn alone<T: FnOnce()>(test: T) {
    alone_with(&[], test);
}

/// As [`alone`], with these variables in the environment of the process.
pub(crate) fn alone_with<T: FnOnce()>(variables: &[(&str, &OsStr)], test: T) {
    let this = env::current_exe().expect("this program has a path");
    let mut command = Command::new(this);
    command.envs(variables.iter().copied());
    alone_by(command, test);
}

/// As [`alone`]. Returns the trace of the system calls that `calls` names to `strace`; `None` in
/// the process itself, or where no process can be traced.
pub(crate) fn alone_traced<T: FnOnce()>(calls: &str, test: T) -> Option<String> {
    if env::var_os(ALONE).is_some() {
        alone(test);
        return None;
    }
    let tries = Command::new("strace").args(["-qq", "true"]).output();
    if !tries.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return None;
    }
    let directory = TempDirectory::new("trace");
    let trace = directory.join("trace");
    let this = env::current_exe().expect("this program has a path");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", calls, "-o"]);
    command.arg(&trace).arg(this);
    alone_by(command, test);
    Some(fs::read_to_string(trace).expect("strace writes a trace"))
}

/// As [`alone`], with the command that starts this program.
pub(super) fn alone_by<T: FnOnce()>(mut command: Command, test: T) {
    if env::var_os(ALONE).is_some() {
        test();
        assert_eq!(
            kubecache::worker::live_workers(),
            0,
            "the test leaves threads behind"
        );
        return;
    }
    // The closure is called after the test that it stands in.
    let path = type_name::<T>();
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    let name = name.trim_end_matches("::{{closure}}");
    let ended = command
        .args(["--exact", name, "--nocapture", "--test-threads=2"])
        .env(ALONE, name)
        .output()
        .expect("this program starts again");
    let told = String::from_utf8_lossy(&ended.stdout);
    let complaints = String::from_utf8_lossy(&ended.stderr);
    // Its figures, without what the harness says.
    let harness = |line: &&str| line.starts_with("running ") || line.starts_with("test ");
    let figures = told
        .lines()
        .filter(|line| !line.is_empty() && !harness(line));
    figures.for_each(|line| println!("{line}"));
    let passed = ended.status.success() && told.contains("1 passed; 0 failed");
    assert!(passed, "{name}, alone: {}\n{complaints}", ended.status);
}
