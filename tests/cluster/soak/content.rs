//! What consistent lists say that the server has, which each cache of the soak is held to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::Error;
use kubecache::http::Client;
use kubecache::manager::ReferencedByPods;
use kubecache::object::{Object, ObjectData, Scope, StoredObject};

use super::NAMESPACE;
use crate::cluster::churn::state;

pub(super) type Objects<K> = BTreeMap<String, Arc<StoredObject<K>>>;

/// Keys and values of an object.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// How long one list may take.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// All objects of the namespace.
pub(super) struct Content {
    maps: Objects<ConfigMap>,
    secrets: Objects<Secret>,
    pub(super) pods: Objects<Pod>,
}

/// A kind of the soak.
pub(super) trait Kind: Object + Clone {
    fn of(content: &Content) -> &Objects<Self>;

    fn payload(&self) -> Data;
}

impl Kind for ConfigMap {
    fn of(content: &Content) -> &Objects<Self> {
        &content.maps
    }

    fn payload(&self) -> Data {
        data_of(self)
    }
}

impl Kind for Secret {
    fn of(content: &Content) -> &Objects<Self> {
        &content.secrets
    }

    fn payload(&self) -> Data {
        data_of(self)
    }
}

impl Kind for Pod {
    fn of(content: &Content) -> &Objects<Self> {
        &content.pods
    }

    fn payload(&self) -> Data {
        let phase = self.status.as_ref().and_then(|status| status.phase.clone());
        Data::from([("phase".to_owned(), phase.unwrap_or_default().into_bytes())])
    }
}

fn data_of<K: ObjectData>(object: &K) -> Data {
    let each = object.data().into_iter();
    each.map(|(key, value)| (key.to_owned(), value.to_vec()))
        .collect()
}

pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl Content {
    pub(super) fn list(admin: &Client) -> Result<Self, Error> {
        Ok(Self {
            maps: list(admin)?,
            secrets: list(admin)?,
            pods: list(admin)?,
        })
    }

    /// The names that the pods reference.
    pub(super) fn referenced<K: ReferencedByPods>(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| !has_ended(pod)) {
            K::visit_pod(pod, &mut |name| {
                names.insert(name.to_owned());
                true
            });
        }
        names
    }
}

fn list<K: Kind>(admin: &Client) -> Result<Objects<K>, Error> {
    let listed = admin.list_by::<K>(Scope::namespace(NAMESPACE), LIST_LIMIT)?;
    Ok(by_name(listed))
}

pub(super) fn by_name<K: Kind>(objects: Vec<Arc<StoredObject<K>>>) -> Objects<K> {
    let each = objects.into_iter();
    each.map(|object| (object.key().name().to_owned(), object))
        .collect()
}

/// The first object of which two say otherwise.
pub(super) fn difference<K: Kind>(held: &Objects<K>, expected: &Objects<K>) -> Option<String> {
    let names: BTreeSet<_> = held.keys().chain(expected.keys()).collect();
    let mut each = names.into_iter();
    each.find_map(|name| differs(name, held.get(name), expected.get(name)))
}

/// How one object differs from the server's.
pub(super) fn differs<K: Kind>(
    name: &str,
    held: Option<&Arc<StoredObject<K>>>,
    expected: Option<&Arc<StoredObject<K>>>,
) -> Option<String> {
    let is_same = match (held, expected) {
        (Some(held), Some(expected)) => {
            state(held) == state(expected) && held.payload() == expected.payload()
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    (!is_same).then(|| {
        let kind = K::resource().kind().to_owned();
        let (expected, held) = (in_short(expected), in_short(held));
        format!("{kind} {name}: expected {expected}, held {held}")
    })
}

fn in_short<K: Kind>(object: Option<&Arc<StoredObject<K>>>) -> String {
    object.map_or("none".to_owned(), |object| {
        let bytes: usize = object.payload().values().map(Vec::len).sum();
        let (uid, version) = state(object);
        format!("version {version} of {uid}, {bytes} bytes")
    })
}
