//! Snapshots over a fake server and a real disk: the file of one process, and its use by the next.

mod random;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::*;
use crate::clock::{Deadline, FakeClock};
use crate::hooks::Hook;
use crate::list_watch::{Api, Getter, ListerWatcher};
use crate::manager::{ChangeDetection, ManagerOptions, ObjectState};
use crate::object::{Object as _, ObjectKey, Scope};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::testing::{FakeSource, RequestKind, SeenRequest, SourceFault, objects};
use crate::tests::temp_directory::TempDirectory;
use crate::tests::until::{until, until_some};

/// It only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

struct Key(u8);

impl SnapshotKey for Key {
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        assert_ne!(self.0, 0, "a key of a program may panic");
        to.fill(self.0);
        Ok(())
    }
}

fn soon() -> Deadline {
    Clock::system().after(PATIENCE)
}

fn options(path: &Path) -> SnapshotOptions {
    // The snapshot writes only when a test asks, and at the end.
    SnapshotOptions::new(path, Key(7)).interval(PATIENCE)
}

fn secret(name: &str, value: &str) -> Secret {
    objects::secret("shop", name, "", &[("password", value)])
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

fn owner() -> Owner {
    Owner::new("Service", ObjectKey::new("", "proxy"))
}

type Secrets = ObjectManager<Secret>;

fn manager(server: &FakeSource<Secret>, mode: ChangeDetection) -> Secrets {
    let options = ManagerOptions::default().change_detection(mode);
    Secrets::new(server.clone(), options).unwrap()
}

fn read(secrets: &Secrets, name: &str) -> String {
    let found = secrets.get_by("shop", name, soon()).unwrap();
    let data = found.data.as_ref().unwrap();
    String::from_utf8(data["password"].0.clone()).unwrap()
}

/// Plays a process that has these objects in memory and ends.
fn leave(path: &Path, server: &FakeSource<Secret>, names: &[&str]) {
    let snapshot = Snapshot::open(options(path)).unwrap();
    let secrets = manager(server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    for name in names {
        secrets.add_reference(&owner(), &key(name));
        read(&secrets, name);
    }
}

/// A server with three Secrets, and the file of a process that had them.
fn left(directory: &Path) -> (FakeSource<Secret>, PathBuf) {
    let server = FakeSource::<Secret>::new();
    for name in ["a", "b", "c"] {
        server.set(secret(name, &format!("value of {name}")));
    }
    let path = directory.join("snapshot");
    leave(&path, &server, &["a", "b", "c"]);
    (server, path)
}

fn go_away(server: &FakeSource<Secret>) {
    for kind in [RequestKind::List, RequestKind::Watch, RequestKind::Get] {
        server.fail_all(
            kind,
            Error::new(ErrorKind::Unreachable, "the server is away"),
        );
    }
}

fn hooked(options: SnapshotOptions) -> (SnapshotOptions, Receiver<SnapshotDifference>) {
    let (send, told) = channel();
    let hook = Hook::new(move |difference: &SnapshotDifference| {
        drop(send.send(difference.clone()));
    });
    (options.on_difference(hook), told)
}

/// A server, before whose first watch a file is written and kept.
struct WritesFirst {
    server: FakeSource<Secret>,
    snapshot: Arc<Snapshot>,
    path: PathBuf,
    kept: PathBuf,
}

impl Api<Secret> for WritesFirst {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<Secret>> {
        if !self.kept.exists() {
            self.snapshot.write_by(soon()).unwrap();
            fs::copy(&self.path, &self.kept).unwrap();
        }
        Api::lister_watcher(&self.server, scope)
    }

    fn getter(&self) -> Arc<dyn Getter<Secret>> {
        self.server.getter()
    }
}

/// A process that ends while it restores its owners loses none of them, and no reference.
#[test]
fn a_file_that_is_written_during_a_restore_has_all_owners() {
    let directory = TempDirectory::new("snapshot-restore");
    let (server, path) = left(&directory);
    let other = Owner::new("Service", ObjectKey::new("", "other"));
    {
        let snapshot = Snapshot::open(options(&path)).unwrap();
        let secrets = manager(&server, ChangeDetection::Watch);
        snapshot.attach(&secrets).unwrap();
        snapshot.restore(&secrets);
        secrets.set_references(&other, ["a", "b"].map(key));
    }
    let kept = directory.join("kept");
    let snapshot = Arc::new(Snapshot::open(options(&path)).unwrap());
    let api = WritesFirst {
        server: server.clone(),
        snapshot: Arc::clone(&snapshot),
        path,
        kept: kept.clone(),
    };
    let secrets = Secrets::new(api, ManagerOptions::default()).unwrap();
    snapshot.attach(&secrets).unwrap();
    assert_eq!(snapshot.restore(&secrets), [other.clone(), owner()]);
    drop((secrets, snapshot));

    let snapshot = Snapshot::open(options(&kept)).unwrap();
    assert!(snapshot.load_error().is_none());
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    assert_eq!(snapshot.restore(&secrets), [other, owner()]);
    let counts = secrets.inspect().into_values().map(|objects| objects.len());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 3]);
}

/// Seen: the references of the process before replaced those that the program had given already.
#[test]
fn a_restore_takes_no_reference_away_that_the_program_has_given() {
    let directory = TempDirectory::new("snapshot-given");
    let (server, path) = left(&directory);
    server.set(secret("d", "value of d"));
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    secrets.set_references(&owner(), [key("a"), key("d")]);
    assert_eq!(snapshot.restore(&secrets), [owner()]);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(read(&secrets, name), format!("value of {name}"));
    }
    // Each counts once.
    secrets.remove_reference(&owner(), &key("a"));
    let given_up = secrets.get_cached("shop", "a").unwrap_err();
    assert_eq!(given_up.kind(), ErrorKind::NotRegistered);
}

