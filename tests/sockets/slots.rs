//! A1: one slow answer holds up nobody else. Requests whose peer is silent, or whose caller is
//! slow, hold no slot.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope as Threads};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};
use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::clock::{Clock, FakeClock};
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::list_watch::{ListRequest, ListerWatcher};
use kubecache::object::{ObjectKey, Scope};
use kubecache::worker::{StopSource, StopToken};

use super::server::{Peer, Request, Server};
use super::{PATIENCE, bookmark, list, next_bookmark, secret, secret_list, watch_from};

/// More than a client has slots.
const MANY: usize = 49;

/// Limits that end nothing while a test runs.
fn patient_client(url: &str) -> Client {
    let options = ClientOptions::default()
        .list_first_byte_timeout(PATIENCE * 60)
        .object_list_first_byte_timeout(PATIENCE * 60)
        .watch_first_byte_timeout(PATIENCE * 60)
        .get_first_byte_timeout(PATIENCE * 60)
        .body_idle_timeout(PATIENCE * 60);
    Client::new(&Config::for_server(url).unwrap(), options).unwrap()
}

fn one(client: &Client, name: &str) -> Arc<dyn ListerWatcher<Secret>> {
    client.lister_watcher(Scope::object(&ObjectKey::new("shop", name)))
}

/// Serves each connection on a thread of its own, until it is dropped.
struct Serving<'a> {
    server: &'a Server,
    ended: Arc<AtomicBool>,
}

impl<'a> Serving<'a> {
    fn start<'scope>(
        scope: &'scope Threads<'scope, '_>,
        server: &'a Server,
        serve: impl Fn(Peer) + Clone + Send + 'scope,
    ) -> Self
    where
        'a: 'scope,
    {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        scope.spawn(move || {
            loop {
                let peer = server.accept();
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let serve = serve.clone();
                scope.spawn(move || serve(peer));
            }
        });
        Self { server, ended }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        drop(std::net::TcpStream::connect((
            "127.0.0.1",
            self.server.port(),
        )));
    }
}

/// The name of the one object that a request asks for.
fn asked(request: &Request) -> String {
    let (_, rest) = request.line.split_once("metadata.name%3D").unwrap();
    rest.split(['&', ' ']).next().unwrap().to_owned()
}

fn answer(peer: &mut Peer, name: &str) {
    let body = secret_list("7", &[secret(name, "5")]);
    // The client may have gone meanwhile.
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    peer.try_write(format!("{head}{body}"));
}

/// Lists one object, and says so.
fn list_one(client: &Client, name: &str, stop: &StopToken, told: &Sender<String>) {
    if let Ok((_, names)) = list(&*one(client, name), stop) {
        assert_eq!(names, [name]);
        told.send(name.to_owned()).unwrap();
    }
}

/// A1: of 60 lists 49 hang; the others are answered at once, and so is a get.
#[test]
fn a1_lists_that_hang_hold_up_no_other() {
    let server = Server::start();
    let client = patient_client(&server.url());
    let stop = StopSource::new();
    let (hangs, hung) = unbounded();
    let (told, tell) = unbounded();
    thread::scope(|scope| {
        let serving = Serving::start(scope, &server, move |mut peer| {
            let request = peer.request();
            let name = asked(&request);
            if name.starts_with("hangs") {
                hangs.send(()).unwrap();
                peer.wait_for_close();
            } else {
                answer(&mut peer, &name);
            }
        });
        let start = |name: String| {
            let (client, token, told) = (&client, stop.token(), told.clone());
            scope.spawn(move || list_one(client, &name, &token, &told));
        };
        (0..MANY).for_each(|number| start(format!("hangs-{number}")));
        let mut sent = 0;
        while sent < MANY && hung.recv_timeout(PATIENCE).is_ok() {
            sent += 1;
        }
        (0..11).for_each(|number| start(format!("lives-{number}")));
        let answered: BTreeSet<_> = (0..11)
            .map_while(|_| tell.recv_timeout(PATIENCE).ok())
            .collect();
        // Before the assertions: the others end now, and with them the test, however it went.
        stop.stop();
        drop(serving);
        assert_eq!((sent, answered.len()), (MANY, 11));
    });
}

