//! Proxies on the way to a server: CONNECT and SOCKS5, what a proxy refuses, and how it fails.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{Client, Config, Patch, WriteOptions};
use kubecache::object::ObjectKey;
use kubecache::worker::{StopSource, StopToken};
use kubecache::{Error, ErrorKind};
use rustix::net::{AddressFamily, SocketType};
use rustls::{ServerConnection, StreamOwned};

use super::server::{Peer, Server};
use super::tls::{accept, of_all_names, pem};
use super::{
    bookmark, client_of, eventually, get, get_by, next_bookmark, open, patient, secret, secrets,
};
use crate::support::until;

const OPENED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// The server that no name service knows: only the proxy is asked for it.
fn plain() -> Config {
    Config::for_server("http://api.test:6443").unwrap()
}

fn through(server: &Server, scheme: &str) -> Config {
    let url = format!("{scheme}://jane:canary%40@127.0.0.1:{}", server.port());
    plain().with_proxy(&url).unwrap()
}

fn through_http(server: &Server) -> Config {
    through(server, "http")
}

/// What a get says of the proxy that `script` plays.
fn failure(server: &Server, client: &Client, script: impl FnOnce(Peer)) -> Error {
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(client, "db").map(drop).unwrap_err());
        script(server.accept());
        let error = getting.join().unwrap();
        let told = format!("{error} {error:?}");
        assert!(
            !told.contains("canary") && !told.contains("amFuZTp"),
            "{told}"
        );
        error
    })
}

/// What a get says, from the name of the proxy on.
fn told(server: &Server, error: &Error) -> String {
    let what = "GET http://api.test:6443/api/v1/namespaces/shop/secrets/db: ";
    let text = error.to_string();
    let text = text.strip_prefix(what).unwrap_or_else(|| panic!("{text}"));
    text.replace(&format!("127.0.0.1:{}", server.port()), "P")
}

fn expect<const N: usize>(peer: &mut Peer, bytes: [u8; N]) {
    let mut read = [0; N];
    let mut stream = peer.stream();
    stream.read_exact(&mut read).unwrap();
    assert_eq!(read, bytes);
}

#[test]
fn connect_opens_a_tunnel_which_later_requests_share() {
    let server = Server::start();
    let client = client_of(&through_http(&server));
    thread::scope(|scope| {
        let getting = scope.spawn(|| {
            get(&client, "db").unwrap();
            get(&client, "db").unwrap();
        });
        let mut peer = server.accept();
        let request = peer.request();
        assert_eq!(request.line, "CONNECT api.test:6443 HTTP/1.1");
        assert_eq!(request.header("Host"), Some("api.test:6443"));
        // jane:canary@
        let user = Some("Basic amFuZTpjYW5hcnlA");
        assert_eq!(request.header("Proxy-Authorization"), user);
        for byte in OPENED.as_bytes() {
            peer.write([*byte]);
        }
        for _ in 0..2 {
            let request = peer.request();
            assert!(request.line.starts_with("GET /api/v1/"), "{request:?}");
            assert_eq!(request.header("Host"), Some("api.test:6443"));
            assert_eq!(request.header("Proxy-Authorization"), None);
            peer.json(200, &secret("db", "1"));
        }
        getting.join().unwrap();
    });
}

/// The answer of a proxy, and what is said.
const REFUSALS: &[(&str, ErrorKind, &str)] = &[
    (
        "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 27\r\n\r\n\
         no amFuZTpjYW5hcnlA, canary@",
        ErrorKind::Unreachable,
        "the proxy http://P: answered CONNECT api.test:6443 with 407 Proxy Authentication \
         Required: no [credentials left out], [credentials left out]: it does not accept the user \
         and the password of its URL",
    ),
    (
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 63\r\n\r\n\
         <html><head><title>api.test: no such host</title></head></html>",
        ErrorKind::Unreachable,
        "the proxy http://P: answered CONNECT api.test:6443 with 502 Bad Gateway: api.test: no \
         such host",
    ),
    (
        "HTTP/1.0 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        ErrorKind::Unreachable,
        "the proxy http://P: answered CONNECT api.test:6443 with 403 Forbidden",
    ),
    (
        "HTTP/1.1 302\r\n\r\n",
        ErrorKind::Unreachable,
        "the proxy http://P: answered CONNECT api.test:6443 with 302 ",
    ),
    (
        "",
        ErrorKind::Unreachable,
        "the proxy http://P: closed the connection after 0 bytes of its answer to CONNECT",
    ),
    (
        "HTTP/1.1 200 OK\r\nX: y",
        ErrorKind::Unreachable,
        "the proxy http://P: closed the connection after 21 bytes of its answer to CONNECT",
    ),
    (
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        ErrorKind::Protocol,
        "the proxy http://P: its answer to CONNECT is no HTTP: is it a proxy? It says: \
         SSH-2.0-OpenSSH_9.2",
    ),
    (
        "HTTP/1.1 200 OK\r\n\r\nHello",
        ErrorKind::Protocol,
        "the proxy http://P: it sent bytes that the server cannot have sent yet",
    ),
];

