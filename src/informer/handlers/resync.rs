//! Decides which handler is due for a resync, and which updates belong to one. Pure, over instants.

use std::time::{Duration, Instant};

use crate::informer::Notification;
use crate::object::{Object, StoredObject};
use crate::sync::Arc;

/// The shortest period. Shorter ones are raised to it (SI-22).
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// How often the informer checks whether a handler is due (SI-21).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckPeriod {
    /// `None` means never: no handler gets resyncs.
    period: Option<Duration>,
    started: bool,
}

impl CheckPeriod {
    /// Begins with the informer's own period; zero means none.
    pub(super) fn new(default: Duration) -> Self {
        Self {
            period: some_period(default),
            started: false,
        }
    }

    pub(super) fn get(self) -> Option<Duration> {
        self.period
    }

    /// Fixes the check period.
    pub(super) fn start(&mut self) {
        self.started = true;
    }

    /// Takes in the period of a new handler.
    pub(super) fn admit(&mut self, requested: Duration) {
        if !self.started && self.period.is_some() {
            let requested = some_period(requested).map(|period| period.max(PERIOD_MIN));
            self.period = self.period.into_iter().chain(requested).min();
        }
    }
}

fn some_period(period: Duration) -> Option<Duration> {
    (!period.is_zero()).then_some(period)
}

/// When one handler is resynced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resync {
    requested: Option<Duration>,
    next: Option<Instant>,
}

impl Resync {
    /// Creates the resync of a handler that asks for `requested`; zero asks for none.
    pub(super) fn new(requested: Duration, check: CheckPeriod, now: Instant) -> Self {
        let requested = some_period(requested).map(|period| period.max(PERIOD_MIN));
        let mut resync = Self {
            requested,
            next: None,
        };
        resync.arm(check, now);
        resync
    }

    /// The period that the handler gets: no handler is resynced more often than the informer
    /// checks.
    pub(super) fn period(&self, check: CheckPeriod) -> Option<Duration> {
        Some(self.requested?.max(check.get()?))
    }

    /// Whether the handler is due at `now`. Rearms it if so (SI-23).
    pub(super) fn evaluate(&mut self, check: CheckPeriod, now: Instant) -> bool {
        let is_due = self.next.is_some_and(|next| now >= next);
        if is_due {
            self.arm(check, now);
        }
        is_due
    }

    fn arm(&mut self, check: CheckPeriod, now: Instant) {
        let period = self.period(check);
        self.next = period.and_then(|period| now.checked_add(period));
    }
}

/// Whether a notification repeats a known state: an update whose two states have the same version
/// (SI-24).
///
/// Objects without a version must be the same in memory, so that no change is withheld.
pub(super) fn is_resync<K: Object>(notification: &Notification<K>) -> bool {
    match notification {
        Notification::Updated { old, new } => {
            Arc::ptr_eq(old, new) || version(new).is_some() && version(old) == version(new)
        }
        Notification::Added { .. } | Notification::Deleted(_) => false,
    }
}

fn version<K: Object>(object: &StoredObject<K>) -> Option<&str> {
    Some(object.resource_version_text()).filter(|version| !version.is_empty())
}
