//! One object's place: its state, content and troubles under one monitor, so that no wake-up is lost.

mod fresh;

pub(crate) use fresh::Found;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::item::{Check, Effect, Input, Machine, RunId, State, Why};
use super::works::Run;
use crate::clock::{Clock, Coarse, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::list_watch::Listed;
use crate::manager::content::{Content, News, Written};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::reflector::{Activity, Demand, ReflectorStatus, Replacement};
use crate::sync::{Arc, Monitor};

/// How long readers wait for the check of an immutable object before they take the old copy (B7).
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// How soon after its beginning a run that crashed may be followed by another: readers are no clock to crash by.
const CRASH_PAUSE: Duration = Duration::from_secs(1);

/// One referenced object. Cloning copies two pointers.
#[derive(Debug)]
pub(crate) struct Item<K: Object> {
    pub(crate) about: Arc<About>,
    pub(crate) slot: Arc<Monitor<Slot<K>>>,
}

impl<K: Object> Clone for Item<K> {
    fn clone(&self) -> Self {
        Self {
            about: Arc::clone(&self.about),
            slot: Arc::clone(&self.slot),
        }
    }
}

/// What never changes about an item.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) key: ObjectKey,
    /// Who waits for its first sync; each run of its reflector looks at it (B3).
    pub(crate) demand: Demand,
}

/// What is known of one object, and who is at work on it.
#[derive(Debug)]
pub(crate) struct Slot<K: Object> {
    machine: Machine,
    content: Content<K>,
    filled_by: Option<RunId>,
    contact: Option<Instant>,
    /// By when the present run has to have heard from the server (B14).
    contact_due: Option<Instant>,
    began: Instant,
    /// When the present check of an immutable object was asked for (B7).
    check_began: Option<Instant>,
    /// When the server wants to be asked again after a check that failed.
    check_after: Option<Instant>,
    trouble: Trouble,
    /// The reflector's last word was that the server gives no answer, whatever came since.
    server_away: bool,
    /// What the present run waits for (D14).
    activity: Activity,
    read_at: Coarse,
    handle: Option<Run>,
    /// Closed when the thread of the last run has let go of the object (OC-23).
    last_run: Option<Receiver<Infallible>>,
}

/// What went wrong since something last went well.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) failure: Option<Error>,
    /// A refusal that is an answer: it outlasted its grace (R4).
    pub(crate) denied: Option<Error>,
    attempts: u32,
    since: Option<Instant>,
    /// What is held is known to be behind the server.
    behind: bool,
}

impl Trouble {
    fn tells(&self) -> (Option<ErrorKind>, bool, bool) {
        let kind = self.failure.as_ref().map(Error::kind);
        (kind, self.denied.is_some(), self.behind)
    }

    /// Whether the last failure is one that servers which are away or ill give all who ask.
    fn is_server_away(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| {
            let ill = failure.status().is_some_and(|status| status.code() >= 500);
            ill || matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
        })
    }
}

/// What is left to do once the lock is released.
#[derive(Debug)]
#[must_use = "an action that is not performed is lost"]
pub(crate) struct Action {
    pub(crate) effect: Effect,
    /// The run that [`Effect::End`] is about, if it had come.
    pub(crate) ending: Option<Run>,
}

impl Action {
    pub(crate) fn nothing() -> Self {
        Self {
            effect: Effect::Nothing,
            ending: None,
        }
    }

    /// This one, or `other` if there is nothing to do.
    pub(crate) fn or(self, other: impl FnOnce() -> Self) -> Self {
        if self.effect == Effect::Nothing {
            other()
        } else {
            self
        }
    }

    /// A new item's first start.
    pub(crate) fn first() -> Self {
        Self {
            effect: Effect::Start(RunId::FIRST),
            ending: None,
        }
    }
}

impl<K: Object> Slot<K> {
    pub(crate) fn new(machine: Machine, clock: &Clock) -> Self {
        Self {
            machine,
            content: Content::default(),
            filled_by: None,
            contact: None,
            contact_due: None,
            began: clock.now(),
            check_began: None,
            check_after: None,
            trouble: Trouble::default(),
            server_away: false,
            activity: Activity::default(),
            read_at: clock.coarse(),
            handle: None,
            last_run: None,
        }
    }

