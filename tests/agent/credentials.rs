//! `--credential-socket` of a process: whose socket it replaces, what it tells, and how it ends.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubecache::testing::{ApiServer, objects};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, socket};
use rustix::process::{Signal, geteuid};

use super::AGENT;
use super::probes::{FLAG, get, told};
use super::slow_readers::wait_for_file;
use crate::support::example::Running;
use crate::support::{TempDirectory, until};

/// More than systemd takes for a credential.
const REFUSAL_BYTES: usize = 2 * 1024 * 1024;

/// A socket with an address as systemd has it.
fn as_systemd(name: &str) -> OwnedFd {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let number = ASKED.fetch_add(1, Ordering::Relaxed);
    let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let name = format!("{:x}{number:08x}/unit/{name}", std::process::id());
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    bind(&client, &name).unwrap();
    client
}

/// Connects as systemd does, as soon as somebody listens.
#[track_caller]
fn ask(path: &Path, name: &str) -> UnixStream {
    let client = as_systemd(name);
    let agent = SocketAddrUnix::new(path).unwrap();
    until(|| connect(&client, &agent).is_ok());
    client.into()
}

fn answer(mut client: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The two units of a configuration that also has files.
const UNITS: &str = "credentials:\n  app.service: {db: {secret: shop/db, key: password}}\n  \
    two.service: {flag: {configMap: shop/flags, key: tax}}\n";

struct Machine {
    server: ApiServer,
    directory: TempDirectory,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            server: ApiServer::new().unwrap(),
            directory: TempDirectory::new("agent-units"),
        };
        machine.declare(UNITS);
        machine
    }

    fn declare(&self, units: &str) {
        let out = self.directory.join("out");
        let head = format!(
            "directory: {}\nentries: [{{configMap: shop/files}}]\n",
            out.display()
        );
        fs::write(self.directory.join("new"), head + units).unwrap();
        let config = self.directory.join("config.yaml");
        fs::rename(self.directory.join("new"), config).unwrap();
    }

    fn start(&self, server: &str, more: &[&str]) -> Running {
        let path = |name: &str| self.directory.join(name).to_str().unwrap().to_owned();
        let (config, socket) = (path("config.yaml"), path("socket"));
        let flags = ["--server", server, "--config", &config];
        let socket = ["--credential-socket", &socket, "-v"];
        AGENT.start(&[&flags[..], &socket, more].concat())
    }

    fn ask(&self, name: &str) -> UnixStream {
        ask(&self.directory.join("socket"), name)
    }

    /// Asks until the answer is this one.
    fn wait_for(&self, name: &str, value: &[u8]) {
        while answer(&self.ask(name)) != value {}
    }

    fn set_password(&self, password: &str) {
        let secret = objects::secret("shop", "db", "", &[("password", password)]);
        self.server.apply(&secret).unwrap();
    }

    fn set_map(&self, name: &str) {
        let map = objects::config_map("shop", name, "", &[("tax", "7")]);
        self.server.apply(&map).unwrap();
    }
}

/// The test is the service manager.
#[test]
fn two_units_start_after_their_credentials_are_there_and_follow_the_configuration() {
    let machine = Machine::new();
    let agent = machine.start(&machine.server.url(), &["--credential-timeout", "0"]);
    let waiting = ["app.service/db", "two.service/flag"].map(|name| machine.ask(name));
    machine.set_password("canary");
    assert_eq!(answer(&waiting[0]), b"canary");
    machine.set_map("flags");
    assert_eq!(answer(&waiting[1]), b"7");
    machine.set_password("rotated");
    machine.wait_for("app.service/db", b"rotated");

    // What only credentials name has no files.
    machine.set_map("files");
    wait_for_file(
        &machine.directory.join("out/shop/configmaps/files/tax"),
        "7",
    );
    assert!(
        !machine
            .directory
            .join("out/shop/configmaps/flags/tax")
            .exists()
    );
    assert!(
        !machine
            .directory
            .join("out/shop/secrets/db/password")
            .exists()
    );

    machine.declare("credentials: {two.service: {flag: {secret: shop/db, key: password}}}\n");
    agent.signal(Signal::HUP);
    machine.wait_for("two.service/flag", b"rotated");
    machine.wait_for("app.service/db", &vec![0; REFUSAL_BYTES]);
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
}

const FORGER: &str = "KUBECACHE_CREDENTIAL_FORGER";

