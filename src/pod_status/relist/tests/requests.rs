//! Relists of single pods on request (PL-9), with the kubelet's own cases first.

use super::super::driver::{BURST, SPACING};
use super::super::requests::REQUESTS_MAX;
use super::*;
use crate::ErrorKind;
use crate::pod_status::PodReading;
use crate::tests::until::until;

/// The rest of a period.
fn rest(passed: Duration) -> Duration {
    PERIOD.saturating_sub(passed)
}

/// A time after the last relist, for which a worker waits.
fn moved(stage: &Stage) -> Timestamp {
    stage.fake.advance(Duration::from_millis(10));
    stage.now()
}

/// A thread that waits for something newer than `min_time` of a pod.
fn waiter(
    stage: &Stage,
    uid: &'static str,
    min_time: Timestamp,
) -> WaitingThread<PodReading<PodStatus>> {
    let waiting = stage.cache.waiting().len();
    let thread = WaitingThread::spawn(&stage.cache, move |cache, tell| {
        if let Ok(reading) = cache.get_newer_than(uid, min_time) {
            let _told = tell.send(reading);
        }
    });
    let cache = stage.cache.clone();
    within("the wait of a worker", move || {
        until(|| cache.waiting().len() != waiting);
    });
    thread
}

fn uids(stage: &Stage) -> Vec<String> {
    let waits = stage.cache.waiting();
    waits.iter().map(|wait| wait.uid.to_string()).collect()
}

/// A loop whose first relist has found these pods, each with a running container.
fn started(names: &[&str]) -> Stage {
    let stage = Stage::new();
    stage.list(&all(names, "running"));
    for name in names {
        stage.found(name);
    }
    stage.pausing();
    stage
}

fn all(names: &[&str], state: &str) -> String {
    let pods = names.iter().map(|name| format!("{name} c-{name}={state}"));
    pods.collect::<Vec<_>>().join(", ")
}

#[test]
fn pl_9_a_request_relists_its_pod_and_answers_its_worker_alone() {
    let stage = Stage::new();
    stage.list("");
    stage.pausing();
    let global = stage.cache.global_time();
    let min_time = moved(&stage);
    let (a, b) = (waiter(&stage, "a", min_time), waiter(&stage, "b", min_time));
    stage.fake.advance(Duration::from_millis(1));
    assert!(stage.relist.request_relist("a"));
    let listed = stage.now();
    stage.list("a c1=running, b c2=running");
    stage.found("a");
    let reading = a.comes("the status of a");
    assert_eq!(reading.modified_time(), Some(listed));
    assert_eq!(uids(&stage), ["b"]);
    assert!(!stage.cache.get("b").is_stored(), "b was not asked for");
    assert_eq!(stage.cache.global_time(), global);
    // The worker is answered before the loop counts.
    stage.rests_for(rest(Duration::from_millis(11)));
    let report = stage.relist.report();
    assert_eq!((report.requested, report.relists), (1, 1));
    stage.shut_down();
    a.join();
    b.join();
}

#[test]
fn pl_9_a_pod_that_looks_unchanged_is_noted_as_seen_and_not_inspected() {
    let stage = started(&["a"]);
    let inspected = stage.cache.get("a").modified_time();
    let min_time = moved(&stage);
    let a = waiter(&stage, "a", min_time);
    stage.relist.request_relist("a");
    stage.list("a c-a=running");
    let reading = a.comes("the same status");
    assert_eq!(reading.modified_time(), inspected);
    assert_eq!(reading.observed_time(), Some(min_time));
    stage.shut_down();
    a.join();
}

#[test]
fn pl_9_a_due_relist_goes_first_and_serves_the_requests_from_before_it() {
    let stage = started(&["a", "b"]);
    let min_time = moved(&stage);
    let (a, b) = (waiter(&stage, "a", min_time), waiter(&stage, "b", min_time));
    // The loop is within a call, so that request and time are both there when it looks again.
    stage.relist.request_relist("a");
    stage.expect(&Asked::List);
    stage.relist.request_relist("b");
    stage.fake.advance(PERIOD);
    stage.give(Answer::List(list("a c-a=exited")));
    // The pod that was to be inspected on request is left to the relist.
    stage.list("a c-a=exited, b c-b=exited");
    stage.found("a");
    stage.found("b");
    assert!(a.comes("the status of a").is_stored());
    assert!(b.comes("the status of b").is_stored());
    stage.pausing();
    assert_eq!(stage.relist.report().requested, 0);
    stage.shut_down();
    a.join();
    b.join();
}

