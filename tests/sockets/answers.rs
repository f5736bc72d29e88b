//! Answers of every kind: statuses, pages of proxies, tokens that rotate, heads too large.

use std::fs;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kubecache::clock::Clock;
use kubecache::http::{Config, Patch, Request as OwnRequest, WriteOptions};
use kubecache::list_watch::ListerWatcher;
use kubecache::object::{ObjectKey, Scope};
use kubecache::worker::StopToken;
use kubecache::{Error, ErrorKind, Metadata};
use serde_json::json;

use super::server::{Peer, Request, Server};
use super::{client, client_of, get, list, secret, secret_list, secrets};
use crate::support::TempDirectory;

/// One get, answered by `answer`.
fn get_answered(answer: impl FnOnce(&mut Peer)) -> Error {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        answer(&mut peer);
        drop(peer);
        getting.join().unwrap()
    })
}

fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\
         \"message\":{message:?},\
         \"reason\":\"{reason}\",\"code\":{code}}}\n"
    )
}

/// RS-3: an answer other than 200 becomes the server's own status.
#[test]
fn statuses_become_errors_of_their_kind_in_the_servers_own_words() {
    let rows = [
        (403, "Forbidden", ErrorKind::Forbidden),
        (404, "NotFound", ErrorKind::NotFound),
        (410, "Expired", ErrorKind::Expired),
        (429, "TooManyRequests", ErrorKind::TooManyRequests),
        (401, "Unauthorized", ErrorKind::Unauthorized),
        (500, "InternalError", ErrorKind::Api),
        (504, "Timeout", ErrorKind::Api),
    ];
    for (code, reason, kind) in rows {
        let message = format!("the server's own words on {reason}");
        let error = get_answered(|peer| peer.json(code, &status(code, reason, &message)));
        assert_eq!(error.kind(), kind, "{error}");
        let told = format!("/api/v1/namespaces/shop/secrets/db: {message}");
        assert!(error.to_string().ends_with(&told), "{error}");
        assert_eq!(error.status().unwrap().code(), code);
        assert_eq!(error.retry_after(), None);
    }
}

/// RS-3: other codes of success say that the answer is not the objects that were asked for. The
/// text shows nothing of the body, which may be the value of a secret.
#[test]
fn a_read_takes_200_alone() {
    for code in [201, 202, 203, 204, 206, 299] {
        for is_watch in [false, true] {
            let server = Server::start();
            let client = client(&server.url());
            let error = thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    let (source, never) = (secrets(&client), StopToken::never());
                    if is_watch {
                        let watch = source.watch(&super::watch_from("1"), &never);
                        watch.map(drop).unwrap_err()
                    } else {
                        list(&*source, &never).map(drop).unwrap_err()
                    }
                });
                let mut peer = server.accept();
                peer.request();
                let body = if code == 204 { "" } else { "{\"canary\":1}" };
                peer.json(code, body);
                asking.join().unwrap()
            });
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{text}");
            let is_told = text.contains(&format!("answered {code} instead of 200"));
            assert!(is_told && text.contains("/secrets"), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
}

/// Neither form of an answer that a request takes: told with the forms and the remedy.
#[test]
fn a_server_that_sends_no_form_that_is_asked_for_is_told_of_it() {
    let words = "only the following media types will be accepted: text/plain";
    let body = status(406, "NotAcceptable", words);
    let server = Server::start();
    let client = client(&server.url());
    let key = ObjectKey::new("default", "db");
    let refused = |ask: &(dyn Fn() -> Error + Sync)| {
        thread::scope(|scope| {
            let asking = scope.spawn(ask);
            let mut peer = server.accept();
            peer.request();
            peer.json(406, &body);
            drop(peer);
            asking.join().unwrap().to_string()
        })
    };
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let (whole, soon) = (
        WriteOptions::default(),
        Clock::system().after(Duration::from_secs(300)),
    );
    let own = OwnRequest::new("GET", "/metrics").header("Accept", "text/html");
    let cases: [(&(dyn Fn() -> Error + Sync), &str, &str); 3] = [
        (
            &|| client.get::<Metadata<Secret>>(&key).unwrap_err(),
            metadata,
            ",application/json",
        ),
        (
            &|| {
                let patch = Patch::Merge(json!({}));
                let patched = client.patch::<Metadata<Secret>>(&key, &patch, &whole, soon);
                patched.unwrap_err()
            },
            metadata,
            ",application/json",
        ),
        (&|| client.send(&own, soon).unwrap_err(), "text/html", ""),
    ];
    for (ask, first, last) in cases {
        let error = refused(ask);
        assert!(error.contains(words), "{error}");
        let begin = format!("the request accepts {first}");
        assert!(error.contains(&begin), "{error}");
        let remedy = format!(
            "{last}, and the server sends none of these: does a proxy change the Accept header? \
             Client::send asks for other forms"
        );
        assert!(error.ends_with(&remedy), "{error}");
    }
}

