//! Against a real kube-apiserver and etcd: what the server accepts and answers, and the main job as a node's identity.
//!
//! These tests need a cluster, so a plain `cargo test` ignores them: `tests/cluster/run` starts one and runs them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, at whatever it did not expect"
)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config, Environment, KubeconfigOptions};
use kubecache::list_watch::{
    Api, Getter, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchEvent, WatchRequest,
};
use kubecache::object::{FieldSelector, Held, Object, ObjectKey, Reason, ResourceVersion, Scope};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

const NODE: &str = "node-1";
/// How long a server on the same machine may take before the test calls it silent.
const PATIENCE: Duration = Duration::from_mins(1);

fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("KUBECACHE_CLUSTER_DIR").expect("run tests/cluster/run"))
}

/// Held shared by tests that use the server, and alone by the one that restarts it.
static SERVER: RwLock<()> = RwLock::new(());

/// The first phase of the story, played once for all tests; the server stays up while the guard lives.
fn cluster() -> RwLockReadGuard<'static, ()> {
    static OPENED: OnceLock<()> = OnceLock::new();
    let up = SERVER.read();
    OPENED.get_or_init(|| play("1"));
    up
}

/// A new process on the same port: its watch cache knows no version before its start.
fn restart_the_server() {
    let control = std::env::var_os("KUBECACHE_CLUSTER_CONTROL").expect("run tests/cluster/run");
    let restarted = Command::new(control)
        .arg("restart-apiserver")
        .arg(directory())
        .status();
    assert!(restarted.unwrap().success(), "restarting the server");
}

