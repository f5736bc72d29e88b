//! Outlets on a real disk, and a publisher over a fake server.

mod layouts;
mod random;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::hooks::Hook;
use crate::manager::{ChangeDetection, ConfigMapManager, ManagerOptions, Owner};
use crate::object::Scope;
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SeenRequest, SourceFault, objects};
use crate::tests::dice::seeds;
use crate::tests::temp_directory::TempDirectory;
use crate::tests::until::{until, until_some};

/// It only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    objects::config_map("shop", name, "1", data)
}

fn outlet(directory: &Path) -> Outlet {
    Outlet::open(OutletOptions::new(directory)).unwrap()
}

/// An outlet whose time stands still until the clock is advanced.
fn outlet_at(clock: &FakeClock, directory: &Path) -> Outlet {
    let options = OutletOptions::new(directory).clock(clock.clone().into());
    Outlet::open(options).unwrap()
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

/// Counts the folders of files.
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

/// A reader that has opened `..data` keeps its folder; a new reader sees all of the new.
#[test]
fn an_object_changes_as_a_whole() {
    let directory = TempDirectory::new("outlet-swap");
    let clock = FakeClock::new();
    let outlet = outlet_at(&clock, &directory);
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
    assert_eq!(io::read_to_string(open).unwrap(), "1");
}

/// Seen: of 34,000 reads, 4 found a folder that was being emptied, because two changes came at
/// once.
#[test]
fn what_was_replaced_stays_whole_for_ten_seconds_whatever_comes() {
    let directory = TempDirectory::new("outlet-kept");
    let clock = FakeClock::new();
    let outlet = outlet_at(&clock, &directory);
    let folder = directory.join("shop/configmaps/settings");
    let key = ObjectKey::new("shop", "settings");
    let mut open = Vec::new();
    for (seconds, value) in [(0, "1"), (4, "2"), (0, "3"), (5, "4")] {
        clock.advance(Duration::from_secs(seconds));
        outlet
            .publish(&map("settings", &[("a", value), ("b", value)]))
            .unwrap();
        open.push((fs::canonicalize(folder.join("..data")).unwrap(), value));
    }
    let whole = || -> Vec<&str> {
        let whole = open.iter().filter(|(generation, value)| {
            let texts = texts(&[("a", value), ("b", value)]);
            assert!(!generation.exists() || files(generation) == texts);
            generation.exists()
        });
        whole.map(|(_, value)| *value).collect()
    };
    // Replaced at 4, 4 and 9 seconds.
    for (seconds, left) in [
        (0, &["1", "2", "3", "4"][..]),
        (4, &["1", "2", "3", "4"]),
        (2, &["3", "4"]),
        (3, &["3", "4"]),
        (2, &["4"]),
    ] {
        clock.advance(Duration::from_secs(seconds));
        outlet.sweep::<ConfigMap>(&key, &|| Ok(())).unwrap();
        assert_eq!(whole(), left);
    }
    // The next process and the next write remove them, too. A withdrawal leaves nothing.
    outlet.publish(&map("settings", &[("a", "5")])).unwrap();
    drop(outlet);
    clock.advance(Duration::from_secs(10));
    let outlet = outlet_at(&clock, &directory);
    outlet.publish(&map("settings", &[("a", "5")])).unwrap();
    assert_eq!(generations(&folder), 1);
    outlet.publish(&map("settings", &[("a", "6")])).unwrap();
    outlet.withdraw::<ConfigMap>(&key).unwrap();
    assert!(!folder.exists());
}

/// The wall clock may be put forward or back.
#[test]
fn a_clock_that_goes_back_keeps_no_files_for_ever() {
    let directory = TempDirectory::new("outlet-back");
    let folder = directory.join("shop/configmaps/settings");
    let ahead = FakeClock::new();
    ahead.advance(Duration::from_secs(3600));
    let before = outlet_at(&ahead, &directory);
    before.publish(&map("settings", &[("a", "1")])).unwrap();
    before.publish(&map("settings", &[("a", "2")])).unwrap();
    drop(before);
    let second = fs::canonicalize(folder.join("..data")).unwrap();
    let clock = FakeClock::new();
    let outlet = outlet_at(&clock, &directory);
    outlet.publish(&map("settings", &[("a", "3")])).unwrap();
    assert_eq!(generations(&folder), 2, "what was replaced just now stays");
    // Seen: the next change removed it, since its name is of a later time.
    outlet.publish(&map("settings", &[("a", "4")])).unwrap();
    assert_eq!(files(&second), texts(&[("a", "2")]));
    clock.advance(Duration::from_secs(11));
    outlet.publish(&map("settings", &[("a", "4")])).unwrap();
    assert_eq!(generations(&folder), 1);
    assert_eq!(files(&folder), texts(&[("a", "4")]));
}

#[test]
fn a_reader_that_opens_a_folder_finds_all_of_one_content() {
    let directory = TempDirectory::new("outlet-readers");
    let outlet = outlet(&directory);
    let current = directory.join("shop/configmaps/settings/..data");
    let values: Vec<String> = (0..seeds(50)).map(|number| number.to_string()).collect();
    let write = |value: &str| {
        let data: Vec<_> = ["a", "b", "c", "d"]
            .iter()
            .map(|key| (*key, value))
            .collect();
        outlet.publish(&map("settings", &data)).unwrap();
    };
    write("first");
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let mut reads = 0;
            until(|| {
                let is_over = reads >= 1000 && ends.load(std::sync::atomic::Ordering::SeqCst);
                // Like a reader that holds the folder open: its path no longer depends on the link.
                let held = fs::File::open(&current).unwrap();
                let held = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
                let seen = files(Path::new(&held));
                let one: BTreeSet<_> = seen.values().collect();
                assert_eq!((seen.len(), one.len()), (4, 1), "{seen:?}");
                reads += 1;
                is_over
            });
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for value in &values {
            write(value);
        }
        ends.store(true, std::sync::atomic::Ordering::SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn what_a_killed_process_left_is_put_right() {
    let directory = TempDirectory::new("outlet-left");
    let clock = FakeClock::new();
    let outlet = outlet_at(&clock, &directory);
    let settings = map("settings", &[("a", "1"), ("b", "2")]);
    outlet.publish(&settings).unwrap();
    let folder = directory.join("shop/configmaps/settings");
    fs::create_dir(folder.join("..5")).unwrap();
    fs::write(folder.join("..5/half"), "half").unwrap();
    fs::remove_file(folder.join("b")).unwrap();
    symlink("..data/old", folder.join("old")).unwrap();
    clock.advance(Duration::from_secs(10));
    assert!(!outlet.publish(&settings).unwrap());
    assert_eq!(files(&folder), texts(&[("a", "1"), ("b", "2")]));
    assert_eq!(generations(&folder), 1);

    fs::write(folder.join("..data/a"), "another").unwrap();
    assert!(outlet.publish(&settings).unwrap());
    // A directory in the place of a file does not block the write.
    fs::remove_file(folder.join("..data/a")).unwrap();
    fs::create_dir(folder.join("..data/a")).unwrap();
    assert!(outlet.publish(&settings).unwrap());
    assert_eq!(files(&folder), texts(&[("a", "1"), ("b", "2")]));
}

/// Seen: an object of 20,000 keys delayed a stop for seconds. The stop ends a write between any two
/// files. A reader finds nothing half-written, and the next process removes the rest.
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
            left.set(rest.ok_or(io::ErrorKind::Interrupted)?);
            Ok(())
        }
    };
    let (mut writes, mut removals) = (0, 0);
    let clock = FakeClock::new();
    let outlet = outlet_at(&clock, &directory);
    for cut in 0..20 {
        outlet.publish(&old).unwrap();
        let written = outlet.publish_checked(&new, &cut_after(cut));
        writes += u32::from(written.is_err());
        let seen = files(&folder.join("..data"));
        assert!(states.map(texts).contains(&seen), "cut {cut}: {seen:?}");
        outlet.publish(&new).unwrap();
        clock.advance(Duration::from_secs(11));
        outlet.publish(&new).unwrap();
        assert_eq!(files(&folder), texts(states[1]), "cut {cut}");
        assert_eq!(generations(&folder), 1, "cut {cut}");

        let removed = outlet.withdraw_checked::<ConfigMap>(&new.key(), &cut_after(cut));
        removals += u32::from(removed.is_err());
        let is_there = fs::exists(folder.join("..data")).unwrap();
        assert_eq!(is_there, cut == 0, "what readers open goes first");
        outlet.withdraw::<ConfigMap>(&new.key()).unwrap();
        assert_eq!(names(&directory), [".kubecache"], "cut {cut}");
    }
    assert!((4..20).contains(&writes), "{writes}");
    assert!((5..20).contains(&removals), "{removals}");
}

