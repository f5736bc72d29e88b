//! One ureq agent per lister-watcher, and one that getters share: requests out, answers in, one retry where it helps.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Duration;

use ureq::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use ureq::http::{HeaderMap, HeaderValue, Request, Response};

use super::blocking::{self, Blocking, Until};
use super::buffers::UNREAD_BYTES_MAX;
use super::credentials::Credentials;
use super::dialer::{Dialer, Dialing, NoLookup};
use super::failure::{self, Phase};
use super::halt::{Halt, Limit, Outcome};
use super::requests;
use crate::error::{Error, ErrorKind};
use crate::list_watch::RequestPhase;
use crate::sync::{Arc, Mutex};

/// As much of an answer that is no success is read.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

/// A kept connection older than this is not used again: servers close idle ones after 90 s and more.
const IDLE_AGE_MAX: Duration = Duration::from_secs(75);

/// The trace records of this target carry headers and bodies, byte by byte.
const LOUD_TARGET: &str = "ureq_proto::util";

/// What all requests of a client have in common.
pub(crate) struct Site {
    /// Scheme, authority and base path.
    pub(crate) base: String,
    /// The headers of every request but `Authorization` and `Accept-Encoding`.
    pub(crate) headers: HeaderMap,
    pub(crate) credentials: Credentials,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) body_idle: Duration,
}

/// One request.
pub(crate) struct Ask<'a> {
    pub(crate) path: &'a str,
    pub(crate) gzip: bool,
    pub(crate) first_byte: Duration,
    pub(crate) until: Until,
    pub(crate) second_try: Option<SecondTry<'a>>,
    /// The path is a collection's: a 404 says that the server does not serve it, and nothing of an object.
    pub(crate) of_collection: bool,
}

/// A request that meets silence goes out once more, on a new connection: one of several servers behind an address may be
/// dead.
pub(crate) struct SecondTry<'a> {
    /// The silence.
    pub(crate) after: Duration,
    /// Waits until the second request may go.
    pub(crate) count: &'a dyn Fn() -> Result<(), Error>,
}

/// A ureq agent with its pool of connections.
pub(crate) struct Agent {
    dialer: Arc<Dialer>,
    keep: usize,
    /// Made by the first request: not on the thread that makes lister-watchers.
    inner: Mutex<Option<ureq::Agent>>,
}

/// A successful answer, its body unread.
pub(crate) struct Answer {
    /// `GET` and the whole URL.
    pub(crate) what: String,
    pub(crate) body: ureq::BodyReader<'static>,
    /// What the body comes in on.
    pub(crate) socket: Option<Arc<TcpStream>>,
}

impl Site {
    /// The headers of every request, `headers` among them.
    ///
    /// # Errors
    ///
    /// `Config`, when no header can carry a value.
    pub(crate) fn headers(
        headers: &[(String, String)],
        user_agent: &str,
    ) -> Result<HeaderMap, Error> {
        let invalid = |name: &str| {
            let message = format!("no header can carry the value of {name}");
            Error::new(ErrorKind::Config, message)
        };
        let mut map = HeaderMap::new();
        map.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let user_agent =
            HeaderValue::from_str(user_agent).map_err(|_value| invalid("User-Agent"))?;
        map.insert(USER_AGENT, user_agent);
        for (name, value) in headers {
            let parsed = name.parse::<ureq::http::HeaderName>();
            let value = HeaderValue::from_str(value);
            let (Ok(parsed), Ok(value)) = (parsed, value) else {
                return Err(invalid(name));
            };
            map.append(parsed, value);
        }
        Ok(map)
    }
}

impl Agent {
    /// An agent that keeps up to `keep` idle connections.
    pub(crate) fn new(dialer: &Arc<Dialer>, keep: usize) -> Self {
        Self {
            dialer: Arc::clone(dialer),
            keep,
            inner: Mutex::new(None),
        }
    }

    /// Closes the connections that are idle; those in use end with their bodies.
    pub(crate) fn disconnect(&self) {
        let before = self.inner.lock().take();
        drop(before);
    }

    fn inner(&self) -> ureq::Agent {
        let mut inner = self.inner.lock();
        inner
            .get_or_insert_with(|| build(&self.dialer, self.keep))
            .clone()
    }

