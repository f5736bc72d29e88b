//! The user of a kubeconfig, which is read again once the server rejects what it gave.

use std::time::{Duration, Instant};

use super::super::config::ClientIdentity;
use super::super::transport::thread_pool::JobKind;
use super::super::transport::tls;
use super::Credentials;
use super::source::{CredentialSource, FetchReason, Fetched, RenewalPolicy};
use crate::clock::{Clock, later};
use crate::error::Error;
use crate::sync::{Arc, Mutex, Rank};

/// A kubeconfig is not read again within this time of the last read after a rejection.
const BETWEEN_READS: Duration = Duration::from_secs(10);

/// Of a user without token file and plugin.
const POLICY: RenewalPolicy = RenewalPolicy {
    thread: "kubeconfig",
    jobs: JobKind::Hang,
    wait_with: Duration::from_millis(500),
    wait_without: Duration::from_secs(10),
    retry_with: BETWEEN_READS,
    pauses: (Duration::ZERO, Duration::ZERO),
    between_rejections: BETWEEN_READS,
    hang_hint: "does its file system hang?",
};

/// What a kubeconfig says of its user.
pub(crate) struct KubeconfigUser {
    /// Of the options and the user. A renewal in it only holds its source.
    pub(crate) credentials: Credentials,
    pub(crate) identity: Option<ClientIdentity>,
}

/// Reads and resolves the kubeconfig's files again. Blocks for local files.
pub(crate) type ReadAgain = Box<dyn Fn() -> Result<KubeconfigUser, Error> + Send + Sync>;

/// The user as it was read last.
pub(super) struct KubeconfigSource {
    /// Such as `context "shop" in /home/jane/.kube/config`.
    name: String,
    read_again: ReadAgain,
    clock: Clock,
    state: Mutex<LastRead>,
}

struct LastRead {
    user: Arc<KubeconfigUser>,
    /// Before this time the files are not read again.
    next_from: Option<Instant>,
    /// Whether the last read failed.
    failed: bool,
}

impl KubeconfigSource {
    pub(super) fn new(
        name: &str,
        user: KubeconfigUser,
        read_again: ReadAgain,
        clock: &Clock,
    ) -> Self {
        let state = LastRead {
            user: Arc::new(user),
            next_from: None,
            failed: false,
        };
        Self {
            name: name.to_owned(),
            read_again,
            clock: clock.clone(),
            state: Mutex::ranked(Rank::CREDENTIALS, state),
        }
    }

    pub(super) fn user(&self) -> Arc<KubeconfigUser> {
        Arc::clone(&self.state.lock().user)
    }

    fn may_read_again(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let is_due = state.next_from.is_none_or(|from| now >= from);
        if is_due {
            state.next_from = Some(later(now, BETWEEN_READS));
        }
        is_due
    }

    /// Reads the files again, and takes what they say if it gives credentials. The inner error is
    /// that of the same plugin or token file as before, which is not asked twice.
    fn renewed(&self, reason: &FetchReason<'_>) -> Result<Result<Fetched, Error>, Error> {
        let (before, user) = (self.user(), (self.read_again)()?);
        if user.is_nobody() && !before.is_nobody() {
            let why = "names no token, password, plugin or client certificate any more";
            return Err(Error::config(format!("{} {why}", self.name)));
        }
        let fetched = user.fetch(reason);
        let source = user.source().map(CredentialSource::name);
        let is_same = source.is_some() && source == before.source().map(CredentialSource::name);
        match fetched {
            Err(error) if !is_same && !error.is_stopped() => Err(error),
            fetched => {
                self.state.lock().user = Arc::new(user);
                Ok(fetched)
            }
        }
    }

    /// Logs the first failure of a series as a warning.
    fn note(&self, error: Option<&Error>) {
        let failed_before = std::mem::replace(&mut self.state.lock().failed, error.is_some());
        match error {
            Some(error) if !failed_before => log::warn!(
                "the kubeconfig was read again after a rejection, and what was read before stays \
                 in use: {error}"
            ),
            Some(error) => log::debug!("the kubeconfig still cannot be used: {error}"),
            None => {}
        }
    }
}

impl KubeconfigUser {
    /// Whether nothing says as whom the client asks.
    fn is_nobody(&self) -> bool {
        self.identity.is_none() && matches!(self.credentials, Credentials::None)
    }

    /// The token file or the plugin.
    fn source(&self) -> Option<&dyn CredentialSource> {
        match &self.credentials {
            Credentials::Renewed(renewal) => Some(renewal.source()),
            Credentials::None | Credentials::Withheld | Credentials::Fixed(_) => None,
        }
    }

    fn fetch(&self, reason: &FetchReason<'_>) -> Result<Fetched, Error> {
        let mut fetched = match &self.credentials {
            Credentials::None | Credentials::Withheld => Fetched::default(),
            Credentials::Fixed(fixed) => Fetched {
                authorization: fixed.authorization.as_deref().cloned(),
                ..Fetched::default()
            },
            Credentials::Renewed(renewal) => renewal.source().fetch(reason)?,
        };
        if let Some(identity) = &self.identity {
            let identity = identity.loaded()?;
            tls::check_identity(&identity, reason.provider)?;
            fetched.identity = Some(identity);
        }
        Ok(fetched)
    }
}

impl CredentialSource for KubeconfigSource {
    fn name(&self) -> String {
        let user = self.user();
        match user.source() {
            Some(source) => source.name(),
            None if user.is_nobody() => format!("{} (it names none)", self.name),
            None => self.name.clone(),
        }
    }

    fn policy(&self) -> &'static RenewalPolicy {
        self.user()
            .source()
            .map_or(&POLICY, CredentialSource::policy)
    }

    /// Reads the files again after a rejection, and asks what they name. What cannot be used is
    /// logged, and what was read before stays in use.
    fn fetch(&self, reason: &FetchReason<'_>) -> Result<Fetched, Error> {
        if reason.was_rejected && self.may_read_again() {
            match self.renewed(reason) {
                Ok(fetched) => {
                    self.note(None);
                    return fetched;
                }
                Err(error) => self.note(Some(&error)),
            }
        }
        self.user().fetch(reason)
    }
}
