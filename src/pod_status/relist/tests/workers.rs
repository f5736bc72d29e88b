//! Pod workers over the loop and the cache: a pod's change reaches its waiters (PL-11).

use super::*;
use crate::pod_status::{ContainerStatus, PodReading};

/// A pod worker: asks first with the zero time, then with the end of its previous sync, and reports
/// its readings.
fn pod_worker(stage: &Stage, uid: &'static str) -> WaitingThread<PodReading<PodStatus>> {
    let clock = Clock::from(stage.fake.clone());
    WaitingThread::spawn(&stage.cache, move |cache, tell| {
        let mut end_of_sync = Timestamp::ZERO;
        while let Ok(reading) = cache.get_newer_than(uid, end_of_sync) {
            end_of_sync = Timestamp::now(&clock);
            if tell.send(reading).is_err() {
                return;
            }
        }
    })
}

fn exited(uid: &str, code: i32) -> PodStatus {
    let container = ContainerStatus {
        name: "web".to_owned(),
        state: ContainerState::Exited,
        exit_code: Some(code),
        ..ContainerStatus::default()
    };
    let mut status = status(uid, "");
    status.container_statuses.push(container);
    status
}

#[test]
fn pl_11_a_pod_that_dies_is_seen_by_the_worker_that_waits_for_it() {
    let stage = Stage::new();
    let worker = pod_worker(&stage, "a");
    stage.list("a c1=running");
    stage.expect(&Asked::Inspect("a".to_owned()));
    // So that the end of the worker's sync differs from the time of this relist: an equal time
    // would count (PC-8).
    stage.fake.advance(Duration::from_millis(1));
    stage.give(Answer::Inspect(status("a", "")));
    // Its first wait takes any status.
    let first = worker.comes("the first status");
    assert!(first.status().unwrap().container_statuses.is_empty());
    stage.next();
    stage.list("a c1=exited");
    stage.inspect("a", Answer::Inspect(exited("a", 3)));
    let second = worker.comes("the exit");
    let container = second.status().unwrap().find_container("web").unwrap();
    assert_eq!(container.exit_code, Some(3));
    stage.shut_down();
    worker.join();
}

#[test]
fn pl_11_a_worker_hears_of_a_pod_that_nobody_lists_by_the_global_time() {
    let stage = Stage::new();
    let worker = pod_worker(&stage, "a");
    stage.list("");
    let reading = worker.comes("the global time");
    assert!(!reading.is_stored());
    assert_eq!(reading.status().unwrap().id, "a");
    drop(stage);
    worker.join();
}

#[test]
fn pl_4_a_waiting_worker_may_be_given_an_error() {
    let stage = Stage::new();
    let worker = pod_worker(&stage, "a");
    stage.list("a c1=running");
    stage.inspect("a", Answer::Fail("sandbox not found"));
    let reading = worker.comes("the error");
    assert_eq!(reading.error().unwrap().to_string(), "sandbox not found");
    drop(stage);
    worker.join();
}

#[test]
fn pl_1_a_worker_waits_while_the_runtime_does_not_list() {
    let stage = Stage::new();
    let worker = pod_worker(&stage, "a");
    for _ in 0..3 {
        stage.answer(&Asked::List, Answer::Fail("no such socket"));
        stage.next();
    }
    assert!(worker.told.is_empty());
    stage.list("a");
    stage.found("a");
    assert!(worker.comes("a status").error().is_none());
    drop(stage);
    worker.join();
}
