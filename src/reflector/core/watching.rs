//! An open watch: what its events move, and what each of its ends leads to (RF-21..RF-49, B9, B11).

use std::time::{Duration, Instant};

use crate::clock::later;
use crate::error::{Error, ErrorKind};
use crate::list_watch::{EventKind, WatchRequest};
use crate::object::ResourceVersion;
use crate::policy::{Answer, NextRequest, RequestKind, WaitRule};
use crate::reflector::Phase;

use super::messages::{Action, Effect, Facts, Seen};
use super::state::History;
use super::steps::{AfterPause, Committing, Core, Step, VERY_SHORT, Watching, use_up};

/// How late a server may be in ending a watch by its own time-out (B11).
const TIMEOUT_SLACK: Duration = Duration::from_secs(30);
/// How long one event may take to come in beyond the idle limit, as long as bytes do: the largest
/// objects fit in at 30 kB a second. Blank lines are bytes, too.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

impl Watching {
    /// A watch that was asked for at `now`.
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

    /// When the server has ended it by its own time-out, if it does.
    fn outlived_at(&self) -> Instant {
        later(self.opened_at, self.timeout.saturating_add(TIMEOUT_SLACK))
    }

    /// When it is taken for dead: bytes of an event that is coming in keep it, and not for ever
    /// (B11).
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
    /// Opens a watch at the last version (RF-21). The head of its answer may come as late as its
    /// first event.
    pub(super) fn open(&mut self, facts: &Facts) -> Action {
        self.state.status.phase = Phase::Opening;
        self.state.expect_bookmarks(facts.bookmarks);
        let timeout = self.state.draw_timeout();
        let watching = Watching::asked(timeout, facts.now);
        if self.state.status.failures.count() == 0 && self.state.confirmed {
            self.state.quiet_until = Some(watching.outlived_at());
        }
        self.step = Step::Opening(watching);
        Action::Open(WatchRequest {
            resource_version: self.state.version().clone(),
            timeout,
            head_timeout: self.head_timeout(&watching),
            bookmarks: true,
            send_initial_events: false,
            urgent: false,
        })
    }

    /// How long the head of a watch's answer may be awaited.
    fn head_timeout(&self, watching: &Watching) -> Duration {
        let outlived = watching.timeout.saturating_add(TIMEOUT_SLACK);
        if self.state.expects_bookmarks() {
            self.state.idle_limit().min(outlived)
        } else {
            outlived
        }
    }

    pub(super) fn opened(&mut self, opening: Watching, facts: &Facts) -> Action {
        let watching = Watching {
            withheld: self.state.version().is_unset(),
            may_be_quiet: self.state.confirmed,
            ..opening.opened(facts.now)
        };
        self.state.recovered(facts.now);
        self.state.expect_bookmarks(facts.bookmarks);
        self.read(watching)
    }

    /// A head that did not come in its time is a watch on which nothing came: it is opened again,
    /// behind a probe (B11).
    pub(super) fn open_failed(
        &mut self,
        opening: &Watching,
        error: Error,
        facts: &Facts,
    ) -> Action {
        let asked_for = facts.now.saturating_duration_since(opening.asked_at);
        let held_back =
            error.kind() == ErrorKind::Timeout && asked_for >= self.head_timeout(opening);
        let error = error.context(&format!("failed to watch {}", self.state.what));
        if held_back && error.status().is_none() {
            self.state.note(error, facts);
            self.state.effects.push(Effect::Disconnect);
            return self.reopen_after(asked_for, AfterPause::Probe, facts);
        }
        self.watch_failed(RequestKind::Open, error, facts)
    }

    /// The replacement is the content: watch from there.
    pub(super) fn committed(&mut self, committing: Committing, facts: &Facts) -> Action {
        let Committing {
            of,
            confirmed_at,
            stream,
            ..
        } = committing;
        self.state.relist_due = None;
        self.state.leaves_out(facts);
        self.state
            .synced(of.resource_version, confirmed_at, facts.now);
        match stream {
            None => self.open(facts),
            Some(watching) => {
                self.state.recovered(facts.now);
                self.read(watching)
            }
        }
    }

