//! The metrics' place in an agent that is built without them: it says how to get them.

use kubecache::manager::ManagerOptions;
use kubecache::reflector::ReflectorOptions;
use kubecache::{Error, ErrorKind};

use crate::exchange::Page;

/// Why the flag is refused.
pub(crate) const MISSING: Option<&str> =
    Some("this agent was built without metrics; build it with `--features metrics`");

/// Metrics that cannot be: without the feature `metrics` there is no value of it.
#[derive(Clone, Debug)]
pub(crate) enum Metrics {}

impl Metrics {
    /// Says how to build an agent that has them.
    pub(crate) fn new() -> Result<Self, Error> {
        let why = MISSING.unwrap_or_default();
        Err(Error::new(ErrorKind::Config, why))
    }

    /// The page `/metrics`.
    pub(crate) fn page(&self) -> Page {
        match *self {}
    }

    /// Counts what the reflector of these pods or nodes does.
    pub(crate) fn follow(&self, _resource: &'static str, _options: &mut ReflectorOptions) {
        match *self {}
    }

    /// Counts what a manager of this kind does.
    pub(crate) fn manage(&self, _kind: &'static str, _options: ManagerOptions) -> ManagerOptions {
        match *self {}
    }
}
