//! What passes from a real server through the recorder: whole for the client, without a secret for
//! the recording, and the same again when it is replayed.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};
use kubecache::list_watch::{EventKind, ListRequest, Listed, Next, ObjectEvent, WatchEvent};
use kubecache::object::{Object as _, ObjectKey, ResourceVersion, Scope};
use kubecache::testing::{FixtureServer, Recorder};
use kubecache::worker::StopToken;

use super::support::*;

const MANIFEST: &str = "apiVersion: v1\nkind: Secret\nmetadata: \
    {name: recorded, namespace: shop}\nstringData: {value: ";

/// Version and length of the values, by key.
type Seen = BTreeMap<ObjectKey, (ResourceVersion, usize)>;

fn see(seen: &mut Seen, secret: &Secret) {
    let values = secret.data.iter().flat_map(BTreeMap::values);
    let length = values.map(|value| value.0.len()).sum();
    seen.insert(secret.key(), (secret.resource_version(), length));
}

/// Lists and watches, until `recorded` has changed; `change` is called when the watch is open.
fn look(url: &str, change: impl FnOnce()) -> (Seen, bool) {
    let client = Client::new(&Config::for_server(url).unwrap(), ClientOptions::default()).unwrap();
    let (config_maps, _) = list(
        &*watcher::<ConfigMap>(&client, Scope::all()),
        &ListRequest::default(),
    )
    .unwrap();
    assert!(config_maps.len() > 10);
    let source = watcher::<Secret>(&client, Scope::all());
    let (secrets, page) = list(&*source, &ListRequest::default()).unwrap();
    let mut seen = Seen::new();
    let mut canary = false;
    for secret in &secrets {
        see(&mut seen, secret);
        let mut values = secret.data.iter().flat_map(BTreeMap::values);
        canary |= values.any(|value| value.0.starts_with(b"canary"));
    }
    let stop = StopToken::never();
    let mut stream = source.watch(&from(&page.resource_version), &stop).unwrap();
    change();
    loop {
        let deadline = kubecache::clock::Clock::system().after(PATIENCE);
        match stream.next(deadline).unwrap() {
            Next::Event(WatchEvent::Object(ObjectEvent {
                kind: EventKind::Added | EventKind::Updated,
                object: Listed::Object(secret),
            })) => {
                see(&mut seen, &secret);
                if secret.key() == ObjectKey::new("shop", "recorded") {
                    return (seen, canary);
                }
            }
            Next::Event(WatchEvent::Bookmark { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_recording_holds_no_secret_and_replays_what_the_client_saw() {
    let _up = cluster_alone();
    let kubeconfig = directory().join("kubeconfig/admin-token.yaml");
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let token = text
        .split_once("token: ")
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap();
    let token = token.trim_matches('"');
    assert!(token.len() > 8);
    let options = KubeconfigOptions::default().path(kubeconfig);
    let config = Config::from_kubeconfig(&options).unwrap();
    let recorder = Recorder::start(&config, 0).unwrap();
    let change = || apply(&format!("{MANIFEST}canary-of-{}}}\n", std::process::id()));
    let (seen, canary) = look(&recorder.url(), change);
    assert!(canary, "the client sees the real values");

    assert!(recorder.failures().is_none());
    let recording = recorder.finish();
    let text = recording.to_text();
    for secret in ["canary", "Y2FuYXJ5", "NhbmFye", "jYW5hcn", token, "Bearer"] {
        assert!(!text.contains(secret), "{secret} is in the recording");
    }

    let server = FixtureServer::replaying(recording).start().unwrap();
    let (replayed, canary) = look(&server.url(), || {});
    assert_eq!(replayed, seen);
    assert!(!canary);
    assert!(server.unused().is_empty());
}
