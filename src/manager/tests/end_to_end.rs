//! The managers over real reflectors and the fake API server: what the server is asked, counted.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};

use serde_json::json;

use super::fake::{ROUND, pod};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::http::{Client, ClientOptions, Config};
use crate::manager::{
    Cached, ChangeDetection, ConfigMapManager, ManagerOptions, ObjectManager, ObjectState, Owner,
    SecretManager, WatchScope,
};
use crate::object::{Object as _, ObjectKey, Status};
use crate::testing::{ApiServer, FakeSource, RequestKind, SourceFault, objects};
use crate::tests::until::{until, until_some};
use crate::worker::Worker;

fn secret(name: &str) -> Secret {
    objects::secret("ns", name, "", &[("password", "canary")])
}

fn immutable(name: &str) -> Secret {
    Secret {
        immutable: Some(true),
        ..secret(name)
    }
}

/// A manager and its server on one fake clock, the housekeeper in its first rest.
fn stage(source: &FakeSource<Secret>, clock: &FakeClock) -> SecretManager {
    let options = ManagerOptions::default()
        .clock(Clock::from(clock.clone()))
        .idle_max(ROUND);
    let manager = SecretManager::new(source.clone(), options).unwrap();
    clock.wait_for_timer(ROUND);
    manager
}

fn kinds(source: &FakeSource<Secret>) -> Vec<(RequestKind, String)> {
    let requests = source.requests().into_iter();
    requests
        .map(|request| (request.kind, request.resource_version.to_string()))
        .collect()
}

fn in_a_minute() -> Deadline {
    Clock::system().after(Duration::from_secs(60))
}

/// OC-1, OC-2, `TestSecretCache` and `TestSecretCacheMultipleRegistrations`: one list, one watch,
/// whatever happens then.
#[test]
fn one_list_and_one_watch_per_object() {
    let source = FakeSource::new();
    let manager = SecretManager::new(source.clone(), ManagerOptions::default()).unwrap();
    let first = pod("first", &["s"]);
    manager.register_pod(&first);
    let missing = manager.get_by("ns", "s", in_a_minute()).unwrap_err();
    assert_eq!(missing.to_string(), "secret \"s\" not found");
    source.wait_for_watches(1);
    for number in 0..20 {
        let more = pod(&format!("more-{number}"), &["s"]);
        manager.register_pod(&more);
        manager.unregister_pod(&more);
    }
    source.set(secret("s"));
    until_some(|| manager.get("ns", "s").ok());
    source.delete("ns", "s");
    until_some(|| manager.get("ns", "s").err());
    let asked: Vec<_> = kinds(&source).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(asked, [RequestKind::List, RequestKind::Watch]);
    manager.unregister_pod(&first);
    source.wait_for_watches(0);
    assert_eq!(source.requests().len(), 2);
}

/// OC-15, RF-45: an immutable object that is waited for costs one list and no watch.
#[test]
fn an_immutable_object_that_is_waited_for_is_listed_once_and_not_watched() {
    let source = FakeSource::new();
    source.set(immutable("s"));
    source.fail_next(RequestKind::List, SourceFault::Hang);
    let manager = SecretManager::new(source.clone(), ManagerOptions::default()).unwrap();
    let pod = pod("p", &["s"]);
    manager.register_pod(&pod);
    let item = manager.store().entry_to_read("ns", "s").unwrap();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| manager.get_by("ns", "s", in_a_minute()).map(drop));
        until(|| item.waiters.any());
        source.wait_for_requests(1);
        source.heal();
        read.join().unwrap().unwrap();
    });
    drop(item);
    manager.unregister_pod(&pod);
    drop(manager);
    let asked: Vec<_> = kinds(&source).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(asked, [RequestKind::List]);
}

/// B3: the first retry fits into a get, because a reader waits; counted: two lists, one watch.
#[test]
fn a_first_list_that_failed_is_tried_again_within_the_get() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    source.set(secret("s"));
    let failure = Error::from_status(Status::new(500, "one moment"));
    source.fail_next(RequestKind::List, SourceFault::Fail(failure));
    let manager = stage(&source, &clock);
    manager.register_pod(&pod("p", &["s"]));
    let reader = manager.clone();
    let (send, answer) = crossbeam_channel::bounded(1);
    let worker = Worker::spawn("t-get", move |_| {
        send.send(reader.get("ns", "s").map(drop)).unwrap();
    });
    // The reader's second, and the reflector's short backoff.
    clock.wait_for_timer(Duration::from_secs(1));
    let short = until_some(|| {
        let next = clock.wait_for_next_timer();
        (next <= Duration::from_millis(100)).then_some(next)
    });
    clock.advance(short);
    let answered = answer.recv().unwrap();
    answered.expect("within its second");
    worker.unwrap().join().unwrap();
    source.wait_for_watches(1);
    let asked: Vec<_> = kinds(&source).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(
        asked,
        [RequestKind::List, RequestKind::List, RequestKind::Watch]
    );
}