#[test]
fn pl_9_a_request_during_a_relist_is_served_after_it() {
    let stage = started(&["a"]);
    stage.fake.advance(PERIOD);
    stage.expect(&Asked::List);
    let min_time = moved(&stage);
    stage.relist.request_relist("a");
    stage.give(Answer::List(list("a c-a=running")));
    stage.list("a c-a=exited");
    stage.found("a");
    stage.rests_for(PERIOD);
    assert_eq!(stage.cache.get("a").modified_time(), Some(min_time));
    assert_eq!(stage.relist.report().requested, 1);
}

#[test]
fn wp_8_a_relist_on_request_does_not_put_the_next_relist_off() {
    let stage = started(&["a"]);
    stage.fake.advance(PERIOD / 2);
    stage.relist.request_relist("a");
    stage.list("a c-a=running");
    stage.rests_for(PERIOD / 2);
    assert_eq!(stage.relist.report().last_interval, None);
    stage.fake.advance(PERIOD / 2);
    stage.list("a c-a=running");
    stage.pausing();
    assert_eq!(stage.relist.report().last_interval, Some(PERIOD));
}

#[test]
fn pl_9_a_reinspection_is_of_a_pod_that_looks_unchanged_and_happens_once() {
    let stage = started(&["a", "b"]);
    assert!(stage.relist.requests().request_reinspect("a"));
    stage.pausing();
    let min_time = moved(&stage);
    stage.relist.request_relist("a");
    stage.list(&all(&["a", "b"], "running"));
    stage.found("a");
    stage.rests_for(rest(Duration::from_millis(10)));
    assert_eq!(stage.cache.get("a").modified_time(), Some(min_time));
    // The relist of all does the same, and none after it.
    assert!(stage.relist.requests().request_reinspect("b"));
    stage.fake.advance(PERIOD);
    stage.list(&all(&["a", "b"], "running"));
    stage.found("b");
    stage.next();
    stage.list(&all(&["a", "b"], "running"));
    stage.pausing();
    assert_eq!(stage.relist.report().failing_pods, 0);
}

#[test]
fn pl_3_a_reinspection_that_fails_is_repeated_on_request_and_by_the_next_relist() {
    let stage = started(&["a"]);
    stage.relist.requests().request_reinspect("a");
    stage.relist.request_relist("a");
    stage.list("a c-a=running");
    stage.inspect("a", Answer::Fail("busy"));
    stage.pausing();
    let failed = moved(&stage);
    stage.relist.request_relist("a");
    stage.list("a c-a=running");
    stage.inspect("a", Answer::Fail("still busy"));
    stage.rests_for(rest(Duration::from_millis(10)));
    let reading = stage.cache.get("a");
    assert_eq!(reading.error().unwrap().to_string(), "still busy");
    assert_eq!(reading.observed_time(), Some(failed));
    stage.fake.advance(PERIOD);
    stage.list("a c-a=running");
    stage.found("a");
    stage.pausing();
    assert!(stage.cache.get("a").error().is_none());
}

/// A pod that is to be inspected again anyway, because that failed.
#[test]
fn pl_9_a_reinspection_of_a_pod_that_failed_is_one_and_the_next_failure_is_kept() {
    let stage = started(&["a"]);
    let requests = stage.relist.requests().clone();
    assert!(requests.request_reinspect("a"));
    stage.next();
    stage.list("a c-a=running");
    stage.inspect("a", Answer::Fail("busy"));
    stage.pausing();
    for answer in [
        Answer::Fail("still busy"),
        Answer::Inspect(status("a", "10.0.0.1")),
    ] {
        assert_eq!(stage.relist.report().failing_pods, 1);
        assert!(requests.request_reinspect("a"));
        stage.fake.advance(PERIOD);
        stage.list("a c-a=running");
        stage.inspect("a", answer);
        stage.pausing();
    }
    assert_eq!(stage.relist.report().failing_pods, 0);
    stage.fake.advance(PERIOD);
    stage.list("a c-a=running");
    stage.pausing();
    stage.shut_down();
}

