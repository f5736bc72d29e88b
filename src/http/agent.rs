//! Sends requests and receives responses. Each lister-watcher has a ureq agent; all getters and
//! one-shot lists share one.

use std::io::{self, Read};
use std::iter;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ureq::SendBody;
use ureq::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH,
};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response};
use zeroize::Zeroizing;

use super::calls::call_context::{self, CallContext, NamedDeadline};
use super::calls::errors;
use super::calls::interrupt::{Interrupt, Limit};
use super::client_metric::RequestMetrics;
use super::connect::body::{ResponseBody, is_decompressed};
use super::connect::buffers::{BODY_PIECE_BYTES_MAX, UNREAD_BYTES_MAX};
use super::connect::connector::{ServerConnector, UreqConnector};
use super::credentials::{ActiveCredentials, Authorization, Credential};
use super::requests;
use crate::clock::Clock;
use crate::error::Error;
use crate::list_watch::RequestPhase;
use crate::policy::{self, AnswerKind, NextRequest};
use crate::sync::{Arc, Mutex, Rank};
use crate::wire::Buffer;

/// How much of an error response the client reads at most.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

/// The maximum of bytes before the head of a response is complete, interim responses (1xx)
/// included. Four of the largest heads fit, or some ten thousand small ones.
const HEADS_BYTES_MAX: usize = 4 * UNREAD_BYTES_MAX;

/// The room for one read of it.
const REFUSAL_READ_BYTES: usize = 4 * 1024;

/// How long the client waits for the body of an error response. Its status says most.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// An idle connection older than this is not used again. Servers close theirs after 90 s and more.
const IDLE_AGE_MAX: Duration = Duration::from_secs(75);

/// The trace records of this log target contain all headers and bodies.
const LOUD_TARGET: &str = "ureq_proto::util";

/// The parameters that all requests of a client share.
pub(crate) struct Endpoint {
    /// Scheme, authority and base path.
    pub(crate) base: String,
    /// The headers of every request but `Authorization`, `Accept` and `Accept-Encoding`.
    pub(crate) headers: HeaderMap,
    pub(crate) credentials: ActiveCredentials,
    pub(crate) metrics: Arc<RequestMetrics>,
    pub(crate) dialer: Arc<ServerConnector>,
    /// After this silence the client sends a request once more.
    pub(crate) second_try_after: Duration,
}

/// One request.
pub(crate) struct HttpRequest<'a> {
    /// The method, headers and body of a request that is no get; `None` for a get.
    pub(crate) payload: Option<&'a Payload<'a>>,
    pub(crate) path: &'a str,
    pub(crate) gzip: bool,
    pub(crate) first_byte: Duration,
    /// Blocks until a request that met silence may be sent once more, on a new connection. One of
    /// several servers behind an address may be dead.
    pub(crate) second_try: Option<&'a dyn Fn() -> Result<(), Error>>,
    /// Whether silence counts sooner on a kept connection: its path may have died while it was
    /// idle.
    pub(crate) sooner_if_kept: bool,
    /// Whether the path is a collection's. A 404 then means that the server does not serve the
    /// kind.
    pub(crate) of_collection: bool,
    /// The representation of objects that the server is to send.
    pub(crate) accept: &'static str,
}

/// The method, the headers and the body of a request of the program's own.
pub(crate) struct Payload<'a> {
    pub(crate) method: Method,
    /// These replace the client's own of the same name.
    pub(crate) headers: HeaderMap,
    pub(crate) body: &'a [u8],
}

/// A ureq agent with its pool of connections.
pub(crate) struct Agent {
    dialer: Arc<ServerConnector>,
    keep: usize,
    pool: Mutex<Pool>,
}

/// The kept connections.
#[derive(Default)]
struct Pool {
    /// The agent, and when it was made: no connection in it is older. The first request makes it,
    /// so that the thread that makes lister-watchers need not.
    inner: Option<(Instant, ureq::Agent)>,
    /// How long the last request waited for its response.
    last_wait: Duration,
}

