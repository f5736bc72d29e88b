//! The traffic between a client and an API server: exchanges, with the times of their pieces.

mod format;
mod place;
mod target;

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::object::Object;

pub(in crate::testing) use place::{PathName, PathPlace, PathResource, PathScope, Selected};
pub(in crate::testing) use target::{Target, is_true};

/// Requests and their answers, in the order of the requests, from a [`Recorder`](super::Recorder)
/// or a test.
///
/// As a file it is text, one JSON value per line, easy to read and compare; see
/// [`Recording::parse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub(in crate::testing) server: String,
    pub(in crate::testing) taken: String,
    pub(in crate::testing) exchanges: Vec<Exchange>,
}

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub(in crate::testing) method: String,
    pub(in crate::testing) target: Target,
    /// Since the recording's start.
    pub(in crate::testing) at: Duration,
    pub(in crate::testing) headers: Vec<(String, String)>,
    /// Parameters that must be equal although a match ignores them otherwise.
    pub(in crate::testing) matches: Vec<String>,
    pub(in crate::testing) answer: Answer,
}

/// An answer, piece by piece. All times count from the arrival of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub(in crate::testing) status: u16,
    pub(in crate::testing) after: Duration,
    pub(in crate::testing) headers: Vec<(String, String)>,
    pub(in crate::testing) chunks: Vec<Chunk>,
    pub(in crate::testing) end: End,
    pub(in crate::testing) end_after: Duration,
}

/// A piece of a body that came at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub(in crate::testing) after: Duration,
    pub(in crate::testing) text: String,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an answer has these ends")]
pub enum End {
    /// The server ended the body.
    Clean,
    /// The connection broke before the end of the body.
    Cut,
    /// The answer was still open when the recorder or the client stopped. A replay keeps it open.
    Open,
}

impl Recording {
    /// Makes an empty recording, to fill by hand.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the server's version and the day, for the first line of the file.
    #[must_use]
    pub fn of_server(mut self, version: &str, day: &str) -> Self {
        version.clone_into(&mut self.server);
        day.clone_into(&mut self.taken);
        self
    }

    /// Adds an exchange.
    #[must_use]
    pub fn with(mut self, exchange: Exchange) -> Self {
        self.exchanges.push(exchange);
        self
    }

    /// Adds an exchange.
    pub fn push(&mut self, exchange: Exchange) {
        self.exchanges.push(exchange);
    }

    /// Returns the version of the server; empty when the recording does not name it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the day of the recording; empty when it does not name it.
    pub fn taken(&self) -> &str {
        &self.taken
    }

    /// Returns the exchanges, in the order of their requests.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }
}

impl Exchange {
    /// Makes a `GET` of `target`, path and query as in a request line, and its answer.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use kubecache::testing::{Answer, Exchange};
    ///
    /// let none = r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":[]}"#;
    /// let absent = Exchange::get(
    ///     "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Ddb",
    ///     Answer::text(200, none),
    /// );
    /// assert_eq!(absent.path(), "/api/v1/namespaces/shop/secrets");
    /// # }
    /// ```
    pub fn get(target: &str, answer: Answer) -> Self {
        Self::new("GET", target, answer)
    }

    /// Makes a request with another verb than `GET`.
    pub fn new(method: &str, target: &str, answer: Answer) -> Self {
        Self {
            method: method.to_owned(),
            target: Target::parse(target),
            at: Duration::ZERO,
            headers: Vec::new(),
            matches: Vec::new(),
            answer,
        }
    }

    /// Matches only requests whose `parameter` has the recorded value, even if replays usually
    /// ignore that parameter (`resourceVersion`, `limit`, …).
    #[must_use]
    pub fn only_with(mut self, parameter: &str) -> Self {
        self.matches.push(parameter.to_owned());
        self
    }

    /// The verb.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path, percent-encoding resolved.
    pub fn path(&self) -> &str {
        &self.target.path
    }

    /// The value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.target.value(name)
    }

    /// When the request came, since the recording's start.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// The answer.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }
}

impl Answer {
    /// Makes an answer without a body, of type `application/json`, that comes at once and ends
    /// cleanly.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            after: Duration::ZERO,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            chunks: Vec::new(),
            end: End::Clean,
            end_after: Duration::ZERO,
        }
    }

    /// Makes an answer with that body.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status).chunk(Duration::ZERO, body)
    }

    /// Adds a piece of the body, sent `after` the arrival of the request.
    #[must_use]
    pub fn chunk(mut self, after: Duration, text: impl Into<String>) -> Self {
        let text = text.into();
        self.end_after = self.end_after.max(after);
        self.chunks.push(Chunk { after, text });
        self
    }

    /// Makes a list of `items` at `resource_version`, as the API server sends it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an object that cannot be written as JSON.
    pub fn list<K: Object + Serialize>(resource_version: &str, items: &[K]) -> Result<Self, Error> {
        let resource = K::resource();
        let list = serde_json::json!({
            "kind": format!("{}List", resource.kind()),
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": resource_version},
            "items": items.iter().map(to_json).collect::<Result<Vec<_>, _>>()?,
        });
        Ok(Self::text(200, format!("{list}\n")))
    }

    /// Adds a watch event for the new `object`, sent `after` the arrival of the request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an object that cannot be written as JSON.
    pub fn added<K: Object + Serialize>(self, after: Duration, object: &K) -> Result<Self, Error> {
        self.change(after, "ADDED", object)
    }

    /// Adds a watch event for the changed `object`, sent `after` the arrival of the request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an object that cannot be written as JSON.
    pub fn modified<K: Object + Serialize>(
        self,
        after: Duration,
        object: &K,
    ) -> Result<Self, Error> {
        self.change(after, "MODIFIED", object)
    }

    /// Adds a watch event for the deleted `object`, with its last state, sent `after` the arrival
    /// of the request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an object that cannot be written as JSON.
    pub fn deleted<K: Object + Serialize>(
        self,
        after: Duration,
        object: &K,
    ) -> Result<Self, Error> {
        self.change(after, "DELETED", object)
    }

    fn change<K: Serialize>(self, after: Duration, event: &str, object: &K) -> Result<Self, Error> {
        let event = serde_json::json!({"type": event, "object": to_json(object)?});
        Ok(self.event(after, &event.to_string()))
    }

    /// Adds one watch event: its JSON and a newline.
    #[must_use]
    pub fn event(self, after: Duration, json: &str) -> Self {
        self.chunk(after, format!("{json}\n"))
    }

    /// Adds a header. With a `content-length` the body has that length, otherwise it is sent in
    /// chunks.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Sets the end of the answer, and its time after the request.
    #[must_use]
    pub fn ending(mut self, end: End, after: Duration) -> Self {
        (self.end, self.end_after) = (end, after);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The pieces of the body.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// How it ends.
    pub fn end(&self) -> End {
        self.end
    }

    /// The whole body.
    pub fn body(&self) -> String {
        self.chunks
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect()
    }
}

fn to_json<K: Serialize>(object: &K) -> Result<serde_json::Value, Error> {
    serde_json::to_value(object).map_err(|error| {
        Error::new(
            ErrorKind::Config,
            format!("an object of a recording: {error}"),
        )
        .with_source(error)
    })
}

impl Chunk {
    /// When it came, since the arrival of the request.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }
}
