//! Faults of a server's life: it crashes and comes back, its history goes back, ends or jumps.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::http::Config;
use kubecache::object::{ObjectKey, Scope};
use kubecache::testing::SERVER_FAULTS;

use super::stage::{Stage, client_of, read, secret, value_of};
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
    let stage = Stage::new(false);
    for turn in 0..5 {
        stage.server.crash();
        let listed = stage.client.list::<Secret>(Scope::namespace("shop"));
        let error = read(listed.map(|_| String::new()));
        assert!(error.starts_with("Unreachable"), "{error}");
        assert_eq!(stage.watched(), stage.stored(), "both keep what they have");
        // What changes meanwhile is found afterwards.
        let value = format!("turn {turn}");
        stage.server.apply(&secret("db", &value)).unwrap();
        stage.server.come_back().unwrap();
        stage.follow(&value);
    }
}

/// All caches go back with the server.
#[test]
fn restore() {
    let stage = Stage::new(false);
    let version = stage.server.version();
    stage.server.apply(&secret("db", "two")).unwrap();
    stage.follow("two");
    stage.server.restore(version).unwrap();
    stage.follow("one");
    stage.server.apply(&secret("db", "three")).unwrap();
    stage.follow("three");
}

/// Does that to the server between two changes; both are seen.
fn between(harm: impl Fn(&Stage)) {
    let stage = Stage::new(false);
    for turn in 0..3 {
        let (before, after) = (format!("before {turn}"), format!("after {turn}"));
        stage.server.apply(&secret("db", &before)).unwrap();
        stage.follow(&before);
        harm(&stage);
        assert_eq!(stage.stored(), before);
        assert_eq!(stage.watched(), before);
        stage.server.apply(&secret("db", &after)).unwrap();
        stage.follow(&after);
    }
}

#[test]
fn compact() {
    between(|stage| {
        stage.server.compact();
        stage.server.cut_watches();
    });
}

#[test]
fn expire_watches() {
    between(|stage| stage.server.expire_watches());
}

#[test]
fn cut_watches() {
    between(|stage| stage.server.cut_watches());
}

#[test]
fn clock_jump() {
    between(|stage| stage.clock.advance(Duration::from_secs(1_000_000)));
}

/// The old token is refused, until the client reads the file anew.
#[test]
fn rotate_token() {
    let stage = Stage::new(false);
    let directory = TempDirectory::new("rotated-token");
    let file = directory.join("token");
    fs::write(&file, "first").unwrap();
    stage.server.add_token("first", "test-agent", &[]);
    let config = Config::for_server(&stage.server.url()).unwrap();
    let client = client_of(&config.with_token_file(&file), false);
    let get = || {
        let got = client.get::<Secret>(&ObjectKey::new("shop", "db"));
        read(got.map(|secret| value_of(&secret)))
    };
    assert_eq!(get(), "one");
    stage.server.remove_token("first");
    assert!(get().starts_with("Unauthorized"), "{}", get());
    fs::write(&file, "second").unwrap();
    stage.server.add_token("second", "test-agent", &[]);
    assert_eq!(get(), "one", "it reads the file anew, and asks once more");
}
