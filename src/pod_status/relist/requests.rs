//! The requests for relists of single pods: a bounded queue, and the loop's wait for them.

use std::collections::BTreeSet;

use crate::clock::{Clock, Deadline};
use crate::error::debug_of;
use crate::sync::{Arc, Monitor, Rank, Wake};
use crate::worker::{StopToken, WaitEnd};

/// The most pods that wait for a relist on request, as in the kubelet (PL-9).
pub(super) const REQUESTS_MAX: usize = 200;

/// The handle with which a program asks a [`Relist`](super::Relist) loop for a relist of single
/// pods. Cheap to clone; all clones are one queue.
///
/// Any thread may call it, also the [`Runtime`](super::Runtime) within a call of the loop. No call
/// blocks. A handle that is made first can go into the runtime, and to the loop by
/// [`RelistOptions::requests`](super::RelistOptions::requests). It serves one loop at a time.
///
/// # Examples
///
/// ```
/// use kubecache::pod_status::RelistRequests;
///
/// let requests = RelistRequests::new();
/// assert!(requests.request_relist("uid-1")); // the first relist of a loop serves it
/// ```
#[derive(Clone)]
pub struct RelistRequests(Arc<Monitor<RequestQueue>>);

#[derive(Default)]
struct RequestQueue {
    /// The pods to relist, in the order of their first request. Each stands here once.
    relist: Vec<String>,
    /// The pods to inspect even if they look unchanged.
    reinspect: BTreeSet<String>,
    dropped: u64,
    /// Whether the log was told of a drop since the loop last took the requests.
    is_drop_logged: bool,
    /// How many loops have begun to serve the requests.
    loops: u64,
    has_ended: bool,
}

impl Default for RelistRequests {
    fn default() -> Self {
        let queue = Monitor::ranked(Rank::RELIST_REQUESTS, RequestQueue::default());
        Self(Arc::new(queue))
    }
}

impl RelistRequests {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a relist of one pod now, instead of at the end of the period. Returns at once:
    /// whether the request waits.
    ///
    /// A pod worker calls it after each sync that did something, so that its next
    /// [`get_newer_than`](crate::pod_status::PodStatusCache::get_newer_than) does not wait for the
    /// period. The loop asks the runtime for this pod, inspects the pod if it changed, and notes
    /// that the runtime was asked. A pod that the runtime does not find stays as it is until the
    /// next relist of all pods.
    ///
    /// Requests for one pod count as one until the loop takes them. At most 200 pods wait: the
    /// queue drops a further request, counts it and returns false. It also returns false after the
    /// end of the loop. A request is lost if the runtime fails. The next relist of all pods serves
    /// the pod in all these cases.
    #[doc(alias = "RequestRelist")]
    pub fn request_relist(&self, uid: &str) -> bool {
        let mut queue = self.0.lock();
        if queue.has_ended {
            return false;
        }
        if queue.relist.iter().any(|queued| queued == uid) {
            return true;
        }
        if queue.relist.len() >= REQUESTS_MAX {
            queue.dropped = queue.dropped.saturating_add(1);
            let is_first = !std::mem::replace(&mut queue.is_drop_logged, true);
            drop(queue);
            if is_first {
                log::warn!(
                    "relist request queue full ({REQUESTS_MAX} pods); dropping the request for \
                     pod {uid} and further ones, which the next relist serves"
                );
            }
            return false;
        }
        queue.relist.push(uid.to_owned());
        drop(queue);
        self.0.notify_all();
        true
    }

    /// Asks that the next relist of the pod inspects it even if it looks unchanged: after an action
    /// whose result a list does not show, such as new resource limits. Returns at once: whether the
    /// loop will do it.
    ///
    /// This alone brings no relist forward: call
    /// [`request_relist`](Self::request_relist) after it for that. If more than 200 pods wait for
    /// an inspection, or after the end of the loop, it returns false and does nothing. A pod that
    /// the loop does not know is inspected anyway once it is listed.
    #[doc(alias = "RequestReinspect")]
    pub fn request_reinspect(&self, uid: &str) -> bool {
        let mut queue = self.0.lock();
        let has_room = queue.reinspect.len() < REQUESTS_MAX || queue.reinspect.contains(uid);
        let is_taken = has_room && !queue.has_ended;
        if is_taken {
            queue.reinspect.insert(uid.to_owned());
        }
        is_taken
    }

    /// A loop begins to serve the requests, also those from before. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut queue = self.0.lock();
        queue.has_ended = false;
        queue.loops = queue.loops.saturating_add(1);
        queue.loops
    }

    /// The loop of this number has ended: drops all requests and refuses further ones, unless
    /// another loop has begun since.
    pub(super) fn end(&self, number: u64) {
        let mut queue = self.0.lock();
        if queue.loops == number {
            queue.has_ended = true;
            queue.relist.clear();
            queue.reinspect.clear();
        }
    }

    /// How many requests were dropped because the queue was full.
    pub(super) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// Takes the pods to relist.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.lock().take()
    }

    /// Takes the pods to inspect in any case.
    pub(super) fn take_reinspect(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().reinspect)
    }

    /// Puts pods back that were taken and not relisted.
    pub(super) fn put_back(&self, mut uids: Vec<String>) {
        let mut queue = self.0.lock();
        let mut newer = queue.take();
        newer.retain(|uid| !uids.contains(uid));
        uids.append(&mut newer);
        uids.truncate(REQUESTS_MAX);
        queue.relist = uids;
    }

    /// The wake-up of a loop that [waits](Self::wait), for its stop.
    pub(super) fn wake(&self) -> Arc<dyn Wake> {
        Arc::<Monitor<RequestQueue>>::clone(&self.0)
    }

    /// Waits for requests, at most until `due` or the stop. Takes the pods to relist from
    /// `earliest` on. The stop goes first, then the time.
    pub(super) fn wait(
        &self,
        clock: &Clock,
        earliest: Deadline,
        due: Deadline,
        stop: &StopToken,
    ) -> Result<Vec<String>, WaitEnd> {
        let mut queue = self.0.lock();
        loop {
            if stop.is_stopped() {
                return Err(WaitEnd::Stopped);
            }
            let now = clock.now();
            if due.has_passed(now) {
                return Err(WaitEnd::DeadlinePassed);
            }
            let until = if queue.relist.is_empty() {
                due
            } else if earliest.has_passed(now) {
                return Ok(queue.take());
            } else {
                due.earlier(earliest)
            };
            queue = clock.wait_until(&self.0, queue, until);
        }
    }
}

impl RequestQueue {
    fn take(&mut self) -> Vec<String> {
        self.is_drop_logged = false;
        std::mem::take(&mut self.relist)
    }
}

debug_of!([] RelistRequests, |it|
    waiting: { it.0.lock().relist.len() }, dropped: { it.dropped() }, ..);
