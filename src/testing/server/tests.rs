//! The fixture server as a client's socket sees it: answers, times, faults, and no survivors of its
//! end.

use std::io;
use std::time::Duration;

use super::*;
use crate::clock::FakeClock;
use crate::testing::tests::{Client, soon};
use crate::testing::{Act, Answer, Answered, End, objects};
use crate::tests::until::until;

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const WATCH: &str = "/api/v1/namespaces/shop/secrets?watch=true";

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn one(target: &str, answer: Answer) -> FixtureServerBuilder {
    FixtureServer::replaying(Recording::new().with(Exchange::get(target, answer)))
}

#[test]
fn answers_follow_each_other_on_one_connection_and_are_logged_without_a_header_in_debug() {
    let list = Answer::text(200, "{\"items\":[]}\n").header("content-length", "13");
    let recording = Recording::new()
        .with(Exchange::get(SECRETS, list))
        .with(Exchange::get(
            WATCH,
            Answer::new(200).event(ms(0), "{}").event(ms(0), "[]"),
        ));
    let server = FixtureServer::replaying(recording).start().unwrap();
    let mut client = Client::of(server.address());

    assert_eq!(client.ask(SECRETS).get("content-length"), Some("13"));
    assert_eq!(client.exactly(13).unwrap(), "{\"items\":[]}\n");
    assert_eq!(client.ask(WATCH).get("transfer-encoding"), Some("chunked"));
    assert_eq!(
        (client.chunk().unwrap(), client.chunk().unwrap()),
        ("{}\n".into(), "[]\n".into())
    );
    assert_eq!(client.chunk().unwrap(), "");
    assert!(server.unused().is_empty());

    assert_eq!(
        client.unmatched(),
        "no recorded answer for GET /api/v1/namespaces/shop/configmaps; nothing is recorded for \
         this path"
    );
    let log = server.requests();
    assert_eq!(log[2].answered(), Answered::Unmatched);
    assert_eq!(log[0].header("Authorization"), Some("Bearer canary"));
    assert_eq!(format!("{:?}", log[0]), format!("GET {SECRETS} (Recorded)"));
}

/// Seen: a client of the demonstration warned each two minutes that its watch was silent.
#[test]
fn a_watch_that_stays_open_has_a_bookmark_each_minute() {
    const TAKES: &str = "&allowWatchBookmarks=true&resourceVersion=";
    let secret = |version| objects::secret("shop", "db", version, &[]);
    let watch = Answer::new(200).modified(ms(0), &secret("8")).unwrap();
    let watch = watch.ending(End::Open, ms(0));
    let target = format!("{WATCH}&allowWatchBookmarks=true");
    let fake = FakeClock::new();
    let server = one(&target, watch).endless().clock(fake.clone().into());
    let server = server.start().unwrap();
    let wanted = |version| {
        let object = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\
             \"metadata\":{{\"resourceVersion\":\"{version}\"}}}}"
        );
        format!("{{\"object\":{object},\"type\":\"BOOKMARK\"}}\n")
    };
    // The recorded one has its event first; the next one begins where its client is.
    let mut clients = Vec::new();
    for (asked, version) in [("7", "8"), ("9", "9")] {
        let mut client = Client::of(server.address());
        client.ask(&format!("{WATCH}{TAKES}{asked}"));
        if asked == "7" {
            assert!(client.chunk().unwrap().contains("MODIFIED"));
        }
        for _ in 0..2 {
            fake.wait_for_timers(clients.len() + 1);
            fake.advance(ms(60_000));
            assert_eq!(client.chunk().unwrap(), wanted(version));
        }
        clients.push(client);
    }
}

