//! The answers of a watched object's entry: the object for readers, and its state for reports.
//! Pure.

use std::time::Instant;

use super::entry::WatchEntry;
use super::state_machine::{CheckState, StopReason, WatchState};
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::failures::Failures;
use crate::manager::cached::{Cached, ReadyObject};
use crate::manager::consistent_reads::is_reached;
use crate::manager::entry::content::EntryContent;
use crate::manager::entry::object_entry::{AnswerContext, EntryState, EntryWatch};
use crate::manager::kinds::cache_name;
use crate::manager::report::{ObjectState, ObjectSummary, failed_so_far};
use crate::object::{Object, ObjectKey, ResourceVersion, resource_name};
use crate::reflector::FORBIDDEN_GRACE;
use crate::sync::Arc;

const AWAITING: &str = "not read yet; the first list of its namespace brings it";

impl<K: Object> EntryState<K> for WatchEntry<K> {
    fn content(&mut self) -> &mut EntryContent<K> {
        &mut self.content
    }

    /// A watched immutable object is not ready: its read has to stop the watch.
    fn ready(&self, clock: &Clock) -> Option<(ReadyObject<K>, Coarse)> {
        let waits = self.state() == WatchState::Rechecking(CheckState::First);
        let unread = self.is_at_work() && self.content.is_immutable();
        if !self.is_filled() || self.content.undecodable().is_some() || waits || unread {
            return None;
        }
        self.stored(clock).map(|ready| (ready, Coarse::default()))
    }

    fn is_detached(&self) -> bool {
        self.state() == WatchState::Dropped
    }

    /// `None` while the watch has not come that far, and while there is no watch.
    fn reached(
        &self,
        version: &ResourceVersion,
        at: &AnswerContext<'_>,
    ) -> Option<Result<Cached<K>, Error>> {
        if self.is_detached() {
            return Some(Err(at.not_registered()));
        }
        let is_checked = !matches!(self.state(), WatchState::Rechecking(_));
        let is_current = self.is_filled() && is_checked && !self.has_expired(at.clock);
        let reached = is_current && is_reached(self.content.known_version(), version);
        reached.then(|| self.in_memory(at.key, at.clock))
    }

    fn standing(&self, at: &AnswerContext<'_>) -> (ObjectState, String) {
        let now = at.now;
        let exists = self.content.object().is_some();
        let watch = watch_in_words(self);
        if self.state() == WatchState::Stopped(StopReason::NoRoom) {
            let full = self
                .found_no_room()
                .then_some(ObjectState::TooManyReflectors);
            return (full.unwrap_or(ObjectState::Waiting), failure_text(self));
        }
        // The last state before the idle watch was stopped is still the best answer.
        let idle = self.state() == WatchState::Stopped(StopReason::Idle) && self.was_filled();
        if self.is_filled() || idle {
            return match self.content.undecodable() {
                Some(error) => (ObjectState::Undecodable, error.to_string()),
                None if exists => refused(self, now).unwrap_or((ObjectState::Synced, watch)),
                None => (ObjectState::NotFound, watch),
            };
        }
        if let Some(denied) = &self.status.refusal {
            return (ObjectState::Forbidden, denied.to_string());
        }
        let waits = || {
            if self.state() == WatchState::Stopped(StopReason::Awaiting) {
                return AWAITING.to_owned();
            }
            let waits_for = self.is_at_work().then(|| self.status.describe_wait());
            let unknown = || "no answer from the server yet".to_owned();
            waits_for.flatten().unwrap_or_else(unknown)
        };
        let restored = self.content.seed().map(|_| ObjectState::Restored);
        let reason = failed_so_far(&self.status.failures, now).unwrap_or_else(waits);
        (restored.unwrap_or(ObjectState::Waiting), reason)
    }

    fn contact(&self) -> Option<Instant> {
        self.contact
    }

    fn failures(&self, now: Instant) -> &Failures {
        let status = &self.status;
        let counts = (status.failures.count(), status.failing.count());
        match counts {
            (0, 1..) if status.is_overdue(now) => &status.failing,
            _ => &status.failures,
        }
    }

    fn summary(&self) -> Option<ObjectSummary> {
        let object = self.content.object();
        object.map(|object| self.content.summary_of(object))
    }

    fn watch(&self, now: Instant) -> EntryWatch {
        let (is_polled, is_at_work) = (self.is_polled(), self.is_at_work());
        EntryWatch {
            is_open: is_at_work && !is_polled,
            is_polled,
            is_overdue: is_at_work && self.status.is_overdue(now),
            by_name: self.runs_by_name(),
        }
    }

    fn note_read(&mut self, at: Coarse) {
        self.read_at = self.read_at.max(at);
    }
}

