//! Outlets on a real disk, and a publisher over a fake server.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::clock::{Clock, Deadline};
use crate::hooks::Hook;
use crate::manager::{ChangeDetection, ConfigMapManager, ManagerOptions, Owner};
use crate::sync::Arc;
use crate::temp_directory::TempDirectory;
use crate::testing::{FakeSource, RequestKind, SourceFault, objects};

/// It only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    objects::config_map("shop", name, "1", data)
}

fn outlet(directory: &Path) -> Outlet {
    Outlet::open(OutletOptions::new(directory)).unwrap()
}

/// The keys that a reader sees, with their text.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let keys = names.filter(|name| !name.starts_with(".."));
    keys.map(|key| (key.clone(), fs::read_to_string(folder.join(&key)).unwrap()))
        .collect()
}

fn texts(data: &[(&str, &str)]) -> BTreeMap<String, String> {
    let texts = data.iter();
    texts
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
}

/// How many folders of files there are.
fn generations(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .count()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn each_key_is_a_file_for_its_owner_alone() {
    let directory = TempDirectory::new("outlet-files");
    let outlet = outlet(&directory.join("made"));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("tls".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("key".to_owned(), ByteString(vec![0, 255]))].into()),
        ..Secret::default()
    };
    assert!(outlet.publish(&secret).unwrap());
    let folder = directory.join("made/shop/secrets/tls");
    assert_eq!(fs::read(folder.join("key")).unwrap(), [0, 255]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.join("key")), 0o600);
    for path in ["made", "made/shop", "made/shop/secrets/tls/..data"] {
        assert_eq!(mode(directory.join(path)), 0o700, "{path}");
    }

    let mut map = map("settings", &[("tax", "7")]);
    map.binary_data = Some([("logo".to_owned(), ByteString(b"png".to_vec()))].into());
    assert!(outlet.publish(&map).unwrap());
    assert!(!outlet.publish(&map).unwrap());
    let folder = directory.join("made/shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[("logo", "png"), ("tax", "7")]));
}

/// A reader that has opened `..data` keeps what it opened; a new one sees all of the new.
#[test]
fn an_object_changes_as_a_whole() {
    let directory = TempDirectory::new("outlet-swap");
    let outlet = outlet(&directory);
    let folder = directory.join("shop/configmaps/settings");
    outlet
        .publish(&map("settings", &[("a", "1"), ("gone", "1")]))
        .unwrap();
    let open = fs::File::open(folder.join("a")).unwrap();
    let before = fs::read_link(folder.join("..data")).unwrap();
    assert!(
        outlet
            .publish(&map("settings", &[("a", "2"), ("new", "2")]))
            .unwrap()
    );
    assert_ne!(fs::read_link(folder.join("..data")).unwrap(), before);
    assert_eq!(files(&folder), texts(&[("a", "2"), ("new", "2")]));
    assert_eq!(std::io::read_to_string(open).unwrap(), "1");
    assert_eq!(generations(&folder), 1);
}

#[test]
fn what_a_killed_process_left_is_put_right() {
    let directory = TempDirectory::new("outlet-left");
    let outlet = outlet(&directory);
    let settings = map("settings", &[("a", "1"), ("b", "2")]);
    outlet.publish(&settings).unwrap();
    let folder = directory.join("shop/configmaps/settings");
    fs::create_dir(folder.join("..5")).unwrap();
    fs::write(folder.join("..5/half"), "half").unwrap();
    fs::remove_file(folder.join("b")).unwrap();
    symlink("..data/old", folder.join("old")).unwrap();
    assert!(!outlet.publish(&settings).unwrap());
    assert_eq!(files(&folder), texts(&[("a", "1"), ("b", "2")]));
    assert_eq!(generations(&folder), 1);

    fs::write(folder.join("..data/a"), "another").unwrap();
    assert!(outlet.publish(&settings).unwrap());
    // What is no file in a file's place is not waited for.
    fs::remove_file(folder.join("..data/a")).unwrap();
    fs::create_dir(folder.join("..data/a")).unwrap();
    assert!(outlet.publish(&settings).unwrap());
    assert_eq!(files(&folder), texts(&[("a", "1"), ("b", "2")]));
}

