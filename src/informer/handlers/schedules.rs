//! Thread schedules of the handler side, explored by a model checker.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use shuttle::thread;

use super::Processor;
use super::listener::Listener;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::ErrorKind;
use crate::informer::tests::check;
use crate::informer::{EventHandler, HandlerOptions, Notification, Registration};
use crate::list_watch::ObjectEvent;
use crate::object::StoredObject;
use crate::reflector::Sink as _;
use crate::store::{Indexers, Store, StoreWriter};
use crate::sync::{
    Arc, Monitor, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were
/// written.
const SCHEDULES: usize = 3_000;

fn object(name: &str) -> Arc<StoredObject<ConfigMap>> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    Arc::new(StoredObject::new(object))
}

fn added(name: &str) -> Notification<ConfigMap> {
    Notification::Added {
        object: object(name),
        is_in_initial_list: false,
    }
}

/// Records its notifications, and whether one came after its removal had returned.
#[derive(Clone, Default)]
struct Recorder {
    told: Arc<Mutex<Vec<String>>>,
    removed: Arc<AtomicBool>,
    called_late: Arc<AtomicBool>,
    enough: usize,
}

impl EventHandler<ConfigMap> for Recorder {
    fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, _is_in_initial_list: bool) {
        // A panic here would be caught, so mistakes are only noted.
        if self.removed.load(Ordering::SeqCst) {
            self.called_late.store(true, Ordering::SeqCst);
        }
        let name = object.metadata.name.clone().unwrap_or_default();
        self.told.lock().push(name);
    }

    fn is_finished(&self) -> bool {
        self.enough > 0 && self.told.lock().len() == self.enough
    }
}

impl Recorder {
    fn assert_sound(&self, pushed: &[&str]) {
        assert!(
            !self.called_late.load(Ordering::SeqCst),
            "called after its removal"
        );
        let told = self.told.lock();
        assert!(
            pushed.iter().zip(told.iter()).all(|(a, b)| a == b),
            "{told:?}"
        );
        assert!(told.len() <= pushed.len(), "{told:?}");
    }
}

/// A handler whose thread the model runs.
fn enter(processor: &Arc<Processor<ConfigMap>>) -> (Arc<Listener<ConfigMap>>, Registration) {
    let options = HandlerOptions::default().queue_max(Some(2));
    let listener = Arc::new(processor.listener(options, "Recorder", "hd"));
    processor.enter(&listener, None, Duration::ZERO).unwrap();
    let registration = processor.registration(Arc::clone(&listener));
    (listener, registration)
}

struct Model {
    store: Store<ConfigMap>,
    writer: Mutex<StoreWriter<ConfigMap>>,
    processor: Arc<Processor<ConfigMap>>,
    listener: Arc<Listener<ConfigMap>>,
    registration: Registration,
    recorder: Recorder,
}

impl Model {
    fn new(clock: Clock) -> Self {
        let (store, writer) = Store::new(Indexers::new(), clock.clone());
        let processor = Processor::new("model", store.clone(), Duration::ZERO, clock, None);
        let (listener, registration) = enter(&processor);
        Self {
            store,
            writer: Mutex::new(writer),
            processor,
            listener,
            registration,
            recorder: Recorder::default(),
        }
    }

    fn handler(&self, handler: impl EventHandler<ConfigMap>) -> thread::JoinHandle<()> {
        let listener = Arc::clone(&self.listener);
        thread::spawn(move || listener.run(handler, None))
    }