/// A response of any status. Its body is unread.
pub(crate) struct UnreadResponse {
    pub(crate) response: Response<ureq::Body>,
    socket: Option<Arc<TcpStream>>,
    credential: Option<Arc<Credential>>,
}

/// Reads the body of a response, within the limits of a call.
pub(crate) struct ResponseReader {
    /// The method and the whole URL.
    pub(crate) what: Arc<str>,
    body: ResponseBody,
    /// The socket of the body.
    pub(crate) socket: Option<Arc<TcpStream>>,
    /// The request's credentials. No error about the response may show them.
    authorization: Option<Arc<Authorization>>,
    /// How many bytes of the body were read.
    pub(crate) body_bytes: usize,
    /// Whether the last read took all bytes of the socket. Then only the buffers of TLS and HTTP
    /// may hold more.
    pub(crate) is_drained: bool,
    /// How many of them the client has reported to its hook.
    told_bytes: usize,
    /// Set for an answer whose body is decoded.
    metrics: Option<Arc<RequestMetrics>>,
    pub(crate) call: CallContext,
}

impl Endpoint {
    /// Returns the headers of every request, `headers` among them.
    ///
    /// # Errors
    ///
    /// `Config`, when no header can carry a value.
    pub(crate) fn headers(
        headers: &[(String, String)],
        user_agent: &str,
    ) -> Result<HeaderMap, Error> {
        let mut map = HeaderMap::new();
        let own = ("User-Agent", user_agent);
        let given = headers.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in iter::once(own).chain(given) {
            let parsed = name.parse::<ureq::http::HeaderName>();
            let (Ok(parsed), Ok(value)) = (parsed, HeaderValue::from_str(value)) else {
                let message = format!("no header can carry the value of {name}");
                return Err(Error::config(message));
            };
            map.append(parsed, value);
        }
        Ok(map)
    }

    /// A request as messages name it.
    pub(crate) fn named(&self, method: &str, path: &str) -> String {
        format!("{method} {}{}", self.base, requests::shown(path))
    }

    /// Returns the credential that a request sends. Blocks as
    /// [`current`](ActiveCredentials::current) does.
    ///
    /// # Errors
    ///
    /// As [`current`](ActiveCredentials::current).
    fn credential(&self, call: &CallContext) -> Result<Option<Arc<Credential>>, Error> {
        let credential = self.credentials.current(call)?;
        if let Some(credential) = &credential {
            self.dialer.use_identity(credential)?;
        }
        Ok(credential)
    }

    /// Reports a request that was sent, and the status code of its answer, if one came.
    fn sent(&self, request: &HttpRequest<'_>, code: Option<u16>, is_retry: bool) {
        self.metrics.sent(request.method().as_str(), code, is_retry);
    }

    /// Whether the source has returned another credential since the server rejected `rejected`.
    /// Each token is tried once. Blocks as [`current`](ActiveCredentials::current) does.
    ///
    /// # Errors
    ///
    /// As [`current`](ActiveCredentials::current).
    fn is_renewed(
        &self,
        rejected: Option<&Credential>,
        request: &HttpRequest<'_>,
        call: &CallContext,
    ) -> Result<bool, Error> {
        let renewed = self.credentials.current(call);
        let renewed = renewed.inspect_err(|_none| self.sent(request, None, true))?;
        let pair = renewed.as_deref().zip(rejected);
        Ok(!pair.is_some_and(|(renewed, rejected)| renewed.is_same(rejected)))
    }

    /// Adds a remedy to the error of a 401.
    fn explain_rejection(&self, error: Error) -> Error {
        let error = self.dialer.explain_rejection(error);
        self.credentials.explain_rejection(error)
    }

