//! A manager follows the pods of an informer, for as long as its guard lives.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use crossbeam_channel::bounded;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_derive::Deserialize;

use super::stage::{Stage, unavailable};
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::informer::{InformerOptions, SharedInformer};
use crate::manager::{
    ConfigMapManager, FollowedPods, ManagerOptions, ObjectManager, Owner, ReferencedByPods,
    SecretManager,
};
use crate::object::{Object, ObjectKey};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, objects};
use crate::tests::until::until;

/// Bounds a failure: what a test waits for does not come.
const LONG: Duration = Duration::from_secs(60);

/// A pod that references these Secrets, and a ConfigMap of its own name. Its server gives it a uid:
/// `uid-1` to the first one.
fn pod(name: &str, secrets: &[&str]) -> Pod {
    let mut pod = objects::pod("shop", name, "node-1", secrets, &[name]);
    pod.metadata.uid = None;
    pod
}

fn in_phase(mut pod: Pod, phase: &str) -> Pod {
    let phase = Some(phase.to_owned());
    pod.status = Some(PodStatus {
        phase,
        ..PodStatus::default()
    });
    pod
}

struct Node {
    pods: FakeSource<Pod>,
    informer: SharedInformer<Pod>,
}

impl Node {
    fn new() -> Self {
        let pods = FakeSource::<Pod>::new();
        let source = Arc::new(pods.clone());
        Self {
            informer: SharedInformer::new(source, InformerOptions::default()),
            pods,
        }
    }

    /// A node of two pods that a manager follows.
    fn followed() -> (Self, SecretManager, FollowedPods) {
        let (node, secrets) = (Self::new(), secrets());
        node.pods.set(pod("a", &["x", "y"]));
        node.pods.set(pod("b", &["y"]));
        let followed = secrets.follow_pods(&node.informer).unwrap();
        node.informer.start().unwrap();
        followed.wait_until_synced(LONG).unwrap();
        let expected = [("Pod shop/a uid-1", "x y"), ("Pod shop/b uid-2", "y")];
        assert_eq!(references(&secrets), of(&expected), "once synced");
        (node, secrets, followed)
    }

    /// Loses the watch, changes the server, and lets the informer list again.
    fn relist(&self, change: impl FnOnce(&FakeSource<Pod>)) {
        self.pods.fail_all(RequestKind::List, unavailable());
        self.pods.fail_all(RequestKind::Watch, unavailable());
        self.pods.expire_watches();
        self.pods.wait_for_watches(0);
        change(&self.pods);
        self.pods.compact();
        self.pods.heal();
    }
}

fn secrets() -> SecretManager {
    SecretManager::new(FakeSource::new(), ManagerOptions::default()).unwrap()
}

/// The owners, with the names that they reference.
type Referenced = BTreeMap<String, String>;

fn of(references: &[(&str, &str)]) -> Referenced {
    let references = references.iter();
    references
        .map(|(owner, names)| ((*owner).to_owned(), (*names).to_owned()))
        .collect()
}

fn references<K: Object>(manager: &ObjectManager<K>) -> Referenced {
    let owners = manager.inspect().into_iter();
    let references = owners.map(|(owner, objects)| {
        let names: Vec<_> = objects.iter().map(|object| object.key.name()).collect();
        (format!("{owner} {}", owner.uid()), names.join(" "))
    });
    references.collect()
}

#[track_caller]
fn wait_for<K: Object>(manager: &ObjectManager<K>, expected: &[(&str, &str)]) {
    let (clock, expected) = (Clock::system(), of(expected));
    let late = clock.after(LONG);
    until(|| {
        let present = references(manager);
        let is_so = present == expected;
        assert!(
            is_so || !clock.has_passed(late),
            "{present:?}, not {expected:?}"
        );
        is_so
    });
}

fn registry(manager: &SecretManager) -> Weak<impl Sized + use<>> {
    Arc::downgrade(&manager.store().keeper().context.registry)
}

