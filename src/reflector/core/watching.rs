//! An open watch: the effects of its events, and the step after each kind of end (RF-21..RF-49, B9,
//! B11).

use std::time::{Duration, Instant};

use crate::clock::later;
use crate::error::{Error, ErrorKind};
use crate::list_watch::{EventKind, WatchRequest};
use crate::object::ResourceVersion;
use crate::policy::{AnswerKind, NextRequest, PolicyRequest, WaitRule};
use crate::reflector::Phase;

use super::messages::{Action, Effect, Seen};
use super::state::{Confirmation, History};
use super::steps::{AfterPause, Committing, Core, CoreStep, VERY_SHORT, Watching, use_up};

/// How late a server may be in ending a watch by its own time-out (B11).
const TIMEOUT_SLACK: Duration = Duration::from_secs(30);
/// How long one event may take beyond the idle limit while bytes keep coming. At 30 kB a second the
/// largest objects fit in. Blank lines are bytes, too.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

impl Watching {
    /// Creates a watch that was asked for at `now`.
    fn asked(timeout: Duration, now: Instant) -> Self {
        Self {
            asked_at: now,
            opened_at: now,
            timeout,
            had_events: false,
            withheld: false,
            last_event: now,
            last_bookmark: now,
            last_bytes: now,
            may_be_quiet: false,
        }
    }

    /// The same watch once it is open: its times begin now.
    fn opened(self, now: Instant) -> Self {
        Self {
            asked_at: self.asked_at,
            ..Self::asked(self.timeout, now)
        }
    }

    /// The watch of a streamed list that is complete (WL-4).
    pub(super) fn taken_over(opened_at: Instant, timeout: Duration, now: Instant) -> Self {
        Self {
            asked_at: opened_at,
            opened_at,
            had_events: true,
            may_be_quiet: true,
            ..Self::asked(timeout, now)
        }
    }

    /// When the server should have ended it by its own time-out.
    fn outlived_at(&self) -> Instant {
        later(self.opened_at, self.timeout.saturating_add(TIMEOUT_SLACK))
    }

    /// When it counts as dead. Bytes of an incomplete event extend that, but not for ever (B11).
    fn dead_at(&self, bookmarks: bool, idle_limit: Duration) -> Instant {
        let outlived = self.outlived_at();
        if !bookmarks {
            return outlived;
        }
        let silent = later(self.last_event.max(self.last_bytes), idle_limit);
        let trickled = later(self.last_event, idle_limit.saturating_add(EVENT_LIMIT));
        silent.min(trickled).min(outlived)
    }
}

impl Core {
    /// Opens a watch at the last version (RF-21). The head of the answer may come as late as the
    /// first event.
    pub(super) fn open(&mut self) -> Action {
        self.state.status.phase = Phase::Opening;
        self.state.expect_bookmarks(self.facts.bookmarks);
        let timeout = self.state.draw_timeout();
        let watching = Watching::asked(timeout, self.facts.now);
        if self.state.status.failures.count() == 0 && self.state.confirmation == Confirmation::Given
        {
            self.state.quiet_until = Some(watching.outlived_at());
        }
        self.step = CoreStep::Opening(watching);
        Action::Open(WatchRequest {
            resource_version: self.state.version().clone(),
            timeout,
            head_timeout: self.head_timeout(&watching),
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        })
    }

    /// How long the reflector waits for the head of a watch's answer.
    fn head_timeout(&self, watching: &Watching) -> Duration {
        let outlived = watching.timeout.saturating_add(TIMEOUT_SLACK);
        if self.state.expects_bookmarks() {
            self.state.idle_limit().min(outlived)
        } else {
            outlived
        }
    }

    pub(super) fn opened(&mut self, opening: Watching) -> Action {
        let watching = Watching {
            withheld: self.state.version().is_unset(),
            may_be_quiet: self.state.confirmation == Confirmation::Given,
            ..opening.opened(self.facts.now)
        };
        self.state.recovered(self.facts.now);
        self.state.expect_bookmarks(self.facts.bookmarks);
        self.read(watching)
    }

    /// Treats a head that did not come in time as a silent watch: opens it again, after a probe
    /// (B11).
    pub(super) fn open_failed(&mut self, opening: &Watching, error: Error) -> Action {
        let asked_for = self.since(opening.asked_at);
        let held_back =
            error.kind() == ErrorKind::Timeout && asked_for >= self.head_timeout(opening);
        let error = error.asked_as(&format!("failed to watch {}", self.state.what));
        if held_back && error.status().is_none() {
            self.state.fell_silent();
            self.state.note(error, &self.facts);
            self.state.effects.push(Effect::Disconnect);
            return self.reopen_after(asked_for, AfterPause::Probe);
        }
        self.watch_failed(PolicyRequest::Open, error)
    }

    /// The replacement is the content now: watches from there.
    pub(super) fn committed(&mut self, committing: Committing) -> Action {
        self.state.relist_due = None;
        self.state.leaves_out(&self.facts);
        let version = committing.of.resource_version;
        self.state
            .synced(version, committing.confirmed_at, self.facts.now);
        match committing.stream {
            None => self.open(),
            Some(watching) => {
                self.state.recovered(self.facts.now);
                self.read(watching)
            }
        }
    }