    /// Whether to ask a plugin for another certificate, because the server refused the last one.
    fn asks_anew(&self, tried_by: Option<&CallContext>, shown: Option<&Credential>) -> bool {
        let is_refused = tried_by.is_some_and(|call| call.handshake.refuses_identity);
        let refused = shown.filter(|shown| is_refused && shown.identity.is_some());
        self.credentials.rejected(refused)
    }
}

impl Agent {
    /// An agent that keeps up to `keep` idle connections.
    pub(crate) fn new(dialer: &Arc<ServerConnector>, keep: usize) -> Self {
        Self {
            dialer: Arc::clone(dialer),
            keep,
            pool: Mutex::ranked(Rank::CONNECTIONS, Pool::default()),
        }
    }

    /// Closes idle connections. A connection in use ends with its body.
    pub(crate) fn disconnect(&self) {
        let before = self.pool.lock().inner.take();
        drop(before);
    }

    /// Closes the idle connections if one of them may be older than `then`.
    fn disconnect_older(&self, then: Instant) {
        let older = self.pool.lock().inner.take_if(|(made, _)| *made <= then);
        drop(older);
    }

    fn inner(&self) -> ureq::Agent {
        let make = || (Clock::system().now(), build(&self.dialer, self.keep));
        self.pool.lock().inner.get_or_insert_with(make).1.clone()
    }

    /// Sends a request and waits for the head of its response, within the limits of `call`.
    ///
    /// After a 401 it sends one more request if the source returns other credentials. If the server
    /// had closed the kept connection, it sends the request again on another one.
    ///
    /// # Errors
    ///
    /// The server's error, or the transport's.
    pub(crate) fn get(
        &self,
        endpoint: &Endpoint,
        request: &HttpRequest<'_>,
        call: &CallContext,
    ) -> Result<ResponseReader, Error> {
        let (what, sent) = self.ask(endpoint, request, call)?;
        // Its body may be a secret's value, and is not shown.
        if sent.response.status() != 200 {
            return Err(errors::not_200(sent.response.status().as_u16()).of_request(&what));
        }
        let content_type = sent.header("content-type");
        if !content_type.is_empty() && !content_type.to_ascii_lowercase().contains("json") {
            return Err(errors::not_json(&sent.redacted(&content_type)).of_request(&what));
        }
        Ok(ResponseReader {
            metrics: Some(Arc::clone(&endpoint.metrics)),
            ..sent.into_answer(what, call.clone())
        })
    }

