//! One client's connection: requests in, recorded answers out, piece by piece, with the faults on
//! top.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::faults::Act;
use super::matching::{Now, Taken};
use super::pace::{Passage, Speed, Step};
use super::{Answered, Shared};
use crate::sync::Arc;
use crate::testing::http1::{Framing, Request, Requests, write_end, write_head, write_piece};
use crate::testing::recording::{Chunk, End, Exchange};
use crate::testing::service::Handler;
use crate::worker::StopToken;

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Next,
    Close,
}

impl Handler for Shared {
    fn serve(&self, socket: TcpStream, stop: &StopToken) {
        let served = match &self.tls {
            None => Connection::new(self, socket, stop).run(),
            Some(config) => tls(config, socket).and_then(|mut stream| {
                Connection::new(self, &mut stream, stop).run()?;
                stream.conn.send_close_notify();
                stream.flush()
            }),
        };
        if let Err(error) = served {
            log::debug!("fixture server: a connection ended: {error}");
        }
    }
}

type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

fn tls(config: &Arc<rustls::ServerConfig>, socket: TcpStream) -> io::Result<Tls> {
    let connection = rustls::ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    Ok(rustls::StreamOwned::new(connection, socket))
}

struct Connection<'a, S> {
    server: &'a Shared,
    stream: S,
    stop: &'a StopToken,
}

impl<'a, S: Read + Write> Connection<'a, S> {
    fn new(server: &'a Shared, stream: S, stop: &'a StopToken) -> Self {
        Self {
            server,
            stream,
            stop,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut requests = Requests::new();
        while let Some(request) = requests.next(&mut self.stream)? {
            let arrived = self.server.pace.clock.now();
            let then = self.answer(&request, arrived)?;
            if then == Then::Close || request.wants_close() || self.stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request, arrived: Instant) -> io::Result<Then> {
        match self.server.decide(request, arrived) {
            Decision::Status(status) => self.status(&status),
            Decision::Hang => {
                self.stop.wait();
                Ok(Then::Close)
            }
            Decision::Silence => {
                let json = [("content-type".to_owned(), "application/json".to_owned())];
                write_head(&mut self.stream, 200, &json, Framing::Chunked)?;
                self.stop.wait();
                Ok(Then::Close)
            }
            Decision::Play {
                exchange,
                number,
                act,
            } => Play {
                server: self.server,
                stream: &mut self.stream,
                stop: self.stop,
                exchange: &exchange,
                number,
                arrived,
                act,
                sent: 0,
            }
            .run(),
        }
    }

    fn status(&mut self, status: &ErrorAnswer) -> io::Result<Then> {
        let body = status.body();
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("content-length".to_owned(), body.len().to_string()),
        ];
        if let Some(wait) = status.retry_after {
            headers.push(("retry-after".to_owned(), wait.as_secs().to_string()));
        }
        write_head(&mut self.stream, status.code, &headers, Framing::Length)?;
        write_piece(&mut self.stream, body.as_bytes(), Framing::Length)?;
        Ok(Then::Next)
    }
}

/// What the server does with a request.
pub(super) enum Decision {
    Play {
        exchange: Arc<Exchange>,
        /// Its number in the book; none where it is not recorded.
        number: Option<usize>,
        act: Option<Act>,
    },
    Status(ErrorAnswer),
    Hang,
    /// A body that is empty and does not end.
    Silence,
}

/// A `Status` of the server's own.
pub(super) struct ErrorAnswer {
    code: u16,
    reason: String,
    message: String,
    retry_after: Option<Duration>,
}

impl ErrorAnswer {
    fn body(&self) -> String {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        format!("{status}\n")
    }
}

impl Shared {
    fn decide(&self, request: &Request, arrived: Instant) -> Decision {
        let met = {
            let mut faults = self.faults.lock();
            // Every fault counts the request, also behind one that meets it.
            let met: Vec<_> = faults
                .iter_mut()
                .filter_map(|fault| fault.meet(&request.target))
                .collect();
            met.into_iter().next()
        };
        let (decision, answered) = match met {
            Some(Act::Status {
                code,
                reason,
                retry_after,
            }) => {
                let message = format!("the fixture server was told to answer {code} {reason}");
                let status = ErrorAnswer {
                    code,
                    reason,
                    message,
                    retry_after,
                };
                (Decision::Status(status), Answered::Fault)
            }
            Some(Act::Hang) => (Decision::Hang, Answered::Fault),
            act => self.play(request, arrived, act),
        };
        self.received(request, arrived, answered);
        decision
    }

