//! What a row shows of a watched object.

use std::time::Instant;

use super::entry::WatchEntry;
use super::state_machine::{Check, State, Why};
use crate::error::{Error, ErrorKind};
use crate::manager::report::{ObjectReport, ObjectState, failed_so_far};
use crate::object::Object;
use crate::reflector::Activity;

/// The row of a watched object.
pub(super) fn report<K: Object>(
    entry: &WatchEntry<K>,
    row: ObjectReport,
    now: Instant,
) -> ObjectReport {
    let (state, reason) = standing(entry, now);
    let object = entry.content.object();
    let summary = object.map(|object| entry.content.summary_of(object));
    let contact = entry.contact;
    ObjectReport {
        state,
        reason,
        since_contact: contact.map(|contact| now.saturating_duration_since(contact)),
        watched: entry.is_at_work(),
        is_overdue: entry.is_overdue(now),
        last_failure: entry.failure().cloned(),
        attempts: entry.failures.count(),
        refused: entry.content.refused(),
        ..row.with(summary.unwrap_or_default())
    }
}

fn standing<K: Object>(entry: &WatchEntry<K>, now: Instant) -> (ObjectState, String) {
    let held = entry.content.object().is_some();
    let watch = watch_in_words(entry);
    if entry.state() == State::Stopped(Why::NoRoom) {
        return (no_room(entry), failure_text(entry));
    }
    // What was known when an idle watch was stopped is still the last word.
    let idle = entry.state() == State::Stopped(Why::Idle) && entry.was_filled();
    if entry.is_filled() || idle {
        return match entry.content.undecodable() {
            Some(error) => (ObjectState::Undecodable, error.to_string()),
            None if held => (ObjectState::Synced, watch),
            None => (ObjectState::NotFound, watch),
        };
    }
    if let Some(denied) = &entry.denied {
        return (ObjectState::Forbidden, denied.to_string());
    }
    let reason = match entry.failure() {
        None => {
            let activity = entry.activity().and_then(Activity::words);
            activity.unwrap_or_else(|| "no answer from the server yet".to_owned())
        }
        Some(failure) => {
            let since = now.saturating_duration_since(entry.attempts_since());
            failed_so_far(entry.failures.count(), since, failure)
        }
    };
    (ObjectState::Waiting, reason)
}

fn no_room<K: Object>(entry: &WatchEntry<K>) -> ObjectState {
    let kind = entry.failure().map(Error::kind);
    if kind == Some(ErrorKind::TooManyReflectors) {
        ObjectState::TooManyReflectors
    } else {
        ObjectState::Waiting
    }
}

fn watch_in_words<K: Object>(entry: &WatchEntry<K>) -> String {
    match entry.state() {
        State::Stopped(Why::Immutable) => "immutable, so its watch is stopped".to_owned(),
        State::Rechecking(Check::First) => {
            "immutable; checking that it is still the same".to_owned()
        }
        State::Rechecking(Check::Failed | Check::Again) => {
            format!("immutable; the check failed: {}", failure_text(entry))
        }
        State::Stopped(Why::Idle) => "not read for a while, so its watch is stopped".to_owned(),
        State::Stopped(Why::ShutDown { .. }) => "the manager was shut down".to_owned(),
        State::Starting
        | State::Running
        | State::Stopped(Why::NoRoom | Why::Crashed)
        | State::Dropped => failure_text(entry),
    }
}

fn failure_text<K: Object>(entry: &WatchEntry<K>) -> String {
    entry.failure().map(Error::to_string).unwrap_or_default()
}
