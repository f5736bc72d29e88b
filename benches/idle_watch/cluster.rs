//! What the same watches cost a real kube-apiserver: `tests/cluster/run -- cargo bench --bench
//! idle_watch -- cluster`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::Sender;
use k8s_openapi::api::core::v1::Secret;
use kubecache::Error;
use kubecache::http::{Config, KubeconfigOptions};
use kubecache::list_watch::{ListerWatcher, ObjectEvent};
use kubecache::object::{ObjectKey, Scope};
use kubecache::reflector::{
    Phase, Reflector, ReflectorOptions, ReflectorStatus, Replacement, Sink,
};

use super::{memory, watches};

const WATCHES: usize = 1000;

/// Says once that its watch is open; the objects do not exist.
struct Opened(Option<Sender<()>>);

impl Sink<Secret> for Opened {
    type Staging = ();

    fn begin(&mut self) {}

    fn stage(&mut self, (): &mut (), _: ObjectEvent<Secret>) {}

    fn commit(&mut self, (): (), _: &Replacement) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _: ObjectEvent<Secret>) -> Result<(), Error> {
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        if status.phase == Phase::Watching
            && let Some(opened) = self.0.take()
        {
            opened.send(()).unwrap();
        }
    }
}

pub(crate) fn run() {
    let directory = std::env::var("KUBECACHE_CLUSTER_DIR").expect(
        "no cluster: tests/cluster/run -- cargo bench --bench idle_watch -- cluster starts one",
    );
    let kubeconfig = Path::new(&directory).join("kubeconfig/admin.yaml");
    let options = KubeconfigOptions::default().path(kubeconfig);
    let config = Config::from_kubeconfig(&options).unwrap();
    let server = process_of(&directory);
    let client = watches::client(&config);
    let start = |count: usize| {
        let (opened, all) = crossbeam_channel::unbounded();
        let reflector = |number| {
            let key = ObjectKey::new("default", format!("secret-{number}"));
            let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(Scope::object(&key));
            let sink = Opened(Some(opened.clone()));
            Reflector::spawn(key.to_string(), source, sink, ReflectorOptions::default()).unwrap()
        };
        let reflectors: Vec<_> = (0..count).map(reflector).collect();
        for _ in 0..count {
            all.recv().unwrap();
        }
        reflectors
    };
    drop(start(1));
    let (ours, theirs, sockets) = (
        memory::resident("self"),
        memory::resident(&server),
        sockets(),
    );
    let reflectors = start(WATCHES);
    let per_watch = |now: f64, before: f64| (now - before) / WATCHES as f64;
    println!(
        "{WATCHES} idle TLS watches of single Secrets at a real kube-apiserver, after their lists:"
    );
    println!(
        "  {:.1} KiB resident per watch here, {:.1} KiB in the kube-apiserver, {:.2} connections \
         and handshakes",
        per_watch(memory::resident("self"), ours),
        per_watch(memory::resident(&server), theirs),
        per_watch(self::sockets(), sockets),
    );
    drop(reflectors);
}

/// The kube-apiserver whose state is in `directory`.
fn process_of(directory: &str) -> String {
    let processes = fs::read_dir("/proc").unwrap();
    let names = processes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut servers = names.filter(|process| {
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        command.contains("kube-apiserver") && command.contains(directory)
    });
    servers
        .next()
        .expect("the kube-apiserver of this cluster does not run on this machine")
}

/// Sockets of this process: each is a connection of its own.
fn sockets() -> f64 {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let targets = targets.map(|target| target.to_string_lossy().into_owned());
    let sockets: HashSet<_> = targets
        .filter(|target| target.starts_with("socket:"))
        .collect();
    sockets.len() as f64
}
