//! The data that outlives the states: the position, facts about the server, the backoffs and the
//! status.

use std::time::{Duration, Instant};

use crate::clock::later;
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::list_watch::{Bound, OBJECTS_MAX};
use crate::object::ResourceVersion;
use crate::policy::{
    self, AnswerKind, Backoff, Chance, Fast, NAMED_MAX, PolicyRequest, REOPEN_AT_ONCE, RetryWindow,
    WaitRule, asked_wait,
};
use crate::reflector::options::WATCH_TIMEOUT_MIN;
use crate::reflector::{Phase, ReflectorOptions, ReflectorStatus};

use super::messages::{Effect, Facts};

/// The shortest steady wait, even if the options ask for none.
const STEADY_MIN: Duration = Duration::from_millis(1);
/// Ten years: the cap of an idle limit that is meant to be endless.
const IDLE_LIMIT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The shortest wait before a try at the end of a grace, or after an expired position (B9).
const WAIT_MIN: Duration = Duration::from_millis(50);
/// The list after an expired position is spread over this time: a server that comes back expires
/// all watches at once.
const SOON: Duration = Duration::from_secs(1);
/// The shortest time from the end of an object to the list that fetches the objects left out. Such
/// a collection is large.
const ROOM_WAIT: Duration = Duration::from_secs(5 * 60);
/// The silence limit, as a multiple of the longest interval between two bookmarks.
const BOOKMARKS_MISSED: u32 = 3;

/// How far the reflector can rely on the last version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    Known,
    /// A watch there expired: lists still ask for it (RF-34).
    Expired,
    /// A list there was refused: lists ask for the most recent until one succeeds (RF-9).
    Unavailable,
}

/// What the server has said of the content since the last watch was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    Given,
    Missing,
    /// A watch was found dead, or the deadline for the next contact passed, and no later watch has
    /// served. Changes may get lost on the way.
    Doubted,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are known or not, each for itself"
)]
pub(super) struct ReflectorState {
    pub(super) status: ReflectorStatus,
    pub(super) effects: Vec<Effect>,
    pub(super) history: History,
    /// Lists at `0` come in pages: the server has no cache (RF-11).
    pub(super) paged: bool,
    /// The longest time between two bookmarks, or from a watch's opening to the first. Set once the
    /// server is known to send them, so that silence means something (B11).
    bookmarks: Option<Duration>,
    /// Bookmarks came by themselves, and the source was told.
    bookmarks_told: bool,
    /// When the sink is next asked to resync (RF-47).
    pub(super) resync_due: Option<Instant>,
    /// How many objects the sink may hold, and how many it has left out.
    pub(super) bound: Bound,
    /// An object has gone since the last check of the bound.
    pub(super) one_went: bool,
    /// When the reflector lists again for objects that were left out, because there may be room.
    pub(super) relist_due: Option<Instant>,
    reopen: Backoff,
    pub(super) internal_errors: RetryWindow,
    idle_limit: Duration,
    pub(super) page_size: Option<u32>,
    /// Names the listed objects in messages.
    pub(super) what: String,
    /// The scope is one object by name.
    pub(super) one_object: bool,
    /// Since when the server's confirmation is missing: from the start of the run, or from a
    /// refusal that is an answer.
    pub(super) unconfirmed_since: Instant,
    /// Until when an open watch may be quiet if bookmarks are not known to come (B14).
    pub(super) quiet_until: Option<Instant>,
    pub(super) confirmation: Confirmation,
    /// Until when the end of a watch by its server keeps a doubt away.
    trusted_until: Option<Instant>,
    /// How many watches have broken off in the present doubt.
    pub(super) broken_off: u32,
    /// When part of a running list last came.
    progress: Option<Instant>,
    known_version: ResourceVersion,
    /// Whether lists may be streamed.
    pub(super) may_stream: bool,
    /// Until when lists are plain, after repeated refusals of streams.
    streams_from: Option<Instant>,
    pub(super) stream_pauses: Backoff,
    watch_timeout_min: Duration,
    resync_period: Option<Duration>,
    forbidden_grace: Duration,
    healthy_since: Option<Instant>,
    /// The last failure does not prove that the server works: connection refused, silence, 5xx or
    /// 429.
    away: bool,
    /// An expired position may lead to a list soon, once until a watch has served again. Otherwise
    /// a server whose watches all expire would be asked for ever at the first step of the backoff
    /// (B9, B10).
    pub(super) may_list_soon: bool,
    /// An answer after failures that prove no life may restart the backoff, once until a watch has
    /// served again.
    may_restart: bool,
    /// How many waits the server has named since a watch last served.
    named: u32,
    /// How many answers in a row suggest that the server cannot read the position.
    unreadable: u32,
    backoff: Backoff,
    fast: Fast,
    chance: Chance,
}

