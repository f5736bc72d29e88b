//! Files that hang or never end, behind each flag that names one: none of them holds up or swells
//! the agent.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::testing::{ApiServer, objects};
use rustix::process::Signal;

use super::AGENT;
use crate::support::example::Running;
use crate::support::hung_mount::HungMount;
use crate::support::small_disk::alone_with_mounts;
use crate::support::{TempDirectory, until};

/// Without a server: what is refused is refused before one is asked.
const ALONE: [&str; 7] = [
    "--server",
    "http://127.0.0.1:1",
    "--secret",
    "a/b",
    "--once",
    "--timeout",
    "100ms",
];

/// A server with TLS: only then an authority is read.
const TLS: &str = "https://127.0.0.1:1";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A kubeconfig of a server, whose token is in that file.
fn kubeconfig(server: &str, token: &Path) -> String {
    format!(
        "clusters: [{{name: c, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{tokenFile: {}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        token.display()
    )
}

/// Makes a `ConfigMap` of one key, `tax`.
fn set(server: &ApiServer, name: &str) {
    let map = objects::config_map("shop", name, "", &[("tax", "7")]);
    server.apply(&map).unwrap();
}

/// Makes a pipe at `pipe`, and the file of the token that a kubeconfig names.
fn make_pipe(pipe: &Path, token: &Path) {
    let made = Command::new("mkfifo").arg(pipe).status();
    assert!(made.unwrap().success());
    fs::write(token, "made-up").unwrap();
}

/// Seen: a pipe held up the agent without end, behind its signals too, and `/dev/zero` swelled it.
#[test]
fn what_is_no_plain_file_is_refused_by_name() {
    let directory = TempDirectory::new("agent-no-file");
    let pipe = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let (snapshot, config) = (directory.join("snapshot"), directory.join("config"));
    for (path, why) in [
        (&*pipe, "it is a pipe"),
        (Path::new("/dev/zero"), "it is a device"),
        (&*directory, "it is a directory"),
    ] {
        let words = format!("{}: {why}", path.display());
        let mut rows = vec![
            (vec!["--references", text(path)], 2),
            (
                vec!["--certificate-authority", text(path), "--server", TLS],
                1,
            ),
            (vec!["--kubeconfig", text(&config)], 1),
        ];
        if cfg!(feature = "snapshot") {
            let key = ["--snapshot", text(&snapshot), "--snapshot-key", text(path)];
            rows.push((key.to_vec(), 1));
        }
        fs::write(&config, kubeconfig(TLS, path)).unwrap();
        for (flags, code) in rows {
            let alone = if flags[0] == "--kubeconfig" {
                &ALONE[2..]
            } else {
                &ALONE[..]
            };
            let ended = AGENT.run(&[alone, &["-o", "wide"], &flags].concat());
            assert_eq!(ended.code, code, "{flags:?}: {}", ended.stderr);
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(told.contains(&words), "{flags:?}: {told}");
        }
        let (out, flag) = (directory.join("out"), "--signal-on-change");
        let mut agent = AGENT.start(&["--demo", "--output-dir", text(&out), flag, text(path)]);
        let told = format!("{flag} {words}");
        while !agent.next_told().unwrap().contains(&told) {}
        assert_eq!(agent.stop(Signal::TERM).code, 0);
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn a_kubeconfig_may_be_a_pipe() {
    let directory = TempDirectory::new("agent-pipe");
    let (pipe, token) = (directory.join("pipe"), directory.join("token"));
    make_pipe(&pipe, &token);
    let server = ApiServer::new().unwrap();
    set(&server, "flags");
    let config = kubeconfig(&server.url(), &token);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, config).unwrap());
        let flags = ["--kubeconfig", text(&pipe), "--configmap", "shop/flags"];
        AGENT.run(&[&flags[..], &["--once"]].concat())
    });
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("flags"), "{}", ended.stdout);
}

