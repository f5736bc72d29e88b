//! The state of one handler: its queue, its call, its first sync and its end. Pure, over instants.

use std::time::{Duration, Instant};

use crate::error::{Error, default_of};
use crate::informer::Notification;
use crate::informer::handlers::queue::HandlerQueue;
use crate::object::{Object, StoredObject};
use crate::sync::{Arc, ThreadId};

/// How many waiting notifications are worth a warning, if the handler is slow as well (SI-19).
const QUEUED_WARNING: usize = 1_024;

/// A call that takes longer is slow (SI-19).
const CALL_WARNING: Duration = Duration::from_millis(100);

/// The phases of a handler's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HandlerPhase {
    /// It receives notifications.
    #[default]
    Running,
    /// No further call begins; one may still run.
    Ending,
    /// No call runs or will run, and the handler is dropped.
    Ended,
}

/// The effects to perform after the lock is released.
#[must_use = "the caller wakes and drops after the lock is given back"]
pub(super) struct HandlerEffects<K: Object> {
    /// A thread waits for this change.
    pub(super) wake: bool,
    /// The handler is slow: how many notifications wait, and for how long the oldest one has.
    pub(super) warning: Option<(usize, Duration)>,
    pub(super) leftovers: Vec<Notification<K>>,
}

/// The state of one handler at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerReadings {
    /// How many notifications wait for the handler, not counting that of a running call.
    pub queued: usize,
    /// The age of the oldest notification from which the handler has not returned.
    pub lag: Option<Duration>,
    /// How many notifications were merged into another one, or dropped, because too many waited.
    pub coalesced: u64,
    /// How many notifications the handler was called with, including those whose call panicked.
    pub delivered: u64,
    /// How many notifications the handler lost to a panic.
    pub panics: u64,
    /// The text of the handler's last panic. It may contain parts of an object.
    pub last_panic: Option<String>,
    /// Whether the handler has returned from every `on_add` of the initial list, as
    /// [`Registration::has_synced`](crate::informer::Registration::has_synced).
    pub has_synced: bool,
    /// Whether the handler has ended: none of its calls runs or will run.
    pub has_ended: bool,
}

/// The call under way.
struct HandlerCall {
    since: Instant,
    begun: Instant,
    method: &'static str,
    is_initial: bool,
}

pub(super) struct HandlerState<K: Object> {
    queue: HandlerQueue<K>,
    call: Option<HandlerCall>,
    /// The informer has said that the initial list is complete.
    pub(super) initial_complete: bool,
    pub(super) synced: bool,
    warned: bool,
    pub(super) phase: HandlerPhase,
    /// The reason of its end, in the words of waits for the first sync.
    pub(super) why: Option<String>,
    /// The server's refusal, while it is an answer and the informer has not synced (R4).
    pub(super) denied: Option<Error>,
    delivered: u64,
    panics: u64,
    last_panic: Option<String>,
    /// The thread on which the handler is called, once there is one.
    pub(super) thread: Option<ThreadId>,
}

default_of!([K: Object] HandlerState<K>:
    queue, call, initial_complete, synced, warned, phase, why, denied, delivered, panics,
    last_panic, thread);

impl<K: Object> HandlerState<K> {
    pub(super) fn new(queue_max: Option<usize>) -> Self {
        Self {
            queue: HandlerQueue::new(queue_max),
            ..Self::default()
        }
    }

    /// Queues a notification. A handler that ends takes no more.
    pub(super) fn push(
        &mut self,
        notification: Notification<K>,
        is_resync: bool,
        now: Instant,
    ) -> HandlerEffects<K> {
        if self.phase != HandlerPhase::Running {
            return HandlerEffects::of(vec![notification]);
        }
        let was_empty = self.queue.len() == 0;
        let leftovers = self.queue.push(notification, is_resync, now);
        HandlerEffects {
            wake: was_empty | self.update_synced(),
            warning: self.warning(now),
            leftovers,
        }
    }

    /// Queues the objects that the store holds when the handler joins, as the initial list.
    pub(super) fn push_initial(
        &mut self,
        objects: &[Arc<StoredObject<K>>],
        now: Instant,
    ) -> HandlerEffects<K> {
        let mut all = HandlerEffects::of(Vec::new());
        for object in objects {
            let one = self.push(Notification::added(Arc::clone(object), true), false, now);
            all.wake |= one.wake;
            all.warning = all.warning.or(one.warning);
            all.leftovers.extend(one.leftovers);
        }
        all
    }