fn offline_boot(mode: ChangeDetection) {
    let directory = TempDirectory::new("snapshot-boot");
    let (server, path) = left(&directory);
    go_away(&server);
    let (options, told) = hooked(options(&path));
    let snapshot = Snapshot::open(options).unwrap();
    assert!(snapshot.load_error().is_none());
    let secrets = manager(&server, mode);
    snapshot.attach(&secrets).unwrap();
    assert_eq!(snapshot.restore(&secrets), [owner()]);
    assert!(snapshot.restore(&secrets).is_empty(), "once");
    for name in ["a", "b", "c"] {
        let found = secrets.get_by("shop", name, soon()).unwrap();
        assert!(found.is_stale());
        assert!(found.age() < PATIENCE);
        assert_eq!(read(&secrets, name), format!("value of {name}"));
        let report = secrets.inspect_object(&key(name)).unwrap();
        assert_eq!(report.state, ObjectState::Restored, "{report:?}");
        assert_eq!(report.keys, 1);
        assert!(report.since_contact.is_some());
        let held = secrets.get_cached("shop", name).unwrap().unwrap();
        assert!(held.is_stale());
        assert!(
            secrets.get_fresh("shop", name, soon()).is_err(),
            "never out of the file"
        );
    }
    server.heal();
    server.set(secret("b", "another"));
    server.delete("shop", "c");
    let confirmed = |name: &str| {
        until(|| !secrets.get_by("shop", name, soon()).unwrap().is_stale());
        read(&secrets, name)
    };
    assert_eq!(confirmed("a"), "value of a");
    assert_eq!(confirmed("b"), "another");
    let gone = || match secrets.get_by("shop", "c", soon()) {
        Ok(found) => {
            assert!(found.is_stale());
            false
        }
        Err(error) => error.is_not_found(),
    };
    until(gone);
    let mut differences = [told.recv().unwrap(), told.recv().unwrap()].map(|told| told.to_string());
    differences.sort();
    assert_eq!(
        differences,
        [
            "Secret shop/b changed while this process was down",
            "Secret shop/c was deleted while this process was down",
        ]
    );
    drop((snapshot, secrets));
    assert!(
        told.try_recv().is_err(),
        "what was confirmed is no difference"
    );
}

#[test]
fn readers_of_watched_objects_get_what_the_process_before_had_until_the_server_answers() {
    offline_boot(ChangeDetection::Watch);
}

#[test]
fn readers_of_fetched_objects_get_what_the_process_before_had_until_the_server_answers() {
    offline_boot(ChangeDetection::Cache);
}

/// A version of the file is no floor for the server: its history may have been put back.
#[test]
fn the_first_list_asks_for_no_version_of_the_file() {
    let directory = TempDirectory::new("snapshot-floor");
    let (server, path) = left(&directory);
    let before = server.version();
    server.set(secret("a", "newer"));
    leave(&path, &server, &["a"]);
    server.restore(before);
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    secrets.add_reference(&owner(), &key("a"));
    until(|| !secrets.get_by("shop", "a", soon()).unwrap().is_stale());
    assert_eq!(read(&secrets, "a"), "value of a");
}

#[test]
fn a_refusal_is_the_servers_word_and_the_file_is_not_asked_then() {
    let directory = TempDirectory::new("snapshot-refused");
    let (server, path) = left(&directory);
    let status =
        crate::error::Status::from(k8s_openapi::apimachinery::pkg::apis::meta::v1::Status {
            code: Some(403),
            reason: Some("Forbidden".to_owned()),
            ..k8s_openapi::apimachinery::pkg::apis::meta::v1::Status::default()
        });
    for kind in [RequestKind::List, RequestKind::Watch, RequestKind::Get] {
        server.fail_all(kind, Error::from_status(status.clone()));
    }
    for mode in [ChangeDetection::Watch, ChangeDetection::Cache] {
        let snapshot = Snapshot::open(options(&path)).unwrap();
        let secrets = manager(&server, mode);
        snapshot.attach(&secrets).unwrap();
        snapshot.restore(&secrets);
        let refused = until_some(|| secrets.get_by("shop", "a", soon()).err());
        assert_eq!(refused.kind(), ErrorKind::Forbidden);
    }
}

/// Seen: a second reference to an object dropped it from each file until it was read again.
#[test]
fn what_a_reference_invalidates_stays_in_the_file_until_the_server_answers() {
    let directory = TempDirectory::new("snapshot-shared");
    let (server, path) = left(&directory);
    let in_file = || {
        let key = KeyBytes::of(&options(&path).key).unwrap();
        let mut parts = options(&path).load(&key, SystemTime::now()).unwrap();
        parts
            .remove("v1/secrets")
            .unwrap()
            .objects
            .contains_key(&self::key("a"))
    };
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Cache);
    snapshot.attach(&secrets).unwrap();
    snapshot.restore(&secrets);
    assert_eq!(read(&secrets, "a"), "value of a");
    go_away(&server);
    let other = Owner::new("Service", ObjectKey::new("", "other"));
    for _ in 0..2 {
        secrets.add_reference(&other, &key("a"));
        snapshot.write_by(soon()).unwrap();
        assert!(in_file());
        assert!(secrets.get_cached("shop", "a").unwrap().is_none());
        secrets.remove_reference(&other, &key("a"));
    }
    // The server's answer ends it.
    server.heal();
    server.delete("shop", "a");
    secrets.get_by("shop", "a", soon()).unwrap_err();
    snapshot.write_by(soon()).unwrap();
    assert!(!in_file());
}

/// Seen: neither the seed nor the answer was in the file then.
#[test]
fn an_answer_that_a_reference_overtakes_is_in_the_file() {
    let directory = TempDirectory::new("snapshot-overtaken");
    let (server, path) = left(&directory);
    server.plan(|_request| Some(SourceFault::Hang));
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Cache);
    snapshot.attach(&secrets).unwrap();
    snapshot.restore(&secrets);
    let is_get = |request: &SeenRequest| request.kind == RequestKind::Get;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&secrets, "a"));
        until(|| server.requests().iter().any(is_get));
        let other = Owner::new("Service", ObjectKey::new("", "other"));
        secrets.add_reference(&other, &key("a"));
        server.heal();
        assert_eq!(reading.join().unwrap(), "value of a");
    });
    go_away(&server);
    snapshot.write_by(soon()).unwrap();
    assert_eq!(names_in(&path, "v1/secrets"), "a b c");
}

/// Seen: the objects of such references went with the unclaimed ones.
#[test]
fn what_was_referenced_before_the_snapshot_came_stays_until_the_server_answers() {
    for mode in [ChangeDetection::Watch, ChangeDetection::Cache] {
        let directory = TempDirectory::new("snapshot-before");
        let (server, path) = left(&directory);
        go_away(&server);
        let secrets = manager(&server, mode);
        secrets.add_reference(&owner(), &key("a"));
        let late = options(&path).claim_within(Duration::ZERO);
        let snapshot = Snapshot::open(late).unwrap();
        snapshot.attach(&secrets).unwrap();
        for _ in 0..2 {
            snapshot.write_by(soon()).unwrap();
            assert_eq!(names_in(&path, "v1/secrets"), "a");
        }
        server.heal();
        server.delete("shop", "a");
        until(|| {
            let found = secrets.get_by("shop", "a", soon());
            found.is_err_and(|error| error.is_not_found())
        });
        snapshot.write_by(soon()).unwrap();
        assert_eq!(names_in(&path, "v1/secrets"), "");
    }
}

