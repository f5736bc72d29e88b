//! A cache that begins with a stored collection: the requests that it sends, and the content that
//! it ends with.

#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::clock::Clock;
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::list_watch::{ObjectEvent, StoredPosition};
use kubecache::object::{Object as _, ResourceVersion, Status, StoredObject};
use kubecache::reflector::{ReflectorOptions, Replacement, Sink as _};
use kubecache::store::{Indexers, Store};
use kubecache::testing::{FakeSource, RequestKind, SourceFault, objects};
use kubecache::{Error, ErrorKind};

const LONG: Duration = Duration::from_secs(60);

struct Restart {
    server: FakeSource<ConfigMap>,
    version: ResourceVersion,
    objects: Vec<Arc<StoredObject<ConfigMap>>>,
    taken: SystemTime,
}

impl Restart {
    /// A server, and what a cache had of it. Since then, one object came, one changed, one went.
    fn new() -> Self {
        let server = FakeSource::new();
        server.skip_to(100);
        for name in ["gone", "kept", "changed"] {
            server.set(objects::config_map("shop", name, "", &[]));
        }
        let restart = Self {
            version: server.version().to_string().into(),
            objects: server.objects(),
            taken: SystemTime::now(),
            server,
        };
        restart.server.delete("shop", "gone");
        for name in ["new", "changed"] {
            let data = [("since", "then")];
            restart
                .server
                .set(objects::config_map("shop", name, "", &data));
        }
        restart
    }

    fn position(&self) -> StoredPosition<ConfigMap> {
        StoredPosition::new(self.version.clone(), self.taken, self.objects.clone())
    }

    /// Runs a cache from `position` until it has what the server has. Returns its requests.
    fn run(&self, position: StoredPosition<ConfigMap>) -> Vec<String> {
        let source = position.over(Arc::new(self.server.clone()));
        let streams = ReflectorOptions::default().watch_list(true);
        let options = InformerOptions::default().reflector(streams);
        let informer = SharedInformer::new(source, options);
        informer.start().unwrap();
        let now: ResourceVersion = self.server.version().to_string().into();
        let store = informer.store();
        store.wait_until_at_least(&now, LONG).unwrap();
        let mut keys: Vec<_> = store
            .list()
            .iter()
            .map(|object| version_of(object))
            .collect();
        keys.sort();
        let objects = self.server.objects();
        let there: Vec<_> = objects.iter().map(|object| version_of(object)).collect();
        assert_eq!(keys, there);
        self.requests()
    }

    fn requests(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter().map(|request| {
            let version = request.resource_version;
            match request.kind {
                RequestKind::List => format!("list {} at {:?}", request.limit, version.as_str()),
                _ if request.send_initial_events => format!("stream at {:?}", version.as_str()),
                _ => format!("watch from {:?}", version.as_str()),
            }
        });
        requests.collect()
    }
}

fn version_of(object: &StoredObject<ConfigMap>) -> String {
    format!("{} {:?}", object.key(), object.metadata.resource_version)
}

