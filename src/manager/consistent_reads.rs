//! Reads that go past memory, to the server: the most recent state, or one not older than a version
//! (R11). A server that has not come as far as the version is asked again.

use std::cmp::Ordering;
use std::time::Duration;

use super::entry::content::ReadPosition;
use super::entry::object_entry::{EntryState, ObjectEntry};
use crate::clock::Deadline;
use crate::error::Error;
use crate::failures::Failures;
use crate::manager::cached::Cached;
use crate::manager::registry::Registry;
use crate::object::{Object, Reason, ResourceVersion, Status, StoredObject};
use crate::policy::{FIRST_WAIT, PolicyRequest, doubled};
use crate::reflector::asked_wait;
use crate::sync::Arc;
use crate::worker::StopToken;

/// The longest pause between two requests. A server whose cache is behind waits some seconds before
/// it answers so.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The object in a state not older than `version`, or in the most recent one if that is empty.
///
/// `complete` stores the answer of the read and returns it, or a newer state that came in
/// meanwhile. Its last argument is whether the reader's own deadline ended the request.
///
/// # Errors
///
/// See [`ObjectManager::get_fresh`](crate::manager::ObjectManager::get_fresh) and
/// [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least).
pub(crate) fn read_from_server<K: Object, S: EntryState<K>>(
    registry: &Registry<K, S>,
    entry: &ObjectEntry<S>,
    version: &ResourceVersion,
    deadline: Deadline,
    complete: impl FnOnce(
        &ReadPosition,
        Result<Arc<StoredObject<K>>, Error>,
        bool,
    ) -> Result<Cached<K>, Error>,
) -> Result<Cached<K>, Error> {
    let stop = registry.stop.token();
    let context = registry.request_by(&entry.key, deadline, &stop);
    let since = context.clock.now();
    let (mut failures, mut pause) = (Failures::none_since(since), None);
    let mut until = Deadline::at(since);
    loop {
        if !version.is_empty()
            && let Some(answer) = wait_in_memory(registry, entry, version, until, &stop)
        {
            return answer;
        }
        let read = begin_read(registry, entry, version);
        let timed_out = |failures: &Failures| {
            let what = context.describe::<K>(&read.version);
            Err(failures.timed_out(&what, context.clock.now()))
        };
        let first = failures.count() == 0;
        if !first && !stop.is_stopped() && context.clock.has_passed(deadline) {
            return complete(&read, timed_out(&failures), true);
        }
        if first || stop.is_stopped() {
            context.check::<K>(&read.version)?;
        }
        let found =
            registry.request_patiently(PolicyRequest::Read, &context, &read.version, &|_| ());
        let error = match found {
            Err(error) if !error.is_not_found() => error,
            found => return complete(&read, found, false),
        };
        if context.was_ended_by_deadline(&error) {
            // The server's earlier error says more than the end of the time.
            let error = failures.last().cloned().unwrap_or(error);
            failures.add(error, since, context.clock.now());
            return complete(&read, timed_out(&failures), true);
        }
        if !version.is_empty() && is_about_the_version(&error) {
            return Err(error);
        }
        if version.is_empty() || !is_too_large(&error) {
            return complete(&read, Err(error), false);
        }
        let asked = asked_wait(&error);
        let wait = asked.unwrap_or_else(|| *pause.insert(doubled(pause, FIRST_WAIT, PAUSE_MAX)));
        failures.add(error, since, context.clock.now());
        until = deadline.earlier(context.clock.after(wait));
    }
}

/// Begins a read whose answer is older than neither `version` nor the known state.
pub(crate) fn begin_read<K: Object, S: EntryState<K>>(
    registry: &Registry<K, S>,
    entry: &ObjectEntry<S>,
    version: &ResourceVersion,
) -> ReadPosition {
    let began = registry.clock().now();
    let mut state = entry.state.lock();
    let content = state.content();
    let known = content.known_version();
    let behind = version.is_older_than(known);
    let version = if behind { known } else { version };
    content.begin_read(version.clone(), began)
}

/// The answer from memory that is not older than `version`; waits for it until `until` or the
/// stop.
fn wait_in_memory<K: Object, S: EntryState<K>>(
    registry: &Registry<K, S>,
    entry: &ObjectEntry<S>,
    version: &ResourceVersion,
    until: Deadline,
    stop: &StopToken,
) -> Option<Result<Cached<K>, Error>> {
    let clock = registry.clock();
    let mut state = entry.state.lock();
    loop {
        let answer = state.reached(version, &registry.context(&entry.key));
        if answer.is_some() || clock.has_passed(until) || stop.is_stopped() {
            return answer;
        }
        if state.is_detached() {
            // The entry gets no more writes, and a shutdown does not notify it.
            drop(state);
            stop.wait_until(clock, until);
            return None;
        }
        state = clock.wait_until(&entry.state, state, until);
    }
}

/// Whether the server said that the version lies in its future (RF-13).
fn is_too_large(error: &Error) -> bool {
    let status = error.status();
    status.is_some_and(Status::is_too_large_resource_version)
}

/// Whether the server does not understand the version that a caller asks for, which says nothing
/// about the object.
fn is_about_the_version(error: &Error) -> bool {
    let reason = error.status().map(Status::reason);
    matches!(reason, Some(Reason::BadRequest | Reason::Invalid))
}

/// Whether a state known up to `position` is not older than `version`. Versions that are not
/// numbers have no order: only the same one is as new.
pub(crate) fn is_reached(position: &ResourceVersion, version: &ResourceVersion) -> bool {
    let order = position.numeric_order(version);
    position == version || order.is_some_and(Ordering::is_ge)
}
