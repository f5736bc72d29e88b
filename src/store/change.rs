//! What became of one object, for those who tell others of it.

use crate::object::{Object, StoredObject};
use crate::store::state::Entry;
use crate::sync::Arc;

/// What became of one object, by the last states of it that decode: what somebody who follows the store knows of it.
///
/// An object that does not decode stays what it last was, until it decodes again or goes (B12).
pub(crate) enum Change<K: Object> {
    /// It was not known, and is.
    Appeared(Arc<StoredObject<K>>),
    /// It is in a new state, or was put in once more as it is.
    Changed {
        old: Arc<StoredObject<K>>,
        new: Arc<StoredObject<K>>,
    },
    /// It was known, and is not any more.
    Gone(Arc<StoredObject<K>>),
}

impl<K: Object> Change<K> {
    pub(super) fn of(before: Option<&Entry<K>>, after: Option<&Entry<K>>) -> Option<Self> {
        let old = before.and_then(Entry::last_good).map(Arc::clone);
        let new = after.and_then(Entry::last_good).map(Arc::clone);
        let decodes = after.is_some_and(|after| after.object().is_some());
        match (old, new) {
            (Some(old), Some(new)) => decodes.then_some(Self::Changed { old, new }),
            (None, Some(new)) => Some(Self::Appeared(new)),
            (Some(old), None) => Some(Self::Gone(old)),
            (None, None) => None,
        }
    }
}