/// Seen: an object of 20,000 keys held up a stop for seconds. It ends between any two files, and
/// nothing is half there for a reader, nor left over by the next process.
#[test]
fn a_write_or_removal_ends_before_any_file_and_the_next_process_puts_it_right() {
    let directory = TempDirectory::new("outlet-cut");
    let folder = directory.join("shop/configmaps/settings");
    let states = [&[("a", "1"), ("b", "1")][..], &[("a", "2"), ("c", "2")]];
    let [old, new] = states.map(|data| map("settings", data));
    let cut_after = |files: usize| {
        let left = std::cell::Cell::new(files);
        move || {
            let rest = left.get().checked_sub(1);
            left.set(rest.ok_or(std::io::ErrorKind::Interrupted)?);
            Ok(())
        }
    };
    let (mut writes, mut removals) = (0, 0);
    let outlet = outlet(&directory);
    for cut in 0..20 {
        outlet.publish(&old).unwrap();
        let written = outlet.publish_checked(&new, &cut_after(cut));
        writes += u32::from(written.is_err());
        let seen = files(&folder.join("..data"));
        assert!(states.map(texts).contains(&seen), "cut {cut}: {seen:?}");
        outlet.publish(&new).unwrap();
        assert_eq!(files(&folder), texts(states[1]), "cut {cut}");
        assert_eq!(generations(&folder), 1, "cut {cut}");

        let removed = outlet.withdraw_checked::<ConfigMap>(&new.key(), &cut_after(cut));
        removals += u32::from(removed.is_err());
        outlet.withdraw::<ConfigMap>(&new.key()).unwrap();
        assert_eq!(names(&directory), [".kubecache"], "cut {cut}");
    }
    assert!((8..20).contains(&writes), "{writes}");
    assert!((5..20).contains(&removals), "{removals}");
}

#[test]
fn a_withdrawn_object_leaves_nothing() {
    let directory = TempDirectory::new("outlet-withdrawn");
    let outlet = outlet(&directory);
    for name in ["a", "b"] {
        outlet.publish(&map(name, &[("key", "1")])).unwrap();
    }
    let key = |name: &str| ObjectKey::new("shop", name);
    let published = || outlet.published::<ConfigMap>().unwrap();
    assert_eq!(published(), [key("a"), key("b")].into());
    outlet.withdraw::<ConfigMap>(&key("a")).unwrap();
    outlet.withdraw::<ConfigMap>(&key("a")).unwrap();
    assert_eq!(published(), [key("b")].into());
    outlet.withdraw::<ConfigMap>(&key("b")).unwrap();
    assert_eq!(names(&directory), [".kubecache"]);
}

#[test]
fn names_that_would_leave_the_folder_are_refused_by_name() {
    let directory = TempDirectory::new("outlet-names");
    let outlet = outlet(&directory.join("out"));
    let long = "x".repeat(256);
    for bad in ["", ".", "..", "..data", "a/b", "/etc/passwd", "a\0", &long] {
        let refused = outlet.publish(&map("settings", &[("good", "1"), (bad, "1")]));
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        let begin = format!("ConfigMap shop/settings is not written: its key {bad:?} ");
        assert!(refused.to_string().starts_with(&begin), "{refused}");
        let refused = outlet.publish(&map(bad, &[("good", "1")])).unwrap_err();
        assert!(refused.to_string().contains("its name "), "{refused}");
        let key = ObjectKey::new(bad, "settings");
        let refused = outlet.withdraw::<ConfigMap>(&key).unwrap_err();
        assert!(refused.to_string().contains("its namespace "), "{refused}");
    }
    assert_eq!(names(&directory.join("out")), [".kubecache"]);
}

/// Whoever can make a link in the outlet's place gets nothing written elsewhere.
#[test]
fn no_link_is_followed() {
    let directory = TempDirectory::new("outlet-links");
    let elsewhere = directory.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let outlet = outlet(&directory.join("out"));
    symlink(&elsewhere, directory.join("out/shop")).unwrap();
    let settings = map("settings", &[("a", "1")]);
    let refused = outlet.publish(&settings).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Resources);
    outlet.withdraw::<ConfigMap>(&settings.key()).unwrap();
    fs::remove_file(directory.join("out/shop")).unwrap();

    outlet.publish(&settings).unwrap();
    let folder = directory.join("out/shop/configmaps/settings");
    fs::remove_file(folder.join("..data")).unwrap();
    symlink(&elsewhere, folder.join("..data")).unwrap();
    assert!(outlet.publish(&settings).unwrap());
    assert_eq!(files(&folder), texts(&[("a", "1")]));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// A disk that does not take it: the error names the folder, what was there stays, and it is right
