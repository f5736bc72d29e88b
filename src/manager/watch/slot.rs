//! One object's place: its state, content and troubles under one monitor, so that no wake-up is lost.

mod content;
mod fresh;

pub(crate) use fresh::{Asked, Found};

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::item::{Check, Effect, Input, Machine, RunId, State, Why};
use super::works::Run;
use crate::clock::{Clock, Coarse, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{Listed, Undecodable};
use crate::manager::kinds::ManagedKind;
use crate::object::{Held, ObjectKey, ResourceVersion};
use crate::reflector::{Demand, ReflectorStatus, Replacement};
use crate::store::{Floor, Identity};
use crate::sync::{Arc, Monitor};

/// How long readers wait for the check of an immutable object before they take the old copy (B7).
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

/// How soon after its beginning a run that crashed may be followed by another: readers are no clock to crash by.
const CRASH_PAUSE: Duration = Duration::from_secs(1);

/// One referenced object. Cloning copies two pointers.
#[derive(Debug)]
pub(crate) struct Item<K: ManagedKind> {
    pub(crate) about: Arc<About>,
    pub(crate) slot: Arc<Monitor<Slot<K>>>,
}

impl<K: ManagedKind> Clone for Item<K> {
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
pub(crate) struct Slot<K: ManagedKind> {
    machine: Machine,
    object: Option<Arc<Held<K>>>,
    /// Why the newest state of the object is not in `object`, which holds the last good one (B12).
    undecodable: Option<Error>,
    filled_by: Option<RunId>,
    /// Counts what came in, so that an answer that was overtaken on its way is told from one that was not.
    revision: u64,
    floor: Floor,
    /// Refused before the floor was asked, which counts the others.
    refused: u64,
    /// A uid that a consistent read found gone: news about it comes from the past.
    gone: Option<Box<str>>,
    contact: Option<Instant>,
    began: Instant,
    /// When the present check of an immutable object was asked for (B7).
    check_began: Option<Instant>,
    /// When the server wants to be asked again after a check that failed.
    check_after: Option<Instant>,
    trouble: Trouble,
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
}

impl Trouble {
    fn tells(&self) -> (Option<ErrorKind>, bool) {
        let kind = self.failure.as_ref().map(Error::kind);
        (kind, self.denied.is_some())
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

    /// A new item's first start.
    pub(crate) fn first() -> Self {
        Self {
            effect: Effect::Start(RunId::FIRST),
            ending: None,
        }
    }
}

/// Whether readers and subscribers are to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    /// The object, or what can be said of it, is another one.
    Changed,
}

/// What a write did. The old object is dropped by the caller, under no lock.
#[derive(Debug)]
pub(crate) struct Written<K: ManagedKind> {
    pub(crate) news: News,
    pub(crate) _old: Option<Arc<Held<K>>>,
}

impl<K: ManagedKind> Written<K> {
    pub(crate) fn unchanged() -> Self {
        Self {
            news: News::Nothing,
            _old: None,
        }
    }

    pub(crate) fn changed() -> Self {
        Self {
            news: News::Changed,
            _old: None,
        }
    }
}

impl<K: ManagedKind> Slot<K> {
    pub(crate) fn new(machine: Machine, clock: &Clock) -> Self {
        Self {
            machine,
            object: None,
            undecodable: None,
            filled_by: None,
            revision: 0,
            floor: Floor::default(),
            refused: 0,
            gone: None,
            contact: None,
            began: clock.now(),
            check_began: None,
            check_after: None,
            trouble: Trouble::default(),
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
        self.began = now;
        let floor = self.floor.position();
        let floor = (!floor.is_unset()).then(|| floor.clone());
        (floor, self.last_run.replace(ended))
    }

    pub(crate) fn object(&self) -> Option<&Arc<Held<K>>> {
        self.object.as_ref()
    }

    pub(crate) fn undecodable(&self) -> Option<&Error> {
        self.undecodable.as_ref()
    }

    pub(crate) fn last_contact(&self) -> Option<Instant> {
        self.contact
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.trouble.failure.as_ref()
    }

    pub(crate) fn denied(&self) -> Option<&Error> {
        self.trouble.denied.as_ref()
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
        Deadline::at(began.checked_add(CHECK_PATIENCE).unwrap_or(began))
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

    /// How many events and lists were refused (B18).
    pub(crate) fn refused(&self) -> u64 {
        self.refused.saturating_add(self.floor.refused())
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

    /// The list of the one object, or of none; `begun` is the [revision](Self::revision) when it was begun.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended; an answer older than what is known (B18) asks the reflector to list again.
    pub(crate) fn replace(
        &mut self,
        run: RunId,
        item: (u64, Option<Listed<K>>),
        of: &Replacement,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        let (begun, item) = item;
        let uid = match &item {
            Some(Listed::Object(object)) => Some(object.uid()),
            Some(Listed::Undecodable(set_aside)) => Some(&*set_aside.uid),
            None => None,
        };
        // What a fresh read found while the list was on its way may be newer, however the list was read.
        let overtaken = begun != self.revision;
        let judged = Replacement {
            resource_version: of.resource_version.clone(),
            consistent: of.consistent && !overtaken,
            history_expired: of.history_expired && !overtaken,
        };
        let from_the_past = uid.is_some_and(|uid| self.is_gone(uid)) && !judged.consistent;
        if from_the_past {
            self.refused = self.refused.saturating_add(1);
        }
        if from_the_past || !self.floor.admits_replacement(&judged) {
            return Err(Error::new(
                ErrorKind::Stale,
                format!(
                    "the server answered with version {}, older than {} which is known already",
                    of.resource_version,
                    self.floor.position()
                ),
            ));
        }
        let first = !self.is_filled();
        self.revision = self.revision.wrapping_add(1);
        self.gone = None;
        self.filled_by = Some(run);
        self.contact = Some(now);
        self.trouble = Trouble::default();
        let written = match item {
            Some(Listed::Object(object)) => self.put(Some(object)),
            Some(Listed::Undecodable(set_aside)) => self.set_aside(set_aside),
            None => self.put(None),
        };
        let news = if first { News::Changed } else { written.news };
        Ok(Written { news, ..written })
    }

    /// An added or modified state of the object.
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(crate) fn change(
        &mut self,
        run: RunId,
        object: Arc<Held<K>>,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        self.contact = Some(now);
        let version = object.resource_version();
        let incoming = Identity {
            uid: object.uid(),
            resource_version: &version,
        };
        if self.admits(incoming) {
            self.revision = self.revision.wrapping_add(1);
            Ok(self.put(Some(object)))
        } else {
            Ok(Written::unchanged())
        }
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
        if version.is_older_than(self.floor.position()) {
            self.refused = self.refused.saturating_add(1);
            return Ok(Written::unchanged());
        }
        self.floor.raise(version);
        self.revision = self.revision.wrapping_add(1);
        self.gone = (!uid.is_empty()).then(|| uid.into());
        Ok(self.put(None))
    }

    /// The object is there but does not decode (B12).
    ///
    /// # Errors
    ///
    /// `Stopped` for a run that has ended.
    pub(crate) fn change_undecodable(
        &mut self,
        run: RunId,
        set_aside: Undecodable,
        now: Instant,
    ) -> Result<Written<K>, Error> {
        self.hear(run)?;
        self.contact = Some(now);
        let incoming = Identity {
            uid: &set_aside.uid,
            resource_version: &set_aside.resource_version,
        };
        if self.admits(incoming) {
            self.revision = self.revision.wrapping_add(1);
            Ok(self.set_aside(set_aside))
        } else {
            Ok(Written::unchanged())
        }
    }

    /// The server confirmed what is known, up to `version`.
    pub(crate) fn confirm(&mut self, run: RunId, version: &ResourceVersion, now: Instant) {
        if self.machine.hears(run) {
            self.contact = Some(now);
            self.floor.raise(version);
        }
    }

    /// What the reflector says about itself.
    pub(crate) fn report(&mut self, run: RunId, status: &ReflectorStatus) -> News {
        if !self.machine.hears(run) {
            return News::Nothing;
        }
        let before = self.trouble.tells();
        self.contact = self.contact.max(status.last_contact);
        self.trouble = Trouble {
            failure: status.last_error.clone(),
            denied: status.denied.clone(),
            attempts: status.attempts,
            since: status.attempts_since,
        };
        if before == self.trouble.tells() {
            News::Nothing
        } else {
            News::Changed
        }
    }

    /// Whether what is held cannot change any more (OC-17).
    pub(crate) fn holds_immutable(&self) -> bool {
        let object = self.object.as_ref();
        self.undecodable.is_none() && object.is_some_and(|object| object.is_immutable())
    }
}
