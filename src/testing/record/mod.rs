//! The recorder between a client and an API server: records all traffic, with secret values
//! replaced.

mod raw_answer;
mod redact;
mod tap;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use self::raw_answer::RawAnswer;
use self::redact::Redactor;
use self::tap::Tap;
use super::http::message::{Framing, RequestMessage, Requests, write_end, write_head, write_piece};
use super::http::service::{Handler, Service};
use super::recording::{Answer, End, Exchange, Recording};
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::http;
use crate::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{StopToken, WaitEnd};

/// The recorded headers of an answer: those that affect a client's next step. No header of a
/// request is recorded, and `Authorization` is not even passed on.
const HEADERS_KEPT: [&str; 4] = ["content-type", "content-length", "retry-after", "warning"];

/// How long the recorder waits for a server that was there; a restart takes seconds.
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// The pause between two checks whether it is ready again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The number of bytes per read.
const PIECE_BYTES: usize = 64 * 1024;

/// A reverse proxy on a loopback port that records what passes between clients and a real API
/// server.
///
/// Clients talk plain HTTP to it, without credentials; it talks to the server with the credentials
/// of its configuration. It passes only reads (`GET`). If a server that has answered before is
/// gone, requests wait up to a minute until it is ready again (`/readyz`). So a client whose
/// connection was cut by a restart meets the restarted server, without its earlier history.
///
/// The recorder redacts all data before it keeps it:
///
/// - values of `data` and `stringData` of Secrets, anywhere in an answer;
/// - all annotations of Secrets, and the last-applied annotation of every object;
/// - signed and bearer tokens.
///
/// Replacements have the same length, and equal values get equal ones. Values of ConfigMaps are
/// kept. Of a body that is not JSON, only the length is kept.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "testing")] {
/// use kubecache::{http, testing::Recorder};
///
/// let recorder = Recorder::start(&http::Config::infer()?, 0)?;
/// println!("let your program talk to {}", recorder.url());
/// # let program_has_ended = || {};
/// program_has_ended();
/// std::fs::write("recording.jsonl", recorder.finish().to_text())?;
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    service: Service,
    shared: Arc<RecorderCore>,
}

struct RecorderCore {
    upstream: http::Client,
    clock: Clock,
    start: Instant,
    redactor: Arc<Mutex<Redactor>>,
    exchanges: Mutex<Vec<Exchange>>,
    /// How many requests did not reach the server, and the error of the last one.
    failures: Mutex<(usize, Option<Error>)>,
    /// Whether the server has ever answered.
    seen: AtomicBool,
}

impl std::fmt::Debug for RecorderCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecorderCore").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts to record traffic to the server of `config`. Listens on `port` of the loopback
    /// address, 0 for a free one.
    ///
    /// # Errors
    ///
    /// The error of the configuration; [`ErrorKind::Resources`] when the system refuses a socket or
    /// thread.
    pub fn start(config: &http::Config, port: u16) -> Result<Self, Error> {
        Self::start_on(config, port, Clock::system())
    }

    fn start_on(config: &http::Config, port: u16, clock: Clock) -> Result<Self, Error> {
        let shared = Arc::new(RecorderCore {
            upstream: http::Client::new(config, http::ClientOptions::default())?,
            start: clock.now(),
            clock,
            redactor: Arc::default(),
            exchanges: Mutex::new(Vec::new()),
            failures: Mutex::new((0, None)),
            seen: AtomicBool::new(false),
        });
        let service = Service::spawn("recorder", port, Arc::clone(&shared)).map_err(|error| {
            Error::new(
                ErrorKind::Resources,
                format!("starting the recorder: {error}"),
            )
            .with_source(error)
        })?;
        Ok(Self { service, shared })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Returns the address as a URL, for a client's configuration.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns how many requests it could not pass to the server, and the error of the last one.
    /// Their clients saw a connection that closed without an answer, and they are not recorded.
    pub fn failures(&self) -> Option<(usize, Error)> {
        let (count, last) = self.shared.failures.lock().clone();
        last.map(|last| (count, last))
    }

    /// Ends every connection and returns the recording, in the order of the requests. Incomplete
    /// answers end as [`End::Open`].
    pub fn finish(self) -> Recording {
        self.service.stop();
        let mut exchanges = std::mem::take(&mut *self.shared.exchanges.lock());
        exchanges.sort_by_key(|exchange| exchange.at);
        let mut recording = Recording::new();
        recording.exchanges = exchanges;
        recording
    }
}

impl Handler for RecorderCore {
    type Admitted = ();

    fn admit(&self) {}

    fn serve(&self, mut socket: TcpStream, (): (), stop: &StopToken) {
        if let Err(error) = self.converse(&mut socket, stop) {
            log::debug!("recorder: a connection ended: {error}");
        }
    }
}

