//! The relist loop's thread: asks the runtime and fills the cache once per period, serves requests
//! for single pods in between, until it is stopped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::core::{Inspection, Records};
use super::options::RelistOptions;
use super::progress::Progress;
use super::requests::RelistRequests;
use super::runtime::{Runtime, RuntimePod};
use crate::clock::{Clock, Deadline, later};
use crate::error::{Error, ErrorKind};
use crate::failures::{FailureLog, FailureReporter};
use crate::guard::{guard, guard_logged};
use crate::pod_status::{CachedStatus as _, PodStatusCache, StatusError, Timestamp};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopToken, WaitEnd};

/// The time for which a relist on request counts. While requests come faster than this for long,
/// they gather in the queue, where each pod counts once, and one list serves them.
pub(super) const SPACING: Duration = Duration::from_millis(1);

/// How many relists on request may come without a pause.
pub(super) const BURST: u32 = 100;

/// The loop and its resources.
pub(crate) struct RelistLoop<R: Runtime> {
    runtime: R,
    cache: PodStatusCache<R::Status>,
    options: RelistOptions,
    clock: Clock,
    records: Records,
    requests: RelistRequests,
    /// The number that the requests gave to this loop.
    number: u64,
    /// Whether its thread runs it: the system may refuse the thread.
    has_run: bool,
    /// The last good status of pods whose inspection fails. The cache holds an error instead, and
    /// the next good status may keep parts of it (PL-5).
    last_good: HashMap<String, Arc<R::Status>>,
    progress: Arc<Mutex<Progress>>,
    /// Logs relists that fail.
    log: FailureReporter,
}

impl<R: Runtime> RelistLoop<R> {
    pub(crate) fn new(
        runtime: R,
        cache: PodStatusCache<R::Status>,
        options: RelistOptions,
        (requests, progress): (RelistRequests, Arc<Mutex<Progress>>),
    ) -> Self {
        let clock = cache.clock().clone();
        let number = requests.begin();
        Self {
            runtime,
            cache,
            options,
            clock,
            records: Records::default(),
            requests,
            number,
            has_run: false,
            last_good: HashMap::new(),
            progress,
            log: FailureLog::default().reporter("kubecache::pod_status", "pod", "relist", "pods"),
        }
    }

    /// Relists all pods at once, and then a period after each end (WP-8), until the stop is raised.
    pub(super) fn run(mut self, stop: &StopToken) {
        self.has_run = true;
        let held = self.cache.get_all().into_iter();
        self.records = Records::knowing(held.map(|(uid, _)| uid.to_string()));
        let _registered = stop.register(&self.requests.wake());
        while !stop.is_stopped() {
            if self.round(stop) || self.serve(stop) == WaitEnd::Stopped {
                return;
            }
        }
    }

    /// Relists all pods and records the end of that. Returns whether the stop cut it off.
    pub(crate) fn round(&mut self, stop: &StopToken) -> bool {
        // Before the time is taken: the list then serves these requests, and the global time comes
        // after the times for which their workers wait (PL-9).
        let requested = self.requests.take();
        let began = self.clock.now();
        // The runtime and the status are code of the program; a panic costs only one relist.
        let relisted = guarded(|| self.relist(began, stop));
        if relisted.is_err() {
            self.requests.put_back(requested);
        }
        self.end(began, relisted)
    }

    /// Relists the pods that are asked for, until the next relist of all is due, which goes first.
    fn serve(&mut self, stop: &StopToken) -> WaitEnd {
        let due = self.clock.after(self.options.period);
        let burst = SPACING.saturating_mul(BURST);
        // The time up to which the relists on request count.
        let mut counted = self.clock.now();
        loop {
            let earliest = Deadline::at(counted.checked_sub(burst).unwrap_or(counted));
            let uids = match self.requests.wait(&self.clock, earliest, due, stop) {
                Ok(uids) => uids,
                Err(end) => return end,
            };
            counted = later(counted.max(self.clock.now()), SPACING);
            self.relist_requested(&uids, due, stop);
        }
    }

