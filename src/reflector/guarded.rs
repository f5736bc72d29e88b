//! The guard around a reflector's source: a panic in it is an error of that call, and the reflector
//! goes on.

use std::cell::RefCell;
use std::time::Instant;

use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::guard::{guard, guard_call, guard_logged};
use crate::list_watch::{
    Backlog, ListPage, ListRequest, Listed, ListerWatcher, Next, WatchRequest, WatchStream,
};
use crate::object::Object;
use crate::sync::Arc;
use crate::worker::{StopToken, Wake};

/// A program's lister-watcher behind the guard.
///
/// What a source is only told, or asked with an answer that is always right, has no error: such a
/// panic is logged.
pub(super) struct Guarded<K: Object> {
    source: Arc<dyn ListerWatcher<K>>,
    /// `the source of reflector secrets`.
    name: String,
    what: String,
    clock: Clock,
}

/// An open watch behind the guard.
pub(super) struct GuardedStream<K: Object> {
    /// Empty once it is being dropped.
    stream: Option<Box<dyn WatchStream<K>>>,
    name: String,
    opened: Instant,
    /// A panic where there was no error to return; the next read returns it.
    failed: RefCell<Option<Error>>,
}

impl<K: Object> Guarded<K> {
    /// Puts `source` of the reflector of this name behind the guard.
    ///
    /// # Errors
    ///
    /// `Panicked`, if the source panics as it is asked what it lists.
    pub(super) fn new(
        reflector: &str,
        source: Arc<dyn ListerWatcher<K>>,
        clock: Clock,
    ) -> Result<Self, Error> {
        let name = format!("the source of reflector {reflector}");
        let what = guard(&name, || source.describe())?;
        Ok(Self {
            source,
            name,
            what,
            clock,
        })
    }

    /// What is listed, for messages.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Tells the source something, or asks it something of which the default is always right.
    pub(super) fn ask<T: Default>(&self, call: impl FnOnce(&dyn ListerWatcher<K>) -> T) -> T {
        guard_logged(&self.name, || call(&*self.source))
    }

    pub(super) fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let mut sink_failed = None;
        let mut guarded_each = |item| {
            // The source stays out of what the sink does, and the other way round.
            if sink_failed.is_none() {
                sink_failed = guard("the sink of a list", || each(item)).err();
            }
        };
        let page = guard_call(&self.name, || {
            self.source.list(request, stop, &mut guarded_each)
        });
        match sink_failed {
            Some(error) => Err(error),
            None => page,
        }
    }

    pub(super) fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<GuardedStream<K>, Error> {
        let stream = guard_call(&self.name, || self.source.watch(request, stop))?;
        Ok(GuardedStream {
            stream: Some(stream),
            name: format!("{}, reading its watch,", self.name),
            opened: self.clock.now(),
            failed: RefCell::new(None),
        })
    }
}

/// Makes a list that is under way urgent; on the thread of a caller who waits for it.
impl<K: Object> Wake for Guarded<K> {
    fn wake(&self) {
        self.ask(|source| source.expedite());
    }
}

impl<K: Object> GuardedStream<K> {
    pub(super) fn next(&mut self, deadline: Deadline) -> Result<Next<K>, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(stream) = &mut self.stream else {
            return Ok(Next::Ended(None));
        };
        guard_call(&self.name, || stream.next(deadline))
    }

    pub(super) fn last_contact(&self) -> Instant {
        self.ask(self.opened, |stream| stream.last_contact())
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.ask(Backlog::Unknown, |stream| stream.backlog())
    }

    /// Asks the stream something that has no error of its own.
    fn ask<T>(&self, otherwise: T, call: impl FnOnce(&dyn WatchStream<K>) -> T) -> T {
        let Some(stream) = &self.stream else {
            return otherwise;
        };
        guard(&self.name, || call(&**stream)).unwrap_or_else(|error| {
            self.failed.replace(Some(error));
            otherwise
        })
    }
}

impl<K: Object> Drop for GuardedStream<K> {
    fn drop(&mut self) {
        let stream = self.stream.take();
        guard_logged(&self.name, || drop(stream));
    }
}