    /// Notes that the initial list is complete.
    pub(super) fn complete_initial(&mut self) -> HandlerEffects<K> {
        self.initial_complete = true;
        HandlerEffects {
            wake: self.update_synced(),
            ..HandlerEffects::of(Vec::new())
        }
    }

    /// Takes the next notification for the handler's thread, whose call begins.
    pub(super) fn next(&mut self, now: Instant) -> Option<Notification<K>> {
        let Some(entry) = self.queue.pop() else {
            // The handler has caught up, so the next backlog deserves a warning again.
            self.warned = false;
            return None;
        };
        self.call = Some(HandlerCall {
            since: entry.since,
            begun: now,
            method: entry.notification.method(),
            is_initial: entry.notification.is_initial(),
        });
        Some(entry.notification)
    }

    /// Notes that the call returned or panicked; either way the notification is done.
    pub(super) fn finish(&mut self, panic: Option<String>, now: Instant) -> HandlerEffects<K> {
        let warning = self.warning(now);
        self.call = None;
        self.delivered = self.delivered.saturating_add(1);
        if let Some(text) = panic {
            self.panics = self.panics.saturating_add(1);
            self.last_panic = Some(text);
        }
        HandlerEffects {
            wake: self.update_synced(),
            warning,
            leftovers: Vec::new(),
        }
    }

    /// Prevents further calls, and drops queued notifications.
    pub(super) fn end(&mut self, why: &str) -> HandlerEffects<K> {
        if self.phase != HandlerPhase::Running {
            return HandlerEffects::of(Vec::new());
        }
        self.phase = HandlerPhase::Ending;
        self.why = Some(why.to_owned());
        HandlerEffects {
            wake: true,
            ..HandlerEffects::of(self.queue.clear())
        }
    }

    /// Notes that the handler is dropped: no call runs or will run.
    pub(super) fn ended(&mut self) {
        self.call = None;
        self.phase = HandlerPhase::Ended;
    }

    /// Whether `id` is the handler's own thread.
    pub(super) fn is_own(&self, id: ThreadId) -> bool {
        self.thread == Some(id)
    }

    /// How many initial additions have not returned.
    pub(super) fn initial_left(&self) -> usize {
        let is_initial = self.call.as_ref().is_some_and(|call| call.is_initial);
        self.queue.initial().saturating_add(usize::from(is_initial))
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn readings(&self, now: Instant) -> HandlerReadings {
        HandlerReadings {
            queued: self.queued(),
            lag: self.lag(now),
            coalesced: self.queue.coalesced(),
            delivered: self.delivered,
            panics: self.panics,
            last_panic: self.last_panic.clone(),
            has_synced: self.synced,
            has_ended: self.phase == HandlerPhase::Ended,
        }
    }

    /// The age of the oldest notification from which the handler has not returned.
    fn lag(&self, now: Instant) -> Option<Duration> {
        let called = self.call.as_ref().map(|call| call.since);
        let since = called.or_else(|| self.queue.oldest())?;
        Some(now.saturating_duration_since(since))
    }

    /// The running call, and how long it has taken.
    pub(super) fn call(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let call = self.call.as_ref()?;
        Some((call.method, now.saturating_duration_since(call.begun)))
    }

    /// Notes whether the handler has synced, for good (WT-5). Returns whether that changed.
    fn update_synced(&mut self) -> bool {
        let before = self.synced;
        let ended = self.phase != HandlerPhase::Running;
        self.synced |= self.initial_complete && self.initial_left() == 0 && !ended;
        self.synced != before
    }

    /// The warning of SI-19, once until the queue has been empty.
    fn warning(&mut self, now: Instant) -> Option<(usize, Duration)> {
        let queued = self.queue.len();
        let (_, taken) = self.call(now)?;
        if self.warned || queued <= QUEUED_WARNING || taken <= CALL_WARNING {
            return None;
        }
        self.warned = true;
        Some((queued, self.lag(now)?))
    }
}

impl<K: Object> HandlerEffects<K> {
    fn of(leftovers: Vec<Notification<K>>) -> Self {
        Self {
            wake: false,
            warning: None,
            leftovers,
        }
    }
}