    /// Relists single pods. A failure is left to the next relist of all (PL-9).
    pub(crate) fn relist_requested(&mut self, uids: &[String], due: Deadline, stop: &StopToken) {
        let began = self.clock.now();
        if let Err(error) = guarded(|| self.relist_pods(uids, began, due, stop)) {
            self.progress.lock().count(|report| &mut report.failures);
            self.log("relisting pods on request", &error);
            let_go(error);
        }
        self.end_call();
    }

    fn relist_pods(
        &mut self,
        uids: &[String],
        asked: Instant,
        due: Deadline,
        stop: &StopToken,
    ) -> Result<(), StatusError> {
        self.begin_call(format!("listing {} of its pods on request", uids.len()));
        let found = self.runtime.find_pods(uids, stop);
        self.end_call();
        if stop.is_stopped() {
            return Ok(());
        }
        let pods = found.map_err(StatusError::from)?;
        self.request(&pods);
        for (is_due, pod) in self.records.found(pods, uids) {
            let uid = pod.uid().to_owned();
            if due.has_passed(self.clock.now()) {
                self.requests.put_back(vec![uid]);
                continue;
            }
            if is_due {
                self.inspect(pod, asked, stop);
            }
            if stop.is_stopped() {
                return Ok(());
            }
            // No global time comes with this, so an unchanged pod must be noted as seen.
            self.cache.set_observed_time(&uid, Timestamp::from(asked));
            self.progress.lock().count(|report| &mut report.requested);
        }
        Ok(())
    }

    /// Runs one relist; `None` if the stop cut it off. It takes its time before it asks the runtime
    /// (PL-1).
    fn relist(&mut self, asked: Instant, stop: &StopToken) -> Result<Option<()>, StatusError> {
        self.begin_call("listing its pods".to_owned());
        let listed = self.runtime.list_pods(stop);
        self.end_call();
        if stop.is_stopped() {
            return Ok(None);
        }
        let pods = listed.map_err(StatusError::from)?;
        self.progress.lock().listed(asked);
        self.request(&pods);
        let due = self.records.listed(pods);
        let is_listed = |uid: &str| self.records.knows(uid);
        let gone = self.cache.take_unlisted(Timestamp::from(asked), is_listed);
        let forgotten = self.last_good.extract_if(|uid, _| !is_listed(uid));
        let forgotten: Vec<_> = forgotten.collect();
        gone.into_iter().for_each(let_go);
        forgotten.into_iter().for_each(let_go);
        for pod in due {
            if stop.is_stopped() {
                return Ok(None);
            }
            self.inspect(pod, asked, stop);
        }
        if stop.is_stopped() {
            return Ok(None);
        }
        // After all pods, so that a waiter for this time finds the relist's results (PL-4).
        self.cache.update_time(Timestamp::from(asked));
        Ok(Some(()))
    }

    /// Notes the inspections that the program asks for, and those of pods without a status. Another
    /// thread may have deleted it or set an error, for which the global time would vouch.
    fn request(&mut self, pods: &[RuntimePod]) {
        let uids = pods.iter().map(RuntimePod::uid);
        let spoiled = uids.filter(|uid| !self.cache.has_status(uid));
        let asked = self.requests.take_reinspect().into_iter();
        let all = asked.chain(spoiled.map(str::to_owned));
        self.records.request(all);
    }

