//! Removal and stop, from every side (SI-4, SI-5, SI-12, SI-14, SI-15).

use super::*;
use crate::ErrorKind;
use crate::informer::Handlers;
use crate::informer::handlers::state::HandlerPhase;
use crate::tests::until::until;
use crate::worker::Worker;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn si_14_a_removed_handler_is_not_called_again_and_its_queue_is_dropped() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    stage.tell(&["+a1", "+b1"]);
    steps.begun.recv().unwrap();
    let removing = registration.clone();
    let (_worker, removed) = apart(move || removing.remove(Deadline::NEVER));
    stage.fake.wait_for_parked(1);
    assert_eq!(registration.readings().queued, 0);
    assert!(!registration.readings().has_ended, "a call still runs");
    steps.how.send(Step::Return).unwrap();
    removed.recv().unwrap().unwrap();
    assert!(registration.readings().has_ended);
    stage.tell(&["+c1"]);
    assert!(
        steps.begun.recv().is_err(),
        "the handler is dropped, uncalled"
    );
    assert!(steps.dropped.recv().is_err());
}

/// `TestRemoveWhileActive`: the others go on.
#[test]
fn si_14_removing_one_handler_while_running_leaves_the_others() {
    let stage = Stage::new();
    let (handler, removed) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    let (handler, stays) = collector();
    stage.add(handler, HandlerOptions::default(), &["a1"]);
    stage.tell(&["a1>2"]);
    assert_eq!(next(&removed, 2), ["*a1", "a1>2"]);
    registration.remove(Deadline::NEVER).unwrap();
    stage.tell(&["a2>3", "-a3"]);
    assert_eq!(
        next(&removed, 1),
        Vec::<String>::new(),
        "its channel is closed"
    );
    assert_eq!(next(&stays, 4), ["*a1", "a1>2", "a2>3", "-a3"]);
}

/// `TestRemovingRemovedSharedInformer`, and after the stop (`TestRemoveOnStoppedSharedInformer`).
#[test]
fn si_14_removing_twice_or_after_the_stop_is_no_error() {
    let stage = Stage::new();
    let (handler, _receiver) = collector();
    let first = stage.add(handler, HandlerOptions::default(), &[]);
    let (handler, _receiver) = collector();
    let second = stage.add(handler, HandlerOptions::default(), &[]);
    first.remove(Deadline::NEVER).unwrap();
    first.remove(stage.now()).unwrap();
    stage.source.processor.stop(Deadline::NEVER).unwrap();
    second.remove(stage.now()).unwrap();
    drop(stage);
    second.remove(Deadline::NEVER).unwrap();
}

/// `TestRemoveEventHandler_SynchronousShutdown`: in client-go this call deadlocks.
#[test]
fn si_15_a_handler_may_remove_itself_and_that_call_is_its_last() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1", "b1"]);
    steps.begun.recv().unwrap();
    let own = registration.clone();
    let (done, removed) = unbounded();
    let remove = move || done.send(own.remove(Deadline::NEVER)).unwrap();
    steps.how.send(Step::Do(Box::new(remove))).unwrap();
    removed.recv().unwrap().unwrap();
    assert!(steps.begun.recv().is_err(), "no further call");
    registration.remove(Deadline::NEVER).unwrap();
    assert!(registration.readings().has_ended);
    assert_eq!(registration.readings().delivered, 1);
}

#[test]
fn si_15_a_removal_that_comes_to_its_deadline_names_the_handler() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let options = HandlerOptions::default().name("audit");
    let registration = stage.add(handler, options, &["a1"]);
    steps.begun.recv().unwrap();
    stage.fake.advance(3 * SECOND);
    let error = registration.remove(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.to_string(),
        "timed out waiting for handlers that still run: audit (on_add for 3.0s)"
    );
    steps.how.send(Step::Return).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
}

