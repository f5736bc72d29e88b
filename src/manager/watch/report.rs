//! What the watch-based store tells of one object in a table.

use std::time::Instant;

use super::item::{Check, State, Why};
use super::slot::{About, Slot};
use crate::error::{Error, ErrorKind};
use crate::manager::report::{ObjectReport, ObjectState, failed_so_far};
use crate::object::Object;
use crate::reflector::Activity;

/// The row of the object in `slot`, which `owners` reference.
pub(crate) fn report<K: Object>(
    slot: &Slot<K>,
    about: &About,
    owners: usize,
    now: Instant,
) -> ObjectReport {
    let (state, reason) = standing(slot, now);
    let contact = slot.last_contact();
    ObjectReport {
        state,
        reason,
        since_contact: contact.map(|contact| now.saturating_duration_since(contact)),
        watched: matches!(slot.state(), State::Starting | State::Running),
        is_overdue: slot.is_overdue(now),
        last_failure: slot.failure().cloned(),
        attempts: slot.attempts(),
        refused: slot.refused(),
        ..ObjectReport::unknown::<K>(about.key.clone(), owners).with(slot.content().summary())
    }
}

fn standing<K: Object>(slot: &Slot<K>, now: Instant) -> (ObjectState, String) {
    let held = slot.object().is_some();
    let watch = watch_in_words(slot);
    if slot.state() == State::Stopped(Why::NoRoom) {
        return (no_room(slot), failure_text(slot));
    }
    // What was known when an idle watch was stopped is still the last word.
    let idle = slot.state() == State::Stopped(Why::Idle) && slot.was_filled();
    if slot.is_filled() || idle {
        return match slot.undecodable() {
            Some(error) => (ObjectState::Undecodable, error.to_string()),
            None if held => (ObjectState::Synced, watch),
            None => (ObjectState::NotFound, watch),
        };
    }
    if let Some(denied) = slot.denied() {
        return (ObjectState::Forbidden, denied.to_string());
    }
    let reason = match slot.failure() {
        None => {
            let activity = slot.activity().and_then(Activity::words);
            activity.unwrap_or_else(|| "no answer from the server yet".to_owned())
        }
        Some(failure) => {
            let since = now.saturating_duration_since(slot.attempts_since());
            failed_so_far(slot.attempts(), since, failure)
        }
    };
    (ObjectState::Waiting, reason)
}

fn no_room<K: Object>(slot: &Slot<K>) -> ObjectState {
    let kind = slot.failure().map(Error::kind);
    if kind == Some(ErrorKind::TooManyReflectors) {
        ObjectState::TooManyReflectors
    } else {
        ObjectState::Waiting
    }
}

fn watch_in_words<K: Object>(slot: &Slot<K>) -> String {
    match slot.state() {
        State::Stopped(Why::Immutable) => "immutable, so its watch is stopped".to_owned(),
        State::Rechecking(Check::First) => {
            "immutable; checking that it is still the same".to_owned()
        }
        State::Rechecking(Check::Failed | Check::Again) => {
            format!("immutable; the check failed: {}", failure_text(slot))
        }
        State::Stopped(Why::Idle) => "not read for a while, so its watch is stopped".to_owned(),
        State::Stopped(Why::ShutDown { .. }) => "the manager was shut down".to_owned(),
        State::Starting
        | State::Running
        | State::Stopped(Why::NoRoom | Why::Crashed)
        | State::Dropped => failure_text(slot),
    }
}

fn failure_text<K: Object>(slot: &Slot<K>) -> String {
    slot.failure().map(Error::to_string).unwrap_or_default()
}
