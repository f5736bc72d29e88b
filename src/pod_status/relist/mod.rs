//! The relist loop: asks a container runtime once per period for changes, and fills the pod-status
//! cache with them. Between two periods it serves requests for single pods.
//!
//! It is the kubelet's generic PLEG without its events. Each relist lists the runtime's pods,
//! inspects the changed ones, sets their entries, and deletes those that are gone. At last it moves
//! the cache's global time to the time before the list. So a waiter never gets a status older than
//! the time that it asked for. A relist on request does the same for the pods that are asked for,
//! and moves only their observed time.

mod core;
pub(crate) mod driver;
mod go_duration;
mod options;
pub(crate) mod progress;
mod requests;
mod runtime;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;

pub use options::RelistOptions;
pub use progress::RelistReport;
pub use requests::RelistRequests;
pub use runtime::{Runtime, RuntimeError, RuntimePod};

use std::time::Duration;

use super::cache::PodStatusCache;
use super::reading::Timestamp;
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::{Wake, WakeRegistration, Worker};

use driver::RelistLoop;
use progress::Progress;

/// The handle to a running relist loop, whose thread is named `relist`. A drop stops the loop,
/// closes the cache and joins the thread: it blocks until the runtime returns from its present
/// call. [`shutdown`](Self::shutdown) bounds that.
///
/// The loop promises: the list and the inspection behind a cached status began at the entry's time
/// or later. The cache's global time moves only after every changed pod of a list was inspected. If
/// the runtime cannot list, nothing changes. If it cannot inspect a pod, the error becomes the
/// entry of the pod, and each relist inspects the pod again until that succeeds. It also inspects a
/// pod whose entry another thread has deleted or replaced by an error.
///
/// It does not promise to see every state. As in the kubelet, it misses a state that begins and
/// ends between two lists. Inspections run one after the other: a slow one delays the pods after
/// it, the end of the relist, and every waiter for the global time.
///
/// A worker that has changed its pod need not wait for the period: it
/// [asks](RelistRequests::request_relist) for a relist of the pod. A relist of all pods that is due
/// goes first, and answers the requests from before it. One list serves all requests that have come
/// until then. After 100 lists in a row there is at most one each millisecond, and that bounds a
/// flood of requests.
///
/// Times come from the cache's clock. The loop owns the content of the cache. It deletes the entry
/// of every pod that its runtime does not list, even entries of other threads or from before its
/// start. An entry that was set after the list was asked for stays until the next list.
///
/// # Examples
///
/// One worker per pod reads the cache, here over a runtime with one pod. Before each sync it waits
/// for a status newer than the end of its previous sync, so it never acts twice on the same status.
/// The first time it asks with the zero time. After a sync that did something, it asks for a relist
/// of its pod. `examples/pod_status.rs` is a complete program.
///
/// ```
/// use kubecache::clock::Clock;
/// use kubecache::pod_status::{
///     ContainerState, ContainerStatus, PodStatus, PodStatusCache, Relist, RelistOptions, Runtime,
///     RuntimeError, RuntimePod, Timestamp,
/// };
/// use kubecache::worker::StopToken;
/// use std::sync::{Arc, Mutex};
///
/// /// A runtime of one pod, whose container is in this state.
/// #[derive(Clone)]
/// struct OnePod(Arc<Mutex<ContainerState>>);
///
/// impl Runtime for OnePod {
///     type Status = PodStatus;
///
///     fn list_pods(&mut self, _stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
///         let state = *self.0.lock().unwrap();
///         Ok(vec![RuntimePod::new("uid-1", "shop", "web").container("c-1", state)])
///     }
///
///     fn inspect_pod(
///         &mut self,
///         pod: &RuntimePod,
///         _stop: &StopToken,
///     ) -> Result<PodStatus, RuntimeError> {
///         let mut status = PodStatus::default();
///         status.id = pod.uid().to_owned();
///         for (id, state) in pod.containers() {
///             let mut container = ContainerStatus::default();
///             container.id = id.clone();
///             container.name = "web".to_owned();
///             container.state = *state;
///             status.container_statuses.push(container);
///         }
///         Ok(status)
///     }
/// }
///
/// let clock = Clock::system();
/// let cache = PodStatusCache::<PodStatus>::new(clock.clone());
/// let runtime = OnePod(Arc::new(Mutex::new(ContainerState::Created)));
/// let relist = Relist::spawn(runtime.clone(), cache.clone(), RelistOptions::default())?;
///
/// let mut end_of_sync = Timestamp::ZERO;
/// loop {
///     let reading = cache.get_newer_than("uid-1", end_of_sync)?; // or the cache was closed
///     let mut did_something = false;
///     if let Some(error) = reading.error() {
///         println!("error determining status: {error}"); // tried again at the next relist
///     } else if let Some(web) = reading.status().and_then(|status| status.find_container("web")) {
///         // The sync: what the pod is, against what it should be.
///         match web.state {
///             ContainerState::Created => {
///                 *runtime.0.lock().unwrap() = ContainerState::Running;
///                 did_something = true;
///             }
///             ContainerState::Running => break,
///             _ => {}
///         }
///     }
///     end_of_sync = Timestamp::now(&clock);
///     if did_something {
///         relist.request_relist("uid-1");
///     }
/// }
/// relist.shutdown(clock.after(std::time::Duration::from_secs(60)))?;
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias("GenericPLEG", "PLEG"))]
pub struct Relist {
    worker: Worker,
    /// Closes the cache at the stop, so that waits end even if the runtime does not return for
    /// long.
    _closing: Option<WakeRegistration>,
    requests: RelistRequests,
    progress: Arc<Mutex<Progress>>,
    clock: Clock,
    health_threshold: Duration,
}

