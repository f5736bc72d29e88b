//! The credentials of a client: tokens, passwords and certificates, and the sources that fetch
//! them.

mod authorization;
mod exec;
mod lifetime;
mod renewal;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod token_file;
mod token_source;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use self::authorization::Authorization;
pub use self::exec::PluginPolicy;
#[cfg(feature = "testing")]
pub(crate) use self::exec::plugin_answer;
pub(super) use self::exec::{
    ClusterInfo, ExecConfig, ExecPlugin, ExecVersion, InteractiveMode, PluginOptions,
    resolve_command,
};
pub(super) use self::renewal::Runner;
use self::renewal::{Asker, Renewal};
pub(super) use self::source::{CheckIdentity, Credential, CredentialSource, Fetched};
pub use self::status::{CredentialsStatus, PluginEnd, PluginRun};
use self::token_file::token_file;
pub(super) use self::token_source::of_program;
pub use self::token_source::{Token, TokenSource};
use super::calls::call_context::{CallContext, NamedDeadline};
use crate::clock::Clock;
use crate::error::Error;
use crate::hooks::Hook;
use crate::jobs::JobKind;
use crate::policy::{KUBECONFIG, PLUGIN};
use crate::sync::Arc;
use crate::worker::StopToken;

/// The credentials of a configuration. Clones share those that their source returned.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// No header: the client is anonymous, or known by its certificate.
    None,
    /// No header although there are credentials: the server's URL is plain HTTP.
    Withheld,
    /// One header for all requests.
    Fixed(Arc<Credential>),
    /// The credentials of a source, fetched again as they expire.
    Renewed(Arc<Renewal>),
}

/// The credentials of one client.
pub(crate) struct ActiveCredentials {
    credentials: Credentials,
    asker: Asker,
}

impl Credentials {
    /// A token from the configuration.
    pub(crate) fn token(token: &str) -> Result<Self, String> {
        Ok(Self::fixed(Authorization::bearer(token)?))
    }

    /// User name and password, as HTTP basic authentication.
    pub(crate) fn basic(username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        Ok(Self::fixed(Authorization::basic(username, password)?))
    }

    pub(crate) fn fixed(authorization: Authorization) -> Self {
        Self::Fixed(Arc::new(credential(authorization)))
    }

    /// The token in a file. `initial` is used until the first read of the file.
    pub(crate) fn token_file(
        path: impl Into<PathBuf>,
        initial: Option<Authorization>,
        clock: &Clock,
    ) -> Self {
        let source = token_file(path.into());
        let initial = initial.map(credential);
        Self::Renewed(Arc::new(Renewal::new(source, initial, clock)))
    }

    /// The credentials of a kubeconfig's user, who is `name` in messages. `read` reads them again,
    /// and blocks for local files.
    pub(crate) fn kubeconfig(
        name: &str,
        user: Fetched,
        read: impl Fn() -> Result<Fetched, Error> + Send + Sync + 'static,
        clock: &Clock,
    ) -> Self {
        let first = Credential {
            authorization: user.authorization,
            identity: user.identity,
            number: 0,
        };
        let source = CredentialSource {
            name: name.to_owned(),
            thread: "kubeconfig",
            jobs: JobKind::Hang,
            row: &KUBECONFIG,
            run_max: Duration::MAX,
            hang_hint: "does the kubeconfig's file system hang?",
            fetch: Box::new(move |_| read()),
        };
        Self::Renewed(Arc::new(Renewal::new(source, Some(first), clock)))
    }

    pub(crate) fn source(source: CredentialSource) -> Self {
        Self::Renewed(Arc::new(Renewal::new(source, None, &Clock::system())))
    }

    /// Whether they come from a credential plugin.
    pub(crate) fn is_plugin(&self) -> bool {
        matches!(self, Self::Renewed(renewal) if *renewal.source().row == PLUGIN)
    }

    /// Whether they come from a kubeconfig, which is read again.
    pub(crate) fn is_kubeconfig(&self) -> bool {
        matches!(self, Self::Renewed(renewal) if *renewal.source().row == KUBECONFIG)
    }

