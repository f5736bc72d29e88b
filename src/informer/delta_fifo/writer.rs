//! The producing side of a queue: a sink for one reflector. Dropping it closes the queue.

use std::fmt;

use super::hand::Fate;
use super::options::{QueueMode, Relisted, Transform};
use super::staging::DeltaFifoStaging;
use super::state::{End, Missing, State, unlisted};
use super::{DeltaFifoOptions, Shared};
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::informer::KnownObjects;
use crate::informer::delta::{Deletion, Delta, ReplacedAll};
use crate::list_watch::{EventKind, Listed, ObjectEvent, Undecodable};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::reflector::{Phase, ReflectorStatus, Replacement, Sink};
use crate::store::refusal;
use crate::sync::{Arc, MutexGuard};

/// The producing side of a [`DeltaFifo`](crate::informer::DeltaFifo): exclusive, and a [`Sink`].
///
/// It never waits for the consumer: only for the moment in which the queue itself is changed. A list is all or nothing,
/// in every mode. Dropping the writer closes the queue (CT-1).
///
/// Versions are not compared here: whoever holds the final content refuses what is older (B18).
pub struct DeltaFifoWriter<K: Object> {
    shared: Shared<K>,
    mode: QueueMode<K>,
    transform: Option<Transform<K>>,
}

impl<K: Object> DeltaFifoWriter<K> {
    pub(super) fn new(shared: Shared<K>, mode: QueueMode<K>, options: DeltaFifoOptions<K>) -> Self {
        Self {
            shared,
            mode,
            transform: options.transform,
        }
    }

    fn transformed(&self, key: &ObjectKey, object: Arc<Held<K>>) -> Result<Arc<Held<K>>, Error> {
        let Some(transform) = &self.transform else {
            return Ok(object);
        };
        let port = format_args!("the transform of {key}");
        let transformed = guard_call(port, || transform(object));
        let object = transformed.map_err(|error| error.context("transforming"))?;
        let metadata = object.metadata();
        let same = metadata.namespace.as_deref().unwrap_or_default() == key.namespace()
            && metadata.name.as_deref().unwrap_or_default() == key.name();
        if same {
            return Ok(object);
        }
        let text = format!("transforming: {key} became {}", object.key());
        Err(Error::new(ErrorKind::Config, text))
    }

    /// The object that is known already, if the listed one is no other state of it.
    fn unchanged(
        &self,
        staging: &DeltaFifoStaging<K>,
        key: &ObjectKey,
        object: &K,
    ) -> Option<Arc<Held<K>>> {
        let known = self.mode.view()?;
        let held = match staging.fates.get(key) {
            Some(Fate::Present(object)) => object.clone()?,
            Some(Fate::Gone) => return None,
            None => known.get(key).ok().flatten()?,
        };
        let version = object.metadata().resource_version.as_deref();
        let same = version.is_some_and(|version| !version.is_empty())
            && held.metadata().resource_version.as_deref() == version
            && held.uid() == object.uid();
        same.then_some(held)
    }