    /// Sends a request as [`get`](Self::get) does, of any method. Returns its name for messages and
    /// the successful response of any type.
    ///
    /// Sends an update again only if the server did not read it, or answered 401. Any other error
    /// says that the server may have applied it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub(crate) fn ask(
        &self,
        endpoint: &Endpoint,
        request: &HttpRequest<'_>,
        call: &CallContext,
    ) -> Result<(String, UnreadResponse), Error> {
        let mut what = endpoint.named(request.method().as_str(), request.path);
        match self.ask_as(&mut what, endpoint, request, call) {
            Ok(sent) => Ok((what, sent)),
            Err(error) => Err(error.of_request(&what)),
        }
    }

    /// Sends the request, and removes its credentials from `what`, its name.
    fn ask_as(
        &self,
        what: &mut String,
        endpoint: &Endpoint,
        request: &HttpRequest<'_>,
        call: &CallContext,
    ) -> Result<UnreadResponse, Error> {
        endpoint.dialer.refresh(call);
        let mut sent = self.send(endpoint, request, call, what)?;
        *what = sent.redacted(what);
        let next = policy::next(request.is_update(), AnswerKind::Unauthorized);
        if sent.response.status() == 401
            && next == NextRequest::Renewed
            && endpoint.credentials.rejected(sent.credential.as_deref())
        {
            let credential = sent.credential.clone();
            let refusal = read_refusal(what, sent, request, call);
            if refusal.is_stopped() {
                return Err(refusal);
            }
            if !endpoint.is_renewed(credential.as_deref(), request, call)? {
                return Err(endpoint.explain_rejection(refusal));
            }
            sent = self.send(endpoint, request, &call.again(), what)?;
            *what = sent.redacted(what);
        }
        let status = sent.response.status();
        log::debug!("{what}: {status}");
        // Not modified (304) has no other address.
        if status.is_redirection() && status != 304 {
            let location = sent.redacted(&sent.header("location"));
            return Err(errors::redirected(status.as_u16(), &location));
        }
        if !status.is_success() {
            let refusal = read_refusal(what, sent, request, call);
            let is_rejection = status == 401 && !refusal.is_stopped();
            return Err(if is_rejection {
                endpoint.explain_rejection(refusal)
            } else {
                errors::maybe_applied_if(request.is_update() && status.is_server_error(), refusal)
            });
        }
        let encoding = sent.header("content-encoding");
        let is_known = encoding.is_empty()
            || encoding.eq_ignore_ascii_case("identity")
            || request.gzip && is_decompressed(&sent.response);
        if !is_known {
            let error = errors::unknown_encoding(&sent.redacted(&encoding));
            return Err(errors::maybe_applied_if(request.is_update(), error));
        }
        Ok(sent)
    }

    /// Returns the call with the limits of silence of one try. Another try follows if
    /// `is_tried_again`.
    fn limited(
        &self,
        endpoint: &Endpoint,
        request: &HttpRequest<'_>,
        call: &CallContext,
        is_tried_again: bool,
    ) -> CallContext {
        let left = call.whole.deadline.remaining(Clock::system().now());
        let last_wait = self.pool.lock().last_wait;
        let kept_silence = || kept_first_byte(request.first_byte, left, last_wait);
        // A server may take long to send the first byte of a collection.
        let is_slow = request.of_collection && request.sooner_if_kept;
        let kept = request.sooner_if_kept && is_tried_again;
        let mut trying = call.clone();
        trying.silence = (is_tried_again && !is_slow).then_some(endpoint.second_try_after);
        trying.kept_silence = kept.then(kept_silence).flatten();
        trying
    }

    /// Sends a request. Returns a response of any status.
    ///
    /// If the server has closed the kept connection meanwhile, sends the request again. Sends it
    /// once more after silence (see [`HttpRequest::second_try`]), and once more if the server
    /// refuses a plugin's certificate and the plugin may return another. After a byte of an update
    /// went out, only a refused certificate leads to another try, because the server reads nothing
    /// before that.
    pub(crate) fn send(
        &self,
        endpoint: &Endpoint,
        request: &HttpRequest<'_>,
        call: &CallContext,
        what: &str,
    ) -> Result<UnreadResponse, Error> {
        refuse_loud_logs()?;
        let (mut second_try, mut is_retry) = (request.second_try, call.is_retry);
        let (mut first_byte, mut first_silence, mut asks) = (request.first_byte, None, true);
        loop {
            if call.stop().is_stopped() {
                return Err(Error::stopped(what));
            }
            let agent = self.inner();
            let credential = endpoint.credential(call);
            let credential =
                credential.inspect_err(|_none| endpoint.sent(request, None, is_retry))?;
            let head = head(endpoint, request, credential.as_deref(), what)?;
            let begun = Clock::system().now();
            let mut trying = self.limited(endpoint, request, call, second_try.is_some());
            trying.first_byte = Some(first_byte);
            let (answered, tried_by) = run(&agent, head, request.body(), trying);
            let maybe_applied = request.maybe_applied(tried_by.as_ref());
            let next = |answer| policy::next(maybe_applied, answer);
            let dialed = tried_by.as_ref().is_some_and(|call| call.dialed);
            let waited = Clock::system().now().saturating_duration_since(begun);
            let interrupt = match answered {
                Ok(response) => {
                    self.pool.lock().last_wait = waited;
                    let status = response.status().as_u16();
                    call.enter_phase(RequestPhase::Body { status, bytes: 0 });
                    endpoint.sent(request, Some(status), is_retry);
                    return Ok(UnreadResponse {
                        response,
                        socket: tried_by.and_then(|call| call.socket),
                        credential,
                    });
                }
                Err(error) => Interrupt::from(error),
            };
            // Each turn uses up one kept connection, so the loop ends.
            let has_ended = !dialed && interrupt.is_closed_by_peer();
            if has_ended && next(AnswerKind::Ended) == NextRequest::Same {
                continue;
            }
            endpoint.sent(request, None, is_retry);
            let may_repeat = dialed || !maybe_applied;
            if asks && may_repeat && endpoint.asks_anew(tried_by.as_ref(), credential.as_deref()) {
                asks = false;
                is_retry = endpoint.is_renewed(credential.as_deref(), request, call)?;
                if is_retry {
                    continue;
                }
            }
            // Close the silent connection before any wait.
            drop((agent, tried_by));
            let silence = interrupt.silence();
            if silence.is_some() || !dialed && matches!(interrupt, Interrupt::Limit(_)) {
                // The path or the server is dead. Do not try connections of the same age one by
                // one.
                self.disconnect_older(begun);
            }
            if let (Some(silence), Some(permit)) = (silence, second_try.take())
                && next(AnswerKind::Silent) == NextRequest::Same
                && may_go_again(permit, call, what)?
            {
                log::debug!(
                    "{what}: the server is silent for {silence:.1?}; the client tries once more"
                );
                is_retry = true;
                first_byte = first_byte.saturating_sub(silence);
                first_silence = Some(silence);
                continue;
            }
            let error = errors::failed(what, call.explain(interrupt));
            let error = errors::after_silence(first_silence, error);
            let error = errors::maybe_applied_if(maybe_applied, error);
            return Err(redact(error, authorization_of(credential.as_deref())));
        }
    }
}

