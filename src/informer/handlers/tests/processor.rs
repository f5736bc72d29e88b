//! Joining before and during the run, and many registrations (SI-10 to SI-13, SI-20).

use super::*;

#[test]
fn si_10_a_handler_added_before_the_start_gets_the_initial_list_as_such() {
    let stage = Stage::new();
    let (handler, receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    stage.tell(&["*a1", "*b1"]);
    stage.source.processor.complete_initial();
    stage.tell(&["+c1"]);
    assert_eq!(next(&receiver, 3), ["*a1", "*b1", "+c1"]);
    assert!(registration.name().starts_with("hd-"), "{registration:?}");
}

/// `TestAddWhileActive`: a late handler gets everything once, and its own sync.
#[test]
fn si_11_a_handler_added_while_running_gets_what_is_there_and_then_what_comes() {
    let stage = Stage::new();
    let (early, first) = collector();
    stage.add(early, HandlerOptions::default(), &[]);
    stage.tell(&["*a1"]);
    stage.source.processor.complete_initial();
    let (late, second) = collector();
    let late = stage.source.processor.turn(|tell| {
        let late = stage
            .source
            .processor
            .register(late, HandlerOptions::default());
        stage.hold(&["a2"]);
        tell(told("a1>2"));
        assert!(!late.as_ref().unwrap().has_synced(), "it has not joined");
        late.unwrap()
    });
    stage.tell(&["a2>3"]);
    assert_eq!(next(&first, 3), ["*a1", "a1>2", "a2>3"]);
    assert_eq!(next(&second, 2), ["*a2", "a2>3"]);
    late.wait_until_synced(Deadline::NEVER).unwrap();
}

#[test]
fn si_13_one_handler_may_be_added_many_times() {
    let stage = Stage::new();
    let (send, receiver) = unbounded();
    let registrations: Vec<_> = (0..2)
        .map(|_| {
            let handler = crate::informer::Forward::from(send.clone());
            stage.add(handler, HandlerOptions::default(), &[])
        })
        .collect();
    assert_ne!(registrations[0].name(), registrations[1].name());
    stage.tell(&["+a1"]);
    assert_eq!(next(&receiver, 2), ["+a1", "+a1"]);
    registrations[0].remove(Deadline::NEVER).unwrap();
    stage.tell(&["-a1"]);
    assert_eq!(next(&receiver, 1), ["-a1"]);
    assert_eq!(stage.source.processor.registrations().len(), 1);
}

#[test]
fn si_20_a_notification_is_offered_to_all_before_the_next() {
    let stage = Stage::new();
    let (slow, steps) = Stepped::new();
    let slow = stage.add(slow, HandlerOptions::default(), &[]);
    stage.tell(&["+a1", "+b1"]);
    steps.begun.recv().unwrap();
    assert_eq!(
        slow.readings().queued,
        1,
        "offered while the first call still runs"
    );
    drop(steps);
}

#[test]
fn a_registration_that_is_dropped_leaves_its_handler() {
    let stage = Stage::new();
    let (handler, receiver) = collector();
    drop(stage.add(handler, HandlerOptions::default(), &[]));
    stage.tell(&["+a1"]);
    assert_eq!(next(&receiver, 1), ["+a1"]);
}