#[test]
fn with_a_fake_clock_recorded_time_passes_when_the_test_says_so() {
    let fake = FakeClock::new();
    let answer = Answer::new(200)
        .event(ms(40), "1")
        .event(ms(400), "2")
        .ending(End::Clean, ms(500));
    let server = one(WATCH, answer)
        .speed(Speed::Times(4.0))
        .clock(fake.clone().into())
        .start()
        .unwrap();
    let mut client = Client::of(server.address());
    assert_eq!(client.ask(WATCH).status, 200);
    fake.wait_for_timer(ms(10));
    fake.advance(ms(10));
    assert_eq!(client.chunk().unwrap(), "1\n");
    fake.wait_for_timer(ms(90));
    fake.advance(ms(90));
    assert_eq!(client.chunk().unwrap(), "2\n");
    fake.wait_for_timer(ms(25));
    fake.advance(ms(25));
    assert_eq!(client.chunk().unwrap(), "");
}

#[test]
fn steps_come_in_the_order_of_the_recording_across_connections() {
    let watch = |name: &str, times: [u64; 2]| {
        let answer = Answer::new(200)
            .event(ms(times[0]), &format!("{name}1"))
            .event(ms(times[1]), &format!("{name}2"));
        Exchange::get(&format!("/{name}?watch=1"), answer.ending(End::Open, ms(9)))
    };
    let recording = Recording::new()
        .with(watch("a", [1, 4]))
        .with(watch("b", [2, 3]));
    let server = FixtureServer::replaying(recording)
        .speed(Speed::Stepped)
        .start()
        .unwrap();
    let (mut a, mut b) = (Client::of(server.address()), Client::of(server.address()));
    a.ask("/a?watch=1");
    b.ask("/b?watch=1");
    assert!(server.wait_for_steps(2, soon()));
    let passed: Vec<_> = (0..4).map(|_| server.step(soon()).unwrap().text).collect();
    assert_eq!(passed, ["a1\n", "b1\n", "b2\n", "a2\n"]);
    for (client, name) in [(&mut a, "a"), (&mut b, "b")] {
        assert_eq!(client.chunk().unwrap(), format!("{name}1\n"));
        assert_eq!(client.chunk().unwrap(), format!("{name}2\n"));
    }
    assert_eq!(
        server.step(Clock::system().after(ms(1))),
        None,
        "both are open and silent now"
    );
}

#[test]
fn a_cut_recording_breaks_the_connection_in_the_middle() {
    let cut = Answer::text(200, "{\"items\":[")
        .header("content-length", "99")
        .ending(End::Cut, ms(0));
    let server = one(SECRETS, cut).start().unwrap();
    let mut client = Client::of(server.address());
    assert_eq!(client.ask(SECRETS).get("content-length"), Some("99"));
    assert_eq!(
        client.exactly(99).unwrap_err().kind(),
        io::ErrorKind::UnexpectedEof
    );
}

#[test]
fn a_fault_takes_the_place_of_an_answer_and_the_recorded_one_comes_after_it() {
    let act = Act::Status {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        retry_after: Some(Duration::from_secs(3)),
    };
    let fault = Fault::new(act).on(SECRETS).times(1);
    let server = one(SECRETS, Answer::text(200, "fine"))
        .fault(fault)
        .start()
        .unwrap();
    let mut client = Client::of(server.address());
    let refused = client.ask(SECRETS);
    assert_eq!(
        (refused.status, refused.get("retry-after")),
        (429, Some("3"))
    );
    client
        .exactly(refused.get("content-length").unwrap().parse().unwrap())
        .unwrap();
    assert_eq!(client.ask(SECRETS).status, 200);
    assert_eq!(client.body().unwrap(), "fine");
    assert_eq!(server.requests()[0].answered(), Answered::Fault);
}

