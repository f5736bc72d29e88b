//! Looks whether an immutable object, whose watch is stopped, is still the same one (B7): one GET
//! each, side by side,
//! on short-lived threads.

use std::time::Duration;

use super::item::State;
use super::slot::{Found, Item};
use super::works::Works;
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::manager::content::{Asked, News, Written};
use crate::object::{Held, Object, resource_name};
use crate::sync::{Arc, Mutex};
use crate::worker::{StopSource, StopToken, Worker};

/// How long one check may take, counted from its own request. Readers wait at most a second of it.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// Checks under way at once. As many that hang are what it takes to hold up another.
pub(crate) const CHECKS_MAX: usize = 32;

/// The manager's checks: those under way, and those that wait for a thread.
#[derive(Debug)]
pub(crate) struct Checker<K: Object> {
    checks: Arc<Mutex<Checks<K>>>,
    stop: StopSource,
}

#[derive(Debug)]
struct Checks<K: Object> {
    waiting: Vec<Item<K>>,
    /// Threads that look for work, each before it is started and until it has found none.
    threads: usize,
    /// The threads, for their end. Those that have ended are let go with the next start.
    workers: Vec<Worker>,
    /// The manager is going: nothing is checked any more.
    ended: bool,
}

/// A thread's place among [`CHECKS_MAX`], given back whatever ends the thread.
struct Place<K: Object> {
    checks: Arc<Mutex<Checks<K>>>,
    is_left: bool,
}

impl<K: Object> Default for Checker<K> {
    fn default() -> Self {
        let checks = Checks {
            waiting: Vec::new(),
            threads: 0,
            workers: Vec::new(),
            ended: false,
        };
        Self {
            checks: Arc::new(Mutex::new(checks)),
            stop: StopSource::new(),
        }
    }
}

impl<K: Object> Checker<K> {
    /// Has the item checked, on a thread of its own while there are not too many.
    pub(crate) fn check(&self, works: &Arc<Works<K>>, item: &Item<K>) {
        let now = works.clock().now();
        works.change(item, |slot| slot.begin_check(now));
        let Some(place) = self.enqueue(item) else {
            return;
        };
        let (owner, stop) = (Arc::clone(works), self.stop.token());
        match Worker::spawn(format!("ck-{}", resource_name::<K>()), move |_| {
            place.work(&owner, &stop);
        }) {
            Ok(worker) => self.keep(worker),
            Err(error) => self.refuse(works, &error),
        }
    }

    /// Ends the checks that are under way and begins none any more; returns at once.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut checks = self.checks.lock();
            checks.ended = true;
            std::mem::take(&mut checks.waiting)
        };
        drop(waiting);
        self.stop.stop();
    }

    /// The same, and waits for the threads' ends: milliseconds.
    pub(crate) fn end(&self) {
        self.stop();
        let workers = std::mem::take(&mut self.checks.lock().workers);
        drop(workers);
    }

    /// Puts the item in the queue; a place for one more thread, if one is to be started.
    fn enqueue(&self, item: &Item<K>) -> Option<Place<K>> {
        let mut checks = self.checks.lock();
        if checks.ended {
            return None;
        }
        checks.waiting.push(item.clone());
        if checks.threads >= CHECKS_MAX {
            return None;
        }
        checks.threads = checks.threads.saturating_add(1);
        Some(Place {
            checks: Arc::clone(&self.checks),
            is_left: false,
        })
    }

    /// Owns a thread, and lets go of those that have ended.
    fn keep(&self, worker: Worker) {
        let over = {
            let mut checks = self.checks.lock();
            if checks.ended {
                // Ended meanwhile: joined here, after the lock is released.
                vec![worker]
            } else {
                let (over, at_work) = std::mem::take(&mut checks.workers)
                    .into_iter()
                    .partition(Worker::is_finished);
                checks.workers = at_work;
                checks.workers.push(worker);
                over
            }
        };
        drop(over);
    }

    /// The system has no thread to give: those at work take the queue over; without any, the checks
    /// have failed.
    fn refuse(&self, works: &Arc<Works<K>>, why: &std::io::Error) {
        let waiting = {
            let mut checks = self.checks.lock();
            if checks.threads > 0 {
                return;
            }
            std::mem::take(&mut checks.waiting)
        };
        let text = format!("starting the check of an immutable object: {why}");
        let failure = Error::new(ErrorKind::Resources, text);
        for item in waiting {
            let asked = item.slot.lock().content().ask();
            settle(works, &item, &asked, Err(failure.clone()));
        }
    }

    #[cfg(test)]
    pub(crate) fn is_at_work(&self) -> bool {
        self.checks.lock().threads > 0
    }

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn waiting(&self) -> usize {
        self.checks.lock().waiting.len()
    }
}

