//! The HTTP/1.1 of a test server: requests in, bodies out, both in chunks or with a stated length.
//! Clients of HTTP/1.0 are answered, too.

use std::io::{self, Read, Write};

use crate::testing::recording::Target;

/// The maximum size of a request line with its headers; real ones have a few hundred bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The maximum size of a request's body, as in kube-apiservers.
pub(super) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// What a client waits for before it sends its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const TOO_LONG: &str = "the body of the request is too long";

/// A request.
#[derive(Clone)]
pub(in crate::testing) struct RequestMessage {
    pub(in crate::testing) method: String,
    pub(in crate::testing) target: Target,
    /// Whether the client speaks HTTP/1.0: it knows no chunks, and keeps no connection.
    pub(in crate::testing) is_http_1_0: bool,
    pub(in crate::testing) headers: Vec<(String, String)>,
    pub(in crate::testing) body: Vec<u8>,
}

impl RequestMessage {
    pub(in crate::testing) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(in crate::testing) fn wants_close(&self) -> bool {
        let connection = self.header("connection");
        // A connection of HTTP/1.0 may be closed, even if its client would keep it.
        self.is_http_1_0 || connection.is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Whether the client sends its body only when it is told to.
    fn awaits_continue(&self) -> bool {
        let expected = self.header("expect");
        !self.is_http_1_0
            && expected.is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }
}

/// Reads requests from a connection, and keeps the beginning of the next one.
pub(in crate::testing) struct Requests {
    buffer: Vec<u8>,
}

impl Requests {
    pub(in crate::testing) fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// Whether no byte of the next request has come.
    pub(in crate::testing) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Blocks until the next request has come; `None` when the client closed before one began.
    /// Tells a client that waits with its body to send it.
    pub(in crate::testing) fn next(
        &mut self,
        stream: &mut (impl Read + Write),
    ) -> io::Result<Option<RequestMessage>> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("the head of the request is too long"));
            }
            check_beginning(&self.buffer)?;
            if self.fill(stream)? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end.saturating_add(4)).collect();
        let mut request = parse(&head)?;
        request.body = self.body(&request, stream)?;
        Ok(Some(request))
    }

    fn body(
        &mut self,
        request: &RequestMessage,
        stream: &mut (impl Read + Write),
    ) -> io::Result<Vec<u8>> {
        let length = if request.header("transfer-encoding").is_some() {
            None
        } else {
            Some(stated_length(request)?)
        };
        // A body that has come needs no word, and one that is too long is refused at once.
        let is_missing =
            length.is_none_or(|length| self.buffer.len() < length && length <= BODY_BYTES_MAX);
        if is_missing && request.awaits_continue() {
            stream.write_all(CONTINUE)?;
            stream.flush()?;
        }
        match length {
            None => self.chunks(stream),
            Some(length) => self.take(stream, length),
        }
    }

    /// Reads a body in chunks. Ignores chunk extensions and trailers.
    fn chunks(&mut self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line(stream)?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16)
                .map_err(|_not_a_number| invalid("the length of a chunk"))?;
            if length == 0 {
                let mut left = HEAD_BYTES_MAX;
                loop {
                    let trailer = self.line(stream)?.len();
                    if trailer == 0 {
                        return Ok(body);
                    }
                    let too_long = || invalid("the trailers are too long");
                    left = left.checked_sub(trailer).ok_or_else(too_long)?;
                }
            }
            if body.len().saturating_add(length) > BODY_BYTES_MAX {
                return Err(too_long());
            }
            body.extend(self.take(stream, length)?);
            self.line(stream)?;
        }
    }

    fn line(&mut self, stream: &mut impl Read) -> io::Result<String> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                break end;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("a line of the body is too long"));
            }
            if self.fill(stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line: Vec<u8> = self.buffer.drain(..end.saturating_add(2)).collect();
        let line = line.get(..end).unwrap_or_default();
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        let mut space = [0; 4096];
        let count = stream.read(&mut space)?;
        self.buffer.extend(space.iter().take(count));
        Ok(count)
    }

    fn take(&mut self, stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(too_long());
        }
        while self.buffer.len() < length {
            if self.fill(stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }
}

