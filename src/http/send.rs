//! Requests of the program's own: any method and path, and the response as it came.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind as Io, Read};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::agent::{HttpRequest, Payload, ResponseReader};
use super::calls::admission::Urgency;
use super::calls::errors;
use super::client::Client;
use super::lister_watcher::{read_body, read_some};
use super::requests;
use crate::clock::{Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind};
use crate::object::visible;
use crate::policy::PolicyRequest;
use crate::retry::patiently;
use crate::setters::setters;
use crate::sync::Arc;
use crate::wire::{Buffer, Wiped};
use crate::worker::StopToken;

/// The headers that the transport sets, beside those that the configuration sets.
const OWN_HEADERS: &str = "accept-encoding authorization connection content-length expect host te \
                           trailer transfer-encoding upgrade";

/// The default of `Accept`.
const ACCEPT: &str = "application/json, */*";

/// A request of the program's own, for [`Client::send`] and [`Client::stream`].
///
/// # Examples
///
/// ```
/// use kubecache::http::Request;
/// use serde_json::json;
///
/// let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// let review = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
/// let request = Request::new("POST", path).query("dryRun", "All").json(&review)?;
/// # drop(request);
/// # Ok::<(), kubecache::Error>(())
/// ```
#[must_use]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    pub(super) body: Wiped,
    stop: StopToken,
}

impl Request {
    /// Makes a request of `method` (`GET`, `HEAD`, `OPTIONS`, `POST`, `PUT`, `PATCH` or `DELETE`)
    /// for `path` on the client's server.
    ///
    /// The path begins with a slash and may have a query. The client sends it as it is, after the
    /// path of the configuration's server: percent-encode what needs it. The client prefers JSON,
    /// and accepts any other type.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            body: Wiped::default(),
            stop: StopToken::never(),
        }
    }

    /// Makes a `GET` for `path`, as [`new`](Self::new) does.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// Adds a parameter of the query. Percent-encodes its value.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        requests::add_even_empty(&mut self.path, name, value);
        self
    }

    /// Adds a header. `Accept` replaces the client's own. Two headers of one name are both sent.
    ///
    /// The client sets the headers of the transport, such as `Host` and `Content-Length`, and those
    /// of its configuration, such as `Authorization` and `User-Agent`. A request with one of them
    /// fails.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body to the JSON of `value`, such as a [`serde_json::Value`]. Sets the header
    /// `Content-Type`, unless the request has one.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if `value` cannot be written as JSON.
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        self.body = json_bytes(value).map_err(|error| self.unusable("body", &error))?;
        let mut names = self.headers.iter().map(|(name, _)| name);
        if names.any(|name| name.eq_ignore_ascii_case("content-type")) {
            return Ok(self);
        }
        Ok(self.header("Content-Type", requests::JSON))
    }

    /// Checks the request, and returns its method, headers and body. `own` are the headers of the
    /// client's configuration.
    ///
    /// # Errors
    ///
    /// `Config` names the field that cannot be sent; `TooLarge` for a body beyond `bytes_max`.
    fn payload(&self, own: &HeaderMap, bytes_max: usize) -> Result<Payload<'_>, Error> {
        let known = requests::known_method(&self.method);
        let method = known.and_then(|known| Method::from_bytes(known.as_bytes()).ok());
        let fault = || format!("it is none of {}", requests::METHODS);
        let method = method.ok_or_else(|| self.unusable("method", &fault()))?;
        let (path, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let foreign = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'#' | b'\\');
        // Even if they are percent-encoded.
        let dotted = path.to_lowercase().replace("%2e", ".");
        let fault = if !path.starts_with('/') || path.starts_with("//") {
            "it does not begin with one slash: the server is the client's own"
        } else if self.path.bytes().any(foreign) {
            "it has a character that is to be percent-encoded"
        } else if dotted.split('/').any(|part| matches!(part, "." | "..")) {
            "it leads out of the server's own path"
        } else {
            ""
        };
        if !fault.is_empty() {
            return Err(self.unusable("path", &fault));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let field = format!("header {:?}", errors::printable(name));
            let named = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_name| self.unusable(&field, &"its name is no header's"))?;
            let mut kept = OWN_HEADERS.split(' ');
            if own.contains_key(&named) || kept.any(|name| name == named) {
                return Err(self.unusable(&field, &"the client sets it itself"));
            }
            let is_bare = value.is_ascii() && value.trim() == value;
            let value = HeaderValue::from_str(value).ok().filter(|_| is_bare);
            let value = value.ok_or_else(|| {
                let fault = "its value has a line break, a blank at an end, or a character that \
                             is not printable ASCII";
                self.unusable(&field, &fault)
            })?;
            headers.append(named, value);
        }
        if self.body.held() > bytes_max {
            return Err(too_large("the body", bytes_max).of_request(&format!("{self:?}")));
        }
        Ok(Payload {
            method,
            headers,
            body: &self.body,
        })
    }

    fn unusable(&self, field: &str, fault: &dyn fmt::Display) -> Error {
        Error::config(format!(
            "{self:?}: the request's {field} cannot be sent: {fault}"
        ))
    }

    fn is_update(&self) -> bool {
        !matches!(&*self.method, "GET" | "HEAD" | "OPTIONS")
    }
}

