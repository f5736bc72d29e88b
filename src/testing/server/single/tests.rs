//! Gets of single objects during a replay: at its present position, in the API server's words.

use std::time::Duration;

use serde_json::Value;

use crate::clock::FakeClock;
use crate::testing::Answered;
use crate::testing::server::{FixtureServer, Speed};
use crate::testing::tests::{Client, soon};
use crate::testing::{Answer, End, Exchange, Recording, objects};
use crate::tests::until::until;

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const DB: &str = "/api/v1/namespaces/shop/secrets/db";
const STORY: &str = include_str!("../../../../fixtures/recordings/node-1.jsonl");

/// A client that gets single objects.
struct Gets(Client);

impl Gets {
    fn of(server: &FixtureServer) -> Self {
        Self(Client::of(server.address()))
    }

    fn get(&mut self, target: &str) -> (u16, Value) {
        let head = self.0.ask(target);
        let body = match head.get("content-length") {
            Some(length) => self.0.exactly(length.parse().unwrap()),
            None => self.0.body(),
        };
        (head.status, serde_json::from_str(&body.unwrap()).unwrap())
    }

    /// The object's version; 0 if the server has no such object.
    fn version(&mut self, target: &str) -> u32 {
        let (status, object) = self.get(target);
        if status == 404 {
            assert_eq!(object["reason"], "NotFound", "{object}");
            return 0;
        }
        assert_eq!(status, 200, "{object}");
        let version = object["metadata"]["resourceVersion"].as_str();
        version.unwrap().parse().unwrap()
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A list with one Secret, and a watch on which it changes, goes, and comes again.
fn put_together() -> Recording {
    let secret = |version: &str| objects::secret("shop", "db", version, &[("a", "made-up")]);
    let watch = Answer::new(200)
        .modified(ms(10), &secret("8"))
        .and_then(|watch| watch.deleted(ms(20), &secret("9")))
        .and_then(|watch| watch.added(ms(30), &secret("10")))
        .unwrap();
    let watch = watch.ending(End::Open, ms(30));
    let target = format!("{SECRETS}?watch=true&resourceVersion=7");
    Recording::new()
        .with(Exchange::get(
            SECRETS,
            Answer::list("7", &[secret("5")]).unwrap(),
        ))
        .with(Exchange::get(&target, watch))
}

#[test]
fn a_get_tells_as_much_as_the_replay_has_come_to() {
    let server = FixtureServer::replaying(put_together())
        .speed(Speed::Stepped)
        .start()
        .unwrap();
    let mut gets = Gets::of(&server);
    assert_eq!(gets.version(DB), 5, "nothing is replayed yet");
    let (_, object) = gets.get(DB);
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&"Secret".into(), &"v1".into())
    );
    let mut watch = Client::of(server.address());
    watch.ask(&format!("{SECRETS}?watch=true&resourceVersion=7"));
    assert!(server.wait_for_steps(1, soon()));
    assert_eq!(gets.version(DB), 5, "a watch that has told nothing");
    for version in [8, 0, 10] {
        server.step(soon()).unwrap();
        watch.chunk().unwrap();
        assert_eq!(gets.version(DB), version);
    }
    assert_eq!(server.requests()[0].answered(), Answered::Derived);
    assert_eq!(server.unused().len(), 1, "no get uses up the list");
}

#[test]
fn what_is_not_there_is_not_found_in_the_servers_words_and_what_nobody_tells_of_is_unmatched() {
    let server = FixtureServer::replaying(put_together()).start().unwrap();
    let mut gets = Gets::of(&server);
    let (status, answer) = gets.get("/api/v1/namespaces/shop/secrets/web");
    assert_eq!((status, &answer["reason"]), (404, &"NotFound".into()));
    assert_eq!(answer["message"], "secrets \"web\" not found");
    assert_eq!(
        answer["details"],
        serde_json::json!({"name": "web", "kind": "secrets"})
    );
    let (status, answer) = gets.get("/api/v1/namespaces/ops/secrets/db");
    let message = answer["message"].as_str().unwrap();
    assert_eq!(status, 404);
    assert!(message.starts_with("no recorded answer for "), "{message}");
}

#[test]
fn a_version_asks_for_a_state_that_is_not_older() {
    let server = FixtureServer::replaying(put_together())
        .speed(Speed::Stepped)
        .start()
        .unwrap();
    let mut gets = Gets::of(&server);
    let at = |version: &str| format!("{DB}?resourceVersion={version}");
    let mut lists = Client::of(server.address());
    lists.ask(SECRETS);
    lists.body().unwrap();
    for version in ["", "0", "4", "7"] {
        assert_eq!(gets.version(&at(version)), 5, "{version:?}");
    }
    let head = gets.0.ask(&at("8"));
    assert_eq!((head.status, head.get("retry-after")), (504, Some("1")));
    let status: Value = serde_json::from_str(&gets.0.body().unwrap()).unwrap();
    assert_eq!(
        status["message"],
        "Timeout: Too large resource version: 8, current: 7"
    );
    let cause = &status["details"]["causes"][0]["reason"];
    assert_eq!(cause, "ResourceVersionTooLarge");
    let mut watch = Client::of(server.address());
    watch.ask(&format!("{SECRETS}?watch=true&resourceVersion=7"));
    server.step(soon()).unwrap();
    watch.chunk().unwrap();
    assert_eq!(gets.version(&at("8")), 8);
}