/// `TestShutDownEventHandler_Lifecycles`: never admitted; admitted and idle; with a call under way.
#[test]
fn si_15_removal_ends_a_handler_in_every_phase() {
    let stage = Stage::new();
    let (handler, joining) = Stepped::new();
    let registration = stage
        .source
        .processor
        .add(handler, HandlerOptions::default())
        .unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    assert!(joining.begun.recv().is_err());

    let (handler, idle) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    registration.remove(Deadline::NEVER).unwrap();
    assert!(idle.begun.recv().is_err());
    assert!(stage.source.processor.registrations().is_empty());
}

#[test]
fn si_12_after_the_stop_no_handler_is_added() {
    let stage = Stage::new();
    stage.source.processor.stop(Deadline::NEVER).unwrap();
    let (handler, receiver) = collector();
    let options = HandlerOptions::default().name("audit");
    let error = stage
        .source
        .processor
        .register(handler, options)
        .unwrap_err();
    assert!(error.is_stopped());
    assert_eq!(
        error.to_string(),
        "handler audit was not added to shared informer configmaps because it has stopped already"
    );
    assert!(receiver.recv().is_err(), "the handler is dropped");
}

#[test]
fn si_5_a_stop_drops_what_was_not_delivered() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1", "b1"]);
    steps.begun.recv().unwrap();
    let error = stage.source.processor.stop(stage.now()).unwrap_err();
    assert!(error.to_string().contains(registration.name()), "{error}");
    assert_eq!(registration.readings().queued, 0);
    steps.how.send(Step::Return).unwrap();
    stage.source.processor.stop(Deadline::NEVER).unwrap();
    assert_eq!(registration.readings().delivered, 1);
}

#[test]
fn a_stop_with_a_deadline_names_who_is_late_and_nobody_else() {
    let stage = Stage::new();
    let (late, steps) = Stepped::new();
    stage.add(late, HandlerOptions::default().name("late"), &["a1"]);
    let (idle, _receiver) = collector();
    let idle = stage.add(idle, HandlerOptions::default().name("idle"), &[]);
    steps.begun.recv().unwrap();
    let (clock, fake) = (stage.clock.clone(), stage.fake.clone());
    let (_worker, ended) = apart(move || {
        let stopped = stage.source.processor.stop(clock.after(SECOND));
        (stopped, stage)
    });
    idle.remove(Deadline::NEVER).unwrap();
    fake.wait_for_timer(SECOND);
    fake.advance(SECOND);
    let (stopped, _world) = ended.recv().unwrap();
    assert_eq!(
        stopped.unwrap_err().to_string(),
        "timed out waiting for handlers that still run: late (on_add for 1.0s)"
    );
    drop(steps);
}

#[test]
fn a_processor_that_is_dropped_ends_and_joins_its_handlers() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    drop(stage);
    assert!(registration.readings().has_ended);
    assert!(
        steps
            .dropped
            .try_recv()
            .is_err_and(|error| error.is_disconnected())
    );
}

#[test]
fn a_processor_that_is_dropped_by_its_handler_does_not_wait_for_itself() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    steps.begun.recv().unwrap();
    let last_owner = move || drop(stage);
    steps.how.send(Step::Do(Box::new(last_owner))).unwrap();
    registration.remove(Deadline::NEVER).unwrap();
    assert!(registration.readings().has_ended);
}

#[test]
fn a_handler_that_was_named_as_late_is_not_waited_for_again() {
    let stage = Stage::new();
    let (handler, steps) = Stepped::new();
    let registration = stage.add(handler, HandlerOptions::default(), &["a1"]);
    steps.begun.recv().unwrap();
    stage.source.processor.stop(stage.now()).unwrap_err();
    drop(stage);
    assert!(
        !registration.readings().has_ended,
        "its call still runs, detached"
    );
    drop(steps);
    registration.remove(Deadline::NEVER).unwrap();
}

