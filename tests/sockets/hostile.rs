//! Peers that never come to the point: memory stays bounded, and the stop and the limits reach
//! whoever reads them.

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubecache::ErrorKind;
use kubecache::clock::Deadline;
use kubecache::list_watch::{ListRequest, ListerWatcher, Next, WatchEvent};
use kubecache::object::Scope;
use kubecache::worker::{StopSource, StopToken};

use super::server::{Peer, Server};
use super::{
    bookmark, client, get, list, next_bookmark, open, secret, secret_list, secrets, watch_from,
};

/// More than a client may buffer of what it cannot use: kernel buffers of both sides are in it.
const FLOOD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// More than the kernel's buffers of both sides hold together.
const BUFFERS_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Writes `piece` over and over until the client has closed; says how much went out.
fn flood<S: Read + Write>(peer: &mut Peer<S>, piece: &str) -> usize {
    let piece = piece.repeat(64 * 1024 / piece.len());
    let mut written = 0;
    while written < FLOOD_BYTES_MAX && peer.try_write(&piece) {
        written += piece.len();
    }
    written
}

/// A chunk size, a trailer, and trailers without end, in every kind of body.
#[test]
fn framing_without_end_is_given_up() {
    let chunked =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let refused = "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (begin, piece) in [
        ("", "1"),
        ("1\r\n", "x"),
        ("0\r\n", "x"),
        ("0\r\n", "X: y\r\n"),
    ] {
        let server = Server::start();
        let client = client(&server.url());
        thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let listed = list(&*secrets(&client), &StopToken::never()).unwrap_err();
                let got = get(&client, "db").unwrap_err();
                let mut watch = open(&*secrets(&client));
                let watched = match watch.next(Deadline::NEVER).unwrap() {
                    Next::Event(WatchEvent::Error(error)) => error,
                    other => panic!("{other:?}"),
                };
                drop(watch);
                let refusal = get(&client, "db").unwrap_err();
                (vec![listed, got, watched], refusal)
            });
            for head in [chunked, chunked, chunked, refused] {
                let mut peer = server.accept();
                peer.request();
                peer.write(format!("{head}{begin}"));
                let written = flood(&mut peer, piece);
                assert!(written < FLOOD_BYTES_MAX, "the client reads on and on");
            }
            let (errors, refusal) = calls.join().unwrap();
            for error in errors {
                // A first byte that begins no JSON, or no event, is an error before the framing is.
                let no_json = matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Api);
                let known = error.kind() == ErrorKind::TooLarge || begin == "1\r\n" && no_json;
                assert!(known, "{begin:?}: {error}");
            }
            let status = refusal
                .status()
                .unwrap_or_else(|| panic!("{begin:?}: {refusal}"));
            assert_eq!(status.code(), 500);
        });
    }
}

/// Interim answers keep the socket readable for ever: it never has to be waited for.
#[test]
fn a_flood_of_interim_answers_is_given_up() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let got = get(&client, "db").unwrap_err();
            let listed = list(&*secrets(&client), &StopToken::never()).unwrap_err();
            [got, listed]
        });
        for _ in 0..2 {
            let mut peer = server.accept();
            peer.request();
            let written = flood(&mut peer, "HTTP/1.1 103 Early\r\n\r\n");
            assert!(written < FLOOD_BYTES_MAX, "the client reads on and on");
        }
        for error in calls.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        }
    });
}

/// A few of them are what servers send.
#[test]
fn some_interim_answers_are_passed_over() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        peer.request();
        peer.write("HTTP/1.1 103 Early\r\nLink: a\r\n\r\n".repeat(20));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
    });
}

/// Go passes over both.
#[test]
fn a_long_chunk_extension_and_a_100_with_fields_are_refused_in_words() {
    let server = Server::start();
    let client = client(&server.url());
    let object = secret("db", "1");
    let chunks = |extension: &str| {
        let length = object.len();
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x};{extension}\r\n\
             {object}\r\n0\r\n\r\n"
        )
    };
    let long = chunks("signature=0123456789abcdef");
    let interim = "HTTP/1.1 100 Continue\r\nServer: a\r\n\r\n".to_owned();
    for (answer, is_taken) in [(chunks("a=b"), true), (long, false), (interim, false)] {
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            let mut peer = server.accept();
            peer.request();
            peer.write(&answer);
            drop(peer);
            match getting.join().unwrap() {
                Ok(()) => assert!(is_taken, "{answer}"),
                Err(error) => {
                    assert!(!is_taken, "{error}");
                    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
                    assert!(error.to_string().contains("not what HTTP says"), "{error}");
                }
            }
        });
    }
}

/// Blank lines keep the socket readable for ever: it never has to be waited for.
#[test]
fn a_stop_ends_a_flood_of_blank_lines() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut watch = secrets(&client).watch(&watch_from("1"), &source.token())?;
            watch.next(Deadline::NEVER)
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        // It is in the middle of them once more went out than all buffers on the way hold.
        let piece = "\n".repeat(64 * 1024);
        for _ in 0..=BUFFERS_BYTES_MAX / piece.len() {
            peer.chunk(&piece);
        }
        source.stop();
        peer.flood(&piece);
        assert!(watching.join().unwrap().unwrap_err().is_stopped());
    });
}

/// A type of a program's own that cannot bear what it is given.
struct Brittle(ObjectMeta);

impl k8s_openapi::Resource for Brittle {
    const API_VERSION: &'static str = "v1";
    const GROUP: &'static str = "";
    const KIND: &'static str = "Secret";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "secrets";
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Brittle {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

impl<'de> serde::Deserialize<'de> for Brittle {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("a panic of the test's")
    }
}

/// The call is told, and the threads that all watches of the client share go on.
#[test]
fn a_panic_in_a_decoder_ends_one_call_and_no_other() {
    let server = Server::start();
    let client = client(&server.url());
    let stop = StopToken::never();
    let brittle: Arc<dyn ListerWatcher<Brittle>> = client.lister_watcher(Scope::namespace("shop"));
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let listed = brittle.list(&ListRequest::default(), &stop, &mut |_| {});
            let listed = listed.map(drop).unwrap_err();
            for _ in 0..3 {
                let mut watch = brittle.watch(&watch_from("1"), &stop).unwrap();
                let watched = watch.next(Deadline::NEVER).map(drop).unwrap_err();
                assert!(watched.to_string().contains("panicked"), "{watched}");
            }
            let mut watch = open(&*secrets(&client));
            (listed, next_bookmark(&mut *watch))
        });
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("1", &[secret("db", "1")]));
        for _ in 0..3 {
            let mut peer = server.accept();
            peer.request();
            peer.begin();
            let event = secret("db", "2");
            peer.chunk(&format!("{{\"type\":\"ADDED\",\"object\":{event}}}\n"));
            peer.wait_for_close();
        }
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk(&bookmark("9"));
        let (listed, version) = calls.join().unwrap();
        assert!(listed.to_string().contains("panicked"), "{listed}");
        assert_eq!(version, "9");
    });
}
