//! Requests of the program's own: what goes out, what comes back, and that no update goes out
//! twice.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use kubecache::clock::{Clock, Deadline};
use kubecache::http::{
    Client, Config, DecodeOptions, Request, Response, ResponseStream, Token, TokenSource,
    WriteOptions,
};
use kubecache::object::Object as _;
use kubecache::worker::StopSource;
use kubecache::{Error, ErrorKind};
use serde_json::{Value, json};

use super::server::{Peer, Server};
use super::{client, client_of, get, patient, secret};

const PATH: &str = "/api/v1/namespaces/shop/secrets";
const MAYBE: &str = "the server may have applied it; read the object before you send the request \
                     again";

fn never(client: &Client, request: &Request) -> Result<Response, Error> {
    client.send(request, Deadline::NEVER)
}

fn post() -> Request {
    Request::new("POST", PATH)
        .json(&json!({"canary": "s3cret"}))
        .unwrap()
}

/// Sends on another thread while `serve` has the server. Returns the result.
fn sending(client: &Client, request: &Request, serve: impl FnOnce()) -> Result<Response, Error> {
    thread::scope(|scope| {
        let sent = scope.spawn(|| never(client, request));
        serve();
        sent.join().unwrap()
    })
}

/// A connection that has answered one get and is kept.
fn kept(server: &Server, client: &Client) -> Peer {
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(client, "db").map(drop));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
        peer
    })
}

#[test]
fn method_path_headers_and_body_go_out_and_the_response_comes_as_it_is() {
    let server = Server::start();
    let client = client(&server.url());
    let request = Request::new("PUT", PATH)
        .query("dryRun", "a b&c")
        .query("force", "")
        .header("X-Two", "1")
        .header("X-Two", "2")
        .body("text");
    let response = sending(&client, &request, || {
        let mut peer = server.accept();
        let head = peer.request();
        assert_eq!(
            head.line,
            format!("PUT {PATH}?dryRun=a%20b%26c&force= HTTP/1.1")
        );
        assert_eq!(head.header("content-length"), Some("4"));
        assert_eq!(head.header("transfer-encoding"), None);
        assert_eq!(head.header("accept"), Some("application/json, */*"));
        assert_eq!(
            (head.header("x-two"), head.header("content-type")),
            (Some("1"), None)
        );
        assert_eq!(peer.body(4), b"text");
        peer.answer(201, "X-Its: own\r\nContent-Type: text/plain\r\n", "done");
    })
    .unwrap();
    assert_eq!((response.status(), response.body()), (201, &b"done"[..]));
    assert_eq!(response.header("x-ITS").as_deref(), Some("own"));
    assert_eq!(
        response.json::<Value>().unwrap_err().kind(),
        ErrorKind::Undecodable
    );
    assert!(!format!("{response:?}").contains("done"), "{response:?}");
}

/// Methods without a body, and updates of none, end where the server expects them to.
#[test]
fn bodies_of_no_byte_are_sent_for_each_method() {
    let server = Server::start();
    let client = client(&server.url());
    for (method, length) in [
        ("GET", None),
        ("HEAD", None),
        ("OPTIONS", None),
        ("POST", Some("0")),
        ("PUT", Some("0")),
        ("PATCH", Some("0")),
        ("DELETE", Some("0")),
    ] {
        let response = sending(&client, &Request::new(method, "/x"), || {
            let mut peer = server.accept();
            let head = peer.request();
            assert_eq!(head.line, format!("{method} /x HTTP/1.1"));
            assert_eq!(head.header("content-length"), length);
            peer.write("HTTP/1.1 204 Word\r\nConnection: close\r\n\r\n");
        });
        assert_eq!(response.unwrap().status(), 204, "{method}");
    }
}

/// A body larger than the buffers arrives whole, in one request.
#[test]
fn a_large_body_arrives_whole() {
    let server = Server::start();
    let client = client(&server.url());
    let body: Vec<u8> = (0..1_000_003_u32).map(|n| n.to_le_bytes()[0]).collect();
    let request = Request::new("POST", PATH).body(body.clone());
    let response = sending(&client, &request, || {
        let mut peer = server.accept();
        assert_eq!(peer.request().header("content-length"), Some("1000003"));
        assert!(peer.body(body.len()) == body, "another body arrived");
        peer.json(200, "{\"a\":1}");
    });
    assert_eq!(response.unwrap().json::<Value>().unwrap(), json!({"a": 1}));
}

