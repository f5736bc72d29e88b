//! Reads by many threads, in groups that keep the objects they have read.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

use super::*;

/// Reads on many threads, one after the other: more threads than there are groups.
fn read_by_many(store: &Store<ConfigMap>, name: &str) -> Vec<Option<String>> {
    let read = || version(store, name);
    let by_one = |_| thread::scope(|scope| scope.spawn(read).join().unwrap());
    let mut versions: Vec<_> = (0..20).map(by_one).collect();
    versions.dedup();
    versions
}

#[test]
fn every_change_takes_back_what_each_thread_has_read_and_keeps_nothing_of_it() {
    let (store, mut writer) = store();
    let first = held("a", "1", &[]);
    let mut before = Arc::downgrade(&first);
    replace(&mut writer, vec![first], &at("1")).unwrap();
    let mut look = |change: &str, expected: Option<&str>| {
        assert_eq!(
            read_by_many(&store, "a"),
            [expected.map(str::to_owned)],
            "{change}"
        );
        assert_eq!(
            before.strong_count(),
            0,
            "{change}: the state before is freed"
        );
        let present = store.get_last_good("shop", "a");
        before = present
            .map(|present| Arc::downgrade(&present))
            .unwrap_or_default();
    };
    assert_eq!(read_by_many(&store, "a"), [Some("1".to_owned())]);
    writer
        .apply(ObjectEvent::updated(held("a", "2", &[])))
        .unwrap();
    look("an event", Some("2"));
    replace(&mut writer, vec![held("a", "3", &[])], &at("3")).unwrap();
    look("a list", Some("3"));
    delete(&mut writer, held("a", "4", &[]));
    look("a deletion", None);
    add(&mut writer, held("a", "5", &[]));
    look("an object of the same name", Some("5"));
    replace(&mut writer, Vec::new(), &at("6")).unwrap();
    look("an empty list", None);
}

#[test]
fn b12_an_object_that_does_not_decode_any_more_is_read_from_no_copy() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &[]));
    assert_eq!(read_by_many(&store, "a"), [Some("1".to_owned())]);
    writer
        .apply(ObjectEvent::updated(undecodable("a", "2")))
        .unwrap();
    for _ in 0..20 {
        let read = || store.get("shop", "a").map(drop);
        let read = thread::scope(|scope| scope.spawn(read).join().unwrap());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Undecodable);
    }
}

/// The thread that holds the lock may have no core.
#[test]
fn a_get_waits_for_no_lock_while_another_group_has_the_object() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![held("a", "1", &[])], &at("1")).unwrap();
    assert_eq!(version(&store, "a").as_deref(), Some("1"));
    let (locked, is_locked) = bounded(0);
    let (done, is_done) = bounded::<()>(0);
    thread::scope(|scope| {
        let holds = scope.spawn(|| {
            store.look(|_| {
                locked.send(()).unwrap();
                is_done.recv_timeout(Duration::from_secs(20)) == Err(RecvTimeoutError::Disconnected)
            })
        });
        is_locked.recv().unwrap();
        assert_eq!(read_by_many(&store, "a"), [Some("1".to_owned())]);
        drop(done);
        assert!(holds.join().unwrap(), "the reads waited for the lock");
    });
}