    /// Makes the credentials of a client, whose hook is `metrics` and whose TLS has the `check`.
    /// The client asks sources while the runner lives. The drop of the last one ends a plugin's
    /// run.
    pub(crate) fn activate(
        &self,
        metrics: Option<Hook<PluginRun>>,
        check: Option<Arc<CheckIdentity>>,
    ) -> (ActiveCredentials, Option<Arc<Runner>>) {
        let runner = match self {
            Self::None | Self::Withheld | Self::Fixed(_) => None,
            Self::Renewed(renewal) => Some(renewal.runner()),
        };
        let active = ActiveCredentials {
            credentials: self.clone(),
            asker: Asker {
                runner: runner.as_ref().map(Arc::downgrade).unwrap_or_default(),
                metrics,
                check,
            },
        };
        (active, runner)
    }

    /// How often the source was asked, and its last result; `None` if there is no source.
    pub(crate) fn status(&self) -> Option<CredentialsStatus> {
        match self {
            Self::None | Self::Withheld | Self::Fixed(_) => None,
            Self::Renewed(renewal) => Some(renewal.status()),
        }
    }

    /// Returns the header of the first request. Blocks as
    /// [`current`](ActiveCredentials::current) does, for as long as the source's policy says.
    ///
    /// # Errors
    ///
    /// As [`current`](ActiveCredentials::current).
    pub(crate) fn authorization_at_start(&self) -> Result<Option<Arc<Authorization>>, Error> {
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER)?;
        let (active, _lease) = self.activate(None, None);
        let current = active.current(&call)?;
        Ok(current.and_then(|current| current.authorization.clone()))
    }
}

impl ActiveCredentials {
    /// Returns the credential that the next request sends; `None` if the client has none of its
    /// own.
    ///
    /// Blocks by `call` while the source works and no other credentials are usable.
    ///
    /// # Errors
    ///
    /// The source's error. `Timeout` if it is silent. `Stopped`.
    pub(crate) fn current(&self, call: &CallContext) -> Result<Option<Arc<Credential>>, Error> {
        match &self.credentials {
            Credentials::None | Credentials::Withheld => Ok(None),
            Credentials::Fixed(fixed) => Ok(Some(Arc::clone(fixed))),
            Credentials::Renewed(renewal) => renewal.current(&self.asker, call).map(Some),
        }
    }

    /// Notes that the server answered 401 to a request with `rejected`, or refused its certificate.
    /// Returns whether to send the request once more.
    pub(crate) fn rejected(&self, rejected: Option<&Credential>) -> bool {
        match (&self.credentials, rejected) {
            (Credentials::Renewed(renewal), Some(rejected)) => renewal.rejected(rejected),
            (_, _) => false,
        }
    }

    /// Adds a remedy to the error of a 401.
    pub(crate) fn explain_rejection(&self, error: Error) -> Error {
        match &self.credentials {
            Credentials::None => error,
            Credentials::Withheld => error.with_hint(
                "the kubeconfig's credentials were not sent, because its server is plain HTTP: its \
                 server has to begin with https://",
            ),
            Credentials::Fixed(_) => error.with_hint(
                "the token or password is fixed, and the client cannot renew it: configure one \
                 that is valid, a token file, a credential plugin or a TokenSource",
            ),
            Credentials::Renewed(renewal) => error.with_hint(&format!(
                "the server rejects the newest credentials of {}",
                renewal.source().name
            )),
        }
    }

    pub(crate) fn status(&self) -> Option<CredentialsStatus> {
        self.credentials.status()
    }
}

fn credential(authorization: Authorization) -> Credential {
    Credential {
        authorization: Some(Arc::new(authorization)),
        identity: None,
        number: 0,
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Withheld => f.write_str("withheld"),
            Self::Fixed(_) => f.write_str("fixed"),
            Self::Renewed(renewal) => f.write_str(&renewal.source().name),
        }
    }
}
