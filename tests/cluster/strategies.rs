//! The three strategies against a real server: when each sees a change, and by its audit log which
//! requests that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kubecache::clock::{Clock, Deadline, FakeClock};
use kubecache::http::Client;
use kubecache::list_watch::{Api, Getter, ListerWatcher};
use kubecache::manager::{
    ChangeDetection, ManagerOptions, NodeTtl, ObjectManager, Owner, SecretManager,
};
use kubecache::object::{Object as _, ObjectKey, ResourceVersion, Scope, StoredObject};
use kubecache::worker::{StopToken, Worker, live_workers};
use kubecache::{Error, ErrorKind};

use super::audit::{Asked, asked_by, asked_for};
use super::support::*;

/// A namespace that exists for these tests alone.
const NAMESPACE: &str = "strategies";
const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

/// Writes a Secret, and waits until reads out of the server's cache see it; its version.
fn write(name: &str, value: &str) -> ResourceVersion {
    let admin = client_of("admin.yaml");
    apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
    ));
    apply(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {NAMESPACE}}}, \
         stringData: {{key: canary-{value}}}}}"
    ));
    let version = get::<Secret>(&admin, NAMESPACE, name)
        .unwrap()
        .resource_version();
    let any = ResourceVersion::any();
    let deadline = soon();
    while !get_at::<Secret>(&admin, NAMESPACE, name, &any)
        .is_ok_and(|secret| secret.resource_version() == version)
    {
        assert!(!Clock::system().has_passed(deadline), "the cache lags");
    }
    version
}

/// Deletes a Secret, and waits until reads out of the server's cache know it.
fn delete(name: &str) {
    change(
        "delete",
        &format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {NAMESPACE}}}}}"
        ),
    );
    let admin = client_of("admin.yaml");
    let deadline = soon();
    while get_at::<Secret>(&admin, NAMESPACE, name, &ResourceVersion::any()).is_ok() {
        assert!(!Clock::system().has_passed(deadline), "the cache lags");
    }
}

fn pod_in(namespace: &str, name: &str, secrets: &[&str]) -> Pod {
    let volumes: Vec<_> = secrets
        .iter()
        .map(|secret| serde_json::json!({"name": secret, "secret": {"secretName": secret}}))
        .collect();
    let pod = serde_json::json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}")},
        "spec": {"containers": [], "volumes": volumes},
    });
    serde_json::from_value(pod).unwrap()
}

fn pod(name: &str, secrets: &[&str]) -> Pod {
    pod_in(NAMESPACE, name, secrets)
}

fn manager(client: Client, options: ManagerOptions) -> SecretManager {
    // A test may stand still longer than a fake clock's second.
    SecretManager::new(client, options.get_timeout(Duration::from_secs(60 * 60))).unwrap()
}

/// A TTL manager whose time passes when the test says so.
fn caching(client: Client) -> (SecretManager, FakeClock) {
    let fake = FakeClock::new();
    let options = options(ChangeDetection::Cache).clock(fake.clone().into());
    (manager(client, options), fake)
}

fn options(mode: ChangeDetection) -> ManagerOptions {
    ManagerOptions::default().change_detection(mode)
}

fn value_of(secret: &Secret) -> String {
    let data = secret.data.as_ref().unwrap();
    let value = String::from_utf8(data["key"].0.clone()).unwrap();
    value.strip_prefix("canary-").unwrap().to_owned()
}

/// The value a cached read gives.
fn read(secrets: &SecretManager, name: &str) -> String {
    value_of(&secrets.get(NAMESPACE, name).unwrap())
}

fn read_fresh(secrets: &SecretManager, name: &str) -> String {
    value_of(&secrets.get_fresh(NAMESPACE, name, soon()).unwrap())
}

fn read_at_least(secrets: &SecretManager, name: &str, version: &ResourceVersion) -> String {
    let read = secrets.get_at_least(NAMESPACE, name, version, soon());
    value_of(&read.unwrap())
}

