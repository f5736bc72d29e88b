//! Clients that say nothing, come in crowds, or go while their answer is made.

use std::net::{Shutdown, TcpListener};

use crossbeam_channel::bounded;

use super::server::CLIENTS_MAX;
use super::*;

#[test]
fn clients_that_say_nothing_keep_no_other_out_and_hold_up_no_end() {
    let endpoints = endpoints(LONG);
    endpoints.start();
    let address = endpoints.address();
    let mut idle: Vec<_> = (0..CLIENTS_MAX + 3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    idle[CLIENTS_MAX].write_all(b"GET / HT").unwrap();
    for _ in 0..50 {
        assert_eq!(get(address, "/livez"), ok());
    }
    // The oldest of those that had said nothing had to go.
    assert_eq!(idle[0].read(&mut [0; 8]).unwrap_or(0), 0);
    drop(endpoints);
    assert_eq!(idle[CLIENTS_MAX].read(&mut [0; 8]).unwrap_or(0), 0);
    // The port is free again.
    drop(TcpListener::bind(address).unwrap());
}

#[test]
fn a_client_that_has_sent_half_its_request_is_served_after_others() {
    let endpoints = endpoints(LONG);
    endpoints.start();
    let address = endpoints.address();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"GET /livez HT").unwrap();
    // By the last of them the server has read the half, and waits for the rest.
    for _ in 0..5 {
        assert_eq!(get(address, "/livez"), ok());
    }
    slow.write_all(b"TP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

/// A client may close its half, and take its answer all the same.
#[test]
fn clients_that_close_their_half_or_reset_while_a_check_runs_are_bounded() {
    let endpoints = endpoints(LONG);
    let (tell, begun) = bounded(0);
    let (open, gate) = bounded::<()>(0);
    let check = move || {
        tell.send(()).unwrap();
        gate.recv().map_err(|_closed| "closed")
    };
    endpoints.add_check(Probe::Ready, "gate", check).unwrap();
    endpoints.start();
    let address = endpoints.address();
    let ask = || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
        client
    };
    let mut half = ask();
    half.shutdown(Shutdown::Write).unwrap();
    begun.recv().unwrap();
    // More of them than are served at a time, all within the one call of the check.
    let crowd: Vec<_> = (0..CLIENTS_MAX / 2).map(|_| ask()).collect();
    for client in &crowd {
        let _reset = client.shutdown(Shutdown::Both);
    }
    drop(crowd);
    assert_eq!(get(address, "/livez"), ok());
    open.send(()).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    drop(open);
    drop(begun);
}

/// Seen: whoever was idle threw out the request of a kubelet that waited for its answer.
#[test]
fn clients_that_wait_for_their_answers_stay_before_those_that_say_nothing() {
    let endpoints = endpoints(LONG);
    let (tell, begun) = bounded(1);
    let (open, gate) = bounded::<()>(0);
    let check = move || {
        tell.send(()).unwrap();
        gate.recv().map_err(|_closed| "closed")
    };
    endpoints.add_check(Probe::Ready, "gate", check).unwrap();
    endpoints.start();
    let address = endpoints.address();
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
    begun.recv().unwrap();
    let mut answered = TcpStream::connect(address).unwrap();
    answered.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    answered.read_to_string(&mut answer).unwrap();
    let _idle: Vec<_> = (0..2 * CLIENTS_MAX)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert_eq!(get(address, "/livez"), ok());
    open.send(()).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}