impl HttpRequest<'_> {
    fn method(&self) -> &Method {
        self.payload.map_or(&Method::GET, |payload| &payload.method)
    }

    fn body(&self) -> &[u8] {
        self.payload.map_or(&[], |payload| payload.body)
    }

    /// Whether the server may have read the update that this try sent.
    fn maybe_applied(&self, tried_by: Option<&CallContext>) -> bool {
        self.is_update() && tried_by.is_none_or(|call| call.bytes_out > 0)
    }

    /// The representations that the request asks for.
    fn accepts(&self) -> &str {
        let payload = self.payload.map(|payload| &payload.headers);
        let own = payload.and_then(|headers| headers.get(ACCEPT)?.to_str().ok());
        own.unwrap_or(self.accept)
    }

    /// Whether the request may change something, so that it must not arrive twice.
    pub(crate) fn is_update(&self) -> bool {
        !self.method().is_safe()
    }
}

fn authorization_of(credential: Option<&Credential>) -> Option<&Authorization> {
    credential.and_then(|credential| credential.authorization.as_deref())
}

/// Sends one request within the limits of `trying`. Also returns that context as the request left
/// it.
fn run(
    agent: &ureq::Agent,
    head: Request<()>,
    mut body: &[u8],
    mut trying: CallContext,
) -> (
    Result<Response<ureq::Body>, ureq::Error>,
    Option<CallContext>,
) {
    trying.head_bytes_left = Some(HEADS_BYTES_MAX);
    trying.output_bytes = head_bytes(&head).max(body.len().min(BODY_PIECE_BYTES_MAX));
    trying.during(|| {
        if head.headers().contains_key(CONTENT_LENGTH) {
            agent.run(head.map(|()| SendBody::from_reader(&mut body)))
        } else {
            agent.run(head)
        }
    })
}

