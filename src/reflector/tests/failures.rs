//! Waits for the first sync, stops in every phase, and how many requests failures cost.

use super::*;
use crate::ErrorKind;
use crate::list_watch::WatchEvent;
use crate::object::ObjectKey;
use crate::reflector::Phase;
use crate::testing::{RequestKind, SourceFault};
use crate::worker::Worker;

type Waiter = (Worker, crossbeam_channel::Receiver<Result<(), Error>>);

/// Waits on another thread; the answer comes through the channel.
fn waiter(store: &Store<ConfigMap>, deadline: Deadline) -> Waiter {
    let (tell, told) = crossbeam_channel::bounded(1);
    let store = store.clone();
    let worker = Worker::spawn("t-waiter", move |_| {
        tell.send(store.wait_until_synced(deadline)).unwrap();
    });
    (worker.unwrap(), told)
}

/// Starts a reflector for whose first sync a caller waits already.
fn start_waited(stage: &Stage, deadline: Deadline) -> (Store<ConfigMap>, Reflector, Waiter) {
    let clock = stage.options.clock.clone();
    let (store, writer) = Store::new(Indexers::new(), clock);
    let waiter = waiter(&store, deadline);
    stage.fake.wait_for_parked(1);
    let options = ReflectorOptions {
        waiters: Some(store.waiters()),
        ..stage.options.clone()
    };
    let source = Arc::new(stage.source.clone());
    let reflector = Reflector::spawn("t", source, writer, options).unwrap();
    (store, reflector, waiter)
}

/// B3 and B2: five requests fit into the second that a caller waits, and the error says why they
/// failed.
#[test]
fn a_read_of_one_second_makes_five_attempts_and_says_why_they_failed() {
    let stage = Stage::new();
    stage.source.fail_all(RequestKind::List, status(500));
    let deadline = stage.options.clock.after(seconds(1));
    let (_store, _reflector, (_worker, told)) = start_waited(&stage, deadline);
    while told.is_empty() {
        let next = stage.fake.wait_for_timers(2);
        let end = deadline.remaining(stage.fake.now()).unwrap();
        stage.fake.advance(next);
        if next == end {
            break;
        }
    }
    let error = told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(stage.source.requests().len(), 5);
    assert_eq!(error.attempts(), 5);
    // D14: which failure, and for how long the reflector backs off after it.
    let text = error.to_string();
    let told = "failed to sync configmap cache: timed out waiting for the condition\n\
         5 attempts in 1.0s, the last one failed: failed to list configmaps: made up 500\n\
         now backing off for ";
    assert!(text.starts_with(told), "{text}");
    assert!(
        stage
            .source
            .requests()
            .iter()
            .skip(1)
            .all(|request| request.urgent)
    );
}

/// B3: while no caller waits the same second sees two requests.
#[test]
fn nobody_waits_nobody_hurries() {
    let stage = Stage::new();
    stage.source.fail_all(RequestKind::List, status(500));
    let (_store, _reflector) = stage.start();
    stage.pass(millis(800));
    stage.fake.wait_for_timer(millis(1600));
    assert_eq!(stage.source.requests().len(), 2);
}

/// B3: a reader that comes in the middle of a steady backoff does not wait for its end.
#[test]
fn a_late_reader_wakes_the_backoff() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage
        .source
        .fail_next(RequestKind::List, SourceFault::Fail(status(500)));
    let (store, _reflector) = stage.start();
    stage.fake.wait_for_timer(millis(800));
    stage.fake.advance(millis(300));
    let (_worker, told) = waiter(&store, Deadline::NEVER);
    assert!(told.recv().unwrap().is_ok(), "without any more time");
    assert_eq!(stage.requests()[..2], ["list 0", "list 0"]);
}

/// Seen: a caller that waited on a synced store had each retry of a whole outage come at once.
#[test]
fn a_caller_that_waits_through_an_outage_shortens_none_of_its_waits() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (store, reflector) = stage.start();
    store.wait_until_synced(Deadline::NEVER).unwrap();
    let waiting = store.clone();
    let _worker = Worker::spawn("waiter", move |_| {
        drop(waiting.wait_until(&ObjectKey::new("", "b"), |_| false, Deadline::NEVER));
    });
    until(|| store.waiters().any());
    stage.source.fail_all(RequestKind::List, status(500));
    stage.source.fail_all(RequestKind::Watch, status(500));
    stage.source.end_watches(None);
    for wait in [800, 1600, 3200, 6400] {
        stage.fake.wait_for_timer(millis(wait));
        stage.fake.advance(millis(wait));
    }
    drop(reflector);
}

