//! The status of a reflector, as one value that is cheap to read (B14).

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::list_watch::RequestProgress;
use crate::object::ResourceVersion;
use crate::policy::REOPEN_AT_ONCE;

/// The number of failures in a row, and the time since the first, from which a reflector is
/// unhealthy. A lost connection is below both, and so is a server that restarts quickly.
const FAILING_MIN: u32 = 3;
const FAILING_AFTER: Duration = Duration::from_secs(10);

/// The activity of a reflector's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It has sent no request yet.
    #[default]
    Starting,
    /// It lists, page by page or as a stream.
    Listing,
    /// It opens a watch, waits before that, or first asks whether the silent watch before it missed
    /// something.
    Opening,
    /// A watch is open.
    Watching,
    /// It waits after a failure.
    BackingOff,
    /// It has ended.
    Stopped,
}

/// A snapshot of a reflector's state.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReflectorStatus {
    /// The present activity.
    pub phase: Phase,
    /// Whether a list of this run has reached the sink.
    pub synced: bool,
    /// When the server last confirmed the content: by a whole event or bookmark of a watch, or by
    /// an answered list, which counts from its request. A stored list was confirmed by its age
    /// earlier. An opened watch, blank lines, the bytes of an incomplete event and a probe that
    /// shows changes confirm nothing.
    pub last_contact: Option<Instant>,
    /// Since when the content is known to be behind the server: its version expired, a change was
    /// lost, or a necessary list failed. `None` before the first list, and once a list has reached
    /// the sink.
    pub behind_since: Option<Instant>,
    /// When the content counts as unconfirmed unless the server confirms it before. `None` before
    /// the run began. [`health`](Self::health) has the rule.
    pub contact_deadline: Option<Instant>,
    /// The requests that have failed in a row. Empty again once a list or a watch succeeds, except
    /// that its last failure is then [`left_out`](Self::left_out). Before any failure it holds the
    /// start time of the run.
    pub failures: Failures,
    /// The requests that have failed since a watch last served: since one brought an event or a
    /// bookmark, or stayed open for five seconds. A list that succeeds does not end this record, as
    /// it does [`failures`](Self::failures). [`health`](Self::health) has the rule.
    ///
    /// Empty once the reflector has ended, unless a panic ended it. Then it has the panic.
    pub failing: Failures,
    /// Since when a watch is open.
    pub(crate) open_since: Option<Instant>,
    /// Why the content lacks objects of the server: `TooLarge`, with the objects asked for, how
    /// many objects the sink has refused since the last list, and the option that raises the
    /// maximum. `None` once a list has brought all objects.
    ///
    /// Such a list follows within 5 to 10 minutes after an object has gone. Until then, new and
    /// changed objects take the room.
    pub left_out: Option<Error>,
    /// A refusal that has outlasted
    /// [`ReflectorOptions::forbidden_grace`](crate::reflector::ReflectorOptions::forbidden_grace).
    /// The server refuses the resource (403) or does not know it (404): a custom resource is not
    /// installed, or a version is not served. Waits end with it, although the reflector keeps
    /// trying.
    pub refusal: Option<Error>,
    /// The version of the last list, event or bookmark. Empty before the first success.
    #[doc(alias = "LastSyncResourceVersion")]
    pub resource_version: ResourceVersion,
    /// Lists that reached the sink.
    pub lists: u64,
    /// Watches that were opened.
    pub watches: u64,
    /// The progress of the running request. `None` if the lister-watcher does not report it.
    pub progress: Option<RequestProgress>,
    /// When the next request goes out, while the reflector pauses between two.
    pub next_attempt: Option<Instant>,
    /// How many events were skipped: of an unknown type, of another kind, or without metadata.
    pub skipped: u64,
}

impl ReflectorStatus {
    /// Describes the reflector's wait at `now`, for an error. `None` if it is unknown.
    pub fn describe_activity(&self, now: Instant) -> Option<String> {
        let Some(next) = self.next_attempt else {
            return self.progress.as_ref()?.describe();
        };
        let left = next.saturating_duration_since(now);
        let asked = self.failures.last().and_then(Error::retry_after);
        Some(match asked {
            Some(asked) => format!(
                "waiting for {left:.1?} more: the server asked for {asked:.0?} (Retry-After)"
            ),
            None if self.refusal.is_some() => {
                format!("refused by the server, which is asked again in {left:.0?}")
            }
            None if self.phase == Phase::BackingOff => format!("backing off for {left:.1?} more"),
            None => format!("pausing for {left:.1?} more before the next request"),
        })
    }

    /// Describes the reflector's wait, in words that stay the same throughout.
    pub(crate) fn describe_wait(&self) -> Option<String> {
        match self.next_attempt {
            Some(_) => Some("pausing before the next request".to_owned()),
            None => self.progress.as_ref()?.describe_phase(),
        }
    }

    /// The failures for a caller that has waited for the first sync since `began`, with the
    /// reflector's activity at `now`.
    pub(crate) fn failures_of_wait(&self, began: Instant, now: Instant) -> Failures {
        if self.phase == Phase::Starting && !self.failures.has_begun() {
            let phase = "no reflector has begun to fill it".to_owned();
            return Failures::default().in_phase(Some(phase));
        }
        let failures = self.failures.clone().or_since(began);
        failures.in_phase(self.describe_activity(now))
    }