/// Seen: after a boot with a clock that was behind, all objects were new.
#[test]
fn a_clock_that_is_behind_makes_no_object_younger_than_its_file_says() {
    let directory = TempDirectory::new("snapshot-behind");
    let (server, path) = left(&directory);
    go_away(&server);
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    let mut text = PlainText::new(usize::MAX);
    content::write_head(&mut text, now + 3 * day).unwrap();
    content::write_owners(&mut text, "v1/secrets", &BTreeMap::new()).unwrap();
    content::write_object(&mut text, &key("a"), now + day).unwrap();
    let object = secret("a", "value of a");
    object.write_json(&mut text).unwrap();
    text.write_all(b"\n").unwrap();
    let options = options(&path);
    let sealing = KeyBytes::of(&options.key).unwrap();
    let (head, tag) = seal::seal(&sealing, "", &mut text.bytes).unwrap();
    file::replace(&path, &[&head[..], &text.bytes, &tag], false).unwrap();

    let snapshot = Snapshot::open(options).unwrap();
    assert!(snapshot.load_error().is_none());
    let secrets = manager(&server, ChangeDetection::Cache);
    snapshot.attach(&secrets).unwrap();
    secrets.add_reference(&owner(), &key("a"));
    let found = secrets.get_by("shop", "a", soon()).unwrap();
    assert!(found.age() >= 2 * day, "{:?}", found.age());
}

#[test]
fn what_nobody_references_goes_with_the_next_write_once_it_was_claimed() {
    let directory = TempDirectory::new("snapshot-claims");
    let (server, path) = left(&directory);
    go_away(&server);
    let names = || {
        let parts = {
            let options = options(&path);
            options.load(&KeyBytes::of(&options.key).unwrap(), SystemTime::now())
        }
        .unwrap();
        let part = &parts["v1/secrets"];
        let owned = part
            .owners
            .values()
            .flatten()
            .map(|key| key.name().to_owned());
        let names = part.objects.keys().map(|key| key.name().to_owned());
        (
            owned.collect::<Vec<_>>().join(" "),
            names.collect::<Vec<_>>().join(" "),
        )
    };
    assert_eq!(names(), ("a b c".to_owned(), "a b c".to_owned()));
    // Another owner claims one: the others stay for owners that have not come yet.
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    let other = Owner::new("Service", ObjectKey::new("", "other"));
    secrets.add_reference(&other, &key("a"));
    snapshot.write_by(soon()).unwrap();
    assert_eq!(names().1, "a b c");
    // All claimed, then one given up.
    snapshot.restore(&secrets);
    secrets.set_references(&owner(), [key("a"), key("c")]);
    snapshot.write_by(soon()).unwrap();
    assert_eq!(names(), ("a a c".to_owned(), "a c".to_owned()));
    drop((snapshot, secrets));

    let late = options(&path).claim_within(Duration::ZERO);
    let snapshot = Snapshot::open(late).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    secrets.add_reference(&other, &key("c"));
    drop((snapshot, secrets));
    assert_eq!(names(), ("c".to_owned(), "c".to_owned()));
}

