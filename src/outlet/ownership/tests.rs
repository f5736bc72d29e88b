//! The ownership of a directory: accepted and refused ones, and the safety of other users' files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::sync::Barrier;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::super::{Laid, Layout, Outlet, OutletOptions};
use crate::error::{Error, ErrorKind};
use crate::object::{Object as _, ObjectKey};
use crate::testing::objects;
use crate::tests::temp_directory::TempDirectory;

fn open(directory: &Path) -> Result<Outlet, Error> {
    Outlet::open(OutletOptions::new(directory))
}

fn adopt(directory: &Path) -> Result<Outlet, Error> {
    Outlet::open(OutletOptions::new(directory).adopt(true))
}

fn refused(directory: &Path, words: &str) {
    let error = open(directory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let begin = format!("the output directory {}: ", directory.display());
    let text = error.to_string();
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains(words), "{words}: {text}");
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "somebody's").unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// The files of an object, as every version of the outlet wrote them.
fn write_object(folder: &Path) {
    write(&folder.join("..1790000000000000000/key"));
    symlink("..1790000000000000000", folder.join("..data")).unwrap();
    symlink("..data/key", folder.join("key")).unwrap();
}

fn settings() -> ConfigMap {
    objects::config_map("shop", "settings", "1", &[("tax", "7")])
}

/// Seen: an agent with `--output-dir /home` removed this tree.
#[test]
fn a_tree_of_somebodys_is_refused_and_never_removed() {
    let directory = TempDirectory::new("outlet-home");
    let list = directory.join("alice/secrets/passwords/list");
    write(&list);
    refused(&directory, "alice/secrets/passwords/list");
    refused(&directory, "OutletOptions::adopt");
    assert!(!directory.join(".kubecache").exists());

    let outlet = adopt(&directory).unwrap();
    assert_eq!(outlet.published::<Secret>().unwrap(), [].into());
    let key = ObjectKey::new("alice", "passwords");
    outlet.withdraw::<Secret>(&key).unwrap();
    let secret = objects::secret("alice", "passwords", "1", &[("list", "x")]);
    let error = outlet.publish(&secret).unwrap_err().to_string();
    assert!(
        error.contains("alice/secrets/passwords: the folder has files"),
        "{error}"
    );
    assert!(outlet.publish(&settings()).unwrap());
    drop(outlet);
    // The marker names the owner now.
    open(&directory).unwrap();
    assert_eq!(fs::read_to_string(list).unwrap(), "somebody's");
}

/// A file for others needs folders that others pass through, and an owner of its own.
#[test]
fn the_folders_of_somebodys_keep_owner_and_mode() {
    let directory = TempDirectory::new("outlet-rights");
    chmod(&directory, 0o755);
    write(&directory.join("alice/secrets/passwords/list"));
    let folders = ["alice", "alice/secrets", "alice/secrets/passwords"];
    let folders = folders.map(|name| directory.join(name));
    let options = OutletOptions::new(&*directory)
        .adopt(true)
        .layout(|_, _, _| {
            let layout = Layout::new().file("list", b"x".to_vec());
            Ok(Laid::Files(layout.mode(0o644)))
        });
    let outlet = Outlet::open(options).unwrap();
    let secret = objects::secret("alice", "passwords", "1", &[("list", "x")]);
    let is_root = rustix::process::geteuid().is_root();
    for (nth, mode) in [(0, 0o700), (1, 0o700), (2, 0o700), (2, 0o755)] {
        for folder in &folders {
            chmod(folder, 0o755);
        }
        chmod(&folders[nth], mode);
        if is_root {
            chown(&folders[nth], Some(7), None).unwrap();
        }
        outlet.publish(&secret).unwrap_err();
        let facts = fs::metadata(&folders[nth]).unwrap();
        assert_eq!(facts.permissions().mode() & 0o7777, mode, "{nth}");
        assert!(!is_root || facts.uid() == 7, "{nth}");
        if is_root {
            chown(&folders[nth], Some(0), None).unwrap();
        }
    }
    let error = outlet.publish(&secret).unwrap_err().to_string();
    assert!(error.contains("passwords: the folder has files"), "{error}");
}

