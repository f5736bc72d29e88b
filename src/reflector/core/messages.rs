//! What the core and its driver tell each other: inputs and facts in, actions and effects out.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::list_watch::{EventKind, ListPage, ListRequest, WatchRequest};
use crate::object::ResourceVersion;
use crate::reflector::{Phase, Replacement};

/// What the driver reports.
#[derive(Debug)]
pub(crate) enum Input {
    Start,
    /// A page, or what a probe asked for, is complete, or failed.
    Page {
        page: Result<ListPage, Error>,
        is_empty: bool,
    },
    /// The commit or the opening of a watch is done.
    Done(Result<(), Error>),
    Seen(Seen),
    /// What [`Action::Apply`], [`Action::Stage`] or [`Action::Bookmark`] asked for is done.
    Applied(Result<(), Error>),
    /// The watch is at its end: cleanly, or broken off.
    Ended(Option<Error>),
    /// The time given to [`Action::Read`] passed without an event.
    Quiet {
        last_contact: Instant,
    },
    Resynced(Result<(), Error>),
    /// The time given to [`Action::Pause`] passed.
    Paused,
    /// A reader began to wait during a pause that a waiter ends.
    Demanded,
    Stop,
}

/// An event of a watch, as far as decisions need it.
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

/// What the driver does next; each ends in an [`Input`].
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask for a page. `fresh` begins a new replacement and drops the one before.
    List {
        request: ListRequest,
        fresh: bool,
    },
    /// Ask for a page of which nothing is kept but its version.
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
    /// Let time go by, with nothing open.
    Pause {
        until: Instant,
        on_demand: bool,
    },
    /// The same within a list whose first pages are staged.
    PauseInList {
        until: Instant,
    },
    End,
}

/// What the driver does beside the action.
#[derive(Debug)]
pub(crate) enum Effect {
    Log(log::Level, String),
    /// An attempt of that phase failed, the latest of so many in a row.
    Failed {
        phase: Phase,
        error: Error,
        attempts: u32,
    },
    /// A watch is open: what failed before is over.
    Recovered,
    /// Streamed lists do not work here (B8).
    WatchListFailed,
    /// Bookmarks come here, and so far apart (B11).
    BookmarkCame(Duration),
    /// The connection is dead: the next request must not use it.
    Disconnect,
}

/// What holds at the moment of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) now: Instant,
    /// A caller waits for the first sync.
    pub(crate) urgent: bool,
    /// The source can stream lists (LW-5); asked for where a cycle may begin.
    pub(crate) streams: bool,
    /// Bookmarks came before, from that server for that resource, and so far apart (B11); asked for
    /// where a watch is about to be opened, and where it was.
    pub(crate) bookmarks: Option<Duration>,
    /// How many objects the sink has refused for its bound; asked for where that may have
    /// changed.
    pub(crate) left_out: usize,
}