#[test]
fn pods_are_registered_as_they_come_change_and_go() {
    let (node, secrets, _followed) = Node::followed();
    node.pods.set(pod("c", &["z"]));
    let (a, b) = (("Pod shop/a uid-1", "x y"), ("Pod shop/b uid-2", "y"));
    wait_for(&secrets, &[a, b, ("Pod shop/c uid-3", "z")]);
    node.pods.set(pod("c", &["x"]));
    wait_for(&secrets, &[a, b, ("Pod shop/c uid-3", "x")]);
    node.pods.delete("shop", "c");
    wait_for(&secrets, &[a, b]);
}

/// As in the kubelet: pods that have ended for good need no objects.
#[test]
fn a_pod_that_has_ended_is_unregistered() {
    let (node, secrets, _followed) = Node::followed();
    let a = ("Pod shop/a uid-1", "x y");
    node.pods.set(in_phase(pod("b", &["y"]), "Running"));
    node.pods.set(in_phase(pod("b", &["y"]), "Failed"));
    wait_for(&secrets, &[a]);
    node.pods.set(in_phase(pod("d", &["y"]), "Succeeded"));
    node.pods.delete("shop", "d");
    // The handler is told in the order of the events.
    node.pods.set(pod("e", &[]));
    node.pods.set(pod("e", &["x"]));
    wait_for(&secrets, &[a, ("Pod shop/e uid-4", "x")]);
}

/// Seen: its references of the process before, which a snapshot had, stayed.
#[test]
fn a_pod_that_ended_in_the_time_of_no_process_is_unregistered() {
    let (node, secrets, _followed) = Node::followed();
    let owner = Owner::with_uid("Pod", ObjectKey::new("shop", "d"), "uid-3");
    secrets.set_references(&owner, [ObjectKey::new("shop", "y")]);
    node.pods.set(in_phase(pod("d", &["y"]), "Succeeded"));
    wait_for(
        &secrets,
        &[("Pod shop/a uid-1", "x y"), ("Pod shop/b uid-2", "y")],
    );
}

#[test]
fn a_relist_tells_of_missing_pods_and_of_pods_that_were_made_again() {
    let (node, secrets, _followed) = Node::followed();
    node.relist(|pods| {
        pods.delete("shop", "b");
        pods.delete("shop", "a");
        pods.set(pod("a", &["x", "z"]));
    });
    wait_for(&secrets, &[("Pod shop/a uid-3", "x z")]);
}

#[test]
fn the_drop_of_the_guard_unregisters_its_pods_and_no_others() {
    let (node, secrets, followed) = Node::followed();
    secrets.register_pod(&pod("own", &["x"]));
    drop(followed);
    let own = ("Pod shop/own ", "x");
    assert_eq!(references(&secrets), of(&[own]), "at once");
    assert!(node.informer.registrations().is_empty());
    node.pods.set(pod("late", &["x"]));
    node.informer
        .wait_until(&pod("late", &[]).key(), |pod| pod.is_some(), LONG)
        .unwrap();
    assert_eq!(references(&secrets), of(&[own]));
    // Another guard begins anew.
    let again = secrets.follow_pods(&node.informer).unwrap();
    again.wait_until_synced(LONG).unwrap();
    assert_eq!(references(&secrets).len(), 4);
}

#[test]
fn two_managers_follow_one_informer() {
    let (node, secrets, followed) = Node::followed();
    let config_maps = ConfigMapManager::new(FakeSource::new(), ManagerOptions::default()).unwrap();
    let of_maps = config_maps.follow_pods(&node.informer).unwrap();
    of_maps.wait_until_synced(LONG).unwrap();
    node.pods.set(pod("c", &["z"]));
    let maps = [
        ("Pod shop/a uid-1", "a"),
        ("Pod shop/b uid-2", "b"),
        ("Pod shop/c uid-3", "c"),
    ];
    wait_for(&config_maps, &maps);
    drop(followed);
    assert!(references(&secrets).is_empty());
    node.pods.delete("shop", "c");
    wait_for(&config_maps, &maps[..2]);
}