#[test]
fn what_was_before_the_first_news_follows_from_it() {
    let secret = |name: &str| objects::secret("shop", name, "8", &[]);
    let watch = Answer::new(200)
        .added(ms(0), &secret("new"))
        .and_then(|watch| watch.deleted(ms(0), &secret("old")))
        .and_then(|watch| watch.modified(ms(0), &secret("changed")))
        .unwrap();
    let target = format!("{SECRETS}?watch=true&resourceVersion=7");
    let recording = Recording::new().with(Exchange::get(&target, watch));
    let server = FixtureServer::replaying(recording).start().unwrap();
    let mut gets = Gets::of(&server);
    let mut versions = || {
        ["new", "old", "changed", "never"].map(|name| gets.version(&format!("{SECRETS}/{name}")))
    };
    assert_eq!(versions(), [0, 8, 8, 0]);
    let mut watch = Client::of(server.address());
    watch.ask(&target);
    watch.body().unwrap();
    assert_eq!(versions(), [8, 0, 8, 0]);
}

#[test]
fn a_list_that_comes_later_and_is_of_an_older_version_takes_nothing_back() {
    const EVERYWHERE: &str = "/api/v1/secrets";
    let late = Answer::list("7", &[objects::secret("shop", "db", "5", &[])]).unwrap();
    let mut late = Exchange::get(EVERYWHERE, late);
    late.at = ms(40);
    let recording = put_together().with(late);
    let server = FixtureServer::replaying(recording).start().unwrap();
    let mut gets = Gets::of(&server);
    let mut client = Client::of(server.address());
    client.ask(&format!("{SECRETS}?watch=true&resourceVersion=7"));
    for _ in 0..3 {
        client.chunk().unwrap();
    }
    assert_eq!(gets.version(DB), 10);
    let mut client = Client::of(server.address());
    client.ask(EVERYWHERE);
    client.body().unwrap();
    assert_eq!(gets.version(DB), 10);
}

#[test]
fn with_recorded_times_the_past_is_what_was_before_the_furthest_piece() {
    let fake = FakeClock::new();
    let server = FixtureServer::replaying(story())
        .speed(Speed::Times(2.0))
        .clock(fake.clone().into())
        .start()
        .unwrap();
    let mut gets = Gets::of(&server);
    let settings = "/api/v1/namespaces/shop/configmaps/storefront-settings";
    let synonyms = "/api/v1/namespaces/shop/configmaps/search-synonyms";
    let before = gets.version(settings);
    assert_eq!(gets.version(synonyms), 0);
    let mut pods = Client::of(server.address());
    pods.write("GET", PODS);
    assert!(server.wait_for_requests(soon(), |requests| requests.len() == 3));
    // The second phase of the story was recorded after some 15 s, on watches that no client has
    // opened here.
    fake.advance(ms(6_500));
    assert_eq!(gets.version(settings), before);
    fake.advance(ms(1_500));
    let after = gets.version(settings);
    assert!(after > before, "{before} and then {after}");
    // The fourth one, after some 29 s, created the missing object.
    fake.advance(ms(6_000));
    assert_eq!(gets.version(synonyms), 0);
    fake.advance(ms(2_000));
    assert!(gets.version(synonyms) > after);
}

const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&watch=true&\
    sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

fn story() -> Recording {
    Recording::parse("the story", STORY).unwrap()
}

#[test]
fn a_get_is_refused_where_the_list_was() {
    let server = FixtureServer::replaying(story()).start().unwrap();
    let mut gets = Gets::of(&server);
    let (status, answer) = gets.get("/api/v1/namespaces/shop/secrets/payment-provider-key");
    assert_eq!((status, &answer["reason"]), (403, &"Forbidden".into()));
    assert_eq!(
        answer["message"],
        "secrets \"payment-provider-key\" is forbidden: User \"story-agent\" cannot get resource \
         \"secrets\" in API group \"\" in the namespace \"shop\""
    );
}

#[test]
fn a_recorded_get_is_given_out_when_its_time_has_come_and_not_before() {
    let key = "/api/v1/namespaces/shop/secrets/checkout-signing-key";
    let server = FixtureServer::replaying(story()).start().unwrap();
    let mut gets = Gets::of(&server);
    let (_, first) = gets.get(key);
    assert_eq!(server.requests()[0].answered(), Answered::Derived);
    // The watch of the pods, opened again whenever it ends, brings the replay to the last phase of
    // the story.
    let told = |pods: &mut Client| loop {
        match pods.chunk() {
            Ok(chunk) if chunk.contains("\"DELETED\"") && chunk.contains("checkout-") => {
                return true;
            }
            Ok(chunk) if !chunk.is_empty() => {}
            _ => return false,
        }
    };
    until(|| {
        let mut pods = Client::of(server.address());
        assert_eq!(pods.ask(PODS).status, 200);
        told(&mut pods)
    });
    let (_, again) = gets.get(key);
    let last = server.requests().last().cloned().unwrap();
    assert_eq!(last.answered(), Answered::Recorded);
    assert_ne!(first["metadata"]["uid"], again["metadata"]["uid"]);
}
