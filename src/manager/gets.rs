//! The managers' gets of single objects: trimmed as a watch would trim them (B19).

use std::fmt;

use crate::clock::Deadline;
use crate::error::Error;
use crate::guard::guard_call;
use crate::list_watch::Getter;
use crate::object::{Held, Object, ObjectKey, ResourceVersion, resource_name};
use crate::sync::Arc;
use crate::worker::StopToken;

/// Asks the server for single objects, on the caller's thread.
pub(crate) struct Gets<K: Object> {
    getter: Arc<dyn Getter<K>>,
    copy: fn(&K) -> K,
}

impl<K: Object> fmt::Debug for Gets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Getter")
    }
}

impl<K: Object> Gets<K> {
    pub(crate) fn new(getter: Arc<dyn Getter<K>>) -> Self
    where
        K: Clone,
    {
        Self {
            getter,
            copy: K::clone,
        }
    }

    /// The object at `version`, as [`Getter::get`] means it.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met; `Panicked` if the getter did.
    pub(crate) fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<Held<K>>, Error> {
        let port = format_args!("the getter of {} {key}", resource_name::<K>());
        let found = guard_call(port, || self.getter.get(key, version, deadline, stop));
        found.map(|object| self.trimmed(object))
    }

    /// The object as the server has it now, by a consistent read.
    ///
    /// # Errors
    ///
    /// What the server said, or what the transport met.
    pub(crate) fn get_latest(
        &self,
        key: &ObjectKey,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<Held<K>>, Error> {
        self.get(key, &ResourceVersion::most_recent(), deadline, stop)
    }

    /// A plain get keeps what only writers need, for a cache to leave out.
    fn trimmed(&self, mut found: Arc<Held<K>>) -> Arc<Held<K>> {
        if let Some(held) = Arc::get_mut(&mut found) {
            held.trim();
            return found;
        }
        // The getter kept a share of it.
        let mut own = Held::new((self.copy)(&found));
        own.trim();
        Arc::new(own)
    }
}