#[test]
fn pl_9_a_pod_that_has_gone_is_not_inspected_on_request() {
    let stage = started(&["a"]);
    assert!(stage.relist.requests().request_reinspect("a"));
    stage.next();
    stage.list("");
    stage.pausing();
    assert!(!stage.cache.get("a").is_stored());
    assert_eq!(stage.relist.report().failing_pods, 0);
    stage.shut_down();
}

/// Both wait when the relist of all is due, which serves both.
#[test]
fn pl_9_a_due_relist_makes_the_reinspection_that_a_request_was_for() {
    let stage = started(&["a"]);
    let min_time = moved(&stage);
    let a = waiter(&stage, "a", min_time);
    // The loop is within a call, so that both and the time are there when it looks again.
    stage.relist.request_relist("a");
    stage.expect(&Asked::List);
    assert!(stage.relist.requests().request_reinspect("a"));
    stage.relist.request_relist("a");
    stage.fake.advance(PERIOD);
    stage.give(Answer::List(list("a c-a=running")));
    stage.list("a c-a=running");
    stage.found("a");
    assert!(a.comes("the status of a").modified_time() > Some(min_time));
    stage.pausing();
    assert_eq!(stage.relist.report().requested, 0);
    stage.shut_down();
    a.join();
}

#[test]
fn pl_9_a_request_for_a_pod_that_the_runtime_does_not_find_changes_nothing() {
    let stage = started(&["a"]);
    let min_time = moved(&stage);
    let (a, unknown) = (waiter(&stage, "a", min_time), waiter(&stage, "u", min_time));
    stage.relist.request_relist("u");
    stage.relist.requests().request_reinspect("u");
    stage.list("");
    stage.rests_for(rest(Duration::from_millis(10)));
    assert!(
        stage.cache.get("a").is_stored(),
        "the next relist deletes it"
    );
    assert_eq!(stage.cache.waiting().len(), 2);
    assert_eq!(stage.relist.report().requested, 0);
    stage.fake.advance(PERIOD);
    stage.list("");
    stage.pausing();
    for thread in [a, unknown] {
        assert!(!thread.comes("the global time").is_stored());
        thread.join();
    }
}

#[test]
fn pl_9_a_request_whose_list_fails_is_left_to_the_next_relist() {
    let stage = started(&["a"]);
    for answer in [Answer::Fail("no such socket"), Answer::Panic("boom")] {
        stage.relist.request_relist("a");
        stage.answer(&Asked::List, answer);
        stage.pausing();
        stage.relist.request_relist("a");
        stage.list("a c-a=running");
        stage.next();
        stage.list("a c-a=running");
        stage.pausing();
    }
    let report = stage.relist.report();
    assert_eq!((report.failures, report.requested), (2, 2));
    assert!(stage.relist.health().is_ok());
}

#[test]
fn pl_9_a_relist_that_fails_serves_no_request() {
    let stage = started(&["a"]);
    stage.fake.advance(PERIOD);
    stage.expect(&Asked::List);
    stage.fake.advance(PERIOD);
    stage.give(Answer::List(list("a c-a=running")));
    stage.pausing();
    // Request and relist are both there when the loop looks.
    stage.relist.request_relist("a");
    stage.expect(&Asked::List);
    stage.relist.request_relist("a");
    stage.fake.advance(PERIOD);
    stage.give(Answer::Fail("no such socket"));
    stage.answer(&Asked::List, Answer::Fail("no such socket"));
    stage.list("a c-a=exited");
    stage.found("a");
    stage.pausing();
    assert_eq!(stage.relist.report().requested, 1);
}

#[test]
fn pl_9_a_full_queue_drops_requests_and_a_pod_that_waits_counts_once() {
    let stage = started(&["a"]);
    stage.relist.request_relist("a");
    stage.expect(&Asked::List);
    // The runtime hangs; no request waits for it.
    for number in 0..REQUESTS_MAX {
        assert!(stage.relist.request_relist(&format!("pod-{number}")));
        assert!(stage.relist.request_relist("pod-0"));
        let uid = format!("pod-{number}");
        assert!(stage.relist.requests().request_reinspect(&uid));
    }
    assert!(!stage.relist.request_relist("one too many"));
    assert!(!stage.relist.request_relist("two too many"));
    assert!(!stage.relist.requests().request_reinspect("one too many"));
    assert_eq!(stage.relist.report().dropped_requests, 2);
    stage.give(Answer::List(list("a c-a=running")));
    stage.list("pod-7 c=running, pod-3 c=running");
    // In the order of their requests.
    stage.found("pod-3");
    stage.found("pod-7");
    stage.pausing();
    assert!(stage.relist.request_relist("one too many"), "there is room");
    stage.list("");
    stage.pausing();
}

