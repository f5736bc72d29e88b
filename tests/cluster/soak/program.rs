//! The part of the soak that ends and starts again: managers with a snapshot, and an informer that
//! goes on from its stored position.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::Client;
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::StoredPosition;
use kubecache::manager::{ConfigMapManager, FollowedPods, ManagerOptions, SecretManager};
use kubecache::object::Scope;
use kubecache::snapshot::{Snapshot, SnapshotKey, SnapshotOptions};
use parking_lot::Mutex;

use super::NAMESPACE;
use super::caches::{Cache, of_manager, sick};
use super::content::{Content, Kind as _, by_name, difference};
use crate::cluster::support::{PATIENCE, watcher};
use crate::support::TempDirectory;

pub(super) struct Program {
    client: Client,
    pods: Arc<SharedInformer<Pod>>,
    directory: TempDirectory,
    running: Mutex<Option<Running>>,
}

/// In the order in which a program lets go: the snapshot is the last one with all references.
struct Running {
    _snapshot: Snapshot,
    _followed: [FollowedPods; 2],
    secrets: SecretManager,
    maps: ConfigMapManager,
    informer: SharedInformer<ConfigMap>,
}

struct Key;

impl SnapshotKey for Key {
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        to.fill(7);
        Ok(())
    }
}

impl Program {
    pub(super) fn start(client: Client, pods: Arc<SharedInformer<Pod>>) -> Self {
        let program = Self {
            client,
            pods,
            directory: TempDirectory::new("soak-snapshot"),
            running: Mutex::new(None),
        };
        *program.running.lock() = Some(program.run(None));
        program
    }

    fn run(&self, position: Option<StoredPosition<ConfigMap>>) -> Running {
        let options = SnapshotOptions::new(self.directory.join("snapshot"), Key);
        let snapshot = Snapshot::open(options.interval(Duration::from_secs(1))).unwrap();
        assert!(
            snapshot.load_error().is_none(),
            "{:?}",
            snapshot.load_error()
        );
        let options = ManagerOptions::default;
        let secrets = SecretManager::new(self.client.clone(), options()).unwrap();
        let maps = ConfigMapManager::new(self.client.clone(), options()).unwrap();
        snapshot.attach(&secrets).unwrap();
        snapshot.attach(&maps).unwrap();
        let followed = [
            secrets.follow_pods(&self.pods).unwrap(),
            maps.follow_pods(&self.pods).unwrap(),
        ];
        let source = watcher::<ConfigMap>(&self.client, Scope::namespace(NAMESPACE));
        let source = match position {
            Some(position) => position.over(source),
            None => source,
        };
        let informer = SharedInformer::new(source, InformerOptions::default());
        informer.start().unwrap();
        Running {
            _snapshot: snapshot,
            _followed: followed,
            secrets,
            maps,
            informer,
        }
    }

    /// As a process that ends, and one that starts with what the first has left.
    pub(super) fn restart(&self) {
        let mut running = self.running.lock();
        let before = running.take().unwrap();
        let position = before.informer.store().position();
        let limit = Clock::system().after(PATIENCE);
        before.informer.shutdown(limit).unwrap();
        drop(before);
        *running = Some(self.run(position));
    }

    pub(super) fn caches(program: &Arc<Self>) -> [Cache; 3] {
        let look = |look: fn(&Running, &Content) -> Option<String>| {
            let program = Arc::clone(program);
            move |content: &Content| {
                let running = program.running.lock();
                look(running.as_ref().unwrap(), content)
            }
        };
        [
            Cache::new(
                "Secrets with a snapshot",
                look(|running, content| of_manager(&running.secrets, content)),
            ),
            Cache::new(
                "ConfigMaps with a snapshot",
                look(|running, content| of_manager(&running.maps, content)),
            ),
            Cache::new(
                "informer from a position",
                look(|running, content| {
                    let store = running.informer.store();
                    let held = by_name(store.list());
                    difference(&held, ConfigMap::of(content)).or_else(|| sick(store.health()))
                }),
            ),
        ]
    }
}