/// OC-2, OC-6, OC-14: one list out of the server's cache, one watch from there on; a change comes
/// by itself.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn oc_2_oc_6_a_watched_secret_is_listed_once_and_its_changes_come_by_themselves() {
    let _up = cluster();
    let (name, agent) = ("watched", "strategies-watch");
    let first = write(name, "1");
    let secrets = manager(
        client_named("admin.yaml", agent),
        options(ChangeDetection::Watch),
    );
    let changes = secrets.subscribe();
    assert!(asked_by(agent).is_empty());
    secrets.register_pod(&pod("a", &[name]));
    secrets.register_pod(&pod("b", &[name]));
    assert_eq!(read(&secrets, name), "1");
    let second = write(name, "2");
    while read(&secrets, name) == "1" {
        changes.signal().recv_timeout(PATIENCE).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(read(&secrets, name), "2");
    }
    assert_eq!(read_at_least(&secrets, name, &first), "2");
    assert_eq!(read_at_least(&secrets, name, &second), "2");
    let asked = asked_by(agent);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0].in_short(), "list 0");
    assert_eq!(asked[1].verb, "watch");
    for request in &asked {
        assert_eq!(request.query("fieldSelector"), "metadata.name%3Dwatched");
        assert_eq!(request.code, 200);
    }
    let from = ResourceVersion::from(asked[1].query("resourceVersion"));
    assert!(!from.is_unset() && !from.is_older_than(&first), "{from}");

    // A fresh read is one get at the most recent version, and memory does not fall behind it.
    write(name, "3");
    assert_eq!(read_fresh(&secrets, name), "3");
    assert_eq!(read(&secrets, name), "3");
    let asked: Vec<_> = asked_by(agent)
        .iter()
        .skip(2)
        .map(Asked::in_short)
        .collect();
    assert_eq!(asked, ["get"]);
}

/// OC-2, OC-3: owners that are no pods share the one watch of an object of a kind that no pod
/// names; it ends with the last reference.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn oc_2_oc_3_any_owner_references_an_object_of_any_kind() {
    let _up = cluster();
    let agent = "strategies-leases";
    let write = |holder: &str| {
        apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
        ));
        apply(&format!(
            "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: shard-1, \
             namespace: {NAMESPACE}}}, spec: {{holderIdentity: {holder}}}}}"
        ));
    };
    write("a");
    let options = options(ChangeDetection::Watch).get_timeout(PATIENCE);
    let client = client_named("admin.yaml", agent);
    let leases = ObjectManager::<Lease>::new(client, options).unwrap();
    let changes = leases.subscribe();
    let holder = || {
        let lease = leases.get(NAMESPACE, "shard-1").unwrap();
        lease
            .spec
            .as_ref()
            .unwrap()
            .holder_identity
            .clone()
            .unwrap()
    };
    let key = |name: &str| ObjectKey::new(NAMESPACE, name);
    let owners = ["x", "y"].map(|name| Owner::new("worker", ObjectKey::new("", name)));
    for owner in &owners {
        leases.add_reference(owner, &key("shard-1"));
    }
    write("b");
    while holder() != "b" {
        changes.signal().recv_timeout(PATIENCE).unwrap();
    }
    leases.set_references(&owners[0], [key("shard-2")]);
    let absent = leases.get(NAMESPACE, "shard-2").unwrap_err();
    let words = r#"lease.coordination.k8s.io "shard-2" not found"#;
    assert_eq!(absent.to_string(), words);
    assert_eq!(holder(), "b", "the other owner still references it");
    leases.remove_reference(&owners[1], &key("shard-1"));
    let refused = leases.get(NAMESPACE, "shard-1").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotRegistered);

    let asked = asked_by(agent);
    let of_first = "metadata.name%3Dshard-1";
    let of_first = asked
        .iter()
        .filter(|asked| asked.query("fieldSelector") == of_first);
    let verbs: Vec<&str> = of_first.map(|asked| asked.verb.as_str()).collect();
    assert_eq!(verbs, ["list", "watch"]);
    assert!(
        asked.iter().all(|asked| asked.resource == "leases"),
        "{asked:?}"
    );
}