/// An update whose connection ends after its bytes went out is not sent again, on a new connection
/// or on a kept one, and says that it may have been applied.
#[test]
fn an_update_that_is_cut_after_it_was_sent_is_never_sent_twice() {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for is_kept in [false, true] {
            for is_reset in [false, true] {
                let server = Server::start();
                // It ends a test that fails: the second request has no answer.
                let options = patient().list_first_byte_timeout(Duration::from_secs(60));
                let config = Config::for_server(&server.url()).unwrap();
                let client = Client::new(&config, options).unwrap();
                let kept = is_kept.then(|| kept(&server, &client));
                let request = Request::new(method, PATH).body("{}");
                let error = sending(&client, &request, || {
                    let mut peer = kept.unwrap_or_else(|| server.accept());
                    assert!(peer.request().line.starts_with(method));
                    if is_reset {
                        peer.reset();
                    }
                })
                .unwrap_err();
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{text}");
                assert!(text.starts_with(&format!("{method} http://")), "{text}");
                assert!(text.ends_with(MAYBE), "{text}");
                assert!(!server.has_visitors(), "{method} was sent twice");
            }
        }
    }
}

/// A refusal of a large body, which the server sends before it has read that.
const REFUSALS: [(u16, &str, ErrorKind); 3] = [
    (403, "Forbidden", ErrorKind::Forbidden),
    (413, "RequestEntityTooLarge", ErrorKind::Api),
    (429, "TooManyRequests", ErrorKind::TooManyRequests),
];

fn status_of(code: u16, reason: &str) -> String {
    json!({"kind": "Status", "code": code, "reason": reason, "message": "too early"}).to_string()
}

/// More than the buffers of two sockets hold.
fn large_post() -> Request {
    Request::new("POST", PATH).body(vec![b'x'; 12 * 1024 * 1024])
}

fn check_refusal(error: &Error, code: u16, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.status().unwrap().code(), code);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert!(!error.to_string().contains(MAYBE), "{error}");
}

/// Seen: the client wrote on until the reset, and said that the update may have been applied.
#[test]
fn a_refusal_that_comes_before_the_body_was_read_is_the_answer() {
    for (code, reason, kind) in REFUSALS {
        for is_reset in [false, true] {
            let server = Server::start();
            let client = client(&server.url());
            let error = thread::scope(|scope| {
                let sent = scope.spawn(|| never(&client, &large_post()));
                let mut peer = server.accept();
                peer.request();
                peer.answer(
                    code,
                    "Retry-After: 7\r\nConnection: close\r\n",
                    status_of(code, reason),
                );
                // A peer that neither reads nor closes does not hold the call up.
                let open = if is_reset {
                    peer.reset();
                    None
                } else {
                    Some(peer)
                };
                let error = sent.join().unwrap().unwrap_err();
                drop(open);
                error
            });
            check_refusal(&error, code, kind);
            assert!(!server.has_visitors());
        }
    }
}

/// The same over TLS.
#[cfg(feature = "ring")]
#[test]
fn a_refusal_over_tls_that_comes_before_the_body_was_read_is_the_answer() {
    use super::tls::{accept, of_all_names, pem};
    for (code, reason, kind) in REFUSALS {
        for is_reset in [false, true] {
            let server = Server::start();
            let config = Config::for_server(&server.tls_url()).unwrap();
            let config = config.with_authorities(pem("authority.pem"));
            let client = Client::new(&config, patient()).unwrap();
            let error = thread::scope(|scope| {
                let sent = scope.spawn(|| never(&client, &large_post()));
                let mut peer = accept(&server, &of_all_names());
                peer.request();
                peer.answer(
                    code,
                    "Retry-After: 7\r\nConnection: close\r\n",
                    status_of(code, reason),
                );
                let mut open = Some(peer.into_stream());
                if is_reset && let Some(stream) = open.take() {
                    Peer::new(stream.sock).reset();
                }
                let error = sent.join().unwrap().unwrap_err();
                drop(open);
                error
            });
            check_refusal(&error, code, kind);
            assert!(!server.has_visitors());
        }
    }
}

