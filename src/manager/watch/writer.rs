//! The sink of one run: writes what its reflector brings into the entry, while the run is the
//! current one.

use std::convert::Infallible;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::entry::{PollResult, WatchAction, WatchEntry, WatchedObject};
use super::runs::{PendingWork, Run};
use super::state_machine::{RunId, WatchInput};
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::manager::entry::consistent_reads::is_reached;
use crate::manager::entry::content::ReadPosition;
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
        if run.handle.is_shared() {
            // It has no thread that could be joined.
            return;
        }
        self.work.lock().ended.push(run);
        self.work.notify_all();
    }

    /// Waits for the end of a run's thread, which [`PendingWork::late`] names meanwhile.
    pub(crate) fn join(&self, run: Run) {
        self.work.lock().joining = Some(run.handle.thread_name());
        run.join();
        self.work.lock().joining = None;
    }

    /// Has the housekeeper look at the watches of namespaces.
    pub(crate) fn tend_namespaces(&self) {
        self.work.lock().namespaces = true;
        self.work.notify_all();
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
    _ended: Option<Sender<Infallible>>,
}

impl<K: Object> Writer<K> {
    pub(crate) fn new(
        context: RunContext<K>,
        object: WatchedObject<K>,
        run: RunId,
        ended: Option<Sender<Infallible>>,
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

    pub(crate) fn object(&self) -> &WatchedObject<K> {
        &self.object
    }

    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// Writes under the lock, then notifies and acts without it.
    fn write(
        &self,
        write: impl FnOnce(&mut WatchEntry<K>) -> Result<(bool, WatchAction), Error>,
    ) -> Result<(), Error> {
        let now = self.context.table.clock().now();
        let (is_news, action) = self.context.table.change(&self.object, |entry| {
            let (is_news, action) = write(entry)?;
            let action = action.and(entry.hand_over(now));
            // A reader that waits reads it next.
            let given = self.object.waiters.any().then(|| entry.on_given());
            let action = action.and(given.unwrap_or_else(WatchAction::nothing));
            Ok::<_, Error>((is_news, action))
        })?;
        // Also without news: a reader may wait for the watch to reach this version.
        self.finish(action, is_news);
        Ok(())
    }

    /// A write can end a run, but never starts one.
    fn finish(&self, action: WatchAction, is_news: bool) {
        self.context.notify(&self.object, is_news);
        for run in action.ending {
            self.context.end(run);
        }
    }

    /// Whether what is known of the object is not older than `version`.
    pub(crate) fn has_reached(&self, version: &ResourceVersion) -> bool {
        is_reached(self.object.state.lock().content.known_version(), version)
    }

    /// Hands over to the successor of the current run, if that misses nothing.
    pub(crate) fn hand_over(&self) {
        let table = &self.context.table;
        let now = table.clock().now();
        let action = table.change(&self.object, |entry| entry.hand_over(now));
        self.finish(action, false);
    }

    /// A server that ignores the field selector sends other objects too.
    fn is_ours(&self, object: &Listed<K>) -> bool {
        &object.key() == self.key()
    }
}

/// What a list brings of the one object: the content's revision when the list began, and the
/// object.
pub(crate) type ObjectStaging<K> = (u64, Option<Listed<K>>);

/// As a sink, which several threads may call: the one of a namespace's watch, and others before it
/// has its first list.
impl<K: Object> Writer<K> {
    pub(crate) fn begin_list(&self) -> ObjectStaging<K> {
        (self.object.state.lock().content.revision(), None)
    }

    pub(crate) fn stage_item(&self, staging: &mut ObjectStaging<K>, event: ObjectEvent<K>) {
        if self.is_ours(&event.object) {
            staging.1 = (event.kind != EventKind::Deleted).then_some(event.object);
        }
    }

    pub(crate) fn commit_list(
        &self,
        staging: ObjectStaging<K>,
        of: &Replacement,
    ) -> Result<(), Error> {
        let now = self.context.table.clock().now();
        let (began, mut listed) = staging;
        self.write(|entry| entry.replace(self.run, (began, &mut listed), of, now))
    }

    /// What a poll has found, which readers may have until it `expires`.
    pub(crate) fn take_polled(
        &self,
        read: &ReadPosition,
        found: &mut PollResult<K>,
        expires: Instant,
    ) -> Result<(), Error> {
        self.write(|entry| entry.take_polled(self.run, (read, found), expires))
    }

    pub(crate) fn apply_event(&self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        if !self.is_ours(&object) {
            return Ok(());
        }
        let (run, now) = (self.run, self.context.table.clock().now());
        let unchanged = |is_news| (is_news, WatchAction::nothing());
        if kind == EventKind::Deleted {
            let version = object.resource_version();
            let remove = |entry: &mut WatchEntry<K>| {
                let removed = entry.remove(run, object.uid(), &version, now);
                removed.map(unchanged)
            };
            return self.write(remove);
        }
        let mut state = Some(object);
        self.write(|entry| entry.change(run, &mut state, now).map(unchanged))
    }

    pub(crate) fn confirm(&self, version: &ResourceVersion) {
        let table = &self.context.table;
        let now = table.clock().now();
        let action = table.change(&self.object, |entry| {
            entry.confirm(self.run, version, now);
            entry.hand_over(now)
        });
        // A reader may wait for the watch to reach this version.
        self.finish(action, false);
    }

    pub(crate) fn update(&self, status: &ReflectorStatus) {
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

impl<K: Object> Sink<K> for Writer<K> {
    type Staging = ObjectStaging<K>;

    fn begin(&mut self) -> Self::Staging {
        self.begin_list()
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        self.stage_item(staging, event);
    }

    fn commit(&mut self, staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        self.commit_list(staging, of)
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        self.apply_event(event)
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.confirm(version);
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.update(status);
    }
}

impl<K: Object> Drop for Writer<K> {
    fn drop(&mut self) {
        let ended = |entry: &mut WatchEntry<K>| entry.act(WatchInput::Ended(self.run));
        let action = self.context.table.change(&self.object, ended);
        self.finish(action, false);
    }
}
