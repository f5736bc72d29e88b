//! A run, which brings one object: its thread, its room under the limit, and the work that its end
//! leaves to the keeper.

use std::sync::Weak;
use std::time::Instant;

use super::reflector_limit::ReflectorLimit;
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::object::ResourceVersion;
use crate::reflector::{Reflector, ReflectorStatus};
use crate::sync::{Arc, Monitor};
use crate::worker::Task;

/// The thread of a run, for its owner: a [`Reflector`], or a stand-in of a test.
pub(crate) trait RunHandle: Send {
    fn thread_name(&self) -> String;

    /// Whether the thread has ended.
    fn is_finished(&self) -> bool;

    /// Asks the thread to end; returns at once.
    fn stop(&self);

    /// Waits for its end until `deadline`. Returns whether a join would not wait.
    fn ends_by(&self, _deadline: Deadline) -> bool {
        true
    }

    /// Waits for its end. The log has its panic, if it panicked.
    fn join(self: Box<Self>);
}

/// An object's part in a watch or a poller that several objects share. It has no thread.
pub(crate) trait SharedRun: Send {
    /// Removes the object from the watch or the poller; returns at once.
    fn stop(&self);

    /// Whether the run, which is a successor, has missed nothing of the object since `version`, or
    /// since the consistent read that began at that time.
    fn covers(&self, _version: &ResourceVersion, _read: Option<Instant>) -> bool {
        false
    }

    fn status(&self) -> Option<ReflectorStatus>;

    /// Shortens the backoff of the watch or the poller.
    fn expedite(&self);

    /// Asks a poller for the answer that a reader waits for.
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

    fn ends_by(&self, deadline: Deadline) -> bool {
        let end = self.ending();
        // A thread that waits for this one is detached by the join.
        end.wait_until(&Clock::system(), deadline).unwrap_or(true)
    }

    fn join(self: Box<Self>) {
        drop(Self::join(*self));
    }
}

/// A run of one object.
pub(crate) enum Run {
    ByName(ThreadRun),
    Shared(Box<dyn SharedRun>),
}

impl Run {
    pub(crate) fn shared(&self) -> Option<&dyn SharedRun> {
        match self {
            Self::ByName(_) => None,
            Self::Shared(run) => Some(&**run),
        }
    }
}

/// A run's thread, and its room under the limit, which is given back after the thread has ended.
pub(crate) struct ThreadRun {
    pub(crate) handle: Box<dyn RunHandle>,
    pub(crate) _room: Permit,
    /// Counts the watches by name in one namespace.
    pub(crate) _by_name: Option<Arc<()>>,
}

impl ThreadRun {
    /// Waits for the end of its thread. The log has its panic; a run that crashed is started again.
    pub(crate) fn join(self, work: &Monitor<PendingWork>) {
        let thread = self.handle.thread_name();
        self.handle.join();
        let mut work = work.lock();
        let joined = work.joining.iter().position(|name| *name == thread);
        joined.map(|at| work.joining.swap_remove(at));
    }
}

/// The work that waits for the keeper.
#[derive(Default)]
pub(crate) struct PendingWork {
    /// Runs that were asked to end and are to be joined.
    pub(crate) ended: Vec<ThreadRun>,
    /// The names of the threads that are joined now.
    pub(crate) joining: Vec<String>,
    /// Runs that have room and were not joined. A run on its way from an entry to `ended`, on
    /// another thread, is in neither.
    pub(crate) alive: usize,
    /// The starts of runs under way, which call code of the program.
    pub(crate) starts: Vec<Arc<Task>>,
    /// A server that gave an object's watch no answer answers again.
    pub(crate) recovered: bool,
    /// When the keeper looks at the watches of namespaces and at the absences.
    pub(crate) tend_at: Option<Instant>,
    /// The last panic of a thread of the manager, until the keeper has completed a sweep.
    pub(crate) failure: Option<Error>,
    /// The keeper's stop is raised: it waits for the last start and the last run.
    pub(crate) is_ending: bool,
    /// The keeper has ended: no run has room any more.
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

    /// Wakes the keeper if it waits for the last start and the last run. A keeper at work waits for
    /// neither, and a thousand watches that start need not wake it a thousand times.
    fn tell_ending(&self, work: &Monitor<Self>) {
        if self.is_ending {
            work.notify_all();
        }
    }
}

/// The start of a run on the calling thread, until this is dropped.
pub(crate) struct Start<'a> {
    work: &'a Monitor<PendingWork>,
    task: Arc<Task>,
}

impl<'a> Start<'a> {
    pub(crate) fn begin(work: &'a Monitor<PendingWork>) -> Self {
        let task = Arc::new(Task::begin());
        work.lock().starts.push(Arc::clone(&task));
        Self { work, task }
    }
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        let is_other = |task: &Arc<Task>| !Arc::ptr_eq(task, &self.task);
        let mut pending = self.work.lock();
        pending.starts.retain(is_other);
        pending.tell_ending(self.work);
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
    /// `TooManyReflectors`, naming the limit; `Stopped` once the keeper has ended, which would
    /// join the run.
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
            pending.tell_ending(&work);
        }
    }
}
