//! The API server that all sides talk to: HTTP/1.1, one collection, watches that stay open.
//!
//! It has one thread, so that it takes at most one core from those that are measured.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use crate::marks::{pause, tell};
use crate::tls_server;
use crate::workload::{Encoded, Workload, chunks};

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

struct Server {
    workload: Workload,
    /// What is sent to each watch that was opened.
    sends: Mutex<Vec<UnboundedSender<Encoded>>>,
    watches: AtomicUsize,
}

/// A request, as far as it is looked at.
struct Request {
    path: String,
    query: String,
    is_protobuf: bool,
}

impl Request {
    fn parse(head: &str) -> Self {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let head = head.to_ascii_lowercase();
        let accepts = head.lines().find(|line| line.starts_with("accept:"));
        Self {
            path: path.to_owned(),
            query: query.to_owned(),
            is_protobuf: accepts.is_some_and(|line| line.contains("protobuf")),
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The number in the name of the Secret that alone is asked for.
    fn single(&self) -> Option<usize> {
        let selector = self.parameter("fieldSelector")?;
        selector.rsplit_once("secret-")?.1.parse().ok()
    }
}

pub(crate) fn run(arguments: &[String]) {
    let [transport, resource, count, events, encoder] = arguments else {
        panic!("serve plain|tls resource count events encoder");
    };
    let (count, events) = (count.parse().unwrap(), events.parse().unwrap());
    let server = Arc::new(Server {
        workload: Workload::new(resource, count, events, encoder),
        sends: Mutex::default(),
        watches: AtomicUsize::new(0),
    });
    let acceptor = (transport == "tls").then(|| TlsAcceptor::from(tls_server::config()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let ordered = Arc::clone(&server);
    std::thread::spawn(move || ordered.obey());
    runtime.unwrap().block_on(server.accept(acceptor)).unwrap();
}

impl Server {
    /// Does what the comparison says, until it has gone.
    fn obey(&self) {
        let mut bookmarks = self.workload.bookmarks.iter().cycle();
        for line in io::stdin().lock().lines() {
            let line = line.unwrap();
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("watches", _) => tell(&self.watches.load(Ordering::SeqCst).to_string()),
                ("events", _) => self.send(&self.workload.events),
                ("paced", rate) => {
                    let events = self.workload.single_events();
                    let interval = Duration::from_secs(1) / rate.parse().unwrap();
                    at_intervals(interval, events.iter(), |event| self.send(event));
                }
                ("bookmark", _) => self.send(bookmarks.next().unwrap()),
                ("spread", _) => {
                    let sends = self.open();
                    let interval = Duration::from_secs(1) / u32::try_from(sends.len()).unwrap();
                    let bookmark = bookmarks.next().unwrap();
                    at_intervals(interval, sends.iter(), |send| {
                        drop(send.send(bookmark.clone()));
                    });
                    tell("spread");
                }
                (other, _) => panic!("unknown order {other}"),
            }
        }
        std::process::exit(0);
    }

    fn open(&self) -> Vec<UnboundedSender<Encoded>> {
        let mut sends = self.sends.lock().unwrap();
        sends.retain(|send| !send.is_closed());
        sends.clone()
    }

    fn send(&self, what: &Encoded) {
        for send in self.open() {
            drop(send.send(what.clone()));
        }
    }

    async fn accept(self: Arc<Self>, acceptor: Option<TlsAcceptor>) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        let listener = socket.listen(4096)?;
        tell(&listener.local_addr()?.port().to_string());
        loop {
            let (socket, _) = listener.accept().await?;
            let (server, acceptor) = (Arc::clone(&self), acceptor.clone());
            tokio::spawn(async move {
                socket.set_nodelay(true)?;
                let mut stream: Box<dyn Stream> = match acceptor {
                    Some(acceptor) => Box::new(acceptor.accept(socket).await?),
                    None => Box::new(socket),
                };
                server.serve(&mut *stream).await
            });
        }
    }

    async fn serve(&self, stream: &mut dyn Stream) -> io::Result<()> {
        let mut read = Vec::new();
        loop {
            let Some(request) = next(stream, &mut read).await? else {
                return Ok(());
            };
            if request
                .parameter("watch")
                .is_none_or(|value| value == "false")
            {
                self.list(stream, &request).await?;
            } else if request.parameter("sendInitialEvents") == Some("true") {
                let refusal = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\
                               \"message\":\"sendInitialEvents is forbidden\",\
                               \"reason\":\"Invalid\",\"code\":422}";
                answer(stream, "422 Invalid", false, refusal.as_bytes()).await?;
            } else {
                return self.watch(stream, &request).await;
            }
        }
    }

    async fn list(&self, stream: &mut dyn Stream, request: &Request) -> io::Result<()> {
        let limit = request
            .parameter("limit")
            .and_then(|limit| limit.parse().ok());
        let is_from_cache = request.parameter("resourceVersion") == Some("0");
        let workload = &self.workload;
        let body = match (request.single(), limit.filter(|_| !is_from_cache)) {
            (Some(nth), _) => Arc::clone(workload.singles[nth].of(request.is_protobuf)),
            (None, Some(limit)) if !request.is_protobuf => {
                let from = request.parameter("continue").unwrap_or("0");
                Arc::new(workload.page(from.parse().unwrap(), limit))
            }
            (None, _) => Arc::clone(workload.list.of(request.is_protobuf)),
        };
        assert!(!body.is_empty(), "{}: nothing to send", request.path);
        answer(stream, "200 OK", request.is_protobuf, &body).await
    }

    async fn watch(&self, stream: &mut dyn Stream, request: &Request) -> io::Result<()> {
        let (send, mut sends) = unbounded_channel();
        self.sends.lock().unwrap().push(send);
        let kind = if request.is_protobuf {
            "application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            "application/json"
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        self.watches.fetch_add(1, Ordering::SeqCst);
        let ended = async {
            loop {
                let mut byte = [0];
                tokio::select! {
                    count = stream.read(&mut byte) => if count? == 0 {
                        return io::Result::Ok(());
                    },
                    send = sends.recv() => {
                        let send = send.ok_or_else(|| io::Error::other("nobody sends"))?;
                        send_each(stream, send.of(request.is_protobuf)).await?;
                    }
                }
            }
        }
        .await;
        self.watches.fetch_sub(1, Ordering::SeqCst);
        ended
    }
}

/// Does something with each, one after the other, at this interval.
fn at_intervals<T>(interval: Duration, each: impl Iterator<Item = T>, mut act: impl FnMut(T)) {
    let mut due = Instant::now();
    for one in each {
        pause(due.saturating_duration_since(Instant::now()));
        act(one);
        due += interval;
    }
}

/// Chunk by chunk, as they come where events happen one after the other.
async fn send_each(stream: &mut dyn Stream, body: &[u8]) -> io::Result<()> {
    for chunk in chunks(body) {
        stream.write_all(chunk).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// The next request; `None` once the other side has gone.
async fn next(stream: &mut dyn Stream, read: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        let end = read.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head: Vec<u8> = read.drain(..end + 4).collect();
            return Ok(Some(Request::parse(&String::from_utf8_lossy(&head))));
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

async fn answer(
    stream: &mut dyn Stream,
    status: &str,
    is_protobuf: bool,
    body: &[u8],
) -> io::Result<()> {
    let kind = if is_protobuf {
        "application/vnd.kubernetes.protobuf"
    } else {
        "application/json"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}
