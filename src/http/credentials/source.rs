//! The sources of credentials that are fetched again: a file, a plugin, or the program.

use std::cell::Cell;
use std::time::Duration;

use super::super::certificates::pem::ClientIdentity;
use super::authorization::Authorization;
use super::status::PluginEnd;
use crate::error::Error;
use crate::jobs::JobKind;
use crate::policy::RenewalRow;
use crate::sync::Arc;
use crate::worker::StopToken;

/// The credentials that one request sends.
pub(crate) struct Credential {
    /// The header; `None` if the certificate alone names the user.
    pub(crate) authorization: Option<Arc<Authorization>>,
    /// The client certificate, if the source returns one.
    pub(crate) identity: Option<ClientIdentity>,
    /// Later ones of a source have higher numbers.
    pub(crate) number: u64,
}

impl Credential {
    /// Whether a server sees no difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let [ours, theirs] = [self, other].map(|one| one.authorization.as_deref());
        ours.map(Authorization::as_str) == theirs.map(Authorization::as_str)
            && self.identity == other.identity
    }
}

/// The answer of a source.
pub(crate) struct Fetched {
    pub(crate) authorization: Option<Arc<Authorization>>,
    pub(crate) identity: Option<ClientIdentity>,
    /// After this time the client asks the source again; `None`: after a 401 only.
    pub(crate) renew_after: Option<Duration>,
    /// After this time no request sends it; `None`: the server decides.
    pub(crate) valid_for: Option<Duration>,
}

/// Checks whether a client can show a certificate.
pub(crate) type CheckIdentity = dyn Fn(&ClientIdentity) -> Result<(), Error> + Send + Sync;

/// A source of credentials. One thread at a time asks it, on behalf of all requests that wait.
pub(crate) struct CredentialSource {
    /// Names the source in messages, such as `token file /run/token`.
    pub(crate) name: String,
    /// The name of the thread.
    pub(crate) thread: &'static str,
    /// Whether a stop ends the source's work.
    pub(crate) jobs: JobKind,
    pub(crate) row: &'static RenewalRow,
    /// A longer run hangs.
    pub(crate) run_max: Duration,
    /// A possible cause of the source's silence, as a question.
    pub(crate) hang_hint: &'static str,
    pub(crate) fetch: Box<Fetch>,
}

/// Returns the credentials. May block. `stop` ends the wait if the source can be interrupted. An
/// error says why there are none: its text names the source and shows no secret.
pub(crate) type Fetch = dyn Fn(&FetchReason<'_>) -> Result<Fetched, Error> + Send + Sync;

/// The reason for a fetch, and the end of its work.
pub(crate) struct FetchReason<'a> {
    pub(crate) stop: &'a StopToken,
    /// Whether the server rejected the source's last credentials.
    pub(crate) was_rejected: bool,
    /// Where a plugin notes the exit code and the end of its process.
    pub(crate) plugin_end: &'a Cell<Option<(i32, PluginEnd)>>,
}