/// R4: a refusal is retried for three seconds, then it is the answer; once lifted, it is forgotten.
#[test]
fn a_refusal_is_an_answer_after_three_seconds() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    source.set(secret("s"));
    let refusal = Status::new(403, "no relationship found between node and this object");
    source.fail_all(RequestKind::List, Error::from_status(refusal));
    let manager = stage(&source, &clock);
    manager.register_pod(&pod("p", &["s"]));
    source.wait_for_requests(1);
    let now = Deadline::at(clock.now());
    let early = manager.get_by("ns", "s", now).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::NotSynced);
    let begin = clock.now();
    let denied = until_some(|| {
        clock.advance(Duration::from_millis(100));
        let error = manager.get_by("ns", "s", now).err()?;
        (error.kind() == ErrorKind::Forbidden).then_some(error)
    });
    assert!(clock.now().duration_since(begin) >= Duration::from_millis(2_900));
    assert!(
        denied
            .to_string()
            .ends_with(": no relationship found between node and this object")
    );
    source.heal();
    until_some(|| {
        clock.advance(Duration::from_millis(100));
        manager.get_by("ns", "s", now).ok()
    });
}

/// OC-21, OC-22 (B4): the restart lists at `0`, and once more at the most recent because that was
/// older.
#[test]
fn an_idle_object_comes_back_no_older_than_it_went() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    source.set(secret("s"));
    let old = source.version();
    let newest = source.set(secret("s"));
    let manager = stage(&source, &clock);
    manager.register_pod(&pod("p", &["s"]));
    manager.get_by("ns", "s", Deadline::NEVER).unwrap();
    source.wait_for_watches(1);
    clock.advance(ROUND + Duration::from_millis(1));
    source.wait_for_watches(0);
    source.lag(Some(old));
    let again = manager.get_by("ns", "s", Deadline::NEVER).unwrap();
    assert_eq!(again.metadata.resource_version, Some(newest.to_string()));
    source.wait_for_watches(1);
    let newest = newest.to_string();
    let expected = [
        (RequestKind::List, "0".to_owned()),
        (RequestKind::Watch, newest.clone()),
        (RequestKind::List, "0".to_owned()),
        (RequestKind::List, String::new()),
        (RequestKind::Watch, newest),
    ];
    assert_eq!(kinds(&source), expected);
}

/// SC-1, `TestCacheBasedConfigMapManager`, B16: no watch and no thread of a manager outlives it,
/// whatever they were doing.
#[test]
fn a_dropped_manager_leaves_no_watch() {
    let source = FakeSource::new();
    let manager = ConfigMapManager::new(source.clone(), ManagerOptions::default()).unwrap();
    for number in 0..20 {
        let name = format!("c{number}");
        source.set(objects::config_map("shop", &name, "", &[("tax", "7")]));
        let pod = objects::pod("shop", &format!("p{number}"), "node", &[], &[&name]);
        manager.register_pod(&pod);
    }
    for number in 0..20 {
        let name = format!("c{number}");
        let deadline = in_a_minute();
        let found: ConfigMap = {
            let cached = manager.get_by("shop", &name, deadline).unwrap();
            (*cached).clone()
        };
        assert_eq!(found.metadata.name.as_deref(), Some(&*name));
    }
    source.wait_for_watches(20);
    drop(manager);
    assert_eq!(source.open_watches(), 0);
}

