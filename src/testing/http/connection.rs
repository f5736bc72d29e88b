//! One client's connection: requests in, the backend's answers out, with the faults on top.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::faults::{Act, Flow, Met, Sent, WireFault, changed, instead};
use super::message::{
    BODY_BYTES_MAX, Framing, RequestMessage, Requests, head, write_end, write_piece,
};
use super::received::Answered;
use super::server::ServerCore;
use super::service::{Handler, reset};
use super::tls::ServerTls;
use super::{Backend, Caller, Piece, Reply};
use crate::clock::{Clock, Deadline};
use crate::worker::StopToken;

impl<S: Backend> Handler for ServerCore<S> {
    /// The connection's number, and the fault that it meets.
    type Admitted = (u64, Option<Act>);

    fn admit(&self) -> Self::Admitted {
        let number = self.next_connection();
        (number, self.faults.connection(number))
    }

    fn serve(&self, socket: TcpStream, admitted: Self::Admitted, stop: &StopToken) {
        if let Err(error) = self.serve_connection(socket, admitted, stop) {
            log::debug!("test server: a connection ended: {error}");
        }
    }
}

impl<S: Backend> ServerCore<S> {
    fn serve_connection(
        &self,
        socket: TcpStream,
        (number, act): (u64, Option<Act>),
        stop: &StopToken,
    ) -> io::Result<()> {
        let raw = socket.try_clone()?;
        let flow = match act {
            Some(Act::Refuse) => Flow::Reset,
            Some(Act::Silent) => {
                stop.wait();
                Flow::Close
            }
            act => self.converse(number, (socket, &raw), act.as_ref(), stop)?,
        };
        match flow {
            Flow::Reset => reset(&raw),
            Flow::On | Flow::Close => Ok(()),
        }
    }

    fn converse(
        &self,
        number: u64,
        (socket, raw): (TcpStream, &TcpStream),
        act: Option<&Act>,
        stop: &StopToken,
    ) -> io::Result<Flow> {
        let tls = self.tls.lock().clone();
        let Some(tls) = tls else {
            let flow = without_handshake(act, stop);
            if flow != Flow::On {
                return Ok(flow);
            }
            return ServedConnection::new(self, number, socket, stop, Vec::new()).run(raw);
        };
        let patience = Patience::begun(self.request_wait);
        let mut stream = match handshake(&tls, socket, act, patience, (&self.clock, stop))? {
            Ok(stream) => stream,
            Err(flow) => return Ok(flow),
        };
        let shown = stream.conn.peer_certificates();
        let certificates = shown.unwrap_or_default().to_vec();
        let certificates = certificates.into_iter().map(CertificateDer::into_owned);
        let certificates = certificates.collect();
        let flow = ServedConnection::new(self, number, &mut stream, stop, certificates).run(raw)?;
        if flow != Flow::Reset {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        Ok(flow)
    }
}

/// Go's answer to bytes that are not a request.
const NO_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request";

/// The server's answer to a body that is too long.
fn too_large() -> String {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("Request entity too large: limit is {BODY_BYTES_MAX}"),
        "reason": "RequestEntityTooLarge", "code": 413,
    });
    let body = format!("{status}\n");
    format!(
        "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Go's answer to a plain request on a port with TLS.
const NO_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// How much of a body that is too long is read behind its refusal.
const REST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The beginnings of plain requests to which Go gives that answer.
const PLAIN: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

/// The effect of a fault of the handshake on a connection that has none.
fn without_handshake(act: Option<&Act>, stop: &StopToken) -> Flow {
    match act {
        Some(Act::Certificate(_) | Act::ClientCertificate) => Flow::Close,
        act => act
            .and_then(WireFault::of)
            .map_or(Flow::On, |fault| fault.without_handshake(stop)),
    }
}

type ServerStream = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

/// Performs the handshake as far as the fault allows. Returns the stream, or the fate of the
/// connection.
fn handshake(
    tls: &ServerTls,
    socket: TcpStream,
    act: Option<&Act>,
    patience: Patience,
    waits: (&Clock, &StopToken),
) -> io::Result<Result<ServerStream, Flow>> {
    let config = tls.config(act).map_err(io::Error::other)?;
    let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let mut faulty = FaultySocket {
        socket: &stream.sock,
        fault: act.and_then(WireFault::of),
        patience,
        waits,
        flow: Flow::On,
        first: Vec::new(),
    };
    while stream.conn.is_handshaking() {
        let went = stream.conn.complete_io(&mut faulty);
        if faulty.flow != Flow::On {
            return Ok(Err(faulty.flow));
        }
        went?;
    }
    Ok(Ok(stream))
}

/// A socket during a handshake.
struct FaultySocket<'a> {
    socket: &'a TcpStream,
    fault: Option<WireFault>,
    patience: Patience,
    waits: (&'a Clock, &'a StopToken),
    flow: Flow,
    /// The first bytes, as many as identify a plain request.
    first: Vec<u8>,
}

