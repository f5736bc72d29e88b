//! A listener whose connections the test's own thread reads and writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::PATIENCE;

/// The head of a chunked answer.
pub(crate) const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Listens on a port of loopback.
pub(crate) struct Server(TcpListener);

/// One accepted connection, with or without TLS.
pub(crate) struct Peer<S = TcpStream> {
    stream: S,
    read: Vec<u8>,
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter();
        let found = named.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    #[cfg(feature = "ring")]
    pub(crate) fn tls_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port())
    }

    pub(crate) fn accept(&self) -> Peer {
        Peer::new(self.accept_socket())
    }

    pub(crate) fn accept_socket(&self) -> TcpStream {
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Whether somebody connected whom the test has not accepted.
    pub(crate) fn has_visitors(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let accepted = self.0.accept();
        self.0.set_nonblocking(false).unwrap();
        accepted.is_ok()
    }
}

impl Peer {
    /// Closes the connection with a reset instead of an end.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO))
            .unwrap();
    }

    /// Whether the client closes the connection, or says anything, within `wait`.
    pub(crate) fn closes_within(&mut self, wait: std::time::Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let came = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        !came.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Ends the sending side alone.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl<S: Read + Write> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    #[cfg(feature = "ring")]
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    #[cfg(feature = "ring")]
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }

    /// Reads the head of the next request.
    pub(crate) fn request(&mut self) -> Request {
        let request = self.request_or_close();
        request.unwrap_or_else(|| panic!("the client closed: {:?}", self.read))
    }

    /// Reads the head of the next request; `None` once the client has closed the connection.
    pub(crate) fn request_or_close(&mut self) -> Option<Request> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            if self.read_more() == 0 {
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().lines();
        let line = lines.next().unwrap().to_owned();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Some(Request { line, headers })
    }

    /// Reads the body of a request.
    pub(crate) fn body(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            assert_ne!(self.read_more(), 0, "the client closed within a body");
        }
        self.read.drain(..length).collect()
    }

    fn read_more(&mut self) -> usize {
        let mut bytes = [0; 4096];
        let count = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that closes before it has read all resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break 0,
                read => break read.unwrap(),
            }
        };
        self.read.extend_from_slice(&bytes[..count]);
        count
    }

    /// Waits until the client has closed the connection.
    pub(crate) fn wait_for_close(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                // A read with a limit is not begun again after a signal.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                // A client that stops says no goodbye in TLS.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self.stream.flush().unwrap();
    }

    /// As [`write`](Self::write); `false` when the client has closed.
    pub(crate) fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Answers with a whole body, in one write: the client waits for a refusal's body for a moment.
    pub(crate) fn answer(&mut self, code: u16, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let length = body.len();
        let head = format!("HTTP/1.1 {code} Word\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.write([head.as_bytes(), body].concat());
    }

    /// Answers with JSON.
    pub(crate) fn json(&mut self, code: u16, body: &str) {
        self.answer(code, "Content-Type: application/json\r\n", body);
    }

    /// Begins a chunked answer.
    pub(crate) fn begin(&mut self) {
        self.write(CHUNKED);
    }

    /// Begins a chunked answer and sends its first chunk in the same write: no limit of the client
    /// ends in between.
    pub(crate) fn begin_with(&mut self, bytes: &str) {
        self.write(format!("{CHUNKED}{:x}\r\n{bytes}\r\n", bytes.len()));
    }

    pub(crate) fn chunk(&mut self, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        self.write(chunk(bytes.as_ref()));
    }

    /// Sends the same again and again, until the client closes the connection.
    pub(crate) fn flood(&mut self, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        let chunk = chunk(bytes.as_ref());
        while self.stream.write_all(&chunk).is_ok() {}
    }

    pub(crate) fn end(&mut self) {
        self.write("0\r\n\r\n");
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
