//! The recorder between a client and a server: the traffic is whole, the recording is redacted.

use super::*;
use crate::clock::FakeClock;
use crate::testing::tests::{Client, soon};
use crate::testing::{Act, Chunk, Fault, FixtureServer};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const WATCH: &str = "/api/v1/namespaces/shop/secrets?watch=true&resourceVersion=7";
/// `canary-of-a-password`.
const CANARY: &str = "Y2FuYXJ5LW9mLWEtcGFzc3dvcmQ=";

fn secret() -> String {
    let applied = "{\\\"data\\\":\\\"canary\\\"}";
    format!(
        "{{\"kind\":\"Secret\",\"metadata\":{{\"name\":\"db\",\"annotations\":{{\
         \"kubectl.kubernetes.io/last-applied-configuration\":\"{applied}\"}}}},\
         \"data\":{{\"password\":\"{CANARY}\"}}}}"
    )
}

fn list() -> String {
    format!("{{\"kind\":\"SecretList\",\"items\":[{}]}}\n", secret())
}

fn event() -> String {
    format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", secret())
}

fn recorder(server: &FixtureServer) -> Recorder {
    let config = http::Config::for_server(&server.url()).unwrap();
    Recorder::start(&config.with_token("canary-of-the-recorder").unwrap(), 0).unwrap()
}

