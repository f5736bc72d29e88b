//! Lists taken in the midst of changes: each has the objects of its moment, whatever comes after.

use std::collections::BTreeMap;

use super::*;
use crate::tests::dice::Dice;

type Versions = BTreeMap<String, String>;

fn versions(objects: &[Arc<StoredObject<ConfigMap>>]) -> Versions {
    let versions = objects.iter().map(|object| {
        let version = object.metadata.resource_version.clone();
        (object.name().to_owned(), version.unwrap())
    });
    let found: Versions = versions.collect();
    assert_eq!(found.len(), objects.len(), "each object once");
    found
}

#[test]
fn a_list_has_the_objects_of_its_moment() {
    for (mut dice, _seed) in Dice::histories(20) {
        let (store, mut writer) = store();
        let mut wanted = Versions::new();
        let mut taken = Vec::new();
        let names = 1 + dice.roll(1000);
        for version in 1..1500_u32 {
            let (name, version) = (format!("map-{}", dice.roll(names)), version.to_string());
            match dice.roll(100) {
                0 => {
                    let all = wanted.keys().map(|name| held(name, &version, &[]));
                    replace(&mut writer, all.collect(), &at(&version)).unwrap();
                    for of in wanted.values_mut() {
                        version.clone_into(of);
                    }
                }
                1..30 => {
                    delete(&mut writer, held(&name, &version, &[]));
                    wanted.remove(&name);
                }
                30..35 => {
                    let event = ObjectEvent::updated(undecodable(&name, &version));
                    writer.apply(event).unwrap();
                    wanted.remove(&name);
                }
                _ => {
                    let event = ObjectEvent::updated(held(&name, &version, &[]));
                    writer.apply(event).unwrap();
                    wanted.insert(name, version);
                }
            }
            if dice.roll(20) == 0 {
                let snapshot = store.look(|state| state.items.snapshot());
                taken.push((snapshot, wanted.clone()));
            }
            if dice.roll(5) == 0 && !taken.is_empty() {
                let at = dice.roll(u64::try_from(taken.len()).unwrap());
                let (snapshot, wanted) = taken.swap_remove(usize::try_from(at).unwrap());
                assert_eq!(versions(&snapshot.objects()), wanted);
            }
        }
        for (snapshot, wanted) in taken {
            assert_eq!(versions(&snapshot.objects()), wanted);
        }
        assert_eq!(versions(&store.list()), wanted);
    }
}

/// A list that somebody holds keeps no object longer than the list.
#[test]
fn a_list_that_is_gone_holds_nothing() {
    let (store, mut writer) = store();
    for nth in 0..600 {
        add(&mut writer, held(&format!("map-{nth}"), "1", &[]));
    }
    let list = store.list();
    let weak: Vec<_> = list.iter().map(Arc::downgrade).collect();
    for object in &list {
        delete(&mut writer, held(object.name(), "2", &[]));
    }
    assert!(weak.iter().all(|object| object.strong_count() == 1));
    drop(list);
    assert!(weak.iter().all(|object| object.strong_count() == 0));
}
