//! The agent under systemd: what it tells over the socket of `Type=notify`, and its lines in the
//! journal. The test is the service manager.

use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;
use std::time::Duration;

use kubecache::testing::{ApiServer, objects};
use rustix::process::Signal;

use super::AGENT;
use super::bad_input::with_plugin;
use crate::support::example::Running;
use crate::support::{TempDirectory, until};

/// It only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    name: String,
    _directory: TempDirectory,
}

impl Manager {
    fn new() -> Self {
        let directory = TempDirectory::new("agent-notify");
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            name: path.to_str().unwrap().to_owned(),
            _directory: directory,
        }
    }

    /// The next message.
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn start(&self, flags: &[&str], more: &[(&str, &str)]) -> Running {
        let socket = [("NOTIFY_SOCKET", &*self.name)];
        AGENT.start_in(flags, &[&socket[..], more].concat())
    }
}

fn server() -> ApiServer {
    let server = ApiServer::new().unwrap();
    let map = objects::config_map("shop", "flags", "", &[("tax", "7")]);
    server.apply(&map).unwrap();
    server
}

#[test]
fn it_is_ready_when_each_object_has_its_files_and_tells_of_a_reload_and_its_end() {
    let manager = Manager::new();
    let server = server();
    let directory = TempDirectory::new("agent-ready");
    let url = server.url();
    let flags = ["--server", &url, "--configmap", "shop/flags"];
    let files = ["--configmap", "shop/late", "--ready-timeout", "0"];
    let out = ["--output-dir", directory.to_str().unwrap()];
    let agent = manager.start(&[&flags[..], &files, &out].concat(), &[]);
    // It is not there yet, and the first object's files are no reason to be ready.
    until(|| directory.join("shop/configmaps/flags/tax").exists());
    let late = objects::config_map("shop", "late", "", &[("tax", "7")]);
    server.apply(&late).unwrap();
    assert_eq!(manager.next(), "READY=1\nSTATUS=every object is there");
    assert!(directory.join("shop/configmaps/late/tax").exists());
    agent.signal(Signal::HUP);
    let reload = manager.next();
    let since = reload.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    assert_eq!(manager.next(), "STOPPING=1");
}

