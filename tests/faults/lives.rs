//! Faults of a server's life: it crashes and comes back, its history goes back, ends or jumps.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::http::Config;
use kubecache::object::{ObjectKey, Scope};
use kubecache::testing::SERVER_FAULTS;

use super::bed::{Bed, client_of, read, secret, value_of};
use crate::support::TempDirectory;

macro_rules! tests {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$({
            let _: fn() = $name;
            stringify!($name)
        }),*];
    };
}

tests! { crash restore compact expire_watches cut_watches rotate_token clock_jump }

#[test]
fn each_fault_of_a_server_has_its_test() {
    for fault in SERVER_FAULTS {
        let name = fault.name.replace('-', "_");
        let has_test = TESTED.contains(&&*name) || name == "rotate_tls";
        assert!(has_test, "{} has no test", fault.name);
    }
}

#[test]
fn crash() {
    let bed = Bed::new(false);
    for turn in 0..5 {
        bed.server.crash();
        let listed = bed.client.list::<Secret>(Scope::namespace("shop"));
        let error = read(listed.map(|_| String::new()));
        assert!(error.starts_with("Unreachable"), "{error}");
        assert_eq!(bed.watched(), bed.stored(), "both keep what they have");
        // What changes meanwhile is found afterwards.
        let value = format!("turn {turn}");
        bed.server.apply(&secret("db", &value)).unwrap();
        bed.server.come_back().unwrap();
        bed.follow(&value);
    }
}

/// All caches go back with the server.
#[test]
fn restore() {
    let bed = Bed::new(false);
    let version = bed.server.version();
    bed.server.apply(&secret("db", "two")).unwrap();
    bed.follow("two");
    bed.server.restore(version).unwrap();
    bed.follow("one");
    bed.server.apply(&secret("db", "three")).unwrap();
    bed.follow("three");
}

/// Does that to the server between two changes; both are seen.
fn between(harm: impl Fn(&Bed)) {
    let bed = Bed::new(false);
    for turn in 0..3 {
        let (before, after) = (format!("before {turn}"), format!("after {turn}"));
        bed.server.apply(&secret("db", &before)).unwrap();
        bed.follow(&before);
        harm(&bed);
        assert_eq!(bed.stored(), before);
        assert_eq!(bed.watched(), before);
        bed.server.apply(&secret("db", &after)).unwrap();
        bed.follow(&after);
    }
}

#[test]
fn compact() {
    between(|bed| {
        bed.server.compact();
        bed.server.cut_watches();
    });
}

#[test]
fn expire_watches() {
    between(|bed| bed.server.expire_watches());
}

#[test]
fn cut_watches() {
    between(|bed| bed.server.cut_watches());
}

#[test]
fn clock_jump() {
    between(|bed| bed.clock.advance(Duration::from_secs(1_000_000)));
}

/// The old token is refused, until the client reads the file anew.
#[test]
fn rotate_token() {
    let bed = Bed::new(false);
    let directory = TempDirectory::new("rotated-token");
    let file = directory.join("token");
    fs::write(&file, "first").unwrap();
    bed.server.add_token("first", "test-agent", &[]);
    let config = Config::for_server(&bed.server.url()).unwrap();
    let client = client_of(&config.with_token_file(&file), false);
    let get = || {
        let got = client.get::<Secret>(&ObjectKey::new("shop", "db"));
        read(got.map(|secret| value_of(&secret)))
    };
    assert_eq!(get(), "one");
    bed.server.remove_token("first");
    assert!(get().starts_with("Unauthorized"), "{}", get());
    fs::write(&file, "second").unwrap();
    bed.server.add_token("second", "test-agent", &[]);
    assert_eq!(get(), "one", "it reads the file anew, and asks once more");
}
