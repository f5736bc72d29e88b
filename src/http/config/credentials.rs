//! The `Authorization` header of requests, whose token is read again as it rotates.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use zeroize::Zeroizing;

use super::super::transport::call_context::{CallContext, NamedDeadline};
use super::super::transport::helper_threads::HelperThreads;
use super::super::transport::interrupt::{Interrupt, Limit};
use super::pem::read_text;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::StopToken;

/// How long a token from a file is used: half of the time from the kubelet's refresh of a projected
/// token to the end of the old token.
const TOKEN_PERIOD: Duration = Duration::from_mins(1);

/// How long before the end of its period a token is read again, so that no request carries an old
/// one.
const TOKEN_LEEWAY: Duration = Duration::from_secs(10);

/// When a file is read again after a failed read. Until then the last good token is used.
const READ_RETRY: Duration = Duration::from_secs(10);

/// How long a request waits for the file while there is a token that can be used.
const READ_WAIT: Duration = Duration::from_millis(500);

/// How long a request waits for the file while there is no token.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Servers in Go take 1 MiB at most, for all headers together.
const TOKEN_BYTES_MAX: u64 = 256 * 1024;

/// Replaces the client's credentials where a server quoted them.
const MARK: &str = "[credentials left out]";

/// A shorter password is hidden only together with its user name, because it may stand within
/// words.
const PASSWORD_BYTES_MIN: usize = 4;

/// The value of an `Authorization` header, and its parts that no text may show.
pub(crate) struct Authorization {
    header: Zeroizing<String>,
    /// In the forms in which answers quote text, the longest first.
    secrets: Vec<Zeroizing<String>>,
}

/// The `Authorization` header of a client's requests. Clones share the token they read.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// No header: the client is anonymous, or known by its certificate.
    None,
    /// One header for all requests.
    Fixed(Arc<Authorization>),
    File(Arc<TokenFile>),
}

/// A token in a file, read when it is first needed and then as it rotates.
pub(crate) struct TokenFile {
    path: PathBuf,
    /// The path, for messages.
    name: String,
    /// Reads the file, whose file system may hang. Then the last token stays in use.
    reads: HelperThreads<Arc<Authorization>>,
    clock: Clock,
    state: Mutex<CachedToken>,
}

struct CachedToken {
    /// `None` before the first read and after a rejection.
    header: Option<Arc<Authorization>>,
    /// When the file is to be read again.
    due: Option<Instant>,
    /// Whether the last read failed. The first failure of a series is logged, and the recovery.
    failing: bool,
}

impl Authorization {
    fn new(header: Zeroizing<String>, secrets: &[&str]) -> Self {
        let forms = secrets.iter().flat_map(|secret| quoted_forms(secret));
        let mut forms: Vec<_> = forms.collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self {
            header,
            secrets: forms,
        }
    }

    /// Makes the header of a token. The error never repeats the token.
    pub(crate) fn bearer(token: &str) -> Result<Self, String> {
        if token.is_empty() {
            return Err("is empty".to_owned());
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("holds a space or another character that no token has".to_owned());
        }
        let header = Zeroizing::new(["Bearer ", token].concat());
        Ok(Self::new(header, &[token]))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.header
    }

    /// Returns a server's `text` with a mark wherever it quotes the token or the password.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        for secret in &self.secrets {
            if hidden.contains(secret.as_str()) {
                let before = Zeroizing::new(hidden);
                hidden = before.replace(secret.as_str(), MARK);
            }
        }
        hidden
    }
}

/// Writes a secret as plain text, JSON, JSON of Go and HTML do.
fn quoted_forms(secret: &str) -> [Zeroizing<String>; 4] {
    let json = secret.replace('\\', "\\\\").replace('"', "\\\"");
    let go = json.replace('<', "\\u003c").replace('>', "\\u003e");
    let html = secret.replace('&', "&amp;").replace('"', "&#34;");
    let html = html.replace('<', "&lt;").replace('>', "&gt;");
    [
        secret.to_owned(),
        json,
        go.replace('&', "\\u0026"),
        html.replace('\'', "&#39;"),
    ]
    .map(Zeroizing::new)
}

impl Credentials {
    /// A token from the configuration.
    pub(crate) fn token(token: &str) -> Result<Self, String> {
        Ok(Self::Fixed(Arc::new(Authorization::bearer(token)?)))
    }

