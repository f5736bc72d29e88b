//! Layouts of the program: names, modes and owners of files, and the files of objects that the
//! server does not have.

use super::publisher::READ_PERIOD;
use super::*;
use crate::manager::ObjectState;
use crate::sync::Mutex;
use crate::tests::until::until;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A function that returns the test's layouts for an object that exists, one that was deleted, and
/// one that is missing. An object without data keeps its files.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Words>>);

/// The name of a file and its mode, and whether the files of a deleted object go, and of a missing
/// one; `None` is a failure.
type Words = (Option<String>, u32, [Option<bool>; 2]);

impl Told {
    fn outlet(&self, directory: &Path, clock: &FakeClock) -> Outlet {
        let told = self.clone();
        let options = OutletOptions::new(directory).clock(clock.clone().into());
        let options = options.layout(move |_kind, _key, presence| {
            let (file, mode, absent) = told.0.lock().clone();
            let removes = match presence {
                Presence::There(data) => {
                    let Some(file) = file.filter(|_| !data.is_empty()) else {
                        return Ok(Laid::Kept);
                    };
                    let bytes = data.values().copied().collect::<Vec<_>>().concat();
                    return Ok(Laid::Files(Layout::new().file(file, bytes).mode(mode)));
                }
                Presence::Deleted => absent[0],
                Presence::Missing => absent[1],
            };
            match removes {
                Some(true) => Ok(Laid::Removed),
                Some(false) => Ok(Laid::Kept),
                None => Err(Error::new(ErrorKind::NotFound, "it has to be there")),
            }
        });
        Outlet::open(options).unwrap()
    }

    fn file(&self, file: Option<&str>, mode: u32) {
        let mut told = self.0.lock();
        (told.0, told.1) = (file.map(str::to_owned), mode);
    }

    fn absent(&self, deleted: Option<bool>, missing: Option<bool>) {
        self.0.lock().2 = [deleted, missing];
    }
}

/// A publisher of `settings` with these layouts.
fn followed(told: &Told, directory: &Path, clock: &FakeClock) -> Followed {
    Followed::with(told.outlet(directory, clock), ManagerOptions::default())
}

/// Waits until the manager knows that there is no such object.
#[track_caller]
fn is_absent(followed: &Followed, name: &str) {
    let known = || {
        let owners = followed.manager.inspect().into_values();
        let mut reports = owners.flatten();
        reports.any(|report| report.key.name() == name && report.state == ObjectState::NotFound)
    };
    until(known);
}

/// Seen: a stop ended the removal between two files, and the next process took the object for one
/// that had never been there. Its files stayed.
#[test]
fn a_removal_that_was_cut_off_goes_on_where_what_is_missing_stays() {
    let directory = TempDirectory::new("layout-cut-removal");
    let told = Told::default();
    told.file(Some("all"), 0o600);
    told.absent(Some(true), Some(false));
    let outlet = told.outlet(&directory, &FakeClock::new());
    let object = map("settings", &[("a", "1"), ("b", "2")]);
    let mut cuts = 0_u32;
    while {
        outlet.publish(&object).unwrap();
        let left = std::cell::Cell::new(cuts);
        let check = || {
            let rest = left.get().checked_sub(1);
            left.set(rest.ok_or(io::ErrorKind::Interrupted)?);
            Ok(())
        };
        let removed = outlet.withdraw_checked::<ConfigMap>(&object.key(), &check);
        removed.is_err()
    } {
        let absent = outlet.lay_out_absent::<ConfigMap>(&object.key());
        let (laid, has_files) = absent.unwrap().unwrap();
        assert!(matches!(laid, Laid::Removed) && has_files, "cut {cuts}");
        cuts += 1;
    }
    assert!(cuts > 2, "{cuts}");

    // What somebody else put among the files stays, and is nothing to remove again and again.
    outlet.publish(&object).unwrap();
    let stray = directory.join("shop/configmaps/settings/..data/stray");
    fs::create_dir(stray).unwrap();
    outlet.withdraw::<ConfigMap>(&object.key()).unwrap();
    assert_eq!(generations(&directory.join("shop/configmaps/settings")), 1);
    let (laid, has_files) = outlet
        .lay_out_absent::<ConfigMap>(&object.key())
        .unwrap()
        .unwrap();
    assert!(matches!(laid, Laid::Kept) && !has_files);
}

