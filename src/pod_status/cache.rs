//! The pod-status cache's public face: each call decides in the table under the one lock, and acts after it.

use std::fmt;
use std::time::Instant;

use super::options::PodStatusOptions;
use super::reading::{Entry, Reading, StatusError};
use super::status::{PodStatus, Status};
use super::table::{Table, Wait};
use super::{Timestamp, timeout};
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::sync::{Arc, Belled, Mutex, Rank};
use crate::worker::{StopToken, Wake};

/// The kubelet's pod-status cache: who inspects pods sets what they found, pod workers wait for something newer than what
/// they know. Cheap to clone; all clones are one cache.
///
/// Only [`get_newer_than`](Self::get_newer_than), [`get_newer_than_deadline`](Self::get_newer_than_deadline) and
/// [`get_newer_than_or_stop`](Self::get_newer_than_or_stop) wait. The other calls take one lock, for the time of a map
/// access or, where they are about all pods or all who wait, of a walk over those. The cache has no thread and calls nobody
/// back; [`Status::with_id`] runs on the reader's thread. Whoever fills the cache deletes what is gone: nothing is evicted.
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
/// let error = cache.get_newer_than_deadline("uid-1", asked, deadline).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "Cache")]
#[doc(alias = "NewCache")]
pub struct PodStatusCache<S: Status = PodStatus> {
    pub(super) table: Arc<Mutex<Table<S>>>,
    clock: Clock,
}

/// Somebody who waits in [`PodStatusCache::get_newer_than`], for whoever asks why a worker does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// The pod's UID.
    pub uid: Arc<str>,
    /// The time asked for.
    pub min_time: Timestamp,
    /// When the wait began.
    pub since: Instant,
    /// When it ends by itself.
    pub deadline: Deadline,
}

impl<S: Status> PodStatusCache<S> {
    /// An empty cache with the default options. `clock` is what deadlines are of.
    pub fn new(clock: Clock) -> Self {
        Self::with_options(PodStatusOptions::default().clock(clock))
    }

    /// An empty cache.
    pub fn with_options(options: PodStatusOptions) -> Self {
        Self {
            table: Arc::new(Mutex::ranked(
                Rank::POD_STATUS,
                Table::new(options.evented_pleg),
            )),
            clock: options.clock,
        }
    }

    /// What is known of the pod now, whatever its age; never waits for news.
    ///
    /// A pod without an entry reads as a status with only its UID (PC-2).
    #[doc(alias = "Get")]
    pub fn get(&self, uid: &str) -> Reading<S> {
        let found = self.table.lock().get(uid);
        Reading::new(uid, found)
    }

    /// Every entry with its UID, in no particular order.
    #[doc(alias = "GetAll")]
    pub fn get_all(&self) -> Vec<(Arc<str>, Reading<S>)> {
        let table = self.table.lock();
        let entries = table.entries();
        entries
            .map(|(uid, entry)| (Arc::clone(uid), Reading::new(uid, Some(entry.clone()))))
            .collect()
    }

    /// What is known of the pod once that is newer than `min_time`; waits without end until then.
    ///
    /// Who asks gets an answer at once if the entry, or the global time, is **strictly after** `min_time` (PC-6). Who waits
    /// is answered by the first set, observed time or global time that is **not before** it: the same time counts
    /// then (PC-8, PC-9). Without an entry the answer is a status with only the UID. A [`delete`](Self::delete) ends no
    /// wait (PC-4).
    ///
    /// Before the global time was first set, who asks for a pod without an entry waits, even with
    /// [`Timestamp::ZERO`] (PC-6).
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if it would have to wait and the cache is [closed](Self::close), or is
    /// closed meanwhile. That the runtime could not inspect the pod is no error of this call: see [`Reading::error`].
    #[doc(alias = "GetNewerThan")]
    pub fn get_newer_than(&self, uid: &str, min_time: Timestamp) -> Result<Reading<S>, Error> {
        self.get_newer_than_deadline(uid, min_time, Deadline::NEVER)
    }

