//! Answers as they come, undecoded and whatever their status: for the recorder, which passes them on.

use super::agent::{Answer, Ask, Body};
use super::blocking::{Blocking, Until};
use super::client::Client;
use super::requests;
use super::wakeup::WakeUp;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;
use crate::worker::{StopToken, Wake, WakeRegistration};

/// An answer whose body is read piece by piece.
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// Names in lower case; values that are no text are left out.
    pub(crate) headers: Vec<(String, String)>,
    body: Body,
    _registration: WakeRegistration,
}

impl Client {
    /// Sends `GET path`, for JSON that is not compressed. Not subject to the limiter: the program behind the
    /// recorder has its own. Blocks until the head of the answer, a limit of the transport, or the stop.
    ///
    /// # Errors
    ///
    /// What the transport met; an answer of any status is none.
    pub(crate) fn raw(&self, path: &str, stop: &StopToken) -> Result<RawAnswer, Error> {
        let inner = self.inner();
        let wake = WakeUp::new().map_err(|error| {
            Error::new(
                ErrorKind::Resources,
                format!("no descriptor for a request: {error}"),
            )
        })?;
        let as_wake: Arc<dyn Wake> = Arc::<WakeUp>::clone(&wake);
        let registration = stop.register(&as_wake);
        let call = Blocking::new(stop, &wake, Until::NEVER);
        let ask = Ask {
            path,
            gzip: false,
            first_byte: inner.common.options.list_first_byte_timeout,
            until: Until::NEVER,
            second_try: None,
            of_collection: false,
        };
        let what = requests::shown(&format!("GET {}{path}", inner.common.site.base));
        inner.common.site.dialer.refresh(&call);
        let sent = inner.pool.send(&inner.common.site, &ask, &call, &what)?;
        let response = sent.response;
        let headers = response.headers().iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        Ok(RawAnswer {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: Body {
                answer: Answer {
                    what,
                    body: response.into_body().into_reader(),
                    socket: sent.socket,
                    authorization: sent.authorization,
                },
                call,
            },
            _registration: registration,
        })
    }
}

impl RawAnswer {
    /// Reads what has come; 0 is the end of the body. Blocks until something comes, or the stop.
    ///
    /// # Errors
    ///
    /// The stop, or how the body broke off.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let read = self.body.read(into, Until::NEVER);
        read.map_err(|outcome| self.body.failed(outcome))
    }
}
