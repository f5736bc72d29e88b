//! One handler's thread: order, panics, readings, warnings (SI-17 to SI-20).

use super::*;
use crate::informer::handlers::state::HandlerState;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn si_17_a_handler_is_called_in_order_one_at_a_time() {
    let stage = Stage::new();
    let (handler, receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    stage.tell(&["a1>2", "+b1", "?a2", "+a3"]);
    assert_eq!(next(&receiver, 5), ["*a1", "a1>2", "+b1", "?a2", "+a3"]);
    registration.remove(Deadline::NEVER).unwrap();
    assert_eq!(registration.readings().delivered, 5);
}

#[test]
fn si_17_a_handler_that_stands_still_holds_up_nobody() {
    let stage = Stage::new();
    let (slow, steps) = Stepped::new();
    let slow = stage.add(slow, HandlerOptions::default(), &[]);
    let (fast, receiver) = collector();
    stage.add(fast, HandlerOptions::default(), &[]);
    stage.tell(&["+a1", "+b1", "+c1"]);
    assert_eq!(next(&receiver, 3), ["+a1", "+b1", "+c1"]);
    assert_eq!(steps.begun.recv().unwrap(), "+a1");
    assert_eq!(
        slow.readings().queued,
        2,
        "the one in its hands does not wait"
    );
    drop(steps);
}

/// `TestEventPanics`, without the pause of a second (SI-18).
#[test]
fn si_18_a_panic_loses_one_notification_and_is_reported() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    let (other, receiver) = collector();
    stage.add(other, HandlerOptions::default(), &[]);
    stage.tell(&["+a1", "a1>2", "-a2"]);
    assert_eq!(steps.begun.recv().unwrap(), "+a1");
    steps.panic();
    assert_eq!(steps.pass(), "a1>2");
    assert_eq!(steps.begun.recv().unwrap(), "-a2");
    steps.panic();
    assert_eq!(next(&receiver, 3), ["+a1", "a1>2", "-a2"]);
    registration.remove(Deadline::NEVER).unwrap();
    assert_eq!(
        (
            registration.readings().panics,
            registration.readings().delivered
        ),
        (2, 3)
    );
    assert_eq!(
        registration.readings().last_panic.as_deref(),
        Some("the handler does not like it")
    );
    assert!(!format!("{registration:?}").contains("does not like"));
}

#[test]
fn si_18_a_panic_outside_of_a_notification_does_not_end_the_thread_either() {
    struct Rude(Sender<String>);
    impl EventHandler<ConfigMap> for Rude {
        fn on_start(&mut self, _stop: &crate::worker::StopToken) {
            panic!("no start");
        }
        fn on_add(&mut self, object: &Arc<StoredObject<ConfigMap>>, _is_in_initial_list: bool) {
            self.0.send(word(object)).unwrap();
        }
        fn is_finished(&self) -> bool {
            panic!("no answer");
        }
    }
    impl Drop for Rude {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "no end");
        }
    }
    let stage = Stage::new();
    let (send, calls) = unbounded();
    let registration = stage.add(Rude(send), HandlerOptions::default(), &["a1"]);
    stage.tell(&["+b1"]);
    assert_eq!(calls.iter().take(2).collect::<Vec<_>>(), ["a1", "b1"]);
    registration.remove(Deadline::NEVER).unwrap();
    assert!(registration.readings().has_ended);
}

#[test]
fn si_17_beyond_its_bound_a_queue_coalesces_and_counts() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let options = HandlerOptions::default().queue_max(Some(2));
    let registration = stage.add(handler, options, &["a1"]);
    steps.begun.recv().unwrap();
    stage.tell(&["a1>2", "+b1", "a2>3", "a3>4", "b1>2", "-a4"]);
    assert_eq!(
        (
            registration.readings().queued,
            registration.readings().coalesced
        ),
        (2, 4)
    );
    steps.how.send(Step::Return).unwrap();
    assert_eq!([steps.pass(), steps.pass()], ["-a4", "+b2"]);
}

#[test]
fn the_lag_is_the_age_of_what_the_handler_is_not_done_with() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    assert_eq!(registration.readings().lag, None);
    stage.tell(&["+a1"]);
    steps.begun.recv().unwrap();
    stage.fake.advance(2 * SECOND);
    stage.tell(&["+b1"]);
    assert_eq!(
        registration.readings().lag,
        Some(2 * SECOND),
        "the one in its hands"
    );
    stage.fake.advance(SECOND);
    steps.how.send(Step::Return).unwrap();
    steps.begun.recv().unwrap();
    assert_eq!(registration.readings().lag, Some(SECOND), "the next one");
    drop(steps);
    registration.remove(Deadline::NEVER).unwrap();
    assert_eq!(registration.readings().lag, None);
}

/// SI-19: more than 1,024 wait, and a call has taken longer than 100 ms.
#[test]
fn si_19_a_slow_handler_is_warned_of_once_until_its_queue_was_empty() {
    let fake = FakeClock::new();
    let mut state = HandlerState::<ConfigMap>::new(None);
    let fill = |state: &mut HandlerState<ConfigMap>, count| {
        let warnings =
            (0..count).filter_map(|_| state.push(told("+a1"), false, fake.now()).warning);
        warnings.collect::<Vec<_>>()
    };
    let warning = Some((1_025, Duration::from_millis(101)));
    assert_eq!(fill(&mut state, 1), []);
    let _in_hand = state.next(fake.now());
    assert_eq!(fill(&mut state, 1_025), [], "many, but the call is young");
    fake.advance(Duration::from_millis(100));
    assert_eq!(state.finish(None, fake.now()).warning, None, "not slow");
    let _in_hand = state.next(fake.now());
    fake.advance(Duration::from_millis(101));
    assert_eq!(
        state.finish(None, fake.now()).warning,
        None,
        "only 1,024 wait"
    );
    assert_eq!(fill(&mut state, 2), []);
    let _in_hand = state.next(fake.now());
    fake.advance(Duration::from_millis(101));
    let told_at = state.finish(None, fake.now()).warning;
    assert_eq!(
        told_at.map(|(queued, _)| queued),
        warning.map(|(queued, _)| queued)
    );
    let _in_hand = state.next(fake.now());
    fake.advance(SECOND);
    assert_eq!(fill(&mut state, 100), [], "once is enough");
    while state.next(fake.now()).is_some() {
        let _effects = state.finish(None, fake.now());
    }
    fill(&mut state, 1);
    let _in_hand = state.next(fake.now());
    fake.advance(Duration::from_millis(101));
    assert_eq!(
        fill(&mut state, 1_025).len(),
        1,
        "told while the call still runs"
    );
}

/// The log line of a panic names handler, method and object, and only words that stand in the
/// program's text.
#[test]
fn a_panic_that_formats_an_object_is_not_logged_in_its_words() {
    use crate::worker::panic_literal as literal;
    let canary = "canary".to_owned();
    let formatted = std::panic::catch_unwind(|| panic!("bytes: {canary}")).unwrap_err();
    assert_eq!(literal(formatted.as_ref()), "");
    let plain = std::panic::catch_unwind(|| panic!("plain words")).unwrap_err();
    assert_eq!(literal(plain.as_ref()), ": plain words");
}