/// The length of a body that is not in chunks.
fn stated_length(request: &RequestMessage) -> io::Result<usize> {
    match request.header("content-length") {
        None => Ok(0),
        Some(text) => text
            .parse()
            .map_err(|_not_a_number| invalid("content-length")),
    }
}

/// Refuses bytes early that cannot become a request: the hello of a TLS client may have no end of
/// line, and its sender waits for an answer.
fn check_beginning(bytes: &[u8]) -> io::Result<()> {
    let is_method = bytes.first().is_none_or(u8::is_ascii_uppercase);
    match memchr::memchr(b'\n', bytes) {
        _ if !is_method => Err(invalid("the method")),
        Some(end) => {
            let line = bytes.get(..end).unwrap_or_default();
            parse(line.strip_suffix(b"\r").unwrap_or(line)).map(drop)
        }
        None => Ok(()),
    }
}

fn parse(head: &[u8]) -> io::Result<RequestMessage> {
    let text = std::str::from_utf8(head).map_err(|_not_utf8| invalid("the head of the request"))?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version @ ("HTTP/1.1" | "HTTP/1.0")), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid("the request line"));
    };
    let headers = lines.filter_map(|line| line.split_once(':'));
    Ok(RequestMessage {
        method: method.to_owned(),
        target: Target::parse(target),
        is_http_1_0: version == "HTTP/1.0",
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body: Vec::new(),
    })
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, TOO_LONG)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::testing) enum Framing {
    /// `transfer-encoding: chunked`.
    Chunked,
    /// `content-length`, already among the headers. Without it, the end of the connection.
    Length,
}

impl Framing {
    /// The framing of an answer to that request, by the answer's headers.
    pub(in crate::testing) fn of(request: &RequestMessage, headers: &[(String, String)]) -> Self {
        let is_stated = headers.iter().any(|(name, _)| name == "content-length");
        if is_stated || request.is_http_1_0 || request.method == "HEAD" {
            Self::Length
        } else {
            Self::Chunked
        }
    }
}

/// Sends status line and headers.
pub(in crate::testing) fn write_head(
    stream: &mut impl Write,
    status: u16,
    headers: &[(String, String)],
    framing: Framing,
) -> io::Result<()> {
    stream.write_all(&head(status, headers, framing))?;
    stream.flush()
}

