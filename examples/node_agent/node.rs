//! The node's pods and the managers that keep what they name: pods come and go, rows come out.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubecache::Error;
use kubecache::http::Client;
use kubecache::manager::{Changes, ConfigMapManager, ManagerOptions, PodReport, SecretManager};
use kubecache::object::{Held, Object as _, ObjectKey};

use crate::pods::{PodNews, is_finished};
use crate::print::Rows;
use crate::rows::{Facts, RowKey};

/// Pods that run here, and their objects.
pub(crate) struct Node {
    secrets: SecretManager,
    config_maps: ConfigMapManager,
    pods: BTreeMap<ObjectKey, Arc<Held<Pod>>>,
}

impl Node {
    /// A node without pods; touches no network.
    pub(crate) fn new(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            secrets: SecretManager::new(client.clone(), ManagerOptions::default())?,
            config_maps: ConfigMapManager::new(client.clone(), ManagerOptions::default())?,
            pods: BTreeMap::new(),
        })
    }

    /// Subscriptions to what changes: Secrets, ConfigMaps.
    pub(crate) fn subscribe(&self) -> (Changes, Changes) {
        (self.secrets.subscribe(), self.config_maps.subscribe())
    }

    /// Registers and unregisters pods as they come and go.
    pub(crate) fn take(&mut self, news: PodNews) {
        match news {
            PodNews::All(snapshot) => {
                let kept = |key: &ObjectKey| {
                    snapshot.pods.contains_key(key) || snapshot.undecodable.contains(key)
                };
                let gone: Vec<_> = self.pods.keys().filter(|key| !kept(key)).cloned().collect();
                for key in gone {
                    self.forget(&key);
                }
                for pod in snapshot.pods.into_values() {
                    self.bind(pod);
                }
            }
            PodNews::Here(pod) => self.bind(pod),
            PodNews::Gone(key) => self.forget(&key),
            PodNews::Status(_) => {}
        }
    }

    /// The pods that run here.
    pub(crate) fn pods(&self) -> Vec<ObjectKey> {
        self.pods.keys().cloned().collect()
    }

    /// A row per pod and object.
    pub(crate) fn rows(&self) -> Rows {
        let reports = self.secrets.inspect().into_iter();
        let reports = reports.chain(self.config_maps.inspect());
        reports.flat_map(rows_of).collect()
    }

    /// Reads each object out of memory, as a kubelet does when it syncs its pods: what nobody reads is not watched
    /// for long.
    pub(crate) fn read_all(&self) {
        for key in self.rows().into_keys() {
            let (namespace, name) = (key.pod.namespace(), key.name.as_str());
            // Only the look counts; what there is to say of the object is in its report.
            if key.kind == "Secret" {
                drop(self.secrets.get_cached(namespace, name));
            } else {
                drop(self.config_maps.get_cached(namespace, name));
            }
        }
    }

    fn bind(&mut self, pod: Arc<Held<Pod>>) {
        let key = pod.key();
        if is_finished(&pod) {
            return self.forget(&key);
        }
        // A pod of the same name and another uid is another pod: the old one's references have to go.
        let is_another = |known: &Arc<Held<Pod>>| known.uid() != pod.uid();
        if self.pods.get(&key).is_some_and(is_another) {
            self.forget(&key);
        }
        self.secrets.register_pod(&pod);
        self.config_maps.register_pod(&pod);
        self.pods.insert(key, pod);
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.secrets.unregister_pod(&pod);
            self.config_maps.unregister_pod(&pod);
        }
    }
}

fn rows_of(pod: PodReport) -> Vec<(RowKey, Facts)> {
    let key = ObjectKey::new(pod.namespace, pod.name);
    let rows = pod.objects.iter().map(|object| {
        let row = RowKey {
            pod: key.clone(),
            kind: object.kind,
            name: object.key.name().to_owned(),
        };
        (row, Facts::of(object))
    });
    rows.collect()
}