#[test]
fn a_layout_names_files_and_gives_them_mode_and_owner() {
    let directory = TempDirectory::new("layout-files");
    let root = directory.join("made");
    let options = OutletOptions::new(&root).layout(|kind, key, presence| {
        assert_eq!(
            (kind, key.to_string().as_str()),
            ("ConfigMap", "shop/settings")
        );
        let Presence::There(data) = presence else {
            panic!("it is there");
        };
        let pair = ["a", "b"].map(|key| data[key]).concat();
        let layout = Layout::new().file("pair", pair).mode(0o640);
        Ok(Laid::Files(if rustix::process::geteuid().is_root() {
            layout.user(1234).group(4321)
        } else {
            layout
        }))
    });
    let outlet = Outlet::open(options).unwrap();
    let object = map("settings", &[("a", "1"), ("b", "2")]);
    assert!(outlet.publish(&object).unwrap());
    assert!(!outlet.publish(&object).unwrap());
    let folder = root.join("shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[("pair", "12")]));
    let facts = fs::metadata(folder.join("pair")).unwrap();
    assert_eq!(facts.permissions().mode() & 0o7777, 0o640);
    if rustix::process::geteuid().is_root() {
        assert_eq!((facts.uid(), facts.gid()), (1234, 4321));
        assert_eq!(fs::metadata(&folder).unwrap().uid(), 0);
    }
    // Other users can follow the path, and see names only where there is a file.
    for (path, expected) in [
        (root.clone(), 0o711),
        (root.join("shop"), 0o711),
        (root.join("shop/configmaps"), 0o711),
        (folder.clone(), 0o755),
        (folder.join("..data/"), 0o755),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

/// Seen: the owner could not reach the files, and nothing said so.
#[test]
fn a_directory_that_the_owner_of_the_files_cannot_enter_is_refused_with_the_remedy() {
    let directory = TempDirectory::new("layout-owner-passage");
    chmod(&directory, 0o700);
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let other = if user.is_root() { 7 } else { user.as_raw() };
    let options = OutletOptions::new(&*directory).owner(other, group.as_raw());
    let outlet = Outlet::open(options).unwrap();
    let object = map("settings", &[("a", "1")]);
    if user.is_root() {
        let error = outlet.publish(&object).unwrap_err().to_string();
        assert!(error.contains("chmod 711"), "{error}");
        chmod(&directory, 0o711);
    }
    assert!(outlet.publish(&object).unwrap());
}

#[test]
fn files_for_others_in_a_directory_that_they_cannot_enter_are_refused_with_the_remedy() {
    let directory = TempDirectory::new("layout-passage");
    chmod(&directory, 0o700);
    let (told, clock) = (Told::default(), FakeClock::new());
    told.file(Some("all"), 0o604);
    let outlet = told.outlet(&directory, &clock);
    let object = map("settings", &[("a", "1")]);
    let error = outlet.publish(&object).unwrap_err().to_string();
    assert!(error.contains("chmod 711"), "{error}");
    chmod(&directory, 0o711);
    assert!(outlet.publish(&object).unwrap());
    // A file for its owner alone closes its folder again.
    told.file(Some("all"), 0o600);
    assert!(outlet.publish(&object).unwrap());
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(
        (mode(&folder), mode(&folder.join("..data/"))),
        (0o700, 0o700)
    );
}

#[test]
fn what_no_outlet_can_write_is_refused_by_name() {
    let directory = TempDirectory::new("layout-refused");
    for (file, mode, why) in [
        ("../escape", 0o600, "file \"../escape\" "),
        ("a/b", 0o600, "file \"a/b\" "),
        ("", 0o600, "file \"\" is empty"),
        ("a", 0o4600, "mode 4600 "),
        ("a", 0o044, "mode 0044 "),
    ] {
        let (told, clock) = (Told::default(), FakeClock::new());
        told.file(Some(file), mode);
        let outlet = told.outlet(&directory, &clock);
        let error = outlet.publish(&map("settings", &[("a", "1")])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(names(&directory), [".kubecache"]);
}

#[test]
fn a_new_layout_is_written_although_no_object_changed() {
    let directory = TempDirectory::new("layout-new");
    let (told, clock) = (Told::default(), FakeClock::new());
    told.file(Some("one"), 0o600);
    let followed = followed(&told, &directory, &clock);
    followed.set(&[("a", "1")]);
    followed.publish().unwrap();
    assert_eq!(followed.next_changed(), ["settings"]);
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[("one", "1")]));
    told.file(Some("other"), 0o640);
    chmod(&directory, 0o711);
    followed.publisher.layouts_changed();
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("other", "1")]));
    assert_eq!(mode(&folder.join("other")), 0o640);
    assert_eq!(followed.next_changed(), ["settings"]);
}

