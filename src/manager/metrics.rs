//! The events that a manager passes to the program's metrics hook.

use std::borrow::Cow;
use std::time::Duration;

use super::change_detection::ChangeDetection;
use crate::error::Error;
use crate::hooks::Reading;
use crate::reflector::ReflectorMetric;

/// An event of a manager, for a hook that measures it.
///
/// Give a [`Hook`](crate::hooks::Hook) to
/// [`ManagerOptions::metrics`](crate::manager::ManagerOptions::metrics). The feature `metrics` has
/// one that is ready, for Prometheus. An event never has an object or the name of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ManagerMetric {
    /// A manager starts. The hook is called on the thread that makes the manager.
    #[non_exhaustive]
    Started {
        /// The kind of its objects, such as `Secret`.
        kind: Cow<'static, str>,
        /// How the manager learns of changes.
        change_detection: ChangeDetection,
        /// Reads the manager's counts.
        reading: Reading<ManagerState>,
    },
    /// A read has ended: a plain, a fresh or an at-least one. Calls that only look into memory,
    /// such as [`get_cached`](crate::manager::ObjectManager::get_cached), make no event. The hook
    /// is called on the reader's thread, which waits for it.
    #[non_exhaustive]
    Read {
        /// How long the read took.
        took: Duration,
        /// Why it failed, if it did.
        failure: Option<Error>,
    },
    /// An event of one of the manager's reflectors, on that reflector's thread.
    Reflector(ReflectorMetric),
}

/// Counts of a manager's objects, references and watches. Each reading looks at every object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerState {
    /// How many objects are referenced.
    pub objects: usize,
    /// How many references owners hold: an object that two owners reference counts twice.
    pub references: usize,
    /// How many watches are open or being opened: by name, and of whole namespaces. With `Watch`
    /// only.
    pub watches: usize,
    /// How many objects are polled, since there is no room for their watches. With
    /// [`PastLimit::Poll`](crate::manager::PastLimit::Poll) only.
    pub polled: usize,
    /// How many referenced objects the server does not have, by its last answer.
    pub absent: usize,
}