/// Seen: the sum was taken after the removal, so that no later look missed the file.
#[test]
fn a_file_that_is_removed_during_the_write_is_back_after_it() {
    let data = [("a", "1"), ("b", "1")];
    let object = map("settings", &data);
    for moment in 0..20 {
        let directory = TempDirectory::new("outlet-during");
        let (outlet, folder) = (
            outlet(&directory),
            directory.join("shop/configmaps/settings"),
        );
        let (checks, removals) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let written = outlet.publish_checked(&object, &|| {
            checks.set(checks.get() + 1);
            if checks.get() == moment {
                for path in ["..data/a", "b"] {
                    let removed = fs::remove_file(folder.join(path));
                    removals.set(removals.get() + u32::from(removed.is_ok()));
                }
            }
            Ok(())
        });
        let Ok(Outcome::Files(true, sum)) = written else {
            panic!("at check {moment}: {written:?}");
        };
        // A removal after the last check is missed by the next look.
        let is_seen = files(&folder) == texts(&data);
        let is_missed = outlet.sum::<ConfigMap>(&object.key()).unwrap() != Some(sum);
        assert!(is_seen != is_missed, "at check {moment}");
    }
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

/// A user who can make a link in the outlet's place gets nothing written elsewhere.
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

/// A disk that refuses a write: the error names the folder, the earlier files stay, and all is
/// right again when the disk is.
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

/// A publisher of ConfigMaps, and the changes that it reports after each round.
struct Followed {
    server: FakeSource<ConfigMap>,
    manager: ConfigMapManager,
    changed: Receiver<BTreeSet<ObjectKey>>,
    publisher: Publisher<ConfigMap>,
}

impl Followed {
    fn start(directory: &Path) -> Self {
        Self::with(outlet(directory), ManagerOptions::default())
    }

    fn with(outlet: Outlet, options: ManagerOptions) -> Self {
        Self::of(FakeSource::new(), outlet, options)
    }

    fn of(server: FakeSource<ConfigMap>, outlet: Outlet, options: ManagerOptions) -> Self {
        let manager = ConfigMapManager::new(server.clone(), options);
        let manager = manager.unwrap();
        let (send, changed) = channel();
        let hook = Hook::new(move |keys: &BTreeSet<ObjectKey>| drop(send.send(keys.clone())));
        let outlet = Arc::new(outlet);
        let publisher = Publisher::start(manager.clone(), outlet, Some(hook)).unwrap();
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

    /// A publisher that has published `settings`, with the time of the clock.
    fn published(clock: &FakeClock, directory: &Path) -> Self {
        let followed = Self::with(outlet_at(clock, directory), ManagerOptions::default());
        followed.set(&[("a", "1")]);
        followed.publish().unwrap();
        followed
    }

    /// Sets the data of `settings`, and waits until the manager has it.
    #[track_caller]
    fn set(&self, data: &[(&str, &str)]) {
        let settings = objects::config_map("shop", "settings", "", data);
        let wanted = settings.data.clone();
        self.server.set(settings);
        self.reference("settings");
        let limit = Clock::system().after(PATIENCE);
        until(|| {
            let found = self.manager.get_by("shop", "settings", limit);
            found.is_ok_and(|found| found.data == wanted)
        });
    }

    fn publish(&self) -> Result<(), Error> {
        self.publisher.publish_by(Clock::system().after(PATIENCE))
    }
}

impl Drop for Followed {
    /// Ends a read of the publisher that hangs, which else would wait for it.
    fn drop(&mut self) {
        self.manager.stop();
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

    // Files of an earlier process stay until this one knows all references.
    assert!(directory.join("shop/configmaps/left").exists());
    followed.publisher.references_are_complete();
    assert_eq!(followed.next_changed(), ["left"]);
    assert!(!directory.join("shop/configmaps/left").exists());

    // An object that the server has deleted stays while it is referenced, as in the volume of a
    // pod.
    followed.server.delete("shop", "settings");
    until(|| followed.manager.get("shop", "settings").is_err());
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("a", "2")]));
    followed
        .manager
        .remove_reference(&owner(), &ObjectKey::new("shop", "settings"));
    followed.publish().unwrap();
    assert_eq!(followed.next_changed(), ["settings"]);
    assert_eq!(names(&directory), [".kubecache"]);
}

