//! The pod-status cache's public side: each call decides in the table under the one lock, and acts
//! after releasing it.

use super::reading::{PodReading, StatusError, Timestamp};
use super::status::{CachedStatus, PodStatus};
use super::table::{AnswerSlot, PodAnswer, PodTable, PodWaiter};
use super::timeout;
use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, clone_of, debug_of};
use crate::sync::{Arc, Monitor, Mutex, Rank, Wake};
use crate::worker::StopToken;

/// The kubelet's pod-status cache. Code that inspects pods sets their status here, and pod workers
/// wait for a newer one. Cheap to clone; all clones are one cache.
///
/// Only [`get_newer_than`](Self::get_newer_than), [`get_newer_than_by`](Self::get_newer_than_by)
/// and [`get_newer_than_or_stop`](Self::get_newer_than_or_stop) wait. The other calls hold one lock
/// for a map access; calls about all pods or all waiters, for a walk over them. The cache has no
/// thread. The only code of the program that it calls is [`CachedStatus::with_id`], on the reader's
/// thread. The code that sets statuses also deletes them: the cache never evicts an entry.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use kubecache::ErrorKind;
/// use kubecache::clock::Clock;
/// use kubecache::pod_status::{PodStatus, PodStatusCache, Timestamp};
///
/// let clock = Clock::system();
/// let cache = PodStatusCache::new(clock.clone());
///
/// let asked = Timestamp::now(&clock); // before the runtime is asked
/// let mut status = PodStatus::default();
/// status.id = "uid-1".into();
/// cache.set("uid-1", Some(Arc::new(status)), None, asked);
///
/// let reading = cache.get_newer_than("uid-1", Timestamp::ZERO)?; // there already: does not wait
/// assert_eq!(reading.modified_time(), Some(asked));
///
/// // Nothing newer comes: a deadline ends the wait, and the error says what is known.
/// let deadline = clock.after(Duration::from_millis(1));
/// let error = cache.get_newer_than_by("uid-1", asked, deadline).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias("Cache", "NewCache"))]
pub struct PodStatusCache<S: CachedStatus = PodStatus> {
    pub(super) table: Arc<Mutex<PodTable<S>>>,
    clock: Clock,
}

impl<S: CachedStatus> PodStatusCache<S> {
    /// Makes an empty cache whose deadlines follow `clock`.
    pub fn new(clock: Clock) -> Self {
        Self::over(PodTable::new(false), clock)
    }

    /// Makes an empty cache that refuses a status older than the one it holds. Use it if several
    /// threads set the status of one pod, as the kubelet does with its feature gate `EventedPLEG`.
    #[doc(alias = "EventedPLEG")]
    pub fn evented(clock: Clock) -> Self {
        Self::over(PodTable::new(true), clock)
    }

    fn over(table: PodTable<S>, clock: Clock) -> Self {
        let table = Arc::new(Mutex::ranked(Rank::POD_STATUS, table));
        Self { table, clock }
    }

    /// Returns the pod's present entry, whatever its age. Never waits.
    ///
    /// A pod without an entry reads as a status with only its UID.
    #[doc(alias = "Get")]
    pub fn get(&self, uid: &str) -> PodReading<S> {
        let found = self.table.lock().get(uid);
        PodReading::of(uid, found)
    }

    /// Returns every entry with its UID, in no particular order.
    #[doc(alias = "GetAll")]
    pub fn get_all(&self) -> Vec<(Arc<str>, PodReading<S>)> {
        let copy = |(uid, entry): (&Arc<str>, &PodReading<S>)| (Arc::clone(uid), entry.clone());
        self.table.lock().entries().map(copy).collect()
    }

    /// Blocks, without a deadline, until the cache knows something newer than `min_time` about the
    /// pod, and returns it.
    ///
    /// The call returns at once if the entry, or the global time, is **strictly after** `min_time`.
    /// Otherwise it waits for the first set, observed time or global time that is **not before**
    /// `min_time`; an equal time counts then. Without an entry the answer is a status with only the
    /// UID. A [`delete`](Self::delete) ends no wait.
    ///
    /// Before the global time is first set, a call for a pod without an entry waits, even with
    /// [`Timestamp::ZERO`].
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if it would have to wait and the cache is
    /// [closed](Self::close), or is closed meanwhile. A failed inspection by the runtime is not an
    /// error of this call: see [`PodReading::error`].
    #[doc(alias = "GetNewerThan")]
    pub fn get_newer_than(&self, uid: &str, min_time: Timestamp) -> Result<PodReading<S>, Error> {
        self.get_newer_than_by(uid, min_time, Deadline::NEVER)
    }

