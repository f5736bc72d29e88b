//! The main job as the node's own identity: the story of the shop, told by a real server, kept by
//! the managers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use k8s_openapi::api::core::v1::Pod;
use kubecache::list_watch::{EventKind, Listed, ObjectEvent, Undecodable};
use kubecache::manager::{
    Changes, ConfigMapManager, ManagerOptions, ObjectManager, ObjectState, SecretManager,
};
use kubecache::object::{FieldSelector, Object, ObjectKey, Scope, StoredObject};
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};
use kubecache::worker::live_workers;
use kubecache::{Error, ErrorKind};

use super::files::FilesOfAgent;
use super::support::*;
use crate::support::until;

/// What the pod reflector tells the agent's loop.
enum PodNews {
    All(BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>),
    Is(Arc<StoredObject<Pod>>),
    Gone(Arc<StoredObject<Pod>>),
}

/// A sink that hands everything on.
struct News(Sender<PodNews>);

impl Sink<Pod> for News {
    type Staging = BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>;

    fn begin(&mut self) -> Self::Staging {
        BTreeMap::new()
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<Pod>) {
        match (event.kind, event.object) {
            (EventKind::Deleted, pod) => drop(staging.remove(&pod.key())),
            (_, Listed::Object(pod)) => drop(staging.insert(pod.key(), pod)),
            (_, Listed::Undecodable(pod)) => refuse(&pod),
        }
    }

    fn commit(&mut self, staging: Self::Staging, _: &Replacement) -> Result<(), Error> {
        self.0.send(PodNews::All(staging)).unwrap();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<Pod>) -> Result<(), Error> {
        let news = match (event.kind, event.object) {
            (EventKind::Deleted, Listed::Object(pod)) => PodNews::Gone(pod),
            (_, Listed::Object(pod)) => PodNews::Is(pod),
            (_, Listed::Undecodable(pod)) => {
                refuse(&pod);
                return Ok(());
            }
        };
        self.0.send(news).unwrap();
        Ok(())
    }
}

fn refuse(pod: &Undecodable) {
    panic!("{}: {}", pod.key, pod.error);
}

struct Agent {
    pods: BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>,
    news: Receiver<PodNews>,
    secrets: SecretManager,
    secret_changes: Changes,
    config_maps: ConfigMapManager,
    config_map_changes: Changes,
    _reflector: Reflector,
}

impl Agent {
    fn of_the_node() -> Self {
        let client = client_of("node.yaml");
        let (send, news) = unbounded();
        let scope = Scope::all().fields(FieldSelector::node_name(NODE));
        let source = watcher::<Pod>(&client, scope);
        let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
        let config_maps = ConfigMapManager::new(client, ManagerOptions::default()).unwrap();
        Self {
            pods: BTreeMap::new(),
            news,
            secret_changes: secrets.subscribe(),
            config_map_changes: config_maps.subscribe(),
            secrets,
            config_maps,
            _reflector: Reflector::spawn("pods", source, News(send), ReflectorOptions::default())
                .unwrap(),
        }
    }

    /// Follows the server until `reached` holds. Silence beyond the patience fails the test with
    /// the present state.
    fn until(&mut self, what: &str, reached: impl Fn(&Self) -> bool) {
        while !reached(self) {
            select! {
                recv(self.news) -> news => self.take(news.unwrap()),
                recv(self.secret_changes.signal()) -> _ => drop(self.secret_changes.take()),
                recv(self.config_map_changes.signal()) -> _ => drop(self.config_map_changes.take()),
                default(PATIENCE) => panic!(
                    "{what}: not reached\n{:#?}\n{:#?}",
                    self.secrets.inspect(),
                    self.config_maps.inspect()
                ),
            }
        }
    }

    fn take(&mut self, news: PodNews) {
        match news {
            PodNews::All(pods) => {
                let gone: Vec<_> = self
                    .pods
                    .keys()
                    .filter(|key| !pods.contains_key(*key))
                    .cloned()
                    .collect();
                for key in gone {
                    let pod = self.pods.remove(&key).unwrap();
                    self.forget(&pod);
                }
                for pod in pods.into_values() {
                    self.keep(pod);
                }
            }
            PodNews::Is(pod) => self.keep(pod),
            PodNews::Gone(pod) => {
                self.pods.remove(&pod.key());
                self.forget(&pod);
            }
        }
    }

    fn keep(&mut self, pod: Arc<StoredObject<Pod>>) {
        self.secrets.register_pod(&pod);
        self.config_maps.register_pod(&pod);
        self.pods.insert(pod.key(), pod);
    }

    fn forget(&self, pod: &Pod) {
        self.secrets.unregister_pod(pod);
        self.config_maps.unregister_pod(pod);
    }

    fn settings(&self, key: &str) -> Option<String> {
        let settings = self
            .config_maps
            .get_cached("shop", "storefront-settings")
            .ok()??;
        settings.data.as_ref()?.get(key).cloned()
    }

    fn secret_value(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        let secret = self.secrets.get_cached("shop", name).ok()??;
        Some(secret.data.as_ref()?.get(key)?.0.clone())
    }

    fn state<K: Object>(manager: &ObjectManager<K>, name: &str) -> Option<ObjectState> {
        manager
            .inspect_object(&ObjectKey::new("shop", name))
            .map(|report| report.state)
    }
}

fn all_answered<K: Object>(manager: &ObjectManager<K>) -> bool {
    let mut objects = manager.inspect().into_values().flatten();
    objects.all(|object| object.state.is_answer())
}