fn play(phase: &str) {
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
fn apply(manifest: &str) {
    let story = std::env::var_os("KUBECACHE_CLUSTER_STORY").expect("run tests/cluster/run");
    let admin = directory().join("kubeconfig/admin.yaml");
    let mut applying = Command::new(story)
        .args(["do", "apply", "--kubeconfig"])
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
    assert!(applying.wait().unwrap().success(), "applying {manifest}");
}

fn client_of(kubeconfig: &str) -> Client {
    let mut options = KubeconfigOptions::default();
    options.paths = vec![directory().join("kubeconfig").join(kubeconfig)];
    let config = Config::from_kubeconfig(&options, &Environment::process()).unwrap();
    Client::new(&config, ClientOptions::default()).unwrap()
}

fn watcher<K: Object>(client: &Client, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
    Api::<K>::lister_watcher(client, scope)
}

fn get<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<Arc<Held<K>>, Error> {
    let getter: Arc<dyn Getter<K>> = client.getter();
    let deadline = Clock::system().after(PATIENCE);
    let key = ObjectKey::new(namespace, name);
    getter.get(
        &key,
        &ResourceVersion::most_recent(),
        deadline,
        &StopToken::never(),
    )
}

type Objects<K> = Vec<Arc<Held<K>>>;

fn list<K: Object>(
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

fn from(version: &ResourceVersion) -> WatchRequest {
    WatchRequest {
        resource_version: version.clone(),
        timeout: Duration::from_mins(5),
        bookmarks: true,
        send_initial_events: false,
        waited_for: false,
    }
}

/// The next event; the stream's end or silence is a failure of the test.
fn next<K: Object + std::fmt::Debug>(
    stream: &mut dyn kubecache::list_watch::WatchStream<K>,
) -> WatchEvent<K> {
    match stream.next(Clock::system().after(PATIENCE)).unwrap() {
        Next::Event(event) => event,
        other => panic!("no event but {other:?}"),
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_list_in_pages_is_the_list_in_one() {
    let _up = cluster();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let (whole, first) = list(&*source, &ListRequest::default()).unwrap();
    assert!(whole.len() > 6, "{} secrets", whole.len());
    assert!(!first.resource_version.is_unset());
    let mut request = ListRequest {
        limit: 3,
        ..ListRequest::default()
    };
    let mut paged = Vec::new();
    loop {
        let (page, end) = list(&*source, &request).unwrap();
        assert!(page.len() <= 3);
        paged.extend(page);
        request.continue_token = end.continue_token;
        if request.continue_token.is_none() {
            break;
        }
    }
    let keys = |objects: &[Arc<Held<Secret>>]| objects.iter().map(|o| o.key()).collect::<Vec<_>>();
    assert_eq!(keys(&paged), keys(&whole));
    assert!(
        whole
            .iter()
            .all(|secret| secret.metadata.managed_fields.is_none()),
        "trimmed (B19)"
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn every_kind_of_credentials_reaches_the_server() {
    let _up = cluster();
    for kubeconfig in ["admin.yaml", "admin-files.yaml", "admin-token.yaml"] {
        let secret = get::<Secret>(&client_of(kubeconfig), "shop", "storefront-session").unwrap();
        assert!(
            secret
                .data
                .as_ref()
                .is_some_and(|data| data.contains_key("SESSION_KEY"))
        );
        assert!(
            secret.metadata.managed_fields.is_some(),
            "a plain get keeps them (B19)"
        );
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_refusal_carries_the_servers_own_words() {
    let _up = cluster();
    let wrong = get::<Secret>(&client_of("wrong-token.yaml"), "shop", "storefront-session");
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Unauthorized);
    let expired = get::<Secret>(&client_of("expired.yaml"), "shop", "storefront-session");
    assert_eq!(expired.unwrap_err().kind(), ErrorKind::Unauthorized);
    let stranger = get::<Secret>(&client_of("wrong-ca.yaml"), "shop", "storefront-session");
    assert_eq!(stranger.unwrap_err().kind(), ErrorKind::Tls);
    let source = watcher::<Pod>(&client_of("nobody.yaml"), Scope::all());
    let refused = list(&*source, &ListRequest::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
    assert!(
        refused
            .to_string()
            .contains("pods is forbidden: User \"nobody\" cannot list resource"),
        "{refused}"
    );
    let missing = get::<ConfigMap>(&client_of("admin.yaml"), "shop", "no-such-map").unwrap_err();
    assert_eq!(missing.to_string(), "configmaps \"no-such-map\" not found");
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_node_reads_what_its_own_pods_name_and_nothing_else() {
    let _up = cluster();
    for kubeconfig in ["node.yaml", "node-token.yaml"] {
        let client = client_of(kubeconfig);
        let source = watcher::<Pod>(&client, Scope::all().fields(FieldSelector::node_name(NODE)));
        let (pods, _) = list(&*source, &ListRequest::default()).unwrap();
        assert!(pods.len() >= 8, "{} pods", pods.len());
        let on_the_node = |pod: &Arc<Held<Pod>>| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(NODE)
        };
        assert!(pods.iter().all(on_the_node));
        let key = ObjectKey::new("shop", "storefront-session");
        let own = watcher::<Secret>(&client, Scope::object(&key));
        assert_eq!(list(&*own, &ListRequest::default()).unwrap().0.len(), 1);
        let refused = watcher::<Secret>(&client, Scope::namespace("shop"));
        let refused = list(&*refused, &ListRequest::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Forbidden, "{refused}");
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_watch_from_a_version_the_server_forgot_expires() {
    drop(cluster());
    let _alone = SERVER.write();
    restart_the_server();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let mut stream = source
        .watch(&from(&"1".into()), &StopToken::never())
        .unwrap();
    match next(&mut *stream) {
        WatchEvent::Error(error) => {
            assert_eq!(error.kind(), ErrorKind::Expired);
            assert!(
                error
                    .to_string()
                    .starts_with("too old resource version: 1 ("),
                "{error}"
            );
        }
        other => panic!("no error but {other:?}"),
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_version_from_the_future_is_told_apart() {
    let _up = cluster();
    let source = watcher::<Secret>(&client_of("admin.yaml"), Scope::namespace("shop"));
    let request = ListRequest {
        resource_version: "999999999".into(),
        ..ListRequest::default()
    };
    let error = list(&*source, &request).unwrap_err();
    assert!(
        error.status().unwrap().is_too_large_resource_version(),
        "{error:?}"
    );
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_watch_that_the_server_ends_sends_a_bookmark_first_and_ends_cleanly() {
    let _up = cluster();
    let key = ObjectKey::new("shop", "storefront-session");
    let source = watcher::<Secret>(&client_of("node.yaml"), Scope::object(&key));
    let (_, page) = list(&*source, &ListRequest::default()).unwrap();
    let request = WatchRequest {
        timeout: Duration::from_secs(15),
        ..from(&page.resource_version)
    };
    let mut stream = source.watch(&request, &StopToken::never()).unwrap();
    // A bookmark tells of a position behind the watch's own: another Secret's change makes one.
    apply("{apiVersion: v1, kind: Secret, metadata: {name: moves-the-position, namespace: ops}}");
    let mut bookmarks = 0;
    loop {
        match stream.next(Clock::system().after(PATIENCE)).unwrap() {
            Next::Event(WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            }) => {
                assert!(!resource_version.is_older_than(&page.resource_version));
                assert!(!initial_events_end);
                bookmarks += 1;
            }
            // Other tests play the story meanwhile.
            Next::Event(WatchEvent::Modified(_)) => {}
            Next::Ended(None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(bookmarks >= 1);
}

/// The WatchList gate was on in 1.32, off in 1.33, the oldest server here, and is on since 1.34.
fn streams_lists() -> bool {
    let version = std::env::var("KUBECACHE_CLUSTER_VERSION").expect("run tests/cluster/run");
    !version.starts_with("v1.33.")
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_streamed_list_ends_with_its_bookmark_where_the_server_streams() {
    let _up = cluster();
    let source = watcher::<Pod>(&client_of("admin.yaml"), Scope::namespace("ops"));
    let (listed, _) = list(&*source, &ListRequest::default()).unwrap();
    let request = WatchRequest {
        send_initial_events: true,
        ..from(&ResourceVersion::default())
    };
    let opened = source.watch(&request, &StopToken::never());
    if !streams_lists() {
        let refused = opened.err().expect("its WatchList gate is off");
        let status = refused.status().expect("the server's own answer");
        assert_eq!((status.code(), status.reason()), (422, Reason::Invalid));
        return;
    }
    let mut stream = opened.unwrap();
    let mut streamed = 0;
    loop {
        match next(&mut *stream) {
            WatchEvent::Added(_) => streamed += 1,
            WatchEvent::Bookmark {
                initial_events_end: true,
                resource_version,
            } => {
                assert!(!resource_version.is_unset());
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(streamed, listed.len());
}