    /// Sends a request and waits for the head of its answer, by `call`.
    ///
    /// A 401 is answered by one more request if the credentials can be read anew, and a request that met a kept
    /// connection which the server had closed meanwhile goes out again on another.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met.
    pub(crate) fn ask(&self, site: &Site, ask: &Ask<'_>, call: &Blocking) -> Result<Answer, Error> {
        let what = requests::shown(&format!("GET {}{}", site.base, ask.path));
        site.dialer.refresh();
        let (mut response, mut socket) = self.send(site, ask, call, &what)?;
        if response.status() == 401 && site.credentials.rejected() {
            drop(read_refusal(&what, response, site, ask, call));
            (response, socket) = self.send(site, ask, call, &what)?;
        }
        let status = response.status();
        log::debug!("{what}: {status}");
        if status.is_redirection() {
            let location = header(&response, "location");
            return Err(failure::redirected(&what, status.as_u16(), &location));
        }
        if !status.is_success() {
            return Err(read_refusal(&what, response, site, ask, call));
        }
        let content_type = header(&response, "content-type");
        if !content_type.is_empty() && !content_type.contains("json") {
            return Err(failure::not_json(&what, &content_type));
        }
        // Making a reader of a compressed body reads the beginning of it.
        let entered = call.until_idle(site.body_idle).enter();
        let body = response.into_body().into_reader();
        drop(entered);
        Ok(Answer { what, body, socket })
    }

    /// Sends a request, on another connection if a kept one was closed meanwhile or the server is silent; an answer of
    /// any status is one.
    pub(crate) fn send(
        &self,
        site: &Site,
        ask: &Ask<'_>,
        call: &Blocking,
        what: &str,
    ) -> Result<(Response<ureq::Body>, Option<Arc<TcpStream>>), Error> {
        refuse_loud_logs()?;
        let mut second_try = ask.second_try.as_ref();
        let (mut first_byte, mut tried) = (ask.first_byte, String::new());
        loop {
            if call.stop.is_stopped() {
                return Err(Error::stopped(what));
            }
            let request = request(site, ask, what)?;
            let context = Blocking {
                until: ask.until,
                first_byte: Some((first_byte, ask.until)),
                silence: second_try.map(|second| second.after),
                output_bytes: head_bytes(&request),
                dialed: false,
                ..call.clone()
            };
            let entered = context.enter();
            let answered = self.inner().run(request);
            let (dialed, socket) = (blocking::has_dialed(), blocking::socket());
            drop(entered);
            let outcome = match answered {
                Ok(response) => {
                    call.enter_phase(RequestPhase::Body {
                        status: response.status().as_u16(),
                        bytes: 0,
                    });
                    return Ok((response, socket));
                }
                Err(error) => Outcome::from(error),
            };
            if let (Outcome::Halt(Halt::Limit(Limit::Silence(silence))), Some(second)) =
                (&outcome, second_try.take())
            {
                // The silent connection is closed before any wait; kept ones are older than it.
                drop(socket);
                self.disconnect();
                call.give_slot_back();
                let (silence, allowed) = (*silence, (second.count)());
                if allowed.is_err() {
                    return Err(failure::failed(what, Phase::Head, call.explain(outcome)));
                }
                call.resume()
                    .map_err(|halt| failure::failed(what, Phase::Head, Outcome::Halt(halt)))?;
                log::debug!("{what}: silent for {silence:.1?}, tried again on a new connection");
                first_byte = first_byte.saturating_sub(silence);
                tried = format!(
                    ": on a second connection, after {silence:.1?} of silence on the first"
                );
                continue;
            }
            // Each turn uses up one kept connection, so this ends.
            if dialed || !is_closed_by_peer(&outcome) {
                let what = format!("{what}{tried}");
                return Err(failure::failed(&what, Phase::Head, call.explain(outcome)));
            }
        }
    }
}

fn build(dialer: &Arc<Dialer>, keep: usize) -> ureq::Agent {
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
    ureq::Agent::with_parts(config, Dialing(Arc::clone(dialer)), NoLookup)
}