    /// The informer's reflector, which does not write to the store.
    fn teller(&self, names: &'static [&'static str]) -> thread::JoinHandle<()> {
        let processor = Arc::clone(&self.processor);
        thread::spawn(move || {
            processor.let_join();
            for name in names {
                processor.turn(|tell| tell(added(name)));
            }
            processor.turn(|_| processor.complete_initial());
        })
    }

    /// Puts objects into the store without notifying the handlers.
    fn hold(&self, names: &[&str]) {
        for name in names {
            let event = ObjectEvent::added(object(name));
            self.writer.lock().apply(event).unwrap();
        }
    }

    fn remover(&self) -> thread::JoinHandle<()> {
        let (registration, recorder) = (self.registration.clone(), self.recorder.clone());
        thread::spawn(move || {
            registration.remove(Deadline::NEVER).unwrap();
            recorder.removed.store(true, Ordering::SeqCst);
        })
    }
}

#[test]
fn a_notification_is_never_missed() {
    check(SCHEDULES, || {
        let mut model = Model::new(Clock::system());
        model.recorder.enough = 3;
        let handler = model.handler(model.recorder.clone());
        let teller = model.teller(&["a", "b", "c"]);
        handler.join().unwrap();
        teller.join().unwrap();
        assert_eq!(*model.recorder.told.lock(), ["a", "b", "c"]);
    });
}

/// The threads of handlers are not woken for each event of a burst, and are at its end.
#[test]
fn the_last_event_of_a_burst_is_never_missed() {
    check(SCHEDULES, || {
        let mut model = Model::new(Clock::system());
        model.recorder.enough = 2;
        let handler = model.handler(model.recorder.clone());
        let processor = Arc::clone(&model.processor);
        let teller = thread::spawn(move || {
            processor.let_join();
            processor.set_burst(true);
            for name in ["a", "b"] {
                processor.turn(|tell| tell(added(name)));
            }
            processor.set_burst(false);
        });
        handler.join().unwrap();
        teller.join().unwrap();
        assert_eq!(*model.recorder.told.lock(), ["a", "b"]);
    });
}

/// SI-11: handlers that join while the store changes and others are told miss nothing, and get
/// nothing twice.
#[test]
fn handlers_join_between_turns() {
    check(SCHEDULES, || {
        let model = Arc::new(Model::new(Clock::system()));
        let writing = Arc::clone(&model);
        let writer = thread::spawn(move || {
            for name in ["a", "b"] {
                writing.processor.turn(|tell| {
                    writing.hold(&[name]);
                    tell(added(name));
                });
            }
        });
        let joiners: Vec<_> = (0..2)
            .map(|_| {
                let joining = Arc::clone(&model);
                thread::spawn(move || {
                    let (listener, _) = enter(&joining.processor);
                    joining.processor.let_join();
                    let recorder = Recorder {
                        enough: 2,
                        ..Recorder::default()
                    };
                    listener.run(recorder.clone(), None);
                    recorder
                })
            })
            .collect();
        for joiner in joiners {
            let mut told = joiner.join().unwrap().told.lock().clone();
            told.sort();
            assert_eq!(told, ["a", "b"], "a handler was told wrong");
        }
        writer.join().unwrap();
        assert_eq!(model.store.len(), 2);
    });
}

/// SI-14, SI-15: once a removal has returned, no call runs or begins, even while other threads tell
/// and stop.
#[test]
fn telling_removing_and_stopping_at_once() {
    check(SCHEDULES, || {
        let model = Model::new(Clock::system());
        let handler = model.handler(model.recorder.clone());
        let teller = model.teller(&["a", "b"]);
        let removers = [model.remover(), model.remover()];
        let processor = Arc::clone(&model.processor);
        let stopper = thread::spawn(move || processor.stop(Deadline::NEVER).unwrap());
        for thread in removers.into_iter().chain([handler, teller, stopper]) {
            thread.join().unwrap();
        }
        model.recorder.assert_sound(&["a", "b"]);
        assert!(model.registration.readings().has_ended);
    });
}

/// Removes itself in its first call.
struct Suicidal(Recorder, Registration);

impl EventHandler<ConfigMap> for Suicidal {
    fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, is_in_initial_list: bool) {
        self.0.on_add(object, is_in_initial_list);
        let removed = self.1.remove(Deadline::NEVER);
        self.0.removed.store(removed.is_ok(), Ordering::SeqCst);
    }
}

