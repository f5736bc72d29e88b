//! The guard around a reflector's source: a panic in it is an error of that call, and the reflector
//! goes on.

use crate::error::Error;
use crate::guard::{guard, guard_call, guard_logged};
use crate::list_watch::{ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream};
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
}

impl<K: Object> Guarded<K> {
    /// Puts `source` of the reflector of this name behind the guard.
    ///
    /// # Errors
    ///
    /// That of the source's check. `Panicked`, if the source panics as it is asked what it lists.
    pub(super) fn new(reflector: &str, source: Arc<dyn ListerWatcher<K>>) -> Result<Self, Error> {
        let name = format!("the source of reflector {reflector}");
        guard(&name, || source.check())??;
        let what = guard(&name, || source.describe())?;
        Ok(Self { source, name, what })
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
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        guard_call(&self.name, || self.source.watch(request, stop))
    }

    /// Asks an open watch something.
    pub(super) fn reading<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        guard_call(format_args!("{}, reading its watch,", self.name), call)
    }

    /// Drops an open watch.
    pub(super) fn close(&self, stream: Box<dyn WatchStream<K>>) {
        guard_logged(format_args!("{}, reading its watch,", self.name), || {
            drop(stream);
        });
    }
}

/// Makes a list that is under way urgent; on the thread of a caller that waits for it.
impl<K: Object> Wake for Guarded<K> {
    fn wake(&self) {
        self.ask(|source| source.expedite());
    }
}
