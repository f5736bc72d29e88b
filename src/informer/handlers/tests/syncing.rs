//! The first sync of a handler (SI-16, WT-1, WT-2, WT-4, WT-5).

use super::*;
use crate::informer::handlers::listener::type_label;
use crate::informer::handlers::state::HandlerState;
use crate::reflector::{ReflectorStatus, Sink as _};
use crate::{Error, ErrorKind};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn si_16_synced_is_when_the_informer_synced_and_every_initial_add_returned() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1", "b1"]);
    steps.pass();
    steps.begun.recv().unwrap();
    stage.source.processor.complete_initial();
    assert!(
        !registration.has_synced(),
        "the second add has not returned"
    );
    steps.how.send(Step::Return).unwrap();
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert!(registration.has_synced());
}

#[test]
fn si_16_the_last_add_returned_before_the_informer_synced() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    stage.tell(&["+b1"]);
    steps.pass();
    steps.begun.recv().unwrap();
    assert!(!registration.has_synced());
    stage.source.processor.complete_initial();
    assert!(registration.has_synced(), "b is not of the initial list");
    drop(steps);
}

#[test]
fn si_16_an_empty_list_is_synced_at_once() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    assert!(!registration.has_synced());
    stage.source.processor.complete_initial();
    registration.wait_until_synced(stage.now()).unwrap();
}

/// In client-go it never becomes synced (kubernetes/kubernetes#129024).
#[test]
fn si_16_an_initial_add_that_panics_counts_as_returned() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    stage.source.processor.complete_initial();
    steps.begun.recv().unwrap();
    steps.panic();
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(registration.readings().panics, 1);
}

#[test]
fn wt_2_a_wait_that_ends_at_its_deadline_says_what_is_left() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let options = HandlerOptions::default().name("audit");
    let registration = stage.add(handler, options, &["a1", "b1", "c1"]);
    steps.begun.recv().unwrap();
    let began = ReflectorStatus {
        failures: crate::failures::Failures::none_since(stage.clock.now()),
        ..ReflectorStatus::default()
    };
    stage.source.writer.lock().report(&began);
    stage.fake.advance(4 * SECOND);
    let error = registration.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        error.to_string(),
        "failed to sync configmap + event handler audit: timed out waiting for the condition\n\
         3 additions of the initial list are left, and the informer has not synced; \
         on_add has been running for 4.0s\n\
         no answer from the server yet, 4.0s after the first attempt began"
    );
    stage.source.processor.complete_initial();
    let error = registration.wait_until_synced(stage.now()).unwrap_err();
    assert!(
        !error.to_string().contains("the informer has not")
            && !error.to_string().contains("the server"),
        "{error}"
    );
    drop(steps);
}

#[test]
fn wt_2_a_waiter_is_woken_by_its_deadline() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    let deadline = stage.clock.after(SECOND);
    let (_worker, waited) = apart(move || registration.wait_until_synced(deadline));
    stage.fake.wait_for_timer(SECOND);
    stage.fake.advance(SECOND);
    let error = waited.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
}

#[test]
fn wt_2_success_beats_a_deadline_that_has_passed_and_an_end() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    stage.source.processor.complete_initial();
    let passed = stage.now();
    stage.fake.advance(SECOND);
    registration.wait_until_synced(passed).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    registration.wait_until_synced(passed).unwrap();
}

#[test]
fn wt_2_the_end_of_the_handler_ends_the_wait_with_that_cause() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default().name("audit"), &[]);
    let waiting = registration.clone();
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    // The handler's own thread, and the waiter.
    stage.fake.wait_for_parked(2);
    registration.remove(Deadline::NEVER).unwrap();
    let error = waited.recv().unwrap().unwrap_err();
    assert!(error.is_stopped());
    assert_eq!(
        error.to_string(),
        "failed to sync configmap + event handler audit: it was removed before it was synced"
    );
}

/// The informer's own failures, under the handler's wait (B2, R28).
#[test]
fn b2_r28_a_wait_for_a_handler_says_how_its_informer_fails() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default().name("audit"), &[]);
    let status = ReflectorStatus {
        failures: crate::failures::Failures::of(
            3,
            Some(stage.clock.now()),
            Error::new(ErrorKind::Unreachable, "connection refused"),
        ),
        ..ReflectorStatus::default()
    };
    stage.source.writer.lock().report(&status);
    stage.fake.advance(2 * SECOND);
    let error = registration.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    assert_eq!(
        error.to_string(),
        "failed to sync configmap + event handler audit: timed out waiting for the condition\n\
         0 additions of the initial list are left, and the informer has not synced\n\
         3 attempts in 2.0s, the last one failed: connection refused"
    );
    assert_eq!(error.attempts(), 3);
    assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Unreachable);
}

