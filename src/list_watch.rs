//! The port: list a page, open a watch, get one object. What a server looks like from inside the
//! crate.
//!
//! Every call takes a [`StopToken`] and ends at once, with
//! [`ErrorKind::Stopped`](crate::ErrorKind::Stopped), when it is raised: during name lookup,
//! connect, handshake, send, headers and body alike.

mod progress;

use std::time::{Duration, Instant};

use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use crate::sync::Arc;
use crate::worker::StopToken;

pub use self::progress::{RequestPhase, RequestProgress};
pub use crate::wire::{EventKind, ListPage, Listed, ObjectEvent, Undecodable, WatchEvent};

/// How a list's `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// At that version exactly.
    Exact,
    /// At that version or a later one.
    NotOlderThan,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the parameters of one request, named by the API"
)]
pub struct ListRequest {
    /// Empty: the most recent, with quorum. `0`: any, out of the server's cache.
    pub resource_version: ResourceVersion,
    /// How the version is meant; `None` leaves it to the server.
    pub version_match: Option<VersionMatch>,
    /// At most so many items in the page; 0 asks for all.
    pub limit: u32,
    /// Where the page before ended.
    pub continue_token: Option<String>,
    /// Somebody waits for the answer: such a request connects before others.
    pub urgent: bool,
}

/// A watch to open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the parameters of one request, named by the API"
)]
pub struct WatchRequest {
    /// Where the watch starts.
    pub resource_version: ResourceVersion,
    /// After which the server ends the watch (`timeoutSeconds`).
    pub timeout: Duration,
    /// How long the head of the answer may be awaited once the request is sent. Some proxies hold
    /// it back until the first event. So it may come as late as a bookmark, or as the end of the
    /// watch.
    pub head_timeout: Duration,
    /// Ask for bookmarks.
    pub bookmarks: bool,
    /// Ask for the present objects first, as a stream.
    pub send_initial_events: bool,
    /// Somebody waits for the answer: such a request connects before others.
    pub urgent: bool,
}

/// What [`WatchStream::next`] came back with.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a read of a stream has these ends")]
pub enum Next<K: Object> {
    /// An event.
    Event(WatchEvent<K>),
    /// The stream is at its end. `None` is a clean end; `Some` says how it broke off.
    Ended(Option<Error>),
    /// The deadline passed first; the stream goes on.
    DeadlinePassed,
}

/// What an open watch has and did not hand over yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "how much is known of the next event"
)]
pub enum Backlog {
    /// Nothing, as far as is known.
    Unknown,
    /// Bytes have probably come that were not looked at.
    Bytes,
    /// The next event for certain: [`WatchStream::next`] gives it without waiting.
    Event,
}

/// An open watch.
pub trait WatchStream<K: Object>: Send {
    /// Blocks until the next event, the end of the stream, `deadline`, or the stop of the token it
    /// was opened with.
    ///
    /// An event that has come is handed over even when `deadline` has passed: a program that was
    /// stopped for a while, or whose sink is slow, must not take its own pause for the server's
    /// silence.
    ///
    /// What does not decode as a watch event ends the stream with an [`WatchEvent::Error`] of the
    /// client's
    /// own making, an internal error.
    ///
    /// # Errors
    ///
    /// `Stopped`, or `TooLarge`: an event exceeds its maximum, a streamed list exceeds a list's, or
    /// the client's byte budget has closed the watch as the largest.
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error>;

    /// When bytes last came from the server, headers included: also those of a line that is not yet
    /// whole.
    ///
    /// They say that the connection lives. The content is confirmed by whole events only.
    fn last_contact(&self) -> Instant;

    /// What has come already and was not handed over; it tells whoever follows whether the next
    /// call of [`next`](Self::next) is going to wait.
    ///
    /// Never blocks. Default: [`Backlog::Unknown`], which is always right.
    fn backlog(&self) -> Backlog {
        Backlog::Unknown
    }
}

/// Lists and watches one [`Scope`]. One thread uses it at a time: it has one connection of its own.
pub trait ListerWatcher<K: Object>: Send + Sync {
    /// Asks for one page and hands its items over one by one, as they arrive.
    ///
    /// Blocks until the page is complete, a limit of the transport ends it, or `stop` is raised.
    /// When it fails, items handed over so far mean nothing.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met.
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error>;

    /// Opens a watch. Blocks until the server's headers have come, after sending for
    /// [`head_timeout`](WatchRequest::head_timeout) at most. Not subject to the limiter.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met.
    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error>;

    /// Tells, from another thread, that somebody now waits for the list under way: it goes before
    /// background requests.
    ///
    /// Never blocks. Default: nothing changes.
    fn expedite(&self) {}

    /// Whether streamed lists (`sendInitialEvents`) may be tried here.
    fn supports_watch_list(&self) -> bool {
        false
    }

    /// Told when a streamed list made no progress: the server and resource are remembered as
    /// without it.
    fn watch_list_failed(&self) {}

    /// The longest time between two bookmarks of any watch of that server and resource so far.
    /// `None` when no bookmark came yet. Where bookmarks come, silence on a watch means something.
    fn bookmark_interval(&self) -> Option<Duration> {
        None
    }

    /// Called at the first bookmark of a reflector's watches, and when the time between two
    /// bookmarks was longer than any before: the server and resource are remembered with it.
    fn bookmark_came(&self, _interval: Duration) {}

    /// Whether the scope is one object by name: its list is as cheap as a probe with `limit=1`, and
    /// tells more.
    fn lists_one_object(&self) -> bool {
        false
    }

    /// Where the request under way is, for the errors of those who wait for it; asked for once.
    /// Default: `None`, unknown.
    fn progress(&self) -> Option<RequestProgress> {
        None
    }

    /// Drops the connection, if one is kept: the next request dials anew.
    fn disconnect(&self) {}

    /// What is listed, for messages: `secrets in namespace "shop"`.
    fn describe(&self) -> String;
}

/// Gets single objects, past every cache of this crate.
pub trait Getter<K: Object>: Send + Sync {
    /// Asks for one object. `version` empty reads with quorum; `0` reads out of the server's cache.
    ///
    /// Blocks until the answer, `deadline`, a limit of the transport, or the stop.
    ///
    /// # Errors
    ///
    /// What the server said (`NotFound` included), or what the transport met.
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error>;
}

/// Makes the listers, watchers and getters of one kind at one server.
pub trait Api<K: Object>: Send + Sync {
    /// A lister-watcher of `scope` with a connection of its own.
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>>;

    /// A getter; its requests share a pool of connections.
    fn getter(&self) -> Arc<dyn Getter<K>>;
}