/// OS-6, OS-7: seen at the time to live and not before, by one get out of the server's cache.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn os_6_os_7_a_cached_secret_is_asked_for_at_its_time_to_live_and_not_before() {
    let _up = cluster();
    let (name, agent) = ("cached", "strategies-cache");
    let asked = || asked_for(agent, name);
    write(name, "1");
    let (secrets, clock) = caching(client_named("admin.yaml", agent));
    secrets.register_pod(&pod("a", &[name]));
    assert!(asked_by(agent).is_empty(), "OS-2: no request");
    assert_eq!(read(&secrets, name), "1");
    assert_eq!(asked(), ["get"], "nothing is cached: the most recent state");
    write(name, "2");
    clock.advance(MINUTE.saturating_sub(MILLISECOND));
    for _ in 0..100 {
        assert_eq!(read(&secrets, name), "1");
    }
    assert_eq!(asked().len(), 1);
    clock.advance(MILLISECOND);
    assert_eq!(read(&secrets, name), "2");
    assert_eq!(read(&secrets, name), "2");
    assert_eq!(asked(), ["get", "get 0"]);

    // Who cannot wait for the time to live asks past it.
    write(name, "3");
    assert_eq!(read_fresh(&secrets, name), "3");
    assert_eq!(read(&secrets, name), "3");
    assert_eq!(asked(), ["get", "get 0", "get"]);
    let fourth = write(name, "4");
    assert_eq!(read(&secrets, name), "3");
    assert_eq!(read_at_least(&secrets, name, &fourth), "4");
    assert_eq!(read_at_least(&secrets, name, &fourth), "4", "from memory");
    assert_eq!(read(&secrets, name), "4");
    let at_fourth = format!("get {fourth}");
    assert_eq!(asked(), ["get", "get 0", "get", &at_fourth]);
    let codes = asked_by(agent);
    assert!(codes.iter().all(|asked| asked.code == 200), "{codes:?}");
}

/// OS-5: within the time to live readers from many threads cause one request for each object.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn os_5_readers_of_one_object_share_its_request() {
    let _up = cluster();
    let (names, agent) = (["shared-1", "shared-2"], "strategies-shared");
    for name in names {
        write(name, "1");
    }
    let (secrets, _clock) = caching(client_named("admin.yaml", agent));
    secrets.register_pod(&pod("a", &names));
    let readers: Vec<Worker> = (0..8)
        .map(|number| {
            let secrets = secrets.clone();
            let reader = move |_: &StopToken| {
                for name in names.iter().cycle().take(50) {
                    assert_eq!(read(&secrets, name), "1");
                }
            };
            Worker::spawn(format!("reader-{number}"), reader).unwrap()
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
    for name in names {
        assert_eq!(asked_for(agent, name), ["get"], "{name}");
    }
}

/// OS-2, OS-3, OS-7, CM-2: what a registration drops is fetched anew; what an update keeps is not.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn os_2_cm_2_a_new_reference_fetches_anew_and_an_update_of_the_pod_does_not() {
    let _up = cluster();
    let name = "referenced";
    write(name, "1");
    for (invalidate, agent, expected) in [
        (false, "strategies-references", &["get", "get"][..]),
        (true, "strategies-references-old", &["get", "get", "get"]),
    ] {
        let options = options(ChangeDetection::Cache).invalidate_on_update(invalidate);
        let secrets = manager(client_named("admin.yaml", agent), options);
        secrets.register_pod(&pod("a", &[name]));
        read(&secrets, name);
        secrets.register_pod(&pod("a", &[name]));
        read(&secrets, name);
        secrets.register_pod(&pod("b", &[name]));
        read(&secrets, name);
        secrets.unregister_pod(&pod("b", &[name]));
        read(&secrets, name);
        assert_eq!(asked_for(agent, name), expected, "{invalidate}");
        secrets.unregister_pod(&pod("a", &[name]));
        let error = secrets.get(NAMESPACE, name).unwrap_err();
        assert_eq!(
            error.to_string(),
            "object \"strategies\"/\"referenced\" not registered"
        );
        assert_eq!(asked_for(agent, name), expected, "OS-4: no request");
    }
}

