//! A streamed list: initial events into a replacement, published at their final bookmark
//! (WL-1..WL-14, B8).

use std::time::{Duration, Instant};

use crate::clock::later;
use crate::error::{Error, ErrorKind};
use crate::list_watch::{EventKind, WatchRequest};
use crate::object::ResourceVersion;
use crate::policy::{AnswerKind, NextRequest, PolicyRequest, WaitRule};
use crate::reflector::Phase;

use super::messages::{Action, Seen};
use super::state::History;
use super::steps::{AfterPause, Core, CoreStep, Cycle, Streaming, VERY_SHORT, Watching, use_up};

/// The reflector gives up a streamed list after this time without progress (B8): ten of the ticks
/// on which servers send the final bookmark (WL-16).
pub(super) const PROGRESS_LIMIT: Duration = Duration::from_secs(10);
/// How long one item may take while its bytes keep coming. At 30 kB a second the largest objects
/// fit in.
const ITEM_LIMIT: Duration = Duration::from_secs(60);
/// How many streams of one cycle may end before their bookmark. client-go tries for ever (WL-6).
const STREAMS_MAX: u8 = 3;

impl Streaming {
    /// When the reflector gives up the stream unless more of the list comes. A server that ignores
    /// `sendInitialEvents` sends changes and plain bookmarks without end. If it ignores the
    /// time-out too, it never ends the stream.
    fn given_up_at(&self) -> Instant {
        later(self.progress, PROGRESS_LIMIT)
            .min(later(self.last_item, ITEM_LIMIT))
            .min(later(self.opened_at, self.timeout))
    }
}

impl Core {
    /// Opens a watch that begins with the present objects: never at `0`, which no stream can start
    /// from (WL-2).
    pub(super) fn open_stream(&mut self, cycle: Cycle) -> Action {
        let unavailable = self.state.history == History::Unavailable;
        let asked = if unavailable || self.state.version().is_unset() {
            ResourceVersion::most_recent()
        } else {
            self.state.version().clone()
        };
        self.open_stream_at(asked, cycle)
    }

    pub(super) fn open_stream_at(&mut self, asked: ResourceVersion, cycle: Cycle) -> Action {
        self.state.status.phase = Phase::Listing;
        let timeout = self.state.draw_timeout();
        let request = WatchRequest {
            resource_version: asked.clone(),
            timeout,
            head_timeout: timeout,
            bookmarks: true,
            send_initial_events: true,
            urgent: self.facts.urgent,
        };
        self.step = CoreStep::OpeningStream(Streaming {
            asked,
            opened_at: self.facts.now,
            timeout,
            last_event: None,
            last_item: self.facts.now,
            progress: self.facts.now,
            cycle,
        });
        Action::Open(request)
    }

    pub(super) fn stream_opened(&mut self, mut streaming: Streaming) -> Action {
        streaming.opened_at = self.facts.now;
        streaming.last_item = self.facts.now;
        streaming.progress = self.facts.now;
        self.collect(streaming)
    }

    /// Reads on, unless the stream is to be given up (B8).
    pub(super) fn collect(&mut self, streaming: Streaming) -> Action {
        let until = streaming.given_up_at();
        if self.facts.now >= until {
            return self.give_up_stream(&streaming);
        }
        self.step = CoreStep::Streaming(streaming);
        Action::Read { until }
    }

    pub(super) fn stream_seen(&mut self, mut streaming: Streaming, seen: Seen) -> Action {
        streaming.last_event = Some(self.facts.now);
        self.state.progress(self.facts.now);
        match seen {
            Seen::Object { kind, .. } => {
                if kind == EventKind::Added {
                    streaming.last_item = self.facts.now;
                    streaming.progress = self.facts.now;
                }
                self.step = CoreStep::Streaming(streaming);
                Action::Stage
            }
            Seen::Bookmark {
                version,
                ends_initial: true,
            } => self.stream_complete(&streaming, version),
            Seen::Bookmark { .. } => self.collect(streaming),
            Seen::Skipped { reason, .. } => {
                self.skipped(reason);
                self.collect(streaming)
            }
            Seen::Error(error) => self.stream_failed(&streaming, error),
        }
    }

    /// WL-4: publishes the list, and goes on with the same watch.
    fn stream_complete(&mut self, streaming: &Streaming, version: ResourceVersion) -> Action {
        self.state.expect_bookmarks(Some(Duration::ZERO));
        self.state.stream_pauses.restart();
        self.state.lives_again();
        let mut cycle = streaming.cycle;
        if version.is_empty() {
            let text = "the final bookmark of a streamed list has no version";
            let error = Error::new(ErrorKind::Protocol, text);
            return self.stream_failed(streaming, error);
        }
        if !streaming.asked.is_empty() && self.state.is_older_than_known(&version) {
            if use_up(&mut cycle.most_recent) {
                return self.open_stream_at(ResourceVersion::most_recent(), cycle);
            }
            return self.stale(&version);
        }
        let watching = Watching::taken_over(streaming.opened_at, streaming.timeout, self.facts.now);
        let confirmed = (version, self.facts.now);
        self.commit(&streaming.asked, confirmed, cycle, Some(watching))
    }

