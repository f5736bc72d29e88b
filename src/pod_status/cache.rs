//! The pod-status cache's public face: each call decides in the table under the one lock, and acts
//! after it.

use std::fmt;

use super::reading::{Reading, StatusError};
use super::status::{PodStatus, Status};
use super::table::{Table, Waiting};
use super::timeout;
use super::timestamp::Timestamp;
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::sync::{Arc, Mutex, Rank, wake_at};
use crate::worker::StopToken;

/// The kubelet's pod-status cache: who inspects pods sets what they found, pod workers wait for
/// something newer than what they know. Cheap to clone; all clones are one cache.
///
/// Only [`get_newer_than`](Self::get_newer_than), [`get_newer_than_by`](Self::get_newer_than_by)
/// and [`get_newer_than_or_stop`](Self::get_newer_than_or_stop) wait. The other calls take one lock
/// for the time of a map access. Calls about all pods or all waiters hold it for a walk over them.
/// The cache has no thread and calls nobody back; [`Status::with_id`] runs on the reader's thread.
/// Whoever fills the cache deletes what is gone: nothing is evicted.
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
#[doc(alias = "Cache")]
#[doc(alias = "NewCache")]
pub struct PodStatusCache<S: Status = PodStatus> {
    pub(super) table: Arc<Mutex<Table<S>>>,
    clock: Clock,
}

impl<S: Status> PodStatusCache<S> {
    /// An empty cache. `clock` is what deadlines are of.
    pub fn new(clock: Clock) -> Self {
        Self::over(Table::new(false), clock)
    }

    /// An empty cache that refuses a status which is older than the one it holds, as with the
    /// kubelet's gate `EventedPLEG`: for statuses that come in from several sides.
    #[doc(alias = "EventedPLEG")]
    pub fn evented(clock: Clock) -> Self {
        Self::over(Table::new(true), clock)
    }

    fn over(table: Table<S>, clock: Clock) -> Self {
        let table = Arc::new(Mutex::ranked(Rank::POD_STATUS, table));
        Self { table, clock }
    }

    /// What is known of the pod now, whatever its age; never waits for news.
    ///
    /// A pod without an entry reads as a status with only its UID.
    #[doc(alias = "Get")]
    pub fn get(&self, uid: &str) -> Reading<S> {
        let found = self.table.lock().get(uid);
        Reading::of(uid, found)
    }

    /// Every entry with its UID, in no particular order.
    #[doc(alias = "GetAll")]
    pub fn get_all(&self) -> Vec<(Arc<str>, Reading<S>)> {
        let table = self.table.lock();
        let entries = table.entries();
        entries
            .map(|(uid, entry)| (Arc::clone(uid), entry.clone()))
            .collect()
    }

    /// What is known of the pod once that is newer than `min_time`; waits without end until then.
    ///
    /// Who asks gets an answer at once if the entry, or the global time, is **strictly after**
    /// `min_time`. Who waits is answered by the first set, observed time or global time that is
    /// **not before** it: the same time counts then. Without an entry the answer is a status with
    /// only the UID. A [`delete`](Self::delete) ends no wait.
    ///
    /// Before the global time was first set, who asks for a pod without an entry waits, even with
    /// [`Timestamp::ZERO`].
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if it would have to wait and the cache is
    /// [closed](Self::close), or is closed meanwhile. That the runtime could not inspect the pod is
    /// no error of this call: see [`Reading::error`].
    #[doc(alias = "GetNewerThan")]
    pub fn get_newer_than(&self, uid: &str, min_time: Timestamp) -> Result<Reading<S>, Error> {
        self.get_newer_than_by(uid, min_time, Deadline::NEVER)
    }

    /// As [`get_newer_than`](Self::get_newer_than), at most until `deadline`. An answer beats a
    /// deadline that has passed.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) at the deadline; the text names the pod, how long was
    /// waited, and what is known of the pod. [`Stopped`](crate::ErrorKind::Stopped) as in
    /// `get_newer_than`.
    pub fn get_newer_than_by(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: Deadline,
    ) -> Result<Reading<S>, Error> {
        self.wait_for(uid, min_time, deadline, None)
    }

    /// As [`get_newer_than_by`](Self::get_newer_than_by), and ended by `stop` within milliseconds:
    /// for a pod worker that is a [`Worker`](crate::worker::Worker), whose drop joins it. An answer
    /// that is there beats the stop.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if the stop is raised, or the cache closed, before an
    /// answer is there; [`Timeout`](crate::ErrorKind::Timeout) at the deadline.
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
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Reading<S>, Error> {
        self.wait_for(uid, min_time, deadline, Some(stop))
    }

