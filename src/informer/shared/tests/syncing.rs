//! When an informer has synced, and the result of a wait for it (SI-6, SI-8, SI-16, WT-1, WT-2).

use super::*;
use crate::informer::Handlers;
use crate::object::Status;
use crate::tests::until::until;

#[test]
fn si_6_an_informer_has_synced_when_the_first_list_is_in_the_store() {
    let stage = Stage::with(&["a", "b"]);
    let informer = stage.informer();
    assert!(!informer.has_synced());
    stage.run(&informer);
    assert!(informer.has_synced() && informer.store().has_synced());
    assert_eq!(words(informer.store()), ["a2", "b3"]);
    assert_eq!(informer.store().resource_version().as_str(), "3");
}

/// Under endless load, too: the wait ignores events after the list.
#[test]
fn si_6_an_informer_has_synced_when_its_first_list_is_in_although_more_waits() {
    let stage = Stage::with(&["a", "b"]);
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    let indexers = Indexers::new().with("held up", move |object: &ConfigMap| {
        drop(begun.send(object.key().to_string()));
        let _closed = pass.recv_timeout(OPENS);
        vec![]
    });
    let informer = stage.informer_with(stage.options().indexers(indexers));
    let (registration, _told) = follow(&informer);
    informer.start().unwrap();
    while calls.recv().unwrap() != "b" {
        gate.send(()).unwrap();
    }
    stage.set("c");
    assert!(!informer.has_synced(), "b is not in");
    gate.send(()).unwrap();
    while calls.recv().unwrap() != "c" {
        gate.send(()).unwrap();
    }
    assert!(informer.has_synced(), "c is not of the list");
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    drop(gate);
}

/// An empty list is a list.
#[test]
fn si_6_an_empty_first_list_syncs_informer_and_handlers() {
    let stage = Stage::new();
    let informer = stage.informer();
    let (registration, _told) = follow(&informer);
    stage.run(&informer);
    registration.wait_until_synced(Deadline::NEVER).unwrap();
    assert!(informer.store().is_empty());
}

/// `TestAddWhileActive`: each handler has a state of its own.
#[test]
fn si_16_a_handler_has_synced_when_it_returned_from_its_own_initial_list() {
    let stage = Stage::with(&["a"]);
    let informer = stage.informer();
    let (begun, calls) = unbounded();
    let (gate, pass) = unbounded::<()>();
    let slow = Handlers::<ConfigMap>::new().on_add(move |_, _| {
        begun.send(()).unwrap();
        pass.recv_timeout(OPENS).unwrap();
    });
    let slow = informer.add_handler(slow).unwrap();
    let (quick, _told) = follow(&informer);
    stage.run(&informer);
    quick.wait_until_synced(Deadline::NEVER).unwrap();
    calls.recv().unwrap();
    assert!(informer.has_synced() && !slow.has_synced());
    let error = slow.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    gate.send(()).unwrap();
    slow.wait_until_synced(Deadline::NEVER).unwrap();
    let (late, told) = follow(&informer);
    late.wait_until_synced(Deadline::NEVER).unwrap();
    assert_eq!(next(&told, 1), ["*a2"]);
}

#[test]
fn si_8_ct_3_the_position_is_empty_before_the_start_and_survives_the_stop() {
    let stage = Stage::with(&["a"]);
    let informer = stage.informer();
    assert_eq!(informer.status().resource_version.as_str(), "");
    assert_eq!(informer.store().age(), None);
    stage.run(&informer);
    assert_eq!(informer.status().resource_version.as_str(), "2");
    assert_eq!(informer.store().age(), Some(Duration::ZERO));
    informer.shutdown(Deadline::NEVER).unwrap();
    assert_eq!(informer.status().resource_version.as_str(), "2");
}