/// R19: the server's wish reaches whoever waits.
#[test]
fn retry_after_is_passed_on() {
    let error = get_answered(|peer| {
        let body = status(429, "TooManyRequests", "slow down");
        peer.answer(
            429,
            "Retry-After: 7\r\nContent-Type: application/json\r\n",
            body,
        );
    });
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

type Answer = Box<dyn Fn(&mut Peer)>;

/// RS-3: an answer without a status becomes an error that names the request and the answer's code.
#[test]
fn what_is_no_kubernetes_is_told_with_the_request_and_its_first_words() {
    let html = "Content-Type: text/html\r\n";
    let page = "<html><head><title>Sign in</title></head><body>please</body></html>";
    let rows: [(Answer, ErrorKind, &str); 8] = [
        (
            Box::new(move |peer| peer.answer(502, html, page)),
            ErrorKind::Api,
            "answered 502 without a Status of the API: Sign in",
        ),
        (
            Box::new(move |peer| peer.answer(404, html, page)),
            ErrorKind::Protocol,
            "is this a Kubernetes API server",
        ),
        (
            Box::new(move |peer| peer.answer(200, html, page)),
            ErrorKind::Protocol,
            "answered with \"text/html\" instead of JSON",
        ),
        (
            Box::new(|peer| peer.answer(302, "Location: https://login.test/\r\n", "")),
            ErrorKind::Protocol,
            "answered 302, to ask \"https://login.test/\" instead",
        ),
        (
            Box::new(|peer| peer.write("SSH-2.0-OpenSSH_9.9\r\n\r\n\r\n")),
            ErrorKind::Protocol,
            "the answer is not what HTTP says",
        ),
        (
            Box::new(|peer| {
                let large = "x".repeat(70 * 1024);
                peer.answer(200, &format!("X-Large: {large}\r\n"), "");
            }),
            ErrorKind::TooLarge,
            "the head of the answer is too large",
        ),
        (
            Box::new(|peer| peer.json(200, "[1, 2")),
            ErrorKind::Protocol,
            "/secrets/db: ",
        ),
        (
            Box::new(|peer| peer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")),
            ErrorKind::Protocol,
            "the answer was cut off",
        ),
    ];
    for (answer, kind, text) in rows {
        let error = get_answered(answer);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(
            error.to_string().starts_with("GET http://127.0.0.1:"),
            "{error}"
        );
    }
}

/// A6: the status has come, and says more than a body that dribbles in for ever.
#[test]
fn an_error_answer_is_told_without_waiting_for_the_end_of_its_body() {
    const PIECE: Duration = Duration::from_millis(50);
    let error = get_answered(|peer| {
        peer.write("HTTP/1.1 503 No\r\nRetry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n");
        let pieces =
            (0..300).take_while(|_| peer.try_write("1\r\n \r\n") && !peer.closes_within(PIECE));
        assert!(pieces.count() < 300, "the client reads on and on");
    });
    assert_eq!(error.status().unwrap().code(), 503, "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let error = get_answered(|peer| {
        peer.write("HTTP/1.1 403 No\r\nContent-Length: 1000\r\n\r\nno entry");
        peer.wait_for_close();
    });
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert!(error.to_string().contains("no entry"), "{error}");
}

/// D16: an encoding that nobody asked for is named, and not decoded as if it were JSON.
#[test]
fn an_encoding_that_was_not_asked_for_is_refused_by_name() {
    for name in ["br", "deflate", "zstd", "gzip, br"] {
        let error = get_answered(move |peer| {
            let headers = format!("Content-Type: application/json\r\nContent-Encoding: {name}\r\n");
            peer.answer(200, &headers, secret("db", "1"));
        });
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let text = format!("answered with Content-Encoding {name:?}");
        assert!(error.to_string().contains(&text), "{error}");
    }
}

/// D16, RF-25: what a get refuses, a list refuses too.
#[test]
fn a_list_of_another_kind_or_version_is_refused() {
    for (version, kind) in [("v1", "PodList"), ("v2", "SecretList"), ("v1", "Secret")] {
        let server = Server::start();
        let client = client(&server.url());
        let body = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\
             \"metadata\":{{\"resourceVersion\":\"5\"}},\"items\":[]}}"
        );
        let error = thread::scope(|scope| {
            let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()));
            let mut peer = server.accept();
            peer.request();
            peer.json(200, &body);
            listing.join().unwrap().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        let text = format!("the answer is {version} {kind}, not v1 SecretList");
        assert!(error.to_string().contains(&text), "{error}");
    }
}

