//! Thread schedules of whole shared informers, explored by a model checker: the real reflector,
//! store and handlers, on the checker's threads, against the fake server and the fake clock.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib --features testing schedules`, with a target
//! directory of its own.

use k8s_openapi::api::core::v1::ConfigMap;
use shuttle::thread;

use super::tests::{View, number, view_of};
use super::{InformerOptions, SharedInformer};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::tests::check;
use crate::informer::{Deleted, EventHandler, Registration};
use crate::object::{Object as _, StoredObject};
use crate::reflector::ReflectorOptions;
use crate::sync::{Arc, Mutex};
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were
/// written.
const SCHEDULES: usize = 300;

#[derive(Default)]
struct Seen {
    view: View,
    adds: usize,
    removed: bool,
    /// A panic in a handler would be caught, so mistakes are only noted.
    wrong: Vec<String>,
}

/// Keeps a view of its notifications, and notes those that contradict it.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Seen>>);

impl Recorder {
    fn note(
        &self,
        what: &str,
        object: &StoredObject<ConfigMap>,
        follows: impl FnOnce(&mut Seen) -> bool,
    ) {
        let mut seen = self.0.lock();
        if !follows(&mut seen) {
            let text = format!("{what} {object:?} after {:?}", seen.view);
            seen.wrong.push(text);
        }
        if seen.removed {
            seen.wrong
                .push(format!("{what} {object:?} after its removal"));
        }
    }

    fn assert_sound(&self) {
        let wrong = &self.0.lock().wrong;
        assert!(wrong.is_empty(), "a handler was told wrong: {wrong:?}");
    }

    fn assert_has(&self, there: &View) {
        self.assert_sound();
        let seen = self.0.lock();
        assert_eq!(&seen.view, there, "a handler was told wrong");
    }
}

impl EventHandler<ConfigMap> for Recorder {
    fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, _is_in_initial_list: bool) {
        self.note("added", object, |seen| {
            seen.adds += 1;
            let key = object.key().to_string();
            seen.view.insert(key, number(object)).is_none()
        });
    }

    fn on_update(
        &mut self,
        old: &Arc<StoredObject<ConfigMap>>,
        new: &Arc<StoredObject<ConfigMap>>,
    ) {
        self.note("updated", new, |seen| {
            let before = seen.view.insert(new.key().to_string(), number(new));
            before == Some(number(old)) && number(old) <= number(new)
        });
    }

    fn on_delete(&mut self, deleted: Deleted<ConfigMap>) {
        let key = deleted.key().to_string();
        self.note("deleted", &deleted.last_known, |seen| {
            seen.view.remove(&key).is_some()
        });
    }
}

struct Model {
    fake: FakeClock,
    source: FakeSource<ConfigMap>,
    informer: Arc<SharedInformer<ConfigMap>>,
}

impl Model {
    /// An informer of a server that holds `a` and `b`.
    fn new() -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let source = FakeSource::with_clock(clock.clone());
        let reflector = ReflectorOptions {
            clock,
            seed: Some(1),
            ..ReflectorOptions::default()
        };
        let options = InformerOptions::default().reflector(reflector);
        let informer = SharedInformer::new(Arc::new(source.clone()), options);
        let model = Self {
            fake,
            source,
            informer: Arc::new(informer),
        };
        model.set("a");
        model.set("b");
        model
    }

    fn set(&self, name: &str) {
        self.source.set(objects::config_map("", name, "", &[]));
    }

    fn follow(&self) -> (Recorder, Registration) {
        let recorder = Recorder::default();
        let registration = self.informer.add_handler(recorder.clone()).unwrap();
        (recorder, registration)
    }

    /// Plays the server: changes, a deletion, and a lost history, so that the reflector lists
    /// again.
    fn serve(&self) -> thread::JoinHandle<()> {
        let source = self.source.clone();
        let set = move |name: &str| source.set(objects::config_map("", name, "", &[]));
        let source = self.source.clone();
        thread::spawn(move || {
            set("a");
            source.delete("", "b");
            source.expire_watches();
            set("c");
            source.delete("", "a");
            set("d");
        })
    }

    /// Passes time until the store equals the server. Returns the content.
    fn wait_until_equal(&self) -> View {
        let there = view_of(&self.source.objects());
        while view_of(&self.informer.store().list()) != there {
            let ahead = self.fake.wait_for_next_timer();
            self.fake.advance(ahead);
            thread::yield_now();
        }
        // A handler that joins now gets everything after all others.
        let (last, registration) = self.follow();
        registration.wait_until_synced(Deadline::NEVER).unwrap();
        last.assert_has(&there);
        there
    }

    /// Waits until the handler's queue is empty.
    fn drain(registration: &Registration) {
        while registration.readings().lag.is_some() {
            thread::yield_now();
        }
    }
}

