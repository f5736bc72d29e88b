//! Indices: IX-1..IX-12, and the tables of upstream's index tests.

use super::*;

fn under(store: &Store<ConfigMap>, index: &str, value: &str) -> Vec<String> {
    let keys = store.index_keys(index, value).unwrap();
    keys.iter().map(|key| key.name().to_owned()).collect()
}

fn values(store: &Store<ConfigMap>, index: &str) -> Vec<String> {
    let mut values = store.index_values(index);
    values.sort();
    values
}

/// An unknown index is an error that names it, an unknown value is nothing.
#[test]
fn ix_2_ix_3_unknown_names_and_values() {
    let (store, _writer) = store();
    let text = "Index with name never does not exist";
    assert_eq!(store.by_index("never", "x").unwrap_err().to_string(), text);
    assert_eq!(
        store.index_keys("never", "x").unwrap_err().to_string(),
        text
    );
    let probe = object("probe", "1", &[]);
    assert_eq!(store.like("never", &probe).unwrap_err().to_string(), text);
    assert!(store.index_values("never").is_empty());
    assert!(store.by_index("label", "never").unwrap().is_empty());
}

/// `TestMultiIndexKeys`, `TestGetIndexFuncValues`: several values per object, across updates and
/// deletions.
#[test]
fn ix_1_ix_4_objects_with_several_values() {
    let (store, mut writer) = store();
    add(&mut writer, held("one", "1", &["ernie", "bert"]));
    add(&mut writer, held("two", "2", &["bert", "oscar"]));
    add(&mut writer, held("tre", "3", &["ernie", "elmo"]));
    let table = [
        ("ernie", vec!["one", "tre"]),
        ("bert", vec!["one", "two"]),
        ("elmo", vec!["tre"]),
        ("oscar", vec!["two"]),
        ("grover", vec![]),
    ];
    for (value, expected) in &table {
        assert_eq!(under(&store, "label", value), *expected, "{value}");
        assert_eq!(
            store.by_index("label", value).unwrap().len(),
            expected.len()
        );
    }
    assert_eq!(values(&store, "label"), ["bert", "elmo", "ernie", "oscar"]);

    let probe = object("probe", "9", &["ernie", "elmo", "nobody"]);
    let like: Vec<_> = store.like("label", &probe).unwrap();
    assert_eq!(like.len(), 2, "each once, although `tre` shares two values");

    delete(&mut writer, held("tre", "4", &["ernie", "elmo"]));
    assert_eq!(under(&store, "label", "ernie"), ["one"]);
    assert!(under(&store, "label", "elmo").is_empty());
    writer
        .apply(ObjectEvent::updated(held("two", "5", &["bert"])))
        .unwrap();
    assert!(under(&store, "label", "oscar").is_empty());
    assert_eq!(under(&store, "label", "bert"), ["one", "two"]);
}

/// `TestThreadSafeStoreIndexingFunctionsWithMultipleValues`: transitions between none and several
/// values. A value that stays is still there (IX-8).
#[test]
fn ix_1_ix_8_transitions_between_sets_of_values() {
    let (store, mut writer) = store();
    let table: [&[&str]; 8] = [
        &["foo"],
        &["foo", "bar"],
        &["bar", "foo"],
        &["bar", "baz"],
        &[],
        &["foo"],
        &["foo", "foo", "foo"],
        &["bar"],
    ];
    for (step, labels) in table.iter().enumerate() {
        let version = (step + 1).to_string();
        add(&mut writer, held("a", &version, labels));
        let mut expected: Vec<_> = labels.to_vec();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(values(&store, "label"), expected, "step {step}");
        for label in expected {
            assert_eq!(under(&store, "label", label), ["a"]);
        }
    }
    delete(&mut writer, held("a", "99", &[]));
    assert!(values(&store, "label").is_empty());
}

/// `TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex` and
/// `...AddKeepsNonEmptySetPostDeleteFromIndex`.
#[test]
fn ix_8_a_value_nobody_has_leaves_no_trace() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &["x"]));
    add(&mut writer, held("b", "2", &["x"]));
    delete(&mut writer, held("a", "3", &[]));
    assert_eq!(
        under(&store, "label", "x"),
        ["b"],
        "the set is kept while somebody is in it"
    );
    delete(&mut writer, held("b", "4", &[]));
    assert!(store.index_values("label").is_empty());
    for round in 0_u32..100 {
        let version = (round + 10).to_string();
        add(
            &mut writer,
            held("a", &version, &[&format!("value-{round}")]),
        );
    }
    assert_eq!(
        store.index_values("label"),
        ["value-99"],
        "memory does not grow with the past"
    );
}

/// The store remembers an object's values, so no stale key remains, whatever the deletion carries.
#[test]
fn ix_7_a_deletion_needs_not_carry_the_values() {
    let (store, mut writer) = store();
    add(&mut writer, held("a", "1", &["x", "y"]));
    delete(&mut writer, held("a", "2", &["other"]));
    assert!(store.index_values("label").is_empty());
}

