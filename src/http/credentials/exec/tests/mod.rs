//! Plugins that are shell scripts: their input, their answers, and their failures.

mod answers;

use std::cell::Cell;
use std::fs;
use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Pid;
use serde_json::{Value, json};

use super::super::renewal::{Asker, Renewal, Runner};
use super::super::source::Credential;
use super::*;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::sync::{Arc, Mutex, Rank};
use crate::tests::temp_directory::TempDirectory;
use crate::tests::until::{until, until_some};
use crate::worker::{StopSource, StopToken, Worker};

/// A directory with the script of one test, and the files that the script writes.
struct Stage(TempDirectory);

impl Stage {
    fn new(name: &str) -> Self {
        Self(TempDirectory::new(&format!("plugin-{name}")))
    }

    /// Writes the script `plugin`. `$DIR` in it is the directory.
    fn script(&self, body: &str) -> String {
        let path = self.0.join("plugin");
        let directory = self.0.display();
        // A file that is being written cannot be run: so another process writes it.
        let text = format!("#!/bin/sh\nDIR={directory}\n{body}\n");
        fs::write(self.0.join("text"), text).unwrap();
        let copied = Command::new("cp")
            .arg(self.0.join("text"))
            .arg(&path)
            .status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn config(&self, body: &str) -> ExecConfig {
        ExecConfig {
            location: "/c: users[name=u].user.exec".to_owned(),
            version: ExecVersion::V1,
            command: self.script(body),
            args: Vec::new(),
            env: Vec::new(),
            install_hint: None,
            interactive_mode: InteractiveMode::Never,
            cluster: None,
        }
    }

    fn plugin(&self, body: &str) -> ExecPlugin {
        plugin(self.config(body), PluginOptions::default()).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    /// Waits until the script has written that file, with a line break at its end.
    #[track_caller]
    fn wait_for(&self, name: &str) -> String {
        until_some(|| {
            let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
            text.ends_with('\n').then(|| text.trim().to_owned())
        })
    }
}

fn with_path(path: impl Into<std::ffi::OsString>) -> Arc<Environment> {
    Arc::new(Environment::from_pairs([("PATH", path)]).home("/home/u"))
}

fn plugin(config: ExecConfig, options: PluginOptions) -> Result<ExecPlugin, Error> {
    ExecPlugin::new(config, options, with_path("/usr/bin:/bin"))
}

/// The error of a run, with the plugin's name as `P`. It never shows what the script wrote.
fn error_of(plugin: &ExecPlugin) -> (ErrorKind, String) {
    let error = fetch(plugin).map(drop).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    (error.kind(), error.to_string().replace(&plugin.name, "P"))
}

fn fetch(plugin: &ExecPlugin) -> Result<Fetched, Error> {
    fetch_until(plugin, &StopToken::never())
}

fn fetch_until(plugin: &ExecPlugin, stop: &StopToken) -> Result<Fetched, Error> {
    plugin.fetch(&FetchReason {
        stop,
        was_rejected: false,
        plugin_end: &Cell::new(None),
    })
}

/// A line of a script that answers with this status.
fn answer(status: &str) -> String {
    format!(
        "echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\
         \"kind\":\"ExecCredential\",\"status\":{status}}}'"
    )
}

fn token(fetched: &Fetched) -> &str {
    fetched.authorization.as_ref().unwrap().as_str()
}

fn is_gone(pid: &str) -> bool {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::test_kill_process(pid).is_err()
}

#[test]
fn a_plugin_gets_its_arguments_its_variables_and_what_is_asked() {
    let stage = Stage::new("told");
    let body = "printf '%s\\n' \"$0\" \"$@\" >$DIR/args\nprintf '%s' \"$MARK\" >$DIR/env\n\
                printf '%s' \"$KUBERNETES_EXEC_INFO\" >$DIR/info\ncat >$DIR/stdin\n\
                printf '%s' \"$HOME\" >$DIR/home\n";
    let config = ExecConfig {
        args: vec!["get token".to_owned(), String::new(), "$x".to_owned()],
        env: vec![("MARK".to_owned(), Zeroizing::new("set".to_owned()))],
        version: ExecVersion::V1Beta1,
        cluster: Some(ClusterInfo {
            server: "https://a.test".to_owned(),
            tls_server_name: Some("b.test".to_owned()),
            insecure_skip_verify: true,
            authorities: authorities(Pem::inline(b"ca".to_vec(), "ca")),
            proxy_url: Some("http://p".to_owned()),
            disable_compression: true,
            config: Some(json!({ "audience": "a" })),
        }),
        ..stage.config(&format!(
            "{body}{}",
            answer("{\"token\":\"t\"}").replace("/v1", "/v1beta1")
        ))
    };
    let command = config.command.clone();
    let fetched = fetch(&plugin(config, PluginOptions::default()).unwrap()).unwrap();
    assert_eq!(token(&fetched), "Bearer t");
    assert!(fetched.valid_for.is_none() && fetched.renew_after.is_none());
    assert_eq!(stage.read("args"), format!("{command}\nget token\n\n$x\n"));
    assert_eq!(
        (stage.read("env"), stage.read("stdin")),
        ("set".to_owned(), String::new())
    );
    assert_eq!(stage.read("home"), "/home/u");
    let info: Value = serde_json::from_str(&stage.read("info")).unwrap();
    let expected = json!({
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": false,
            "cluster": {
                "server": "https://a.test",
                "tls-server-name": "b.test",
                "insecure-skip-tls-verify": true,
                "certificate-authority-data": "Y2E=",
                "proxy-url": "http://p",
                "disable-compression": true,
                "config": { "audience": "a" },
            },
        },
    });
    assert_eq!(info, expected);
}

fn authorities(pem: Pem) -> Mutex<Option<Pem>> {
    Mutex::ranked(Rank::CREDENTIALS, Some(pem))
}

/// Seen: each renewal failed, although no plugin may need the file.
#[test]
fn a_plugin_gets_the_authorities_that_were_read_last() {
    let stage = Stage::new("authorities");
    let ca = stage.0.join("ca.crt");
    fs::write(&ca, "first").unwrap();
    let cluster = ClusterInfo {
        server: "https://a.test".to_owned(),
        tls_server_name: None,
        insecure_skip_verify: false,
        authorities: authorities(Pem::file(&ca, "ca").loaded().unwrap()),
        proxy_url: None,
        disable_compression: false,
        config: None,
    };
    let info = || {
        let info = exec_credential::exec_info(ExecVersion::V1, false, Some(&cluster));
        let info: Value = serde_json::from_str(&info).unwrap();
        info["spec"]["cluster"]["certificate-authority-data"].clone()
    };
    assert_eq!(info(), "Zmlyc3Q=");
    fs::write(&ca, "second").unwrap();
    assert_eq!(info(), "c2Vjb25k");
    fs::remove_file(&ca).unwrap();
    assert_eq!(info(), "c2Vjb25k");
}

#[test]
fn a_name_is_run_by_path_and_says_its_name() {
    let stage = Stage::new("path");
    let body = format!(
        "printf '%s' \"$0\" >$DIR/name\n{}",
        answer("{\"token\":\"t\"}")
    );
    let config = stage.config(&body);
    let config = ExecConfig {
        command: "plugin".to_owned(),
        ..config
    };
    let path = with_path(&*stage.0);
    let plugin = ExecPlugin::new(config, PluginOptions::default(), path).unwrap();
    assert_eq!(token(&fetch(&plugin).unwrap()), "Bearer t");
}

#[test]
fn each_way_to_fail_names_plugin_cause_and_remedy() {
    let stage = Stage::new("fails");
    let rows = [
        (
            "echo canary; exit 3".to_owned(),
            "P failed with exit code 3: run it by hand to see more",
        ),
        (
            "echo canary; kill -9 $$".to_owned(),
            "P was ended by signal 9: ",
        ),
        (
            "echo canary".to_owned(),
            "P answered 6 bytes that are no ExecCredential in JSON or YAML (not a mapping): ",
        ),
        (
            answer("null"),
            "P answered an ExecCredential without a status",
        ),
        (
            answer("{\"token\":\"can ary\"}"),
            "P answered a token that holds a space or another character that no token has",
        ),
        (
            "while :; do echo canarycanarycanarycanary; done".to_owned(),
            "P wrote more than 1048576 bytes to standard output and was killed: ",
        ),
    ];
    for (body, expected) in rows {
        let (kind, error) = error_of(&stage.plugin(&body));
        assert_eq!(kind, ErrorKind::Credentials);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_command_that_is_missing_or_broken_is_told_with_the_install_hint() {
    let stage = Stage::new("missing");
    let missing = ExecConfig {
        command: "kubecache-no-such-plugin".to_owned(),
        install_hint: Some("get it at\nthe shop\u{1b}[2J".to_owned()),
        ..stage.config("")
    };
    let (_, error) = error_of(&plugin(missing, PluginOptions::default()).unwrap());
    assert_eq!(
        error,
        "P cannot be run: there is no such command in PATH: install it: get it at\\nthe \
         shop\\u{1b}[2J"
    );
    let plain = stage.plugin("");
    fs::set_permissions(stage.0.join("plugin"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        error_of(&plain).1,
        format!(
            "P cannot be run: {} is not executable: allow its execution (chmod +x)",
            stage.0.join("plugin").display()
        )
    );
    let folder = ExecConfig {
        command: stage.0.to_str().unwrap().to_owned(),
        install_hint: Some("get it at the shop".to_owned()),
        ..stage.config("")
    };
    let folder = plugin(folder, PluginOptions::default()).unwrap();
    assert_eq!(
        error_of(&folder).1,
        format!(
            "P cannot be run: {} is a directory: name a program in it",
            stage.0.display()
        )
    );
    fs::write(stage.0.join("plugin"), "\0\0\0\0").unwrap();
    fs::set_permissions(stage.0.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
    let (_, error) = error_of(&plain);
    assert!(error.starts_with("P cannot be started: "), "{error}");
    assert!(
        error.contains("is it a program for this machine, and "),
        "{error}"
    );
}

#[test]
fn a_working_directory_that_the_program_names_must_be_one() {
    let stage = Stage::new("directory");
    let body = format!("pwd >$DIR/pwd\n{}", answer("{\"token\":\"t\"}"));
    let run_in = |environment: Environment| {
        let config = stage.config(&body);
        let environment = environment.variable("PATH", "/usr/bin:/bin");
        let plugin = ExecPlugin::new(config, PluginOptions::default(), Arc::new(environment));
        let plugin = plugin.unwrap();
        let fetched = fetch(&plugin).map(drop);
        fetched.map_err(|error| error.to_string().replace(&plugin.name, "P"))
    };
    let own = || Environment::from_pairs([("A", "1")]);
    assert_eq!(run_in(own().working_directory(&*stage.0)), Ok(()));
    assert_eq!(stage.read("pwd").trim(), stage.0.to_str().unwrap());
    assert_eq!(run_in(own()), Ok(()));
    for missing in [stage.0.join("missing"), stage.0.join("plugin")] {
        let expected = format!(
            "P cannot be run: the working directory {} is no directory: make it, or name \
             another by Environment::working_directory",
            missing.display()
        );
        assert_eq!(run_in(own().working_directory(missing)), Err(expected));
    }
}

#[test]
fn the_end_of_standard_error_stands_in_each_error_without_tokens() {
    let stage = Stage::new("words");
    let token = "canary-of-a-token";
    let gives = answer(&format!("{{\"token\":\"{token}\"}}"));
    let rows = [
        (
            "printf 'first\\r\\nno login\\n' >&2; exit 3".to_owned(),
            "P failed with exit code 3: run it by hand to see more: the end of its standard \
             error: first\\r\\nno login",
        ),
        (
            "echo no login >&2".to_owned(),
            "P answered nothing: it must write an ExecCredential to standard output: the end of \
             its standard error: no login",
        ),
        (
            format!("{gives}\necho got {token}. then >&2; exit 3"),
            "P failed with exit code 3: run it by hand to see more: the end of its standard \
             error: got [credentials left out]. then",
        ),
        (
            format!("{}\necho got {token} >&2", gives.replace("/v1", "/v2")),
            "P answered apiVersion of another API, but the kubeconfig says \
             client.authentication.k8s.io/v1: make both the same: the end of its standard error: \
             got [credentials left out]",
        ),
        (
            "exec 2>&-; exit 3".to_owned(),
            "P failed with exit code 3: run it by hand to see more",
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(error_of(&stage.plugin(&body)).1, expected);
    }
}

/// Runs a child and keeps its standard error, with a limit that no test meets.
fn heard(stage: &Stage, body: &str, stop: &StopToken, words: &mut LastWords) -> Option<i32> {
    let mut command = Command::new(stage.script(body));
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let call = CallContext::new(stop, NamedDeadline::NEVER).unwrap();
    let ended = child::run(command, true, &call, words, &AtomicI32::default());
    words.drain();
    ended.ok().and_then(|ended| ended.status.code())
}

/// A pipe that is full.
fn full_pipe() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    use rustix::event::{PollFd, PollFlags};
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    while last_words::is_ready_now(PollFd::new(&writer, PollFlags::OUT)) {
        rustix::io::write(&writer, &[b'.'; 4096]).unwrap();
    }
    (reader, writer)
}

/// The plugin ends once it was heard: what it wrote last is passed on without a wait for a reader.
#[test]
fn standard_error_is_passed_on_whole() {
    let stage = Stage::new("passed");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let go = stage.0.join("go");
    let line = "a line of some length";
    let body = format!(
        "mkfifo {0}; yes '{line}' | head -n 30000 >&2; read _ <{0}; exit 3",
        go.display()
    );
    let hearing = Worker::spawn("t-hear", move |_| {
        let mut heard = std::io::BufReader::new(fs::File::from(reader)).lines();
        let lines = heard.by_ref().take(30_000);
        let others = lines.filter(|heard| heard.as_ref().unwrap() != line);
        assert_eq!(others.count(), 0);
        fs::write(go, "\n").unwrap();
        assert!(heard.next().is_none());
    });
    let mut words = LastWords::new(Some(writer));
    assert_eq!(
        heard(&stage, &body, &StopToken::never(), &mut words),
        Some(3)
    );
    let shown = words.shown(None).unwrap();
    assert_eq!(shown.len(), 1024);
    assert!(shown.ends_with("a line of some length\\na line of some length"));
    drop(words);
    hearing.unwrap().join().unwrap();
}

#[test]
fn a_standard_error_that_takes_nothing_holds_up_neither_the_end_nor_a_stop() {
    let stage = Stage::new("stalled");
    let (_reader, writer) = full_pipe();
    let mut words = LastWords::new(Some(writer));
    let body = "yes 'some line' | head -c 20000 >&2; echo last >&2; exit 3";
    assert_eq!(
        heard(&stage, body, &StopToken::never(), &mut words),
        Some(3)
    );
    assert!(words.shown(None).unwrap().ends_with("last"));

    let (_reader, writer) = full_pipe();
    let stop = StopSource::new();
    let token = stop.token();
    let other = Stage::new("stalled-pid");
    let pid = other.0.join("pid");
    let running = Worker::spawn("t-run", move |_| {
        let stage = Stage::new("stalled-stop");
        let mut words = LastWords::new(Some(writer));
        let body = format!("echo $$ >{}\nyes >&2", pid.display());
        assert_eq!(heard(&stage, &body, &token, &mut words), None);
    });
    other.wait_for("pid");
    stop.stop();
    running.unwrap().join().unwrap();
}

#[test]
fn a_reader_of_standard_error_that_is_gone_and_a_child_that_writes_for_ever_change_nothing() {
    let stage = Stage::new("floods");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut words = LastWords::new(Some(writer));
    // The child of the plugin goes on until its pipe has no reader.
    let body = "yes >&2 &\necho last >&2\nexit 3";
    assert_eq!(
        heard(&stage, body, &StopToken::never(), &mut words),
        Some(3)
    );
    assert!(words.shown(None).is_some());
}

/// How the first run ends of a plugin that was installed after the configuration was read.
fn first_end(
    policy: PluginPolicy,
    command: &str,
    interactive_mode: InteractiveMode,
    is_executable: bool,
) -> Option<(i32, PluginEnd)> {
    let stage = Stage::new("decides");
    let config = ExecConfig {
        command: command.to_owned(),
        interactive_mode,
        ..stage.config("exit 0")
    };
    fs::remove_file(stage.0.join("plugin")).unwrap();
    let options = PluginOptions {
        policy,
        no_stdin: true,
        ..PluginOptions::default()
    };
    let plugin = ExecPlugin::new(config, options, with_path(&*stage.0)).unwrap();
    if is_executable {
        stage.script("exit 0");
    } else {
        fs::write(stage.0.join("plugin"), "").unwrap();
    }
    let plugin_end = Cell::new(None);
    let fetched = plugin.fetch(&FetchReason {
        stop: &StopToken::never(),
        was_rejected: false,
        plugin_end: &plugin_end,
    });
    drop(fetched.map(drop).unwrap_err());
    plugin_end.get()
}

#[test]
fn the_policy_decides_before_each_run_and_a_denied_run_is_none() {
    let other = || PluginPolicy::Allowlist(vec!["other".to_owned()]);
    let named = || PluginPolicy::Allowlist(vec!["plugin".to_owned()]);
    let never = InteractiveMode::Never;
    for (policy, command, mode, is_there, expected) in [
        (other(), "plugin", never, true, Some((1, PluginEnd::Denied))),
        (
            other(),
            "plugin",
            never,
            false,
            Some((1, PluginEnd::Denied)),
        ),
        (
            named(),
            "plugin",
            never,
            true,
            Some((0, PluginEnd::Success)),
        ),
        (
            named(),
            "plugin",
            never,
            false,
            Some((1, PluginEnd::NotFound)),
        ),
        (
            PluginPolicy::AllowAll,
            "plugin",
            never,
            true,
            Some((0, PluginEnd::Success)),
        ),
        (
            PluginPolicy::AllowAll,
            "gone",
            never,
            true,
            Some((1, PluginEnd::NotFound)),
        ),
        (other(), "plugin", InteractiveMode::Always, true, None),
    ] {
        let shown = format!("{policy:?} {command} {is_there}");
        assert_eq!(
            first_end(policy, command, mode, is_there),
            expected,
            "{shown}"
        );
    }
}

#[test]
fn a_plugin_that_needs_a_person_is_not_run_without_a_terminal() {
    let stage = Stage::new("terminal");
    let always = || ExecConfig {
        interactive_mode: InteractiveMode::Always,
        ..stage.config("")
    };
    let options = PluginOptions {
        no_stdin: true,
        ..PluginOptions::default()
    };
    let (_, error) = error_of(&plugin(always(), options.clone()).unwrap());
    let kept = "P cannot be run: it needs standard input, which the program keeps for itself";
    assert_eq!(error, kept);
    let available = ExecConfig {
        interactive_mode: InteractiveMode::IfAvailable,
        ..stage.config(&answer("{\"token\":\"t\"}"))
    };
    assert!(fetch(&plugin(available, options).unwrap()).is_ok());
    if !std::io::stdin().is_terminal() {
        let (_, error) = error_of(&plugin(always(), PluginOptions::default()).unwrap());
        assert!(error.contains("which is no terminal"), "{error}");
    }
}

#[test]
fn the_policy_decides_before_anything_runs() {
    let stage = Stage::new("policy");
    let under = |policy| {
        let config = stage.config(&format!(
            "echo ran >$DIR/ran\n{}",
            answer("{\"token\":\"t\"}")
        ));
        let options = PluginOptions {
            policy,
            ..PluginOptions::default()
        };
        plugin(config, options).map_err(|error| error.to_string())
    };
    let refused = |policy| under(policy).map(drop).unwrap_err();
    let denied = refused(PluginPolicy::DenyAll);
    assert!(
        denied.contains("may not run: the program forbids plugins"),
        "{denied}"
    );
    let other = refused(PluginPolicy::Allowlist(vec!["aws".to_owned()]));
    assert!(
        other.contains("is not on the program's allowlist"),
        "{other}"
    );
    let empty = refused(PluginPolicy::Allowlist(Vec::new()));
    assert!(
        empty.starts_with("plugin_policy: the allowlist is empty"),
        "{empty}"
    );
    let path = stage.0.join("plugin").to_str().unwrap().to_owned();
    assert!(!stage.0.join("ran").exists());
    fetch(&under(PluginPolicy::Allowlist(vec![path])).unwrap()).unwrap();
    assert_eq!(stage.wait_for("ran"), "ran");
}

/// A plugin that forks, and then hangs: its process, the process of its child.
const HANGS: &str = "echo please sign in >&2; cat /dev/zero >/dev/null &\necho $! >$DIR/child\n\
                     echo $$ >$DIR/pid\nwait";

#[test]
fn a_plugin_that_hangs_is_killed_with_its_children_at_its_limit() {
    let stage = Stage::new("hangs");
    // The limit is long enough for the script to write, even on a busy machine.
    let options = PluginOptions {
        timeout: Some(Duration::from_secs(2)),
        ..PluginOptions::default()
    };
    let plugin = plugin(stage.config(HANGS), options).unwrap();
    let (kind, error) = error_of(&plugin);
    assert_eq!(kind, ErrorKind::Timeout);
    assert!(
        error.starts_with("P gave no credentials within 2.0s and was killed: ")
            && error.ends_with(": the end of its standard error: please sign in"),
        "{error}"
    );
    for name in ["pid", "child"] {
        let pid = stage.wait_for(name);
        // Another process reaps the child of the child.
        until(|| is_gone(&pid) || is_zombie(&pid));
    }
    assert!(is_gone(&stage.wait_for("pid")), "reaped");
}

/// A process in a call of the system for a disk that hangs cannot be killed. Here another process
/// stands for it.
#[test]
fn a_plugin_is_not_run_beside_one_that_was_killed_and_has_not_ended() {
    let stage = Stage::new("left");
    let plugin = stage.plugin(&answer("{\"token\":\"t\"}"));
    let mut left = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(left.id()).unwrap();
    plugin.left.store(pid, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..2 {
        let expected = format!(
            "P is not run again: its process {pid} was killed and has not ended: does its file \
             system hang?"
        );
        assert_eq!(error_of(&plugin), (ErrorKind::Credentials, expected));
    }
    drop(left.stdin.take());
    until(|| fetch(&plugin).is_ok());
    left.wait().expect_err("the run has reaped it");
}

/// The file work before its start has no end of its own.
#[test]
fn a_request_waits_for_a_plugin_for_a_while_beyond_its_limit() {
    let stage = Stage::new("limits");
    for (timeout, limit) in [(None, 70), (Some(Duration::from_secs(5)), 15)] {
        let options = PluginOptions {
            timeout,
            ..PluginOptions::default()
        };
        let source = plugin(stage.config(""), options).unwrap().into_source();
        assert_eq!(source.run_max, Duration::from_secs(limit));
        assert_eq!(source.jobs, JobKind::EndsWithin(Duration::from_secs(10)));
    }
}

fn is_zombie(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status
        .rsplit_once(')')
        .is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn a_stop_ends_a_plugin_at_once_and_reaps_it() {
    let stage = Stage::new("stopped");
    let plugin = Arc::new(stage.plugin(HANGS));
    let stop = StopSource::new();
    let (running, token) = (Arc::clone(&plugin), stop.token());
    let (told, ended) = crossbeam_channel::bounded(1);
    let worker = Worker::spawn("t-run", move |_| {
        let fetched = fetch_until(&running, &token).map(drop);
        told.send(fetched).unwrap();
    });
    let pid = stage.wait_for("pid");
    stop.stop();
    assert!(ended.recv().unwrap().unwrap_err().is_stopped());
    assert!(is_gone(&pid), "reaped");
    worker.unwrap().join().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn only_an_interactive_plugin_stays_in_the_programs_process_group() {
    let stage = Stage::new("group");
    let script = stage.script("cut -d' ' -f5 /proc/$$/stat");
    let own = rustix::process::getpgrp().as_raw_nonzero().to_string();
    for leads_group in [true, false] {
        let mut command = Command::new(&script);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
        let (words, left) = (&mut LastWords::new(None), AtomicI32::default());
        let ended = child::run(&mut command, leads_group, &call, words, &left);
        let ended = ended.ok().unwrap();
        let group = String::from_utf8_lossy(ended.output.pending())
            .trim()
            .to_owned();
        assert_eq!(group == own, !leads_group, "{group} {own}");
    }
}

/// client-go waits for the pipe, which a daemon of the plugin may keep open for days.
#[test]
fn the_answer_ends_with_the_plugin_even_if_its_child_keeps_the_pipe() {
    let stage = Stage::new("daemon");
    let body = format!(
        "tail -f /dev/null &\necho $! >$DIR/child\n{}",
        answer("{\"token\":\"t\"}")
    );
    let fetched = fetch(&stage.plugin(&body)).unwrap();
    assert_eq!(token(&fetched), "Bearer t");
    let pid = stage.wait_for("child");
    assert!(!is_gone(&pid), "what a plugin starts is its own affair");
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// The output that closes first does not end the wait for the exit code.
#[test]
fn a_plugin_that_closes_its_output_is_awaited() {
    let stage = Stage::new("closes");
    let body = format!("{}\nexec >&-\nexit 4", answer("{\"token\":\"t\"}"));
    assert!(error_of(&stage.plugin(&body)).1.contains("exit code 4"));
}

#[test]
fn a_large_answer_is_read_whole() {
    let stage = Stage::new("large");
    let body = "t=x; while [ ${#t} -lt 200000 ]; do t=$t$t; done\n\
                printf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\
                \"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}' $t";
    let fetched = fetch(&stage.plugin(body)).unwrap();
    assert!(token(&fetched).len() > 200_000);
}

fn asker(runner: &Arc<Runner>) -> Asker {
    Asker {
        runner: Arc::downgrade(runner),
        metrics: None,
        check: None,
    }
}

/// Credentials of a plugin, as a client uses them.
struct User {
    renewal: Arc<Renewal>,
    runner: Arc<Runner>,
    clock: FakeClock,
}

impl User {
    fn of(plugin: ExecPlugin) -> Self {
        let clock = FakeClock::new();
        let renewal = Renewal::new(plugin.into_source(), None, &Clock::from(clock.clone()));
        let renewal = Arc::new(renewal);
        let runner = renewal.runner();
        Self {
            renewal,
            runner,
            clock,
        }
    }

    fn current(&self) -> Result<Arc<Credential>, Error> {
        let until = NamedDeadline::caller(Deadline::NEVER);
        let call = CallContext::new(&StopToken::never(), until)?;
        self.renewal.current(&asker(&self.runner), &call)
    }

    fn token(&self) -> String {
        let current = self.current().unwrap();
        let header = current.authorization.as_ref().unwrap().as_str().to_owned();
        header.strip_prefix("Bearer ").unwrap().to_owned()
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Waits until the source has run `runs` times.
    #[track_caller]
    fn wait_for_runs(&self, runs: u64) {
        until(|| self.renewal.status().runs >= runs);
    }
}

/// A plugin that answers a new token at each run, which ends in `$1` seconds.
const COUNTS: &str = "echo >>$DIR/runs; n=$(wc -l <$DIR/runs)\n\
    end=$(date -u -d \"+100 seconds\" +%Y-%m-%dT%H:%M:%SZ)\n\
    printf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
    \"status\":{\"token\":\"t%d\",\"expirationTimestamp\":\"%s\"}}' $n $end";

#[test]
fn a_plugin_runs_again_before_the_expiry_while_requests_go_on() {
    let stage = Stage::new("renews");
    let user = User::of(stage.plugin(COUNTS));
    assert_eq!(user.token(), "t1");
    user.advance(75);
    assert_eq!(user.token(), "t1");
    // A fifth of its time is left: this request does not wait for the run.
    user.advance(6);
    assert_eq!(user.token(), "t1");
    user.wait_for_runs(2);
    assert_eq!(user.token(), "t2");
    // After the end a request waits.
    user.advance(101);
    assert_eq!(user.token(), "t3");
    assert_eq!(user.renewal.status().runs, 3);
}

/// The monotonic clock stands still meanwhile.
#[test]
fn what_expires_while_the_machine_is_suspended_is_not_used() {
    let stage = Stage::new("suspended");
    let user = User::of(stage.plugin(COUNTS));
    assert_eq!(user.token(), "t1");
    user.clock.suspend(Duration::from_secs(81));
    assert!(user.renewal.status().expires_in.unwrap() < Duration::from_secs(20));
    assert_eq!(user.token(), "t1", "no request waits for the run");
    user.wait_for_runs(2);
    user.clock.suspend(Duration::from_secs(101));
    assert_eq!(user.token(), "t3");
    assert_eq!(user.renewal.status().runs, 3);
}

#[test]
fn a_401_runs_the_plugin_once_and_not_again_for_ten_seconds() {
    let stage = Stage::new("rejected");
    let user = User::of(stage.plugin(COUNTS));
    let first = user.current().unwrap();
    assert!(user.renewal.rejected(&first));
    assert!(
        user.renewal.rejected(&first),
        "there is no other yet, or another by now"
    );
    assert_eq!(user.token(), "t2");
    let second = user.current().unwrap();
    assert!(user.renewal.rejected(&first), "there is another one");
    assert!(
        !user.renewal.rejected(&second),
        "a server that rejects all is no reason to hurry"
    );
    assert_eq!(user.token(), "t2");
    user.advance(10);
    assert!(user.renewal.rejected(&second));
    assert_eq!(user.token(), "t3");
}

#[test]
fn all_who_wait_share_one_run() {
    let stage = Stage::new("shared");
    let body = format!("while [ ! -e $DIR/go ]; do sleep 0.01; done\n{COUNTS}");
    let user = Arc::new(User::of(stage.plugin(&body)));
    let (told, tokens) = crossbeam_channel::unbounded();
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let (user, told) = (Arc::clone(&user), told.clone());
            Worker::spawn(format!("t-{number}"), move |_| {
                told.send(user.token()).unwrap();
            })
        })
        .collect();
    fs::write(stage.0.join("go"), "").unwrap();
    let tokens: Vec<_> = tokens.iter().take(8).collect();
    assert_eq!(tokens, ["t1"; 8]);
    assert_eq!(user.renewal.status().runs, 1);
    for worker in workers {
        worker.unwrap().join().unwrap();
    }
}

#[test]
fn a_plugin_that_fails_is_not_run_by_every_request() {
    let stage = Stage::new("pauses");
    let body = format!("if [ -e $DIR/broken ]; then echo >>$DIR/failed; exit 1; fi\n{COUNTS}");
    let user = User::of(stage.plugin(&body));
    assert_eq!(user.token(), "t1");
    fs::write(stage.0.join("broken"), "").unwrap();
    user.advance(81);
    assert_eq!(
        user.token(),
        "t1",
        "the last credentials stay in use until their end"
    );
    user.wait_for_runs(2);
    user.advance(20);
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        let failed = user.current().map(drop).unwrap_err();
        let runs = user.renewal.status().runs;
        let again = user.current().map(drop).unwrap_err();
        assert!(again.to_string().contains("the next try is in "), "{again}");
        assert!(
            failed.to_string().contains("failed with exit code 1"),
            "{failed}"
        );
        assert_eq!(user.renewal.status().runs, runs);
        user.advance(pause);
        user.advance(pause);
    }
    fs::remove_file(stage.0.join("broken")).unwrap();
    user.advance(30);
    assert_eq!(user.token(), "t2");
    let status = user.renewal.status();
    assert!(
        status.failures >= 6 && status.last_error.is_none(),
        "{status:?}"
    );
}

/// The drop of the last client ends the plugin; a request that still waits gets an error.
#[test]
fn dropping_the_last_client_ends_the_plugin() {
    let stage = Stage::new("dropped");
    let User {
        renewal, runner, ..
    } = User::of(stage.plugin(HANGS));
    let asker = asker(&runner);
    let (told, ended) = crossbeam_channel::bounded(1);
    let worker = Worker::spawn("t-ask", move |_| {
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
        told.send(renewal.current(&asker, &call).map(drop)).unwrap();
    });
    let pid = stage.wait_for("pid");
    drop(runner);
    assert!(is_gone(&pid), "reaped before the drop returns");
    assert!(ended.recv().unwrap().unwrap_err().is_stopped());
    worker.unwrap().join().unwrap();
}
