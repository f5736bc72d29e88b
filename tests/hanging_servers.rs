//! A thousand sessions with servers that hang, in each phase of a request, leave what a hundred
//! leave: threads, descriptors and memory (R20).

#![cfg(all(feature = "testing", feature = "ring", target_os = "linux"))]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::ListerWatcher;
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::Scope;
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::testing::{ApiServer, Fault, Received, TestAuthority, objects};
use rustls::crypto::ring;

use crate::leaks::Counts;
use crate::support::alone;

const CYCLES: usize = 1_000;

/// What grows up to here is kept for the next session: buffers, arenas of the allocator.
const WARM: usize = 100;

/// The allocator's arenas grow with the threads that happen to run at once, by their pages. A
/// session that left its TLS connection alone behind would be 900 times 40 KiB.
const SLACK_KIB: usize = 4 * 1024;

/// What a session waits for before it ends.
#[derive(Clone, Copy)]
enum Until {
    Connected,
    Asked,
    Watched,
}

/// Where a server hangs, and when the client is there.
const PHASES: [(&str, Until); 7] = [
    (r#"[{"act":"silent"}]"#, Until::Connected),
    (
        r#"[{"act":"stall","part":"handshake","after":10}]"#,
        Until::Connected,
    ),
    (r#"[{"act":"hang"}]"#, Until::Asked),
    (r#"[{"act":"stall","part":"head","after":5}]"#, Until::Asked),
    (r#"[{"act":"stall","part":"body","after":5}]"#, Until::Asked),
    (
        r#"[{"act":"status","code":503},{"act":"stall","part":"body","after":5}]"#,
        Until::Asked,
    ),
    (
        r#"[{"act":"stall","part":"event","event":1,"after":20,"watch":true}]"#,
        Until::Watched,
    ),
];

/// Starts, uses and stops, with a server that hangs; whose end comes first changes.
fn cycle(number: usize, authority: &TestAuthority) {
    let (faults, until) = PHASES[number % PHASES.len()];
    let mut builder = ApiServer::builder().tls_by(authority).unwrap();
    builder = builder.token("made-up", "admin", &["system:masters"]);
    for fault in Fault::list_from_json(faults).unwrap() {
        builder = builder.fault(fault);
    }
    let server = builder.start().unwrap();
    server
        .apply(&objects::secret("shop", "db", "", &[("key", "value")]))
        .unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config
        .with_authorities(authority.pem())
        .with_token("made-up")
        .unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let user: Box<dyn Send> = if number.is_multiple_of(2) {
        let secrets = SecretManager::new(client, ManagerOptions::default()).unwrap();
        secrets.register_pod(&objects::pod("shop", "web-0", "node-1", &["db"], &[]));
        Box::new(secrets)
    } else {
        let source: Arc<dyn ListerWatcher<Secret>> =
            client.lister_watcher(Scope::namespace("shop"));
        Box::new(Store::spawn("db", source, Indexers::new(), ReflectorOptions::default()).unwrap())
    };
    let soon = Clock::system().after(Duration::from_secs(5 * 60));
    let is_there = match until {
        // There is no request to wait for.
        Until::Connected => {
            crate::support::until(|| server.connections() > 0);
            true
        }
        Until::Asked => server.wait_for_requests(soon, |seen| !seen.is_empty()),
        Until::Watched => {
            server.wait_for_requests(soon, |seen| seen.iter().any(Received::is_watch))
        }
    };
    assert!(is_there, "{faults}");
    if number.is_multiple_of(3) {
        drop(server);
        drop(user);
    } else {
        drop(user);
        drop(server);
    }
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn r20_a_thousand_sessions_with_servers_that_hang_leave_what_a_hundred_leave() {
    alone(|| {
        let authority = TestAuthority::new("hanging", ring::default_provider().into()).unwrap();
        let idle = Counts::now();
        let mut warm = None;
        for number in 0..CYCLES {
            if number == WARM {
                warm = Some((Counts::settled(&idle), resident_kib()));
            }
            cycle(number, &authority);
        }
        let (counts, kib) = warm.unwrap();
        let (after, kib_after) = (Counts::settled(&counts), resident_kib());
        println!("after {WARM}: {counts:?}, {kib} KiB; after {CYCLES}: {after:?}, {kib_after} KiB");
        assert_eq!(after, counts);
        assert!(
            kib_after < kib + SLACK_KIB,
            "{kib} KiB became {kib_after} KiB"
        );
    });
}
