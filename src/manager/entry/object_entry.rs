//! One referenced object, and what the strategies answer for it.

use std::time::{Duration, Instant};

use super::content::EntryContent;
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::failures::Failures;
use crate::manager::cached::{Cached, ReadyObject};
use crate::manager::report::{ObjectState, ObjectSummary};
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::reflector::Waiters;
use crate::sync::{Arc, Monitor, Rank};

/// One referenced object. `S` is what its strategy keeps of it.
pub(crate) struct ObjectEntry<S> {
    pub(crate) key: ObjectKey,
    /// The readers that wait for the first sync; each run of the reflector looks at it (B3).
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

/// What an entry needs for an answer: the key of its object, the time, and how long what was
/// fetched lives at that time (OS-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) clock: &'a Clock,
    pub(crate) now: Instant,
    /// Read before `now`.
    pub(crate) coarse: Coarse,
    pub(crate) ttl: Duration,
}

/// What a strategy keeps of one object.
pub(crate) trait EntryState<K: Object>: Send + 'static {
    fn content(&mut self) -> &mut EntryContent<K>;

    /// What plain readers can have at once, with its mark in the read cache.
    fn ready(&self, clock: &Clock) -> Option<(ReadyObject<K>, Coarse)>;

    /// An answer beside the content, which a change may drop.
    fn kept_answer(&self) -> Option<&Cached<K>> {
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

    /// When the server last confirmed what is known.
    fn contact(&self) -> Option<Instant>;

    /// The failures since something last went well.
    fn failures(&self) -> &Failures;

    /// The report of the object, without its values.
    fn summary(&self) -> Option<ObjectSummary>;

    /// Whether a watch is open or being opened.
    fn is_watched(&self) -> bool {
        false
    }

    /// Whether the object is polled, since there is no room for its watch.
    fn is_polled(&self) -> bool {
        false
    }

    /// How many watches the object has for itself.
    fn own_watches(&self) -> usize {
        0
    }

    /// Whether the watch should have received something from the server by `now` (B14).
    fn is_overdue(&self, _now: Instant) -> bool {
        false
    }

    /// Takes note of the mark on an answer that was taken out of the read cache.
    fn note_read(&mut self, _at: Coarse) {}
}