/// Every object in memory is the one that a read with quorum gives now, and what is not in memory
/// is not there.
fn equals_the_server<K: Object>(manager: &ObjectManager<K>) -> usize {
    let admin = client_of("admin.yaml");
    let mut compared = 0;
    for object in manager.inspect().into_values().flatten() {
        let (namespace, name) = (object.key.namespace(), object.key.name());
        match get::<K>(&admin, namespace, name) {
            Ok(truth) => assert_eq!(object.resource_version, truth.resource_version(), "{name}"),
            Err(error) => {
                assert!(error.is_not_found(), "{error}");
                assert_eq!(
                    object.state,
                    ObjectState::NotFound,
                    "{name}: {}",
                    object.reason
                );
            }
        }
        compared += 1;
    }
    compared
}

fn follows_through_a_restart(agent: &mut Agent) {
    restart_the_server();
    apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: storefront-settings, namespace: shop},
          data: {BANNER: after the restart}}",
    );
    agent.until("a change after the server's restart", |agent| {
        agent.settings("BANNER").as_deref() == Some("after the restart")
    });
    agent.until("every object has an answer again", |agent| {
        all_answered(&agent.secrets) && all_answered(&agent.config_maps)
    });
    equals_the_server(&agent.secrets);
    equals_the_server(&agent.config_maps);
}

fn has_first_answers(agent: &Agent) {
    assert_eq!(
        Agent::state(&agent.config_maps, "search-synonyms"),
        Some(ObjectState::NotFound)
    );
    let missing = agent
        .config_maps
        .get("shop", "search-synonyms")
        .unwrap_err();
    assert_eq!(
        missing.to_string(),
        "configmap \"search-synonyms\" not found"
    );
    assert!(equals_the_server(&agent.secrets) > 10);
    assert!(equals_the_server(&agent.config_maps) > 10);
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn the_node_keeps_what_its_pods_name_through_the_whole_story() {
    let _alone = cluster_alone();
    let mut agent = Agent::of_the_node();
    agent.until("every object has an answer", |agent| {
        agent.pods.len() >= 8 && all_answered(&agent.secrets) && all_answered(&agent.config_maps)
    });
    has_first_answers(&agent);
    let files = FilesOfAgent::start();
    let (missing, promo) = (
        "shop/configmaps/search-synonyms",
        "shop/secrets/promo-partner-api",
    );
    files.wait_for("1", &["shop/secrets/storefront-tls"], &[missing, promo]);

    play("2");
    agent.until("the updates of phase 2", |agent| {
        agent.settings("ITEMS_PER_PAGE").as_deref() == Some("48")
            && agent
                .secret_value("storefront-session", "SESSION_KEY")
                .as_deref()
                == Some(b"canary-session-key-2025")
    });

    files.wait_for("2", &["shop/secrets/storefront-tls"], &[missing, promo]);

    play("3");
    agent.until("the objects of the new pod", |agent| {
        Agent::state(&agent.secrets, "promo-partner-api") == Some(ObjectState::Synced)
    });

    files.wait_for("3", &[promo], &[missing]);

    play("4");
    agent.until("the object that was missing", |agent| {
        Agent::state(&agent.config_maps, "search-synonyms") == Some(ObjectState::Synced)
    });

    let token = "shop/secrets/catalog-reindex-token";
    files.wait_for("4", &[promo, missing, token], &[]);

    let reindex = |agent: &Agent| {
        agent
            .pods
            .keys()
            .any(|key| key.name().starts_with("catalog-reindex"))
    };
    assert!(reindex(&agent));
    play("5");
    agent.until("the deleted pod is forgotten", |agent| !reindex(agent));
    files.wait_for("5", &[promo, missing], &[token]);

    assert_eq!(
        agent
            .secret_value("checkout-signing-key", "key-id")
            .as_deref(),
        Some(&b"7"[..])
    );
    play("6");
    agent.until("the immutable Secret that was made again", |agent| {
        agent
            .secret_value("checkout-signing-key", "key-id")
            .as_deref()
            == Some(b"8")
    });
    files.wait_for("6", &["shop/secrets/checkout-signing-key"], &[token]);
    files.stop();

    follows_through_a_restart(&mut agent);
    drop(agent);
    assert_eq!(live_workers(), 0, "no thread outlives its owner");
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn an_object_of_another_node_is_refused_with_the_authorizers_words() {
    let _up = cluster();
    let manager = SecretManager::new(client_of("node.yaml"), ManagerOptions::default()).unwrap();
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("shop".into());
    pod.metadata.name = Some("impostor".into());
    pod.metadata.uid = Some("1".into());
    let volume = k8s_openapi::api::core::v1::Volume {
        name: "keys".into(),
        secret: Some(k8s_openapi::api::core::v1::SecretVolumeSource {
            secret_name: Some("back-office-ssh".into()),
            ..Default::default()
        }),
        ..Default::default()
    };
    pod.spec = Some(k8s_openapi::api::core::v1::PodSpec {
        volumes: Some(vec![volume]),
        ..Default::default()
    });
    manager.register_pod(&pod);
    // A busy server takes its time for the first answers.
    until(|| {
        let soon = kubecache::clock::Clock::system().after(Duration::from_millis(100));
        let early = manager.get_by("shop", "back-office-ssh", soon).unwrap_err();
        let kind = early.kind();
        assert_eq!(
            kind,
            ErrorKind::NotSynced,
            "retried while the authorizer may lag (R4): {early}"
        );
        let why = "no relationship found between node";
        early.attempts() > 1 && early.to_string().contains(why)
    });
    let later = kubecache::clock::Clock::system().after(PATIENCE);
    let refused = manager
        .get_by("shop", "back-office-ssh", later)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden, "{refused}");
    let stranger = manager.get("shop", "storefront-session").unwrap_err();
    assert_eq!(
        stranger.to_string(),
        "object \"shop\"/\"storefront-session\" not registered"
    );
}
