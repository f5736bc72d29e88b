//! Connect, first byte, silence in a body, the caller's deadline: separate limits, each named when
//! it ends a call.

#[cfg(feature = "ring")]
use std::io::Read;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::clock::{Clock, Deadline, FakeClock};
use kubecache::http::DecodeOptions;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{EventKind, Getter, ListerWatcher, Next, WatchEvent, WatchRequest};
use kubecache::object::{Object as _, ObjectKey, ResourceVersion, Scope};
use kubecache::worker::{StopSource, StopToken};

use super::server::Server;
use super::stops::Deaf;
use super::{get_by, list, secret, secret_list, secrets, watch_from};

const SHORT: Duration = Duration::from_millis(30);

fn client(url: &str, change: impl FnOnce(ClientOptions) -> ClientOptions) -> Client {
    let options = change(super::patient());
    Client::new(&Config::for_server(url).unwrap(), options).unwrap()
}

fn timed_out(error: &kubecache::Error, text: &str) {
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(text), "{error}");
    assert!(error.to_string().starts_with("GET http"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn of_the_connect() {
    let server = Deaf::start();
    let client = client(&server.url(), |options| options.connect_timeout(SHORT));
    let error = list(&*secrets(&client), &StopToken::never()).unwrap_err();
    timed_out(
        &error,
        "no connection within 30.0ms: the connect to 127.0.0.1:",
    );
}

#[test]
fn of_the_first_byte_by_kind_of_request() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        options
            .list_first_byte_timeout(SHORT)
            .watch_first_byte_timeout(SHORT)
            .get_first_byte_timeout(SHORT)
    });
    let stop = StopToken::never();
    let text = "no answer within 30.0ms";
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            timed_out(&list(&*secrets(&client), &stop).unwrap_err(), text);
            for (head_timeout, send_initial_events) in [(SHORT, false), (super::PATIENCE, true)] {
                let request = WatchRequest {
                    head_timeout,
                    send_initial_events,
                    ..watch_from("1")
                };
                let opened = secrets(&client).watch(&request, &stop);
                timed_out(&opened.map(drop).unwrap_err(), text);
            }
            timed_out(
                &get_by(&client, "db", Deadline::NEVER, &stop).unwrap_err(),
                text,
            );
        });
        // The limit includes the sending, so it may end before there is a request.
        for _ in 0..4 {
            server.accept().wait_for_close();
        }
        calls.join().unwrap();
    });
}

/// A connection that is slow to come is the connect's matter: the answer's limit begins behind it.
#[test]
#[cfg(feature = "ring")]
fn of_the_first_byte_does_not_begin_before_the_connection_is_there() {
    let server = Server::start();
    let config = Config::for_server(&server.tls_url()).unwrap();
    let options = super::patient().list_first_byte_timeout(SHORT);
    let client = Client::new(&config.with_insecure_skip_tls_verify(), options).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let socket = server.accept_socket();
        // It waits for the handshake for longer than for an answer: peeking ends by its own limit,
        // not by a close.
        let mut hello = [0; 16 * 1024];
        let came = socket.peek(&mut hello).unwrap();
        (&socket).read_exact(&mut hello[..came]).unwrap();
        socket.set_read_timeout(Some(SHORT * 3)).unwrap();
        let silence = socket.peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(silence, Err(std::io::ErrorKind::WouldBlock));
        socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
        // The limit includes the sending, so it may end before there is a request.
        super::tls::accept_after(socket, &hello[..came]).wait_for_close();
        timed_out(&listing.join().unwrap(), "no answer within 30.0ms");
    });
}

#[test]
#[cfg(feature = "ring")]
fn of_the_connect_covers_the_handshake() {
    let server = Server::start();
    let config = Config::for_server(&server.tls_url()).unwrap();
    let options = super::patient().connect_timeout(SHORT);
    let client = Client::new(&config.with_insecure_skip_tls_verify(), options).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let mute = server.accept_socket();
        let error = listing.join().unwrap();
        timed_out(
            &error,
            "no connection within 30.0ms: the TLS handshake with",
        );
        let address = format!("127.0.0.1:{} took longer", server.port());
        assert!(error.to_string().ends_with(&address), "{error}");
        drop(mute);
    });
}

#[test]
fn of_silence_in_the_body_of_a_list() {
    let server = Server::start();
    let client = client(&server.url(), |options| options.body_idle_timeout(SHORT));
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.begin_with("{\"kind\":\"SecretList\",\"items\":[");
        timed_out(&listing.join().unwrap(), "nothing came for 30.0ms");
    });
}

