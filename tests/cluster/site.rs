//! A site where everything changes under way: tokens of a plugin expire, the proxy restarts, and
//! the server's certificate rotates with its authority. Caches outlive it, a program's and the
//! agent's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, ClientOptions, Config, CredentialsStatus};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::worker::StopToken;
use rustix::process::Signal;

use super::agent_program::AGENT;
use super::audit::{Asked, asked_as, asked_by};
use super::plugins::Stage;
use super::proxies::Proxy;
use super::support::*;
use crate::support::example::Running;

/// How long a token lasts, for the client as for the server.
const LIFE: Duration = Duration::from_secs(20);

/// The test goes on for so many tokens.
const EXPIRIES: u32 = 10;

/// Between two reads.
const TICK: Duration = Duration::from_millis(100);

/// What the server's certificate is for that changes (`writeRotation` of the story).
const ROTATING: &str = "rotating.test";

const USER: &str = "system:serviceaccount:site:site-user";

/// Who asks without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// Who the plugin's tokens are for.
const ACCOUNT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: site}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: first, namespace: site}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: site-user, namespace: site}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: site-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: site-user, namespace: site}]
";

/// The certificate that the server shows, and what the kubeconfig trusts.
pub(crate) struct Rotation {
    trusted: PathBuf,
    shown: u8,
}

impl Rotation {
    pub(crate) fn new(name: &str) -> Self {
        // A cluster that is kept has been rotated before.
        let served = fs::read(certificate("rotating.crt")).unwrap();
        let first = fs::read(certificate("rotating-1.crt")).unwrap();
        let shown = if served == first { 1 } else { 2 };
        let rotation = Self {
            trusted: certificate(name),
            shown,
        };
        rotation.trust(&[shown]);
        rotation
    }

    /// As an administrator rotates: both authorities are trusted while the certificate changes.
    pub(crate) fn rotate(&mut self) {
        let next = 3 - self.shown;
        self.trust(&[self.shown, next]);
        for kind in ["crt", "key"] {
            let content = fs::read(certificate(&format!("rotating-{next}.{kind}"))).unwrap();
            replace(&certificate(&format!("rotating.{kind}")), &content);
        }
        let clock = Clock::system();
        let limit = clock.after(PATIENCE.saturating_mul(2));
        while !is_shown(next) {
            assert!(!clock.has_passed(limit), "the server shows its old one");
            StopToken::never().wait_until(&clock, clock.after(TICK));
        }
        self.trust(&[next]);
        self.shown = next;
    }

    fn trust(&self, authorities: &[u8]) {
        let authority = |number: &u8| fs::read(certificate(&format!("rotating-{number}-ca.crt")));
        let all = authorities
            .iter()
            .flat_map(|number| authority(number).unwrap());
        replace(&self.trusted, &all.collect::<Vec<_>>());
    }
}

/// Whether the server's certificate is of that authority.
fn is_shown(number: u8) -> bool {
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let authority = fs::read(certificate(&format!("rotating-{number}-ca.crt"))).unwrap();
    let token = fs::read_to_string(certificate("admin.token")).unwrap();
    let config = Config::for_server(&server).unwrap();
    let config = config
        .with_authorities(authority)
        .with_token(&token)
        .unwrap();
    let config = config.with_tls_server_name(ROTATING);
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    match get::<Secret>(&client, "shop", "storefront-session") {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::Tls => false,
        Err(error) => panic!("{error}"),
    }
}

fn certificate(name: &str) -> PathBuf {
    directory().join("certs").join(name)
}