    /// Notes a read, unless a later one was noted.
    pub(crate) fn note_read(&mut self, at: Coarse) {
        self.read_at = self.read_at.max(at);
    }

    /// Whether nobody has read the object for longer than `idle_max`.
    pub(crate) fn is_idle(&self, now: Coarse, idle_max: Duration) -> bool {
        now.is_later_than(self.read_at, idle_max)
    }

    pub(crate) fn state(&self) -> State {
        self.machine.state()
    }

    /// Moves the item on; the caller performs the action once it has released the lock.
    pub(crate) fn act(&mut self, input: Input) -> Action {
        let (machine, effect) = self.machine.on(input);
        self.machine = machine;
        let ending = (effect == Effect::End).then(|| self.handle.take());
        Action {
            effect,
            ending: ending.flatten(),
        }
    }

    /// A reader wants the object. A run that crashed is not followed at once by the next.
    pub(crate) fn want(&mut self, now: Instant) -> Action {
        let since = now.saturating_duration_since(self.began);
        if self.state() == State::Stopped(Why::Crashed) && since < CRASH_PAUSE {
            return Action::nothing();
        }
        self.act(Input::Wanted)
    }

    /// The object was given to a reader. One that cannot change needs no watch from then on
    /// (OC-15); before, its end or
    /// another in its place must not be missed.
    pub(crate) fn given(&mut self) -> Action {
        if self.is_filled() && self.content.holds_immutable() {
            self.act(Input::ImmutableRead)
        } else {
            Action::nothing()
        }
    }

    /// Whether there was no room for its last run.
    pub(crate) fn found_no_room(&self) -> bool {
        let kind = self.failure().map(Error::kind);
        self.state() == State::Stopped(Why::NoRoom) && kind == Some(ErrorKind::TooManyReflectors)
    }

    /// One more reference, or the housekeeper's round: may have a failed check tried again, unless the server said when.
    pub(crate) fn try_again(&mut self, input: Input, now: Instant) -> Action {
        let failed = self.state() == State::Rechecking(Check::Failed);
        let too_early = self.check_after.is_some_and(|after| now < after);
        if failed && too_early {
            return Action::nothing();
        }
        self.act(input)
    }

    /// A decided run has its thread; gives it back if that came too late.
    pub(crate) fn accept_run(&mut self, id: RunId, run: Run) -> Option<Run> {
        let (machine, effect) = self.machine.on(Input::Spawned(id));
        self.machine = machine;
        if effect == Effect::Keep {
            self.handle.replace(run)
        } else {
            Some(run)
        }
    }

    /// A decided run got no thread.
    pub(crate) fn refuse_run(&mut self, id: RunId, why: Error) -> News {
        let (machine, _) = self.machine.on(Input::SpawnFailed(id));
        self.machine = machine;
        let before = self.trouble.tells();
        self.trouble.failure = Some(why);
        if before == self.trouble.tells() {
            News::Nothing
        } else {
            News::Changed
        }
    }

    /// What a new run starts from: the floor it may not fall below (B4), and the end of the run before it (OC-23).
    pub(crate) fn begin_run(
        &mut self,
        ended: Receiver<Infallible>,
        now: Instant,
    ) -> (Option<ResourceVersion>, Option<Receiver<Infallible>>) {
        self.trouble = Trouble::default();
        self.contact_due = None;
        self.began = now;
        let floor = self.content.floor();
        let floor = (!floor.is_unset()).then(|| floor.clone());
        (floor, self.last_run.replace(ended))
    }

    pub(crate) fn content(&self) -> &Content<K> {
        &self.content
    }

    pub(crate) fn object(&self) -> Option<&Arc<Held<K>>> {
        self.content.object()
    }

    pub(crate) fn undecodable(&self) -> Option<&Error> {
        self.content.undecodable()
    }

    /// How many events and lists were refused (B18).
    pub(crate) fn refused(&self) -> u64 {
        self.content.refused()
    }

    pub(crate) fn last_contact(&self) -> Option<Instant> {
        self.contact
    }

