//! The reflector's decisions: a function from (state, input) to (state, action), without thread,
//! clock or socket.
//!
//! ```text
//!          +------------------------- backoff -------------------------+
//!          v                                                           |
//!   Idle -> Listing -last page-> Committing -> Opening -> Watching -failed-> Resting
//!     |        ^ falls back          ^                       | ended          |
//!     |        |                     | final bookmark        +--> Resting --> Opening
//!     +--> OpeningStream -> Streaming+
//! ```
//!
//! Between a watch that was silent from its opening to its end and the next one stands `Probing`: a
//! list of one item at the most recent version, whose version alone counts.
//!
//! A *cycle* is one list, plain or streamed, and the watches after it. Time comes in with each
//! input.

mod listing;
mod probing;
mod state;
mod streaming;
#[cfg(test)]
mod tests;
mod watching;

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::list_watch::{EventKind, ListPage, ListRequest, RequestProgress, WatchRequest};
use crate::object::ResourceVersion;
use crate::reflector::{Phase, ReflectorOptions, ReflectorStatus, Replacement};

use listing::Listing;
use state::{History, ReflectorState};
use streaming::Streaming;
use watching::Watching;

/// A watch that ends sooner, and without an event, is a failure (RF-33); a streamed list, a refusal
/// (WL-9).
pub(crate) const VERY_SHORT: Duration = Duration::from_secs(1);

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
    /// The time given to [`Action::Rest`] passed.
    Rested,
    /// A reader began to wait during a rest that a waiter ends.
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
    Rest {
        until: Instant,
        on_demand: bool,
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
    /// Somebody waits for the first sync.
    pub(crate) urgent: bool,
    /// The source can stream lists (LW-5); asked for where a cycle may begin.
    pub(crate) streams: bool,
    /// Bookmarks came before, from that server for that resource, and so far apart (B11); asked for
    /// where a watch is about to be opened, and where it was.
    pub(crate) bookmarks: Option<Duration>,
}

#[derive(Debug)]
enum Step {
    Idle,
    Listing(Listing),
    Committing(Committing),
    Opening(Watching),
    Watching(Watching),
    Probing,
    OpeningStream(Streaming),
    Streaming(Streaming),
    Resting {
        since: Instant,
        until: Instant,
        next: Next,
    },
    Ended,
}

/// A replacement on its way into the sink; a streamed one has its watch open already.
#[derive(Debug)]
struct Committing {
    of: Replacement,
    cycle: Cycle,
    stream: Option<Watching>,
}

/// What follows a rest.
#[derive(Clone, Copy, Debug)]
enum Next {
    Cycle,
    List(Cycle),
    Stream(Cycle),
    Watch,
    /// The watch again, unless a probe says that it would miss something (B11).
    Probe,
}

/// A cycle, and what it has used up: each exemption from the delay between requests holds once
/// (B9), for a different request which an answer itself calls for.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    /// At the most recent version: RF-12, WL-8, B4.
    most_recent: bool,
    /// One full list instead of pages: PG-6.
    full_list: bool,
    /// A plain list instead of a streamed one: WL-9.
    plain_list: bool,
    /// Streamed lists of this cycle that ended early (WL-6).
    streams: u8,
}

/// Whether an exemption is still there; it is used up by that.
fn use_up(exemption: &mut bool) -> bool {
    !std::mem::replace(exemption, true)
}

/// The decisions of one run of a reflector.
#[derive(Debug)]
pub(crate) struct Core {
    step: Step,
    state: ReflectorState,
}

impl Core {
    /// `what` is what is listed, for messages; `one_object` says that it is one object by name.
    pub(crate) fn new(
        options: &ReflectorOptions,
        what: String,
        one_object: bool,
        now: Instant,
    ) -> Self {
        Self {
            step: Step::Idle,
            state: ReflectorState::new(options, what, one_object, now),
        }
    }

    /// Shows where the requests of the lister-watcher are.
    pub(crate) fn shows(&mut self, progress: Option<RequestProgress>) {
        self.state.status.progress = progress;
    }

    /// Shows how long the driver pauses, if it does.
    pub(crate) fn pauses(&mut self, until: Option<Instant>) {
        self.state.status.next_attempt = until;
    }

    /// The status after the last input.
    pub(crate) fn status(&self) -> &ReflectorStatus {
        &self.state.status
    }

