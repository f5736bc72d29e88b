//! The state of one watched object, and the run that is at work on it. Pure.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::read_history::ReadHistory;
use super::run::{Run, SharedRun};
use super::state_machine::{
    CheckState, RunId, StopReason, WatchEffect, WatchInput, WatchMachine, WatchState,
};
use crate::clock::{Clock, Coarse, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::failures::Failures;
use crate::list_watch::Listed;
use crate::manager::consistent_reads::is_reached;
use crate::manager::entry::content::{EntryContent, ReadPosition};
use crate::manager::entry::object_entry::ObjectEntry;
use crate::manager::kinds::KindTraits;
use crate::object::{Object, ResourceVersion, StoredObject};
use crate::policy::Chance;
use crate::reflector::{ReflectorStatus, Replacement, asked_wait};
use crate::sync::Arc;

/// How long readers wait for the check of an immutable object before they take the old copy (B7).
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// How long after the beginning of a run that crashed the next may begin. Without a pause, each
/// read could start another crash.
const CRASH_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before an absence is confirmed, and the shortest after that failed.
pub(crate) const ABSENCE_PAUSE: Duration = Duration::from_secs(10);

/// One referenced object of a manager that watches.
pub(crate) type WatchedObject<K> = Arc<ObjectEntry<WatchEntry<K>>>;

/// The result of a poll: the object, none, or one that does not decode (B12).
pub(crate) type PollResult<K> = Result<Option<Arc<StoredObject<K>>>, Error>;

/// The state of one object, and the run that is at work on it.
pub(crate) struct WatchEntry<K: Object> {
    machine: WatchMachine,
    pub(crate) content: EntryContent<K>,
    pub(crate) absence: Absence,
    /// The number of reads that began before the doubt. Their answers do not settle it.
    doubted_after: u64,
    filled_by: Option<RunId>,
    pub(super) contact: Option<Instant>,
    began: Instant,
    /// When an owner came to share the object, or a read past the watch found none. `None` once the
    /// server has confirmed its state since.
    unconfirmed_since: Option<Instant>,
    /// When the last consistent read began whose answer, or a newer state, is known.
    consistent_at: Option<Instant>,
    /// When the present check of an immutable object was requested (B7).
    check_began: Option<Instant>,
    /// The earliest time of the next check, which the server named when the last one failed.
    check_after: Option<Instant>,
    /// The last status of the present run's reflector, without failures that a later success has
    /// ended. Its failures know when the run began, and how a check failed.
    pub(super) status: ReflectorStatus,
    /// The reflector last reported that the server gives no answer, or refuses for good.
    server_away: bool,
    pub(super) read_at: Coarse,
    pub(super) history: ReadHistory,
    /// The last run that polls the object instead of watching it.
    polled: Option<RunId>,
    /// Until when readers may have the result of the last poll.
    expires: Option<Instant>,
    handle: Option<Run>,
    /// The run that takes over with its first whole list.
    successor: Option<Run>,
    /// Closed when the thread of the last run has let go of the object (OC-23).
    last_run: Option<Receiver<Infallible>>,
}

/// How certain it is that there is no such object, while none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    Sure,
    /// A cache of the server said so. The first reader of the absence causes a confirmation, which
    /// begins after this time.
    Doubtful(Instant),
    /// It is being confirmed, or will be.
    Due,
}

impl Absence {
    /// A reader gets the absence. Returns when the caller confirms it, if at all.
    pub(crate) fn given(&mut self, now: Instant, seed: u64) -> Option<Instant> {
        let Self::Doubtful(since) = *self else {
            return None;
        };
        *self = Self::Due;
        let pause = Chance::new(seed).within(ABSENCE_PAUSE);
        Some(later(now.max(since), pause))
    }

    /// The confirmation failed. The next reader of the absence causes another, but not before the
    /// pause has passed, or the wait that the server `asked` for if that is longer.
    pub(crate) fn unconfirmed(&mut self, asked: Option<Duration>, now: Instant) {
        let pause = asked.unwrap_or_default().max(ABSENCE_PAUSE);
        *self = Self::Doubtful(later(now, pause));
    }
}

/// A reflector's status as that of the object which it watches since `began`.
fn of_object(status: &ReflectorStatus, began: Instant) -> ReflectorStatus {
    let mut status = status.clone();
    status.failures = status.failures.or_since(began);
    // That a custom resource is not installed is no answer about one object.
    let refusal = &mut status.refusal;
    refusal.take_if(|why| why.kind() != ErrorKind::Forbidden);
    status
}

