//! Waits for a store: their ends, and the words of their errors.

use std::time::Duration;

use super::*;
use crate::clock::{Deadline, FakeClock};
use crate::reflector::{Phase, ReflectorStatus};

struct StoreWaiter {
    fake: FakeClock,
    store: Store<ConfigMap>,
    writer: StoreWriter<ConfigMap>,
    told: crossbeam_channel::Receiver<Result<(), Error>>,
    _worker: Worker,
}

/// A store with one caller that waits for its first list, parked in the fake clock.
fn waiting(seconds: Option<u64>) -> StoreWaiter {
    waiting_in(seconds, Store::wait_until_synced)
}

fn waiting_in(
    seconds: Option<u64>,
    wait: impl FnOnce(&Store<ConfigMap>, Deadline) -> Result<(), Error> + Send + 'static,
) -> StoreWaiter {
    let fake = FakeClock::new();
    let clock = Clock::from(fake.clone());
    let (store, writer) = Store::new(by_label(), clock.clone());
    let deadline = seconds.map_or(Deadline::NEVER, |seconds| {
        clock.after(Duration::from_secs(seconds))
    });
    let (tell, told) = crossbeam_channel::bounded(1);
    let waiter = store.clone();
    let worker = Worker::spawn("t-waiter", move |_| {
        tell.send(wait(&waiter, deadline)).unwrap();
    });
    fake.wait_for_parked(1);
    StoreWaiter {
        fake,
        store,
        writer,
        told,
        _worker: worker.unwrap(),
    }
}

#[test]
fn a_commit_ends_the_wait() {
    let mut waiting = waiting(None);
    assert!(waiting.store.waiters().any());
    replace(&mut waiting.writer, vec![], &at("1")).unwrap();
    assert!(waiting.told.recv().unwrap().is_ok());
}

/// OC-9's first line, and B2: no attempt has ended yet.
#[test]
fn the_deadline_ends_the_wait() {
    let waiting = waiting(Some(1));
    waiting.fake.advance(Duration::from_secs(1));
    let error = waiting.told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        error.to_string(),
        "failed to sync configmap cache: timed out waiting for the condition: \
         no reflector has begun to fill it"
    );
}

/// A success that comes with the deadline is a success.
#[test]
fn success_beats_the_deadline() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![], &at("1")).unwrap();
    let past = Deadline::at(Clock::system().now());
    assert!(store.wait_until_synced(past).is_ok());
    assert!(!store.waiters().any());
}

#[test]
fn the_end_of_the_writer_ends_the_wait() {
    let mut waiting = waiting(None);
    let status = ReflectorStatus {
        failures: crate::failures::Failures::of(
            2,
            None,
            Error::new(ErrorKind::Unreachable, "no route"),
        ),
        ..ReflectorStatus::default()
    };
    waiting.writer.report(&status);
    drop(waiting.writer);
    let error = waiting.told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(
        error.to_string(),
        "after 2 failures: waiting for the configmap cache: stopped"
    );
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), "no route");
}

/// The reflector may report after its informer was stopped.
#[test]
fn a_report_after_the_end_takes_nothing_of_the_end_back() {
    let (store, mut writer) = store();
    let now = store.clock().now();
    let running = ReflectorStatus {
        phase: Phase::Watching,
        last_contact: Some(now),
        ..ReflectorStatus::default()
    };
    replace(&mut writer, vec![], &at("5")).unwrap();
    writer.report(&running);
    assert!(store.is_fresh_within(Duration::MAX));
    store.end(Some(Error::new(ErrorKind::Panicked, "the transform")));
    for _ in 0..2 {
        let status = store.status();
        assert_eq!(status.phase, Phase::Stopped);
        assert_eq!(status.failures.last().unwrap().to_string(), "the transform");
        assert!(!store.is_fresh_within(Duration::MAX));
        writer.report(&running);
    }
}

