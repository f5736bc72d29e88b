//! What a first list costs when it is streamed and when it is plain, compressed or not: the time
//! until the store has synced, the CPU time of this program and of a real kube-apiserver, and how
//! much the memory of a server that has just started rises by four such lists at once.
//!
//! `tests/cluster/run -- cargo bench --bench list_ways`. `KUBECACHE_LIST_OBJECTS` is the number of
//! ConfigMaps: 20,000 by default.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unchecked_time_subtraction,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions, WriteOptions};
use kubecache::object::Scope;
use kubecache::reflector::{Reflector, ReflectorOptions};
use kubecache::store::{Indexers, Store};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

const NAMESPACE: &str = "listed";
const VALUE_BYTES: usize = 1024;
const WRITERS: usize = 8;
const ROUNDS: usize = 5;
const AT_ONCE: usize = 4;
const LIMIT: Duration = Duration::from_secs(120);

/// Long enough for the server to free what it needed for the last list.
const REST: Duration = Duration::from_secs(2);

fn variable(name: &str) -> String {
    std::env::var(name)
        .expect("no cluster: tests/cluster/run -- cargo bench --bench list_ways starts one")
}

fn client(options: ClientOptions) -> Client {
    let directory = PathBuf::from(variable("KUBECACHE_CLUSTER_DIR"));
    let path = directory.join("kubeconfig/admin.yaml");
    let config = Config::from_kubeconfig(&KubeconfigOptions::default().path(path)).unwrap();
    Client::new(&config, options).unwrap()
}

/// The server's process.
struct Server {
    proc: PathBuf,
}

impl Server {
    fn find() -> Self {
        let directory = PathBuf::from(variable("KUBECACHE_CLUSTER_DIR"));
        let pid = fs::read_to_string(directory.join("apiserver.pid")).unwrap();
        Self {
            proc: PathBuf::from("/proc").join(pid.trim()),
        }
    }

    /// Seconds of CPU so far.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(self.proc.join("stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u32 = fields
            .skip(11)
            .take(2)
            .map(|it| it.parse::<u32>().unwrap())
            .sum();
        f64::from(ticks) / 100.0
    }

    fn mib(&self, field: &str) -> f64 {
        let status = fs::read_to_string(self.proc.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<f64>().unwrap() / 1024.0
    }

    /// The peak counts from now on.
    fn forget_the_peak(&self) {
        fs::write(self.proc.join("clear_refs"), "5").unwrap();
    }
}

fn create(objects: usize) {
    let many = NonZeroU32::MAX;
    let client = client(ClientOptions::default().rate(many).burst(many));
    let options = WriteOptions::default();
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    client.create(&namespace, &options, LIMIT).unwrap();
    let value = "v".repeat(VALUE_BYTES);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (client, value, options) = (&client, &value, &options);
            scope.spawn(move || {
                for number in (writer..objects).step_by(WRITERS) {
                    let map = json!({
                        "metadata": {"namespace": NAMESPACE, "name": format!("map-{number}")},
                        "data": {"key": value},
                    });
                    let map: ConfigMap = serde_json::from_value(map).unwrap();
                    client.create(&map, options, LIMIT).unwrap();
                }
            });
        }
    });
}

fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

/// Nothing wakes this thread.
fn rest(time: Duration) {
    let clock = Clock::system();
    let until = clock.now() + time;
    while let Some(left) = until.checked_duration_since(clock.now()) {
        thread::park_timeout(left);
    }
}

/// Wall and CPU seconds, and the server's CPU seconds.
type Cost = [f64; 3];

struct Way {
    streams: bool,
    gzip: bool,
}

impl Way {
    /// Lists into a store. Returns what keeps it.
    fn list(&self, objects: usize) -> Reflector {
        let client = client(ClientOptions::default().gzip(self.gzip));
        let source = client.lister_watcher::<ConfigMap>(Scope::namespace(NAMESPACE));
        let options = ReflectorOptions::default().watch_list(self.streams);
        let (store, reflector) = Store::spawn("listed", source, Indexers::new(), options).unwrap();
        store.wait_until_synced(LIMIT).unwrap();
        assert!(store.len() >= objects, "{} of {objects}", store.len());
        reflector
    }

    fn cost(&self, objects: usize) -> Cost {
        let server = Server::find();
        rest(REST);
        let (cpu, own) = (server.cpu(), process_time());
        let began = Clock::system().now();
        let kept = self.list(objects);
        let wall = began.elapsed().as_secs_f64();
        let own = process_time() - own;
        drop(kept);
        rest(REST);
        [wall, own.as_secs_f64(), server.cpu() - cpu]
    }

    /// By how many MiB the memory of a new server rises.
    fn memory(&self, objects: usize) -> f64 {
        let control = Command::new(variable("KUBECACHE_CLUSTER_CONTROL"))
            .arg("restart-apiserver")
            .arg(PathBuf::from(variable("KUBECACHE_CLUSTER_DIR")))
            .status();
        assert!(control.unwrap().success());
        // It fills its caches.
        rest(REST * 5);
        let server = Server::find();
        server.forget_the_peak();
        let before = server.mib("VmRSS:");
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| drop(self.list(objects)));
            }
        });
        server.mib("VmHWM:") - before
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let objects = std::env::var("KUBECACHE_LIST_OBJECTS").ok();
    let objects = objects.map_or(20_000, |number| number.parse().unwrap());
    create(objects);
    let way = |streams, gzip| Way { streams, gzip };
    let ways = [
        way(true, true),
        way(false, true),
        way(true, false),
        way(false, false),
    ];
    let mut costs: [Vec<Cost>; 4] = Default::default();
    for round in 0..=ROUNDS {
        for (way, costs) in ways.iter().zip(&mut costs) {
            let cost = way.cost(objects);
            // The first round fills caches.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    println!(
        "| {objects} ConfigMaps | wall s | CPU s | server CPU s | server MiB, {AT_ONCE} at once |"
    );
    println!("|---|---|---|---|---|");
    for (way, costs) in ways.iter().zip(&costs) {
        let name = if way.streams { "streamed" } else { "plain" };
        let form = if way.gzip { ", compressed" } else { "" };
        let [wall, own, server] =
            [0, 1, 2].map(|part| median(costs.iter().map(|cost| cost[part]).collect()));
        let memory = way.memory(objects);
        println!("| {name}{form} | {wall:.2} | {own:.2} | {server:.2} | {memory:.0} |");
    }
}
