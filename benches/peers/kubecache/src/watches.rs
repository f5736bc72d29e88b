//! Watches of single objects, read, stopped and joined; and a store of as many objects, read.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Secret, SecretVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::clock::Deadline;
use kubecache::manager::{ManagerOptions, Owner, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};

use crate::marks::{Task, order, tell};
use crate::medians::{look, medians};

const NAMESPACE: &str = "shop";

pub(crate) fn names(task: &Task) -> Vec<String> {
    (0..task.count).map(|nth| format!("secret-{nth}")).collect()
}

/// Objects that each pod of the way `pods` refers to.
const PER_POD: usize = 10;

pub(crate) fn run(task: &Task) {
    match task.way.as_str() {
        "manager" | "manager-looks" | "pods" => manager(task),
        "reflectors" => reflectors(task),
        other => panic!("unknown way {other}"),
    }
}

fn manager(task: &Task) {
    let names = names(task);
    let options = ManagerOptions::default().watches_max(task.count);
    let manager = SecretManager::new(crate::client(task), options).unwrap();
    tell("up");
    order();
    if task.way == "pods" {
        for (nth, names) in names.chunks(PER_POD).enumerate() {
            manager.register_pod(&pod(nth, names));
        }
    } else {
        let owner = Owner::new("Pod", ObjectKey::new(NAMESPACE, "pod"));
        let keys = names
            .iter()
            .map(|name| ObjectKey::new(NAMESPACE, name.as_str()));
        manager.set_references(&owner, keys);
    }
    for name in &names {
        drop(manager.get_by(NAMESPACE, name, Deadline::NEVER).unwrap());
    }
    tell("read");
    let mut next = order();
    if next == "get" {
        if task.way == "manager-looks" {
            measure(&names, |name| {
                black_box(look(&manager.get(NAMESPACE, name).unwrap()));
            });
        } else {
            measure(&names, |name| {
                drop(black_box(manager.get(NAMESPACE, name).unwrap()));
            });
        }
        next = order();
    }
    if next == "stop" {
        let begun = Instant::now();
        manager.shutdown(Deadline::NEVER).unwrap();
        tell(&format!("stopped {}", begun.elapsed().as_secs_f64()));
    }
}

/// A pod with a volume of each of the Secrets.
fn pod(nth: usize, names: &[String]) -> Pod {
    let volume = |name: &String| Volume {
        name: name.clone(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name.clone()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    Pod {
        metadata: ObjectMeta {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some(format!("pod-{nth}")),
            uid: Some(format!("uid-{nth}")),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            volumes: Some(names.iter().map(volume).collect()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn reflectors(task: &Task) {
    let names = names(task);
    let client = crate::client(task);
    tell("up");
    order();
    let spawn = |name: &String| {
        let key = ObjectKey::new(NAMESPACE, name.as_str());
        let source = client.lister_watcher::<Secret>(Scope::object(&key));
        let options = ReflectorOptions::default().watch_list(false);
        Store::spawn(key.to_string(), source, Indexers::new(), options).unwrap()
    };
    let spawned: Vec<_> = names.iter().map(spawn).collect();
    for ((store, _), name) in spawned.iter().zip(&names) {
        store.wait_until_synced(Deadline::NEVER).unwrap();
        assert!(store.get(NAMESPACE, name).unwrap().is_some());
    }
    tell("read");
    if order() == "stop" {
        let begun = Instant::now();
        for (_, reflector) in &spawned {
            reflector.stop();
        }
        drop(spawned);
        tell(&format!("stopped {}", begun.elapsed().as_secs_f64()));
    }
}

pub(crate) fn store(task: &Task) {
    let source = crate::client(task).lister_watcher::<Secret>(Scope::namespace(NAMESPACE));
    let options = ReflectorOptions::default().watch_list(false);
    tell("up");
    order();
    let (store, _reflector) = Store::spawn("peers", source, Indexers::new(), options).unwrap();
    store.wait_until_synced(Deadline::NEVER).unwrap();
    tell("read");
    order();
    let names = names(task);
    if task.way == "store-looks" {
        measure(&names, |name| {
            black_box(look(&store.get(NAMESPACE, name).unwrap().unwrap()));
        });
    } else {
        measure(&names, |name| {
            let object: Arc<_> = store.get(NAMESPACE, name).unwrap().unwrap();
            drop(black_box(object));
        });
    }
    order();
}

/// Nanoseconds of a read on one thread, and on each of two.
pub(crate) fn measure(names: &[String], read: impl Fn(&str) + Copy + Send) {
    let [one, two] = medians(names, read);
    tell(&format!("got {one} {two}"));
}
