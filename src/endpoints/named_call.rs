//! Code of the program that endpoints call by a name: on a thread of its own, one run at a time.

use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use super::page::WebPage;
use crate::clock::later;
use crate::error::Error;
use crate::guard::guard;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::{Wake, Worker, WorkerGroup};

/// The page that a call makes, or why it makes none. A check that passes makes a page, too.
pub(super) type CallOutcome = Result<WebPage, String>;

/// A check or a page of the program. Requests that come while it runs share the run, so that a call
/// that does not return holds one thread.
pub(super) struct NamedCall {
    pub(super) name: String,
    /// What it is, for errors: `check "pods"`.
    pub(super) port: String,
    /// The time after which a run is late.
    pub(super) limit: Duration,
    call: Box<dyn Fn() -> CallOutcome + Send + Sync>,
    present: Mutex<Weak<CallRun>>,
}

impl NamedCall {
    pub(super) fn new(
        kind: &str,
        name: &str,
        limit: Duration,
        call: impl Fn() -> CallOutcome + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            port: format!("{kind} {name:?}"),
            limit,
            call: Box::new(call),
            present: Mutex::ranked(Rank::ENDPOINTS, Weak::new()),
        })
    }

    /// Returns the present run, or starts one in a thread of `threads`. Rings `bell` at its end.
    pub(super) fn run(
        self: &Arc<Self>,
        threads: &WorkerGroup,
        bell: &Arc<dyn Wake>,
        now: Instant,
    ) -> Arc<CallRun> {
        let mut present = self.present.lock();
        if let Some(running) = present.upgrade().filter(|run| run.ended.get().is_none()) {
            return running;
        }
        let run = Arc::new(CallRun {
            begun: now,
            until: later(now, self.limit),
            ended: OnceLock::new(),
        });
        *present = Arc::downgrade(&run);
        drop(present);
        let (this, running, bell) = (Arc::clone(self), Arc::clone(&run), Arc::clone(bell));
        let thread = Worker::spawn(format!("ep-{}", self.name), move |_stop| {
            let outcome = guard(&this.port, || (this.call)());
            let outcome = outcome.unwrap_or_else(|panicked| Err(panicked.to_string()));
            let _first = running.ended.set(outcome);
            bell.wake();
        });
        match thread.map_err(Error::no_thread(&self.port)) {
            Ok(thread) => threads.add(thread),
            Err(error) => drop(run.ended.set(Err(error.to_string()))),
        }
        run
    }
}

/// One run of a call, which the requests that wait for it keep.
pub(super) struct CallRun {
    begun: Instant,
    /// When it is late.
    until: Instant,
    ended: OnceLock<CallOutcome>,
}

impl CallRun {
    /// The outcome, which is a failure once the run is late; `None` before.
    pub(super) fn outcome(&self, now: Instant) -> Option<CallOutcome> {
        self.ended.get().cloned().or_else(|| {
            let took = now.saturating_duration_since(self.begun);
            (now >= self.until).then(|| Err(format!("no answer for {:.1}s", took.as_secs_f64())))
        })
    }
}
