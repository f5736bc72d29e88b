//! The crate's only error: opaque, cheap to clone, with a kind, the API's status if there is one,
//! and its sources.

mod derives;
mod status;
mod visible;

pub(crate) use derives::{clone_of, debug_of, default_of};
pub use status::{Reason, Status};
pub use visible::visible;
use visible::visible_lines;

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use crate::sync::Arc;

/// The error of every call of the crate. Its `Display` has the request, the server's own words, the
/// number of attempts, and the time of the first.
///
/// `Display` does not repeat what [`source`](StdError::source) returns. Cloning copies a pointer.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// The kind of an [`Error`], which tells its caller how to react.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server answered that the object does not exist.
    NotFound,
    /// The server refuses this identity; the message names verb and resource.
    Forbidden,
    /// The server does not accept the credentials.
    Unauthorized,
    /// The server's history no longer has the requested resource version.
    Expired,
    /// The server or its proxy asks to slow down.
    TooManyRequests,
    /// The API server reported another failure; [`Error::status`] has it.
    Api,
    /// No registered pod references the object. This is not an API error: register the pod first.
    NotRegistered,
    /// The cache was not filled before the deadline; see [`Error::last_error`].
    NotSynced,
    /// A time limit passed: of connecting, of the first byte, of silence, or the caller's deadline.
    /// The message names it.
    Timeout,
    /// Name lookup, connect or the connection itself failed.
    Unreachable,
    /// The TLS handshake failed, or the TLS configuration cannot work.
    Tls,
    /// The server's answer breaks the protocol: malformed, cut off, or of another type.
    Protocol,
    /// A line or an item is larger than the stated maximum.
    TooLarge,
    /// An answer is older than the known content.
    Stale,
    /// A well-formed object does not decode into its type.
    Undecodable,
    /// The call or its owner was stopped.
    Stopped,
    /// Code of the program panicked, or a thread of the crate did; the message names it.
    Panicked,
    /// The configuration cannot work; the message names file and field.
    Config,
    /// There are no credentials: the plugin or the program's token source failed. The message names
    /// it and a remedy.
    Credentials,
    /// No configuration names a cluster; the message lists each place that was searched.
    NotConfigured,
    /// The manager runs as many reflectors as its limit allows. It tries again when one ends.
    TooManyReflectors,
    /// The system refuses a thread or a descriptor.
    Resources,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// The request that failed, and the caller's activity; empty until it is named.
    request: String,
    message: String,
    status: Option<Status>,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// For a wait that ended without an answer: the number of failed attempts, the time of the
    /// first, and the last failure.
    attempts: u32,
    since: Option<Instant>,
    last_error: Option<Error>,
}