/// A disk may hang as a layout does here. Seen: the status stayed that of the last round.
#[test]
fn a_round_that_hangs_shows_for_how_long() {
    let directory = TempDirectory::new("layout-hangs");
    let clock = FakeClock::new();
    let (began, beginnings) = channel();
    let (answer, answers) = crossbeam_channel::unbounded();
    let options = OutletOptions::new(&*directory).clock(clock.clone().into());
    let options = options.layout(move |_, _, _| {
        began.send(()).unwrap();
        let answer = answers.recv_timeout(PATIENCE);
        answer.map_err(|error| Error::config(error.to_string()))
    });
    let followed = Followed::with(Outlet::open(options).unwrap(), ManagerOptions::default());
    let at_work = || followed.publisher.status().at_work;
    followed.set(&[("a", "1")]);
    for seconds in [100, 7] {
        beginnings.recv_timeout(PATIENCE).unwrap();
        clock.advance(Duration::from_secs(seconds));
        assert_eq!(at_work(), Some(Duration::from_secs(seconds)));
        followed.publisher.layouts_changed();
        answer.send(Laid::Kept).unwrap();
    }
    beginnings.recv_timeout(PATIENCE).unwrap();
    followed.publisher.stop();
    assert!(at_work().is_some(), "it still hangs");
    drop(answer);
    until(|| at_work().is_none());
}

/// A layout may lack a part of its data: the earlier files stay whole.
#[test]
fn a_layout_that_keeps_leaves_the_files_of_before() {
    let directory = TempDirectory::new("layout-kept");
    let (told, clock) = (Told::default(), FakeClock::new());
    let followed = followed(&told, &directory, &clock);
    followed.set(&[("a", "1")]);
    followed.publish().unwrap();
    assert_eq!(followed.publisher.status().published, 0);
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[]));
    told.file(Some("all"), 0o600);
    followed.publisher.layouts_changed();
    followed.publish().unwrap();
    told.file(None, 0o600);
    followed.set(&[("a", "2")]);
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("all", "1")]));
    assert_eq!(followed.publisher.status().published, 1);
}

/// Seen: health was well again, and the files did not come back.
#[test]
fn files_that_a_layout_keeps_come_back_where_somebody_removed_them() {
    let directory = TempDirectory::new("layout-removed");
    let (told, clock) = (Told::default(), FakeClock::new());
    told.file(Some("all"), 0o600);
    let followed = followed(&told, &directory, &clock);
    followed.set(&[("a", "1")]);
    followed.publish().unwrap();
    followed.set(&[]);
    followed.publish().unwrap();
    let folder = directory.join("shop/configmaps/settings");
    for _ in 0..2 {
        fs::remove_dir_all(&folder).unwrap();
        clock.advance(Duration::from_secs(30));
        followed.publish().unwrap_err();
        followed.publish().unwrap();
        assert_eq!(files(&folder), texts(&[("all", "1")]));
    }
    followed.set(&[("a", "2")]);
    followed.publish().unwrap();
    assert_eq!(files(&folder), texts(&[("all", "2")]));
}

#[test]
fn what_the_server_deleted_stays_goes_or_fails_as_the_layout_says() {
    for (deleted, stays, fails) in [
        (Some(false), true, false),
        (Some(true), false, false),
        (None, true, true),
    ] {
        let directory = TempDirectory::new("layout-deleted");
        let (told, clock) = (Told::default(), FakeClock::new());
        told.file(Some("all"), 0o600);
        told.absent(deleted, Some(false));
        let followed = followed(&told, &directory, &clock);
        followed.set(&[("a", "1")]);
        followed.publish().unwrap();
        followed.next_changed();
        followed.server.delete("shop", "settings");
        is_absent(&followed, "settings");
        let published = followed.publish();
        assert_eq!(published.is_err(), fails, "{deleted:?}: {published:?}");
        let folder = directory.join("shop/configmaps/settings");
        assert_eq!(files(&folder).len(), usize::from(stays), "{deleted:?}");
        if !stays {
            assert_eq!(followed.next_changed(), ["settings"]);
            assert!(!folder.exists());
        }
        // Once the object exists again, so do its files.
        followed.set(&[("a", "2")]);
        followed.publish().unwrap();
        assert_eq!(files(&folder), texts(&[("all", "2")]), "{deleted:?}");
    }
}

#[test]
fn what_never_was_there_is_a_failure_where_the_layout_says_so() {
    for (missing, fails) in [(Some(false), false), (Some(true), false), (None, true)] {
        let directory = TempDirectory::new("layout-missing");
        let (told, clock) = (Told::default(), FakeClock::new());
        told.absent(Some(false), missing);
        let followed = followed(&told, &directory, &clock);
        followed.reference("settings");
        is_absent(&followed, "settings");
        let published = followed.publish();
        assert_eq!(published.is_err(), fails, "{missing:?}: {published:?}");
    }
}