    fn play(&self, request: &Request, arrived: Instant, act: Option<Act>) -> (Decision, Answered) {
        let passed = |since| self.pace.recorded(arrived.saturating_duration_since(since));
        let now = Now {
            instant: arrived,
            passed: &passed,
        };
        let taken = self
            .book
            .lock()
            .take(&request.method, &request.target, &now);
        let play = |exchange, number| Decision::Play {
            exchange,
            number,
            act,
        };
        match taken {
            Ok(Taken::Recorded(exchange, number)) => {
                (play(exchange, Some(number)), Answered::Recorded)
            }
            Ok(Taken::Derived(exchange)) => (play(exchange, None), Answered::Derived),
            Ok(Taken::Silence) => (Decision::Silence, Answered::Recorded),
            Err(message) => {
                log::warn!("fixture server: {message}");
                let status = ErrorAnswer {
                    code: 404,
                    reason: "NotFound".to_owned(),
                    message,
                    retry_after: None,
                };
                (Decision::Status(status), Answered::Unmatched)
            }
        }
    }
}

/// One answer under way.
struct Play<'a, S> {
    server: &'a Shared,
    stream: &'a mut S,
    stop: &'a StopToken,
    exchange: &'a Exchange,
    number: Option<usize>,
    arrived: Instant,
    act: Option<Act>,
    /// Bytes of the body so far.
    sent: usize,
}

impl<S: Read + Write> Play<'_, S> {
    fn run(&mut self) -> io::Result<Then> {
        let (answer, server) = (&self.exchange.answer, self.server);
        let framing = framing(self.exchange);
        let mut passage = Passage::new(&server.pace.gate);
        if !server.pace.wait(self.arrived, answer.after, self.stop) {
            return Ok(Then::Close);
        }
        write_head(self.stream, answer.status, &answer.headers, framing)?;
        for chunk in &answer.chunks {
            if !self.turn(&mut passage, chunk.after, &chunk.text) {
                return Ok(Then::Close);
            }
            // Before the bytes: who has read them and then asks finds a server that is as far.
            if let Some(number) = self.number {
                server.book.lock().sent(number);
            }
            if !self.chunk(chunk, framing)? {
                return Ok(Then::Close);
            }
        }
        if answer.end == End::Open {
            drop(passage);
            self.stop.wait();
            return Ok(Then::Close);
        }
        if !self.turn(&mut passage, answer.end_after, "") || answer.end == End::Cut {
            return Ok(Then::Close);
        }
        write_end(self.stream, framing)?;
        Ok(Then::Next)
    }

    /// Waits until a piece is due.
    fn turn(&self, passage: &mut Passage<'_>, after: Duration, text: &str) -> bool {
        let pace = &self.server.pace;
        if pace.speed != Speed::Stepped || !self.exchange.target.is_watch() {
            return pace.wait(self.arrived, after, self.stop);
        }
        let step = Step {
            path: self.exchange.target.path.clone(),
            text: text.to_owned(),
        };
        passage.pass(self.exchange.at.saturating_add(after), step, self.stop)
    }

    /// Sends a piece as far as the fault lets it; whether the answer goes on.
    fn chunk(&mut self, chunk: &Chunk, framing: Framing) -> io::Result<bool> {
        let bytes = chunk.text.as_bytes();
        match self.act {
            Some(Act::Drip {
                bytes: piece,
                every,
            }) => {
                for piece in bytes.chunks(piece.max(1)) {
                    let due = self.server.pace.clock.after(every);
                    if !self.server.pace.until(due, self.stop) {
                        return Ok(false);
                    }
                    write_piece(self.stream, piece, framing)?;
                }
            }
            Some(Act::CutAfter(limit) | Act::HangAfter(limit)) => {
                let left = limit.saturating_sub(self.sent);
                if left < bytes.len() {
                    write_piece(self.stream, bytes.get(..left).unwrap_or_default(), framing)?;
                    if matches!(self.act, Some(Act::HangAfter(_))) {
                        self.stop.wait();
                    }
                    return Ok(false);
                }
                write_piece(self.stream, bytes, framing)?;
            }
            Some(Act::Status { .. } | Act::Hang) | None => {
                write_piece(self.stream, bytes, framing)?;
            }
        }
        self.sent = self.sent.saturating_add(bytes.len());
        Ok(true)
    }
}

/// A recorded length is kept where the body has it, or was cut before it.
fn framing(exchange: &Exchange) -> Framing {
    let answer = &exchange.answer;
    let mut headers = answer.headers.iter();
    let stated = headers.find(|(name, _)| name == "content-length");
    let stated = stated.and_then(|(_, value)| value.parse::<usize>().ok());
    let there = answer
        .chunks
        .iter()
        .map(|chunk| chunk.text.len())
        .sum::<usize>();
    match stated {
        Some(stated) if stated == there || (answer.end != End::Clean && stated > there) => {
            Framing::Length
        }
        _ => Framing::Chunked,
    }
}