#[test]
fn nobody_listening_is_told_with_the_address() {
    let port = Server::start().port();
    let error = get(&client(&format!("http://127.0.0.1:{port}")), "db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = format!("connecting to 127.0.0.1:{port}: Connection refused");
    assert!(error.to_string().contains(&text), "{error}");
}

/// A server tells of a group that it does not serve by a page, not by a Status.
#[test]
fn a_collection_that_is_not_served_is_told_apart_from_an_object_that_is_absent() {
    let server = Server::start();
    let client = client(&server.url());
    let page = "404 page not found\n";
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.answer(404, "Content-Type: text/plain\r\n", page);
        let error = listing.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let words = "the server could not find the requested resource";
        assert!(error.to_string().contains(words), "{error}");
    });
    let error = get_answered(move |peer| peer.answer(404, "", page));
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[test]
fn a_list_that_is_cut_off_fails() {
    let server = Server::start();
    let client = client(&server.url());
    thread::scope(|scope| {
        let listing = scope.spawn(|| list(&*secrets(&client), &StopToken::never()).unwrap_err());
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        let whole = secret_list("5", &[secret("db", "1"), secret("tls", "2")]);
        peer.chunk(&whole[..whole.len() / 2]);
        peer.half_close();
        let error = listing.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    });
}

fn requests_of(config: &Config, server: &Server, answers: &[(u16, String)]) -> Vec<Request> {
    let client = client_of(config);
    thread::scope(|scope| {
        scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        let answer = |(code, body): &(u16, String)| {
            let request = peer.request();
            peer.json(*code, body);
            request
        };
        answers.iter().map(answer).collect()
    })
}

#[test]
fn a_request_says_who_asks_and_what_it_takes() {
    let server = Server::start();
    let base = format!("{}/base", server.url());
    let config = Config::for_server(&base)
        .unwrap()
        .with_token("t0ken")
        .unwrap();
    let requests = requests_of(&config, &server, &[(200, secret("db", "1"))]);
    let request = &requests[0];
    assert_eq!(
        request.line,
        "GET /base/api/v1/namespaces/shop/secrets/db HTTP/1.1"
    );
    assert_eq!(
        request.header("host"),
        Some(&*format!("127.0.0.1:{}", server.port()))
    );
    assert_eq!(request.header("authorization"), Some("Bearer t0ken"));
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    let user_agent = request.header("user-agent").unwrap();
    assert!(user_agent.contains(" kubecache/"), "{user_agent}");
}

/// F21: a zone says which way the address is reached from here: it is looked up and not sent.
#[test]
#[cfg(feature = "testing")]
fn an_address_with_a_zone_is_looked_up_with_it_and_sent_without() {
    let server = Server::start();
    let url = format!("http://[fe80::1%25eth0]:{}", server.port());
    let config = Config::for_server(&url).unwrap();
    let client = kubecache::http::Client::with_lookup(&config, super::patient(), |host, port| {
        assert_eq!(host, "fe80::1%eth0");
        Ok(vec![([127, 0, 0, 1], port).into()])
    });
    let client = client.unwrap();
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        let host = format!("[fe80::1]:{}", server.port());
        assert_eq!(peer.request().header("host"), Some(&*host));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
    });
}

