//! HTTP itself: bodies that wait for a word, and clients of HTTP/1.0.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::{MAPS, config_map, soon};
use crate::testing::ApiServer;

/// Lines up to the empty one.
fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head
}

fn connected(server: &ApiServer) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(server.address()).unwrap())
}

/// Some clients wait for that word, and for a second if none comes.
#[test]
fn a_client_that_waits_with_its_body_is_told_to_send_it() {
    let server = ApiServer::new().unwrap();
    let mut stream = connected(&server);
    for body in ["{}", "{\"metadata\":{\"name\":\"a\"}}"] {
        let length = body.len();
        let asked = format!(
            "POST {MAPS} HTTP/1.1\r\nhost: test\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        stream.get_mut().write_all(asked.as_bytes()).unwrap();
        assert_eq!(head(&mut stream), "HTTP/1.1 100 Continue\r\n\r\n");
        stream.get_mut().write_all(body.as_bytes()).unwrap();
        let answer = head(&mut stream);
        let code = if length == 2 { "422" } else { "201" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        let mut lines = answer.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        let mut rest = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut rest).unwrap();
    }
}

#[test]
fn a_client_of_http_1_0_is_answered_without_chunks_until_the_connection_ends() {
    let server = ApiServer::new().unwrap();
    server.create(&config_map("a", "1")).unwrap();
    let version = server.version();
    let ask = |target: &str| {
        let mut stream = connected(&server);
        let asked = format!("GET {target} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        stream.get_mut().write_all(asked.as_bytes()).unwrap();
        stream
    };
    let whole = |mut stream: BufReader<TcpStream>| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let list = whole(ask(MAPS));
    let (head, body) = list.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let list: Value = serde_json::from_str(body).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");

    let watch = ask(&format!("{MAPS}?watch=1&resourceVersion={version}"));
    assert!(server.wait_for_watches(soon(), |open| open == 1));
    for name in ["b", "c"] {
        server.create(&config_map(name, "1")).unwrap();
    }
    let mut lines = watch.lines();
    let mut line = || lines.next().map(Result::unwrap);
    let mut head = Vec::new();
    while let Some(field) = line().filter(|field| !field.is_empty()) {
        head.push(field);
    }
    assert!(
        !head.iter().any(|field| field.contains("chunked")),
        "{head:?}"
    );
    for name in ["b", "c"] {
        let event: Value = serde_json::from_str(&line().unwrap()).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    server.expire_watches();
    let event: Value = serde_json::from_str(&line().unwrap()).unwrap();
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(line(), None, "the end of the connection");
}
