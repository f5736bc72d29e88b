//! An outlet on a disk that is full, read-only, or gone: what the caller sees, that old files stay
//! whole, and that it is right again once there is room. A directory that was taken away needs
//! another outlet.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::ErrorKind;
use kubecache::object::ObjectKey;
use kubecache::outlet::{Outlet, OutletOptions};

use super::support::small_disk::{SmallDisk, alone_with_mounts, small_disk};

fn map(text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(
            ["a", "b"]
                .map(|key| (key.to_owned(), text.to_owned()))
                .into(),
        ),
        ..ConfigMap::default()
    }
}

fn assert_holds(directory: &Path, text: &str) {
    for key in ["a", "b"] {
        let file = directory.join("shop/configmaps/settings").join(key);
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
}

fn assert_refused(outlet: &Outlet, object: &ConfigMap, why: &str) {
    let failed = outlet.publish(object).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Resources, "{failed}");
    let text = failed.to_string();
    assert!(
        text.contains("shop/configmaps/settings") && text.contains(why),
        "{text}"
    );
}

#[test]
fn an_outlet_keeps_old_files_whole_on_a_disk_that_is_full_read_only_or_gone() {
    alone_with_mounts(|| keeps_old_files_whole(&small_disk()));
}

fn keeps_old_files_whole(disk: &SmallDisk) {
    let directory = &*disk.directory;
    let outlet = Outlet::open(OutletOptions::new(directory)).unwrap();
    assert!(outlet.publish(&map("old")).unwrap());

    let large = map(&"x".repeat(60_000));
    for _ in 0..3 {
        assert_refused(&outlet, &large, "No space left on device");
        assert_holds(directory, "old");
    }
    disk.remount("size=1m");
    assert!(outlet.publish(&large).unwrap());
    assert_holds(directory, &"x".repeat(60_000));

    disk.remount("ro");
    assert_refused(&outlet, &map("new"), "Read-only file system");
    // The marker says whose it is, though nobody can write there who has it now.
    drop(outlet);
    let outlet = Outlet::open(OutletOptions::new(directory)).unwrap();
    assert_refused(&outlet, &map("new"), "Read-only file system");
    assert_holds(directory, &"x".repeat(60_000));
    disk.remount("rw");
    assert!(outlet.publish(&map("new")).unwrap());
    assert_holds(directory, "new");

    // What is under the disk that was taken away may keep Secrets for ever: only another outlet
    // writes there.
    disk.take_away();
    assert_refused(&outlet, &map("new"), "another disk is there now");
    let withdrawn = outlet.withdraw::<ConfigMap>(&ObjectKey::new("shop", "settings"));
    assert_eq!(withdrawn.unwrap_err().kind(), ErrorKind::Resources);
    assert!(!directory.join("shop").exists());
    let other = Outlet::open(OutletOptions::new(directory)).unwrap();
    assert!(other.publish(&map("new")).unwrap());
    assert_holds(directory, "new");
    fs::remove_dir_all(directory).unwrap();
    assert!(other.publish(&map("newer")).unwrap());
    assert_holds(directory, "newer");
}
