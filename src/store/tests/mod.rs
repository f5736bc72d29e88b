//! The contract of stores and indices, written through the sink as a reflector does.

mod bounds;
mod drops;
mod indices;
mod listers;
mod lists;
mod own_writes;
mod reads;
mod refusals;
mod snapshots;
mod waits;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::clock::Clock;
use crate::list_watch::{ObjectEvent, Undecodable};
use crate::object::{Object as _, ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::{Replacement, Sink};
use crate::store::{Change, Indexers, Store, StoreWriter};
use crate::sync::Arc;
use crate::tests::until::until;
use crate::worker::Worker;
use crate::{Error, ErrorKind};

pub(super) fn object(name: &str, version: &str, labels: &[&str]) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-{name}"));
    object.metadata.resource_version = Some(version.to_owned());
    let labels = labels
        .iter()
        .map(|label| ((*label).to_owned(), String::new()));
    object.metadata.labels = Some(labels.collect());
    object
}

pub(super) fn held(name: &str, version: &str, labels: &[&str]) -> Arc<StoredObject<ConfigMap>> {
    Arc::new(StoredObject::new(object(name, version, labels)))
}

pub(super) fn undecodable(name: &str, version: &str) -> Undecodable {
    Undecodable {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: version.into(),
        error: Error::new(ErrorKind::Undecodable, "data: expected a map"),
    }
}

/// Indexed by namespace and by the names of its labels.
pub(super) fn store() -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    Store::new(by_label().by_namespace(), Clock::system())
}

pub(super) fn by_label() -> Indexers<ConfigMap> {
    Indexers::new().with("label", |object: &ConfigMap| {
        object
            .metadata
            .labels
            .iter()
            .flatten()
            .map(|(label, _)| label.clone())
            .collect()
    })
}

pub(super) fn add(writer: &mut StoreWriter<ConfigMap>, object: Arc<StoredObject<ConfigMap>>) {
    writer.apply(ObjectEvent::added(object)).unwrap();
}

pub(super) fn delete(writer: &mut StoreWriter<ConfigMap>, object: Arc<StoredObject<ConfigMap>>) {
    writer.apply(ObjectEvent::deleted(object)).unwrap();
}

pub(super) fn at(version: &str) -> Replacement {
    Replacement {
        resource_version: version.into(),
        ..Replacement::default()
    }
}

pub(super) fn replace(
    writer: &mut StoreWriter<ConfigMap>,
    objects: Vec<Arc<StoredObject<ConfigMap>>>,
    of: &Replacement,
) -> Result<(), Error> {
    let mut staging = writer.begin();
    for object in objects {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    writer.commit(staging, of)
}

pub(super) fn names(store: &Store<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = store
        .keys()
        .iter()
        .map(|key| key.name().to_owned())
        .collect();
    names.sort();
    names
}

fn version(store: &Store<ConfigMap>, name: &str) -> Option<String> {
    store
        .get("shop", name)
        .unwrap()?
        .metadata
        .resource_version
        .clone()
}

/// `TestCache`: upserts, silent deletes, lookups, lists; each object can be read by its key (ST-4).
#[test]
fn st_1_st_3_st_7_the_contract_of_upstreams_store() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &[]));
    assert_eq!(version(&store, "a").as_deref(), Some("1"));
    add(&mut writer, held("a", "2", &[]));
    writer
        .apply(ObjectEvent::updated(held("b", "3", &[])))
        .unwrap();
    assert_eq!(
        names(&store),
        ["a", "b"],
        "added and modified are one upsert"
    );
    assert_eq!(version(&store, "a").as_deref(), Some("2"));
    assert_eq!((store.len(), store.list().len()), (2, 2));
    delete(&mut writer, held("never", "4", &[]));
    delete(&mut writer, held("a", "5", &[]));
    assert_eq!(names(&store), ["b"]);
    assert!(store.get("shop", "a").unwrap().is_none());
    assert!(store.get("", "b").unwrap().is_none(), "another namespace");
    let (one, two) = (store.list(), store.list());
    assert!(Arc::ptr_eq(&one[0], &two[0]), "what is read is shared");
}