/// R28, B2: the wait says why.
#[test]
fn wt_2_a_wait_that_ends_at_its_deadline_says_why() {
    let stage = Stage::new();
    let down = Error::new(ErrorKind::Unreachable, "connection refused");
    stage.source.fail_all(RequestKind::List, down);
    let informer = stage.informer();
    informer.start().unwrap();
    stage.fake.wait_for_timer(Duration::from_millis(800));
    let error = informer.wait_until_synced(stage.now()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced);
    let text = error.to_string();
    assert!(
        text.starts_with("failed to sync SharedInformer ConfigMap cache: timed out waiting"),
        "{text}"
    );
    assert!(
        text.contains("1 attempt in") && text.contains("connection refused"),
        "{text}"
    );
    let named = HandlerOptions::default().name("audit");
    let (registration, _told) = follow_with(&informer, named);
    let error = registration.wait_until_synced(stage.now()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "failed to sync SharedInformer ConfigMap + event handler audit: timed out"
        ),
        "{text}"
    );
    assert!(
        text.contains("1 attempt in") && text.contains("connection refused"),
        "{text}"
    );
    assert_eq!(error.last_error().unwrap().kind(), ErrorKind::Unreachable);
}

#[test]
fn a_failed_list_is_told_to_the_error_hook() {
    let stage = Stage::with(&["a"]);
    let refused = Status::new(403, "configmaps is forbidden");
    let refused = SourceFault::Fail(Error::from_status(refused));
    stage.source.fail_next(RequestKind::List, refused);
    let (send, failures) = unbounded();
    let hook = move |failed: &crate::reflector::FailedAttempt| {
        let _gone = send.send((failed.attempts, failed.error.kind()));
    };
    let reflector = stage.options().reflector.on_error(hook);
    let informer = stage.informer_with(InformerOptions::default().reflector(reflector));
    informer.start().unwrap();
    assert_eq!(failures.recv(), Ok((1, ErrorKind::Forbidden)));
    stage.pass_until(|| informer.has_synced());
    assert!(failures.is_empty());
}