    /// User name and password, as HTTP basic authentication.
    pub(crate) fn basic(username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
        if username.contains(':') {
            return Err("a user name with a colon cannot be sent".to_owned());
        }
        let plain = Zeroizing::new(format!("{username}:{password}"));
        let encoded =
            Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(plain.as_bytes()));
        let header = Zeroizing::new(["Basic ", encoded.as_str()].concat());
        let mut secrets = vec![encoded.as_str(), plain.as_str()];
        if password.len() >= PASSWORD_BYTES_MIN {
            secrets.push(password);
        }
        let authorization = Authorization::new(header, &secrets);
        Ok(Self::Fixed(Arc::new(authorization)))
    }

    /// The token in a file. `initial` is used until the first read of the file.
    pub(crate) fn token_file(
        path: impl Into<PathBuf>,
        initial: Option<Authorization>,
        clock: &Clock,
    ) -> Self {
        let path = path.into();
        let token = CachedToken {
            header: initial.map(Arc::new),
            due: None,
            failing: false,
        };
        Self::File(Arc::new(TokenFile {
            name: format!("token file {}", path.display()),
            path,
            reads: HelperThreads::new("token-file", 1, Duration::MAX),
            clock: clock.clone(),
            state: Mutex::ranked(Rank::TOKEN, token),
        }))
    }

    /// Returns the value of the `Authorization` header; `None` if requests carry none.
    ///
    /// Blocks by `call` for the read of a local file, at most once per 50 seconds. While the file
    /// cannot be read, the last token stays in use, and the server decides whether it is still
    /// valid.
    ///
    /// # Errors
    ///
    /// `Config`, if there is no token because the file cannot be read, or `Timeout`, if its file
    /// system hangs. `Stopped`.
    pub(crate) fn authorization(
        &self,
        call: &CallContext,
    ) -> Result<Option<Arc<Authorization>>, Error> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(Arc::clone(header))),
            Self::File(file) => file.authorization(call).map(Some),
        }
    }

    /// Returns the header as [`authorization`](Self::authorization) does. Blocks for ten seconds at
    /// most, because a program that starts has no stop yet.
    ///
    /// # Errors
    ///
    /// As [`authorization`](Self::authorization).
    pub(crate) fn authorization_at_start(&self) -> Result<Option<Arc<Authorization>>, Error> {
        let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER)?;
        self.authorization(&call)
    }

    /// Notes that the server answered 401. The next call of [`authorization`](Self::authorization)
    /// reads the file again.
    ///
    /// Returns whether a new read can change the header. If so, the request is sent once more.
    pub(crate) fn rejected(&self) -> bool {
        match self {
            Self::None | Self::Fixed(_) => false,
            Self::File(file) => {
                let mut state = file.state.lock();
                state.header = None;
                state.due = None;
                true
            }
        }
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Fixed(_) => f.write_str("fixed"),
            Self::File(file) => write!(f, "file {}", file.path.display()),
        }
    }
}