/// No reader sees half of it.
fn replace(path: &PathBuf, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

/// A kubeconfig whose plugin gives tokens of the account, of that namespace and name, and whose
/// cluster is behind the proxy.
pub(crate) fn site(
    name: &str,
    (namespace, user): (&str, &str),
    proxy: &Proxy,
    rotation: &Rotation,
) -> Stage {
    let account = get::<ServiceAccount>(&client_of("admin.yaml"), namespace, user).unwrap();
    let uid = account.metadata.uid.clone().unwrap();
    let settings = [
        ("LIFE", LIFE.as_secs().to_string()),
        ("ACCOUNT", format!("{namespace} {user} {uid}")),
        (
            "KEY",
            certificate("service-account.key").display().to_string(),
        ),
    ];
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let cluster = format!(
        "server: '{server}', certificate-authority: '{}', tls-server-name: \
         {ROTATING}, proxy-url: 'http://jane:canary@{}'",
        rotation.trusted.display(),
        proxy.address
    );
    Stage::new(name, &cluster, &settings)
}

/// The agent as a process, and the address of its probes.
struct AgentProcess {
    running: Running,
    probes: SocketAddr,
}

impl AgentProcess {
    fn start(stage: &Stage) -> Self {
        const FLAG: &str = "--health-probe-bind-address";
        let kubeconfig = stage.0.join("config");
        let kubeconfig = kubeconfig.to_str().unwrap();
        let flags = ["--kubeconfig", kubeconfig, "--node-name", NODE];
        let flags = [&flags[..], &[FLAG, "127.0.0.1:0"]].concat();
        // The plugin is a script: it looks for its tools.
        let path = std::env::var("PATH").unwrap();
        let mut running = AGENT.start_in(&flags, &[("PATH", &path)]);
        let told = format!("{FLAG}: listening at ");
        let probes = loop {
            let line = running.next_told().expect("it tells where it listens");
            if let Some(address) = line.strip_prefix(&told) {
                break address.parse().unwrap();
            }
        };
        let agent = Self { running, probes };
        let clock = Clock::system();
        let limit = clock.after(PATIENCE);
        while agent.ready().0 != 200 {
            assert!(!clock.has_passed(limit), "{:?}", agent.ready());
            StopToken::never().wait_until(&clock, clock.after(TICK));
        }
        agent
    }

    /// What it says of its content: every object answered, and all of it fresh.
    fn ready(&self) -> (u16, String) {
        let mut connection = TcpStream::connect(self.probes).unwrap();
        let request = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n";
        connection.write_all(request).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split_whitespace().nth(1).unwrap();
        (code.parse().unwrap(), body.to_owned())
    }
}

/// The caches of a program: an informer, and a Secret that a manager watches.
struct Caches {
    client: Client,
    informer: SharedInformer<ConfigMap>,
    secrets: SecretManager,
}

impl Caches {
    fn start(client: Client) -> Self {
        let clock = Clock::system();
        let source = watcher::<ConfigMap>(&client, Scope::namespace("site"));
        let informer = SharedInformer::new(source, InformerOptions::default());
        informer.start().unwrap();
        informer.wait_until_synced(clock.after(PATIENCE)).unwrap();
        let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
        let session = ObjectKey::new("shop", "storefront-session");
        let owner = Owner::new("Test", ObjectKey::new("shop", "site"));
        secrets.add_reference(&owner, &session);
        let deadline = clock.after(PATIENCE);
        secrets
            .get_by("shop", "storefront-session", deadline)
            .unwrap();
        Self {
            client,
            informer,
            secrets,
        }
    }

    fn read(&self) {
        assert!(
            self.informer
                .store()
                .get("site", "first")
                .unwrap()
                .is_some()
        );
        self.secrets.get("shop", "storefront-session").unwrap();
        get::<Secret>(&self.client, "shop", "storefront-session").unwrap();
    }

    /// Changes still come.
    fn check_change(&self, name: &str) {
        let late = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: site}}\n"
        );
        apply(&late);
        let clock = Clock::system();
        let limit = clock.after(PATIENCE);
        while self.informer.store().get("site", name).unwrap().is_none() {
            assert!(!clock.has_passed(limit), "the informer follows no more");
            StopToken::never().wait_until(&clock, clock.after(TICK));
        }
        change("delete", &late);
    }

    fn shutdown(self) {
        let clock = Clock::system();
        self.informer.shutdown(clock.after(PATIENCE)).unwrap();
        self.secrets.shutdown(clock.after(PATIENCE)).unwrap();
    }
}

/// What happens at the site.
enum Change {
    /// The connections break, and are opened anew with the token of that moment.
    ProxyRestarts,
    /// Both plugins give a token that the server does not know, once.
    TokenIsWrong,
    CertificateRotates,
}