/// `TestWatchBasedManager` in small: many objects from many threads, each readable.
#[test]
fn many_objects_from_many_threads() {
    let source = FakeSource::new();
    for worker in 0..10 {
        for number in 0..20 {
            source.set(secret(&format!("s{worker}-{number}")));
        }
    }
    let manager = SecretManager::new(source.clone(), ManagerOptions::default()).unwrap();
    let workers: Vec<_> = (0..10)
        .map(|worker| {
            let manager = manager.clone();
            Worker::spawn(format!("t-many-{worker}"), move |_| {
                for number in 0..20 {
                    let name = format!("s{worker}-{number}");
                    let pod = pod(&format!("p{worker}-{number}"), &[&name]);
                    manager.register_pod(&pod);
                    manager.get_by("ns", &name, in_a_minute()).unwrap();
                }
            })
            .unwrap()
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}

/// B10: a read of an object whose watch is in a backoff shortens that to its first step.
#[test]
fn b10_a_read_of_an_object_in_a_backoff_has_the_server_asked_sooner() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    source.set(secret("s"));
    let options = ManagerOptions::default().clock(Clock::from(clock.clone()));
    let manager = SecretManager::new(source.clone(), options).unwrap();
    manager.register_pod(&pod("p", &["s"]));
    manager.get_by("ns", "s", in_a_minute()).unwrap();
    source.wait_for_watches(1);
    source.fail_all(
        RequestKind::Watch,
        Error::new(ErrorKind::Unreachable, "connection refused"),
    );
    clock.advance(Duration::from_secs(10));
    source.skip_to(9);
    source.bookmark();
    source.end_watches(Some(&Error::from_status(Status::new(500, "cut off"))));
    // Four failures: the last wait is 6.4 s or more.
    for requests in 3..6 {
        source.wait_for_requests(requests);
        let wait = until_some(|| {
            let next = clock.wait_for_next_timer();
            (next < Duration::from_secs(10) && !next.is_zero()).then_some(next)
        });
        clock.advance(wait);
    }
    source.wait_for_requests(6);
    let wait = until_some(|| {
        let next = clock.wait_for_next_timer();
        (next >= Duration::from_millis(6400) && next < ROUND).then_some(next)
    });
    let cached = until_some(|| {
        let cached = manager.get("ns", "s").unwrap();
        cached.last_error().is_some().then_some(cached)
    });
    assert!(
        !cached.is_stale(),
        "a server that is away is not known to have changed"
    );
    source.heal();
    until(|| {
        manager.get("ns", "s").unwrap();
        let next = clock.wait_for_next_timer();
        next < Duration::from_millis(1600)
    });
    clock.advance(Duration::from_millis(1600));
    source.wait_for_watches(1);
    assert!(wait > Duration::from_millis(1600));
}

/// B10: a server that answers again for one object is asked for the others too, though no reader
/// wants them.
#[test]
fn b10_one_object_that_recovers_shortens_the_backoffs_of_the_others() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    let options = ManagerOptions::default().clock(Clock::from(clock.clone()));
    let manager = SecretManager::new(source.clone(), options).unwrap();
    for name in ["read", "unread"] {
        source.set(secret(name));
        manager.register_pod(&pod(name, &[name]));
        manager.get_by("ns", name, in_a_minute()).unwrap();
    }
    source.wait_for_watches(2);
    source.fail_all(
        RequestKind::Watch,
        Error::new(ErrorKind::Unreachable, "connection refused"),
    );
    clock.advance(Duration::from_secs(10));
    source.end_watches(Some(&Error::from_status(Status::new(500, "cut off"))));
    // Both rest in a long backoff, beside the housekeeper.
    until(|| {
        let next = clock.wait_for_timers(3);
        let is_long = next >= Duration::from_secs(4) && source.requests().len() >= 10;
        if !is_long {
            clock.advance(next);
        }
        is_long
    });
    source.heal();
    manager.get("ns", "read").unwrap();
    // The rest of either backoff is over at once, or after a first step.
    until(|| {
        let next = clock.wait_for_next_timer();
        if next < Duration::from_millis(1600) {
            clock.advance(next);
        }
        source.open_watches() == 2
    });
}