/// Replaces a file in one step.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// Seen: the watcher took its first look after that, and told nothing.
#[test]
fn a_configuration_that_changes_while_the_agent_starts_is_read_again() {
    let directory = TempDirectory::new("agent-changes");
    let (pipe, token) = (directory.join("pipe"), directory.join("token"));
    make_pipe(&pipe, &token);
    let server = ApiServer::new().unwrap();
    set(&server, "flags");
    let (out, config) = (directory.join("out"), directory.join("config"));
    let declare = |name: &str| {
        let directory = out.display();
        let text = format!("directory: {directory}\nentries:\n- configMap: shop/{name}\n");
        replace(&config, &text);
    };
    declare("other");
    let agent = AGENT.start(&["--kubeconfig", text(&pipe), "--config", text(&config)]);
    // It opens once the agent reads it, which has read the configuration by then.
    let mut to = File::options().write(true).open(&pipe).unwrap();
    declare("flags");
    let kubeconfig = kubeconfig(&server.url(), &token);
    to.write_all(kubeconfig.as_bytes()).unwrap();
    drop(to);
    until(|| out.join("shop/configmaps/flags/tax").exists());
    ends_soon(agent);
}

/// Seen: what came too late was thrown away, and nothing read the files again.
#[test]
fn references_whose_disk_hung_are_read_once_it_answers() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        let directory = TempDirectory::new("agent-late");
        let server = ApiServer::new().unwrap();
        set(&server, "early");
        set(&server, "late");
        let (out, file) = (directory.join("out"), directory.join("references"));
        let has =
            |name: &str| until(|| out.join("shop/configmaps").join(name).join("tax").exists());
        replace(&file, "configmap shop/early\n");
        let url = server.url();
        let flags = ["--server", &url, "--output-dir", text(&out)];
        let mut agent = AGENT.start(&[&flags[..], &["--references", text(&file)]].concat());
        has("early");
        let link = directory.join("link");
        std::os::unix::fs::symlink(mount.file(), &link).unwrap();
        fs::rename(link, &file).unwrap();
        agent.signal(Signal::HUP);
        while !agent.next_told().unwrap().contains("does their disk hang?") {}
        replace(&file, "configmap shop/late\n");
        drop(mount);
        has("late");
        ends_soon(agent);
    });
}

/// Seen: no other program ran, and the agent did not end.
#[test]
fn a_program_whose_file_system_hangs_holds_up_no_other_and_no_end() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        let directory = TempDirectory::new("agent-exec-hangs");
        let server = ApiServer::new().unwrap();
        let (out, config) = (directory.join("out"), directory.join("config"));
        let log = directory.join("log");
        let entries = format!(
            "directory: {}\nentries:\n- configMap: shop/a\n  exec: [{}]\n- configMap: shop/b\n  \
             exec: [touch, {}]\n",
            out.display(),
            mount.file().display(),
            log.display()
        );
        replace(&config, &entries);
        set(&server, "a");
        let agent = AGENT.start(&["--server", &server.url(), "--config", text(&config)]);
        wait_until_it_hangs(agent.id());
        set(&server, "b");
        until(|| log.exists());
        wait_until_it_hangs(agent.id());
        agent.signal(Signal::TERM);
        let status = Path::new("/proc")
            .join(agent.id().to_string())
            .join("status");
        until(|| fs::read_to_string(&status).unwrap().contains("State:\tZ"));
        // What was to be the program still has the agent's output.
        drop(mount);
        ends_soon(agent);
    });
}

/// The agent ends within a second; a busy machine has a minute.
fn ends_soon(agent: Running) -> String {
    let clock = Clock::system();
    let limit = clock.after(Duration::from_secs(60));
    let (status, stderr) = agent.ended(Signal::TERM);
    assert!(!clock.has_passed(limit), "it was late: {stderr}");
    // By its own code, or by the signal where it had not taken that over yet.
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let ends = [(Some(0), None), (Some(143), None), (None, Some(15))];
    assert!(
        ends.contains(&(status.code(), signal)),
        "{status}: {stderr}"
    );
    stderr
}

