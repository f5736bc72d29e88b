//! Undecoded answers of any status, for the recorder, which passes them on.

use crate::error::Error;
use crate::http::{CallContext, Client, HttpRequest, JSON, NamedDeadline, ResponseReader};
use crate::worker::StopToken;

/// An answer whose body is not read yet.
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// The headers, with names in lower case, without values that are not text.
    pub(crate) headers: Vec<(String, String)>,
    answer: ResponseReader,
}

impl Client {
    /// Sends `GET path`, for uncompressed JSON.
    ///
    /// The rate limit does not apply, because the program behind the recorder has its own. Blocks
    /// until the head of the answer, a limit of the transport, or the stop.
    ///
    /// # Errors
    ///
    /// The failure on the way. An answer of any status is not an error.
    pub(crate) fn raw(&self, path: &str, stop: &StopToken) -> Result<RawAnswer, Error> {
        let inner = &self.inner;
        let call = CallContext::new(stop, NamedDeadline::NEVER)?;
        let request = HttpRequest {
            payload: None,
            path,
            gzip: false,
            first_byte: inner.context.options.list_first_byte_timeout,
            second_try: None,
            sooner_if_kept: false,
            of_collection: false,
            accept: JSON,
        };
        let endpoint = &inner.context.endpoint;
        let what = endpoint.named("GET", path);
        endpoint.dialer.refresh(&call);
        let sent = inner.pool.send(endpoint, &request, &call, &what)?;
        let headers = sent.response.headers().iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(RawAnswer {
            status: sent.response.status().as_u16(),
            headers: headers.collect(),
            answer: sent.into_answer(what, call),
        })
    }
}

impl RawAnswer {
    /// Reads the bytes that have come; 0 is the end of the body. Blocks until bytes come, or the
    /// stop.
    ///
    /// # Errors
    ///
    /// `Stopped`, or the failure of the body.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let read = self.answer.read(into, NamedDeadline::NEVER);
        read.map_err(|interrupt| self.answer.cut_off(interrupt))
    }
}