#[test]
fn a_refusal_is_told_in_the_proxys_words() {
    for (answer, kind, expected) in REFUSALS {
        let server = Server::start();
        let client = client_of(&through_http(&server));
        let error = failure(&server, &client, |mut peer| {
            peer.request();
            peer.write(answer);
        });
        assert_eq!(told(&server, &error), *expected);
        assert_eq!(error.kind(), *kind, "{error}");
    }
}

/// Seen: the half of them that stood before a cut. `failure` looks for them.
#[test]
fn a_cut_of_the_proxys_words_shows_no_part_of_user_and_password() {
    let quoted = "amFuZTpjYW5hcnlA";
    for visible in [8, 15] {
        let before = "x".repeat(200 - visible);
        let whole = format!("{before}{quoted} and more");
        let part = format!("x {}", &quoted[..visible]);
        let length = part.len();
        for answer in [
            format!("HTTP/1.1 403 {whole}\r\nContent-Length: 0\r\n\r\n"),
            format!("HTTP/1.1 403 No\r\n\r\n{whole}"),
            format!("HTTP/1.1 403 No\r\nContent-Length: {length}\r\n\r\n{part}"),
            format!("x{whole}\r\n"),
        ] {
            let server = Server::start();
            let error = failure(&server, &client_of(&through_http(&server)), |mut peer| {
                peer.request();
                peer.write(&answer);
            });
            assert!(told(&server, &error).contains("[cre"), "{error}");
        }
    }
}

