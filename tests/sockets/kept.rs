//! Kept connections whose path died without a reset: one silence is enough, and the request goes
//! out again.

use std::thread;
use std::time::Duration;

use kubecache::ErrorKind;
use kubecache::clock::Clock;
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::worker::StopToken;

use super::server::{Peer, Server};
use super::{PATIENCE, client, get, get_by, secret};
use crate::support::until_some;

/// So many connections are kept open before the test begins.
const KEPT: usize = 3;

/// Makes the client keep some connections, each of which has answered one get.
fn keep_some(server: &Server, client: &Client) -> Vec<Peer> {
    thread::scope(|scope| {
        let getting: Vec<_> = (0..KEPT)
            .map(|_| scope.spawn(|| get(client, "db").map(drop)))
            .collect();
        let mut peers: Vec<_> = getting.iter().map(|_| server.accept()).collect();
        for peer in &mut peers {
            peer.request();
        }
        for peer in &mut peers {
            peer.json(200, &secret("db", "1"));
        }
        for call in getting {
            call.join().unwrap().unwrap();
        }
        peers
    })
}

fn serve(peer: &mut Peer) {
    peer.request();
    peer.json(200, &secret("db", "1"));
}

/// A3: the get that meets the first dead connection is answered on a new one, and the others are
/// not tried.
#[test]
fn a_silent_kept_connection_costs_one_second_try_and_no_get() {
    let server = Server::start();
    let mut options = ClientOptions::default();
    // A kept connection may be silent for half of it.
    options = options.get_first_byte_timeout(Duration::from_secs(4));
    let client = Client::new(&Config::for_server(&server.url()).unwrap(), options).unwrap();
    let dead = keep_some(&server, &client);
    thread::scope(|scope| {
        let gets = scope.spawn(|| {
            for _ in 0..2 {
                let deadline = Clock::system().after(PATIENCE);
                get_by(&client, "db", deadline, &StopToken::never()).unwrap();
            }
        });
        let mut fresh = server.accept();
        serve(&mut fresh);
        serve(&mut fresh);
        gets.join().unwrap();
    });
    for mut peer in dead {
        peer.wait_for_close();
    }
    assert!(!server.has_visitors());
}

/// A3: also where there is no time for a second try, the silent connections are the last ones of
/// their age.
#[test]
fn the_callers_deadline_on_a_kept_connection_drops_those_of_its_age() {
    // On a busy machine the deadline may pass before the request is sent.
    let (server, client, dead) = until_some(|| {
        let server = Server::start();
        let client = client(&server.url());
        let dead = keep_some(&server, &client);
        let soon = Clock::system().after(Duration::from_millis(1));
        let error = get_by(&client, "db", soon, &StopToken::never()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let is_sent = error.to_string().contains("waiting for the head");
        is_sent.then_some((server, client, dead))
    });
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        serve(&mut server.accept());
        getting.join().unwrap().unwrap();
    });
    drop(dead);
}