#[test]
fn at_the_timeout_it_is_ready_and_names_what_is_missing() {
    let manager = Manager::new();
    let server = server();
    let url = server.url();
    let flags = [
        "--server",
        &url,
        "--configmap",
        "shop/flags",
        "--secret",
        "shop/none",
    ];
    let agent = manager.start(&[&flags[..], &["--ready-timeout", "1s"]].concat(), &[]);
    assert_eq!(
        manager.next(),
        "READY=1\nSTATUS=missing: secret shop/none (NotFound)"
    );
    server
        .apply(&objects::secret("shop", "none", "", &[]))
        .unwrap();
    assert_eq!(manager.next(), "STATUS=every object is there");
    assert_eq!(agent.stop(Signal::TERM).code, 0);

    // A server that is away.
    let flags = [
        "--server",
        "http://127.0.0.1:1",
        "--node-name",
        "n",
        "--timeout",
        "0",
    ];
    let agent = manager.start(&[&flags[..], &["--ready-timeout", "10ms"]].concat(), &[]);
    assert_eq!(manager.next(), "STOPPING=1");
    assert_eq!(
        manager.next(),
        "READY=1\nSTATUS=missing: the pods of the node"
    );
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

/// An outage of the server is no reason for a restart.
#[test]
fn it_gives_signs_of_life_while_the_server_is_away() {
    let manager = Manager::new();
    let flags = [
        "--server",
        "http://127.0.0.1:1",
        "--node-name",
        "n",
        "--timeout",
        "0",
    ];
    let agent = manager.start(&flags, &[("WATCHDOG_USEC", "20000")]);
    for _ in 0..5 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    assert_eq!(agent.stop(Signal::TERM).code, 0);

    // They are asked of another process.
    let manager = Manager::new();
    let flags = [&flags[..], &["--ready-timeout", "1s"]].concat();
    let of_another = [("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1")];
    let agent = manager.start(&flags, &of_another);
    assert!(manager.next().starts_with("READY=1\n"));
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn a_service_manager_that_is_gone_or_takes_nothing_holds_up_nothing() {
    let server = server();
    let url = server.url();
    let flags = ["--server", &url, "--configmap", "shop/flags"];
    let full = Manager::new();
    let gone = Manager::new();
    fs::remove_file(&gone.name).unwrap();
    for name in [&full.name, &gone.name] {
        let variables = [("NOTIFY_SOCKET", name.as_str()), ("WATCHDOG_USEC", "200")];
        let mut agent = AGENT.start_in(&flags, &variables);
        agent.wait_for("the object", |line| line.contains("flags"));
        assert_eq!(agent.stop(Signal::TERM).code, 0);
    }
    let wrong = AGENT.run_in(&flags, &[("NOTIFY_SOCKET", "relative")]);
    assert_eq!(wrong.code, 1);
    let words = "$NOTIFY_SOCKET relative: it is neither a path nor a name after @";
    assert!(wrong.stderr.contains(words), "{}", wrong.stderr);
}

#[test]
fn a_name_after_an_at_sign_is_a_socket_without_a_file_and_hooks_know_none_of_it() {
    let name = format!("kubecache-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let server = server();
    let directory = TempDirectory::new("agent-at");
    let url = server.url();
    let hook = ["--exec-on-change", "env"];
    let flags = [
        "--server",
        &url,
        "--configmap",
        "shop/flags",
        "--output-dir",
    ];
    let flags = [&flags[..], &[directory.to_str().unwrap()], &hook].concat();
    let variables = [
        ("NOTIFY_SOCKET", &*format!("@{name}")),
        ("WATCHDOG_USEC", "60000000"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let mut agent = AGENT.start_in(&flags, &variables);
    let mut bytes = [0; 4096];
    let mut told = String::new();
    while !told.starts_with("READY=1\n") {
        let length = socket.recv(&mut bytes).unwrap();
        told = String::from_utf8_lossy(&bytes[..length]).into_owned();
    }
    while !agent.next_told().unwrap().starts_with("KUBECACHE_CHANGED=") {}
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0);
    for variable in ["NOTIFY_SOCKET=", "WATCHDOG_USEC="] {
        assert!(!ended.stderr.contains(variable), "{}", ended.stderr);
    }
}

/// Seen: they got the variables that programs of `--exec-on-change` do not get.
#[test]
fn credential_plugins_know_nothing_of_the_service_manager() {
    let manager = Manager::new();
    let directory = TempDirectory::new("agent-plugin-notify");
    let kubeconfig = directory.join("config");
    let script = "echo \"got <$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID>\" >&2; exit 3";
    fs::write(&kubeconfig, with_plugin(script)).unwrap();
    let arguments = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--node-name",
        "n1",
        "--once",
        "--timeout",
        "2s",
    ];
    let variables = [
        ("NOTIFY_SOCKET", manager.name.as_str()),
        ("WATCHDOG_USEC", "60000000"),
        ("WATCHDOG_PID", "1"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let ended = AGENT.run_in(&arguments, &variables);
    let is_there = ended.stderr.lines().any(|line| line == "got <>");
    assert!(is_there, "{}", ended.stderr);
}

#[test]
fn lines_have_a_priority_where_standard_error_is_the_journal() {
    let directory = TempDirectory::new("agent-journal");
    let path = directory.join("journal");
    let run = |is_journal: bool| {
        let file = File::create(&path).unwrap();
        let facts = file.metadata().unwrap();
        let stream = format!("{}:{}", facts.dev(), facts.ino() + u64::from(!is_journal));
        let mut command = AGENT.plain_command(&["--secret", "no-slash"]);
        let status = command
            .env("JOURNAL_STREAM", stream)
            .stderr(Stdio::from(file))
            .status();
        assert_eq!(status.unwrap().code(), Some(2));
        fs::read_to_string(&path).unwrap()
    };
    assert!(run(true).starts_with("<3>error: "), "{}", run(true));
    assert!(run(false).starts_with("error: "), "{}", run(false));
}