impl RecorderCore {
    fn converse(&self, client: &mut TcpStream, stop: &StopToken) -> io::Result<()> {
        let mut requests = Requests::new();
        while let Some(request) = requests.next(client)? {
            if !self.pass(&request, client, stop)? || request.wants_close() || stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    /// Passes one request on and its answer back. Returns whether the connection can take another.
    fn pass(
        &self,
        request: &RequestMessage,
        client: &mut TcpStream,
        stop: &StopToken,
    ) -> io::Result<bool> {
        if request.method != "GET" {
            let message = "the recorder passes GET only";
            return refuse(client, 405, "MethodNotAllowed", message).map(|()| true);
        }
        let arrived = self.clock.now();
        let mut passing = match self.open(&request.target.to_string(), stop) {
            Ok(answer) => Passing::new(self, request, arrived, answer),
            Err(error) if error.is_stopped() => return Ok(false),
            Err(error) => {
                self.failed(error);
                // The client sees the same as without a recorder: a connection without an answer.
                return Ok(false);
            }
        };
        let passed = passing.run(client, stop);
        let end = passing.end;
        passing.keep();
        passed.map(|()| end == End::Clean)
    }
}

impl RecorderCore {
    /// Asks the server. Waits for one that was there before and is gone for a moment.
    fn open(&self, path: &str, stop: &StopToken) -> Result<RawAnswer, Error> {
        let give_up = self.clock.after(OUTAGE_MAX);
        loop {
            let opened = self.upstream.raw(path, stop);
            let Err(error) = &opened else {
                self.seen.store(true, Ordering::SeqCst);
                return opened;
            };
            let gone = error.kind() == ErrorKind::Unreachable && self.seen.load(Ordering::SeqCst);
            if !gone || !self.is_ready_again(give_up, stop) {
                return opened;
            }
        }
    }

    /// As a load balancer would: a starting server refuses all users until it knows its roles.
    fn is_ready_again(&self, give_up: Deadline, stop: &StopToken) -> bool {
        loop {
            let look = self.clock.after(LOOK_EVERY).earlier(give_up);
            if stop.wait_until(&self.clock, look) == WaitEnd::Stopped {
                return false;
            }
            let ready = self.upstream.raw("/readyz", stop);
            if ready.is_ok_and(|answer| answer.status == 200) {
                return true;
            }
            if self.clock.has_passed(give_up) {
                return false;
            }
        }
    }

    fn failed(&self, error: Error) {
        log::warn!("recorder: not recorded: {error}");
        let mut failures = self.failures.lock();
        *failures = (failures.0.saturating_add(1), Some(error));
    }
}

fn refuse(client: &mut TcpStream, code: u16, reason: &str, message: &str) -> io::Result<()> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let body = format!("{status}\n");
    let headers = [
        ("content-type".to_owned(), "application/json".to_owned()),
        ("content-length".to_owned(), body.len().to_string()),
    ];
    write_head(client, code, &headers, Framing::Length)?;
    write_piece(client, body.as_bytes(), Framing::Length)
}

/// An answer that is being passed.
struct Passing<'a> {
    recorder: &'a RecorderCore,
    exchange: Exchange,
    arrived: Instant,
    opened: RawAnswer,
    framing: Framing,
    tap: Tap,
    end: End,
}

impl<'a> Passing<'a> {
    fn new(
        recorder: &'a RecorderCore,
        request: &RequestMessage,
        arrived: Instant,
        opened: RawAnswer,
    ) -> Self {
        let kept = opened
            .headers
            .iter()
            .filter(|(name, _)| HEADERS_KEPT.contains(&name.as_str()));
        let answer = Answer {
            status: opened.status,
            after: recorder.clock.now().saturating_duration_since(arrived),
            headers: kept.cloned().collect(),
            chunks: Vec::new(),
            end: End::Open,
            end_after: Duration::ZERO,
        };
        let framing = Framing::of(request, &answer.headers);
        let exchange = Exchange {
            method: request.method.clone(),
            target: request.target.clone(),
            at: arrived.saturating_duration_since(recorder.start),
            headers: Vec::new(),
            matches: Vec::new(),
            answer,
        };
        let of_secrets = request
            .target
            .path
            .split('/')
            .any(|segment| segment == "secrets");
        let lines = request.target.is_watch() && opened.status == 200;
        Self {
            tap: Tap::new(&recorder.redactor, of_secrets, lines),
            recorder,
            exchange,
            arrived,
            opened,
            framing,
            end: End::Open,
        }
    }

    fn run(&mut self, client: &mut impl Write, stop: &StopToken) -> io::Result<()> {
        let answer = &self.exchange.answer;
        let framing = self.framing;
        write_head(client, answer.status, &answer.headers, framing)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = match self.opened.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.is_stopped() || stop.is_stopped() => return Ok(()),
                Err(error) => {
                    log::warn!("recorder: {}: {error}", self.exchange.target);
                    self.end = End::Cut;
                    return Ok(());
                }
            };
            let bytes = piece.get(..count).unwrap_or_default();
            self.tap.piece(bytes, self.since());
            write_piece(client, bytes, framing)?;
        }
        self.end = End::Clean;
        write_end(client, framing)
    }

    fn since(&self) -> Duration {
        self.recorder
            .clock
            .now()
            .saturating_duration_since(self.arrived)
    }

    fn keep(mut self) {
        self.exchange.answer.end_after = self.since();
        self.exchange.answer.end = self.end;
        self.exchange.answer.chunks = self.tap.finish();
        self.recorder.exchanges.lock().push(self.exchange);
    }
}

#[cfg(test)]
mod tests;
