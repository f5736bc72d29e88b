//! Notifies subscribers of changed objects: never blocks the manager, never grows without bound.

use std::collections::BTreeSet;
use std::sync::Weak;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind};
use crate::object::ObjectKey;
use crate::sync::{Arc, Mutex, Rank};

/// The most keys that a subscriber may leave uncollected; beyond it gets [`Changed::Anything`].
const KEYS_MAX: usize = 10_000;

/// The objects that changed since the last [`Changes::take`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "either the keys are known or they are not"
)]
pub enum Changed {
    /// These objects, each once; empty if none has changed. An object that was deleted and made
    /// again has changed, also where only its uid tells so.
    Keys(BTreeSet<ObjectKey>),
    /// More objects than the manager keeps track of: look at all of them.
    Anything,
}

impl Changed {
    fn nothing() -> Self {
        Self::Keys(BTreeSet::new())
    }

    fn add(&mut self, key: &ObjectKey) {
        let Self::Keys(keys) = self else { return };
        if keys.len() < KEYS_MAX {
            keys.insert(key.clone());
        } else if !keys.contains(key) {
            *self = Self::Anything;
        }
    }
}

/// A subscription to the changes of one manager. Dropping it ends the subscription.
///
/// Several changes of one object between two calls of [`take`](Self::take) count as one. The
/// manager never waits for a subscriber.
#[derive(Debug)]
pub struct Changes {
    signal: Receiver<()>,
    pending: Arc<Mutex<Changed>>,
}

impl Changes {
    /// Returns a channel that has a message when there are changes to [`take`](Self::take); for
    /// `recv` and `select!`. The channel closes when the manager is dropped.
    pub fn signal(&self) -> &Receiver<()> {
        &self.signal
    }

    /// Waits for changes, and returns the objects that changed since the last call.
    ///
    /// Blocks until an object changes, until `deadline`, or until the manager is dropped.
    ///
    /// # Errors
    ///
    /// `Timeout`: nothing changed until `deadline`. `Stopped`: the manager was dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubecache::manager::{Changed, ConfigMapManager, ManagerOptions, Owner};
    /// use kubecache::object::ObjectKey;
    /// use kubecache::testing::{FakeSource, objects};
    ///
    /// let server = FakeSource::<ConfigMap>::new();
    /// let maps = ConfigMapManager::new(server.clone(), ManagerOptions::default())?;
    /// let changes = maps.subscribe();
    /// let key = ObjectKey::new("shop", "settings");
    /// maps.add_reference(&Owner::new("Program", key.clone()), &key);
    /// server.set(objects::config_map("shop", "settings", "", &[("a", "1")]));
    /// let changed = changes.recv_by(Duration::from_secs(60))?;
    /// assert_eq!(changed, Changed::Keys([key].into()));
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn recv_by(&self, deadline: impl IntoDeadline) -> Result<Changed, Error> {
        let deadline = deadline.into_deadline(&Clock::system());
        loop {
            let told = match deadline.instant() {
                Some(end) => self.signal.recv_deadline(end),
                None => self.signal.recv().map_err(RecvTimeoutError::from),
            };
            match told {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let text = "waiting for a changed object: the deadline passed";
                    return Err(Error::new(ErrorKind::Timeout, text));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::stopped("waiting for a changed object"));
                }
            }
            let changed = self.take();
            // The message may be of changes that were taken before it came.
            if changed != Changed::nothing() {
                return Ok(changed);
            }
        }
    }

    /// Returns the objects that changed since the last call. Never blocks.
    pub fn take(&self) -> Changed {
        std::mem::replace(&mut *self.pending.lock(), Changed::nothing())
    }
}

/// The manager's side of its subscriptions.
#[derive(Debug)]
pub(crate) struct Notifier(Mutex<Vec<Subscriber>>);

impl Default for Notifier {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::SUBSCRIPTIONS, Vec::new()))
    }
}

/// The other side of [`Changes`].
type Subscriber = (Sender<()>, Weak<Mutex<Changed>>);

impl Notifier {
    pub(crate) fn subscribe(&self) -> Changes {
        let (send, signal) = bounded(1);
        let pending = Arc::new(Mutex::ranked(Rank::SUBSCRIBER, Changed::nothing()));
        let mut subscribers = self.0.lock();
        // A program may subscribe and drop for ever while nothing changes.
        subscribers.retain(|(_, pending)| pending.strong_count() > 0);
        subscribers.push((send, Arc::downgrade(&pending)));
        drop(subscribers);
        Changes { signal, pending }
    }

    /// Notifies every subscriber that the object changed. Called under no other lock; takes each
    /// subscriber's under its own.
    pub(crate) fn notify(&self, key: &ObjectKey) {
        self.0.lock().retain(|(signal, pending)| {
            let Some(pending) = pending.upgrade() else {
                return false;
            };
            pending.lock().add(key);
            // A full channel holds the message this one would have been.
            let _full = signal.try_send(()).is_err();
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn keys(names: &[&str]) -> Changed {
        Changed::Keys(
            names
                .iter()
                .map(|name| ObjectKey::new("ns", *name))
                .collect(),
        )
    }

    #[test]
    fn changes_of_one_object_are_told_as_one() {
        let notifier = Notifier::default();
        let changes = notifier.subscribe();
        assert!(changes.signal().try_recv().is_err());
        for name in ["a", "b", "a"] {
            notifier.notify(&ObjectKey::new("ns", name));
        }
        changes.signal().try_recv().unwrap();
        assert!(changes.signal().try_recv().is_err());
        assert_eq!(changes.take(), keys(&["a", "b"]));
        assert_eq!(changes.take(), keys(&[]));
    }

    #[test]
    fn a_wait_for_changes_ends_with_them_at_the_deadline_or_with_the_manager() {
        let notifier = Notifier::default();
        let changes = notifier.subscribe();
        notifier.notify(&ObjectKey::new("ns", "a"));
        assert_eq!(changes.take(), keys(&["a"]));
        // The message that is left is no change.
        let error = changes.recv_by(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        notifier.notify(&ObjectKey::new("ns", "b"));
        assert_eq!(changes.recv_by(Duration::ZERO).unwrap(), keys(&["b"]));
        notifier.notify(&ObjectKey::new("ns", "c"));
        drop(notifier);
        assert_eq!(changes.recv_by(Duration::MAX).unwrap(), keys(&["c"]));
        assert!(changes.recv_by(Duration::MAX).unwrap_err().is_stopped());
    }

    #[test]
    fn a_subscriber_that_never_looks_costs_a_bounded_amount() {
        let notifier = Notifier::default();
        let changes = notifier.subscribe();
        for number in 0..=KEYS_MAX {
            notifier.notify(&ObjectKey::new("ns", number.to_string()));
        }
        assert_eq!(changes.take(), Changed::Anything);
        notifier.notify(&ObjectKey::new("ns", "a"));
        assert_eq!(changes.take(), keys(&["a"]));
    }

    #[test]
    fn a_dropped_subscription_is_forgotten_and_a_dropped_manager_closes_its_own() {
        let notifier = Notifier::default();
        drop(notifier.subscribe());
        drop(notifier.subscribe());
        assert_eq!(notifier.0.lock().len(), 1, "also when nothing changes");
        let changes = notifier.subscribe();
        notifier.notify(&ObjectKey::new("ns", "a"));
        assert_eq!(notifier.0.lock().len(), 1);
        drop(notifier);
        changes.signal().recv().unwrap();
        assert!(changes.signal().recv().is_err());
    }
}
