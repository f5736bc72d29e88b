//! Looks whether an immutable object, whose watch is stopped, is still the same one (B7): one GET, on a thread of its
//! own that is started with the first such question.

use std::collections::VecDeque;
use std::time::Duration;

use super::item::State;
use super::slot::{Found, Item};
use super::works::Works;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::manager::content::{Asked, News, Written};
use crate::manager::kinds::ManagedKind;
use crate::object::Held;
use crate::sync::{Arc, Monitor, Mutex};
use crate::worker::{StopToken, Wake, Worker};

/// How long one check may take. Readers wait at most a second of it; other checks wait behind it.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

type Queue<K> = Arc<Monitor<VecDeque<Item<K>>>>;

/// The manager's worker for checks.
#[derive(Debug)]
pub(crate) struct Checker<K: ManagedKind> {
    queue: Queue<K>,
    helper: Mutex<Helper>,
}

/// The checker's thread.
#[derive(Debug)]
enum Helper {
    NotYet,
    /// Somebody is starting it, under no lock.
    Starting,
    Running(#[expect(dead_code, reason = "kept for its drop, which joins")] Worker),
    /// The manager is going: nothing is started any more.
    Ended,
}

/// Wakes the worker's wait for work when its stop is raised.
struct WakeQueue<K: ManagedKind>(Queue<K>);

impl<K: ManagedKind> Wake for WakeQueue<K> {
    fn wake(&self) {
        drop(self.0.lock());
        self.0.notify_all();
    }
}

impl<K: ManagedKind> Default for Checker<K> {
    fn default() -> Self {
        Self {
            queue: Arc::new(Monitor::default()),
            helper: Mutex::new(Helper::NotYet),
        }
    }
}

impl<K: ManagedKind> Checker<K> {
    /// Puts the item in the queue; starts the thread with the first one.
    pub(crate) fn check(&self, works: &Arc<Works<K>>, item: &Item<K>) {
        let now = works.clock().now();
        works.change(item, |slot| slot.begin_check(now));
        self.queue.lock().push_back(item.clone());
        self.queue.notify_all();
        if let Err(error) = self.ensure_worker(works) {
            let failure = Error::new(
                ErrorKind::Resources,
                format!("checking an immutable object: {error}"),
            );
            let waiting = std::mem::take(&mut *self.queue.lock());
            for item in waiting {
                let asked = item.slot.lock().content().ask();
                settle(works, &item, &asked, Err(failure.clone()));
            }
        }
    }

    /// Ends the thread for good, if there is one: milliseconds, also during a check.
    pub(crate) fn end(&self) {
        let helper = std::mem::replace(&mut *self.helper.lock(), Helper::Ended);
        drop(helper);
        self.queue.lock().clear();
    }

    /// Starts the thread under no lock, so two may want to; the first one does.
    fn ensure_worker(&self, works: &Arc<Works<K>>) -> std::io::Result<()> {
        {
            let mut helper = self.helper.lock();
            if !matches!(*helper, Helper::NotYet) {
                return Ok(());
            }
            *helper = Helper::Starting;
        }
        let queue = Arc::clone(&self.queue);
        let owner = Arc::clone(works);
        let started = Worker::spawn(K::CHECKER, move |stop| work(&owner, &queue, stop));
        let mut helper = self.helper.lock();
        let (next, result) = match started {
            Ok(worker) => (Helper::Running(worker), Ok(())),
            Err(error) => (Helper::NotYet, Err(error)),
        };
        // Ended meanwhile: the thread is joined here, after the lock is released.
        let late = if matches!(*helper, Helper::Ended) {
            next
        } else {
            std::mem::replace(&mut *helper, next)
        };
        drop(helper);
        drop(late);
        result
    }
}

fn work<K: ManagedKind>(works: &Arc<Works<K>>, queue: &Queue<K>, stop: &StopToken) {
    let wake: Arc<dyn Wake> = Arc::new(WakeQueue(Arc::clone(queue)));
    let _registration = stop.register(&wake);
    while let Some(item) = next(works, queue, stop) {
        // Let go, or found by a fresh read, while it was in the queue.
        let Some(asked) = still_asked(&item) else {
            continue;
        };
        let deadline = works.clock().after(CHECK_LIMIT);
        let found = works.gets.get_latest(&item.about.key, deadline, stop);
        if !stop.is_stopped() {
            settle(works, &item, &asked, found);
        }
    }
}

fn still_asked<K: ManagedKind>(item: &Item<K>) -> Option<Asked> {
    let slot = item.slot.lock();
    matches!(slot.state(), State::Rechecking(_)).then(|| slot.content().ask())
}

fn next<K: ManagedKind>(works: &Works<K>, queue: &Queue<K>, stop: &StopToken) -> Option<Item<K>> {
    let mut waiting = queue.lock();
    loop {
        if stop.is_stopped() {
            return None;
        }
        if let Some(item) = waiting.pop_front() {
            return Some(item);
        }
        waiting = works.clock().wait_until(queue, waiting, Deadline::NEVER);
    }
}

/// Tells the item what the check found, unless another read has found it meanwhile.
fn settle<K: ManagedKind>(
    works: &Arc<Works<K>>,
    item: &Item<K>,
    asked: &Asked,
    found: Result<Arc<Held<K>>, Error>,
) {
    let now = works.clock().now();
    let decided = works.change(item, |slot| {
        if !matches!(slot.state(), State::Rechecking(_)) {
            return None;
        }
        let found = match found {
            Ok(object) => slot.found(asked, Some(object), now),
            Err(error) if error.is_not_found() => slot.found(asked, None, now),
            Err(error) => Found {
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