/// R4: a refusal that lasts ends the wait as the answer it is; a later success ends that again.
#[test]
fn a_refusal_ends_the_wait() {
    let stage = Stage::new();
    stage.source.fail_all(RequestKind::List, status(403));
    let (store, _reflector, (_worker, told)) = start_waited(&stage, Deadline::NEVER);
    let began = stage.fake.now();
    while stage.fake.now() - began < seconds(3) {
        let next = stage.fake.wait_for_timers(1);
        stage.fake.advance(next);
    }
    let error = told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    let took = store.status().failures.count();
    assert!(
        (10..=14).contains(&took),
        "{took} attempts in three seconds"
    );
}

/// B16: a reflector ends in every phase, and ends the waits on its store.
#[test]
fn a_stop_ends_every_phase_and_every_wait() {
    type Prepare = fn(&Stage);
    let phases: [(&str, Prepare); 4] = [
        ("a list that hangs", |stage| {
            stage.source.fail_next(RequestKind::List, SourceFault::Hang);
        }),
        ("a watch that does not open", |stage| {
            stage
                .source
                .fail_next(RequestKind::Watch, SourceFault::Hang);
        }),
        ("a backoff", |stage| {
            stage
                .source
                .fail_next(RequestKind::List, SourceFault::Fail(status(500)));
        }),
        ("an open watch", |_| {}),
    ];
    for (phase, prepare) in phases {
        let stage = Stage::new();
        prepare(&stage);
        let (store, reflector) = stage.start();
        match phase {
            "a backoff" => stage.fake.wait_for_timer(millis(800)),
            "an open watch" => stage.source.wait_for_watches(1),
            "a list that hangs" => stage.source.wait_for_requests(1),
            _ => stage.source.wait_for_requests(2),
        }
        let synced = store.has_synced();
        reflector.stop();
        assert!(reflector.join().is_ok(), "{phase}");
        assert_eq!(stage.source.open_watches(), 0, "{phase}: RF-44");
        match store.wait_until_synced(Deadline::NEVER) {
            Ok(()) => assert!(synced, "{phase}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stopped, "{phase}"),
        }
    }
}

/// RF-5, B16: a list during which a stop comes is not taken.
#[test]
fn a_stopped_list_is_not_taken() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.source.fail_next(RequestKind::List, SourceFault::Hang);
    let (store, reflector) = stage.start();
    stage.source.wait_for_requests(1);
    let (_worker, told) = waiter(&store, Deadline::NEVER);
    reflector.stop();
    assert_eq!(told.recv().unwrap().unwrap_err().kind(), ErrorKind::Stopped);
    assert!(!store.has_synced() && store.is_empty());
    reflector.join().unwrap();
    assert_eq!(stage.source.requests().len(), 1);
}

/// `TestNoRelistOnTooManyRequests`: four 429 at the opening: one list, five watches (RF-23).
#[test]
fn too_many_requests_costs_no_list() {
    let stage = Stage::new();
    stage.set("a", "1");
    for _ in 0..4 {
        stage
            .source
            .fail_next(RequestKind::Watch, SourceFault::Fail(status(429)));
    }
    let (store, _reflector) = stage.start();
    for wait in [800, 1600, 3200, 6400] {
        stage.pass(millis(wait));
    }
    stage.source.wait_for_watches(1);
    stage.fake.wait_for_parked(1);
    assert_eq!(
        stage.requests(),
        [
            "list 0", "watch 2", "watch 2", "watch 2", "watch 2", "watch 2"
        ]
    );
    assert!(store.status().failures.last().is_none());
}

/// `TestReflectorReplacesStoreOnUnsafeDelete` (RF-20): a list makes the object vanish that the
/// server could not read.
#[test]
fn an_unreadable_object_leads_to_a_list() {
    let stage = Stage::new();
    stage.set("a", "1");
    stage.set("b", "1");
    let (store, _reflector) = stage.synced();
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(500)));
    stage.source.send(|| {
        let status = k8s_openapi::apimachinery::pkg::apis::meta::v1::Status {
            code: Some(500),
            reason: Some("StoreReadError".to_owned()),
            ..Default::default()
        };
        WatchEvent::Error(Error::from_status(Status::from(status)))
    });
    stage.fake.wait_for_timer(millis(800));
    stage.source.delete("shop", "b");
    stage.fake.advance(millis(800));
    stage.source.wait_for_requests(4);
    // The list was a proof of life: the failed opening after it waits for the first step.
    stage.fake.wait_for_timer(millis(800));
    assert_eq!(names(&store), ["a"]);
}

