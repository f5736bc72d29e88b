//! A shared informer of any object type, for a set and for health endpoints.

use std::any::Any;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind, debug_of};
use crate::informer::{Registration, SharedInformer};
use crate::object::Object;
use crate::reflector::{ReflectorStatus, WaiterGuard};
use crate::sync::Arc;

/// A [`SharedInformer`] of a set, with objects of any type.
///
/// Cloning copies a pointer. [`downcast`](Self::downcast) returns the informer itself.
#[derive(Clone)]
pub struct AnyInformer(pub(super) Arc<dyn SetMember>);

impl AnyInformer {
    /// The name of the informer in logs, errors and results of waits: `pods`, `deployments.apps`.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the first list is in the store.
    pub fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// The state of the reflector, with the reason why it has not synced. Never blocks on the
    /// network.
    pub fn status(&self) -> ReflectorStatus {
        self.0.status()
    }

    /// Whether the server keeps confirming the content, for a health check
    /// ([`SharedInformer::health`]). Never blocks.
    ///
    /// # Errors
    ///
    /// As [`SharedInformer::health`]. If the informer ended without a stop, the cause, such as a
    /// panic of the source.
    pub fn health(&self) -> Result<(), Error> {
        self.0.health()
    }

    /// How many objects are in the store, undecodable ones included.
    pub fn objects(&self) -> usize {
        self.0.objects()
    }

    /// The handlers that have not been removed, oldest first.
    pub fn registrations(&self) -> Vec<Registration> {
        self.0.registrations()
    }

    /// Whether the informer has stopped. A stopped informer never runs again.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Returns the informer itself, if its objects are of type `K`.
    pub fn downcast<K: Object>(&self) -> Option<Arc<SharedInformer<K>>> {
        self.of_type()
    }

    pub(super) fn of_type<M: SetMember>(&self) -> Option<Arc<M>> {
        let member: Arc<dyn Any + Send + Sync> = Arc::<dyn SetMember>::clone(&self.0);
        member.downcast().ok()
    }
}

debug_of!([] AnyInformer, |it|
    name: it.name(), synced: it.has_synced(), stopped: it.is_stopped(), ..);

/// The methods of an informer that a set needs, for objects of any type.
pub(super) trait SetMember: Any + Send + Sync {
    fn name(&self) -> &str;
    fn has_synced(&self) -> bool;
    fn status(&self) -> ReflectorStatus;
    fn health(&self) -> Result<(), Error>;
    fn objects(&self) -> usize;
    fn registrations(&self) -> Vec<Registration>;
    fn is_stopped(&self) -> bool;

    /// Starts the informer, unless it was started or stopped before.
    fn start(&self) -> Result<(), Error>;
    /// Declares that a caller waits for its first list (B3).
    fn waiters(&self) -> WaiterGuard;
    /// Waits for its first list. Does not wait if it was not started.
    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error>;
    fn stop(&self);
    fn shutdown(&self, deadline: Deadline) -> Result<(), Error>;
    /// Stops it and joins its threads, except those that a shutdown named as late.
    fn close(&self);
}

impl<K: Object> SetMember for SharedInformer<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    fn status(&self) -> ReflectorStatus {
        self.status()
    }

    fn health(&self) -> Result<(), Error> {
        match self.store().cause_of_end() {
            Some(cause) => Err(cause.context(self.name())),
            None => self.health(),
        }
    }

    fn objects(&self) -> usize {
        self.store().len()
    }

    fn registrations(&self) -> Vec<Registration> {
        self.registrations()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped()
    }

    fn start(&self) -> Result<(), Error> {
        if !self.is_ready_to_start() {
            return Ok(());
        }
        let has_failed = || self.store().cause_of_end().is_some();
        match self.start() {
            // Another thread was faster.
            Err(error) if error.kind() == ErrorKind::Config && !has_failed() => Ok(()),
            Err(error) if error.kind() == ErrorKind::Stopped => Ok(()),
            started => started,
        }
    }

    fn waiters(&self) -> WaiterGuard {
        self.store().waiters().wait()
    }

    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        if self.is_ready_to_start() {
            return Err(self.not_started());
        }
        self.wait_until_synced(deadline)
    }

    fn stop(&self) {
        self.stop();
    }

    fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.shutdown(deadline)
    }

    fn close(&self) {
        self.close();
    }
}