    /// As [`get_newer_than`](Self::get_newer_than), at most until `deadline` (B15). An answer beats a deadline that has
    /// passed.
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) at the deadline; the text names the pod, how long was waited, and what is known
    /// of the pod. [`Stopped`](crate::ErrorKind::Stopped) as in `get_newer_than`.
    pub fn get_newer_than_deadline(
        &self,
        uid: &str,
        min_time: Timestamp,
        deadline: Deadline,
    ) -> Result<Reading<S>, Error> {
        self.wait_for(uid, min_time, deadline, None)
    }

    /// As [`get_newer_than_deadline`](Self::get_newer_than_deadline), and ended by `stop` within milliseconds: for a pod
    /// worker that is a [`Worker`](crate::worker::Worker), whose drop joins it. An answer that is there beats the stop.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::ErrorKind::Stopped) if the stop is raised, or the cache closed, before an answer is there;
    /// [`Timeout`](crate::ErrorKind::Timeout) at the deadline.
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

    /// Stores what was found out about the pod at `timestamp`, and answers those who wait for this pod and asked for
    /// nothing later than that (PC-3, PC-8). Returns whether it was stored, which is always but with
    /// [`evented_pleg`](PodStatusOptions::evented_pleg) (PC-13).
    ///
    /// Take the timestamp **before** asking the runtime (PL-1). Either of `status` and `error` may be missing, or both.
    #[doc(alias = "Set")]
    pub fn set(
        &self,
        uid: &str,
        status: Option<Arc<S>>,
        error: Option<StatusError>,
        timestamp: Timestamp,
    ) -> bool {
        let entry = Entry {
            status,
            error,
            modified: timestamp,
            observed: timestamp,
        };
        let effect = self.table.lock().set(uid, entry);
        if let Some(bell) = effect.bell {
            bell.ring();
        }
        // After the lock, and after those who wait were woken: the last holder of a status runs the user's code.
        drop(effect.unused);
        effect.is_stored
    }

    /// Forgets the entry of a pod that is gone; wakes nobody (PC-4).
    ///
    /// Who waits for the pod is answered by the next [`update_time`](Self::update_time) that meets their condition.
    #[doc(alias = "Delete")]
    pub fn delete(&self, uid: &str) {
        let deleted = self.table.lock().delete(uid);
        drop(deleted);
    }

    /// Sets the global time: every pod, with or without an entry, is known as of `timestamp`. Answers all who asked for
    /// nothing later than that (PC-5, PC-8).
    ///
    /// It may go backwards (PC-5): who asks then waits again.
    #[doc(alias = "UpdateTime")]
    pub fn update_time(&self, timestamp: Timestamp) {
        let bells = self.table.lock().update_time(timestamp);
        for bell in bells {
            bell.ring();
        }
    }

    /// Says that the runtime agreed with the pod's entry at `timestamp`, and answers those who wait for this pod and asked
    /// for nothing later than that (PC-14). Makes no entry where there is none.
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

    /// Ends every wait, now and from now on, with [`Stopped`](crate::ErrorKind::Stopped) (B15).
    ///
    /// Everything that does not wait goes on as before, a `get_newer_than` whose answer is there included.
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
        let table = self.table.lock();
        let waits = table.waits().map(|(uid, wait)| Waiting {
            uid: Arc::clone(uid),
            min_time: wait.min_time,
            since: wait.since,
            deadline: wait.deadline,
        });
        waits.collect()
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
            return Ok(Reading::new(uid, found));
        }
        let since = self.clock.now();
        let wait = Wait {
            min_time,
            since,
            deadline,
        };
        let ticket = table.subscribe(uid, wait);
        // A stop that was raised already wakes at once, which takes the table's lock.
        drop(table);
        let wake: Arc<dyn Wake> = Arc::new(Belled {
            mutex: Arc::clone(&self.table),
            bell: Arc::clone(&ticket.bell),
        });
        let _registered = stop.map(|stop| stop.register(&wake));
        let mut table = self.table.lock();
        loop {
            if let Some(found) = table.take_answer(&ticket) {
                drop(table);
                return Ok(Reading::new(uid, found));
            }
            let is_stopped = stop.is_some_and(StopToken::is_stopped);
            if is_stopped || table.is_closed() {
                table.leave(&ticket);
                drop(table);
                return Err(if is_stopped {
                    timeout::stopped(uid)
                } else {
                    timeout::closed(uid)
                });
            }
            if self.clock.has_passed(deadline) {
                table.leave(&ticket);
                let (found, global) = (table.get(uid), table.global());
                drop(table);
                let now = self.clock.now();
                return Err(timeout::timed_out(uid, wait, (&found, global), now));
            }
            let bell = &ticket.bell;
            table = self.clock.wait_for_bell(&self.table, bell, table, deadline);
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
        let table = self.table.lock();
        let (pods, waiting) = (table.entries().len(), table.waits().count());
        let (global, closed) = (table.global(), table.is_closed());
        drop(table);
        f.debug_struct("PodStatusCache")
            .field("pods", &pods)
            .field("waiting", &waiting)
            .field("global_time", &global)
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}
