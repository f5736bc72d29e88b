//! The write fence at a real server: behind it each cache has what the program wrote, and a cache
//! that is cut off is named until it is back.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline};
use kubecache::fence::{FencedCache, WriteFence};
use kubecache::http::{Client, Patch, WriteOptions};
use kubecache::informer::{InformerOptions, InformerSet, InformerSetOptions, SharedInformer};
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::{Object, ObjectKey, Scope, StoredObject};
use serde::Serialize;
use serde_json::{Value, json};

use super::gateway::Gateway;
use super::support::*;

/// A namespace that exists for these tests alone.
const NAMESPACE: &str = "fence";

/// How long a wait takes that must fail.
const SHORT: Duration = Duration::from_secs(2);

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

fn owner(name: &str) -> Owner {
    Owner::new("Fence", ObjectKey::new(NAMESPACE, name))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

fn prepare() -> Client {
    apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
    ));
    let client = client_of("admin.yaml");
    for name in ["web", "db", "cut"] {
        for kind in ["configmaps", "secrets", "serviceaccounts"] {
            drop(remove(&client, kind, name));
        }
    }
    client
}

fn remove(client: &Client, kind: &str, name: &str) -> Result<(), kubecache::Error> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/{kind}/{name}");
    let request = kubecache::http::Request::new("DELETE", path);
    client.send(&request, soon()).map(drop)
}

/// The object in a cache.
type Held<K> = Option<Arc<StoredObject<K>>>;

/// One kind of the program: how it writes an object, and how its cache has it.
struct Writes<'a, K: Object> {
    client: &'a Client,
    fence: &'a WriteFence,
    owner: Owner,
    name: &'a str,
    /// Each cache that brings it.
    caches: Vec<FencedCache>,
    /// What each of them has.
    held: Box<dyn Fn() -> Vec<Held<K>> + 'a>,
}

impl<K: Object + Serialize> Writes<'_, K> {
    /// Creates, changes, deletes, and makes again, and looks behind the fence each time.
    fn write(&self, round: usize) {
        let first = self.create(&json!({"one": round.to_string()}));
        self.check(Some(&first));
        let changed = json!({"metadata": {"annotations": {"two": round.to_string()}}});
        let (key, whole) = (key(self.name), WriteOptions::default());
        let patch = Patch::Merge(changed);
        let changed = self.client.patch::<K>(&key, &patch, &whole, soon());
        let changed = changed.unwrap();
        self.wrote(&changed);
        self.check(Some(&changed));
        self.delete(first.uid());
        self.check(None);
        // Without a look in between.
        let second = self.create(&json!({"three": round.to_string()}));
        self.delete(second.uid());
        let third = self.create(&json!({"four": round.to_string()}));
        assert_ne!(first.uid(), third.uid());
        self.check(Some(&third));
        self.delete(third.uid());
        self.check(None);
    }

    fn create(&self, annotations: &Value) -> Arc<StoredObject<K>> {
        let metadata =
            json!({"name": self.name, "namespace": NAMESPACE, "annotations": annotations});
        let object: K = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let whole = WriteOptions::default();
        let created = self.client.create(&object, &whole, soon()).unwrap();
        self.wrote(&created);
        created
    }

    fn wrote(&self, object: &StoredObject<K>) {
        let version = object.resource_version();
        for cache in &self.caches {
            let noted = self.fence.wrote(&self.owner, cache.clone(), &version);
            noted.unwrap();
        }
    }

    fn delete(&self, uid: &str) {
        let (key, whole) = (key(self.name), WriteOptions::default());
        let deleted = self.client.delete::<K>(&key, &Value::Null, &whole, soon());
        deleted.unwrap();
        for cache in &self.caches {
            self.fence.deleted(&self.owner, cache.clone(), &key, uid);
        }
    }

    fn check(&self, expected: Option<&Arc<StoredObject<K>>>) {
        self.fence.wait_until_seen(&self.owner, soon()).unwrap();
        let state = |object: &StoredObject<K>| {
            (
                object.uid().to_owned(),
                object.resource_version().as_str().to_owned(),
            )
        };
        let expected = expected.map(|object| state(object));
        for held in (self.held)() {
            assert_eq!(held.map(|held| state(&held)), expected, "{}", self.name);
        }
        assert!(
            !self.fence.owners().contains(&self.owner),
            "nothing is kept"
        );
    }
}