    /// How long ago, at `now`, the server last confirmed the content; `None` before the first
    /// contact.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last_contact
            .map(|contact| now.saturating_duration_since(contact))
    }

    /// How long ago, at `now`, the server last confirmed the content. Before the first contact it
    /// counts from the start of the run.
    pub fn silence(&self, now: Instant) -> Duration {
        let since = self.last_contact.or(self.failures.since());
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether the server keeps confirming the content, for a health check.
    ///
    /// The idle limit is
    /// [`ReflectorOptions::idle_limit`](crate::reflector::ReflectorOptions::idle_limit). The server
    /// may be silent for this long:
    ///
    /// - Once bookmarks came, to this reflector or to an earlier one for that server and resource:
    ///   the idle limit, from the last event, bookmark or answer. Three times the longest time
    ///   between two bookmarks applies instead if that is more.
    /// - Before that, a server may be quiet while nothing changes. One watch may be quiet until its
    ///   own time-out and 30 s more. A probe follows it, and only its answer allows the next watch
    ///   to be as quiet.
    /// - A watch that was found dead leaves a doubt, and so does the end of these times, as in an
    ///   outage. A later watch ends the doubt with an event, a bookmark, or its end by the server;
    ///   a list ends it too. That a watch opens does not, and a probe only if nothing at all has
    ///   changed. Where two watches break off meanwhile, a list follows: a proxy may cut each
    ///   before it brings a sign of life.
    /// - Otherwise (after a watch, in a backoff, during a request, before the first answer): the
    ///   idle limit. It counts from the last contact, or from the end of a watch that ended in
    ///   time. Failures, refusals and opened watches are not contacts.
    /// - A list counts as contact with each page that comes, and a streamed list with each object.
    ///   After a failed list it does not.
    /// - Before the first sync, a [refusal](Self::refusal) is a contact that lasts until the next
    ///   request.
    /// - Three failures in a row are unhealthy once the first is ten seconds old, whatever the
    ///   cause. A watch that [serves](Self::failing) ends the row, but a list does not.
    /// - Content that is known to be [behind](Self::behind_since) is unhealthy at once. So is
    ///   content that lacks objects, because there was [no room](Self::left_out).
    ///
    /// When a server falls silent, this fails at the end of that time. The next event, bookmark or
    /// list makes it `Ok` again. Without bookmarks, the end of the next watch by its server may be
    /// the first sign of life, after ten minutes at most by default.
    ///
    /// A reflector that has ended is `Ok`, unless a panic ended it; its owner knows whether it
    /// should have ended. [`synced`](Self::synced) says whether a list has reached the sink yet.
    ///
    /// # Errors
    ///
    /// `Timeout` with the time since the last contact, or since when the content is behind. Before
    /// the first contact it names the reflector's present activity. The kind of the last failure
    /// for failures in a row. Both have the last failure with the server's words, the number of
    /// attempts, and the time of the first. Otherwise the error in [`left_out`](Self::left_out), or
    /// the panic that ended the reflector.
    pub fn health(&self, now: Instant) -> Result<(), Error> {
        if self.phase == Phase::Stopped {
            return self.failing.last().cloned().map_or(Ok(()), Err);
        }
        if !self.is_silent(now) {
            if let Some(last) = self.failing.last().filter(|_| self.is_failing(now)) {
                let text = "no watch serves".to_owned();
                return Err(self.failing.because(last.kind(), text, now));
            }
            return self.left_out.clone().map_or(Ok(()), Err);
        }
        let since = |since: Instant| now.saturating_duration_since(since);
        let text = match (self.behind_since, self.age(now), self.failures.since()) {
            (Some(behind), _, _) => format!(
                "the cache is known to be behind the server for {:.0?}: it waits for a new list",
                since(behind)
            ),
            (None, Some(age), _) => format!("the server last confirmed the content {age:.0?} ago"),
            (None, None, Some(began)) => {
                let waits_for = self.describe_wait().map(|phase| format!(": {phase}"));
                let waits_for = waits_for.unwrap_or_default();
                let silence = since(began);
                format!("the server has confirmed nothing for {silence:.0?}{waits_for}")
            }
            (None, None, None) => "the server has confirmed nothing yet".to_owned(),
        };
        Err(self.failing.because(ErrorKind::Timeout, text, now))
    }

    /// Whether the content is known to be behind the server. [`behind_since`](Self::behind_since)
    /// has the time and the causes.
    pub fn is_behind(&self) -> bool {
        self.behind_since.is_some()
    }

    /// Whether readers of the object may have old content. While nothing is held, a refusal is
    /// their answer (R4).
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let is_answered = self.refusal.is_some() && !self.synced;
        self.phase != Phase::Stopped
            && (self.is_silent(now) || self.is_failing(now) && !is_answered)
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.contact_deadline.is_some_and(|due| now >= due)
    }

    fn is_failing(&self, now: Instant) -> bool {
        let lasts = |since: Option<Instant>, least| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= least)
        };
        self.failing.count() >= FAILING_MIN
            && lasts(self.failing.since(), FAILING_AFTER)
            && !lasts(self.open_since, REOPEN_AT_ONCE)
    }

    /// Notes the end of the run, unless its cause was noted.
    pub(crate) fn end(&mut self) {
        if self.phase != Phase::Stopped {
            self.phase = Phase::Stopped;
            self.failing = Failures::default();
        }
    }

    /// Whether, at `now`, the content is synced and was confirmed within `limit`.
    ///
    /// With a limit below the watch's time-out, a server without bookmarks seems silent while
    /// nothing changes. [`health`](Self::health) allows for that.
    pub fn is_fresh_within(&self, limit: Duration, now: Instant) -> bool {
        self.synced && self.age(now).is_some_and(|age| age <= limit)
    }
}
