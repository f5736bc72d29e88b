//! Clones of a manager: one manager, which ends with the last of them, whichever thread drops it.

use std::sync::Weak;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use k8s_openapi::api::core::v1::Pod;

use super::fake::{ROUND, immutable, pod, secret};
use super::stage::{Stage, unavailable};
use crate::clock::{Clock, Deadline};
use crate::error::ErrorKind;
use crate::hooks::Hook;
use crate::informer::{Handlers, InformerOptions, SharedInformer};
use crate::manager::{
    ChangeDetection, ManagerMetric, ManagerOptions, PastLimit, SecretManager, WatchScope,
};
use crate::sync::Arc;
use crate::testing::bad::Faulty;
use crate::testing::{FakeSource, SourceFault};
use crate::tests::until::until;

/// Bounds a failure: what a test waits for does not come.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn clones_are_one_manager_until_the_last_one_drops() {
    for mode in ChangeDetection::ALL {
        let stage = Stage::of(mode).start();
        stage.source.set(secret("s", ""));
        let other = stage.manager.clone();
        other.register_pod(&pod("p", &["s"]));
        stage.get("s").unwrap();
        drop(other);
        stage.get_fresh("s").unwrap();
        let watches = usize::from(mode == ChangeDetection::Watch);
        stage.source.wait_for_watches(watches);
        drop(stage.manager);
        assert_eq!(stage.source.open_watches(), 0, "{mode}: joined");
    }
}

#[test]
fn a_stop_or_a_shutdown_of_one_clone_ends_all() {
    for mode in ChangeDetection::ALL {
        for shuts_down in [false, true] {
            let stage = Stage::of(mode).start();
            let (other, late) = (stage.manager.clone(), Clock::system().after(LONG));
            stage.manager.register_pod(&pod("p", &["s"]));
            if shuts_down {
                other.shutdown(late).unwrap();
                assert_eq!(stage.source.open_watches(), 0);
            } else {
                other.stop();
            }
            let error = stage.get_fresh("s").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped, "{mode}");
            // Again, by each of them.
            stage.manager.shutdown(late).unwrap();
            other.shutdown(late).unwrap();
        }
    }
}

/// The manager's own code that a test may run, and the thread that runs it.
struct Port {
    method: &'static str,
    thread: &'static str,
    options: fn(ManagerOptions) -> ManagerOptions,
    /// Makes the thread call the method.
    reach: fn(&Stage),
}

fn read_immutable(stage: &Stage) {
    stage.source.set(immutable("s", ""));
    stage.manager.register_pod(&pod("p", &["s"]));
    stage.get("s").unwrap();
    stage.source.wait_for_watches(0);
}

fn register(stage: &Stage) {
    stage.source.set(secret("s", ""));
    stage.manager.register_pod(&pod("p", &["s"]));
}

const PORTS: &[Port] = &[
    Port {
        method: "lister_watcher",
        thread: "hk-",
        options: |options| options,
        reach: |stage| {
            // The first try, on the caller's thread, fails.
            stage.faulty.panic_in("lister_watcher", 1);
            register(stage);
            stage.clock.advance(ROUND);
        },
    },
    Port {
        method: "lister_watcher",
        thread: "ck-",
        options: |options| options,
        reach: |stage| {
            read_immutable(stage);
            // The check finds another object, and starts its watch.
            stage.source.delete("ns", "s");
            stage.source.set(immutable("s", ""));
            stage.manager.register_pod(&pod("q", &["s"]));
        },
    },
    Port {
        method: "get",
        thread: "ck-",
        options: |options| options,
        reach: |stage| {
            read_immutable(stage);
            stage.manager.register_pod(&pod("q", &["s"]));
        },
    },
    Port {
        method: "get",
        thread: "po-",
        options: |options| options.past_limit(PastLimit::Poll).watches_max(1),
        reach: register,
    },
    Port {
        method: "list",
        thread: "rf-",
        options: |options| options,
        reach: register,
    },
    Port {
        method: "next",
        thread: "rf-",
        options: |options| options,
        reach: register,
    },
    Port {
        method: "drop of the stream",
        thread: "rf-",
        options: |options| options,
        reach: |stage| {
            register(stage);
            stage.source.wait_for_watches(1);
            stage.source.expire_watches();
        },
    },
    Port {
        method: "list",
        thread: "rf-",
        options: |options| options.watch_scope(WatchScope::Namespace { above: 0 }),
        reach: register,
    },
    Port {
        method: "reflector_metric",
        thread: "rf-",
        options: |options| options,
        reach: register,
    },
    Port {
        method: "on_error",
        thread: "rf-",
        options: |options| options,
        reach: |stage| {
            stage
                .source
                .plan(|_| Some(SourceFault::Fail(unavailable())));
            register(stage);
        },
    },
];

