//! A token in a file, which is read again as it rotates.

use std::path::PathBuf;
use std::time::Duration;

use super::authorization::Authorization;
use super::source::{CredentialSource, FetchReason, Fetched};
use crate::error::Error;
use crate::jobs::JobKind;
use crate::local_file::read_secret_text;
use crate::policy::TOKEN_FILE;
use crate::sync::Arc;

/// How long a token from a file is used: half of the time from the kubelet's refresh of a projected
/// token to the end of the old token.
const TOKEN_PERIOD: Duration = Duration::from_secs(60);

/// How long before the end of its period a token is read again, so that no request carries an old
/// one.
const TOKEN_LEEWAY: Duration = Duration::from_secs(10);

/// Servers in Go take 1 MiB at most, for all headers together.
const TOKEN_BYTES_MAX: u64 = 256 * 1024;

pub(super) fn token_file(path: PathBuf) -> CredentialSource {
    let name = format!("token file {}", path.display());
    let named = name.clone();
    let fetch = move |_: &FetchReason<'_>| {
        let token = read_secret_text(&path, TOKEN_BYTES_MAX)
            .and_then(|text| Authorization::bearer(text.trim()))
            .map_err(|why| Error::config(format!("{named}: {why}")))?;
        Ok(Fetched {
            authorization: Some(Arc::new(token)),
            identity: None,
            renew_after: Some(TOKEN_PERIOD.saturating_sub(TOKEN_LEEWAY)),
            // The server decides whether a file's last token is still valid.
            valid_for: None,
        })
    };
    CredentialSource {
        name,
        thread: "token-file",
        jobs: JobKind::Hang,
        row: &TOKEN_FILE,
        run_max: Duration::MAX,
        hang_hint: "does its file system hang?",
        fetch: Box::new(fetch),
    }
}