/// A1: a server that sends its answers byte by byte uses up the patience of its own requests.
#[test]
fn a1_bodies_that_trickle_hold_up_no_other() {
    let server = Server::start();
    let client = patient_client(&server.url());
    let stop = StopSource::new();
    let (told, tell) = unbounded();
    let (begins, begun) = unbounded();
    thread::scope(|scope| {
        let serving = Serving::start(scope, &server, move |mut peer| {
            let name = asked(&peer.request());
            if name.starts_with("trickles") {
                peer.begin();
                peer.chunk("{\"kind\":\"SecretList\",\"items\":[");
                begins.send(()).unwrap();
                let (_never, pause) = bounded::<()>(0);
                while peer.try_write("1\r\n \r\n") {
                    let _pause = pause.recv_timeout(Duration::from_millis(20));
                }
            } else {
                answer(&mut peer, &name);
            }
        });
        let start = |name: String| {
            let (client, token, told) = (&client, stop.token(), told.clone());
            scope.spawn(move || list_one(client, &name, &token, &told));
        };
        (0..MANY).for_each(|number| start(format!("trickles-{number}")));
        let mut sent = 0;
        while sent < MANY && begun.recv_timeout(PATIENCE).is_ok() {
            sent += 1;
        }
        start("lives".to_owned());
        let answered = tell.recv_timeout(PATIENCE);
        stop.stop();
        drop(serving);
        assert_eq!((sent, answered), (MANY, Ok("lives".to_owned())));
    });
}

/// A1: callers that do not take what has come hold up themselves alone.
#[test]
fn a1_callers_that_are_slow_hold_up_no_other() {
    let server = Server::start();
    let client = patient_client(&server.url());
    let (told, tell) = unbounded();
    let (begins, begun) = unbounded();
    let (open, gate) = bounded::<()>(0);
    thread::scope(|scope| {
        let serving = Serving::start(scope, &server, |mut peer| {
            let name = asked(&peer.request());
            peer.begin();
            peer.chunk(
                "{\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[",
            );
            // Several reads, so that the reading thread waits for its caller.
            for _ in 0..64 {
                peer.chunk(&format!("{},", secret(&name, "5")));
                if name == "lives" {
                    break;
                }
                thread::yield_now();
            }
            peer.chunk(&secret(&name, "6"));
            peer.chunk("]}");
            peer.end();
        });
        for number in 0..MANY {
            let (source, gate, begins) = (
                one(&client, &format!("slow-{number}")),
                gate.clone(),
                begins.clone(),
            );
            scope.spawn(move || {
                let mut first = true;
                let listed = source.list(&ListRequest::default(), &StopToken::never(), &mut |_| {
                    if std::mem::take(&mut first) {
                        begins.send(()).unwrap();
                        // It is opened by being dropped.
                        let _opened = gate.recv();
                    }
                });
                listed.unwrap();
            });
        }
        drop(gate);
        let mut blocked = 0;
        while blocked < MANY && begun.recv_timeout(PATIENCE).is_ok() {
            blocked += 1;
        }
        let (client, told) = (&client, told.clone());
        scope.spawn(move || {
            list(&*one(client, "lives"), &StopToken::never()).unwrap();
            told.send(()).unwrap();
        });
        let answered = tell.recv_timeout(PATIENCE);
        drop(open);
        drop(serving);
        assert_eq!((blocked, answered), (MANY, Ok(())));
    });
}

/// A client that tries again after a silence that no live server of a test comes near to.
fn trying_client(url: &str) -> Client {
    let options = ClientOptions::default()
        .second_try_after(Duration::from_millis(300))
        .object_list_first_byte_timeout(PATIENCE)
        .watch_first_byte_timeout(PATIENCE)
        .get_first_byte_timeout(PATIENCE);
    Client::new(&Config::for_server(url).unwrap(), options).unwrap()
}

