//! The bound of a store's objects (promise 6): lists and events bring no more, and held objects go
//! on.

use super::*;
use crate::sync::Mutex;

const MAX: usize = 3;

fn bounded() -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    let (store, mut writer) = store();
    writer.bound(MAX);
    (store, writer)
}

fn all(names: &str, version: &str) -> Vec<Arc<StoredObject<ConfigMap>>> {
    let names = names.split_whitespace();
    names.map(|name| held(name, version, &[])).collect()
}

fn change(writer: &mut StoreWriter<ConfigMap>, name: &str, version: &str) {
    let event = ObjectEvent::updated(held(name, version, &[]));
    writer.apply(event).unwrap();
}

#[test]
fn a_list_beyond_the_bound_brings_its_first_objects() {
    let (store, mut writer) = bounded();
    replace(&mut writer, all("a b c d e", "5"), &at("5")).unwrap();
    assert_eq!(names(&store), ["a", "b", "c"]);
    assert_eq!(writer.left_out(), 2);
    assert_eq!(store.by_index("label", "x").unwrap().len(), 0);
    replace(&mut writer, all("a b c", "5"), &at("6")).unwrap();
    assert_eq!(writer.left_out(), 0, "a list that fits has all");
}

/// Otherwise a handler would get a delete of an object that the server has.
#[test]
fn a_list_beyond_the_bound_keeps_what_is_held() {
    let (store, mut writer) = bounded();
    replace(&mut writer, all("m n o", "5"), &at("5")).unwrap();
    let mut staging = writer.begin();
    for object in all("a b c d n o p", "6") {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    let changes = writer.commit_and_tell(staging, &at("6")).unwrap();
    assert_eq!(names(&store), ["a", "n", "o"]);
    assert_eq!(writer.left_out(), 4);
    let told: Vec<_> = changes
        .iter()
        .map(|change| match change {
            Change::Appeared(object) => format!("+{}", object.name()),
            Change::Changed { new, .. } => format!("~{}", new.name()),
            Change::Gone(object) => format!("-{}", object.name()),
            Change::Remade { .. } => "a list has it as two changes".to_owned(),
        })
        .collect();
    assert_eq!(told, ["-m", "+a", "~n", "~o"]);
}

#[test]
fn a_list_of_none_of_what_is_held_fills_the_store_and_no_more_is_ever_staged_than_both() {
    let (store, mut writer) = bounded();
    replace(&mut writer, all("m n o", "5"), &at("5")).unwrap();
    let mut staging = writer.begin();
    for number in 0..100 {
        let event = ObjectEvent::added(held(&format!("a-{number:02}"), "6", &[]));
        writer.stage(&mut staging, event);
    }
    assert!(format!("{staging:?}").contains("items: 6"), "{staging:?}");
    writer.commit(staging, &at("6")).unwrap();
    assert_eq!(names(&store), ["a-00", "a-01", "a-02"]);
    assert_eq!(writer.left_out(), 97);
}

/// A streamed list changes and takes back objects before its end.
#[test]
fn a_streamed_list_beyond_the_bound_takes_changes_of_what_it_staged() {
    let (store, mut writer) = bounded();
    let mut staging = writer.begin();
    for object in all("a b c d", "5") {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    let changed = [held("a", "6", &[]), held("b", "7", &[])];
    for object in changed {
        writer.stage(&mut staging, ObjectEvent::updated(object));
    }
    let gone = ObjectEvent::deleted(held("c", "8", &[]));
    writer.stage(&mut staging, gone);
    writer.stage(&mut staging, ObjectEvent::added(held("e", "9", &[])));
    writer.commit(staging, &at("9")).unwrap();
    assert_eq!(names(&store), ["a", "b", "e"]);
    assert_eq!(version(&store, "a").as_deref(), Some("6"));
    assert_eq!(writer.left_out(), 1);
}

#[test]
fn a_watch_beyond_the_bound_adds_no_more_and_what_is_held_changes_and_goes() {
    let (store, mut writer) = bounded();
    replace(&mut writer, all("a b c", "5"), &at("5")).unwrap();
    for number in 0..1000 {
        add(&mut writer, held(&format!("new-{number}"), "6", &[]));
    }
    assert_eq!((store.len(), writer.left_out()), (MAX, 1000));
    // An undecodable object takes room, too. A change of an object that was left out does not count
    // again.
    writer
        .apply(ObjectEvent::added(undecodable("odd", "6")))
        .unwrap();
    change(&mut writer, "new-0", "7");
    assert_eq!((names(&store).len(), writer.left_out()), (MAX, 1001));
    change(&mut writer, "a", "8");
    assert_eq!(version(&store, "a").as_deref(), Some("8"));
    assert_eq!(store.resource_version().as_str(), "8");
    delete(&mut writer, held("new-1", "9", &[]));
    assert_eq!(store.len(), MAX, "one that is not held makes no room");
    delete(&mut writer, held("a", "10", &[]));
    change(&mut writer, "new-0", "11");
    add(&mut writer, held("late", "12", &[]));
    assert_eq!(names(&store), ["b", "c", "new-0"]);
    assert_eq!(store.refused(), 0, "that counts what is too old");
}

/// The program gets the content after each event that changed it, and nothing else.
#[test]
fn an_event_that_is_refused_pushes_nothing() {
    let (_store, writer) = bounded();
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let pushed = Arc::clone(&lengths);
    let mut writer = writer.with_snapshots(move |objects| {
        pushed.lock().push(objects.len());
    });
    replace(&mut writer, all("a b c", "5"), &at("5")).unwrap();
    add(&mut writer, held("d", "6", &[]));
    add(&mut writer, held("a", "4", &[]));
    delete(&mut writer, held("a", "4", &[]));
    change(&mut writer, "a", "7");
    delete(&mut writer, held("a", "8", &[]));
    assert_eq!(*lengths.lock(), [3, 3, 2]);
}
