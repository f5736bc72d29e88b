//! The steps of a run, and the data that each remembers.

use std::time::{Duration, Instant};

use crate::list_watch::Pages;
use crate::object::ResourceVersion;
use crate::reflector::Replacement;

use super::messages::Facts;
use super::state::ReflectorState;

/// A watch that ends sooner, without an event, is a failure (RF-33). A streamed list that does is a
/// refusal (WL-9).
pub(crate) const VERY_SHORT: Duration = Duration::from_secs(1);

/// The decisions of one run of a reflector.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) step: CoreStep,
    pub(super) state: ReflectorState,
    /// The facts while the core decides.
    pub(super) facts: Facts,
}

#[derive(Debug)]
pub(super) enum CoreStep {
    Idle,
    Listing(Listing),
    Committing(Committing),
    Opening(Watching),
    Watching(Watching),
    /// Since when.
    Probing(Instant),
    OpeningStream(Streaming),
    Streaming(Streaming),
    Pausing {
        since: Instant,
        until: Instant,
        next: AfterPause,
    },
    Ended,
}

/// A replacement on its way into the sink; a streamed one has its watch open already.
#[derive(Debug)]
pub(super) struct Committing {
    pub(super) of: Replacement,
    /// The time at which the server had this content: the request of the list, or the end of the
    /// stream.
    pub(super) confirmed_at: Instant,
    pub(super) cycle: Cycle,
    pub(super) stream: Option<Watching>,
}

/// The step after a pause.
#[derive(Debug)]
pub(super) enum AfterPause {
    Cycle,
    /// The refused list, or its later page, again. Its staged part stays.
    Again(Listing),
    List(Cycle),
    Stream(Cycle),
    Watch,
    /// The watch again, unless a probe shows that it would miss changes (B11).
    Probe,
}

/// A cycle, and the exemptions that it has used up. Each exempts one different request, required by
/// an answer, from the delay between requests (B9).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    /// At the most recent version: RF-12, WL-8, B4.
    pub(super) most_recent: bool,
    /// One full list instead of pages: PG-6.
    pub(super) full_list: bool,
    /// Streamed lists of this cycle that ended early (WL-6).
    pub(super) streams: u8,
    /// Streamed lists of this cycle that were refused in a way that calls for another.
    pub(super) refused_streams: u8,
}

/// Takes an exemption. Returns whether it was still there.
pub(super) fn use_up(exemption: &mut bool) -> bool {
    !std::mem::replace(exemption, true)
}

/// A list that is being read, page by page.
#[derive(Debug)]
pub(super) struct Listing {
    /// The version of the whole list; later pages carry none (PG-4).
    pub(super) asked: ResourceVersion,
    /// When the first page was asked for. The content may be no newer.
    pub(super) asked_at: Instant,
    /// The age of the oldest page then.
    pub(super) age: Duration,
    /// Items per page of the whole attempt; a full list after an expired page asks for all, once.
    pub(super) page_size: u32,
    /// The version of the first page is that of the list (PG-5); set from the second page on.
    pub(super) version: Option<ResourceVersion>,
    /// The token of a later page.
    pub(super) token: Option<String>,
    pub(super) pages: Pages,
    pub(super) cycle: Cycle,
    /// The list serves as a probe: its failure says nothing about the content (B11).
    pub(super) is_probe: bool,
}

/// A streamed list: opening, or collecting.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) asked: ResourceVersion,
    pub(super) opened_at: Instant,
    pub(super) timeout: Duration,
    pub(super) last_event: Option<Instant>,
    /// When the last item of the list came, or the stream was opened.
    pub(super) last_item: Instant,
    /// When an item of the list, or bytes of one, last came.
    pub(super) progress: Instant,
    pub(super) cycle: Cycle,
}

/// A watch that is open, or was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watching {
    /// When it was asked for. Its life begins there, because a proxy may hold back the head of the
    /// answer until the end.
    pub(super) asked_at: Instant,
    pub(super) opened_at: Instant,
    pub(super) timeout: Duration,
    /// Whether an event counted (RF-43).
    pub(super) had_events: bool,
    /// Additions do not move the position yet, because they come in no order (RF-22).
    pub(super) withheld: bool,
    /// When the last whole event came, or the watch was opened.
    pub(super) last_event: Instant,
    /// When the last bookmark came, or the watch was opened.
    pub(super) last_bookmark: Instant,
    /// When bytes last came.
    pub(super) last_bytes: Instant,
    /// Whether it may be quiet to its end if bookmarks are not known to come (B14).
    pub(super) may_be_quiet: bool,
}
