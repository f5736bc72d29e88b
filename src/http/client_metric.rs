//! What a client tells the program's hook for metrics.

use std::time::Duration;

/// What a client counts, told to the hook of
/// [`ClientOptions::metrics`](super::ClientOptions::metrics) as it happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ClientMetric {
    /// A request of this client ran the credential plugin. Clients of one configuration share the
    /// run; one of them is told.
    PluginRun(PluginRun),
}

/// One run of a credential plugin.
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
}

impl PluginEnd {
    /// client-go's word for it, in the label `call_status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "no_error",
            Self::ExitCode => "plugin_execution_error",
            Self::NotFound => "plugin_not_found_error",
            Self::Broken => "client_internal_error",
        }
    }
}
