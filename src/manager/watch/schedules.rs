//! Model checks: get, commit, the last reference and the shutdown in every order, without real
//! threads.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::entry::ABSENCE_PAUSE;
use super::state_machine::RunId;
use super::store::WatchStore;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::list_watch::{Listed, ObjectEvent};
use crate::manager::kinds::KindTraits;
use crate::manager::object_manager::SecretManager;
use crate::manager::options::{ManagerOptions, PastLimit, WatchScope};
use crate::manager::registry::Registry;
use crate::manager::tests::fake::{
    FakeGetter, FakeRuns, ROUND, commit, immutable, opened, pod, secret, too_large,
};
use crate::manager::tests::stage::failed;
use crate::object::{Status, StoredObject};
use crate::reflector::{ReflectorStatus, Replacement, Sink as _};
use crate::sync::{Arc, Monitor};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were
/// written.
const SCHEDULES: usize = 2_000;

/// Bytes of stack per modelled thread: decoding a pod in a debug build takes more than the
/// checker's default.
const STACK_BYTES: usize = 512 * 1024;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_by(RandomScheduler::new(SCHEDULES), model);
}

fn check_by(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(model);
}

struct Model {
    manager: SecretManager,
    runs: FakeRuns,
    getter: FakeGetter,
}

impl Model {
    fn new() -> Self {
        Self::with(ManagerOptions::default())
    }

    /// A namespace is watched as a whole if more than one of its objects is watched; `s` is watched
    /// by name, and `t` awaits the first list of the namespace.
    fn of_namespace() -> Self {
        let scope = WatchScope::Namespace { above: 1 };
        let model = Self::with(ManagerOptions::default().watch_scope(scope));
        model.manager.register_pod(&pod("p", &["s"]));
        model.manager.register_pod(&pod("q", &["t"]));
        assert_eq!((model.runs.count(), model.runs.namespaces()), (1, 1));
        model
    }

    fn with(options: ManagerOptions) -> Self {
        Self::at(FakeClock::new(), options)
    }

    fn at(clock: FakeClock, options: ManagerOptions) -> Self {
        let runs = FakeRuns::default();
        let options = options.clock(Clock::from(clock));
        let getter = FakeGetter::default();
        let gets = Arc::new(getter.clone());
        let store = WatchStore::unattended(
            Box::new(runs.clone()),
            Registry::new(KindTraits::default(), gets, options),
        );
        let manager = SecretManager::over(Box::new(store)).unwrap();
        Self {
            manager,
            runs,
            getter,
        }
    }

    /// `s` is polled by a thread of the model, and its first poll finds what is answered.
    fn of_polls() -> (Self, thread::JoinHandle<()>) {
        let options = ManagerOptions::default().past_limit(PastLimit::Poll);
        let model = Self::with(options.watches_max(1));
        model.manager.register_pod(&pod("p", &["s"]));
        let poller = model.poller();
        (model, poller)
    }

    /// No object has room for a watch, and the model polls them by hand.
    fn polled_by(clock: &FakeClock) -> Self {
        let options = ManagerOptions::default().past_limit(PastLimit::Poll);
        Self::at(clock.clone(), options.watches_max(1))
    }

    /// `s` is in no list of the server's cache, a reader was told so, and the time to confirm that
    /// has come.
    fn of_absence(clock: &FakeClock) -> Self {
        let model = Self::at(clock.clone(), ManagerOptions::default());
        model.manager.register_pod(&pod("p", &["s"]));
        let listed = |writer: &mut _| commit(writer, "10", None, false);
        model.runs.write(0, listed).unwrap();
        assert!(model.is_absent());
        clock.advance(ABSENCE_PAUSE);
        model
    }

    fn absent_reader(&self) -> thread::JoinHandle<()> {
        let manager = self.manager.clone();
        thread::spawn(move || {
            let read = manager.get_by("ns", "s", Deadline::NEVER);
            assert!(read.unwrap_err().is_not_found());
        })
    }

    fn is_absent(&self) -> bool {
        let read = self.manager.get_by("ns", "s", Deadline::NEVER);
        read.is_err_and(|error| error.is_not_found())
    }

