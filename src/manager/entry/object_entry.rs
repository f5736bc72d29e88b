//! One referenced object, and the interface of its state to the strategies.

use std::time::{Duration, Instant};

use super::content::EntryContent;
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::failures::Failures;
use crate::manager::cached::{Cached, ReadyObject};
use crate::manager::report::{ObjectState, ObjectSummary};
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::Waiters;
use crate::sync::{Arc, Monitor, Rank};

/// One referenced object. `S` is the state that its strategy keeps of it.
pub(crate) struct ObjectEntry<S> {
    pub(crate) key: ObjectKey,
    /// The readers that wait for the first sync. Each run of the reflector looks at them (B3).
    pub(crate) waiters: Waiters,
    pub(crate) state: Arc<Monitor<S>>,
}

impl<S> ObjectEntry<S> {
    pub(crate) fn new(key: &ObjectKey, state: S) -> Arc<Self> {
        Arc::new(Self {
            key: key.clone(),
            waiters: Waiters::new(),
            state: Arc::new(Monitor::ranked(Rank::ENTRY, state)),
        })
    }
}

/// The context of an answer: the key of the object, the time, and the time to live in force then
/// (OS-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) clock: &'a Clock,
    pub(crate) now: Instant,
    /// Read before `now`.
    pub(crate) coarse: Coarse,
    pub(crate) ttl: Duration,
}

impl AnswerContext<'_> {
    pub(crate) fn not_registered(&self) -> Error {
        Error::not_registered(self.key.namespace(), self.key.name())
    }
}

/// The watch of one object, in counts and reports. The default is that of a strategy without
/// watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryWatch {
    /// A watch is open or being opened.
    pub(crate) is_open: bool,
    /// The object is polled, since there is no room for its watch.
    pub(crate) is_polled: bool,
    /// The watch should have received something from the server by now (B14).
    pub(crate) is_overdue: bool,
    /// How many watches the object has for itself.
    pub(crate) by_name: usize,
}

/// The state that a strategy keeps of one object.
pub(crate) trait EntryState<K: Object>: Send + 'static {
    fn content(&mut self) -> &mut EntryContent<K>;

    /// The answer that plain readers can have at once, with its mark in the read cache.
    fn ready(&self, clock: &Clock) -> Option<(ReadyObject<K>, Coarse)>;

    /// An answer that the strategy keeps beside the content. A change may drop it.
    fn kept_answer(&self) -> Option<&Cached<K>> {
        None
    }

    /// The object that a snapshot keeps although readers do not get it, and when the server last
    /// confirmed it. A change may drop it.
    fn set_aside(&self) -> Option<&(Arc<StoredObject<K>>, Instant)> {
        None
    }

    /// Whether no owner references the object any more, so that another entry may have its key.
    fn is_detached(&self) -> bool;

    /// The answer from memory to a reader of a state not older than `version` (R11); `None` while
    /// memory has not reached it.
    fn reached(
        &self,
        version: &ResourceVersion,
        at: &AnswerContext<'_>,
    ) -> Option<Result<Cached<K>, Error>>;

    /// The state of the object, and why.
    fn standing(&self, at: &AnswerContext<'_>) -> (ObjectState, String);

    /// When the server last confirmed the known state.
    fn contact(&self) -> Option<Instant>;

    /// The failures since something last went well; of an overdue watch those since one served.
    fn failures(&self, now: Instant) -> &Failures;

    /// The report of the object, without its values.
    fn summary(&self) -> Option<ObjectSummary>;

    fn watch(&self, _now: Instant) -> EntryWatch {
        EntryWatch::default()
    }

    /// Notes the mark of an answer that was removed from the read cache.
    fn note_read(&mut self, _at: Coarse) {}
}