/// The file had its references of the process before, and a later process would bring it back.
#[test]
fn an_owner_that_goes_in_this_process_is_restored_in_no_later_one() {
    /// How the owner goes, which had references to `a`, `b` and `c` in the process before.
    type Goes = fn(&Secrets);
    let ways: [Goes; 4] = [
        |secrets| {
            secrets.set_references(&owner(), [key("b")]);
            secrets.set_references(&owner(), []);
        },
        |secrets| {
            secrets.add_reference(&owner(), &key("c"));
            secrets.remove_reference(&owner(), &key("c"));
            secrets.remove_reference(&owner(), &key("b"));
        },
        // It is known to be gone before it had any reference here.
        |secrets| secrets.set_references(&owner(), []),
        |secrets| secrets.remove_reference(&owner(), &key("b")),
    ];
    for (way, goes) in ways.into_iter().enumerate() {
        for writes_before in [false, true] {
            let directory = TempDirectory::new("snapshot-gone");
            let (server, path) = left(&directory);
            let snapshot = Snapshot::open(options(&path)).unwrap();
            let secrets = manager(&server, ChangeDetection::Watch);
            snapshot.attach(&secrets).unwrap();
            if writes_before {
                secrets.set_references(&owner(), [key("b")]);
                snapshot.write_by(soon()).unwrap();
            }
            goes(&secrets);
            let restored = snapshot.restore(&secrets);
            // To remove a reference that it never had here does nothing.
            let is_known = way < 3 || writes_before;
            assert_eq!(restored.is_empty(), is_known, "way {way}: {restored:?}");
            secrets.set_references(&owner(), []);
            drop((snapshot, secrets));

            let snapshot = Snapshot::open(options(&path)).unwrap();
            let secrets = manager(&server, ChangeDetection::Watch);
            snapshot.attach(&secrets).unwrap();
            assert_eq!(snapshot.restore(&secrets), [], "way {way}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_the_start_is_one_without_it() {
    let directory = TempDirectory::new("snapshot-broken");
    let (_server, path) = left(&directory);
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    let usual = || options(&path);
    let other_key = SnapshotOptions {
        key: Arc::new(Key(8)),
        ..usual()
    };
    let rows: [(&[u8], SnapshotOptions, &str); 8] = [
        (&whole[..99], usual(), "it is cut off"),
        (b"", usual(), "it is cut off"),
        (&changed, usual(), "it was changed since it was written"),
        (b"[Unit]\n", usual(), "it is no snapshot of kubecache"),
        (&whole, other_key, "it was sealed with another key"),
        (
            &whole,
            usual().name("other"),
            "it was written under another name: \"\", not \"other\"",
        ),
        (
            &whole,
            usual().age_max(Duration::ZERO),
            " s ago, and 0 s are allowed",
        ),
        (
            &[7; 5000],
            usual().bytes_max(0),
            "it has 5000 bytes, and at most",
        ),
    ];
    let refused = |options: SnapshotOptions, words: &str| {
        let snapshot = Snapshot::open(options).unwrap();
        let error = snapshot.load_error().unwrap().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    };
    for (bytes, options, words) in rows {
        fs::write(&path, bytes).unwrap();
        refused(options, words);
    }
    fs::remove_file(&path).unwrap();
    symlink("/nowhere", &path).unwrap();
    refused(usual(), "symbolic link");
}

/// The file may belong to another program.
#[test]
fn a_file_that_cannot_be_used_is_kept_beside_the_new_one() {
    let directory = TempDirectory::new("snapshot-kept");
    let (server, path) = left(&directory);
    fs::write(&path, "[Unit]\n").unwrap();
    let snapshot = Snapshot::open(options(&path)).unwrap();
    assert!(snapshot.load_error().is_some());
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    secrets.add_reference(&owner(), &key("a"));
    read(&secrets, "a");
    snapshot.write_by(soon()).unwrap();
    let kept = directory.join("snapshot.unusable");
    assert_eq!(fs::read(kept).unwrap(), b"[Unit]\n");
    drop(snapshot);
    assert!(
        Snapshot::open(options(&path))
            .unwrap()
            .load_error()
            .is_none()
    );
}

/// A folder, a pipe or a link at the file's path is somebody's, and no write moves or replaces it.
#[test]
fn what_is_no_plain_file_stays_and_each_write_says_so() {
    let directory = TempDirectory::new("snapshot-no-file");
    let (server, path) = left(&directory);
    let elsewhere = directory.join("elsewhere");
    let ways: [&dyn Fn(); 2] = [&|| fs::create_dir_all(path.join("deep")).unwrap(), &|| {
        symlink(&elsewhere, &path).unwrap();
    }];
    for before in [true, false] {
        for way in ways {
            fs::remove_file(&path).unwrap();
            if before {
                way();
            }
            let snapshot = Snapshot::open(options(&path)).unwrap();
            assert_eq!(snapshot.load_error().is_some(), before);
            if !before {
                way();
            }
            let secrets = manager(&server, ChangeDetection::Watch);
            snapshot.attach(&secrets).unwrap();
            secrets.add_reference(&owner(), &key("a"));
            read(&secrets, "a");
            let error = snapshot.write_by(soon()).unwrap_err().to_string();
            let told = format!("{}: it is no plain file; move it elsewhere", path.display());
            assert!(error.contains(&told), "{error}");
            drop(snapshot);
            assert!(!path.is_file());
            let mut names: Vec<_> = fs::read_dir(&*directory).unwrap().collect();
            names.retain(|entry| !entry.as_ref().unwrap().path().ends_with("snapshot.lock"));
            assert_eq!(names.len(), 1, "{names:?}");
            fs::remove_dir_all(&path)
                .or_else(|_| fs::remove_file(&path))
                .unwrap();
            fs::write(&path, "").unwrap();
        }
    }
}

/// Seen: a folder of that name ended all writes, and the error did not name it.
#[test]
fn a_file_of_the_name_for_what_cannot_be_used_is_left_alone_and_blocks_nothing() {
    let directory = TempDirectory::new("snapshot-twice");
    let (server, path) = left(&directory);
    let kept = directory.join("snapshot.unusable");
    let ways: [fn(&Path); 2] = [
        |kept| fs::create_dir(kept).unwrap(),
        |kept| fs::write(kept, "somebody's").unwrap(),
    ];
    for way in ways {
        fs::write(&path, "[Unit]\n").unwrap();
        way(&kept);
        let snapshot = Snapshot::open(options(&path)).unwrap();
        let secrets = manager(&server, ChangeDetection::Watch);
        snapshot.attach(&secrets).unwrap();
        secrets.add_reference(&owner(), &key("a"));
        read(&secrets, "a");
        snapshot.write_by(soon()).unwrap();
        drop(snapshot);
        let entries = fs::read_dir(&*directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let others = entries.filter(|other| {
            let name = other.file_name().unwrap().to_str().unwrap();
            name.starts_with("snapshot.unusable") && *other != kept
        });
        let others: Vec<_> = others.collect();
        assert_eq!(others.len(), 1, "{others:?}");
        assert_eq!(fs::read(&others[0]).unwrap(), b"[Unit]\n");
        fs::remove_file(&others[0]).unwrap();
        if kept.is_dir() {
            fs::remove_dir(&kept).unwrap();
        }
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "somebody's");
}

/// Seen: of two processes the last writer won, silently.
#[test]
fn one_snapshot_at_a_time_writes_a_file() {
    let directory = TempDirectory::new("snapshot-writer");
    let (_server, path) = left(&directory);
    let first = Snapshot::open(options(&path)).unwrap();
    let refused = Snapshot::open(options(&path)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    let told = format!(
        "the snapshot {}: another process writes it: {} on ",
        path.display(),
        std::process::id()
    );
    assert!(refused.to_string().starts_with(&told), "{refused}");
    drop(first);
    Snapshot::open(options(&path)).unwrap();
}

/// A process that was killed left such a file half written.
#[test]
fn what_killed_processes_left_goes_and_nothing_else() {
    let directory = TempDirectory::new("snapshot-leftovers");
    let (_server, path) = left(&directory);
    let stay = [
        "another.new",
        "another.new0123456789abcdef",
        "snapshot.new",
        "snapshot.new-0123456789abcd",
        "snapshot.newest",
    ];
    for name in stay.iter().chain(&["snapshot.new0123456789abcdef"]) {
        fs::write(directory.join(name), "half").unwrap();
    }
    Snapshot::open(options(&path)).unwrap();
    let entries = fs::read_dir(&*directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut stay: Vec<_> = ["snapshot", "snapshot.lock"]
        .into_iter()
        .chain(stay)
        .collect();
    stay.sort_unstable();
    assert_eq!(names, stay);
}

/// A snapshot that cannot make its lock still starts, but writes no file.
#[test]
fn without_its_lock_a_snapshot_is_read_and_not_written() {
    let directory = TempDirectory::new("snapshot-no-lock");
    let (server, path) = left(&directory);
    let lock = directory.join("snapshot.lock");
    fs::remove_file(&lock).unwrap();
    let before = fs::read(&path).unwrap();
    let ways: [(&str, &dyn Fn()); 3] = [
        ("no lock of a snapshot", &|| {
            fs::write(&lock, "of another program").unwrap();
        }),
        ("Is a directory", &|| fs::create_dir(&lock).unwrap()),
        ("symbolic link", &|| symlink(&path, &lock).unwrap()),
    ];
    for (why, make) in ways {
        make();
        let snapshot = Snapshot::open(options(&path)).unwrap();
        assert!(snapshot.load_error().is_none());
        let secrets = manager(&server, ChangeDetection::Watch);
        snapshot.attach(&secrets).unwrap();
        snapshot.restore(&secrets);
        read(&secrets, "a");
        let error = snapshot.write_by(soon()).unwrap_err().to_string();
        assert!(
            error.contains("snapshot.lock: ") && error.contains(why),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::remove_dir(&lock)
            .or_else(|_| fs::remove_file(&lock))
            .unwrap();
        snapshot.write_by(soon()).unwrap();
        drop((snapshot, secrets));
        fs::remove_file(&lock).unwrap();
        fs::write(&path, &before).unwrap();
    }
}

#[test]
fn no_value_stands_in_the_file_and_nobody_else_has_rights_to_it() {
    let directory = TempDirectory::new("snapshot-sealed");
    let (_server, path) = left(&directory);
    let file = fs::read(&path).unwrap();
    for plain in ["value of a", "dmFsdWUgb2YgYQ", "shop", "password"] {
        assert!(
            memchr::memmem::find(&file, plain.as_bytes()).is_none(),
            "{plain}"
        );
    }
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_write_that_fails_is_told_and_the_old_file_stays_until_it_is_right_again() {
    let directory = TempDirectory::new("snapshot-writes");
    let (server, path) = left(&directory);
    let before = fs::read(&path).unwrap();
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    snapshot.restore(&secrets);
    read(&secrets, "a");
    // Its folder is elsewhere.
    let moved = directory.with_extension("moved");
    fs::rename(&*directory, &moved).unwrap();
    let error = snapshot.write_by(soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resources);
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    assert!(snapshot.status().last_error.is_some());
    fs::rename(&moved, &*directory).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    snapshot.write_by(soon()).unwrap();
    let status = snapshot.status();
    assert!(status.last_error.is_none() && status.written.is_some());
    assert_eq!(fs::read(&path).unwrap().len(), status.bytes);
    drop((snapshot, secrets));

    let full = options(&path).bytes_max(1000);
    let small = Snapshot::open(full).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    small.attach(&secrets).unwrap();
    server.set(secret("large", &"x".repeat(2000)));
    secrets.add_reference(&owner(), &key("large"));
    read(&secrets, "large");
    let error = small.write_by(soon()).unwrap_err().to_string();
    assert!(
        error.contains("more than 1000 bytes; SnapshotOptions::bytes_max"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_kept_is_refused_and_a_key_that_panics_is_an_error() {
    let directory = TempDirectory::new("snapshot-refusals");
    let path = directory.join("snapshot");
    let server = FakeSource::<Secret>::new();
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let gets = manager(&server, ChangeDetection::Get);
    let error = snapshot.attach(&gets).unwrap_err().to_string();
    assert!(error.contains("strategy Get"), "{error}");
    let [first, second] = [(), ()].map(|()| manager(&server, ChangeDetection::Watch));
    snapshot.attach(&first).unwrap();
    let error = snapshot.attach(&second).unwrap_err().to_string();
    assert_eq!(error, "the snapshot has a manager of v1/secrets already");
    let other = Snapshot::open(options(&directory.join("other"))).unwrap();
    let error = other.attach(&first).unwrap_err().to_string();
    assert!(error.contains("has a snapshot already"), "{error}");
    let panics = Snapshot::open(SnapshotOptions::new(&path, Key(0)));
    assert_eq!(panics.unwrap_err().kind(), ErrorKind::Panicked);
    let named = |bytes: usize| options(&directory.join("named")).name("x".repeat(bytes));
    let name = |bytes| Snapshot::open(named(bytes));
    assert_eq!(name(1025).unwrap_err().kind(), ErrorKind::Config);
    drop(name(1024).unwrap());
}

/// Nobody counts its `claim_within` any more. A program opens another one with another key.
#[test]
fn a_snapshot_that_was_dropped_seeds_nothing_and_leaves_room_for_another() {
    for mode in [ChangeDetection::Watch, ChangeDetection::Cache] {
        let directory = TempDirectory::new("snapshot-dropped");
        let (server, path) = left(&directory);
        go_away(&server);
        let secrets = manager(&server, mode);
        let first = Snapshot::open(options(&path)).unwrap();
        first.attach(&secrets).unwrap();
        drop(first);
        secrets.add_reference(&owner(), &key("a"));
        assert!(!matches!(secrets.get_cached("shop", "a"), Ok(Some(_))));
        let second = Snapshot::open(options(&path)).unwrap();
        second.attach(&secrets).unwrap();
        secrets.add_reference(&owner(), &key("b"));
        assert!(secrets.get_by("shop", "b", soon()).unwrap().is_stale());
    }
}

#[test]
fn a_secret_and_a_config_map_are_written_as_they_are() {
    let mut plain = secret("odd \"name\"", "");
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.resize(10_000, 7);
    plain
        .data
        .as_mut()
        .unwrap()
        .insert("k\"\n".to_owned(), k8s_openapi::ByteString(bytes));
    plain.immutable = Some(true);
    plain.type_ = Some("Opaque".to_owned());
    let mut text = PlainText::new(usize::MAX);
    plain.write_json(&mut text).unwrap();
    assert_eq!(
        serde_json::from_slice::<Secret>(&text.bytes).unwrap(),
        plain
    );
    let map = objects::config_map("shop", "m", "1", &[("a", "line\nline")]);
    let mut text = PlainText::new(usize::MAX);
    map.write_json(&mut text).unwrap();
    assert!(!text.bytes.contains(&b'\n'));
    assert_eq!(
        serde_json::from_slice::<ConfigMap>(&text.bytes).unwrap(),
        map
    );
    assert_eq!(map.name(), "m");
}

/// Also with a server that never answers.
#[test]
fn a_silent_server_holds_up_no_reader() {
    let directory = TempDirectory::new("snapshot-silent");
    let (server, path) = left(&directory);
    server.plan(|_request| Some(SourceFault::Hang));
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    snapshot.restore(&secrets);
    assert_eq!(read(&secrets, "a"), "value of a");
    assert!(secrets.get("shop", "b").unwrap().is_stale());
}

/// A program's own object, whose code the test controls.
#[derive(Clone)]
struct Rack {
    metadata: ObjectMeta,
    /// The function that it calls when it is written.
    writes: Option<Arc<WriteJson>>,
}

/// Reports its entry, and waits for the test.
struct Gate(Sender<()>, Receiver<()>);

thread_local! {
    /// The gate of the next Rack that is decoded on this thread.
    static DECODING: RefCell<Option<Gate>> = const { RefCell::new(None) };
}

impl<'de> Deserialize<'de> for Rack {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde_derive::Deserialize)]
        struct Raw {
            metadata: ObjectMeta,
        }
        if let Some(Gate(entered, end)) = DECODING.take() {
            entered.send(()).map_err(serde::de::Error::custom)?;
            let ended = end.recv_timeout(PATIENCE);
            ended.map_err(serde::de::Error::custom)?;
        }
        let Raw { metadata } = Raw::deserialize(deserializer)?;
        Ok(Self {
            metadata,
            writes: None,
        })
    }
}

impl k8s_openapi::Resource for Rack {
    const API_VERSION: &'static str = "example.com/v1";
    const GROUP: &'static str = "example.com";
    const KIND: &'static str = "Rack";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "racks";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl Metadata for Rack {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

type WriteJson = Box<dyn Fn(&Rack, &mut dyn io::Write) -> io::Result<()> + Send + Sync>;

impl SnapshotObject for Rack {
    fn write_json(&self, to: &mut dyn io::Write) -> io::Result<()> {
        let metadata = serde_json::to_string(&self.metadata)?;
        write!(to, "{{\"metadata\":{metadata}}}")?;
        let writes = self.writes.as_ref();
        writes.map_or(Ok(()), |writes| writes(self, to))
    }
}

/// A snapshot of Racks, one of which is referenced, after its first write.
fn racks(
    path: &Path,
    writes: impl Fn(&Rack, &mut dyn io::Write) -> io::Result<()> + Send + Sync + 'static,
) -> (Snapshot, ObjectManager<Rack>, FakeSource<Rack>) {
    let server = FakeSource::<Rack>::new();
    let writes: Arc<WriteJson> = Arc::new(Box::new(writes));
    for name in ["a", "b", "c"] {
        server.set(Rack {
            writes: Some(Arc::clone(&writes)),
            ..rack(name)
        });
    }
    let snapshot = Snapshot::open(options(path).bytes_max(10_000)).unwrap();
    let racks = ObjectManager::new(server.clone(), ManagerOptions::default()).unwrap();
    snapshot.attach(&racks).unwrap();
    racks.add_reference(&owner(), &key("a"));
    racks.get_by("shop", "a", soon()).unwrap();
    snapshot.write_by(soon()).unwrap();
    (snapshot, racks, server)
}

fn rack(name: &str) -> Rack {
    let metadata = ObjectMeta {
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Rack {
        metadata,
        writes: None,
    }
}

/// The names of the objects of a kind in the file.
fn names_in(path: &Path, kind: &str) -> String {
    let options = options(path);
    let parts = options.load(&KeyBytes::of(&options.key).unwrap(), SystemTime::now());
    let names: Vec<_> = parts.unwrap()[kind]
        .objects
        .keys()
        .map(|key| key.name().to_owned())
        .collect();
    names.join(" ")
}

fn names_of_racks(path: &Path) -> String {
    names_in(path, "example.com/v1/racks")
}

#[test]
fn an_object_that_the_programs_code_cannot_write_is_left_out_and_named() {
    let directory = TempDirectory::new("snapshot-panics");
    let path = directory.join("snapshot");
    let wrong: [fn(&mut dyn io::Write) -> io::Result<()>; 3] = [
        |_| panic!("made up"),
        |_| Err(io::Error::other("made up")),
        |to| to.write_all(b"\n"),
    ];
    let said = [
        "write_json of Rack shop/b panicked: made up",
        "write_json of Rack shop/b: made up",
        "write_json of Rack shop/b wrote more than one line",
    ];
    let at = Arc::new(AtomicUsize::new(wrong.len()));
    let now = Arc::clone(&at);
    let (snapshot, racks, server) = racks(&path, move |rack, to| {
        let wrong = wrong.get(now.load(Ordering::SeqCst));
        let wrong = wrong.filter(|_| rack.name() == "b");
        wrong.map_or(Ok(()), |wrong| wrong(to))
    });
    for name in ["b", "c"] {
        racks.add_reference(&owner(), &key(name));
        racks.get_by("shop", name, soon()).unwrap();
    }
    for (number, said) in said.into_iter().enumerate() {
        at.store(number, Ordering::SeqCst);
        let before = snapshot.status().written;
        let error = snapshot.write_by(soon()).unwrap_err();
        let path_of = path.display();
        let expected = format!("the snapshot {path_of} leaves an object out: {said}");
        assert_eq!(error.to_string(), expected);
        let status = snapshot.status();
        assert_eq!(status.last_error.unwrap().to_string(), expected);
        let left_out: Vec<_> = status.left_out.iter().map(Error::to_string).collect();
        assert_eq!(left_out, [expected]);
        assert!(status.written > before, "the file is written");
        assert_eq!(names_of_racks(&path), "a c");
    }
    at.store(said.len(), Ordering::SeqCst);
    snapshot.write_by(soon()).unwrap();
    let status = snapshot.status();
    assert!(status.last_error.is_none() && status.left_out.is_empty());
    assert_eq!(names_of_racks(&path), "a b c");
    drop(server);
}

/// Leaving this object out does not help: the file is too large, even if the object's code hides
/// that.
#[test]
fn a_full_file_is_told_also_where_the_programs_code_does_not_tell() {
    let directory = TempDirectory::new("snapshot-full");
    let path = directory.join("snapshot");
    let is_large = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&is_large);
    let (snapshot, racks, server) = racks(&path, move |_, to| {
        let spaces = vec![b' '; now.load(Ordering::SeqCst)];
        let _refused = to.write_all(&spaces).is_err();
        Ok(())
    });
    let before = fs::read(&path).unwrap();
    is_large.store(20_000, Ordering::SeqCst);
    let error = snapshot.write_by(soon()).unwrap_err().to_string();
    assert!(error.contains("more than 10000 bytes"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before, "whole");
    drop((racks, server));
}

/// The program's code uses the manager from its own thread and others, and waits for them, so no
/// lock may be held.
#[test]
fn references_are_added_while_an_object_is_written_also_by_its_own_code() {
    let directory = TempDirectory::new("snapshot-under-way");
    let path = directory.join("snapshot");
    // The earlier process left the object that is claimed below.
    let (before, all, _server) = racks(&path, |_, _| Ok(()));
    for name in ["b", "c"] {
        all.add_reference(&owner(), &key(name));
        all.get_by("shop", name, soon()).unwrap();
    }
    drop((before, all));
    let (inside, entered) = channel();
    let (go, gate) = channel::<()>();
    let at_gate = Mutex::new((Some(inside), gate));
    let manager = Arc::new(OnceLock::<ObjectManager<Rack>>::new());
    // The manager's objects hold this.
    let used = Arc::downgrade(&manager);
    let (snapshot, racks, server) = racks(&path, move |_, _| {
        let used = used.upgrade();
        let (Some(racks), mut gate) = (used.as_ref().and_then(|used| used.get()), at_gate.lock())
        else {
            return Ok(());
        };
        if let Some(inside) = gate.0.take() {
            racks.add_reference(&owner(), &key("b"));
            inside.send(()).map_err(io::Error::other)?;
            gate.1.recv_timeout(PATIENCE).map_err(io::Error::other)?;
        }
        Ok(())
    });
    assert!(manager.set(racks).is_ok());
    let racks = manager.get().unwrap();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| snapshot.write_by(soon()));
        entered.recv_timeout(PATIENCE).unwrap();
        racks.add_reference(&owner(), &key("c"));
        let secrets = self::manager(&FakeSource::new(), ChangeDetection::Watch);
        snapshot.attach(&secrets).unwrap();
        assert_eq!(snapshot.restore(racks), [owner()]);
        go.send(()).unwrap();
        write.join().unwrap().unwrap();
    });
    for name in ["b", "c"] {
        assert!(racks.get_by("shop", name, soon()).is_ok());
    }
    drop(server);
}

/// A process of Racks whose server is away, after one that left the Rack `a`.
fn racks_offline(path: &Path, mode: ChangeDetection) -> (Snapshot, ObjectManager<Rack>) {
    let server = FakeSource::<Rack>::new();
    for kind in [RequestKind::List, RequestKind::Watch, RequestKind::Get] {
        let away = Error::new(ErrorKind::Unreachable, "the server is away");
        server.fail_all(kind, away);
    }
    let snapshot = Snapshot::open(options(path)).unwrap();
    let options = ManagerOptions::default().change_detection(mode);
    let racks = ObjectManager::new(server, options).unwrap();
    snapshot.attach(&racks).unwrap();
    (snapshot, racks)
}

/// Adds a reference to the Rack `a`, and calls `meanwhile` while that is being decoded.
fn add_slowly(racks: &ObjectManager<Rack>, meanwhile: impl FnOnce()) {
    let ((entered, inside), (go, end)) = (channel(), channel());
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            DECODING.set(Some(Gate(entered, end)));
            racks.add_reference(&owner(), &key("a"));
        });
        inside.recv_timeout(PATIENCE).unwrap();
        meanwhile();
        go.send(()).unwrap();
        adding.join().unwrap();
    });
}

/// A process that ends while it adds references loses no object.
#[test]
fn a_file_that_is_written_while_an_object_is_decoded_has_that_object() {
    for mode in [ChangeDetection::Watch, ChangeDetection::Cache] {
        let directory = TempDirectory::new("snapshot-decoding");
        let path = directory.join("snapshot");
        drop(racks(&path, |_, _| Ok(())));
        let (snapshot, racks) = racks_offline(&path, mode);
        add_slowly(&racks, || {
            // Another object's reference: an unchanged file is not written.
            racks.add_reference(&owner(), &key("b"));
            snapshot.write_by(soon()).unwrap();
        });
        assert!(racks.get_by("shop", "a", soon()).unwrap().is_stale());
        // The last write would include it again.
        let kept = directory.join("kept");
        fs::copy(&path, &kept).unwrap();
        drop((snapshot, racks));
        let (_snapshot, next) = racks_offline(&kept, mode);
        next.add_reference(&owner(), &key("a"));
        assert!(next.get_by("shop", "a", soon()).unwrap().is_stale());
    }
}

#[test]
fn an_object_that_is_referenced_anew_while_it_is_decoded_is_not_lost() {
    for mode in [ChangeDetection::Watch, ChangeDetection::Cache] {
        let directory = TempDirectory::new("snapshot-anew");
        let path = directory.join("snapshot");
        drop(racks(&path, |_, _| Ok(())));
        let (snapshot, racks) = racks_offline(&path, mode);
        add_slowly(&racks, || {
            racks.remove_reference(&owner(), &key("a"));
            racks.add_reference(&owner(), &key("a"));
        });
        assert!(racks.get_by("shop", "a", soon()).unwrap().is_stale());
        drop(snapshot);
    }
}

/// The reference behind the first decoding is gone, so it must not claim the object that the next
/// one needs.
#[test]
fn an_object_whose_reference_goes_while_it_is_decoded_stays_unclaimed() {
    let directory = TempDirectory::new("snapshot-unclaimed");
    let path = directory.join("snapshot");
    drop(racks(&path, |_, _| Ok(())));
    let (snapshot, racks) = racks_offline(&path, ChangeDetection::Watch);
    add_slowly(&racks, || racks.remove_reference(&owner(), &key("a")));
    racks.add_reference(&owner(), &key("a"));
    assert!(racks.get_by("shop", "a", soon()).unwrap().is_stale());
    drop(snapshot);
}

/// A healthy node may be unchanged for longer than the maximum age of a file.
#[test]
fn an_unchanged_file_is_written_again_before_it_is_too_old() {
    let directory = TempDirectory::new("snapshot-ages");
    let server = FakeSource::<Secret>::new();
    server.set(secret("a", "value"));
    let short = Duration::from_millis(1);
    let ageing = options(&directory.join("ageing")).interval(short);
    for (options, is_asked) in [
        (ageing.age_max(Duration::from_millis(10)), false),
        (options(&directory.join("asked")), true),
    ] {
        let snapshot = Snapshot::open(options).unwrap();
        let secrets = manager(&server, ChangeDetection::Watch);
        snapshot.attach(&secrets).unwrap();
        secrets.add_reference(&owner(), &key("a"));
        read(&secrets, "a");
        snapshot.write_by(soon()).unwrap();
        let first = snapshot.status().written;
        if is_asked {
            snapshot.write_by(soon()).unwrap();
        }
        until(|| {
            let is_written = snapshot.status().written != first;
            assert!(is_written || !is_asked);
            is_written
        });
    }
}

/// Seen: all Secrets were written as text each ten seconds, to find that nothing had changed.
#[test]
fn objects_are_not_looked_into_while_their_versions_stay() {
    let directory = TempDirectory::new("snapshot-unchanged");
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let path = directory.join("snapshot");
    let (snapshot, racks, server) = racks(&path, move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let core = Arc::clone(&snapshot.core);
    let mut last = LastWrite {
        state: None,
        keeps_old: false,
        lock: Some(
            WriterLock::of(fs::File::open(&*directory).unwrap())
                .unwrap()
                .unwrap(),
        ),
    };
    let never = StopToken::never();
    let mut write = || core.write(&mut last, &never).unwrap().is_some();
    assert!(write());
    let before = looks.load(Ordering::SeqCst);
    assert!(!write() && !write());
    assert_eq!(looks.load(Ordering::SeqCst), before);
    racks.add_reference(&owner(), &key("b"));
    racks.get_by("shop", "b", soon()).unwrap();
    assert!(write());
    assert_eq!(looks.load(Ordering::SeqCst), before + 2);
    drop(server);
}

/// Seen: after a month in which nothing changed the file said that the objects were confirmed a
/// month ago.
#[test]
fn the_hour_of_the_last_contact_counts_as_a_change() {
    let directory = TempDirectory::new("snapshot-contact");
    let server = FakeSource::<Secret>::new();
    server.set(secret("a", "value"));
    let clock = FakeClock::new();
    let managed = ManagerOptions::default().clock(clock.clone().into());
    let secrets = Secrets::new(server, managed).unwrap();
    let snapshot = Snapshot::open(options(&directory.join("snapshot"))).unwrap();
    snapshot.attach(&secrets).unwrap();
    secrets.add_reference(&owner(), &key("a"));
    secrets.get("shop", "a").unwrap();
    let state = || snapshot.core.look().unwrap().0;
    let first = state();
    assert_eq!(state(), first);
    clock.advance(Duration::from_secs(3 * 3600));
    assert_ne!(state(), first);
}

#[test]
fn an_unclaimed_object_that_goes_counts_as_a_change() {
    let directory = TempDirectory::new("snapshot-unclaimed");
    let (server, path) = left(&directory);
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    let state = || snapshot.core.look().unwrap().0;
    let first = state();
    assert_eq!(state(), first);
    let mut loaded = snapshot.core.loaded.0.lock();
    let part = loaded.get_mut("v1/secrets").unwrap();
    part.objects.remove(&key("a")).unwrap();
    drop(loaded);
    assert_ne!(state(), first);
}

/// Seen: a process that wrote before its second manager was attached erased that one's kind.
#[test]
fn a_kind_whose_manager_is_not_attached_stays_in_the_file() {
    let directory = TempDirectory::new("snapshot-kinds");
    let (server, path) = left(&directory);
    go_away(&server);
    let maps = FakeSource::<ConfigMap>::new();
    maps.set(objects::config_map("shop", "m", "", &[("a", "1")]));
    let boot_with_maps = |options| {
        let snapshot = Snapshot::open(options).unwrap();
        let maps = ObjectManager::new(maps.clone(), ManagerOptions::default()).unwrap();
        snapshot.attach(&maps).unwrap();
        maps.add_reference(&owner(), &key("m"));
        maps.get_by("shop", "m", soon()).unwrap();
        snapshot.write_by(soon()).unwrap();
        (snapshot, maps)
    };
    drop(boot_with_maps(options(&path)));
    // The next process has both.
    let snapshot = Snapshot::open(options(&path)).unwrap();
    let secrets = manager(&server, ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    assert_eq!(snapshot.restore(&secrets), [owner()]);
    assert_eq!(read(&secrets, "c"), "value of c");
    drop((snapshot, secrets));

    let kinds = || {
        let options = options(&path);
        let key = KeyBytes::of(&options.key).unwrap();
        let parts = options.load(&key, SystemTime::now()).unwrap();
        parts.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(kinds(), ["v1/configmaps", "v1/secrets"]);
    let (snapshot, maps) = boot_with_maps(options(&path));
    let state = || snapshot.core.look().unwrap().0;
    let before = state();
    snapshot.core.loaded.0.lock().clear();
    assert_ne!(state(), before, "what goes counts as a change");
    drop((snapshot, maps));
    assert_eq!(kinds(), ["v1/configmaps"]);
}

/// Seen: an interval of zero took a core.
#[test]
fn no_interval_is_shorter_than_ten_milliseconds() {
    let zero = SnapshotOptions::new("/nowhere", Key(7)).interval(Duration::ZERO);
    assert_eq!(zero.interval, Duration::from_millis(10));
}

/// A key that hangs from its second read on.
struct HangingKey {
    reads: Arc<AtomicUsize>,
    gate: Mutex<Receiver<()>>,
}

impl SnapshotKey for HangingKey {
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        to.fill(7);
        if self.reads.fetch_add(1, Ordering::SeqCst) > 0 {
            let _open = self.gate.lock().recv();
        }
        Ok(())
    }
}

/// Seen: the drop waited for another read.
#[test]
fn a_key_that_hangs_during_a_write_is_not_asked_again_at_the_end() {
    let directory = TempDirectory::new("snapshot-key-hangs");
    let (open, gate) = channel();
    let reads = Arc::new(AtomicUsize::new(0));
    let key = HangingKey {
        reads: Arc::clone(&reads),
        gate: Mutex::new(gate),
    };
    let path = directory.join("snapshot");
    let options = SnapshotOptions::new(&path, key).interval(PATIENCE);
    let snapshot = Snapshot::open(options).unwrap();
    let secrets = manager(&FakeSource::new(), ChangeDetection::Watch);
    snapshot.attach(&secrets).unwrap();
    while reads.load(Ordering::SeqCst) < 2 {
        drop(snapshot.write_by(Clock::system().after(Duration::from_millis(10))));
    }
    drop(snapshot);
    assert_eq!(reads.load(Ordering::SeqCst), 2);
    drop(open);
}
