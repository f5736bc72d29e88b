//! Bytes of a watch as they come: delivery by line, ends of every kind, one connection after the
//! other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline};
use kubecache::list_watch::{Backlog, EventKind, Listed, Next, ObjectEvent, WatchEvent};
use kubecache::reflector::ReflectorOptions;
use kubecache::store::{Indexers, Store};
use kubecache::worker::StopToken;

use super::server::{CHUNKED, Server};
use super::{
    PATIENCE, bookmark, client, get, list, next_bookmark, open, secret, secret_list, secrets,
};
use crate::support::{until, until_some};

#[test]
fn an_event_is_delivered_when_its_newline_arrives_wherever_the_line_is_split() {
    let server = Server::start();
    let client = client(&server.url());
    let line = bookmark("7");
    thread::scope(|scope| {
        let (told, tell) = crossbeam_channel::unbounded();
        scope.spawn(move || {
            let source = secrets(&client);
            let mut watch = open(&*source);
            while let Next::Event(event) = watch.next(Clock::system().after(PATIENCE)).unwrap() {
                told.send(event).unwrap();
            }
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        for split in 1..line.len() {
            peer.chunk(&line[..split]);
            peer.chunk(&line[split..]);
            let event = tell.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(event, WatchEvent::Bookmark { .. }), "{event:?}");
        }
        // The chunks' own framing may be split as well, and several events may share a chunk.
        let framed = format!("{:x}\r\n{line}{line}\r\n", 2 * line.len());
        for split in 1..framed.len() {
            peer.write(&framed[..split]);
            peer.write(&framed[split..]);
            tell.recv_timeout(PATIENCE).unwrap();
            tell.recv_timeout(PATIENCE).unwrap();
        }
        peer.end();
    });
}

#[test]
fn an_event_does_not_wait_for_the_end_of_its_chunk() {
    let server = Server::start();
    let client = client(&server.url());
    let line = bookmark("7");
    thread::scope(|scope| {
        let watching = scope.spawn(|| next_bookmark(&mut *open(&*secrets(&client))));
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.write(format!("fff\r\n{line}"));
        assert_eq!(watching.join().unwrap(), "7");
    });
}

#[test]
fn a_list_and_the_watches_after_it_share_one_connection() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            let (page, names) = list(&*source, &StopToken::never()).unwrap();
            assert_eq!(page.resource_version.as_str(), "5");
            assert_eq!(names, ["db", "tls"]);
            for _ in 0..2 {
                let mut watch = open(&*source);
                assert_eq!(next_bookmark(&mut *watch), "6");
                let end = watch.next(Deadline::NEVER).unwrap();
                assert!(matches!(end, Next::Ended(None)), "{end:?}");
            }
        });
        let mut peer = server.accept();
        assert_eq!(
            peer.request().line,
            "GET /api/v1/namespaces/shop/secrets HTTP/1.1"
        );
        peer.json(
            200,
            &secret_list("5", &[secret("db", "3"), secret("tls", "4")]),
        );
        for _ in 0..2 {
            let request = peer.request();
            assert_eq!(
                request.line,
                "GET /api/v1/namespaces/shop/secrets?watch=true&resourceVersion=1\
                 &allowWatchBookmarks=true&timeoutSeconds=300 HTTP/1.1"
            );
            assert_eq!(request.header("accept-encoding"), Some("identity"));
            peer.begin();
            peer.chunk(&bookmark("6"));
            peer.end();
        }
        calls.join().unwrap();
        assert!(!server.has_visitors());
    });
}

#[test]
fn a_watch_that_is_dropped_closes_its_connection_and_the_next_request_dials() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = open(&*source);
            next_bookmark(&mut *watch);
            drop(watch);
            next_bookmark(&mut *open(&*source));
        });
        for _ in 0..2 {
            let mut peer = server.accept();
            peer.request();
            peer.begin();
            peer.chunk(&bookmark("6"));
            peer.wait_for_close();
        }
        calls.join().unwrap();
    });
}

#[test]
fn disconnect_makes_the_next_request_dial() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            list(&*source, &StopToken::never()).unwrap();
            source.disconnect();
            list(&*source, &StopToken::never()).unwrap();
        });
        for _ in 0..2 {
            let mut peer = server.accept();
            peer.request();
            peer.json(200, &secret_list("5", &[]));
            peer.wait_for_close();
        }
        calls.join().unwrap();
    });
}