/// SC-2: each read is one consistent get, also of what nobody registered.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn sc_2_each_read_of_a_fetching_manager_is_one_consistent_get() {
    let _up = cluster();
    let (name, agent) = ("fetched", "strategies-get");
    write(name, "1");
    let secrets = manager(
        client_named("admin.yaml", agent),
        options(ChangeDetection::Get),
    );
    assert_eq!(read(&secrets, name), "1");
    secrets.register_pod(&pod("a", &[name]));
    let second = write(name, "2");
    assert_eq!(read(&secrets, name), "2");
    assert_eq!(read_fresh(&secrets, name), "2");
    assert_eq!(read_at_least(&secrets, name, &second), "2");
    secrets.unregister_pod(&pod("a", &[name]));
    assert_eq!(read(&secrets, name), "2");
    let at_second = format!("get {second}");
    assert_eq!(
        asked_for(agent, name),
        ["get", "get", "get", &at_second, "get"]
    );
    delete(name);
    let error = secrets.get(NAMESPACE, name).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(asked_by(agent).len(), 6, "and no list, no watch");
}

/// OC-10, OS-11, OS-16: a Secret that was deleted, and then is made again, is seen by each
/// strategy.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn os_11_os_16_a_deletion_and_a_new_creation_are_seen_by_each_strategy() {
    let _up = cluster();
    for mode in ChangeDetection::ALL {
        let name = format!("deleted-{}", mode.as_str().to_lowercase());
        let agent = format!("strategies-{name}");
        write(&name, "1");
        let clock = FakeClock::new();
        let options = match mode {
            ChangeDetection::Cache => options(mode).clock(clock.clone().into()),
            ChangeDetection::Watch | ChangeDetection::Get => options(mode),
        };
        let secrets = manager(client_named("admin.yaml", &agent), options);
        let changes = secrets.subscribe();
        secrets.register_pod(&pod("a", &[&name]));
        assert_eq!(read(&secrets, &name), "1");
        delete(&name);
        let gone = || secrets.get(NAMESPACE, &name).err();
        match mode {
            ChangeDetection::Watch => {
                while gone().is_none() {
                    changes.signal().recv_timeout(PATIENCE).unwrap();
                }
            }
            ChangeDetection::Cache => {
                assert!(gone().is_none(), "not before the time to live");
                clock.advance(MINUTE);
                assert!(gone().is_some());
            }
            ChangeDetection::Get => assert!(gone().is_some()),
        }
        let error = gone().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().contains(&format!("{name:?} not found")),
            "{error}"
        );
        write(&name, "2");
        while gone().is_some() {
            assert_eq!(mode, ChangeDetection::Watch, "the others ask each time");
            changes.signal().recv_timeout(PATIENCE).unwrap();
        }
        assert_eq!(read(&secrets, &name), "2");
        let asked = asked_for(&agent, &name);
        match mode {
            ChangeDetection::Watch => assert_eq!(asked.len(), 2, "{asked:?}"),
            // OS-7 asks the server's cache only while a good object is held, OS-11 confirms its
            // absence once, OS-16 asks
            // each time while none is held.
            ChangeDetection::Cache => assert_eq!(asked, ["get", "get 0", "get", "get", "get"]),
            ChangeDetection::Get => assert_eq!(asked, vec!["get"; asked.len()]),
        }
    }
}