/// Status line and headers. Leaves out connection-level ones in `headers`, because this connection
/// has its own.
pub(in crate::testing) fn head(
    status: u16,
    headers: &[(String, String)],
    framing: Framing,
) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        let ours = matches!(name.as_str(), "transfer-encoding" | "connection")
            || (name == "content-length" && framing == Framing::Chunked);
        if !ours {
            let written = write!(head, "{name}: {value}\r\n");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    if framing == Framing::Chunked {
        head.push_str("transfer-encoding: chunked\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Sends a piece of the body at once.
pub(in crate::testing) fn write_piece(
    stream: &mut impl Write,
    piece: &[u8],
    framing: Framing,
) -> io::Result<()> {
    if piece.is_empty() {
        return Ok(());
    }
    match framing {
        Framing::Length => stream.write_all(piece)?,
        Framing::Chunked => {
            let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
            framed.extend_from_slice(piece);
            framed.extend_from_slice(b"\r\n");
            stream.write_all(&framed)?;
        }
    }
    stream.flush()
}

/// Ends a body.
pub(in crate::testing) fn write_end(stream: &mut impl Write, framing: Framing) -> io::Result<()> {
    if framing == Framing::Chunked {
        stream.write_all(b"0\r\n\r\n")?;
    }
    stream.flush()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends these bytes, and what it is told meanwhile.
    struct Peer<R> {
        sends: R,
        told: Vec<u8>,
    }

    impl<R> Peer<R> {
        fn of(sends: R) -> Self {
            let told = Vec::new();
            Self { sends, told }
        }
    }

    impl<R: Read> Read for Peer<R> {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            self.sends.read(space)
        }
    }

    impl<R> Write for Peer<R> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.told.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_client_that_waits_with_its_body_is_told_to_send_it() {
        let length = "content-length: 2";
        let expects = "content-length: 2\r\nExpect: 100-Continue";
        let chunked = "transfer-encoding: chunked\r\nexpect: 100-continue";
        // Whether the body comes behind the head, and whether the client is told to send it.
        let rows = [
            ("HTTP/1.1", expects, "ab", true, true),
            ("HTTP/1.1", expects, "ab", false, false),
            ("HTTP/1.1", length, "ab", true, false),
            ("HTTP/1.0", expects, "ab", true, false),
            ("HTTP/1.1", chunked, "2\r\nab\r\n0\r\n\r\n", true, true),
        ];
        for (version, headers, body, is_apart, is_told) in rows {
            let head = format!("PUT / {version}\r\n{headers}\r\n\r\n");
            let whole = format!("{head}{body}");
            let at = if is_apart { head.len() } else { whole.len() };
            let (first, rest) = whole.as_bytes().split_at(at);
            let mut peer = Peer::of(first.chain(rest));
            let request = Requests::new().next(&mut peer).unwrap().unwrap();
            assert_eq!(request.body, b"ab", "{whole:?}");
            let expected = if is_told { CONTINUE } else { b"" };
            assert_eq!(peer.told, expected, "{whole:?}");
        }
        let head = "PUT / HTTP/1.1\r\nContent-Length: 3145729\r\nExpect: 100-continue\r\n\r\n";
        let mut peer = Peer::of(head.as_bytes());
        let error = Requests::new().next(&mut peer).err().unwrap();
        assert_eq!(error.to_string(), TOO_LONG);
        assert!(peer.told.is_empty());
    }

    #[test]
    fn requests_follow_each_other_on_a_connection_however_they_are_cut() {
        let wire =
            b"POST /a?b=c HTTP/1.1\r\nContent-Length: 3\r\nX: y\r\n\r\nabcGET /d HTTP/1.1\r\n\r\n";
        for at in 1..wire.len() {
            let mut stream = Peer::of(wire[..at].chain(&wire[at..]));
            let mut requests = Requests::new();
            let first = requests.next(&mut stream).unwrap().unwrap();
            assert_eq!(
                (first.method.as_str(), first.target.value("b"), &*first.body),
                ("POST", Some("c"), &b"abc"[..])
            );
            assert_eq!(first.header("X"), Some("y"));
            assert_eq!(
                requests.next(&mut stream).unwrap().unwrap().target.path,
                "/d"
            );
            assert!(requests.next(&mut stream).unwrap().is_none());
        }
    }

    #[test]
    fn a_body_in_chunks_is_one_body_and_too_long_a_body_is_an_error() {
        let wire = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: z\r\n\r\n\
            GET /d HTTP/1.1\r\n\r\n";
        for at in 1..wire.len() {
            let mut stream = Peer::of(wire[..at].chain(&wire[at..]));
            let mut requests = Requests::new();
            let put = requests.next(&mut stream).unwrap().unwrap();
            assert_eq!(put.body, b"abc0123456789");
            assert_eq!(requests.next(&mut stream).unwrap().unwrap().method, "GET");
        }
        for head in ["Content-Length: 3145729", "Transfer-Encoding: chunked"] {
            let wire = format!("PUT / HTTP/1.1\r\n{head}\r\n\r\n300001\r\n");
            let mut stream = Peer::of(wire.as_bytes());
            let error = Requests::new().next(&mut stream).err().unwrap();
            assert_eq!(error.to_string(), TOO_LONG);
        }
    }

    #[test]
    fn what_is_not_http_is_an_error_and_a_head_without_end_too() {
        fn failure(sends: impl Read) -> io::Error {
            let next = Requests::new().next(&mut Peer::of(sends));
            next.err().unwrap()
        }
        let not_http = failure(&b"\x16\x03\x01 hello\r\n\r\n"[..]);
        assert_eq!(not_http.kind(), io::ErrorKind::InvalidData);
        let endless = failure(io::repeat(b'a'));
        assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        let trailers = "X: y\r\n".repeat(HEAD_BYTES_MAX);
        let endless = failure(chunked.as_bytes().chain(trailers.as_bytes()));
        assert_eq!(endless.to_string(), "the trailers are too long");
        let cut = failure(&b"GET / HT"[..]);
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
