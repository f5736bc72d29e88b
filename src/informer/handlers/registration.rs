//! A program's handle to one handler: its readings, the wait for its first sync, its removal.

use std::sync::Weak;

use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::informer::handlers::listener::{Listener, still_run};
use crate::informer::handlers::processor::Processor;
use crate::informer::handlers::state::HandlerReadings;
use crate::informer::{EventHandler, HandlerOptions};
use crate::object::Object;
use crate::sync::Arc;

/// One handler that was added to an informer.
///
/// Cloning copies a pointer. [`remove`](Self::remove) and the end of the informer remove the
/// handler. Dropping this does not, so a program that never removes a handler need not keep it.
#[doc(alias = "ResourceEventHandlerRegistration")]
#[derive(Clone)]
pub struct Registration(Arc<dyn Registered>);

impl Registration {
    /// Returns the handler's name: from its options, or else its thread's, such as `hd-3`.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the name from its options, or `None`. Use this for metric labels, because thread
    /// names are never reused.
    pub fn given_name(&self) -> Option<&str> {
        self.0.given_name()
    }

    /// Returns the name in errors of waits: `SharedInformer ConfigMap + event handler audit`. For a
    /// handler without a name, it contains the handler's type and thread.
    pub fn sync_name(&self) -> &str {
        self.0.sync_name()
    }

    /// Whether the informer has synced and the handler has returned from every `on_add` of the
    /// initial list.
    ///
    /// Once true, it stays true. A call that panicked counts as returned; in client-go such a
    /// handler never syncs. For [`Forward`](crate::informer::Forward), a notification counts once
    /// it is in the channel.
    #[doc(alias = "HasSynced")]
    pub fn has_synced(&self) -> bool {
        self.0.readings().has_synced
    }

    /// Blocks until [`has_synced`](Self::has_synced) is true, at most until `deadline`.
    ///
    /// The wait also ends when the handler is removed, when its informer stops, and when the server
    /// refuses the resource or does not know it. Success wins over a deadline that has passed.
    /// During the wait, a first list that fails is retried fast.
    ///
    /// If one of the handler's own methods calls this during the initial list, it returns an error
    /// at once. Otherwise the handler would wait for itself.
    ///
    /// # Errors
    ///
    /// - [`Stopped`](crate::ErrorKind::Stopped) if the handler ended before, with the cause of the
    ///   informer's end if there is one.
    /// - `Forbidden` or `NotFound` for the server's refusal.
    /// - [`NotSynced`](crate::ErrorKind::NotSynced) at the deadline, or when the handler waits for
    ///   itself. It says how much of the initial list is left and which call is running. It also
    ///   has the informer's last failure, its attempts and the time of the first.
    ///
    /// The text names the handler by its [`sync_name`](Self::sync_name).
    #[doc(alias = "WaitForCacheSync")]
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(self.0.clock());
        self.0.wait_until_synced(deadline)
    }

    /// Returns the handler's queue, counters and state at one moment. Never blocks on the handler.
    pub fn readings(&self) -> HandlerReadings {
        self.0.readings()
    }

    /// Removes the handler: no further call begins, and the notifications in its queue are dropped.
    ///
    /// Blocks until none of its calls runs and its thread has ended, at most until `deadline`.
    /// Called from one of the handler's own methods, it returns at once, and that call is the last.
    /// It also waits for a handler that was removed before, or whose informer has stopped.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) with the handler's name if a call still runs at the
    /// deadline. That call is the last, and the thread ends when it returns.
    ///
    /// The same error comes at once if that call waits for the end of the calling thread, directly
    /// or through others. Two handlers that remove each other are such a case. The text names them.
    #[doc(alias = "RemoveEventHandler")]
    pub fn remove(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(self.0.clock());
        self.0.remove(deadline)
    }
}

debug_of!([] Registration, |it|
    name: it.name(), synced: it.readings().has_synced, queued: it.readings().queued,
    ended: it.readings().has_ended, ..);

/// The methods of a registration, for objects of any kind.
pub(super) trait Registered: Send + Sync {
    fn name(&self) -> &str;
    fn given_name(&self) -> Option<&str>;
    fn sync_name(&self) -> &str;
    fn readings(&self) -> HandlerReadings;
    fn clock(&self) -> &Clock;
    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error>;
    fn remove(&self, deadline: Deadline) -> Result<(), Error>;
}

struct RegisteredHandler<K: Object> {
    listener: Arc<Listener<K>>,
    /// Dropped with the informer.
    processor: Weak<Processor<K>>,
}

impl<K: Object> Registered for RegisteredHandler<K> {
    fn name(&self) -> &str {
        &self.listener.name
    }

    fn given_name(&self) -> Option<&str> {
        self.listener.given_name()
    }

    fn sync_name(&self) -> &str {
        &self.listener.sync_name
    }

    fn readings(&self) -> HandlerReadings {
        self.listener.readings()
    }

    fn clock(&self) -> &Clock {
        &self.listener.clock
    }

    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        self.listener.wait_until_synced(deadline)
    }

    fn remove(&self, deadline: Deadline) -> Result<(), Error> {
        self.listener.end("it was removed before it was synced");
        let processor = self.processor.upgrade();
        if let Some(processor) = &processor {
            processor.let_leave();
        }
        if self.listener.is_own_thread() {
            return Ok(());
        }
        let waited = self.listener.wait_until_ended(deadline);
        if let Some(processor) = &processor {
            let is_late = !matches!(waited, Ok(true));
            let late = is_late.then(|| Arc::clone(&self.listener));
            processor.name_late(late.as_slice());
        }
        let text = match waited {
            Ok(true) => return Ok(()),
            Ok(false) => still_run(&[self.listener.straggler()]),
            Err(circle) => {
                let name = &self.listener.name;
                format!("handler {name} still runs, and waits for this call: {circle}")
            }
        };
        Err(Error::new(ErrorKind::Timeout, text))
    }
}

impl<K: Object> Processor<K> {
    /// Adds a handler and starts its thread; never blocks.
    ///
    /// The handler joins at once, or at the end of the current turn.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop (SI-12); `Resources` when the system refuses a thread.
    pub(crate) fn register<H: EventHandler<K>>(
        self: &Arc<Self>,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        self.add(handler, options).inspect(|_added| self.let_join())
    }

    /// Starts a handler's thread. The handler does not join yet.
    pub(in crate::informer) fn add<H: EventHandler<K>>(
        self: &Arc<Self>,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Error> {
        Ok(self.registration(self.spawn(handler, options)?))
    }

    pub(super) fn registration(self: &Arc<Self>, listener: Arc<Listener<K>>) -> Registration {
        let processor = Arc::downgrade(self);
        Registration(Arc::new(RegisteredHandler {
            listener,
            processor,
        }))
    }

    /// The handlers that have not been removed, oldest first.
    pub(crate) fn registrations(self: &Arc<Self>) -> Vec<Registration> {
        let running = self.running().into_iter();
        let registrations = running.map(|listener| self.registration(listener));
        registrations.collect()
    }
}