    /// Looks at the absences, as the housekeeper does.
    fn confirmer(&self) -> thread::JoinHandle<()> {
        let manager = self.manager.clone();
        thread::spawn(move || manager.store().keeper().confirm_absences())
    }

    /// Waits until no thread checks or confirms.
    fn settle(self, threads: Vec<thread::JoinHandle<()>>) -> Self {
        let model = self.join(threads);
        while model.manager.store().keeper().is_at_work() {
            thread::yield_now();
        }
        model
    }

    fn poll_once(&self) -> thread::JoinHandle<()> {
        let manager = self.manager.clone();
        thread::spawn(move || {
            let poller = &manager.store().keeper().starts.poller;
            poller.as_ref().unwrap().poll_once();
        })
    }

    /// Whether the last attempt to read the one object failed, as reports have it.
    fn has_failed(&self) -> bool {
        let mut reports = self.manager.inspect().into_values().flatten();
        reports.any(|report| report.last_error.is_some())
    }

    fn poller(&self) -> thread::JoinHandle<()> {
        let manager = self.manager.clone();
        thread::spawn(move || {
            let poller = &manager.store().keeper().starts.poller;
            poller.as_ref().unwrap().work();
        })
    }

    /// A reader that waits for as long as it takes; whatever the answer, it must come.
    fn reader(&self) -> thread::JoinHandle<()> {
        let manager = self.manager.clone();
        thread::spawn(move || match manager.get_by("ns", "s", Deadline::NEVER) {
            Ok(cached) => assert_eq!(cached.metadata.resource_version.as_deref(), Some("9")),
            Err(error) => {
                let expected = [
                    ErrorKind::NotRegistered,
                    ErrorKind::NotSynced,
                    ErrorKind::Stopped,
                ];
                assert!(expected.contains(&error.kind()), "{error}");
            }
        })
    }

    /// A reader for whom the server has no state that is new enough: it waits for the watch to come
    /// so far. No pause between two requests ends here, so that nothing but a wake-up helps.
    fn reader_at_least(&self, asked: &'static str) -> thread::JoinHandle<Option<ErrorKind>> {
        self.getter.versions();
        self.getter.answer(Err(too_large()));
        let manager = self.manager.clone();
        thread::spawn(move || {
            match manager.get_at_least("ns", "s", &asked.into(), Deadline::NEVER) {
                Ok(cached) => {
                    assert_eq!(cached.metadata.resource_version.as_deref(), Some("9"));
                    None
                }
                Err(error) => Some(error.kind()),
            }
        })
    }

    /// Fills the entry as a run would, and notifies no reader.
    fn fill_in_silence(&self) -> thread::JoinHandle<()> {
        let store = self.manager.store();
        let object = store.entry_to_read("ns", "s").unwrap();
        let now = store.registry().clock().now();
        thread::spawn(move || {
            let listed = Listed::Object(Arc::new(StoredObject::new(secret("s", "9"))));
            let of = Replacement {
                resource_version: "10".into(),
                ..Replacement::default()
            };
            let mut entry = object.state.lock();
            let mut listed = Some(listed);
            let staged = (entry.content.revision(), &mut listed);
            let written = entry.replace(RunId::FIRST, staged, &of, now);
            drop(entry);
            drop(written);
        })
    }

    /// Commits the first run's list, as its thread would; an ended run may be refused.
    fn committer(&self, fixed: bool) -> thread::JoinHandle<()> {
        let runs = self.runs.clone();
        thread::spawn(move || {
            let object = if fixed {
                immutable("s", "9")
            } else {
                secret("s", "9")
            };
            let committed = runs.write(0, |writer| commit(writer, "10", Some(object), false));
            assert!(committed.is_ok() || committed.is_err_and(|error| error.is_stopped()));
        })
    }

    fn join(self, threads: Vec<thread::JoinHandle<()>>) -> Self {
        for thread in threads {
            thread.join().unwrap();
        }
        self
    }

    /// Ends the threads of all runs.
    fn end(self) {
        for index in 0..self.runs.namespaces() {
            self.runs.crash_namespace(index);
        }
        self.runs.end_all();
    }

