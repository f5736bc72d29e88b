//! "Somebody waits": the count that makes a first sync retry fast, and wakes a reflector that backs off (B3).

use crate::clock::{Clock, Deadline};
use crate::sync::{Arc, Monitor};
use crate::worker::{StopToken, Wake};

/// How many callers wait for a first sync. Cheap to clone; shared by the waiters and one reflector.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Monitor<usize>>);

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
        {
            let mut waiting = self.0.lock();
            *waiting = waiting.saturating_add(1);
        }
        self.0.notify_all();
        DemandGuard(self.clone())
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        *self.0.lock() > 0
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
            if wakes && *waiting > 0 {
                return RestEnd::Demanded;
            }
            waiting = clock.wait_until(&self.0, waiting, deadline);
        }
    }
}

impl Drop for DemandGuard {
    fn drop(&mut self) {
        let mut waiting = self.0.0.lock();
        *waiting = waiting.saturating_sub(1);
    }
}

/// Wakes a rest when the stop is raised.
struct WakeRest(Arc<Monitor<usize>>);

impl Wake for WakeRest {
    fn wake(&self) {
        // Taking the mutex first closes the gap between the rest's look at the flag and its wait.
        drop(self.0.lock());
        self.0.notify_all();
    }
}