#[test]
fn a_token_of_64_kib_fits() {
    let server = Server::start();
    let token = "t".repeat(64 * 1024);
    let config = Config::for_server(&server.url())
        .unwrap()
        .with_token(&token)
        .unwrap();
    let requests = requests_of(&config, &server, &[(200, secret("db", "1"))]);
    let sent = requests[0].header("authorization").unwrap();
    assert_eq!(sent.len(), token.len() + "Bearer ".len());
}

/// Serves one get by a token file: each request shows the token of its row, the file then holds the
/// row's next token, and the answer is a 401 unless the row is the last of a get that succeeds.
fn with_token_file(first: &str, rows: &[(&str, &str)], succeeds: bool) {
    let server = Server::start();
    let directory = TempDirectory::new("token");
    let file = directory.join("token");
    fs::write(&file, first).unwrap();
    let config = Config::for_server(&server.url()).unwrap();
    let client = client_of(&config.with_token_file(&file));
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        for (row, (shown, next)) in rows.iter().enumerate() {
            let expected = format!("Bearer {shown}");
            assert_eq!(peer.request().header("authorization"), Some(&*expected));
            fs::write(&file, next).unwrap();
            if succeeds && row + 1 == rows.len() {
                peer.json(200, &secret("db", "1"));
            } else {
                peer.json(401, &status(401, "Unauthorized", "Unauthorized"));
            }
        }
        drop(peer);
        let got = getting.join().unwrap();
        assert_eq!(got.is_ok(), succeeds, "{got:?}");
        if let Err(error) = got {
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        }
    });
}

/// A 401 makes the token be read again, once.
#[test]
fn a_rotated_token_is_read_again_at_401_and_the_request_goes_out_once_more() {
    with_token_file("old", &[("old", "new"), ("new", "new")], true);
    with_token_file("old", &[("old", "new"), ("new", "newer")], false);
    // A file that is written again with the same token is no rotation, nor is a blank line.
    with_token_file("old", &[("old", "old")], false);
    with_token_file("old", &[("old", "old\n\n")], false);
}

#[test]
fn a_fixed_token_is_not_tried_twice() {
    let server = Server::start();
    let config = Config::for_server(&server.url())
        .unwrap()
        .with_token("t")
        .unwrap();
    let refused = (401, status(401, "Unauthorized", "Unauthorized"));
    let client = client_of(&config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| {
            assert_eq!(
                get(&client, "a").unwrap_err().kind(),
                ErrorKind::Unauthorized
            );
            get(&client, "b").map(drop)
        });
        let mut peer = server.accept();
        assert!(peer.request().line.contains("/secrets/a "));
        peer.json(refused.0, &refused.1);
        assert!(peer.request().line.contains("/secrets/b "));
        peer.json(200, &secret("b", "1"));
        getting.join().unwrap().unwrap();
    });
}

/// B8: off for one object, and off for a resource of this server once it failed there.
#[test]
fn the_failure_of_a_streamed_list_is_remembered_for_the_resource_and_by_all_clones() {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use std::sync::Arc;

    let client = client("http://127.0.0.1:1");
    let all: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(Scope::all());
    let others: Arc<dyn ListerWatcher<ConfigMap>> = client.lister_watcher(Scope::all());
    let key = ObjectKey::new("shop", "db");
    let one: Arc<dyn ListerWatcher<Secret>> = client.lister_watcher(Scope::object(&key));
    assert!(all.supports_watch_list() && others.supports_watch_list());
    assert!(!one.supports_watch_list());
    all.watch_list_failed();
    let later: Arc<dyn ListerWatcher<Secret>> = client.clone().lister_watcher(Scope::all());
    assert!(!all.supports_watch_list() && !later.supports_watch_list());
    assert!(others.supports_watch_list());
}