/// What a manager answers of its object.
fn managed(manager: &SecretManager, name: &str) -> Held<Secret> {
    match manager.get(NAMESPACE, name) {
        Ok(held) => Some(Arc::clone(held.stored())),
        Err(error) if error.is_not_found() => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn what_a_program_wrote_is_in_each_cache_behind_the_fence() {
    let _up = cluster();
    let client = prepare();
    let source = watcher::<ConfigMap>(&client, Scope::namespace(NAMESPACE));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    let options = InformerSetOptions::default().scope(Scope::namespace(NAMESPACE));
    let set = InformerSet::new(client.clone(), options);
    let maps = set.informer::<ConfigMap>().unwrap();
    let accounts = set.informer::<ServiceAccount>().unwrap();
    set.start().unwrap();
    let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let fence = WriteFence::new(Clock::system());

    // Two owners write at once.
    thread::scope(|scope| {
        for name in ["web", "db"] {
            let (client, fence, secrets) = (&client, &fence, &secrets);
            let stores = [informer.store(), maps.store()];
            let accounts = accounts.store();
            scope.spawn(move || {
                secrets.add_reference(&owner(name), &key(name));
                let of_maps = Writes::<ConfigMap> {
                    client,
                    fence,
                    owner: owner(name),
                    name,
                    caches: stores.map(FencedCache::from).to_vec(),
                    held: Box::new(move || {
                        let held = stores.map(|store| store.get(NAMESPACE, name).unwrap());
                        held.into()
                    }),
                };
                let of_secrets = Writes::<Secret> {
                    client,
                    fence,
                    owner: owner(name),
                    name,
                    caches: vec![FencedCache::from((secrets, &key(name)))],
                    held: Box::new(move || vec![managed(secrets, name)]),
                };
                let of_accounts = Writes::<ServiceAccount> {
                    client,
                    fence,
                    owner: owner(name),
                    name,
                    caches: vec![FencedCache::from(accounts)],
                    held: Box::new(move || vec![accounts.get(NAMESPACE, name).unwrap()]),
                };
                for round in 0..5 {
                    of_maps.write(round);
                    of_secrets.write(round);
                    of_accounts.write(round);
                }
            });
        }
    });
    assert!(fence.owners().is_empty());
    informer.shutdown(soon()).unwrap();
    set.shutdown(soon()).unwrap();
    secrets.shutdown(soon()).unwrap();
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_cache_that_is_cut_off_is_named_and_the_wait_ends_once_it_is_back() {
    let _up = cluster();
    let client = prepare();
    let gateway = Gateway::start();
    let far = client_at("admin.yaml", gateway.url());
    let start = |client: &Client| {
        let source = watcher::<ConfigMap>(client, Scope::namespace(NAMESPACE));
        let informer = SharedInformer::new(source, InformerOptions::default());
        informer.start().unwrap();
        informer.wait_until_synced(soon()).unwrap();
        informer
    };
    let (near, cut) = (start(&client), start(&far));
    let secrets = SecretManager::new(far, ManagerOptions::default()).unwrap();
    secrets.add_reference(&owner("cut"), &key("cut"));
    let absent = secrets.get_by(NAMESPACE, "cut", soon());
    assert!(absent.unwrap_err().is_not_found());

    gateway.close();
    let fence = WriteFence::new(Clock::system());
    let of =
        |kind: &str| json!({"kind": kind, "metadata": {"name": "cut", "namespace": NAMESPACE}});
    let whole = WriteOptions::default();
    let map: ConfigMap = serde_json::from_value(of("ConfigMap")).unwrap();
    let map = client.create(&map, &whole, soon()).unwrap();
    for informer in [&near, &cut] {
        let noted = fence.wrote(&owner("cut"), informer.store(), &map.resource_version());
        noted.unwrap();
    }
    let secret: Secret = serde_json::from_value(of("Secret")).unwrap();
    let secret = client.create(&secret, &whole, soon()).unwrap();
    let version = secret.resource_version();
    fence
        .wrote(&owner("cut"), (&secrets, &key("cut")), &version)
        .unwrap();

    let late = fence.wait_until_seen(&owner("cut"), SHORT).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    let text = late.to_string();
    let (of_map, of_secret) = text.split_once("; ").unwrap();
    let names = [
        (
            of_map,
            "the SharedInformer ConfigMap cache",
            map.resource_version(),
        ),
        (of_secret, "the manager's Secret fence/cut", version),
    ];
    for (text, name, version) in names {
        let start = format!("{name} has not seen version {version}, noted ");
        let age = text
            .strip_prefix(&start)
            .unwrap_or_else(|| panic!("{text}"));
        let age = age.strip_suffix("s ago").unwrap();
        assert!(age.parse::<f64>().unwrap() >= SHORT.as_secs_f64(), "{text}");
    }
    // The near cache has seen it, and the far ones do once they may.
    assert!(near.store().get(NAMESPACE, "cut").unwrap().is_some());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| fence.wait_until_seen(&owner("cut"), soon()));
        gateway.open();
        waiting.join().unwrap().unwrap();
    });
    assert!(cut.store().get(NAMESPACE, "cut").unwrap().is_some());
    assert_eq!(managed(&secrets, "cut").unwrap().uid(), secret.uid());
    assert!(fence.owners().is_empty());
    near.shutdown(soon()).unwrap();
    cut.shutdown(soon()).unwrap();
    secrets.shutdown(soon()).unwrap();
}