impl Relist {
    /// Starts a loop that keeps `cache` equal to what `runtime` reports, until the loop is stopped
    /// or dropped.
    ///
    /// Returns at once. The loop's own thread, `relist`, calls the runtime and drops it. One cache
    /// has one loop.
    ///
    /// # Errors
    ///
    /// `Resources` when the system refuses a thread; the cache stays open, and the requests wait,
    /// for another try.
    #[doc(alias = "NewGenericPLEG")]
    pub fn spawn<R: Runtime>(
        runtime: R,
        cache: PodStatusCache<R::Status>,
        options: RelistOptions,
    ) -> Result<Self, Error> {
        let clock = cache.clock().clone();
        let progress = Arc::new(Mutex::ranked(Rank::RELIST_PROGRESS, Progress::default()));
        let health_threshold = options.threshold();
        let closes = options.close_cache.then(|| cache.clone());
        let requests = options.requests.clone().unwrap_or_default();
        let shared = (requests.clone(), Arc::clone(&progress));
        let driver = RelistLoop::new(runtime, cache, options, shared);
        let worker = Worker::spawn("relist", move |stop| driver.run(stop))
            .map_err(Error::no_thread("the relist loop"))?;
        let closing = closes.map(|cache| {
            let close: Arc<dyn Wake> = Arc::new(move || cache.close());
            worker.token().register(&close)
        });
        Ok(Self {
            worker,
            _closing: closing,
            requests,
            progress,
            clock,
            health_threshold,
        })
    }

    /// Asks for a relist of one pod now, as [`RelistRequests::request_relist`] does. Returns at
    /// once: whether the request waits.
    pub fn request_relist(&self, uid: &str) -> bool {
        self.requests.request_relist(uid)
    }

    /// Returns the handle for requests, for workers and other threads.
    pub fn requests(&self) -> &RelistRequests {
        &self.requests
    }

    /// Whether the runtime answers. Never blocks.
    ///
    /// # Errors
    ///
    /// `NotSynced` before the first successful list: `pleg has yet to be successful`. `Timeout`
    /// when the last one is older than the threshold: `pleg was last seen active 3m0.001s ago;
    /// threshold is 3m0s`. Its `source` has the cause: the call into the runtime that does not
    /// return, and the failure of the last relist. `Stopped` when the loop has ended.
    #[doc(alias = "Healthy")]
    pub fn health(&self) -> Result<(), Error> {
        if self.worker.is_finished() {
            return Err(Error::stopped("relist loop"));
        }
        let now = self.clock.now();
        self.progress.lock().health(now, self.health_threshold)
    }

    /// Returns when the loop asked for its last successful list: [`Timestamp::ZERO`] before the
    /// first one. Never blocks.
    pub fn last_relist(&self) -> Timestamp {
        let last = self.progress.lock().report.last_relist;
        last.map_or(Timestamp::ZERO, Timestamp::from)
    }

    /// Returns the counters and times of the loop. Never blocks.
    pub fn report(&self) -> RelistReport {
        let dropped_requests = self.requests.dropped();
        RelistReport {
            dropped_requests,
            ..self.progress.lock().report
        }
    }

    /// Asks the loop to end, and closes the cache unless [an option](RelistOptions::close_cache)
    /// says otherwise; returns at once.
    ///
    /// The loop ends within milliseconds, or when a running call into the runtime returns.
    pub fn stop(&self) {
        self.worker.stop();
    }

    /// Whether its thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Stops the loop and waits for its end, at most until `deadline`.
    ///
    /// # Errors
    ///
    /// `Timeout` when the runtime does not return from a call, or from its drop. The message names
    /// the thread, and its `source` the call. The thread then ends by itself when the call returns,
    /// and drops the result.
    pub fn shutdown(self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.clock);
        self.stop();
        let asked = self.clock.now();
        if let Ok(true) = self.worker.ending().wait_until(&self.clock, deadline) {
            return Ok(());
        }
        let now = self.clock.now();
        let waited = now.saturating_duration_since(asked);
        let name = self.worker.name();
        let text = format!("thread {name} has not ended {waited:.1?} after its stop");
        let late = Error::new(ErrorKind::Timeout, text);
        let late = self.progress.lock().because(late, now);
        self.worker.abandon();
        Err(late)
    }
}

debug_of!([] Relist, |it| worker: it.worker, report: it.report(), ..);