    /// Inspects a pod and sets its entry, even if the inspection failed (PL-2). The entry has the
    /// time of the list, because the runtime may take the containers from there.
    fn inspect(&mut self, pod: RuntimePod, listed: Instant, stop: &StopToken) {
        let timestamp = Timestamp::from(listed);
        let (uid, namespace, name) = (pod.uid().to_owned(), pod.namespace(), pod.name());
        let what = format!("inspecting pod {namespace}/{name} ({uid})");
        self.begin_call(what.clone());
        let inspected = guarded(|| {
            let mut status = self.runtime.inspect_pod(&pod, stop)?;
            if let Some(before) = self.last_good(&uid) {
                status.keep_from(&before);
            }
            Ok(status)
        });
        self.end_call();
        if stop.is_stopped() {
            return;
        }
        match inspected {
            Ok(status) => {
                self.last_good.remove(&uid);
                let status = Some(Arc::new(status));
                let end = if self.cache.set(&uid, status, None, timestamp) {
                    Inspection::Stored
                } else {
                    Inspection::Refused
                };
                self.records.inspected(pod, end);
            }
            Err(error) => {
                if let Some(good) = self.last_good(&uid) {
                    self.last_good.insert(uid.clone(), good);
                }
                let why = text_of(&error);
                if self.records.inspected(pod, Inspection::Failed) {
                    log::warn!("{what}: {why}");
                } else {
                    log::debug!("{what}: {why}");
                }
                self.progress
                    .lock()
                    .count(|report| &mut report.failed_inspections);
                // A cache that refuses it has something newer. The pod is inspected again anyway.
                let _stored = self.cache.set(&uid, None, Some(error), timestamp);
            }
        }
    }

    /// The last status of the pod that an inspection found.
    fn last_good(&self, uid: &str) -> Option<Arc<R::Status>> {
        let reading = self.cache.get(uid);
        let stored = reading.is_stored() && reading.error().is_none();
        let cached = reading.status().filter(|_| stored).cloned();
        cached.or_else(|| self.last_good.get(uid).cloned())
    }

    /// Takes the end of a relist, and returns whether the stop ended it.
    fn end(&mut self, began: Instant, relisted: Result<Option<()>, StatusError>) -> bool {
        let failure = match relisted {
            Ok(None) => return true,
            Ok(Some(())) => None,
            Err(error) => Some(error),
        };
        match &failure {
            None => drop(self.log.recovered()),
            Some(failure) => self.log("relisting pods", failure),
        }
        let took = self.clock.now().saturating_duration_since(began);
        let pods = self.records.count();
        // The earlier error is a value of the program, so it is dropped after the lock.
        let before = self.progress.lock().relisted(failure, took, pods);
        let_go(before);
        false
    }

    fn log(&mut self, what: &str, failure: &StatusError) {
        // A runtime's error has a kind only if it is an error of this crate.
        let kind = failure.downcast_ref::<Error>().map(Error::kind);
        let kind = kind.unwrap_or(ErrorKind::Api);
        let error = Error::new(kind, format!("{what}: {}", text_of(failure)));
        self.log.failed(&error, self.clock.now());
    }

    fn begin_call(&self, call: String) {
        let now = self.clock.now();
        self.progress.lock().call = Some((call, now));
    }

    fn end_call(&self) {
        self.progress.lock().call = None;
    }
}

/// Ends the waits before the drop of the runtime. That is code of the program, which may take long,
/// or wait for a thread that waits on the cache. A loop that never ran leaves them to another try.
impl<R: Runtime> Drop for RelistLoop<R> {
    fn drop(&mut self) {
        if !self.has_run {
            return;
        }
        self.requests.end(self.number);
        if self.options.close_cache {
            self.cache.close();
        }
        self.begin_call("shutting down".to_owned());
    }
}

/// Runs code that calls the program's, and turns its panic into an error.
fn guarded<T>(run: impl FnOnce() -> Result<T, StatusError>) -> Result<T, StatusError> {
    guard("the runtime", run).unwrap_or_else(|error| Err(Arc::new(error)))
}

/// The text of a program's error. If that panics, only the text is lost.
fn text_of(error: &StatusError) -> String {
    guard("the text of an error of the runtime", || error.to_string())
        .unwrap_or_else(|error| error.to_string())
}

/// Drops a value of the program's, whose drop may panic.
fn let_go<T>(value: T) {
    guard_logged("the drop of a value of the runtime", || drop(value));
}
