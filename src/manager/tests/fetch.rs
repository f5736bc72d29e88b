//! The fetching store: what it asks, what it says, and what its rows show (SC-2).

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::fake::pod;
use super::stage::{SECOND, Stage, failed};
use crate::clock::Deadline;
use crate::error::ErrorKind;
use crate::manager::{ChangeDetection, Changed, ConfigMapManager, ManagerOptions, ObjectState};
use crate::object::{ObjectKey, ResourceVersion};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, objects};

fn stage() -> Stage {
    Stage::of(ChangeDetection::Get).start()
}

/// With the Secret `s` on the server.
fn stage_with_secret() -> Stage {
    let stage = stage();
    stage.set("s");
    stage
}

fn key() -> ObjectKey {
    ObjectKey::new("ns", "s")
}

/// SC-2: each read is one consistent GET, with or without a registration. A registration sends
/// nothing and is not needed.
#[test]
fn sc_2_each_read_asks_the_server_and_registrations_ask_nothing() {
    let stage = stage_with_secret();
    assert_eq!(stage.version("s"), 2);
    stage.manager.register_pod(&pod("p", &["s"]));
    assert_eq!(stage.version("s"), 2);
    assert_eq!(stage.set("s"), 3);
    assert_eq!(stage.version("s"), 3, "nothing lies between");
    stage.manager.unregister_pod(&pod("p", &[]));
    assert_eq!(stage.version("s"), 3);
    let requests = stage.source.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.kind, request.resource_version.as_str()))
        .collect();
    assert_eq!(seen, [(RequestKind::Get, ""); 4]);
}

/// SC-1, SC-2: the same for ConfigMaps.
#[test]
fn sc_2_config_maps_are_fetched_alike() {
    let source = FakeSource::<ConfigMap>::new();
    source.set(objects::config_map("shop", "c", "", &[("tax", "7")]));
    let options = ManagerOptions::default().change_detection(ChangeDetection::Get);
    let manager = ConfigMapManager::new(source.clone(), options).unwrap();
    let found = manager.get("shop", "c").unwrap();
    assert_eq!(found.data.as_ref().unwrap()["tax"], "7");
    let missing = manager.get("shop", "d").unwrap_err();
    let told = "get configmap shop/d: configmaps \"d\" not found";
    assert_eq!(missing.to_string(), told);
    assert_eq!(source.requests().len(), 2);
}

/// SC-2: nothing is kept: not the object, and so nothing to give without asking.
#[test]
fn sc_2_nothing_is_kept() {
    let stage = stage_with_secret();
    stage.manager.register_pod(&pod("p", &["s"]));
    let cached = stage.manager.get("ns", "s").unwrap();
    assert!(!cached.is_stale() && cached.last_error().is_none());
    assert_eq!(cached.age(), Duration::ZERO);
    stage.clock.advance(SECOND);
    assert_eq!(cached.age(), SECOND, "it grows in the holder's hands");
    assert!(stage.manager.get_cached("ns", "s").unwrap().is_none());
    assert!(stage.manager.get_cached("ns", "other").unwrap().is_none());
    assert_eq!(stage.source.requests().len(), 1);
    // The server's own copy and this one: no third.
    let held = Arc::clone(cached.stored());
    drop(cached);
    assert_eq!(Arc::strong_count(&held), 1);
}

/// SC-2, B19: what only writers need is left out, as every strategy leaves it out.
#[test]
fn sc_2_what_is_fetched_is_trimmed() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let stage = stage();
    let mut secret = objects::secret("ns", "s", "", &[("key", "canary")]);
    secret.metadata.managed_fields = Some(Vec::default());
    secret.metadata.annotations = Some([(LAST.to_owned(), "canary".to_owned())].into());
    stage.source.set(secret);
    let cached = stage.manager.get("ns", "s").unwrap();
    assert_eq!(cached.metadata.managed_fields, None);
    assert!(cached.metadata.annotations.as_ref().unwrap().is_empty());
    assert_eq!(format!("{cached:?}"), "Secret ns/s @2");
}