#[test]
fn an_informer_that_ends_first_leaves_the_pods_registered_until_the_guard_drops() {
    let (node, secrets, followed) = Node::followed();
    let registered = references(&secrets);
    node.informer.shutdown(LONG).unwrap();
    assert_eq!(references(&secrets), registered);
    let refused = secrets.follow_pods(&node.informer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopped);
    drop(node);
    assert_eq!(references(&secrets), registered);
    drop(followed);
    assert!(references(&secrets).is_empty());
}

#[test]
fn a_manager_that_ends_first_ends_with_the_guard() {
    let (node, secrets, followed) = Node::followed();
    let left = registry(&secrets);
    secrets.shutdown(LONG).unwrap();
    node.pods.set(pod("c", &["z"]));
    drop(secrets);
    assert!(left.strong_count() > 0, "the guard has a clone");
    drop(followed);
    assert_eq!(left.strong_count(), 0);
    node.informer.shutdown(LONG).unwrap();
}

#[test]
fn a_guard_of_an_informer_that_never_starts_drops() {
    let (node, secrets) = (Node::new(), secrets());
    drop(secrets.follow_pods(&node.informer).unwrap());
    assert!(node.informer.registrations().is_empty());
}

/// Code of the program drops the guard within the handler's own call, and panics in another one.
#[test]
fn code_of_the_program_may_panic_in_the_handler_and_drop_its_guard_there() {
    let stage = Stage::watching().start();
    let node = Node::new();
    node.pods.set(pod("a", &["x"]));
    node.pods.set(pod("b", &["y"]));
    let (give, guard) = bounded::<FollowedPods>(1);
    let (dropped, has_dropped) = bounded(1);
    stage.faulty.panic_in("metadata.name=x", usize::MAX);
    stage.faulty.act_in("metadata.name=y", "hd-", move || {
        drop(guard.recv().unwrap());
        dropped.send(()).unwrap();
    });
    let followed = stage.manager.follow_pods(&node.informer).unwrap();
    node.informer.start().unwrap();
    give.send(followed).unwrap();
    has_dropped.recv_timeout(LONG).expect("the drop returns");
    // The call that dropped it ends, and with it the handler.
    wait_for(&stage.manager, &[]);
}

/// A kind that panics for a pod.
#[derive(Clone, Deserialize)]
struct Ticket {
    metadata: ObjectMeta,
}

impl k8s_openapi::Resource for Ticket {
    const API_VERSION: &'static str = "example.com/v1";
    const GROUP: &'static str = "example.com";
    const KIND: &'static str = "Ticket";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "tickets";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl Metadata for Ticket {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl ReferencedByPods for Ticket {
    fn visit_pod<'a>(pod: &'a Pod, visitor: &mut dyn FnMut(&'a str) -> bool) -> bool {
        assert!(pod.status.is_none(), "made up");
        visitor(pod.metadata.name.as_deref().unwrap_or_default())
    }
}

/// What was registered before a panic is unregistered when the pod goes.
#[test]
fn a_visit_that_panics_costs_that_change_of_its_pod_and_no_other() {
    let tickets = ObjectManager::<Ticket>::new(FakeSource::new(), ManagerOptions::default());
    let (node, tickets) = (Node::new(), tickets.unwrap());
    node.pods.set(pod("bad", &[]));
    let followed = tickets.follow_pods(&node.informer).unwrap();
    node.informer.start().unwrap();
    followed.wait_until_synced(LONG).unwrap();
    node.pods.set(in_phase(pod("bad", &[]), "Running"));
    node.pods.set(in_phase(pod("worse", &[]), "Running"));
    node.pods.set(pod("good", &[]));
    let good = ("Pod shop/good uid-3", "good");
    wait_for(&tickets, &[("Pod shop/bad uid-1", "bad"), good]);
    node.pods.delete("shop", "bad");
    node.pods.delete("shop", "worse");
    wait_for(&tickets, &[good]);
}