/// What is no proxy may wait for more, as all but the last two do.
#[test]
fn a_proxy_that_is_none_fails_at_once_with_the_reason() {
    let rows: &[(&str, &[u8], &str)] = &[
        (
            "http",
            b"SSH-2.0-x\r\n",
            "its answer to CONNECT is no HTTP: is it a proxy? It says: SSH-2.0-x",
        ),
        (
            "http",
            &[0x15, 3, 3, 0, 2, 2, 70],
            "its answer to CONNECT is no HTTP: it speaks TLS: its URL has to begin with https://",
        ),
        (
            "http",
            &[5, 0xff],
            "its answer to CONNECT is no HTTP: it speaks SOCKS: its URL has to begin with \
             socks5://",
        ),
        (
            "socks5",
            b"H",
            "it does not speak SOCKS5: perhaps it speaks HTTP: its URL has to begin with http://",
        ),
        (
            "socks5",
            b"+",
            "it does not speak SOCKS5: is it a proxy? It says: +",
        ),
    ];
    for (scheme, bytes, expected) in rows {
        let server = Server::start();
        let client = client_of(&through(&server, scheme));
        let error = failure(&server, &client, |mut peer| {
            peer.write(bytes);
            peer.wait_for_close();
        });
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let expected = format!("the proxy {scheme}://P: {expected}");
        assert_eq!(told(&server, &error), expected);
    }
    // A web server that answers each request.
    let server = Server::start();
    let config = Config::for_server("https://api.test:6443").unwrap();
    let config = config.with_proxy(&server.url()).unwrap();
    let client = client_of(&config.with_insecure_skip_tls_verify());
    let error = failure(&server, &client, |mut peer| {
        peer.request();
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(peer.stream().read(&mut [0; 4096]).unwrap() > 0);
        peer.write("HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.wait_for_close();
    });
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    let text = error.to_string().replace(&server.port().to_string(), "P");
    let way = "on the way is http://127.0.0.1:P: does it open tunnels?";
    assert!(
        text.contains("does not speak TLS") && text.ends_with(way),
        "{text}"
    );
}

/// The caller's deadline names what it waited for, as the connect limit does.
#[test]
fn a_deadline_names_the_proxy_that_is_silent() {
    for scheme in ["http", "socks5"] {
        let server = Server::start();
        let client = client_of(&through(&server, scheme));
        let expected = format!(
            "secrets/db: the caller's deadline passed: waiting for the proxy at 127.0.0.1:{} \
             to reach api.test:6443 for ",
            server.port()
        );
        eventually(&expected, || {
            let soon = Clock::system().after(Duration::from_millis(30));
            let error = get_by(&client, "db", soon, &StopToken::never()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            error
        });
    }
}

#[test]
fn a_proxy_that_wants_a_user_says_where_it_is_written() {
    let server = Server::start();
    let url = server.url();
    let client = client_of(&plain().with_proxy(&url).unwrap());
    let error = failure(&server, &client, |mut peer| {
        assert_eq!(peer.request().header("Proxy-Authorization"), None);
        peer.write("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
    });
    let expected = "the proxy http://P: answered CONNECT api.test:6443 with 407 Who: its URL needs \
                    user and password";
    assert_eq!(told(&server, &error), expected);
}

#[test]
fn a_tunnel_that_is_closed_is_told_as_the_end_of_the_connection() {
    let server = Server::start();
    let client = client_of(&through_http(&server));
    let error = failure(&server, &client, |mut peer| {
        peer.request();
        peer.write(OPENED);
        peer.request();
    });
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = told(&server, &error);
    assert!(
        text.starts_with("the server closed the connection"),
        "{text}"
    );

    let config = Config::for_server("https://api.test:6443").unwrap();
    let config = config.with_proxy(&server.url()).unwrap();
    let client = client_of(&config.with_insecure_skip_tls_verify());
    let closed = "the TLS handshake was cut off: the server closed the connection: ";
    let way = ": on the way is http://127.0.0.1:P: does it open tunnels?";
    for (is_reset, expected) in [(false, "does the port"), (true, "Connection reset by peer")] {
        let error = failure(&server, &client, |mut peer| {
            peer.request();
            peer.write(OPENED);
            // What is not read would make a reset of the end.
            let mut stream = peer.stream();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            if is_reset {
                peer.reset();
            }
        });
        let text = error.to_string().replace(&server.port().to_string(), "P");
        assert!(text.contains(&format!("{closed}{expected}")), "{text}");
        assert!(text.contains(way), "{text}");
    }
}

#[test]
fn a_head_without_end_is_bounded() {
    let server = Server::start();
    let client = client_of(&through_http(&server));
    let error = failure(&server, &client, |mut peer| {
        peer.request();
        peer.write("HTTP/1.1 200 OK\r\n");
        let line = format!("X: {}\r\n", "y".repeat(1_000));
        // The client closes in the middle.
        while peer.try_write(&line) {}
    });
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let expected = "the proxy http://P: its answer to CONNECT is larger than 16384 bytes";
    assert_eq!(told(&server, &error), expected);
}

/// The limit of the connect covers the proxy's answer too: silence, and an answer that never ends.
#[test]
fn the_connect_limit_covers_the_proxys_answer() {
    let limit = Duration::from_millis(200);
    for scheme in ["http", "socks5", "https"] {
        let server = Server::start();
        let config = through(&server, scheme).with_insecure_skip_tls_verify();
        let client = Client::new(&config, patient().connect_timeout(limit)).unwrap();
        let error = failure(&server, &client, |mut peer| peer.wait_for_close());
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let phase = if scheme == "https" {
            "the TLS handshake with"
        } else {
            "the answer of"
        };
        let expected = format!(
            "the proxy {scheme}://P: no connection within 200.0ms: {phase} {scheme}://P took longer"
        );
        assert_eq!(told(&server, &error), expected);
    }
    let server = Server::start();
    let config = through_http(&server);
    let client = Client::new(&config, patient().connect_timeout(limit)).unwrap();
    let error = failure(&server, &client, |mut peer| {
        peer.request();
        peer.write("HTTP/1.1 200 ");
        until(|| !peer.try_write("H"));
    });
    let kinds = [ErrorKind::Timeout, ErrorKind::TooLarge];
    assert!(kinds.contains(&error.kind()), "{error}");
}

#[test]
fn a_stop_ends_the_wait_for_the_proxy() {
    for scheme in ["http", "socks5", "https"] {
        let server = Server::start();
        let config = through(&server, scheme).with_insecure_skip_tls_verify();
        let client = client_of(&config);
        let source = StopSource::new();
        thread::scope(|scope| {
            let getting = scope
                .spawn(|| get_by(&client, "db", Deadline::NEVER, &source.token()).unwrap_err());
            let mut peer = server.accept();
            let mut first = [0];
            let mut stream = peer.stream();
            stream.read_exact(&mut first).unwrap();
            source.stop();
            let error = getting.join().unwrap();
            assert!(error.is_stopped(), "{error}");
            peer.wait_for_close();
        });
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named() {
    let nobody = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    // Bound and never listening: no other test gets the port meanwhile.
    rustix::net::bind(&nobody, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = rustix::net::getsockname(&nobody).unwrap();
    let port = SocketAddrV4::try_from(address).unwrap().port();
    let config = plain()
        .with_proxy(&format!("http://127.0.0.1:{port}"))
        .unwrap();
    let client = client_of(&config);
    let error = get(&client, "db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = error.to_string();
    let expected = format!("the proxy http://127.0.0.1:{port}: connecting to 127.0.0.1:{port}: ");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn socks_is_asked_by_name_with_user_and_password() {
    let server = Server::start();
    let client = client_of(&through(&server, "socks5"));
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap());
        let mut peer = server.accept();
        expect(&mut peer, [5, 2, 0, 2]);
        peer.write([5, 2]);
        expect(&mut peer, *b"\x01\x04jane\x07canary@");
        peer.write([1, 0]);
        expect(&mut peer, *b"\x05\x01\x00\x03\x08api.test\x19\x2b");
        // A proxy names its own end of the connection in one of three ways.
        for byte in [5, 0, 0, 3, 2, b'a', b'b', 0, 80] {
            peer.write([byte]);
        }
        assert!(peer.request().line.starts_with("GET /api/v1/"));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap();
    });
}

/// No length of the name that a proxy has for itself shifts what follows it.
#[test]
fn the_name_of_a_socks_proxy_has_any_length() {
    let server = Server::start();
    let proxy = format!("socks5://127.0.0.1:{}", server.port());
    for length in [0_u8, 1, 253, 254, 255] {
        let client = client_of(&plain().with_proxy(&proxy).unwrap());
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap());
            let mut peer = server.accept();
            expect(&mut peer, [5, 1, 0]);
            peer.write([5, 0]);
            expect(&mut peer, *b"\x05\x01\x00\x03\x08api.test\x19\x2b");
            peer.write([5, 0, 0, 3, length]);
            peer.write(vec![b'n'; usize::from(length)]);
            peer.write([0, 80]);
            assert!(peer.request().line.starts_with("GET /api/v1/"), "{length}");
            peer.json(200, &secret("db", "1"));
            getting.join().unwrap();
        });
    }
}

#[test]
fn socks_is_asked_for_an_address_as_one() {
    let server = Server::start();
    let config = Config::for_server("http://[fd00::1]:80").unwrap();
    let proxy = format!("socks5://127.0.0.1:{}", server.port());
    let client = client_of(&config.with_proxy(&proxy).unwrap());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap());
        let mut peer = server.accept();
        expect(&mut peer, [5, 1, 0]);
        peer.write([5, 0]);
        let address = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        expect(&mut peer, [5, 1, 0, 4]);
        expect(&mut peer, address);
        expect(&mut peer, [0, 80]);
        peer.write([5, 0, 0, 1, 10, 0, 0, 1, 0, 80]);
        peer.request();
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap();
    });
}

