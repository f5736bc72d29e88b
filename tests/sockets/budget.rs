//! The byte budget of a client (B7 of the failures): the largest unfinished answer is closed, and
//! the others go on.

use std::sync::Arc;
use std::thread;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::DecodeOptions;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{
    EventKind, Listed, ListerWatcher, Next, ObjectEvent, WatchEvent, WatchStream,
};
use kubecache::object::{ObjectKey, Scope};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind};

use super::server::{Peer, Server};
use super::{PATIENCE, bookmark, get, list, next_bookmark, open, secret, secret_list, secrets};

pub(crate) const KIB: usize = 1024;

fn client(url: &str, change: impl FnOnce(ClientOptions) -> ClientOptions) -> Client {
    let options = change(ClientOptions::default());
    Client::new(&Config::for_server(url).unwrap(), options).unwrap()
}

/// A Secret whose JSON has about so many bytes.
pub(crate) fn secret_of(name: &str, bytes: usize) -> String {
    secret(name, "8").replace("dg==", &"AAAA".repeat(bytes / 4))
}

/// An event of about so many bytes, without its last byte and newline.
fn unfinished(bytes: usize) -> String {
    let object = secret_of("large", bytes);
    format!("{{\"type\":\"MODIFIED\",\"object\":{object}")
}

/// The peer of a watch that has begun its answer.
fn accept(server: &Server) -> Peer {
    let mut peer = server.accept();
    peer.request();
    peer.begin();
    peer
}

fn next(watch: &mut dyn WatchStream<Secret>) -> Result<usize, Error> {
    match watch.next(Clock::system().after(PATIENCE))? {
        Next::Event(WatchEvent::Object(ObjectEvent {
            kind: EventKind::Updated,
            object: Listed::Object(secret),
        })) => Ok(secret.data.as_ref().map_or(0, |data| data["k"].0.len())),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn over_budget(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("GET http"), "{text}");
    assert!(text.contains("ClientOptions::buffered_bytes_max"), "{text}");
}

/// Sizes are such that the large event is the largest whenever the budget is used up, in whatever
/// order bytes come.
#[test]
fn b7_the_largest_unfinished_event_is_closed_and_the_other_watches_go_on() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        options.buffered_bytes_max(2048 * KIB)
    });
    thread::scope(|scope| {
        let client = &client;
        let healthy = scope.spawn(move || {
            let mut watch = open(&*secrets(client));
            let first = next_bookmark(&mut *watch);
            (first, next_bookmark(&mut *watch))
        });
        let mut healthy_peer = accept(&server);
        healthy_peer.chunk(&bookmark("1"));

        let large = scope.spawn(move || next(&mut *open(&*secrets(client))));
        let mut large_peer = accept(&server);
        large_peer.chunk(&unfinished(1000 * KIB));
        let mut others = Vec::new();
        for _ in 0..5 {
            let watching = scope.spawn(move || next(&mut *open(&*secrets(client))));
            let mut peer = accept(&server);
            peer.chunk(&unfinished(200 * KIB));
            others.push((watching, peer));
        }

        // Its peer is silent: the client closes it of its own accord.
        let error = large.join().unwrap().unwrap_err();
        over_budget(&error);
        large_peer.wait_for_close();

        healthy_peer.chunk(&bookmark("2"));
        assert_eq!(healthy.join().unwrap(), ("1".to_owned(), "2".to_owned()));
        for (watching, mut peer) in others {
            peer.chunk("}\n");
            assert_eq!(watching.join().unwrap().unwrap(), 200 * KIB / 4 * 3);
        }
        // What they held is free again.
        let large = scope.spawn(move || next(&mut *open(&*secrets(client))));
        let mut peer = accept(&server);
        peer.chunk(&unfinished(900 * KIB));
        peer.chunk("}\n");
        assert_eq!(large.join().unwrap().unwrap(), 900 * KIB / 4 * 3);
    });
}

#[test]
fn b7_items_of_lists_and_bodies_of_gets_share_the_budget() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        options.buffered_bytes_max(256 * KIB)
    });
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            over_budget(&list(&*source, &StopToken::never()).unwrap_err());
            over_budget(&get(&client, "db").unwrap_err());
            // Many items are one at a time.
            list(&*source, &StopToken::never()).unwrap().1.len()
        });
        let large = secret_of("large", 600 * KIB);
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        let body = secret_list("9", std::slice::from_ref(&large));
        peer.try_write(format!("{:x}\r\n{body}\r\n", body.len()));
        let mut peer = server.accept();
        peer.request();
        peer.try_write(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{large}",
            large.len()
        ));
        let mut peer = server.accept();
        peer.request();
        let items = vec![secret_of("small", KIB); 600];
        peer.json(200, &secret_list("9", &items));
        assert_eq!(calls.join().unwrap(), 600);
    });
}

/// Its head says how long it is, so that no room to spare counts. Without that, it may be larger.
#[test]
fn b7_an_answer_of_up_to_16_kib_has_room_whatever_the_others_hold() {
    let server = Server::start();
    let client = client(&server.url(), |options| options.buffered_bytes_max(0));
    thread::scope(|scope| {
        let gets = scope.spawn(|| {
            let fits =
                get(&client, "db").map(|secret| secret.data.as_ref().map(|data| data["k"].0.len()));
            over_budget(&get(&client, "db").unwrap_err());
            fits.unwrap()
        });
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_of("db", 15 * KIB));
        peer.request();
        peer.json(200, &secret_of("db", 17 * KIB));
        assert_eq!(gets.join().unwrap(), Some(15 * KIB / 4 * 3));
    });
}

/// JSON escapes make the largest legal Secret up to six times as long, and no more.
#[test]
fn b7_events_of_a_watch_of_one_object_have_a_limit_of_their_own() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        let decode = DecodeOptions::default().one_object_frame_bytes_max(100 * KIB);
        options.decode(decode)
    });
    let one = Scope::object(&ObjectKey::new("shop", "db"));
    let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(one);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut watch = open(&*source);
            let fits = next(&mut *watch).unwrap();
            (fits, next(&mut *watch).unwrap_err())
        });
        let mut peer = accept(&server);
        peer.chunk(&format!("{}}}\n", unfinished(99 * KIB)));
        peer.flood("{\"type\":\"MODIFIED\",\"object\":{\"a\":\"");
        let (fits, error) = watching.join().unwrap();
        assert_eq!(fits, 99 * KIB / 4 * 3);
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let told = "an event of the watch is larger than 102400 bytes; \
                    DecodeOptions::one_object_frame_bytes_max raises the limit";
        assert!(error.to_string().contains(told), "{error}");
    });
}

/// RS-4: an event is a JSON value, whatever stands between two of them.
#[test]
fn f21_an_event_without_a_newline_at_a_clean_end_is_an_event() {
    let server = Server::start();
    let client = client(&server.url(), |options| options);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = open(&*source);
            let versions = [next_bookmark(&mut *watch), next_bookmark(&mut *watch)];
            let end = watch.next(Clock::system().after(PATIENCE)).unwrap();
            assert!(matches!(end, Next::Ended(None)), "{end:?}");
            versions
        });
        let mut peer = accept(&server);
        let both = [bookmark("1").trim_end(), bookmark("2").trim_end()].concat();
        peer.chunk(&both);
        peer.end();
        assert_eq!(watching.join().unwrap(), ["1", "2"]);
    });
}