    /// RF-17: the position stays where it was; a streamed list falls back to a plain one (WL-14). A
    /// sink that knows of something newer is given the most recent, as the same server would give
    /// the same answer again (B4).
    pub(super) fn commit_failed(
        &mut self,
        committing: &Committing,
        error: Error,
        facts: &Facts,
    ) -> Action {
        self.state.fell_behind(facts.now);
        let mut cycle = committing.cycle;
        let streamed = committing.stream.is_some();
        self.state.history = History::Known;
        let stale = error.kind() == ErrorKind::Stale && !committing.of.consistent;
        if stale && use_up(&mut cycle.most_recent) {
            let asked = ResourceVersion::most_recent();
            return if streamed {
                self.open_stream_at(asked, cycle, facts)
            } else {
                self.list_at(asked, cycle, false, facts)
            };
        }
        if streamed {
            let error = error.context("unable to sync watch-list result");
            return self.fall_back(cycle, error, facts);
        }
        let error = error.context("unable to sync list result");
        self.fail(error, WaitRule::Longer, AfterPause::Cycle, facts)
    }

    pub(super) fn applied(
        &mut self,
        watching: Watching,
        result: Result<(), Error>,
        facts: &Facts,
    ) -> Action {
        let Err(error) = result else {
            self.state.leaves_out(facts);
            return self.read_or_relist(watching, facts);
        };
        self.state.fell_behind(facts.now);
        let error = error.context("a change of the watch could not be applied");
        self.fail(error, WaitRule::Longer, AfterPause::Cycle, facts)
    }

    pub(super) fn resynced(
        &mut self,
        watching: Watching,
        result: Result<(), Error>,
        facts: &Facts,
    ) -> Action {
        if let Err(error) = result {
            let error = error.context("resync failed");
            return self.fail(error, WaitRule::Longer, AfterPause::Cycle, facts);
        }
        self.state.rearm_resync(facts.now);
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
        self.step = Step::Watching(watching);
        Action::Read { until }
    }

    pub(super) fn seen(&mut self, watching: Watching, seen: Seen, facts: &Facts) -> Action {
        let mut watching = Watching {
            last_event: facts.now,
            ..watching
        };
        let (version, action) = match seen {
            Seen::Error(error) => return self.watch_error(&watching, error, facts),
            Seen::Skipped { reason, version } => {
                self.skipped(reason);
                if version.is_empty() {
                    return self.read(watching);
                }
                (version, None)
            }
            Seen::Bookmark { version, .. } => {
                let since = facts.now.saturating_duration_since(watching.last_bookmark);
                self.state.bookmark_came(since);
                watching.last_bookmark = facts.now;
                (version.clone(), Some(Action::Bookmark(version)))
            }
            // A watch at no version begins with additions in no order.
            Seen::Object {
                kind: EventKind::Added,
                ..
            } if watching.withheld => (ResourceVersion::default(), Some(Action::Apply)),
            Seen::Object { version, .. } => (version, Some(Action::Apply)),
        };
        watching.withheld &= version.is_empty();
        watching.had_events = true;
        watching.may_be_quiet = true;
        self.state.contact(facts.now);
        self.state.watch_served();
        self.state.advance(version);
        match action {
            None => self.read(watching),
            Some(action) => {
                self.step = Step::Watching(watching);
                action
            }
        }
    }