/// RS-4, RS-5: how a watch breaks off in everyday life, and how it does not.
#[test]
fn the_ends_of_a_watch_are_told_apart() {
    type Script = fn(&Server);
    let rows: [(&str, Script, Option<ErrorKind>); 5] = [
        ("clean", |server| serve(server, "0\r\n\r\n", false), None),
        (
            "cut in a chunk",
            |server| serve(server, "fff\r\n{\"type", false),
            Some(ErrorKind::Protocol),
        ),
        (
            "cut between chunks",
            |server| serve(server, "", false),
            Some(ErrorKind::Protocol),
        ),
        (
            "reset",
            |server| serve(server, "", true),
            Some(ErrorKind::Unreachable),
        ),
        (
            "ended in a line",
            |server| serve(server, "6\r\n{\"type\r\n0\r\n\r\n", false),
            Some(ErrorKind::Protocol),
        ),
    ];
    for (name, script, expected) in rows {
        let server = Server::start();
        let client = client(&server.url());
        thread::scope(|scope| {
            scope.spawn(|| script(&server));
            let source = secrets(&client);
            let mut watch = open(&*source);
            let end = watch.next(Clock::system().after(PATIENCE)).unwrap();
            let Next::Ended(error) = end else {
                panic!("{name}: {end:?}");
            };
            assert_eq!(
                error.as_ref().map(kubecache::Error::kind),
                expected,
                "{name}: {error:?}"
            );
            let again = watch.next(Deadline::NEVER).unwrap();
            assert!(matches!(again, Next::Ended(None)), "{name}: {again:?}");
        });
    }
}

fn serve(server: &Server, bytes: &str, reset: bool) {
    let mut peer = server.accept();
    peer.request();
    peer.begin();
    peer.write(bytes);
    if reset {
        peer.reset();
    }
}

/// RS-4: what is neither an event nor an everyday end is told as an error event, then the stream is
/// at its end.
#[test]
fn broken_framing_and_broken_lines_end_the_stream_with_an_error_event() {
    let broken_line = "6\r\n{\"a\"}\n\r\n";
    for bytes in ["this is no chunk\r\n", broken_line] {
        let server = Server::start();
        let client = client(&server.url());
        thread::scope(|scope| {
            scope.spawn(|| serve(&server, bytes, false));
            let source = secrets(&client);
            let mut watch = open(&*source);
            let first = watch.next(Clock::system().after(PATIENCE)).unwrap();
            assert!(
                matches!(first, Next::Event(WatchEvent::Error(_))),
                "{first:?}"
            );
            let end = watch.next(Clock::system().after(PATIENCE)).unwrap();
            assert!(matches!(end, Next::Ended(None)), "{end:?}");
        });
    }
}

#[test]
fn a_deadline_in_the_middle_of_a_chunk_loses_no_byte() {
    let server = Server::start();
    let client = client(&server.url());
    let line = bookmark("9");
    thread::scope(|scope| {
        let (go_on, wait) = crossbeam_channel::bounded(0);
        let client = &client;
        let watching = scope.spawn(move || {
            let source = secrets(client);
            let mut watch = open(&*source);
            let clock = Clock::system();
            let opened = watch.last_contact();
            until(|| {
                let passed = watch.next(clock.after(Duration::from_millis(1))).unwrap();
                assert!(matches!(passed, Next::DeadlinePassed), "{passed:?}");
                watch.last_contact() != opened
            });
            // The half that came is read; a deadline that has passed already waits for no more.
            let passed = watch.next(Deadline::at(clock.now())).unwrap();
            assert!(matches!(passed, Next::DeadlinePassed), "{passed:?}");
            go_on.send(()).unwrap();
            next_bookmark(&mut *watch)
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.write(format!("{:x}\r\n{}", line.len(), &line[..10]));
        wait.recv().unwrap();
        peer.write(format!("{}\r\n", &line[10..]));
        assert_eq!(watching.join().unwrap(), "9");
    });
}

/// A whole event among the bytes that were read is told of. Where they came with the head, only one
/// more read shows that nothing else has come. Where they came later, a short read has shown it.
#[test]
fn a_watch_says_whether_its_next_event_is_here() {
    let server = Server::start();
    let client = client(&server.url());
    let both = [bookmark("8"), bookmark("9")].concat();
    for (with_head, last) in [(true, Backlog::Bytes), (false, Backlog::Unknown)] {
        thread::scope(|scope| {
            let (opened, is_open) = crossbeam_channel::bounded(1);
            let client = &client;
            let watching = scope.spawn(move || {
                let source = secrets(client);
                let mut watch = open(&*source);
                opened.send(()).unwrap();
                assert_eq!(next_bookmark(&mut *watch), "8");
                assert_eq!(watch.backlog(), Backlog::Event);
                assert_eq!(next_bookmark(&mut *watch), "9");
                assert_eq!(watch.backlog(), last);
                let passed = watch.next(Deadline::at(Clock::system().now())).unwrap();
                assert!(matches!(passed, Next::DeadlinePassed), "{passed:?}");
                assert_eq!(watch.backlog(), Backlog::Unknown);
            });
            let mut peer = server.accept();
            peer.request();
            if with_head {
                peer.begin_with(&both);
            } else {
                peer.begin();
                is_open.recv().unwrap();
                peer.chunk(&both);
            }
            watching.join().unwrap();
        });
    }
}

#[test]
fn a_large_event_and_a_long_line_of_small_ones_come_through_whole() {
    let server = Server::start();
    let client = client(&server.url());
    let large = secret("large", "8").replace("dg==", &"AAAA".repeat(100_000));
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = open(&*source);
            for _ in 0..1000 {
                next_bookmark(&mut *watch);
            }
            match watch.next(Clock::system().after(PATIENCE)).unwrap() {
                Next::Event(WatchEvent::Object(ObjectEvent {
                    kind: EventKind::Updated,
                    object: Listed::Object(secret),
                })) => secret.data.as_ref().unwrap()["k"].0.len(),
                other => panic!("{other:?}"),
            }
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk(&bookmark("7").repeat(1000));
        peer.chunk(&format!("{{\"type\":\"MODIFIED\",\"object\":{large}}}\n"));
        assert_eq!(watching.join().unwrap(), 300_000);
    });
}