#[test]
fn a_restart_costs_one_object_and_a_watch() {
    for streams in [false, true] {
        let restart = Restart::new();
        restart.server.stream_lists(streams);
        let requests = restart.run(restart.position());
        assert_eq!(requests, [r#"list 1 at """#, r#"watch from "103""#]);
    }
}

#[test]
fn a_position_that_the_server_has_forgotten_leads_to_a_list() {
    let restart = Restart::new();
    restart.server.compact();
    let requests = restart.run(restart.position());
    assert_eq!(requests[..2], [r#"list 1 at """#, r#"watch from "103""#]);
    assert_eq!(requests[2], r#"list 0 at "103""#);
}

#[test]
fn an_old_position_is_not_used() {
    let restart = Restart::new();
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let old = StoredPosition::new(
        restart.version.clone(),
        restart.taken - minutes(4),
        restart.objects.clone(),
    );
    assert_eq!(restart.run(old)[0], r#"list 500 at "0""#);
    let restart = Restart::new();
    let taken = restart.taken - minutes(4);
    let young_enough = StoredPosition::new(restart.version.clone(), taken, restart.objects.clone())
        .age_max(minutes(5));
    assert_eq!(restart.run(young_enough)[0], r#"list 1 at """#);
}

/// A clock that was set back says nothing of the age, and a version without order nothing of the
/// server's past.
#[test]
fn a_position_of_unknown_age_is_not_used() {
    let restart = Restart::new();
    let future = restart.taken + Duration::from_secs(1000);
    let of =
        |version: &str, taken| StoredPosition::new(version.into(), taken, restart.objects.clone());
    assert_eq!(restart.run(of("103", future))[0], r#"list 500 at "0""#);
    for version in ["", "0", "odd"] {
        let before = restart.requests().len();
        let requests = restart.run(of(version, restart.taken)).split_off(before);
        let whole = requests
            .iter()
            .position(|text| text == r#"list 500 at "0""#);
        assert!(whole.is_some_and(|at| at < 2), "{version}: {requests:?}");
    }
}

/// The watch of a version in the server's future is silent, and later changes below that version
/// would never come.
#[test]
fn a_position_in_the_future_of_a_restored_server_leads_to_a_list() {
    let restart = Restart::new();
    restart.server.silent_futures(true);
    restart.server.restore(101);
    let requests = restart.run(restart.position());
    assert_eq!(requests[..2], [r#"list 1 at """#, r#"list 500 at "0""#]);
}

#[test]
fn a_server_that_fails_at_first_does_not_cost_the_position() {
    let restart = Restart::new();
    let away = Error::from_status(Status::new(503, "starting"));
    let fault = SourceFault::Fail(away);
    restart.server.fail_next(RequestKind::List, fault);
    let requests = restart.run(restart.position());
    assert_eq!(
        requests,
        [r#"list 1 at """#, r#"list 1 at """#, r#"watch from "103""#]
    );
}

/// The reflector reports its contact only after the list is there.
#[test]
fn a_position_is_there_as_soon_as_the_list_is() {
    let (store, mut writer) = Store::<ConfigMap>::new(Indexers::new(), Clock::system());
    let staging = writer.begin();
    let list = Replacement {
        resource_version: "7".into(),
        ..Replacement::default()
    };
    writer.commit(staging, &list).unwrap();
    let position = store.position().unwrap();
    assert_eq!(position.resource_version().as_str(), "7");
}

/// The reflector reports what was left out only after the list is there.
#[test]
fn a_store_that_has_no_room_for_an_object_has_no_position() {
    let (store, mut writer) = Store::<ConfigMap>::new(Indexers::new(), Clock::system());
    writer.bound(1);
    let mut staging = writer.begin();
    for name in ["a", "b"] {
        let object = objects::config_map("shop", name, "5", &[]);
        let event = ObjectEvent::added(Arc::new(StoredObject::new(object)));
        writer.stage(&mut staging, event);
    }
    let list = Replacement {
        resource_version: "7".into(),
        ..Replacement::default()
    };
    writer.commit(staging, &list).unwrap();
    assert!(store.has_synced() && store.position().is_none());
}

/// A cache that began without it would answer that there is no such object.
#[test]
fn a_store_that_has_set_an_object_aside_has_no_position() {
    let restart = Restart::new();
    let source = Arc::new(restart.server.clone());
    let informer = SharedInformer::new(source, InformerOptions::default());
    let store = informer.store();
    assert!(store.position().is_none(), "no list yet");
    informer.start().unwrap();
    informer.wait_until_synced(LONG).unwrap();
    let position = store.position().unwrap();
    assert_eq!(*position.resource_version(), store.resource_version());
    assert_eq!(position.objects().len(), restart.server.objects().len());
    assert!(position.taken() >= restart.taken - LONG);
    let version = restart.server.set_undecodable("shop", "odd").to_string();
    store.wait_until_at_least(&version.into(), LONG).unwrap();
    assert!(store.position().is_none());
}

/// Nothing of it is confirmed anew, unless the server still has its version. Else a program that
/// restarts often would never see how old its content is.
#[test]
fn a_cache_that_begins_with_a_position_is_as_old_as_that() {
    let minute = Duration::from_secs(60);
    for changes in [true, false] {
        let mut restart = Restart::new();
        if !changes {
            restart.version = restart.server.version().to_string().into();
        }
        restart.taken -= 2 * minute;
        restart
            .server
            .fail_next(RequestKind::Watch, SourceFault::Hang);
        let source = restart.position().over(Arc::new(restart.server.clone()));
        let informer = SharedInformer::new(source, InformerOptions::default());
        informer.start().unwrap();
        restart.server.wait_for_requests(2);
        let store = informer.store();
        let age = store.status().age(Clock::system().now()).unwrap();
        let taken = store.position().unwrap().taken();
        assert_eq!(age >= 2 * minute, changes, "{age:?}");
        assert_eq!(taken < restart.taken + minute, changes, "{taken:?}");
        // The watch has the idle limit to bring a sign of life.
        informer.health().unwrap();
    }
}

/// The first watch was refused in the meantime: the list that follows is the server's, not the
/// stored one again.
#[test]
fn a_position_is_used_once() {
    let restart = Restart::new();
    let refused = SourceFault::Fail(Error::from_status(Status::new(500, "no watch")));
    restart.server.fail_next(RequestKind::Watch, refused);
    let requests = restart.run(restart.position());
    let probes = requests.iter().filter(|text| *text == r#"list 1 at """#);
    assert_eq!(probes.count(), 1, "{requests:?}");
}

#[test]
fn a_stop_ends_the_question_for_the_version() {
    let restart = Restart::new();
    restart
        .server
        .fail_next(RequestKind::List, SourceFault::Hang);
    let source = restart.position().over(Arc::new(restart.server.clone()));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    restart.server.wait_for_requests(1);
    informer.shutdown(LONG).unwrap();
    let error = informer.wait_until_synced(LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
}
