//! The recorded story through the whole house: sockets, decoding, reflectors and managers end where
//! the server ended.

#![cfg(feature = "testing")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{EventKind, Listed, ObjectEvent};
use kubecache::manager::{
    ConfigMapManager, ManagerOptions, ObjectManager, ObjectReport, ObjectState, ReferencedByPods,
    SecretManager,
};
use kubecache::object::{FieldSelector, Object, ObjectKey, Scope, StoredObject};
use kubecache::reflector::{Reflector, ReflectorOptions, Replacement, Sink};
use kubecache::testing::{Answered, FixtureServer, Recording, Speed};
use serde_json::Value;

const STORY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/fixtures/recordings/node-1.jsonl"
);

/// Ninety recorded seconds in less than five.
const SPEED: f64 = 20.0;

/// Registers the pods of the node with both managers as they come and go: what an agent does.
struct Registrar {
    secrets: SecretManager,
    config_maps: ConfigMapManager,
    pods: BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>,
}

impl Registrar {
    fn put(&mut self, pod: Arc<StoredObject<Pod>>) {
        self.secrets.register_pod(&pod);
        self.config_maps.register_pod(&pod);
        self.pods.insert(pod.key(), pod);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key) {
            self.secrets.unregister_pod(&pod);
            self.config_maps.unregister_pod(&pod);
        }
    }
}

impl Sink<Pod> for Registrar {
    type Staging = BTreeMap<ObjectKey, Arc<StoredObject<Pod>>>;

    fn begin(&mut self) -> Self::Staging {
        BTreeMap::new()
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<Pod>) {
        match (event.kind, event.object) {
            (EventKind::Deleted, pod) => drop(staging.remove(&pod.key())),
            (_, Listed::Object(pod)) => drop(staging.insert(pod.key(), pod)),
            (_, Listed::Undecodable(pod)) => panic!("{pod:?}"),
        }
    }

    fn commit(&mut self, staging: Self::Staging, _of: &Replacement) -> Result<(), Error> {
        let gone: Vec<_> = self
            .pods
            .keys()
            .filter(|key| !staging.contains_key(key))
            .cloned()
            .collect();
        for key in &gone {
            self.remove(key);
        }
        for pod in staging.into_values() {
            self.put(pod);
        }
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<Pod>) -> Result<(), Error> {
        match (event.kind, event.object) {
            (EventKind::Deleted, Listed::Object(pod)) => self.remove(&pod.key()),
            (_, Listed::Object(pod)) => self.put(pod),
            (_, Listed::Undecodable(pod)) => panic!("{pod:?}"),
        }
        Ok(())
    }
}

/// Whether the pod names a Secret or a ConfigMap; the managers keep nothing of one that does not.
fn references(pod: &Value) -> bool {
    let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
    let mut names = 0;
    let mut count = |_: &str| {
        names += 1;
        true
    };
    Secret::visit_pod(&pod, &mut count);
    ConfigMap::visit_pod(&pod, &mut count);
    names > 0
}

/// The last version of each object, and the pods that were left and name any, as the recorded
/// server had them.
#[derive(Default)]
struct End {
    versions: BTreeMap<(String, ObjectKey), String>,
    pods: BTreeSet<ObjectKey>,
}

impl End {
    fn of(recording: &Recording) -> Self {
        let mut end = Self::default();
        for exchange in recording.exchanges() {
            let body = exchange.answer().body();
            let values = serde_json::Deserializer::from_str(&body).into_iter::<Value>();
            for value in values {
                end.learn(&value.expect("what the server sent is JSON"));
            }
        }
        end
    }

    fn learn(&mut self, value: &Value) {
        let kind = value["kind"].as_str().unwrap_or_default();
        if let Some(kind) = kind.strip_suffix("List") {
            for item in value["items"].as_array().unwrap() {
                self.object(kind, "ADDED", item);
            }
        } else if let Some(event) = value["type"]
            .as_str()
            .filter(|_| value["object"].is_object())
        {
            let kind = value["object"]["kind"].as_str().unwrap();
            self.object(kind, event, &value["object"]);
        }
    }

    fn object(&mut self, kind: &str, event: &str, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = ObjectKey::new(text("namespace"), text("name"));
        match (kind, event) {
            (_, "BOOKMARK" | "ERROR") => {}
            ("Pod", "DELETED") => drop(self.pods.remove(&key)),
            ("Pod", _) => {
                if references(object) {
                    self.pods.insert(key);
                }
            }
            _ => drop(
                self.versions
                    .insert((kind.to_owned(), key), text("resourceVersion").to_owned()),
            ),
        }
    }
}

fn reports(
    secrets: &SecretManager,
    config_maps: &ConfigMapManager,
) -> (BTreeSet<ObjectKey>, Vec<ObjectReport>) {
    let mut pods = BTreeSet::new();
    let mut objects = Vec::new();
    for (pod, its_objects) in secrets.inspect().into_iter().chain(config_maps.inspect()) {
        pods.insert(pod.key().clone());
        objects.extend(its_objects);
    }
    (pods, objects)
}

/// Reads as the recorded agent did: an immutable object is watched until somebody has read it.
fn read<K: Object>(manager: &ObjectManager<K>, objects: &[ObjectReport]) {
    for object in objects
        .iter()
        .filter(|object| object.kind == K::resource().kind())
    {
        let read = manager.get_cached(object.key.namespace(), object.key.name());
        // A pod that went meanwhile took its references along.
        drop(read);
    }
}

