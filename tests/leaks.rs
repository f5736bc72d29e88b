//! Nothing outlives its owner: threads and descriptors return to where they were, however a session
//! ends (R20).

#![cfg(all(feature = "testing", target_os = "linux"))]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::ListerWatcher;
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::object::{ObjectKey, Scope};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::testing::{Act, Answer, End, Exchange, Fault, FixtureServer, Recorder, Recording};
use kubecache::worker::live_workers;

use crate::support::{alone, until_some};

const LIST: &str = "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb";
const WATCH: &str = "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb&watch=true";
const CYCLES: usize = 200;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    workers: usize,
    threads: usize,
    descriptors: usize,
}

impl Counts {
    pub(crate) fn now() -> Self {
        let entries = |folder| fs::read_dir(folder).unwrap().count();
        Self {
            workers: live_workers(),
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
        }
    }
}

impl Counts {
    /// The kernel lists a thread for a moment after it can be joined.
    #[track_caller]
    pub(crate) fn settled(wanted: &Self) -> Self {
        let soon = Clock::system().after(Duration::from_secs(5 * 60));
        // The caller compares the counts, and so tells how many are too many.
        until_some(|| {
            let now = Self::now();
            let is_over = now.threads == wanted.threads || Clock::system().has_passed(soon);
            is_over.then_some(now)
        })
    }
}

fn story() -> Recording {
    let body = "{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                \"metadata\":{\"resourceVersion\":\"7\"},\
                \"items\":[{\"metadata\":{\"name\":\"db\",\"namespace\":\"shop\",\"uid\":\"u\",\
                \"resourceVersion\":\"5\"}}]}";
    let open = Answer::new(200).ending(End::Open, Duration::ZERO);
    Recording::new()
        .with(Exchange::get(LIST, Answer::text(200, body)))
        .with(Exchange::get(WATCH, open))
}

/// One session, ended in one of several ways: client first, server first, in mid-list, in
/// mid-watch, recorded.
fn session(way: usize) {
    let fault = match way % 5 {
        1 => Some(Fault::new(Act::Hang).reads()),
        2 => Some(Fault::new(Act::CutAfter(20)).reads()),
        _ => None,
    };
    let mut builder = FixtureServer::replaying(story());
    if let Some(fault) = fault.clone() {
        builder = builder.fault(fault);
    }
    let server = builder.start().unwrap();
    let url = server.url();
    let recorder = way
        .is_multiple_of(3)
        .then(|| Recorder::start(&Config::for_server(&url).unwrap(), 0).unwrap());
    let url = recorder.as_ref().map_or(url, Recorder::url);
    let client = Client::new(&Config::for_server(&url).unwrap(), ClientOptions::default()).unwrap();
    let source: Arc<dyn ListerWatcher<Secret>> =
        client.lister_watcher(Scope::object(&ObjectKey::new("shop", "db")));
    let (store, reflector) =
        Store::spawn("db", source, Indexers::new(), ReflectorOptions::default()).unwrap();
    let soon = Clock::system().after(Duration::from_secs(5 * 60));
    if fault.is_none() {
        store.wait_until_synced(soon).unwrap();
        assert!(server.wait_for_requests(soon, |requests| requests.len() == 2));
    } else {
        assert!(server.wait_for_requests(soon, |requests| !requests.is_empty()));
    }
    if way.is_multiple_of(2) {
        drop((server, recorder));
        drop((reflector, store, client));
    } else {
        drop((reflector, store, client));
        drop((recorder, server));
    }
}

/// A manager that is dropped while an immutable object arrives, whose run ends itself then (B16).
fn managed() {
    let body = "{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
                \"metadata\":{\"resourceVersion\":\"7\"},\
                \"items\":[{\"metadata\":{\"name\":\"db\",\"namespace\":\"shop\",\"uid\":\"u\",\
                \"resourceVersion\":\"5\"},\"immutable\":true}]}";
    let story = Recording::new().with(Exchange::get(LIST, Answer::text(200, body)));
    let server = FixtureServer::replaying(story).start().unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let secrets = SecretManager::new(client.clone(), ManagerOptions::default()).unwrap();
    let pod = serde_json::json!({
        "metadata": {"namespace": "shop", "name": "p", "uid": "p"},
        "spec": {"containers": [], "imagePullSecrets": [{"name": "db"}]},
    });
    secrets.register_pod(&serde_json::from_value(pod).unwrap());
    let soon = Clock::system().after(Duration::from_secs(5 * 60));
    secrets.get_by("shop", "db", soon).unwrap();
    drop(secrets);
    drop((client, server));
}

#[test]
fn threads_and_descriptors_return_to_where_they_were() {
    alone(|| {
        let before = Counts::now();
        for way in 0..CYCLES {
            session(way);
            managed();
            let after = Counts::settled(&before);
            assert_eq!(after, before, "after session {way}");
        }
        assert_eq!(before.workers, 0);
    });
}