#[test]
fn what_an_earlier_process_left_goes_as_soon_as_all_references_are_known() {
    let directory = TempDirectory::new("publisher-complete");
    let left = map("left", &[("a", "1")]);
    outlet(&directory).publish(&left).unwrap();
    let followed = Followed::start(&directory);
    followed.publish().unwrap();
    let folder = directory.join("shop/configmaps/left");
    assert!(folder.exists());
    // Nothing else wakes the publisher.
    followed.publisher.references_are_complete();
    until(|| !folder.exists());
}

/// Seen: files that an earlier process had written stayed for ever. Their object was referenced at
/// first, and no more before the server had answered.
#[test]
fn what_is_referenced_no_more_goes_whatever_came_before() {
    type Before = fn(&Followed, &FakeClock, &Path);
    let before: [(&str, Before); 3] = [
        ("it was never in memory", |_followed, _clock, _folder| {}),
        ("somebody changed it", |followed, clock, folder| {
            followed.set(&[("a", "1")]);
            followed.publish().unwrap();
            fs::remove_file(folder.join("a")).unwrap();
            clock.advance(Duration::from_secs(30));
            followed.publish().unwrap_err();
        }),
        ("its first write failed", |followed, _clock, folder| {
            chmod(folder.parent().unwrap(), 0o777);
            followed.set(&[("a", "2")]);
            followed.publish().unwrap_err();
            chmod(folder.parent().unwrap(), 0o700);
        }),
    ];
    for (what, before) in before {
        let directory = TempDirectory::new("publisher-unreferenced");
        let folder = directory.join("shop/configmaps/settings");
        let clock = FakeClock::new();
        let earlier = map("settings", &[("a", "1")]);
        outlet(&directory).publish(&earlier).unwrap();
        let followed = Followed::with(outlet_at(&clock, &directory), ManagerOptions::default());
        followed.reference("settings");
        followed.publisher.references_are_complete();
        followed.publish().unwrap();
        before(&followed, &clock, &folder);
        assert!(folder.exists(), "{what}");
        followed.manager.set_references(&owner(), []);
        followed.publish().expect(what);
        assert_eq!(names(&directory), [".kubecache"], "{what}");
        assert_eq!(followed.publisher.status().published, 0, "{what}");
    }
}

