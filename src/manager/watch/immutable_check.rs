//! Checks that the server still has an immutable object whose watch is stopped (B7): one GET each,
//! on short-lived threads in parallel. The same threads confirm absences. Also carries out what
//! entries decide.

use std::time::Duration;

use super::check_queue::CheckQueue;
use super::entry::{WatchAction, WatchedObject};
use super::starts::launch::Keeper;
use super::state_machine::{WatchEffect, WatchState};
use crate::clock::Deadline;
use crate::error::Error;
use crate::guard::guard;
use crate::manager::entry::consistent_reads::begin_read;
use crate::manager::entry::content::ReadPosition;
use crate::manager::registry::RequestContext;
use crate::object::{Object, ResourceVersion, StoredObject, resource_name};
use crate::sync::Arc;
use crate::worker::{StopToken, Worker};

/// How long one check may take, counted from its own request. Readers wait at most a second of it.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// The most checks in flight at once. Only if all of them hang does another one wait.
pub(crate) const CHECKS_MAX: usize = 32;

impl<K: Object> Keeper<K> {
    /// Carries out what an entry decided. Called under no lock; never blocks on the network or on a
    /// thread's end.
    pub(crate) fn perform(self: &Arc<Self>, object: &WatchedObject<K>, action: WatchAction) {
        self.context.end_all(action.ending);
        match action.effect {
            WatchEffect::Start(run) => self.begin(object, run),
            WatchEffect::CheckState => self.check(object),
            WatchEffect::End | WatchEffect::Replace => {
                // Readers that wait for this run look again: another answer is there, or none will
                // come.
                object.state.notify_all();
            }
            WatchEffect::Nothing | WatchEffect::Keep | WatchEffect::Discard => {}
        }
    }

    /// Has the object checked, on a thread of its own while there are not too many.
    pub(crate) fn check(self: &Arc<Self>, object: &WatchedObject<K>) {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        registry.change(object, |entry| entry.begin_check(now));
        self.ask(|queue| queue.waiting.push(Arc::clone(object)));
    }

    /// Has the absences confirmed whose time has come.
    pub(crate) fn confirm_absences(self: &Arc<Self>) {
        let now = self.context.registry.clock().now();
        let mut queue = self.context.checks.lock();
        let all = std::mem::take(&mut queue.later).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = all.partition(|(at, _)| *at <= now);
        let next = later.iter().map(|(at, _)| *at).min();
        queue.later = later;
        drop(queue);
        for (_, object) in due {
            self.ask(|queue| queue.absent.push(object));
        }
        if let Some(next) = next {
            self.context.tend_at(next);
        }
    }

    /// Puts an object in the queue, and starts a thread if there are not too many.
    fn ask(self: &Arc<Self>, enqueue: impl FnOnce(&mut CheckQueue<K>)) {
        let registry = &self.context.registry;
        if !self.enqueue(enqueue) {
            return;
        }
        let (keeper, stop) = (Arc::clone(self), registry.stop.token());
        let name = format!("ck-{}", resource_name::<K>());
        match Worker::spawn(name, move |_| keeper.work(&stop)) {
            Ok(worker) => self.check_threads.add(worker),
            Err(error) => self.refuse(error),
        }
        let mut queue = self.context.checks.lock();
        queue.starting = queue.starting.saturating_sub(1);
        drop(queue);
        self.context.checks.notify_all();
    }

    /// Forgets the checks that wait, and the absences to be confirmed.
    fn clear(&self) {
        let mut queue = self.context.checks.lock();
        let left = queue.take_all();
        let later = std::mem::take(&mut queue.later);
        drop(queue);
        drop((left, later));
    }

    /// Waits until `deadline` for the ends of the checks under way: milliseconds, since the
    /// manager's stop was raised. Returns the names of those that are late.
    pub(crate) fn join_checks(&self, deadline: Deadline) -> Vec<String> {
        self.clear();
        let clock = self.context.registry.clock();
        let mut queue = self.context.checks.lock();
        while queue.starting > 0 && !clock.has_passed(deadline) {
            queue = clock.wait_until(&self.context.checks, queue, deadline);
        }
        drop(queue);
        self.check_threads.join(clock, deadline)
    }

    /// Waits for all ends, except those that [`Self::join_checks`] has named as late.
    pub(crate) fn close_checks(&self) {
        self.clear();
        self.check_threads.close();
    }