/// Returns whether the request may be sent once more. Blocks for the permit without the slot of
/// `call`.
///
/// # Errors
///
/// `Stopped`, or `Timeout` if the caller's deadline passes before the request has its slot again.
fn may_go_again(
    permit: &dyn Fn() -> Result<(), Error>,
    call: &CallContext,
    what: &str,
) -> Result<bool, Error> {
    if Clock::system().has_passed(call.whole.deadline) {
        return Ok(false);
    }
    call.release_slot();
    match permit() {
        Ok(()) => {
            let resumed = call.resume();
            resumed.map_err(|interrupt| errors::failed(what, interrupt))?;
            Ok(true)
        }
        Err(error) if error.is_stopped() => Err(error.asked_as(what)),
        Err(_) => Ok(false),
    }
}

/// How long a get waits for the first byte on a kept connection before the client sends it once
/// more on a new one.
///
/// Half of the remaining time, so that the second try has the other half. `None` leaves the full
/// limit: after a slow response, silence says little.
fn kept_first_byte(
    first_byte: Duration,
    left: Option<Duration>,
    last_wait: Duration,
) -> Option<Duration> {
    let whole = left.map_or(first_byte, |left| left.min(first_byte));
    let limit = half(whole);
    (last_wait <= half(limit)).then_some(limit)
}

fn half(duration: Duration) -> Duration {
    duration.checked_div(2).unwrap_or_default()
}

/// Returns a text without the request's own credentials.
fn redacted(text: &str, authorization: Option<&Authorization>) -> String {
    authorization.map_or_else(|| text.to_owned(), |own| own.redact(text))
}

/// Returns the error without the request's own credentials.
fn redact(error: Error, authorization: Option<&Authorization>) -> Error {
    match authorization {
        Some(authorization) => error.map_texts(&|text| authorization.redact(text)),
        None => error,
    }
}

impl UnreadResponse {
    /// Returns a header's value, which an error shows as [`redacted`](Self::redacted).
    fn header(&self, name: &str) -> String {
        let value = self.response.headers().get(name);
        let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()));
        text.unwrap_or_default().into_owned()
    }

    /// Returns a text without the request's own credentials.
    fn redacted(&self, text: &str) -> String {
        redacted(text, authorization_of(self.credential.as_deref()))
    }

    /// The headers, as they are of the body that is read.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.response.headers().clone();
        if is_decompressed(&self.response) {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
        }
        headers
    }

    pub(crate) fn into_answer(self, what: String, call: CallContext) -> ResponseReader {
        let length = self.response.body().content_length();
        let length = length.filter(|_| !is_decompressed(&self.response));
        ResponseReader {
            what: what.into(),
            body: ResponseBody::of(self.response),
            socket: self.socket,
            authorization: self
                .credential
                .and_then(|credential| credential.authorization.clone()),
            body_bytes: 0,
            is_drained: false,
            told_bytes: 0,
            metrics: None,
            call: call.of_length(length),
        }
    }
}

impl ResponseReader {
    /// Reads the available bytes. Never blocks. 0 is the end of the body. After `WouldBlock` the
    /// caller polls the socket.
    pub(crate) fn read_available(&mut self, into: &mut [u8]) -> Result<usize, Interrupt> {
        let is_drained = std::mem::take(&mut self.is_drained);
        let _entered = self.call.enter_nonblocking(is_drained);
        let count = self.body.read(into)?;
        self.is_drained = call_context::is_drained();
        self.body_bytes = self.body_bytes.saturating_add(count);
        Ok(count)
    }

    /// Reports the bytes read since the last report to the client's hook, and the `skipped_bytes`
    /// that the decoder passed over. Sets `skipped_bytes` to 0.
    pub(crate) fn decoded(&mut self, skipped_bytes: &mut usize) {
        let bytes = self.body_bytes.saturating_sub(self.told_bytes);
        let skipped = std::mem::take(skipped_bytes);
        self.told_bytes = self.body_bytes;
        if let Some(metrics) = self.metrics.as_ref().filter(|_| bytes > 0 || skipped > 0) {
            metrics.decoded(bytes, skipped);
        }
    }

