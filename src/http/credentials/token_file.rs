//! A token in a file, which is read again as it rotates.

use std::path::PathBuf;
use std::time::Duration;

use super::super::config::read_text;
use super::super::transport::thread_pool::JobKind;
use super::authorization::Authorization;
use super::source::{CredentialSource, FetchReason, Fetched, RenewalPolicy};
use crate::error::Error;

/// How long a token from a file is used: half of the time from the kubelet's refresh of a projected
/// token to the end of the old token.
const TOKEN_PERIOD: Duration = Duration::from_secs(60);

/// How long before the end of its period a token is read again, so that no request carries an old
/// one.
const TOKEN_LEEWAY: Duration = Duration::from_secs(10);

/// Servers in Go take 1 MiB at most, for all headers together.
const TOKEN_BYTES_MAX: u64 = 256 * 1024;

/// A file that cannot be read costs a request little, so nothing but the last good token waits.
const POLICY: RenewalPolicy = RenewalPolicy {
    thread: "token-file",
    jobs: JobKind::Hang,
    wait_with: Duration::from_millis(500),
    wait_without: Duration::from_secs(10),
    retry_with: Duration::from_secs(10),
    pauses: (Duration::ZERO, Duration::ZERO),
    between_rejections: Duration::ZERO,
    hang_hint: "does its file system hang?",
};

pub(super) struct TokenFile {
    path: PathBuf,
    name: String,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            name: format!("token file {}", path.display()),
            path,
        }
    }
}

impl CredentialSource for TokenFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn policy(&self) -> &RenewalPolicy {
        &POLICY
    }

    fn fetch(&self, _: &FetchReason<'_>) -> Result<Fetched, Error> {
        let token = read_text(&self.path, TOKEN_BYTES_MAX)
            .and_then(|text| Authorization::bearer(text.trim()))
            .map_err(|why| Error::config(format!("{}: {why}", self.name)))?;
        Ok(Fetched {
            authorization: Some(token),
            identity: None,
            renew_after: Some(TOKEN_PERIOD.saturating_sub(TOKEN_LEEWAY)),
            // The server decides whether a file's last token is still valid.
            valid_for: None,
        })
    }
}