impl Error {
    /// Makes an error of `kind` whose message needs no other context.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner::new(kind, &message.into())))
    }

    /// Makes the error of `request` (such as `GET /api/v1/pods`) from the server's status.
    pub fn from_status(status: Status) -> Self {
        let kind = match status.reason() {
            Reason::NotFound => ErrorKind::NotFound,
            Reason::Forbidden => ErrorKind::Forbidden,
            Reason::Unauthorized => ErrorKind::Unauthorized,
            Reason::TooManyRequests => ErrorKind::TooManyRequests,
            Reason::Expired | Reason::Gone => ErrorKind::Expired,
            Reason::Other(_) if status.is_expired() => ErrorKind::Expired,
            Reason::Timeout
            | Reason::ServerTimeout
            | Reason::ServiceUnavailable
            | Reason::InternalError
            | Reason::BadRequest
            | Reason::Invalid
            | Reason::StoreReadError
            | Reason::Other(_) => ErrorKind::Api,
        };
        Self::new(kind, status.to_string()).map(|inner| {
            inner.retry_after = status.retry_after();
            inner.status = Some(status);
        })
    }

    /// A configuration that cannot work; the message names file and field.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// Makes the error of an owner whose thread the system refuses to start.
    pub(crate) fn no_thread(whose: &str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| {
            let text = format!("no thread for {whose}: {error}");
            Self::new(ErrorKind::Resources, text).with_source(error)
        }
    }

    /// Makes the error of an object that does not exist, in the API's words: `secret "db" not
    /// found`.
    pub fn not_found(resource: &str, name: &str) -> Self {
        let text = format!("{} \"{}\" not found", visible(resource), visible(name));
        Self::new(ErrorKind::NotFound, text)
    }

    /// Makes the error of an object without references, in the kubelet's words.
    pub fn not_registered(namespace: &str, name: &str) -> Self {
        let (namespace, name) = (visible(namespace), visible(name));
        let text = format!("object \"{namespace}\"/\"{name}\" not registered");
        Self::new(ErrorKind::NotRegistered, text)
    }

    /// Makes the error of a call that ended because its owner was stopped.
    pub fn stopped(what: &str) -> Self {
        Self::new(ErrorKind::Stopped, "stopped").of_request(what)
    }

    /// Adds the cause as the source. `Display` does not repeat its text.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.map(|inner| inner.source = Some(Arc::new(source)))
    }

    /// Adds the cause as the source, if there is one.
    #[must_use]
    pub(crate) fn caused_by(self, cause: Option<impl StdError + Send + Sync + 'static>) -> Self {
        match cause {
            Some(cause) => self.with_source(cause),
            None => self,
        }
    }

    /// Adds the wait that the server asked for. The reflector waits this long instead of its
    /// backoff.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        self.map(|inner| inner.retry_after = Some(wait))
    }

    /// Prefixes the message with the caller's activity: `listing secrets in shop: …`.
    #[must_use]
    pub fn context(self, what: &str) -> Self {
        self.map(|inner| {
            let first = if inner.request.is_empty() {
                &mut inner.message
            } else {
                &mut inner.request
            };
            *first = format!("{what}: {first}");
        })
    }

    /// Names the request that failed, unless it has a name.
    pub(crate) fn of_request(self, request: &str) -> Self {
        if self.0.request.is_empty() {
            self.asked_as(request)
        } else {
            self
        }
    }

    /// Names the request as its caller knows it, instead of its earlier name.
    pub(crate) fn asked_as(self, request: &str) -> Self {
        self.map(|inner| inner.request = visible(request).into_owned())
    }

    /// The text without the request, for another error of the same request.
    pub(crate) fn cause(&self) -> &str {
        &self.0.message
    }

    /// Applies `change` to each text. Leaves out a source that would still show the old text.
    pub(crate) fn map_texts(self, change: &dyn Fn(&str) -> String) -> Self {
        let hides = |source: &dyn StdError| {
            let shown = format!("{source} {source:?}");
            change(&shown) != shown
        };
        self.map(|inner| {
            inner.request = change(&inner.request);
            inner.message = change(&inner.message);
            inner.status = inner.status.take().map(|status| status.map_texts(change));
            inner.source = inner.source.take().filter(|source| !hides(&**source));
        })
    }

    /// Appends a remedy to the message.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        self.map(|inner| inner.message = format!("{}: {hint}", inner.message))
    }

    /// Returns the kind, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the API's own status, if the server sent one.
    pub fn status(&self) -> Option<&Status> {
        self.0.status.as_ref()
    }

    /// Returns how long the server asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the kind is [`ErrorKind::NotFound`]: the server answered that the object does not
    /// exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// Whether the kind is [`ErrorKind::Stopped`].
    pub fn is_stopped(&self) -> bool {
        self.kind() == ErrorKind::Stopped
    }

    /// Returns how many attempts failed before a wait, or a repeated read, ended without an answer;
    /// 0 for other errors.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns when the first attempt began, for a wait that ended without an answer.
    pub fn since(&self) -> Option<Instant> {
        self.0.since
    }

    /// Returns the last failure of a wait that ended without an answer. This error's `Display`
    /// includes its text.
    pub fn last_error(&self) -> Option<&Error> {
        self.0.last_error.as_ref()
    }

    /// Adds the failures of the attempts of a wait that ended without an answer.
    #[must_use]
    pub(crate) fn with_failures(self, attempts: u32, since: Instant, last: Option<Self>) -> Self {
        self.map(|inner| {
            (inner.attempts, inner.since) = (attempts, Some(since));
            inner.last_error = last;
        })
    }

    /// Marks a part of this error's text as the words of a failure, which may be a server's.
    pub(crate) fn with_last(self, last: Self) -> Self {
        self.map(|inner| inner.last_error = Some(last))
    }

    fn map(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        change(&mut inner);
        Self(Arc::new(inner))
    }
}

impl Inner {
    /// Only the message's own line breaks are left of its control characters.
    fn new(kind: ErrorKind, message: &str) -> Self {
        Self {
            kind,
            request: String::new(),
            message: visible_lines(message).into_owned(),
            status: None,
            retry_after: None,
            source: None,
            attempts: 0,
            since: None,
            last_error: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, message) = (&self.0.request, &self.0.message);
        let colon = if request.is_empty() { "" } else { ": " };
        write!(f, "{request}{colon}{message}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.0.source.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pod, a server or a program named forges no line and moves no cursor.
    #[test]
    fn no_text_of_an_error_has_a_control_character_of_a_name() {
        use crate::failures::Failures;

        let evil = "db\nERROR all is lost\u{1b}[31m";
        let now = crate::clock::Clock::system().now();
        let last = Error::not_found("secret", evil);
        let mut failures = Failures::none_since(now);
        let silent = failures.timed_out(evil, now);
        failures.add(last.clone(), now, now);
        let plain = Error::new(ErrorKind::Api, "plain");
        let rows = [
            (last, 0),
            (Error::not_registered(evil, evil), 0),
            (plain.clone().of_request(evil), 0),
            (plain.asked_as(evil), 0),
            (Error::from_status(Status::new(500, evil)), 0),
            // The lines of these are the crate's own.
            (silent, 1),
            (failures.not_synced(evil, now), 1),
            (Error::new(ErrorKind::Api, "\u{1b}one\n\u{7}two\r"), 1),
        ];
        for (error, lines) in rows {
            let text = error.to_string();
            let controls: Vec<_> = text.chars().filter(|char| char.is_control()).collect();
            assert_eq!(controls, vec!['\n'; lines], "{text:?}");
            assert!(!text.contains("\nERROR"), "{text:?}");
        }
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
