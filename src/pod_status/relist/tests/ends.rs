//! The ends of the loop, and the cost of a runtime that panics.

use std::error::Error as _;

use super::super::driver::RelistLoop;
use super::*;
use crate::ErrorKind;
use crate::tests::until::until;

/// A thread that waits for a pod, and reports the kind of error that ended the wait.
fn waiter(stage: &Stage) -> WaitingThread<ErrorKind> {
    WaitingThread::spawn(&stage.cache, |cache, tell| {
        let error = cache.get_newer_than("nobody", Timestamp::ZERO).unwrap_err();
        let _told = tell.send(error.kind());
    })
}

/// Waits until the thread of the loop has ended.
fn ended(stage: &Stage) {
    let gone = stage.asked.recv_timeout(PATIENCE);
    let gone = gone.expect_err("the runtime went with its thread");
    assert_eq!(gone, RecvTimeoutError::Disconnected);
    thread_ended(&stage.relist);
}

fn thread_ended(relist: &Relist) {
    let end = relist.worker.ending();
    within("the end of the loop", move || {
        let has_ended = end.wait_until(&Clock::system(), Deadline::NEVER);
        assert!(has_ended.unwrap());
    });
}

#[test]
fn a_stop_ends_the_loop_while_it_lists() {
    let stage = Stage::new();
    stage.expect(&Asked::List);
    let cache = stage.cache.clone();
    stage.shut_down();
    assert_eq!(cache.get_all().len(), 0);
}

#[test]
fn a_stop_ends_the_loop_while_it_inspects_and_sets_nothing_of_it() {
    let stage = Stage::new();
    stage.list("a, b");
    stage.found("a");
    stage.expect(&Asked::Inspect("b".to_owned()));
    let cache = stage.cache.clone();
    stage.shut_down();
    assert!(cache.get("a").is_stored());
    assert!(
        !cache.get("b").is_stored(),
        "the error of a call that was stopped is none"
    );
}

#[test]
fn a_stop_ends_the_loop_while_it_pauses() {
    let stage = Stage::new();
    stage.list("");
    stage.pausing();
    stage.shut_down();
}

#[test]
fn a_stop_drops_what_the_runtime_answers_after_it() {
    let stage = Stage::stubborn();
    stage.list("a, b");
    stage.expect(&Asked::Inspect("a".to_owned()));
    stage.relist.stop();
    stage.give(Answer::Inspect(status("a", "")));
    let cache = stage.cache.clone();
    // An inspection of b would get no answer.
    stage.shut_down();
    assert_eq!(cache.get_all().len(), 0);
}

#[test]
fn a_stop_drops_a_list_that_comes_after_it() {
    let stage = Stage::stubborn();
    stage.expect(&Asked::List);
    stage.relist.stop();
    stage.give(Answer::List(list("a")));
    let progress = crate::sync::Arc::clone(&stage.relist.progress);
    stage.shut_down();
    assert_eq!(progress.lock().report.last_relist, None);
}

#[test]
fn a_loop_that_has_ended_is_not_healthy() {
    let stage = Stage::new();
    stage.list("");
    stage.pausing();
    stage.relist.stop();
    ended(&stage);
    assert!(stage.relist.health().unwrap_err().is_stopped());
}

#[test]
fn dropping_the_owner_joins() {
    let stage = Stage::new();
    stage.list("");
    stage.pausing();
    let Stage {
        relist, answers, ..
    } = stage;
    within("the drop of the owner", || drop(relist));
    // The runtime went with its thread.
    assert!(
        answers
            .try_send(Answer::Fail(""))
            .unwrap_err()
            .is_disconnected()
    );
}

#[test]
fn a_shutdown_names_the_call_that_the_runtime_does_not_return_from() {
    let stage = Stage::stubborn();
    stage.list("web");
    stage.expect(&Asked::Inspect("web".to_owned()));
    let Stage {
        relist,
        cache,
        fake,
        asked,
        answers,
    } = stage;
    let deadline = Clock::from(fake.clone()).after(Duration::from_secs(5));
    let (tell, told) = bounded(1);
    let ending = Worker::spawn("t-shutdown", move |_stop| {
        tell.send(relist.shutdown(deadline)).unwrap();
    });
    let theirs = fake.clone();
    within("the shutdown to wait", move || {
        theirs.wait_for_timer(Duration::from_secs(5));
    });
    fake.advance(Duration::from_secs(5));
    let error = comes(&told, "the shutdown's answer").unwrap_err();
    ending.unwrap().join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "thread relist has not ended 5.0s after its stop"
    );
    let source = error.source().unwrap().to_string();
    assert_eq!(
        source,
        "the runtime has been inspecting pod shop/web (web) for 5s"
    );
    // The thread ends by itself with its call, and the runtime with it.
    answers
        .send_timeout(Answer::Inspect(status("web", "")), PATIENCE)
        .unwrap_or_else(|_| panic!("waited for the runtime to take the answer"));
    assert_eq!(
        asked.recv_timeout(PATIENCE),
        Err(RecvTimeoutError::Disconnected)
    );
    assert!(!cache.get("web").is_stored());
}