/// The answers of a SOCKS server, after which it closes, and what is said.
const SOCKS_REFUSALS: &[(&[u8], ErrorKind, &str)] = &[
    (
        b"\x05\xff",
        ErrorKind::Unreachable,
        "it takes no user and password",
    ),
    (
        b"HT",
        ErrorKind::Protocol,
        "it does not speak SOCKS5: perhaps it speaks HTTP: its URL has to begin with http://",
    ),
    (
        b"\x05",
        ErrorKind::Unreachable,
        "closed the connection in the handshake of SOCKS5",
    ),
    (
        b"\x05\x02\x01\x01",
        ErrorKind::Unreachable,
        "it does not accept the user and the password",
    ),
    (
        b"\x05\x00\x05\x05\x00\x01",
        ErrorKind::Unreachable,
        "refused to connect to api.test:6443: connection refused (SOCKS5 code 5)",
    ),
    (
        b"\x05\x00\x05\x63\x00\x01",
        ErrorKind::Unreachable,
        "refused to connect to api.test:6443: no reason known (SOCKS5 code 99)",
    ),
    (
        b"\x05\x00\x05\x00\x00\x09",
        ErrorKind::Protocol,
        "its answer has an address of an unknown kind",
    ),
];

#[test]
fn a_refusal_of_socks_is_told_in_its_words() {
    for (answers, kind, expected) in SOCKS_REFUSALS {
        let server = Server::start();
        let client = client_of(&through(&server, "socks5"));
        let error = failure(&server, &client, |mut peer| {
            peer.write(answers);
            peer.half_close();
            peer.wait_for_close();
        });
        assert_eq!(
            told(&server, &error),
            format!("the proxy socks5://P: {expected}")
        );
        assert_eq!(error.kind(), *kind, "{error}");
    }
    let server = Server::start();
    let proxy = format!("socks5://127.0.0.1:{}", server.port());
    let client = client_of(&plain().with_proxy(&proxy).unwrap());
    let error = failure(&server, &client, |mut peer| {
        expect(&mut peer, [5, 1, 0]);
        peer.write([5, 0xff]);
        peer.wait_for_close();
    });
    let expected = "the proxy socks5://P: it asks for credentials: its URL needs user and password";
    assert_eq!(told(&server, &error), expected);
}

