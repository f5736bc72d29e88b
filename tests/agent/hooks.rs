//! `--exec-on-change`: what the program is told, how long it may run, and that nothing of it is
//! left behind.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kubecache::testing::{ApiServer, objects};
use rustix::process::{Pid, Signal, kill_process};

use super::AGENT;
use super::probes::{FLAG, get, told, wait_for_answer};
use super::slow_readers::wait_for_file;
use crate::support::example::Running;
use crate::support::{TempDirectory, until};

/// A server with one ConfigMap, a directory for the files, and a script that is run.
struct Machine {
    server: ApiServer,
    directory: TempDirectory,
}

impl Machine {
    fn new(script: &str) -> Self {
        let machine = Self {
            server: ApiServer::new().unwrap(),
            directory: TempDirectory::new("agent-hook"),
        };
        machine.set_map("1");
        machine.set_script(script);
        machine
    }

    fn script(&self) -> PathBuf {
        self.directory.join("script")
    }

    /// Replaces the script in one step.
    fn set_script(&self, text: &str) {
        let new = self.directory.join("new");
        fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, self.script()).unwrap();
    }

    fn set_map(&self, value: &str) {
        let map = objects::config_map("shop", "a", "", &[("key", value)]);
        self.server.apply(&map).unwrap();
    }

    fn file(&self, path: &str) -> PathBuf {
        self.directory.join("out/shop").join(path)
    }

    fn flags(&self, program: &Path, more: &[&str]) -> Vec<String> {
        let output = self.directory.join("out");
        let url = self.server.url();
        let flags = [
            ["--server", &url],
            ["--configmap", "shop/a"],
            ["--secret", "shop/db"],
            ["--output-dir", output.to_str().unwrap()],
            ["--exec-on-change", program.to_str().unwrap()],
        ];
        let flags = flags.concat().into_iter().chain(more.iter().copied());
        flags.map(str::to_owned).collect()
    }

    fn command(&self, program: &Path, more: &[&str]) -> Command {
        let flags = self.flags(program, more);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut command = AGENT.command(&flags);
        command.env("PATH", "/usr/bin:/bin");
        command
    }

    fn start(&self, more: &[&str]) -> Running {
        Running::new(self.command(&self.script(), more))
    }
}