/// Promise 6: a body that goes on for ever ends, whether it pauses or not.
#[test]
fn of_the_whole_body_of_a_list_or_a_get() {
    let server = Server::start();
    let client = client(&server.url(), |options| options.body_timeout(SHORT));
    let stop = StopToken::never();
    let text = "the body did not end within 30.0ms";
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            for _ in 0..2 {
                timed_out(&list(&*secrets(&client), &stop).unwrap_err(), text);
            }
            let error = get_by(&client, "db", Deadline::NEVER, &stop).unwrap_err();
            timed_out(&error, text);
        });
        for body in ["", " "] {
            let mut peer = server.accept();
            peer.request();
            peer.begin_with("{\"kind\":\"SecretList\",\"items\":[");
            if body.is_empty() {
                peer.wait_for_close();
            } else {
                peer.flood(body);
            }
        }
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.flood(" ");
        calls.join().unwrap();
    });
}

/// Promise 6, for memory: the items of others that a list of one object brings are put aside, but
/// not for ever.
#[test]
fn of_the_items_of_a_list_of_one_object() {
    let server = Server::start();
    let client = client(&server.url(), |options| options);
    let one = Scope::object(&ObjectKey::new("shop", "db"));
    let source: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(one);
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*source, &StopToken::never()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk("{\"kind\":\"SecretList\",\"items\":[");
        peer.flood(&format!("{},", secret("other", "1")));
        let error = listing.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let told = "the list has more than 10000 items: DecodeOptions::list_items_max";
        assert!(error.to_string().contains(told), "{error}");
    });
}

