//! Thread schedules of the store's waits, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use shuttle::thread;

use crate::clock::{Clock, Deadline, FakeClock};
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::object::{Object, StoredObject};
use crate::reflector::{Replacement, Sink, Waiters};
use crate::store::{Indexers, Store, StoreWriter};
use crate::sync::{Arc, Monitor, Mutex};
use crate::worker::StopSource;
use crate::{Error, ErrorKind};

/// Schedules tried per model; each takes well under a millisecond.
const SCHEDULES: usize = 5_000;

fn store(clock: Clock) -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    Store::new(Indexers::new(), clock)
}

fn commit(writer: &mut StoreWriter<ConfigMap>) {
    let staging = writer.begin();
    writer.commit(staging, &Replacement::default()).unwrap();
}

fn event(kind: EventKind, version: &str) -> ObjectEvent<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("shop".into());
    object.metadata.name = Some("db".into());
    object.metadata.resource_version = Some(version.into());
    let object = Listed::Object(Arc::new(StoredObject::new(object)));
    ObjectEvent { kind, object }
}

fn wait(store: &Store<ConfigMap>, deadline: Deadline) -> thread::JoinHandle<Result<(), Error>> {
    let store = store.clone();
    thread::spawn(move || store.wait_until_synced(deadline))
}

#[test]
fn a_commit_is_never_missed() {
    shuttle::check_random(
        || {
            let (store, mut writer) = store(Clock::system());
            let waiters = [wait(&store, Deadline::NEVER), wait(&store, Deadline::NEVER)];
            commit(&mut writer);
            for waiter in waiters {
                assert!(waiter.join().unwrap().is_ok());
            }
        },
        SCHEDULES,
    );
}

#[test]
fn the_end_of_the_writer_is_never_missed() {
    shuttle::check_random(
        || {
            let (store, writer) = store(Clock::system());
            let waiter = wait(&store, Deadline::NEVER);
            drop(writer);
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
        },
        SCHEDULES,
    );
}

/// A commit, the deadline and the end of the writer at once: an answer comes, and a commit before
/// the wait wins.
#[test]
fn every_end_of_a_wait_at_once() {
    shuttle::check_random(
        || {
            let fake = FakeClock::new();
            let clock = Clock::from(fake.clone());
            let (store, mut writer) = store(clock.clone());
            let waiter = wait(&store, clock.after(Duration::from_secs(1)));
            let time = thread::spawn(move || fake.advance(Duration::from_secs(1)));
            commit(&mut writer);
            let late = store.wait_until_synced(clock.after(Duration::ZERO));
            assert!(late.is_ok(), "success beats the deadline");
            drop(writer);
            time.join().unwrap();
            match waiter.join().unwrap() {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotSynced),
            }
        },
        SCHEDULES,
    );
}

#[test]
fn the_clock_is_never_missed() {
    shuttle::check_random(
        || {
            let fake = FakeClock::new();
            let clock = Clock::from(fake.clone());
            let (store, _writer) = store(clock.clone());
            let waiter = wait(&store, clock.after(Duration::from_secs(1)));
            fake.advance(Duration::from_secs(1));
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotSynced);
        },
        SCHEDULES,
    );
}

/// A stop ends a reflector's pause, and so does a reader that begins to wait.
#[test]
fn a_pause_ends_by_the_stop_and_by_a_waiter() {
    for stops in [true, false] {
        shuttle::check_random(
            move || {
                let (waiters, stop) = (Waiters::new(), StopSource::new());
                let (pausing, token) = (waiters.clone(), stop.token());
                let pause = thread::spawn(move || {
                    let clock = Clock::system();
                    pausing.pause(&clock, Deadline::NEVER, &token, true)
                });
                let guard = if stops {
                    stop.stop();
                    None
                } else {
                    Some(waiters.wait())
                };
                assert_eq!(pause.join().unwrap(), !stops, "whether it was demanded");
                drop(guard);
            },
            SCHEDULES,
        );
    }
}

/// The store takes a copy of an older state back before any reader can see the newer one (B18).
#[test]
fn b18_no_reader_goes_back_behind_what_another_has_read() {
    let version = |store: &Store<ConfigMap>| -> usize {
        let object = store.get("shop", "db").unwrap();
        object.map_or(3, |object| object.resource_version_text().parse().unwrap())
    };
    shuttle::check_random(
        move || {
            let (store, mut writer) = store(Clock::system());
            commit(&mut writer);
            writer.apply(event(EventKind::Added, "1")).unwrap();
            let latest = Arc::new(Mutex::new(version(&store)));
            let readers = [(); 2].map(|()| {
                let (store, latest) = (store.clone(), Arc::clone(&latest));
                thread::spawn(move || {
                    for _ in 0..3 {
                        let before = *latest.lock();
                        let read = version(&store);
                        assert!(read >= before, "{read} after {before}");
                        let mut latest = latest.lock();
                        *latest = read.max(*latest);
                    }
                })
            });
            writer.apply(event(EventKind::Updated, "2")).unwrap();
            writer.apply(event(EventKind::Deleted, "3")).unwrap();
            for reader in readers {
                reader.join().unwrap();
            }
            assert_eq!(version(&store), 3);
        },
        SCHEDULES,
    );
}

/// Negative control: a flag that changes outside the mutex the waiter holds loses its wake-up, and
/// the checker sees that.
#[test]
#[should_panic(expected = "deadlock")]
fn a_flag_outside_the_mutex_loses_the_wake_up() {
    use crate::sync::atomic::{AtomicBool, Ordering};
    shuttle::check_random(
        || {
            let shared = Arc::new((Monitor::new(()), AtomicBool::new(false)));
            let waiting = Arc::clone(&shared);
            let waiter = thread::spawn(move || {
                let (monitor, raised) = &*waiting;
                let mut guard = monitor.lock();
                while !raised.load(Ordering::SeqCst) {
                    guard = monitor.wait(guard);
                }
            });
            let (monitor, raised) = &*shared;
            raised.store(true, Ordering::SeqCst);
            monitor.notify_all();
            waiter.join().unwrap();
        },
        SCHEDULES,
    );
}