    /// Every run was told to stop, nothing more is answered, and nothing is kept alive by what
    /// ended.
    fn assert_over(self) {
        assert_eq!(self.runs.at_work("s"), 0);
        assert!(self.manager.get_by("ns", "s", Deadline::NEVER).is_err());
        self.runs.end_all();
    }
}

/// OC-8, OC-27, B1, B6: a reader is woken by the list or by the release, whichever order they come
/// in.
#[test]
fn a_reader_is_woken_by_the_list_or_by_the_release() {
    check(|| {
        let model = Model::new();
        let pod = pod("p", &["s"]);
        model.manager.register_pod(&pod);
        let manager = model.manager.clone();
        let releaser = thread::spawn(move || manager.unregister_pod(&pod));
        let threads = vec![model.reader(), model.committer(false), releaser];
        model.join(threads).assert_over();
    });
}

/// B1: the list alone wakes the reader, wherever the reader is by then.
#[test]
fn a_reader_is_woken_by_the_list() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let threads = vec![model.reader(), model.committer(false)];
        let model = model.join(threads);
        model.manager.unregister_pod(&pod("p", &[]));
        model.assert_over();
    });
}

/// OC-3, OC-7: the last release alone wakes the reader.
#[test]
fn a_reader_is_woken_by_the_release() {
    check(|| {
        let model = Model::new();
        let pod = pod("p", &["s"]);
        model.manager.register_pod(&pod);
        let manager = model.manager.clone();
        let releaser = thread::spawn(move || manager.unregister_pod(&pod));
        let threads = vec![model.reader(), releaser];
        model.join(threads).assert_over();
    });
}

/// OC-25: a shutdown ends every wait; nothing is started after it.
#[test]
fn a_reader_is_woken_by_the_shutdown() {
    check(|| {
        let model = Model::new();
        let pod = pod("p", &["s"]);
        model.manager.register_pod(&pod);
        let manager = model.manager.clone();
        let stopper = thread::spawn(move || manager.stop());
        let manager = model.manager.clone();
        let late = thread::spawn(move || {
            manager.register_pod(&crate::manager::tests::fake::pod("q", &["s"]))
        });
        let threads = vec![model.reader(), model.committer(false), stopper, late];
        model.join(threads).assert_over();
    });
}

/// OC-15, OC-16: a run that stops itself because of an immutable object is stopped once and for
/// all, its answer kept.
#[test]
fn an_immutable_object_stops_its_run_in_every_order() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let threads = vec![model.reader(), model.committer(true), model.reader()];
        let model = model.join(threads);
        assert_eq!(model.runs.at_work("s"), 0);
        assert_eq!(model.runs.count(), 1);
        model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        model.runs.end_all();
    });
}

/// OC-25, B7: a registration that races with a shutdown leaves no check behind it.
#[test]
fn a_shutdown_waits_for_a_check_that_is_being_started() {
    // The whole shutdown fits into one pause of the other thread, which random schedules miss.
    check_by(PctScheduler::new(2, SCHEDULES), || {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let committer = model.committer(true);
        let model = model.join(vec![committer]);
        model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        model.getter.answer(Ok(immutable("s", "9")));
        let manager = model.manager.clone();
        let late = thread::spawn(move || manager.register_pod(&pod("q", &["s"])));
        model.manager.shutdown(Deadline::NEVER).unwrap();
        assert!(!model.manager.store().keeper().is_at_work());
        model.join(vec![late]).runs.end_all();
    });
}

/// OC-25: the room of a start that fails may be the last that the housekeeper's end waits for.
#[test]
fn a_shutdown_ends_with_a_start_that_fails_meanwhile() {
    check(|| {
        let runs = FakeRuns::default();
        runs.refuse(Some(failed(500, "no watch")));
        let options = ManagerOptions::default().clock(Clock::from(FakeClock::new()));
        let gets = Arc::new(FakeGetter::default());
        let registry = Registry::new(KindTraits::default(), gets, options);
        let store = WatchStore::new(Box::new(runs), registry).unwrap();
        let manager = SecretManager::over(Box::new(store)).unwrap();
        let registering = manager.clone();
        let late = thread::spawn(move || registering.register_pod(&pod("p", &["s"])));
        manager.shutdown(Deadline::NEVER).unwrap();
        late.join().unwrap();
    });
}

