//! The only source of locks, condvars, atomics and threads: `parking_lot` and the system, or a
//! model checker under `--cfg shuttle`.
//!
//! Threads take locks only upwards in [`Rank`], which debug builds check. No thread does I/O,
//! joins, runs code of the program or logs while it holds one.

mod rank;
mod read_copies;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::ops::{Deref, DerefMut};
use std::time::Instant;

pub(crate) use rank::{Rank, held};
pub(crate) use read_copies::ReadCopies;

use rank::{HeldRank, Order};

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::{self, JoinHandle, ThreadId};

    /// The number of threads that have asked for theirs.
    static NUMBERED: atomic::AtomicUsize = atomic::AtomicUsize::new(0);

    std::thread_local! {
        static NUMBER: usize = NUMBERED.fetch_add(1, atomic::Ordering::Relaxed);
    }

    /// The calling thread's number; 0 if it is ending.
    #[inline]
    pub(super) fn thread_number() -> usize {
        NUMBER.try_with(|number| *number).unwrap_or_default()
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }

    pub(super) fn wait<'a, T>(bell: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        bell.wait(&mut guard);
        guard
    }

    pub(super) fn wait_until<'a, T>(
        bell: &Condvar,
        mut guard: MutexGuard<'a, T>,
        until: std::time::Instant,
    ) -> MutexGuard<'a, T> {
        // The caller reads its clock after every wake-up, so the time-out result adds nothing.
        let _timed_out = bell.wait_until(&mut guard, until);
        guard
    }
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread::{self, JoinHandle, ThreadId};
    pub(crate) use std::sync::Arc;

    use std::sync::PoisonError;

    pub(super) fn thread_number() -> usize {
        shuttle::current::me().into()
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of a model that panics ends the model, so no lock is ever poisoned.
    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }

    pub(super) fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The checker has no timed wait: models advance the fake clock instead.
    pub(super) fn wait_until<'a, T>(
        bell: &Condvar,
        guard: MutexGuard<'a, T>,
        _until: std::time::Instant,
    ) -> MutexGuard<'a, T> {
        wait(bell, guard)
    }
}

/// A number of the whole process, for names and readings without waiters. It is the system's even
/// under the checker, whose own atomics belong to one model.
pub(crate) use std::sync::atomic::AtomicU64 as ProcessCounter;

/// A lock of the whole process, held only for moments without a step of the checker; the system's,
/// too.
pub(crate) use parking_lot::Mutex as ProcessMutex;

/// A flag of the whole process; the system's, too.
pub(crate) use std::sync::atomic::AtomicBool as ProcessFlag;

pub(crate) use imp::{Arc, JoinHandle, ThreadId, atomic, thread};

/// The calling thread, for code that must not wait for itself.
pub(crate) fn current_thread() -> ThreadId {
    thread::current().id()
}

use imp::thread_number;

/// How often a thread looks whether a lock is free before it waits.
const SPINS: usize = if cfg!(shuttle) { 1 } else { 40 };

/// A mutex with a [`Rank`], which debug builds check at each lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    value: imp::Mutex<T>,
    order: Order,
}

/// The data of a locked [`Mutex`].
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    value: imp::MutexGuard<'a, T>,
    held: HeldRank,
}

impl<T> Mutex<T> {
    /// Makes a mutex without a rank and its checks, for tests and test servers.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: imp::Mutex::new(value),
            order: Order::default(),
        }
    }

    pub(crate) fn ranked(rank: Rank, value: T) -> Self {
        Self {
            value: imp::Mutex::new(value),
            order: Order::of(rank),
        }
    }

    /// Blocks until no other thread holds the lock. A panic under it does not poison it.
    ///
    /// # Panics
    ///
    /// In debug builds: if the thread holds a lock of the same or a higher rank.
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(all(test, not(shuttle)))]
        tests::note_test();
        let held = self.order.enter();
        let value = imp::lock(&self.value);
        MutexGuard { value, held }
    }

    /// Locks as [`lock`](Self::lock) does, but looks some microseconds for the end of another
    /// thread's hold before it gives the core away: its turn may come again after milliseconds.
    #[track_caller]
    pub(crate) fn lock_soon(&self) -> MutexGuard<'_, T> {
        for _ in 0..SPINS {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::hint::spin_loop();
        }
        self.lock()
    }

    /// Locks unless another thread holds the lock. Panics as [`lock`](Self::lock) does.
    #[inline]
    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.order.enter();
        let value = imp::try_lock(&self.value)?;
        Some(MutexGuard { value, held })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// One mutex and its one condvar: the usual shape of waiting in the crate.
///
/// The data that waiters check changes under this mutex, so no wake-up is lost.
#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    pub(crate) changed: Bell,
}

impl<T> Monitor<T> {
    /// Makes a monitor without a rank and its checks, for models and test servers.
    #[cfg(any(all(test, shuttle), feature = "testing"))]
    pub(crate) fn new(state: T) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Bell::default(),
        }
    }

    pub(crate) fn ranked(rank: Rank, state: T) -> Self {
        Self {
            state: Mutex::ranked(rank, state),
            changed: Bell::default(),
        }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    /// Locks as [`Mutex::try_lock`] does.
    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.state.try_lock()
    }

    /// Locks as [`Mutex::lock_soon`] does.
    #[track_caller]
    pub(crate) fn lock_soon(&self) -> MutexGuard<'_, T> {
        self.state.lock_soon()
    }

    /// Wakes every waiter: waiters of one monitor may wait for different things.
    pub(crate) fn notify_all(&self) {
        self.changed.ring();
    }

    /// Waits for a notification. Spurious wake-ups happen: callers loop over their predicate.
    pub(crate) fn wait<'a>(&'a self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait(guard)
    }
}

/// Ends a blocking wait of another thread, such as a poll of a socket.
pub trait Wake: Send + Sync {
    /// Makes the wait return soon. The stopping thread calls it, at most once per registration,
    /// without a lock.
    fn wake(&self);
}

/// Wakes every waiter, so that each checks its condition again.
impl<T: Send> Wake for Monitor<T> {
    fn wake(&self) {
        // Taking the waiter's mutex first closes the gap between its check and its wait.
        drop(self.lock());
        self.notify_all();
    }
}

/// One of several condvars for the same mutex, each for some of the waiters: ringing it wakes only
/// those. All uses of one bell must be with the same mutex.
#[derive(Debug, Default)]
pub(crate) struct Bell(imp::Condvar);

impl Bell {
    /// Wakes all waiters of this bell. The caller holds the mutex, or has changed the data under
    /// it.
    pub(crate) fn ring(&self) {
        self.0.notify_all();
    }

    /// Waits for the bell. Spurious wake-ups happen: callers loop over their predicate.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { value, held } = guard;
        let value = imp::wait(&self.0, value);
        MutexGuard { value, held }
    }

    /// Waits for the bell, at most until `until` on the system's monotonic clock.
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Instant,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { value, held } = guard;
        let value = imp::wait_until(&self.0, value, until);
        MutexGuard { value, held }
    }
}

impl<F: Fn() + Send + Sync> Wake for F {
    fn wake(&self) {
        self();
    }
}

/// Makes a wake-up for the waiters at `bell` with the guard of `mutex`.
pub(crate) fn wake_at<T: Send + 'static>(mutex: &Arc<Mutex<T>>, bell: &Arc<Bell>) -> Arc<dyn Wake> {
    let (mutex, bell) = (Arc::clone(mutex), Arc::clone(bell));
    Arc::new(move || {
        // As for a monitor.
        drop(mutex.lock());
        bell.ring();
    })
}
