//! The mutation cache: own writes are seen at once, and never after the store has passed them
//! (MX-4).

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::clock::FakeClock;
use crate::store::{MutationCache, MutationCacheOptions};
use crate::tests::dice::Dice;

fn cache() -> (MutationCache<ConfigMap>, StoreWriter<ConfigMap>) {
    let (store, writer) = store();
    (
        MutationCache::new(store, MutationCacheOptions::default()),
        writer,
    )
}

fn shown(cache: &MutationCache<ConfigMap>, name: &str) -> Option<String> {
    cache
        .get("shop", name)
        .unwrap()?
        .metadata
        .resource_version
        .clone()
}

fn under(cache: &MutationCache<ConfigMap>, label: &str) -> Vec<String> {
    let mut found: Vec<_> = cache
        .by_index("label", label)
        .unwrap()
        .iter()
        .map(|object| {
            let version = object.metadata.resource_version.as_deref().unwrap();
            format!("{}@{version}", object.key().name())
        })
        .collect();
    found.sort();
    found
}

fn again(name: &str, uid: &str, version: &str) -> ConfigMap {
    let mut object = object(name, version, &[]);
    object.metadata.uid = Some(uid.to_owned());
    object
}

/// `TestMutationCacheOnAddOrUpdate`.
#[test]
fn mx_4_an_own_write_is_shown_until_the_store_has_it_or_something_newer() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &[]));
    cache.mutated(object("a", "7", &[])).unwrap();
    assert_eq!(shown(&cache, "a").as_deref(), Some("7"));
    assert_eq!(version(cache.store(), "a").as_deref(), Some("5"));

    add(&mut writer, held("a", "6", &[]));
    assert_eq!(shown(&cache, "a").as_deref(), Some("7"), "6 came before it");
    add(&mut writer, held("a", "8", &[]));
    assert_eq!(shown(&cache, "a").as_deref(), Some("8"));
    assert_eq!(cache.pending(), 0, "what is caught up with is let go");
}

#[test]
fn mx_4_a_created_object_is_shown_before_the_store_knows_it() {
    let (cache, mut writer) = cache();
    replace(&mut writer, vec![], &at("3")).unwrap();
    cache.mutated(object("new", "4", &["blue"])).unwrap();
    assert_eq!(shown(&cache, "new").as_deref(), Some("4"));
    assert_eq!(under(&cache, "blue"), ["new@4"]);
    assert_eq!(cache.list().len(), 1);

    // Another client deleted it meanwhile: the watch, or a bookmark, is past the write, and the
    // object is gone.
    writer.bookmark(&"9".into());
    assert_eq!(shown(&cache, "new"), None);
    assert!(under(&cache, "blue").is_empty() && cache.list().is_empty());
    assert_eq!(cache.pending(), 0);
}

/// `TestMutationCacheOnDelete`, `TestMutationCacheOnDeleteClearsStaleMutation`.
#[test]
fn mx_4_the_stores_deletion_ends_an_older_own_write() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &[]));
    cache.mutated(object("a", "7", &[])).unwrap();
    delete(&mut writer, held("a", "8", &[]));
    assert_eq!(shown(&cache, "a"), None);
}

/// `TestMutationCacheUpdateConcurrentDelete`: the answer to an update comes after the watch
/// reported the end.
#[test]
fn mx_4_a_late_answer_does_not_bring_a_deleted_object_back() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &[]));
    delete(&mut writer, held("a", "8", &[]));
    cache.mutated(object("a", "7", &[])).unwrap();
    assert_eq!((shown(&cache, "a"), cache.pending()), (None, 0));
}

/// `TestMutationCacheUpdateConcurrentRecreate`.
#[test]
fn mx_4_a_late_answer_does_not_hide_an_object_made_anew() {
    let (cache, mut writer) = cache();
    let anew = Arc::new(StoredObject::new(again("a", "second", "9")));
    add(&mut writer, held("a", "5", &[]));
    delete(&mut writer, held("a", "8", &[]));
    add(&mut writer, anew);
    cache.mutated(object("a", "7", &[])).unwrap();
    assert_eq!(shown(&cache, "a").as_deref(), Some("9"));
}

#[test]
fn mx_4_an_older_answer_does_not_take_a_newer_ones_place() {
    let (cache, mut writer) = cache();
    replace(&mut writer, vec![], &at("3")).unwrap();
    cache.mutated(object("a", "7", &[])).unwrap();
    cache.mutated(object("a", "6", &[])).unwrap();
    assert_eq!(shown(&cache, "a").as_deref(), Some("7"));
}

