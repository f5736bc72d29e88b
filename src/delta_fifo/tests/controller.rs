//! The controller: a reflector, a queue and a process function, and how they end (CT-1 to CT-3).

use crossbeam_channel::Sender;

use super::*;
use crate::delta_fifo::Controller;
use crate::reflector::ReflectorOptions;
use crate::testing::{FakeSource, objects};
use crate::tests::until::until;

fn soon() -> Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

fn source(names: &[&str]) -> FakeSource<ConfigMap> {
    let source = FakeSource::new();
    for name in names {
        source.set(objects::config_map("shop", name, "", &[]));
    }
    source
}

fn controller(
    source: &FakeSource<ConfigMap>,
    process: impl FnMut(Deltas<ConfigMap>, bool) + Send + 'static,
) -> Controller<ConfigMap> {
    let queue = DeltaFifo::new(Options::default().in_order());
    let options = ReflectorOptions::default();
    Controller::spawn(
        "settings",
        Arc::new(source.clone()),
        queue,
        options,
        process,
    )
    .unwrap()
}

fn tell(tells: Sender<(String, bool)>) -> impl FnMut(Deltas<ConfigMap>, bool) + Send + 'static {
    move |deltas, is_initial| {
        let key = deltas.key().unwrap().to_string();
        drop(tells.send((key, is_initial)));
    }
}

/// A controller whose process function is in its first call. It returns from this call, and from
/// every later one, once the gate that comes last is dropped.
fn blocked(
    source: &FakeSource<ConfigMap>,
) -> (Controller<ConfigMap>, Receiver<(String, bool)>, Sender<()>) {
    let (tells, told) = bounded(9);
    let (go, gate) = bounded::<()>(0);
    let mut process = tell(tells);
    let controller = controller(source, move |deltas, is_initial| {
        process(deltas, is_initial);
        let _open = gate.recv();
    });
    told.recv().unwrap();
    (controller, told, go)
}

/// CT-1, CT-3: lists and watch events reach the process function; the queue and the position are
/// the reflector's.
#[test]
fn ct_1_ct_3_what_comes_is_processed() {
    let source = source(&["a"]);
    let (tells, told) = bounded(9);
    let controller = controller(&source, tell(tells));
    controller.queue().wait_until_synced(soon()).unwrap();
    source.set(objects::config_map("shop", "b", "", &[]));
    assert_eq!(told.recv(), Ok(("shop/a".to_owned(), true)));
    assert_eq!(told.recv(), Ok(("shop/b".to_owned(), false)));
    assert!(!controller.queue().status().resource_version.is_empty());
    controller.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(told.recv().ok(), None, "the process function is dropped");
}

/// CT-2: a stop ends the loop after the running call, and drops queued entries.
#[test]
fn ct_2_a_stop_drops_what_waits() {
    let source = source(&["a", "b", "c"]);
    let (controller, told, go) = blocked(&source);
    controller.stop();
    controller.stop();
    assert!(!controller.is_finished());
    drop(go);
    let queue = controller.queue().clone();
    controller.shutdown(Deadline::NEVER).unwrap();
    assert!(told.recv().is_err(), "nothing more is processed");
    assert!(queue.is_empty());
    assert!(queue.wait_until_synced(soon()).unwrap_err().is_stopped());
}

/// A list waits for the process function, which does not come back before its stop: the stop ends
/// both threads.
#[test]
fn ct_1_a_stop_ends_a_list_that_waits() {
    let source = source(&["a"]);
    let (controller, _told, go) = blocked(&source);
    source.wait_for_watches(1);
    let lists = source.requests().len();
    source.compact();
    source.expire_watches();
    source.wait_for_requests(lists.checked_add(1).unwrap());
    controller.stop();
    drop(go);
    controller.shutdown(Deadline::NEVER).unwrap();
}

/// A process function that does not return is named at the deadline, and may be waited for again.
#[test]
fn ct_1_a_shutdown_names_the_thread_that_is_late() {
    let source = source(&["a"]);
    let (controller, _told, go) = blocked(&source);
    let passed = Clock::system().after(Duration::ZERO);
    let error = controller.shutdown(passed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("thread dq-"), "{error}");
    drop(go);
    controller.shutdown(soon()).unwrap();
}

/// CT-1: a process function that panics ends the controller whole, with the cause in its end and in
/// every wait.
#[test]
fn ct_1_a_panic_of_the_process_function_ends_the_controller() {
    let source = source(&["a", "b"]);
    let controller = controller(&source, |_, _| panic!("made up"));
    let error = controller.queue().wait_until_synced(soon()).unwrap_err();
    assert!(error.is_stopped());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    let text = "the process function of a ConfigMap queue panicked: made up";
    assert_eq!(cause, text);
    let error = controller.shutdown(Deadline::NEVER).unwrap_err();
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::Panicked, text)
    );
    assert_eq!(source.open_watches(), 0);
}

/// CT-1, CT-3: it may panic at the last object of the first list.
#[test]
fn ct_1_ct_3_a_first_list_that_the_process_function_panicked_at_is_not_synced() {
    let source = source(&["a", "b"]);
    let mut is_last = false;
    let controller = controller(&source, move |_, _| {
        assert!(!is_last, "made up");
        is_last = true;
    });
    let queue = controller.queue();
    let error = queue.wait_until_synced(soon()).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.ends_with("panicked: made up"), "{cause}");
    until(|| controller.is_finished());
    assert!(!queue.has_synced());
}

/// A queue that is closed ends its controller once it is drained.
#[test]
fn df_17_a_closed_queue_ends_its_controller() {
    let source = source(&["a"]);
    let (tells, told) = bounded(9);
    let controller = controller(&source, tell(tells));
    controller.queue().wait_until_synced(soon()).unwrap();
    controller.queue().close();
    until(|| controller.is_finished());
    assert_eq!(told.iter().count(), 1);
    controller.shutdown(Deadline::NEVER).unwrap();
}
