//! A stop reaches the thread in every phase of a request, and nothing stays behind.

use std::net::{TcpListener, TcpStream};
use std::thread;

use kubecache::clock::Deadline;
use kubecache::worker::StopSource;

use super::server::Server;
use super::{bookmark, client, get_by, list, next_bookmark, secrets, watch_from};
use crate::support::until;

/// A listener that answers no connect: its queue of one is full.
pub(crate) struct Deaf {
    listener: TcpListener,
    _queued: TcpStream,
}

impl Deaf {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let queued = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Self {
            listener,
            _queued: queued,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Waits until the kernel has somebody's connect under way.
    #[track_caller]
    fn wait_for_connect(&self) {
        let port = format!(":{:04X} 02 ", self.port());
        until(|| {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            sockets.contains(&port)
        });
    }
}

#[test]
#[cfg(target_os = "linux")]
fn while_connecting() {
    let server = Deaf::start();
    let client = client(&server.url());
    let source = StopSource::new();
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &source.token()).unwrap_err());
        server.wait_for_connect();
        source.stop();
        let error = listing.join().unwrap();
        assert!(error.is_stopped(), "{error}");
    });
}

#[test]
#[cfg(feature = "ring")]
fn during_the_handshake() {
    let server = Server::start();
    let config = kubecache::http::Config::for_server(&server.tls_url()).unwrap();
    let client = super::client_of(&config.with_insecure_skip_tls_verify());
    let source = StopSource::new();
    thread::scope(|scope| {
        let getting =
            scope.spawn(|| get_by(&client, "db", Deadline::NEVER, &source.token()).unwrap_err());
        let mut peer = server.accept();
        // Its hello has come, and no answer goes back.
        let mut hello = [0];
        std::io::Read::read_exact(&mut peer.stream(), &mut hello).unwrap();
        source.stop();
        let error = getting.join().unwrap();
        assert!(error.is_stopped(), "{error}");
        peer.wait_for_close();
    });
}

#[test]
fn while_waiting_for_the_head_of_an_answer() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let opened = secrets(&client).watch(&watch_from("1"), &source.token());
            opened.map(drop).unwrap_err()
        });
        let mut peer = server.accept();
        peer.request();
        source.stop();
        let error = watching.join().unwrap();
        assert!(error.is_stopped(), "{error}");
        peer.wait_for_close();
    });
}

#[test]
fn while_reading_the_body_of_a_watch() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    thread::scope(|scope| {
        let (told, tell) = crossbeam_channel::bounded(1);
        let (client, stop) = (&client, source.token());
        let watching = scope.spawn(move || {
            let mut watch = secrets(client).watch(&watch_from("1"), &stop).unwrap();
            next_bookmark(&mut *watch);
            told.send(()).unwrap();
            let error = watch.next(Deadline::NEVER).unwrap_err();
            // It stays stopped.
            assert!(watch.next(Deadline::NEVER).unwrap_err().is_stopped());
            error
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk(&bookmark("1"));
        tell.recv().unwrap();
        source.stop();
        let error = watching.join().unwrap();
        assert!(error.is_stopped(), "{error}");
        peer.wait_for_close();
    });
}

/// B16: a list does not run on after the stop, however much of it is still coming.
#[test]
fn in_the_middle_of_a_list() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &source.token()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk("{\"kind\":\"SecretList\",\"items\":[");
        source.stop();
        let error = listing.join().unwrap();
        assert!(error.is_stopped(), "{error}");
        peer.wait_for_close();
    });
}

#[test]
fn a_lister_watcher_serves_the_next_stop_token_after_a_stop() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            let first = StopSource::new();
            first.stop();
            assert!(list(&*source, &first.token()).unwrap_err().is_stopped());
            let second = StopSource::new();
            let mut watch = source.watch(&watch_from("1"), &second.token()).unwrap();
            second.stop();
            assert!(watch.next(Deadline::NEVER).unwrap_err().is_stopped());
            drop(watch);
            let third = StopSource::new();
            let mut watch = source.watch(&watch_from("1"), &third.token()).unwrap();
            next_bookmark(&mut *watch)
        });
        let mut stopped = server.accept();
        stopped.request();
        stopped.begin();
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk(&bookmark("4"));
        assert_eq!(calls.join().unwrap(), "4");
    });
}

/// 4,000 stops cost one look at a flag each: a token that is raised already opens no connection.
#[test]
fn a_raised_token_makes_no_request() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    source.stop();
    let stop = source.token();
    assert!(list(&*secrets(&client), &stop).unwrap_err().is_stopped());
    assert!(
        get_by(&client, "db", Deadline::NEVER, &stop)
            .unwrap_err()
            .is_stopped()
    );
    let opened = secrets(&client).watch(&watch_from("1"), &stop);
    assert!(opened.map(drop).unwrap_err().is_stopped());
    assert!(!server.has_visitors());
}

/// F21: the stop of one list ends that list, also when another list of the same lister-watcher
/// waits beside it.
#[test]
fn of_one_of_two_lists_of_a_lister_watcher() {
    let server = Server::start();
    let client = client(&server.url());
    let source = secrets(&client);
    for _ in 0..50 {
        let stops = [StopSource::new(), StopSource::new()];
        thread::scope(|scope| {
            let lists = [0, 1].map(|number| {
                let (source, token) = (&source, stops[number].token());
                let listing = scope.spawn(move || list(&**source, &token).unwrap_err());
                let mut peer = server.accept();
                peer.request();
                (listing, peer)
            });
            // The list that goes on is the first one to be asked, then the second one.
            for (number, (listing, mut peer)) in lists.into_iter().enumerate() {
                stops[number].stop();
                assert!(listing.join().unwrap().is_stopped());
                peer.wait_for_close();
            }
        });
    }
}