    /// Locks the queue for a write; the count of what came begins here (DF-14).
    fn lock_to_change(&self) -> Result<MutexGuard<'_, State<K>>, Error> {
        let mut state = self.shared.lock();
        if state.end == End::Abandoned {
            return Err(Error::stopped("DeltaFIFO: the consumer is gone"));
        }
        if state.populate() {
            self.shared.changed.ring();
        }
        Ok(state)
    }

    /// Queues a change of one object.
    fn queue(&self, key: ObjectKey, delta: Delta<K>) -> Result<(), Error> {
        let key = Arc::new(key);
        let mut state = self.lock_to_change()?;
        let merged = state.push(Some(key), delta);
        drop(state);
        self.shared.arrived.ring();
        drop(merged);
        Ok(())
    }

    fn change(
        &self,
        object: Arc<Held<K>>,
        delta: impl FnOnce(Arc<Held<K>>) -> Delta<K>,
    ) -> Result<(), Error> {
        let key = object.key();
        match self.transformed(&key, object) {
            Ok(object) => self.queue(key, delta(object)),
            Err(error) => {
                drop(self.lock_to_change()?);
                Err(error)
            }
        }
    }

    /// Whether anybody knows of the object, so that its deletion has a meaning (DF-5, RQ-2).
    fn is_deletable(&self, key: &ObjectKey) -> Result<bool, Error> {
        if self.lock_to_change()?.is_deletable(key) {
            return Ok(true);
        }
        // The view is asked outside of the lock. What it says of this object holds: only what waits changes it.
        let known = self.mode.known().map(|known| known.get(key));
        Ok(known.is_some_and(|known| known.map_or(true, |object| object.is_some())))
    }

    fn delete(&self, object: Arc<Held<K>>) -> Result<(), Error> {
        let key = object.key();
        if !self.is_deletable(&key)? {
            return Ok(());
        }
        self.change(object, move |object| {
            Delta::Deleted(Box::new(Deletion::seen(key, object)))
        })
    }

    fn delete_undecodable(&self, why: Undecodable) -> Result<(), Error> {
        if !self.is_deletable(&why.key)? {
            return Ok(());
        }
        let last_known = match &self.mode {
            QueueMode::Compressed { known, .. } => self.last_known(known.as_ref(), &why.key),
            // In order, the consumer's view shows it when this is taken.
            QueueMode::InOrder { .. } | QueueMode::InOrderAtomic { .. } => None,
        };
        let key = why.key.clone();
        let deleted = Deletion::undecodable(why, last_known);
        self.queue(key, Delta::Deleted(Box::new(deleted)))
    }

    /// The last state that decodes of an object that is there, or will be.
    fn last_known(
        &self,
        known: Option<&Arc<dyn KnownObjects<K>>>,
        key: &ObjectKey,
    ) -> Option<Arc<Held<K>>> {
        let fate = self.shared.lock().fate(key);
        let here = match fate {
            Some(Fate::Present(object)) => object,
            Some(Fate::Gone) => return None,
            None => None,
        };
        here.or_else(|| known?.last_good(key))
    }

    /// What the consumer has, or will have once it has processed what waits, and a list goes without; and what is being
    /// deleted, should the consumer refuse that.
    fn missing(&self, staging: &DeltaFifoStaging<K>) -> (Missing<K>, Vec<Arc<ObjectKey>>) {
        let Some(known) = self.mode.known() else {
            return (Vec::new(), Vec::new());
        };
        // Until the list is pushed, only these objects can change in the consumer's store.
        let fates = self.shared.lock().fates();
        let (mut missing, mut doubtful) = (Vec::new(), Vec::new());
        for key in known.keys() {
            if !fates.contains_key(&key) && !staging.contains(&key) {
                let last_known = known.last_good(&key);
                missing.push((Arc::new(key), last_known));
            }
        }
        for (key, fate) in fates {
            match fate {
                _ if staging.contains(&key) => {}
                Fate::Gone => doubtful.push(key),
                Fate::Present(object) => {
                    let last_known = object.or_else(|| known.last_good(&key));
                    missing.push((key, last_known));
                }
            }
        }
        (missing, doubtful)
    }

    /// Queues the ends of what the consumer had not deleted after all when it was done, before the list was queued.
    fn end_doubtful(&self, doubtful: &[Arc<ObjectKey>], of: &Arc<Replacement>) {
        let Some(known) = self.mode.known() else {
            return;
        };
        for key in doubtful {
            // Nothing of it waits or is in hand: what the view says holds until the end is queued.
            if matches!(known.get(key), Ok(None)) {
                continue;
            }
            let delta = unlisted(key, known.last_good(key), of);
            let mut state = self.shared.lock();
            let merged = match state.end {
                End::Open | End::Closed => state.push(Some(Arc::clone(key)), delta),
                End::Abandoned => Some(delta),
            };
            drop(state);
            drop(merged);
        }
    }

    fn commit_items(&self, staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        let relisted = match &self.mode {
            QueueMode::Compressed { relisted, .. } => *relisted,
            QueueMode::InOrder { .. } | QueueMode::InOrderAtomic { .. } => Relisted::Replaced,
        };
        let of = Arc::new(of.clone());
        let missing = self.missing(&staging);
        let list = staging.into_relist(missing, of, relisted == Relisted::Sync);
        let mut state = self.shared.lock();
        if state.end == End::Abandoned {
            return Err(Error::stopped("DeltaFIFO: the consumer is gone"));
        }
        let leftovers = state.relist(list);
        drop(state);
        self.end_doubtful(&leftovers.2.doubtful, &leftovers.2.of);
        Ok(())
    }

    fn commit_at_once(&self, staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        let all = ReplacedAll {
            of: of.clone(),
            items: staging.into_listed(),
        };
        let mut state = self.shared.lock();
        if state.end == End::Abandoned {
            return Err(Error::stopped("DeltaFIFO: the consumer is gone"));
        }
        let merged = state.relist_at_once(Delta::ReplacedAll(Box::new(all)));
        drop(state);
        drop(merged);
        Ok(())
    }

    /// Queues what is about no single object and says nothing about the first list (RQ-10).
    fn queue_for_all(&self, delta: Delta<K>) {
        let mut state = self.shared.lock();
        let merged = match state.end {
            End::Open | End::Closed => state.push(None, delta),
            End::Abandoned => Some(delta),
        };
        drop(state);
        self.shared.arrived.ring();
        drop(merged);
    }

    fn resync_known(&self, known: &Arc<dyn KnownObjects<K>>) {
        let fates = self.shared.lock().resync();
        for key in known.keys() {
            if fates.contains_key(&key) {
                continue;
            }
            match known.get(&key) {
                Ok(Some(object)) => {
                    let mut state = self.shared.lock();
                    if state.end == End::Abandoned {
                        return;
                    }
                    let merged = state.push(Some(Arc::new(key)), Delta::Sync(object));
                    drop(state);
                    drop(merged);
                }
                Ok(None) => {}
                Err(error) => log::debug!("{} {key} is left out of a resync: {error}", K::KIND),
            }
        }
        self.shared.arrived.ring();
    }
}