/// The program asked by a header of its own whether something has changed.
#[test]
fn an_answer_that_nothing_was_modified_is_no_redirect() {
    let server = Server::start();
    let request = Request::get(PATH).header("If-None-Match", "\"1\"");
    let error = sending(&client(&server.url()), &request, || {
        let mut peer = server.accept();
        assert_eq!(peer.request().header("if-none-match"), Some("\"1\""));
        peer.answer(304, "ETag: \"1\"\r\n", "");
    })
    .unwrap_err();
    assert_eq!(
        error.status().map(kubecache::object::Status::code),
        Some(304),
        "{error}"
    );
    assert!(!error.to_string().contains("redirect"), "{error}");
}

/// The same over TLS, whether the server says that it closes, ends without a word, or resets.
#[cfg(feature = "ring")]
#[test]
fn an_update_that_is_cut_over_tls_after_it_was_sent_is_never_sent_twice() {
    use super::tls::{accept, of_all_names, pem};
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for is_kept in [false, true] {
            for end in ["notify", "close", "reset"] {
                let server = Server::start();
                let options = patient().list_first_byte_timeout(Duration::from_secs(60));
                let config = Config::for_server(&server.tls_url()).unwrap();
                let config = config.with_authorities(pem("authority.pem"));
                let client = Client::new(&config, options).unwrap();
                let request = Request::new(method, PATH).body("{}");
                let error = thread::scope(|scope| {
                    let sent = scope.spawn(|| {
                        if is_kept {
                            get(&client, "db").unwrap();
                        }
                        never(&client, &request).unwrap_err()
                    });
                    let mut peer = accept(&server, &of_all_names());
                    if is_kept {
                        peer.request();
                        peer.json(200, &secret("db", "1"));
                    }
                    assert!(peer.request().line.starts_with(method));
                    assert_eq!(peer.body(2), b"{}");
                    let mut stream = peer.into_stream();
                    match end {
                        "notify" => {
                            stream.conn.send_close_notify();
                            stream.conn.complete_io(&mut stream.sock).unwrap();
                        }
                        "reset" => Peer::new(stream.sock).reset(),
                        _ => drop(stream),
                    }
                    sent.join().unwrap()
                });
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{end}: {text}");
                assert!(text.starts_with(&format!("{method} https://")), "{text}");
                assert!(text.ends_with(MAYBE), "{end}: {text}");
                assert!(!server.has_visitors(), "{method} was sent twice");
            }
        }
    }
}

/// A read is sent again on another connection, as gets are.
#[test]
fn a_read_that_is_cut_on_a_kept_connection_is_sent_again() {
    let server = Server::start();
    let client = client(&server.url());
    let mut kept = kept(&server, &client);
    let response = sending(&client, &Request::get(PATH), || {
        kept.request();
        drop(kept);
        let mut fresh = server.accept();
        fresh.request();
        fresh.json(200, "{}");
    });
    assert_eq!(response.unwrap().status(), 200);
}

/// The client looks at a kept connection before it writes, so that an update meets none whose
/// server has closed it.
#[test]
fn an_update_does_not_go_out_on_a_connection_that_has_ended() {
    let server = Server::start();
    let client = client(&server.url());
    // A program that another test starts may hold a copy of it for a moment.
    kept(&server, &client).half_close();
    let response = sending(&client, &post(), || {
        let mut fresh = server.accept();
        assert!(fresh.request().line.starts_with("POST"));
        fresh.json(201, "{}");
    });
    assert_eq!(response.unwrap().status(), 201);
}

