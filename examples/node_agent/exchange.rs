//! One connection to the endpoints: a request's head in, an answer out, and the end. Never blocks.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::reads::later;

/// A probe's head has a few hundred bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
/// How long a client may take to send its head, and as long again to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the client's side is read on for behind the answer: closed before, what is unread would
/// take the answer back.
const DRAIN: Duration = Duration::from_secs(1);

/// An answer as a page gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Page {
    /// Plain text.
    pub(crate) fn text(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// What is asked for by GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    pub(crate) path: &'a str,
    /// Behind the question mark.
    pub(crate) query: &'a str,
}

/// What the endpoints serve.
pub(crate) trait Pages: Send + 'static {
    /// Answers at once: the thread serves everybody.
    fn answer(&self, asked: Asked<'_>) -> Page;
}

/// One exchange over `S`, a socket that does not block.
#[derive(Debug)]
pub(crate) struct Exchange<S> {
    socket: S,
    state: State,
    /// When it is broken off.
    until: Instant,
}

#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing { answer: Vec<u8>, sent: usize },
    Draining,
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    More,
    Nothing,
}

/// A socket whose writing half can be closed by itself.
pub(crate) trait Socket: Read + Write {
    fn finish(&mut self) -> io::Result<()>;
}

impl Socket for std::net::TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }
}

impl<S: Socket> Exchange<S> {
    pub(crate) fn new(socket: S, now: Instant) -> Self {
        Self {
            socket,
            state: State::Reading(Vec::new()),
            until: later(now, PATIENCE),
        }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    pub(crate) fn is_writing(&self) -> bool {
        matches!(self.state, State::Writing { .. })
    }

    /// Goes on as far as the socket lets it.
    pub(crate) fn go_on(&mut self, pages: &dyn Pages, now: Instant) -> Left {
        loop {
            let went = match &mut self.state {
                State::Reading(head) => read_on(&mut self.socket, head, pages),
                State::Writing { answer, sent } => write_on(&mut self.socket, answer, sent),
                State::Draining => drain(&mut self.socket),
            };
            match went {
                Ok(Step::Again) => {}
                Ok(Step::Later) => return Left::More,
                Ok(Step::To(state, limit)) => {
                    self.state = state;
                    self.until = later(now, limit);
                }
                Ok(Step::Closed) => return Left::Nothing,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Left::More,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The client is gone: there is nobody to tell.
                Err(_gone) => return Left::Nothing,
            }
        }
    }
}

enum Step {
    Again,
    /// After the other clients.
    Later,
    To(State, Duration),
    Closed,
}

fn read_on(socket: &mut impl Read, head: &mut Vec<u8>, pages: &dyn Pages) -> io::Result<Step> {
    let mut piece = [0; 1024];
    let count = socket.read(&mut piece)?;
    if count == 0 {
        return Ok(Step::Closed);
    }
    head.extend(piece.iter().take(count));
    let Some((page, with_body)) = respond(head, pages) else {
        return Ok(Step::Again);
    };
    let answer = written(&page, with_body);
    Ok(Step::To(State::Writing { answer, sent: 0 }, PATIENCE))
}

fn write_on(socket: &mut impl Socket, answer: &[u8], sent: &mut usize) -> io::Result<Step> {
    let rest = answer.get(*sent..).unwrap_or_default();
    if rest.is_empty() {
        socket.finish()?;
        return Ok(Step::To(State::Draining, DRAIN));
    }
    let count = socket.write(rest)?;
    *sent = sent.saturating_add(count);
    Ok(if count == 0 {
        Step::Closed
    } else {
        Step::Again
    })
}

/// Takes a piece at a time: a client that sends without end must not have the thread for itself.
fn drain(socket: &mut impl Read) -> io::Result<Step> {
    let count = socket.read(&mut [0; 1024])?;
    Ok(if count == 0 {
        Step::Closed
    } else {
        Step::Later
    })
}

/// The page, and whether its body is wanted; `None` while the head is not complete.
fn respond(head: &[u8], pages: &dyn Pages) -> Option<(Page, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(head);
    let refused = |code, text: &str| Some((Page::text(code, format!("{text}\n")), true));
    match parsed {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refused(431, "Request Header Fields Too Large");
        }
        Err(_no_http) => return refused(400, "Bad Request"),
    }
    let with_body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return refused(405, "Method Not Allowed"),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some((pages.answer(Asked { path, query }), with_body))
}

