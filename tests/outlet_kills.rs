//! A writer of files that is killed at any moment: a reader sees all of one state or all of the
//! other, and the next writer puts right what is left.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::clock::FakeClock;
use kubecache::object::Object as _;
use kubecache::outlet::{Outlet, OutletOptions};

use super::support::TempDirectory;
use super::support::example::kill_after;

/// The directory of the writer; only the process that is to be killed has it.
const VARIABLE: &str = "KUBECACHE_OUTLET_KILLS";

/// Few enough for each run of the tests; `KUBECACHE_KILLS` asks for more.
const KILLS: u32 = 60;

/// As [`VARIABLE`], for a process that opens the directory again and again.
const OPENED: &str = "KUBECACHE_OUTLET_OPENED";

fn kills() -> u32 {
    let kills = std::env::var("KUBECACHE_KILLS").ok();
    kills.map_or(KILLS, |number| number.parse().unwrap())
}

const KEYS: [&str; 3] = ["first", "second", "third"];

/// All keys have this text, large enough for several writes.
fn state(text: &str) -> ConfigMap {
    let text = text.repeat(20_000);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(KEYS.map(|key| (key.to_owned(), text.clone())).into()),
        ..ConfigMap::default()
    }
}

/// Not a test: the process that is killed. It tells of each state that it has written.
#[test]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(VARIABLE) else {
        return;
    };
    let outlet = Outlet::open(OutletOptions::new(directory)).unwrap();
    let mut told = std::io::stdout();
    for text in ["a", "b"].into_iter().cycle() {
        outlet.publish(&state(text)).unwrap();
        writeln!(told, "written").unwrap();
    }
}

/// Not a test: the process that is killed while it makes a directory an outlet's.
#[test]
fn opens_until_it_is_killed() {
    let Some(directory) = std::env::var_os(OPENED) else {
        return;
    };
    let mut told = std::io::stdout();
    loop {
        drop(fs::remove_dir_all(&directory));
        Outlet::open(OutletOptions::new(&directory)).unwrap();
        writeln!(told, "opened").unwrap();
    }
}

#[test]
fn a_process_that_is_killed_while_it_opens_an_outlet_keeps_nobody_out() {
    let directory = TempDirectory::new("kills-open");
    let output = directory.join("out");
    for kill in 0..kills() {
        let some = usize::try_from(kill % 5).unwrap() + 1;
        let test = "outlet_kills::opens_until_it_is_killed";
        kill_after(test, (OPENED, &output), ("opened", some));
        let outlet = Outlet::open(OutletOptions::new(&output)).unwrap();
        // A directory with files in it would be removed by halves.
        outlet.publish(&state("a")).unwrap();
        outlet.withdraw::<ConfigMap>(&state("a").key()).unwrap();
    }
}

/// What a reader sees that opens `..data` once.
fn seen(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = directory.join("shop/configmaps/settings");
    let Ok(current) = fs::canonicalize(folder.join("..data")) else {
        return BTreeMap::new();
    };
    let entries = fs::read_dir(current).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn a_writer_that_is_killed_leaves_no_mixed_folder() {
    let directory = TempDirectory::new("kills");
    let states = ["a", "b"].map(|text| state(text).data.unwrap());
    for kill in 0..kills() {
        // After some states, and then anywhere in the next one.
        let some = usize::try_from(kill % 5).unwrap() + 1;
        let test = "outlet_kills::writes_until_it_is_killed";
        kill_after(test, (VARIABLE, &directory), ("written", some));
        let found = seen(&directory);
        let is_whole = states.iter().any(|state| {
            let state = state
                .iter()
                .map(|(key, text)| (key.clone(), text.clone().into_bytes()));
            found == state.collect()
        });
        assert!(is_whole, "kill {kill}: {:?}", found.keys());
    }
    let clock = FakeClock::new();
    let options = OutletOptions::new(&*directory).clock(clock.clone().into());
    let outlet = Outlet::open(options).unwrap();
    outlet.publish(&state("c")).unwrap();
    // What was replaced stays for a reader.
    clock.advance(Duration::from_secs(60));
    outlet.publish(&state("c")).unwrap();
    let folder = directory.join("shop/configmaps/settings");
    // The files, `..data`, and a link for each key.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), KEYS.len() + 2);
    for key in KEYS {
        let text = fs::read_to_string(folder.join(key)).unwrap();
        assert!(text.chars().all(|letter| letter == 'c'));
    }
}