/// SC-2: what the server says is the answer.
#[test]
fn sc_2_errors_are_the_servers_own() {
    let stage = stage();
    stage.manager.register_pod(&pod("p", &["s"]));
    let missing = stage.get("s").unwrap_err();
    assert!(missing.is_not_found());
    stage.fail_next(failed(404, "secrets \"s\" not found"));
    let missing = stage.get("s").unwrap_err();
    let told = "get secret ns/s: secrets \"s\" not found";
    assert_eq!(missing.to_string(), told);
    assert_eq!(missing.status().unwrap().code(), 404, "nothing is lost");
    stage.fail_next(failed(409, "etcdserver: leader changed"));
    let failed = stage.get("s").unwrap_err();
    let told = "get secret ns/s: etcdserver: leader changed";
    assert_eq!(failed.to_string(), told);
    assert_eq!(failed.status().unwrap().code(), 409);
    stage.source.set_undecodable("ns", "s");
    assert_eq!(stage.get("s").unwrap_err().kind(), ErrorKind::Undecodable);
    assert_eq!(stage.inspect("s").state, ObjectState::Undecodable);
}

/// SC-2, B1, B2: the wait has an end, which says what was waited for, and how long; by default ten
/// seconds.
#[test]
fn sc_2_the_deadline_ends_a_read_and_says_what_was_waited_for() {
    let stage = stage_with_secret();
    stage.hang_next();
    let reader = stage.reader(|manager| manager.get("ns", "s").map(drop));
    stage.clock.wait_for_timer(10 * SECOND);
    stage.clock.advance(10 * SECOND);
    let error = reader.answer().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let text = error.to_string();
    let expected = "timed out waiting for secret ns/s\n1 attempt in 10.0s, the last one failed: ";
    assert!(text.starts_with(expected), "{text}");
    let now = Deadline::at(stage.clock.now());
    let late = stage.manager.get_by("ns", "s", now).unwrap_err();
    assert_eq!(
        late.to_string(),
        "no request for secret ns/s was sent: the deadline had passed"
    );
    assert_eq!(stage.source.requests().len(), 1);
}

/// OC-25, promise 4: a shutdown ends the request that is under way, and no other is sent.
#[test]
fn a_shutdown_ends_requests_that_are_under_way() {
    let stage = stage_with_secret();
    stage.hang_next();
    let never = Deadline::NEVER;
    let fetching = stage.reader(move |manager| manager.get_by("ns", "s", never).map(drop));
    stage.source.wait_for_requests(1);
    let pausing = stage.reader(move |manager| {
        let future = ResourceVersion::from("100");
        manager.get_at_least("ns", "s", &future, never).map(drop)
    });
    stage.clock.wait_for_timer(Duration::from_millis(50));
    stage.manager.stop();
    for reader in [fetching, pausing] {
        assert!(reader.answer().unwrap_err().is_stopped());
    }
    let late = stage.get("s").unwrap_err();
    assert_eq!(late.to_string(), "the secret cache: stopped");
    assert!(
        stage
            .manager
            .get_fresh("ns", "s", never)
            .unwrap_err()
            .is_stopped()
    );
    assert_eq!(stage.source.requests().len(), 2);
}

/// Rows: only what is referenced has one, and it shows how the last read ended, never a value.
#[test]
fn a_row_shows_how_the_last_read_ended() {
    let stage = stage_with_secret();
    stage.get("s").unwrap();
    assert!(
        stage.manager.inspect_object(&key()).is_none(),
        "nobody references it"
    );
    stage.manager.register_pod(&pod("p", &["s"]));
    let row = stage.inspect("s");
    assert_eq!(
        (row.state, row.reason.as_str()),
        (ObjectState::Waiting, "not read yet")
    );
    assert_eq!(
        (row.owners, row.watched, row.since_contact),
        (1, false, None)
    );
    stage.get("s").unwrap();
    stage.clock.advance(SECOND);
    let row = stage.inspect("s");
    assert_eq!(
        (row.state, row.keys, row.bytes),
        (ObjectState::Synced, 1, 6)
    );
    assert_eq!(row.resource_version.as_str(), "2");
    assert_eq!(row.since_contact, Some(SECOND));
    assert!(!format!("{row:?}").contains("canary"));
    stage.fail_next(failed(422, "one moment"));
    stage.get("s").unwrap_err();
    stage.clock.advance(SECOND);
    stage.fail_next(failed(422, "one moment"));
    stage.get("s").unwrap_err();
    let row = stage.inspect("s");
    assert_eq!(row.reason, "2 failed in 1.0s: get secret ns/s: one moment");
    assert_eq!((row.state, row.attempts), (ObjectState::Waiting, 2));
    assert_eq!(row.last_error.unwrap().cause(), "one moment");
    assert_eq!(
        row.resource_version.as_str(),
        "2",
        "the last one that was found"
    );
    stage.source.delete("ns", "s");
    stage.get("s").unwrap_err();
    let row = stage.inspect("s");
    assert_eq!((row.state, row.attempts), (ObjectState::NotFound, 0));
    assert_eq!(row.resource_version.as_str(), "");
    stage.manager.stop();
    assert_eq!(stage.inspect("s").reason, "the manager was shut down");
}

