//! Plain lists out of recorded streamed ones, and the watches after them, as a client's socket sees
//! them.

use std::time::Duration;

use serde_json::Value;

use crate::clock::FakeClock;
use crate::testing::server::{FixtureServer, FixtureServerBuilder, Speed};
use crate::testing::tests::{Client, soon};
use crate::testing::{Answer, Answered, End, Exchange, Recording, objects};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const STREAM: &str = "/api/v1/namespaces/shop/secrets?watch=true&sendInitialEvents=true";
const LIST: &str = "/api/v1/namespaces/shop/secrets?limit=500&resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/shop/secrets?watch=true&resourceVersion=7";

/// The final bookmark of a streamed list.
const END: &str = concat!(
    r#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","#,
    r#""metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn event(kind: &str, name: &str, version: &str) -> String {
    let secret = objects::secret("shop", name, version, &[("a", "made-up")]);
    let object = serde_json::to_value(secret).unwrap();
    serde_json::json!({"type": kind, "object": object}).to_string()
}

/// A streamed list of `web`, `db` and, for a moment, `old`; then `db` changes twice. Its final
/// bookmark is in one piece with the end of the event before it and with the first change.
fn streamed() -> Exchange {
    let gone = event("DELETED", "old", "6");
    let (start, end) = gone.split_at(20);
    let border = format!("{end}\n{END}\n{}\n", event("MODIFIED", "db", "8"));
    let answer = Answer::new(200)
        .event(ms(10), &event("ADDED", "web", "3"))
        .event(ms(10), &event("ADDED", "db", "5"))
        .event(ms(10), &event("ADDED", "old", "4"))
        .chunk(ms(10), start)
        .chunk(ms(20), border)
        .event(ms(400), &event("MODIFIED", "db", "9"));
    Exchange::get(STREAM, answer.ending(End::Clean, ms(500)))
}