/// What readers and subscribers see of a status, besides the object: the kind of the failure,
/// whether the server refuses, and whether the object is behind.
fn visible(status: &ReflectorStatus) -> (Option<ErrorKind>, bool, bool) {
    let kind = status.failures.last().map(Error::kind);
    (kind, status.refusal.is_some(), status.is_behind())
}

/// The work that is left once the lock is released.
#[must_use = "an action that is not performed is lost"]
pub(crate) struct WatchAction {
    pub(crate) effect: WatchEffect,
    /// The runs that are over.
    pub(crate) ending: Vec<Run>,
}

impl From<WatchEffect> for WatchAction {
    fn from(effect: WatchEffect) -> Self {
        Self {
            effect,
            ending: Vec::new(),
        }
    }
}

impl WatchAction {
    pub(crate) fn nothing() -> Self {
        WatchEffect::Nothing.into()
    }

    /// This one, or `other` if there is nothing to do.
    pub(crate) fn or(self, other: impl FnOnce() -> Self) -> Self {
        if self.effect == WatchEffect::Nothing && self.ending.is_empty() {
            other()
        } else {
            self
        }
    }

    /// Combines this one with a later one that starts nothing.
    pub(crate) fn and(mut self, later: Self) -> Self {
        if later.effect != WatchEffect::Nothing {
            self.effect = later.effect;
        }
        self.ending.extend(later.ending);
        self
    }
}

impl<K: Object> WatchEntry<K> {
    pub(crate) fn new(kind: KindTraits<K>, machine: WatchMachine, clock: &Clock) -> Self {
        Self {
            machine,
            content: EntryContent::new(kind),
            absence: Absence::Sure,
            doubted_after: 0,
            filled_by: None,
            contact: None,
            began: clock.now(),
            unconfirmed_since: None,
            consistent_at: None,
            check_began: None,
            check_after: None,
            status: Self::new_run(clock.now()),
            server_away: false,
            read_at: clock.coarse(),
            history: ReadHistory::default(),
            polled: None,
            expires: None,
            handle: None,
            successor: None,
            last_run: None,
        }
    }

    /// Whether no reader has read the object for longer than `idle_max`.
    pub(crate) fn is_idle(&self, now: Coarse, idle_max: Duration) -> bool {
        self.is_filled() && now.is_later_than(self.read_at, idle_max)
    }

    pub(crate) fn state(&self) -> WatchState {
        self.machine.state()
    }

