//! The two managers as one: what is done with Secrets is done with ConfigMaps.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::http::Client;
use kubecache::manager::{
    ChangeDetection, Changes, ConfigMapManager, ManagerOptions, ObjectManager, ObjectReport, Owner,
    SecretManager,
};
use kubecache::object::{LabelMatcher, LabelSelector, Object, ObjectData, ObjectKey};
use kubecache::{Error, ErrorKind};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::metrics::Metrics;
use crate::pod::Pod;
use crate::rows::RowKey;

/// The owners of objects that no pod names, one per namespace.
const REFERENCE: &str = "Reference";

/// How long a read of one value waits for a server that does not answer.
const READ_WAIT: Duration = Duration::from_secs(5);

/// Keeps the Secrets and ConfigMaps of the registered pods. Clones are the same managers.
#[derive(Clone)]
pub(crate) struct Managers {
    secrets: SecretManager,
    config_maps: ConfigMapManager,
}

/// An object that is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) key: ObjectKey,
}

impl ObjectId {
    /// The object of a row.
    pub(crate) fn of(row: &RowKey) -> Self {
        Self {
            kind: row.kind.clone(),
            key: ObjectKey::new(row.pod.namespace(), row.name.as_str()),
        }
    }

    /// The object of a report.
    pub(crate) fn reported(report: &ObjectReport) -> Self {
        Self {
            kind: report.kind.clone(),
            key: report.key.clone(),
        }
    }
}

impl Managers {
    /// Managers without pods; touches no network.
    pub(crate) fn new(
        client: &Client,
        options: &ManagerOptions,
        strategy: ChangeDetection,
        metrics: Option<&Metrics>,
    ) -> Result<Self, Error> {
        let options = options.clone().change_detection(strategy);
        let secrets = counted::<Secret>(&options, metrics, strategy)?;
        let config_maps = counted::<ConfigMap>(&options, metrics, strategy)?;
        Ok(Self {
            secrets: SecretManager::new(client.clone(), secrets)?,
            config_maps: ConfigMapManager::new(client.clone(), config_maps)?,
        })
    }

    /// Clones of the managers: Secrets, ConfigMaps.
    pub(crate) fn shared(&self) -> (SecretManager, ConfigMapManager) {
        (self.secrets.clone(), self.config_maps.clone())
    }

    /// Subscriptions to what changes: Secrets, ConfigMaps.
    pub(crate) fn subscribe(&self) -> (Changes, Changes) {
        (self.secrets.subscribe(), self.config_maps.subscribe())
    }

    /// Keeps what the pod names, and no more what it named before.
    pub(crate) fn register(&self, pod: &Pod) {
        self.set(&Owner::of(pod), &pod.objects());
    }

    /// Keeps these objects, whatever pods name, and no more those of `before` that are not among
    /// them. An owner per namespace, as the rows show them.
    pub(crate) fn refer(&self, objects: &BTreeSet<ObjectId>, before: &BTreeSet<ObjectId>) {
        let mut by_namespace = BTreeMap::<_, Vec<ObjectId>>::new();
        for object in before {
            by_namespace.entry(object.key.namespace()).or_default();
        }
        for object in objects {
            by_namespace
                .entry(object.key.namespace())
                .or_default()
                .push(object.clone());
        }
        for (namespace, objects) in by_namespace {
            let owner = Owner::new(REFERENCE, ObjectKey::new(namespace, ""));
            self.set(&owner, &objects);
        }
    }

