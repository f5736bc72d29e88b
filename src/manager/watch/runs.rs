//! The runs of a manager's reflectors: their threads, their room under the limit, and the work that
//! they leave to the housekeeper.

use std::sync::Weak;
use std::time::Instant;

use super::reflector_limit::ReflectorLimit;
use crate::error::Error;
use crate::object::ResourceVersion;
use crate::reflector::{Reflector, ReflectorStatus};
use crate::sync::{Arc, Monitor};

/// A run's thread, for its owner.
pub(crate) trait RunHandle: Send {
    fn thread_name(&self) -> String;

    /// Whether the thread has ended.
    fn is_finished(&self) -> bool;

    /// Asks the thread to end; returns at once.
    fn stop(&self);

    /// Waits for its end. The log has its panic, if it panicked.
    fn join(self: Box<Self>);

    /// Whether the run, which is a successor, has missed nothing of the object since `version`.
    fn covers(&self, _version: &ResourceVersion) -> bool {
        false
    }

    /// The status of a run without a thread of its own.
    fn status(&self) -> Option<ReflectorStatus> {
        None
    }

    /// Whether it has no thread of its own: other objects have the same watch or poller.
    fn is_shared(&self) -> bool {
        false
    }

    /// Shortens the backoff of a watch or a poller that several objects share.
    fn expedite(&self) {}

    /// A reader waits for an answer that a poller has to bring.
    fn await_news(&self) {}
}

impl RunHandle for Reflector {
    fn thread_name(&self) -> String {
        self.thread_name().to_owned()
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn join(self: Box<Self>) {
        drop(Self::join(*self));
    }
}

/// A run, and its room under the limit, which is given back after its thread has ended.
pub(crate) struct Run {
    pub(crate) handle: Box<dyn RunHandle>,
    /// `None` for a run without a thread of its own.
    pub(crate) _room: Option<Permit>,
    /// Counts the watches by name in one namespace.
    pub(crate) _by_name: Option<Arc<()>>,
}

impl Run {
    /// Waits for the thread's end: milliseconds, since its stop was raised.
    pub(crate) fn join(self) {
        // The thread's own report of its panic is in the log; a run that crashed is started again.
        self.handle.join();
    }
}

/// What waits for the housekeeper.
#[derive(Default)]
pub(crate) struct PendingWork {
    /// Runs that were asked to end and are to be joined.
    pub(crate) ended: Vec<Run>,
    /// The name of the thread that the housekeeper joins now.
    pub(crate) joining: Option<String>,
    /// Runs that have room and were not joined. Some may be in no entry and not in `ended` either,
    /// on their way from one to the other on another thread.
    pub(crate) alive: usize,
    /// A server that gave one object's watch no answer gives one again.
    pub(crate) recovered: bool,
    /// When the watches of whole namespaces, and absences, are to be looked at.
    pub(crate) namespaces: Option<Instant>,
    /// The housekeeper's panic, until it has completed a sweep.
    pub(crate) failure: Option<Error>,
    /// The housekeeper has ended: no run has room any more.
    pub(crate) is_closed: bool,
}

impl PendingWork {
    /// The names of the threads that were asked to end and have not.
    pub(crate) fn late(&self) -> Vec<String> {
        let waiting = self.ended.iter().map(|run| &run.handle);
        let late = waiting.filter(|handle| !handle.is_finished());
        let late = late.map(|handle| handle.thread_name());
        self.joining.iter().cloned().chain(late).collect()
    }
}

/// The right to start one run. The manager's end waits until this is dropped, on any thread. Its
/// reference to the counter is weak: the counter's owner may keep an ended run with its permit.
#[derive(Debug)]
pub(crate) struct Permit(Weak<Monitor<PendingWork>>);

impl Permit {
    /// Room for one more run.
    ///
    /// # Errors
    ///
    /// `TooManyReflectors`, naming the limit; `Stopped` once the housekeeper has ended, which
    /// would join the run.
    pub(crate) fn reserve(
        limit: &ReflectorLimit,
        work: &Arc<Monitor<PendingWork>>,
    ) -> Result<Self, Error> {
        let mut pending = work.lock();
        if pending.is_closed {
            return Err(Error::stopped("the manager"));
        }
        limit.reserve(pending.alive)?;
        pending.alive = pending.alive.saturating_add(1);
        Ok(Self(Arc::downgrade(work)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        ReflectorLimit::release();
        if let Some(work) = self.0.upgrade() {
            let mut pending = work.lock();
            pending.alive = pending.alive.saturating_sub(1);
            drop(pending);
            work.notify_all();
        }
    }
}
