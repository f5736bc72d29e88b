//! The hook by which a program hears of each failed list, watch, or get.

use std::fmt;

use crate::error::Error;
use crate::reflector::Phase;
use crate::reflector::guarded::logged;
use crate::sync::Arc;

/// One failed list or watch, or one failed get of a manager, as an [`ErrorHook`] is told of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a> {
    /// The name that the reflector was started with; of a get, `the secret cache` for Secrets.
    pub reflector: &'a str,
    /// What was asked for: `secrets in namespace "shop"`.
    pub what: &'a str,
    /// What the reflector was doing: [`Listing`](Phase::Listing), [`Opening`](Phase::Opening) or
    /// [`Watching`](Phase::Watching). A get counts as listing: it asks for the whole state.
    pub phase: Phase,
    /// The cause, with the server's own words where it answered.
    pub error: &'a Error,
    /// How many attempts have failed in a row, this one included.
    pub attempts: u32,
}

/// A program's function that is told of failed lists and watches; see
/// [`ReflectorOptions::on_error`](crate::reflector::ReflectorOptions::on_error). Clones are the
/// same hook.
#[derive(Clone)]
#[doc(alias = "WatchErrorHandler")]
pub struct ErrorHook(Arc<dyn Fn(&FailedAttempt<'_>) + Send + Sync>);

impl ErrorHook {
    /// A hook that calls `function`.
    pub fn new(function: impl Fn(&FailedAttempt<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// Tells of a failure; a panic of the function is logged.
    pub(crate) fn tell(&self, failed: &FailedAttempt<'_>) {
        let port = format_args!("the error hook of {}", failed.reflector);
        logged(port, || (self.0)(failed));
    }
}

impl fmt::Debug for ErrorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorHook(..)")
    }
}
