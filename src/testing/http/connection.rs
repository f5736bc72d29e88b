//! One client's connection: requests in, the backend's answers out, with the faults on top.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::faults::Act;
use super::message::{Framing, Request, Requests, write_end, write_head, write_piece};
use super::received::Answered;
use super::server::ServerCore;
use super::service::Handler;
use super::{Backend, Caller, Piece, Reply};
use crate::sync::Arc;
use crate::worker::{StopToken, WaitEnd};

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Next,
    Close,
}

impl<S: Backend> Handler for ServerCore<S> {
    fn serve(&self, socket: TcpStream, stop: &StopToken) {
        let served = match &self.tls {
            None => Connection::new(self, socket, stop, Vec::new()).run(),
            Some(config) => handshake(config, socket).and_then(|mut stream| {
                let shown = stream.conn.peer_certificates();
                let certificates = shown.unwrap_or_default().to_vec();
                let certificates = certificates.into_iter().map(CertificateDer::into_owned);
                Connection::new(self, &mut stream, stop, certificates.collect()).run()?;
                stream.conn.send_close_notify();
                stream.flush()
            }),
        };
        if let Err(error) = served {
            log::debug!("test server: a connection ended: {error}");
        }
    }
}

type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

fn handshake(config: &Arc<rustls::ServerConfig>, socket: TcpStream) -> io::Result<Tls> {
    let connection = rustls::ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

struct Connection<'a, S, T> {
    server: &'a ServerCore<S>,
    stream: T,
    stop: &'a StopToken,
    caller: Caller,
}

impl<'a, S: Backend, T: Read + Write> Connection<'a, S, T> {
    fn new(
        server: &'a ServerCore<S>,
        stream: T,
        stop: &'a StopToken,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Self {
        Self {
            server,
            stream,
            stop,
            caller: Caller {
                connection: server.next_connection(),
                certificates,
            },
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut requests = Requests::new();
        while let Some(request) = requests.next(&mut self.stream)? {
            let then = self.answer(&request)?;
            if then == Then::Close || request.wants_close() || self.stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> io::Result<Then> {
        let server = self.server;
        let arrived = server.clock.now();
        let act = server.met(request);
        if act == Some(Act::Hang) {
            server.received(request, arrived, Answered::Fault);
            self.stop.wait();
            return Ok(Then::Close);
        }
        let reply = match &act {
            Some(Act::Status {
                code,
                reason,
                retry_after,
            }) => refusal(*code, reason, *retry_after),
            _ => server.backend.answer(request, arrived, &self.caller),
        };
        server.received(request, arrived, reply.answered);
        Sending {
            server,
            stream: &mut self.stream,
            stop: self.stop,
            act,
            sent: 0,
        }
        .send(reply)
    }
}

fn refusal(code: u16, reason: &str, retry_after: Option<Duration>) -> Reply<'static> {
    let message = format!("the test server was told to answer {code} {reason}");
    let mut reply = Reply::failure(code, reason, &message, Answered::Fault);
    if let Some(wait) = retry_after {
        let seconds = wait.as_secs().to_string();
        reply.headers.push(("retry-after".to_owned(), seconds));
    }
    reply
}

impl<S> ServerCore<S> {
    /// The first fault that the request meets. Each one counts it, also behind another that does.
    fn met(&self, request: &Request) -> Option<Act> {
        let mut faults = self.faults.lock();
        let met = faults.iter_mut().map(|fault| fault.meet(&request.target));
        met.collect::<Vec<_>>().into_iter().flatten().next()
    }
}

/// One answer under way.
struct Sending<'a, S, T> {
    server: &'a ServerCore<S>,
    stream: &'a mut T,
    stop: &'a StopToken,
    act: Option<Act>,
    /// Bytes of the body so far.
    sent: usize,
}

impl<S, T: Read + Write> Sending<'_, S, T> {
    fn send(&mut self, reply: Reply<'_>) -> io::Result<Then> {
        let mut body = reply.body;
        let is_stated = reply
            .headers
            .iter()
            .any(|(name, _)| name == "content-length");
        let framing = if is_stated {
            Framing::Length
        } else {
            Framing::Chunked
        };
        if !body.begin(self.stop) {
            return Ok(Then::Close);
        }
        write_head(self.stream, reply.status, &reply.headers, framing)?;
        loop {
            match body.next(self.stop) {
                Piece::Bytes(bytes) => {
                    if !self.piece(&bytes, framing)? {
                        return Ok(Then::Close);
                    }
                }
                Piece::End => {
                    write_end(self.stream, framing)?;
                    return Ok(Then::Next);
                }
                Piece::Cut => return Ok(Then::Close),
            }
        }
    }

    /// Sends a piece as far as the fault lets it; whether the answer goes on.
    fn piece(&mut self, bytes: &[u8], framing: Framing) -> io::Result<bool> {
        match self.act {
            Some(Act::Drip {
                bytes: piece,
                every,
            }) => {
                for piece in bytes.chunks(piece.max(1)) {
                    let due = self.server.clock.after(every);
                    if self.stop.wait_until(&self.server.clock, due) != WaitEnd::DeadlinePassed {
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