/// R4: a refusal is said to the reader at once; the row calls it one when refusals have lasted
/// three seconds.
#[test]
fn a_refusal_is_the_rows_state_after_three_seconds_of_them() {
    let stage = stage_with_secret();
    stage.manager.register_pod(&pod("p", &["s"]));
    let refuse = || {
        stage.fail_next(failed(403, "no relationship found"));
        stage.get("s").unwrap_err()
    };
    assert_eq!(refuse().kind(), ErrorKind::Forbidden);
    let row = stage.inspect("s");
    let reason = "1 failed in 0.0ns: get secret ns/s: no relationship found";
    assert_eq!(
        (row.state, row.reason.as_str()),
        (ObjectState::Waiting, reason)
    );
    stage.clock.advance(3 * SECOND);
    assert_eq!(
        stage.inspect("s").state,
        ObjectState::Waiting,
        "nobody asked again"
    );
    refuse();
    let row = stage.inspect("s");
    let reason = "get secret ns/s: no relationship found";
    let expected = (ObjectState::Forbidden, reason);
    assert_eq!((row.state, row.reason.as_str()), expected);
    stage.fail_next(failed(422, "other"));
    stage.get("s").unwrap_err();
    refuse();
    assert_eq!(
        stage.inspect("s").state,
        ObjectState::Waiting,
        "it begins anew"
    );
    stage.get("s").unwrap();
    assert_eq!(stage.inspect("s").state, ObjectState::Synced);
}

/// Subscribers hear when a row changes, and not when a read finds what the one before found.
#[test]
fn subscribers_hear_when_reads_end_otherwise() {
    let stage = stage_with_secret();
    let changes = stage.manager.subscribe();
    let notified = |expected: bool, when: &str| {
        let Changed::Keys(keys) = changes.take() else {
            panic!("{when}")
        };
        assert_eq!(keys.contains(&key()), expected, "{when}");
    };
    stage.get("s").unwrap();
    notified(false, "nobody references it");
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.get("s").unwrap();
    notified(true, "it was found");
    stage.get("s").unwrap();
    notified(false, "the same");
    stage.set("s");
    stage.get("s").unwrap();
    notified(true, "it changed");
    stage.fail_next(failed(422, "once"));
    stage.get("s").unwrap_err();
    notified(true, "it failed");
    stage.fail_next(failed(422, "twice"));
    stage.get("s").unwrap_err();
    notified(false, "it fails");
    stage.source.delete("ns", "s");
    stage.get("s").unwrap_err();
    notified(true, "it is gone");
    stage.manager.stop();
    notified(true, "nothing comes any more");
}

/// A read that began earlier and ends later does not take the row back.
#[test]
fn a_read_that_was_overtaken_does_not_take_the_row_back() {
    let stage = stage_with_secret();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.hang_next();
    let slow = stage.reader(|manager| manager.get("ns", "s").map(drop));
    stage.source.wait_for_requests(1);
    stage.get("s").unwrap();
    stage.clock.advance(10 * SECOND);
    assert_eq!(slow.answer().unwrap_err().kind(), ErrorKind::Timeout);
    let row = stage.inspect("s");
    assert_eq!((row.state, row.attempts), (ObjectState::Synced, 0));
}
