//! kube-rs' side: watchers that reflect into stores, on the runtime's default threads.

#[path = "../../marks.rs"]
mod marks;
#[path = "../../medians.rs"]
mod medians;
#[path = "../../../reads/mod.rs"]
mod reads;

use std::fmt::Debug;
use std::hint::black_box;
use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use tokio::task::JoinHandle;

use marks::{Task, look_interval, order, tell};
use medians::{look, medians};

const NAMESPACE: &str = "shop";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[tokio::main]
async fn main() {
    let task = Task::from_arguments();
    match (task.scenario.as_str(), task.resource.as_str()) {
        ("collection", "configmaps") => collection::<ConfigMap>(&task).await,
        ("collection", "pods") => collection::<Pod>(&task).await,
        ("watches", _) => watches(&task).await,
        ("store", _) => store(&task).await,
        (other, _) => panic!("unknown scenario {other}"),
    }
}

async fn client(task: &Task) -> Client {
    let mut config = Config::new(task.url.parse().unwrap());
    if task.url.starts_with("https") {
        let pem = std::fs::read_to_string(&task.authority).unwrap();
        config.root_cert = Some(vec![der(&pem)]);
    }
    Client::try_from(config).unwrap()
}

/// The one certificate of a PEM file.
fn der(pem: &str) -> Vec<u8> {
    use k8s_openapi::ByteString;
    let lines = pem
        .lines()
        .skip_while(|line| !line.starts_with("-----BEGIN"));
    let lines = lines.skip(1).take_while(|line| !line.starts_with("-----"));
    let json = format!("\"{}\"", lines.collect::<String>());
    let bytes: ByteString = serde_json::from_str(&json).unwrap();
    bytes.0
}

/// A store that follows what the API says.
fn reflect<K>(api: Api<K>, config: watcher::Config, strip: bool) -> (Store<K>, JoinHandle<()>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, config).default_backoff();
    let handle = if strip {
        let stripped = events.modify(|object| {
            object.managed_fields_mut().clear();
            object.annotations_mut().remove(LAST_APPLIED);
        });
        tokio::spawn(drain(stripped.reflect(writer)))
    } else {
        tokio::spawn(drain(events.reflect(writer)))
    };
    (store, handle)
}

async fn drain<K>(
    events: impl futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
) {
    events
        .for_each(|event| async { drop(event.unwrap()) })
        .await;
}

/// The next order, without a thread of the runtime that waits for it.
async fn ordered() -> String {
    tokio::task::spawn_blocking(order).await.unwrap()
}

async fn collection<K>(task: &Task)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let api = Api::<K>::all(client(task).await);
    tell("up");
    ordered().await;
    let (store, handle) = reflect(api, watcher::Config::default(), task.way == "stripped");
    store.wait_until_ready().await.unwrap();
    assert_eq!(store.len(), task.count);
    tell("synced");
    if let Some(interval) = look_interval(&ordered().await) {
        let last = ObjectRef::new("the-last").within("team-0");
        while store.get(&last).is_none() {
            tokio::time::sleep(interval).await;
        }
        tell("done");
        ordered().await;
    }
    handle.abort();
}

fn names(task: &Task) -> Vec<String> {
    (0..task.count).map(|nth| format!("secret-{nth}")).collect()
}

async fn watches(task: &Task) {
    let client = client(task).await;
    tell("up");
    ordered().await;
    let started: Vec<_> = names(task)
        .into_iter()
        .map(|name| {
            let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            let (store, handle) = reflect(api, config, false);
            (ObjectRef::new(&name).within(NAMESPACE), store, handle)
        })
        .collect();
    for (object, store, _) in &started {
        store.wait_until_ready().await.unwrap();
        assert!(store.get(object).is_some());
    }
    tell("read");
    if ordered().await == "stop" {
        let begun = Instant::now();
        for (_, _, handle) in &started {
            handle.abort();
        }
        for (_, _, handle) in started {
            assert!(handle.await.unwrap_err().is_cancelled());
        }
        tell(&format!("stopped {}", begun.elapsed().as_secs_f64()));
        ordered().await;
    }
}

async fn store(task: &Task) {
    let api = Api::<Secret>::namespaced(client(task).await, NAMESPACE);
    tell("up");
    ordered().await;
    let (store, handle) = reflect(api, watcher::Config::default(), false);
    store.wait_until_ready().await.unwrap();
    tell("read");
    ordered().await;
    let (names, looks) = (names(task), task.way == "reflect-looks");
    let measured = tokio::task::spawn_blocking(move || measure(&store, &names, looks));
    measured.await.unwrap();
    ordered().await;
    handle.abort();
}

/// Nanoseconds of a read on one thread, and on each of two.
fn measure(store: &Store<Secret>, names: &[String], looks: bool) {
    let read = |name: &str| {
        let object = ObjectRef::new(name).within(NAMESPACE);
        let found = black_box(store.get(&object).unwrap());
        if looks {
            black_box(look(&found));
        }
    };
    let [one, two] = medians(names, read);
    tell(&format!("got {one} {two}"));
}
