//! Whether the server keeps confirming what a manager holds (B14), over runs without threads and a
//! clock that stands still.

use std::error::Error as _;
use std::time::Duration;

use super::fake::{ROUND, commit_into, immutable, pod, secret};
use super::stage::Stage;
use crate::error::{Error, ErrorKind};
use crate::manager::{ChangeDetection, ManagerOptions, SecretManager};
use crate::object::{ObjectKey, Status};
use crate::reflector::{ReflectorOptions, ReflectorStatus, Sink as _};
use crate::testing::FakeSource;

const LIMIT: Duration = Duration::from_secs(130);

/// The status of a reflector that the server has just confirmed.
fn confirmed(stage: &Stage) -> ReflectorStatus {
    let now = stage.clock.now();
    ReflectorStatus {
        synced: true,
        last_contact: Some(now),
        contact_deadline: now.checked_add(LIMIT),
        ..ReflectorStatus::default()
    }
}

fn is_overdue(stage: &Stage, name: &str) -> bool {
    let key = ObjectKey::new("ns", name);
    stage.manager.inspect_object(&key).unwrap().is_overdue
}

/// The server may have answered as soon as it was asked, so a slow answer is no fresh one.
#[test]
fn b14_a_list_is_as_old_as_its_request() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let index = stage.runs.at_work_index("s").unwrap();
    let took = Duration::from_secs(5);
    let committed = stage.runs.write(index, |writer| {
        let staging = writer.begin();
        stage.clock.advance(took);
        commit_into(writer, staging, "10", Some(secret("s", "5")), true)
    });
    committed.unwrap();
    assert_eq!(stage.get_now("s").unwrap().age(), took);
}

#[test]
fn b14_one_watch_that_fell_silent_is_told_of_with_its_age_and_cause_and_its_return_heals() {
    let stage = Stage::by_hand();
    stage.manager.health().unwrap();
    stage.manager.register_pod(&pod("p", &["quiet", "silent"]));
    stage.manager.health().unwrap();
    for name in ["quiet", "silent"] {
        stage
            .runs
            .list(name, "10", Some(secret(name, "5")))
            .unwrap();
        stage.runs.report(name, &confirmed(&stage));
    }
    stage.clock.advance(Duration::from_secs(100));
    stage.runs.report("quiet", &confirmed(&stage));
    stage.clock.advance(Duration::from_secs(29));
    stage.manager.health().unwrap();
    stage.clock.advance(Duration::from_secs(1));
    let failing = ReflectorStatus {
        failures: crate::failures::Failures::of(
            1,
            None,
            Error::from_status(Status::new(500, "one moment")),
        ),
        last_contact: None,
        contact_deadline: Some(stage.clock.now()),
        ..confirmed(&stage)
    };
    stage.runs.report("silent", &failing);
    let error = stage.manager.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "1 of 2 Secrets: the server last confirmed one 130s ago"
    );
    assert_eq!(error.source().unwrap().to_string(), "one moment");
    assert!(is_overdue(&stage, "silent") && !is_overdue(&stage, "quiet"));
    stage.runs.report("silent", &confirmed(&stage));
    stage.manager.health().unwrap();
}

/// Lists answer in between, so the age says nothing.
#[test]
fn b14_an_object_whose_lists_succeed_and_whose_watches_fail_is_told_with_the_cause() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let object = Some(secret("s", "5"));
    stage.runs.list("s", "10", object).unwrap();
    let began = stage.clock.now();
    stage.clock.advance(Duration::from_secs(40));
    let refused = Error::from_status(Status::new(403, "cannot watch"));
    let failing = ReflectorStatus {
        failing: crate::failures::Failures::of(4, Some(began), refused),
        ..confirmed(&stage)
    };
    stage.runs.report("s", &failing);
    let error = stage.manager.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 of 1 Secrets: no watch of one has served for 40s, in 4 attempts"
    );
    assert_eq!(error.source().unwrap().to_string(), "cannot watch");
    let report = stage.manager.inspect_object(&ObjectKey::new("ns", "s"));
    let report = report.unwrap();
    let told = (report.attempts, report.last_error.map(|error| error.kind()));
    assert_eq!(told, (4, Some(ErrorKind::Forbidden)));
}

#[test]
fn b14_a_first_answer_that_does_not_come_is_told_of_with_the_time_it_is_waited_for() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let began = stage.clock.now();
    let waiting = ReflectorStatus {
        failures: crate::failures::Failures::none_since(began),
        contact_deadline: began.checked_add(LIMIT),
        ..ReflectorStatus::default()
    };
    stage.runs.report("s", &waiting);
    stage.clock.advance(LIMIT);
    let error = stage.manager.health().unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 of 1 Secrets: the server has confirmed nothing of one for 130s: \
         no answer from the server yet"
    );
    stage.manager.unregister_pod(&pod("p", &["s"]));
    stage.manager.health().unwrap();
}

/// Its thread waits for the run before, which hangs in a hook of the program.
#[test]
fn b14_a_run_that_does_not_get_going_is_told_of() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    let limit = ReflectorOptions::default().idle_limit;
    stage.clock.advance(limit.checked_sub(ROUND).unwrap());
    stage.manager.health().unwrap();
    stage.clock.advance(ROUND);
    let error = stage.manager.health().unwrap_err();
    assert!(error.to_string().contains("confirmed nothing"), "{error}");
    assert!(is_overdue(&stage, "s"));
}