/// Seen: a folder whose name is no name made `publish_by` fail for ever, and strays went.
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

/// Another program's harm to the directory, and the failure until it is right again.
type Harm = (&'static str, fn(&Path));

fn harms() -> [Harm; 18] {
    [
        ("a removed file", |at| {
            fs::remove_file(at.join("..data/a")).unwrap();
        }),
        ("another content", |at| {
            fs::write(at.join("..data/a"), "2").unwrap();
        }),
        ("a removed link", |at| {
            fs::remove_file(at.join("a")).unwrap();
        }),
        ("a link elsewhere", |at| {
            fs::remove_file(at.join("a")).unwrap();
            symlink("/etc/hostname", at.join("a")).unwrap();
        }),
        ("a file in a link's place", |at| {
            fs::remove_file(at.join("a")).unwrap();
            fs::write(at.join("a"), "1").unwrap();
        }),
        ("no way to the files", |at| {
            fs::remove_file(at.join("..data")).unwrap();
        }),
        ("a further file", |at| {
            fs::write(at.join("..data/b"), "1").unwrap();
        }),
        ("a mode", |at| chmod(&at.join("..data/a"), 0o644)),
        ("a folder's mode", |at| chmod(&at.join("..data/"), 0o750)),
        ("a removed folder", |at| fs::remove_dir_all(at).unwrap()),
        ("another folder", |at| {
            let namespace = at.parent().unwrap().parent().unwrap();
            fs::rename(namespace, namespace.with_file_name("moved")).unwrap();
        }),
        ("a removed root", |at| {
            fs::remove_dir_all(at.ancestors().nth(3).unwrap()).unwrap();
        }),
        ("another root", |at| {
            let root = at.ancestors().nth(3).unwrap();
            fs::rename(root, root.with_file_name("moved")).unwrap();
            fs::create_dir(root).unwrap();
        }),
        ("an owner", |at| give_away(&at.join("..data/a"))),
        ("an owner of files", |at| give_away(&at.join("..data/"))),
        ("an owner of the folder", |at| give_away(at)),
        ("an owner of the namespace", |at| {
            give_away(at.parent().unwrap().parent().unwrap());
        }),
        ("the folder's mode", |at| chmod(at, 0o755)),
    ]
}

/// Seen: a removed file did not come back, and health said ok.
#[test]
fn what_somebody_changed_is_told_and_comes_back() {
    for (what, harm) in harms() {
        let directory = TempDirectory::new("publisher-harm");
        let root = directory.join("out");
        let folder = root.join("shop/configmaps/settings");
        let clock = FakeClock::new();
        let followed = Followed::published(&clock, &root);
        followed.next_changed();
        harm(&folder);
        followed.publish().unwrap();
        clock.advance(Duration::from_secs(30));
        let told = followed.publish().expect_err(what).to_string();
        let names_it = told.contains(&folder.display().to_string());
        assert!(
            names_it && told.contains("changed or removed"),
            "{what}: {told}"
        );
        followed.publish().expect(what);
        assert_eq!(files(&folder), texts(&[("a", "1")]), "{what}");
        let [data, a] = ["..data/", "..data/a"].map(|name| fs::metadata(folder.join(name)));
        let modes = [data.unwrap(), a.unwrap()].map(|file| file.permissions().mode() & 0o7777);
        assert_eq!(modes, [0o700, 0o600], "{what}");
        for folder in folder.ancestors().take(3) {
            let facts = fs::metadata(folder).unwrap();
            assert_ne!(facts.uid(), 7, "{what}");
        }
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o7777,
            0o700
        );
        assert!(names(&root).contains(&".kubecache".to_owned()), "{what}");
        clock.advance(Duration::from_secs(30));
        followed.publish().expect(what);
    }
}

