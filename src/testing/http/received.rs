//! The log of a test server: what came, when, and how it was answered.

use std::time::Instant;

use super::message::Request;

/// A request that the server received. Its `Debug` prints no header.
#[derive(Clone)]
pub struct Received {
    pub(super) request: Request,
    pub(super) at: Instant,
    pub(super) answered: Answered,
}

/// How the server answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answered {
    /// A recorded answer.
    Recorded,
    /// An answer to a get of one object, made of what the recording has of that object.
    Derived,
    /// An answer of an [`ApiServer`](crate::testing::ApiServer), refusals included.
    Served,
    /// 404: nothing is recorded for it, or no more.
    Unmatched,
    /// A fault took the answer's place.
    Fault,
}

impl Received {
    /// The verb.
    pub fn method(&self) -> &str {
        &self.request.method
    }

    /// The path, percent-encoding resolved.
    pub fn path(&self) -> &str {
        &self.request.target.path
    }

    /// The value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.request.target.value(name)
    }

    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.request.target.is_watch()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.request.header(name)
    }

    /// When the request came, on the server's clock.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// How it was answered.
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