/// How long reads may wait in all.
#[derive(Clone, Copy)]
struct Patience {
    wait: Duration,
    /// None until something has come.
    until: Option<Deadline>,
}

impl Patience {
    fn begun(wait: Duration) -> Self {
        let until = Some(Clock::system().after(wait));
        Self { wait, until }
    }

    /// Bounds the next read of the socket.
    fn bound(self, socket: &TcpStream) -> io::Result<()> {
        let left = self
            .until
            .and_then(|until| until.remaining(Clock::system().now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(left)
    }
}

/// A stream of requests, each of which must come in time once it has begun.
struct Requesting<'a, T> {
    stream: &'a mut T,
    socket: &'a TcpStream,
    patience: Patience,
}

impl<T: Read> Read for Requesting<'_, T> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.patience.bound(self.socket)?;
        let count = self.stream.read(space)?;
        if self.patience.until.is_none() {
            self.patience = Patience::begun(self.patience.wait);
        }
        Ok(count)
    }
}

impl<T: Write> Write for Requesting<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Read for FaultySocket<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.patience.bound(self.socket)?;
        let count = self.socket.read(space)?;
        let missing = 5_usize.saturating_sub(self.first.len());
        self.first.extend(space.iter().take(count.min(missing)));
        Ok(count)
    }
}

impl Write for FaultySocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.socket;
        if PLAIN.contains(&&*self.first) {
            // Instead of the alert.
            socket.write_all(NO_TLS)?;
            self.flow = Flow::Close;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let Some(fault) = &mut self.fault else {
            return socket.write(bytes);
        };
        let mut out = |bytes: &[u8]| socket.write_all(bytes);
        self.flow = fault.send(Sent::Handshake, bytes, self.waits, &mut out)?;
        if self.flow == Flow::On {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

struct ServedConnection<'a, S, T> {
    server: &'a ServerCore<S>,
    stream: T,
    stop: &'a StopToken,
    caller: Caller,
}

impl<'a, S: Backend, T: Read + Write> ServedConnection<'a, S, T> {
    fn new(
        server: &'a ServerCore<S>,
        connection: u64,
        stream: T,
        stop: &'a StopToken,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Self {
        Self {
            server,
            stream,
            stop,
            caller: Caller {
                connection,
                certificates,
            },
        }
    }

    fn run(&mut self, socket: &TcpStream) -> io::Result<Flow> {
        let mut requests = Requests::new();
        while let Some(request) = self.next(&mut requests, socket)? {
            let flow = self.answer(&request)?;
            if flow != Flow::On {
                return Ok(flow);
            }
            if request.wants_close() || self.stop.is_stopped() {
                break;
            }
        }
        Ok(Flow::Close)
    }

    /// The next request. Answers other bytes with a line of text, as Go's servers do.
    fn next(
        &mut self,
        requests: &mut Requests,
        socket: &TcpStream,
    ) -> io::Result<Option<RequestMessage>> {
        let mut patience = Patience::begun(self.server.request_wait);
        if requests.is_empty() {
            // An idle connection waits for its next request.
            patience.until = None;
        }
        let next = requests.next(&mut Requesting {
            stream: &mut self.stream,
            socket,
            patience,
        });
        let Err(error) = &next else {
            return next;
        };
        if error.kind() == io::ErrorKind::InvalidData {
            self.stream.write_all(NO_REQUEST)?;
            self.stream.flush()?;
        }
        if error.kind() == io::ErrorKind::FileTooLarge {
            self.stream.write_all(too_large().as_bytes())?;
            self.stream.flush()?;
            socket.shutdown(Shutdown::Write)?;
            // A close before the rest was read would reset the connection, and the answer with it.
            let rest = &mut Requesting {
                stream: &mut self.stream,
                socket,
                patience: Patience::begun(self.server.request_wait),
            };
            io::copy(&mut rest.take(REST_BYTES_MAX), &mut io::sink())?;
        }
        next
    }

    fn answer(&mut self, request: &RequestMessage) -> io::Result<Flow> {
        let server = self.server;
        let arrived = server.clock.now();
        let met = server.faults.request(request, self.caller.connection);
        let Met {
            answer,
            content,
            wire,
        } = met;
        if answer == Some(Act::Hang) {
            server.received(request, arrived, Answered::Fault);
            self.stop.wait();
            return Ok(Flow::Close);
        }
        let reply = if let Some(reply) = answer.and_then(|act| instead(&act, request)) {
            server.received(request, arrived, reply.answered);
            reply
        } else {
            let asked = plain(request, !content.is_empty());
            let asked = asked.as_ref().unwrap_or(request);
            let reply = server.backend.answer(asked, arrived, &self.caller);
            server.received(request, arrived, reply.answered);
            changed(reply, content, request.target.is_watch(), &server.clock)
        };
        Sending {
            clock: &server.clock,
            stream: &mut self.stream,
            stop: self.stop,
            fault: wire.as_ref().and_then(WireFault::of),
            request,
        }
        .send(reply, wire.as_ref())
    }
}

/// The request as of a client without gzip, because a fault changes text.
fn plain(request: &RequestMessage, is_changed: bool) -> Option<RequestMessage> {
    let is_plain = !is_changed || request.header("accept-encoding").is_none();
    (!is_plain).then(|| {
        let mut plain = request.clone();
        plain.headers.retain(|(name, _)| name != "accept-encoding");
        plain
    })
}

/// One answer that is being sent.
struct Sending<'a, T> {
    clock: &'a Clock,
    stream: &'a mut T,
    stop: &'a StopToken,
    fault: Option<WireFault>,
    request: &'a RequestMessage,
}

