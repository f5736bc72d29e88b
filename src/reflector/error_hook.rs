//! What a program's error hook is told of each failed list, watch, or get.

use crate::error::Error;
use crate::reflector::Phase;

/// One failed list or watch, or one failed get of a manager, as a program's hook is told of it; see
/// [`ReflectorOptions::on_error`](crate::reflector::ReflectorOptions::on_error).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The name that the reflector was started with; of a get, `the secret cache` for Secrets.
    pub reflector: String,
    /// What was asked for: `secrets in namespace "shop"`.
    pub what: String,
    /// What the reflector was doing: [`Listing`](Phase::Listing), [`Opening`](Phase::Opening) or
    /// [`Watching`](Phase::Watching). A get counts as listing: it asks for the whole state.
    pub phase: Phase,
    /// The cause, with the server's own words where it answered.
    pub error: Error,
    /// How many attempts have failed in a row, this one included.
    pub attempts: u32,
}

impl FailedAttempt {
    /// What its hook is called in the log.
    pub(crate) fn port(&self) -> String {
        format!("the error hook of {}", self.reflector)
    }
}
