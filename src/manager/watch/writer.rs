//! The sink of one run: writes the lists and events of its reflector into the entry, while the run
//! is the current one.

use std::convert::Infallible;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::context::RunContext;
use super::entry::{PollResult, WatchAction, WatchEntry, WatchedObject};
use super::state_machine::{RunId, WatchInput};
use crate::error::Error;
use crate::list_watch::{EventKind, Listed, ObjectEvent};
use crate::manager::consistent_reads::is_reached;
use crate::manager::entry::content::{EntryContent, ReadPosition};
use crate::object::{Object, ResourceVersion, StoredObject};
use crate::reflector::{Phase, ReflectorStatus, Replacement, Sink};
use crate::sync::{Arc, Mutex, Rank};

/// The sink of one run. The entry refuses every write of a run that has ended (OC-28).
pub(crate) struct Writer<K: Object> {
    context: RunContext<K>,
    pub(crate) object: WatchedObject<K>,
    pub(super) run: RunId,
    /// The list of a successor whose watch is not open yet, and how it was read.
    held: Mutex<Option<(ObjectStaging<K>, Replacement)>>,
    /// Dropped with the writer: the next run waits for that (OC-23).
    _ended: Option<Sender<Infallible>>,
}

impl<K: Object> Writer<K> {
    pub(crate) fn new(
        context: RunContext<K>,
        object: WatchedObject<K>,
        run: RunId,
        ended: Option<Sender<Infallible>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            object,
            run,
            held: Mutex::ranked(Rank::HELD_LIST, None),
            _ended: ended,
        })
    }

    /// Writes under the lock, then notifies and acts under none.
    fn write(
        &self,
        incoming: Option<&Arc<StoredObject<K>>>,
        write: impl FnOnce(&mut WatchEntry<K>) -> WriteOutcome,
    ) -> Result<(), Error> {
        let now = self.context.registry.clock().now();
        let registry = &self.context.registry;
        let (is_news, action) = registry.take_in(&self.object, incoming, |entry| {
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
        self.context.end_all(action.ending);
    }

    /// Whether the known state of the object is not older than `version`.
    pub(crate) fn has_reached(&self, version: &ResourceVersion) -> bool {
        is_reached(self.object.state.lock().content.known_version(), version)
    }

    /// Makes the run, whose watch is open, the current one of its object, if it has listed the
    /// object or misses nothing of it. Returns the version of its list if that was overtaken: the
    /// list is gone then, and the watch brings what came after it.
    pub(crate) fn take_over(&self) -> Option<ResourceVersion> {
        let held = self.held.lock().take();
        let Some((mut staging, of)) = held else {
            // It fails for a run that has ended.
            drop(self.write(None, |_| Ok((false, WatchAction::nothing()))));
            return None;
        };
        let asked_at = staging.asked_at;
        let taken = self.take_list(&mut staging, &of, |entry, listed| {
            entry.take_over(self.run, listed, &of, asked_at)
        });
        let error = taken.err().filter(|error| !error.is_stopped())?;
        let key = &self.object.key;
        log::debug!("{key} is watched or polled as before: {error}");
        Some(of.resource_version)
    }

    /// Tells the entry that the run has ended.
    fn end(&self) {
        let ended = |entry: &mut WatchEntry<K>| entry.act(WatchInput::Ended(self.run));
        let action = self.context.registry.change(&self.object, ended);
        self.finish(action, false);
    }

    /// Writes the state of the object in a list.
    fn take_list(
        &self,
        staging: &mut ObjectStaging<K>,
        of: &Replacement,
        take: impl FnOnce(&mut WatchEntry<K>, StagedObject<'_, K>) -> WriteOutcome,
    ) -> Result<(), Error> {
        let incoming = object_of(staging.listed.as_ref());
        let listed = (staging.began, &mut staging.listed);
        self.write(incoming.as_ref(), |entry| take(entry, listed))?;
        // The list came from a cache that was behind the known state.
        if of.resource_version.is_older_than(&staging.newest) {
            self.context.confirm_later(&self.object);
        }
        Ok(())
    }

    /// A server that ignores the field selector sends other objects too.
    fn is_ours(&self, object: &Listed<K>) -> bool {
        object.key() == self.object.key
    }

    /// Writes the result of a poll, which readers may have until it `expires`.
    pub(crate) fn take_polled(
        &self,
        read: &ReadPosition,
        found: &mut PollResult<K>,
        expires: Instant,
    ) -> Result<(), Error> {
        let incoming = found.as_ref().ok().and_then(Clone::clone);
        self.write(incoming.as_ref(), |entry| {
            entry.take_polled(self.run, (read, found), expires)
        })
    }

    pub(crate) fn update(&self, status: &ReflectorStatus) {
        if self.object.state.lock().keep_up(self.run, status) {
            return;
        }
        let update = |entry: &mut WatchEntry<K>| entry.update(self.run, status);
        let (is_news, recovered) = self.context.registry.change(&self.object, update);
        if recovered {
            self.context.server_recovered();
        }
        if is_news {
            self.context.notify(&self.object, true);
        }
    }
}

/// The object, unless it does not decode.
fn object_of<K: Object>(listed: Option<&Listed<K>>) -> Option<Arc<StoredObject<K>>> {
    listed?.decoded().map(Arc::clone)
}

/// The state of the one object in a list.
#[derive(Debug)]
pub(crate) struct ObjectStaging<K: Object> {
    /// The content's revision when the list began.
    began: u64,
    /// When the list was asked for. The server may have answered as early as that.
    asked_at: Instant,
    /// The newest version of any object that was known then.
    newest: ResourceVersion,
    listed: Option<Listed<K>>,
}

/// The content's revision when a list began, and the state of the object in it.
type StagedObject<'a, K> = (u64, &'a mut Option<Listed<K>>);

/// Whether readers have news, and the work that is left.
type WriteOutcome = Result<(bool, WatchAction), Error>;

/// Several threads may write through it: that of a namespace's watch, and others before its first
/// list.
impl<K: Object> Sink<K> for Arc<Writer<K>> {
    type Staging = ObjectStaging<K>;

    fn begin(&mut self) -> Self::Staging {
        ObjectStaging {
            began: self.object.state.lock().content.revision(),
            asked_at: self.context.registry.clock().now(),
            newest: self.context.registry.newest_version(),
            listed: None,
        }
    }

    fn stage(&mut self, staging: &mut Self::Staging, event: ObjectEvent<K>) {
        if self.is_ours(&event.object) {
            staging.listed = (event.kind != EventKind::Deleted).then_some(event.object);
        }
    }

    fn commit(&mut self, mut staging: Self::Staging, of: &Replacement) -> Result<(), Error> {
        let (asked_at, mut is_held) = (staging.asked_at, false);
        self.take_list(&mut staging, of, |entry, listed| {
            is_held = entry.holds_back(self.run, (listed.0, listed.1.as_ref()), of)?;
            if is_held {
                return Ok((false, WatchAction::nothing()));
            }
            entry.replace(self.run, listed, of, asked_at)
        })?;
        let held = is_held.then(|| (staging, of.clone()));
        let before = std::mem::replace(&mut *self.held.lock(), held);
        drop(before);
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        if !self.is_ours(&object) {
            return Ok(());
        }
        let (run, now) = (self.run, self.context.registry.clock().now());
        if kind == EventKind::Deleted {
            let (uid, version) = (object.uid(), object.resource_version());
            let remove = |content: &mut EntryContent<K>| content.remove(uid, &version);
            return self.write(None, |entry| entry.take_event(run, now, remove));
        }
        let mut state = Some(object);
        let incoming = object_of(state.as_ref());
        let change = |content: &mut EntryContent<K>| content.change(&mut state);
        self.write(incoming.as_ref(), |entry| {
            entry.take_event(run, now, change)
        })
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        let action = registry.change(&self.object, |entry| {
            entry.confirm(self.run, version, now);
            entry.hand_over(now)
        });
        // A reader may wait for the watch to reach this version.
        self.finish(action, false);
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let takes_over = status.phase == Phase::Watching && self.held.lock().is_some();
        if takes_over && self.take_over().is_some() {
            // Another run lists the object anew.
            self.end();
            self.context.tend_namespaces();
        }
        self.update(status);
    }
}

impl<K: Object> Drop for Writer<K> {
    fn drop(&mut self) {
        self.end();
    }
}
