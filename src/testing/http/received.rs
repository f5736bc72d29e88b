//! The log of a test server: its requests, their times, and their answers.

use std::time::Instant;

use super::message::RequestMessage;

/// The maximum number of logged requests, because a server may live long. Beyond it the log forgets
/// the older half.
const LOGGED_MAX: usize = 100_000;

/// The maximum size of the log in bytes, for requests with long paths and headers.
const LOGGED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The size that a request counts for, besides its texts.
const RECEIVED_BYTES: usize = 256;

/// The size that a header or a parameter counts for, besides its texts.
const PAIR_BYTES: usize = 48;

/// The requests that a server remembers, in order, without their bodies.
#[derive(Debug, Default)]
pub(in crate::testing) struct RequestLog {
    remembered: Vec<Received>,
    forgotten: usize,
    bytes: usize,
}

impl RequestLog {
    pub(super) fn push(&mut self, request: &RequestMessage, at: Instant, answered: Answered) {
        let size = size(request);
        let all = self.bytes.saturating_add(size);
        if self.remembered.len() >= LOGGED_MAX || all > LOGGED_BYTES_MAX {
            let half = self.remembered.len().div_ceil(2);
            let older = self.remembered.drain(..half);
            self.forgotten = self.forgotten.saturating_add(older.len());
            drop(older);
            let sizes = self.remembered.iter().map(|one| self::size(&one.request));
            self.bytes = sizes.fold(0, usize::saturating_add);
        }
        self.bytes = self.bytes.saturating_add(size);
        self.remembered.push(Received {
            request: RequestMessage {
                method: request.method.clone(),
                target: request.target.clone(),
                is_http_1_0: request.is_http_1_0,
                headers: request.headers.clone(),
                body: Vec::new(),
            },
            at,
            answered,
        });
    }

    pub(in crate::testing) fn remembered(&self) -> &[Received] {
        &self.remembered
    }

    /// The number of requests so far.
    pub(in crate::testing) fn count(&self) -> usize {
        self.forgotten.saturating_add(self.remembered.len())
    }
}

/// The approximate memory of a request without its body.
fn size(request: &RequestMessage) -> usize {
    let RequestMessage {
        method,
        target,
        is_http_1_0: _,
        headers,
        body: _,
    } = request;
    let texts = target.query.iter().chain(headers);
    let texts = texts.map(|(name, value)| {
        let text = name.len().saturating_add(value.len());
        text.saturating_add(PAIR_BYTES)
    });
    let line = method.len().saturating_add(target.path.len());
    texts.fold(line.saturating_add(RECEIVED_BYTES), usize::saturating_add)
}

/// A request that the server received. Its `Debug` prints no header.
#[derive(Clone)]
pub struct Received {
    pub(super) request: RequestMessage,
    pub(super) at: Instant,
    pub(super) answered: Answered,
}

/// How the server answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// A recorded answer.
    Recorded,
    /// An answer to a get of one object, derived from the recording.
    Derived,
    /// An answer of an [`ApiServer`](crate::testing::ApiServer), including refusals.
    Served,
    /// 404: the recording has no answer, or none left.
    Unmatched,
    /// A fault replaced the answer.
    Fault,
}

impl Received {
    /// The verb.
    pub fn method(&self) -> &str {
        &self.request.method
    }

    /// Returns the path, with percent-encoding decoded.
    pub fn path(&self) -> &str {
        &self.request.target.path
    }

    /// Returns the value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.request.target.value(name)
    }

    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.request.target.is_watch()
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.request.header(name)
    }

    /// Returns when the request came, on the server's clock.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns how the server answered it.
    pub fn answered(&self) -> Answered {
        self.answered
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} ({:?})",
            self.request.method, self.request.target, self.answered
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::testing::recording::Target;

    #[test]
    fn requests_with_long_heads_are_forgotten_sooner() {
        let mut log = RequestLog::default();
        let request = RequestMessage {
            method: "GET".to_owned(),
            target: Target::parse(&format!("/{}?a={0}", "p".repeat(10_000))),
            is_http_1_0: false,
            headers: vec![("x".to_owned(), "y".repeat(30_000))],
            body: Vec::new(),
        };
        let now = Clock::system().now();
        for sent in 1..=3000 {
            log.push(&request, now, Answered::Served);
            assert!(log.remembered().len() * 50_000 <= LOGGED_BYTES_MAX);
            assert_eq!(log.count(), sent);
        }
    }

    #[test]
    fn a_server_that_lives_long_remembers_the_last_requests_and_counts_all() {
        let mut log = RequestLog::default();
        let mut request = RequestMessage {
            method: "GET".to_owned(),
            target: Target::parse("/version"),
            is_http_1_0: false,
            headers: Vec::new(),
            body: vec![b'x'; 1024],
        };
        let now = Clock::system().now();
        for _ in 0..LOGGED_MAX {
            log.push(&request, now, Answered::Served);
        }
        assert_eq!(log.remembered().len(), LOGGED_MAX);
        request.method = "POST".to_owned();
        log.push(&request, now, Answered::Served);
        assert_eq!(log.count(), LOGGED_MAX + 1);
        assert_eq!(log.remembered().len(), LOGGED_MAX / 2 + 1);
        assert_eq!(log.remembered().last().unwrap().method(), "POST");
        assert!(
            log.remembered()
                .iter()
                .all(|one| one.request.body.is_empty())
        );
    }
}