/// A replacement is all or nothing, drops objects that it lacks, and the last of duplicates wins.
#[test]
fn st_5_ix_11_a_replacement_is_a_value() {
    let (store, mut writer) = store();
    add(&mut writer, held("old", "1", &["x"]));
    let mut staging = writer.begin();
    for object in [
        held("a", "2", &[]),
        held("a", "3", &["y"]),
        held("b", "4", &[]),
    ] {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    assert_eq!(names(&store), ["old"], "staged is not published");
    assert!(!store.has_synced());
    writer.commit(staging, &at("9")).unwrap();
    assert!(store.has_synced());
    assert_eq!(names(&store), ["a", "b"]);
    assert_eq!(version(&store, "a").as_deref(), Some("3"));
    assert_eq!(
        store.index_values("label"),
        ["y"],
        "of the old content, and of the duplicate, nothing is left"
    );
    assert_eq!(store.by_index("label", "y").unwrap().len(), 1);

    let mut dropped = writer.begin();
    writer.stage(&mut dropped, ObjectEvent::added(held("c", "10", &[])));
    drop(dropped);
    assert_eq!(
        names(&store),
        ["a", "b"],
        "a replacement that is dropped changes nothing"
    );
}

/// Concurrent readers see the one content or the other, in every way of reading. The model in
/// `schedules.rs` covers all orders.
#[test]
fn st_8_no_reader_sees_half_of_a_replacement() {
    let (store, mut writer) = store();
    let content = |version: &str| {
        let objects = ["a", "b", "c"].map(|name| held(name, version, &[version]));
        objects.to_vec()
    };
    replace(&mut writer, content("1"), &at("1")).unwrap();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let store = store.clone();
            Worker::spawn("t-reader", move |_| {
                until(|| {
                    let is_last = store.resource_version().as_str() == "400";
                    let list = store.list();
                    let one = list[0].resource_version();
                    assert_eq!(list.len(), 3);
                    assert!(list.iter().all(|object| object.resource_version() == one));
                    let values = store.index_values("label");
                    assert_eq!(values.len(), 1, "{values:?}");
                    let under = store.by_index("label", one.as_str()).unwrap();
                    assert!([0, 3].contains(&under.len()), "{}", under.len());
                    is_last
                });
            })
        })
        .collect();
    for version in 2..=400 {
        let version = version.to_string();
        replace(&mut writer, content(&version), &at(&version)).unwrap();
    }
    for reader in readers {
        reader.unwrap().join().unwrap();
    }
}

/// WL-3: objects that a stream takes back are not in the replacement.
#[test]
fn a_deletion_while_staging() {
    let (store, mut writer) = store();
    let mut staging = writer.begin();
    writer.stage(&mut staging, ObjectEvent::added(held("a", "2", &[])));
    writer.stage(&mut staging, ObjectEvent::added(held("b", "3", &[])));
    writer.stage(&mut staging, ObjectEvent::deleted(held("a", "4", &[])));
    writer.stage(&mut staging, ObjectEvent::deleted(held("never", "4", &[])));
    writer.commit(staging, &at("4")).unwrap();
    assert_eq!(names(&store), ["b"]);
}

/// A list's changes come in its order, each object once, apart from the deletions.
#[test]
fn ct_6_the_changes_of_a_list_come_in_its_order() {
    let (_store, mut writer) = store();
    let listed = ["gone", "same", "changed", "again"].map(|name| held(name, "2", &[]));
    replace(&mut writer, listed.into(), &at("2")).unwrap();
    let mut staging = writer.begin();
    for object in [
        ("new", "5"),
        ("back", "5"),
        ("changed", "6"),
        ("same", "2"),
        ("taken", "5"),
    ]
    .map(|(name, version)| held(name, version, &[]))
    {
        writer.stage(&mut staging, ObjectEvent::added(object));
    }
    for object in [held("back", "7", &[]), held("taken", "7", &[])] {
        writer.stage(&mut staging, ObjectEvent::deleted(object));
    }
    writer.stage(&mut staging, ObjectEvent::added(held("back", "8", &[])));
    let mut again = object("again", "2", &[]);
    again.metadata.uid = Some("another".to_owned());
    let again = Arc::new(StoredObject::new(again));
    writer.stage(&mut staging, ObjectEvent::added(again));
    let changes = writer.commit_and_tell(staging, &at("8")).unwrap();
    let told = changes.iter().map(|change| match change {
        Change::Appeared(object) => format!("+{object:?}"),
        Change::Changed { old, new } => format!("{old:?} > {new:?}"),
        Change::Gone(object) => format!("-{object:?}"),
        Change::Remade { .. } => "a list has it as two changes".to_owned(),
    });
    let mut told: Vec<_> = told.collect();
    told[..2].sort();
    assert_eq!(
        told,
        [
            "-ConfigMap shop/again @2",
            "-ConfigMap shop/gone @2",
            "+ConfigMap shop/new @5",
            "+ConfigMap shop/back @8",
            "ConfigMap shop/changed @2 > ConfigMap shop/changed @6",
            "+ConfigMap shop/again @2",
        ]
    );
}