    /// Reads the available bytes. Blocks until the first one, within the limits of the call and at
    /// most until `until`. 0 is the end of the body.
    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        until: NamedDeadline,
    ) -> Result<usize, Interrupt> {
        let reading = self.call.ending(until);
        let (read, _) = reading.during(|| self.body.read(into));
        let count = read?;
        self.body_bytes = self.body_bytes.saturating_add(count);
        if let Some(progress) = &self.call.progress {
            progress.came(count);
        }
        Ok(count)
    }

    /// Makes the error of a response that ended early.
    pub(crate) fn cut_off(&self, interrupt: Interrupt) -> Error {
        self.redact(errors::cut_off(&self.what, self.call.explain(interrupt)))
    }

    /// Adds the request to an error about this response, and removes the request's own credentials.
    pub(crate) fn failed(&self, error: Error) -> Error {
        self.redact(error).of_request(&self.what)
    }

    /// Removes the request's own credentials from the server's error.
    fn redact(&self, error: Error) -> Error {
        redact(error, self.authorization.as_deref())
    }
}

fn build(dialer: &Arc<ServerConnector>, keep: usize) -> ureq::Agent {
    let config = ureq::config::Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .max_response_header_size(UNREAD_BYTES_MAX)
        .max_idle_connections(keep)
        .max_idle_connections_per_host(keep)
        .max_idle_age(IDLE_AGE_MAX)
        .build();
    let dialer = UreqConnector(Arc::clone(dialer));
    ureq::Agent::with_parts(config, dialer.clone(), dialer)
}