impl<K: Object> Place<K> {
    fn work(mut self, works: &Arc<Works<K>>, stop: &StopToken) {
        while let Some(item) = self.next(stop) {
            look_at(works, &item, stop);
        }
    }

    /// The next item, or none: the place is left in the same step, so that nothing is enqueued in
    /// between.
    fn next(&mut self, stop: &StopToken) -> Option<Item<K>> {
        let mut checks = self.checks.lock();
        let next = if stop.is_stopped() {
            None
        } else {
            take_most_urgent(&mut checks.waiting)
        };
        if next.is_none() {
            checks.threads = checks.threads.saturating_sub(1);
            self.is_left = true;
        }
        next
    }
}

impl<K: Object> Drop for Place<K> {
    fn drop(&mut self) {
        if !self.is_left {
            let mut checks = self.checks.lock();
            checks.threads = checks.threads.saturating_sub(1);
        }
    }
}

/// The first item that somebody waits for, else the first.
pub(crate) fn take_most_urgent<K: Object>(waiting: &mut Vec<Item<K>>) -> Option<Item<K>> {
    let urgent = waiting
        .iter()
        .position(|item| item.about.demand.is_waited_for());
    let first = (!waiting.is_empty()).then_some(0);
    urgent.or(first).map(|index| waiting.remove(index))
}

/// One check. Whatever panics in it is a check that failed.
fn look_at<K: Object>(works: &Arc<Works<K>>, item: &Item<K>, stop: &StopToken) {
    // Let go, or found by a fresh read, while it was in the queue.
    let Some(asked) = still_asked(item) else {
        return;
    };
    let key = &item.about.key;
    let deadline = works.clock().after(CHECK_LIMIT);
    let port = format_args!("the check of {} {key}", resource_name::<K>());
    let found = guard_call(port, || works.gets.get_latest(key, deadline, stop));
    if !stop.is_stopped() {
        settle(works, item, &asked, found);
    }
}

fn still_asked<K: Object>(item: &Item<K>) -> Option<Asked> {
    let slot = item.slot.lock();
    matches!(slot.state(), State::Rechecking(_)).then(|| slot.content().ask())
}

/// Tells the item what the check found, unless another read has found it meanwhile.
fn settle<K: Object>(
    works: &Arc<Works<K>>,
    item: &Item<K>,
    asked: &Asked,
    found: Result<Arc<Held<K>>, Error>,
) {
    let now = works.clock().now();
    let (mut object, failure) = match found {
        Ok(object) => (Some(object), None),
        Err(error) if error.is_not_found() => (None, None),
        Err(error) => (None, Some(error)),
    };
    let decided = works.change(item, |slot| {
        if !matches!(slot.state(), State::Rechecking(_)) {
            return None;
        }
        let found = match failure {
            None => slot.found(asked, &mut object, now),
            Some(error) => Found {
                action: slot.not_checked(error, now),
                written: Written::changed(),
            },
        };
        Some(found)
    });
    let Some(Found { written, action }) = decided else {
        return;
    };
    item.slot.notify_all();
    if written.news == News::Changed {
        works.changes.tell(&item.about.key);
    }
    works.perform(item, action);
}
