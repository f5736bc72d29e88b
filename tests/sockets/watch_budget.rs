//! A manager with fewer watches than objects: the sockets it takes, counted by the server that
//! accepts them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kubecache::clock::{Clock, Deadline, FakeClock};
use kubecache::manager::{ManagerOptions, Owner, PastLimit, SecretManager};
use kubecache::object::ObjectKey;

use super::server::{Peer, Server};
use super::{client, secret, secret_list};

const OBJECTS: usize = 50;
const BUDGET: usize = 10;
const TTL: Duration = Duration::from_secs(60);

/// A server with every Secret that is asked for, all at one version.
#[derive(Default)]
struct Secrets {
    version: AtomicU64,
    open: AtomicUsize,
    most: AtomicUsize,
    ends: AtomicBool,
}

impl Secrets {
    fn accept_all(&self, server: &Server) {
        thread::scope(|scope| {
            loop {
                let peer = server.accept();
                if self.ends.load(Ordering::SeqCst) {
                    return;
                }
                let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(open, Ordering::SeqCst);
                scope.spawn(|| {
                    self.serve(peer);
                    self.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }

    fn serve(&self, mut peer: Peer) {
        while let Some(request) = peer.request_or_close() {
            let version = self.version.load(Ordering::SeqCst).to_string();
            let name = |after: &str| {
                let (_, rest) = request.line.split_once(after)?;
                rest.get(..3)
            };
            if request.line.contains("watch=") {
                peer.begin();
                return peer.wait_for_close();
            }
            if let Some(name) = name("metadata.name%3D") {
                peer.json(200, &secret_list(&version, &[secret(name, &version)]));
            } else {
                let name = name("/secrets/").unwrap();
                peer.json(200, &secret(name, &version));
            }
        }
    }
}

/// Past the budget the objects are polled over one connection; all are readable, and none is older
/// than the time to live.
#[test]
fn fifty_objects_take_ten_sockets() {
    let (server, secrets, clock) = (Server::start(), Secrets::default(), FakeClock::new());
    secrets.version.store(1, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| secrets.accept_all(&server));
        let options = ManagerOptions::default()
            .clock(Clock::from(clock.clone()))
            .watches_max(BUDGET)
            .ttl(TTL)
            .past_limit(PastLimit::Poll);
        let manager = SecretManager::new(client(&server.url()), options).unwrap();
        let owner = Owner::new("Test", ObjectKey::new("shop", "reader"));
        let names: Vec<String> = (0..OBJECTS).map(|number| format!("s{number:02}")).collect();
        for name in &names {
            manager.add_reference(&owner, &ObjectKey::new("shop", name.as_str()));
        }
        for version in 1..4 {
            secrets.version.store(version, Ordering::SeqCst);
            if version > 1 {
                clock.advance(TTL);
            }
            let mut polled = 0;
            for name in &names {
                let read = manager.get_by("shop", name, Deadline::NEVER).unwrap();
                assert!(!read.is_stale());
                if read.is_polled() {
                    polled += 1;
                    let read = read.metadata.resource_version.as_deref();
                    assert_eq!(read, Some(version.to_string().as_str()), "{name}");
                }
            }
            assert_eq!(polled, OBJECTS - (BUDGET - 1));
        }
        drop(manager);
        secrets.ends.store(true, Ordering::SeqCst);
        drop(std::net::TcpStream::connect(("127.0.0.1", server.port())));
    });
    assert_eq!(secrets.most.load(Ordering::SeqCst), BUDGET);
    assert_eq!(secrets.open.load(Ordering::SeqCst), 0);
}
