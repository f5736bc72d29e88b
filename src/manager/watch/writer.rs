//! The sink of one run: writes what its reflector brings into the entry, while the run is the
//! current one.

use std::convert::Infallible;

use crossbeam_channel::Sender;

use super::entry::{WatchAction, WatchEntry, WatchedObject};
use super::runs::{PendingWork, Run};
use super::state_machine::{RunId, WatchInput};
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::manager::registry::Registry;
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::sync::{Arc, Monitor};

/// The entries of one manager and the work of its housekeeper: what a run's writer needs.
#[derive(Debug)]
pub(crate) struct RunContext<K: Object> {
    pub(crate) table: Arc<Registry<K, WatchEntry<K>>>,
    pub(crate) work: Arc<Monitor<PendingWork>>,
}

impl<K: Object> Clone for RunContext<K> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            work: Arc::clone(&self.work),
        }
    }
}

impl<K: Object> RunContext<K> {
    /// Raises a run's stop and leaves the join to the housekeeper.
    pub(crate) fn end(&self, run: Run) {
        run.handle.stop();
        self.work.lock().ended.push(run);
        self.work.notify_all();
    }

    /// Waits for the end of a run's thread, which [`PendingWork::late`] names meanwhile.
    pub(crate) fn join(&self, run: Run) {
        self.work.lock().joining = Some(run.handle.thread_name());
        run.join();
        self.work.lock().joining = None;
    }

    /// Has the housekeeper tell the other objects that the server answers again.
    pub(crate) fn server_recovered(&self) {
        self.work.lock().recovered = true;
        self.work.notify_all();
    }

    /// Wakes the readers that wait for the entry, and notifies subscribers if there is news.
    pub(crate) fn notify(&self, object: &WatchedObject<K>, is_news: bool) {
        object.state.notify_all();
        if is_news {
            self.table.changes.notify(&object.key);
        }
    }
}

/// The sink of one run. The entry refuses every write of a run that has ended (OC-28).
#[derive(Debug)]
pub(crate) struct Writer<K: Object> {
    context: RunContext<K>,
    object: WatchedObject<K>,
    run: RunId,
    /// Dropped with the writer: the next run waits for that (OC-23).
    _ended: Sender<Infallible>,
}

impl<K: Object> Writer<K> {
    pub(crate) fn new(
        context: RunContext<K>,
        object: WatchedObject<K>,
        run: RunId,
        ended: Sender<Infallible>,
    ) -> Self {
        Self {
            context,
            object,
            run,
            _ended: ended,
        }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.object.key
    }

    /// Writes under the lock, then notifies and acts without it.
    fn write(
        &self,
        write: impl FnOnce(&mut WatchEntry<K>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let (is_news, action) = self.context.table.change(&self.object, |entry| {
            let is_news = write(entry)?;
            // A reader that waits reads it next.
            let action = if self.object.waiters.any() {
                entry.on_given()
            } else {
                WatchAction::nothing()
            };
            Ok::<_, Error>((is_news, action))
        })?;
        // Also without news: a reader may wait for the watch to reach this version.
        self.finish(action, is_news);
        Ok(())
    }

    /// A write can end a run, but never starts one.
    fn finish(&self, action: WatchAction, is_news: bool) {
        self.context.notify(&self.object, is_news);
        if let Some(run) = action.ending {
            self.context.end(run);
        }
    }

    /// A server that ignores the field selector sends other objects too.
    fn is_ours(&self, object: &Listed<K>) -> bool {
        &object.key() == self.key()
    }
}

impl<K: Object> Sink<K> for Writer<K> {
    /// The content's revision when the list began, and the object.
    type Staging = (u64, Option<Listed<K>>);

    fn begin(&mut self) -> Self::Staging {
        (self.object.state.lock().content.revision(), None)
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        if self.is_ours(&event.object) {
            staging.1 = (event.kind != EventKind::Deleted).then_some(event.object);
        }
    }

    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        let now = self.context.table.clock().now();
        let (began, mut listed) = staging;
        self.write(|entry| entry.replace(self.run, (began, &mut listed), of, now))
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        if !self.is_ours(&object) {
            return Ok(());
        }
        let (run, now) = (self.run, self.context.table.clock().now());
        if kind == EventKind::Deleted {
            let version = object.resource_version();
            return self.write(|entry| entry.remove(run, object.uid(), &version, now));
        }
        let mut state = Some(object);
        self.write(|entry| entry.change(run, &mut state, now))
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        let table = &self.context.table;
        let now = table.clock().now();
        table.change(&self.object, |entry| entry.confirm(self.run, version, now));
        // A reader may wait for the watch to reach this version.
        self.context.notify(&self.object, false);
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let update = |entry: &mut WatchEntry<K>| entry.update(self.run, status);
        let (is_news, recovered) = self.context.table.change(&self.object, update);
        if recovered {
            self.context.server_recovered();
        }
        if is_news {
            self.context.notify(&self.object, true);
        }
    }
}

impl<K: Object> Drop for Writer<K> {
    fn drop(&mut self) {
        let ended = |entry: &mut WatchEntry<K>| entry.act(WatchInput::Ended(self.run));
        let action = self.context.table.change(&self.object, ended);
        self.finish(action, false);
    }
}