/// Promise 6, for memory, WL-2: a streamed list of which the final bookmark never comes.
#[test]
fn of_the_bytes_of_a_streamed_list() {
    let event = secret("db", "1");
    let event = format!("{{\"type\":\"ADDED\",\"object\":{event}}}\n");
    let bytes_max = event.len() * 100 + 1;
    let server = Server::start();
    let client = client(&server.url(), |options| {
        let decode = DecodeOptions::default().list_bytes_max(bytes_max);
        options.decode(decode)
    });
    let request = WatchRequest {
        send_initial_events: true,
        ..watch_from("")
    };
    thread::scope(|scope| {
        let streaming = scope.spawn(|| {
            let source = secrets(&client);
            let mut watch = source.watch(&request, &StopToken::never()).unwrap();
            let mut items = 0;
            loop {
                match watch.next(Deadline::NEVER) {
                    Ok(Next::Event(WatchEvent::Object(event)))
                        if event.kind == EventKind::Added =>
                    {
                        items += 1;
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => return (items, error),
                }
            }
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.flood(&event);
        let (items, error) = streaming.join().unwrap();
        assert_eq!(items, 100);
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let told =
            format!("the list has more than {bytes_max} bytes: DecodeOptions::list_bytes_max");
        assert!(error.to_string().contains(&told), "{error}");
    });
}

/// B8, B11: what comes without a pause, and is no event, does not keep its reader from its
/// deadline.
#[test]
fn of_the_caller_in_a_flood_of_blank_lines() {
    let server = Server::start();
    let client = client(&server.url(), |options| options);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut watch = super::open(&*secrets(&client));
            watch.next(Clock::system().after(SHORT)).unwrap()
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.flood(&"\n".repeat(64 * 1024));
        let next = watching.join().unwrap();
        assert!(matches!(next, Next::DeadlinePassed), "{next:?}");
    });
}

#[test]
fn of_the_caller_wherever_the_get_is() {
    // Nobody accepts: on a busy machine the deadline may pass before there is a connection.
    let server = Server::start();
    let client = client(&server.url(), |options| options);
    super::eventually("the caller's deadline passed", || {
        let deadline = Clock::system().after(SHORT);
        let error = get_by(&client, "db", deadline, &StopToken::never()).unwrap_err();
        timed_out(&error, "deadline");
        error
    });
}

/// RS-1: gets pass the limiter; one that could not go in time is told so instead of waiting.
#[test]
fn of_the_caller_while_the_rate_limit_holds_a_get_back() {
    let server = Server::start();
    // The bucket's own time stands still.
    let fake = FakeClock::new();
    let client = client(&server.url(), |options| {
        options
            .rate(NonZeroU32::MIN)
            .burst(NonZeroU32::MIN)
            .clock(Clock::from(fake.clone()))
    });
    let stop = StopToken::never();
    let deadline = Clock::from(fake).after(SHORT);
    // The whole bucket goes into a request that nobody waits for.
    let raised = StopSource::new();
    raised.stop();
    assert!(get_by(&client, "db", deadline, &raised.token()).is_err());
    let error = get_by(&client, "db", deadline, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("rate limit"), "{error}");
    assert!(!server.has_visitors());
}

/// A2: a list that somebody begins to wait for goes before those that were queued before it.
#[test]
fn a_list_that_is_queued_for_the_rate_limit_can_become_urgent() {
    let server = Server::start();
    let fake = FakeClock::new();
    let client = client(&server.url(), |options| {
        options
            .rate(NonZeroU32::MIN)
            .burst(NonZeroU32::MIN)
            .clock(Clock::from(fake.clone()))
    });
    let source = |name: &str| -> Arc<dyn ListerWatcher<Secret>> {
        client.lister_watcher(Scope::object(&ObjectKey::new("shop", name)))
    };
    let names = ["a", "b", "c", "d"];
    let sources = names.map(source);
    thread::scope(|scope| {
        for (parked, source) in sources.iter().enumerate() {
            scope.spawn(|| list(&**source, &StopToken::never()).unwrap());
            // The first one goes at once.
            if parked == 0 {
                answer_list(&server, "a");
            }
            fake.wait_for_parked(parked);
        }
        sources[2].expedite();
        for name in ["c", "b", "d"] {
            assert!(!server.has_visitors());
            fake.wait_for_timer(Duration::from_secs(1));
            fake.advance(Duration::from_secs(1));
            answer_list(&server, name);
        }
    });
}

/// Confirmations of absences are such gets.
#[test]
fn a_get_that_no_reader_waits_for_goes_behind_a_readers() {
    let server = Server::start();
    let fake = FakeClock::new();
    let client = client(&server.url(), |options| {
        options
            .rate(NonZeroU32::MIN)
            .burst(NonZeroU32::MIN)
            .clock(Clock::from(fake.clone()))
    });
    let in_background = &|name: &str| {
        let getter: Arc<dyn Getter<Secret>> = client.getter();
        let (key, latest) = (ObjectKey::new("shop", name), ResourceVersion::most_recent());
        let found = getter.get_in_background(&key, &latest, Deadline::NEVER, &StopToken::never());
        assert_eq!(found.unwrap().name(), name);
    };
    thread::scope(|scope| {
        for (parked, name) in ["a", "b", "c"].into_iter().enumerate() {
            scope.spawn(move || in_background(name));
            // The first one goes at once.
            if parked == 0 {
                answer_get(&server, name);
            }
            fake.wait_for_parked(parked);
        }
        scope.spawn(|| get_by(&client, "read", Deadline::NEVER, &StopToken::never()).unwrap());
        fake.wait_for_parked(3);
        for name in ["read", "b", "c"] {
            assert!(!server.has_visitors());
            fake.wait_for_timer(Duration::from_secs(1));
            fake.advance(Duration::from_secs(1));
            answer_get(&server, name);
        }
    });
}

fn answer_get(server: &Server, name: &str) {
    let mut peer = server.accept();
    let line = peer.request().line;
    assert!(line.contains(&format!("/secrets/{name} ")), "{line}");
    peer.json(200, &secret(name, "1"));
}

fn answer_list(server: &Server, name: &str) {
    let mut peer = server.accept();
    let line = peer.request().line;
    assert!(line.contains(&format!("metadata.name%3D{name}")), "{line}");
    peer.json(200, &secret_list("5", &[secret(name, "1")]));
}

/// F21: the longest duration there is means no limit.
#[test]
fn of_nothing_where_each_is_the_longest_duration() {
    let server = Server::start();
    let client = client(&server.url(), |options| {
        options
            .connect_timeout(Duration::MAX)
            .list_first_byte_timeout(Duration::MAX)
            .watch_first_byte_timeout(Duration::MAX)
            .get_first_byte_timeout(Duration::MAX)
            .body_idle_timeout(Duration::MAX)
            .body_timeout(Duration::MAX)
    });
    let stop = StopToken::never();
    let watch = WatchRequest {
        timeout: Duration::MAX,
        ..watch_from("5")
    };
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            get_by(&client, "db", Clock::system().after(Duration::MAX), &stop).unwrap();
            let source = secrets(&client);
            list(&*source, &stop).unwrap();
            source.watch(&watch, &stop).map(drop).unwrap();
        });
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret("db", "1"));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("5", &[]));
        let line = peer.request().line;
        // A server counts in nanoseconds, with 63 bits.
        let (_, timeout) = line.split_once("timeoutSeconds=").unwrap();
        let seconds: u64 = timeout.split(' ').next().unwrap().parse().unwrap();
        assert!(seconds < 9_000_000_000, "{line}");
        peer.begin();
        calls.join().unwrap();
    });
}