/// OS-6, OS-18: the node's annotation decides, from the next read on.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn os_18_the_annotation_of_a_real_node_is_the_time_to_live() {
    let _up = cluster();
    let (name, agent) = ("annotated", "strategies-node-ttl");
    let admin = client_of("admin.yaml");
    let annotate = |ttl: &str| {
        apply(&format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: annotated, \
             annotations: {{node.alpha.kubernetes.io/ttl: \"{ttl}\"}}}}}}"
        ));
        get::<Node>(&admin, "", "annotated").unwrap()
    };
    write(name, "1");
    let ttl = NodeTtl::new();
    let clock = FakeClock::new();
    let options = options(ChangeDetection::Cache)
        .clock(clock.clone().into())
        .node_ttl(ttl.clone());
    let secrets = manager(client_named("admin.yaml", agent), options);
    secrets.register_pod(&pod("a", &[name]));
    let asked_after = |reads: usize| {
        for _ in 0..reads {
            read(&secrets, name);
        }
        asked_for(agent, name).len()
    };
    ttl.observe(Some(&annotate("0").metadata));
    assert_eq!(asked_after(5), 5, "each read asks");
    write(name, "2");
    assert_eq!(read(&secrets, name), "2", "at once");
    ttl.observe(Some(&annotate("15").metadata));
    assert_eq!(asked_after(5), 6);
    clock.advance(Duration::from_secs(15).saturating_sub(MILLISECOND));
    assert_eq!(asked_after(1), 6);
    clock.advance(MILLISECOND);
    assert_eq!(asked_after(5), 7);
    ttl.observe(Some(&annotate("soon").metadata));
    clock.advance(Duration::from_secs(15));
    assert_eq!(asked_after(1), 7, "not a number: the default of a minute");
    ttl.observe(None);
    clock.advance(MINUTE);
    assert_eq!(asked_after(2), 8);
}

/// R4, OS-12, B17: the node authorizer's refusal, in its words, and what it takes to see a binding.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn as_the_node_a_secret_of_another_node_is_refused_at_once_where_it_is_fetched() {
    let _up = cluster();
    let (theirs, ours) = ("back-office-ssh", "storefront-session");
    for mode in [ChangeDetection::Cache, ChangeDetection::Get] {
        let agent = format!("strategies-node-{mode}");
        let clock = FakeClock::new();
        let options = options(mode).clock(clock.clone().into());
        let secrets = manager(client_named("node.yaml", &agent), options);
        if mode == ChangeDetection::Cache {
            let stranger = secrets.get("shop", ours).unwrap_err();
            assert_eq!(stranger.kind(), ErrorKind::NotRegistered);
            assert!(asked_by(&agent).is_empty(), "OS-4: no request");
        }
        secrets.register_pod(&pod_in("shop", "impostor", &[theirs, ours]));
        for _ in 0..3 {
            let refused = secrets.get("shop", theirs).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Forbidden, "{refused}");
            let words = "no relationship found between node";
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert!(secrets.get("shop", ours).is_ok());
        // B17: one request, and the answer to it until the backoff is over; SC-2: each asks.
        let expected = match mode {
            ChangeDetection::Cache => 1,
            ChangeDetection::Watch | ChangeDetection::Get => 3,
        };
        assert_eq!(asked_for(&agent, theirs), vec!["get"; expected]);
        clock.advance(Duration::from_millis(50));
        assert!(secrets.get("shop", theirs).is_err());
        let asked = asked_by(&agent);
        let codes = asked.iter().map(|asked| (asked.name.as_str(), asked.code));
        let refused = codes.clone().filter(|code| *code == (theirs, 403)).count();
        assert_eq!(refused, expected + 1, "{asked:?}");
        assert_eq!(codes.filter(|code| *code == (ours, 200)).count(), 1);
        assert!(asked.iter().all(|asked| asked.verb == "get"), "{asked:?}");
    }
}