    /// RF-17: the position stays where it was; a streamed list falls back to a plain one (WL-14).
    /// For a sink with newer content it asks for the most recent list, because the server would
    /// repeat the same answer (B4).
    pub(super) fn commit_failed(&mut self, committing: &Committing, error: Error) -> Action {
        self.state.fell_behind(self.facts.now);
        let mut cycle = committing.cycle;
        let streamed = committing.stream.is_some();
        self.state.history = History::Known;
        let stale = error.kind() == ErrorKind::Stale && !committing.of.consistent;
        if stale && use_up(&mut cycle.most_recent) {
            let asked = ResourceVersion::most_recent();
            return if streamed {
                self.open_stream_at(asked, cycle)
            } else {
                self.list_at(asked, cycle, false)
            };
        }
        if streamed {
            let error = error.context("unable to sync watch-list result");
            return self.fall_back(cycle, &error);
        }
        let error = error.context("unable to sync list result");
        self.fail(error, WaitRule::Longer, AfterPause::Cycle)
    }

    pub(super) fn applied(&mut self, watching: Watching, result: Result<(), Error>) -> Action {
        let Err(error) = result else {
            self.state.leaves_out(&self.facts);
            return self.read_or_relist(watching);
        };
        self.state.fell_behind(self.facts.now);
        let error = error.context("a change of the watch could not be applied");
        self.fail(error, WaitRule::Longer, AfterPause::Cycle)
    }

    pub(super) fn resynced(&mut self, watching: Watching, result: Result<(), Error>) -> Action {
        if let Err(error) = result {
            let error = error.context("resync failed");
            return self.fail(error, WaitRule::Longer, AfterPause::Cycle);
        }
        self.state.rearm_resync(self.facts.now);
        self.read(watching)
    }

    /// Reads on until silence means something, or a resync is due.
    fn read(&mut self, watching: Watching) -> Action {
        self.state.status.phase = Phase::Watching;
        let dead_at = watching.dead_at(self.state.expects_bookmarks(), self.state.idle_limit());
        if watching.may_be_quiet {
            self.state.quiet_until = Some(watching.outlived_at());
        }
        let dues = [self.state.resync_due, self.state.relist_due];
        let until = dues.into_iter().flatten().fold(dead_at, Instant::min);
        self.step = CoreStep::Watching(watching);
        Action::Read { until }
    }

    pub(super) fn seen(&mut self, mut watching: Watching, seen: Seen) -> Action {
        if let Seen::Bookmark { version, .. } = &seen
            && version.is_older_than(self.state.version())
        {
            // No server sends it on a watch of a later version, unless its history has gone back.
            // It confirms nothing, and the silence goes on until a probe.
            return self.read(watching);
        }
        let dead_at = watching.dead_at(self.state.expects_bookmarks(), self.state.idle_limit());
        if self.facts.now >= dead_at {
            // This program stood still, so how often bookmarks come is not seen.
            watching.last_bookmark = self.facts.now;
        }
        watching.last_event = self.facts.now;
        let (version, action) = match seen {
            Seen::Error(error) => return self.watch_error(&watching, error),
            Seen::Skipped { reason, version } => {
                self.skipped(reason);
                if version.is_empty() {
                    return self.read(watching);
                }
                (version, None)
            }
            Seen::Bookmark { version, .. } => {
                let since = self.since(watching.last_bookmark);
                self.state.bookmark_came(since);
                watching.last_bookmark = self.facts.now;
                (version.clone(), Some(Action::Bookmark(version)))
            }
            // A watch at no version begins with additions in no order.
            Seen::Object { kind, .. } if watching.withheld && kind == EventKind::Added => {
                (ResourceVersion::default(), Some(Action::Apply))
            }
            Seen::Object { version, .. } => (version, Some(Action::Apply)),
        };
        watching.withheld &= version.is_empty();
        watching.had_events = true;
        watching.may_be_quiet = true;
        self.state.contact(self.facts.now);
        self.state.watch_served();
        self.state.advance(version);
        match action {
            None => self.read(watching),
            Some(action) => {
                self.step = CoreStep::Watching(watching);
                action
            }
        }
    }