/// Whether it has ended. One that nobody has reaped has.
fn has_ended(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[track_caller]
fn wait_until_ended(pids: &str) {
    until(|| pids.split_whitespace().all(has_ended));
}

#[test]
fn a_hook_is_told_what_changed_and_what_changes_meanwhile_is_one_more_run() {
    let machine = Machine::new("");
    let gate = machine.directory.join("gate");
    let made = Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let changed = "$(echo \"$KUBECACHE_CHANGED\" | tr '\\n' ';')";
    machine.set_script(&format!(
        "echo \"told $$ {changed} $KUBECACHE_CHANGED_LEFT_OUT\"; read go < {}",
        gate.display()
    ));
    let mut agent = machine.start(&[]);
    // The number of the process, and what it was told.
    let mut next = || {
        let line = told(&mut agent, "told ");
        let (pid, rest) = line.split_once(' ').unwrap();
        (pid.to_owned(), rest.to_owned())
    };
    assert_eq!(next().1, "configmap shop/a; 0");

    let secret = objects::secret("shop", "db", "", &[("key", "1")]);
    machine.server.apply(&secret).unwrap();
    wait_for_file(&machine.file("secrets/db/key"), "1");
    for value in ["2", "3"] {
        machine.set_map(value);
        wait_for_file(&machine.file("configmaps/a/key"), value);
    }
    fs::write(&gate, "go\n").unwrap();
    assert_eq!(next().1, "configmap shop/a;secret shop/db; 0");
    fs::write(&gate, "go\n").unwrap();
    machine.set_map("4");
    let (pid, changed) = next();
    assert_eq!(changed, "configmap shop/a; 0");

    agent.signal(Signal::HUP);
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(has_ended(&pid), "{pid} is left");
}

/// What it prints first are the numbers of its processes. None of them heeds SIGTERM.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo \"pids $$ $!\"; while :; do wait; done";

/// Seen: a run that hung was told of nowhere, and no change was told any more.
#[test]
fn a_run_over_its_limit_is_ended_whole_and_fails_its_check_until_a_run_is_well() {
    let machine = Machine::new(STUBBORN);
    let mut flags = vec!["--exec-timeout", "1s", FLAG, "127.0.0.1:0"];
    if cfg!(feature = "metrics") {
        flags.extend(["--metrics-bind-address", "127.0.0.1:0"]);
    }
    let mut agent = machine.start(&flags);
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let probes = probes.parse().unwrap();
    let metrics = cfg!(feature = "metrics").then(|| {
        let address = told(&mut agent, "--metrics-bind-address: listening at ");
        address.parse::<SocketAddr>().unwrap()
    });
    let pids = told(&mut agent, "pids ");
    while !agent
        .next_told()
        .unwrap()
        .contains("it ran longer than 1s and was ended")
    {}
    wait_until_ended(&pids);
    let said = "[-]hook failed: the last run failed: it ran longer than 1s and was ended\n\
        healthz/hook check failed\n";
    wait_for_answer(probes, "/healthz/hook", (500, said));

    machine.set_script("echo \"again $KUBECACHE_CHANGED\"");
    agent.signal(Signal::HUP);
    assert_eq!(told(&mut agent, "again "), "configmap shop/a");
    wait_for_answer(probes, "/healthz/hook", (200, "ok"));
    if let Some(address) = metrics {
        let (_, page) = get(address, "/metrics");
        for line in [
            "kubecache_agent_hook_runs_total{result=\"success\"} 1\n",
            "kubecache_agent_hook_runs_total{result=\"failure\"} 1\n",
            "kubecache_agent_hook_running_seconds 0\n",
            "kubecache_agent_dropped_total{what=\"rows\"} 0\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// Seen: it ended with 0, and a program that was not there was told of in the log alone.
#[test]
fn once_fails_with_a_hook_that_fails_or_cannot_be_run() {
    let machine = Machine::new("exit 3");
    let missing = machine.directory.join("missing");
    let not_executable = machine.directory.join("plain");
    fs::write(&not_executable, "#!/bin/sh\n").unwrap();
    for (program, why) in [
        (&machine.script(), "exit status: 3"),
        (&missing, "No such file or directory (os error 2)"),
        (&not_executable, "Permission denied (os error 13)"),
    ] {
        drop(fs::remove_dir_all(machine.directory.join("out")));
        let output = machine.command(program, &["--once"]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let line = format!("error: --exec-on-change {}: {why}", program.display());
        assert_eq!(stderr.lines().last(), Some(&*line), "{stderr}");
        let rows = String::from_utf8(output.stdout).unwrap();
        assert!(rows.contains("Synced"), "{rows}");
        let written = machine.file("configmaps/a/key");
        assert_eq!(fs::read_to_string(written).unwrap(), "1");
    }
}

/// Seen: what a run was told in vain, or when its agent was killed, no later agent told anybody.
#[test]
fn what_a_program_was_not_told_of_the_next_agent_tells_it() {
    let machine = Machine::new("exit 3");
    let config = machine.directory.join("config");
    let entry = format!(
        "{{configMap: shop/a, exec: [{}]}}",
        machine.script().display()
    );
    fs::write(&config, format!("entries: [{entry}]")).unwrap();
    let output = machine.directory.join("out");
    let url = machine.server.url();
    let of_entry = [
        "--server",
        &url,
        "--config",
        config.to_str().unwrap(),
        "--output-dir",
    ];
    let of_entry = [&of_entry[..], &[output.to_str().unwrap()]].concat();
    let of_flag = machine.flags(&machine.script(), &[]);
    let of_flag: Vec<_> = of_flag.iter().map(String::as_str).collect();
    let again = "echo \"again $KUBECACHE_CHANGED\"";
    for flags in [of_flag, of_entry] {
        let run = |flags: &[&str]| {
            let ended = AGENT.run(&[flags, &["--once"]].concat());
            let told = ended
                .stderr
                .lines()
                .filter(|line| line.starts_with("again "));
            let told: Vec<_> = told.map(str::to_owned).collect();
            assert!(!ended.stderr.contains("no outlet made"), "{}", ended.stderr);
            (ended.code, told)
        };
        let nothing = Vec::<String>::new();
        drop(fs::remove_dir_all(&output));
        machine.set_script("exit 3");
        assert_eq!(run(&flags), (1, nothing.clone()));
        machine.set_script(again);
        assert_eq!(run(&flags), (0, vec!["again configmap shop/a".to_owned()]));
        assert_eq!(run(&flags), (0, nothing.clone()));

        machine.set_script("echo \"told $$\"; exec sleep 1000");
        machine.set_map(flags[2]);
        let mut agent = Running::new(AGENT.command(&flags));
        let pid = told(&mut agent, "told ").parse().unwrap();
        agent.signal(Signal::KILL);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        drop(agent.wait());
        machine.set_script(again);
        assert_eq!(run(&flags), (0, vec!["again configmap shop/a".to_owned()]));
        assert_eq!(run(&flags), (0, nothing));
    }
}

/// Seen: with `--once` the first signal was heard after the run, and the second left the run alone.
#[test]
fn signals_leave_nothing_of_a_run_behind() {
    for second in [None, Some(Signal::TERM)] {
        for once in [false, true] {
            let machine = Machine::new(STUBBORN);
            let more = ["--once"];
            let mut agent = machine.start(if once { &more } else { &[] });
            let pids = told(&mut agent, "pids ");
            agent.signal(Signal::INT);
            if let Some(second) = second {
                agent.signal(second);
            }
            let (status, told) = agent.wait();
            let code = status.code().expect("it ends by itself");
            // The second one may come too late.
            let by_first = i32::from(once);
            let expected = [by_first, second.map_or(by_first, |_| 128 + 15), 128 + 2];
            assert!(expected.contains(&code), "{code}: {told}");
            wait_until_ended(&pids);
        }
    }
}

/// Its output is passed on in part, and a process that has left the group holds up nothing.
#[test]
fn a_run_that_writes_without_end_or_leaves_the_output_open_holds_up_nothing() {
    let machine = Machine::new("cat; echo first; exec yes and-so-on");
    let mut agent = machine.start(&["--exec-timeout", "1s", "-v"]);
    assert_eq!(told(&mut agent, "fir"), "st");
    while !agent
        .next_told()
        .unwrap()
        .ends_with("bytes of its output are left out")
    {}
    machine.set_script("setsid sleep 1000 & echo \"pid $!\"");
    machine.set_map("2");
    let pid: i32 = told(&mut agent, "pid ").parse().unwrap();
    while !agent.next_told().unwrap().contains("ended well after") {}
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let passed_on = ended.stderr.matches("and-so-on\n").count();
    assert!(passed_on <= 64 * 1024 / "and-so-on\n".len(), "{passed_on}");
}