/// SI-15: a handler that removes itself does not wait, also while others remove it.
#[test]
fn a_handler_that_removes_itself_does_not_wait_for_itself() {
    check(SCHEDULES, || {
        let model = Model::new(Clock::system());
        let own = Suicidal(model.recorder.clone(), model.registration.clone());
        let handler = model.handler(own);
        let teller = model.teller(&["a", "b"]);
        let remover = model.remover();
        for thread in [handler, teller, remover] {
            thread.join().unwrap();
        }
        assert!(model.recorder.told.lock().len() <= 1);
    });
}

fn wait(model: &Model, deadline: Deadline) -> thread::JoinHandle<Option<ErrorKind>> {
    let registration = model.registration.clone();
    thread::spawn(move || {
        let waited = registration.wait_until_synced(deadline);
        waited.err().map(|error| error.kind())
    })
}

/// A handler's thread by hand: every call panics.
fn panicking(model: &Model, calls: usize) -> thread::JoinHandle<()> {
    let listener = Arc::clone(&model.listener);
    thread::spawn(move || {
        for _ in 0..calls {
            drop(listener.next());
            listener.finish(Some("no".to_owned()));
        }
    })
}

/// SI-16: a panic of the last initial call, the end of the initial list, and the waiters, in every
/// order.
#[test]
fn a_first_sync_is_never_missed_also_by_a_panic() {
    check(SCHEDULES, || {
        let model = Model::new(Clock::system());
        model.hold(&["a", "b"]);
        model.processor.let_join();
        let waiters = [wait(&model, Deadline::NEVER), wait(&model, Deadline::NEVER)];
        let handler = panicking(&model, 2);
        model.processor.complete_initial();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), None);
        }
        handler.join().unwrap();
        assert_eq!(model.registration.readings().panics, 2);
    });
}

/// The end of the handler, the deadline and the sync at once: every waiter gets a fitting answer.
#[test]
fn every_end_of_a_wait_for_the_first_sync_at_once() {
    check(SCHEDULES, || {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let model = Model::new(clock.clone());
        let handler = model.handler(model.recorder.clone());
        let waiters = [
            wait(&model, clock.after(Duration::from_secs(1))),
            wait(&model, Deadline::NEVER),
        ];
        let teller = model.teller(&["a"]);
        let time = thread::spawn(move || fake.advance(Duration::from_secs(1)));
        let remover = model.remover();
        let [first, second] = waiters.map(|waiter| waiter.join().unwrap());
        let ends = [None, Some(ErrorKind::Stopped), Some(ErrorKind::NotSynced)];
        assert!(ends.contains(&first), "{first:?}");
        assert!(ends[..2].contains(&second), "{second:?}");
        for thread in [handler, teller, remover, time] {
            thread.join().unwrap();
        }
        assert_eq!(model.registration.has_synced(), second.is_none());
    });
}

/// Negative control: a removal that checks a mark which the thread sets too late returns while a
/// call begins, and the checker sees that.
#[test]
#[should_panic(expected = "called after its removal")]
fn a_removal_that_looks_past_the_lock_lets_a_call_begin() {
    check(SCHEDULES, || {
        let state = Arc::new(Monitor::new((false, false)));
        let recorder = Recorder::default();
        let (theirs, mut handler) = (Arc::clone(&state), recorder.clone());
        let thread = thread::spawn(move || {
            let ended = theirs.lock().0;
            if !ended {
                theirs.lock().1 = true;
                handler.on_add(&object("a"), false);
                theirs.lock().1 = false;
                theirs.notify_all();
            }
        });
        state.lock().0 = true;
        let mut calls = state.lock();
        while calls.1 {
            calls = state.wait(calls);
        }
        drop(calls);
        recorder.removed.store(true, Ordering::SeqCst);
        thread.join().unwrap();
        recorder.assert_sound(&["a"]);
    });
}
