//! What 1,000 referenced Secrets in 10 namespaces cost a kube-apiserver, watched by name and by
//! namespace, and fetched: connections, handshakes, its resident memory and its processor time.
//!
//! `tests/cluster/run -- cargo bench --bench watch_scope`. The client reaches the server through a
//! gateway in this process, which counts connections. Each way begins with a new server process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::list_watch::Getter;
use kubecache::manager::{ManagerOptions, ObjectReport, Owner, SecretManager, WatchScope};
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::worker::StopToken;
use rustix::param::clock_ticks_per_second;

const NAMESPACES: usize = 10;
const REFERENCED_EACH: usize = 100;
/// As many again that nobody references.
const OTHERS_EACH: usize = 100;
const VALUE_BYTES: usize = 1024;

/// Connections for 10 namespaces once all is quiet: a watch each, and what the client keeps.
const CONNECTIONS_BUDGET: usize = 15;

/// Long enough for what just ended to be closed and for the server to come to rest.
const REST: Duration = Duration::from_secs(10);

/// In which a server sends each watch a bookmark.
const QUIET: Duration = Duration::from_secs(60);

/// How often each object is fetched.
const FETCH_ROUNDS: usize = 5;

/// Counts the connections to the server.
#[derive(Default)]
struct Gateway {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

impl Gateway {
    /// Its address. It runs until the program ends.
    fn start(self: &Arc<Self>, server: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = Arc::clone(self);
        small_thread(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                gateway.accepted.fetch_add(1, Ordering::SeqCst);
                let (gateway, server) = (Arc::clone(&gateway), server.clone());
                small_thread(move || gateway.pass_on(&client, &server));
            }
        });
        format!("https://{address}")
    }

    fn pass_on(&self, client: &TcpStream, server: &str) {
        let Ok(server) = TcpStream::connect(server) else {
            return;
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = small_thread(move || copy(from, &to));
        copy(client.try_clone().unwrap(), &server);
        drop(answers.join());
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

fn small_thread(body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let builder = thread::Builder::new().stack_size(128 * 1024);
    builder.spawn(body).unwrap()
}

/// One direction; the end of it is the end of both.
fn copy(mut from: TcpStream, mut to: &TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

/// Nothing wakes this thread.
fn rest(time: Duration) {
    let clock = Clock::system();
    let until = clock.now() + time;
    while let Some(left) = until.checked_duration_since(clock.now()) {
        thread::park_timeout(left);
    }
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .expect("no cluster: tests/cluster/run -- cargo bench --bench watch_scope starts one")
}

fn directory() -> PathBuf {
    PathBuf::from(variable("KUBECACHE_CLUSTER_DIR"))
}

fn restart_the_server() {
    let control = Command::new(variable("KUBECACHE_CLUSTER_CONTROL"))
        .arg("restart-apiserver")
        .arg(directory())
        .status();
    assert!(control.unwrap().success());
}

/// What the kernel tells of the server's process.
fn of_server(file: &str) -> String {
    let pid = fs::read_to_string(directory().join("apiserver.pid")).unwrap();
    fs::read_to_string(format!("/proc/{}/{file}", pid.trim())).unwrap()
}

/// The processor time that the server has used, in seconds.
fn server_cpu() -> f64 {
    let stat = of_server("stat");
    // Behind the program's name, which may hold spaces.
    let mut numbers = stat.rsplit(')').next().unwrap().split_whitespace().skip(11);
    let mut ticks = || numbers.next().unwrap().parse::<u32>().unwrap();
    f64::from(ticks() + ticks()) / f64::from(u32::try_from(clock_ticks_per_second()).unwrap())
}

/// The server's resident memory.
fn server_mib() -> usize {
    let status = of_server("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() / 1024
}

fn create_the_secrets() {
    let mut manifest = String::new();
    let value = "v".repeat(VALUE_BYTES);
    for namespace in 0..NAMESPACES {
        writeln!(
            manifest,
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: watched-{namespace}}}}}"
        )
        .unwrap();
        for number in 0..REFERENCED_EACH + OTHERS_EACH {
            writeln!(
                manifest,
                "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: s-{number}, namespace: \
                 watched-{namespace}}}, stringData: {{key: {value}}}}}"
            )
            .unwrap();
        }
    }
    let mut story = Command::new(variable("KUBECACHE_CLUSTER_STORY"))
        .args(["do", "apply", "--kubeconfig"])
        .arg(directory().join("kubeconfig/admin.yaml"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = story.stdin.take().unwrap();
    input.write_all(manifest.as_bytes()).unwrap();
    drop(input);
    assert!(story.wait().unwrap().success());
}

fn keys() -> impl Iterator<Item = ObjectKey> {
    let namespaces = 0..NAMESPACES;
    namespaces.flat_map(|namespace| {
        (0..REFERENCED_EACH).map(move |number| {
            ObjectKey::new(format!("watched-{namespace}"), format!("s-{number}"))
        })
    })
}

/// Waits until the server has answered for every object.
fn wait_for_all(manager: &SecretManager) {
    let is_answered = |report: &ObjectReport| report.state.is_answer();
    while !manager.inspect().values().flatten().all(is_answered) {
        rest(Duration::from_millis(50));
    }
}

/// A client of the server, newly started and at rest, and the gateway between them.
fn client(options: ClientOptions) -> (Client, Arc<Gateway>) {
    restart_the_server();
    let gateway = Arc::new(Gateway::default());
    let server = variable("KUBECACHE_CLUSTER_SERVER");
    let url = gateway.start(server.trim_start_matches("https://").to_owned());
    let of_config = KubeconfigOptions::default()
        .path(directory().join("kubeconfig/admin.yaml"))
        .server(url);
    let config = Config::from_kubeconfig(&of_config).unwrap();
    let client = Client::new(&config, options).unwrap();
    rest(REST);
    (client, gateway)
}

/// Runs one way, and returns the connections that are open in the end.
fn run(scope: WatchScope, what: &str, reads: bool) -> usize {
    let (client, gateway) = client(ClientOptions::default());
    let (before, cpu_before) = (server_mib(), server_cpu());
    let options = ManagerOptions::default().watch_scope(scope);
    let manager =
        SecretManager::new(client, options.get_timeout(Duration::from_secs(300))).unwrap();
    let began = Clock::system().now();
    manager.set_references(&Owner::new("Program", ObjectKey::new("", "bench")), keys());
    if reads {
        thread::scope(|scope| {
            for _ in 0..NAMESPACES {
                scope.spawn(|| {
                    for key in keys() {
                        manager.get(key.namespace(), key.name()).unwrap();
                    }
                });
            }
        });
    }
    wait_for_all(&manager);
    let took = Clock::system().now() - began;
    rest(REST);
    let (handshakes, mib) = (gateway.accepted(), server_mib());
    let open = gateway.open.load(Ordering::SeqCst);
    let cpu = server_cpu();
    rest(QUIET);
    let (opening, quiet) = (cpu - cpu_before, server_cpu() - cpu);
    restart_the_server();
    rest(REST * 6);
    wait_for_all(&manager);
    manager.health().unwrap();
    let again = gateway.accepted() - handshakes;
    println!(
        "{what}: {open} connections, {handshakes} handshakes in {took:.1?}, {again} more when the \
         server restarts; the kube-apiserver {before} MiB before, {mib} MiB with the watches; \
         {opening:.2} s of its CPU until then, {quiet:.2} s in a quiet minute"
    );
    open
}

/// Without watches: what the server uses by itself, and what a fetch of each object costs it.
fn fetch() {
    let rate = NonZeroU32::MAX;
    let (client, gateway) = client(ClientOptions::default().rate(rate).burst(rate));
    let cpu = server_cpu();
    rest(QUIET);
    let quiet = server_cpu() - cpu;
    let getter: Arc<dyn Getter<Secret>> = client.getter();
    let (cpu, fetches) = (server_cpu(), FETCH_ROUNDS * NAMESPACES * REFERENCED_EACH);
    for key in (0..FETCH_ROUNDS).flat_map(|_| keys()) {
        let version = ResourceVersion::any();
        let got = getter.get(&key, &version, Deadline::NEVER, &StopToken::never());
        got.unwrap();
    }
    println!(
        "no watch: {quiet:.2} s of the server's CPU in a quiet minute; {fetches} fetches by {} \
         handshakes {:.2} s",
        gateway.accepted(),
        server_cpu() - cpu
    );
}

fn main() -> ExitCode {
    create_the_secrets();
    fetch();
    let whole = WatchScope::Namespace { above: 20 };
    run(WatchScope::ByName, "by name                    ", false);
    let open = run(whole, "by namespace               ", false);
    run(WatchScope::ByName, "by name, all read at once  ", true);
    run(whole, "by namespace, read at once ", true);
    let is_within = open <= CONNECTIONS_BUDGET;
    let verdict = if is_within { "ok" } else { "OVER BUDGET" };
    println!("connections by namespace: {open}, budget {CONNECTIONS_BUDGET}  {verdict}");
    ExitCode::from(u8::from(!is_within))
}