impl ReflectorState {
    pub(super) fn new(
        options: &ReflectorOptions,
        what: String,
        one_object: bool,
        now: Instant,
    ) -> Self {
        // Longer than any program runs, yet an instant can hold it.
        let idle_limit = options.idle_limit.min(IDLE_LIMIT_MAX);
        let status = ReflectorStatus {
            failures: Failures::none_since(now),
            contact_deadline: Some(later(now, idle_limit)),
            ..ReflectorStatus::default()
        };
        Self {
            unconfirmed_since: now,
            quiet_until: None,
            confirmation: Confirmation::Missing,
            trusted_until: None,
            broken_off: 0,
            progress: None,
            status,
            effects: Vec::new(),
            history: History::Known,
            paged: false,
            bookmarks: None,
            bookmarks_told: false,
            resync_due: None,
            bound: Bound::new(OBJECTS_MAX),
            one_went: false,
            relist_due: None,
            reopen: Backoff::of_reopening(),
            internal_errors: RetryWindow::new(options.internal_error_retry),
            idle_limit,
            page_size: options.page_size.filter(|size| *size > 0),
            what,
            one_object,
            known_version: options.known_version.clone().unwrap_or_default(),
            may_stream: options.watch_list,
            streams_from: None,
            stream_pauses: Backoff::of_streams(),
            watch_timeout_min: options.watch_timeout_min.max(WATCH_TIMEOUT_MIN),
            resync_period: options.resync_period.filter(|period| !period.is_zero()),
            forbidden_grace: options.forbidden_grace,
            healthy_since: None,
            away: false,
            may_list_soon: true,
            may_restart: true,
            named: 0,
            unreadable: 0,
            backoff: Backoff::new(options.backoff.clone()),
            fast: Fast::default(),
            chance: Chance::new(options.seed.unwrap_or_else(|| options.clock.seed())),
        }
    }

    pub(super) fn version(&self) -> &ResourceVersion {
        &self.status.resource_version
    }

    /// Whether a list of that version would take the content back in time (B4, B18).
    pub(super) fn is_older_than_known(&self, version: &ResourceVersion) -> bool {
        version.is_older_than(&self.known_version) || version.is_older_than(self.version())
    }

    /// Gives up streamed lists for this reflector, and tells the source (B8).
    pub(super) fn give_up_streams(&mut self) {
        self.may_stream = false;
        self.effects.push(Effect::WatchListFailed);
    }

    /// Whether a list may be streamed now.
    pub(super) fn may_stream(&self, now: Instant) -> bool {
        self.may_stream && self.streams_from.is_none_or(|from| from <= now)
    }

    /// Makes lists plain for a while after repeated refusals of streams, each time for longer.
    pub(super) fn pause_streams(&mut self, now: Instant) {
        self.streams_from = Some(later(now, self.stream_pauses.next(&mut self.chance)));
    }

    /// The policy's row for a failure. `again` says that the same happened before.
    pub(super) fn after(
        &mut self,
        request: PolicyRequest,
        error: &Error,
        again: bool,
    ) -> policy::PolicyStep {
        let mut failed = 1_u32.saturating_add(again.into());
        let at_a_version = matches!(
            request,
            PolicyRequest::ListAt | PolicyRequest::Open | PolicyRequest::Watch
        );
        let answer = AnswerKind::of(error);
        let may_be_unreadable = matches!(answer, AnswerKind::Unreadable | AnswerKind::Internal);
        if request == PolicyRequest::Watch && asked_wait(error).is_some() {
            failed = failed.max(self.named.saturating_add(1));
        } else if at_a_version && may_be_unreadable {
            self.unreadable = self.unreadable.saturating_add(1);
            failed = self.unreadable;
        } else if at_a_version && error.status().is_some() {
            self.unreadable = 0;
        }
        policy::after(request, error, failed)
    }

    /// Whether bookmarks are expected, so that an idle watch counts as silent.
    pub(super) fn expects_bookmarks(&self) -> bool {
        self.bookmarks.is_some()
    }

    /// Takes over the known interval of bookmarks from other watches. The bookmark that ends a
    /// streamed list does not count.
    pub(super) fn expect_bookmarks(&mut self, interval: Option<Duration>) {
        self.bookmarks = self.bookmarks.max(interval);
    }

