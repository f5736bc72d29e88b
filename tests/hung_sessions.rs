//! A thousand sessions against servers that hang, in each phase of a request: threads, descriptors
//! and memory are afterwards where they were after a hundred (R20).

#![cfg(all(feature = "testing", feature = "ring", target_os = "linux"))]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::ListerWatcher;
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::Scope;
use kubecache::rustls::crypto::ring::default_provider;
use kubecache::testing::{ApiServer, Fault, TestAuthority, objects};
use kubecache::worker::live_workers;

use crate::support::alone;

const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// What ends a read of a session.
const SHORT: Duration = Duration::from_millis(5);

/// Where a server hangs. The names are those of the phases.
const PHASES: [(&str, &str); 6] = [
    ("accept", r#"{"act":"silent"}"#),
    (
        "handshake",
        r#"{"act":"stall","part":"handshake","after":10}"#,
    ),
    ("head", r#"{"act":"stall","part":"head","after":10}"#),
    ("body", r#"{"act":"stall","part":"body","after":100}"#),
    (
        "event",
        r#"{"act":"stall","part":"event","event":1,"after":20,"watch":true}"#,
    ),
    (
        "error body",
        r#"[{"act":"status","code":500},{"act":"stall","part":"body","after":10}]"#,
    ),
];

/// The allocator keeps freed memory by thread, and which threads meet is chance. A leak of 4 KiB in
/// each session, less than one connection's buffers, would add 3.5 MiB.
const TOLERATED_KIB: usize = 3 * 1024;

#[derive(Debug)]
struct Held {
    workers: usize,
    threads: usize,
    descriptors: usize,
    resident_kib: usize,
}

impl Held {
    fn now() -> Self {
        let entries = |folder| fs::read_dir(folder).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.unwrap().trim().trim_end_matches(" kB");
        Self {
            workers: live_workers(),
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
            resident_kib: resident.parse().unwrap(),
        }
    }

    /// The kernel lists a thread for a moment after it can be joined.
    fn settled(threads: usize) -> Self {
        let end = Clock::system().after(PATIENCE);
        loop {
            let now = Self::now();
            if now.threads == threads || Clock::system().has_passed(end) {
                return now;
            }
            std::thread::yield_now();
        }
    }
}

/// Starts, uses and stops an informer and a manager while the server hangs.
fn session(number: usize, authority: &TestAuthority) {
    let (phase, faults) = PHASES[number % PHASES.len()];
    let mut builder = ApiServer::builder();
    if number.is_multiple_of(2) || phase == "handshake" {
        builder = builder.tls_by(authority).unwrap();
    }
    for fault in Fault::list_from_json(faults).unwrap() {
        builder = builder.fault(fault);
    }
    let server = builder.start().unwrap();
    let secret = objects::secret("shop", "db", "", &[("k", "one")]);
    server.apply(&secret).unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config.with_authorities(authority.pem());
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(Scope::namespace("shop"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let manager = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    manager.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
    let read = manager.get_by("shop", "db", Clock::system().after(SHORT));
    assert!(read.is_err() || phase == "event", "{phase}");
    if !["accept", "handshake"].contains(&phase) {
        let end = Clock::system().after(PATIENCE);
        assert!(server.wait_for_requests(end, |requests| !requests.is_empty()));
    }
    if number.is_multiple_of(3) {
        drop(server);
        drop((informer, manager, client));
    } else {
        drop((informer, manager, client));
        drop(server);
    }
}

#[test]
fn a_thousand_sessions_hold_what_a_hundred_held() {
    alone(|| {
        let threads = Held::now().threads;
        let authority = TestAuthority::new("test-authority", default_provider().into()).unwrap();
        (0..100).for_each(|number| session(number, &authority));
        let hundred = Held::settled(threads);
        (100..1000).for_each(|number| session(number, &authority));
        let thousand = Held::settled(threads);
        println!("after 100 sessions: {hundred:?}");
        println!("after 1000 sessions: {thousand:?}");
        assert_eq!((hundred.workers, thousand.workers), (0, 0));
        assert_eq!(thousand.threads, hundred.threads);
        assert_eq!(thousand.descriptors, hundred.descriptors);
        let tolerated = hundred.resident_kib + TOLERATED_KIB;
        assert!(thousand.resident_kib <= tolerated, "KiB over {tolerated}");
    });
}