    /// Stores what was found out about the pod at `timestamp`, and answers those who wait for this
    /// pod and asked for nothing later than that. Returns whether it was stored, which is always
    /// but in an [evented](Self::evented) cache.
    ///
    /// Take the timestamp **before** asking the runtime. Either of `status` and `error` may be
    /// missing, or both.
    #[doc(alias = "Set")]
    pub fn set(
        &self,
        uid: &str,
        status: Option<Arc<S>>,
        error: Option<StatusError>,
        timestamp: Timestamp,
    ) -> bool {
        let entry = Reading::new(status, error, Some(timestamp));
        let (is_stored, unused, bell) = self.table.lock().set(uid, entry);
        if let Some(bell) = bell {
            bell.ring();
        }
        // After the lock, and after those who wait were woken: the last holder of a status runs the
        // user's code.
        drop(unused);
        is_stored
    }

    /// Forgets the entry of a pod that is gone; wakes nobody.
    ///
    /// Who waits for the pod is answered by the next [`update_time`](Self::update_time) that meets
    /// their condition.
    #[doc(alias = "Delete")]
    pub fn delete(&self, uid: &str) {
        let deleted = self.table.lock().delete(uid);
        drop(deleted);
    }

    /// Sets the global time: every pod, with or without an entry, is known as of `timestamp`.
    /// Answers all who asked for nothing later than that.
    ///
    /// It may go backwards: who asks then waits again.
    #[doc(alias = "UpdateTime")]
    pub fn update_time(&self, timestamp: Timestamp) {
        let bells = self.table.lock().update_time(timestamp);
        for bell in bells {
            bell.ring();
        }
    }

    /// Says that the runtime agreed with the pod's entry at `timestamp`. Answers each waiter for
    /// this pod that asked for nothing later. Makes no entry where there is none.
    #[doc(alias = "SetObservedTime")]
    pub fn set_observed_time(&self, uid: &str, timestamp: Timestamp) {
        let bell = self.table.lock().set_observed_time(uid, timestamp);
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// The global time; `None` before it was first set.
    pub fn global_time(&self) -> Option<Timestamp> {
        self.table.lock().global()
    }

    /// Ends every wait, now and from now on, with [`Stopped`](crate::ErrorKind::Stopped).
    ///
    /// Everything that does not wait goes on as before, a `get_newer_than` whose answer is there
    /// included.
    pub fn close(&self) {
        let bells = self.table.lock().close();
        for bell in bells {
            bell.ring();
        }
    }

    /// The clock whose times the cache knows.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the cache was closed.
    pub fn is_closed(&self) -> bool {
        self.table.lock().is_closed()
    }

    /// Who waits for what, since when; those waiting for one pod in the order in which they came.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.table.lock().waits().cloned().collect()
    }

    fn wait_for(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: Deadline,
        stop: Option<&StopToken>,
    ) -> Result<Reading<S>, Error> {
        let mut table = self.table.lock();
        if let Some(found) = table.newer_than(uid, min_time) {
            drop(table);
            return Ok(Reading::of(uid, found));
        }
        let wait = Waiting {
            uid: Arc::from(uid),
            min_time,
            since: self.clock.now(),
            deadline,
        };
        let ticket = table.subscribe(wait.clone());
        // A stop that was raised already wakes at once, which takes the table's lock.
        drop(table);
        let wake = wake_at(&self.table, &ticket.bell);
        let _registered = stop.map(|stop| stop.register(&wake));
        let mut table = self.table.lock();
        loop {
            if let Some(found) = table.take_answer(&ticket) {
                drop(table);
                return Ok(Reading::of(uid, found));
            }
            let now = self.clock.now();
            let end = if stop.is_some_and(StopToken::is_stopped) {
                timeout::stopped(uid)
            } else if table.is_closed() {
                timeout::closed(uid)
            } else if deadline.has_passed(now) {
                timeout::timed_out(&wait, &table.get(uid), table.global(), now)
            } else {
                let bell = &ticket.bell;
                table = self.clock.wait_for_bell(&self.table, bell, table, deadline);
                continue;
            };
            table.leave(&ticket);
            drop(table);
            return Err(end);
        }
    }
}

impl<S: Status> Clone for PodStatusCache<S> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            clock: self.clock.clone(),
        }
    }
}

impl<S: Status> fmt::Debug for PodStatusCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pods, waiting, global) = {
            let table = self.table.lock();
            (table.entries().len(), table.waits().count(), table.global())
        };
        f.debug_struct("PodStatusCache")
            .field("pods", &pods)
            .field("waiting", &waiting)
            .field("global_time", &global)
            .finish_non_exhaustive()
    }
}