/// Seen: health was well again, and the files did not come back.
#[test]
fn what_the_server_deleted_comes_back_too() {
    let directory = TempDirectory::new("publisher-deleted");
    let clock = FakeClock::new();
    let followed = Followed::published(&clock, &directory);
    followed.server.delete("shop", "settings");
    until(|| followed.manager.get("shop", "settings").is_err());
    let folder = directory.join("shop/configmaps/settings");
    fs::remove_dir_all(&folder).unwrap();
    clock.advance(Duration::from_secs(30));
    followed.publish().unwrap_err();
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("a", "1")]));
}

/// An outlet does not write to another user's folder: it fails until that is gone.
#[test]
fn where_others_write_nothing_is_written() {
    let harms: [Harm; 5] = [
        ("mode 0777;", |at| chmod(at.parent().unwrap(), 0o777)),
        ("mode 0770;", |at| chmod(at, 0o770)),
        ("mode 1777;", |at| {
            chmod(at.ancestors().nth(3).unwrap(), 0o1777);
        }),
        ("another one now", |at| {
            fs::write(at.ancestors().nth(3).unwrap().join(".kubecache"), "mine").unwrap();
        }),
        // That of an outlet of the same name.
        ("another one now", |at| {
            let marker = at.ancestors().nth(3).unwrap().join(".kubecache");
            let own = fs::read_to_string(&marker).unwrap();
            let begin = own.find("id: ").unwrap() + 4;
            let other = [&own[..begin], "x", &own[begin..]].concat();
            fs::write(&marker, other).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let directory = TempDirectory::new("publisher-others");
        let root = directory.join("out");
        let folder = root.join("shop/configmaps/settings");
        let clock = FakeClock::new();
        let followed = Followed::published(&clock, &root);
        harm(&folder);
        followed.set(&[("a", "2")]);
        let told = followed.publish().expect_err(what).to_string();
        assert!(told.contains(what), "{what}: {told}");
        for _ in 0..3 {
            clock.advance(Duration::from_secs(30));
            followed.publish().expect_err(what);
        }
        for folder in folder.ancestors().take(4) {
            chmod(folder, 0o700);
        }
        if what == "another one now" {
            fs::remove_file(root.join(".kubecache")).unwrap();
        }
        until(|| followed.publish().is_ok());
        assert_eq!(files(&folder), texts(&[("a", "2")]), "{what}");
    }
    let directory = TempDirectory::new("outlet-others");
    chmod(&directory, 0o777);
    let refused = Outlet::open(OutletOptions::new(&*directory)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("chmod go-w"), "{refused}");
    chmod(&directory, 0o755);
    if std::os::unix::fs::chown(&*directory, Some(7), None).is_ok() {
        let refused = Outlet::open(OutletOptions::new(&*directory)).unwrap_err();
        assert!(
            refused.to_string().contains("belongs to the user 7"),
            "{refused}"
        );
    }
}

/// Seen: files were written and then the write failed, and `on_change` was not called for them.
#[test]
fn a_change_is_told_although_the_write_failed_behind_it() {
    let directory = TempDirectory::new("publisher-untold");
    let clock = FakeClock::new();
    let followed = Followed::published(&clock, &directory);
    assert_eq!(followed.next_changed(), ["settings"]);
    // A folder in the place of a key's link fails the write once the files have changed.
    let folder = directory.join("shop/configmaps/settings");
    fs::create_dir(folder.join("b")).unwrap();
    fs::write(folder.join("b/in-the-way"), "").unwrap();
    followed.set(&[("a", "2"), ("b", "2")]);
    followed.publish().unwrap_err();
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "2");
    assert!(followed.changed.try_recv().is_err());
    fs::remove_dir_all(folder.join("b")).unwrap();
    until(|| followed.publish().is_ok());
    assert_eq!(followed.next_changed(), ["settings"]);
}

/// A disk has room for only a few of the replaced files.
#[test]
fn an_object_that_changes_all_the_time_is_written_once_a_second() {
    let directory = TempDirectory::new("publisher-often");
    let folder = directory.join("shop/configmaps/settings");
    let clock = FakeClock::new();
    let followed = Followed::published(&clock, &directory);
    for value in ["2", "3", "4"] {
        followed.set(&[("a", value)]);
    }
    // A caller that waits has it at once.
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("a", "4")]));
    assert_eq!(generations(&folder), 2);
    clock.advance(Duration::from_secs(11));
    followed.publish().unwrap();
    assert_eq!(generations(&folder), 1);
}

