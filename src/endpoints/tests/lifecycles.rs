//! The start, the stop and the end of endpoints, also while a check hangs.

use std::net::{Ipv6Addr, TcpListener};

use crossbeam_channel::bounded;

use super::*;
use crate::clock::Deadline;
use crate::sync::Mutex;
use crate::worker::StopSource;

#[test]
fn clients_wait_until_the_endpoints_are_served() {
    let endpoints = endpoints(LONG);
    let mut early = TcpStream::connect(endpoints.address()).unwrap();
    early.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    endpoints.start();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

/// For metrics at an address of their own.
#[test]
fn endpoints_without_probes_serve_pages_alone() {
    let options = EndpointsOptions::default().probes(false);
    let endpoints = Endpoints::new(&"127.0.0.1:0".parse().unwrap(), options).unwrap();
    endpoints
        .add_page("/hello", || WebPage::text("hello"))
        .unwrap();
    endpoints.start();
    for probe in ["/livez", "/healthz", "/readyz/ping"] {
        assert_eq!(get(endpoints.address(), probe).0, 404, "{probe}");
    }
    assert_eq!(get(endpoints.address(), "/hello").0, 200);
}

#[test]
fn a_stop_frees_the_port_before_and_after_the_start() {
    let (running, waiting) = (endpoints(LONG), endpoints(LONG));
    running.start();
    running.start();
    assert_eq!(get(running.address(), "/livez"), ok());
    for endpoints in [&running, &waiting] {
        endpoints.stop();
        endpoints.start();
        endpoints.shutdown(Deadline::NEVER).unwrap();
        endpoints.shutdown(Duration::ZERO).unwrap();
        drop(TcpListener::bind(endpoints.address()).unwrap());
    }
}

/// A child process has all descriptors from fork to exec.
#[test]
#[cfg(target_os = "linux")]
fn an_end_frees_the_port_although_another_process_has_the_listener_still() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (copy, address) = (
        listener.try_clone().unwrap(),
        listener.local_addr().unwrap(),
    );
    let table = Table::new(WakeUp::new().unwrap(), EndpointsOptions::default());
    let stop = StopSource::new();
    stop.stop();
    EndpointsServer::new(listener, Arc::new(table)).run(&stop.token());
    drop(TcpListener::bind(address).unwrap());
    drop(copy);
}

/// Else a probe over IPv6 would ask another program.
#[test]
fn a_port_that_another_program_has_on_ipv6_alone_is_refused() {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
    // Not every machine has IPv6.
    let Ok(other) = socket(AddressFamily::INET6, SocketType::STREAM, None) else {
        return;
    };
    sockopt::set_ipv6_v6only(&other, true).unwrap();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    if bind(&other, &any).is_err() {
        return;
    }
    listen(&other, 1).unwrap();
    let other = TcpListener::from(other);
    let port = other.local_addr().unwrap().port();
    let address = format!(":{port}").parse().unwrap();
    let error = Endpoints::new(&address, EndpointsOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Resources);
}

#[test]
fn a_shutdown_names_the_check_that_hangs_and_a_drop_leaves_it() {
    let endpoints = endpoints(Duration::ZERO);
    let (open, gate) = bounded::<()>(0);
    let (end, ended) = bounded(1);
    let check = move || {
        let _open = gate.recv();
        end.send(()).map_err(|_gone| "gone")
    };
    endpoints.add_check(Probe::Ready, "stuck", check).unwrap();
    endpoints.start();
    let address = endpoints.address();
    assert_eq!(get(address, "/readyz").0, 500);
    let error = endpoints.shutdown(Duration::ZERO).unwrap_err();
    let text = format!(
        "timed out waiting for the endpoints at {address}: thread ep-stuck still runs, held up by \
         a check or a page"
    );
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Timeout, text)
    );
    drop(endpoints);
    drop(TcpListener::bind(address).unwrap());
    assert!(ended.try_recv().is_err(), "the drop did not wait for it");
    drop(open);
    ended.recv().unwrap();
}

/// The last owner of the endpoints may be one of their own checks.
#[test]
fn endpoints_that_are_dropped_by_their_own_check_end() {
    let owned = Arc::new(Mutex::new(Some(endpoints(LONG))));
    let (end, ended) = bounded(1);
    let address = {
        let (held, endpoints) = (Arc::clone(&owned), owned.lock());
        let endpoints = endpoints.as_ref().unwrap();
        let check = move || {
            let endpoints = held.lock().take();
            drop(endpoints);
            end.send(()).map_err(|_gone| "gone")
        };
        endpoints.add_check(Probe::Ready, "last", check).unwrap();
        endpoints.start();
        endpoints.address()
    };
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /readyz HTTP/1.1\r\n\r\n").unwrap();
    ended.recv().unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
}