impl TokenFile {
    fn authorization(&self, call: &CallContext) -> Result<Arc<Authorization>, Error> {
        let now = self.clock.now();
        let has_token = {
            let mut state = self.state.lock();
            let due = state.due.is_none_or(|due| now >= due);
            if let (Some(header), false) = (&state.header, due) {
                return Ok(Arc::clone(header));
            }
            // The read happens without the lock, and other threads use the last token meanwhile.
            if state.header.is_some() {
                state.due = now.checked_add(READ_RETRY);
            }
            state.header.is_some()
        };
        let wait = if has_token { READ_WAIT } else { FIRST_WAIT };
        let call = call.within(wait, Limit::File);
        let (path, name) = (self.path.clone(), self.name.clone());
        let read = self.reads.run(&self.name, move || read_token(&path, &name));
        match read.result(&call) {
            Ok(header) => {
                let recovered = {
                    let mut state = self.state.lock();
                    state.header = Some(Arc::clone(&header));
                    state.due = now.checked_add(TOKEN_PERIOD.saturating_sub(TOKEN_LEEWAY));
                    std::mem::take(&mut state.failing)
                };
                if recovered {
                    log::info!("{} can be read again", self.name);
                }
                Ok(header)
            }
            Err(Interrupt::Stopped) => Err(Error::stopped(&self.name)),
            Err(Interrupt::Failed(error)) => self.read_failed(error),
            Err(interrupt) => {
                let message = format!("{}: {interrupt}: does its file system hang?", self.name);
                self.read_failed(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    fn read_failed(&self, why: Error) -> Result<Arc<Authorization>, Error> {
        let (header, first) = {
            let mut state = self.state.lock();
            let first = !std::mem::replace(&mut state.failing, true);
            (state.header.clone(), first)
        };
        let Some(header) = header else {
            return Err(why);
        };
        let level = if first {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        log::log!(level, "{why}; the last token stays in use");
        Ok(header)
    }
}

fn read_token(path: &Path, name: &str) -> Result<Arc<Authorization>, Error> {
    let text = read_text(path, TOKEN_BYTES_MAX);
    text.and_then(|text| Authorization::bearer(text.trim()))
        .map(Arc::new)
        .map_err(|why| Error::new(ErrorKind::Config, format!("{name}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;

    struct Fixture {
        directory: PathBuf,
        clock: FakeClock,
        credentials: Credentials,
    }

    impl Fixture {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!(
                "kubecache-credentials-{name}-{}",
                std::process::id()
            ));
            std::fs::create_dir_all(&directory).unwrap();
            let clock = FakeClock::new();
            let path = directory.join("token");
            let credentials = Credentials::token_file(path, None, &Clock::from(clock.clone()));
            Self {
                directory,
                clock,
                credentials,
            }
        }

        fn write(&self, token: &str) {
            std::fs::write(self.directory.join("token"), token).unwrap();
        }

        fn remove(&self) {
            std::fs::remove_file(self.directory.join("token")).unwrap();
        }

        fn header(&self) -> String {
            self.credentials
                .authorization_at_start()
                .unwrap()
                .unwrap()
                .as_str()
                .to_owned()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.directory));
        }
    }

    #[test]
    fn a_rotated_token_is_read_ten_seconds_before_its_minute_ends() {
        let fixture = Fixture::new("rotate");
        fixture.write("one\n");
        assert_eq!(fixture.header(), "Bearer one");
        fixture.write("two\n");
        fixture.clock.advance(Duration::from_millis(49_999));
        assert_eq!(fixture.header(), "Bearer one");
        fixture.clock.advance(Duration::from_millis(1));
        assert_eq!(fixture.header(), "Bearer two");
    }

    #[test]
    fn a_rejection_reads_the_file_once_more() {
        let fixture = Fixture::new("reject");
        fixture.write("one");
        assert_eq!(fixture.header(), "Bearer one");
        fixture.write("two");
        assert_eq!(fixture.header(), "Bearer one");
        assert!(fixture.credentials.rejected());
        assert_eq!(fixture.header(), "Bearer two");
        fixture.write("three");
        assert_eq!(fixture.header(), "Bearer two", "once, not on each request");
    }

    #[test]
    fn a_failed_read_keeps_the_last_token_and_is_tried_again_after_ten_seconds() {
        let fixture = Fixture::new("grace");
        fixture.write("one");
        assert_eq!(fixture.header(), "Bearer one");
        fixture.remove();
        fixture.clock.advance(Duration::from_secs(50));
        assert_eq!(fixture.header(), "Bearer one");
        fixture.write("two");
        fixture.clock.advance(Duration::from_millis(9_999));
        assert_eq!(fixture.header(), "Bearer one");
        fixture.clock.advance(Duration::from_millis(1));
        assert_eq!(fixture.header(), "Bearer two");
    }

    #[test]
    fn a_file_that_cannot_be_read_after_a_rejection_is_the_error() {
        let fixture = Fixture::new("gone");
        fixture.write("one");
        assert_eq!(fixture.header(), "Bearer one");
        fixture.remove();
        assert!(fixture.credentials.rejected());
        let error = fixture.credentials.authorization_at_start().unwrap_err();
        let path = fixture.directory.join("token");
        assert_eq!(
            error.to_string(),
            format!("token file {}: no such file", path.display())
        );
    }

    #[test]
    fn what_no_token_can_be_is_refused_without_repeating_it() {
        let fixture = Fixture::new("bad");
        for (content, why) in [
            (" \n", "is empty"),
            (
                "can ary",
                "holds a space or another character that no token has",
            ),
            (
                "can\r\nary: x",
                "holds a space or another character that no token has",
            ),
        ] {
            fixture.write(content);
            let error = fixture
                .credentials
                .authorization_at_start()
                .unwrap_err()
                .to_string();
            assert!(error.ends_with(&format!("token: {why}")), "{error}");
        }
    }

    #[test]
    fn an_inline_token_and_a_password_make_their_headers_and_show_nothing() {
        let token = Credentials::token("canary").unwrap();
        let header = token.authorization_at_start().unwrap().unwrap();
        assert_eq!(header.as_str(), "Bearer canary");
        assert!(!token.rejected(), "reading again would change nothing");
        assert_eq!(format!("{token:?}"), "fixed");

        let basic = Credentials::basic(Some("aladdin"), Some("opensesame")).unwrap();
        let header = basic.authorization_at_start().unwrap().unwrap();
        assert_eq!(header.as_str(), "Basic YWxhZGRpbjpvcGVuc2VzYW1l");
    }

    /// D15: an error page may quote the request that it refuses, in the escapes of its own format.
    #[test]
    fn token_and_password_are_hidden_in_every_form_a_server_quotes_them_in() {
        let token = Credentials::token("t<&\"\\>k").unwrap();
        let token = token.authorization_at_start().unwrap().unwrap();
        for quoted in [
            "t<&\"\\>k",
            r#"t<&\"\\>k"#,
            r#"t\u003c\u0026\"\\\u003ek"#,
            "t&lt;&amp;&#34;\\&gt;k",
        ] {
            let hidden = token.redact(&format!("no Bearer {quoted}, no entry"));
            assert_eq!(hidden, format!("no Bearer {MARK}, no entry"));
        }
        let basic = Credentials::basic(Some("aladdin"), Some("opensesame")).unwrap();
        let basic = basic.authorization_at_start().unwrap().unwrap();
        assert_eq!(
            basic.redact("aladdin:opensesame opensesame YWxhZGRpbjpvcGVuc2VzYW1l aladdin"),
            format!("{MARK} {MARK} {MARK} aladdin")
        );
        let short = Credentials::basic(Some("aladdin"), Some("o")).unwrap();
        let short = short.authorization_at_start().unwrap().unwrap();
        assert_eq!(short.redact("aladdin:o to go"), format!("{MARK} to go"));
    }

    #[test]
    fn a_token_beside_a_file_is_used_until_the_file_can_be_read() {
        let fixture = Fixture::new("both");
        let clock = Clock::from(fixture.clock.clone());
        let path = fixture.directory.join("token");
        let credentials =
            Credentials::token_file(path, Authorization::bearer("initial").ok(), &clock);
        let header = |credentials: &Credentials| {
            let header = credentials.authorization_at_start().unwrap().unwrap();
            header.as_str().to_owned()
        };
        assert_eq!(header(&credentials), "Bearer initial");
        fixture.write("rotated");
        fixture.clock.advance(Duration::from_secs(10));
        assert_eq!(header(&credentials), "Bearer rotated");
    }

    /// A path whose file system hangs: a pipe without a writer.
    fn hang(path: &Path) -> impl FnOnce() + use<> {
        drop(std::fs::remove_file(path));
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
        let kept = path.with_extension("pipe");
        std::fs::hard_link(path, &kept).unwrap();
        move || drop(std::fs::OpenOptions::new().write(true).open(kept).unwrap())
    }

    fn call(stop: &StopToken, until: NamedDeadline) -> CallContext {
        CallContext::new(stop, until).unwrap()
    }

    /// F21: a file on a network whose server is gone costs one short wait, and the token at hand
    /// stays in use.
    #[test]
    fn a_file_system_that_hangs_takes_no_token_away() {
        let fixture = Fixture::new("hang");
        fixture.write("one");
        assert_eq!(fixture.header(), "Bearer one");
        let path = fixture.directory.join("token");
        let release = hang(&path);
        fixture.clock.advance(Duration::from_secs(50));
        for _ in 0..2 {
            assert_eq!(fixture.header(), "Bearer one");
        }
        fixture.remove();
        fixture.write("two");
        release();
        // The read that hung ends by itself; the next one sees the new file.
        fixture.clock.advance(READ_RETRY);
        while fixture.header() != "Bearer two" {
            fixture.clock.advance(READ_RETRY);
        }
    }

    #[test]
    fn a_first_read_that_hangs_ends_by_stop_and_deadline_and_names_the_file() {
        let fixture = Fixture::new("hang-first");
        let path = fixture.directory.join("token");
        let release = hang(&path);
        let soon = NamedDeadline::caller(Clock::system().after(Duration::from_millis(20)));
        let late = fixture
            .credentials
            .authorization(&call(&StopToken::never(), soon));
        let error = late.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let named = format!("token file {}: ", path.display());
        assert!(error.to_string().starts_with(&named), "{error}");
        let stop = crate::worker::StopSource::new();
        stop.stop();
        let stopped = fixture
            .credentials
            .authorization(&call(&stop.token(), NamedDeadline::NEVER));
        assert!(stopped.unwrap_err().is_stopped());
        release();
    }
}