/// Waits until a thread of the process hangs.
#[track_caller]
fn wait_until_it_hangs(process: u32) {
    let tasks = Path::new("/proc").join(process.to_string()).join("task");
    let hangs = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        status.contains("State:\tD")
    };
    until(|| {
        let tasks = fs::read_dir(&tasks).expect("the process ended");
        tasks.map_while(Result::ok).any(|task| hangs(task.path()))
    });
}

/// Seen: the agent took the signal and went on hanging.
#[test]
fn a_file_system_that_hangs_holds_up_no_end() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        let file = mount.file();
        let directory = TempDirectory::new("agent-hangs");
        let (snapshot, config) = (directory.join("snapshot"), directory.join("config"));
        let key = directory.join("key");
        fs::write(&key, [7; 32]).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        fs::write(&config, kubeconfig(TLS, &file)).unwrap();
        let mut rows = vec![
            vec!["--references", text(&file)],
            vec!["--certificate-authority", text(&file), "--server", TLS],
            vec!["--kubeconfig", text(&config)],
        ];
        if cfg!(feature = "snapshot") {
            let snapshot = text(&snapshot);
            rows.push(vec!["--snapshot", snapshot, "--snapshot-key", text(&file)]);
            rows.push(vec![
                "--snapshot",
                text(&file),
                "--snapshot-key",
                text(&key),
            ]);
        }
        for flags in rows {
            let is_config = flags[0] == "--kubeconfig";
            let alone = if is_config { &ALONE[2..4] } else { &ALONE[..4] };
            let agent = AGENT.start(&[alone, &flags].concat());
            wait_until_it_hangs(agent.id());
            ends_soon(agent);
        }
        let out = directory.join("out");
        let flags = ["--demo", "--output-dir", text(&out), "--signal-on-change"];
        let mut agent = AGENT.start(&[&flags[..], &[text(&file)]].concat());
        while !agent.next_told().unwrap().contains("does its disk hang?") {}
        ends_soon(agent);
    });
}

/// An agent that has an object and a snapshot, whose key is the file of that name.
#[cfg(feature = "snapshot")]
fn with_snapshot(server: &ApiServer, snapshot: &Path, key: &Path) -> Running {
    fs::write(key, [7; 32]).unwrap();
    fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    set(server, "flags");
    let url = server.url();
    let flags = ["--server", &url, "--configmap", "shop/flags", "--snapshot"];
    let flags = [&flags[..], &[text(snapshot), "--snapshot-key", text(key)]].concat();
    let mut agent = AGENT.start(&flags);
    agent.wait_for("the object", |line| line.contains("flags"));
    agent
}

/// The key was there at the start.
#[cfg(feature = "snapshot")]
#[test]
fn a_key_that_hangs_at_the_end_costs_the_last_snapshot_and_no_end() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        let directory = TempDirectory::new("agent-key-hangs");
        let key = directory.join("key");
        let server = ApiServer::new().unwrap();
        let agent = with_snapshot(&server, &directory.join("snapshot"), &key);
        fs::remove_file(&key).unwrap();
        std::os::unix::fs::symlink(mount.file(), &key).unwrap();
        let stderr = ends_soon(agent);
        assert!(
            stderr.contains("the key of the snapshot did not come in"),
            "{stderr}"
        );
    });
}

/// Its directory was there at the start.
#[cfg(feature = "snapshot")]
#[test]
fn a_snapshot_that_hangs_at_the_end_costs_the_last_snapshot_and_no_end() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        let directory = TempDirectory::new("agent-snapshot-hangs");
        let link = directory.join("link");
        fs::create_dir(directory.join("there")).unwrap();
        std::os::unix::fs::symlink(directory.join("there"), &link).unwrap();
        let server = ApiServer::new().unwrap();
        let agent = with_snapshot(&server, &link.join("snapshot"), &directory.join("key"));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(mount.file().parent().unwrap(), &link).unwrap();
        let stderr = ends_soon(agent);
        assert!(
            stderr.contains("the last snapshot is not written"),
            "{stderr}"
        );
    });
}
