//! A shared informer whatever the type of its objects: what a set keeps, and what health endpoints read.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::informer::{Registration, SharedInformer};
use crate::object::{Object, Scope};
use crate::reflector::{DemandGuard, ReflectorStatus};
use crate::sync::Arc;

/// A [`SharedInformer`] of a set, whatever the type of its objects: its name, its status, its readings.
///
/// Cloning copies a pointer. [`downcast`](Self::downcast) gives the informer itself back.
#[derive(Clone)]
pub struct AnyInformer(Arc<dyn Member>);

impl AnyInformer {
    pub(super) fn new<K: Object>(informer: Arc<SharedInformer<K>>, scope: Scope) -> Self {
        Self(Arc::new(Typed { informer, scope }))
    }

    /// A member of a model's own making.
    #[cfg(all(test, shuttle))]
    pub(super) fn made(member: impl Member + 'static) -> Self {
        Self(Arc::new(member))
    }

    /// What the informer is called in logs, errors and results of waits: `pods`, `deployments.apps`.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The kind of its objects, such as `Pod`.
    pub fn kind(&self) -> &'static str {
        self.0.resource().kind
    }

    /// Group and version of its objects, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> &'static str {
        self.0.resource().api_version
    }

    /// The plural of its kind in paths and rules, such as `pods`.
    pub fn resource(&self) -> &'static str {
        self.0.resource().plural
    }

    /// Which objects it keeps.
    pub fn scope(&self) -> &Scope {
        self.0.scope()
    }

    /// Whether the first list is in the store (SI-6).
    pub fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// What its reflector does now and how it went, with the reason why it has not synced (B14). Never blocks on the network.
    pub fn status(&self) -> ReflectorStatus {
        self.0.status()
    }

    /// How long ago the server last confirmed the content; `None` before the first contact (B14).
    pub fn age(&self) -> Option<Duration> {
        self.0.age()
    }

    /// Whether its content is synced, still kept up, and was confirmed by the server within `limit` (B14).
    ///
    /// Once it has ended, by a stop or unasked, it is not.
    pub fn is_fresh_within(&self, limit: Duration) -> bool {
        let is_recent = self.age().is_some_and(|age| age <= limit);
        is_recent && self.has_synced() && !self.0.has_ended()
    }

    /// Whether the server keeps confirming its content, for a health check ([`SharedInformer::check_health`]). Never blocks (B14).
    ///
    /// # Errors
    ///
    /// `Timeout`: its name and how long ago the server was heard, with the last failure as its source. What ended it, if it
    /// ended although nobody asked it to, such as a panic of its source.
    pub fn check_health(&self) -> Result<(), Error> {
        self.0.check_health()
    }

    /// How many objects are in the store, those that do not decode included.
    pub fn objects(&self) -> usize {
        self.0.objects()
    }

    /// The handlers that have not been removed, oldest first: to read their queues.
    pub fn registrations(&self) -> Vec<Registration> {
        self.0.registrations()
    }

    /// Whether it was stopped; it stays so for good (SI-4).
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// The informer itself, if its objects are of this type.
    pub fn downcast<K: Object>(&self) -> Option<Arc<SharedInformer<K>>> {
        self.0.informer().downcast().ok()
    }

    pub(super) fn member(&self) -> &dyn Member {
        &*self.0
    }
}

impl fmt::Debug for AnyInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyInformer")
            .field("name", &self.name())
            .field("synced", &self.has_synced())
            .field("stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}

/// What is known of a type of objects.
pub(super) struct ResourceWords {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) plural: &'static str,
}

/// What a set does with an informer and reads from it, whatever the type of its objects.
pub(super) trait Member: Send + Sync {
    fn name(&self) -> &str;
    fn resource(&self) -> ResourceWords;
    fn scope(&self) -> &Scope;
    fn informer(&self) -> Arc<dyn Any + Send + Sync>;

    fn has_synced(&self) -> bool;
    fn status(&self) -> ReflectorStatus;
    fn age(&self) -> Option<Duration>;
    fn check_health(&self) -> Result<(), Error>;
    fn objects(&self) -> usize;
    fn registrations(&self) -> Vec<Registration>;
    fn is_stopped(&self) -> bool;
    /// It was stopped because somebody asked it to end.
    fn was_stopped(&self) -> bool;
    /// Nothing will change its content any more.
    fn has_ended(&self) -> bool;

    /// Starts it; an informer that was started or stopped before stays as it is.
    fn start(&self) -> Result<(), Error>;
    /// Declares that somebody waits for its first list (B3).
    fn demand(&self) -> DemandGuard;
    /// Waits for its first list; one that was not started has nothing to wait for.
    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error>;
    /// Asks it to end, and returns at once.
    fn stop(&self);
    fn shutdown(&self, deadline: Deadline) -> Result<(), Error>;
    /// Stops it and joins its threads, those excepted whose handlers a shutdown has named as late.
    fn end(&self);
}

struct Typed<K: Object> {
    informer: Arc<SharedInformer<K>>,
    scope: Scope,
}

impl<K: Object> Member for Typed<K> {
    fn name(&self) -> &str {
        self.informer.name()
    }

    fn resource(&self) -> ResourceWords {
        ResourceWords {
            kind: K::KIND,
            api_version: K::API_VERSION,
            plural: K::URL_PATH_SEGMENT,
        }
    }

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn informer(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::<SharedInformer<K>>::clone(&self.informer)
    }

    fn has_synced(&self) -> bool {
        self.informer.has_synced()
    }

    fn status(&self) -> ReflectorStatus {
        self.informer.status()
    }

    fn age(&self) -> Option<Duration> {
        self.informer.age()
    }

    fn check_health(&self) -> Result<(), Error> {
        if let Some(cause) = self.informer.store().cause_of_end() {
            return Err(cause.context(self.name()));
        }
        self.informer.check_health()
    }

    fn was_stopped(&self) -> bool {
        self.informer.is_stopped() && self.informer.store().cause_of_end().is_none()
    }

    fn objects(&self) -> usize {
        self.informer.store().len()
    }

    fn registrations(&self) -> Vec<Registration> {
        self.informer.registrations()
    }

    fn is_stopped(&self) -> bool {
        self.informer.is_stopped()
    }

    fn has_ended(&self) -> bool {
        self.informer.is_stopped() || self.informer.store().has_ended()
    }

    fn start(&self) -> Result<(), Error> {
        match self.informer.start() {
            Err(error) if matches!(error.kind(), ErrorKind::Config | ErrorKind::Stopped) => Ok(()),
            started => started,
        }
    }

    fn demand(&self) -> DemandGuard {
        self.informer.store().demand().wait()
    }

    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        if self.informer.is_ready_to_start() {
            let text = format!("informer {} was not started", self.name());
            return Err(Error::new(ErrorKind::Config, text));
        }
        self.informer.wait_until_synced(deadline)
    }

    fn stop(&self) {
        self.informer.stop();
    }

    fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.informer.shutdown(deadline)
    }

    fn end(&self) {
        self.informer.close();
    }
}