/// A check starts a watch, which calls code of the program, and that drops the last clone. The drop
/// joins the housekeeper, which waits for starts: neither waits for ever, and nothing is left.
#[test]
fn the_last_clone_drops_in_a_start_on_a_checking_thread() {
    check(|| {
        let (runs, getter) = (FakeRuns::default(), FakeGetter::default());
        let options = ManagerOptions::default().clock(Clock::from(FakeClock::new()));
        let registry = Registry::new(KindTraits::default(), Arc::new(getter.clone()), options);
        let left = Arc::downgrade(&registry);
        let store = WatchStore::new(Box::new(runs.clone()), registry).unwrap();
        let manager = SecretManager::over(Box::new(store)).unwrap();
        manager.register_pod(&pod("p", &["s"]));
        let object = Some(immutable("s", "9"));
        runs.write(0, |writer| commit(writer, "10", object, false))
            .unwrap();
        manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        let last = Arc::new(Monitor::new((None::<SecretManager>, false)));
        let dropping = Arc::clone(&last);
        runs.act_in_launch(move || {
            let mut held = dropping.lock();
            while held.0.is_none() {
                held = dropping.wait(held);
            }
            let manager = held.0.take();
            drop(held);
            drop(manager);
            dropping.lock().1 = true;
            dropping.notify_all();
        });
        // The check finds that the object is gone, so that its watch starts again.
        getter.answer(Err(failed(404, "not found")));
        manager.register_pod(&pod("q", &["s"]));
        let mut held = last.lock();
        held.0 = Some(manager);
        last.notify_all();
        while !held.1 {
            held = last.wait(held);
        }
        drop(held);
        while left.strong_count() > 0 {
            thread::yield_now();
        }
        assert_eq!(runs.at_work("s"), 0);
    });
}

/// Readers, lists that are behind and the housekeeper race: one request confirms the absence.
#[test]
fn an_absence_is_confirmed_once_whoever_asks_for_that() {
    check(|| {
        let model = Model::of_absence(&FakeClock::new());
        model.getter.answer(Err(failed(404, "none")));
        let threads = vec![model.confirmer(), model.confirmer(), model.absent_reader()];
        let model = model.settle(threads);
        let model = {
            let threads = vec![model.confirmer(), model.absent_reader()];
            model.settle(threads)
        };
        assert_eq!(model.getter.asked(), 1);
        model.manager.shutdown(Deadline::NEVER).unwrap();
        model.assert_over();
    });
}

/// An object came while its absence was being confirmed, and another list of a stuck cache lacks
/// it: a 404 that was asked for before settles nothing, so that a reader has the object in the end.
#[test]
fn a_confirmation_that_an_object_overtakes_settles_nothing() {
    check_by(PctScheduler::new(3, SCHEDULES), || {
        let clock = FakeClock::new();
        let model = Model::of_absence(&clock);
        model.getter.has(None);
        let (runs, getter) = (model.runs.clone(), model.getter.clone());
        let server = thread::spawn(move || {
            getter.wait_for_asked(1);
            getter.has(Some(secret("s", "12")));
            runs.modified(secret("s", "12"));
            runs.list("s", "13", None).unwrap();
        });
        let threads = vec![model.confirmer(), server];
        let mut model = model.settle(threads);
        for _ in 0..2 {
            model.is_absent();
            clock.advance(ABSENCE_PAUSE);
            let threads = vec![model.confirmer()];
            model = model.settle(threads);
        }
        assert!(!model.is_absent());
        model.manager.shutdown(Deadline::NEVER).unwrap();
        model.assert_over();
    });
}

/// A reader has asked about a new absence while the answer about the one before was taken in: the
/// new one is confirmed, and no second reader has to ask.
#[test]
fn a_doubt_that_begins_while_another_ends_is_confirmed() {
    check_by(PctScheduler::new(3, SCHEDULES), || {
        let clock = FakeClock::new();
        let model = Model::of_absence(&clock);
        model.getter.has(None);
        let (runs, getter) = (model.runs.clone(), model.getter.clone());
        let manager = model.manager.clone();
        let server = thread::spawn(move || {
            getter.wait_for_asked(1);
            getter.has(Some(secret("s", "12")));
            runs.modified(secret("s", "12"));
            runs.list("s", "13", None).unwrap();
            let read = manager.get_by("ns", "s", Deadline::NEVER);
            assert!(read.unwrap_err().is_not_found());
        });
        let threads = vec![model.confirmer(), server];
        let model = model.settle(threads);
        clock.advance(ABSENCE_PAUSE);
        let threads = vec![model.confirmer()];
        let model = model.settle(threads);
        assert!(!model.is_absent());
        model.manager.shutdown(Deadline::NEVER).unwrap();
        model.assert_over();
    });
}