    /// Makes the owner reference these objects and no other.
    fn set(&self, owner: &Owner, objects: &[ObjectId]) {
        let keys = |kind: &'static str| {
            let of_kind = objects.iter().filter(move |object| object.kind == kind);
            of_kind.map(|object| object.key.clone())
        };
        self.secrets.set_references(owner, keys("Secret"));
        self.config_maps.set_references(owner, keys("ConfigMap"));
    }

    /// Of the owners that a snapshot had, leaves the pods, if pods are followed. The references of
    /// the others go, unless they are these.
    pub(crate) fn only_pods_of(
        &self,
        owners: Vec<Owner>,
        references: &BTreeSet<ObjectId>,
        follows_pods: bool,
    ) -> BTreeMap<ObjectKey, Owner> {
        let mut pods = BTreeMap::new();
        for owner in owners {
            let namespace = owner.key().namespace();
            let is_referred = || references.iter().any(|of| of.key.namespace() == namespace);
            if owner.kind() != REFERENCE && follows_pods {
                // One comes from each manager. Another of the name comes from a file that was
                // written while a pod took the place of one before.
                let kept = pods.entry(owner.key().clone());
                if *kept.or_insert_with(|| owner.clone()) != owner {
                    self.forget(&owner);
                }
            } else if owner.kind() != REFERENCE || !is_referred() {
                self.forget(&owner);
            }
        }
        pods
    }

    /// Takes back all references of an owner.
    pub(crate) fn forget(&self, owner: &Owner) {
        self.set(owner, &[]);
    }

    /// Each pod with the objects it names, first with its Secrets and then with its ConfigMaps.
    pub(crate) fn inspect(&self) -> impl Iterator<Item = (Owner, Vec<ObjectReport>)> {
        let secrets = self.secrets.inspect().into_iter();
        secrets.chain(self.config_maps.inspect())
    }

    /// Looks at what memory holds; never waits.
    pub(crate) fn look_at(&self, object: &ObjectId) {
        let (namespace, name) = (object.key.namespace(), object.key.name());
        // Only the look counts; what there is to say of the object is in its report.
        if object.kind == "Secret" {
            drop(self.secrets.get_cached(namespace, name));
        } else {
            drop(self.config_maps.get_cached(namespace, name));
        }
    }

    /// Whether the object in memory has these labels; `None` if there is none.
    pub(crate) fn has_labels(&self, object: &ObjectId, labels: &LabelSelector) -> Option<bool> {
        // The server has taken the selector.
        let matcher = LabelMatcher::parse(labels).ok()?;
        let (namespace, name) = (object.key.namespace(), object.key.name());
        if object.kind == "Secret" {
            let kept = self.secrets.get_cached(namespace, name).ok().flatten()?;
            Some(matcher.matches_object(&**kept))
        } else {
            let kept = self
                .config_maps
                .get_cached(namespace, name)
                .ok()
                .flatten()?;
            Some(matcher.matches_object(&**kept))
        }
    }

    /// Reads the object, which may ask the server and wait for it.
    pub(crate) fn read(&self, object: &ObjectId) {
        let (namespace, name) = (object.key.namespace(), object.key.name());
        let failure = if object.kind == "Secret" {
            self.secrets.get(namespace, name).err()
        } else {
            self.config_maps.get(namespace, name).err()
        };
        // A pod may have gone since; any other failure is in the object's report.
        if let Some(error) = failure.filter(|error| error.kind() != ErrorKind::NotRegistered) {
            log::debug!("reading {} {}: {error}", object.kind, object.key);
        }
    }

    /// Lends the value of a key to `take`; the error says what is missing. Where objects are not
    /// watched, it asks the server for what is not in memory.
    pub(crate) fn with_value<T>(
        &self,
        object: &ObjectId,
        key: &str,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, String> {
        if object.kind == "Secret" {
            with_value(&self.secrets, object, key, take)
        } else {
            with_value(&self.config_maps, object, key, take)
        }
    }

    /// Whether the server keeps confirming what is watched: Secrets, ConfigMaps.
    pub(crate) fn health(&self) -> (Result<(), Error>, Result<(), Error>) {
        (self.secrets.health(), self.config_maps.health())
    }

    /// Ends all requests and watches; reads after it fail at once.
    pub(crate) fn shut_down(&self) {
        self.secrets.stop();
        self.config_maps.stop();
    }
}

fn with_value<K: ObjectData, T>(
    manager: &ObjectManager<K>,
    object: &ObjectId,
    key: &str,
    take: impl FnOnce(&[u8]) -> T,
) -> Result<T, String> {
    let (namespace, name) = (object.key.namespace(), object.key.name());
    let is_watched = manager.change_detection() == ChangeDetection::Watch;
    let kept = manager.get_cached(namespace, name).ok().flatten();
    let found = match kept.filter(|kept| is_watched || kept.value(key).is_ok()) {
        Some(kept) => Ok(kept),
        None if is_watched => manager.get(namespace, name),
        None => manager.get_fresh(namespace, name, READ_WAIT),
    };
    let found = found.map_err(|error| error.to_string())?;
    let value = found.value(key).map_err(|error| error.to_string())?;
    Ok(take(value))
}

fn counted<K: Object>(
    options: &ManagerOptions,
    metrics: Option<&Metrics>,
    strategy: ChangeDetection,
) -> Result<ManagerOptions, Error> {
    match metrics {
        Some(metrics) => metrics.manage::<K>(strategy, options.clone()),
        None => Ok(options.clone()),
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use kubecache::http::{ClientOptions, Config};
    use kubecache::testing::objects;

    use super::*;

    /// Seen: only one of the two went once the server had told of the pods.
    #[test]
    fn of_two_restored_pods_of_one_name_one_is_left() {
        let config = Config::for_server("http://127.0.0.1:9").unwrap();
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let options = ManagerOptions::default();
        let managers = Managers::new(&client, &options, ChangeDetection::Watch, None).unwrap();
        let owners = ["u-1", "u-2"].map(|uid| {
            let mut pod = objects::pod("shop", "web", "node-1", &["db"], &["ca"]);
            pod.metadata.uid = Some(uid.to_owned());
            managers.secrets.register_pod(&pod);
            managers.config_maps.register_pod(&pod);
            Owner::of(&pod)
        });
        // Those of Secrets, and those of ConfigMaps.
        let owners = [owners.clone(), owners].concat();
        let left = managers.only_pods_of(owners, &BTreeSet::new(), true);
        let left: Vec<_> = left.into_values().collect();
        let kept = managers
            .inspect()
            .map(|(owner, objects)| (owner, objects.len()));
        let kept: Vec<_> = kept.collect();
        assert_eq!(left.len(), 1);
        let each = (left[0].clone(), 1);
        assert_eq!(kept, [each.clone(), each], "its Secret and its ConfigMap");
        managers.shut_down();
    }
}
