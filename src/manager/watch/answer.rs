//! What a slot says to its readers: an answer from memory, or that there is none yet.

use std::time::Instant;

use super::item::{Check, State, Why};
use super::slot::{About, Slot};
use crate::clock::Clock;
use crate::error::{Error, FailedSync};
use crate::manager::at_least::is_reached;
use crate::manager::cached::{Cached, Ready};
use crate::manager::kinds::cache_name;
use crate::object::{Object, ResourceVersion, resource_name};
use crate::sync::Arc;

impl<K: Object> Slot<K> {
    /// What readers can have at once, for the table of answers. An immutable object that is watched
    /// is not among it: who
    /// reads it stops that.
    pub(crate) fn ready(&self, clock: &Clock) -> Option<Ready<K>> {
        let waits = self.state() == State::Rechecking(Check::First);
        let watched = matches!(self.state(), State::Starting | State::Running);
        let unread = watched && self.content().holds_immutable();
        if !self.is_filled() || self.undecodable().is_some() || waits || unread {
            return None;
        }
        self.held(clock)
    }

    /// What there is to say; `None` while waiting may bring more. `patient`: the reader still waits for the check of
    /// an immutable object (B7).
    pub(crate) fn answer(
        &self,
        about: &About,
        clock: &Clock,
        patient: bool,
    ) -> Option<Result<Cached<K>, Error>> {
        match self.state() {
            State::Dropped => return Some(Err(Error::not_registered(&about.key))),
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
            return Some(self.said(about, clock));
        }
        self.denied().cloned().map(Err)
    }

    /// What there is to say to a reader whom a state of `version` or later will do (R11); `None` while the watch has not
    /// come that far, or stands still and so may never.
    pub(crate) fn answer_at_least(
        &self,
        about: &About,
        clock: &Clock,
        version: &ResourceVersion,
    ) -> Option<Result<Cached<K>, Error>> {
        let current = match self.state() {
            State::Dropped => return Some(Err(Error::not_registered(&about.key))),
            State::Starting
            | State::Running
            | State::Stopped(Why::Immutable | Why::ShutDown { serves: true }) => self.is_filled(),
            State::Rechecking(_)
            | State::Stopped(
                Why::Idle | Why::NoRoom | Why::Crashed | Why::ShutDown { serves: false },
            ) => false,
        };
        let reached = current && is_reached(self.content().floor(), version);
        reached.then(|| self.said(about, clock))
    }

    /// The object whatever its age, the last good copy of one that does not decode included (B12).
    pub(crate) fn whatever_there_is(&self, clock: &Clock) -> Option<Cached<K>> {
        let held = self.held(clock)?;
        let ready = match self.undecodable() {
            None => held,
            Some(undecodable) => Ready {
                failure: Some(undecodable.clone()),
                stale: true,
                ..held
            },
        };
        Some(Cached::new(Arc::new(ready)))
    }

    /// The kubelet's words for a wait that ended without an answer, and why (OC-9, B2).
    pub(crate) fn not_synced(&self, now: Instant) -> Error {
        let failed = FailedSync {
            attempts: self.attempts(),
            since: self.attempts_since(),
            now,
            last_failure: self.failure().cloned(),
            activity: self.activity().and_then(|activity| activity.describe(now)),
        };
        Error::not_synced(&resource_name::<K>(), failed)
    }

    fn said(&self, about: &About, clock: &Clock) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = self.undecodable() {
            return Err(undecodable.clone());
        }
        match self.held(clock) {
            Some(ready) => Ok(Cached::new(Arc::new(ready))),
            None => Err(Error::not_found(&resource_name::<K>(), about.key.name())),
        }
    }

    fn held(&self, clock: &Clock) -> Option<Ready<K>> {
        let confirmed = matches!(
            self.state(),
            State::Starting | State::Running | State::Stopped(Why::Immutable)
        );
        Some(Ready {
            object: Arc::clone(self.object()?),
            contact: self.last_contact()?,
            failure: self.failure().cloned(),
            stale: !(confirmed && self.is_filled()) || self.is_behind(),
            clock: clock.clone(),
        })
    }
}