impl Port {
    /// A manager whose hooks and source run what a test puts into them.
    fn stage(&self) -> Stage {
        let faulty = Faulty::default();
        let (metrics, errors) = (faulty.clone(), faulty.clone());
        let stage = Stage::watching()
            .options(self.options)
            .options(|options| {
                options
                    .metrics(Hook::new(move |metric| {
                        if let ManagerMetric::Reflector(_) = metric {
                            metrics.call("reflector_metric");
                        }
                    }))
                    .on_error(move |_| errors.call("on_error"))
            })
            .start_with(faulty);
        stage.clock.wait_for_timer(ROUND);
        stage
    }
}

/// The last clone drops on a thread of the manager's own: the thread ends detached, all others are
/// joined, and nothing is left.
#[test]
fn the_last_clone_may_drop_on_each_thread_of_the_manager() {
    for port in PORTS {
        let what = format!("{} on {}", port.method, port.thread);
        let stage = port.stage();
        let (give, last) = bounded::<SecretManager>(1);
        let (dropped, has_dropped) = bounded(1);
        stage.faulty.act_in(port.method, port.thread, move || {
            drop(last.recv().unwrap());
            dropped.send(()).unwrap();
        });
        (port.reach)(&stage);
        let registry = Arc::downgrade(&stage.manager.store().keeper().context.registry);
        give.send(stage.manager).unwrap();
        has_dropped
            .recv_timeout(LONG)
            .unwrap_or_else(|_| panic!("{what}: the drop hangs"));
        wait_until_gone(&registry, &what);
        stage.source.wait_for_watches(0);
    }
}

/// As above, with a shutdown without a deadline before the drop.
#[test]
fn a_shutdown_on_each_thread_of_the_manager_waits_for_no_circle() {
    for port in PORTS {
        let what = format!("{} on {}", port.method, port.thread);
        let stage = port.stage();
        let (manager, (ended, has_ended)) = (stage.manager.clone(), bounded(1));
        stage.faulty.act_in(port.method, port.thread, move || {
            ended.send(manager.shutdown(Deadline::NEVER)).unwrap();
        });
        (port.reach)(&stage);
        let shut_down = has_ended.recv_timeout(LONG);
        shut_down
            .unwrap_or_else(|_| panic!("{what}: the shutdown hangs"))
            .unwrap();
        drop(stage.manager);
    }
}

/// Every thread of a manager holds its registry.
#[track_caller]
fn wait_until_gone<T>(left: &Weak<T>, what: &str) {
    let (clock, late) = (Clock::system(), Clock::system().after(LONG));
    until(|| {
        let is_gone = left.strong_count() == 0;
        assert!(
            is_gone || !clock.has_passed(late),
            "{what}: a thread is left"
        );
        is_gone
    });
}

/// The handlers hold the last clone, and its drop joins the manager's threads on theirs.
#[test]
fn the_last_clone_may_drop_on_the_thread_of_a_handler() {
    let stage = Stage::watching().start();
    stage.source.set(secret("s", ""));
    let pods = FakeSource::<Pod>::new();
    pods.set(pod("p", &["s"]));
    let informer = SharedInformer::new(Arc::new(pods.clone()), InformerOptions::default());
    let in_handler = stage.manager.clone();
    let handler =
        Handlers::<Pod>::new().on_add(move |pod, _is_in_initial_list| in_handler.register_pod(pod));
    let registration = informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    let late = Clock::system().after(LONG);
    registration.wait_until_synced(late).unwrap();
    stage.get_by("s", late).unwrap();
    let registry = Arc::downgrade(&stage.manager.store().keeper().context.registry);
    drop(stage.manager);
    assert!(registry.strong_count() > 0, "the handler has a clone");
    registration.remove(late).unwrap();
    assert_eq!(registry.strong_count(), 0);
    assert_eq!(stage.source.open_watches(), 0);
    informer.shutdown(late).unwrap();
}

/// A handler drops the last clone in its own call, while the informer's drop waits for it.
#[test]
fn the_last_clone_drops_in_the_call_of_a_handler_while_its_informer_ends() {
    let stage = Stage::watching().start();
    let pods = FakeSource::<Pod>::new();
    pods.set(pod("p", &["s"]));
    let informer = SharedInformer::new(Arc::new(pods), InformerOptions::default());
    let (give, last): (_, Receiver<SecretManager>) = bounded(1);
    let (enter, entered) = bounded(1);
    let handler = Handlers::<Pod>::new().on_add(move |pod, _is_in_initial_list| {
        enter.send(()).unwrap();
        let manager = last.recv().unwrap();
        manager.register_pod(pod);
        drop(manager);
    });
    informer.add_handler(handler).unwrap();
    informer.start().unwrap();
    entered.recv_timeout(LONG).unwrap();
    informer.stop();
    let registry = Arc::downgrade(&stage.manager.store().keeper().context.registry);
    give.send(stage.manager).unwrap();
    informer.shutdown(LONG).unwrap();
    assert_eq!(registry.strong_count(), 0);
    assert_eq!(stage.source.open_watches(), 0);
}
