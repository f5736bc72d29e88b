//! Relists of single pods on request (PL-9), with the kubelet's own cases first.

use super::super::driver::{BURST, SPACING};
use super::super::requests::REQUESTS_MAX;
use super::*;
use crate::ErrorKind;
use crate::pod_status::PodReading;

/// The rest of a period.
fn rest(passed: Duration) -> Duration {
    PERIOD.saturating_sub(passed)
}

/// A time after the last relist, for which a worker waits.
fn moved(bench: &Bench) -> Timestamp {
    bench.fake.advance(Duration::from_millis(10));
    bench.now()
}

/// A thread that waits for something newer than `min_time` of a pod.
fn waiter(
    bench: &Bench,
    uid: &'static str,
    min_time: Timestamp,
) -> WaitingThread<PodReading<PodStatus>> {
    let waiting = bench.cache.waiting().len();
    let thread = WaitingThread::spawn(&bench.cache, move |cache, tell| {
        if let Ok(reading) = cache.get_newer_than(uid, min_time) {
            let _told = tell.send(reading);
        }
    });
    let cache = bench.cache.clone();
    within("the wait of a worker", move || {
        while cache.waiting().len() == waiting {
            std::thread::yield_now();
        }
    });
    thread
}

fn uids(bench: &Bench) -> Vec<String> {
    let waits = bench.cache.waiting();
    waits.iter().map(|wait| wait.uid.to_string()).collect()
}

/// A loop whose first relist has found these pods, each with a running container.
fn started(names: &[&str]) -> Bench {
    let bench = Bench::new();
    bench.list(&all(names, "running"));
    for name in names {
        bench.found(name);
    }
    bench.pausing();
    bench
}

fn all(names: &[&str], state: &str) -> String {
    let pods = names.iter().map(|name| format!("{name} c-{name}={state}"));
    pods.collect::<Vec<_>>().join(", ")
}

#[test]
fn pl_9_a_request_relists_its_pod_and_answers_its_worker_alone() {
    let bench = Bench::new();
    bench.list("");
    bench.pausing();
    let global = bench.cache.global_time();
    let min_time = moved(&bench);
    let (a, b) = (waiter(&bench, "a", min_time), waiter(&bench, "b", min_time));
    bench.fake.advance(Duration::from_millis(1));
    assert!(bench.relist.request_relist("a"));
    let listed = bench.now();
    bench.list("a c1=running, b c2=running");
    bench.found("a");
    let reading = a.comes("the status of a");
    assert_eq!(reading.modified_time(), Some(listed));
    assert_eq!(uids(&bench), ["b"]);
    assert!(!bench.cache.get("b").is_stored(), "b was not asked for");
    assert_eq!(bench.cache.global_time(), global);
    // The worker is answered before the loop counts.
    bench.rests_for(rest(Duration::from_millis(11)));
    let report = bench.relist.report();
    assert_eq!((report.requested, report.relists), (1, 1));
    bench.shut_down();
    a.join();
    b.join();
}

#[test]
fn pl_9_a_pod_that_looks_unchanged_is_noted_as_seen_and_not_inspected() {
    let bench = started(&["a"]);
    let inspected = bench.cache.get("a").modified_time();
    let min_time = moved(&bench);
    let a = waiter(&bench, "a", min_time);
    bench.relist.request_relist("a");
    bench.list("a c-a=running");
    let reading = a.comes("the same status");
    assert_eq!(reading.modified_time(), inspected);
    assert_eq!(reading.observed_time(), Some(min_time));
    bench.shut_down();
    a.join();
}

#[test]
fn pl_9_a_due_relist_goes_first_and_serves_the_requests_from_before_it() {
    let bench = started(&["a", "b"]);
    let min_time = moved(&bench);
    let (a, b) = (waiter(&bench, "a", min_time), waiter(&bench, "b", min_time));
    // The loop is within a call, so that request and time are both there when it looks again.
    bench.relist.request_relist("a");
    bench.expect(&Asked::List);
    bench.relist.request_relist("b");
    bench.fake.advance(PERIOD);
    bench.give(Answer::List(list("a c-a=exited")));
    // The pod that was to be inspected on request is left to the relist.
    bench.list("a c-a=exited, b c-b=exited");
    bench.found("a");
    bench.found("b");
    assert!(a.comes("the status of a").is_stored());
    assert!(b.comes("the status of b").is_stored());
    bench.pausing();
    assert_eq!(bench.relist.report().requested, 0);
    bench.shut_down();
    a.join();
    b.join();
}

#[test]
fn pl_9_a_request_during_a_relist_is_served_after_it() {
    let bench = started(&["a"]);
    bench.fake.advance(PERIOD);
    bench.expect(&Asked::List);
    let min_time = moved(&bench);
    bench.relist.request_relist("a");
    bench.give(Answer::List(list("a c-a=running")));
    bench.list("a c-a=exited");
    bench.found("a");
    bench.rests_for(PERIOD);
    assert_eq!(bench.cache.get("a").modified_time(), Some(min_time));
    assert_eq!(bench.relist.report().requested, 1);
}