/// What never went out was not applied, and its error does not say that it may have been.
#[test]
fn an_update_whose_connection_was_never_made_was_not_applied() {
    let url = Server::start().url();
    let error = never(&client(&url), &post()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(!error.to_string().contains("applied"), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

/// A refusal is the server's word that nothing was applied, up to 499. What a gateway says of a
/// server behind it is not.
#[test]
fn a_refusal_is_not_repeated_and_has_the_servers_words() {
    let reasons = [
        (400, "BadRequest", ErrorKind::Api),
        (403, "Forbidden", ErrorKind::Forbidden),
        (404, "NotFound", ErrorKind::NotFound),
        (409, "Conflict", ErrorKind::Api),
        (409, "AlreadyExists", ErrorKind::Api),
        (422, "Invalid", ErrorKind::Api),
        (429, "TooManyRequests", ErrorKind::TooManyRequests),
        (500, "InternalError", ErrorKind::Api),
        (503, "ServiceUnavailable", ErrorKind::Api),
        (504, "Timeout", ErrorKind::Api),
    ];
    for (code, reason, kind) in reasons {
        let server = Server::start();
        let client = client(&server.url());
        let words = "in its own words";
        let status = json!({"kind": "Status", "reason": reason, "code": code, "message": words});
        let error = sending(&client, &post(), || {
            let mut peer = server.accept();
            peer.request();
            peer.answer(code, "Retry-After: 7\r\n", status.to_string());
            // The call ends without another request.
        })
        .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let told = error.status().unwrap();
        assert_eq!((told.code(), told.reason_text()), (code, reason));
        assert_eq!(told.message(), words);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error.to_string().ends_with(MAYBE), code >= 500, "{error}");
        assert!(!server.has_visitors());
    }
}

/// Counts its tokens.
struct Tokens(AtomicU32);

impl TokenSource for Tokens {
    fn token(&self) -> Result<Token, Error> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Token::new(format!("token-{number}")))
    }
}

/// A 401 applied nothing, so an update may be tried with the next token. The server's words never
/// show one.
#[test]
fn an_update_goes_out_again_with_another_token_after_a_401() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let source: Arc<dyn TokenSource> = Arc::new(Tokens(AtomicU32::new(0)));
    let client = client_of(&config.with_token_source(source));
    let mut seen = Vec::new();
    let error = sending(&client, &post(), || {
        let mut peer = server.accept();
        for (code, body) in [(401, "{}"), (500, "you sent token-1")] {
            let head = peer.request();
            let length = head.header("content-length").unwrap().parse().unwrap();
            assert_eq!(peer.body(length), br#"{"canary":"s3cret"}"#);
            seen.push(head.header("authorization").unwrap().to_owned());
            peer.answer(code, "", body);
        }
    })
    .unwrap_err();
    assert_eq!(seen, ["Bearer token-0", "Bearer token-1"]);
    assert!(!error.to_string().contains("token-1"), "{error}");
}

/// The stop ends a request in each phase. After its bytes went out the error says what that means.
#[test]
fn a_stop_ends_an_update_that_waits_for_its_answer() {
    for has_head in [false, true] {
        let server = Server::start();
        let client = client(&server.url());
        let source = StopSource::new();
        let request = post().stop(&source.token());
        let error = sending(&client, &request, || {
            let mut peer = server.accept();
            peer.request();
            if has_head {
                peer.begin_with("{");
            }
            source.stop();
            peer.wait_for_close();
        })
        .unwrap_err();
        assert!(error.is_stopped(), "{error}");
        assert!(error.to_string().ends_with(MAYBE), "{error}");
        // A stop that is raised before ends it at once, and nothing went out.
        let error = never(&client, &request).unwrap_err();
        assert!(error.is_stopped(), "{error}");
        assert!(!error.to_string().contains("applied"), "{error}");
    }
}

