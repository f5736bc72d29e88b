//! The guard around a reflector's source: a panic in it is an error of that call, and the reflector
//! goes on.

use std::panic::resume_unwind;

use crate::error::Error;
use crate::guard::{guard, guard_call, guard_logged, held_back};
use crate::list_watch::{ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream};
use crate::object::Object;
use crate::sync::Arc;
use crate::worker::{StopToken, Wake};

/// A program's lister-watcher, behind the guard.
///
/// Some calls cannot fail: the source is only told something, or a default is always right. A panic
/// in such a call is logged.
pub(crate) struct Guarded<K: Object> {
    source: Arc<dyn ListerWatcher<K>>,
    /// `the source of reflector secrets`.
    name: String,
    /// Names the listed objects in messages.
    pub(super) what: String,
}

impl<K: Object> Guarded<K> {
    /// Puts `source` of the reflector of this name behind the guard.
    ///
    /// # Errors
    ///
    /// The error of the source's check. `Panicked`, if the source panics when it names its objects.
    pub(crate) fn new(reflector: &str, source: Arc<dyn ListerWatcher<K>>) -> Result<Self, Error> {
        let name = format!("the source of reflector {reflector}");
        guard(&name, || source.check())??;
        let what = guard(&name, || source.describe())?;
        Ok(Self { source, name, what })
    }

    /// Makes a call that cannot fail: its result may always be the default.
    pub(super) fn ask<T: Default>(&self, call: impl FnOnce(&dyn ListerWatcher<K>) -> T) -> T {
        guard_logged(&self.name, || call(&*self.source))
    }

    pub(super) fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let mut sink_panic = None;
        let mut guarded_each = |item| {
            // A panic of the sink must not count as the source's, nor the other way round.
            if sink_panic.is_none() {
                sink_panic = held_back(|| each(item)).err();
            }
        };
        let page = guard_call(&self.name, || {
            self.source.list(request, stop, &mut guarded_each)
        });
        sink_panic.map_or(page, |payload| resume_unwind(payload))
    }

    pub(super) fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        guard_call(&self.name, || self.source.watch(request, stop))
    }

    /// Makes a call of an open watch.
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

/// Makes a running list urgent, on the thread of the caller that waits for it.
impl<K: Object> Wake for Guarded<K> {
    fn wake(&self) {
        self.ask(|source| source.expedite());
    }
}