/// Two kinds of one namespace have a publisher each, which make and remove its folder.
#[test]
fn a_folder_that_another_write_makes_or_another_removal_removes_fails_no_write() {
    let directory = TempDirectory::new("outlet-race");
    let outlet = open(&directory.join("out")).unwrap();
    let begin = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                begin.wait();
                let secret = objects::secret("shop", "settings", "1", &[("a", "x")]);
                outlet.publish(&secret).unwrap();
                outlet.withdraw::<Secret>(&secret.key()).unwrap();
            }
        });
        for _ in 0..300 {
            begin.wait();
            outlet.publish(&settings()).unwrap();
            outlet.withdraw::<ConfigMap>(&settings().key()).unwrap();
        }
    });
}

/// Makes the content of a directory.
type Make = fn(&Path);

#[test]
fn what_is_somebodys_is_refused_by_name() {
    let refusals: [(&str, Make, &str); 10] = [
        (
            "named-alike",
            |at| write(&at.join(".kubecache.newer")),
            "made: .kubecache.newer. Name",
        ),
        ("file", |at| write(&at.join("notes")), "made: notes. Name"),
        (
            "folder",
            |at| fs::create_dir(at.join("empty")).unwrap(),
            "it has folders, and no",
        ),
        (
            "link",
            |at| symlink("/nowhere", at.join("shop")).unwrap(),
            "made: shop. Name",
        ),
        ("pipe", |at| make_pipe(&at.join("shop")), "made: shop. Name"),
        (
            "kubelet",
            |at| {
                write(&at.join("a/secrets/b/..2026_11_26/key"));
                symlink("..2026_11_26", at.join("a/secrets/b/..data")).unwrap();
            },
            "a/secrets/b/..data",
        ),
        (
            "deeper",
            |at| {
                write_object(&at.join("a/secrets/b"));
                write(&at.join("a/secrets/b/..1790000000000000000/more/key"));
            },
            "a/secrets/b/..1790000000000000000/more",
        ),
        (
            "beside",
            |at| {
                write_object(&at.join("a/secrets/b"));
                write(&at.join("a/secrets/b/README"));
            },
            "made: a/secrets/b/README. Name",
        ),
        (
            "other-link",
            |at| {
                write_object(&at.join("a/secrets/b"));
                symlink("/etc/passwd", at.join("a/secrets/b/users")).unwrap();
            },
            "made: a/secrets/b/users. Name",
        ),
        (
            "no-name",
            |at| write_object(&at.join("..odd/secrets/b")),
            "made: ..odd. Name",
        ),
    ];
    for (name, make, words) in refusals {
        let directory = TempDirectory::new(&format!("outlet-{name}"));
        make(&directory);
        refused(&directory, words);
        assert!(!directory.join(".kubecache").exists(), "{name}");
        adopt(&directory).unwrap();
    }
}

#[test]
fn what_is_empty_or_an_outlets_is_taken() {
    let taken: [(&str, Make); 5] = [
        ("empty", |_| {}),
        ("disk", |at| write(&at.join("lost+found/block"))),
        ("half-marker", |at| {
            write(&at.join(".kubecache.new0123456789abcdef"));
        }),
        ("objects", |at| write_object(&at.join("a/secrets/b"))),
        // A killed process left it.
        ("debris", |at| {
            write_object(&at.join("a/secrets/b"));
            symlink("..1790000000000000001", at.join("a/secrets/b/..link_new")).unwrap();
            write(&at.join("a/secrets/b/..1790000000000000001/key"));
            fs::create_dir_all(at.join("a/configmaps/c")).unwrap();
        }),
    ];
    for (name, make) in taken {
        let directory = TempDirectory::new(&format!("outlet-{name}"));
        make(&directory);
        let outlet = open(&directory).unwrap_or_else(|error| panic!("{name}: {error}"));
        outlet.publish(&settings()).unwrap();
        let mut left: Vec<_> = outlet.published::<Secret>().unwrap().into_iter().collect();
        left.extend(outlet.published::<ConfigMap>().unwrap());
        for key in left {
            outlet.withdraw::<Secret>(&key).unwrap();
            outlet.withdraw::<ConfigMap>(&key).unwrap();
        }
        let entries = fs::read_dir(&*directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.filter(|name| name != "lost+found").collect();
        assert_eq!(names, [".kubecache"], "{name}");
    }
}

#[test]
fn a_name_that_is_no_text_is_somebodys() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let directory = TempDirectory::new("outlet-no-text");
    write(&directory.join(OsStr::from_bytes(b"caf\xe9")));
    refused(&directory, "made: caf");
}

