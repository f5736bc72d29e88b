//! What a record says to its readers: what is held, what there is to say after a failure, or when time is up. Pure.

use std::time::Instant;

use super::{Moment, Record};
use crate::clock::{Clock, Coarse};
use crate::error::{Error, FailedSync};
use crate::manager::cached::{Cached, Ready};
use crate::object::{Object, ObjectKey, resource_name};
use crate::sync::Arc;

impl<K: Object> Record<K> {
    /// What readers can have at once while it is fresh, and since when it is, for the table of answers.
    pub(crate) fn ready(&self, clock: &Clock) -> Option<(Ready<K>, Coarse)> {
        let (_, fetched) = self.updated?;
        let ready = self.held(self.trouble.failure().cloned(), false, clock)?;
        (!self.orphaned && self.undecodable.is_none()).then_some((ready, fetched))
    }

    /// The object whatever its age, the last good copy of one that does not decode included (B12).
    pub(crate) fn whatever_there_is(&self, at: &Moment<'_>) -> Option<Cached<K>> {
        let failure = self
            .undecodable
            .as_ref()
            .or(self.trouble.failure())
            .cloned();
        let ready = self.held(failure, !self.is_fresh(at), at.clock)?;
        Some(Cached::new(Arc::new(ready)))
    }

    /// What is held, or that there is no such object.
    pub(crate) fn in_hand(
        &self,
        key: &ObjectKey,
        stale: bool,
        at: &Moment<'_>,
    ) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = &self.undecodable {
            return Err(undecodable.clone());
        }
        match self.held(self.trouble.failure().cloned(), stale, at.clock) {
            Some(ready) => Ok(Cached::new(Arc::new(ready))),
            None => Err(self
                .absent
                .clone()
                .unwrap_or_else(|| Error::not_found(&resource_name::<K>(), key.name()))),
        }
    }

    /// What there is to say after `failure`: what was known before, with it, or it alone (OS-12..OS-14).
    pub(crate) fn after(&self, failure: &Error, at: &Moment<'_>) -> Result<Cached<K>, Error> {
        if let Some(undecodable) = &self.undecodable {
            return Err(undecodable.clone());
        }
        let stale = !self.is_fresh(at);
        if let Some(ready) = self.held(Some(failure.clone()), stale, at.clock) {
            return Ok(Cached::new(Arc::new(ready)));
        }
        match &self.absent {
            Some(absent) => Err(absent.clone().with_source(failure.clone())),
            None => Err(failure.clone()),
        }
    }

    /// What there is to say to a reader whose deadline has passed; `own` is the fetch of its own that this ended.
    pub(crate) fn late(
        &self,
        own: Option<(Instant, &Error)>,
        at: &Moment<'_>,
    ) -> Result<Cached<K>, Error> {
        let begun = own.map(|(begun, _)| begun);
        let begun = begun.or(self.flight.map(|(_, begun)| begun));
        let since = self.trouble.since().or(begun);
        let error = own.map(|(_, error)| error).or(self.trouble.failure());
        let failed = FailedSync {
            attempts: self
                .trouble
                .attempts()
                .saturating_add(u32::from(own.is_some())),
            since: since.unwrap_or(at.now),
            now: at.now,
            last_failure: error.cloned(),
            activity: None,
        };
        self.after(&Error::not_synced(&resource_name::<K>(), failed), at)
    }

    fn held(&self, failure: Option<Error>, stale: bool, clock: &Clock) -> Option<Ready<K>> {
        let (contact, _) = self.updated?;
        Some(Ready {
            object: Arc::clone(self.object()?),
            contact,
            failure,
            stale,
            clock: clock.clone(),
        })
    }
}
