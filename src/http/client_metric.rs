//! The events that a client reports to the program's hook for metrics.

use std::time::Duration;

use super::certificates::client_certificate::ClientCertificate;
use super::credentials::{CredentialsStatus, PluginRun};
use super::requests::known_method;
use crate::clock::Clock;
use crate::error::Error;
use crate::hooks::{Hook, Reading, Telemetry};
use crate::sync::Arc;

/// An event that a client reports to the hook of
/// [`ClientOptions::metrics`](super::ClientOptions::metrics) as it happens.
///
/// `host` is host and port of the client's server. No event holds a path, a query or a credential.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientMetric {
    /// A client was made. The thread that makes it calls the hook.
    Started(Reading<ClientState>),
    /// A request waited for a permit of the client's rate limit, perhaps for no time. Openings of
    /// watches do not wait. The thread that waited calls the hook.
    RateLimited {
        /// Host and port of the server.
        host: Arc<str>,
        /// The method, such as `GET`.
        method: &'static str,
        /// How long it waited, also if it got no permit.
        waited: Duration,
    },
    /// A request was sent, and the head of its answer came, or no answer. The thread that sent it
    /// calls the hook. A request that the client sends again because the server had closed the kept
    /// connection counts once.
    RequestSent {
        /// Host and port of the server.
        host: Arc<str>,
        /// The method, such as `GET`.
        method: &'static str,
        /// The status code of the answer; `None` without an answer, or without credentials to send.
        code: Option<u16>,
        /// Whether the client sent the same request before: after a 401, after silence, or for a
        /// one-shot read that the server refused for a while.
        is_retry: bool,
    },
    /// A get, the list of one page, a write or a [`Client::send`](super::Client::send) ended. The
    /// thread that asked for it calls the hook. Watches and streams are not reported.
    RequestEnded {
        /// Host and port of the server.
        host: Arc<str>,
        /// The method, such as `GET`.
        method: &'static str,
        /// The whole time: the wait for the rate limit, retries, and reading the body.
        took: Duration,
        /// The length of the body, after decompression; `None` if the request failed.
        body_bytes: Option<usize>,
    },
    /// The decoder read bytes of a list, a get or a watch. The thread that decodes calls the hook.
    /// Bodies of writes and of [`Client::send`](super::Client::send) are not reported.
    BodyDecoded {
        /// Host and port of the server.
        host: Arc<str>,
        /// How many bytes came since the last report, after decompression. 0 if they came before.
        bytes: usize,
        /// How many bytes of the decoded objects the decoder passed over: the managed fields and
        /// kubectl's last-applied annotation ([`Trim::Skip`](super::Trim)). For metadata alone,
        /// this includes the rest of the object.
        skipped_bytes: usize,
    },
    /// A request of this client ran the credential plugin, or the policy forbade that. Clients of
    /// one configuration share the run; one of them reports it.
    PluginRun(PluginRun),
}

/// A client's state at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientState {
    /// The client certificate that new connections show. `None`, if there is none, or if it names
    /// no end.
    pub certificate: Option<ClientCertificate>,
    /// The source of the credentials; `None` if they are fixed, or if there are none.
    pub credentials: Option<CredentialsStatus>,
}

/// The hook of a client, and the server's name in its events. Without a hook it does nothing.
pub(crate) struct RequestMetrics {
    telemetry: Telemetry<ClientMetric, ClientState>,
    host: Arc<str>,
}

impl RequestMetrics {
    /// Reports a new client of `host` to `hook`; `look` reads the client's state.
    ///
    /// # Errors
    ///
    /// `Panicked` if the hook does.
    pub(crate) fn start(
        hook: Option<Hook<ClientMetric>>,
        host: &Arc<str>,
        clock: &Clock,
        look: impl Fn() -> ClientState + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let started = ClientMetric::Started;
        Ok(Self {
            telemetry: Telemetry::start(hook, "a client", clock, look, started)?,
            host: Arc::clone(host),
        })
    }

    /// Waits by `wait` for a permit of the rate limit, and reports how long that took.
    pub(crate) fn limited<T>(&self, method: &str, wait: impl FnOnce() -> T) -> T {
        self.telemetry
            .time(wait, |waited, _| ClientMetric::RateLimited {
                host: Arc::clone(&self.host),
                method: label(method),
                waited,
            })
    }

    /// Reports a request that was sent, and the status code of its answer, if one came.
    pub(crate) fn sent(&self, method: &str, code: Option<u16>, is_retry: bool) {
        self.telemetry.tell(|| ClientMetric::RequestSent {
            host: Arc::clone(&self.host),
            method: label(method),
            code,
            is_retry,
        });
    }

    /// Reports the bytes of a body that the decoder read, and those of its objects that it passed
    /// over.
    pub(crate) fn decoded(&self, bytes: usize, skipped_bytes: usize) {
        self.telemetry.tell(|| ClientMetric::BodyDecoded {
            host: Arc::clone(&self.host),
            bytes,
            skipped_bytes,
        });
    }

    /// Runs `request`, which reads its whole answer, and reports its end. `request` also returns
    /// the bytes of the body.
    pub(crate) fn ended<T>(
        &self,
        method: &str,
        request: impl FnOnce() -> Result<(T, usize), Error>,
    ) -> Result<T, Error> {
        let ended = self.telemetry.time(request, |took, result| {
            let body_bytes = result.as_ref().ok().map(|(_, bytes)| *bytes);
            ClientMetric::RequestEnded {
                host: Arc::clone(&self.host),
                method: label(method),
                took,
                body_bytes,
            }
        });
        ended.map(|(value, _bytes)| value)
    }
}

/// A program may name any method; one that cannot be sent is no series of its own.
fn label(method: &str) -> &'static str {
    known_method(method).unwrap_or("<other>")
}