impl<K: Object> WatchEntry<K> {
    /// The answer to a reader; `None` while the reader should wait. `patient`: the reader still
    /// waits for the check of an immutable object (B7).
    pub(crate) fn answer(
        &self,
        key: &ObjectKey,
        clock: &Clock,
        patient: bool,
    ) -> Option<Result<Cached<K>, Error>> {
        match self.state() {
            WatchState::Dropped => {
                return Some(Err(Error::not_registered(key.namespace(), key.name())));
            }
            WatchState::Stopped(StopReason::ShutDown { serves: false }) => {
                return Some(Err(Error::stopped(&cache_name::<K>())));
            }
            WatchState::Stopped(StopReason::NoRoom) => {
                let failure = || self.failure().cloned().map(Err);
                return self.seeded(clock).map(Ok).or_else(failure);
            }
            WatchState::Stopped(StopReason::Crashed) => {
                let failure = || Err(self.not_synced(clock.now()));
                return Some(self.seeded(clock).map_or_else(failure, Ok));
            }
            WatchState::Rechecking(CheckState::First) if patient => return None,
            WatchState::Starting
            | WatchState::Running
            | WatchState::Rechecking(_)
            | WatchState::Stopped(
                StopReason::Immutable
                | StopReason::Idle
                | StopReason::Awaiting
                | StopReason::ShutDown { serves: true },
            ) => {}
        }
        if self.is_filled() {
            // The poll has been due for half of the time to live.
            let waits = self.has_expired(clock) && self.failure().is_none();
            return (!waits).then(|| self.in_memory(key, clock));
        }
        let refusal = self.status.refusal.clone().map(Err);
        refusal.or_else(|| self.seeded(clock).map(Ok))
    }

    /// The state that an earlier process knew, while the server has not answered.
    fn seeded(&self, clock: &Clock) -> Option<Cached<K>> {
        let seed = self.content.seed()?;
        Some(Cached::of(seed.ready(self.failure().cloned(), clock)))
    }

    /// The object whatever its age, the last good copy of one that does not decode included (B12).
    pub(crate) fn cached_copy(&self, clock: &Clock) -> Option<Cached<K>> {
        let Some(mut ready) = self.stored(clock) else {
            return self.seeded(clock);
        };
        if let Some(undecodable) = self.content.undecodable() {
            ready.failure = Some(undecodable.clone());
            ready.stale = true;
        }
        Some(Cached::of(ready))
    }

    /// The kubelet's words for a wait that ended without an answer, and why (OC-9, B2).
    pub(crate) fn not_synced(&self, now: Instant) -> Error {
        let waits = self.is_at_work();
        let phase = waits.then(|| self.status.describe_activity(now));
        let failures = self.status.failures.clone().in_phase(phase.flatten());
        failures.not_synced(&resource_name::<K>(), now)
    }

    /// The answer to a reader whose deadline has passed: the result of an earlier poll, if there is
    /// one.
    pub(crate) fn late(&self, key: &ObjectKey, clock: &Clock) -> Result<Cached<K>, Error> {
        let failure = self.not_synced(clock.now());
        if !self.is_filled() {
            return Err(failure);
        }
        if let Some(undecodable) = self.content.undecodable() {
            return Err(undecodable.clone());
        }
        let Some(mut ready) = self.stored(clock) else {
            return Err(Error::not_found(&resource_name::<K>(), key.name()).with_source(failure));
        };
        ready.failure = Some(failure);
        Ok(Cached::of(ready))
    }

    fn in_memory(&self, key: &ObjectKey, clock: &Clock) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = self.content.undecodable() {
            return Err(undecodable.clone());
        }
        match self.stored(clock) {
            Some(ready) => Ok(Cached::of(ready)),
            None => Err(Error::not_found(&resource_name::<K>(), key.name())),
        }
    }

    fn stored(&self, clock: &Clock) -> Option<ReadyObject<K>> {
        let confirmed =
            self.is_at_work() || self.state() == WatchState::Stopped(StopReason::Immutable);
        Some(ReadyObject {
            object: Arc::clone(self.content.object()?),
            contact: self.contact?,
            failure: self.failure().cloned(),
            stale: !(confirmed && self.is_filled())
                || self.status.is_behind()
                || self.has_expired(clock),
            expires: self.expires(),
            clock: clock.clone(),
        })
    }
}

/// The state of an object in memory which the server has refused since.
fn refused<K: Object>(entry: &WatchEntry<K>, now: Instant) -> Option<(ObjectState, String)> {
    let failures = &entry.status.failures;
    failures.refusal(FORBIDDEN_GRACE)?;
    Some((ObjectState::Refused, failed_so_far(failures, now)?))
}

fn watch_in_words<K: Object>(entry: &WatchEntry<K>) -> String {
    match entry.state() {
        WatchState::Stopped(StopReason::Immutable) => {
            "immutable, so its watch is stopped".to_owned()
        }
        WatchState::Rechecking(CheckState::First) => {
            "immutable; checking that it is still the same".to_owned()
        }
        WatchState::Rechecking(CheckState::Failed | CheckState::Again) => {
            format!("immutable; the check failed: {}", failure_text(entry))
        }
        WatchState::Stopped(StopReason::Idle) => {
            "not read for a while, so its watch is stopped".to_owned()
        }
        WatchState::Stopped(StopReason::Awaiting) => AWAITING.to_owned(),
        WatchState::Stopped(StopReason::ShutDown { .. }) => "the manager was shut down".to_owned(),
        WatchState::Starting | WatchState::Running if entry.is_polled() => {
            let failure = failure_text(entry);
            if failure.is_empty() {
                "polled: there is no room for its watch".to_owned()
            } else {
                format!("polled, and the last poll failed: {failure}")
            }
        }
        WatchState::Starting
        | WatchState::Running
        | WatchState::Stopped(StopReason::NoRoom | StopReason::Crashed)
        | WatchState::Dropped => failure_text(entry),
    }
}

fn failure_text<K: Object>(entry: &WatchEntry<K>) -> String {
    entry.failure().map(Error::to_string).unwrap_or_default()
}
