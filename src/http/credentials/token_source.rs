//! Tokens from code of the program: a cloud's library, a test.

use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use super::authorization::Authorization;
use super::lifetime::renew_after;
use super::source::{CredentialSource, FetchReason, Fetched};
use crate::error::{Error, ErrorKind, debug_of};
use crate::jobs::JobKind;
use crate::policy::PROGRAM;
use crate::setters::setters;
use crate::sync::Arc;

/// A bearer token, and when it expires.
///
/// `Debug` does not show the value. The memory of the value is overwritten when the token drops.
///
/// # Examples
///
/// ```
/// use kubecache::http::Token;
/// use std::time::Duration;
///
/// let token = Token::new("made-up").valid_for(Duration::from_secs(15 * 60));
/// assert!(!format!("{token:?}").contains("made-up"));
/// ```
#[must_use]
pub struct Token {
    value: Zeroizing<String>,
    expires_at: Option<SystemTime>,
}

impl Token {
    /// Makes a token that is used until the server rejects it.
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: Zeroizing::new(value.into()),
            expires_at: None,
        }
    }
}

setters! { [] Token;
    /// Sets when the token expires. The client asks the source for another one when a fifth of the
    /// time is left, or 30 seconds if that is less.
    expires_at(expires_at: SystemTime) = Some(expires_at);

    /// Sets how long the token is valid from now on, as [`expires_at`](Self::expires_at) does.
    valid_for(valid_for: Duration) in expires_at = SystemTime::now().checked_add(valid_for);
}

debug_of!([] Token, |it| expires_at: it.expires_at, ..);

/// Code of the program that returns the tokens of a client.
///
/// Pass it to [`Config::with_token_source`](super::super::Config::with_token_source). A closure
/// without arguments that returns a token is a source, too. The client calls it on a thread called
/// `token-source`, one call at a time, under no lock:
///
/// - before the first request, which waits for it, as do all others until there is a token;
/// - before the token expires, while requests go on with the present one;
/// - once after the server rejected the token, at most every ten seconds.
///
/// While it fails, requests use the last token until that expires. Then they fail with its text,
/// and the client calls it again after a pause: of a second at first, of 30 seconds at most. A
/// panic is the error [`Panicked`](crate::ErrorKind::Panicked). A call may block. Requests wait for
/// a minute at most, and a drop of the client does not wait for the call.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::http::{Client, ClientOptions, Config, Token};
/// use kubecache::object::ObjectKey;
/// # use kubecache::testing::{Answer, Exchange, FixtureServer, Recording, objects};
/// # let secret = objects::secret("shop", "db", "7", &[("password", "made-up")]);
/// # let path = "/api/v1/namespaces/shop/secrets";
/// # let listed = Exchange::get(path, Answer::list("7", &[secret])?);
/// # let server = FixtureServer::replaying(Recording::new().with(listed)).start()?;
///
/// let config = Config::for_server(&server.url())? // in a program: the cluster's
///     .with_token_source(Arc::new(|| {
///         // Ask the cloud's library here.
///         Ok(Token::new("made-up").valid_for(Duration::from_secs(15 * 60)))
///     }));
/// let client = Client::new(&config, ClientOptions::default())?;
/// client.get::<Secret>(&ObjectKey::new("shop", "db"))?;
/// assert_eq!(client.credentials_status().unwrap().runs, 1);
/// # }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait TokenSource: Send + Sync {
    /// Returns a token. May block.
    ///
    /// # Errors
    ///
    /// Any error. Requests that have no other token fail with its text, so that must show no
    /// secret. Their error is of kind [`Credentials`](crate::ErrorKind::Credentials), and has this
    /// one as its source.
    fn token(&self) -> Result<Token, Error>;

    /// The client calls this after the server answered 401 to the last token. The next call of
    /// [`token`](Self::token) follows at once and should return another token.
    fn rejected(&self) {}
}

impl<F: Fn() -> Result<Token, Error> + Send + Sync> TokenSource for F {
    fn token(&self) -> Result<Token, Error> {
        self()
    }
}

const NAME: &str = "the program's token source";

/// The tokens that code of the program returns.
pub(crate) fn of_program(source: Arc<dyn TokenSource>) -> CredentialSource {
    CredentialSource {
        name: NAME.to_owned(),
        thread: "token-source",
        jobs: JobKind::Hang,
        row: &PROGRAM,
        run_max: Duration::MAX,
        hang_hint: "does the program's code hang?",
        fetch: Box::new(move |reason| fetch(&*source, reason)),
    }
}

fn fetch(source: &dyn TokenSource, reason: &FetchReason<'_>) -> Result<Fetched, Error> {
    if reason.was_rejected {
        source.rejected();
    }
    let failed = |why: String| Error::new(ErrorKind::Credentials, format!("{NAME}: {why}"));
    // Its own kind, status or wait would pass for what the server said of the request.
    let token = source.token();
    let token = token.map_err(|error| failed(error.to_string()).with_source(error))?;
    let failed = |why: String| failed(format!("gave a token that {why}"));
    let authorization = Authorization::bearer(&token.value).map_err(failed)?;
    let valid_for = token.expires_at.map(super::lifetime::left).transpose();
    let valid_for = valid_for.map_err(failed)?;
    Ok(Fetched {
        authorization: Some(Arc::new(authorization)),
        identity: None,
        renew_after: valid_for.map(renew_after),
        valid_for,
    })
}