    /// Notes a spontaneous bookmark, `interval` after the one before. The source is told of the
    /// first, and of an interval that makes the idle limit longer (B11).
    pub(super) fn bookmark_came(&mut self, interval: Duration) {
        let first = !std::mem::replace(&mut self.bookmarks_told, true);
        let limit = self.idle_limit();
        let longest = self.bookmarks.unwrap_or_default().max(interval);
        self.bookmarks = Some(longest);
        if first || self.idle_limit() > limit {
            self.effects.push(Effect::BookmarkCame(longest));
        }
    }

    /// The silence after which a watch counts as dead: the option, or three times the longest
    /// interval between bookmarks if that is more. It is never longer than a watch lives.
    pub(super) fn idle_limit(&self) -> Duration {
        let longest = self.watch_timeout_min.saturating_mul(2);
        let interval = self.bookmarks.unwrap_or_default();
        let seldom = interval.saturating_mul(BOOKMARKS_MISSED);
        self.idle_limit.max(seldom.min(longest))
    }

    /// A time-out for a watch, in whole seconds: uniform between the minimum and its double (RF-2).
    pub(super) fn draw_timeout(&mut self) -> Duration {
        let drawn = self.chance.stretch(self.watch_timeout_min, 1.0);
        Duration::from_secs(drawn.as_secs())
    }

    /// Notes that the server confirmed the content.
    pub(super) fn contact(&mut self, at: Instant) {
        self.confirmation = Confirmation::Given;
        self.broken_off = 0;
        self.status.last_contact = self.status.last_contact.max(Some(at));
    }

    /// Notes that a watch was found dead, or that the server was silent for too long. What was
    /// confirmed before counts no more, and the opening of the next watch confirms nothing.
    pub(super) fn fell_silent(&mut self) {
        self.confirmation = Confirmation::Doubted;
    }

    /// Notes the end of a watch. An end by its server comes behind all events, so none was lost.
    pub(super) fn watch_ended(&mut self, by_server: bool, now: Instant) {
        if self.confirmation == Confirmation::Doubted {
            if by_server {
                self.confirmation = Confirmation::Missing;
                self.trusted_until = Some(later(now, self.idle_limit()));
            } else {
                self.broken_off = self.broken_off.saturating_add(1);
            }
        }
    }

    /// Notes that time has passed. A deadline that is over leaves the doubt of a dead watch.
    pub(super) fn time_passed(&mut self, now: Instant) {
        if self.status.contact_deadline.max(self.trusted_until) <= Some(now) {
            self.fell_silent();
        }
    }

    /// Notes an answer to a probe that was asked for at `at`. It confirms the content if nothing
    /// `has_changed`. Else it is a sign of life, unless there is a doubt: the next watch brings the
    /// changes.
    pub(super) fn probed(&mut self, has_changed: bool, at: Instant) {
        if !has_changed {
            self.contact(at);
        } else if self.confirmation != Confirmation::Doubted {
            self.confirmation = Confirmation::Given;
            self.progress = Some(at);
        }
        self.lives_again();
        self.succeeded();
    }

    /// Notes an event or a bookmark of a watch: the server lives, and the watch serves.
    pub(super) fn watch_served(&mut self) {
        (self.away, self.may_list_soon, self.may_restart) = (false, true, true);
        (self.named, self.unreadable) = (0, 0);
        self.status.failing = Failures::default();
        self.backoff.restart();
    }

    /// Notes the end of a watch. A watch that lived for a while has served, too.
    pub(super) fn watch_lived(&mut self, lived: Duration) {
        if lived >= REOPEN_AT_ONCE {
            self.watch_served();
        }
    }

    /// Notes an answer. After failures that prove no life the backoff restarts, once until a watch
    /// has served (B10).
    pub(super) fn lives_again(&mut self) {
        if std::mem::take(&mut self.away) && std::mem::take(&mut self.may_restart) {
            self.backoff.restart();
        }
    }

    /// Notes that the content is behind the server, until a list reaches the sink.
    pub(super) fn fell_behind(&mut self, now: Instant) {
        if self.status.synced {
            self.status.behind_since.get_or_insert(now);
        }
    }

    /// Notes that part of a running list came, which is neither confirmation nor silence. It does
    /// not count after a failure: lists that keep failing half-way would hide that the content is
    /// old.
    pub(super) fn progress(&mut self, at: Instant) {
        let failures = &self.status.failures;
        let last = failures.last().filter(|_| failures.count() > 0);
        if last.is_none_or(|error| error.kind() == ErrorKind::Expired) {
            self.progress = Some(at);
        }
    }