fn written(page: &Page, with_body: bool) -> Vec<u8> {
    let reason = match page.code {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    };
    let allow = if page.code == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let Page {
        code,
        content_type,
        body,
    } = page;
    let mut text = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}Connection: \
         close\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use kubecache::clock::FakeClock;

    use super::*;

    /// A socket that gives these pieces, takes so many bytes at a time, and then blocks.
    struct Script {
        pieces: VecDeque<Vec<u8>>,
        takes: usize,
        written: Vec<u8>,
        finished: bool,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.pieces.pop_front() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let rest = piece.split_off(piece.len().min(buffer.len()));
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.takes == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.takes);
            self.written.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Socket for Script {
        fn finish(&mut self) -> io::Result<()> {
            self.finished = true;
            Ok(())
        }
    }

    /// Says what was asked.
    struct Echo;

    impl Pages for Echo {
        fn answer(&self, asked: Asked<'_>) -> Page {
            Page::text(200, format!("{} {}", asked.path, asked.query))
        }
    }

    fn exchange(pieces: &[&[u8]], takes: usize) -> Exchange<Script> {
        let socket = Script {
            pieces: pieces.iter().map(|piece| piece.to_vec()).collect(),
            takes,
            written: Vec::new(),
            finished: false,
        };
        Exchange::new(socket, FakeClock::new().now())
    }

    fn answer(pieces: &[&[u8]]) -> (String, Left) {
        let mut exchange = exchange(pieces, 7);
        let left = exchange.go_on(&Echo, FakeClock::new().now());
        let text = String::from_utf8(exchange.socket.written).unwrap();
        (text, left)
    }

    #[test]
    fn a_request_in_pieces_is_answered_in_pieces_and_closed_by_the_client() {
        let (text, left) = answer(&[b"GET /healthz?ver", b"bose=1 HTTP/1.1\r\nHost: x\r\n\r\n"]);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 18\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: \
             close\r\n\r\n\
             /healthz verbose=1"
        );
        assert_eq!(left, Left::More, "until the client closes, or a second");
        let (text, left) = answer(&[b"GET / HTTP/1.0\r\n\r\n", b""]);
        assert!(text.ends_with("\r\n\r\n/ "), "{text}");
        assert_eq!(left, Left::Nothing);
        let (_, left) = answer(&[b"GET / HTTP/1.0\r\n\r\n", b"without end", b"without end"]);
        assert_eq!(left, Left::More);
    }

    #[test]
    fn what_is_no_get_or_head_of_a_few_kilobytes_is_refused() {
        let (text, _) = answer(&[b"HEAD /x HTTP/1.1\r\n\r\n"]);
        assert!(text.contains("Content-Length: 3\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "no body: {text}");
        let (text, _) = answer(&[b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}"]);
        assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
        let (text, _) = answer(&[b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]);
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        let long = [b"GET /", "a".repeat(HEAD_BYTES_MAX).as_bytes()].concat();
        let (text, _) = answer(&[&long]);
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        let (text, _) = answer(&[format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()]);
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    #[test]
    fn each_half_has_its_time_and_a_client_that_goes_is_let_go() {
        let clock = FakeClock::new();
        let mut slow = exchange(&[b"GET /"], 0);
        let began = slow.until();
        clock.advance(Duration::from_secs(1));
        let now = (began + Duration::from_secs(1))
            .checked_sub(PATIENCE)
            .unwrap();
        assert_eq!(slow.go_on(&Echo, now), Left::More);
        assert_eq!(slow.until(), began, "more of a head earns no more time");
        slow.socket.pieces.push_back(b" HTTP/1.1\r\n\r\n".to_vec());
        assert_eq!(slow.go_on(&Echo, now), Left::More);
        assert!(slow.is_writing());
        assert_eq!(slow.until(), now + PATIENCE);
        slow.socket.takes = 10_000;
        assert_eq!(slow.go_on(&Echo, now), Left::More);
        assert!(slow.socket.finished && !slow.is_writing());
        assert_eq!(slow.until(), now + DRAIN);
        assert_eq!(answer(&[b"GET /", b""]), (String::new(), Left::Nothing));
    }
}