    /// Whether a watch is open or being opened.
    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.state(), WatchState::Starting | WatchState::Running)
    }

    /// Whether the first list of the namespace's watch will bring the object.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.state() == WatchState::Stopped(StopReason::Awaiting)
    }

    /// Feeds an input to the state machine. The caller performs the action once it has released the
    /// lock.
    pub(crate) fn act(&mut self, input: WatchInput) -> WatchAction {
        let (machine, effect) = self.machine.on(input);
        self.machine = machine;
        let ended = if effect == WatchEffect::Replace {
            std::mem::replace(&mut self.handle, self.successor.take())
        } else {
            self.handle.take_if(|_| effect == WatchEffect::End)
        };
        let is_alone = self.machine.successor().is_none();
        let unwanted = self.successor.take_if(|_| is_alone);
        let ending = ended.into_iter().chain(unwanted).collect();
        WatchAction { effect, ending }
    }

    /// Decides on a successor of the run at work, unless there is one.
    pub(crate) fn prepare(&mut self) -> Option<RunId> {
        let (machine, run) = self.machine.prepared()?;
        self.machine = machine;
        Some(run)
    }

    /// Keeps the handle of the successor. Returns the run if it came too late.
    pub(crate) fn keep_successor(&mut self, id: RunId, run: Run) -> Option<Run> {
        if self.machine.successor() == Some(id) {
            self.successor.replace(run)
        } else if self.machine.is_current(id) {
            // It has listed meanwhile.
            self.handle.replace(run)
        } else {
            Some(run)
        }
    }

    /// Hands over to the successor if it misses no change since the known state.
    pub(crate) fn hand_over(&mut self, now: Instant) -> WatchAction {
        let known = self.content.known_version();
        let shared = self.successor.as_ref().and_then(Run::shared);
        let covers = |run: &dyn SharedRun| run.covers(known, self.consistent_at);
        let is_covered = self.is_filled() && shared.is_some_and(covers);
        match self.machine.successor().filter(|_| is_covered) {
            Some(successor) => self.succeed(successor, now),
            None => WatchAction::nothing(),
        }
    }

    /// Makes the successor the current run, which has filled the entry.
    fn succeed(&mut self, run: RunId, now: Instant) -> WatchAction {
        let action = self.act(WatchInput::Succeeded(run));
        if action.effect == WatchEffect::Replace {
            self.filled_by = Some(run);
            self.began = now;
            let status = self.shared_run().and_then(SharedRun::status);
            self.status = status.unwrap_or_else(|| Self::new_run(now));
            self.contact = self.contact.max(self.status.last_contact);
        }
        action
    }

    /// Whether the run at work is this one, for which a successor may be prepared.
    pub(crate) fn is_current(&self, run: RunId) -> bool {
        self.machine.is_current(run)
    }

    /// Notes that the run polls the object instead of watching it.
    pub(super) fn begin_poll(&mut self, run: RunId, now: Instant) {
        self.polled = Some(run);
        if self.machine.is_current(run) {
            self.status = Self::new_run(now);
            self.began = now;
        }
    }

    /// Whether the object is polled, since there is no room for its watch.
    pub(super) fn is_polled(&self) -> bool {
        self.polled.is_some_and(|run| self.machine.is_current(run))
    }

    /// Whether the object has a watch of its own that has listed it.
    pub(super) fn is_watched_by_name(&self) -> bool {
        matches!(self.handle, Some(Run::ByName(_))) && self.is_filled()
    }

    /// Whether neither its run nor a successor is the watch of its namespace.
    pub(super) fn is_left_out(&self) -> bool {
        self.successor().is_none() && (self.is_watched_by_name() || self.is_polled())
    }

    pub(crate) fn successor(&self) -> Option<RunId> {
        self.machine.successor()
    }

    /// Until when readers may have the known state, if the object is polled.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires.filter(|_| self.is_polled())
    }

    /// Whether the object is polled, and the next poll should have come.
    pub(super) fn has_expired(&self, clock: &Clock) -> bool {
        let until = self.expires();
        until.is_some_and(|until| clock.now() >= until)
    }

    /// The watches that the object has of its own.
    pub(crate) fn runs_by_name(&self) -> usize {
        let runs = self.handle.iter().chain(&self.successor);
        runs.filter(|run| matches!(run, Run::ByName(_))).count()
    }

    fn shared_run(&self) -> Option<&dyn SharedRun> {
        self.handle.as_ref().and_then(Run::shared)
    }

    /// Asks the poller for newer content, for a reader that waits. A watch learns of such readers
    /// from the object's waiters.
    pub(super) fn await_news(&self) {
        if let Some(run) = self.shared_run() {
            run.await_news();
        }
    }

    /// Shortens the backoff of a watch that the object shares with others, for a reader. The
    /// object's own watch learns of readers from the object's waiters.
    pub(crate) fn expedite_shared(&self) {
        if let Some(run) = self.shared_run() {
            run.expedite();
        }
    }

    /// Decides for a reader that wants the object. The next run does not start at once after a
    /// crash.
    pub(crate) fn on_wanted(&mut self, now: Instant) -> WatchAction {
        let since = now.saturating_duration_since(self.began);
        if self.state() == WatchState::Stopped(StopReason::Crashed) && since < CRASH_PAUSE {
            return WatchAction::nothing();
        }
        self.act(WatchInput::Wanted)
    }

    /// Decides after a reader got the object. An immutable object needs no watch from then on
    /// (OC-15). Before its first read, the watch must see its deletion or replacement. So it must
    /// for an owner that came since the last confirmation (B7).
    pub(crate) fn on_given(&mut self) -> WatchAction {
        let is_unconfirmed = self.unconfirmed_since.is_some();
        if !self.is_filled() || !self.content.is_immutable() || is_unconfirmed {
            return WatchAction::nothing();
        }
        let action = self.act(WatchInput::ImmutableRead);
        if action.effect == WatchEffect::End {
            // They were failures of the watch.
            self.reset_failures();
        }
        action
    }

    /// Whether there was no room for its last run.
    pub(crate) fn found_no_room(&self) -> bool {
        let kind = self.failure().map(Error::kind);
        self.state() == WatchState::Stopped(StopReason::NoRoom)
            && kind == Some(ErrorKind::TooManyReflectors)
    }

    /// Decides after one more reference, or in the keeper's sweep. A failed check may be tried
    /// again, but not before the time that the server named.
    pub(crate) fn try_again(&mut self, input: WatchInput, now: Instant) -> WatchAction {
        if input == WatchInput::Referenced {
            self.unconfirmed_since = Some(now);
        }
        let failed = self.state() == WatchState::Rechecking(CheckState::Failed);
        let too_early = self.check_after.is_some_and(|after| now < after);
        if failed && too_early {
            return WatchAction::nothing();
        }
        self.act(input)
    }

    /// Accepts the run for a decision. Returns the run if it came too late.
    pub(crate) fn accept_run(&mut self, id: RunId, run: Run) -> Option<Run> {
        let (machine, effect) = self.machine.on(WatchInput::Spawned(id));
        self.machine = machine;
        if effect == WatchEffect::Keep {
            self.handle.replace(run)
        } else {
            Some(run)
        }
    }

    /// Notes that the run of a decision could not start. Returns whether that is news.
    pub(crate) fn refuse_run(&mut self, id: RunId, why: Error) -> (bool, WatchAction) {
        let action = self.act(WatchInput::SpawnFailed(id));
        let before = visible(&self.status);
        // A run that another has replaced says nothing of the object any more.
        if self.state() == WatchState::Stopped(StopReason::NoRoom) {
            self.status.failures.end_with(why);
        }
        (before != visible(&self.status), action)
    }

    /// Begins a new run. Returns the known version (B4) and the end of the run before (OC-23).
    pub(crate) fn begin_run(
        &mut self,
        ended: Receiver<Infallible>,
        now: Instant,
        idle_limit: Duration,
    ) -> (Option<ResourceVersion>, Option<Receiver<Infallible>>) {
        self.status = Self::new_run(now);
        // Its thread, which reports from then on, may wait for the run before.
        self.status.contact_deadline = Some(later(now, idle_limit));
        self.began = now;
        (self.known_version(), self.last_run.replace(ended))
    }

    /// The latest version that is known, if there is one.
    pub(crate) fn known_version(&self) -> Option<ResourceVersion> {
        let known = self.content.known_version();
        (!known.is_unset()).then(|| known.clone())
    }

    fn new_run(now: Instant) -> ReflectorStatus {
        ReflectorStatus {
            failures: Failures::none_since(now),
            ..ReflectorStatus::default()
        }
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.status.failures.last()
    }

    pub(crate) fn begin_check(&mut self, now: Instant) {
        self.check_began = Some(now);
    }

    /// Until when readers wait for the check that is under way. Without one, a time in the past.
    pub(crate) fn patience(&self) -> Deadline {
        let began = self.check_began.unwrap_or(self.began);
        Deadline::at(later(began, CHECK_PATIENCE))
    }

    /// Whether any run has ever filled it.
    pub(crate) fn was_filled(&self) -> bool {
        self.filled_by.is_some()
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.machine.serves(self.filled_by)
    }

    /// Whether the run is a successor that has not taken over yet. Its list is held back until its
    /// watch is open, since the object would have no watch meanwhile.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended; `Stale` for a list that is older than the known state,
    /// or that has an object which is known to be gone.
    pub(super) fn holds_back(
        &self,
        run: RunId,
        (began, listed): (u64, Option<&Listed<K>>),
        of: &Replacement,
    ) -> Result<bool, Error> {
        self.check_run(run)?;
        if self.machine.is_current(run) {
            return Ok(false);
        }
        self.content.admits_list(began, listed, of).map(|()| true)
    }

    /// Takes in the list of a successor, whose watch is open, and hands over to it. A list that was
    /// overtaken meanwhile changes nothing, and hands over if versions say that the successor
    /// misses nothing.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended; `Stale` for an overtaken list if versions say nothing.
    pub(super) fn take_over(
        &mut self,
        run: RunId,
        (began, listed): (u64, &mut Option<Listed<K>>),
        of: &Replacement,
        asked_at: Instant,
    ) -> Result<(bool, WatchAction), Error> {
        self.check_run(run)?;
        let known = self.content.known_version();
        let is_overtaken = began != self.content.revision();
        let may_be_behind = is_overtaken || !of.consistent;
        if self.is_filled() && may_be_behind && is_reached(known, &of.resource_version) {
            return Ok((false, self.succeed(run, asked_at)));
        }
        if is_overtaken && known.numeric_order(&of.resource_version).is_none() {
            return Err(self.content.stale(of));
        }
        self.replace(run, (began, listed), of, asked_at)
    }

    /// Takes in the list of the one object, or of none, which was asked for at `asked_at`. `began`
    /// is the content's revision then.
    ///
    /// The caller keeps a state that the entry refuses, and drops it under no lock. This holds for
    /// the functions below, too.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended; `Stale` for an answer older than the known state (B18),
    /// after which the reflector lists again.
    pub(crate) fn replace(
        &mut self,
        run: RunId,
        (began, listed): (u64, &mut Option<Listed<K>>),
        of: &Replacement,
        asked_at: Instant,
    ) -> Result<(bool, WatchAction), Error> {
        self.check_run(run)?;
        let was_filled = self.is_filled();
        let was_absent = self.was_filled() && self.is_absent();
        let is_news = self.content.replace(began, listed, of)? || !was_filled;
        if of.consistent {
            self.consistent_at = self.consistent_at.max(Some(asked_at));
        }
        if of.consistent || !self.is_absent() {
            self.absence = Absence::Sure;
        } else if !was_absent {
            // An absence that was known before stays as certain as it was.
            self.doubt_absence(asked_at);
        }
        Ok((is_news, self.fill(run, asked_at)))
    }

    /// The server said the whole state of the object at this time. An event does not: the next one
    /// may be on its way.
    fn confirmed(&mut self, at: Instant) {
        self.contact = self.contact.max(Some(at));
        self.unconfirmed_since.take_if(|since| *since <= at);
    }

    fn doubt_absence(&mut self, asked_at: Instant) {
        self.absence = Absence::Doubtful(asked_at);
        self.doubted_after = self.content.reads();
    }

    /// Notes that the run has brought the whole state of the object.
    fn fill(&mut self, run: RunId, contact: Instant) -> WatchAction {
        let action = if self.machine.is_current(run) {
            WatchAction::nothing()
        } else {
            self.succeed(run, contact)
        };
        self.filled_by = Some(run);
        self.confirmed(contact);
        self.reset_failures();
        action
    }

    /// Takes in the result of a poll, which readers may have until it `expires`.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(super) fn take_polled(
        &mut self,
        run: RunId,
        (read, found): (&ReadPosition, &mut PollResult<K>),
        expires: Instant,
    ) -> Result<(bool, WatchAction), Error> {
        self.check_run(run)?;
        let was_filled = self.is_filled();
        self.absence = Absence::Sure;
        let written = match found {
            Ok(object) => self.content.found(read, object),
            Err(undecodable) => self.content.found_undecodable(read, undecodable),
        };
        self.expires = Some(expires);
        self.consistent_at = self.consistent_at.max(Some(read.began));
        let is_news = written == Some(true) || !was_filled;
        Ok((is_news, self.fill(run, read.began)))
    }

    /// Takes in an event about the object (B12) with `take`.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(crate) fn take_event(
        &mut self,
        run: RunId,
        now: Instant,
        take: impl FnOnce(&mut EntryContent<K>) -> Option<bool>,
    ) -> Result<(bool, WatchAction), Error> {
        self.check_run(run)?;
        self.contact = Some(now);
        let written = take(&mut self.content);
        self.settle_absence(written);
        Ok((written.unwrap_or_default(), WatchAction::nothing()))
    }

    fn is_absent(&self) -> bool {
        self.content.object().is_none() && self.content.undecodable().is_none()
    }

    /// Ends the doubt about an absence if an event or a consistent read was admitted: `written` is
    /// something then.
    fn settle_absence(&mut self, written: Option<bool>) {
        if written.is_some() {
            self.absence = Absence::Sure;
        }
    }

    /// Whether a read should confirm now that there is no such object.
    pub(crate) fn is_absence_due(&self) -> bool {
        self.absence == Absence::Due && self.state() != WatchState::Dropped
    }

    /// Whether the read began after the doubt, so that its answer is about the same absence.
    pub(crate) fn is_after_doubt(&self, read: &ReadPosition) -> bool {
        read.number > self.doubted_after
    }

    /// The server confirmed the known state, up to `version`.
    pub(crate) fn confirm(&mut self, run: RunId, version: &ResourceVersion, now: Instant) {
        if self.machine.is_current(run) {
            self.confirmed(now);
            self.content.raise_version(version);
        }
    }

    /// Takes in a status that readers see nothing of, as most are: neither it nor the one before
    /// tells of a failure, and the confirmation is known. Otherwise returns `false`.
    pub(crate) fn keep_up(&mut self, run: RunId, status: &ReflectorStatus) -> bool {
        let is_known = self.machine.is_current(run) && status.last_contact <= self.contact;
        let is_well = |status| visible(status) == (None, false, false);
        let is_routine = is_known && !self.server_away && is_well(&self.status) && is_well(status);
        if is_routine {
            self.status = of_object(status, self.began);
        }
        is_routine
    }

    /// Takes in the reflector's status. Returns whether that is news to readers, and whether a
    /// server that gave no answer, or a refusal, answers again.
    pub(crate) fn update(&mut self, run: RunId, status: &ReflectorStatus) -> (bool, bool) {
        if !self.machine.is_current(run) {
            return (false, false);
        }
        let before = visible(&self.status);
        self.contact = self.contact.max(status.last_contact);
        self.status = of_object(status, self.began);
        let is_away = self.is_server_away() || status.refusal.is_some();
        let was_away = std::mem::replace(&mut self.server_away, is_away);
        (before != visible(&self.status), was_away && !is_away)
    }

    /// Takes in the answer of a read past the watch: the object, or that there is none. The read is
    /// a fresh read (R11), or the check of an immutable object (B7). A newer state that came in
    /// while the answer was on its way stays.
    ///
    /// An answer about a stopped immutable object also counts as its check: no watch would notice
    /// that the object is gone.
    pub(crate) fn found(
        &mut self,
        position: &ReadPosition,
        object: &mut Option<Arc<StoredObject<K>>>,
    ) -> (bool, WatchAction) {
        let before: Option<Box<str>> = self.content.object().map(|object| object.uid().into());
        let (was_absent, is_absence) = (self.is_absent(), object.is_none());
        let found = self.content.found(position, object);
        if position.version.is_empty() || !is_absence {
            // An answer without an object is certain, even if bookmarks overtook it.
            let is_sure = is_absence && self.is_after_doubt(position);
            self.settle_absence(found.or_else(|| is_sure.then_some(false)));
        } else if found.is_some() && !was_absent {
            // A cache of the server may have said so.
            self.doubt_absence(position.began);
        }
        let Some(is_news) = found else {
            return (false, WatchAction::nothing());
        };
        self.contact = self.contact.max(Some(position.began));
        if is_absence {
            // An event that is on its way may still bring one that came and went before.
            self.unconfirmed_since = Some(position.began);
        } else if position.version.is_empty() {
            self.confirmed(position.began);
        }
        let is_stopped = matches!(
            self.state(),
            WatchState::Stopped(StopReason::Immutable) | WatchState::Rechecking(_)
        );
        let after = self.content.object().map(|object| object.uid());
        let same = before.as_deref() == after && self.content.is_immutable();
        let action = match (is_stopped, same) {
            (false, _) => WatchAction::nothing(),
            (true, true) => self.act(WatchInput::CheckedSame),
            (true, false) => self.act(WatchInput::CheckedOther),
        };
        if is_stopped {
            self.reset_failures();
        }
        (is_news, action)
    }

    /// Notes that the check of an immutable object had no answer from the server (B7).
    pub(crate) fn check_failed(&mut self, why: Error, now: Instant) -> WatchAction {
        self.check_after = asked_wait(&why).map(|wait| later(now, wait));
        self.status.failures.end_with(why);
        self.act(WatchInput::CheckFailed)
    }

    /// Forgets the failures, after a success.
    fn reset_failures(&mut self) {
        self.status.failures = Failures::none_since(self.began);
        self.status.refusal = None;
        self.status.behind_since = None;
    }

    /// Whether the last failure says that the server cannot be reached, or answers no request.
    fn is_server_away(&self) -> bool {
        self.failure().is_some_and(|failure| {
            let ill = failure.status().is_some_and(|status| status.code() >= 500);
            ill || matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
        })
    }

    fn check_run(&self, run: RunId) -> Result<(), Error> {
        if self.machine.accepts(run) {
            Ok(())
        } else {
            // OC-28.
            Err(Error::stopped("the watch of this object"))
        }
    }
}