#[test]
fn wp_8_a_relist_on_request_does_not_put_the_next_relist_off() {
    let bench = started(&["a"]);
    bench.fake.advance(PERIOD / 2);
    bench.relist.request_relist("a");
    bench.list("a c-a=running");
    bench.rests_for(PERIOD / 2);
    assert_eq!(bench.relist.report().last_interval, None);
    bench.fake.advance(PERIOD / 2);
    bench.list("a c-a=running");
    bench.pausing();
    assert_eq!(bench.relist.report().last_interval, Some(PERIOD));
}

#[test]
fn pl_9_a_reinspection_is_of_a_pod_that_looks_unchanged_and_happens_once() {
    let bench = started(&["a", "b"]);
    assert!(bench.relist.requests().request_reinspect("a"));
    bench.pausing();
    let min_time = moved(&bench);
    bench.relist.request_relist("a");
    bench.list(&all(&["a", "b"], "running"));
    bench.found("a");
    bench.rests_for(rest(Duration::from_millis(10)));
    assert_eq!(bench.cache.get("a").modified_time(), Some(min_time));
    // The relist of all does the same, and none after it.
    assert!(bench.relist.requests().request_reinspect("b"));
    bench.fake.advance(PERIOD);
    bench.list(&all(&["a", "b"], "running"));
    bench.found("b");
    bench.next();
    bench.list(&all(&["a", "b"], "running"));
    bench.pausing();
    assert_eq!(bench.relist.report().failing_pods, 0);
}

#[test]
fn pl_3_a_reinspection_that_fails_is_repeated_on_request_and_by_the_next_relist() {
    let bench = started(&["a"]);
    bench.relist.requests().request_reinspect("a");
    bench.relist.request_relist("a");
    bench.list("a c-a=running");
    bench.inspect("a", Answer::Fail("busy"));
    bench.pausing();
    let failed = moved(&bench);
    bench.relist.request_relist("a");
    bench.list("a c-a=running");
    bench.inspect("a", Answer::Fail("still busy"));
    bench.rests_for(rest(Duration::from_millis(10)));
    let reading = bench.cache.get("a");
    assert_eq!(reading.error().unwrap().to_string(), "still busy");
    assert_eq!(reading.observed_time(), Some(failed));
    bench.fake.advance(PERIOD);
    bench.list("a c-a=running");
    bench.found("a");
    bench.pausing();
    assert!(bench.cache.get("a").error().is_none());
}

/// A pod that is to be inspected again anyway, because that failed.
#[test]
fn pl_9_a_reinspection_of_a_pod_that_failed_is_one_and_the_next_failure_is_kept() {
    let bench = started(&["a"]);
    let requests = bench.relist.requests().clone();
    assert!(requests.request_reinspect("a"));
    bench.next();
    bench.list("a c-a=running");
    bench.inspect("a", Answer::Fail("busy"));
    bench.pausing();
    for answer in [
        Answer::Fail("still busy"),
        Answer::Inspect(status("a", "10.0.0.1")),
    ] {
        assert_eq!(bench.relist.report().failing_pods, 1);
        assert!(requests.request_reinspect("a"));
        bench.fake.advance(PERIOD);
        bench.list("a c-a=running");
        bench.inspect("a", answer);
        bench.pausing();
    }
    assert_eq!(bench.relist.report().failing_pods, 0);
    bench.fake.advance(PERIOD);
    bench.list("a c-a=running");
    bench.pausing();
    bench.shut_down();
}

#[test]
fn pl_9_a_pod_that_has_gone_is_not_inspected_on_request() {
    let bench = started(&["a"]);
    assert!(bench.relist.requests().request_reinspect("a"));
    bench.next();
    bench.list("");
    bench.pausing();
    assert!(!bench.cache.get("a").is_stored());
    assert_eq!(bench.relist.report().failing_pods, 0);
    bench.shut_down();
}

/// Both wait when the relist of all is due, which serves both.
#[test]
fn pl_9_a_due_relist_makes_the_reinspection_that_a_request_was_for() {
    let bench = started(&["a"]);
    let min_time = moved(&bench);
    let a = waiter(&bench, "a", min_time);
    // The loop is within a call, so that both and the time are there when it looks again.
    bench.relist.request_relist("a");
    bench.expect(&Asked::List);
    assert!(bench.relist.requests().request_reinspect("a"));
    bench.relist.request_relist("a");
    bench.fake.advance(PERIOD);
    bench.give(Answer::List(list("a c-a=running")));
    bench.list("a c-a=running");
    bench.found("a");
    assert!(a.comes("the status of a").modified_time() > Some(min_time));
    bench.pausing();
    assert_eq!(bench.relist.report().requested, 0);
    bench.shut_down();
    a.join();
}

