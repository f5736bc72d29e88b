//! A server on loopback: a list, and a watch in chunks of one event each, as kube-apiserver sends
//! it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use kubecache::http::{Client, ClientOptions, Config};
use kubecache::worker::{StopToken, Worker};

/// One list and one watch; a client of its own, so that its threads are its own as well.
pub(crate) struct Served {
    pub(crate) client: Client,
    /// Sent once, it has the events sent.
    go: Sender<()>,
    /// Last: it ends when the others have gone.
    _server: Worker,
}

impl Served {
    /// `events` are the bytes of the watch's body, [`chunked`].
    pub(crate) fn new(list: &Arc<Vec<u8>>, events: &Arc<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (go, gate) = bounded(1);
        let (list, events) = (Arc::clone(list), Arc::clone(events));
        let serving = move |_: &StopToken| {
            // One connection is all that a lister-watcher has.
            let (socket, _) = listener.accept().unwrap();
            answer(socket, &list, &events, &gate);
        };
        Self {
            client: client(address),
            go,
            _server: Worker::spawn("server", serving).unwrap(),
        }
    }

    /// Has the events of the open watch sent.
    pub(crate) fn send(&self) {
        self.go.send(()).unwrap();
    }
}

fn client(address: SocketAddr) -> Client {
    let config = Config::for_server(&format!("http://{address}")).unwrap();
    Client::new(&config, ClientOptions::default()).unwrap()
}

/// Answers on one connection until the client closes it.
fn answer(socket: TcpStream, list: &[u8], events: &[u8], gate: &Receiver<()>) {
    let mut writing = socket.try_clone().unwrap();
    let mut reading = BufReader::new(socket);
    while let Some(path) = request(&mut reading) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        if path.contains("watch=") {
            write!(writing, "{head}Transfer-Encoding: chunked\r\n\r\n").unwrap();
            if gate.recv().is_err() {
                return;
            }
            // What follows the last event does not count; the client may be gone.
            if writing.write_all(events).is_err() {
                return;
            }
        } else {
            write!(writing, "{head}Content-Length: {}\r\n\r\n", list.len()).unwrap();
            writing.write_all(list).unwrap();
        }
    }
}

/// The path of the next request; `None` once the client has gone.
fn request(reading: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    let count = reading.read_line(&mut first).ok()?;
    if count == 0 {
        return None;
    }
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reading.read_line(&mut line).ok()?;
    }
    first.split(' ').nth(1).map(str::to_owned)
}

/// A body in chunks of one line each, without its end: the watch stays open.
pub(crate) fn chunked(lines: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        write!(body, "{:x}\r\n", line.len()).unwrap();
        body.extend_from_slice(line);
        body.extend_from_slice(b"\r\n");
    }
    body
}