#[test]
fn a_shutdown_whose_deadline_has_passed_succeeds_when_the_loop_has_ended() {
    let stage = Stage::new();
    stage.expect(&Asked::List);
    stage.relist.stop();
    ended(&stage);
    let passed = Deadline::at(stage.fake.now());
    stage.relist.shutdown(passed).unwrap();
}

#[test]
fn the_end_of_the_loop_ends_every_wait_on_the_cache() {
    let stage = Stage::stubborn();
    let waiting = waiter(&stage);
    stage.expect(&Asked::List);
    stage.fake.wait_for_parked(1);
    // At once, even while the runtime does not return.
    stage.relist.stop();
    assert_eq!(waiting.comes("the end of the wait"), ErrorKind::Stopped);
    waiting.join();
    stage.give(Answer::Fail(""));
}

#[test]
fn a_loop_that_leaves_the_cache_open_leaves_its_waiters_to_the_next() {
    let options = RelistOptions::default().close_cache(false);
    let stage = Stage::with(options.clone(), false);
    stage.expect(&Asked::List);
    let waiting = waiter(&stage);
    stage.fake.wait_for_parked(1);
    let (cache, fake) = (stage.cache.clone(), stage.fake.clone());
    drop(stage);
    assert!(waiting.told.is_empty());
    let next = Stage::over(cache.clone(), fake, options, false);
    next.expect(&Asked::List);
    cache.close();
    assert_eq!(waiting.comes("the end of the wait"), ErrorKind::Stopped);
    waiting.join();
}

/// An abandoned thread may return from its runtime long after its successor began.
#[test]
fn a_late_end_of_a_loop_leaves_the_requests_to_its_successor() {
    let requests = RelistRequests::new();
    let options = RelistOptions::default()
        .close_cache(false)
        .requests(&requests);
    let Stage {
        answers,
        asked,
        relist,
        cache,
        fake,
    } = Stage::with(options.clone(), true);
    comes(&asked, "the list");
    let passed = Deadline::at(fake.now());
    let late = within("the shutdown", move || relist.shutdown(passed));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    let next = Stage::over(cache, fake, options, false);
    next.list("a c1=running");
    next.expect(&Asked::Inspect("a".to_owned()));
    assert!(requests.request_relist("a"));
    answers.send_timeout(Answer::Fail(""), PATIENCE).unwrap();
    let gone = asked.recv_timeout(PATIENCE);
    assert_eq!(gone, Err(RecvTimeoutError::Disconnected));
    assert!(requests.request_relist("b"));
    next.give(Answer::Inspect(status("a", "")));
    next.list("a c1=running, b");
    next.found("b");
    next.shut_down();
    assert!(!requests.request_relist("a"));
}

/// The system refuses its thread.
#[test]
fn a_loop_that_never_ran_leaves_the_cache_open_and_takes_requests_for_another_try() {
    let cache = PodStatusCache::new(Clock::from(FakeClock::new()));
    let requests = RelistRequests::new();
    assert!(requests.request_relist("a"));
    let (asked, (_, answers)) = (unbounded().0, bounded(0));
    let runtime = Played {
        asked,
        answers,
        stubborn: false,
    };
    let shared = (requests.clone(), crate::sync::Arc::default());
    let options = RelistOptions::default();
    drop(RelistLoop::new(runtime, cache.clone(), options, shared));
    assert!(!cache.is_closed());
    assert_eq!(requests.take(), ["a"]);
    assert!(requests.request_relist("a"));
}

#[test]
fn a_list_that_panics_costs_one_relist() {
    let stage = Stage::new();
    stage.answer(&Asked::List, Answer::Panic("index out of bounds"));
    stage.pausing();
    let error = stage.relist.health().unwrap_err();
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "the runtime panicked: index out of bounds");
    stage.next();
    stage.list("a");
    stage.found("a");
    stage.pausing();
    assert!(stage.relist.health().is_ok());
    assert!(stage.cache.get("a").is_stored());
}