/// `TestSharedInformerHandlerAbuse`: many add, tell and remove at once, and the stop comes in
/// between.
#[test]
fn adding_telling_and_removing_at_once_ends_with_no_call_left() {
    let stage = Stage::new();
    let calls = Arc::new(crate::sync::atomic::AtomicUsize::new(0));
    stage.hold(&["a1"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let calls = Arc::clone(&calls);
                    let handler = Handlers::<ConfigMap>::new().on_add(move |_, _| {
                        calls.fetch_add(1, crate::sync::atomic::Ordering::SeqCst);
                    });
                    let added = stage
                        .source
                        .processor
                        .register(handler, HandlerOptions::default());
                    let Ok(registration) = added else { return };
                    registration.remove(Deadline::NEVER).unwrap();
                    assert!(registration.readings().has_ended);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..500 {
                stage.tell(&["+b1", "-b1"]);
            }
            stage.source.processor.stop(Deadline::NEVER).unwrap();
        });
    });
    let after = calls.load(crate::sync::atomic::Ordering::SeqCst);
    stage.tell(&["+c1"]);
    drop(stage);
    assert_eq!(calls.load(crate::sync::atomic::Ordering::SeqCst), after);
}

/// Each stop waits for the handlers, also while another thread's stop does.
#[test]
fn si_5_a_stop_beside_another_one_waits_for_the_handler_as_well() {
    let stage = Stage::new();
    let (late, steps) = Stepped::new();
    stage.add(late, HandlerOptions::default().name("late"), &["a1"]);
    steps.begun.recv().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stage.source.processor.stop(stage.clock.after(SECOND)));
        stage.fake.wait_for_timer(SECOND);
        let second = stage
            .source
            .processor
            .stop(stage.now())
            .map_err(|error| error.to_string());
        stage.source.processor.end();
        let third = stage.source.processor.stop(stage.now());
        drop(steps);
        first.join().unwrap().unwrap();
        let text = "timed out waiting for handlers that still run: late (on_add for 0.0ns)";
        assert_eq!(second, Err(text.to_owned()));
        assert!(third.is_err());
    });
    stage.source.processor.stop(stage.now()).unwrap();
}

/// SI-12: an addition that loses the race against the stop does not wait for the thread that it has
/// started; the end of the processor does.
#[test]
fn si_12_an_addition_that_the_stop_overtakes_does_not_block() {
    let stage = Stage::new();
    let named = HandlerOptions::default().name("late");
    let listener = Arc::new(stage.source.processor.listener(named, "Late", "hd"));
    let (go, gate) = unbounded::<()>();
    let body = Arc::clone(&listener);
    let worker = Worker::spawn("t-late", move |_| {
        let _open = gate.recv();
        body.run(Handlers::<ConfigMap>::new(), None);
    });
    stage.source.processor.stop(Deadline::NEVER).unwrap();
    let entered = stage
        .source
        .processor
        .enter(&listener, worker.ok(), Duration::ZERO);
    assert!(entered.unwrap_err().is_stopped());
    stage.source.processor.stop(stage.now()).unwrap_err();
    drop(go);
    stage.source.processor.stop(Deadline::NEVER).unwrap();
    assert_eq!(listener.phase(), HandlerPhase::Ended);
}

/// A handler that ended before its thread ran is not called.
#[test]
fn si_5_a_handler_that_was_stopped_before_its_thread_ran_is_not_called() {
    struct Starts(Sender<()>);
    impl EventHandler<ConfigMap> for Starts {
        fn on_start(&mut self, _stop: &crate::worker::StopToken) {
            self.0.send(()).unwrap();
        }
    }
    let stage = Stage::new();
    let listener = stage
        .source
        .processor
        .listener(HandlerOptions::default(), "Late", "hd");
    listener.end("it was removed");
    let (starts, started) = unbounded();
    listener.run(Starts(starts), None);
    assert!(started.recv().is_err());
    assert_eq!(listener.phase(), HandlerPhase::Ended);
}