setters! { [] Request;
    /// Sets the body. The header `Content-Type` names its type. The bytes are overwritten before
    /// their memory is freed.
    body(body: impl Into<Vec<u8>>) = Wiped::from(body.into());

    /// Sets the stop that ends the request, and the reads of its stream. Default: none.
    stop(stop: &StopToken) = stop.clone();
}

/// Prints method and path alone.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = requests::shown(&self.path);
        let (method, path) = (visible(&self.method), errors::printable(path));
        write!(f, "{method} {path}")
    }
}

/// Writes `value` into one block of memory, because a growing vector leaves copies behind.
fn json_bytes(value: &(impl Serialize + ?Sized)) -> Result<Wiped, serde_json::Error> {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value)?;
    let mut bytes = Vec::with_capacity(counter.0);
    let written = serde_json::to_writer(&mut bytes, value);
    let bytes = Wiped::from(bytes);
    written.map(|()| bytes)
}

/// A successful response with its whole body. Its drop overwrites the body.
pub struct Response {
    status: u16,
    headers: HeaderMap,
    what: Arc<str>,
    body: Buffer,
}

impl Response {
    /// The HTTP status code, from 200 to 299.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The value of a header, whose name may have any case.
    pub fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        Some(String::from_utf8_lossy(self.headers.get(name)?.as_bytes()))
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        self.body.pending()
    }

    /// Decodes the body, such as to a [`serde_json::Value`]. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Undecodable`](crate::ErrorKind::Undecodable) if it is not the JSON of a `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(self.body()).map_err(|error| {
            // The error of the decoder may quote values of the body.
            let (what, line, column) = (&self.what, error.line(), error.column());
            let text = format!("the answer does not decode: line {line}, column {column}");
            Error::new(ErrorKind::Undecodable, text).of_request(what)
        })
    }
}

/// Prints no byte of the body.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.status)
    }
}

/// A successful response whose body is read as it comes. Its drop closes the connection.
///
/// A read blocks until bytes come, the body ends, the deadline passes, or the stop is raised. It
/// has no limit of silence. The stream holds 64 KiB of the body at most, and is none of the 16
/// requests that work at a time. A read's [`io::Error`] has an [`Error`] inside; [`TimedOut`] is
/// its kind for a [`Timeout`](crate::ErrorKind::Timeout). After an error each read fails with the
/// same one.
///
/// [`TimedOut`]: io::ErrorKind::TimedOut
pub struct ResponseStream {
    what: Arc<str>,
    /// The reader, or after its end the error.
    body: Result<ResponseReader, Option<Error>>,
}

