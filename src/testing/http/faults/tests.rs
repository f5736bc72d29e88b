//! Each act as a client's socket sees it, over a replayed list and watch.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::clock::FakeClock;
use crate::testing::tests::{Client, soon};
use crate::testing::{
    Act, Answer, CertificateFlaw, End, Exchange, Fault, FixtureServer, FixtureServerBuilder, Part,
    Recording, Unfinished,
};

const LIST: &str = "/api/v1/namespaces/shop/secrets";
const WATCH: &str = "/api/v1/namespaces/shop/secrets?watch=1";
const BODY: &str = "{\"items\":[{\"metadata\":{\"name\":\"db\",\"namespace\":\"shop\",\
    \"resourceVersion\":\"7\"}}],\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"9\"}}";

fn event(kind: &str, version: u32) -> String {
    format!(
        "{{\"object\":{{\"metadata\":{{\"name\":\"db\",\"resourceVersion\":\"{version}\"}}}},\
         \"type\":\"{kind}\"}}"
    )
}

fn server() -> FixtureServerBuilder {
    let watch = Answer::new(200)
        .event(Duration::ZERO, &event("ADDED", 10))
        .event(Duration::ZERO, &event("BOOKMARK", 11))
        .event(Duration::ZERO, &event("MODIFIED", 12));
    let recording = Recording::new()
        .with(Exchange::get(LIST, Answer::text(200, BODY)))
        .with(Exchange::get(
            WATCH,
            watch.ending(End::Clean, Duration::ZERO),
        ));
    FixtureServer::replaying(recording).endless()
}

/// All bytes up to the end of the connection, and whether that was a reset.
fn asked(server: &FixtureServer, target: &str) -> (String, bool) {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    // A server that resets at once may have done so already.
    let _written = socket.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let is_reset = socket.read_to_end(&mut bytes).is_err();
    (String::from_utf8_lossy(&bytes).into_owned(), is_reset)
}

fn told(act: Act, target: &str) -> (String, bool) {
    let server = server().fault(Fault::new(act)).start().unwrap();
    asked(&server, target)
}

#[test]
fn answers_of_a_fault_are_on_the_wire_as_the_table_says() {
    let status = |retry_after| Act::Status {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        retry_after,
    };
    let day = Duration::from_secs(86_400_000_000);
    let rows = [
        (status(None), "HTTP/1.1 429 Too Many Requests\r\n"),
        (status(Some(day)), "\r\nretry-after: 86400000000\r\n"),
        (Act::Unauthorized, "HTTP/1.1 401 Unauthorized\r\n"),
        (Act::TooLargeVersion, "\"ResourceVersionTooLarge\""),
        (Act::Html, "<html>"),
        (
            Act::Redirect("http://a/".to_owned()),
            "HTTP/1.1 302 Found\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\
             location: http://a/\r\n",
        ),
        (Act::EchoHeaders, "host: a, connection: close"),
        (Act::ControlCharacters, "\\u001b[2J"),
        (Act::GzipBomb(1 << 20), "content-encoding: gzip\r\n"),
        (
            Act::Unfinished {
                part: Unfinished::Item,
                bytes: 5,
            },
            "{\"name\":\"\r\n5\r\naaaaa\r\n0\r\n\r\n",
        ),
        (
            Act::InterimFlood(2),
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n",
        ),
        (Act::WrongLength(-5), "content-length: 129\r\n"),
        (Act::WrongLength(5), "content-length: 139\r\n"),
        (Act::GzipCut, "content-encoding: gzip\r\n"),
        (Act::WrongKind, "\"kind\":\"Wrong\""),
        (Act::WrongKind, "\"kind\":\"WrongList\""),
        (Act::WrongNames, "\"name\":\"other-db\""),
        (
            Act::Unnamed,
            "{\"namespace\":\"shop\",\"resourceVersion\":\"7\"}",
        ),
        (Act::Undecodable, "\"labels\":7"),
        (Act::NotUtf8, "\"a\u{fffd}\u{fffd}b\""),
        (Act::Deep(3), "{\"fault\":[[[]]]}"),
        (Act::HugeNumber, "\"generation\":123456789e999999"),
        (Act::OlderVersions(3), "\"resourceVersion\":\"4\""),
        (Act::OlderVersions(3), "{\"resourceVersion\":\"6\"}"),
    ];
    for (act, expected) in rows {
        let name = act.name();
        let (answer, is_reset) = told(act, LIST);
        assert!(answer.contains(expected), "{name}: {answer}");
        assert!(!is_reset, "{name}");
    }
}

#[test]
fn a_connection_ends_where_the_fault_says_by_close_or_reset() {
    let cut = |part| Act::Cut { part, after: 4 };
    let reset = |part| Act::Reset { part, after: 4 };
    let rows = [
        (Act::Refuse, "", true),
        (cut(Part::Head), "HTTP", false),
        (reset(Part::Head), "HTTP", true),
        (cut(Part::Body), "\r\n4\r\n{\"it\r\n", false),
        (
            Act::FlipBit {
                part: Part::Body,
                at: 0,
            },
            "z\"items\"",
            false,
        ),
    ];
    for (act, expected, resets) in rows {
        let (answer, is_reset) = told(act.clone(), LIST);
        assert_eq!(is_reset, resets, "{act:?}: {answer}");
        // Bytes that a reset overtakes are lost.
        let is_there = answer.contains(expected) || resets;
        assert!(is_there, "{act:?}: {answer}");
    }
}

/// The types and versions of the events that come.
fn events(act: Act) -> Vec<String> {
    let (answer, _) = told(act, WATCH);
    let lines = answer.lines().filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        let version = event.pointer("/object/metadata/resourceVersion");
        let version = version.and_then(|version| version.as_str()).unwrap_or("-");
        Some(format!("{} {version}", event.get("type")?.as_str()?))
    });
    lines.collect()
}