#[test]
fn mx_4_an_own_deletion_hides_that_object_and_no_other() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &["blue"]));
    add(&mut writer, held("b", "6", &["blue"]));
    cache.deleted(&object("a", "5", &[]));
    assert_eq!(shown(&cache, "a"), None);
    assert_eq!(under(&cache, "blue"), ["b@6"]);
    assert_eq!(cache.list().len(), 1);

    // An answer to an update that was on its way when the delete was made.
    cache.mutated(object("a", "7", &["blue"])).unwrap();
    assert_eq!(shown(&cache, "a"), None, "the end of the same object stays");

    delete(&mut writer, held("a", "8", &["blue"]));
    let anew = Arc::new(StoredObject::new(again("a", "second", "9")));
    add(&mut writer, anew);
    assert_eq!(shown(&cache, "a").as_deref(), Some("9"), "another object");
}

#[test]
fn mx_4_an_own_deletion_hides_an_object_that_the_watch_brings_late() {
    let (cache, mut writer) = cache();
    replace(&mut writer, vec![], &at("3")).unwrap();
    cache.mutated(object("a", "4", &[])).unwrap();
    cache.deleted(&object("a", "4", &[]));
    assert_eq!(shown(&cache, "a"), None);
    add(&mut writer, held("a", "4", &[]));
    assert_eq!(shown(&cache, "a"), None, "its end is known");
    cache.deleted(&again("b", "another", "3"));
    cache.mutated(object("b", "5", &[])).unwrap();
    assert_eq!(shown(&cache, "b").as_deref(), Some("5"));
    cache.deleted(&again("b", "another", "4"));
    assert_eq!(shown(&cache, "b").as_deref(), Some("5"));
}

#[test]
fn mx_4_indices_go_by_the_values_of_the_own_write() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &["blue"]));
    add(&mut writer, held("b", "6", &["blue", "red"]));
    cache.mutated(object("a", "7", &["red"])).unwrap();
    assert_eq!(under(&cache, "blue"), ["b@6"]);
    assert_eq!(under(&cache, "red"), ["a@7", "b@6"]);
    let unknown = cache.by_index("color", "red").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "Index with name color does not exist",
        "a store always can have indices, so there is no cache without (MX-4)"
    );
}

/// IX-6: as in the store itself, an index that panics at an object does not list it, and all else
/// goes on.
#[test]
fn mx_4_ix_6_an_index_that_panics_at_an_own_write_does_not_list_it() {
    let indexers = Indexers::new().with("fragile", |object: &ConfigMap| {
        assert_ne!(object.key().name(), "bad", "of the index");
        vec!["all".to_owned()]
    });
    let (store, mut writer) = Store::new(indexers, Clock::system());
    let cache = MutationCache::new(store, MutationCacheOptions::default());
    add(&mut writer, held("a", "5", &[]));
    cache.mutated(object("bad", "7", &[])).unwrap();
    let found = cache.by_index("fragile", "all").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(cache.list().len(), 2);
}

/// A deletion that the store has learned of replaces no other write.
#[test]
fn mx_4_an_own_deletion_is_let_go_once_the_store_is_past_it() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &[]));
    cache.deleted(&object("a", "5", &[]));
    assert_eq!((shown(&cache, "a"), cache.pending()), (None, 1));
    delete(&mut writer, held("a", "8", &[]));
    assert_eq!((shown(&cache, "a"), cache.pending()), (None, 0));

    cache.mutated(object("b", "9", &[])).unwrap();
    for number in 0..200 {
        let name = format!("gone-{number}");
        cache.deleted(&object(&name, "8", &[]));
    }
    assert_eq!(
        shown(&cache, "b").as_deref(),
        Some("9"),
        "still an own write"
    );
}

#[test]
fn mx_4_a_write_whose_place_the_store_cannot_tell_is_refused() {
    let (cache, _writer) = cache();
    for odd in ["", "odd", "7x"] {
        let refused = cache.mutated(object("a", odd, &[])).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        let text = refused.to_string();
        let expected = format!("ConfigMap shop/a: metadata.resourceVersion {odd:?}");
        assert!(text.starts_with(&expected), "{text}");
    }
    assert_eq!(shown(&cache, "a"), None);
}

/// Without a version, its uid alone tells which object was meant.
#[test]
fn mx_4_an_own_deletion_without_a_version_hides_no_new_object() {
    let (cache, mut writer) = cache();
    add(&mut writer, held("a", "5", &[]));
    let mut last = object("a", "", &[]);
    last.metadata.resource_version = None;
    cache.deleted(&last);
    assert_eq!(shown(&cache, "a"), None);
    add(
        &mut writer,
        Arc::new(StoredObject::new(again("a", "next", "7"))),
    );
    assert_eq!(shown(&cache, "a").as_deref(), Some("7"));
    assert!(under(&cache, "blue").is_empty() && cache.list().len() == 1);
}