    /// RF-25, RF-28: an event that is no change is logged once at a visible level, then quietly.
    fn skipped(&mut self, reason: String) {
        let level = if self.state.status.skipped == 0 {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        self.state.status.skipped = self.state.status.skipped.saturating_add(1);
        self.state.log(level, reason);
    }

    /// RF-34..RF-38: the server ended the watch with an error.
    fn watch_error(&mut self, watching: &Watching, error: Error, facts: &Facts) -> Action {
        let lived = facts.now.saturating_duration_since(watching.asked_at);
        self.state.watch_lived(lived);
        let internal = Answer::of(&error) == Answer::Internal;
        if internal && self.state.internal_errors.admits(facts.now) {
            let why = format!("the watch is retried after an internal error err={error}");
            self.state.log(log::Level::Debug, why);
            if error.retry_after().is_some() {
                let error = error.context("watch ended with error");
                return self.fail(error, WaitRule::Named, AfterPause::Watch, facts);
            }
            return self.reopen_after(lived, AfterPause::Watch, facts);
        }
        let error = error.context("watch ended with error");
        self.watch_failed(RequestKind::Watch, error, facts)
    }

    /// The watch again at the last version, or else a new cycle.
    fn watch_failed(&mut self, request: RequestKind, error: Error, facts: &Facts) -> Action {
        let again = !self.state.may_list_soon;
        let step = self.state.after(request, &error, again);
        if step.next == NextRequest::Same {
            return self.fail(error, step.wait, AfterPause::Watch, facts);
        }
        if request == RequestKind::Watch {
            self.state.fell_behind(facts.now);
        }
        if matches!(Answer::of(&error), Answer::Expired | Answer::Gone) {
            self.state.history = History::Expired;
            return self.expired(error, step.wait, facts);
        }
        if step.next == NextRequest::MostRecent {
            self.state.history = History::Unavailable;
        }
        self.fail(error, step.wait, AfterPause::Cycle, facts)
    }

    /// The position is not in the server's history: the content is behind, and listed again soon
    /// (RF-34, RF-41, B9).
    pub(super) fn expired(&mut self, error: Error, wait: WaitRule, facts: &Facts) -> Action {
        self.state.fell_behind(facts.now);
        let (until, on_demand) = self.state.expired(error, wait, facts);
        self.pause(until, on_demand, AfterPause::Cycle, facts)
    }

    /// RF-32, RF-33: the watch came to its end, cleanly or broken off (RS-4).
    pub(super) fn watch_ended(
        &mut self,
        watching: &Watching,
        end: Option<Error>,
        facts: &Facts,
    ) -> Action {
        let lived = facts.now.saturating_duration_since(watching.asked_at);
        self.state.watch_lived(lived);
        if !watching.had_events && lived < VERY_SHORT {
            let text = format!(
                "very short watch: {}: Unexpected watch close - watch lasted less than a second \
                 and no items received",
                self.state.what
            );
            let mut error = Error::new(ErrorKind::Protocol, text);
            if let Some(end) = end {
                error = error.with_source(end);
            }
            return self.fail(error, WaitRule::Longer, AfterPause::Cycle, facts);
        }
        if let Some(end) = end {
            let why = format!("the watch broke off err={end}");
            self.state.log(log::Level::Debug, why);
        }
        self.reopen_after(lived, after(watching), facts)
    }

    /// Goes on with `next` after the wait that B9 asks for.
    pub(super) fn reopen_after(
        &mut self,
        lived: Duration,
        next: AfterPause,
        facts: &Facts,
    ) -> Action {
        let wait = self.state.reopen_wait(lived);
        if wait.is_zero() {
            return self.go_on(next, facts);
        }
        self.state.status.phase = match &next {
            AfterPause::Watch | AfterPause::Probe => Phase::Opening,
            AfterPause::Cycle
            | AfterPause::Again(_)
            | AfterPause::List(_)
            | AfterPause::Stream(_) => Phase::Listing,
        };
        let until = later(facts.now, wait);
        self.pause(until, false, next, facts)
    }

    /// The time to read is over: a resync is due, or the silence means that the connection is dead
    /// (B11).
    pub(super) fn quiet(
        &mut self,
        watching: Watching,
        last_contact: Instant,
        facts: &Facts,
    ) -> Action {
        let watching = Watching {
            last_bytes: watching.last_bytes.max(last_contact),
            ..watching
        };
        let limit = self.state.idle_limit();
        if facts.now >= watching.dead_at(self.state.expects_bookmarks(), limit) {
            let lived = facts.now.saturating_duration_since(watching.asked_at);
            let silence = facts.now.saturating_duration_since(watching.last_event);
            self.state.watch_lived(lived);
            self.state.effects.push(Effect::Disconnect);
            if watching.had_events && silence < limit {
                let why = "the watch has outlived its time-out: it is opened again";
                self.state.log(log::Level::Debug, why.to_owned());
                return self.reopen_after(lived, AfterPause::Watch, facts);
            }
            let error = Error::new(
                ErrorKind::Timeout,
                format!(
                    "no event came on the watch of {} for {silence:.0?}: it is opened again",
                    self.state.what
                ),
            );
            self.state.note(error, facts);
            return self.reopen_after(lived, after(&watching), facts);
        }
        if self.state.resync_due.is_some_and(|due| due <= facts.now) {
            self.step = Step::Watching(watching);
            return Action::Resync;
        }
        self.read_or_relist(watching, facts)
    }

    /// Reads on, unless a list is to bring objects that were left out.
    fn read_or_relist(&mut self, watching: Watching, facts: &Facts) -> Action {
        if self.state.relist_due.is_none_or(|due| due > facts.now) {
            return self.read(watching);
        }
        self.state.relist_due = None;
        self.state.status.phase = Phase::Listing;
        self.pause(facts.now, false, AfterPause::Cycle, facts)
    }
}

/// What follows the end of a watch: one that was silent from its opening on may have been so
/// because the server cannot know what changed.
fn after(watching: &Watching) -> AfterPause {
    if watching.had_events {
        AfterPause::Watch
    } else {
        AfterPause::Probe
    }
}