/// The requests that the recorded agent did not make. It waited for its immutable objects and so
/// watched none of them; a read that comes after the list finds a watch on its way.
fn unmatched(server: &FixtureServer, objects: &[ObjectReport]) -> Vec<String> {
    let is_immutable = |target: &str| {
        let mut immutable = objects.iter().filter(|object| object.immutable);
        immutable.any(|object| target.contains(&format!("metadata.name%3D{}&", object.key.name())))
    };
    let requests = server.requests().into_iter();
    requests
        .filter(|request| request.answered() == Answered::Unmatched)
        .map(|request| format!("{request:?}"))
        .filter(|request| !is_immutable(request))
        .collect()
}

/// What differs from the end of the story; empty at its end.
fn differences(end: &End, pods: &BTreeSet<ObjectKey>, objects: &[ObjectReport]) -> Vec<String> {
    let mut differences = Vec::new();
    if *pods != end.pods {
        differences.push(format!("pods: {pods:?}, not {:?}", end.pods));
    }
    for object in objects {
        let known = end
            .versions
            .get(&(object.kind.to_string(), object.key.clone()));
        let wanted = match (object.key.name(), known) {
            ("payment-provider-key", None) => (ObjectState::Forbidden, ""),
            (_, None) => (ObjectState::NotFound, ""),
            (_, Some(version)) => (ObjectState::Synced, version.as_str()),
        };
        if (object.state, object.resource_version.as_str()) != wanted {
            differences.push(format!("{wanted:?}: {object:?}"));
        }
    }
    differences
}

/// The recording holds streamed lists of the pods. A client that lists plainly is told the same.
#[test]
fn the_caches_end_where_the_recorded_server_ended() {
    for streams in [false, true] {
        ends_where_the_recorded_server_ended(streams);
    }
}

fn ends_where_the_recorded_server_ended(streams: bool) {
    let recording = Recording::load(STORY).unwrap();
    let end = End::of(&recording);
    assert_eq!(end.pods.len(), 13);
    let server = FixtureServer::replaying(recording)
        .speed(Speed::Times(SPEED))
        .start()
        .unwrap();
    let client = Client::new(
        &Config::for_server(&server.url()).unwrap(),
        ClientOptions::default(),
    )
    .unwrap();
    let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let config_maps = ConfigMapManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let (of_secrets, of_config_maps) = (secrets.subscribe(), config_maps.subscribe());
    let registrar = Registrar {
        secrets: secrets.clone(),
        config_maps: config_maps.clone(),
        pods: BTreeMap::new(),
    };
    let source = client.lister_watcher(Scope::all().fields(FieldSelector::node_name("node-1")));
    let options = ReflectorOptions::default().watch_list(streams);
    let reflector = Reflector::spawn("pods", source, registrar, options).unwrap();

    let deadline = Clock::system().after(Duration::from_secs(5 * 60));
    loop {
        let (pods, objects) = reports(&secrets, &config_maps);
        read(&secrets, &objects);
        read(&config_maps, &objects);
        let differences = differences(&end, &pods, &objects);
        if differences.is_empty() && objects.len() > 50 && has_all_been_asked(&server) {
            break;
        }
        assert!(
            !Clock::system().has_passed(deadline),
            "{differences:#?} {:?}",
            server.unused()
        );
        crossbeam_channel::select! {
            recv(of_secrets.signal()) -> _ => {}
            recv(of_config_maps.signal()) -> _ => {}
            // Pods that name nothing new, and the server's log, have no signal of their own.
            default(Duration::from_millis(50)) => {}
        }
    }

    let unmatched = unmatched(&server, &reports(&secrets, &config_maps).1);
    assert!(unmatched.is_empty(), "{unmatched:?}");
    let session = secrets.get("shop", "storefront-session").unwrap();
    let values = session.data.as_ref().unwrap();
    assert!(
        values
            .values()
            .all(|value| value.0.starts_with(b"redacted-")),
        "the recorder's, as long as the real ones"
    );
    let refused = secrets.get("shop", "payment-provider-key").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("secrets \"payment-provider-key\" is forbidden"),
        "{refused}"
    );
    drop(reflector);
}

/// Whether the story is told to its end: who was refused once is refused again, and asks at other
/// times than in the recording; everything else has been asked for.
fn has_all_been_asked(server: &FixtureServer) -> bool {
    server
        .unused()
        .iter()
        .all(|exchange| exchange.answer().status() == 403)
}

/// What the issue asks of the recordings, and that no value of the story's Secrets is in them.
#[test]
fn the_recordings_hold_the_story_and_no_secret() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/recordings");
    let mut size = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        size += text.len();
        assert_eq!(
            Recording::load(&path).unwrap().to_text(),
            text,
            "{} is as the recorder writes it",
            path.display()
        );
        // The word in its three alignments in base64, and what Secrets would show otherwise.
        for canary in [
            "canary",
            "Y2FuYXJ5",
            "NhbmFye",
            "jYW5hcn",
            "Bearer ",
            "last-applied-configuration\":\"{",
        ] {
            assert!(!text.contains(canary), "{}: {canary}", path.display());
        }
    }
    assert!(size < 1024 * 1024, "{size}");
    let story = Recording::load(STORY).unwrap();
    assert!(story.server().starts_with("v1."));
    let statuses: BTreeSet<_> = story
        .exchanges()
        .iter()
        .map(|exchange| exchange.answer().status())
        .collect();
    assert_eq!(statuses, BTreeSet::from([200, 403]));
    let bodies: Vec<_> = story
        .exchanges()
        .iter()
        .map(|exchange| exchange.answer().body())
        .collect();
    for part in [
        r#""type":"BOOKMARK""#,
        r#""type":"DELETED""#,
        r#""type":"MODIFIED""#,
        r#""code":410"#,
        r#""immutable":true"#,
        r#""k8s.io/initial-events-end":"true""#,
        r#""items":[]"#,
        r#""managedFields""#,
    ] {
        assert!(bodies.iter().any(|body| body.contains(part)), "{part}");
    }
}