/// When it happens, in seconds since the beginning.
const CHANGES: [(u64, Change); 7] = [
    (25, Change::ProxyRestarts),
    (50, Change::TokenIsWrong),
    (80, Change::ProxyRestarts),
    (110, Change::CertificateRotates),
    (111, Change::ProxyRestarts),
    (150, Change::ProxyRestarts),
    (185, Change::ProxyRestarts),
];

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn no_cached_read_fails_while_tokens_proxy_and_certificates_change() {
    let _up = cluster();
    apply(ACCOUNT);
    let clock = Clock::system();
    let mut proxy = Proxy::start("http", "127.0.0.1:0");
    let mut rotation = Rotation::new("rotating-trusted.crt");
    let account = ("site", "site-user");
    let stage = site("site", account, &proxy, &rotation);
    let agents_bed = site("site-agent", account, &proxy, &rotation);
    let client = stage.client("site-user");
    let agent = AgentProcess::start(&agents_bed);
    let caches = Caches::start(client.clone());

    let begin = clock.now();
    let end = Deadline::at(begin + LIFE.saturating_mul(EXPIRIES));
    let mut ahead = CHANGES.iter().peekable();
    let mut reads = 0_u32;
    while !clock.has_passed(end) {
        StopToken::never().wait_until(&clock, clock.after(TICK));
        let now = clock.now() - begin;
        if let Some((_, change)) = ahead.next_if(|(at, _)| now.as_secs() >= *at) {
            match change {
                Change::ProxyRestarts => proxy = proxy.restart("http"),
                Change::TokenIsWrong => {
                    fs::write(stage.0.join("bad"), "").unwrap();
                    fs::write(agents_bed.0.join("bad"), "").unwrap();
                }
                Change::CertificateRotates => rotation.rotate(),
            }
            continue;
        }
        caches.read();
        assert_eq!(agent.ready().0, 200, "{}", agent.ready().1);
        reads += 1;
    }
    assert_eq!(ahead.count(), 0);
    caches.check_change("late");
    let status = client.credentials_status().unwrap();
    println!(
        "{reads} reads of each cache, {} runs of the plugin",
        status.runs
    );
    check_runs(&stage, &status);
    caches.shutdown();
    let ended = agent.running.stop(Signal::TERM);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        !agents_bed.0.join("bad").exists(),
        "the wrong token was given out"
    );
    let asked = asked_by("site-user");
    check_requests(&asked);
    let rejected = asked.iter().filter(|asked| asked.code == 401).count();
    assert!(
        (1..=4).contains(&rejected),
        "the wrong token alone is rejected: {rejected} of {}",
        asked.len()
    );
    let by_agents = asked_as(concat!("node_agent/", env!("CARGO_PKG_VERSION")));
    assert!(by_agents.iter().all(|asked| asked.user != ANONYMOUS));
    let of_site = by_agents.into_iter().filter(|asked| asked.user == USER);
    let of_site: Vec<_> = of_site.collect();
    assert!(of_site.len() > 150, "{}", of_site.len());
    check_requests(&of_site);
    check_first_token(&stage);
}

fn check_runs(stage: &Stage, status: &CredentialsStatus) {
    assert!(status.runs >= u64::from(EXPIRIES), "{status:?}");
    assert_eq!(status.failures, 0, "{status:?}");
    let runs = fs::read_to_string(stage.0.join("runs")).unwrap().len();
    assert_eq!(u64::try_from(runs).unwrap(), status.runs);
    assert!(
        !stage.0.join("bad").exists(),
        "the wrong token was given out"
    );
}

/// The tokens do expire, and a fixed one is the end.
fn check_first_token(stage: &Stage) {
    let first = fs::read_to_string(stage.0.join("first")).unwrap();
    let authority = fs::read(certificate("ca.crt")).unwrap();
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let fixed = Config::for_server(&server).unwrap();
    let fixed = fixed
        .with_authorities(authority)
        .with_token(&first)
        .unwrap();
    let fixed = Client::new(&fixed, ClientOptions::default()).unwrap();
    let expired = get::<Secret>(&fixed, "shop", "storefront-session").unwrap_err();
    assert_eq!(expired.kind(), ErrorKind::Unauthorized);
    assert!(
        expired.to_string().contains("the client cannot renew it"),
        "{expired}"
    );
}

/// No request went out without credentials.
fn check_requests(asked: &[Asked]) {
    // Without credentials the answer is 403, to system:anonymous. 422: the oldest server streams no
    // lists.
    let is_known = |asked: &&Asked| matches!(asked.code, 0 | 200 | 401 | 404 | 422);
    let others: Vec<_> = asked.iter().filter(|asked| !is_known(asked)).collect();
    assert!(others.is_empty(), "{others:?}");
}
