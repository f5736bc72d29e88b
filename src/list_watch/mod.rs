//! The traits between the caches and a server: list a page, open a watch, get one object.
//!
//! Every call takes a [`StopToken`]. When the token is raised, the call ends at once with
//! [`ErrorKind::Stopped`](crate::ErrorKind::Stopped): during name lookup, connect, handshake, send,
//! headers and body alike.

mod bound;
mod progress;
mod stored_position;

use std::time::{Duration, Instant};

use crate::clock::Deadline;
use crate::error::Error;
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use crate::sync::Arc;
use crate::worker::StopToken;

pub(crate) use self::bound::{Bound, Pages};
pub use self::progress::{RequestPhase, RequestProgress};
pub use self::stored_position::StoredPosition;
pub(crate) use crate::wire::OBJECTS_MAX;
pub use crate::wire::{
    EventKind, ListPage, Listed, ObjectEvent, Selection, Undecodable, WatchEvent,
};

/// The version that a list may have, relative to the `resourceVersion` that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// The list has exactly that version.
    Exact,
    /// The list has that version or a later one.
    NotOlderThan,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the parameters of one request, named by the API"
)]
pub struct ListRequest {
    /// The version to list at. Empty asks for the most recent, with quorum. `0` takes any version
    /// from the server's cache.
    pub resource_version: ResourceVersion,
    /// Whether a later version will do too. `None` lets the server decide.
    pub version_match: Option<VersionMatch>,
    /// The maximum number of items in the page; 0 asks for all.
    pub limit: u32,
    /// The token from the page before, where this page begins; `None` for the first page.
    pub continue_token: Option<String>,
    /// Whether a reader waits for the answer. Such a request connects before others.
    pub urgent: bool,
}

/// A watch to open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the parameters of one request, named by the API"
)]
pub struct WatchRequest {
    /// The version after which the watch starts.
    pub resource_version: ResourceVersion,
    /// The time after which the server ends the watch: its query parameter `timeoutSeconds`.
    pub timeout: Duration,
    /// How long to wait for the answer's headers once the request is sent. Some proxies hold them
    /// back until the first event. So they may come as late as a bookmark, or as the end of the
    /// watch.
    pub head_timeout: Duration,
    /// Whether the server is to send bookmarks: events that carry a version and no change.
    pub bookmarks: bool,
    /// Whether the watch begins with the present objects (`sendInitialEvents`).
    pub send_initial_events: bool,
    /// Whether a reader waits for the answer. Such a request connects before others.
    pub urgent: bool,
}

/// The result of [`WatchStream::next`].
#[derive(Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a read of a stream has these results"
)]
pub enum Next<K: Object> {
    /// An event.
    Event(WatchEvent<K>),
    /// The stream has ended: `None` if it ended cleanly, otherwise the error that broke it off.
    Ended(Option<Error>),
    /// The deadline passed before the next event. The stream goes on.
    DeadlinePassed,
}

/// The events that an open watch has received but not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "how much is known of the next event"
)]
pub enum Backlog {
    /// The watch does not know whether any have come.
    Unknown,
    /// Bytes have probably come. The watch has not read them yet.
    Bytes,
    /// The next event has come. [`WatchStream::next`] returns it without waiting.
    Event,
}

/// An open watch.
pub trait WatchStream<K: Object>: Send {
    /// Blocks until the next event, the end of the stream, `deadline`, or the stop of the token
    /// that opened it.
    ///
    /// It returns an event that has come even after `deadline`. Otherwise a program that was
    /// paused, or has a slow sink, would mistake its own pause for the server's silence.
    ///
    /// Bytes that are not a watch event end the stream. The client returns them as
    /// [`WatchEvent::Error`], an internal error.
    ///
    /// # Errors
    ///
    /// `Stopped` if the token is raised. `TooLarge` if an event or a streamed list exceeds its
    /// maximum, or if the client's byte budget has closed the watch as the largest.
    fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error>;

    /// When bytes last came from the server. Headers count, and so does part of an event.
    ///
    /// Bytes show that the connection lives. Only whole events confirm the content.
    fn last_contact(&self) -> Instant;

    /// Whether an event has come already, so that [`next`](Self::next) will not wait for one.
    ///
    /// Never blocks. Default: [`Backlog::Unknown`], which is always correct.
    fn backlog(&self) -> Backlog {
        Backlog::Unknown
    }
}

