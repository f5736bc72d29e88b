//! A program's handle of one handler that it added: readings, the wait for its first sync, its removal.

use std::fmt;

use crate::clock::Deadline;
use crate::error::Error;
use crate::informer::handlers::listener::Listener;
use crate::informer::handlers::state::HandlerReadings;
use crate::object::Object;
use crate::sync::Arc;

/// One handler that was added to an informer.
///
/// Cloning copies a pointer. Dropping it does not remove the handler, as in client-go: a program that never removes a handler
/// need not keep this. [`remove`](Self::remove) does, and so does the end of the informer.
#[doc(alias = "ResourceEventHandlerRegistration")]
#[derive(Clone)]
pub struct Registration(Arc<dyn Registered>);

impl Registration {
    pub(super) fn new<K: Object>(listener: Arc<Listener<K>>) -> Self {
        Self(listener)
    }

    /// The handler's name: the one of its options, else the one of its thread, such as `hd-3`.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The name of its options; `None` if it was given none. For labels of metrics: a thread's name
    /// is never used again.
    pub fn given_name(&self) -> Option<&str> {
        self.0.given_name()
    }

    /// What errors of waits call it: `SharedInformer ConfigMap + event handler audit`; without a name of its own, the handler's
    /// type and its thread stand there (WT-4).
    pub fn sync_name(&self) -> &str {
        self.0.sync_name()
    }

    /// Whether the informer has synced and the handler has returned from every `on_add` of the initial list (SI-16).
    ///
    /// Once true it stays so. A call that panicked counts as returned: in client-go such a handler never becomes synced.
    /// What the handler passes on to somebody else, such as [`Forward`](crate::informer::Forward) into its channel, is not
    /// waited for.
    #[doc(alias = "HasSynced")]
    pub fn has_synced(&self) -> bool {
        self.0.readings().has_synced
    }

    /// Waits until [`has_synced`](Self::has_synced) is true: by a signal, not by polling (WT-2).
    ///
    /// Blocks until then, until the handler is removed or its informer stops, until the server's refusal, or its word that
    /// it knows no such resource, has become an answer (R4), or until `deadline`. A handler that has synced is synced also when the deadline has passed. While somebody waits,
    /// a first list that fails is retried fast (B3). From one of the handler's own methods, while some of the initial list is
    /// left, it fails at once: what it would wait for cannot happen.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if the handler ended before, with what ended the informer if that did;
    /// `Forbidden`, the server's refusal, or `NotFound`, that it knows no such resource; [`NotSynced`](crate::ErrorKind::NotSynced) at the deadline, with how much of the
    /// initial list is left, what the handler is at, and how the informer fares: its last failure, the attempts and since when
    /// (B2, R28); also when the handler waits for itself. The handler is named as [`sync_name`](Self::sync_name) says.
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        self.0.wait_until_synced(deadline)
    }

    /// The handler's queue, counters and state, all at one moment. Never blocks on the handler.
    pub fn readings(&self) -> HandlerReadings {
        self.0.readings()
    }

    /// Removes the handler: no further call begins, and what waits for it is dropped.
    ///
    /// Blocks until no call of it runs or will run, and its thread has ended (SI-14, SI-15), at most until `deadline`.
    /// From one of the handler's own methods it returns at once: that call is the last. A handler that was removed before, or
    /// whose informer has stopped, is waited for in the same way.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) if a call still runs at the deadline, with the handler's name; it is the last one
    /// nevertheless, and its thread ends when it returns. The same error comes at once where that
    /// call waits, over others
    /// or not, for the end of the thread that calls this, such as of two handlers that remove each
    /// other: it names them.
    #[doc(alias = "RemoveEventHandler")]
    pub fn remove(&self, deadline: Deadline) -> Result<(), Error> {
        self.0.remove(deadline)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readings = self.0.readings();
        f.debug_struct("Registration")
            .field("name", &self.name())
            .field("synced", &readings.has_synced)
            .field("queued", &readings.queued)
            .field("ended", &readings.has_ended)
            .finish_non_exhaustive()
    }
}

/// What a registration can do, whatever the kind of its objects.
pub(super) trait Registered: Send + Sync {
    fn name(&self) -> &str;
    fn given_name(&self) -> Option<&str>;
    fn sync_name(&self) -> &str;
    fn readings(&self) -> HandlerReadings;
    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error>;
    fn remove(&self, deadline: Deadline) -> Result<(), Error>;
}