#[test]
fn the_deadline_ends_a_request_to_a_silent_server() {
    let server = Server::start();
    let client = client(&server.url());
    let soon = Clock::system().after(Duration::from_millis(1));
    let error = client.send(&post(), soon).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[test]
fn a_request_that_cannot_be_sent_names_its_field() {
    let client = client("http://127.0.0.1:1");
    let get = Request::get;
    for (request, field) in [
        (Request::new("BREW", "/x"), "method"),
        (Request::new("get", "/x"), "method"),
        (Request::new("", "/x"), "method"),
        (Request::new("CONNECT", "/x"), "method"),
        (get(""), "path"),
        (get("api"), "path"),
        (get("//evil.test/x"), "path"),
        (get("https://evil.test/x"), "path"),
        (get("@evil.test/x"), "path"),
        (get("/a b"), "path"),
        (get("/a\r\nHost: evil"), "path"),
        (get("/ü"), "path"),
        (get("/a#b"), "path"),
        (get("/a/../b"), "path"),
        (get("/a/%2e%2E/b"), "path"),
        (get("/x").header("A B", "1"), "header \"A B\""),
        (get("/x").header("", "1"), "header \"\""),
        (get("/x").header("X-A", "1\r\nX-B: 2"), "header \"X-A\""),
        (get("/x").header("X-A", " 1"), "header \"X-A\""),
        (get("/x").header("X-A", "1\t"), "header \"X-A\""),
        (get("/x").header("X-A", "ü"), "header \"X-A\""),
        (
            get("/x").header("AUTHORIZATION", "1"),
            "header \"AUTHORIZATION\"",
        ),
        (get("/x").header("Host", "1"), "header \"Host\""),
        (
            get("/x").header("Content-Length", "1"),
            "header \"Content-Length\"",
        ),
        (
            get("/x").header("Transfer-Encoding", "1"),
            "header \"Transfer-Encoding\"",
        ),
        (get("/x").header("user-agent", "1"), "header \"user-agent\""),
    ] {
        let error = never(&client, &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{request:?}: {error}");
        let told = format!("the request's {field} cannot be sent: ");
        assert!(error.to_string().contains(&told), "{request:?}: {error}");
    }
}

#[test]
fn bodies_have_a_limit_both_ways() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let options = patient().decode(DecodeOptions::default().item_bytes_max(9));
    let client = Client::new(&config, options).unwrap();
    let error = never(&client, &Request::new("PUT", PATH).body("0123456789")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(!error.to_string().contains("applied"), "{error}");
    let error = sending(&client, &Request::new("PUT", PATH), || {
        let mut peer = server.accept();
        peer.request();
        peer.json(200, "0123456789");
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("larger than 9 bytes"), "{error}");
    assert!(error.to_string().ends_with(MAYBE), "{error}");
}

/// Opens a stream on another thread; `serve` answers its request.
fn streaming(client: &Client, request: &Request, serve: impl FnOnce()) -> ResponseStream {
    thread::scope(|scope| {
        let opened = scope.spawn(|| client.stream(request, Deadline::NEVER));
        serve();
        opened.join().unwrap().unwrap()
    })
}

fn logs() -> Request {
    Request::get("/api/v1/namespaces/shop/pods/web/log").query("follow", "true")
}

#[test]
fn a_stream_gives_each_line_as_it_comes_and_ends_with_the_body() {
    let server = Server::start();
    let mut peer = None;
    let stream = streaming(&client(&server.url()), &logs(), || {
        let mut accepted = server.accept();
        assert_eq!(
            accepted.request().header("accept-encoding"),
            Some("identity")
        );
        accepted.begin_with("one\ntw");
        peer = Some(accepted);
    });
    let mut peer = peer.unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    peer.chunk("o\nthree\n");
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    peer.end();
    assert!(lines.next().is_none() && lines.next().is_none());
}

/// The stop and the deadline end a read that waits, and each read after it. A drop closes the
/// connection.
#[test]
fn a_stream_ends_by_its_stop_and_its_drop() {
    let server = Server::start();
    let client = client(&server.url());
    let source = StopSource::new();
    let request = logs().stop(&source.token());
    let mut peer = None;
    let open = |peer: &mut Option<Peer>| {
        streaming(&client, &request, || {
            let mut accepted = server.accept();
            accepted.request();
            accepted.begin();
            *peer = Some(accepted);
        })
    };
    drop(open(&mut peer));
    peer.take().unwrap().wait_for_close();
    let mut stream = open(&mut peer);
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let first = stream.read(&mut [0]).unwrap_err();
            (first, stream.read(&mut [0]).unwrap_err())
        });
        peer.as_mut().unwrap().chunk("");
        source.stop();
        let (first, second) = reading.join().unwrap();
        for error in [first, second] {
            let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
            assert!(inner.is_stopped(), "{inner}");
        }
    });
    peer.unwrap().wait_for_close();
}

#[test]
fn a_stream_ends_by_its_deadline_and_says_how_it_broke_off() {
    let server = Server::start();
    let client = client(&server.url());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut peers = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let mut peer = server.accept();
                let asks = peer.request_or_close().is_some();
                if asks && peer.try_write("HTTP/1.1 200 OK\r\n\r\n") {
                    peers.push(peer);
                }
            }
        });
        // On a busy machine the head may come after the shorter ones.
        let mut opened = [1, 10, 100, 1000].into_iter().filter_map(|seconds| {
            let soon = Clock::system().after(Duration::from_secs(seconds));
            client.stream(&logs(), soon).ok()
        });
        let error = opened.next().unwrap().read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
        is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", server.port())));
        serving.join().unwrap();
    });
    let mut cut = streaming(&client, &logs(), || {
        let mut peer = server.accept();
        peer.request();
        peer.begin_with("one\n");
    });
    let mut text = String::new();
    let error = cut.read_to_string(&mut text).unwrap_err();
    let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!(
        (&*text, inner.kind()),
        ("one\n", ErrorKind::Protocol),
        "{inner}"
    );
    assert!(
        inner.to_string().contains("the answer was cut off"),
        "{inner}"
    );
}