fn head(
    endpoint: &Endpoint,
    asked: &HttpRequest<'_>,
    credential: Option<&Credential>,
    what: &str,
) -> Result<Request<()>, Error> {
    let unwritable = |error: ureq::http::Error| {
        errors::failed(what, Interrupt::Protocol(ureq::Error::Http(error)))
    };
    let mut request = Request::builder()
        .method(asked.method())
        .uri(format!("{}{}", endpoint.base, asked.path))
        .body(())
        .map_err(unwritable)?;
    let headers = request.headers_mut();
    headers.clone_from(&endpoint.headers);
    headers.insert(ACCEPT, HeaderValue::from_static(asked.accept));
    let encoding = if asked.gzip { "gzip" } else { "identity" };
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    if let Some(payload) = asked.payload {
        for name in payload.headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &payload.headers {
            headers.append(name, value.clone());
        }
        if asked.is_update() || !payload.body.is_empty() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(payload.body.len()));
        }
    }
    if let Some(authorization) = authorization_of(credential) {
        let value = HeaderValue::from_str(authorization.as_str());
        let mut value = value.map_err(|error| unwritable(error.into()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// Returns an upper bound of the request's head, so that one write sends it whole.
fn head_bytes(request: &Request<()>) -> usize {
    const LINE: usize = 64;
    let headers = request.headers().iter();
    let lines = headers.map(|(name, value)| {
        let line = name.as_str().len().saturating_add(value.len());
        line.saturating_add(LINE)
    });
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let host = uri.host().map_or(0, str::len);
    let head = lines.fold(path.saturating_add(host), usize::saturating_add);
    head.saturating_add(256)
}

/// Reads the body of a refusal, as far as it comes soon. At its end, the connection can be used
/// again.
fn read_refusal(
    what: &str,
    sent: UnreadResponse,
    request: &HttpRequest<'_>,
    call: &CallContext,
) -> Error {
    let code = sent.response.status().as_u16();
    let retry_after = errors::retry_after(&sent.header("retry-after"), &sent.header("date"));
    let credential = sent.credential;
    let mut body = Buffer::new(REFUSAL_READ_BYTES, REFUSAL_READ_BYTES);
    let reading = call.within(REFUSAL_WAIT, Limit::Body);
    let (read, _) = reading.during(|| {
        let mut reader = ResponseBody::of(sent.response).take(REFUSAL_BYTES_MAX);
        loop {
            match reader.read(body.space())? {
                0 => return Ok(()),
                count => body.filled(count),
            }
        }
    });
    // The status code says more than the loss of the rest of the response.
    if let Err(interrupt @ Interrupt::Stopped) = read.map_err(|error: io::Error| error.into()) {
        return errors::cut_off(what, interrupt);
    }
    // Redact before any cut: even half of a token must not show.
    let authorization = authorization_of(credential.as_deref());
    let text = Zeroizing::new(String::from_utf8_lossy(body.pending()).into_owned());
    let hidden = authorization.map(|own| own.redact_part(&text));
    let text = hidden.as_deref().unwrap_or(&text);
    let error = if request.of_collection && code == 404 {
        errors::not_served(text.as_bytes())
    } else {
        errors::refused(code, text.as_bytes(), retry_after)
    };
    let error = redact(error.of_request(what), authorization);
    if code == 406 {
        return error.with_hint(&errors::not_acceptable(request.accepts()));
    }
    error
}

/// # Errors
///
/// `Config`, when the program's logger would receive the content of requests and answers.
fn refuse_loud_logs() -> Result<(), Error> {
    if log::log_enabled!(target: LOUD_TARGET, log::Level::Trace) {
        return Err(Error::config(format!(
            "the program's logger takes trace records of {LOUD_TARGET}, which hold tokens and the \
             values of secrets: switch them off (ureq_proto=debug)"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Client, ClientOptions, Config};
    use crate::worker::StopToken;

    impl ResponseReader {
        /// A response whose body is read from `body` and not from a connection.
        pub(crate) fn of(body: impl Read + Send + Sync + 'static, call: CallContext) -> Self {
            Self {
                what: "GET test".into(),
                body: ResponseBody::Plain(ureq::Body::builder().reader(body).into_reader()),
                socket: None,
                authorization: None,
                body_bytes: 0,
                is_drained: false,
                told_bytes: 0,
                metrics: None,
                call,
            }
        }
    }

    /// A3: an update is not sent twice, so it may take as long as its caller allows.
    #[test]
    fn silence_ends_only_a_try_that_another_may_follow() {
        let config = Config::for_server("http://127.0.0.1:1").unwrap();
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let endpoint = &client.inner.context.endpoint;
        let agent = Agent::new(&endpoint.dialer, 1);
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
        for (is_slow, is_tried_again, has_limit) in [
            (false, true, true),
            (false, false, false),
            (true, true, false),
            (true, false, false),
        ] {
            let request = HttpRequest {
                payload: None,
                path: "/",
                gzip: false,
                first_byte: Duration::from_secs(1),
                second_try: None,
                sooner_if_kept: is_slow,
                of_collection: is_slow,
                accept: "application/json",
            };
            let trying = agent.limited(endpoint, &request, &call, is_tried_again);
            assert_eq!(
                trying.silence.is_some(),
                has_limit,
                "{is_slow} {is_tried_again}"
            );
        }
    }

    /// A3: there is time for a second try, unless the server is known to be slow.
    #[test]
    fn a_kept_connection_may_be_silent_for_half_of_what_is_left() {
        let millis = Duration::from_millis;
        let first_byte = millis(10_000);
        let rows = [
            (None, 0, Some(5_000)),
            (Some(60_000), 0, Some(5_000)),
            (Some(1_000), 20, Some(500)),
            (Some(1_000), 250, Some(500)),
            (Some(1_000), 251, None),
            (None, 2_501, None),
            (Some(0), 1, None),
        ];
        for (left, last_wait, expected) in rows {
            assert_eq!(
                kept_first_byte(first_byte, left.map(millis), millis(last_wait)),
                expected.map(millis),
                "{left:?} {last_wait}"
            );
        }
    }
}
