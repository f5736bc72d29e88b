//! Answers that the server compresses: lists, and streamed lists with the events after them.

use std::fs;
use std::io::Write as _;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::DecodeOptions;
use kubecache::http::{Client, Config, KubeconfigOptions};
use kubecache::list_watch::{EventKind, Next, WatchEvent, WatchRequest, WatchStream};
use kubecache::worker::StopToken;

use super::budget::{KIB, over_budget, secret_of};
use super::server::{Peer, Server};
use super::*;
use crate::support::TempDirectory;

const HEADERS: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                       Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn event(kind: &str, name: &str, version: &str) -> String {
    let object = secret(name, version);
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The name of the object in the event that comes next.
fn next_name(watch: &mut dyn WatchStream<Secret>) -> String {
    match watch.next(Clock::system().after(PATIENCE)).unwrap() {
        Next::Event(WatchEvent::Object(event)) if event.kind == EventKind::Added => {
            event.object.key().name().to_owned()
        }
        other => panic!("{other:?}"),
    }
}

/// Opens a streamed list on another thread, and gives its side of the connection to `serve` once it
/// has sent what it accepts.
fn stream<T: Send>(
    options: impl FnOnce(ClientOptions) -> ClientOptions,
    read: impl FnOnce(&mut dyn WatchStream<Secret>) -> T + Send,
    serve: impl FnOnce(&mut Peer),
) -> T {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let client = Client::new(&config, options(patient())).unwrap();
    let request = WatchRequest {
        send_initial_events: true,
        ..watch_from("")
    };
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = source.watch(&request, &StopToken::never()).unwrap();
            read(&mut *watch)
        });
        let mut peer = server.accept();
        assert_eq!(peer.request().header("accept-encoding"), Some("gzip"));
        peer.write(HEADERS);
        serve(&mut peer);
        reading.join().unwrap()
    })
}

/// The error event that ends a stream which breaks.
fn error_of(serve: impl FnOnce(&mut Peer)) -> Error {
    let read = |watch: &mut dyn WatchStream<Secret>| loop {
        match watch.next(Deadline::NEVER).unwrap() {
            Next::Event(WatchEvent::Object(_)) => {}
            Next::Event(WatchEvent::Error(error)) | Next::Ended(Some(error)) => return error,
            other => panic!("{other:?}"),
        }
    };
    stream(|options| options, read, serve)
}

/// kube-apiserver ends a member with each flush. What came is told before more comes.
#[test]
fn a_compressed_streamed_list_and_its_events_are_told_as_they_come() {
    let (told, is_told) = crossbeam_channel::unbounded();
    let read = |watch: &mut dyn WatchStream<Secret>| {
        for _ in 0..5 {
            told.send(next_name(watch)).unwrap();
        }
    };
    stream(
        |options| options,
        read,
        |peer| {
            let two = event("ADDED", "a", "1") + &event("ADDED", "b", "2");
            peer.chunk(&gzip(&two));
            assert_eq!(
                [is_told.recv(), is_told.recv()].map(Result::unwrap),
                ["a", "b"]
            );
            peer.chunk(&gzip(&event("ADDED", "c", "3")));
            assert_eq!(is_told.recv().unwrap(), "c");
            // A flush in the middle of a member, which a proxy may make.
            let mut member = GzEncoder::new(Vec::new(), Compression::fast());
            member
                .write_all(event("ADDED", "d", "4").as_bytes())
                .unwrap();
            member.flush().unwrap();
            peer.chunk(&std::mem::take(member.get_mut()));
            assert_eq!(is_told.recv().unwrap(), "d");
            member
                .write_all(event("ADDED", "e", "5").as_bytes())
                .unwrap();
            peer.chunk(&member.finish().unwrap());
            assert_eq!(is_told.recv().unwrap(), "e");
        },
    );
}

#[test]
fn a_streamed_list_that_is_compressed_wrongly_ends_with_an_error_that_names_the_request() {
    let broken = error_of(|peer| {
        peer.chunk(&gzip(&event("ADDED", "a", "1")));
        peer.chunk(&event("ADDED", "b", "2"));
    });
    assert_eq!(broken.kind(), ErrorKind::Protocol);
    let text = broken.to_string();
    assert!(text.starts_with("GET http://127.0.0.1:"), "{text}");
    assert!(
        text.contains(": the gzip data is broken: does a proxy"),
        "{text}"
    );
    let cut_off = error_of(|peer| {
        let member = gzip(&event("ADDED", "a", "1"));
        peer.chunk(&member[..member.len() - 1]);
        peer.end();
    });
    assert_eq!(cut_off.kind(), ErrorKind::Protocol);
    assert!(
        cut_off.to_string().contains("the answer was cut off"),
        "{cut_off}"
    );
}