/// Lists and watches one [`Scope`]. It has one connection of its own, so one thread uses it at a
/// time.
pub trait ListerWatcher<K: Object>: Send + Sync {
    /// Asks for one page and calls `each` with its items one by one, as they arrive, on the calling
    /// thread.
    ///
    /// Blocks until the page is complete, a limit of the transport ends it, or `stop` is raised. If
    /// it fails, the caller must discard the items so far.
    ///
    /// # Errors
    ///
    /// The server's error, or the transport's.
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error>;

    /// Opens a watch. Blocks until the server's headers have come, at most
    /// [`head_timeout`](WatchRequest::head_timeout) after sending. The rate limit does not apply.
    ///
    /// # Errors
    ///
    /// The server's error, or the transport's.
    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error>;

    /// Makes the running list urgent, so that it goes before background requests. The thread of a
    /// reader that waits for the list calls this.
    ///
    /// Never blocks. Default: nothing changes.
    fn expedite(&self) {}

    /// Whether the reflector may ask this server for streamed lists (`sendInitialEvents`).
    fn supports_watch_list(&self) -> bool {
        false
    }

    /// Notes that a streamed list made no progress. The reflector calls this. The client remembers
    /// that this server does not stream this resource.
    fn watch_list_failed(&self) {}

    /// The longest time between two bookmarks of any watch of that server and resource so far.
    /// `None` if no bookmark came yet. A watch that is silent for longer may have missed something.
    fn bookmark_interval(&self) -> Option<Duration> {
        None
    }

    /// Notes that bookmarks come, and the longest time between two of them. The reflector calls
    /// this at its first bookmark and at each longer time. The client remembers the time for this
    /// server and resource.
    fn bookmark_came(&self, _interval: Duration) {}

    /// Whether the scope is one object by name. Its list is as cheap as a probe with `limit=1`, and
    /// shows the object too.
    fn lists_one_object(&self) -> bool {
        false
    }

    /// Returns a view of the running request's progress, for the errors of waits. The reflector
    /// calls this once. Default: `None`, unknown.
    fn progress(&self) -> Option<RequestProgress> {
        None
    }

    /// Drops the idle connection, if there is one. The next request makes a new one.
    fn disconnect(&self) {}

    /// The maximum number of objects that a cache of this source holds. The client returns
    /// [`DecodeOptions::list_items_max`](crate::http::DecodeOptions::list_items_max). Default:
    /// 5,000,000.
    fn objects_max(&self) -> usize {
        OBJECTS_MAX
    }

    /// Checks that requests can be sent, without sending one. A reflector calls this before it
    /// starts. Default: `Ok`.
    ///
    /// # Errors
    ///
    /// Why no request can be sent, such as a resource that is not named.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Names the listed objects in messages: `secrets in namespace "shop"`.
    fn describe(&self) -> String;
}

/// Gets single objects from the server, without any cache of this crate.
pub trait Getter<K: Object>: Send + Sync {
    /// Asks for one object. An empty `version` reads with quorum. `0` reads from the server's
    /// cache.
    ///
    /// Blocks until the answer, `deadline`, a limit of the transport, or the stop.
    ///
    /// # Errors
    ///
    /// The server's error (`NotFound` included), or the transport's.
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error>;

    /// Like [`get`](Self::get), but no reader waits for the answer, so other requests may go first.
    ///
    /// Blocks as `get` does. Default: calls `get`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_in_background(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        self.get(key, version, deadline, stop)
    }
}

/// Makes lister-watchers and getters of one kind for one server.
pub trait Api<K: Object>: Send + Sync {
    /// Returns a lister-watcher of `scope` with a connection of its own.
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>>;

    /// Returns a lister-watcher of the objects in `scope` that `selection` selects, with a
    /// connection of its own.
    ///
    /// It may return other objects too. The default ignores the selection.
    fn lister_watcher_of(
        &self,
        scope: Scope,
        selection: Arc<dyn Selection>,
    ) -> Arc<dyn ListerWatcher<K>> {
        drop(selection);
        self.lister_watcher(scope)
    }

    /// Returns a getter. Its requests share a pool of connections.
    fn getter(&self) -> Arc<dyn Getter<K>>;
}