/// WT-1: a stop ends the wait; so does the server's refusal once it is certain (R4).
#[test]
fn wt_1_a_wait_ends_by_a_signal_when_nothing_can_be_hoped_for() {
    let stage = Stage::new();
    stage.source.fail_next(RequestKind::List, SourceFault::Hang);
    let informer = Arc::new(stage.informer());
    informer.start().unwrap();
    stage.source.wait_for_requests(1);
    let waiting = Arc::clone(&informer);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    informer.stop();
    let error = waited.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);

    let stage = Stage::new();
    let refused = Status::new(403, "configmaps is forbidden");
    stage
        .source
        .fail_all(RequestKind::List, Error::from_status(refused));
    let informer = Arc::new(stage.informer());
    informer.start().unwrap();
    let waiting = Arc::clone(&informer);
    let (_worker, waited) = apart(move || waiting.wait_until_synced(Deadline::NEVER));
    let (registration, _told) = follow(&informer);
    let (_worker, handler) = apart(move || registration.wait_until_synced(Deadline::NEVER));
    stage.pass_until(|| !waited.is_empty() && !handler.is_empty());
    for waited in [waited, handler] {
        let error = waited.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains("configmaps is forbidden"));
    }
    let (late, _told) = follow(&informer);
    let error = late.wait_until_synced(Deadline::NEVER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

/// B3, on the informer, its store and its handlers alike.
#[test]
fn b3_somebody_who_waits_makes_the_first_list_hurry() {
    type Wait = fn(&Informer, &Registration) -> Result<(), Error>;
    let waits: [Wait; 3] = [
        |informer, _| informer.wait_until_synced(Deadline::NEVER),
        |informer, _| informer.store().wait_until_synced(Deadline::NEVER),
        |_, registration| registration.wait_until_synced(Deadline::NEVER),
    ];
    for wait in waits {
        let stage = Stage::with(&["a"]);
        let down = || SourceFault::Fail(Error::new(ErrorKind::Unreachable, "refused"));
        stage.source.fail_next(RequestKind::List, down());
        stage.source.fail_next(RequestKind::List, down());
        let informer = Arc::new(stage.informer());
        informer.start().unwrap();
        stage.fake.wait_for_timer(Duration::from_millis(800));
        let waiting = Arc::clone(&informer);
        let (registration, _told) = follow(&informer);
        let (_worker, waited) = apart(move || wait(&waiting, &registration));
        let before = stage.clock.now();
        until(|| stage.fake.wait_for_next_timer() < Duration::from_millis(800));
        stage.pass_until(|| stage.source.requests().len() >= 3);
        let passed = stage.clock.now().saturating_duration_since(before);
        waited.recv().unwrap().unwrap();
        assert!(passed < Duration::from_millis(800), "{passed:?}");
    }
}

#[test]
fn b14_status_and_age_are_the_reflectors() {
    let stage = Stage::with(&["a"]);
    let informer = stage.running();
    // The reflector reads the watch, so it has reported it.
    stage.fake.wait_for_next_timer();
    stage.fake.advance(Duration::from_secs(5));
    assert_eq!(informer.store().age(), Some(Duration::from_secs(5)));
    assert!(informer.status().synced);
    assert_eq!(informer.status().lists, 1);
    assert_eq!(informer.name(), "configmaps");
}

/// WT-4: kind, given name, handler.
#[test]
fn wt_4_waits_call_the_informer_and_its_handlers_by_their_names() {
    let stage = Stage::new();
    let informer = stage.informer();
    assert_eq!(informer.sync_name(), "SharedInformer ConfigMap");
    let options = stage.options().name("shop");
    let informer = stage.informer_with(options);
    assert_eq!(informer.sync_name(), "SharedInformer ConfigMap (shop)");
    let (registration, _told) = follow_with(&informer, HandlerOptions::default().name("audit"));
    let expected = "SharedInformer ConfigMap (shop) + event handler audit";
    assert_eq!(registration.sync_name(), expected);
    let (registration, _told) = follow(&informer);
    let thread = registration.name();
    let expected = format!("SharedInformer ConfigMap (shop) + event handler Forward ({thread})");
    assert_eq!(registration.sync_name(), expected);
}

/// B14: fresh is synced, confirmed within the limit, and running.
#[test]
fn b14_an_informer_is_fresh_while_it_runs_and_the_server_confirms() {
    let stage = Stage::with(&["a"]);
    let informer = stage.informer();
    let second = Duration::from_secs(1);
    assert!(!informer.store().is_fresh_within(second));
    stage.run(&informer);
    assert!(informer.store().is_fresh_within(second));
    stage.fake.wait_for_next_timer();
    stage.fake.advance(5 * second);
    assert!(
        !informer.store().is_fresh_within(second) && informer.store().is_fresh_within(5 * second)
    );
    informer.shutdown(Deadline::NEVER).unwrap();
    assert!(
        !informer.store().is_fresh_within(5 * second),
        "it has stopped"
    );
}

/// Seen: "no answer from the server yet", although it was never asked.
#[test]
fn a_wait_on_an_informer_that_was_not_started_says_so() {
    let source = Arc::new(FakeSource::<ConfigMap>::new());
    let informer = Informer::new(source, InformerOptions::default());
    let error = informer.wait_until_synced(Duration::ZERO).unwrap_err();
    let text = "informer configmaps was not started";
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Config, text)
    );
    let key = crate::object::ObjectKey::new("shop", "settings");
    let error = informer.wait_until(&key, |_| true, Duration::ZERO);
    assert_eq!(error.unwrap_err().to_string(), text);
    let registration = informer.add_handler(Forward::unbounded().0).unwrap();
    let waits = [
        informer.store().wait_until_synced(Duration::ZERO),
        informer
            .store()
            .wait_until(&key, |_| true, Duration::ZERO)
            .map(drop),
        registration.wait_until_synced(Duration::ZERO),
    ];
    let read = informer.store().lister().namespace("shop").get("settings");
    let read = read.unwrap_err();
    assert_eq!(read.to_string(), "configmap \"settings\" not found");
    let source = std::error::Error::source(&read).unwrap().to_string();
    assert!(
        source.ends_with("no reflector has begun to fill it"),
        "{source}"
    );
    for error in waits.map(Result::unwrap_err) {
        let text = error.to_string();
        assert!(
            text.ends_with(": no reflector has begun to fill it"),
            "{text}"
        );
        assert!(!text.contains("no answer"), "{text}");
    }
}

/// Programs share these types between threads and keep them in their own structures.
#[test]
fn the_public_types_can_be_sent_shared_and_shown() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    fn cloned<T: Clone>() {}
    shared::<Informer>();
    shared::<Arc<Informer>>();
    shared::<InformerOptions<ConfigMap>>();
    shared::<Registration>();
    shared::<HandlerOptions>();
    shared::<Indexers<ConfigMap>>();
    shared::<Told>();
    shared::<crate::informer::Deleted<ConfigMap>>();
    cloned::<InformerOptions<ConfigMap>>();
    cloned::<Registration>();
    cloned::<HandlerOptions>();
    cloned::<Told>();
}