/// Seen: a replaced secret stayed until the next change, after a small step back of the wall clock.
#[test]
fn what_was_replaced_goes_although_the_wall_clock_stepped_back() {
    let directory = TempDirectory::new("publisher-step");
    let folder = directory.join("shop/configmaps/settings");
    let (ahead, clock) = (FakeClock::new(), FakeClock::new());
    ahead.advance(Duration::from_secs(5));
    let before = outlet_at(&ahead, &directory);
    for value in ["1", "2"] {
        before.publish(&map("settings", &[("a", value)])).unwrap();
    }
    drop(before);
    let followed = Followed::with(outlet_at(&clock, &directory), ManagerOptions::default());
    followed.set(&[("a", "2")]);
    followed.publish().unwrap();
    for (seconds, left) in [(11, 2), (60, 1)] {
        clock.advance(Duration::from_secs(seconds));
        followed.publish().unwrap();
        assert_eq!(generations(&folder), left, "{seconds}");
    }
}

/// A publisher that has published `a` to `g` and `gone`, each with the text 1.
fn published_eight(strategy: ChangeDetection, clock: &FakeClock, directory: &Path) -> Followed {
    let server = FakeSource::with_clock(clock.clone().into());
    let options = ManagerOptions::default().change_detection(strategy);
    let options = options.clock(clock.clone().into());
    let followed = Followed::of(server, outlet_at(clock, directory), options);
    for name in ["a", "b", "c", "d", "e", "f", "g", "gone"] {
        let object = objects::config_map("shop", name, "", &[("key", "1")]);
        followed.server.set(object);
        followed.reference(name);
    }
    followed.publish().unwrap();
    followed
}