    /// Shows the deadline for the next contact: the idle limit after the last contact, unless a
    /// watch may be quiet for longer. Without an open watch, it is at most the idle limit from now.
    pub(super) fn update_contact_deadline(&mut self, may_be_quiet: bool, now: Instant) {
        if let Some(behind) = self.status.behind_since {
            self.status.contact_deadline = Some(behind);
            return;
        }
        let limit = self.idle_limit();
        let quiet = self.quiet_until.filter(|_| !self.expects_bookmarks());
        self.quiet_until = match quiet {
            Some(until) if !may_be_quiet => Some(until.min(later(now, limit))),
            until => until,
        };
        let contact = self.status.last_contact.max(Some(self.unconfirmed_since));
        let dues = [contact, self.progress].map(|at| at.map(|at| later(at, limit)));
        self.status.contact_deadline = dues.into_iter().flatten().chain(self.quiet_until).max();
    }

    /// Moves the position with an event, never back (B18 instead of RF-29).
    pub(super) fn advance(&mut self, version: ResourceVersion) {
        if !version.is_empty() && !version.is_older_than(self.version()) {
            self.status.resource_version = version;
        }
    }

    /// Notes that a list reached the sink: the run is synced, and the list's version is the
    /// position, whatever it was before.
    pub(super) fn synced(&mut self, version: ResourceVersion, confirmed_at: Instant, now: Instant) {
        self.known_version = version.clone();
        self.status.resource_version = version;
        self.status.synced = true;
        self.unconfirmed_since = self.unconfirmed_since.min(now);
        self.status.lists = self.status.lists.saturating_add(1);
        self.status.behind_since = None;
        self.history = History::Known;
        self.unreadable = 0;
        self.succeeded();
        self.contact(confirmed_at);
        self.rearm_resync(now);
    }

    pub(super) fn rearm_resync(&mut self, now: Instant) {
        let period = self.resync_period;
        self.resync_due = period.and_then(|period| now.checked_add(period));
    }

    /// Notes that a watch is open, which ends a series of failures.
    pub(super) fn recovered(&mut self, now: Instant) {
        self.status.watches = self.status.watches.saturating_add(1);
        if self.confirmation == Confirmation::Given {
            self.confirmation = Confirmation::Missing;
        }
        self.healthy_since.get_or_insert(now);
        self.succeeded();
        self.effects.push(Effect::Recovered);
    }

    /// Notes how many objects the sink has left out. Once an object has gone, a list fetches others
    /// to fill the room, unless changes and new objects fill it first.
    pub(super) fn leaves_out(&mut self, facts: &Facts) {
        if std::mem::replace(&mut self.bound.left_out, facts.left_out) != facts.left_out {
            let error = self.bound.error(&self.what);
            if let (None, Some(error)) = (&self.status.left_out, &error) {
                self.log(log::Level::Warn, error.to_string());
            }
            self.status.left_out = error;
            self.succeeded();
        }
        let one_went = std::mem::take(&mut self.one_went) && self.status.left_out.is_some();
        if one_went && self.relist_due.is_none() {
            self.relist_due = Some(later(facts.now, self.chance.stretch(ROOM_WAIT, 1.0)));
        }
    }

    /// Notes a success: readers see no failures any more.
    pub(super) fn succeeded(&mut self) {
        self.status.failures = Failures::default();
        if let Some(error) = self.status.left_out.clone() {
            self.status.failures.end_with(error);
        }
        self.status.refusal = None;
    }

    /// Notes a failure. Says when to go on, and whether a waiting caller may expedite that.
    pub(super) fn failed(
        &mut self,
        error: Error,
        wait: WaitRule,
        facts: &Facts,
    ) -> (Instant, bool) {
        let answer = AnswerKind::of(&error);
        let asked = asked_wait(&error).map(|asked| later(facts.now, asked));
        self.note(error, facts);
        self.status.phase = Phase::BackingOff;
        if let Some(asked) = asked {
            self.named = self.named.saturating_add(1);
            // The server chose this wait, so it uses up no step of the backoff.
            if wait == WaitRule::Named && self.named <= NAMED_MAX {
                return (asked, false);
            }
            let wait = self.backoff.next(&mut self.chance).max(STEADY_MIN);
            return (asked.max(later(facts.now, wait)), false);
        }
        let grace_end = self.grace_end().filter(|end| *end > facts.now);
        let fast = self.draw_fast(facts, grace_end.is_some());
        // Fast retries come before the steady backoff (B3), and use up none of its steps.
        let is_refused = self.status.refusal.is_some();
        let wait = fast.unwrap_or_else(|| {
            let wait = if is_refused {
                self.backoff.next_refused(&mut self.chance)
            } else {
                self.backoff.next(&mut self.chance)
            };
            wait.max(STEADY_MIN)
        });
        let until = later(facts.now, wait);
        let soon = later(facts.now, WAIT_MIN);
        let until = grace_end.map_or(until, |end| until.min(end.max(soon)));
        let expedited = if self.status.synced {
            answer != AnswerKind::TooMany
        } else {
            fast.is_none()
        };
        (until, expedited)
    }