#[test]
fn a_marker_is_one_of_this_form_and_name() {
    let directory = TempDirectory::new("outlet-marker");
    drop(open(&directory).unwrap());
    let marker = directory.join(".kubecache");
    let whole = fs::read_to_string(&marker).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    assert_eq!(
        lines[..2],
        ["kubecache outlet, format 1", "name: kubecache"]
    );
    let (_, id) = lines[2].split_once("id: ").unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{id}"
    );
    let process = format!("process: {} on ", std::process::id());
    assert!(lines[3].starts_with(&process), "{whole}");

    // It keeps its id, and names its present process.
    let of_another = whole.replace(&process, "process: 1 on ");
    fs::write(&marker, &of_another).unwrap();
    drop(open(&directory).unwrap());
    assert_eq!(fs::read_to_string(&marker).unwrap(), whole);

    let other = Outlet::open(OutletOptions::new(&*directory).name("another")).unwrap_err();
    let words = "it belongs to \"kubecache\", and this outlet is \"another\"";
    assert!(other.to_string().contains(words), "{other}");
    for (text, words) in [
        ("", "its marker .kubecache is no outlet's"),
        ("[Unit]\n", "its marker .kubecache is no outlet's"),
        ("kubecache outlet, format 0\n", "is no outlet's"),
        ("kubecache outlet, format 2\n", "of a newer program"),
        ("kubecache outlet, format 1", "is cut off"),
        (&whole[..whole.len() - 1], "is cut off"),
        (&whole[..40], "is cut off"),
    ] {
        fs::write(&marker, text).unwrap();
        refused(&directory, words);
        assert_eq!(fs::read_to_string(&marker).unwrap(), text);
        assert_eq!(
            adopt(&directory).is_ok(),
            !words.contains("newer"),
            "{words}"
        );
    }
    let ways: [(&dyn Fn(), bool); 3] = [
        (&|| symlink("/etc/hostname", &marker).unwrap(), true),
        (&|| make_pipe(&marker), true),
        (&|| fs::create_dir(&marker).unwrap(), false),
    ];
    for (make, can_be_replaced) in ways {
        fs::remove_file(&marker).unwrap();
        make();
        refused(&directory, "its marker .kubecache is no plain file");
        assert_eq!(adopt(&directory).is_ok(), can_be_replaced);
    }
}

/// Seen: two agents removed each other's files.
#[test]
fn one_outlet_at_a_time_has_a_directory() {
    let directory = TempDirectory::new("outlet-two");
    let path = directory.join("out");
    let first = open(&path).unwrap();
    let holder = format!("another process writes there: {} on ", std::process::id());
    refused(&path, &holder);
    let link = directory.join("link");
    symlink(&path, &link).unwrap();
    refused(&link, &holder);
    drop(first);
    drop(open(&link).unwrap());
    open(&path).unwrap();

    for round in 0..20 {
        let path = directory.join(round.to_string());
        let (begin, end) = (Barrier::new(4), Barrier::new(4));
        let opened: usize = std::thread::scope(|scope| {
            let openers = [(); 4].map(|()| {
                scope.spawn(|| {
                    begin.wait();
                    let opened = open(&path);
                    end.wait();
                    usize::from(opened.is_ok())
                })
            });
            openers.map(|opener| opener.join().unwrap()).iter().sum()
        });
        assert_eq!(opened, 1);
    }
}

#[test]
fn a_number_that_is_no_owner_and_a_name_that_is_no_line_are_refused() {
    let directory = TempDirectory::new("outlet-options");
    let options = OutletOptions::new(&*directory);
    for wrong in [
        options.clone().owner(u32::MAX, 0),
        options.clone().owner(0, u32::MAX),
        options.clone().name("two\nlines"),
        options.name("x".repeat(256)),
    ] {
        assert_eq!(Outlet::open(wrong).unwrap_err().kind(), ErrorKind::Config);
    }
}