/// again when the disk is.
#[test]
fn a_failed_write_names_the_folder_and_keeps_what_was_there() {
    let directory = TempDirectory::new("outlet-failed");
    let outlet = outlet(&directory);
    fs::write(directory.join("shop"), "in the way").unwrap();
    let settings = map("settings", &[("a", "1")]);
    let failed = outlet.publish(&settings).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Resources);
    let folder = directory.join("shop/configmaps/settings");
    let begin = format!("writing {}: ", folder.display());
    assert!(failed.to_string().starts_with(&begin), "{failed}");
    fs::remove_file(directory.join("shop")).unwrap();
    outlet.publish(&settings).unwrap();
    assert_eq!(files(&folder), texts(&[("a", "1")]));

    let nowhere = Outlet::open(OutletOptions::new("/proc/nowhere/out")).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::Config);
    let begin = "the output directory /proc/nowhere/out: ";
    assert!(nowhere.to_string().starts_with(begin), "{nowhere}");
}

/// A publisher of ConfigMaps, and what it says of each round that changed something.
struct Followed {
    server: FakeSource<ConfigMap>,
    manager: Arc<ConfigMapManager>,
    changed: Receiver<BTreeSet<ObjectKey>>,
    publisher: Publisher<ConfigMap>,
}

impl Followed {
    fn start(directory: &Path) -> Self {
        Self::with(directory, ManagerOptions::default())
    }

    fn with(directory: &Path, options: ManagerOptions) -> Self {
        let server = FakeSource::<ConfigMap>::new();
        let manager = ConfigMapManager::new(server.clone(), options);
        let manager = Arc::new(manager.unwrap());
        let (send, changed) = channel();
        let hook = Hook::new(move |keys: &BTreeSet<ObjectKey>| drop(send.send(keys.clone())));
        let outlet = Arc::new(outlet(directory));
        let publisher = Publisher::start(Arc::clone(&manager), outlet, Some(hook)).unwrap();
        Self {
            server,
            manager,
            changed,
            publisher,
        }
    }

    fn next_changed(&self) -> Vec<String> {
        let keys = self.changed.recv_timeout(PATIENCE).unwrap();
        keys.iter().map(|key| key.name().to_owned()).collect()
    }

    fn reference(&self, name: &str) {
        self.manager
            .add_reference(&owner(), &ObjectKey::new("shop", name));
    }

    fn publish(&self) -> Result<(), Error> {
        self.publisher.publish_by(Clock::system().after(PATIENCE))
    }
}

fn owner() -> Owner {
    Owner::new("Test", ObjectKey::new("shop", "test"))
}

#[test]
fn a_publisher_follows_its_manager() {
    let directory = TempDirectory::new("publisher");
    let folder = directory.join("shop/configmaps/settings");
    outlet(&directory)
        .publish(&map("left", &[("a", "1")]))
        .unwrap();
    let followed = Followed::start(&directory);
    followed
        .server
        .set(objects::config_map("shop", "settings", "", &[("a", "1")]));
    followed.reference("settings");
    followed
        .manager
        .get_by("shop", "settings", Deadline::NEVER)
        .unwrap();
    followed.publish().unwrap();
    assert_eq!(followed.next_changed(), ["settings"]);
    assert_eq!(files(&folder), texts(&[("a", "1")]));
    assert_eq!(followed.publisher.status().published, 1);

    // A change at the server comes by itself.
    followed
        .server
        .set(objects::config_map("shop", "settings", "", &[("a", "2")]));
    assert_eq!(followed.next_changed(), ["settings"]);
    assert_eq!(files(&folder), texts(&[("a", "2")]));

    // What an earlier process left stays until this one knows all references.
    assert!(directory.join("shop/configmaps/left").exists());
    followed.publisher.references_are_complete();
    assert_eq!(followed.next_changed(), ["left"]);
    assert!(!directory.join("shop/configmaps/left").exists());

    // What the server has deleted stays while it is referenced, as in the volume of a pod.
    followed.server.delete("shop", "settings");
    let clock = Clock::system();
    let limit = clock.after(PATIENCE);
    while followed.manager.get("shop", "settings").is_ok() {
        assert!(!clock.has_passed(limit), "the manager does not learn of it");
        std::thread::yield_now();
    }
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("a", "2")]));
    followed
        .manager
        .remove_reference(&owner(), &ObjectKey::new("shop", "settings"));
    followed.publish().unwrap();
    assert_eq!(followed.next_changed(), ["settings"]);
    assert_eq!(names(&directory), [".kubecache"]);
}