/// RF-8, B9: whatever the server does, no request follows another without a delay, unless data came
/// between.
#[test]
fn a_server_that_closes_every_watch_is_not_hammered() {
    let stage = Stage::new();
    stage.set("a", "1");
    let (_store, _reflector) = stage.synced();
    let opened = stage.fake.now();
    let mut reopened = 0;
    while stage.fake.now() - opened < seconds(60) {
        stage.source.skip_to(stage.source.version() + 1);
        stage.source.bookmark();
        stage.source.end_watches(None);
        let requests = stage.source.requests().len();
        let next = stage.fake.wait_for_next_timer();
        stage.fake.advance(next);
        stage.source.wait_for_requests(requests + 1);
        stage.source.wait_for_watches(1);
        reopened += 1;
    }
    assert!(
        reopened <= 7 + 12,
        "50 ms doubling to 5 s: {reopened} in a minute"
    );
}

/// Every reader sees the phase `Stopped` once the thread has ended.
#[test]
fn the_status_outlives_the_thread() {
    let stage = Stage::new();
    let (store, reflector) = stage.synced();
    reflector.stop();
    stage.source.wait_for_watches(0);
    drop(reflector);
    assert!(store.has_synced(), "the content stays");
    assert_eq!(store.status().phase, Phase::Stopped);
}

/// The calls of the error hook, as `phase attempts: error`.
fn told(stage: &mut Stage) -> crossbeam_channel::Receiver<String> {
    let (tell, told) = crossbeam_channel::unbounded();
    let options = std::mem::take(&mut stage.options);
    stage.options = options.on_error(move |failed| {
        assert_eq!((&*failed.reflector, &*failed.what), ("t", "configmaps"));
        let text = format!("{:?} {}: {}", failed.phase, failed.attempts, failed.error);
        tell.send(text).unwrap();
    });
    told
}

/// A program that prints the hook's calls shows the cause of each failed attempt.
#[test]
fn the_error_hook_hears_of_each_refused_list_and_each_broken_watch() {
    let mut stage = Stage::new();
    let told = told(&mut stage);
    stage.source.fail_all(RequestKind::List, status(403));
    let (store, _reflector) = stage.start();
    let refused = |attempts| format!("Listing {attempts}: failed to list configmaps: made up 403");
    assert_eq!(told.recv(), Ok(refused(1)));
    stage.pass(millis(800));
    assert_eq!(told.recv(), Ok(refused(2)));
    stage.source.heal();
    stage
        .source
        .fail_next(RequestKind::Watch, SourceFault::Fail(status(429)));
    stage.fake.wait_for_timer(millis(1600));
    stage.fake.advance(millis(1600));
    store.wait_until_synced(Deadline::NEVER).unwrap();
    let opening = "Opening 1: failed to watch configmaps: made up 429";
    assert_eq!(told.recv().unwrap(), opening, "the list had succeeded");
    stage.pass(millis(3200));
    stage.source.wait_for_watches(1);
    stage.source.send(|| WatchEvent::Error(status(500)));
    let watching = "Watching 1: the watch of configmaps ended: made up 500";
    assert_eq!(told.recv().unwrap(), watching);
    assert!(told.is_empty());
}

/// A stop is not a failure, and a hook that panics harms no caller.
#[test]
fn an_error_hook_that_panics_ends_nothing_and_a_stop_is_not_told() {
    let mut stage = Stage::new();
    let (tell, told) = crossbeam_channel::unbounded();
    let options = std::mem::take(&mut stage.options);
    stage.options = options.on_error(move |failed| {
        tell.send(failed.attempts).unwrap();
        panic!("made so for a test");
    });
    stage
        .source
        .fail_next(RequestKind::List, SourceFault::Fail(status(500)));
    let (store, reflector) = stage.start();
    stage.pass(millis(800));
    store.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.wait_for_watches(1);
    reflector.join().unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1]);
}
