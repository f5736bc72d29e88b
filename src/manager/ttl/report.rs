//! What a row shows of an object that is fetched.

use super::entry::TtlEntry;
use crate::error::Error;
use crate::manager::entry::table::Moment;
use crate::manager::report::{ObjectReport, ObjectState, failed_so_far};
use crate::object::Object;
use crate::reflector::FORBIDDEN_GRACE;

/// The row of the object of `entry`.
pub(super) fn report<K: Object>(
    entry: &TtlEntry<K>,
    row: ObjectReport,
    at: &Moment<'_>,
) -> ObjectReport {
    let (state, reason) = standing(entry, at);
    let contact = entry.updated();
    let held = entry.object().map(|held| entry.content.summary_of(held));
    let summary = held.or_else(|| entry.found.clone()).unwrap_or_default();
    ObjectReport {
        state,
        reason,
        since_contact: contact.map(|contact| at.now.saturating_duration_since(contact)),
        last_failure: entry.failures.last().cloned(),
        attempts: entry.failures.failures.count(),
        refused: entry.content.refused(),
        ..row.with(summary)
    }
}

fn standing<K: Object>(entry: &TtlEntry<K>, at: &Moment<'_>) -> (ObjectState, String) {
    let failures = &entry.failures.failures;
    let failure = failures.last();
    let text = failure.map(Error::to_string).unwrap_or_default();
    if let Some(undecodable) = &entry.undecodable {
        return (ObjectState::Undecodable, undecodable.to_string());
    }
    if entry.object().is_some() || (entry.found.is_some() && failure.is_none()) {
        return (ObjectState::Synced, text);
    }
    if entry.absent.is_some() {
        return (ObjectState::NotFound, text);
    }
    if failures.refusal(FORBIDDEN_GRACE).is_some() {
        return (ObjectState::Forbidden, text);
    }
    let reason = match failure {
        None => "not read yet".to_owned(),
        Some(failure) => {
            let since = failures.since().unwrap_or(at.now);
            let since = at.now.saturating_duration_since(since);
            failed_so_far(failures.count(), since, failure)
        }
    };
    (ObjectState::Waiting, reason)
}
