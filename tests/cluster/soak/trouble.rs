//! What befalls the servers, the way to them and the program during the soak, and how it heals.

use std::fs;
use std::time::Duration;

use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, Request};
use kubecache::worker::StopToken;
use serde_json::{Value, json};

use super::{NAMESPACE, RBAC, pause};
use crate::cluster::proxies::Proxy;
use crate::cluster::site::Rotation;
use crate::cluster::support::{PATIENCE, control, directory};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    ServerKilled,
    ServerStopped,
    EtcdKilled,
    EtcdStopped,
    BothKilled,
    CertificateRotated,
    RightsWithdrawn,
    HistoryCompacted,
    ProxyRestarted,
    ProxyAway,
    ProgramRestarted,
}

/// An informer that nobody waits for asks a minute after its last try at most (page on failures);
/// then comes the answer.
const SOON: Duration = Duration::from_secs(70);

/// A refused request is sent again a minute after the last one, five minutes at most.
const AFTER_REFUSAL: Duration = Duration::from_secs(5 * 60);

impl Trouble {
    pub(super) const ALL: [Self; 11] = [
        Self::ServerKilled,
        Self::ServerStopped,
        Self::EtcdKilled,
        Self::EtcdStopped,
        Self::BothKilled,
        Self::CertificateRotated,
        Self::RightsWithdrawn,
        Self::HistoryCompacted,
        Self::ProxyRestarted,
        Self::ProxyAway,
        Self::ProgramRestarted,
    ];

    /// Within it each cache is equal again, by the page on failures.
    pub(super) fn bound(self) -> Duration {
        match self {
            Self::RightsWithdrawn => AFTER_REFUSAL.saturating_add(SOON),
            Self::ServerKilled
            | Self::ServerStopped
            | Self::EtcdKilled
            | Self::EtcdStopped
            | Self::BothKilled
            | Self::CertificateRotated
            | Self::HistoryCompacted
            | Self::ProxyRestarted
            | Self::ProxyAway
            | Self::ProgramRestarted => SOON,
        }
    }
}

/// The servers, and the way to them that the program behind the proxy takes.
pub(super) struct Site {
    pub(super) admin: Client,
    pub(super) proxy: Option<Proxy>,
    pub(super) rotation: Rotation,
    pub(super) binding: Value,
}

impl Site {
    /// Lets it happen for a while, and heals it. The server is ready when this returns.
    pub(super) fn befall(&mut self, trouble: Trouble, away: Duration, restart: &dyn Fn()) {
        match trouble {
            Trouble::ServerKilled => {
                control("kill-apiserver");
                pause(away);
                control("start-apiserver");
            }
            Trouble::ServerStopped => {
                control("pause-apiserver");
                pause(away);
                control("continue-apiserver");
            }
            Trouble::EtcdKilled => {
                control("kill-etcd");
                pause(away);
                control("start-etcd");
            }
            Trouble::EtcdStopped => {
                control("pause-etcd");
                pause(away);
                control("continue-etcd");
            }
            Trouble::BothKilled => {
                control("kill-etcd");
                control("kill-apiserver");
                pause(away);
                control("start-etcd");
                control("start-apiserver");
            }
            Trouble::CertificateRotated => {
                self.rotation.rotate();
                self.cut();
            }
            Trouble::RightsWithdrawn => {
                self.send(&Request::new("DELETE", format!("{}/soak-user", bindings())));
                // Rights count when a watch opens.
                self.cut();
                pause(away);
                let given = Request::new("POST", bindings());
                self.send(&given.json(&self.binding).unwrap());
            }
            Trouble::HistoryCompacted => {
                let address = self.close();
                pause(away);
                compact();
                control("restart-apiserver");
                self.proxy = Some(Proxy::start("http", &address));
            }
            Trouble::ProxyRestarted => self.cut(),
            Trouble::ProxyAway => {
                let address = self.close();
                pause(away);
                self.proxy = Some(Proxy::start("http", &address));
            }
            Trouble::ProgramRestarted => {
                control("kill-apiserver");
                restart();
                pause(away);
                control("start-apiserver");
            }
        }
        self.wait_until_ready();
    }

    fn cut(&mut self) {
        let address = self.close();
        self.proxy = Some(Proxy::start("http", &address));
    }

    fn close(&mut self) -> String {
        let proxy = self.proxy.take().unwrap();
        proxy.address.clone()
    }

    fn send(&self, request: &Request) {
        let clock = Clock::system();
        self.admin.send(request, clock.after(PATIENCE)).unwrap();
    }

    fn wait_until_ready(&self) {
        let clock = Clock::system();
        let limit = clock.after(PATIENCE.saturating_mul(2));
        let ready = || {
            let request = Request::get("/readyz");
            self.admin
                .send(&request, clock.after(Duration::from_secs(5)))
        };
        while let Err(error) = ready() {
            assert!(!clock.has_passed(limit), "the server is not ready: {error}");
            StopToken::never().wait_until(&clock, clock.after(Duration::from_millis(50)));
        }
    }
}

fn bindings() -> String {
    format!("/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings")
}

/// Takes etcd's history away, so that old versions and later pages have expired.
fn compact() {
    let ports = fs::read_to_string(directory().join("ports")).unwrap();
    let port = ports
        .split_whitespace()
        .find_map(|word| word.strip_prefix("ETCD_PORT="));
    let config = Config::for_server(&format!("http://127.0.0.1:{}", port.unwrap())).unwrap();
    let etcd = Client::new(&config, ClientOptions::default()).unwrap();
    let ask = |path: &str, what: Value| -> Value {
        let request = Request::new("POST", path).json(&what).unwrap();
        let limit = Clock::system().after(PATIENCE);
        etcd.send(&request, limit).unwrap().json().unwrap()
    };
    // Of any key: the head of the answer has the revision.
    let answer = ask("/v3/kv/range", json!({"key": "c29haw=="}));
    let revision = &answer["header"]["revision"];
    assert!(revision.is_string(), "{answer}");
    ask(
        "/v3/kv/compaction",
        json!({"revision": revision, "physical": true}),
    );
}