/// CM-8, B6: registrations and releases of two pods in any order leave a run exactly if an
/// owner still references the object.
#[test]
fn registrations_in_any_order_leave_what_is_referenced() {
    check(|| {
        let model = Model::new();
        let (first, second) = (pod("p", &["s"]), pod("q", &["s"]));
        let manager = model.manager.clone();
        let comes_and_goes = thread::spawn(move || {
            manager.register_pod(&first);
            manager.unregister_pod(&first);
        });
        let manager = model.manager.clone();
        let comes = thread::spawn(move || manager.register_pod(&second));
        let model = model.join(vec![comes_and_goes, comes]);
        assert_eq!(model.runs.at_work("s"), 1);
        model.manager.unregister_pod(&pod("q", &[]));
        model.assert_over();
    });
}

/// R11: a reader waits until the watch reaches a version. The list or the bookmark that reaches it
/// wakes the reader, even without other news.
#[test]
fn a_reader_of_a_version_is_woken_by_whatever_reaches_it() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let reader = model.reader_at_least("20");
        let runs = model.runs.clone();
        let writer = thread::spawn(move || {
            runs.write(0, |writer| {
                commit(writer, "10", Some(secret("s", "9")), false).unwrap();
                writer.bookmark(&"20".into());
            });
        });
        assert_eq!(reader.join().unwrap(), None);
        let model = model.join(vec![writer]);
        assert!(model.getter.asked() <= 1);
        model.manager.unregister_pod(&pod("p", &[]));
        model.assert_over();
    });
}

/// R11, OC-7, OC-25: so it is by the last release and by the shutdown.
#[test]
fn a_reader_of_a_version_is_woken_by_the_release_and_by_the_shutdown() {
    for shut_down in [false, true] {
        check(move || {
            let model = Model::new();
            model.manager.register_pod(&pod("p", &["s"]));
            let reader = model.reader_at_least("20");
            let manager = model.manager.clone();
            let ender = thread::spawn(move || {
                if shut_down {
                    manager.stop();
                } else {
                    manager.unregister_pod(&pod("p", &[]));
                }
            });
            let threads = vec![model.committer(false), ender];
            let ended = reader.join().unwrap();
            let expected = [Some(ErrorKind::NotRegistered), Some(ErrorKind::Stopped)];
            assert!(expected.contains(&ended), "{ended:?}");
            model.join(threads).assert_over();
        });
    }
}

/// R11, B18: a fresh read and the watch bring a state each, in any order; cached reads have the
/// later one afterwards.
#[test]
fn a_fresh_read_and_a_commit_leave_the_later_state() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        model.getter.answer(Ok(secret("s", "12")));
        let manager = model.manager.clone();
        let fresh = thread::spawn(move || {
            let cached = manager.get_fresh("ns", "s", Deadline::NEVER).unwrap();
            assert_eq!(cached.metadata.resource_version.as_deref(), Some("12"));
        });
        let runs = model.runs.clone();
        let committer = thread::spawn(move || {
            // Refused where the fresh read was before it; the reflector would list again.
            let early = runs.write(0, |writer| {
                commit(writer, "10", Some(secret("s", "9")), false)
            });
            if early.is_err() {
                let again = Some(secret("s", "12"));
                let listed = runs.write(0, |writer| commit(writer, "13", again, false));
                listed.unwrap();
            }
        });
        let model = model.join(vec![fresh, committer]);
        let cached = model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        assert_eq!(cached.metadata.resource_version.as_deref(), Some("12"));
        model.manager.unregister_pod(&pod("p", &[]));
        model.assert_over();
    });
}

