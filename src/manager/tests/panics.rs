//! Code of the program's own that panics under a manager: an error of that call, and the end of
//! nothing (B16).

#![expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs is what the test is about: it is not to be joined"
)]

use std::time::Duration;

use crossbeam_channel::bounded;
use k8s_openapi::api::core::v1::Secret;

use super::fake::{ROUND, immutable, pod, secret};
use super::stage::Stage;
use crate::clock::{Clock, Deadline};
use crate::error::ErrorKind;
use crate::hooks::Hook;
use crate::manager::{
    ChangeDetection, KindTraits, ManagerMetric, ManagerOptions, ObjectState, PastLimit,
    SecretManager,
};
use crate::object::ObjectKey;
use crate::sync::atomic::Ordering;
use crate::sync::{self, ProcessFlag};
use crate::testing::FakeSource;
use crate::testing::bad::{Bad, Faulty};
use crate::tests::until::{until, until_some};

/// Bounds a failure: what a test waits for does not come.
const LONG: Duration = Duration::from_secs(2 * 60);

/// Drops the manager on a thread of its own; a drop that hangs is a failure and no hanging test.
fn drop_in_time(manager: SecretManager) {
    let (dropped, ended) = bounded(1);
    std::thread::spawn(move || {
        drop(manager);
        dropped.send(()).unwrap();
    });
    ended.recv_timeout(LONG).expect("the drop ends");
}

/// The program's function was called under a lock.
static CALLED_UNDER_A_LOCK: ProcessFlag = ProcessFlag::new(false);

/// The test for immutable objects runs under no lock; where it panics, the object may change.
#[test]
fn immutable_when_is_called_under_no_lock_and_its_panic_ends_no_read() {
    let kind = KindTraits::<Secret>::default().immutable_when(|secret| {
        if sync::held().next().is_some() {
            CALLED_UNDER_A_LOCK.store(true, Ordering::SeqCst);
        }
        assert!(secret.metadata.name.as_deref() != Some("bad"), "made up");
        true
    });
    let soon = Clock::system().after(LONG);
    let polled = ManagerOptions::default().past_limit(PastLimit::Poll);
    for options in [
        ManagerOptions::default(),
        polled.watches_max(1),
        ManagerOptions::default().change_detection(ChangeDetection::Cache),
        ManagerOptions::default().change_detection(ChangeDetection::Get),
    ] {
        let server = FakeSource::<Secret>::new();
        let manager = SecretManager::of_kind(kind, server.clone(), options).unwrap();
        for (name, immutable) in [("good", true), ("bad", false)] {
            server.set(secret(name, ""));
            manager.register_pod(&pod(name, &[name]));
            manager.get_by("ns", name, soon).unwrap();
            manager.get_by("ns", name, soon).unwrap();
            manager.get_at_least("ns", name, &"".into(), soon).unwrap();
            let report = manager.inspect_object(&ObjectKey::new("ns", name));
            assert_eq!(report.unwrap().immutable, immutable, "{name}");
        }
    }
    assert!(!CALLED_UNDER_A_LOCK.load(Ordering::SeqCst));
}

/// Seen: the panic reached the caller of `register_pod`, and the manager's drop then hung for ever.
#[test]
fn a_panic_in_lister_watcher_is_the_reads_failure_and_hangs_no_drop() {
    let stage = Stage::of(ChangeDetection::Watch).start();
    stage.source.set(secret("s", ""));
    // The housekeeper's first round would make the second try.
    stage.clock.wait_for_timer(ROUND);
    stage.faulty.panic_in("lister_watcher", 2);
    let manager = stage.manager;
    let (registered, pods) = bounded(1);
    std::thread::spawn(move || {
        let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            manager.register_pod(&pod("p", &["s"]));
        }));
        registered.send((survived.is_ok(), manager)).unwrap();
    });
    let (survived, manager) = pods.recv_timeout(LONG).unwrap();
    assert!(survived, "a registration never fails");
    let now = Deadline::at(stage.clock.now());
    let error = manager.get_by("ns", "s", now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(
        error.to_string(),
        "the Api's lister_watcher for secret ns/s panicked: a bad source"
    );
    manager.get_by("ns", "s", Deadline::NEVER).unwrap();
    drop_in_time(manager);
}

#[test]
fn a_panic_in_lister_watcher_hangs_no_drop() {
    let stage = Stage::of(ChangeDetection::Watch).start();
    stage.faulty.panic_in("lister_watcher", usize::MAX);
    let registers = stage.manager.clone();
    drop(std::thread::spawn(move || registers.register_pod(&pod("p", &["s"]))).join());
    drop_in_time(stage.manager);
}