    /// Notes that the position has expired. Says when the list follows, and whether a caller may
    /// expedite it: at a random time within a second, once until a watch has served (B9); else as
    /// after any failure.
    pub(super) fn expired(
        &mut self,
        error: Error,
        wait: WaitRule,
        facts: &Facts,
    ) -> (Instant, bool) {
        if wait != WaitRule::Soon || !std::mem::take(&mut self.may_list_soon) {
            return self.failed(error, wait, facts);
        }
        self.note(error, facts);
        self.backoff.restart();
        self.status.phase = Phase::BackingOff;
        let wait = self.chance.within(SOON).max(WAIT_MIN);
        (later(facts.now, wait), false)
    }

    /// The new end of a pause in which a caller began to wait (B3), or read the content (B10). It
    /// is never later than before.
    pub(super) fn expedited(&mut self, since: Instant, until: Instant, now: Instant) -> Instant {
        // Readers already have the refusal as their answer, so they must not cause more tries.
        if self.status.refusal.is_some() {
            return until.min(later(since, self.backoff.wanted(&mut self.chance)));
        }
        if self.status.synced {
            return until.min(later(since, self.backoff.first(&mut self.chance)));
        }
        let sooner = match self.fast.next(now, &mut self.chance) {
            Some(wait) => later(since, wait),
            // After the end of the series: its gap, or the steady wait if that is shorter.
            None => self.fast.next_series().unwrap_or(until),
        };
        sooner.max(later(since, WAIT_MIN)).min(until)
    }

    /// The wait of B9 before a watch that follows one of this lifetime.
    pub(super) fn reopen_wait(&mut self, lived: Duration) -> Duration {
        self.reopen.after_watch(lived, &mut self.chance)
    }

    pub(super) fn log(&mut self, level: log::Level, text: String) {
        self.effects.push(Effect::Log(level, text));
    }

    /// Counts and shows a failure. The next step decides whether it costs a backoff.
    pub(super) fn note(&mut self, error: Error, facts: &Facts) {
        let error = error.of_request(&self.what);
        let health = self.healthy_since.take().map_or(Duration::ZERO, |since| {
            facts.now.saturating_duration_since(since)
        });
        let failures = &mut self.status.failures;
        failures.add(error.clone(), facts.now, facts.now);
        let attempts = failures.count();
        let failing = &mut self.status.failing;
        failing.add(error.clone(), facts.now, facts.now);
        self.progress = None;
        // R4: a refusal that outlasts the grace becomes an answer. So does a resource that the
        // server does not know.
        self.status.refusal = self.status.failures.refusal(self.forbidden_grace).cloned();
        self.backoff.after(health);
        if proves_life(&error) {
            self.lives_again();
        } else if asked_wait(&error).is_none() {
            // A server that names a wait is alive, so a later answer to a list proves nothing new.
            self.away = true;
        }
        let phase = self.status.phase;
        self.effects.push(Effect::Failed(phase, error, attempts));
    }

    fn grace_end(&self) -> Option<Instant> {
        let since = self.status.failures.refused_since()?;
        Some(later(since, self.forbidden_grace))
    }

    /// The next fast wait, if a caller waits for a first sync. Within the grace of a refusal fast
    /// waits do not run out.
    fn draw_fast(&mut self, facts: &Facts, in_grace: bool) -> Option<Duration> {
        if self.status.synced || !facts.urgent || self.status.refusal.is_some() {
            return None;
        }
        let fast = self.fast.next(facts.now, &mut self.chance);
        fast.or_else(|| in_grace.then_some(Fast::LONGEST))
    }
}

/// Whether a failure proves that the server works. Servers that do not work also answer 5xx and
/// 429.
fn proves_life(error: &Error) -> bool {
    let code = error.status().map(crate::object::Status::code);
    code.is_some_and(|code| code < 500 && code != 429)
}