/// The namespace's list and the list by name race: the reader is woken, and one of them has the
/// object in the end.
#[test]
fn a_reader_is_woken_while_the_namespaces_watch_takes_over() {
    check(|| {
        let model = Model::of_namespace();
        let runs = model.runs.clone();
        let lister = thread::spawn(move || {
            runs.list_namespace(0, "20", ["s", "t"].map(|name| secret(name, "9")))
                .unwrap();
        });
        let threads = vec![model.reader(), model.committer(false), lister];
        let model = model.join(threads);
        assert!(
            model.runs.is_stopped("s"),
            "the watch by name has handed over"
        );
        model.manager.get_by("ns", "t", Deadline::NEVER).unwrap();
        model.manager.stop();
        model.end();
    });
}

/// A reader of an object that awaits the namespace's list starts a watch by name, and is woken by
/// whichever list comes first.
#[test]
fn a_reader_of_an_awaiting_object_is_woken_by_either_list() {
    check(|| {
        let model = Model::of_namespace();
        let manager = model.manager.clone();
        let reader = thread::spawn(move || {
            let cached = manager.get_by("ns", "t", Deadline::NEVER).unwrap();
            assert_eq!(cached.metadata.resource_version.as_deref(), Some("9"));
        });
        let runs = model.runs.clone();
        let lister = thread::spawn(move || {
            runs.list_namespace(0, "20", ["s", "t"].map(|name| secret(name, "9")))
                .unwrap();
        });
        let model = model.join(vec![reader, lister]);
        assert!(model.runs.at_work("t") <= 1);
        model.manager.stop();
        model.end();
    });
}

/// A new reference and the end of a refused namespace's watch, in any order, leave each object with
/// a watch by name.
#[test]
fn a_refusal_strands_no_object() {
    check(|| {
        let model = Model::of_namespace();
        let manager = model.manager.clone();
        let comes = thread::spawn(move || manager.register_pod(&pod("r", &["u"])));
        let (runs, manager) = (model.runs.clone(), model.manager.clone());
        let refuser = thread::spawn(move || {
            let denied = Error::from_status(Status::new(403, "forbidden"));
            let status = ReflectorStatus {
                failures: Failures::of(1, None, denied),
                ..ReflectorStatus::default()
            };
            runs.write_namespace(0, |sink| sink.report(&status));
            manager.store().keeper().starts.tend_namespaces();
        });
        let model = model.join(vec![comes, refuser]);
        for _ in 0..2 {
            model.manager.store().keeper().starts.tend_namespaces();
        }
        assert!(model.runs.is_namespace_stopped(0));
        for name in ["s", "t", "u"] {
            assert_eq!(model.runs.at_work(name), 1, "{name}");
        }
        model.manager.stop();
        model.end();
    });
}

/// OC-25: a shutdown that races with the start of a namespace's watch leaves none.
#[test]
fn oc_25_a_shutdown_leaves_no_watch_of_a_namespace() {
    check(|| {
        let scope = WatchScope::Namespace { above: 0 };
        let model = Model::with(ManagerOptions::default().watch_scope(scope));
        let manager = model.manager.clone();
        let comes = thread::spawn(move || manager.register_pod(&pod("p", &["s"])));
        model.manager.stop();
        let model = model.join(vec![comes]);
        let begun = model.runs.namespaces();
        assert!((0..begun).all(|index| model.runs.is_namespace_stopped(index)));
        model.end();
    });
}

/// The negative control of the synced wait: an entry that is filled without a notification
/// leaves its reader asleep.
#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_sees_an_entry_that_is_filled_in_silence() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let threads = vec![model.reader(), model.fill_in_silence()];
        model.join(threads).runs.end_all();
    });
}

/// The negative control of the wait for a version: the same, with a reader whom the server has sent
/// away.
#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_sees_a_version_that_is_reached_in_silence() {
    check(|| {
        let model = Model::new();
        model.manager.register_pod(&pod("p", &["s"]));
        let reader = model.reader_at_least("10");
        // Random schedules seldom run it that far first.
        model.getter.wait_for_asked(1);
        model.fill_in_silence().join().unwrap();
        reader.join().unwrap();
        model.runs.end_all();
    });
}