    /// Whether a run is at work that should have heard from the server by `now` (B14).
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let at_work = matches!(self.state(), State::Starting | State::Running);
        at_work && self.contact_due.is_some_and(|due| now >= due)
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.trouble.failure.as_ref()
    }

    pub(crate) fn denied(&self) -> Option<&Error> {
        self.trouble.denied.as_ref()
    }

    /// Whether what is held is known to be behind the server, until its list has come (B14).
    pub(crate) fn is_behind(&self) -> bool {
        self.trouble.behind
    }

    /// How many requests failed one after the other.
    pub(crate) fn attempts(&self) -> u32 {
        self.trouble.attempts
    }

    /// When the first of them began, or the run.
    pub(crate) fn attempts_since(&self) -> Instant {
        self.trouble.since.unwrap_or(self.began)
    }

    pub(crate) fn begin_check(&mut self, now: Instant) {
        self.check_began = Some(now);
    }

    /// Until when readers wait for the check that is under way; it passed long ago if none is.
    pub(crate) fn patience(&self) -> Deadline {
        let began = self.check_began.unwrap_or(self.began);
        Deadline::at(later(began, CHECK_PATIENCE))
    }

    pub(crate) fn set_failure(&mut self, why: Error) {
        self.trouble.failure = Some(why);
    }

    pub(crate) fn clear_failure(&mut self) {
        self.trouble = Trouble::default();
    }

    /// Whether any run has ever filled it.
    pub(crate) fn was_filled(&self) -> bool {
        self.filled_by.is_some()
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.machine.serves(self.filled_by)
    }

    /// Whether what `run` brings is heard.
    ///
    /// # Errors
    ///
    /// `Stopped`: the run has ended (OC-28).
    pub(crate) fn hear(&self, run: RunId) -> Result<(), Error> {
        if self.machine.hears(run) {
            Ok(())
        } else {
            Err(Error::stopped("the watch of this object"))
        }
    }

    /// The list of the one object, or of none, and the content's revision when it was begun. As
    /// with each of these, what is
    /// not taken is left to the caller, to be dropped under no lock.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended; an answer older than what is known (B18) asks the reflector to list again.
    pub(crate) fn replace(
        &mut self,
        run: RunId,
        (begun, item): (u64, &mut Option<Listed<K>>),
        of: &Replacement,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        let written = self.content.replace(begun, item, of)?;
        let first = !self.is_filled();
        self.filled_by = Some(run);
        self.contact = Some(now);
        self.trouble = Trouble::default();
        let news = if first { News::Changed } else { written.news };
        Ok(Written { news, ..written })
    }

    /// An added or modified state of the object, or one that does not decode (B12).
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(crate) fn change(
        &mut self,
        run: RunId,
        state: &mut Option<Listed<K>>,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        self.contact = Some(now);
        let written = self.content.change(state);
        Ok(written.unwrap_or_else(Written::unchanged))
    }

    /// The object is gone; `uid` and `version` are its last state's.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(crate) fn remove(
        &mut self,
        run: RunId,
        uid: &str,
        version: &ResourceVersion,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        self.contact = Some(now);
        let written = self.content.remove(uid, version);
        Ok(written.unwrap_or_else(Written::unchanged))
    }

    /// The server confirmed what is known, up to `version`.
    pub(crate) fn confirm(&mut self, run: RunId, version: &ResourceVersion, now: Instant) {
        if self.machine.hears(run) {
            self.contact = Some(now);
            self.content.raise_floor(version);
        }
    }

    /// What the present run waits for.
    pub(crate) fn activity(&self) -> Option<&Activity> {
        let runs = matches!(self.state(), State::Starting | State::Running);
        runs.then_some(&self.activity)
    }

    /// Takes over what the reflector says of itself, and says whether that is news to readers, and
    /// whether a server that gave no answer gives one again.
    pub(crate) fn report(&mut self, run: RunId, status: &ReflectorStatus) -> (News, bool) {
        if !self.machine.hears(run) {
            return (News::Nothing, false);
        }
        let before = self.trouble.tells();
        self.contact = self.contact.max(status.last_contact);
        self.contact_due = status.contact_due;
        self.activity = status.activity();
        self.trouble = Trouble {
            failure: status.failures.last().cloned(),
            denied: status.denied.clone(),
            attempts: status.failures.count(),
            since: status.failures.since(),
            behind: status.is_behind(),
        };
        let news = if before == self.trouble.tells() {
            News::Nothing
        } else {
            News::Changed
        };
        let is_away = self.trouble.is_server_away();
        let was_away = std::mem::replace(&mut self.server_away, is_away);
        (news, was_away && !is_away)
    }
}