/// B14: an object that is known to be behind the server says so to every reader and to a health
/// check at once.
#[test]
fn b14_an_object_that_is_known_to_be_behind_is_stale_until_its_list_has_come() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "5"))).unwrap();
    stage.runs.report("s", &confirmed(&stage));
    assert!(!stage.get_now("s").unwrap().is_stale());
    let now = stage.clock.now();
    let behind = ReflectorStatus {
        failures: crate::failures::Failures::of(
            1,
            None,
            Error::from_status(Status::new(410, "too old")),
        ),
        behind_since: Some(now),
        contact_deadline: Some(now),
        ..confirmed(&stage)
    };
    stage.runs.report("s", &behind);
    let cached = stage.get_now("s").unwrap();
    assert!(cached.is_stale());
    assert_eq!(cached.last_error().unwrap().to_string(), "too old");
    assert!(is_overdue(&stage, "s"));
    stage.manager.health().unwrap_err();
    stage.runs.list("s", "11", Some(secret("s", "5"))).unwrap();
    stage.runs.report("s", &confirmed(&stage));
    assert!(!stage.get_now("s").unwrap().is_stale());
    stage.manager.health().unwrap();
}

/// B14: readers see each failure and each recovery at once, whatever came before.
#[test]
fn b14_a_read_follows_each_change_of_the_watchs_status() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.list("s", "10", Some(secret("s", "5"))).unwrap();
    let seen = |status: &ReflectorStatus| {
        stage.runs.report("s", status);
        let read = stage.get_now("s").unwrap();
        (read.last_error().is_some(), read.is_stale())
    };
    let gone = Error::from_status(Status::new(410, "too old"));
    let failed = ReflectorStatus {
        failures: crate::failures::Failures::of(1, None, gone),
        ..confirmed(&stage)
    };
    let behind = ReflectorStatus {
        behind_since: Some(stage.clock.now()),
        ..confirmed(&stage)
    };
    for _ in 0..2 {
        assert_eq!(seen(&confirmed(&stage)), (false, false));
        assert_eq!(seen(&failed), (true, false));
        assert_eq!(seen(&confirmed(&stage)), (false, false));
        assert_eq!(seen(&behind), (false, true));
    }
}

/// B14: what is stopped on purpose owes nothing.
#[test]
fn b14_a_stopped_immutable_or_idle_object_is_not_unhealthy() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["fixed", "idle"]));
    stage.runs.report("fixed", &confirmed(&stage));
    // Its thread has begun.
    stage.runs.report("idle", &ReflectorStatus::default());
    stage
        .runs
        .list("fixed", "10", Some(immutable("fixed", "5")))
        .unwrap();
    assert_eq!(stage.version_now("fixed"), 5);
    stage.clock.advance(LIMIT);
    stage.manager.health().unwrap();

    stage
        .runs
        .list("idle", "10", Some(secret("idle", "6")))
        .unwrap();
    stage.runs.report("idle", &confirmed(&stage));
    stage.clock.advance(LIMIT);
    assert!(is_overdue(&stage, "idle") && !is_overdue(&stage, "fixed"));
    stage.manager.health().unwrap_err();
    stage.clock.wait_for_timer(ROUND);
    stage.round();
    stage.round();
    assert!(stage.runs.is_stopped("idle"));
    assert!(!is_overdue(&stage, "idle"));
    stage.manager.health().unwrap();
}

#[test]
fn oc_25_a_manager_that_was_shut_down_owes_nothing() {
    let stage = Stage::by_hand();
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.report("s", &confirmed(&stage));
    stage.clock.advance(LIMIT);
    stage.manager.health().unwrap_err();
    stage.manager.stop();
    stage.manager.health().unwrap();
}

#[test]
fn b14_where_nothing_is_watched_nothing_is_owed() {
    for mode in [ChangeDetection::Cache, ChangeDetection::Get] {
        let options = ManagerOptions::default().change_detection(mode);
        let manager = SecretManager::new(FakeSource::new(), options).unwrap();
        manager.register_pod(&pod("p", &["s"]));
        manager.health().unwrap();
    }
}

/// The thread that joins what ends and tries again what failed goes on after a panic, and says so
/// until it has been round.
#[test]
fn a_housekeeper_that_panics_begins_anew_and_is_told_in_health() {
    let stage = Stage::by_hand();
    stage
        .runs
        .refuse(Some(Error::new(ErrorKind::TooManyReflectors, "full")));
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.runs.refuse(None);
    stage.runs.panic_once();
    stage.clock.advance(ROUND);
    stage.clock.wait_for_timer(Duration::from_secs(1));
    let error = stage.manager.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let text = "the housekeeper of the secret cache panicked: a bad launch";
    assert_eq!(error.to_string(), text);
    stage.clock.advance(Duration::from_secs(1));
    stage.clock.wait_for_timer(ROUND);
    assert_eq!(stage.runs.count(), 1, "the round was made up for");
    stage.manager.health().unwrap();
}
