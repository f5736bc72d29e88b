//! The store with snapshots: the changes that push, their content and their order (MX-2).

use super::*;
use crate::list_watch::Listed;
use crate::sync::Mutex;

type Pushes = Arc<Mutex<Vec<Vec<String>>>>;

/// A store, its writer, and the lists it pushed so far, each as sorted `name@version`.
fn pushing() -> (Store<ConfigMap>, impl Sink<ConfigMap>, Pushes) {
    let pushes = Pushes::default();
    let kept = Arc::clone(&pushes);
    let push = move |objects: Vec<Arc<StoredObject<ConfigMap>>>| {
        let mut list: Vec<_> = objects
            .iter()
            .map(|object| {
                let version = object.metadata.resource_version.as_deref().unwrap();
                format!("{}@{version}", object.key().name())
            })
            .collect();
        list.sort();
        kept.lock().push(list);
    };
    let (store, writer) = Store::new(by_label(), Clock::system());
    let writer = writer.with_snapshots(push);
    (store, writer, pushes)
}

fn list<W: Sink<ConfigMap>>(
    writer: &mut W,
    objects: &[(&str, &str)],
    of: &str,
) -> Result<(), Error> {
    let mut staging = writer.begin();
    for (name, version) in objects {
        let item = Listed::Object(held(name, version, &[]));
        writer.stage(&mut staging, ObjectEvent::added(item));
    }
    writer.commit(staging, &at(of))
}

/// `TestUpdateCallsPush`, `TestDeleteCallsPush`, `TestReplaceCallsPush`.
#[test]
fn mx_2_each_change_pushes_the_whole_list_once_and_in_order() {
    let (_store, mut writer, pushes) = pushing();
    list(&mut writer, &[("a", "1"), ("b", "2")], "2").unwrap();
    writer
        .apply(ObjectEvent::added(held("c", "3", &[])))
        .unwrap();
    writer
        .apply(ObjectEvent::updated(held("a", "4", &[])))
        .unwrap();
    writer
        .apply(ObjectEvent::deleted(held("b", "5", &[])))
        .unwrap();
    list(&mut writer, &[], "6").unwrap();
    let expected: [&[&str]; 5] = [
        &["a@1", "b@2"],
        &["a@1", "b@2", "c@3"],
        &["a@4", "b@2", "c@3"],
        &["a@4", "c@3"],
        &[],
    ];
    assert_eq!(*pushes.lock(), expected);
}

/// `TestReadsDoNotCallPush`.
#[test]
fn mx_2_reads_bookmarks_and_what_is_refused_push_nothing() {
    let (store, mut writer, pushes) = pushing();
    list(&mut writer, &[("a", "7")], "7").unwrap();
    pushes.lock().clear();

    assert_eq!((store.list().len(), store.len()), (1, 1));
    assert!(store.get("shop", "a").unwrap().is_some());
    writer.bookmark(&"8".into());
    writer
        .apply(ObjectEvent::updated(held("a", "6", &[])))
        .unwrap();
    let stale = list(&mut writer, &[], "5").unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Stale, "the reflector is told");
    drop(writer.begin());
    assert!(pushes.lock().is_empty());
    assert_eq!(store.resource_version().as_str(), "8");
}

/// The contract of the plain store (`TestUndeltaStore`), including its waits and its indices.
#[test]
fn mx_2_the_store_behind_it_is_a_store() {
    let (store, mut writer, pushes) = pushing();
    assert!(!store.has_synced());
    writer
        .apply(ObjectEvent::deleted(held("never", "1", &[])))
        .unwrap();
    list(&mut writer, &[("a", "2")], "2").unwrap();
    assert!(store.has_synced());
    writer
        .apply(ObjectEvent::updated(held("a", "3", &["blue"])))
        .unwrap();
    assert_eq!(store.by_index("label", "blue").unwrap().len(), 1);
    writer
        .apply(ObjectEvent::updated(undecodable("a", "4")))
        .unwrap();
    assert!(store.get("shop", "a").is_err());
    let last = pushes.lock().last().cloned();
    assert_eq!(last, Some(vec![]), "only what decodes is pushed (B12)");
    drop(writer);
    let deadline = crate::clock::Deadline::NEVER;
    let ended = store.wait_until_at_least(&"9".into(), deadline);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Stopped);
}

/// The function is the program's: its panic must not leave a caller waiting.
#[cfg(feature = "testing")]
#[test]
fn mx_2_a_function_that_panics_ends_the_reflector_and_the_waits_on_the_store() {
    use crate::reflector::{Reflector, ReflectorOptions};
    use crate::testing::FakeSource;

    let source = FakeSource::<ConfigMap>::new();
    let push =
        |objects: Vec<Arc<StoredObject<ConfigMap>>>| assert_eq!(objects.len(), 1, "made to fail");
    let (store, writer) = Store::new(Indexers::new(), Clock::system());
    let writer = writer.with_snapshots(push);
    let options = ReflectorOptions {
        waiters: Some(store.waiters()),
        ..ReflectorOptions::default()
    };
    let reflector = Reflector::spawn("all", Arc::new(source), writer, options).unwrap();
    let deadline = Clock::system().after(std::time::Duration::from_secs(60));
    let error = store
        .wait_until_at_least(&"9".into(), deadline)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert!(reflector.join().is_err(), "the panic is told");
}
