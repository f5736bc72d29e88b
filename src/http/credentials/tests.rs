//! Fixed credentials and token files: what is sent, and when a file is read.

use std::path::Path;
use std::time::Duration;

use super::super::transport::call_context::{CallContext, NamedDeadline};
use super::authorization::MARK;
use super::*;
use crate::clock::{Clock, FakeClock};
use crate::error::ErrorKind;
use crate::temp_directory::TempDirectory;
use crate::worker::StopToken;

struct Fixture {
    directory: TempDirectory,
    clock: FakeClock,
    active: ActiveCredentials,
    _lease: Option<CredentialsLease>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let directory = TempDirectory::new(&format!("credentials-{name}"));
        let clock = FakeClock::new();
        let path = directory.join("token");
        let credentials = Credentials::token_file(path, None, &Clock::from(clock.clone()));
        let (active, lease) = credentials.activate(None);
        Self {
            directory,
            clock,
            active,
            _lease: lease,
        }
    }

    fn write(&self, token: &str) {
        std::fs::write(self.directory.join("token"), token).unwrap();
    }

    fn remove(&self) {
        std::fs::remove_file(self.directory.join("token")).unwrap();
    }

    fn header(&self) -> String {
        header(&self.active)
    }

    fn error(&self) -> Error {
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        self.active.current(&call).map(drop).unwrap_err()
    }

    /// The server answers 401 to what requests show now.
    fn reject(&self) -> bool {
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        let current = self.active.current(&call).unwrap();
        self.active.rejected(current.as_deref())
    }
}

fn header(active: &ActiveCredentials) -> String {
    let call = call(&StopToken::never(), NamedDeadline::NEVER);
    let current = active.current(&call).unwrap().unwrap();
    current.authorization.as_ref().unwrap().as_str().to_owned()
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
    assert!(fixture.reject());
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
    assert!(fixture.reject());
    let error = fixture.error();
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
        let error = fixture.error().to_string();
        assert!(error.ends_with(&format!("token: {why}")), "{error}");
    }
}

#[test]
fn an_inline_token_and_a_password_make_their_headers_and_show_nothing() {
    let token = Credentials::token("canary").unwrap();
    let header = token.authorization_at_start().unwrap().unwrap();
    assert_eq!(header.as_str(), "Bearer canary");
    let (active, _) = token.activate(None);
    let call = call(&StopToken::never(), NamedDeadline::NEVER);
    let current = active.current(&call).unwrap();
    assert!(
        !active.rejected(current.as_deref()),
        "asking again would change nothing"
    );
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
    let credentials = Credentials::token_file(path, Authorization::bearer("initial").ok(), &clock);
    let (active, _lease) = credentials.activate(None);
    assert_eq!(header(&active), "Bearer initial");
    fixture.write("rotated");
    fixture.clock.advance(Duration::from_secs(10));
    assert_eq!(header(&active), "Bearer rotated");
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
    fixture.clock.advance(Duration::from_secs(10));
    while fixture.header() != "Bearer two" {
        fixture.clock.advance(Duration::from_secs(10));
    }
}

#[test]
fn a_first_read_that_hangs_ends_by_stop_and_deadline_and_names_the_file() {
    let fixture = Fixture::new("hang-first");
    let path = fixture.directory.join("token");
    let release = hang(&path);
    let soon = NamedDeadline::caller(Clock::system().after(Duration::from_millis(20)));
    let late = fixture.active.current(&call(&StopToken::never(), soon));
    let error = late.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let named = format!("token file {}: ", path.display());
    assert!(error.to_string().starts_with(&named), "{error}");
    let stop = crate::worker::StopSource::new();
    stop.stop();
    let stopped = fixture
        .active
        .current(&call(&stop.token(), NamedDeadline::NEVER));
    assert!(stopped.map(drop).unwrap_err().is_stopped());
    release();
}