/// R4: the refusal ends present and later waits, of present and later handlers, until the first
/// list.
#[test]
fn r4_a_refusal_ends_the_waits_for_handlers_until_it_is_none() {
    let stage = Stage::new();
    let add = || stage.add(collector().0, HandlerOptions::default(), &[]);
    let early = add();
    let waiting = early.clone();
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    stage.fake.wait_for_parked(2);
    let refusal = Error::new(ErrorKind::Forbidden, "configmaps is forbidden");
    stage.source.processor.deny(Some(&refusal));
    let error = waited.recv().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "configmaps is forbidden");
    let late = add();
    for registration in [&early, &late] {
        let error = registration.wait_until_synced(Deadline::NEVER).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
    }
    stage.source.processor.deny(None);
    let error = early.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    stage.source.processor.deny(Some(&refusal));
    stage.source.processor.complete_initial();
    early.wait_until_synced(Deadline::NEVER).unwrap();
    stage.source.processor.deny(Some(&refusal));
    let (handler, steps) = Stepped::new();
    let after = stage.add(handler, HandlerOptions::default(), &["a1"]);
    steps.begun.recv().unwrap();
    let error = after.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotSynced,
        "the list is here: a later refusal keeps nobody from it"
    );
    drop(steps);
}

/// B3: a wait for a handler waits for the informer's first list.
#[test]
fn b3_a_wait_for_a_handler_is_a_demand_until_it_ends() {
    let stage = Stage::new();
    let registration = stage.add(collector().0, HandlerOptions::default(), &[]);
    let waiters = stage.source.store.waiters();
    let waiting = registration.clone();
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    stage.fake.wait_for_parked(2);
    assert!(waiters.any());
    stage.source.processor.complete_initial();
    waited.recv().unwrap().unwrap();
    assert!(!waiters.any());
    registration.wait_until_synced(Deadline::NEVER).unwrap();
}

/// `TestNameForHandler`: by type, through pointers, never empty; a name that was given wins.
#[test]
fn wt_4_a_handler_is_called_by_its_name_or_by_its_type_and_its_thread() {
    let own = "kubecache::informer::handlers::handler::Handlers<k8s_openapi::ConfigMap>";
    let rows = [
        ("my_agent::audit::Audit", "my_agent::audit::Audit"),
        ("my_agent::Audit<my_agent::File>", "my_agent::Audit"),
        ("alloc::boxed::Box<my_agent::Audit>", "my_agent::Audit"),
        (
            "alloc::boxed::Box<alloc::boxed::Box<my_agent::Audit<u8>>>",
            "my_agent::Audit",
        ),
        (
            "alloc::boxed::Box<dyn my_agent::Observer + core::marker::Send>",
            "my_agent::Observer",
        ),
        (
            "alloc::boxed::Box<dyn kubecache::informer::EventHandler<u8>>",
            "EventHandler",
        ),
        (own, "Handlers"),
        ("u8", "u8"),
    ];
    for (full, label) in rows {
        assert_eq!(type_label(full), label);
    }
    let stage = Stage::new();
    let named = stage.add(collector().0, HandlerOptions::default().name("audit"), &[]);
    assert_eq!(named.sync_name(), "configmap + event handler audit");
    let (handler, _steps) = Stepped::new();
    let unnamed = stage.add(handler, HandlerOptions::default(), &[]);
    let thread = unnamed.name();
    let expected = format!("configmap + event handler Stepped ({thread})");
    assert_eq!(unnamed.sync_name(), expected);
}

/// WT-5 with its sticky half: later events do not take the sync back.
#[test]
fn wt_5_synced_stays_synced() {
    let now = FakeClock::new().now();
    let mut state = HandlerState::<ConfigMap>::new(None);
    assert!(state.complete_initial().wake);
    assert!(state.synced);
    let _effects = state.push(told("*a1"), false, now);
    assert!(state.synced);
    assert_eq!(state.initial_left(), 1);
}

/// The tracker of WT-5 as a table: queued objects count up, returned calls count down.
#[test]
fn wt_5_the_count_of_the_initial_list_includes_what_is_in_hand() {
    let now = FakeClock::new().now();
    let mut state = HandlerState::<ConfigMap>::new(None);
    let _effects = state.push_initial(&[stored("a1"), stored("b1")], now);
    let _effects = state.complete_initial();
    for left in [2, 1] {
        assert_eq!((state.initial_left(), state.synced), (left, false));
        let _called = state.next(now);
        assert_eq!((state.initial_left(), state.synced), (left, false));
        let _effects = state.finish(None, now);
    }
    assert_eq!((state.initial_left(), state.synced), (0, true));
}

#[test]
fn a_handler_that_waits_for_its_own_sync_is_told_that_it_cannot_come() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let options = HandlerOptions::default().name("audit");
    let registration = stage.add(handler, options, &["a1", "b1"]);
    stage.source.processor.complete_initial();
    let (own, (send, waited)) = (registration.clone(), unbounded());
    let wait = move || send.send(own.wait_until_synced(Deadline::NEVER)).unwrap();
    steps.how.send(Step::Do(Box::new(wait))).unwrap();
    let error = waited.recv().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to sync configmap + event handler audit: it waits for itself, with 2 additions of \
         the initial list left"
    );
    drop(steps);
    registration.wait_until_synced(Deadline::NEVER).unwrap();
}