/// TLS with the server runs inside TLS with the proxy, which never sees the client certificate.
#[test]
fn a_proxy_with_tls_carries_tls_to_the_server() {
    let server = Server::start();
    let config = Config::for_server("https://api.test:6443").unwrap();
    let config = config
        .with_authorities(pem("authority.pem"))
        .with_identity(pem("client-one.pem"), pem("client-one.key"))
        .with_tls_server_name("127.0.0.1")
        .with_proxy(&server.tls_url())
        .unwrap();
    let client = client_of(&config);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut watch = open(&*secrets(&client));
            for version in ["1", "2"] {
                assert_eq!(next_bookmark(&mut *watch), version);
            }
        });
        let mut proxy = accept(&server, &of_all_names());
        assert_eq!(proxy.request().line, "CONNECT api.test:6443 HTTP/1.1");
        proxy.write(OPENED);
        let outer = proxy.into_stream();
        assert!(
            outer.conn.peer_certificates().is_none(),
            "none for the proxy"
        );
        let inner = ServerConnection::new(of_all_names()).unwrap();
        let mut peer = Peer::new(StreamOwned::new(inner, outer));
        peer.request();
        assert!(peer.stream().conn.peer_certificates().is_some());
        peer.begin();
        for version in ["1", "2"] {
            peer.chunk(&bookmark(version));
        }
        watching.join().unwrap();
    });
}

/// Creates, patches and deletes over one tunnel, then replaces. Returns that last one's error.
fn write_all(client: &Client) -> Error {
    let (options, never) = (WriteOptions::default(), Deadline::NEVER);
    let object: Secret = serde_json::from_str(&secret("db", "1")).unwrap();
    let key = ObjectKey::new("shop", "db");
    let created = client.create(&object, &options, never).unwrap();
    assert_eq!(created.metadata.resource_version.as_deref(), Some("1"));
    let note = Patch::Merge(serde_json::json!({"type": "Opaque"}));
    let patched = client.patch::<Secret>(&key, &note, &options, never);
    assert_eq!(
        patched.unwrap().metadata.resource_version.as_deref(),
        Some("2")
    );
    let body = serde_json::Value::Null;
    client
        .delete::<Secret>(&key, &body, &options, never)
        .unwrap();
    client.replace(&object, &options, never).unwrap_err()
}

