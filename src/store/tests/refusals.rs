//! What a store refuses of objects that a list ended, which no event told of (B18).

use super::*;
use crate::list_watch::Listed;

/// `a1` of another uid than [`held`] gives.
fn another(name: &str, version: &str) -> Arc<Held<ConfigMap>> {
    let mut object = object(name, version, &[]);
    object.metadata.uid = Some(format!("another-{name}"));
    Arc::new(Held::new(object))
}

/// More objects than are looked at under one lock.
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
        writer.apply(ObjectEvent::modified(old)).unwrap();
        let old = ObjectEvent::modified(undecodable(name, "9"));
        if name != "o-0" {
            writer.apply(old).unwrap();
        }
    }
    assert_eq!(names(&store), ["o-0"]);
    assert_eq!(store.refused(), u64::try_from(MANY * 3 - 1).unwrap());
    add(&mut writer, held("o-1", "10", &[]));
    add(&mut writer, another("o-2", "4"));
    assert_eq!(
        names(&store),
        ["o-0", "o-1", "o-2"],
        "selected again, and another object of that name"
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

/// The same where a list comes object by object, as out of a queue.
#[test]
fn b18_an_old_event_of_one_object_taken_out_by_a_list_is_refused() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![held("a", "5", &[])], &at("5")).unwrap();
    assert!(writer.admits(&at("9")));
    assert!(writer.remove_unlisted(&key("a"), &at("9")).is_some());
    assert!(writer.remove_unlisted(&key("a"), &at("9")).is_none());
    add(&mut writer, held("a", "8", &[]));
    assert!(store.is_empty());

    replace(&mut writer, vec![held("b", "10", &[])], &at("10")).unwrap();
    let listed = Listed::Object(another("b", "11"));
    assert!(writer.put_listed(listed).is_some());
    add(&mut writer, held("b", "11", &[]));
    let now = store.get("shop", "b").unwrap().unwrap();
    assert_eq!(now.uid(), "another-b");
}

/// Out of a queue, a later list may be judged first: for a deletion of its that waited in front of an earlier list.
#[test]
fn b18_a_list_that_is_judged_after_a_later_one_forgets_no_end() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![held("a", "5", &[])], &at("5")).unwrap();
    let expired = |version: &str| Replacement {
        history_expired: true,
        ..at(version)
    };
    assert!(writer.admits(&expired("28")));
    assert!(writer.remove_unlisted(&key("a"), &expired("28")).is_some());
    assert!(writer.admits(&expired("26")));
    assert!(!writer.settle(&"26".into()), "the content was at 5");
    add(&mut writer, another("a", "27"));
    add(&mut writer, held("a", "18", &[]));
    let now = store.get("shop", "a").unwrap().unwrap();
    assert_eq!(now.uid(), "another-a", "what has ended stays so");

    // A server that did go back in time has its objects again.
    assert!(writer.admits(&expired("20")));
    add(&mut writer, held("a", "21", &[]));
    let now = store.get("shop", "a").unwrap().unwrap();
    assert_eq!(now.uid(), "uid-a");
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}