#[test]
fn pl_9_a_flood_costs_one_list_for_each_spacing() {
    let stage = started(&["a"]);
    // A request within each call: there is always another one.
    stage.relist.request_relist("a");
    for _ in 0..=BURST {
        stage.expect(&Asked::List);
        for _ in 0..10 {
            assert!(stage.relist.request_relist("a"));
        }
        stage.give(Answer::List(list("a c-a=running")));
    }
    for _ in 0..5 {
        stage.rests_for(SPACING);
        assert!(stage.asked.is_empty(), "it rests");
        stage.fake.advance(SPACING);
        stage.expect(&Asked::List);
        assert!(stage.relist.request_relist("a"));
        stage.give(Answer::List(list("a c-a=running")));
    }
    stage.rests_for(SPACING);
    assert_eq!(stage.relist.report().requested, u64::from(BURST) + 6);
    stage.shut_down();
}

#[test]
fn pl_9_a_stop_ends_the_loop_while_a_request_waits() {
    let stage = started(&["a"]);
    let requests = stage.relist.requests().clone();
    let min_time = moved(&stage);
    let thread = WaitingThread::spawn(&stage.cache, move |cache, tell| {
        let error = cache.get_newer_than("a", min_time).unwrap_err();
        let _told = tell.send(error.kind());
    });
    requests.request_relist("a");
    stage.expect(&Asked::List);
    requests.request_relist("a");
    stage.shut_down();
    assert_eq!(thread.comes("the end of the wait"), ErrorKind::Stopped);
    assert!(!requests.request_relist("a"));
    assert!(!requests.request_reinspect("a"));
    thread.join();
}

#[test]
fn pl_9_a_queue_serves_one_loop_after_the_other() {
    let requests = RelistRequests::new();
    let options = RelistOptions::default()
        .close_cache(false)
        .requests(&requests);
    assert!(requests.request_relist("a"), "the first relist serves it");
    let first = Stage::with(options.clone(), false);
    first.list("a c1=running");
    first.found("a");
    first.pausing();
    let (cache, fake) = (first.cache.clone(), first.fake.clone());
    first.shut_down();
    let second = Stage::over(cache, fake, options, false);
    second.list("a c1=running");
    second.found("a");
    second.pausing();
    let asked = moved(&second);
    assert!(requests.request_relist("a"));
    second.list("a c1=running");
    second.rests_for(rest(Duration::from_millis(10)));
    assert_eq!(second.cache.get("a").observed_time(), Some(asked));
}

/// A runtime that asks for a relist within each of its calls, and finds single pods by itself.
struct Asking {
    requests: RelistRequests,
    found: Sender<Vec<String>>,
}

impl Runtime for Asking {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.requests.request_relist("a");
        Ok(list("a, b"))
    }

    fn find_pods(
        &mut self,
        uids: &[String],
        _stop: &StopToken,
    ) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.requests.request_relist("b");
        self.found.send(uids.to_vec())?;
        Ok(list("a, b"))
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        self.requests.request_reinspect(pod.uid());
        Ok(status(pod.uid(), ""))
    }
}

#[test]
fn pl_9_a_runtime_may_ask_within_its_calls() {
    let fake = FakeClock::new();
    let cache = PodStatusCache::new(Clock::from(fake.clone()));
    let requests = RelistRequests::new();
    let (found, told) = unbounded();
    let runtime: Box<dyn Runtime<Status = PodStatus>> = Box::new(Asking {
        requests: requests.clone(),
        found,
    });
    let options = RelistOptions::default().requests(&requests);
    let relist = Relist::spawn(runtime, cache.clone(), options).unwrap();
    assert_eq!(comes(&told, "the request of the list"), ["a"]);
    for _ in 0..BURST {
        assert_eq!(comes(&told, "the request of the search"), ["b"]);
    }
    // It asks again and again, and the spacing bounds that.
    within("the spacing", move || fake.wait_for_timer(SPACING));
    assert!(told.is_empty());
    within("the end of the loop", || relist.shutdown(Deadline::NEVER)).unwrap();
    assert!(cache.get("a").is_stored() && cache.get("b").is_stored());
}