/// The server's side of [`write_all`]. Closes the tunnel after the last one's bytes.
fn serve_writes<S: Read + Write>(mut peer: Peer<S>) {
    let place = "/api/v1/namespaces/shop/secrets";
    let one = format!("{place}/db");
    for (method, place, answer) in [
        ("POST", place, Some(secret("db", "1"))),
        ("PATCH", &one, Some(secret("db", "2"))),
        ("DELETE", &one, Some(secret("db", "2"))),
        ("PUT", &one, None),
    ] {
        let request = peer.request();
        assert_eq!(request.line, format!("{method} {place} HTTP/1.1"));
        assert_eq!(request.header("Proxy-Authorization"), None);
        let length = request.header("content-length").unwrap().parse().unwrap();
        let body = peer.body(length);
        assert_eq!(body.is_empty(), method == "DELETE", "{method}");
        if let Some(answer) = answer {
            peer.json(200, &answer);
        }
    }
}

/// Writes go through each kind of proxy as gets do, and no tunnel that breaks brings one twice.
/// A plain server is reached by CONNECT too, so that there is no other kind.
#[test]
fn writes_go_through_each_kind_of_proxy_and_are_never_sent_twice() {
    for kind in ["http", "socks5", "https", "https to a plain server"] {
        let server = Server::start();
        let tls = |url: &str| {
            let config = Config::for_server(url).unwrap();
            config
                .with_authorities(pem("authority.pem"))
                .with_proxy(&server.tls_url())
                .unwrap()
        };
        let config = match kind {
            "https" => tls("https://api.test:6443").with_tls_server_name("127.0.0.1"),
            "https to a plain server" => tls("http://api.test:6443"),
            scheme => through(&server, scheme),
        };
        let client = client_of(&config);
        let error = thread::scope(|scope| {
            let writing = scope.spawn(|| write_all(&client));
            if kind.starts_with("https") {
                let mut proxy = accept(&server, &of_all_names());
                assert_eq!(proxy.request().line, "CONNECT api.test:6443 HTTP/1.1");
                proxy.write(OPENED);
                if kind == "https" {
                    let inner = ServerConnection::new(of_all_names()).unwrap();
                    serve_writes(Peer::new(StreamOwned::new(inner, proxy.into_stream())));
                } else {
                    serve_writes(proxy);
                }
            } else {
                let mut peer = server.accept();
                if kind == "http" {
                    assert_eq!(peer.request().line, "CONNECT api.test:6443 HTTP/1.1");
                    peer.write(OPENED);
                } else {
                    expect(&mut peer, [5, 2, 0, 2]);
                    peer.write([5, 2]);
                    expect(&mut peer, *b"\x01\x04jane\x07canary@");
                    peer.write([1, 0]);
                    expect(&mut peer, *b"\x05\x01\x00\x03\x08api.test\x19\x2b");
                    peer.write([5, 0, 0, 1, 10, 0, 0, 1, 0, 80]);
                }
                serve_writes(peer);
            }
            writing.join().unwrap()
        });
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{kind}: {text}");
        let said = "the server may have applied it; read the object before you send the request \
                    again";
        assert!(text.ends_with(said), "{kind}: {text}");
        assert!(!text.contains("canary"), "{kind}: {text}");
        assert!(!server.has_visitors(), "{kind}: it was sent twice");
    }
}

#[test]
fn the_certificate_of_a_proxy_is_checked() {
    let server = Server::start();
    let config = plain().with_proxy(&server.tls_url()).unwrap();
    // To do without the server's certificate says nothing about the proxy's.
    for config in [config.clone(), config.with_insecure_skip_tls_verify()] {
        let error = failure(&server, &client_of(&config), |peer| {
            let mut socket = peer.into_stream();
            let mut connection = ServerConnection::new(of_all_names()).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut socket).is_ok() {}
        });
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert!(
            error.to_string().contains("the proxy https://127.0.0.1:"),
            "{error}"
        );
    }
}

#[test]
fn a_configuration_can_do_without_a_proxy() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let config = config
        .with_proxy("http://proxy.test")
        .unwrap()
        .without_proxy();
    let client = client_of(&config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap());
        let mut peer = server.accept();
        assert!(peer.request().line.starts_with("GET /api/v1/"));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap();
    });
}