/// A1: of two servers behind one address one is dead: a request that meets it goes out again on a
/// new connection.
#[test]
fn a1_a_silent_connection_is_left_for_a_new_one_after_a_while() {
    let server = Server::start();
    let client = trying_client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let stop = StopToken::never();
            let (_, names) = list(&*one(&client, "db"), &stop).unwrap();
            assert_eq!(names, ["db"]);
            let mut watch = one(&client, "db").watch(&watch_from("1"), &stop).unwrap();
            assert_eq!(next_bookmark(&mut *watch), "4");
            super::get(&client, "db").unwrap();
        });
        for answer in 0..3 {
            let mut silent = server.accept();
            let first = silent.request();
            // It goes out again on a connection of its own, and the first one is closed.
            let mut peer = server.accept();
            assert_eq!(peer.request().line, first.line);
            silent.wait_for_close();
            match answer {
                0 => peer.json(200, &secret_list("7", &[secret("db", "5")])),
                1 => {
                    peer.begin();
                    peer.chunk(&bookmark("4"));
                }
                _ => peer.json(200, &secret("db", "5")),
            }
        }
        calls.join().unwrap();
    });
}

/// A1: once only, and the error says so; a list of a collection is not sent twice.
#[test]
fn a1_a_request_is_tried_twice_at_most() {
    let server = Server::start();
    let options = ClientOptions::default()
        .second_try_after(Duration::from_millis(30))
        .object_list_first_byte_timeout(Duration::from_millis(60))
        .list_first_byte_timeout(Duration::from_millis(60));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    thread::scope(|scope| {
        for (name, tries) in [("db", 2), ("", 1)] {
            let client = &client;
            let listing = scope.spawn(move || {
                let source = match name {
                    "" => super::secrets(client),
                    name => one(client, name),
                };
                list(&*source, &StopToken::never()).unwrap_err()
            });
            for _ in 0..tries {
                let mut silent = server.accept();
                silent.wait_for_close();
            }
            let error = listing.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            let text = error.to_string();
            let told = "on a second connection, after 30.0ms of silence on the first";
            assert_eq!(text.contains(told), tries == 2, "{text}");
        }
        assert!(!server.has_visitors());
    });
}

/// A1: a second try is a request, and the limiter counts it.
#[test]
fn a1_a_second_try_is_counted_by_the_limiter() {
    let server = Server::start();
    let fake = FakeClock::new();
    let options = ClientOptions::default()
        .second_try_after(Duration::from_millis(30))
        .rate(NonZeroU32::MIN)
        .burst(NonZeroU32::MIN)
        .clock(Clock::from(fake.clone()));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*one(&client, "db"), &StopToken::never()).map(drop));
        server.accept().wait_for_close();
        fake.wait_for_timer(Duration::from_secs(1));
        assert!(!server.has_visitors());
        fake.advance(Duration::from_secs(1));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret_list("7", &[secret("db", "5")]));
        listing.join().unwrap().unwrap();
    });
}

/// A1: a peer that takes the connection and says nothing to the TLS handshake.
#[test]
#[cfg(feature = "ring")]
fn a1_a_silent_handshake_is_left_for_a_new_connection() {
    let server = Server::start();
    let config = Config::for_server(&server.tls_url()).unwrap();
    let options = ClientOptions::default().second_try_after(Duration::from_millis(300));
    let client = Client::new(&config.with_insecure_skip_tls_verify(), options).unwrap();
    thread::scope(|scope| {
        let getting = scope.spawn(|| super::get(&client, "db").map(drop));
        let mut mute = server.accept();
        let mut peer = super::tls::accept_after(server.accept_socket(), &[]);
        peer.request();
        peer.json(200, &secret("db", "5"));
        getting.join().unwrap().unwrap();
        mute.wait_for_close();
    });
}
