//! How soon caches follow after a killed API server is ready again: `tests/cluster/run -- cargo
//! bench --bench trouble -- restart`.

use std::env::var_os;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, ResourceVersion};
use kubecache::testing::objects;

use super::{now, pause};

const OBJECTS: usize = 300;
const KILLS: usize = 3;
/// How long the server is away: long enough for every backoff to reach its limit.
const AWAY: Duration = Duration::from_secs(40);
const BUDGET: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(3 * 60);

fn environment(name: &str) -> PathBuf {
    let value = var_os(name).expect(
        "no cluster: tests/cluster/run -- cargo bench --features testing --bench trouble -- \
         restart starts one",
    );
    PathBuf::from(value)
}

fn name(number: usize) -> String {
    format!("restart-{number}")
}

/// Writes all objects with a value that says which round it is.
fn write(round: usize) {
    let mut manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: restart}}\n".to_owned();
    for number in 0..OBJECTS {
        let name = name(number);
        writeln!(
            manifest,
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: restart}}, \
             stringData: {{round: '{round}'}}}}"
        )
        .unwrap();
    }
    let mut story = Command::new(environment("KUBECACHE_CLUSTER_STORY"))
        .args(["do", "apply", "--kubeconfig"])
        .arg(environment("KUBECACHE_CLUSTER_DIR").join("kubeconfig/admin.yaml"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = story.stdin.take().unwrap();
    input.write_all(manifest.as_bytes()).unwrap();
    drop(input);
    assert!(
        story.wait().unwrap().success(),
        "round {round} was not written"
    );
}

fn kill_the_server() {
    let file = environment("KUBECACHE_CLUSTER_DIR").join("apiserver.pid");
    let pid = fs::read_to_string(file).unwrap();
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
    assert!(killed.unwrap().success());
}

fn start_the_server() {
    let control = Command::new(environment("KUBECACHE_CLUSTER_CONTROL"))
        .arg("start-apiserver")
        .arg(environment("KUBECACHE_CLUSTER_DIR"))
        .status();
    assert!(control.unwrap().success());
}

fn client() -> Client {
    let options = KubeconfigOptions::default()
        .path(environment("KUBECACHE_CLUSTER_DIR").join("kubeconfig/admin.yaml"));
    let config = Config::from_kubeconfig(&options).unwrap();
    Client::new(&config, ClientOptions::default()).unwrap()
}

pub(crate) fn run() -> bool {
    write(0);
    let options = ManagerOptions::default().idle_max(Duration::from_secs(60 * 60));
    let manager = SecretManager::new(client(), options).unwrap();
    for number in 0..OBJECTS {
        let name = name(number);
        manager.register_pod(&objects::pod("restart", &name, "node-1", &[&name], &[]));
    }
    let mut versions = vec![ResourceVersion::default(); OBJECTS];
    follow(&manager, &mut versions, now());
    let mut met = true;
    for round in 1..=KILLS {
        kill_the_server();
        pause(AWAY);
        start_the_server();
        let ready = now();
        // Written beside the caches that come back, so that each has something new to follow.
        let (times, written) = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                write(round);
                ready.elapsed()
            });
            let times = follow(&manager, &mut versions, ready);
            (times, writing.join().unwrap())
        });
        let p99 = times[OBJECTS * 99 / 100];
        println!(
            "  kill {round}, {OBJECTS} objects that nobody reads, written within {written:.1?} of \
             ready: they followed within {:.1?} of ready (p50), {p99:.1?} (p99, budget \
             {BUDGET:?}), {:.1?} (all)",
            times[OBJECTS / 2],
            times[OBJECTS - 1],
        );
        met &= p99 <= BUDGET;
    }
    met
}

/// When each object has another version than before, sorted. Reads nothing: a reader would hasten
/// the caches.
fn follow(
    manager: &SecretManager,
    versions: &mut [ResourceVersion],
    since: Instant,
) -> Vec<Duration> {
    let mut left: Vec<usize> = (0..OBJECTS).collect();
    let mut times = Vec::new();
    while !left.is_empty() {
        left.retain(|number| {
            let key = ObjectKey::new("restart", name(*number));
            let version = manager.inspect_object(&key).unwrap().resource_version;
            let is_new = version != versions[*number];
            if is_new {
                versions[*number] = version;
                times.push(since.elapsed());
            }
            !is_new
        });
        assert!(
            since.elapsed() < PATIENCE,
            "{} of {OBJECTS} do not follow",
            left.len()
        );
        pause(Duration::from_millis(20));
    }
    times
}
