//! What the TTL store tells of one object in a table.

use super::record::{Moment, Record};
use crate::error::Error;
use crate::manager::report::{ObjectReport, ObjectState, failed_so_far};
use crate::object::{Object, ObjectKey};

/// The row of the object of `record`, which `owners` reference.
pub(crate) fn report<K: Object>(
    record: &Record<K>,
    key: &ObjectKey,
    owners: usize,
    at: &Moment<'_>,
) -> ObjectReport {
    let (state, reason) = standing(record, at);
    let (content, trouble) = (record.content(), record.trouble());
    let contact = record.updated();
    ObjectReport {
        state,
        reason,
        since_contact: contact.map(|contact| at.now.saturating_duration_since(contact)),
        last_failure: trouble.failure().cloned(),
        attempts: trouble.attempts(),
        refused: content.refused(),
        ..ObjectReport::unknown::<K>(key.clone(), owners).with(content.summary())
    }
}

fn standing<K: Object>(record: &Record<K>, at: &Moment<'_>) -> (ObjectState, String) {
    let trouble = record.trouble();
    let text = trouble.failure().map(Error::to_string).unwrap_or_default();
    if let Some(undecodable) = record.undecodable() {
        return (ObjectState::Undecodable, undecodable.to_string());
    }
    if record.object().is_some() {
        return (ObjectState::Synced, text);
    }
    if record.is_absent() {
        return (ObjectState::NotFound, text);
    }
    if trouble.is_denied() {
        return (ObjectState::Forbidden, text);
    }
    let reason = match trouble.failure() {
        None => "not read yet".to_owned(),
        Some(failure) => {
            let since = trouble.since().unwrap_or(at.now);
            failed_so_far(
                trouble.attempts(),
                at.now.saturating_duration_since(since),
                failure,
            )
        }
    };
    (ObjectState::Waiting, reason)
}