fn request(site: &Site, ask: &Ask<'_>, what: &str) -> Result<Request<()>, Error> {
    let unwritable = |error: ureq::http::Error| {
        failure::failed(what, Phase::Head, Outcome::Ureq(ureq::Error::Http(error)))
    };
    let mut request = Request::get(format!("{}{}", site.base, ask.path))
        .body(())
        .map_err(unwritable)?;
    let headers = request.headers_mut();
    headers.clone_from(&site.headers);
    let encoding = if ask.gzip { "gzip" } else { "identity" };
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    if let Some(authorization) = site.credentials.authorization()? {
        let value = HeaderValue::from_str(&authorization);
        let mut value = value.map_err(|error| unwritable(error.into()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// An upper bound of the request's head, so that it is written whole.
fn head_bytes(request: &Request<()>) -> usize {
    const LINE: usize = 64;
    let headers = request.headers().iter();
    let lines = headers.map(|(name, value)| {
        let line = name.as_str().len().saturating_add(value.len());
        line.saturating_add(LINE)
    });
    let path = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    let host = request.uri().host().map_or(0, str::len);
    let head = lines.fold(path.saturating_add(host), usize::saturating_add);
    head.saturating_add(256)
}

fn is_closed_by_peer(outcome: &Outcome) -> bool {
    let Outcome::Halt(Halt::Io(error)) = outcome else {
        return false;
    };
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}

fn header(response: &Response<ureq::Body>, name: &str) -> String {
    let value = response.headers().get(name);
    let text = value.and_then(|value| value.to_str().ok());
    text.unwrap_or_default().to_owned()
}

/// Reads what a refusal says, so that its connection can be used again.
fn read_refusal(
    what: &str,
    response: Response<ureq::Body>,
    site: &Site,
    ask: &Ask<'_>,
    call: &Blocking,
) -> Error {
    let code = response.status().as_u16();
    let retry_after = failure::retry_after(Some(&header(&response, "retry-after")));
    let mut text = Vec::new();
    let entered = call.until_idle(site.body_idle).enter();
    let mut reader = response.into_body().into_reader().take(REFUSAL_BYTES_MAX);
    let read = reader.read_to_end(&mut text);
    drop(entered);
    if let Err(error) = read {
        let outcome = Outcome::from(error);
        if matches!(outcome, Outcome::Halt(Halt::Stopped)) {
            return failure::failed(what, Phase::Body, outcome);
        }
        // The code has come: it says more than how the rest of the answer was lost.
    }
    if ask.of_collection && code == 404 {
        return failure::not_served(what, &text);
    }
    failure::refused(what, code, &text, retry_after)
}

/// # Errors
///
/// `Config`, when the program's logger would be given what is in the requests and answers.
fn refuse_loud_logs() -> Result<(), Error> {
    if log::log_enabled!(target: LOUD_TARGET, log::Level::Trace) {
        return Err(Error::new(
            ErrorKind::Config,
            format!(
                "the program's logger takes trace records of {LOUD_TARGET}, which hold tokens and the values of \
                 secrets: switch them off (ureq_proto=debug)"
            ),
        ));
    }
    Ok(())
}

/// A body that is read by a call.
pub(crate) struct Body {
    pub(crate) answer: Answer,
    pub(crate) call: Blocking,
}

impl Body {
    /// Reads what has come and does not wait for more. 0 is the end of the body.
    pub(crate) fn read_what_is_there(&mut self, into: &mut [u8]) -> Result<usize, Outcome> {
        let entered = Blocking {
            only_what_is_there: true,
            ..self.call.clone()
        }
        .enter();
        let read = self.answer.body.read(into);
        drop(entered);
        read.map_err(Outcome::from)
    }

    /// Reads what has come; blocks by the call, at most until `until`. 0 is the end of the body.
    pub(crate) fn read(&mut self, into: &mut [u8], until: Until) -> Result<usize, Outcome> {
        let entered = Blocking {
            until,
            ..self.call.clone()
        }
        .enter();
        let read = self.answer.body.read(into);
        drop(entered);
        if let (Ok(count), Some(progress)) = (&read, &self.call.progress) {
            progress.came(*count);
        }
        read.map_err(Outcome::from)
    }

    pub(crate) fn failed(&self, outcome: Outcome) -> Error {
        failure::failed(&self.answer.what, Phase::Body, self.call.explain(outcome))
    }
}