impl<K: Object> Sink<K> for DeltaFifoWriter<K> {
    type Staging = DeltaFifoStaging<K>;

    fn begin(&mut self) -> DeltaFifoStaging<K> {
        DeltaFifoStaging::new(self.shared.lock().fates())
    }

    fn stage(&mut self, staging: &mut DeltaFifoStaging<K>, event: ObjectEvent<K>) {
        if event.kind == EventKind::Deleted {
            staging.remove(&event.object.key());
            return;
        }
        match event.object {
            Listed::Object(object) => {
                let key = object.key();
                if let Some(held) = self.unchanged(staging, &key, &object) {
                    staging.put(key, Listed::Object(held));
                    return;
                }
                match self.transformed(&key, object) {
                    Ok(object) => staging.put(key, Listed::Object(object)),
                    Err(error) => staging.fail(error),
                }
            }
            Listed::Undecodable(why) => {
                staging.put(why.key.clone(), Listed::Undecodable(why));
            }
        }
    }

    fn commit(&mut self, mut staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        if let Some(error) = staging.take_failure() {
            return Err(error);
        }
        match &self.mode {
            QueueMode::Compressed { .. } | QueueMode::InOrder { .. } => {
                self.commit_items(staging, of)?;
            }
            QueueMode::InOrderAtomic { .. } => self.commit_at_once(staging, of)?,
        }
        self.shared.arrived.ring();
        self.shared.changed.ring();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        match (kind, object) {
            (EventKind::Added, Listed::Object(object)) => self.change(object, Delta::Added),
            (EventKind::Modified, Listed::Object(object)) => self.change(object, Delta::Updated),
            (EventKind::Deleted, Listed::Object(object)) => self.delete(object),
            (EventKind::Added | EventKind::Modified, Listed::Undecodable(why)) => {
                let key = why.key.clone();
                let why = Box::new(why);
                self.queue(key, Delta::Undecodable { why, of: None })
            }
            (EventKind::Deleted, Listed::Undecodable(why)) => self.delete_undecodable(why),
        }
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        if self.mode.bookmarks() {
            self.queue_for_all(Delta::Bookmark(version.clone()));
        }
    }

    fn resync(&mut self) -> Result<(), Error> {
        match (&self.mode, self.mode.known()) {
            (QueueMode::InOrderAtomic { .. }, _) => self.queue_for_all(Delta::SyncAll),
            (QueueMode::Compressed { .. } | QueueMode::InOrder { .. }, Some(known)) => {
                self.resync_known(known);
            }
            (QueueMode::Compressed { .. } | QueueMode::InOrder { .. }, None) => {}
        }
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        let mut status = status.clone();
        let mut state = self.shared.lock();
        let told = refusal(&state.status).is_some() != refusal(&status).is_some();
        std::mem::swap(&mut state.status, &mut status);
        drop(state);
        if told {
            self.shared.changed.ring();
        }
    }
}

impl<K: Object> Drop for DeltaFifoWriter<K> {
    fn drop(&mut self) {
        self.shared.lock().status.phase = Phase::Stopped;
        self.shared.close();
    }
}

impl<K: Object> fmt::Debug for DeltaFifoWriter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifoWriter")
            .field("kind", &K::KIND)
            .field("mode", &self.mode)
            .field("transforms", &self.transform.is_some())
            .finish_non_exhaustive()
    }
}
