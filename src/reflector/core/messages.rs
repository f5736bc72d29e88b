//! The messages between the core and its driver: inputs and facts in, actions and effects out.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::list_watch::{EventKind, ListPage, ListRequest, WatchRequest};
use crate::object::ResourceVersion;
use crate::reflector::{Phase, Replacement};

/// A report of the driver.
#[derive(Debug)]
pub(crate) enum Input {
    Start,
    /// A page, or the answer to a probe, is complete or failed.
    Page {
        page: Result<ListPage, Error>,
        is_empty: bool,
    },
    /// The commit or the opening of a watch is done.
    Done(Result<(), Error>),
    Seen(Seen),
    /// [`Action::Apply`], [`Action::Stage`] or [`Action::Bookmark`] is done.
    Applied(Result<(), Error>),
    /// The watch has ended, cleanly or broken off.
    Ended(Option<Error>),
    /// The time given to [`Action::Read`] passed without an event.
    Quiet {
        last_contact: Instant,
    },
    Resynced(Result<(), Error>),
    /// The time given to [`Action::Pause`] passed.
    Paused,
    /// A reader began to wait during a pause that a waiter may end.
    Demanded,
    Stop,
}

/// The parts of a watch event that decisions need.
#[derive(Debug)]
pub(crate) enum Seen {
    Object {
        kind: EventKind,
        version: ResourceVersion,
    },
    Bookmark {
        version: ResourceVersion,
        ends_initial: bool,
    },
    Error(Error),
    Skipped {
        reason: String,
        version: ResourceVersion,
    },
}

/// The driver's next step; each ends in an [`Input`].
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask for a page. `fresh` begins a new replacement and drops the one before.
    List {
        request: ListRequest,
        fresh: bool,
    },
    /// Ask for a page, and keep only its version.
    Probe(ListRequest),
    /// Make the staged replacement the content.
    Commit(Replacement),
    /// Open a watch; one with initial events begins a replacement.
    Open(WatchRequest),
    /// Wait for the next event of the open watch.
    Read {
        until: Instant,
    },
    /// Hand the event just seen to the sink.
    Apply,
    /// Add the event just seen to the replacement.
    Stage,
    /// Tell the sink of the position.
    Bookmark(ResourceVersion),
    Resync,
    /// Wait, with nothing open.
    Pause {
        until: Instant,
        on_demand: bool,
    },
    /// Wait within a list whose first pages are staged.
    PauseInList {
        until: Instant,
    },
    End,
}

/// A side effect of the action.
#[derive(Debug)]
pub(crate) enum Effect {
    Log(log::Level, String),
    /// An attempt of that phase failed, and so many have failed in a row.
    Failed(Phase, Error, u32),
    /// A watch is open: earlier failures are over.
    Recovered,
    /// Streamed lists do not work with this server (B8).
    WatchListFailed,
    /// This server sends bookmarks, at this interval (B11).
    BookmarkCame(Duration),
    /// The connection is dead: the next request must not use it.
    Disconnect,
}

/// The facts at the moment of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) now: Instant,
    /// A caller waits for the first sync.
    pub(crate) urgent: bool,
    /// The source can stream lists (LW-5). The driver asks it where a cycle may begin.
    pub(crate) streams: bool,
    /// The interval of earlier bookmarks from this server for this resource (B11). The driver asks
    /// for it before a watch is opened, and after.
    pub(crate) bookmarks: Option<Duration>,
    /// How many objects the sink has refused for its bound. The driver asks where that may have
    /// changed.
    pub(crate) left_out: usize,
}