#[test]
fn pl_9_a_request_for_a_pod_that_the_runtime_does_not_find_changes_nothing() {
    let bench = started(&["a"]);
    let min_time = moved(&bench);
    let (a, unknown) = (waiter(&bench, "a", min_time), waiter(&bench, "u", min_time));
    bench.relist.request_relist("u");
    bench.relist.requests().request_reinspect("u");
    bench.list("");
    bench.rests_for(rest(Duration::from_millis(10)));
    assert!(
        bench.cache.get("a").is_stored(),
        "the next relist deletes it"
    );
    assert_eq!(bench.cache.waiting().len(), 2);
    assert_eq!(bench.relist.report().requested, 0);
    bench.fake.advance(PERIOD);
    bench.list("");
    bench.pausing();
    for thread in [a, unknown] {
        assert!(!thread.comes("the global time").is_stored());
        thread.join();
    }
}

#[test]
fn pl_9_a_request_whose_list_fails_is_left_to_the_next_relist() {
    let bench = started(&["a"]);
    for answer in [Answer::Fail("no such socket"), Answer::Panic("boom")] {
        bench.relist.request_relist("a");
        bench.answer(&Asked::List, answer);
        bench.pausing();
        bench.relist.request_relist("a");
        bench.list("a c-a=running");
        bench.next();
        bench.list("a c-a=running");
        bench.pausing();
    }
    let report = bench.relist.report();
    assert_eq!((report.failures, report.requested), (2, 2));
    assert!(bench.relist.health().is_ok());
}

#[test]
fn pl_9_a_relist_that_fails_serves_no_request() {
    let bench = started(&["a"]);
    bench.fake.advance(PERIOD);
    bench.expect(&Asked::List);
    bench.fake.advance(PERIOD);
    bench.give(Answer::List(list("a c-a=running")));
    bench.pausing();
    // Request and relist are both there when the loop looks.
    bench.relist.request_relist("a");
    bench.expect(&Asked::List);
    bench.relist.request_relist("a");
    bench.fake.advance(PERIOD);
    bench.give(Answer::Fail("no such socket"));
    bench.answer(&Asked::List, Answer::Fail("no such socket"));
    bench.list("a c-a=exited");
    bench.found("a");
    bench.pausing();
    assert_eq!(bench.relist.report().requested, 1);
}

#[test]
fn pl_9_a_full_queue_drops_requests_and_a_pod_that_waits_counts_once() {
    let bench = started(&["a"]);
    bench.relist.request_relist("a");
    bench.expect(&Asked::List);
    // The runtime hangs; no request waits for it.
    for number in 0..REQUESTS_MAX {
        assert!(bench.relist.request_relist(&format!("pod-{number}")));
        assert!(bench.relist.request_relist("pod-0"));
        let uid = format!("pod-{number}");
        assert!(bench.relist.requests().request_reinspect(&uid));
    }
    assert!(!bench.relist.request_relist("one too many"));
    assert!(!bench.relist.request_relist("two too many"));
    assert!(!bench.relist.requests().request_reinspect("one too many"));
    assert_eq!(bench.relist.report().dropped_requests, 2);
    bench.give(Answer::List(list("a c-a=running")));
    bench.list("pod-7 c=running, pod-3 c=running");
    // In the order of their requests.
    bench.found("pod-3");
    bench.found("pod-7");
    bench.pausing();
    assert!(bench.relist.request_relist("one too many"), "there is room");
    bench.list("");
    bench.pausing();
}

#[test]
fn pl_9_a_flood_costs_one_list_for_each_spacing() {
    let bench = started(&["a"]);
    // A request within each call: there is always another one.
    bench.relist.request_relist("a");
    for _ in 0..=BURST {
        bench.expect(&Asked::List);
        for _ in 0..10 {
            assert!(bench.relist.request_relist("a"));
        }
        bench.give(Answer::List(list("a c-a=running")));
    }
    for _ in 0..5 {
        bench.rests_for(SPACING);
        assert!(bench.asked.is_empty(), "it rests");
        bench.fake.advance(SPACING);
        bench.expect(&Asked::List);
        assert!(bench.relist.request_relist("a"));
        bench.give(Answer::List(list("a c-a=running")));
    }
    bench.rests_for(SPACING);
    assert_eq!(bench.relist.report().requested, u64::from(BURST) + 6);
    bench.shut_down();
}

#[test]
fn pl_9_a_stop_ends_the_loop_while_a_request_waits() {
    let bench = started(&["a"]);
    let requests = bench.relist.requests().clone();
    let min_time = moved(&bench);
    let thread = WaitingThread::spawn(&bench.cache, move |cache, tell| {
        let error = cache.get_newer_than("a", min_time).unwrap_err();
        let _told = tell.send(error.kind());
    });
    requests.request_relist("a");
    bench.expect(&Asked::List);
    requests.request_relist("a");
    bench.shut_down();
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
    let first = Bench::with(options.clone(), false);
    first.list("a c1=running");
    first.found("a");
    first.pausing();
    let (cache, fake) = (first.cache.clone(), first.fake.clone());
    first.shut_down();
    let second = Bench::over(cache, fake, options, false);
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