impl Read for ResponseStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if let Ok(body) = &mut self.body {
            let until = body.call.whole;
            match read_some(body, into, until) {
                Ok(0) => self.body = Err(None),
                Ok(count) => return Ok(count),
                Err(error) => self.body = Err(Some(error)),
            }
        }
        let Err(Some(error)) = &self.body else {
            return Ok(0);
        };
        let is_late = error.kind() == ErrorKind::Timeout;
        let kind = if is_late { Io::TimedOut } else { Io::Other };
        Err(io::Error::new(kind, error.clone()))
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Client {
    /// Sends a request of the program's own. Returns its response if that is a success.
    ///
    /// Blocks until the whole response has come, within the limits of a list of a collection, at
    /// most until `deadline`. The rate limit counts the request. After a 401 the client sends it
    /// once more with renewed credentials. Apart from that, it never sends a request twice that may
    /// change something. It repeats no request after a wait:
    /// [`Error::retry_after`](crate::Error::retry_after) is how long the server asks to wait. If
    /// `deadline` has passed before the call, nothing is sent, and the error says so.
    ///
    /// # Errors
    ///
    /// The error of the server, with its [`Status`](crate::Error::status), or of the connection.
    /// [`TooLarge`](crate::ErrorKind::TooLarge) if a body exceeds
    /// [`DecodeOptions::item_bytes_max`](super::DecodeOptions::item_bytes_max).
    /// [`Config`](crate::ErrorKind::Config) names the field of a request that cannot be sent. If
    /// the server may have applied the request nevertheless, the text says so.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use kubecache::clock::Deadline;
    /// use kubecache::http::{Client, ClientOptions, Config, Request};
    /// use std::time::Duration;
    /// # let server = kubecache::testing::ApiServer::new()?;
    /// # let config = Config::for_server(&server.url())?;
    ///
    /// // let config = Config::infer()?;
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let soon = Duration::from_secs(10);
    /// let version = client.send(&Request::get("/version"), soon)?;
    /// let version: serde_json::Value = version.json()?;
    /// assert_eq!(version["major"], "1");
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&self, request: &Request, deadline: impl IntoDeadline) -> Result<Response, Error> {
        let deadline = deadline.into_deadline(&self.inner.context.options.clock);
        let metrics = &self.inner.context.endpoint.metrics;
        metrics.ended(&request.method, || {
            let (status, headers, mut answer) = self.open(request, deadline, false)?;
            let body = self.read_whole(&mut answer);
            let body =
                body.map_err(|error| errors::maybe_applied_if(request.is_update(), error))?;
            let (what, bytes) = (Arc::clone(&answer.what), answer.body_bytes);
            let response = Response {
                status,
                headers,
                what,
                body,
            };
            Ok((response, bytes))
        })
    }

    /// Sends a request of the program's own. Returns its response as a stream, such as the logs of
    /// a pod with `follow`.
    ///
    /// Blocks until the head of the response has come, at most until `deadline`, which also ends
    /// the reads of the stream. Otherwise works as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use kubecache::clock::Deadline;
    /// use kubecache::http::{Client, ClientOptions, Config, Request};
    /// use std::io::{BufRead, BufReader};
    /// # use kubecache::testing::{Answer, Exchange, FixtureServer, Recording};
    /// # let path = "/api/v1/namespaces/shop/pods/web-0/log?follow=true";
    /// # let text = Answer::text(200, "one\ntwo\n").header("Content-Type", "text/plain");
    /// # let recording = Recording::new().with(Exchange::get(path, text));
    /// # let server = FixtureServer::replaying(recording).start()?;
    /// # let config = Config::for_server(&server.url())?;
    ///
    /// // let config = Config::infer()?;
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let request = Request::get("/api/v1/namespaces/shop/pods/web-0/log");
    /// let request = request.query("follow", "true");
    /// for line in BufReader::new(client.stream(&request, Deadline::NEVER)?).lines() {
    ///     println!("{}", line?);
    /// }
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream(
        &self,
        request: &Request,
        deadline: impl IntoDeadline,
    ) -> Result<ResponseStream, Error> {
        let deadline = deadline.into_deadline(&self.inner.context.options.clock);
        let (_, _, answer) = self.open(request, deadline, true)?;
        Ok(ResponseStream {
            what: Arc::clone(&answer.what),
            body: Ok(answer),
        })
    }

    /// Sends a request as the policy says, and waits for the head of its response.
    fn open(
        &self,
        request: &Request,
        deadline: Deadline,
        is_stream: bool,
    ) -> Result<(u16, HeaderMap, ResponseReader), Error> {
        let inner = &self.inner;
        let (context, stop) = (&inner.context, &request.stop);
        let bytes_max = context.options.decode.item_bytes_max;
        let payload = request.payload(&context.endpoint.headers, bytes_max)?;
        let begun = inner.begin(&request.method, &Urgency::new(true), stop, deadline);
        let [call, asking] = begun.map_err(|error| {
            error.of_request(&context.endpoint.named(&request.method, &request.path))
        })?;
        let limit = context.options.list_first_byte_timeout;
        let sent = HttpRequest {
            payload: Some(&payload),
            path: &request.path,
            gzip: context.gzip && !is_stream,
            // The head of a stream may come as late as its first byte.
            first_byte: if is_stream { Duration::MAX } else { limit },
            second_try: None,
            sooner_if_kept: false,
            of_collection: false,
            accept: ACCEPT,
        };
        // The policy has no waits for this request; they would keep the slot.
        let ask = || inner.pool.ask(&context.endpoint, &sent, &asking);
        let (kind, clock) = (PolicyRequest::Raw, &context.options.clock);
        let (what, answer) = patiently(kind, clock, (deadline, stop), &|_| (), ask)?;
        let status = answer.response.status().as_u16();
        let headers = answer.headers();
        // Reads of a stream work without a slot, because they keep nothing.
        let reading = if is_stream { call } else { asking };
        Ok((status, headers, answer.into_answer(what, reading)))
    }

    /// Reads a body within the limits of the client's options.
    fn read_whole(&self, answer: &mut ResponseReader) -> Result<Buffer, Error> {
        let options = &self.inner.context.options;
        let bytes_max = options.decode.item_bytes_max;
        let body = read_body(answer, options, bytes_max)?;
        if body.pending().len() > bytes_max {
            return Err(answer.failed(too_large("the answer", bytes_max)));
        }
        Ok(body)
    }
}

fn too_large(what: &str, bytes_max: usize) -> Error {
    let text = format!(
        "{what} is larger than {bytes_max} bytes; DecodeOptions::item_bytes_max raises the limit"
    );
    Error::new(ErrorKind::TooLarge, text)
}
