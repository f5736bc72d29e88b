//! Counts callers that wait or read. They make a first sync retry fast, and wake a reflector that
//! backs off (B3, B10).

use std::panic::resume_unwind;

use crate::clock::{Clock, Deadline};
use crate::error::debug_of;
use crate::guard::held_back;
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::{StopToken, Wake};

/// Counts the callers that wait for a first sync, and notes whether one reads during a backoff.
/// Cheap to clone; the callers and one reflector share it.
#[derive(Clone, Debug)]
pub struct Waiters(Arc<Monitor<Callers>>);

impl Default for Waiters {
    fn default() -> Self {
        Self(Arc::new(Monitor::ranked(Rank::WAITERS, Callers::default())))
    }
}

/// The callers' demands on the reflector.
#[derive(Default)]
struct Callers {
    waiting: usize,
    /// The reflector pauses, and a read may wake it.
    pausing: bool,
    /// A caller has read the content during this pause, or begun to wait since the last one.
    read: bool,
    /// The running request, which the next caller that waits makes urgent.
    request: Option<Arc<dyn Wake>>,
}

debug_of!([] Callers, |it| waiting: it.waiting, ..);

/// One caller's wait, which ends on drop.
#[derive(Debug)]
#[must_use = "the wait ends when the guard is dropped"]
pub struct WaiterGuard(Waiters);

impl Waiters {
    /// Creates an empty count of waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares that a caller waits, until the guard is dropped. Never blocks on the network.
    ///
    /// A reflector that backs off before its first sync wakes up and retries fast, as long as a
    /// caller waits. After that, a caller that begins to wait counts as one that reads: see
    /// [`expedite`](Self::expedite).
    pub fn wait(&self) -> WaiterGuard {
        let request = {
            let mut callers = self.0.lock();
            callers.waiting = callers.waiting.saturating_add(1);
            callers.read = true;
            callers.request.take()
        };
        self.0.notify_all();
        if let Some(request) = request {
            request.wake();
        }
        WaiterGuard(self.clone())
    }

    /// Whether a caller waits.
    pub fn any(&self) -> bool {
        self.0.lock().waiting > 0
    }

    /// Calls `send`. If a caller waits already, or begins to wait meanwhile, wakes `request` once.
    pub(crate) fn expediting<T>(&self, request: Arc<dyn Wake>, send: impl FnOnce() -> T) -> T {
        let mut callers = self.0.lock();
        if callers.waiting == 0 {
            callers.request = Some(request);
            drop(callers);
        } else {
            drop(callers);
            request.wake();
        }
        let answer = held_back(send);
        let request = self.0.lock().request.take();
        // This may be the last reference to the lister-watcher, so it is dropped outside the lock.
        drop(request);
        answer.unwrap_or_else(|payload| resume_unwind(payload))
    }

    /// Declares that a caller reads the content and would prefer newer content. Never blocks on the
    /// network.
    ///
    /// A reflector that backs off then shortens its wait to the backoff's first one, once per
    /// failure, unless the server asked it to wait. At other times the call does nothing, so a
    /// reader may make it for each read.
    pub fn expedite(&self) {
        let mut callers = self.0.lock();
        let woken = callers.pausing && !callers.read;
        callers.read |= woken;
        drop(callers);
        if woken {
            self.0.notify_all();
        }
    }

    /// Blocks until `deadline`, a stop, or a caller that reads or begins to wait; before the first
    /// sync, any caller that waits. Returns true for a caller.
    pub(crate) fn pause(
        &self,
        clock: &Clock,
        deadline: Deadline,
        stop: &StopToken,
        is_first: bool,
    ) -> bool {
        let wake: Arc<dyn Wake> = Arc::<Monitor<Callers>>::clone(&self.0);
        let _registration = stop.register(&wake);
        let mut callers = self.0.lock();
        // Otherwise a caller that waits during a whole outage would end each of its pauses.
        callers.read = callers.waiting > 0 && (is_first || callers.read);
        callers.pausing = true;
        let (end, mut callers) = clock.wait_for(&self.0, callers, deadline, |callers| {
            (callers.read || stop.is_stopped()).then_some(callers.read)
        });
        (callers.pausing, callers.read) = (false, false);
        end.unwrap_or(false)
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut callers = self.0.0.lock();
        callers.waiting = callers.waiting.saturating_sub(1);
    }
}