fn replaying(exchange: Exchange) -> FixtureServerBuilder {
    FixtureServer::replaying(Recording::new().with(exchange))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// The version of the object in each event of a watch's piece.
fn versions(piece: &str) -> Vec<String> {
    let events = piece.lines().map(json);
    events
        .map(|event| version(&event["object"]).to_owned())
        .collect()
}

#[test]
fn a_recorded_streamed_list_answers_a_plain_list_and_then_the_watch() {
    let server = replaying(streamed()).start().unwrap();
    let mut client = Client::of(server.address());

    assert_eq!(client.ask(LIST).status, 200);
    let list = json(&client.body().unwrap());
    let named = (&list["kind"], &list["apiVersion"], version(&list));
    assert_eq!(named, (&"SecretList".into(), &"v1".into(), "7"));
    let items = list["items"].as_array().unwrap().iter();
    let items: Vec<_> = items
        .map(|item| (&item["metadata"]["name"], version(item)))
        .collect();
    assert_eq!(items, [(&"db".into(), "5"), (&"web".into(), "3")]);
    assert_eq!(server.unused().len(), 1, "its watch is still to come");

    // Another connection: a get between the two, at the position of the list.
    let mut gets = Client::of(server.address());
    let db = format!("{SECRETS}/db");
    gets.ask(&db);
    assert_eq!(version(&json(&gets.body().unwrap())), "5");

    assert_eq!(client.ask(WATCH).get("transfer-encoding"), Some("chunked"));
    assert_eq!(versions(&client.chunk().unwrap()), ["8"]);
    assert_eq!(versions(&client.chunk().unwrap()), ["9"]);
    assert_eq!(client.chunk().unwrap(), "");
    assert!(server.unused().is_empty());
    gets.ask(&db);
    assert_eq!(version(&json(&gets.body().unwrap())), "9");

    for target in [LIST, WATCH, STREAM] {
        let head = client.ask(target);
        assert_eq!(head.status, 404, "{target} once more");
        let length = head.get("content-length").unwrap().parse().unwrap();
        client.exactly(length).unwrap();
    }
    let answered = server.requests().into_iter().map(|one| one.answered());
    let expected = [
        Answered::Derived,
        Answered::Derived,
        Answered::Recorded,
        Answered::Derived,
        Answered::Unmatched,
        Answered::Unmatched,
        Answered::Unmatched,
    ];
    assert_eq!(answered.collect::<Vec<_>>(), expected);
}

#[test]
fn who_streams_gets_the_recorded_stream_and_leaves_no_list() {
    let server = replaying(streamed()).start().unwrap();
    let mut client = Client::of(server.address());
    assert_eq!(client.ask(STREAM).status, 200);
    assert_eq!(
        versions(&client.body().unwrap()),
        ["3", "5", "4", "6", "7", "8", "9"]
    );
    assert_eq!(client.ask(LIST).status, 404);
}

#[test]
fn a_recorded_plain_list_takes_precedence() {
    let plain = Answer::list("9", &[objects::secret("shop", "db", "9", &[])]).unwrap();
    let recording = Recording::new()
        .with(streamed())
        .with(Exchange::get(SECRETS, plain));
    let server = FixtureServer::replaying(recording).start().unwrap();
    let mut client = Client::of(server.address());
    for expected in ["9", "7"] {
        assert_eq!(client.ask(LIST).status, 200);
        assert_eq!(version(&json(&client.body().unwrap())), expected);
    }
}

#[test]
fn a_stream_that_ends_before_its_final_bookmark_is_no_list() {
    let cut = Answer::new(200)
        .event(ms(0), &event("ADDED", "db", "5"))
        .ending(End::Cut, ms(0));
    let refused = Answer::text(429, "{}");
    let failed = Answer::new(200).event(ms(0), r#"{"type":"ERROR","object":{}}"#);
    let failed = failed.event(ms(0), END);
    for answer in [cut, refused, failed] {
        let server = replaying(Exchange::get(STREAM, answer)).start().unwrap();
        let mut client = Client::of(server.address());
        assert_eq!(client.ask(LIST).status, 404);
    }
}

/// The recording says when the events came: the list does not move them.
#[test]
fn the_watch_goes_on_in_the_time_of_the_stream() {
    let fake = FakeClock::new();
    let server = replaying(streamed())
        .speed(Speed::Times(1.0))
        .clock(fake.clone().into())
        .start()
        .unwrap();
    let mut client = Client::of(server.address());
    client.write("GET", LIST);
    fake.wait_for_timer(ms(20));
    fake.advance(ms(20));
    assert_eq!(client.head().unwrap().status, 200);
    client.body().unwrap();
    fake.advance(ms(80));
    assert_eq!(client.ask(WATCH).status, 200);
    assert_eq!(versions(&client.chunk().unwrap()), ["8"]);
    fake.wait_for_timer(ms(300));
    fake.advance(ms(300));
    assert_eq!(versions(&client.chunk().unwrap()), ["9"]);
    fake.wait_for_timer(ms(100));
    fake.advance(ms(100));
    assert_eq!(client.chunk().unwrap(), "");
}

#[test]
fn the_list_waits_for_no_step_and_the_watch_does() {
    let server = replaying(streamed()).speed(Speed::Stepped).start().unwrap();
    let mut client = Client::of(server.address());
    client.ask(LIST);
    client.body().unwrap();
    client.ask(WATCH);
    for expected in ["8", "9"] {
        assert_eq!(versions(&server.step(soon()).unwrap().text), [expected]);
        assert_eq!(versions(&client.chunk().unwrap()), [expected]);
    }
}

#[test]
fn an_endless_recording_repeats_the_list_of_its_last_stream() {
    for first in [LIST, STREAM] {
        let server = replaying(streamed()).endless().start().unwrap();
        let mut client = Client::of(server.address());
        client.ask(first);
        client.body().unwrap();
        for _ in 0..2 {
            assert_eq!(client.ask(LIST).status, 200, "after {first}");
            assert_eq!(version(&json(&client.body().unwrap())), "7");
        }
    }
}