#[test]
fn another_user_gets_nothing() {
    if let Some(path) = std::env::var_os(FORGER) {
        let client = as_systemd("app.service/db");
        let agent = SocketAddrUnix::new(Path::new(&path)).unwrap();
        connect(&client, &agent).unwrap();
        assert_eq!(answer(&client.into()), b"");
        return;
    }
    if !geteuid().is_root() {
        return;
    }
    let machine = Machine::new();
    machine.set_password("canary");
    let mut agent = machine.start(&machine.server.url(), &[]);
    machine.wait_for("app.service/db", b"canary");
    let path = machine.directory.join("socket");
    let forge = || {
        let test = "agent::credentials::another_user_gets_nothing";
        // By its path it may be where only its owner comes.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", test]).env(FORGER, &path);
        command.uid(65534).gid(65534).output().unwrap()
    };
    // The mode keeps it out, and where somebody changed that, its number.
    assert!(!forge().status.success());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let forged = forge();
    assert!(forged.status.success(), "{forged:?}");
    while !agent.next_told().unwrap().contains("user 65534 is refused") {}
    assert_eq!(answer(&machine.ask("app.service/db")), b"canary");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[cfg(feature = "snapshot")]
#[test]
fn a_unit_that_starts_without_the_server_gets_what_the_snapshot_has() {
    let machine = Machine::new();
    machine.set_password("canary");
    let [snapshot, key] = ["snapshot", "key"].map(|name| machine.directory.join(name));
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let snapshot = ["--snapshot", snapshot.to_str().unwrap()];
    let flags = [&snapshot[..], &["--snapshot-key", key.to_str().unwrap()]].concat();
    let url = machine.server.url();
    let agent = machine.start(&url, &flags);
    machine.wait_for("app.service/db", b"canary");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
    let Machine { server, directory } = machine;
    drop(server);
    let machine = Machine {
        server: ApiServer::new().unwrap(),
        directory,
    };
    let agent = machine.start(&url, &flags);
    assert_eq!(answer(&machine.ask("app.service/db")), b"canary");
    assert_eq!(agent.stop(Signal::TERM).code, 0);
}

#[test]
fn a_credential_that_is_not_declared_fails_its_unit_and_is_told() {
    let machine = Machine::new();
    let path = machine.directory.join("socket");
    let mut agent = machine.start(&machine.server.url(), &[FLAG, "127.0.0.1:0"]);
    let probes = told(&mut agent, &format!("{FLAG}: listening at "));
    let refused = answer(&machine.ask("app.service/other"));
    assert_eq!(refused, vec![0; REFUSAL_BYTES]);
    let words = "unit \"app.service\", credential \"other\": it is not declared";
    while !agent.next_told().unwrap().contains(words) {}
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);

    let probes = probes.parse().unwrap();
    assert_eq!(get(probes, "/healthz/credentials"), (200, "ok".to_owned()));
    fs::remove_file(&path).unwrap();
    let (code, why) = get(probes, "/healthz/credentials");
    assert_eq!(code, 500);
    assert!(why.contains("was removed or replaced"), "{why}");
    let _foreign = UnixListener::bind(&path).unwrap();
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(path.exists(), "it is another's");
}

#[test]
fn the_socket_of_a_killed_agent_is_replaced_and_one_of_a_living_agent_is_not() {
    let machine = Machine::new();
    let path = machine.directory.join("socket");
    // Without a directory there is no other lock.
    let config = machine.directory.join("config.yaml");
    fs::write(config, UNITS).unwrap();
    let agent = machine.start(&machine.server.url(), &[]);
    drop(machine.ask("app.service/db"));
    let second = machine.start("http://127.0.0.1:1", &[]).wait();
    assert_eq!(second.0.code(), Some(1));
    let line = format!(
        "error: --credential-socket {}: another process listens at it",
        path.display()
    );
    assert_eq!(second.1.lines().last(), Some(&*line));
    let (status, _) = agent.ended(Signal::KILL);
    assert_eq!(status.code(), None);
    assert!(path.exists());

    let agent = machine.start(&machine.server.url(), &[]);
    drop(machine.ask("app.service/db"));
    // One that reads nothing holds up no end.
    let _silent = machine.ask("app.service/db");
    let ended = agent.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("was left over"), "{}", ended.stderr);
    assert!(!path.exists());

    fs::write(&path, "mine").unwrap();
    let (status, said) = machine.start("http://127.0.0.1:1", &[]).wait();
    assert_eq!(status.code(), Some(1));
    let words = "what is there is no socket; remove it, or choose another path";
    assert!(said.contains(words), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn flags_that_cannot_be_are_named() {
    let machine = Machine::new();
    let config = machine.directory.join("config.yaml");
    let config = ["--config", config.to_str().unwrap()];
    let server = ["--server", "http://127.0.0.1:1", "--secret", "shop/db"];
    let socket = ["--credential-socket", "-"];
    for (flags, code, words) in [
        (
            [&config[..], &socket, &["--once"]].concat(),
            2,
            "leave --once out",
        ),
        (socket.to_vec(), 2, "--credential-socket needs --config"),
        (
            config.to_vec(),
            2,
            "declares credentials: give --credential-socket",
        ),
        (
            [config, socket].concat(),
            1,
            "--credential-socket -: standard input is no Unix socket that listens",
        ),
    ] {
        let ended = AGENT.run(&[&server[..], &flags].concat());
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

/// The unit and its socket, as they ship.
#[test]
fn the_agent_knows_the_flags_of_the_unit() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/node_agent/deploy");
    let unit = fs::read_to_string(deploy.join("node-agent.service")).unwrap();
    let unit = unit.replace("\\\n", " ");
    let value = |name: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(name));
        let value = values.next().unwrap_or_else(|| panic!("{name}"));
        value.strip_prefix('=').unwrap().to_owned()
    };
    let command = value("ExecStart");
    let flags: Vec<_> = command.split_whitespace().skip(1).collect();
    let config = flags.iter().position(|flag| *flag == "--config");
    assert!(config.is_some(), "{command}");
    let shipped = deploy.join("config.yaml");
    let shipped = ["--config", shipped.to_str().unwrap(), "--check-config"];
    // The one behind takes the place of the one before.
    let checked = AGENT.run(&[&flags[..], &shipped].concat());
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(
        checked.stdout.contains("nothing is wrong"),
        "{}",
        checked.stdout
    );
    assert_eq!(value("RestartPreventExitStatus"), "2");
    assert_eq!(value("Type"), "notify");
    let socket = fs::read_to_string(deploy.join("node-agent.socket")).unwrap();
    let at = socket
        .lines()
        .find_map(|line| line.strip_prefix("ListenStream="));
    let app = fs::read_to_string(deploy.join("app.service")).unwrap();
    assert!(app.contains(&format!("LoadCredential=db:{}\n", at.unwrap())));
    assert!(socket.contains("\nSocketMode=0600\n"));
}