/// Moves the clock to the deadline of a read that waits, if there is one.
fn end_wait(clock: &FakeClock) -> bool {
    let left = clock.next_timer().filter(|left| !left.is_zero());
    left.inspect(|left| clock.advance(*left)).is_some()
}

/// Seen: 60 objects past their time to live held up a withdrawal for ten minutes.
#[test]
fn a_round_waits_for_a_silent_server_once() {
    for strategy in [ChangeDetection::Cache, ChangeDetection::Get] {
        let directory = TempDirectory::new("publisher-silent");
        let clock = FakeClock::new();
        let followed = published_eight(strategy, &clock, &directory);
        let gone = directory.join("shop/configmaps/gone");
        assert!(gone.exists());
        followed.server.plan(|_request| Some(SourceFault::Hang));
        clock.advance(Duration::from_secs(61));
        followed
            .manager
            .remove_reference(&owner(), &ObjectKey::new("shop", "gone"));
        followed.publisher.look();
        let mut waits = 0;
        until(|| {
            waits += u32::from(end_wait(&clock));
            !gone.exists()
        });
        // Of a round before the removal, of this one and of the next one.
        assert!(waits <= 3, "{strategy:?}: {waits}");
    }
}

#[test]
fn an_object_without_an_answer_holds_up_the_other_ones_for_one_round() {
    for strategy in [ChangeDetection::Cache, ChangeDetection::Get] {
        let directory = TempDirectory::new("publisher-one-silent");
        let clock = FakeClock::new();
        let followed = published_eight(strategy, &clock, &directory);
        let first = Scope::object(&ObjectKey::new("shop", "a"));
        followed.server.plan(move |request: &SeenRequest| {
            (request.scope == first).then_some(SourceFault::Hang)
        });
        let last = objects::config_map("shop", "g", "", &[("key", "2")]);
        followed.server.set(last);
        let (publisher, limit) = (&followed.publisher, Clock::system().after(PATIENCE));
        for _ in 0..6 {
            clock.advance(Duration::from_secs(61));
            std::thread::scope(|scope| {
                let round = scope.spawn(move || publisher.publish_by(limit));
                until(|| {
                    end_wait(&clock);
                    round.is_finished()
                });
                round.join().unwrap().unwrap();
            });
        }
        let folder = directory.join("shop/configmaps/g");
        assert_eq!(files(&folder), texts(&[("key", "2")]), "{strategy:?}");
    }
}

/// Seen: a process that was killed before its snapshot had a change put the older content back.
#[cfg(feature = "snapshot")]
#[test]
fn what_only_a_snapshot_has_is_written_where_there_are_no_files() {
    use crate::snapshot::{Snapshot, SnapshotKey, SnapshotOptions};

    struct Key;

    impl SnapshotKey for Key {
        fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
            to.fill(7);
            Ok(())
        }
    }

    for (strategy, has_files) in [
        (ChangeDetection::Watch, true),
        (ChangeDetection::Watch, false),
        (ChangeDetection::Cache, true),
        (ChangeDetection::Cache, false),
    ] {
        let directory = TempDirectory::new("publisher-seed");
        let options = SnapshotOptions::new(directory.join("snapshot"), Key);
        let server = FakeSource::<ConfigMap>::new();
        server.set(map("settings", &[("a", "1")]));
        {
            let snapshot = Snapshot::open(options.clone()).unwrap();
            let maps = ConfigMapManager::new(server.clone(), ManagerOptions::default()).unwrap();
            snapshot.attach(&maps).unwrap();
            maps.add_reference(&owner(), &ObjectKey::new("shop", "settings"));
            maps.get_by("shop", "settings", Deadline::NEVER).unwrap();
        }
        let root = directory.join("out");
        if has_files {
            let newer = map("settings", &[("a", "2")]);
            outlet(&root).publish(&newer).unwrap();
        }

        server.plan(|_request| Some(SourceFault::Hang));
        let snapshot = Snapshot::open(options).unwrap();
        let options = ManagerOptions::default().change_detection(strategy);
        let options = options.get_timeout(Duration::from_millis(1));
        let followed = Followed::of(server, outlet(&root), options);
        snapshot.attach(&followed.manager).unwrap();
        followed.reference("settings");
        let read = || followed.manager.get_cached("shop", "settings");
        until(|| read().is_ok_and(|found| found.is_some()));
        followed.publish().unwrap();
        let folder = root.join("shop/configmaps/settings");
        let expected = if has_files { "2" } else { "1" };
        assert_eq!(files(&folder), texts(&[("a", expected)]), "{strategy:?}");
        assert_eq!(followed.changed.try_recv().is_ok(), !has_files);
        assert_eq!(followed.publisher.status().published, 1);

        followed.server.heal();
        followed.set(&[("a", "3")]);
        followed.publish().unwrap();
        assert_eq!(files(&folder), texts(&[("a", "3")]), "{strategy:?}");
    }
}

