//! "Somebody waits": the count that makes a first sync retry fast, and wakes a reflector that backs off (B3).

use std::fmt;

use crate::clock::{Clock, Deadline};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake};

/// How many callers wait for a first sync. Cheap to clone; shared by the waiters and one reflector.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Monitor<Waiters>>);

#[derive(Default)]
struct Waiters {
    count: usize,
    /// Told of the next caller who waits.
    expedite: Option<Arc<dyn Wake>>,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// A request of which callers that come are told to, until this is dropped.
#[must_use = "nobody is told any more when the guard is dropped"]
pub(crate) struct Expediting<'a>(&'a Demand);

/// One caller's wait; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the wait ends when the guard is dropped"]
pub struct DemandGuard(Demand);

/// Why a rest of the driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestEnd {
    Stopped,
    DeadlinePassed,
    Demanded,
}

impl Demand {
    /// A demand of nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares that somebody waits, until the guard is dropped. Never blocks on the network.
    ///
    /// A reflector that backs off before its first sync wakes up and retries fast.
    pub fn wait(&self) -> DemandGuard {
        let expedite = {
            let mut waiters = self.0.lock();
            waiters.count = waiters.count.saturating_add(1);
            waiters.expedite.take()
        };
        self.0.notify_all();
        if let Some(expedite) = expedite {
            expedite.wake();
        }
        DemandGuard(self.clone())
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        self.0.lock().count > 0
    }

    /// Calls `expedite` once when somebody waits, now or later, until the guard is dropped: a
    /// request is under way.
    pub(crate) fn expedites(&self, expedite: Arc<dyn Wake>) -> Expediting<'_> {
        let now = {
            let mut waiters = self.0.lock();
            if waiters.count == 0 {
                waiters.expedite = Some(expedite);
                None
            } else {
                Some(expedite)
            }
        };
        if let Some(expedite) = now {
            expedite.wake();
        }
        Expediting(self)
    }

    /// Lets time go by until `deadline`, a stop, or (if `wakes`) somebody who waits.
    pub(crate) fn rest(
        &self,
        clock: &Clock,
        deadline: Deadline,
        stop: &StopToken,
        wakes: bool,
    ) -> RestEnd {
        let wake: Arc<dyn Wake> = Arc::new(WakeRest(Arc::clone(&self.0)));
        let _registration = stop.register(&wake);
        let mut waiting = self.0.lock();
        loop {
            if stop.is_stopped() {
                return RestEnd::Stopped;
            }
            if clock.has_passed(deadline) {
                return RestEnd::DeadlinePassed;
            }
            if wakes && waiting.count > 0 {
                return RestEnd::Demanded;
            }
            waiting = clock.wait_until(&self.0, waiting, deadline);
        }
    }
}

impl Drop for DemandGuard {
    fn drop(&mut self) {
        let mut waiters = self.0.0.lock();
        waiters.count = waiters.count.saturating_sub(1);
    }
}

impl Drop for Expediting<'_> {
    fn drop(&mut self) {
        let expedite = self.0.0.lock().expedite.take();
        // It may be the last holder of the lister-watcher.
        drop(expedite);
    }
}

/// Wakes a rest when the stop is raised.
struct WakeRest(Arc<Monitor<Waiters>>);

impl Wake for WakeRest {
    fn wake(&self) {
        // Taking the mutex first closes the gap between the rest's look at the flag and its wait.
        drop(self.0.lock());
        self.0.notify_all();
    }
}
