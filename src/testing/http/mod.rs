//! The HTTP server under every test server: sockets, TLS, heads and bodies, the log of requests,
//! and the faults on top. The [`Backend`] behind it makes the answers.

mod authority;
mod connection;
mod faults;
pub(super) mod message;
mod port;
mod received;
mod server;
pub(super) mod service;
mod tls;

use std::time::Instant;

use rustls::pki_types::CertificateDer;

use self::message::RequestMessage;
use crate::clock::{Clock, Deadline};
use crate::worker::{StopToken, WaitEnd};

pub use self::authority::TestAuthority;
pub use self::faults::{
    Act, CertificateFlaw, FAULTS, Fault, FaultDescription, FaultId, Part, SERVER_FAULTS, Unfinished,
};
pub(in crate::testing) use self::received::RequestLog;
pub use self::received::{Answered, Received};
pub(super) use self::server::{HttpServer, ServerOptions};
pub(super) use self::tls::ServerTls;

/// The backend behind the connections of a test server.
pub(super) trait Backend: Send + Sync + 'static {
    /// Answers a request that came at `at`. Only the pieces of the body may block.
    fn answer<'a>(&'a self, request: &RequestMessage, at: Instant, caller: &Caller) -> Reply<'a>;
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Connections count from 1.
    pub(super) connection: u64,
    /// The client's certificate chain, its own certificate first.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

/// An answer. A body without a stated `content-length` is sent in chunks, or to a client of
/// HTTP/1.0 until the end of the connection.
pub(super) struct Reply<'a> {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Box<dyn Pieces + 'a>,
    pub(super) answered: Answered,
}

/// The pieces of a body, each sent at once.
pub(super) trait Pieces: Send {
    /// Blocks until the head may be sent. Returns false at the stop.
    fn begin(&mut self, _stop: &StopToken) -> bool {
        true
    }

    /// Blocks until the next piece, or until the stop.
    fn next(&mut self, stop: &StopToken) -> Piece;

    /// Blocks until `due`, and sends nothing. Returns the end of the body if the stop comes first,
    /// or if the backend ends it before its time.
    fn withhold(&mut self, due: Deadline, clock: &Clock, stop: &StopToken) -> Option<Piece> {
        let ended = stop.wait_until(clock, due);
        (ended == WaitEnd::Stopped).then_some(Piece::Cut)
    }
}

/// A piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The next bytes; for a watch, one event with its newline.
    Bytes(Vec<u8>),
    /// The body is complete.
    End,
    /// The connection ends in the middle of the body.
    Cut,
}

/// A body that is complete from the start.
struct Whole(Option<Vec<u8>>);

impl Pieces for Whole {
    fn next(&mut self, _stop: &StopToken) -> Piece {
        self.0.take().map_or(Piece::End, Piece::Bytes)
    }
}

impl Reply<'_> {
    /// An answer with its whole body and the length of that.
    pub(super) fn whole(
        status: u16,
        mut headers: Vec<(String, String)>,
        body: Vec<u8>,
        answered: Answered,
    ) -> Self {
        headers.push(("content-length".to_owned(), body.len().to_string()));
        Self {
            status,
            headers,
            body: Box::new(Whole(Some(body))),
            answered,
        }
    }

    /// A `Status` of the API with the failure.
    pub(super) fn failure(status: u16, reason: &str, message: &str, answered: Answered) -> Self {
        let text = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": status,
        });
        let json = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self::whole(status, json, format!("{text}\n").into_bytes(), answered)
    }
}