    /// RF-25, RF-28: logs an event that is not a change, the first one at a visible level.
    pub(super) fn skipped(&mut self, reason: String) {
        let level = if self.state.status.skipped == 0 {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        self.state.status.skipped = self.state.status.skipped.saturating_add(1);
        self.state.log(level, reason);
    }

    /// RF-34..RF-38: the server ended the watch with an error.
    fn watch_error(&mut self, watching: &Watching, error: Error) -> Action {
        let error = error.asked_as(&format!("the watch of {} ended", self.state.what));
        let lived = self.since(watching.asked_at);
        self.state.watch_lived(lived);
        let internal = AnswerKind::of(&error) == AnswerKind::Internal;
        if internal && self.state.internal_errors.admits(self.facts.now) {
            let why = format!("the watch is retried after an internal error err={error}");
            self.state.log(log::Level::Debug, why);
            if error.retry_after().is_some() {
                return self.fail(error, WaitRule::Named, AfterPause::Watch);
            }
            return self.reopen_after(lived, AfterPause::Watch);
        }
        self.watch_failed(PolicyRequest::Watch, error)
    }

    /// Opens the watch again at the last version, or begins a new cycle.
    fn watch_failed(&mut self, request: PolicyRequest, error: Error) -> Action {
        let again = !self.state.may_list_soon;
        let step = self.state.after(request, &error, again);
        if step.next == NextRequest::Same {
            return self.fail(error, step.wait, AfterPause::Watch);
        }
        if request == PolicyRequest::Watch {
            self.state.fell_behind(self.facts.now);
        }
        let answer = AnswerKind::of(&error);
        if matches!(answer, AnswerKind::Expired | AnswerKind::Gone) {
            self.state.history = History::Expired;
            return self.expired(error, step.wait);
        }
        if step.next == NextRequest::MostRecent {
            self.state.history = History::Unavailable;
        }
        self.fail(error, step.wait, AfterPause::Cycle)
    }

    /// The server's history lacks the position: the content is behind, and a list follows soon
    /// (RF-34, RF-41, B9).
    pub(super) fn expired(&mut self, error: Error, wait: WaitRule) -> Action {
        self.state.fell_behind(self.facts.now);
        let (until, on_demand) = self.state.expired(error, wait, &self.facts);
        self.pause(until, on_demand, AfterPause::Cycle)
    }

    /// RF-32, RF-33: follows a watch that ended, cleanly or broken off (RS-4).
    pub(super) fn watch_ended(&mut self, watching: &Watching, end: Option<Error>) -> Action {
        let lived = self.since(watching.asked_at);
        self.state.watch_lived(lived);
        let by_server = end.is_none() && lived >= VERY_SHORT;
        self.state.watch_ended(by_server, self.facts.now);
        if !watching.had_events && lived < VERY_SHORT {
            let text = "very short watch: Unexpected watch close - watch lasted less than a second \
                        and no items received";
            let error = Error::new(ErrorKind::Protocol, text).caused_by(end);
            return self.fail(error, WaitRule::Longer, AfterPause::Cycle);
        }
        if let Some(end) = end {
            let why = format!("the watch broke off err={end}");
            self.state.log(log::Level::Debug, why);
        }
        self.reopen_after(lived, after(watching))
    }

    /// Goes on with `next` after the wait that B9 asks for.
    pub(super) fn reopen_after(&mut self, lived: Duration, next: AfterPause) -> Action {
        let wait = self.state.reopen_wait(lived);
        if wait.is_zero() {
            return self.go_on(next);
        }
        self.state.status.phase = match &next {
            AfterPause::Watch | AfterPause::Probe => Phase::Opening,
            AfterPause::Cycle
            | AfterPause::Again(_)
            | AfterPause::List(_)
            | AfterPause::Stream(_) => Phase::Listing,
        };
        let until = later(self.facts.now, wait);
        self.pause(until, false, next)
    }

    /// The time to read is over: a resync is due, or the silence means a dead connection (B11).
    pub(super) fn quiet(&mut self, mut watching: Watching, last_contact: Instant) -> Action {
        watching.last_bytes = watching.last_bytes.max(last_contact);
        let limit = self.state.idle_limit();
        if self.facts.now >= watching.dead_at(self.state.expects_bookmarks(), limit) {
            let lived = self.since(watching.asked_at);
            let silence = self.since(watching.last_event);
            self.state.watch_lived(lived);
            self.state.effects.push(Effect::Disconnect);
            if watching.had_events && silence < limit {
                let why = "the watch has outlived its time-out: it is opened again";
                self.state.log(log::Level::Debug, why.to_owned());
                return self.reopen_after(lived, AfterPause::Watch);
            }
            let text = format!("no event came on the watch for {silence:.0?}: it is opened again");
            let error = Error::new(ErrorKind::Timeout, text);
            self.state.fell_silent();
            self.state.note(error, &self.facts);
            return self.reopen_after(lived, after(&watching));
        }
        self.read_or_relist(watching)
    }

    /// Reads on, unless a resync is due, or a list for objects that were left out.
    fn read_or_relist(&mut self, watching: Watching) -> Action {
        let resync_due = self.state.resync_due;
        if resync_due.is_some_and(|due| due <= self.facts.now) {
            self.step = CoreStep::Watching(watching);
            return Action::Resync;
        }
        if self.state.relist_due.is_none_or(|due| due > self.facts.now) {
            return self.read(watching);
        }
        self.pause(self.facts.now, false, AfterPause::Cycle)
    }
}

/// The step after the end of a watch. If it was silent from its opening on, the server may be
/// unable to know what changed.
fn after(watching: &Watching) -> AfterPause {
    if watching.had_events {
        AfterPause::Watch
    } else {
        AfterPause::Probe
    }
}
