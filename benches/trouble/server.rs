//! A server that answers by a script: a thread per connection, which never ends a watch.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// What a connection is for: its number, its request line, and the way back. `false` leaves it
/// silent for ever.
type Script = dyn Fn(usize, &str, &mut TcpStream) -> bool + Send + Sync;

/// Starts a server on a port of its own, whose threads end with the process, and returns its URL.
pub(crate) fn start(
    script: impl Fn(usize, &str, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let script: Arc<Script> = Arc::new(script);
    let accept = move || {
        let mut kept = Vec::new();
        for (number, socket) in listener.incoming().enumerate() {
            let socket = socket.unwrap();
            kept.push(socket.try_clone().unwrap());
            let script = Arc::clone(&script);
            let builder = thread::Builder::new().stack_size(64 * 1024);
            builder
                .spawn(move || serve(number, socket, &*script))
                .unwrap();
        }
    };
    thread::Builder::new().spawn(accept).unwrap();
    url
}

fn serve(number: usize, socket: TcpStream, script: &Script) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let mut socket = socket;
    while let Some(request) = request(&mut reader) {
        if !script(number, &request, &mut socket) {
            // The peer's end of the connection ends the wait.
            while request_line(&mut reader).is_some() {}
            return;
        }
    }
}

fn request_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = reader.read_line(&mut line).unwrap_or(0);
    (read > 0).then(|| line.trim_end().to_owned())
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let request = request_line(reader)?;
    while !request_line(reader)?.is_empty() {}
    Some(request)
}

/// The name in a request for one object: of a field selector, or the path's end.
pub(crate) fn name(request: &str) -> String {
    let target = request.split(' ').nth(1).unwrap_or_default();
    let of_selector = target.split("metadata.name%3D").nth(1);
    let of_path = || target.split('?').next().unwrap().rsplit('/').next();
    let name = of_selector.or_else(of_path).unwrap();
    name.split('&').next().unwrap().to_owned()
}

pub(crate) fn is_watch(request: &str) -> bool {
    request.contains("watch=true")
}

/// Answers a list with one Secret of that name, a get with the Secret alone, and a watch with its
/// head.
pub(crate) fn answer(request: &str, socket: &mut TcpStream) {
    if is_watch(request) {
        return begin_watch(socket);
    }
    let name = name(request);
    let secret = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{{\"namespace\":\"shop\",\
         \"name\":\"{name}\",\"uid\":\"u-{name}\",\"resourceVersion\":\"7\"}},\
         \"data\":{{\"key\":\"dmFsdWU=\"}}}}"
    );
    let body = if request.contains("fieldSelector") {
        format!(
            "{{\"kind\":\"SecretList\",\"apiVersion\":\"v1\",\
             \"metadata\":{{\"resourceVersion\":\"9\"}},\"items\":[{secret}]}}"
        )
    } else if request.contains("/secrets/") {
        secret
    } else {
        r#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}"#
            .to_owned()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let length = body.len();
    drop(write!(
        socket,
        "{head}Content-Length: {length}\r\n\r\n{body}"
    ));
}

pub(crate) fn begin_watch(socket: &mut TcpStream) {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    drop(socket.write_all(head.as_bytes()));
}

/// A chunk of a body of unknown length; `false` when nobody takes it.
pub(crate) fn chunk(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    let head = format!("{:x}\r\n", bytes.len());
    let sent = socket
        .write_all(head.as_bytes())
        .and_then(|()| socket.write_all(bytes))
        .and_then(|()| socket.write_all(b"\r\n"));
    sent.is_ok()
}