#[test]
fn mx_4_writes_end_by_age_and_by_number() {
    let time = FakeClock::new();
    let (store, mut writer) = Store::new(by_label(), time.clone().into());
    let options = MutationCacheOptions::default()
        .ttl(Duration::from_secs(10))
        .capacity(2);
    let cache = MutationCache::new(store, options);
    replace(&mut writer, vec![], &at("1")).unwrap();

    cache.mutated(object("a", "5", &[])).unwrap();
    time.advance(Duration::from_secs(10));
    assert!(shown(&cache, "a").is_some(), "equal age is not too old");
    time.advance(Duration::from_millis(1));
    assert!(shown(&cache, "a").is_none() && cache.list().is_empty());
    assert_eq!(cache.pending(), 0);

    for (name, version) in [("b", "6"), ("c", "7"), ("d", "8")] {
        cache.mutated(object(name, version, &[])).unwrap();
    }
    assert_eq!(cache.pending(), 2);
    assert_eq!(shown(&cache, "b"), None, "the oldest had to go");
    assert!(shown(&cache, "c").is_some() && shown(&cache, "d").is_some());
}

#[test]
fn mx_4_what_only_writers_need_is_left_out_and_nothing_is_printed() {
    let (cache, _writer) = cache();
    let mut written = object("a", "5", &[]);
    written.metadata.managed_fields = Some(vec![]);
    written.data = Some([("password".to_owned(), "canary".to_owned())].into());
    cache.mutated(written).unwrap();
    let read = cache.get("shop", "a").unwrap().unwrap();
    assert!(read.metadata.managed_fields.is_none());
    assert!(!format!("{cache:?} {read:?}").contains("canary"));
}

/// The cache gets the own writes of a server's history at once, and the store gets the whole
/// history later: reads never go back, always show the own writes, and end with the server's state.
#[test]
fn mx_4_reads_of_random_histories_never_go_back() {
    let (mut dice, _seed) = Dice::new();
    for _history in 0..200 {
        let (cache, mut writer) = cache();
        replace(&mut writer, vec![], &at("1")).unwrap();
        let mut server: BTreeMap<&str, ConfigMap> = BTreeMap::new();
        let mut on_the_way = std::collections::VecDeque::new();
        // The oldest state that a read of a name may show: its version, and whether it is the
        // object's end.
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for version in 2_u64..60 {
            let name = ["a", "b", "c"][usize::try_from(dice.roll(3)).unwrap()];
            let own = dice.roll(2) == 0;
            let text = version.to_string();
            match server.remove(name) {
                Some(mut last) if dice.roll(3) == 0 => {
                    if own {
                        cache.deleted(&last);
                        assert_eq!(shown(&cache, name), None, "own deletion of {name}");
                        seen.insert(name, version);
                    }
                    last.metadata.resource_version = Some(text);
                    on_the_way.push_back(ObjectEvent::deleted(Arc::new(StoredObject::new(last))));
                }
                before => {
                    let uid = before.map_or_else(
                        || format!("{name}-{version}"),
                        |before| before.metadata.uid.unwrap(),
                    );
                    let now = again(name, &uid, &text);
                    if own {
                        cache.mutated(now.clone()).unwrap();
                        assert_eq!(shown(&cache, name).as_ref(), Some(&text), "own write");
                        seen.insert(name, version);
                    }
                    on_the_way.push_back(ObjectEvent::updated(Arc::new(StoredObject::new(
                        now.clone(),
                    ))));
                    server.insert(name, now);
                }
            }
            for _ in 0..dice.roll(3) {
                if let Some(event) = on_the_way.pop_front() {
                    writer.apply(event).unwrap();
                }
            }
            for name in ["a", "b", "c"] {
                if let Some(now) = shown(&cache, name) {
                    let now: u64 = now.parse().unwrap();
                    let least = seen.entry(name).or_default();
                    assert!(now >= *least, "{name} went back from {least} to {now}");
                    *least = now;
                }
            }
        }
        for event in on_the_way {
            writer.apply(event).unwrap();
        }
        let mut left: Vec<_> = cache.list().iter().map(|object| object.key()).collect();
        left.sort();
        let there: Vec<_> = server
            .keys()
            .map(|name| ObjectKey::new("shop", *name))
            .collect();
        assert_eq!(left, there);
    }
}
