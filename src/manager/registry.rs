//! The registered pods and the names each of them holds: what changes when one comes, changes or goes (CM-1..CM-6).

use std::collections::BTreeSet;

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::Pod;

use crate::object::{Object as _, ObjectKey};

/// What identifies a registration: a pod of the same name with another uid is another one (CM-3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodId {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Box<str>,
}

impl PodId {
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            key: pod.key(),
            uid: pod.uid().into(),
        }
    }

    fn object(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.key.namespace(), name)
    }
}

/// The registered pods of one kind of object. It keeps names, not pods, so a pod that is changed in place after its
/// registration cannot mislead it (CM-5).
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pods: HashMap<PodId, BTreeSet<Box<str>>>,
}

/// What a registration changes: keys to reference and keys to let go, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Vec<ObjectKey>,
    pub(crate) removed: Vec<ObjectKey>,
}

impl Registry {
    /// Remembers that the pod holds exactly `names` (CM-1), and tells what kubelets before 1.29 made of it: all names are
    /// referenced anew, then all previous references are taken back. The counts end as with [`register`](Self::register).
    pub(crate) fn register_anew(&mut self, pod: &PodId, names: BTreeSet<Box<str>>) -> Difference {
        let added = names.iter().map(|name| pod.object(name)).collect();
        let before = self.pods.insert(pod.clone(), names).unwrap_or_default();
        let removed = before.iter().map(|name| pod.object(name)).collect();
        Difference { added, removed }
    }

    /// Remembers that the pod holds exactly `names` (CM-1), and tells what that changes (CM-2).
    pub(crate) fn register(&mut self, pod: &PodId, names: BTreeSet<Box<str>>) -> Difference {
        let before = self.pods.get(pod);
        let nothing = BTreeSet::new();
        let held = before.unwrap_or(&nothing);
        let difference = Difference {
            added: names
                .difference(held)
                .map(|name| pod.object(name))
                .collect(),
            removed: held
                .difference(&names)
                .map(|name| pod.object(name))
                .collect(),
        };
        self.pods.insert(pod.clone(), names);
        difference
    }

    /// Forgets the pod; tells what it held, which nobody but this registry decides (CM-4).
    pub(crate) fn unregister(&mut self, pod: &PodId) -> Vec<ObjectKey> {
        let names = self.pods.remove(pod).unwrap_or_default();
        names.iter().map(|name| pod.object(name)).collect()
    }

    /// The registered pods and the keys each holds, sorted by pod.
    pub(crate) fn pods(&self) -> Vec<(PodId, Vec<ObjectKey>)> {
        let mut pods: Vec<_> = self
            .pods
            .iter()
            .map(|(pod, names)| {
                let keys = names.iter().map(|name| pod.object(name)).collect();
                (pod.clone(), keys)
            })
            .collect();
        pods.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        pods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str) -> PodId {
        PodId {
            key: ObjectKey::new("ns", name),
            uid: uid.into(),
        }
    }

    fn names(list: &[&str]) -> BTreeSet<Box<str>> {
        list.iter().map(|name| Box::from(*name)).collect()
    }

    fn keys(list: &[&str]) -> Vec<ObjectKey> {
        list.iter()
            .map(|name| ObjectKey::new("ns", *name))
            .collect()
    }

    /// CM-1, CM-2: the first time adds all, later times the difference only.
    #[test]
    fn a_registration_tells_what_it_changes() {
        let mut registry = Registry::default();
        let first = registry.register(&pod("p", "1"), names(&["a", "b"]));
        assert_eq!(first.added, keys(&["a", "b"]));
        assert_eq!(first.removed, keys(&[]));
        let same = registry.register(&pod("p", "1"), names(&["a", "b"]));
        assert_eq!(same, Difference::default());
        let update = registry.register(&pod("p", "1"), names(&["b", "c"]));
        assert_eq!(update.added, keys(&["c"]));
        assert_eq!(update.removed, keys(&["a"]));
    }

    /// CM-2 as kubelets before 1.29 had it: an update references everything anew and takes back what was before.
    #[test]
    fn an_update_by_the_older_rule_references_everything_anew() {
        let mut registry = Registry::default();
        let first = registry.register_anew(&pod("p", "1"), names(&["a", "b"]));
        assert_eq!(first.added, keys(&["a", "b"]));
        assert_eq!(first.removed, keys(&[]));
        let update = registry.register_anew(&pod("p", "1"), names(&["b", "c"]));
        assert_eq!(update.added, keys(&["b", "c"]));
        assert_eq!(update.removed, keys(&["a", "b"]));
        assert_eq!(registry.unregister(&pod("p", "1")), keys(&["b", "c"]));
    }

    /// CM-3, CM-4: another uid is another registration; unknown and repeated unregistrations do nothing.
    #[test]
    fn registrations_are_told_apart_by_uid_and_end_once() {
        let mut registry = Registry::default();
        registry.register(&pod("p", "1"), names(&["a"]));
        let second = registry.register(&pod("p", "2"), names(&["a"]));
        assert_eq!(second.added, keys(&["a"]));
        assert_eq!(registry.unregister(&pod("p", "3")), keys(&[]));
        assert_eq!(registry.unregister(&pod("p", "1")), keys(&["a"]));
        assert_eq!(registry.unregister(&pod("p", "1")), keys(&[]));
        assert_eq!(registry.pods(), [(pod("p", "2"), keys(&["a"]))]);
    }
}