/// No byte of a secret value, a token or an applied configuration is in the recording, for any cut
/// of the answers; the client saw every byte.
#[test]
fn no_canary_reaches_a_recording() {
    let (list, event) = (list(), event());
    let (front, back) = event.split_at(event.find(CANARY).unwrap() + 9);
    let watch = Answer::new(200)
        .chunk(Duration::ZERO, event.clone())
        .chunk(Duration::ZERO, front)
        .chunk(Duration::ZERO, back)
        .ending(End::Open, Duration::ZERO);
    let length = list.len().to_string();
    let listed = Answer::text(200, &list).header("content-length", &length);
    let played = Recording::new()
        .with(Exchange::get(SECRETS, listed))
        .with(Exchange::get(WATCH, watch));
    let server = FixtureServer::replaying(played).start().unwrap();
    let recorder = recorder(&server);

    let mut client = Client::of(recorder.address());
    assert_eq!(
        client.ask(SECRETS).get("content-length"),
        Some(length.as_str())
    );
    assert_eq!(client.exactly(list.len()).unwrap(), list);
    assert_eq!(client.ask(WATCH).status, 200);
    let mut seen = String::new();
    while seen.len() < 2 * event.len() {
        seen.push_str(&client.chunk().unwrap());
    }
    assert_eq!(seen, event.repeat(2));

    let recording = recorder.finish();
    assert_eq!(recording.exchanges().len(), 2);
    let (list_kept, watch_kept) = (
        recording.exchanges()[0].answer(),
        recording.exchanges()[1].answer(),
    );
    assert_eq!((list_kept.end(), watch_kept.end()), (End::Clean, End::Open));
    assert_eq!(list_kept.body().len(), list.len());
    assert_eq!(watch_kept.body().len(), 2 * event.len());
    assert!(
        watch_kept
            .chunks()
            .iter()
            .map(Chunk::text)
            .all(|text| text.ends_with('\n') || text.len() == front.len())
    );
    let text = recording.to_text();
    for canary in ["canary", "Canary", CANARY, &CANARY[..9], "c2VjcmV0"] {
        assert!(!text.contains(canary), "{text}");
    }
    assert!(text.contains(r#""name":"db""#), "the rest is there");
    assert_eq!(Recording::parse("again", &text).unwrap().to_text(), text);

    let asked = server.requests();
    assert_eq!(
        asked[0].header("authorization"),
        Some("Bearer canary-of-the-recorder")
    );
    assert_eq!(asked[1].query("resourceVersion"), Some("7"));
}

#[test]
fn an_answer_that_breaks_off_is_recorded_as_cut_and_breaks_off_for_the_client() {
    let list = list();
    let length = list.len().to_string();
    let answer = Answer::text(200, &list).header("content-length", &length);
    let played = Recording::new().with(Exchange::get(SECRETS, answer));
    let cut = list.find(CANARY).unwrap() + 10;
    let server = FixtureServer::replaying(played)
        .fault(Fault::new(Act::CutAfter(cut)))
        .start()
        .unwrap();
    let recorder = recorder(&server);
    let mut client = Client::of(recorder.address());
    client.ask(SECRETS);
    assert_eq!(client.exactly(cut).unwrap(), &list[..cut]);
    assert!(client.is_closed());
    let recording = recorder.finish();
    let kept = recording.exchanges()[0].answer();
    assert_eq!((kept.end(), kept.body().len()), (End::Cut, cut));
    assert!(!kept.body().contains(&CANARY[..9]));
}

#[test]
fn refusals_pass_and_are_recorded_and_writes_do_not_pass() {
    let refused =
        Answer::text(403, "{\"kind\":\"Status\",\"code\":403}\n").header("retry-after", "2");
    let server = FixtureServer::replaying(Recording::new().with(Exchange::get(SECRETS, refused)))
        .start()
        .unwrap();
    let recorder = recorder(&server);
    let mut client = Client::of(recorder.address());
    let head = client.ask(SECRETS);
    assert_eq!((head.status, head.get("retry-after")), (403, Some("2")));
    client.body().unwrap();
    let head = client.send("DELETE", SECRETS);
    assert_eq!(head.status, 405);
    assert!(server.wait_for_requests(soon(), |requests| requests.len() == 1));
    let recording = recorder.finish();
    assert_eq!(recording.exchanges().len(), 1);
    assert_eq!(recording.exchanges()[0].answer().status(), 403);
}

#[test]
fn a_client_of_http_1_0_gets_the_body_without_chunks() {
    let listed = Exchange::get(SECRETS, Answer::text(200, list()));
    let server = FixtureServer::replaying(Recording::new().with(listed));
    let server = server.start().unwrap();
    let recorder = recorder(&server);
    let mut socket = TcpStream::connect(recorder.address()).unwrap();
    write!(socket, "GET {SECRETS} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    io::Read::read_to_string(&mut socket, &mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked"), "{head}");
    assert_eq!(body, list());
}

/// The restarted server is another one on the same port, as a client sees it.
#[test]
fn a_server_that_restarts_is_waited_for_until_it_is_ready() {
    let listed = || Recording::new().with(Exchange::get(SECRETS, Answer::text(200, list())));
    let before = FixtureServer::replaying(listed()).start().unwrap();
    let port = before.address().port();
    let fake = FakeClock::new();
    let config = http::Config::for_server(&before.url()).unwrap();
    let recorder = Recorder::start_on(&config, 0, fake.clone().into()).unwrap();
    let mut client = Client::of(recorder.address());
    assert_eq!(client.ask(SECRETS).status, 200);
    client.body().unwrap();
    before.stop();

    client.write("GET", SECRETS);
    fake.wait_for_timer(LOOK_EVERY);
    let starting = Exchange::get("/readyz", Answer::text(500, "not yet"));
    let starting = FixtureServer::replaying(Recording::new().with(starting))
        .port(port)
        .start()
        .unwrap();
    fake.advance(LOOK_EVERY);
    assert!(starting.wait_for_requests(soon(), |requests| requests.len() == 1));
    starting.stop();
    fake.wait_for_timer(LOOK_EVERY);
    let ready = Exchange::get("/readyz", Answer::text(200, "ok"));
    let _after = FixtureServer::replaying(listed().with(ready))
        .port(port)
        .start()
        .unwrap();
    fake.advance(LOOK_EVERY);
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.body().unwrap(), list());
    assert!(recorder.failures().is_none());
    assert_eq!(
        recorder.finish().exchanges().len(),
        2,
        "nothing of the outage is recorded"
    );
}

#[test]
fn a_server_that_is_not_there_is_reported_and_not_recorded() {
    let server = FixtureServer::replaying(Recording::new()).start().unwrap();
    let recorder = recorder(&server);
    server.stop();
    let mut client = Client::of(recorder.address());
    assert!(client.try_ask(SECRETS).is_err());
    let (count, last) = recorder.failures().unwrap();
    assert_eq!((count, last.kind()), (1, ErrorKind::Unreachable));
    assert!(recorder.finish().exchanges().is_empty());
}
