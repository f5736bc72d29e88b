//! Streamed lists that the server compresses, beside plain ones: the same objects in fewer bytes,
//! and each later change as it comes.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::http::{ClientOptions, KubeconfigOptions};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::object::Scope;
use kubecache::reflector::ReflectorOptions;
use kubecache::worker::StopToken;
use rustix::time::{ClockId, clock_gettime};

use super::churn::Churn;
use super::gateway::Gateway;
use super::support::*;

const NAMESPACE: &str = "compressed";

/// How many objects there are. The variable is for the figures of `benches/README.md`.
fn objects() -> usize {
    let number = std::env::var("KUBECACHE_COMPRESSION_OBJECTS").ok();
    number.map_or(1_000, |number| number.parse().unwrap())
}

/// An informer behind a gateway that counts.
struct Informed {
    gateway: Gateway,
    informer: SharedInformer<ConfigMap>,
    bytes: usize,
    cpu: Duration,
}

impl Informed {
    fn start(gzip: bool) -> Self {
        let gateway = Gateway::start();
        let server = KubeconfigOptions::default().server(gateway.url());
        let client = connect("admin.yaml", server, ClientOptions::default().gzip(gzip));
        let source = watcher::<ConfigMap>(&client, Scope::namespace(NAMESPACE));
        let reflector = ReflectorOptions::default().watch_list(true);
        let options = InformerOptions::default().reflector(reflector);
        let informer = SharedInformer::new(source, options);
        let before = process_time();
        informer.start().unwrap();
        informer
            .wait_until_synced(Clock::system().after(PATIENCE))
            .unwrap();
        Self {
            bytes: gateway.answered_bytes(),
            cpu: process_time().saturating_sub(before),
            gateway,
            informer,
        }
    }

    fn wait_for(&self, name: &str) {
        let clock = Clock::system();
        let limit = clock.after(PATIENCE);
        let store = self.informer.store();
        while store.get(NAMESPACE, name).unwrap().is_none() {
            assert!(!clock.has_passed(limit), "{name} does not come");
            StopToken::never().wait_until(&clock, clock.after(Duration::from_millis(5)));
        }
    }
}

/// The CPU time of this process: with one test at a time, the client's and the gateway's.
fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_streamed_list_comes_compressed_and_its_events_live() {
    let _up = cluster();
    let objects = objects();
    apply(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"
    ));
    let mut writers = Churn::start_in(NAMESPACE, objects, 0);
    writers.wait_for("created");
    drop(writers);
    let informers = [true, false].map(Informed::start);
    let [compressed, plain] = &informers;
    for (way, one) in [("compressed", compressed), ("plain", plain)] {
        assert_eq!(one.informer.store().len(), plain.informer.store().len());
        println!(
            "{objects} ConfigMaps, {way}: {} bytes, {:.2?} CPU",
            one.bytes, one.cpu
        );
    }
    assert!(compressed.informer.store().len() >= objects);
    let version = std::env::var("KUBECACHE_CLUSTER_VERSION").unwrap();
    let minor = version.split('.').nth(1).unwrap();
    if minor.parse::<u32>().unwrap() >= 37 {
        assert!(compressed.bytes * 3 < plain.bytes);
    }
    for name in ["late", "later"] {
        let before = informers.each_ref().map(|one| one.gateway.answered_bytes());
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n"
        );
        apply(&object);
        for one in &informers {
            one.wait_for(name);
        }
        let after = informers.each_ref().map(|one| one.gateway.answered_bytes());
        println!(
            "{name}: {} bytes, plain {}",
            after[0] - before[0],
            after[1] - before[1]
        );
    }
}