/// SI-11, SI-14, SI-16, SI-20: in any schedule, every handler ends with the server's content,
/// without gap or repetition, and a removed handler gets nothing more.
#[test]
fn si_1_handlers_come_and_go_while_the_server_changes_and_loses_its_history() {
    check(SCHEDULES, move || {
        let model = Model::new();
        let (early, early_registration) = model.follow();
        let (removed, removed_registration) = model.follow();
        model.informer.start().unwrap();
        let server = model.serve();
        let informer = Arc::clone(&model.informer);
        let (seen, registered) = (early.clone(), early_registration.clone());
        let waiter = thread::spawn(move || {
            registered.wait_until_synced(Deadline::NEVER).unwrap();
            assert!(informer.has_synced());
            let first = [seen.0.lock().adds, informer.store().len()];
            assert!(first.iter().all(|objects| *objects > 0), "{first:?}");
        });
        let gone = removed.clone();
        let remover = thread::spawn(move || {
            removed_registration.remove(Deadline::NEVER).unwrap();
            gone.0.lock().removed = true;
        });
        let (late, late_registration) = model.follow();
        for thread in [server, waiter, remover] {
            thread.join().unwrap();
        }
        let there = model.wait_until_equal();
        for (handler, registration) in [(early, early_registration), (late, late_registration)] {
            Model::drain(&registration);
            handler.assert_has(&there);
        }
        removed.assert_sound();
        model.informer.shutdown(Deadline::NEVER).unwrap();
        assert_eq!(model.source.open_watches(), 0);
        assert_eq!(view_of(&model.informer.store().list()), there);
    });
}

/// SI-4, SI-5, WT-2: a stop, while it starts, lists, watches or tells, ends every thread and every
/// wait.
#[test]
fn si_4_a_stop_at_any_moment_ends_every_thread_and_every_wait() {
    for hangs in [false, true] {
        check(SCHEDULES, move || {
            let model = Model::new();
            if hangs {
                model.source.fail_next(RequestKind::List, SourceFault::Hang);
            }
            let (seen, registration) = model.follow();
            let of_informer = Arc::clone(&model.informer);
            let of_handler = registration.clone();
            let waiters = [
                thread::spawn(move || of_informer.wait_until_synced(Deadline::NEVER)),
                thread::spawn(move || of_handler.wait_until_synced(Deadline::NEVER)),
            ];
            let starting = Arc::clone(&model.informer);
            let starter = thread::spawn(move || {
                let started = starting.start();
                assert!(started.is_ok() || started.is_err_and(|error| error.is_stopped()));
            });
            let adding = Arc::clone(&model.informer);
            let adder = thread::spawn(move || {
                let added = adding.add_handler(Recorder::default());
                assert!(added.is_ok() || added.is_err_and(|error| error.is_stopped()));
            });
            let stopping = Arc::clone(&model.informer);
            let stopper = thread::spawn(move || stopping.stop());
            model.informer.shutdown(Deadline::NEVER).unwrap();
            assert!(registration.readings().has_ended && model.informer.is_stopped());
            for thread in [starter, adder, stopper] {
                thread.join().unwrap();
            }
            for waiter in waiters {
                let waited = waiter.join().unwrap();
                assert!(waited.is_ok() || waited.is_err_and(|error| error.is_stopped()));
            }
            seen.assert_sound();
            assert_eq!(model.source.open_watches(), 0);
        });
    }
}

/// SI-4: a drop ends an informer like a stop, even while a handler joins.
#[test]
fn si_4_a_drop_at_any_moment_ends_every_thread() {
    check(SCHEDULES, || {
        let model = Model::new();
        model.informer.start().unwrap();
        let server = model.serve();
        let (seen, registration) = model.follow();
        let Model {
            informer, source, ..
        } = model;
        drop(Arc::into_inner(informer).unwrap());
        assert!(registration.readings().has_ended);
        seen.assert_sound();
        server.join().unwrap();
        assert_eq!(source.open_watches(), 0);
    });
}

/// Negative control: a handler that joins during the reflector's turn, not between two, gets
/// something twice or never, and the checker sees that.
#[test]
#[should_panic(expected = "a handler was told wrong")]
fn a_handler_that_joins_in_a_turn_is_told_twice_or_never() {
    check(SCHEDULES, || {
        let model = Model::new();
        model.informer.start().unwrap();
        model.informer.wait_until_synced(Deadline::NEVER).unwrap();
        let server = model.serve();
        let late = Recorder::default();
        let processor = &model.informer.processor;
        let registration = processor.add(late.clone(), super::HandlerOptions::default());
        let registration = registration.unwrap();
        processor.end_turn();
        server.join().unwrap();
        let there = model.wait_until_equal();
        Model::drain(&registration);
        late.assert_has(&there);
    });
}