/// `TestThreadSafeStoreRV`, `TestStoreResourceVersion`: the version follows adds, deletes,
/// replacements and bookmarks. Unlike in client-go it never goes back, and an object without a
/// version does not empty it.
#[test]
fn st_9_ix_12_the_version_of_the_content() {
    let (store, mut writer) = store();
    let now = |store: &Store<ConfigMap>| store.resource_version().as_str().to_owned();
    assert_eq!(now(&store), "");
    add(&mut writer, held("a", "5", &[]));
    assert_eq!(now(&store), "5");
    delete(&mut writer, held("never", "7", &[]));
    assert_eq!(now(&store), "7", "a deletion of nothing moves it");
    assert_eq!(names(&store), ["a"]);
    add(&mut writer, held("b", "6", &[]));
    assert_eq!(now(&store), "7", "never back");
    add(&mut writer, held("c", "", &[]));
    assert_eq!(
        now(&store),
        "7",
        "an object without a version says nothing of it"
    );
    writer.bookmark(&ResourceVersion::from("9"));
    assert_eq!(now(&store), "9");
    replace(&mut writer, vec![], &at("12")).unwrap();
    assert_eq!(now(&store), "12");
}

/// B18: an older list is refused unless it is of the most recent, or the history expired; that
/// resets the floor.
#[test]
fn older_lists() {
    let (store, mut writer) = store();
    replace(&mut writer, vec![held("a", "20", &[])], &at("20")).unwrap();
    let error = replace(&mut writer, vec![held("a", "10", &[])], &at("10")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert_eq!(
        error.to_string(),
        "the list at version 10 is older than version 20"
    );
    assert_eq!(version(&store, "a").as_deref(), Some("20"));
    assert_eq!(store.refused(), 1);
    let consistent = Replacement {
        consistent: true,
        ..at("10")
    };
    replace(&mut writer, vec![held("a", "10", &[])], &consistent).unwrap();
    assert_eq!(version(&store, "a").as_deref(), Some("10"));
    add(&mut writer, held("a", "11", &[]));
    assert_eq!(
        version(&store, "a").as_deref(),
        Some("11"),
        "the floor was reset"
    );
    let expired = Replacement {
        history_expired: true,
        ..at("5")
    };
    replace(&mut writer, vec![held("a", "5", &[])], &expired).unwrap();
    assert_eq!(version(&store, "a").as_deref(), Some("5"));
}

/// B12: an object that does not decode keeps the last good state of the same uid, through events
/// and lists.
#[test]
fn the_last_good_state_outlives_a_list() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &["x"]));
    writer
        .apply(ObjectEvent::updated(undecodable("a", "2")))
        .unwrap();
    assert_eq!(
        store.get("shop", "a").unwrap_err().to_string(),
        "data: expected a map"
    );
    assert!(store.by_index("label", "x").unwrap().is_empty());
    let mut staging = writer.begin();
    writer.stage(&mut staging, ObjectEvent::added(undecodable("a", "2")));
    writer.commit(staging, &at("3")).unwrap();
    let last = store.get_last_good("shop", "a").unwrap();
    assert_eq!(last.metadata.resource_version.as_deref(), Some("1"));
    writer
        .apply(ObjectEvent::updated(undecodable("a", "1")))
        .unwrap();
    assert_eq!(
        store.refused(),
        1,
        "B18 holds for what does not decode, too"
    );

    let mut other = undecodable("a", "4");
    other.uid = "another".to_owned();
    writer.apply(ObjectEvent::updated(other)).unwrap();
    assert!(
        store.get_last_good("shop", "a").is_none(),
        "not of another object"
    );
    writer
        .apply(ObjectEvent::deleted(undecodable("a", "9")))
        .unwrap();
    assert!(store.is_empty());
}

/// The memory peak of a relist: unchanged objects are shared, and their new copies dropped while
/// the list is read.
#[test]
fn unchanged_objects_are_shared_while_they_are_staged() {
    let (store, mut writer) = store();
    let (same, changed) = (held("same", "1", &[]), held("changed", "1", &[]));
    replace(&mut writer, vec![Arc::clone(&same), changed], &at("1")).unwrap();
    let copy = held("same", "1", &[]);
    let watched = Arc::downgrade(&copy);
    let mut staging = writer.begin();
    writer.stage(&mut staging, ObjectEvent::added(copy));
    assert!(
        watched.upgrade().is_none(),
        "the copy is gone before the next item comes"
    );
    writer.stage(&mut staging, ObjectEvent::added(held("changed", "2", &[])));
    writer.commit(staging, &at("2")).unwrap();
    assert!(Arc::ptr_eq(
        &store.get("shop", "same").unwrap().unwrap(),
        &same
    ));
    assert_eq!(version(&store, "changed").as_deref(), Some("2"));

    let mut unversioned = object("same", "", &[]);
    unversioned.metadata.resource_version = None;
    replace(
        &mut writer,
        vec![Arc::new(StoredObject::new(unversioned))],
        &at("3"),
    )
    .unwrap();
    assert_eq!(
        version(&store, "same"),
        None,
        "without a version nothing is known to be the same"
    );
}

#[test]
fn debug_prints_no_content() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &[]));
    assert_eq!(
        format!("{store:?}"),
        "Store \
         { kind: \"ConfigMap\", objects: 1, synced: false, resource_version: \
             ResourceVersion(\"1\"), .. }"
    );
}