    /// Puts an object in the queue. Returns whether one more thread is to be started.
    fn enqueue(&self, enqueue: impl FnOnce(&mut CheckQueue<K>)) -> bool {
        let mut queue = self.context.checks.lock();
        if self.context.registry.stop.token().is_stopped() {
            drop(queue);
            return false;
        }
        enqueue(&mut queue);
        if queue.threads >= CHECKS_MAX {
            return false;
        }
        queue.threads = queue.threads.saturating_add(1);
        queue.starting = queue.starting.saturating_add(1);
        true
    }

    /// The system has no thread to give: those at work take the queue over; without any, the checks
    /// have failed.
    fn refuse(self: &Arc<Self>, why: std::io::Error) {
        let waiting = {
            let mut queue = self.context.checks.lock();
            queue.threads = queue.threads.saturating_sub(1);
            if queue.threads > 0 {
                return;
            }
            queue.take_all()
        };
        let failure = Error::no_thread("the check of an object")(why);
        for object in waiting {
            let read = begin_read(
                &self.context.registry,
                &object,
                &ResourceVersion::most_recent(),
            );
            self.complete_check(&object, &read, Err(failure.clone()));
        }
    }

    /// The body of a checking thread.
    fn work(self: &Arc<Self>, stop: &StopToken) {
        let mut next = self.next(stop, false);
        while let Some((object, is_confirmed)) = next {
            if let Err(error) = guard(
                format_args!("the check of {} {}", resource_name::<K>(), object.key),
                || self.check_object(&object, stop),
            ) {
                log::error!("{error}");
            }
            drop(object);
            next = self.next(stop, is_confirmed);
        }
    }

    /// The next object, or none: the thread is counted out in the same step, so that nothing is
    /// enqueued in between. `has_confirmed`: the last object's absence was confirmed.
    fn next(&self, stop: &StopToken, has_confirmed: bool) -> Option<(WatchedObject<K>, bool)> {
        let mut queue = self.context.checks.lock();
        let confirmed = usize::from(has_confirmed);
        queue.confirming = queue.confirming.saturating_sub(confirmed);
        let next = if stop.is_stopped() {
            None
        } else {
            queue.next()
        };
        if next.is_none() {
            queue.threads = queue.threads.saturating_sub(1);
        }
        next
    }

    /// One check.
    fn check_object(self: &Arc<Self>, object: &WatchedObject<K>, stop: &StopToken) {
        let registry = &self.context.registry;
        let is_check = {
            let entry = object.state.lock();
            let is_check = matches!(entry.state(), WatchState::Rechecking(_));
            // Let go, or found by another read, while it was in the queue.
            if !is_check && !entry.is_absence_due() {
                return;
            }
            is_check
        };
        let read = begin_read(registry, object, &ResourceVersion::most_recent());
        let context = RequestContext {
            key: &object.key,
            clock: registry.clock(),
            deadline: registry.clock().after(CHECK_LIMIT),
            stop,
            is_urgent: is_check,
        };
        let found = registry.request(&context, &read.version);
        if !stop.is_stopped() {
            self.complete_check(object, &read, found);
        }
    }

    /// Tells the entry what the check found. The entry knows whether something newer has come.
    fn complete_check(
        self: &Arc<Self>,
        object: &WatchedObject<K>,
        read: &ReadPosition,
        found: Result<Arc<StoredObject<K>>, Error>,
    ) {
        let now = self.context.registry.clock().now();
        let (mut found, failure) = match found {
            Ok(found) => (Some(found), None),
            Err(error) if error.is_not_found() => (None, None),
            Err(error) => (None, Some(error)),
        };
        let incoming = found.clone();
        let registry = &self.context.registry;
        let (is_news, action) = registry.take_in(object, incoming.as_ref(), |entry| {
            let is_check = matches!(entry.state(), WatchState::Rechecking(_));
            let asked = failure.as_ref().and_then(Error::retry_after);
            let result = match failure {
                None => entry.found(read, &mut found),
                Some(error) if is_check => (true, entry.check_failed(error, now)),
                Some(_) => (false, WatchAction::nothing()),
            };
            if entry.is_absence_due() && entry.is_after_doubt(read) {
                entry.absence.unconfirmed(asked, now);
            }
            result
        });
        self.context.notify(object, is_news);
        self.perform(object, action);
    }

    #[cfg(test)]
    pub(crate) fn is_at_work(&self) -> bool {
        self.context.checks.lock().threads > 0
    }

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn waiting(&self) -> usize {
        self.context.checks.lock().waiting.len()
    }
}
