//! What a manager tells the program's metrics hook.

use std::borrow::Cow;
use std::time::Duration;

use super::change_detection::ChangeDetection;
use crate::error::Error;
use crate::hooks::Reading;
use crate::reflector::ReflectorMetric;

/// What a hook is told that measures managers.
///
/// Give a [`Hook`](crate::Hook) to
/// [`ManagerOptions::metrics`](crate::manager::ManagerOptions::metrics). The feature `metrics` has
/// one that is ready, for Prometheus. No object and no name of one is ever in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ManagerMetric {
    /// A manager starts. Told on the thread that makes it.
    #[non_exhaustive]
    Started {
        /// The kind of its objects, such as `Secret`.
        kind: Cow<'static, str>,
        /// How the manager learns of changes.
        change_detection: ChangeDetection,
        /// Gives what the manager keeps.
        reading: Reading<ManagerState>,
    },
    /// A read is over: a plain, a fresh or an at-least one. What only looks into memory, such as
    /// [`get_cached`](crate::manager::ObjectManager::get_cached), is not told. Told on the reader's
    /// thread, which waits for it.
    #[non_exhaustive]
    Read {
        /// How long the read took.
        took: Duration,
        /// Why it failed, if it did.
        failure: Option<Error>,
    },
    /// What one of the manager's reflectors tells, on that reflector's thread.
    Reflector(ReflectorMetric),
}

/// A manager's state at one look, which looks at every object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerState {
    /// How many objects are referenced.
    pub objects: usize,
    /// How many references owners hold: an object that two owners reference counts twice.
    pub references: usize,
    /// How many objects have a watch that is open or being opened. With `Watch` only.
    pub watches: usize,
}
