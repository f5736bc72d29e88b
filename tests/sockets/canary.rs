//! What a server says is text: it shows no credentials of the client, and moves nobody's cursor.

use std::error::Error as _;
use std::fmt::Write as _;
use std::thread;

use k8s_openapi::api::core::v1::Secret;
use kubecache::http::{Config, Request};
use kubecache::list_watch::{Next, WatchEvent};
use kubecache::object::Scope;
use kubecache::worker::StopToken;
use kubecache::{Error, clock::Deadline};

use super::server::{Peer, Server};
use super::{client, client_of, get, list, open, secrets};
use crate::support::TempDirectory;

const TOKEN: &str = "canary.eyJhbGciOiJSUzI1NiJ9_-token";

/// Wherever an answer can quote a request. `{}` is where it does.
const ANSWERS: [&str; 13] = [
    "{}\r\n\r\n",
    "HTTP/1.1 200 Ok\r\n{} x\r\n\r\n",
    "HTTP/1.1 200 Ok\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\n",
    "HTTP/1.1 401 No\r\nContent-Length: \
     9999\r\n\r\n{\"kind\":\"Status\",\"message\":\"who is {}?\",\"reason\":\"{}\"}",
    "HTTP/1.1 403 \
     No\r\n\r\n{\"kind\":\"Status\",\"code\":403,\"message\":\"who is \
         {}?\",\"details\":{\"name\":\"{}\",\"causes\":[{\"message\":\"{}\"}]}}",
    "HTTP/1.1 502 No\r\n\r\n<html><title>Authorization: {}</title></html>",
    "HTTP/1.1 500 No\r\n\r\nAuthorization: {}\r\n",
    "HTTP/1.1 404 No\r\n\r\nno page for {}\r\n",
    "HTTP/1.1 302 No\r\nLocation: /login?{}\r\n\r\n",
    "HTTP/1.1 200 Ok\r\nContent-Type: text/{}\r\n\r\nhello",
    "HTTP/1.1 200 Ok\r\nContent-Encoding: {}\r\n\r\nhello",
    "HTTP/1.1 200 Ok\r\nContent-Type: \
     application/json\r\n\r\n{\"kind\":\"{}\",\"apiVersion\":\"{}\"}",
    "HTTP/1.1 200 Ok\r\nContent-Type: \
     application/json\r\n\r\n{\"kind\":\"Status\",\"message\":\"{}\",\"code\":500}",
];

fn shown(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    if let Some(status) = error.status() {
        write!(text, "{status} {status:?} {:?}", status.as_api()).unwrap();
    }
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, "{error} {error:?}").unwrap();
        source = error.source();
    }
    text
}

fn answer(server: &Server, text: &str) {
    let mut peer = server.accept();
    peer.request();
    peer.write(text);
}

/// Errors of a get, a list and a watch that are all answered alike.
fn errors(config: &Config, server: &Server, text: &str) -> Vec<Error> {
    let client = client_of(config);
    let stop = StopToken::never();
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let got = get(&client, "db").map(drop).unwrap_err();
            let listed = list(&*secrets(&client), &stop).map(drop).unwrap_err();
            let opened = secrets(&client).watch(&super::watch_from("1"), &stop);
            let watched = opened.and_then(|mut watch| match watch.next(Deadline::NEVER)? {
                Next::Event(WatchEvent::Error(error)) | Next::Ended(Some(error)) => Err(error),
                _ => Ok(()),
            });
            [Some(got), Some(listed), watched.err()]
        });
        for _ in 0..3 {
            answer(server, text);
        }
        calls.join().unwrap().into_iter().flatten().collect()
    })
}

/// D15: an error page that echoed the `Authorization` header leaked the token into logs.
#[test]
fn no_error_shows_the_clients_own_credentials() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let directory = TempDirectory::new("canary");
    let file = directory.join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let long = "x".repeat(150);
    let rows = [
        config.clone().with_token(TOKEN).unwrap(),
        config.with_token_file(&file),
    ];
    for config in rows {
        for text in ANSWERS {
            for quoted in [TOKEN.to_owned(), format!("{long}{TOKEN}")] {
                let text = text.replace("{}", &quoted);
                let found = errors(&config, &server, &text);
                assert!(found.len() >= 2, "{text}");
                for error in found {
                    let shown = shown(&error);
                    assert!(!shown.contains(&TOKEN[..8]), "{text}\n{shown}");
                }
            }
        }
    }
}