#[test]
fn an_inspection_that_panics_has_failed_and_the_other_pods_are_inspected() {
    let stage = Stage::new();
    stage.list("a, b");
    stage.inspect("a", Answer::Panic("index out of bounds"));
    stage.found("b");
    stage.next();
    let reading = stage.cache.get("a");
    let error = reading.error().unwrap().to_string();
    assert_eq!(error, "the runtime panicked: index out of bounds");
    assert!(stage.cache.get("b").error().is_none());
    stage.list("a, b");
    stage.found("a");
    stage.pausing();
    assert!(stage.cache.get("a").error().is_none());
}

/// A runtime whose drop takes long: it reports its begin, and waits for the test.
struct Lingering {
    going: Sender<()>,
    go: Receiver<()>,
}

impl Runtime for Lingering {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(Vec::new())
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        Ok(status(pod.uid(), ""))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.going.send(()).unwrap();
        // Also ends when the test does.
        let _closed = self.go.recv();
    }
}

#[test]
fn a_shutdown_does_not_wait_past_its_deadline_for_a_runtime_that_takes_its_time_to_go() {
    let fake = FakeClock::new();
    let clock = Clock::from(fake.clone());
    let cache = PodStatusCache::new(clock.clone());
    let (tell_going, going) = bounded(1);
    let (tell, told) = bounded(1);
    let (let_go, go) = bounded::<()>(0);
    let runtime = Lingering {
        going: tell_going,
        go,
    };
    let relist = Relist::spawn(runtime, cache, RelistOptions::default()).unwrap();
    fake.wait_for_timer(PERIOD);
    relist.stop();
    going.recv().unwrap();
    let passed = Deadline::at(fake.now());
    let ending = Worker::spawn("t-shutdown", move |_stop| {
        tell.send(relist.shutdown(passed)).unwrap();
    });
    let end = told.recv_timeout(PATIENCE);
    drop(let_go);
    ending.unwrap().join().unwrap();
    let error = end.expect("it comes back").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "the runtime has been shutting down for 0s");
}

/// An error whose text panics.
#[derive(Debug)]
struct Speechless;

impl std::fmt::Display for Speechless {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Speechless {}

/// A runtime of two pods whose first list, and whose inspections of the first pod, fail without
/// words.
struct Wordless {
    lists: u32,
    inspected: Sender<String>,
}

impl Runtime for Wordless {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.lists = self.lists.saturating_add(1);
        match self.lists {
            1 => Err(Box::new(Speechless)),
            _ => Ok(list("a, b")),
        }
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        self.inspected.send(pod.uid().to_owned())?;
        match pod.uid() {
            "a" => Err(Box::new(Speechless)),
            uid => Ok(status(uid, "")),
        }
    }
}

#[test]
fn an_error_that_panics_when_it_is_shown_does_not_end_the_loop() {
    let fake = FakeClock::new();
    let cache = PodStatusCache::new(Clock::from(fake.clone()));
    let (inspected, told) = bounded(0);
    let runtime = Wordless {
        lists: 0,
        inspected,
    };
    let options = RelistOptions::default().period(Duration::ZERO);
    let relist = Relist::spawn(runtime, cache.clone(), options).unwrap();
    // Dropped before the loop, however the test ends, so that no send blocks for ever.
    let told = told;
    for uid in ["a", "b", "a"] {
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(uid));
    }
    assert!(cache.get("a").error().is_some());
    assert!(cache.get("b").is_stored());
    assert_eq!(cache.global_time(), Some(Timestamp::from(fake.now())));
    assert_eq!(relist.report().failures, 1);
    relist.stop();
    drop(told);
}

/// An error whose drop panics.
#[derive(Debug)]
struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the bomb goes off");
    }
}

/// A runtime whose first two lists fail with a bomb.
struct Mined(u32);

impl Runtime for Mined {
    type Status = PodStatus;

    fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.0 = self.0.saturating_add(1);
        if self.0 > 2 {
            return Ok(list("a"));
        }
        Err(Box::new(Bomb))
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        _stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        Ok(status(pod.uid(), ""))
    }
}

/// The second list is on request: its error is let go by itself.
#[test]
fn an_error_that_panics_when_it_is_dropped_does_not_end_the_loop() {
    let fake = FakeClock::new();
    let cache = PodStatusCache::new(Clock::from(fake.clone()));
    let relist = Relist::spawn(Mined(0), cache.clone(), RelistOptions::default()).unwrap();
    fake.wait_for_timer(PERIOD);
    assert!(relist.request_relist("a"));
    until(|| relist.report().failures == 2 || relist.is_finished());
    fake.advance(PERIOD);
    until(|| relist.report().relists == 1 || relist.is_finished());
    assert!(cache.get("a").is_stored());
    relist.health().unwrap();
    relist.shutdown(Deadline::NEVER).unwrap();
}