/// R4: the refusal itself is the answer.
#[test]
fn a_refusal_that_became_an_answer_ends_the_wait() {
    let mut waiting = waiting(None);
    let forbidden = Error::new(ErrorKind::Forbidden, "configmaps is forbidden");
    let mut status = ReflectorStatus {
        failures: crate::failures::Failures::of(1, None, forbidden.clone()),
        ..ReflectorStatus::default()
    };
    waiting.writer.report(&status);
    assert!(
        waiting.told.try_recv().is_err(),
        "a failure alone is no answer"
    );
    status.refusal = Some(forbidden);
    waiting.writer.report(&status);
    let error = waiting.told.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

/// A read after one's own write: events and bookmarks end the wait.
#[test]
fn waiting_for_a_version() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![], &at("5")).unwrap();
    let (tell, told) = crossbeam_channel::bounded(1);
    let waiter = store.clone();
    let _worker = Worker::spawn("t-version", move |_| {
        let version = ResourceVersion::from("8");
        tell.send(waiter.wait_until_at_least(&version, Deadline::NEVER))
            .unwrap();
    });
    add(&mut writer, held("a", "7", &[]));
    writer.bookmark(&ResourceVersion::from("8"));
    assert!(told.recv().unwrap().is_ok());
    let past = Deadline::at(Clock::system().now());
    let error = store.wait_until_at_least(&"9".into(), past).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    let text = error.to_string();
    let start = "timed out waiting for the configmap cache to reach version 9: it is at 8; the \
                 server was last heard ";
    assert!(text.starts_with(start), "{text}");
    let mut status = ReflectorStatus {
        phase: Phase::BackingOff,
        ..ReflectorStatus::default()
    };
    status.failures = crate::failures::Failures::of(3, None, Error::config("no route"));
    writer.report(&status);
    let error = store.wait_until_at_least(&"9".into(), past).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::NotSynced, 3));
    assert!(error.to_string().contains("no route"), "{error}");
}

#[test]
fn a_wait_for_a_version_that_compares_with_none_is_refused_at_once() {
    for synced in [false, true] {
        let (store, mut writer) = store();
        if synced {
            replace(&mut writer, vec![], &at("5")).unwrap();
        }
        for odd in ["odd", "7a", "-1"] {
            let wait = store.wait_until_at_least(&odd.into(), Deadline::NEVER);
            let error = wait.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(odd), "{error}");
        }
    }
}

fn waiting_for_version_8() -> StoreWaiter {
    waiting_in(None, |store, deadline| {
        store.wait_until_at_least(&"8".into(), deadline)
    })
}

/// B3: a caller that waits for a version waits for the first list, too.
#[test]
fn waiting_for_a_version_hastens_the_first_sync() {
    let mut waiting = waiting_for_version_8();
    assert!(waiting.store.waiters().any());
    replace(&mut waiting.writer, vec![], &at("8")).unwrap();
    assert!(waiting.told.recv().unwrap().is_ok());
    assert!(
        waiting
            .store
            .wait_until_at_least(&"8".into(), Deadline::NEVER)
            .is_ok(),
        "it is there already"
    );
}

/// R4: a refusal ends the wait for a version, before the first list and after it.
#[test]
fn a_refusal_ends_the_wait_for_a_version() {
    for synced in [false, true] {
        let mut waiting = waiting_for_version_8();
        if synced {
            replace(&mut waiting.writer, vec![], &at("5")).unwrap();
        }
        let status = ReflectorStatus {
            refusal: Some(Error::new(ErrorKind::Forbidden, "configmaps is forbidden")),
            ..ReflectorStatus::default()
        };
        waiting.writer.report(&status);
        let told = waiting.told.recv_timeout(Duration::from_secs(5 * 60));
        assert_eq!(told.unwrap().unwrap_err().kind(), ErrorKind::Forbidden);
    }
}

/// R4: an unknown resource is an answer, too.
#[test]
fn a_resource_that_the_server_does_not_know_ends_the_wait() {
    let mut waiting = waiting(None);
    let status = ReflectorStatus {
        refusal: Some(Error::new(ErrorKind::NotFound, "no such resource")),
        ..ReflectorStatus::default()
    };
    waiting.writer.report(&status);
    let told = waiting.told.recv_timeout(Duration::from_secs(5 * 60));
    assert_eq!(told.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
}
