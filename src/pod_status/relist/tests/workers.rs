//! Pod workers over the loop and the cache: what happens to a pod reaches who waits for it (PL-11).

use super::*;
use crate::pod_status::{ContainerStatus, Reading};
use crate::worker::Worker;

/// A pod worker: asks first with the zero time, then with the end of its previous sync, and tells what it read.
fn pod_worker(bench: &Bench, uid: &'static str) -> (Worker, Receiver<Reading<PodStatus>>) {
    let (tell, told) = bounded(0);
    let (cache, clock) = (bench.cache.clone(), Clock::from(bench.fake.clone()));
    let worker = Worker::spawn("t-pod-worker", move |_stop| {
        let mut end_of_sync = Timestamp::ZERO;
        while let Ok(reading) = cache.get_newer_than(uid, end_of_sync) {
            end_of_sync = Timestamp::now(&clock);
            if tell.send(reading).is_err() {
                return;
            }
        }
    });
    (worker.unwrap(), told)
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
    let bench = Bench::new();
    let (worker, told) = pod_worker(&bench, "a");
    bench.list("a c1=running");
    bench.expect(&Asked::Inspect("a".to_owned()));
    // So that the end of the worker's sync is no time of this relist: a time that is equal would count (PC-8).
    bench.fake.advance(Duration::from_millis(1));
    bench
        .answers
        .send(Answer::Inspect(status("a", "")))
        .unwrap();
    // Its first wait takes any status.
    let first = told.recv().unwrap();
    assert!(first.status().unwrap().container_statuses.is_empty());
    bench.next();
    bench.list("a c1=exited");
    bench.inspect("a", Answer::Inspect(exited("a", 3)));
    let second = told.recv().unwrap();
    let container = second.status().unwrap().find_container("web").unwrap();
    assert_eq!(container.exit_code, Some(3));
    drop(told);
    bench
        .relist
        .shutdown(crate::clock::Deadline::NEVER)
        .unwrap();
    worker.join().unwrap();
}

#[test]
fn pl_11_a_worker_hears_of_a_pod_that_nobody_lists_by_the_global_time() {
    let bench = Bench::new();
    let (worker, told) = pod_worker(&bench, "a");
    bench.list("");
    let reading = told.recv().unwrap();
    assert!(!reading.is_stored());
    assert_eq!(reading.status().unwrap().id, "a");
    drop(told);
    drop(bench);
    worker.join().unwrap();
}

#[test]
fn pl_4_a_waiting_worker_may_be_given_an_error() {
    let bench = Bench::new();
    let (worker, told) = pod_worker(&bench, "a");
    bench.list("a c1=running");
    bench.inspect("a", Answer::Fail("sandbox not found"));
    let reading = told.recv().unwrap();
    assert_eq!(reading.error().unwrap().to_string(), "sandbox not found");
    drop(told);
    drop(bench);
    worker.join().unwrap();
}

#[test]
fn pl_1_a_worker_waits_while_the_runtime_does_not_list() {
    let bench = Bench::new();
    let (worker, told) = pod_worker(&bench, "a");
    for _ in 0..3 {
        bench.answer(&Asked::List, Answer::Fail("no such socket"));
        bench.next();
    }
    assert!(told.is_empty());
    bench.list("a");
    bench.found("a");
    assert!(told.recv().unwrap().error().is_none());
    drop(told);
    drop(bench);
    worker.join().unwrap();
}
