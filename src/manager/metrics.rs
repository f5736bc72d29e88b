//! What a manager tells those who measure it: hooks that do nothing by default, and a reading for whoever asks.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::change_detection::ChangeDetection;
use super::references::References;
use crate::error::Error;
use crate::reflector::ReflectorMetrics;
use crate::sync::Mutex;

/// Is told what a manager does; the part of its reflectors, which a manager that does not watch has none of, is in
/// [`ReflectorMetrics`].
///
/// Implement the methods you want to count; each does nothing by default. Give one to
/// [`ManagerOptions::metrics`](crate::manager::ManagerOptions::metrics). The feature `metrics` has one that is ready, for
/// Prometheus.
///
/// Methods are called under no lock, [`read`](Self::read) on the reader's thread, which waits for it. They are never given an
/// object or its name. A panic of `read` is logged, and the reader has its answer; one of
/// [`manager_started`](Self::manager_started) is the error of the manager's start (`Panicked`).
pub trait ManagerMetrics: ReflectorMetrics {
    /// A manager starts; `reading` tells of its state at any later time. Called on the thread that makes it.
    ///
    /// # Errors
    ///
    /// Why these metrics are not for a manager of that kind and strategy: the manager is not made then.
    fn manager_started(&self, _reading: ManagerReading) -> Result<(), Error> {
        Ok(())
    }

    /// A read is over, after so long, with a failure or without: a plain, a fresh or an at-least one. What only looks into
    /// memory, such as [`get_cached`](crate::manager::ObjectManager::get_cached), is not told.
    fn read(&self, _took: Duration, _failure: Option<&Error>) {}
}

/// Looks at one manager's state, for readings that cost nothing between two looks. Does not keep the manager alive.
#[derive(Clone)]
pub struct ManagerReading {
    kind: &'static str,
    strategy: ChangeDetection,
    books: Weak<dyn Books>,
}

/// A manager's state at one look.
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

impl ManagerReading {
    pub(super) fn new(
        kind: &'static str,
        strategy: ChangeDetection,
        books: Weak<dyn Books>,
    ) -> Self {
        Self {
            kind,
            strategy,
            books,
        }
    }

    /// The kind of its objects, such as `Secret`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// How the manager learns of changes.
    pub fn change_detection(&self) -> ChangeDetection {
        self.strategy
    }

    /// What the manager keeps now; `None` once it was dropped. Never blocks on the network. It looks at every object.
    pub fn state(&self) -> Option<ManagerState> {
        self.books.upgrade().map(|books| books.state())
    }

    /// Whether the manager was dropped: from then on there is nothing to read. Takes no lock.
    pub fn is_over(&self) -> bool {
        self.books.strong_count() == 0
    }
}

impl fmt::Debug for ManagerReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerReading")
            .field("kind", &self.kind)
            .field("strategy", &self.strategy)
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}

/// What a reading looks at: nothing whose drop waits for a thread.
pub(crate) trait Books: Send + Sync {
    fn state(&self) -> ManagerState;
}

/// The books of the strategies that do not watch.
impl<I: Clone + Send> Books for Mutex<References<I>> {
    fn state(&self) -> ManagerState {
        let references = self.lock();
        ManagerState {
            objects: references.len(),
            references: references.total(),
            watches: 0,
        }
    }
}
