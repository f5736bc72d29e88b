//! Reads past every cache: one request on the caller's thread, and errors that say what was waited for (R11).

use std::time::Instant;

use super::gets::Gets;
use super::kinds::cache_name;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, FailedSync};
use crate::object::{Held, Object, ObjectKey, ResourceVersion, resource_name};
use crate::sync::Arc;
use crate::worker::StopToken;

/// What a read is about, and what ends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) clock: &'a Clock,
    pub(crate) deadline: Deadline,
    pub(crate) stop: &'a StopToken,
}

impl<K: Object> Gets<K> {
    /// Asks once, by the caller's deadline.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met; `Timeout` in [`Error::timed_out`]'s words when it was the
    /// caller's deadline that ended it; those of [`Ask::check`].
    pub(crate) fn ask(
        &self,
        ask: &Ask<'_>,
        version: &ResourceVersion,
    ) -> Result<Arc<Held<K>>, Error> {
        ask.check::<K>(version)?;
        let mut story = ask.begin();
        self.ask_once(ask, version).map_err(|error| {
            story.attempts = 1;
            if ask.was_ended_by_deadline(&error) {
                story.over::<K>(ask, version, Some(error))
            } else {
                error
            }
        })
    }

    /// One request, whose errors are as they come.
    pub(super) fn ask_once(
        &self,
        ask: &Ask<'_>,
        version: &ResourceVersion,
    ) -> Result<Arc<Held<K>>, Error> {
        self.get(ask.key, version, ask.deadline, ask.stop)
    }
}

impl Ask<'_> {
    /// Whether a request may be sent at all.
    ///
    /// # Errors
    ///
    /// `Stopped` once the stop is raised, `Timeout` once the deadline has passed.
    pub(crate) fn check<K: Object>(&self, version: &ResourceVersion) -> Result<(), Error> {
        if self.stop.is_stopped() {
            return Err(Error::stopped(&cache_name::<K>()));
        }
        if self.clock.has_passed(self.deadline) {
            let what = self.what::<K>(version);
            let message = format!("no request for {what} was sent: the deadline had passed");
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        Ok(())
    }

    fn what<K: Object>(&self, version: &ResourceVersion) -> String {
        let (resource, key) = (resource_name::<K>(), self.key);
        if version.is_unset() {
            format!("{resource} {key}")
        } else {
            format!("{resource} {key} at version {version} or later")
        }
    }

    pub(super) fn begin(&self) -> Story {
        Story {
            attempts: 0,
            since: self.clock.now(),
        }
    }

    /// Whether the error is that the caller's own deadline passed, and no limit of the transport's.
    pub(crate) fn was_ended_by_deadline(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Timeout && self.clock.has_passed(self.deadline)
    }
}

/// How long a read has gone on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    pub(super) attempts: u32,
    pub(super) since: Instant,
}

impl Story {
    /// The end of a read that came to no answer by the caller's deadline.
    pub(super) fn over<K: Object>(
        self,
        ask: &Ask<'_>,
        version: &ResourceVersion,
        last_failure: Option<Error>,
    ) -> Error {
        let failed = FailedSync {
            attempts: self.attempts,
            since: self.since,
            now: ask.clock.now(),
            last_failure,
            activity: None,
        };
        Error::timed_out(&ask.what::<K>(version), failed)
    }
}