impl<T: Read + Write> Sending<'_, T> {
    fn send(&mut self, mut reply: Reply<'_>, act: Option<&Act>) -> io::Result<Flow> {
        if let Some(Act::WrongLength(by)) = act {
            return self.send_with_length(reply, *by);
        }
        if !reply.body.begin(self.stop) {
            return Ok(Flow::Close);
        }
        if let Some(Act::InterimFlood(count)) = act {
            for _ in 0..*count {
                self.stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")?;
                if self.stop.is_stopped() {
                    return Ok(Flow::Close);
                }
            }
        }
        let framing = Framing::of(self.request, &reply.headers);
        let head = head(reply.status, &reply.headers, framing);
        let mut flow = self.write(Sent::Head, &head, Framing::Length)?;
        if !self.has_body() {
            return Ok(flow);
        }
        while flow == Flow::On {
            match reply.body.next(self.stop) {
                Piece::Bytes(bytes) => flow = self.write(Sent::Body, &bytes, framing)?,
                Piece::End => {
                    write_end(self.stream, framing)?;
                    if act == Some(&Act::HalfOpen) {
                        self.stop.wait();
                        return Ok(Flow::Close);
                    }
                    return Ok(Flow::On);
                }
                Piece::Cut => return Ok(Flow::Close),
            }
        }
        Ok(flow)
    }

    fn has_body(&self) -> bool {
        self.request.method != "HEAD"
    }

    /// Sends bytes as far as the fault allows.
    fn write(&mut self, part: Sent, bytes: &[u8], framing: Framing) -> io::Result<Flow> {
        let stream = &mut *self.stream;
        let mut out = |bytes: &[u8]| write_piece(stream, bytes, framing);
        match &mut self.fault {
            None => {
                out(bytes)?;
                Ok(Flow::On)
            }
            Some(fault) => fault.send(part, bytes, (self.clock, self.stop), &mut out),
        }
    }

    /// Sends a whole body with a length that is wrong by `by`, or a watch with that length.
    fn send_with_length(&mut self, mut reply: Reply<'_>, by: i64) -> io::Result<Flow> {
        let mut body = Vec::new();
        let mut stated = by;
        if !self.request.target.is_watch() {
            while let Piece::Bytes(bytes) = reply.body.next(self.stop) {
                body.extend_from_slice(&bytes);
            }
            stated = i64::try_from(body.len())
                .unwrap_or(i64::MAX)
                .saturating_add(by);
        }
        reply.headers.retain(|(name, _)| name != "content-length");
        let length = ("content-length".to_owned(), stated.max(0).to_string());
        reply.headers.push(length);
        let head = head(reply.status, &reply.headers, Framing::Length);
        self.stream.write_all(&head)?;
        if self.has_body() {
            self.stream.write_all(&body)?;
        }
        self.stream.flush()?;
        Ok(Flow::Close)
    }
}
