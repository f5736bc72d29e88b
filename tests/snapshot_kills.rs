//! A process with a snapshot that is killed at any moment: the next one starts with what was
//! written last or with what was written before that, whole, and never as the server's word.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubecache::Error;
use kubecache::clock::{Clock, Deadline};
use kubecache::manager::{ConfigMapManager, ManagerOptions, Owner};
use kubecache::object::ObjectKey;
use kubecache::snapshot::{Snapshot, SnapshotKey, SnapshotOptions};
use kubecache::testing::{FakeSource, SourceFault, objects};

use super::support::example::kill_after;
use super::support::{TempDirectory, until};

/// The directory of the writer; only the process that is to be killed has it.
const VARIABLE: &str = "KUBECACHE_SNAPSHOT_KILLS";

/// Few enough for each run of the tests; `KUBECACHE_KILLS` asks for more.
const KILLS: u32 = 60;

const NAMES: [&str; 3] = ["first", "second", "third"];

struct Key;

impl SnapshotKey for Key {
    fn read(&self, to: &mut [u8; 32]) -> Result<(), Error> {
        to.fill(9);
        Ok(())
    }
}

fn options(directory: &Path) -> SnapshotOptions {
    SnapshotOptions::new(directory.join("snapshot"), Key).interval(Duration::from_millis(1))
}

fn soon() -> Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

/// The number of a state, in enough text for several writes.
fn text(number: u64) -> String {
    format!("{number} ").repeat(10_000)
}

/// Not a test: the process that is killed. It tells of each state that it has written.
#[test]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(VARIABLE) else {
        return;
    };
    let server = FakeSource::<ConfigMap>::new();
    let snapshot = Snapshot::open(options(Path::new(&directory))).unwrap();
    assert!(snapshot.load_error().is_none());
    let maps = ConfigMapManager::new(server.clone(), ManagerOptions::default()).unwrap();
    snapshot.attach(&maps).unwrap();
    // The states go on where the killed process was.
    let owner = Owner::new("Test", ObjectKey::new("", "kills"));
    let first = snapshot.restore(&maps).pop().map_or(0, |_| {
        let found = maps.get_cached("shop", NAMES[0]).unwrap();
        found.map_or(0, |found| number(&found))
    });
    let mut told = std::io::stdout();
    for state in first + 1.. {
        for name in NAMES {
            server.set(objects::config_map(
                "shop",
                name,
                "",
                &[("k", &text(state))],
            ));
            maps.set_references(&owner, NAMES.map(|name| ObjectKey::new("shop", name)));
        }
        for name in NAMES {
            until(|| number(&maps.get_fresh("shop", name, soon()).unwrap()) == state);
        }
        snapshot.write_by(soon()).unwrap();
        writeln!(told, "written {state}").unwrap();
    }
}

/// The state that an object has, whole.
fn number(map: &ConfigMap) -> u64 {
    let found = &map.data.as_ref().unwrap()["k"];
    let number = found.split(' ').next().unwrap().parse().unwrap();
    assert!(*found == text(number), "a mixed value");
    number
}

#[test]
fn a_process_that_is_killed_leaves_a_start_with_its_last_state() {
    let directory = TempDirectory::new("snapshot-kills");
    let kills = std::env::var("KUBECACHE_KILLS").ok();
    let kills = kills.map_or(KILLS, |number| number.parse().unwrap());
    for kill in 0..kills {
        // After some states, and then anywhere in the next one.
        let some = usize::try_from(kill % 3).unwrap() + 1;
        let test = "snapshot_kills::writes_until_it_is_killed";
        let written = kill_after(test, (VARIABLE, &directory), ("written", some));
        let (_, told) = written.last().unwrap().rsplit_once(' ').unwrap();
        let told: u64 = told.parse().unwrap();

        let away = FakeSource::<ConfigMap>::new();
        away.plan(|_request| Some(SourceFault::Hang));
        let snapshot = Snapshot::open(options(&directory)).unwrap();
        assert!(
            snapshot.load_error().is_none(),
            "kill {kill}: {:?}",
            snapshot.load_error()
        );
        let maps = ConfigMapManager::new(away, ManagerOptions::default()).unwrap();
        snapshot.attach(&maps).unwrap();
        assert_eq!(snapshot.restore(&maps).len(), 1);
        for name in NAMES {
            let found = maps.get("shop", name).unwrap();
            assert!(found.is_stale(), "kill {kill}: no word of a server");
            assert!(
                number(&found) >= told,
                "kill {kill}: older than what was written"
            );
        }
    }
}