#[test]
fn events_are_withheld_doubled_swapped_and_set_back() {
    let error = Act::WatchError {
        code: 410,
        reason: "Expired".to_owned(),
    };
    let rows: [(Act, &[&str]); 6] = [
        (Act::NoBookmarks, &["ADDED 10", "MODIFIED 12"]),
        (Act::NoEvents, &["BOOKMARK 11"]),
        (
            Act::DuplicateEvents,
            &[
                "ADDED 10",
                "ADDED 10",
                "BOOKMARK 11",
                "MODIFIED 12",
                "MODIFIED 12",
            ],
        ),
        (
            Act::ReorderEvents,
            &["BOOKMARK 11", "MODIFIED 12", "ADDED 10"],
        ),
        (
            Act::OlderVersions(5),
            &["ADDED 5", "BOOKMARK 6", "MODIFIED 7"],
        ),
        (error, &["ERROR -"]),
    ];
    for (act, expected) in rows {
        assert_eq!(events(act.clone()), expected, "{act:?}");
    }
}

#[test]
fn only_the_named_objects_are_changed() {
    let fault = Fault::new(Act::Undecodable).name("web");
    let server = server().fault(fault).start().unwrap();
    assert!(asked(&server, LIST).0.contains(BODY));
}

#[test]
fn heartbeats_are_of_the_servers_clock() {
    let fake = FakeClock::new();
    let every = Duration::from_secs(5);
    let server = server()
        .fault(Fault::new(Act::Heartbeats { every }))
        .clock(fake.clone().into())
        .start()
        .unwrap();
    let mut client = Client::of(server.address());
    client.ask(WATCH);
    for _ in 0..3 {
        fake.wait_for_timer(every);
        fake.advance(every);
        assert_eq!(client.chunk().unwrap(), "\n");
    }
}

#[test]
fn what_is_silent_half_open_or_stalled_says_nothing_until_the_stop() {
    let server = server()
        .fault(Fault::new(Act::Silent).from(1).times(1))
        .fault(Fault::new(Act::HalfOpen).times(1))
        .start()
        .unwrap();
    let mut silent = Client::of(server.address());
    silent.write("GET", LIST);
    let mut half_open = Client::of(server.address());
    half_open.ask(LIST);
    assert_eq!(half_open.body().unwrap(), BODY);
    half_open.write("GET", LIST);
    // The server answers the third request meanwhile, but not the two before it.
    let mut third = Client::of(server.address());
    third.ask(LIST);
    assert_eq!(server.requests().len(), 2);
    server.stop();
    assert!(silent.is_closed());
    assert!(half_open.is_closed());
}

/// The client sends nothing, so that an end of the connection is not taken for a reset.
#[test]
fn a_fault_of_the_handshake_ends_a_connection_without_tls_too() {
    let part = Part::Handshake;
    let rows = [
        (Act::Cut { part, after: 0 }, false),
        (Act::Cut { part, after: 10 }, false),
        (Act::Certificate(CertificateFlaw::Expired), false),
        (Act::ClientCertificate, false),
        (Act::Reset { part, after: 10 }, true),
    ];
    for (act, resets) in rows {
        let fault = Fault::new(act.clone()).connection(1);
        let server = server().fault(fault).start().unwrap();
        let mut client = Client::of(server.address());
        match client.try_read() {
            Ok(count) => assert!(count == 0 && !resets, "{act:?}"),
            Err(error) => assert!(resets, "{act:?}: {error}"),
        }
        let mut next = Client::of(server.address());
        next.ask(LIST);
        assert_eq!(server.requests().len(), 1, "{act:?}");
    }
}

#[test]
fn a_stall_of_the_handshake_reads_nothing_and_a_dribble_of_none_changes_nothing() {
    let part = Part::Handshake;
    let stall = Fault::new(Act::Stall { part, after: 10 }).connection(1);
    let dribble = Act::Dribble {
        part,
        bytes: 1,
        every: Duration::from_secs(60 * 60),
    };
    let server = server()
        .fault(stall)
        .fault(Fault::new(dribble))
        .start()
        .unwrap();
    let mut stalled = Client::of(server.address());
    stalled.write("GET", LIST);
    let mut other = Client::of(server.address());
    assert_eq!(other.ask(LIST).status, 200);
    assert_eq!(other.body().unwrap(), BODY);
    assert_eq!(server.requests().len(), 1);
    server.stop();
    assert!(stalled.is_closed());
}

/// Outgoing connections, and programs that ask for any port, do not get it either.
#[test]
#[cfg(target_os = "linux")]
fn the_port_of_a_server_that_crashed_stays_its_own() {
    use rustix::net;

    let server = server().start().unwrap();
    server.crash();
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    let taken = net::bind(&socket, &server.address());
    assert_eq!(taken.unwrap_err(), rustix::io::Errno::ADDRINUSE);
    server.come_back().unwrap();
    let mut client = Client::of(server.address());
    client.ask(LIST);
}

#[test]
fn a_server_that_crashed_resets_and_refuses_and_comes_back_on_its_port() {
    let server = server().start().unwrap();
    for _ in 0..3 {
        let mut client = Client::of(server.address());
        client.ask(LIST);
        client.body().unwrap();
        server.crash();
        assert!(TcpStream::connect(server.address()).is_err());
        assert!(client.try_read().is_err(), "a reset, and no end");
        server.come_back().unwrap();
        server.come_back().unwrap();
        let found = server.wait_for_requests(soon(), |requests| !requests.is_empty());
        assert!(found);
    }
}