/// More streams than slots wait, and other requests work all the same.
#[test]
fn idle_streams_hold_no_slot() {
    let server = Server::start();
    let client = client(&server.url());
    let mut peers = Vec::new();
    let streams: Vec<_> = (0..33)
        .map(|_| {
            streaming(&client, &logs(), || {
                let mut peer = server.accept();
                peer.request();
                peer.begin();
                peers.push(peer);
            })
        })
        .collect();
    let response = sending(&client, &post(), || {
        let mut peer = server.accept();
        peer.request();
        peer.json(201, "{}");
    });
    assert_eq!(response.unwrap().status(), 201);
    drop(streams);
}

#[test]
#[cfg(feature = "gzip")]
fn a_compressed_response_comes_as_it_was() {
    use std::io::Write as _;
    let server = Server::start();
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(b"{\"a\":\"b\"}").unwrap();
    let zipped = zipped.finish().unwrap();
    let response = sending(&client(&server.url()), &Request::get(PATH), || {
        let mut peer = server.accept();
        assert_eq!(peer.request().header("accept-encoding"), Some("gzip"));
        peer.answer(200, "Content-Encoding: gzip\r\n", &zipped);
    });
    let response = response.unwrap();
    assert_eq!(response.body(), b"{\"a\":\"b\"}");
    for name in ["content-encoding", "content-length"] {
        assert_eq!(response.header(name), None, "{name}");
    }
}

/// A subresource may have a type of its own, and be answered with a status alone.
#[test]
fn an_eviction_goes_to_its_pod_and_is_answered_with_a_status() {
    let server = Server::start();
    let pods = client(&server.url()).with_resource(Pod::resource());
    let eviction = json!({"metadata": {"name": "web-0", "namespace": "shop"}});
    let eviction: Eviction = serde_json::from_value(eviction).unwrap();
    let options = WriteOptions::default()
        .subresource("eviction")
        .query("dryRun", "All");
    let refused = json!({"kind": "Status", "code": 429, "reason": "TooManyRequests",
        "message": "Cannot evict pod", "details": {"retryAfterSeconds": 10}});
    let done = json!({"kind": "Status", "status": "Success", "code": 201});
    let path = "POST /api/v1/namespaces/shop/pods/web-0/eviction?dryRun=All HTTP/1.1";
    let evict = || pods.create(&eviction, &options, Deadline::NEVER);
    let (refused, done) = thread::scope(|scope| {
        let evicting = scope.spawn(|| (evict().unwrap_err(), evict().unwrap()));
        let mut peer = server.accept();
        for (code, answer) in [(429, refused), (201, done)] {
            let head = peer.request();
            assert_eq!(head.line, path);
            peer.body(head.header("content-length").unwrap().parse().unwrap());
            peer.json(code, &answer.to_string());
        }
        evicting.join().unwrap()
    });
    assert_eq!(refused.kind(), ErrorKind::TooManyRequests, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(10)));
    assert_eq!(done.metadata.name.as_deref(), Some("web-0"));
}

/// A successful answer that is no object leaves open what was applied.
#[test]
fn a_write_whose_answer_does_not_decode_says_that_it_may_have_been_applied() {
    let server = Server::start();
    let client = client(&server.url());
    let pod = json!({"metadata": {"name": "web-0", "namespace": "shop"}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let error = thread::scope(|scope| {
        let options = WriteOptions::default();
        let creating = scope.spawn(move || client.create(&pod, &options, Deadline::NEVER));
        let mut peer = server.accept();
        peer.request();
        peer.answer(201, "", "<html>");
        creating.join().unwrap().unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(
        error
            .to_string()
            .starts_with("POST /api/v1/namespaces/shop/pods: "),
        "{error}"
    );
    assert!(error.to_string().ends_with(MAYBE), "{error}");
}