#[test]
fn a_body_is_cut_dripped_or_left_hanging_at_the_byte_that_was_named() {
    let answer = || Answer::new(200).event(ms(0), "abc").event(ms(0), "def");
    let cut = one(SECRETS, answer())
        .fault(Fault::new(Act::CutAfter(5)))
        .start()
        .unwrap();
    let mut client = Client::of(cut.address());
    client.ask(SECRETS);
    assert_eq!(
        (client.chunk().unwrap(), client.chunk().unwrap()),
        ("abc\n".into(), "d".into())
    );
    assert!(client.is_closed());

    let fake = FakeClock::new();
    let drip = Act::Drip {
        bytes: 3,
        every: ms(50),
    };
    let slow = one(SECRETS, answer())
        .fault(Fault::new(drip))
        .clock(fake.clone().into())
        .start()
        .unwrap();
    let mut client = Client::of(slow.address());
    client.ask(SECRETS);
    for piece in ["abc", "\n", "def", "\n"] {
        fake.wait_for_timer(ms(50));
        fake.advance(ms(50));
        assert_eq!(client.chunk().unwrap(), piece);
    }

    let hang = one(SECRETS, answer())
        .fault(Fault::new(Act::HangAfter(4)))
        .start()
        .unwrap();
    let mut client = Client::of(hang.address());
    client.ask(SECRETS);
    assert_eq!(client.chunk().unwrap(), "abc\n");
    hang.stop();
    assert!(client.is_closed(), "the stop ends what hangs");
}

#[test]
fn a_client_that_hangs_up_ends_the_thread_of_its_watch() {
    let server = one(WATCH, Answer::new(200).ending(End::Open, ms(0)))
        .start()
        .unwrap();
    let mut client = Client::of(server.address());
    client.ask(WATCH);
    assert!(server.wait_for_requests(soon(), |requests| requests.len() == 1));
    // Each connection's thread holds the shared half of the server until its end.
    let shared = server.0.life();
    let watching = shared.strong_count();
    let mut probe = Client::of(server.address());
    probe.unmatched();
    assert!(shared.strong_count() > watching);
    drop(client);
    until(|| {
        let is_over = shared.strong_count() <= watching;
        if !is_over {
            probe.unmatched();
        }
        is_over
    });
}

#[test]
fn a_speed_that_is_no_speed_is_refused() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = one("/", Answer::new(200))
            .speed(Speed::Times(factor))
            .start();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    }
}

#[cfg(feature = "ring")]
fn pem(name: &str) -> Vec<u8> {
    std::fs::read(format!(
        "{}/fixtures/certs/{name}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

/// The error names an invalid key.
#[cfg(feature = "ring")]
#[test]
fn what_tls_cannot_use_is_named() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = FixtureServer::replaying(Recording::new());
    let refused = server
        .tls(&pem("server.pem"), b"no key", provider)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(
        refused
            .to_string()
            .starts_with("the test server's key cannot be used: "),
        "{refused}"
    );
}

/// The crate's own client, over TLS: a whole answer, and a cut one.
#[cfg(feature = "ring")]
#[test]
fn tls_is_spoken_with_the_callers_configuration() {
    use crate::http::{Client as HttpClient, ClientOptions, Config};
    use crate::worker::StopToken;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = one(SECRETS, Answer::text(200, "{\"whole\":1}\n"))
        .and(Recording::new().with(Exchange::get(SECRETS, Answer::text(200, "{\"cut\":1}\n"))))
        .fault(Fault::new(Act::CutAfter(4)).from(2))
        .tls(&pem("server.pem"), &pem("server.key"), provider)
        .unwrap()
        .start()
        .unwrap();
    assert!(server.url().starts_with("https://127.0.0.1:"));
    let config = Config::for_server(&server.url())
        .unwrap()
        .with_authorities(pem("authority.pem"));
    let client = HttpClient::new(&config, ClientOptions::default()).unwrap();
    let read = || {
        let mut answer = client.raw(SECRETS, &StopToken::never())?;
        let (mut body, mut piece) = (Vec::new(), [0; 64]);
        loop {
            match answer.read(&mut piece)? {
                0 => return Ok::<_, Error>(String::from_utf8(body).unwrap()),
                count => body.extend_from_slice(&piece[..count]),
            }
        }
    };
    assert_eq!(read().unwrap(), "{\"whole\":1}\n");
    assert_eq!(read().unwrap_err().kind(), ErrorKind::Protocol);
}