    /// As [`get_newer_than`](Self::get_newer_than), at most until `deadline`. An answer beats a
    /// deadline that has passed.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) at the deadline; the text has the pod, the length of
    /// the wait, and the pod's entry. [`Stopped`](crate::ErrorKind::Stopped) as in
    /// `get_newer_than`.
    pub fn get_newer_than_by(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: impl IntoDeadline,
    ) -> Result<PodReading<S>, Error> {
        let deadline = deadline.into_deadline(&self.clock);
        self.wait_for(uid, min_time, deadline, None)
    }

    /// As [`get_newer_than_by`](Self::get_newer_than_by), but `stop` also ends it within
    /// milliseconds. This is for a pod worker that is a [`Worker`](crate::worker::Worker), whose
    /// drop joins it. A present answer beats the stop.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if the stop is raised, or the cache closed, before an
    /// answer comes; [`Timeout`](crate::ErrorKind::Timeout) at the deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::clock::{Clock, Deadline};
    /// use kubecache::pod_status::{PodStatus, PodStatusCache, Timestamp};
    /// use kubecache::worker::Worker;
    ///
    /// let cache = PodStatusCache::<PodStatus>::new(Clock::system());
    /// let read = cache.clone();
    /// let worker = Worker::spawn("pod-worker", move |stop| {
    ///     let first = Timestamp::ZERO;
    ///     let end = read.get_newer_than_or_stop("uid-1", first, Deadline::NEVER, stop);
    ///     assert!(end.is_err_and(|error| error.is_stopped()));
    /// })?;
    /// drop(worker); // ends the wait and joins, though nothing ever comes
    /// assert!(cache.waiting().is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_newer_than_or_stop(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: impl IntoDeadline,
        stop: &StopToken,
    ) -> Result<PodReading<S>, Error> {
        let deadline = deadline.into_deadline(&self.clock);
        self.wait_for(uid, min_time, deadline, Some(stop))
    }

    /// Stores the pod's status or error as of `timestamp`, and wakes the threads that wait for this
    /// pod with that time or an earlier one. Returns whether the cache stored it; only an
    /// [evented](Self::evented) cache may refuse.
    ///
    /// Take the timestamp **before** asking the runtime. `status`, `error` or both may be `None`.
    #[doc(alias = "Set")]
    pub fn set(
        &self,
        uid: &str,
        status: Option<Arc<S>>,
        error: Option<StatusError>,
        timestamp: Timestamp,
    ) -> bool {
        let entry = PodReading::new(status, error, Some(timestamp));
        let (is_stored, unused, answered) = self.table.lock().set(uid, entry);
        wake(&answered);
        // After the lock and the wake-ups: the drop of the last pointer to a status may run code of
        // the program.
        drop(unused);
        is_stored
    }

    /// Removes the entry of a pod that is gone. Wakes no thread.
    ///
    /// Threads that wait for the pod keep waiting, until a late enough
    /// [`update_time`](Self::update_time).
    #[doc(alias = "Delete")]
    pub fn delete(&self, uid: &str) {
        let deleted = self.table.lock().delete(uid);
        drop(deleted);
    }

    /// Removes the entries of pods that a list lacks, and returns them for the caller to drop.
    pub(super) fn take_unlisted(
        &self,
        asked: Timestamp,
        is_listed: impl Fn(&str) -> bool,
    ) -> Vec<PodReading<S>> {
        self.table.lock().take_unlisted(asked, is_listed)
    }

    /// Sets the global time: every pod, with or without an entry, is known as of `timestamp`. Wakes
    /// all threads that wait for that time or an earlier one.
    ///
    /// The global time may go backwards; later calls then wait again.
    #[doc(alias = "UpdateTime")]
    pub fn update_time(&self, timestamp: Timestamp) {
        let answered = self.table.lock().update_time(timestamp);
        wake(&answered);
    }

    /// Notes that the runtime still agreed with the pod's entry at `timestamp`. Wakes the threads
    /// that wait for this pod with that time or an earlier one. Does not create an entry.
    #[doc(alias = "SetObservedTime")]
    pub fn set_observed_time(&self, uid: &str, timestamp: Timestamp) {
        let answered = self.table.lock().set_observed_time(uid, timestamp);
        wake(&answered);
    }

    /// Returns the global time; `None` before it was first set.
    pub fn global_time(&self) -> Option<Timestamp> {
        self.table.lock().global()
    }

    /// Ends every wait, present and future, with [`Stopped`](crate::ErrorKind::Stopped).
    ///
    /// Calls that need not wait work as before.
    pub fn close(&self) {
        let closed = self.table.lock().close();
        wake(&closed);
    }

    /// The cache's clock.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the pod has an entry without an error.
    pub(super) fn has_status(&self, uid: &str) -> bool {
        self.table.lock().has_status(uid)
    }

    /// Whether the cache was closed.
    pub fn is_closed(&self) -> bool {
        self.table.lock().is_closed()
    }

    /// Lists the waiting threads: for which pod, for which time, and since when. Those of one pod
    /// come in the order of their calls.
    pub fn waiting(&self) -> Vec<PodWaiter> {
        self.table.lock().waits().cloned().collect()
    }

    /// Enters a waiter whose thread does something else meanwhile, and returns how to look for its
    /// answer: the simulation has one thread.
    #[cfg(feature = "testing")]
    pub(crate) fn enter_waiter(
        &self,
        uid: &str,
        min_time: Timestamp,
    ) -> impl Fn() -> Option<PodReading<S>> + use<S> {
        let mut table = self.table.lock();
        let found = table.newer_than(uid, min_time);
        let slot = table.subscribe(PodWaiter {
            uid: Arc::from(uid),
            min_time,
            since: self.clock.now(),
            deadline: Deadline::NEVER,
        });
        if let Some(found) = found {
            table.leave(uid, &slot);
            *slot.lock() = Some(PodAnswer::Known(found));
        }
        move || {
            let answer = slot.lock().take();
            match answer? {
                PodAnswer::Known(found) => Some(found),
                PodAnswer::Closed => None,
            }
        }
    }

    fn wait_for(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: Deadline,
        stop: Option<&StopToken>,
    ) -> Result<PodReading<S>, Error> {
        let mut table = self.table.lock();
        if let Some(found) = table.newer_than(uid, min_time) {
            drop(table);
            return Ok(PodReading::of(uid, found));
        }
        let wait = PodWaiter {
            uid: Arc::from(uid),
            min_time,
            since: self.clock.now(),
            deadline,
        };
        let slot = table.subscribe(wait.clone());
        // A stop that is already raised wakes at once, which takes the slot's lock.
        drop(table);
        let waker: Arc<dyn Wake> = Arc::<Monitor<_>>::clone(&slot);
        let _registered = stop.map(|stop| stop.register(&waker));
        let mut answer = slot.lock();
        loop {
            match answer.take() {
                Some(PodAnswer::Known(found)) => {
                    drop(answer);
                    return Ok(PodReading::of(uid, found));
                }
                Some(PodAnswer::Closed) => return Err(timeout::closed(uid)),
                None => {}
            }
            let now = self.clock.now();
            let is_stopped = stop.is_some_and(StopToken::is_stopped);
            if !is_stopped && !deadline.has_passed(now) {
                answer = self.clock.wait_until(&slot, answer, deadline);
                continue;
            }
            // The table's lock comes before the slot's.
            drop(answer);
            let mut table = self.table.lock();
            if table.leave(uid, &slot) {
                let (known, global) = (table.get(uid), table.global());
                drop(table);
                return Err(if is_stopped {
                    timeout::stopped(uid)
                } else {
                    timeout::timed_out(&wait, &known, global, now)
                });
            }
            drop(table);
            answer = slot.lock();
        }
    }
}

/// Wakes the threads whose slots are filled, once each. The caller holds no lock.
fn wake<S>(answered: &[AnswerSlot<S>]) {
    for slot in answered {
        slot.notify_all();
    }
}

clone_of!([S: CachedStatus] PodStatusCache<S>: table, clock);

debug_of!([S: CachedStatus] PodStatusCache<S>, |it|
    pods: { it.table.lock().entries().len() }, waiting: { it.table.lock().waits().count() },
    global_time: it.global_time(), ..);
