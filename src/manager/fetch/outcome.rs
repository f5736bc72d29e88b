//! What is remembered of the reads of one object, for tables: how the last one ended, and never a value. Pure.

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::manager::kinds::KindTraits;
use crate::manager::report::{ObjectReport, ObjectState, Summary, failed_so_far};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::reflector::FORBIDDEN_GRACE;
use crate::sync::Arc;

/// How the reads of one object went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The number of the read that spoke last: reads are numbered as they begin.
    read: u64,
    last: Last,
    /// Of the last object that was found.
    summary: Summary,
    contact: Option<Instant>,
    trouble: Option<Trouble>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    NotRead,
    Found,
    NotFound,
    Failed(ErrorKind),
}

/// Failures, since something last went well.
#[derive(Debug)]
struct Trouble {
    failure: Error,
    attempts: u32,
    since: Instant,
    refused_since: Option<Instant>,
    /// A refusal that is an answer: it outlasted its grace (R4).
    denied: bool,
}

impl Outcome {
    /// Takes note of how the read of this number ended; whether a table would show something else now. A read that
    /// began before the one that spoke last says nothing new.
    ///
    /// That nobody let it come to an end says nothing about the object either.
    pub(super) fn note<K: Object>(
        &mut self,
        read: u64,
        result: &Result<Arc<Held<K>>, Error>,
        now: Instant,
    ) -> bool {
        let is_stopped = result.as_ref().is_err_and(Error::is_stopped);
        if read < self.read || is_stopped {
            return false;
        }
        let before = self.shown();
        self.read = read;
        match result {
            Ok(object) => {
                self.last = Last::Found;
                self.summary = Summary::of(KindTraits::<K>::default(), object);
                self.trouble = None;
                self.contact = Some(now);
            }
            Err(error) if error.is_not_found() => {
                self.last = Last::NotFound;
                self.summary = Summary::default();
                self.trouble = None;
                self.contact = Some(now);
            }
            Err(error) => self.fail(error, now),
        }
        before != self.shown()
    }

    /// The version of the last object that was found.
    pub(super) fn resource_version(&self) -> &ResourceVersion {
        &self.summary.resource_version
    }

    /// The object's row.
    pub(super) fn report<K: Object>(
        &self,
        key: ObjectKey,
        owners: usize,
        now: Instant,
    ) -> ObjectReport {
        let (state, reason) = self.standing(now);
        let trouble = self.trouble.as_ref();
        ObjectReport {
            state,
            reason,
            since_contact: self
                .contact
                .map(|contact| now.saturating_duration_since(contact)),
            last_failure: trouble.map(|trouble| trouble.failure.clone()),
            attempts: trouble.map_or(0, |trouble| trouble.attempts),
            ..ObjectReport::unknown::<K>(key, owners).with(self.summary.clone())
        }
    }

    fn fail(&mut self, error: &Error, now: Instant) {
        self.last = Last::Failed(error.kind());
        // Whatever it said, the server spoke of this object.
        if error.status().is_some() || error.kind() == ErrorKind::Undecodable {
            self.contact = Some(now);
        }
        let before = self.trouble.take();
        let refused_since = (error.kind() == ErrorKind::Forbidden).then(|| {
            let known = before.as_ref().and_then(|trouble| trouble.refused_since);
            known.unwrap_or(now)
        });
        self.trouble = Some(Trouble {
            failure: error.clone(),
            attempts: before
                .as_ref()
                .map_or(0, |trouble| trouble.attempts)
                .saturating_add(1),
            since: before.map_or(now, |trouble| trouble.since),
            refused_since,
            denied: refused_since
                .is_some_and(|since| now.saturating_duration_since(since) >= FORBIDDEN_GRACE),
        });
    }

    fn standing(&self, now: Instant) -> (ObjectState, String) {
        let Some(trouble) = &self.trouble else {
            return match self.last {
                Last::Found => (ObjectState::Synced, String::new()),
                Last::NotFound => (ObjectState::NotFound, String::new()),
                Last::NotRead | Last::Failed(_) => (ObjectState::Waiting, "not read yet".into()),
            };
        };
        let failure = &trouble.failure;
        if failure.kind() == ErrorKind::Undecodable {
            return (ObjectState::Undecodable, failure.to_string());
        }
        if trouble.denied {
            return (ObjectState::Forbidden, failure.to_string());
        }
        let since = now.saturating_duration_since(trouble.since);
        let reason = failed_so_far(trouble.attempts, since, failure);
        (ObjectState::Waiting, reason)
    }

    /// What a change of is told to subscribers.
    fn shown(&self) -> (Last, bool, ResourceVersion) {
        let denied = self.trouble.as_ref().is_some_and(|trouble| trouble.denied);
        (self.last, denied, self.summary.resource_version.clone())
    }
}
