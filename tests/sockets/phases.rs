//! D14: a request or a wait that ends without an answer says where its request was at that moment.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use kubecache::ErrorKind;
use kubecache::clock::{Clock, FakeClock};
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::manager::{ManagerOptions, SecretManager};
use kubecache::testing::objects;
use kubecache::worker::StopToken;

use super::server::Server;
use super::stops::Deaf;
use super::{eventually, get_by, list, secrets};

const SHORT: Duration = Duration::from_millis(20);

fn client(url: &str, change: impl FnOnce(ClientOptions) -> ClientOptions) -> Client {
    let options = change(ClientOptions::default());
    Client::new(&Config::for_server(url).unwrap(), options).unwrap()
}

fn manager(client: Client) -> SecretManager {
    let manager = SecretManager::new(client, ManagerOptions::default()).unwrap();
    manager.register_pod(&objects::pod("shop", "web", "n1", &["db"], &[]));
    manager
}

fn not_synced(manager: &SecretManager) -> kubecache::Error {
    let soon = Clock::system().after(SHORT);
    let error = manager.get_by("shop", "db", soon).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSynced, "{error}");
    error
}

#[test]
fn d14_a_get_that_ends_at_its_deadline_names_its_phase() {
    let server = Server::start();
    let client = client(&server.url(), |options| options);
    let phase = format!(
        "the caller's deadline passed: waiting for the head of the answer of 127.0.0.1:{} for ",
        server.port()
    );
    eventually(&phase, || {
        let soon = Clock::system().after(SHORT);
        get_by(&client, "db", soon, &StopToken::never()).unwrap_err()
    });
}

#[test]
#[cfg(target_os = "linux")]
fn d14_a_wait_names_the_address_that_does_not_connect() {
    let server = Deaf::start();
    let manager = manager(client(&server.url(), |options| options));
    let told = eventually("\nconnecting to 127.0.0.1:", || not_synced(&manager));
    assert!(!told.contains("no answer from the server"), "{told}");
}

#[test]
fn d14_a_wait_says_that_the_head_has_not_come_and_how_much_of_the_body_has() {
    let server = Server::start();
    let manager = manager(client(&server.url(), |options| options));
    thread::scope(|_| {
        let mut peer = server.accept();
        peer.request();
        let head = format!(
            "\nwaiting for the head of the answer of 127.0.0.1:{} for ",
            server.port()
        );
        eventually(&head, || not_synced(&manager));
        peer.begin();
        peer.chunk("{\"kind\":");
        let body = "\nreading the body of an answer with status 200: 8 bytes in ";
        eventually(body, || not_synced(&manager));
    });
}

/// Nothing was asked yet, and the error does not blame the server.
#[test]
fn d14_a_wait_says_that_the_rate_limit_holds_the_request_back() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        options
            .rate(NonZeroU32::MIN)
            .burst(NonZeroU32::MIN)
            .clock(Clock::from(FakeClock::new()))
    });
    thread::scope(|scope| {
        let stop = kubecache::worker::StopSource::new();
        let (client, token) = (&client, stop.token());
        let first = scope.spawn(move || list(&*secrets(client), &token).map(drop));
        // The whole bucket went into it.
        let mut peer = server.accept();
        peer.request();
        let manager = manager(client.clone());
        let phase = "\nheld back by the rate limit of this client for ";
        eventually(phase, || not_synced(&manager));
        stop.stop();
        assert!(first.join().unwrap().is_err());
    });
}

#[test]
fn d14_a_limit_in_a_body_says_how_much_has_come() {
    let server = Server::start();
    let client = client(&server.url(), |options| options.body_idle_timeout(SHORT));
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.begin_with("{\"kind\":");
        let error = listing.join().unwrap();
        let told =
            "in the middle of a body: reading the body of an answer with status 200: 8 bytes";
        assert!(error.to_string().contains(told), "{error}");
    });
}

/// The failure that the backoff follows, and how long it takes.
#[test]
fn d14_a_wait_says_that_the_reflector_backs_off_or_that_the_server_asked_for_it() {
    let server = Server::start();
    let manager = manager(client(&server.url(), |options| options));
    let mut peer = server.accept();
    peer.request();
    peer.answer(503, "Retry-After: 3600\r\n", "busy");
    let phase = "the server asked for 3600s (Retry-After)";
    let told = eventually(phase, || not_synced(&manager));
    assert!(told.contains("\nnow waiting for "), "{told}");
    assert!(told.contains("the last one failed: "), "{told}");
}