#[test]
fn a_request_that_met_a_closed_connection_goes_out_again_once() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            list(&*source, &StopToken::never()).unwrap();
            list(&*source, &StopToken::never()).unwrap();
            get(&client, "db").unwrap_err()
        });
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("5", &[]));
        peer.request();
        drop(peer);
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("5", &[]));
        // On a fresh connection it is an error at once.
        let mut fresh = server.accept();
        fresh.request();
        drop(fresh);
        let error = calls.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(!server.has_visitors());
    });
}

/// B11: an event that lies in the socket is handed over although the deadline has passed: the
/// program may have been stopped.
#[test]
fn b11_an_event_that_has_come_is_handed_over_though_the_deadline_has_passed() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = open(&*source);
            let past = Deadline::at(Clock::system().now());
            // Nothing tells when bytes have come all the way, so it is asked again and again.
            until_some(|| match watch.next(past).unwrap() {
                Next::Event(event) => Some(event),
                Next::DeadlinePassed => None,
                Next::Ended(end) => panic!("{end:?}"),
            })
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        // Larger than one read of the socket takes.
        let large = secret("db", "7").replace("dg==", &"dmFsdWU+".repeat(40_000));
        peer.chunk(&format!("{{\"type\":\"ADDED\",\"object\":{large}}}\n"));
        let event = watching.join().unwrap();
        assert!(
            matches!(
                event,
                WatchEvent::Object(ObjectEvent {
                    kind: EventKind::Added,
                    object: Listed::Object(_)
                })
            ),
            "{event:?}"
        );
    });
}

