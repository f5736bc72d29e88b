//! The report that a program's error hook gets of each failed list, watch, or get.

use crate::error::Error;
use crate::reflector::Phase;

/// One failed list or watch, or one failed get of a manager.
///
/// The function that a program sets with
/// [`ReflectorOptions::on_error`](crate::reflector::ReflectorOptions::on_error) receives it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The name that the reflector was started with. For a get, the manager's name, such as
    /// `the secret cache`.
    pub reflector: String,
    /// The objects that were asked for: `secrets in namespace "shop"`.
    pub what: String,
    /// What the reflector was doing: [`Listing`](Phase::Listing), [`Opening`](Phase::Opening) or
    /// [`Watching`](Phase::Watching). A get counts as listing: it asks for the whole state.
    pub phase: Phase,
    /// The cause, with the server's message if it answered.
    pub error: Error,
    /// How many attempts have failed in a row, this one included.
    pub attempts: u32,
}

impl FailedAttempt {
    /// The name of the hook in the log.
    pub(crate) fn port(&self) -> String {
        format!("the error hook of {}", self.reflector)
    }
}