    /// Follows a stream that failed at its opening or later: WL-7, WL-8, WL-9.
    pub(super) fn stream_failed(&mut self, streaming: &Streaming, error: Error) -> Action {
        let mut cycle = streaming.cycle;
        let answer = AnswerKind::of(&error);
        let again = cycle.refused_streams > 0;
        let step = self.state.after(PolicyRequest::Stream, &error, again);
        // An unreachable server refuses nothing.
        let refused = u8::from(answer != AnswerKind::Refused);
        cycle.refused_streams = cycle.refused_streams.saturating_add(refused);
        if matches!(
            answer,
            AnswerKind::Expired | AnswerKind::Gone | AnswerKind::TooLarge
        ) {
            self.state.history = History::Unavailable;
            if !streaming.asked.is_empty() && use_up(&mut cycle.most_recent) {
                return self.open_stream(cycle);
            }
        }
        let error = error.asked_as(&format!("failed to stream {}", self.state.what));
        self.state.fell_behind(self.facts.now);
        let next = match (step.next, step.wait) {
            (NextRequest::ListPlainly, WaitRule::AtOnce) => {
                return self.fall_back(cycle, &error);
            }
            (NextRequest::ListPlainly, _) => {
                if answer == AnswerKind::OverLimit {
                    // Another stream would be as large; a list in pages may fit.
                    self.state.may_stream = false;
                } else if again {
                    self.state.pause_streams(self.facts.now);
                }
                AfterPause::List(cycle)
            }
            _ => AfterPause::Stream(cycle),
        };
        self.fail(error, step.wait, next)
    }

    /// WL-9: a plain list for this cycle; the next cycle streams again.
    pub(super) fn fall_back(&mut self, cycle: Cycle, error: &Error) -> Action {
        let why = format!(
            "Data couldn't be fetched in watchlist mode. Falling back to regular list. err={error}"
        );
        self.state.log(log::Level::Debug, why);
        self.list(cycle)
    }

    /// WL-6: tries a stream that ended early again, after the wait of B9, and not for ever.
    pub(super) fn stream_ended(&mut self, streaming: &Streaming, end: Option<&Error>) -> Action {
        let lived = self.since(streaming.opened_at);
        let mut cycle = streaming.cycle;
        cycle.streams = cycle.streams.saturating_add(1);
        let why = end.map_or("cleanly", Error::cause);
        let text = format!("the streamed list ended before its final bookmark: {why}");
        let error = Error::new(ErrorKind::Protocol, text);
        if streaming.last_event.is_none() && lived < VERY_SHORT {
            return self.fall_back(cycle, &error);
        }
        if lived >= streaming.timeout {
            // The server's own time-out came before the bookmark: it does not know streamed lists.
            self.state.give_up_streams();
            return self.fall_back(cycle, &error);
        }
        if cycle.streams >= STREAMS_MAX {
            return self.fall_back(cycle, &error);
        }
        self.state.log(log::Level::Debug, error.to_string());
        self.reopen_after(lived, AfterPause::Stream(cycle))
    }

    /// The time to read is over. Bytes since the last event belong to one that is still coming in.
    pub(super) fn stream_quiet(
        &mut self,
        mut streaming: Streaming,
        last_contact: Instant,
    ) -> Action {
        if last_contact > streaming.last_event.unwrap_or(streaming.opened_at) {
            streaming.progress = streaming.progress.max(last_contact);
            self.state.progress(last_contact);
        }
        self.collect(streaming)
    }

    /// B8: gives up a stream without progress within the limit.
    fn give_up_stream(&mut self, streaming: &Streaming) -> Action {
        let idle = self.since(streaming.progress);
        let warning = match streaming.last_event {
            None => format!(
                "awaiting required bookmark event for initial events stream, no events received \
                 for {idle:.0?}"
            ),
            Some(last) => format!(
                "hasn't received required bookmark event marking the end of initial events stream, \
                 received last event {:.0?} ago",
                self.since(last)
            ),
        };
        self.state.log(log::Level::Warn, warning.clone());
        self.state.give_up_streams();
        let error = Error::new(ErrorKind::Timeout, warning);
        self.fall_back(streaming.cycle, &error)
    }
}
