//! The checks of immutable objects (B7): side by side, each with its own end, and none after a
//! shutdown.

#![expect(
    clippy::disallowed_methods,
    reason = "a thread that hangs is what the test is about: it is not to be joined"
)]

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, unbounded};
use k8s_openapi::api::core::v1::Secret;

use super::fake::{ROUND, immutable, pod};
use super::stage::Stage;
use crate::clock::{Clock, Deadline};
use crate::error::ErrorKind;
use crate::manager::entry::object_entry::ObjectEntry;
use crate::manager::kinds::KindTraits;
use crate::manager::watch::context::{CONFIRMATIONS_MAX, take_most_urgent};
use crate::manager::watch::entry::ABSENCE_PAUSE;
use crate::manager::watch::entry::{WatchEntry, WatchedObject};
use crate::manager::watch::keeper::CHECKS_MAX;
use crate::manager::watch::state_machine::WatchMachine;
use crate::object::ObjectKey;
use crate::sync::Arc;
use crate::testing::{RequestKind, SourceFault};
use crate::tests::until::until;

/// Bounds a failure: what a test waits for does not come.
const LONG: Duration = Duration::from_secs(60);

/// The names of the objects that are asked for, as they are.
type Asked = Receiver<String>;

/// These immutable objects were read, so that their watches are stopped; gets of `hang` have no
/// answer.
fn stage(names: &[String], hang: impl Fn(&str) -> bool + Send + 'static) -> (Stage, Asked) {
    let stage = Stage::watching().start();
    stage.clock.wait_for_timer(ROUND);
    for name in names {
        stage.source.set(immutable(name, ""));
    }
    stage.manager.register_pod(&of("p", names));
    for name in names {
        stage.get(name).unwrap();
    }
    stage.source.wait_for_watches(0);
    let (send, asked) = unbounded();
    stage.source.plan(move |request| {
        let selector = request.scope.field_selector();
        let name = selector.as_str().strip_prefix("metadata.name=")?;
        if request.kind == RequestKind::Get {
            drop(send.send(name.to_owned()));
        }
        (request.kind == RequestKind::Get && hang(name)).then_some(SourceFault::Hang)
    });
    (stage, asked)
}

/// Whether the read's answer is an old copy, if it has one in time.
fn is_stale(stage: &Stage, name: &str) -> Option<bool> {
    let manager = stage.manager.clone();
    let (send, answer) = bounded(1);
    let name = name.to_owned();
    std::thread::spawn(move || {
        let read = manager.get_by("ns", &name, Deadline::NEVER).unwrap();
        let _late = send.send(read.is_stale()).is_err();
    });
    answer.recv_timeout(LONG).ok()
}

fn next(asked: &Asked) -> String {
    asked.recv_timeout(LONG).unwrap()
}

fn of(pod_name: &str, names: &[String]) -> k8s_openapi::api::core::v1::Pod {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    pod(pod_name, &names)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("s{number}")).collect()
}

/// Seen: one GET that hung held up the checks of all other objects for ten seconds.
#[test]
fn b7_a_check_that_hangs_holds_up_no_other() {
    let all = names(8);
    let (stage, _asked) = stage(&all, |name| name == "s0");
    stage.manager.register_pod(&of("q", &all));
    for name in &all[1..] {
        assert_eq!(is_stale(&stage, name), Some(false), "{name}");
    }
    stage.clock.advance(Duration::from_secs(1));
    assert_eq!(is_stale(&stage, "s0"), Some(true), "readers wait a second");
    let kept = stage.manager.get_cached("ns", "s0").unwrap().unwrap();
    assert!(kept.last_error().is_none(), "the check goes on");
    stage.source.heal();
    until(|| is_stale(&stage, "s0") != Some(true));
}

/// Seen: only the manager's drop ended it.
#[test]
fn b7_a_shutdown_ends_a_check_that_is_under_way() {
    let all = names(1);
    let (stage, asked) = stage(&all, |_| true);
    stage.manager.register_pod(&of("q", &all));
    assert_eq!(next(&asked), "s0");
    let checks = Arc::clone(stage.manager.store().keeper());
    stage.manager.stop();
    let (send, ended) = bounded(1);
    std::thread::spawn(move || {
        until(|| !checks.is_at_work());
        let _late = send.send(()).is_err();
    });
    ended.recv_timeout(LONG).expect("the check ends");
    assert_eq!(is_stale(&stage, "s0"), Some(true), "OC-25: it is served on");
}

/// As many as may hang delay the others; those begin with the first that ends.
#[test]
fn b7_checks_are_bounded() {
    let all = names(CHECKS_MAX + 3);
    let (stage, asked) = stage(&all, |_| true);
    stage.manager.register_pod(&of("q", &all));
    for _ in 0..CHECKS_MAX {
        next(&asked);
    }
    let checks = stage.manager.store().keeper();
    assert_eq!(checks.waiting(), 3);
    assert!(asked.is_empty());
    stage.clock.advance(Duration::from_secs(10));
    for _ in 0..3 {
        next(&asked);
    }
    let key = ObjectKey::new("ns", "s0");
    let failed = || stage.manager.inspect_object(&key).unwrap().last_error;
    until(|| failed().is_some());
    assert_eq!(failed().unwrap().kind(), ErrorKind::Timeout, "its own end");
}

/// Seen: as many confirmations of absences as there are threads hung for ten seconds, and a reader
/// waited for its check in vain. More begin as those end.
#[test]
fn confirmations_that_hang_leave_threads_for_the_checks_of_readers() {
    let all = names(1);
    let (stage, asked) = stage(&all, |name| name != "s0");
    let absent: Vec<String> = (0..CHECKS_MAX).map(|number| format!("a{number}")).collect();
    stage.manager.register_pod(&of("r", &absent));
    for name in &absent {
        assert!(stage.get(name).unwrap_err().is_not_found());
    }
    stage.clock.advance(ABSENCE_PAUSE);
    for _ in 0..CONFIRMATIONS_MAX {
        next(&asked);
    }
    stage.manager.register_pod(&of("q", &all));
    assert_eq!(is_stale(&stage, "s0"), Some(false));
    assert_eq!(next(&asked), "s0");
    assert!(asked.is_empty(), "the share");
    let hung = Duration::from_secs(10);
    stage.clock.advance(hung);
    for _ in 0..CONFIRMATIONS_MAX {
        next(&asked);
    }
    stage.source.heal();
}

/// An object with a waiting reader goes first.
#[test]
fn b7_a_check_that_somebody_waits_for_goes_first() {
    let clock = Clock::system();
    let item = |name| -> WatchedObject<Secret> {
        let entry = WatchEntry::new(KindTraits::default(), WatchMachine::starting(), &clock);
        ObjectEntry::new(&ObjectKey::new("ns", name), entry)
    };
    let mut waiting: Vec<_> = ["a", "b", "c"].map(item).into();
    let _waits = waiting[1].waiters.wait();
    let order = std::iter::from_fn(|| take_most_urgent(&mut waiting));
    let order: Vec<_> = order.map(|item| item.key.name().to_owned()).collect();
    assert_eq!(order, ["b", "a", "c"]);
}
