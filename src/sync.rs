//! The one door to locks, condvars, atomics and threads: `parking_lot` and the system, or a model checker under `--cfg shuttle`.
//!
//! Locks are taken only upwards in rank: the manual's page on threads and locks has the ranks.
//! Under
//! none of them is there I/O, a join, user code or logging.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::{self, JoinHandle, ThreadId};
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::{Condvar, atomic};
    pub(crate) use shuttle::thread::{self, JoinHandle, ThreadId};
    pub(crate) use std::sync::Arc;

    pub(crate) type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

    /// A `parking_lot`-shaped face for the checker's mutex: locking cannot fail.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

/// A number of the whole process, for names and readings that nobody waits for: the system's, also under the checker, whose
/// own atomics belong to one model.
pub(crate) use std::sync::atomic::AtomicU64 as ProcessCounter;

/// A lock of the whole process, held for moments in which nothing else of the checker's happens: as
/// above.
pub(crate) use parking_lot::Mutex as ProcessMutex;

/// A flag of the whole process: as above.
pub(crate) use std::sync::atomic::AtomicBool as ProcessFlag;

pub(crate) use imp::{Arc, JoinHandle, Mutex, MutexGuard, ThreadId, atomic, thread};

use std::time::Instant;

/// The thread that calls, for what must not wait for itself.
pub(crate) fn current_thread() -> ThreadId {
    thread::current().id()
}

/// One mutex and its one condvar: the usual shape of waiting in the crate.
///
/// The data a waiter looks at changes under this mutex, so no wake-up is lost.
#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: imp::Condvar,
}

impl<T> Monitor<T> {
    pub(crate) fn new(state: T) -> Self {
        Self {
            state: Mutex::new(state),
            changed: imp::Condvar::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    /// Wakes every waiter: waiters of one monitor may wait for different things.
    pub(crate) fn notify_all(&self) {
        self.changed.notify_all();
    }

    /// Waits for a notification. Spurious wake-ups happen: callers loop over their predicate.
    #[cfg(not(shuttle))]
    pub(crate) fn wait<'a>(&'a self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait(&mut guard);
        guard
    }

    /// Waits for a notification, at most until `until` on the system's monotonic clock.
    #[cfg(not(shuttle))]
    pub(crate) fn wait_until<'a>(
        &'a self,
        mut guard: MutexGuard<'a, T>,
        until: Instant,
    ) -> MutexGuard<'a, T> {
        // The caller looks at its clock after every wake-up, so whether this one was a time-out says nothing more.
        let _timed_out = self.changed.wait_until(&mut guard, until);
        guard
    }

    #[cfg(shuttle)]
    pub(crate) fn wait<'a>(&'a self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The checker knows no timed wait: models advance the fake clock instead.
    #[cfg(shuttle)]
    pub(crate) fn wait_until<'a>(
        &'a self,
        guard: MutexGuard<'a, T>,
        _until: Instant,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }
}

/// Ends a blocking wait of another thread, such as a poll of a socket.
pub trait Wake: Send + Sync {
    /// Makes the wait return soon. Called at most once per registration, on the thread that stops, under no lock.
    fn wake(&self);
}

/// Wakes every waiter, so that each looks at what it waits for once more.
impl<T: Send> Wake for Monitor<T> {
    fn wake(&self) {
        // Taking the waiter's mutex first closes the gap between its look and its wait.
        drop(self.lock());
        self.notify_all();
    }
}

/// A condvar of which several stand beside one mutex, each for what some of its waiters wait for: ringing it wakes those
/// and no others. All uses of one bell are with the same mutex.
#[derive(Debug, Default)]
pub(crate) struct Bell(imp::Condvar);

impl Bell {
    /// Wakes everybody who waits for this bell. The caller holds the mutex, or has changed the data under it.
    pub(crate) fn ring(&self) {
        self.0.notify_all();
    }

    /// Waits for the bell. Spurious wake-ups happen: callers loop over their predicate.
    #[cfg(not(shuttle))]
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    /// Waits for the bell, at most until `until` on the system's monotonic clock.
    #[cfg(not(shuttle))]
    pub(crate) fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        until: Instant,
    ) -> MutexGuard<'a, T> {
        let _timed_out = self.0.wait_until(&mut guard, until);
        guard
    }

    #[cfg(shuttle)]
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(shuttle)]
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _until: Instant,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }
}

/// A bell and the mutex it stands beside: wakes those who wait for the bell.
pub(crate) struct Belled<T> {
    pub(crate) mutex: Arc<Mutex<T>>,
    pub(crate) bell: Arc<Bell>,
}

impl<T: Send> Wake for Belled<T> {
    fn wake(&self) {
        // As for a monitor.
        drop(self.mutex.lock());
        self.bell.ring();
    }
}