    /// What is to be done beside the last action.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.state.effects)
    }

    /// Decides what follows an input.
    pub(crate) fn step(&mut self, input: Input, facts: &Facts) -> Action {
        let action = self.decide(input, facts);
        let may_be_quiet = matches!(self.step, Step::Opening(_) | Step::Watching(_));
        self.state.update_contact_deadline(may_be_quiet, facts.now);
        action
    }

    fn decide(&mut self, input: Input, facts: &Facts) -> Action {
        let step = std::mem::replace(&mut self.step, Step::Ended);
        match (step, input) {
            (_, Input::Stop) | (Step::Ended, _) => self.end(),
            (Step::Idle, Input::Start) => self.begin_pass(facts),
            (Step::Listing(listing), Input::Page { page, is_empty }) => match page {
                Ok(page) => self.page(listing, page, is_empty, facts),
                Err(error) => self.page_failed(listing, error, facts),
            },
            (Step::Probing, Input::Page { page, .. }) => match page {
                Ok(page) => self.probed(&page.resource_version, facts),
                Err(error) => self.probe_failed(error, facts),
            },
            (Step::Committing(committing), Input::Done(result)) => match result {
                Ok(()) => self.committed(committing, facts),
                Err(error) => self.commit_failed(&committing, error, facts),
            },
            (Step::Opening(opening), Input::Done(result)) => match result {
                Ok(()) => self.opened(opening, facts),
                Err(error) => self.open_failed(&opening, error, facts),
            },
            (Step::Watching(watching), Input::Seen(seen)) => self.seen(watching, seen, facts),
            (Step::Watching(watching), Input::Applied(result)) => {
                self.applied(watching, result, facts)
            }
            (Step::Watching(watching), Input::Resynced(result)) => {
                self.resynced(watching, result, facts)
            }
            (Step::Watching(watching), Input::Ended(end)) => {
                self.watch_ended(&watching, end, facts)
            }
            (Step::Watching(watching), Input::Quiet { last_contact }) => {
                self.quiet(watching, last_contact, facts)
            }
            (Step::OpeningStream(streaming), Input::Done(result)) => match result {
                Ok(()) => self.stream_opened(streaming, facts),
                Err(error) => self.stream_failed(streaming, error, facts),
            },
            (Step::Streaming(streaming), Input::Seen(seen)) => {
                self.stream_seen(streaming, seen, facts)
            }
            (Step::Streaming(streaming), Input::Applied(result)) => match result {
                Ok(()) => self.collect(streaming, facts),
                Err(error) => self.stream_failed(streaming, error, facts),
            },
            (Step::Streaming(streaming), Input::Ended(end)) => {
                self.stream_ended(&streaming, end.as_ref(), facts)
            }
            (Step::Streaming(streaming), Input::Quiet { last_contact }) => {
                self.stream_quiet(streaming, last_contact, facts)
            }
            (Step::Resting { next, .. }, Input::Rested) => self.go_on(next, facts),
            (Step::Resting { since, until, next }, Input::Demanded) => {
                self.demanded(since, until, next, facts)
            }
            (step, input) => self.invalid_transition(&step, &input),
        }
    }

    /// Starts a cycle: a streamed list where it is wanted and known to work, else a plain one.
    fn begin_pass(&mut self, facts: &Facts) -> Action {
        if facts.streams && self.state.may_stream {
            self.open_stream(Cycle::default(), facts)
        } else {
            self.list(Cycle::default(), facts)
        }
    }

    fn go_on(&mut self, next: Next, facts: &Facts) -> Action {
        match next {
            Next::Cycle => self.begin_pass(facts),
            Next::List(cycle) => self.list(cycle, facts),
            Next::Stream(cycle) => self.open_stream(cycle, facts),
            Next::Watch => self.open(facts),
            Next::Probe => self.probe(facts),
        }
    }

    /// Notes a failure and rests before `next`: as long as the server asks, else as the backoffs
    /// say.
    fn fail(&mut self, error: Error, next: Next, facts: &Facts) -> Action {
        let (until, on_demand) = self.state.failed(error, facts);
        self.rest(until, on_demand, next, facts)
    }

    /// A whole list is staged, which was asked for at `asked`: makes it the content.
    fn commit(
        &mut self,
        asked: &ResourceVersion,
        version: ResourceVersion,
        cycle: Cycle,
        stream: Option<Watching>,
    ) -> Action {
        let of = Replacement {
            resource_version: version,
            consistent: asked.is_empty(),
            history_expired: self.state.history != History::Known,
        };
        self.step = Step::Committing(Committing {
            of: of.clone(),
            cycle,
            stream,
        });
        Action::Commit(of)
    }

    /// A whole list is older than what is known, and the most recent was asked for already (B4).
    fn stale(&mut self, version: &ResourceVersion, facts: &Facts) -> Action {
        self.state.fell_behind(facts.now);
        let stale = format!("the list at version {version} is older than what is known");
        self.fail(Error::new(ErrorKind::Stale, stale), Next::Cycle, facts)
    }

    fn rest(&mut self, until: Instant, on_demand: bool, next: Next, facts: &Facts) -> Action {
        self.step = Step::Resting {
            since: facts.now,
            until,
            next,
        };
        Action::Rest { until, on_demand }
    }

    /// Somebody waits now: the rest becomes a fast one, counted from its beginning.
    fn demanded(&mut self, since: Instant, until: Instant, next: Next, facts: &Facts) -> Action {
        let until = self.state.expedited(since, until, facts.now);
        if until <= facts.now {
            return self.go_on(next, facts);
        }
        self.step = Step::Resting { since, until, next };
        Action::Rest {
            until,
            on_demand: false,
        }
    }

    fn end(&mut self) -> Action {
        self.state.status.phase = Phase::Stopped;
        self.step = Step::Ended;
        Action::End
    }

    /// The driver reported something that its last action cannot lead to: a mistake of ours, which
    /// ends the run.
    fn invalid_transition(&mut self, step: &Step, input: &Input) -> Action {
        debug_assert!(false, "{input:?} does not belong to {step:?}");
        self.state.log(
            log::Level::Error,
            "the reflector ends: its driver and its core disagree".to_owned(),
        );
        self.end()
    }
}