/// R4, B10: a permission is withdrawn for an hour: rare tries, a state that says so, the last copy
/// for readers; and all is back at once with a read.
#[test]
fn r4_a_permission_that_is_withdrawn_for_an_hour_costs_little_and_is_back_at_once() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    let options = ManagerOptions::default()
        .clock(Clock::from(clock.clone()))
        .idle_max(10 * HOUR);
    let manager = SecretManager::new(source.clone(), options).unwrap();
    for name in ["read", "unread"] {
        source.set(secret(name));
        manager.register_pod(&pod(name, &[name]));
        manager.get_by("ns", name, in_a_minute()).unwrap();
    }
    source.wait_for_watches(2);
    let before = source.requests().len();
    let refusal = Error::from_status(Status::new(403, "secrets is forbidden"));
    source.fail_all(RequestKind::Watch, refusal.clone());
    source.fail_all(RequestKind::List, refusal.clone());
    source.end_watches(Some(&refusal));
    let end = clock.now() + HOUR;
    while clock.now() < end {
        // Both rest in a backoff, beside the housekeeper.
        clock.advance(clock.wait_for_timers(3));
    }
    clock.wait_for_timers(3);
    let tries = source.requests().len() - before;
    println!("{tries} requests for two objects in an hour");
    assert!(tries <= 64, "{tries}");
    let reports = manager.inspect().into_values().flatten();
    for report in reports {
        assert_eq!(report.state, ObjectState::Refused, "{report:?}");
        let reason = &report.reason;
        assert!(
            reason.contains(" failed in 36") && reason.ends_with("is forbidden"),
            "{reason}"
        );
    }
    assert!(manager.get("ns", "read").unwrap().last_error().is_some());
    source.heal();
    manager.get("ns", "read").unwrap();
    let healed = clock.now();
    until(|| {
        if clock.now() - healed < Duration::from_secs(60) {
            clock.advance(Duration::from_millis(100));
        }
        source.open_watches() == 2
    });
    until(|| {
        let mut reports = manager.inspect().into_values().flatten();
        reports.all(|report| report.state == ObjectState::Synced)
    });
}

/// OC-15: what was refused to the watch of an immutable object is no news once it needs no watch.
#[test]
fn oc_15_an_immutable_object_is_not_refused_once_it_was_read() {
    let (source, clock) = (FakeSource::new(), FakeClock::new());
    let options = ManagerOptions::default().clock(Clock::from(clock.clone()));
    let manager = SecretManager::new(source.clone(), options).unwrap();
    source.set(immutable("s"));
    manager.register_pod(&pod("s", &["s"]));
    let report = || manager.inspect().into_values().flatten().next().unwrap();
    source.wait_for_watches(1);
    let refusal = Error::from_status(Status::new(403, "secrets is forbidden"));
    source.fail_all(RequestKind::Watch, refusal.clone());
    source.fail_all(RequestKind::List, refusal.clone());
    source.end_watches(Some(&refusal));
    until(|| {
        clock.advance(clock.wait_for_timers(2));
        report().state == ObjectState::Refused
    });
    manager.get_cached("ns", "s").unwrap();
    let after = report();
    assert_eq!(after.state, ObjectState::Synced, "{after:?}");
    assert_eq!(after.reason, "immutable, so its watch is stopped");
    let cached = manager.get_cached("ns", "s").unwrap().unwrap();
    assert!(cached.last_error().is_none(), "{cached:?}");
}

/// By a watch of its own, by one of the whole kind, and by gets.
#[test]
fn an_object_without_a_namespace_is_kept_by_its_name() {
    let server = ApiServer::new().unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, ClientOptions::default()).unwrap();
    let set = |name: &str, pool: &str| {
        let metadata = json!({ "name": name, "labels": { "pool": pool } });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        server.apply_value(&node).unwrap();
    };
    let owner = Owner::new("Test", ObjectKey::new("", "agent"));
    let of_kind = WatchScope::Namespace { above: 0 };
    let watch = ManagerOptions::default();
    for (options, watches) in [
        (watch.clone(), 2),
        (watch.clone().watch_scope(of_kind), 1),
        (watch.clone().change_detection(ChangeDetection::Cache), 0),
        (watch.change_detection(ChangeDetection::Get), 0),
    ] {
        let manager = ObjectManager::<Node>::new(client.clone(), options).unwrap();
        let pool = |read: Cached<Node>| read.label("pool").map(str::to_owned);
        for name in ["a", "b"] {
            set(name, "old");
            manager.add_reference(&owner, &ObjectKey::new("", name));
            let read = manager.get_by("", name, in_a_minute()).unwrap();
            assert_eq!(pool(read).as_deref(), Some("old"));
        }
        assert!(server.wait_for_watches(in_a_minute(), |open| open == watches));
        let reports = manager.namespace_reports();
        assert_eq!(reports.len(), usize::from(watches == 1), "{reports:?}");
        set("a", "new");
        let read = manager.get_fresh("", "a", in_a_minute()).unwrap();
        assert_eq!(pool(read).as_deref(), Some("new"));
        let read = manager.get_by("", "a", in_a_minute()).unwrap();
        assert_eq!(pool(read).as_deref(), Some("new"));
    }
}