#[test]
fn a_handler_that_wants_nothing_more_is_no_registration_any_more() {
    let stage = Stage::new();
    let (handler, receiver) = collector();
    let registration = stage.add(handler, HandlerOptions::default(), &[]);
    assert_eq!(stage.source.processor.registrations().len(), 1);
    drop(receiver);
    stage.tell(&["+a1"]);
    until(|| registration.readings().has_ended);
    assert!(stage.source.processor.registrations().is_empty());
    assert_eq!(registration.readings().delivered, 1, "its counts stay");
}

/// Runs handlers each of which removes the next one, and the last the first. Returns the results.
fn remove_each_other(count: usize) -> Vec<Result<(), String>> {
    let stage = Stage::new();
    let mut handlers = Vec::new();
    for number in 0..count {
        let (handler, steps) = Stepped::new();
        let name = ["first", "second", "third"][number];
        let options = HandlerOptions::default().name(name);
        let registration = stage.add(handler, options, &["a1"]);
        steps.begun.recv().unwrap();
        handlers.push((registration, steps));
    }
    let (done, removed) = unbounded();
    let others = handlers.iter().cycle().skip(1);
    for ((_, steps), (other, _)) in handlers.iter().zip(others) {
        let (other, done) = (other.clone(), done.clone());
        let remove = move || done.send(other.remove(Deadline::NEVER)).unwrap();
        steps.how.send(Step::Do(Box::new(remove))).unwrap();
    }
    let ends = (0..count).map(|_| removed.recv().unwrap().map_err(|error| error.to_string()));
    let ends = ends.collect();
    for (registration, _) in &handlers {
        registration.remove(Deadline::NEVER).unwrap();
    }
    ends
}

/// SI-15: the removal that closes the circle fails, and the others' waits end with its call.
#[test]
fn si_15_handlers_that_remove_each_other_do_not_wait_for_ever() {
    let ends = remove_each_other(2);
    let told: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    let texts = [
        "handler second still runs, and waits for this call: second waits for the end of first",
        "handler first still runs, and waits for this call: first waits for the end of second",
    ];
    assert!(told.len() == 1 && texts.contains(&&*told[0]), "{told:?}");
}

#[test]
fn si_15_a_longer_circle_of_removals_is_told_as_well() {
    let ends = remove_each_other(3);
    let told: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    for name in ["first", "second", "third"] {
        assert!(told[0].contains(name), "{told:?}");
    }
}

/// SI-5, SI-15: one handler stops all of them while another one removes it.
#[test]
fn si_5_a_stop_by_a_handler_and_its_removal_by_another_one_do_not_wait_for_each_other() {
    let stage = Arc::new(Stage::new());
    stage.hold(&["a1"]);
    let add = |name| {
        let (handler, steps) = Stepped::new();
        let options = HandlerOptions::default().name(name);
        let registration = stage.source.processor.register(handler, options).unwrap();
        (registration, steps)
    };
    let ((stopping, stopper), (_, remover)) = (add("stopping"), add("removing"));
    for steps in [&stopper, &remover] {
        steps.begun.recv().unwrap();
    }
    let (done, ended) = unbounded();
    let (theirs, tell) = (Arc::clone(&stage), done.clone());
    let stop = move || {
        let end = theirs.source.processor.stop(Deadline::NEVER);
        drop(theirs);
        tell.send(("stop", end)).unwrap();
    };
    let remove = move || {
        let end = stopping.remove(Deadline::NEVER);
        done.send(("remove", end)).unwrap();
    };
    stopper.how.send(Step::Do(Box::new(stop))).unwrap();
    remover.how.send(Step::Do(Box::new(remove))).unwrap();
    for (which, end) in ended.iter().take(2) {
        let text = end.map_err(|error| error.to_string());
        let told = "handler stopping still runs, and waits for this call: stopping waits for the \
            end of removing";
        let fine = match which {
            "stop" => text == Ok(()),
            _ => text == Ok(()) || text == Err(told.to_owned()),
        };
        assert!(fine, "{which}: {text:?}");
    }
    stage.source.processor.stop(Deadline::NEVER).unwrap();
}