/// The negative control: the checker sees a wake-up that is lost because the data changes outside
/// the waiter's mutex.
#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_sees_a_lost_wake_up() {
    check(|| {
        let (ready, monitor) = (Arc::new(Monitor::new(false)), Arc::new(Monitor::new(())));
        let (flag, bell) = (Arc::clone(&ready), Arc::clone(&monitor));
        let teller = thread::spawn(move || {
            *flag.lock() = true;
            bell.notify_all();
        });
        while !*ready.lock() {
            let guard = monitor.lock();
            drop(monitor.wait(guard));
        }
        teller.join().unwrap();
    });
}

/// The poll alone wakes the reader, and the stop the poller, wherever they are by then.
#[test]
fn a_reader_is_woken_by_the_poll_and_the_poller_by_the_stop() {
    check(|| {
        let (model, poller) = Model::of_polls();
        let reader = model.reader();
        model.getter.answer(Ok(secret("s", "9")));
        reader.join().unwrap();
        let cached = model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        assert!(cached.is_polled());
        model.manager.stop();
        model.join(vec![poller]).assert_over();
    });
}

/// Two threads poll the object one after the other, and each tells it of its poll after that is
/// settled: whichever comes last, the object keeps the later poll's status.
#[test]
fn an_object_keeps_the_status_of_its_last_poll_whichever_thread_tells_it_last() {
    for recovers in [true, false] {
        check_by(PctScheduler::new(3, SCHEDULES), move || {
            let clock = FakeClock::new();
            let model = Model::polled_by(&clock);
            model.manager.register_pod(&pod("p", &["s"]));
            let (first, second) = (failed(503, "first"), failed(503, "second"));
            let answers = if recovers {
                [Err(first), Ok(secret("s", "9"))]
            } else {
                [Ok(secret("s", "9")), Err(second)]
            };
            for answer in answers {
                model.getter.answer(answer);
            }
            let pollers = (0..2).map(|_| model.poll_once()).collect();
            let poller = model.manager.store().keeper().starts.poller.as_ref();
            poller.unwrap().wait_for_change();
            clock.advance(ROUND);
            let model = model.join(pollers);
            assert_eq!(
                model.has_failed(),
                !recovers,
                "the first poll's status came last"
            );
            model.manager.stop();
            model.assert_over();
        });
    }
}

/// A poll after which the server counts as silent blames its objects while another thread polls one
/// of them: what that poll found stays.
#[test]
fn an_object_that_was_polled_meanwhile_is_not_blamed_for_another() {
    check_by(PctScheduler::new(3, SCHEDULES), || {
        let clock = FakeClock::new();
        let model = Model::polled_by(&clock);
        model.manager.register_pod(&pod("p", &["s", "t"]));
        let silent = Error::new(ErrorKind::Timeout, "no answer");
        model.getter.answer(Err(silent));
        model.getter.answer(Err(failed(404, "none")));
        let poller = model.manager.store().keeper().starts.poller.as_ref();
        poller.unwrap().expect_silence();
        let pollers = (0..2).map(|_| model.poll_once()).collect();
        model.getter.wait_for_asked(1);
        clock.advance(ROUND);
        let model = model.join(pollers);
        let reports = model.manager.inspect().into_values().flatten();
        let failing = reports.filter(|report| report.last_error.is_some()).count();
        assert!(failing <= 1, "the object that was answered is blamed");
        model.manager.stop();
        model.assert_over();
    });
}

/// A new reference tells the object that its poll waits, while other threads poll it already.
#[test]
fn a_poll_that_fails_at_once_is_not_hidden_by_the_beginning_of_the_polls() {
    check_by(PctScheduler::new(3, SCHEDULES), || {
        let model = Model::polled_by(&FakeClock::new());
        model.getter.answer(Err(failed(503, "not now")));
        let manager = model.manager.clone();
        let registers = thread::spawn(move || manager.register_pod(&pod("p", &["s"])));
        let model = {
            let threads = vec![model.poll_once(), registers];
            model.join(threads)
        };
        assert!(model.has_failed());
        model.manager.stop();
        model.assert_over();
    });
}

