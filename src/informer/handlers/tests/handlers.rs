//! Closures, filters and channels as handlers (CT-10 to CT-12).

use crossbeam_channel::{TryRecvError, bounded};

use super::*;
use crate::informer::{FilteringHandler, Forward, Handlers};
use crate::worker::StopSource;

fn deliver(handler: &mut impl EventHandler<ConfigMap>, words: &[&str]) {
    for word in words {
        told(word).deliver(handler);
    }
}

fn taken(receiver: &Receiver<Told>) -> Vec<String> {
    receiver.try_iter().map(|told| written(&told)).collect()
}

#[test]
fn ct_10_closures_that_are_left_out_do_nothing() {
    let (send, calls) = unbounded();
    let mut silent = Handlers::<ConfigMap>::new();
    deliver(&mut silent, &["*a1", "a1>2", "-a2"]);

    let (added, updated, deleted) = (send.clone(), send.clone(), send);
    let mut one = Handlers::<ConfigMap>::new().on_update(move |old, new| {
        updated
            .send(format!("{}>{}", word(old), word(new)))
            .unwrap();
    });
    deliver(&mut one, &["*a1", "a1>2", "-a2"]);
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), ["a1>a2"]);

    let mut others = Handlers::<ConfigMap>::new()
        .on_add(move |object, initial| added.send(format!("{} {initial}", word(object))).unwrap())
        .on_delete(move |gone| deleted.send(format!("{gone:?}")).unwrap());
    deliver(&mut others, &["*a1", "+b1", "a1>2", "?a2"]);
    assert_eq!(
        calls.try_iter().collect::<Vec<_>>(),
        [
            "a1 true",
            "b1 false",
            "Deleted { last_known: ConfigMap a @2, final_state_known: false }"
        ]
    );
}

/// The whole table: versions above 4 match.
#[test]
fn ct_10_the_filter_decides_by_the_old_and_the_new_state() {
    let rows = [
        ("*a5", Some("*a5")),
        ("+a5", Some("+a5")),
        ("+a1", None),
        ("a5>6", Some("a5>6")),
        ("a1>5", Some("+a5")),
        ("a5>1", Some("-a5")),
        ("a1>2", None),
        ("-a5", Some("-a5")),
        ("-a1", None),
    ];
    for (comes, passes) in rows {
        let (forward, receiver) = Forward::unbounded();
        let mut handler = FilteringHandler::new(matches, forward);
        deliver(&mut handler, &[comes]);
        assert_eq!(taken(&receiver), Vec::from_iter(passes), "{comes}");
    }
}

/// A queue at its bound joins the last change and the delete.
#[test]
fn a_filter_loses_no_delete_of_what_it_passed_on() {
    let (forward, receiver) = Forward::unbounded();
    let mut handler = FilteringHandler::new(matches, forward);
    deliver(&mut handler, &["+a5", "-a1", "-a1", "+b5", "b1>2", "-b2"]);
    assert_eq!(taken(&receiver), ["+a5", "-a1", "+b5", "-b1"]);
}

fn matches(object: &ConfigMap) -> bool {
    let version = object.metadata.resource_version.as_deref();
    version.is_some_and(|version| version > "4")
}

#[test]
fn ct_11_the_filter_sees_the_last_known_object_of_a_missed_delete() {
    let (forward, receiver) = Forward::unbounded();
    let mut handler = FilteringHandler::new(matches, forward);
    deliver(&mut handler, &["?a5", "?b1"]);
    assert_eq!(taken(&receiver), ["?a5"]);
}

#[test]
fn ct_12_a_delete_always_holds_an_object() {
    let (forward, receiver) = Forward::unbounded();
    let mut handler: Box<dyn EventHandler<ConfigMap>> = Box::new(forward);
    deliver(&mut handler, &["?a1", "-b2"]);
    let keys = receiver.try_iter().map(|told| match told {
        Notification::Deleted(deleted) => (deleted.key().to_string(), word(&deleted.last_known)),
        other @ (Notification::Added { .. } | Notification::Updated { .. }) => panic!("{other:?}"),
    });
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [("a".into(), "a1".into()), ("b".into(), "b2".into())]
    );
}

#[test]
fn a_handler_written_by_hand_needs_only_the_methods_it_uses() {
    struct Adds(usize);
    impl EventHandler<ConfigMap> for Adds {
        fn on_add(&mut self, _object: &Arc<StoredObject<ConfigMap>>, _is_in_initial_list: bool) {
            self.0 += 1;
        }
    }
    let mut adds = Adds(0);
    deliver(&mut adds, &["*a1", "a1>2", "-a2", "+a3"]);
    assert_eq!(adds.0, 2);
    assert!(!adds.is_finished());
}

#[test]
fn a_full_channel_holds_up_only_its_own_handler_and_a_stop_ends_that_wait() {
    let stop = StopSource::new();
    let (mut full, receiver) = Forward::<ConfigMap>::bounded(1);
    full.on_start(&stop.token());
    told("+a1").deliver(&mut full);
    let (_worker, sent) = apart(move || {
        told("+b1").deliver(&mut full);
        full
    });
    stop.stop();
    let full = sent.recv().unwrap();
    assert!(!full.is_finished(), "the receiver is still there");
    assert_eq!(taken(&receiver), ["+a1"]);
}

#[test]
fn a_channel_without_receiver_has_finished() {
    let (send, receiver) = bounded(4);
    let mut handler = Forward::from(send);
    told("+a1").deliver(&mut handler);
    assert!(!handler.is_finished());
    drop(receiver);
    told("+b1").deliver(&mut handler);
    assert!(handler.is_finished());
}

#[test]
fn a_channel_closes_when_its_handler_is_removed() {
    let stage = Stage::new();
    let (forward, receiver) = Forward::bounded(0);
    let registration = stage.add(forward, HandlerOptions::default(), &["a1", "b1"]);
    assert!(receiver.recv().is_ok());
    // The thread blocks in its second send, or soon will; the test receives nothing.
    registration.remove(Deadline::NEVER).unwrap();
    assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
}

#[test]
fn a_handler_whose_receiver_is_gone_ends_by_itself() {
    let stage = Stage::new();
    let (forward, receiver) = Forward::bounded(0);
    let registration = stage.add(forward, HandlerOptions::default(), &[]);
    let (stays, others) = collector();
    stage.add(stays, HandlerOptions::default(), &[]);
    drop(receiver);
    stage.tell(&["+a1"]);
    assert!(
        registration
            .wait_until_synced(Deadline::NEVER)
            .unwrap_err()
            .is_stopped()
    );
    stage.tell(&["+b1"]);
    assert_eq!(next(&others, 2), ["+a1", "+b1"]);
    assert_eq!(
        stage.source.processor.registrations().len(),
        1,
        "it is forgotten"
    );
}