/// D15: a program may put its token into a path, as for a proxy of its own.
#[test]
fn the_name_of_a_request_of_the_program_shows_no_credentials() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let directory = TempDirectory::new("canary-path");
    let file = directory.join("token");
    let request = Request::new("GET", format!("/proxy/{TOKEN}"));
    for (first, codes) in [(TOKEN, &[302][..]), ("another", &[401, 302])] {
        std::fs::write(&file, first).unwrap();
        let client = client_of(&config.clone().with_token_file(&file));
        let error = thread::scope(|scope| {
            let sending = scope.spawn(|| client.send(&request, Deadline::NEVER).unwrap_err());
            let mut peer = server.accept();
            for code in codes {
                peer.request();
                // After a 401 the client reads it again.
                std::fs::write(&file, TOKEN).unwrap();
                peer.json(*code, "{}");
            }
            sending.join().unwrap()
        });
        let shown = shown(&error);
        assert!(shown.contains("/proxy/"), "{first}: {shown}");
        assert!(!shown.contains(&TOKEN[..8]), "{first}: {shown}");
    }
}

/// D15: nor does the path of an object, or of a namespace, that has the token as its name.
#[test]
fn an_object_with_the_tokens_name_shows_no_credentials() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let client = client_of(&config.with_token(TOKEN).unwrap());
    let stop = StopToken::never();
    for text in ANSWERS {
        let text = text.replace("{}", "x");
        let errors = thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let got = get(&client, TOKEN).map(drop).unwrap_err();
                let source = client.lister_watcher::<Secret>(Scope::namespace(TOKEN));
                let listed = list(&*source, &stop).map(drop).unwrap_err();
                let opened = source.watch(&super::watch_from("1"), &stop);
                [Some(got), Some(listed), opened.map(drop).err()]
            });
            for _ in 0..3 {
                answer(&server, &text);
            }
            calls.join().unwrap()
        });
        for error in errors.iter().flatten() {
            let shown = shown(error);
            assert!(shown.contains("/secrets"), "{text}\n{shown}");
            assert!(!shown.contains(&TOKEN[..8]), "{text}\n{shown}");
        }
    }
}

/// D15: an event of an error is the server's text as well.
#[test]
fn an_error_event_of_a_watch_shows_no_credentials_either() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let client = client_of(&config.with_token(TOKEN).unwrap());
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut watch = open(&*secrets(&client));
            match watch.next(Deadline::NEVER).unwrap() {
                Next::Event(WatchEvent::Error(error)) => error,
                other => panic!("{other:?}"),
            }
        });
        let mut peer = server.accept();
        peer.request();
        peer.begin();
        peer.chunk(&format!(
            "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"code\":500,\
             \"message\":\"{TOKEN}\"}}}}\n"
        ));
        let shown = shown(&watching.join().unwrap());
        assert!(!shown.contains(TOKEN), "{shown}");
    });
}

/// D15: a status, a page and a header cannot clear a screen, forge a line or turn text around.
#[test]
fn what_a_server_says_is_text_and_no_terminal() {
    let server = Server::start();
    let client = client(&server.url());
    let evil = "a\\n2026 forged\\u001b[2J\\u202e\\u2066\\u009b";
    let rows = [
        (
            403,
            format!(
                "{{\"kind\":\"Status\",\"code\":403,\"message\":\"{evil}\",\"reason\":\"{evil}\"}}"
            ),
        ),
        (
            403,
            format!("{{\"kind\":\"Status\",\"code\":403,\"reason\":\"{evil}\"}}"),
        ),
        (500, "a\u{1b}[2J\u{202e}b".to_owned()),
        (
            200,
            format!(
                "{{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{evil}\"}},\
                 \"data\":7}}"
            ),
        ),
        (
            200,
            format!("{{\"kind\":\"{evil}\",\"apiVersion\":\"v1\"}}"),
        ),
    ];
    for (code, body) in rows {
        let error = thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
            let mut peer: Peer = server.accept();
            peer.request();
            peer.answer(code, "Connection: close\r\n", &body);
            getting.join().unwrap()
        });
        for shown in [error.to_string(), format!("{error:?}")] {
            let bad = |char: char| char.is_control() || "\u{202e}\u{2066}".contains(char);
            assert!(!shown.contains(bad), "{body}: {shown:?}");
        }
        if body.contains("message") {
            let message = error.status().unwrap().message();
            assert!(message.contains("\n2026"), "{message:?}");
        }
    }
}

/// A token that happens to stand in a word of the answer's head changes nothing.
#[test]
fn a_short_token_is_not_searched_for_where_the_client_reads() {
    let server = Server::start();
    let config = Config::for_server(&server.url()).unwrap();
    let client = client_of(&config.with_token("json").unwrap());
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = server.accept();
        peer.request();
        peer.json(200, &super::secret("db", "1"));
        getting.join().unwrap().unwrap();
    });
}
