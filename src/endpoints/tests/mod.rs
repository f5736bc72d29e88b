//! Endpoints over real sockets, with checks and pages that pass, fail, panic and hang.

mod clients;
mod lifecycles;
mod probes;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::*;
use crate::tests::until::until;

/// As long as a busy machine needs.
const LONG: Duration = Duration::from_secs(5 * 60);

/// Endpoints at a free port that give each check `limit`.
fn endpoints(limit: Duration) -> Endpoints {
    let options = EndpointsOptions::default().check_limit(limit);
    Endpoints::new(&"127.0.0.1:0".parse().unwrap(), options).unwrap()
}

/// The code and the body of an answer.
fn get(address: SocketAddr, target: &str) -> (u16, String) {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET {target} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap();
    (code.parse().unwrap(), body.to_owned())
}

fn ok() -> (u16, String) {
    (200, "ok".to_owned())
}

/// Asks until the answer is this one.
#[track_caller]
fn wait_for(address: SocketAddr, target: &str, answer: &(u16, String)) {
    until(|| get(address, target) == *answer);
}