/// Seen: a folder whose name is no name made `publish_by` fail for ever, and what was no outlet's
/// went.
#[test]
fn a_publisher_passes_over_what_no_outlet_made() {
    let directory = TempDirectory::new("publisher-strays");
    drop(outlet(&directory));
    let strays = [
        "..odd/configmaps/left/notes",
        "notes",
        "shop/configmaps/..odd/notes",
        "shop/configmaps/notes",
        "shop/configmaps/mine/notes",
        "shop/configmaps/gone/notes",
    ];
    for stray in strays {
        let stray = directory.join(stray);
        fs::create_dir_all(stray.parent().unwrap()).unwrap();
        fs::write(stray, "somebody's").unwrap();
    }
    let gone = directory.join("shop/configmaps/gone");
    fs::create_dir(gone.join("..5")).unwrap();
    symlink("..5", gone.join("..data")).unwrap();
    let followed = Followed::start(&directory);
    followed.publisher.references_are_complete();
    followed.publish().unwrap();
    assert_eq!(followed.next_changed(), ["gone"]);
    assert_eq!(names(&gone), ["notes"]);
    for stray in strays {
        let stray = fs::read_to_string(directory.join(stray)).unwrap();
        assert_eq!(stray, "somebody's");
    }
}

#[test]
fn a_publisher_tells_what_failed_and_puts_it_right_with_the_disk() {
    let directory = TempDirectory::new("publisher-failed");
    let followed = Followed::start(&directory);
    fs::write(directory.join("shop"), "in the way").unwrap();
    followed
        .server
        .set(objects::config_map("shop", "settings", "", &[("a", "1")]));
    followed.reference("settings");
    followed
        .manager
        .get_by("shop", "settings", Deadline::NEVER)
        .unwrap();
    let failed = followed.publish().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Resources);
    let status = followed.publisher.status();
    assert_eq!((status.published, status.failed.len()), (0, 1));
    fs::remove_file(directory.join("shop")).unwrap();
    followed.publish().unwrap();
    assert!(followed.publisher.status().failed.is_empty());
    assert_eq!(followed.next_changed(), ["settings"]);
    followed.publisher.stop();
    let stopped = loop {
        // The thread may be in a round that it ends.
        if let Err(error) = followed.publish() {
            break error;
        }
    };
    assert!(stopped.is_stopped(), "{stopped}");
}

/// Seen: a stop in the middle of a round, and `publish_by` said that all was written.
#[test]
fn a_round_that_the_stop_cuts_off_is_no_success() {
    let directory = TempDirectory::new("publisher-stop");
    let options = ManagerOptions::default().change_detection(ChangeDetection::Get);
    let followed = Followed::with(&directory, options);
    let set = |value| {
        for name in ["first", "second"] {
            let map = objects::config_map("shop", name, "", &[("a", value)]);
            followed.server.set(map);
        }
    };
    set("1");
    followed.reference("first");
    followed.reference("second");
    followed.publish().unwrap();
    set("2");
    let (send, asked) = channel();
    followed.server.plan(move |request| {
        let is_first = request.kind == RequestKind::Get
            && request.scope.field_selector().as_str().ends_with("=first");
        is_first.then(|| {
            let _late = send.send(()).is_err();
            SourceFault::Hang
        })
    });
    let published = std::thread::scope(|scope| {
        let publisher = &followed.publisher;
        let limit = Clock::system().after(PATIENCE);
        let publish = scope.spawn(move || publisher.publish_by(limit));
        asked.recv_timeout(PATIENCE).unwrap();
        followed.publisher.stop();
        followed.manager.stop();
        publish.join().unwrap()
    });
    assert!(published.unwrap_err().is_stopped());
    let second = directory.join("shop/configmaps/second");
    assert_eq!(files(&second), texts(&[("a", "1")]));
}