/// Promise 6: an object that unpacks to more than the limit is not held.
#[test]
fn a_bomb_in_a_streamed_list_is_too_large() {
    let read = |watch: &mut dyn WatchStream<Secret>| watch.next(Deadline::NEVER);
    let small = |options: ClientOptions| {
        options.decode(DecodeOptions::default().frame_bytes_max(1024 * 1024))
    };
    let next = stream(small, read, |peer| {
        let text = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"x\":\"{}",
            "x".repeat(64 << 20)
        );
        peer.chunk(&gzip(&text));
        peer.wait_for_close();
    });
    let error = match next {
        Err(error) | Ok(Next::Event(WatchEvent::Error(error))) => error,
        Ok(other) => panic!("{other:?}"),
    };
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

/// Its head says how long it is compressed, which is not how much it holds.
#[test]
fn b7_a_small_compressed_answer_counts_as_what_it_unpacks_to() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let options = ClientOptions::default().buffered_bytes_max(256 * KIB);
    let client = Client::new(&config, options).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| {
            let listed = list(&*secrets(&client), &StopToken::never());
            over_budget(&listed.unwrap_err());
        });
        let body = gzip(&secret_list("9", &[secret_of("large", 600 * KIB)]));
        assert!(body.len() <= 16 * KIB, "{}", body.len());
        let mut peer = server.accept();
        peer.request();
        peer.answer(200, "Content-Encoding: gzip\r\n", body);
        listing.join().unwrap();
    });
}

/// Promise 6: compressed bytes without an end hold nothing, and do not occupy a thread for ever.
#[test]
fn compressed_bytes_that_hold_nothing_end_the_stream() {
    let empty = error_of(|peer| {
        peer.chunk(&gzip(""));
        peer.chunk(&gzip("")[..10]);
        // Blocks without a byte, of which none is the last.
        peer.flood(&[0, 0, 0, 0xff, 0xff].repeat(10_000));
    });
    assert_eq!(empty.kind(), ErrorKind::Protocol);
    assert!(
        empty.to_string().contains("compressed bytes hold nothing"),
        "{empty}"
    );
}

/// Objects of other watches are small, and their connections many.
#[test]
fn a_plain_watch_asks_for_no_compression() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let watching = scope.spawn(|| drop(open(&*secrets(&client))));
        let mut peer = server.accept();
        assert_eq!(peer.request().header("accept-encoding"), Some("identity"));
        peer.begin();
        watching.join().unwrap();
    });
}

#[test]
fn a_gzipped_list_is_taken_and_its_connection_kept() {
    let server = Server::start();
    let client = client(&server.url());
    // Their names have no case.
    let heads = [
        "Content-Encoding: gzip\r\nContent-Type: application/json\r\n",
        "Content-Encoding: GZip\r\nContent-Type: Application/JSON\r\n",
        "Content-Encoding: Identity\r\nContent-Type: application/JSON\r\n",
    ];
    thread::scope(|scope| {
        let listing = scope.spawn(|| {
            let source = secrets(&client);
            let lists = heads.map(|_| list(&*source, &StopToken::never()));
            lists.map(|listed| listed.unwrap().1).concat()
        });
        let mut peer = server.accept();
        for head in heads {
            let request = peer.request();
            assert_eq!(request.header("accept-encoding"), Some("gzip"));
            let body = secret_list("5", &[secret("db", "1")]);
            let is_plain = head.contains("Identity");
            let body = if is_plain {
                body.into_bytes()
            } else {
                gzip(&body)
            };
            peer.answer(200, head, body);
        }
        assert_eq!(listing.join().unwrap(), ["db"; 3]);
    });
}

#[test]
fn gzip_is_switchable_per_client_and_per_configuration() {
    for (is_of_client, disabled) in [(false, false), (true, true)] {
        let server = Server::start();
        let directory = TempDirectory::new("gzip");
        let kubeconfig = directory.join("config");
        let cluster = format!(
            "{{server: '{}', disable-compression: {disabled}}}",
            server.url()
        );
        let text = format!(
            "clusters: [{{name: c, cluster: {cluster}}}]\n\
             contexts: [{{name: x, context: {{cluster: c}}}}]\ncurrent-context: x\n"
        );
        fs::write(&kubeconfig, text).unwrap();
        let options = KubeconfigOptions::default().path(kubeconfig);
        let config = Config::from_kubeconfig(&options).unwrap();
        let options = patient().gzip(is_of_client);
        let client = Client::new(&config, options).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap());
            let mut peer = server.accept();
            assert_eq!(peer.request().header("accept-encoding"), Some("identity"));
            peer.json(200, &secret_list("5", &[]));
        });
    }
}