/// Seen: each look at such an object asked again, and delayed all others for up to five seconds.
#[test]
fn a_deletion_that_the_server_does_not_confirm_holds_up_no_other_object() {
    let directory = TempDirectory::new("layout-unconfirmed");
    let (told, clock) = (Told::default(), FakeClock::new());
    told.file(Some("all"), 0o600);
    told.absent(Some(true), Some(false));
    let followed = followed(&told, &directory, &clock);
    followed.set(&[("a", "1")]);
    followed.publish().unwrap();
    let refusal = Error::new(ErrorKind::Unreachable, "made up");
    followed.server.fail_all(RequestKind::Get, refusal);
    followed.server.delete("shop", "settings");
    is_absent(&followed, "settings");
    let asked = || {
        let requests = followed.server.requests();
        let gets = requests.iter().filter(|seen| seen.kind == RequestKind::Get);
        gets.count()
    };
    followed.publish().unwrap();
    let before = asked();
    for _ in 0..5 {
        followed.publisher.layouts_changed();
        followed.publish().unwrap();
    }
    assert_eq!(asked(), before);
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[("all", "1")]));
    followed.server.heal();
    clock.advance(READ_PERIOD);
    followed.publish().unwrap();
    assert!(!folder.exists());
}

/// Seen: without the right to get, the files of deleted objects stayed without a word.
#[test]
fn a_deletion_that_the_identity_may_not_confirm_is_a_failure() {
    let directory = TempDirectory::new("layout-forbidden");
    let (told, clock) = (Told::default(), FakeClock::new());
    told.file(Some("all"), 0o600);
    told.absent(Some(true), Some(false));
    let followed = followed(&told, &directory, &clock);
    followed.set(&[("a", "1")]);
    followed.publish().unwrap();
    let refusal = Error::new(ErrorKind::Forbidden, "made up");
    followed.server.fail_all(RequestKind::Get, refusal);
    followed.server.delete("shop", "settings");
    is_absent(&followed, "settings");
    for _ in 0..2 {
        let error = followed.publish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(
            error.to_string().contains("whether the object is gone: "),
            "{error}"
        );
    }
    let folder = directory.join("shop/configmaps/settings");
    assert!(folder.exists());
    followed.server.heal();
    followed.publish().unwrap();
    assert!(!folder.exists());
}

/// A file that an earlier process wrote goes too.
#[test]
fn what_was_deleted_while_no_process_ran_is_deleted_not_missing() {
    let directory = TempDirectory::new("layout-earlier");
    outlet(&directory)
        .publish(&map("settings", &[("a", "1")]))
        .unwrap();
    let (told, clock) = (Told::default(), FakeClock::new());
    told.absent(Some(true), None);
    let followed = followed(&told, &directory, &clock);
    followed.reference("settings");
    is_absent(&followed, "settings");
    // Its files are there until the round that removes them; then it is missing.
    drop(followed.publish());
    assert_eq!(followed.next_changed(), ["settings"]);
    assert!(!directory.join("shop").exists());
}

/// Seen: what an earlier process had replaced just before its end stayed, if the object was never
/// written again.
#[test]
fn what_an_earlier_process_replaced_goes_although_nothing_is_written() {
    let directory = TempDirectory::new("layout-replaced");
    let (told, clock) = (Told::default(), FakeClock::new());
    let earlier = outlet_at(&clock, &directory);
    for text in ["1", "2"] {
        earlier.publish(&map("settings", &[("a", text)])).unwrap();
    }
    drop(earlier);
    told.absent(Some(false), Some(false));
    let followed = followed(&told, &directory, &clock);
    followed.reference("settings");
    is_absent(&followed, "settings");
    followed.publisher.references_are_complete();
    followed.publish().unwrap();
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(generations(&folder), 2);
    clock.advance(Duration::from_secs(11));
    followed.publish().unwrap();
    assert_eq!(generations(&folder), 1);
}

#[test]
fn a_panic_of_a_layout_is_the_failure_of_its_object_and_of_no_other() {
    let directory = TempDirectory::new("layout-panic");
    let options = OutletOptions::new(&*directory).layout(|_kind, key, presence| {
        assert!(key.name() != "bad", "made up");
        let Presence::There(data) = presence else {
            return Ok(Laid::Kept);
        };
        let files = data.iter().fold(Layout::new(), |layout, (name, bytes)| {
            layout.file(*name, bytes.to_vec())
        });
        Ok(Laid::Files(files))
    });
    let followed = Followed::with(Outlet::open(options).unwrap(), ManagerOptions::default());
    followed
        .server
        .set(objects::config_map("shop", "bad", "", &[("a", "1")]));
    followed.reference("bad");
    followed.set(&[("a", "1")]);
    followed
        .manager
        .get_by("shop", "bad", Deadline::NEVER)
        .unwrap();
    let error = followed.publish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let text = error.to_string();
    assert!(
        text.starts_with("the layout of ConfigMap shop/bad panicked"),
        "{text}"
    );
    let folder = directory.join("shop/configmaps/settings");
    assert_eq!(files(&folder), texts(&[("a", "1")]));
}