/// `TestIndexer`: an index added to a running store covers the present objects, and follows
/// changes.
#[test]
fn ix_9_indices_of_a_running_store() {
    let (store, mut writer) =
        Store::<ConfigMap>::new(Indexers::new().by_namespace(), Clock::system());
    add(&mut writer, held("a", "1", &["x"]));
    writer
        .apply(ObjectEvent::updated(undecodable("bad", "2")))
        .unwrap();
    store.add_indexers(&by_label()).unwrap();
    assert_eq!(under(&store, "label", "x"), ["a"]);
    assert_eq!(under(&store, "namespace", "shop"), ["a"]);
    add(&mut writer, held("b", "3", &["x"]));
    assert_eq!(under(&store, "label", "x"), ["a", "b"]);
    let error = store
        .add_indexers(&by_label().with("new", |_| vec![]))
        .unwrap_err();
    assert_eq!(error.to_string(), "indexer conflict: label");
    assert!(store.index_keys("new", "x").is_err(), "no change");
}

/// An index added while a replacement is staged is in the replacement.
#[test]
fn ix_9_ix_11_an_index_added_while_a_list_is_read() {
    let (store, mut writer) = Store::<ConfigMap>::new(Indexers::new(), Clock::system());
    add(&mut writer, held("a", "1", &["x"]));
    let mut staging = writer.begin();
    writer.stage(&mut staging, ObjectEvent::added(held("a", "1", &["x"])));
    store.add_indexers(&by_label()).unwrap();
    writer.stage(&mut staging, ObjectEvent::added(held("b", "2", &["x"])));
    writer.commit(staging, &at("3")).unwrap();
    assert_eq!(under(&store, "label", "x"), ["a", "b"]);
}

/// Cluster-scoped objects stand under the empty namespace.
#[test]
fn key_11_the_index_by_namespace() {
    let (store, mut writer) = store();
    let mut cluster = object("c", "1", &[]);
    cluster.metadata.namespace = None;
    add(&mut writer, Arc::new(StoredObject::new(cluster)));
    add(&mut writer, held("a", "2", &[]));
    assert_eq!(values(&store, crate::store::NAMESPACE_INDEX), ["", "shop"]);
    assert_eq!(under(&store, "namespace", ""), ["c"]);
    assert!(store.get("", "c").unwrap().is_some());
}

/// The keys come sorted by namespace and name, in whatever order they went in.
#[test]
fn ix_5_the_keys_of_an_index_come_sorted() {
    let (store, mut writer) = store();
    let names = ["m", "c", "x", "a", "q", "b", "y", "k"];
    for namespace in ["shop", "bank"] {
        for name in names {
            let mut object = object(name, "1", &["x"]);
            object.metadata.namespace = Some(namespace.to_owned());
            add(&mut writer, Arc::new(StoredObject::new(object)));
        }
    }
    let keys = store.index_keys("label", "x").unwrap();
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let mut expected: Vec<_> = ["bank", "shop"]
        .into_iter()
        .flat_map(|namespace| names.map(|name| format!("{namespace}/{name}")))
        .collect();
    expected.sort();
    assert_eq!(keys, expected);
}

/// IX-6 is better here: if an index function panics, that index does not list the object. The panic
/// is counted and leaves nothing half done, for a change, a list or a new index.
#[test]
fn ix_6_an_index_function_that_panics_leaves_nothing_half_done() {
    let fussy = || {
        by_label().with("fussy", |object: &ConfigMap| {
            assert_ne!(object.metadata.resource_version.as_deref(), Some("13"));
            vec!["fine".to_owned()]
        })
    };
    let (store, mut writer) = Store::new(fussy(), Clock::system());
    add(&mut writer, held("a", "1", &["x"]));
    add(&mut writer, held("a", "13", &["y"]));
    assert_eq!(version(&store, "a").as_deref(), Some("13"));
    assert_eq!(values(&store, "label"), ["y"], "the other index has it");
    assert!(values(&store, "fussy").is_empty() && store.index_panics() == 1);
    let bad = vec![held("b", "13", &["z"]), held("c", "14", &[])];
    replace(&mut writer, bad, &at("14")).unwrap();
    assert_eq!(names(&store), ["b", "c"]);
    assert_eq!(under(&store, "fussy", "fine"), ["c"]);
    assert_eq!(store.index_panics(), 2);
    add(&mut writer, held("b", "15", &["y"]));
    assert_eq!(under(&store, "fussy", "fine"), ["b", "c"], "it goes on");
    let like = store.like("fussy", &object("x", "13", &[])).unwrap_err();
    assert_eq!(like.kind(), ErrorKind::Panicked);
    let text = "the function of index fussy, at ConfigMap shop/x, panicked";
    assert_eq!(like.to_string(), text, "nothing that was formatted");

    let (store, mut writer) = Store::new(Indexers::new(), Clock::system());
    add(&mut writer, held("a", "13", &["x"]));
    let error = store.add_indexers(&fussy()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert!(
        store.index_keys("label", "x").is_err(),
        "no index was added"
    );
    assert!(store.get("shop", "a").unwrap().is_some());
}
