//! What a client can tell of the source of its credentials.

use std::time::Duration;

use crate::error::Error;

/// How often the source of a client's credentials was asked, and with what result.
///
/// [`Client::credentials_status`](super::super::Client::credentials_status) returns it. It holds no
/// secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CredentialsStatus {
    /// Names the source: a token file, a credential plugin, a kubeconfig that is read again, or the
    /// program's own.
    pub source: String,
    /// How often it gave credentials or failed.
    pub runs: u64,
    /// How often it failed.
    pub failures: u64,
    /// How long the last run took.
    pub last_run_took: Option<Duration>,
    /// How long the credentials are valid from now on. `None` if they name no end, or if there are
    /// none.
    pub expires_in: Option<Duration>,
    /// The last failure. `None` once the source gives credentials again.
    pub last_error: Option<Error>,
}
