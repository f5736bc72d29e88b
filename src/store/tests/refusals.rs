//! Refused news of objects that a list ended without an event (B18).

use super::*;

/// `a1` of another uid than [`held`] gives.
fn another(name: &str, version: &str) -> Arc<StoredObject<ConfigMap>> {
    let mut object = object(name, version, &[]);
    object.metadata.uid = Some(format!("another-{name}"));
    Arc::new(StoredObject::new(object))
}

/// More objects than the store handles under one lock.
const MANY: usize = 1_200;

#[test]
fn b18_an_old_event_of_what_a_list_went_without_is_refused() {
    let (store, mut writer) = store();
    let all: Vec<String> = (0..MANY).map(|number| format!("o-{number}")).collect();
    let objects = all.iter().map(|name| held(name, "5", &[])).collect();
    replace(&mut writer, objects, &at("5")).unwrap();
    replace(&mut writer, vec![held("o-0", "5", &[])], &at("9")).unwrap();
    for name in &all {
        let old = held(name, "4", &[]);
        add(&mut writer, Arc::clone(&old));
        writer.apply(ObjectEvent::updated(old)).unwrap();
        let old = ObjectEvent::updated(undecodable(name, "9"));
        if name != "o-0" {
            writer.apply(old).unwrap();
        }
    }
    assert_eq!(names(&store), ["o-0"]);
    assert_eq!(store.refused(), u64::try_from(MANY * 3 - 1).unwrap());
    add(&mut writer, held("o-1", "10", &[]));
    add(&mut writer, another("o-2", "4"));
    add(&mut writer, another("o-3", "11"));
    assert_eq!(
        names(&store),
        ["o-0", "o-1", "o-3"],
        "selected again, and a new object; one that was there before the list had ended by then"
    );
}

#[test]
fn b18_an_old_event_of_an_object_that_a_list_put_another_in_place_of_is_refused() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![held("a", "5", &[])], &at("5")).unwrap();
    replace(&mut writer, vec![another("a", "7")], &at("9")).unwrap();
    add(&mut writer, held("a", "6", &[]));
    assert_eq!(version(&store, "a").as_deref(), Some("7"));
}

#[test]
fn b18_an_old_event_of_an_object_that_an_event_put_another_in_place_of_is_refused() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "5", &[]));
    add(&mut writer, another("a", "7"));
    add(&mut writer, held("a", "6", &[]));
    assert_eq!(version(&store, "a").as_deref(), Some("7"));
    assert_eq!(store.refused(), 1);
}
