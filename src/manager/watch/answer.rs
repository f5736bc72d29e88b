//! What the entry of a watched object says to readers: an answer from memory, or that there is none
//! yet. Pure.

use std::time::Instant;

use super::entry::WatchEntry;
use super::state_machine::{Check, State, Why};
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::manager::cached::{Cached, Ready};
use crate::manager::entry::consistent_reads::is_reached;
use crate::manager::entry::content::Content;
use crate::manager::entry::table::{EntryState, Moment};
use crate::manager::kinds::cache_name;
use crate::manager::report::ObjectReport;
use crate::object::{Object, ObjectKey, ResourceVersion, resource_name};
use crate::sync::Arc;

impl<K: Object> EntryState<K> for WatchEntry<K> {
    fn content(&mut self) -> &mut Content<K> {
        &mut self.content
    }

    /// An immutable object that is watched is not among it: who reads it stops that.
    fn ready(&self, clock: &Clock) -> Option<(Ready<K>, Coarse)> {
        let waits = self.state() == State::Rechecking(Check::First);
        let unread = self.is_at_work() && self.content.holds_immutable();
        if !self.is_filled() || self.content.undecodable().is_some() || waits || unread {
            return None;
        }
        self.held(clock).map(|ready| (ready, Coarse::default()))
    }

    fn is_detached(&self) -> bool {
        self.state() == State::Dropped
    }

    /// `None` while the watch has not come that far, or stands still and so may never.
    fn reached(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        at: &Moment<'_>,
    ) -> Option<Result<Cached<K>, Error>> {
        let current = match self.state() {
            State::Dropped => return Some(Err(Error::not_registered(key))),
            State::Starting
            | State::Running
            | State::Stopped(Why::Immutable | Why::ShutDown { serves: true }) => self.is_filled(),
            State::Rechecking(_)
            | State::Stopped(
                Why::Idle | Why::NoRoom | Why::Crashed | Why::ShutDown { serves: false },
            ) => false,
        };
        let reached = current && is_reached(self.content.floor(), version);
        reached.then(|| self.in_memory(key, at.clock))
    }

    fn report(&self, row: ObjectReport, at: &Moment<'_>) -> ObjectReport {
        super::report::report(self, row, at.now)
    }

    fn is_watched(&self) -> bool {
        self.is_at_work()
    }

    fn note_read(&mut self, at: Coarse) {
        self.mark_read(at);
    }
}

impl<K: Object> WatchEntry<K> {
    /// What there is to say; `None` while waiting may bring more. `patient`: the reader still waits
    /// for the check of an immutable object (B7).
    pub(crate) fn answer(
        &self,
        key: &ObjectKey,
        clock: &Clock,
        patient: bool,
    ) -> Option<Result<Cached<K>, Error>> {
        match self.state() {
            State::Dropped => return Some(Err(Error::not_registered(key))),
            State::Stopped(Why::NoRoom) => return self.failure().cloned().map(Err),
            State::Stopped(Why::ShutDown { serves: false }) => {
                return Some(Err(Error::stopped(&cache_name::<K>())));
            }
            State::Stopped(Why::Crashed) => return Some(Err(self.not_synced(clock.now()))),
            State::Rechecking(Check::First) if patient => return None,
            State::Starting
            | State::Running
            | State::Rechecking(_)
            | State::Stopped(Why::Immutable | Why::Idle | Why::ShutDown { serves: true }) => {}
        }
        if self.is_filled() {
            return Some(self.in_memory(key, clock));
        }
        self.denied.clone().map(Err)
    }

    /// The object whatever its age, the last good copy of one that does not decode included (B12).
    pub(crate) fn whatever_there_is(&self, clock: &Clock) -> Option<Cached<K>> {
        let mut ready = self.held(clock)?;
        if let Some(undecodable) = self.content.undecodable() {
            ready.failure = Some(undecodable.clone());
            ready.stale = true;
        }
        Some(Cached::new(Arc::new(ready)))
    }

    /// The kubelet's words for a wait that ended without an answer, and why (OC-9, B2).
    pub(crate) fn not_synced(&self, now: Instant) -> Error {
        let phase = self.activity().and_then(|activity| activity.describe(now));
        let failures = self.failures.clone().or_since(self.began).in_phase(phase);
        failures.not_synced(&resource_name::<K>(), now)
    }

    fn in_memory(&self, key: &ObjectKey, clock: &Clock) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = self.content.undecodable() {
            return Err(undecodable.clone());
        }
        match self.held(clock) {
            Some(ready) => Ok(Cached::new(Arc::new(ready))),
            None => Err(Error::not_found(&resource_name::<K>(), key.name())),
        }
    }

    fn held(&self, clock: &Clock) -> Option<Ready<K>> {
        let confirmed = self.is_at_work() || self.state() == State::Stopped(Why::Immutable);
        Some(Ready {
            object: Arc::clone(self.content.object()?),
            contact: self.contact?,
            failure: self.failure().cloned(),
            stale: !(confirmed && self.is_filled()) || self.is_behind,
            clock: clock.clone(),
        })
    }
}