/// B11: a proxy may hold back the head of a watch until its first event. The watch is opened again
/// where it was, behind a probe and not behind a list, and the event that comes with the head is
/// taken.
#[test]
fn b11_a_watch_whose_head_is_held_back_is_no_reason_to_list() {
    let server = Server::start();
    let client = client(&server.url());
    let source = secrets(&client);
    source.bookmark_came(Duration::from_millis(1));
    let options = ReflectorOptions::default().idle_limit(Duration::from_millis(200));
    let done = AtomicBool::new(false);
    let (store, reflector) = Store::spawn("held", source, Indexers::new(), options).unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let is_watch = |line: &str| line.contains("watch=true");
            let mut peer = server.accept();
            let list = peer.request().line;
            assert!(!is_watch(&list), "{list}");
            peer.json(200, &secret_list("5", &[]));
            let watch = peer.request().line;
            assert!(
                is_watch(&watch) && watch.contains("resourceVersion=5&"),
                "{watch}"
            );
            peer.wait_for_close();
            let mut asked = Vec::new();
            let mut peers = Vec::new();
            loop {
                let mut peer = server.accept();
                if done.load(Ordering::SeqCst) {
                    return asked;
                }
                // On a busy machine the client may give up this one, too, before or after its
                // event. Then it comes again, or goes on with a watch.
                let Some(probe) = peer.request_or_close().map(|request| request.line) else {
                    continue;
                };
                if is_watch(&probe) {
                    peers.push(peer);
                    continue;
                }
                peer.json(200, &secret_list("9", &[]));
                let Some(watch) = peer.request_or_close().map(|request| request.line) else {
                    continue;
                };
                let event = secret("db", "6");
                let _gone = peer.try_write(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\
                     {{\"type\":\"ADDED\",\"object\":{event}}}\n"
                ));
                asked.push((probe, watch));
                peers.push(peer);
            }
        });
        let came = store.wait_until_at_least(&"6".into(), Clock::system().after(PATIENCE));
        reflector.join().unwrap();
        done.store(true, Ordering::SeqCst);
        drop(std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap());
        came.unwrap();
        let (probe, watch) = serving.join().unwrap().remove(0);
        assert!(
            probe.contains("limit=1") && !probe.contains("resourceVersion="),
            "{probe}"
        );
        assert!(
            watch.contains("watch=true") && watch.contains("resourceVersion=5&"),
            "{watch}"
        );
    });
}

/// RS-6: a change that cannot be read is not lost, as a list follows.
#[test]
fn rs_6_an_event_of_an_unknown_type_or_of_no_kind_ends_the_watch_and_a_list_follows() {
    let rows = [
        (
            r#"{"type":"RENAMED","object":{"kind":"Secret","apiVersion":"v1","metadata":{}}}"#,
            "got invalid watch event type: RENAMED",
        ),
        (
            r#"{"type":"MODIFIED","object":{"message":"etcd is gone","code":500}}"#,
            "Object 'Kind' is missing: etcd is gone",
        ),
        (
            r#"{"type":"ERROR","object":{"message":"the storage is away","code":500}}"#,
            "the storage is away",
        ),
    ];
    for (event, words) in rows {
        let server = Server::start();
        let client = client(&server.url());
        let (tell, told) = crossbeam_channel::unbounded();
        let options = ReflectorOptions::default()
            .on_error(move |failure| drop(tell.send(failure.error.to_string())));
        let source = secrets(&client);
        let (store, reflector) = Store::spawn("odd", source, Indexers::new(), options).unwrap();
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("5", &[secret("db", "3")]));
        peer.request();
        peer.begin();
        peer.chunk(&format!("{event}\n{}", bookmark("9")));
        // The watch was closed; what follows it comes on another connection.
        let mut peer = server.accept();
        let list = peer.request().line;
        assert!(!list.contains("watch=true"), "{event}: {list}");
        peer.json(200, &secret_list("10", &[secret("db", "8")]));
        store
            .wait_until_at_least(&"10".into(), Clock::system().after(PATIENCE))
            .unwrap();
        reflector.stop();
        let told = told.try_recv().unwrap();
        assert!(told.contains(words), "{event}: {told}");
    }
}

/// A watch that has used up all bytes waits for the socket, unless its body has ended.
#[test]
fn a_watch_ends_with_its_body_however_that_ends() {
    let server = Server::start();
    let client = client(&server.url());
    let line = bookmark("7");
    let length = line.len() + 2;
    let of_length = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
    let chunked = format!("{:x}\r\n{line}\r\n", line.len());
    let ends: [(String, &[&str]); 4] = [
        (format!("{of_length}{length}\r\n\r\n{line}"), &["\r\n"]),
        (format!("{of_length}{length}\r\n\r\n{line}\r\n"), &[]),
        (format!("{CHUNKED}{chunked}"), &["0\r\n", "\r\n"]),
        (format!("{CHUNKED}{chunked}0\r\n\r\n"), &[]),
    ];
    for (head, rest) in ends {
        thread::scope(|scope| {
            let (told, tell) = crossbeam_channel::unbounded();
            let client = &client;
            let watching = scope.spawn(move || {
                let mut watch = open(&*secrets(client));
                told.send(next_bookmark(&mut *watch)).unwrap();
                watch.next(Clock::system().after(PATIENCE)).unwrap()
            });
            let mut peer = server.accept();
            peer.request();
            peer.write(head);
            assert_eq!(tell.recv_timeout(PATIENCE).unwrap(), "7");
            for part in rest {
                peer.write(part);
            }
            let end = watching.join().unwrap();
            assert!(matches!(end, Next::Ended(None)), "{end:?}");
        });
    }
}
