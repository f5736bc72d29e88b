//! What the cluster tests share: the story, identities, and the one server they use.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "ring")]
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
#[cfg(feature = "ring")]
use rustls::{ClientConfig, RootCertStore};

use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::list_watch::{
    Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchEvent, WatchRequest,
    WatchStream,
};
use kubecache::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::worker::StopToken;

pub(crate) const NODE: &str = "node-1";
/// How long a server on the same machine may take before the test calls it silent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("KUBECACHE_CLUSTER_DIR").expect("run tests/cluster/run"))
}

/// Held shared by tests that use the server, and alone by the one that restarts it.
static SERVER: RwLock<()> = RwLock::new(());

/// The first phase of the story, played once for all tests; the server stays up while the guard
/// lives. Whoever starts threads holds it too: tests that are alone count those of the process.
pub(crate) fn cluster() -> RwLockReadGuard<'static, ()> {
    static OPENED: OnceLock<()> = OnceLock::new();
    let up = SERVER.read();
    OPENED.get_or_init(|| play("1"));
    up
}

/// The server for one test alone, after the first phase of the story.
pub(crate) fn cluster_alone() -> RwLockWriteGuard<'static, ()> {
    drop(cluster());
    SERVER.write()
}

/// A new process on the same port: its watch cache knows no version before its start.
pub(crate) fn restart_the_server() {
    control("restart-apiserver");
}

/// Stops or starts the API server: a word of `tests/cluster/control`.
pub(crate) fn control(what: &str) {
    let control = std::env::var_os("KUBECACHE_CLUSTER_CONTROL").expect("run tests/cluster/run");
    let done = Command::new(control).arg(what).arg(directory()).status();
    assert!(done.unwrap().success(), "{what}");
}

pub(crate) fn play(phase: &str) {
    let story = std::env::var_os("KUBECACHE_CLUSTER_STORY").expect("run tests/cluster/run");
    let admin = directory().join("kubeconfig/admin.yaml");
    let played = Command::new(story)
        .arg(phase)
        .arg("--kubeconfig")
        .arg(admin)
        .status();
    assert!(played.unwrap().success(), "phase {phase} of the story");
}

/// Applies one object, as a deployment tool does.
pub(crate) fn apply(manifest: &str) {
    change("apply", manifest);
}

/// Does something to objects: a verb of the story.
pub(crate) fn change(verb: &str, manifest: &str) {
    let story = std::env::var_os("KUBECACHE_CLUSTER_STORY").expect("run tests/cluster/run");
    let admin = directory().join("kubeconfig/admin.yaml");
    let mut applying = Command::new(story)
        .args(["do", verb, "--kubeconfig"])
        .arg(admin)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    applying
        .stdin
        .take()
        .unwrap()
        .write_all(manifest.as_bytes())
        .unwrap();
    assert!(applying.wait().unwrap().success(), "{verb}: {manifest}");
}

pub(crate) fn client_of(kubeconfig: &str) -> Client {
    client_with(kubeconfig, ClientOptions::default())
}

/// A client whose requests the audit log tells from all others.
pub(crate) fn client_named(kubeconfig: &str, user_agent: &str) -> Client {
    let options = ClientOptions::default().user_agent(of_this_run(user_agent));
    client_with(kubeconfig, options)
}

/// A cluster that is kept has the audit log of earlier runs, too.
pub(crate) fn of_this_run(user_agent: &str) -> String {
    format!("{user_agent}-{}", std::process::id())
}

/// A client that reaches the server at another address.
pub(crate) fn client_at(kubeconfig: &str, server: String) -> Client {
    let options = KubeconfigOptions::default().server(server);
    connect(kubeconfig, options, ClientOptions::default())
}

fn client_with(kubeconfig: &str, client: ClientOptions) -> Client {
    connect(kubeconfig, KubeconfigOptions::default(), client)
}

/// A client of a kubeconfig, as these flags change it.
pub(crate) fn connect(
    kubeconfig: &str,
    mut options: KubeconfigOptions,
    client: ClientOptions,
) -> Client {
    options = options.path(directory().join("kubeconfig").join(kubeconfig));
    let config = Config::from_kubeconfig(&options).unwrap();
    Client::new(&config, client).unwrap()
}

/// TLS to the cluster's server without a client, for tests that write bytes.
#[cfg(feature = "ring")]
pub(crate) fn tls_to_the_server() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(directory().join("certs/ca.crt")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

pub(crate) fn watcher<K: Object>(client: &Client, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
    client.lister_watcher::<K>(scope)
}

pub(crate) fn get<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Arc<StoredObject<K>>, Error> {
    get_at(client, namespace, name, &ResourceVersion::most_recent())
}

pub(crate) fn get_at<K: Object>(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &ResourceVersion,
) -> Result<Arc<StoredObject<K>>, Error> {
    let getter: Arc<dyn Getter<K>> = client.getter();
    let deadline = Clock::system().after(PATIENCE);
    let key = ObjectKey::new(namespace, name);
    getter.get(&key, version, deadline, &StopToken::never())
}

type Objects<K> = Vec<Arc<StoredObject<K>>>;

pub(crate) fn list<K: Object>(
    source: &dyn ListerWatcher<K>,
    request: &ListRequest,
) -> Result<(Objects<K>, ListPage), Error> {
    let mut objects = Vec::new();
    let page = source.list(request, &StopToken::never(), &mut |item| match item {
        Listed::Object(object) => objects.push(object),
        Listed::Undecodable(item) => panic!("{}: {}", item.key, item.error),
    })?;
    Ok((objects, page))
}

pub(crate) fn from(version: &ResourceVersion) -> WatchRequest {
    WatchRequest {
        resource_version: version.clone(),
        timeout: Duration::from_secs(5 * 60),
        head_timeout: Duration::from_secs(5 * 60),
        bookmarks: true,
        send_initial_events: false,
        urgent: false,
    }
}

/// The next event; the stream's end or silence is a failure of the test.
pub(crate) fn next<K: Object + Debug>(stream: &mut dyn WatchStream<K>) -> WatchEvent<K> {
    match stream.next(Clock::system().after(PATIENCE)).unwrap() {
        Next::Event(event) => event,
        other => panic!("no event but {other:?}"),
    }
}
