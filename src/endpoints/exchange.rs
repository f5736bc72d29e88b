//! One connection to the endpoints: a request's head in, an answer out, and the end. Never blocks.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::page::WebPage;
use super::table::{Pending, Table};
use crate::clock::later;

/// A probe's head has a few hundred bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
/// How long a client may take to send its head, and as long again to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the client's side is read after the answer. If the socket closed before, unread bytes
/// would reset the connection, and the client could lose the answer.
const DRAIN: Duration = Duration::from_secs(1);

/// One exchange over `S`, a socket that does not block.
pub(super) struct HttpExchange<S> {
    pub(super) socket: S,
    phase: ExchangePhase,
    /// When the phase ends at the latest.
    pub(super) until: Instant,
}

enum ExchangePhase {
    Reading(Vec<u8>),
    Waiting { pending: Pending, with_body: bool },
    Writing { response: Vec<u8>, sent: usize },
    Draining,
}

/// A socket whose writing half can be closed by itself.
pub(super) trait ClientSocket: Read + Write {
    fn finish(&mut self) -> io::Result<()>;
}

impl ClientSocket for std::net::TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }
}

impl<S: ClientSocket> HttpExchange<S> {
    pub(super) fn new(socket: S, now: Instant) -> Self {
        Self {
            socket,
            phase: ExchangePhase::Reading(Vec::new()),
            until: later(now, PATIENCE),
        }
    }

    /// The events of the socket that it waits for: none while calls of the program make the answer.
    pub(super) fn events(&self) -> PollFlags {
        match self.phase {
            ExchangePhase::Reading(_) | ExchangePhase::Draining => PollFlags::IN,
            ExchangePhase::Waiting { .. } => PollFlags::empty(),
            ExchangePhase::Writing { .. } => PollFlags::OUT,
        }
    }

    /// What its end would cost: nothing once it has its answer, most while one is made or sent.
    pub(super) fn rank(&self) -> u8 {
        match self.phase {
            ExchangePhase::Draining => 0,
            ExchangePhase::Reading(_) => 1,
            ExchangePhase::Waiting { .. } | ExchangePhase::Writing { .. } => 2,
        }
    }

    /// Goes on as far as the socket and the answer let it; `false` at its end.
    pub(super) fn go_on(&mut self, table: &Table, now: Instant) -> bool {
        loop {
            match self.step(table, now) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.until > now,
                // The client is gone, so it cannot be told.
                Err(_gone) => return false,
            }
        }
    }

    /// Takes a step. Its error is `WouldBlock` if it can take no other now.
    fn step(&mut self, table: &Table, now: Instant) -> io::Result<()> {
        let socket = &mut self.socket;
        match &mut self.phase {
            ExchangePhase::Reading(head) => {
                head.extend(read(socket, &mut [0; 1024])?);
                let Some((pending, with_body)) = respond(head, table, now) else {
                    return Ok(());
                };
                self.until = pending.until;
                self.phase = ExchangePhase::Waiting { pending, with_body };
            }
            ExchangePhase::Waiting { pending, with_body } => {
                let page = (pending.page)(now).ok_or(io::ErrorKind::WouldBlock)?;
                let response = page.response(*with_body);
                self.until = later(now, PATIENCE);
                self.phase = ExchangePhase::Writing { response, sent: 0 };
            }
            ExchangePhase::Writing { response, sent } => {
                let rest = response.get(*sent..).unwrap_or_default();
                if rest.is_empty() {
                    socket.finish()?;
                    self.until = later(now, DRAIN);
                    self.phase = ExchangePhase::Draining;
                    return Ok(());
                }
                match socket.write(rest)? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    count => *sent = sent.saturating_add(count),
                }
            }
            ExchangePhase::Draining => {
                read(socket, &mut [0; 1024])?;
                // A client that sends without end must not keep the thread from the others.
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }
}

/// Reads a piece; an error at the end.
fn read<'a>(socket: &mut impl Read, piece: &'a mut [u8]) -> io::Result<&'a [u8]> {
    match socket.read(piece)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(piece.get(..count).unwrap_or_default()),
    }
}

/// The answer, and whether its body is wanted; `None` while the head is not complete.
fn respond(head: &[u8], table: &Table, now: Instant) -> Option<(Pending, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refused = |code, text: &str| {
        let page = WebPage::text(format!("{text}\n")).code(code);
        Some((Pending::known(page, now), true))
    };
    match request.parse(head) {
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
    Some((table.ask(request.path.unwrap_or_default(), now), with_body))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::EndpointsOptions;
    use super::*;
    use crate::clock::FakeClock;

    /// A socket that gives these pieces, takes a number of bytes at a time, and then blocks.
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

    impl ClientSocket for Script {
        fn finish(&mut self) -> io::Result<()> {
            self.finished = true;
            Ok(())
        }
    }

    /// Endpoints without checks and pages.
    fn table() -> Table {
        Table::new(
            crate::worker::WakeUp::new().unwrap(),
            EndpointsOptions::default(),
        )
    }

    fn exchange(pieces: &[&[u8]], takes: usize) -> HttpExchange<Script> {
        let socket = Script {
            pieces: pieces.iter().map(|piece| piece.to_vec()).collect(),
            takes,
            written: Vec::new(),
            finished: false,
        };
        HttpExchange::new(socket, FakeClock::new().now())
    }

    /// The answer, and whether the exchange goes on.
    fn answer(pieces: &[&[u8]]) -> (String, bool) {
        let mut exchange = exchange(pieces, 7);
        let goes_on = exchange.go_on(&table(), FakeClock::new().now());
        let text = String::from_utf8(exchange.socket.written).unwrap();
        (text, goes_on)
    }

    #[test]
    fn a_request_in_pieces_is_answered_in_pieces_and_closed_by_the_client() {
        let (text, goes_on) = answer(&[b"GET /healthz?ver", b"bose=1 HTTP/1.1\r\nHost: x\r\n\r\n"]);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 32\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: \
             close\r\n\r\n\
             [+]ping ok\nhealthz check passed\n"
        );
        assert!(goes_on, "until the client closes, or a second");
        let (text, goes_on) = answer(&[b"GET /livez HTTP/1.0\r\n\r\n", b""]);
        assert!(text.ends_with("\r\n\r\nok"), "{text}");
        assert!(!goes_on);
        let (_, goes_on) = answer(&[b"GET / HTTP/1.0\r\n\r\n", b"without end", b"without end"]);
        assert!(goes_on);
    }

    #[test]
    fn a_request_that_is_no_get_or_head_of_a_few_kilobytes_is_refused() {
        let (text, _) = answer(&[b"HEAD /livez HTTP/1.1\r\n\r\n"]);
        assert!(text.contains("Content-Length: 2\r\n"), "{text}");
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
        let mut slow = exchange(&[b"GET /"], 0);
        let began = slow.until;
        let now = began.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(slow.go_on(&table(), now));
        assert_eq!(slow.until, began, "more of a head earns no more time");
        slow.socket.pieces.push_back(b" HTTP/1.1\r\n\r\n".to_vec());
        assert!(slow.go_on(&table(), now));
        assert_eq!(slow.events(), PollFlags::OUT);
        assert_eq!(slow.until, now + PATIENCE);
        assert!(!slow.go_on(&table(), now + PATIENCE), "it takes nothing");
        slow.socket.takes = 10_000;
        assert!(slow.go_on(&table(), now));
        assert!(slow.socket.finished && slow.events() == PollFlags::IN);
        assert_eq!(slow.until, now + DRAIN);
        assert_eq!(answer(&[b"GET /", b""]), (String::new(), false));
    }
}
