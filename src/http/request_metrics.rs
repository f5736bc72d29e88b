//! Tells the hook of a client what its requests do.

use super::client_metric::{ClientMetric, ClientState};
use crate::clock::Clock;
use crate::error::Error;
use crate::hooks::{Hook, Telemetry};
use crate::sync::Arc;

/// The hook of a client, and the server's name in what it is told. Without a hook it does nothing.
pub(crate) struct RequestMetrics {
    telemetry: Telemetry<ClientMetric, ClientState>,
    host: Arc<str>,
}

impl RequestMetrics {
    /// Tells `hook` that a client of `host` was made; `look` is its state.
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

    /// Takes a permit of the rate limit by `wait`, and tells how long that took.
    pub(crate) fn limited<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.telemetry.time(wait, |waited, _| {
            let host = Arc::clone(&self.host);
            ClientMetric::RateLimited { host, waited }
        })
    }

    /// Tells of a request that was sent, and of the status code of its answer, if one came.
    pub(crate) fn sent(&self, code: Option<u16>, is_retry: bool) {
        self.telemetry.tell(|| ClientMetric::RequestSent {
            host: Arc::clone(&self.host),
            code,
            is_retry,
        });
    }

    /// Tells of so many bytes of a body that the decoder took, and how many of all it passed over.
    pub(crate) fn decoded(&self, bytes: usize, skipped_bytes: usize) {
        self.telemetry.tell(|| ClientMetric::BodyDecoded {
            host: Arc::clone(&self.host),
            bytes,
            skipped_bytes,
        });
    }

    /// Does a get or a list of one page by `request`, which returns the bytes of the body too, and
    /// tells of its end.
    pub(crate) fn ended<T>(
        &self,
        request: impl FnOnce() -> Result<(T, usize), Error>,
    ) -> Result<T, Error> {
        let ended = self.telemetry.time(request, |took, result| {
            let body_bytes = result.as_ref().ok().map(|(_, bytes)| *bytes);
            ClientMetric::RequestEnded {
                host: Arc::clone(&self.host),
                took,
                body_bytes,
            }
        });
        ended.map(|(value, _bytes)| value)
    }
}
