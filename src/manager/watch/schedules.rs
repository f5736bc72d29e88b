//! Model checks: get, commit, the last reference and the shutdown in every order, without real threads.

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner, thread};

use super::store::WatchStore;
use super::works::Works;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::ErrorKind;
use crate::manager::object_manager::SecretManager;
use crate::manager::options::ManagerOptions;
use crate::manager::stores::Stores;
use crate::manager::tests::fake::{FakeGetter, FakeRuns, commit, immutable, pod, secret};
use crate::sync::{Arc, Monitor};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were written.
const SCHEDULES: usize = 2_000;

/// Bytes of stack per modelled thread: decoding a pod in a debug build takes more than the checker's default.
const STACK_BYTES: usize = 512 * 1024;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(SCHEDULES), config).run(model);
}

struct Model {
    manager: Arc<SecretManager>,
    runs: FakeRuns,
}

impl Model {
    fn new() -> Self {
        let runs = FakeRuns::default();
        let options = ManagerOptions::default().clock(Clock::from(FakeClock::new()));
        let getter = Arc::new(FakeGetter::default());
        let works = Works::new(Box::new(runs.clone()), getter, options);
        let manager = SecretManager::over(Stores::Watch(WatchStore::unattended(works)));
        Self {
            manager: Arc::new(manager),
            runs,
        }
    }

    /// A reader that waits for as long as it takes; whatever the answer, it must come.
    fn reader(&self) -> thread::JoinHandle<()> {
        let manager = Arc::clone(&self.manager);
        thread::spawn(move || match manager.get_by("ns", "s", Deadline::NEVER) {
            Ok(cached) => assert_eq!(cached.metadata.resource_version.as_deref(), Some("9")),
            Err(error) => {
                let expected = [ErrorKind::NotRegistered, ErrorKind::NotSynced];
                assert!(expected.contains(&error.kind()), "{error}");
            }
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

    /// Every run was told to stop, nothing more is answered, and nothing is kept alive by what ended.
    fn assert_over(self) {
        assert_eq!(self.runs.at_work("s"), 0);
        assert!(self.manager.get_by("ns", "s", Deadline::NEVER).is_err());
        self.runs.end_all();
    }
}

/// OC-8, OC-27, B1, B6: a reader is woken by the list or by the release, whichever order they come in.
#[test]
fn a_reader_is_woken_by_the_list_or_by_the_release() {
    check(|| {
        let model = Model::new();
        let pod = pod("p", &["s"]);
        model.manager.register_pod(&pod);
        let manager = Arc::clone(&model.manager);
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
        let manager = Arc::clone(&model.manager);
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
        let manager = Arc::clone(&model.manager);
        let stopper = thread::spawn(move || manager.shut_down());
        let manager = Arc::clone(&model.manager);
        let late = thread::spawn(move || {
            manager.register_pod(&crate::manager::tests::fake::pod("q", &["s"]))
        });
        let threads = vec![model.reader(), model.committer(false), stopper, late];
        model.join(threads).assert_over();
    });
}

/// OC-15, OC-16: a run that stops itself because of an immutable object is stopped once and for all, its answer kept.
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

/// CM-8, B6: registrations and releases of two pods in any order leave a run exactly if somebody still references.
#[test]
fn registrations_in_any_order_leave_what_is_referenced() {
    check(|| {
        let model = Model::new();
        let (first, second) = (pod("p", &["s"]), pod("q", &["s"]));
        let manager = Arc::clone(&model.manager);
        let comes_and_goes = thread::spawn(move || {
            manager.register_pod(&first);
            manager.unregister_pod(&first);
        });
        let manager = Arc::clone(&model.manager);
        let comes = thread::spawn(move || manager.register_pod(&second));
        let model = model.join(vec![comes_and_goes, comes]);
        assert_eq!(model.runs.at_work("s"), 1);
        model.manager.unregister_pod(&pod("q", &[]));
        model.assert_over();
    });
}

/// The negative control: the checker sees a wake-up that is lost because the data changes outside the waiter's mutex.
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