/// Only root can give it away; otherwise the mode shows the other user.
fn give_away(path: &Path) {
    if std::os::unix::fs::chown(path, Some(7), Some(7)).is_err() {
        chmod(path, 0o500);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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
    // The thread may be in a round that it is ending.
    let stopped = until_some(|| followed.publish().err());
    assert!(stopped.is_stopped(), "{stopped}");
}

/// Seen: after a stop in the middle of a round, `publish_by` said that all was written.
#[test]
fn a_round_that_the_stop_cuts_off_is_no_success() {
    let directory = TempDirectory::new("publisher-stop");
    let options = ManagerOptions::default().change_detection(ChangeDetection::Get);
    let followed = Followed::with(outlet(&directory), options);
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
    // Before the change: the round of the second reference may be still to come.
    let (send, asked) = channel();
    followed.server.plan(move |request| {
        (request.kind == RequestKind::Get).then(|| {
            let _late = send.send(()).is_err();
            SourceFault::Hang
        })
    });
    set("2");
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

/// A publisher whose thread calls this after it has written `settings`.
fn hooked(
    directory: &Path,
    on_change: impl Fn() + Send + Sync + 'static,
) -> (Arc<Publisher<ConfigMap>>, ConfigMapManager) {
    let server = FakeSource::<ConfigMap>::new();
    server.set(objects::config_map("shop", "settings", "", &[("a", "1")]));
    let manager = ConfigMapManager::new(server, ManagerOptions::default()).unwrap();
    let hook = Hook::new(move |_: &BTreeSet<ObjectKey>| on_change());
    let publisher = Publisher::start(manager.clone(), Arc::new(outlet(directory)), Some(hook));
    (Arc::new(publisher.unwrap()), manager)
}

/// Seen: `publish_by` waited for a thread that hung in a write, although it had been stopped.
#[test]
fn a_stop_ends_the_waits_for_a_thread_that_hangs() {
    let directory = TempDirectory::new("publisher-hangs");
    let (enter, entered) = crossbeam_channel::bounded(1);
    let (open, gate) = crossbeam_channel::bounded::<()>(0);
    let (publisher, manager) = hooked(&directory, move || {
        enter.send(()).unwrap();
        let _open = gate.recv();
    });
    // Dropped before the publisher, however the test ends.
    let open = open;
    manager.add_reference(&owner(), &ObjectKey::new("shop", "settings"));
    entered.recv_timeout(PATIENCE).unwrap();
    let minute = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| publisher.publish_by(minute));
        publisher.stop();
        assert!(waiting.join().unwrap().unwrap_err().is_stopped());
    });
    assert!(publisher.publish_by(minute).unwrap_err().is_stopped());
    drop(open);
}

#[test]
fn a_wait_on_the_publishers_own_thread_is_refused() {
    let directory = TempDirectory::new("publisher-own");
    let own = Arc::new(std::sync::OnceLock::<std::sync::Weak<Publisher<ConfigMap>>>::new());
    let (tell, told) = channel();
    let called = Arc::clone(&own);
    let (publisher, manager) = hooked(&directory, move || {
        let publisher = called.get().unwrap().upgrade().unwrap();
        let ended = publisher.publish_by(Duration::from_secs(60));
        drop(publisher);
        tell.send(ended).unwrap();
    });
    own.set(Arc::downgrade(&publisher)).unwrap();
    manager.add_reference(&owner(), &ObjectKey::new("shop", "settings"));
    let error = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let told = "its own thread cannot wait for it";
    assert!(error.to_string().contains(told), "{error}");
    // A wait on another thread is none.
    publisher.publish_by(PATIENCE).unwrap();
}