/// While the poll hangs, the last release and the shutdown wake the reader.
#[test]
fn a_reader_of_a_polled_object_is_woken_by_the_release_and_by_the_shutdown() {
    for shut_down in [false, true] {
        check(move || {
            let (model, poller) = Model::of_polls();
            let reader = model.reader();
            if shut_down {
                model.manager.stop();
            } else {
                model.manager.unregister_pod(&pod("p", &[]));
            }
            reader.join().unwrap();
            model.manager.stop();
            model.join(vec![poller]).assert_over();
        });
    }
}

/// A poll takes over from the watch while that lists: no reader is lost.
#[test]
fn a_poll_that_takes_over_while_the_watch_lists_loses_no_reader() {
    check(|| {
        let options = ManagerOptions::default().past_limit(PastLimit::Poll);
        let model = Model::with(options.watches_max(2));
        model.manager.register_pod(&pod("p", &["s"]));
        let poller = model.poller();
        model.getter.answer(Ok(secret("s", "9")));
        let manager = model.manager.clone();
        let demoter = thread::spawn(move || {
            let store = manager.store();
            let object = store.entry_to_read("ns", "s").unwrap();
            store.keeper().starts.poll_watched(&object);
        });
        let threads = vec![model.committer(false), demoter, model.reader()];
        let model = model.join(threads);
        let manager = model.manager.clone();
        manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        manager.stop();
        model.join(vec![poller]).assert_over();
    });
}

/// The namespace's list, its opening, a change seen by name and a release race: the object is
/// handed over once, and no read goes back.
#[test]
fn a_namespaces_watch_takes_over_once_it_is_open() {
    check(|| {
        let model = Model::of_namespace();
        let listed = |version| ["s", "t"].map(|name| secret(name, version));
        let runs = model.runs.clone();
        let by_name = thread::spawn(move || {
            let version = Some(secret("s", "9"));
            let listed = runs.try_write(0, |writer| commit(writer, "10", version, false));
            assert!(listed.is_none_or(|it| it.is_ok() || it.is_err_and(|e| e.is_stopped())));
            let state = Listed::Object(Arc::new(StoredObject::new(secret("s", "25"))));
            runs.try_write(0, |writer| drop(writer.apply(ObjectEvent::updated(state))));
        });
        let runs = model.runs.clone();
        let whole = thread::spawn(move || {
            runs.only_list_namespace(0, "20", listed("9")).unwrap();
            runs.write_namespace(0, |sink| sink.report(&opened()));
            runs.modified_in_namespace(0, secret("s", "25"));
            runs.modified_in_namespace(0, secret("s", "26"));
        });
        let manager = model.manager.clone();
        let housekeeper = thread::spawn(move || {
            for _ in 0..2 {
                manager.store().keeper().starts.tend_namespaces();
            }
        });
        let manager = model.manager.clone();
        let reader = thread::spawn(move || {
            let mut before = 0;
            for _ in 0..3 {
                let read = manager.get_cached("ns", "s").unwrap();
                let version = read.map_or(0, |read| crate::manager::tests::stage::version(&read));
                assert!(version >= before, "{version} after {before}");
                before = version;
            }
        });
        let model = model.join(vec![by_name, whole, housekeeper, reader]);
        assert!(model.runs.is_stopped("s"));
        let cached = model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        assert_eq!(cached.metadata.resource_version.as_deref(), Some("26"));
        model.manager.get_by("ns", "t", Deadline::NEVER).unwrap();
        model.manager.stop();
        model.end();
    });
}

/// The watch of the namespace is refused for as long as it takes: the watch by name goes on,
/// whichever comes first.
#[test]
fn a_namespaces_list_ends_no_watch_by_name() {
    check(|| {
        let model = Model::of_namespace();
        let runs = model.runs.clone();
        let lister = thread::spawn(move || {
            let listed = ["s", "t"].map(|name| secret(name, "9"));
            runs.only_list_namespace(0, "20", listed).unwrap();
        });
        let committer = model.committer(false);
        let model = model.join(vec![committer, lister]);
        assert!(!model.runs.is_stopped("s"));
        model.runs.modified(secret("s", "30"));
        let cached = model.manager.get_by("ns", "s", Deadline::NEVER).unwrap();
        assert_eq!(cached.metadata.resource_version.as_deref(), Some("30"));
        model.manager.stop();
        model.end();
    });
}