/// R11: a version that the server has not come to is told in its words.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_version_from_the_future_is_waited_for_and_then_told_in_the_servers_words() {
    let _up = cluster();
    write("future", "1");
    for mode in ChangeDetection::ALL {
        let agent = format!("strategies-future-{mode}");
        let secrets = manager(client_named("admin.yaml", &agent), options(mode));
        secrets.register_pod(&pod("a", &["future"]));
        assert_eq!(read(&secrets, "future"), "1");
        let version = ResourceVersion::from("99999999");
        let words = "Too large resource version: 99999999, current: ";
        // The server holds a get for three seconds before it says so.
        let told = [4, 16, 64].into_iter().any(|seconds| {
            let deadline = Clock::system().after(Duration::from_secs(seconds));
            let read = secrets.get_at_least(NAMESPACE, "future", &version, deadline);
            let error = read.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            let told = format!("{error} {:?}", error.last_error().map(ToString::to_string));
            told.contains(words)
        });
        assert!(told, "{mode}");
        let asked = asked_for(&agent, "future");
        assert!(asked.contains(&"get 99999999".to_owned()), "{asked:?}");
    }
}

/// The API of a client, with its gets counted: the audit log cannot count what a stopped server
/// does not see.
struct Counting {
    client: Client,
    gets: Arc<AtomicUsize>,
}

struct CountingGetter {
    getter: Arc<dyn Getter<Secret>>,
    gets: Arc<AtomicUsize>,
}

impl Api<Secret> for Counting {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<Secret>> {
        self.client.lister_watcher(scope)
    }

    fn getter(&self) -> Arc<dyn Getter<Secret>> {
        Arc::new(CountingGetter {
            getter: self.client.getter(),
            gets: Arc::clone(&self.gets),
        })
    }
}

impl Getter<Secret> for CountingGetter {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.getter.get(key, version, deadline, stop)
    }
}

/// B17, OS-13: while the server is away the cached object is served with its age and the failure,
/// and requests back off; when it is back, one request brings the present state.
#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn b17_os_13_while_the_server_is_away_requests_back_off_and_the_cached_object_is_served() {
    let _alone = cluster_alone();
    let (name, agent) = ("away", "strategies-away");
    write(name, "1");
    let (gets, clock) = (Arc::new(AtomicUsize::new(0)), FakeClock::new());
    let api = Counting {
        client: client_named("admin.yaml", agent),
        gets: Arc::clone(&gets),
    };
    let options = options(ChangeDetection::Cache)
        .clock(clock.clone().into())
        .get_timeout(Duration::from_secs(60 * 60));
    let secrets = SecretManager::new(api, options).unwrap();
    secrets.register_pod(&pod("a", &[name]));
    assert_eq!(read(&secrets, name), "1");
    let fetching = manager(
        client_named("admin.yaml", "strategies-away-get"),
        ManagerOptions::default().change_detection(ChangeDetection::Get),
    );
    control("stop-apiserver");
    clock.advance(MINUTE);
    let mut tried = 1;
    for backoff in [50, 100, 200, 400] {
        tried += 1;
        for _ in 0..10 {
            let cached = secrets.get(NAMESPACE, name).unwrap();
            assert_eq!(value_of(&cached), "1");
            assert!(cached.is_stale() && cached.age() >= MINUTE);
            assert_eq!(cached.last_error().unwrap().kind(), ErrorKind::Unreachable);
        }
        assert_eq!(gets.load(Ordering::SeqCst), tried, "{backoff} ms");
        clock.advance(Duration::from_millis(backoff).saturating_sub(MILLISECOND));
        assert!(secrets.get(NAMESPACE, name).is_ok());
        assert_eq!(gets.load(Ordering::SeqCst), tried, "{backoff} ms");
        clock.advance(MILLISECOND);
    }
    let error = fetching.get(NAMESPACE, name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    control("start-apiserver");
    write(name, "2");
    assert_eq!(read(&secrets, name), "2");
    assert_eq!(read(&fetching, name), "2");
    assert_eq!(gets.load(Ordering::SeqCst), tried + 1);
    assert_eq!(asked_for(agent, name), ["get", "get 0"]);
    assert_eq!(asked_for("strategies-away-get", name), ["get"]);
    drop((secrets, fetching));
    assert_eq!(live_workers(), 0, "no thread outlives its owner");
}