/// An object whose watch cannot be made keeps no other from its room.
#[test]
fn a_panic_for_one_object_holds_up_no_other() {
    let stage = Stage::of(ChangeDetection::Watch)
        .options(|options| options.watches_max(1))
        .start();
    stage.source.set(secret("z", ""));
    stage.clock.wait_for_timer(ROUND);
    stage.manager.register_pod(&pod("first", &["m"]));
    stage.manager.register_pod(&pod("waits", &["z"]));
    stage.faulty.panic_in("metadata.name=a", usize::MAX);
    stage.manager.register_pod(&pod("bad", &["a"]));
    stage.manager.unregister_pod(&pod("first", &["m"]));
    let key = ObjectKey::new("ns", "z");
    let of_z = || stage.manager.inspect_object(&key).unwrap().state;
    until(|| of_z() == ObjectState::Synced);
}

#[test]
fn a_panic_in_getter_fails_the_start() {
    let api = Bad::new(FakeSource::<Secret>::new());
    for mode in ChangeDetection::ALL {
        api.faulty.panic_in("getter", 1);
        let options = ManagerOptions::default().change_detection(mode);
        let error = SecretManager::new(api.clone(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{mode}");
        let text = "the Api's getter for secrets panicked: a bad source";
        assert_eq!(error.to_string(), text, "{mode}");
    }
}

#[test]
fn a_panic_in_a_get_is_the_error_of_that_read() {
    for mode in ChangeDetection::ALL {
        let stage = Stage::of(mode).start();
        stage.source.set(secret("s", ""));
        stage.manager.register_pod(&pod("p", &["s"]));
        stage.faulty.panic_in("get", 1);
        let read = || stage.manager.get_fresh("ns", "s", Deadline::NEVER);
        let error = read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{mode}");
        let text = "the getter of secret ns/s panicked: a bad source";
        assert_eq!(error.to_string(), text, "{mode}");
        read().unwrap();
        drop_in_time(stage.manager);
    }
}

/// Seen: it ended the checker, and the old object was served for ever without a failure.
#[test]
fn a_panic_in_a_check_is_a_check_that_failed_and_is_tried_again() {
    let stage = Stage::of(ChangeDetection::Watch).start();
    stage.clock.wait_for_timer(ROUND);
    stage.source.set(immutable("s", ""));
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
    stage.source.wait_for_watches(0);
    stage.faulty.panic_in("get", 1);
    stage.manager.register_pod(&pod("q", &["s"]));
    let kept = stage.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
    assert!(kept.is_stale());
    let failure = kept.last_error().unwrap();
    assert_eq!(failure.kind(), ErrorKind::Panicked);
    stage.clock.advance(ROUND);
    let checked = until_some(|| {
        let checked = stage.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        (!checked.is_stale()).then_some(checked)
    });
    assert!(checked.last_error().is_none());
    drop_in_time(stage.manager);
}

/// Panics when it is told what a test names.
fn hook(faulty: &Faulty) -> Hook<ManagerMetric> {
    let faulty = faulty.clone();
    Hook::new(move |metric| match metric {
        ManagerMetric::Started { .. } => faulty.call("manager_started"),
        ManagerMetric::Read { .. } => faulty.call("read"),
        ManagerMetric::Reflector(_) => {}
    })
}

#[test]
fn a_panic_in_the_metrics_of_a_manager_fails_its_start_or_nothing() {
    for mode in ChangeDetection::ALL {
        let faulty = Faulty::default();
        faulty.panic_in("manager_started", 1);
        let options = ManagerOptions::default()
            .change_detection(mode)
            .metrics(hook(&faulty));
        let error = SecretManager::new(FakeSource::new(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{mode}");
        let text = "the metrics of the secret cache panicked: a bad source";
        assert_eq!(error.to_string(), text, "{mode}");

        let stage = Stage::of(mode)
            .options(|options| options.metrics(hook(&faulty)))
            .start();
        stage.source.set(secret("s", ""));
        stage.manager.register_pod(&pod("p", &["s"]));
        faulty.panic_in("read", 1);
        let read = stage.manager.get_by("ns", "s", Deadline::NEVER);
        assert!(read.is_ok(), "{mode}: the read has its answer");
        assert_eq!(faulty.left(), 0, "{mode}");
        drop_in_time(stage.manager);
    }
}
