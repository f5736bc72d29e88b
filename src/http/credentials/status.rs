//! The status of a client's source of credentials, and of the runs of a plugin.

use std::time::Duration;

use crate::error::Error;

/// How often the source of a client's credentials was asked, and its last result.
///
/// [`Client::credentials_status`](super::super::Client::credentials_status) returns it. It holds no
/// secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CredentialsStatus {
    /// Names the source: a token file, a credential plugin, a kubeconfig that is read again, or the
    /// program's own.
    pub source: String,
    /// How often it returned credentials or failed.
    pub runs: u64,
    /// How often it failed.
    pub failures: u64,
    /// How long the last run took.
    pub last_run_took: Option<Duration>,
    /// How long the credentials are valid from now on. `None` if they name no end, or if there are
    /// none.
    pub expires_in: Option<Duration>,
    /// The last failure. `None` once the source returns credentials again.
    pub last_error: Option<Error>,
}

/// One run of a credential plugin, or one that the policy forbade.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PluginRun {
    /// The exit code of the plugin's process; 1 if it had none, as in client-go.
    pub exit_code: i32,
    /// How the process ended.
    pub end: PluginEnd,
    /// How long the run took.
    pub took: Duration,
    /// How long the credentials are valid; `None` if there are none, or if they name no end.
    pub valid_for: Option<Duration>,
    /// The age of the client certificate that this run replaced, since it became valid. `None` if
    /// the plugin returned none before, or if it returned the same again.
    pub replaced_certificate_age: Option<Duration>,
}

/// How the process of a credential plugin ended, whatever it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PluginEnd {
    /// With exit code 0.
    Success,
    /// With another exit code.
    ExitCode,
    /// There is no such command.
    NotFound,
    /// It could not be started, or it was killed.
    Broken,
    /// [`PluginPolicy`](super::super::PluginPolicy) forbade it, so that it did not run.
    Denied,
}

impl PluginEnd {
    /// client-go's word for it, in the label `call_status`. `Denied` has another label: `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "no_error",
            Self::ExitCode => "plugin_execution_error",
            Self::NotFound => "plugin_not_found_error",
            Self::Broken => "client_internal_error",
            Self::Denied => "denied",
        }
    }
}
