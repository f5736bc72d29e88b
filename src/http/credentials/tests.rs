//! Fixed credentials and token files: the header that is sent, and when a file is read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::super::calls::call_context::{CallContext, NamedDeadline};
use super::authorization::MARK;
use super::*;
use crate::clock::{Clock, FakeClock};
use crate::error::{ErrorKind, Status};
use crate::jobs::JobKind;
use crate::policy::{PROGRAM, RenewalRow, TOKEN_FILE};
use crate::tests::temp_directory::TempDirectory;
use crate::tests::until::until;
use crate::worker::StopToken;

struct Fixture {
    directory: TempDirectory,
    clock: FakeClock,
    active: ActiveCredentials,
    /// While it holds a receiver without a message, the file system hangs.
    gate: Arc<OnceLock<Receiver<()>>>,
    _lease: Option<Arc<Runner>>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let directory = TempDirectory::new(&format!("credentials-{name}"));
        let clock = FakeClock::new();
        let gate: Arc<OnceLock<Receiver<()>>> = Arc::default();
        let mut source = token_file(directory.join("token"));
        let (read, waited_for) = (source.fetch, Arc::clone(&gate));
        source.fetch = Box::new(move |reason| {
            if let Some(gate) = waited_for.get() {
                let _released = gate.recv().is_err();
            }
            read(reason)
        });
        let renewal = Renewal::new(source, None, &Clock::from(clock.clone()));
        let credentials = Credentials::Renewed(Arc::new(renewal));
        let (active, lease) = credentials.activate(None, None);
        Self {
            directory,
            clock,
            active,
            gate,
            _lease: lease,
        }
    }

    fn write(&self, token: &str) {
        std::fs::write(self.directory.join("token"), token).unwrap();
    }

    fn remove(&self) {
        std::fs::remove_file(self.directory.join("token")).unwrap();
    }

    /// Makes each read hang until the returned sender is dropped.
    fn hang(&self) -> Sender<()> {
        let (release, gate) = bounded(0);
        self.gate.set(gate).unwrap();
        release
    }

    fn header(&self) -> String {
        header(&self.active)
    }

    fn error(&self) -> Error {
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        self.active.current(&call).map(drop).unwrap_err()
    }

    /// Answers 401 to the present credentials, as a server does.
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
    // A request waits for the read for a moment, and then has the last one.
    until(|| fixture.header() == "Bearer two");
}

#[test]
fn a_rejection_reads_the_file_once_more() {
    let fixture = Fixture::new("reject");
    fixture.write("one");
    assert_eq!(fixture.header(), "Bearer one");
    fixture.write("two");
    assert_eq!(fixture.header(), "Bearer one");
    assert!(fixture.reject());
    until(|| fixture.header() == "Bearer two");
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
    until(|| fixture.header() == "Bearer two");
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
    let (active, _) = token.activate(None, None);
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
    // An answer may break off within them.
    for (part, shown) in [("opensesam", MARK), ("ope", "ope"), ("YWxhZGRpbjpvc", MARK)] {
        assert_eq!(
            basic.redact_part(&format!("no {part}")),
            format!("no {shown}")
        );
        assert_eq!(basic.redact(&format!("no {part}")), format!("no {part}"));
    }
}

#[test]
fn a_token_beside_a_file_is_used_until_the_file_can_be_read() {
    let fixture = Fixture::new("both");
    let clock = Clock::from(fixture.clock.clone());
    let path = fixture.directory.join("token");
    let credentials = Credentials::token_file(path, Authorization::bearer("initial").ok(), &clock);
    let (active, _lease) = credentials.activate(None, None);
    assert_eq!(header(&active), "Bearer initial");
    fixture.write("rotated");
    fixture.clock.advance(Duration::from_secs(10));
    until(|| header(&active) == "Bearer rotated");
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
    let release = fixture.hang();
    fixture.clock.advance(Duration::from_secs(50));
    for _ in 0..2 {
        assert_eq!(fixture.header(), "Bearer one");
    }
    fixture.write("two");
    drop(release);
    // The read that hung ends by itself; the next one sees the new file.
    fixture.clock.advance(Duration::from_secs(10));
    until(|| {
        let is_read = fixture.header() == "Bearer two";
        if !is_read {
            fixture.clock.advance(Duration::from_secs(10));
        }
        is_read
    });
}

#[test]
fn a_first_read_that_hangs_ends_by_stop_and_deadline_and_names_the_file() {
    let fixture = Fixture::new("hang-first");
    let path = fixture.directory.join("token");
    let release = fixture.hang();
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
    drop(release);
}

fn user(number: usize) -> Fetched {
    let authorization = Authorization::bearer(&format!("read-{number}"));
    Fetched {
        authorization: authorization.ok().map(Arc::new),
        identity: None,
        renew_after: None,
        valid_for: None,
    }
}

/// A kubeconfig whose token is the number of its reads; its content may be unusable.
struct Kubeconfig {
    reads: Arc<AtomicUsize>,
    is_bad: Arc<AtomicBool>,
    clock: FakeClock,
    active: ActiveCredentials,
    _lease: Option<Arc<Runner>>,
}

impl Kubeconfig {
    fn new() -> Self {
        let (reads, is_bad) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, refused) = (Arc::clone(&reads), Arc::clone(&is_bad));
        let read = move || {
            let read = counted.fetch_add(1, Ordering::SeqCst).saturating_add(1);
            let is_good = !refused.load(Ordering::SeqCst);
            let broken = || Error::config("half-written");
            is_good.then_some(read).ok_or_else(broken)
        };
        Self {
            reads,
            is_bad,
            ..Self::reading(read)
        }
    }

    fn reading(read: impl Fn() -> Result<usize, Error> + Send + Sync + 'static) -> Self {
        let clock = FakeClock::new();
        let read = Box::new(move || read().map(user));
        let credentials =
            Credentials::kubeconfig("the file", user(0), read, &Clock::from(clock.clone()));
        let (active, lease) = credentials.activate(None, None);
        Self {
            reads: Arc::default(),
            is_bad: Arc::default(),
            clock,
            active,
            _lease: lease,
        }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn current(&self) -> Arc<Credential> {
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        self.active.current(&call).unwrap().unwrap()
    }

    fn reject(&self) -> bool {
        self.active.rejected(Some(&self.current()))
    }
}

#[test]
fn a_kubeconfig_whose_token_is_good_is_never_read_again() {
    let kubeconfig = Kubeconfig::new();
    for _ in 0..100 {
        assert_eq!(header(&kubeconfig.active), "Bearer read-0");
        kubeconfig.clock.advance(Duration::from_secs(60 * 60));
    }
    assert_eq!(kubeconfig.reads(), 0);
    assert_eq!(kubeconfig.active.status().unwrap().runs, 0);
}

#[test]
fn a_kubeconfig_is_read_again_after_a_401_and_at_most_each_ten_seconds() {
    let kubeconfig = Kubeconfig::new();
    assert!(kubeconfig.reject());
    assert_eq!(header(&kubeconfig.active), "Bearer read-1");
    assert!(!kubeconfig.reject());
    kubeconfig.clock.advance(Duration::from_millis(9_999));
    assert!(!kubeconfig.reject());
    assert_eq!(header(&kubeconfig.active), "Bearer read-1");
    kubeconfig.clock.advance(Duration::from_millis(1));
    assert!(kubeconfig.reject());
    assert_eq!(header(&kubeconfig.active), "Bearer read-2");
    assert_eq!(kubeconfig.reads(), 2);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_leaves_the_old_token_until_it_can() {
    let kubeconfig = Kubeconfig::new();
    kubeconfig.is_bad.store(true, Ordering::SeqCst);
    for reads in 1..3 {
        assert!(kubeconfig.reject());
        for _ in 0..2 {
            assert_eq!(header(&kubeconfig.active), "Bearer read-0");
        }
        assert_eq!(kubeconfig.reads(), reads);
        let error = kubeconfig.active.status().unwrap().last_error.unwrap();
        assert_eq!(error.to_string(), "half-written");
        kubeconfig.clock.advance(Duration::from_secs(10));
        assert_eq!(header(&kubeconfig.active), "Bearer read-0");
        assert_eq!(kubeconfig.reads(), reads, "nobody rejected it again");
    }
    kubeconfig.is_bad.store(false, Ordering::SeqCst);
    assert!(kubeconfig.reject());
    assert_eq!(header(&kubeconfig.active), "Bearer read-3");
    assert!(kubeconfig.active.status().unwrap().last_error.is_none());
}

/// A request that is rejected before the read has ended waits for it, and starts no other.
#[test]
fn a_kubeconfig_is_read_once_for_all_who_are_rejected_at_once() {
    let kubeconfig = Kubeconfig::new();
    let shown = [(); 3].map(|()| kubeconfig.current());
    for shown in &shown {
        assert!(kubeconfig.active.rejected(Some(shown)));
    }
    for shown in &shown {
        assert!(!kubeconfig.current().is_same(shown));
    }
    // A request whose answer comes late sends the new token at once.
    assert!(kubeconfig.active.rejected(Some(&shown[0])));
    assert_eq!(header(&kubeconfig.active), "Bearer read-1");
    assert_eq!(kubeconfig.reads(), 1);
}

/// A source that fetches once the returned sender says a number.
fn gated(row: &'static RenewalRow, run_max: Duration) -> (CredentialSource, Sender<usize>) {
    let (open, gate) = bounded(1);
    let source = CredentialSource {
        name: "the source".to_owned(),
        thread: "t-gated",
        jobs: JobKind::Hang,
        row,
        run_max,
        hang_hint: "does it hang?",
        fetch: Box::new(move |_| {
            let number = gate.recv();
            number.map(user).map_err(|_gone| Error::config("gone"))
        }),
    };
    (source, open)
}

#[test]
fn a_kubeconfig_on_a_file_system_that_hangs_takes_no_token_away() {
    static MOMENT: RenewalRow = RenewalRow {
        wait_with: Duration::from_millis(20),
        ..KUBECONFIG
    };
    let (source, open) = gated(&MOMENT, Duration::MAX);
    let first = credential(Authorization::bearer("read-0").unwrap());
    let renewal = Renewal::new(source, Some(first), &Clock::from(FakeClock::new()));
    let (active, _lease) = Credentials::Renewed(Arc::new(renewal)).activate(None, None);
    let never = || call(&StopToken::never(), NamedDeadline::NEVER);
    let kept = active.current(&never()).unwrap().unwrap();
    assert!(active.rejected(Some(&kept)));
    // No request waits for the same read again.
    for _ in 0..100 {
        assert_eq!(header(&active), "Bearer read-0");
    }
    open.send(7).unwrap();
    until(|| header(&active) == "Bearer read-7");
}

/// Seen: it ended the wait for everybody else, with a warning that the file system hangs.
#[test]
fn a_callers_own_deadline_ends_no_other_wait_for_a_kubeconfig() {
    let (open, gate) = bounded(1);
    let gone = |_gone| Error::config("gone");
    let kubeconfig = Kubeconfig::reading(move || gate.recv().map_err(gone));
    assert!(kubeconfig.reject());
    let soon = NamedDeadline::caller(Clock::system().after(Duration::from_millis(20)));
    let kept = kubeconfig.active.current(&call(&StopToken::never(), soon));
    assert!(kept.unwrap().is_some());
    open.send(7).unwrap();
    assert_eq!(header(&kubeconfig.active), "Bearer read-7");
}

/// Nothing else ends a plugin's wait for a disk. A request would wait without end.
#[test]
fn a_source_that_works_for_longer_than_it_may_is_told_as_one_that_hangs() {
    let (source, _open) = gated(&PLUGIN, Duration::from_millis(20));
    let (active, _lease) = Credentials::source(source).activate(None, None);
    let call = call(&StopToken::never(), NamedDeadline::NEVER);
    let error = active.current(&call).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let told = "the source: gave no credentials within 20.0ms: does it hang?";
    assert_eq!(error.to_string(), told);
}

/// What a source says of a server of its own is not what the API server said of a request. A
/// manager would store that the object is gone.
#[test]
fn an_error_of_a_programs_token_source_is_of_no_other_kind() {
    let busy = Error::from_status(Status::new(429, "the vault is busy"));
    for error in [
        Error::not_found("secret", "vault"),
        busy.with_retry_after(Duration::from_secs(3600)),
        Error::new(ErrorKind::Timeout, "no answer of the vault"),
        Error::stopped("the vault"),
    ] {
        let text = error.to_string();
        let source = move || Err::<Token, _>(error.clone());
        let credentials = Credentials::source(of_program(Arc::new(source)));
        let (active, _lease) = credentials.activate(None, None);
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        let told = active.current(&call).map(drop).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Credentials, "{told}");
        assert!(
            told.status().is_none() && told.retry_after().is_none(),
            "{told}"
        );
        assert_eq!(
            told.to_string(),
            format!("the program's token source: {text}")
        );
        assert_eq!(active.status().unwrap().failures, 1, "{told}");
    }
}

/// Credentials by one row of the policy.
struct ByRow {
    is_broken: Arc<AtomicBool>,
    clock: FakeClock,
    active: ActiveCredentials,
    _lease: Option<Arc<Runner>>,
    runs: u64,
}

impl ByRow {
    fn new(row: &'static RenewalRow) -> Self {
        let (is_broken, clock) = (Arc::<AtomicBool>::default(), FakeClock::new());
        let fails = Arc::clone(&is_broken);
        let source = CredentialSource {
            name: "the source".to_owned(),
            thread: "t-row",
            jobs: JobKind::Wait,
            row,
            run_max: Duration::MAX,
            hang_hint: "",
            fetch: Box::new(move |_| {
                if fails.load(Ordering::SeqCst) {
                    return Err(Error::config("broken"));
                }
                Ok(Fetched {
                    authorization: Authorization::bearer("t").ok().map(Arc::new),
                    identity: None,
                    renew_after: Some(Duration::from_secs(100)),
                    valid_for: Some(Duration::from_secs(1000)),
                })
            }),
        };
        let renewal = Renewal::new(source, None, &Clock::from(clock.clone()));
        let (active, lease) = Credentials::Renewed(Arc::new(renewal)).activate(None, None);
        Self {
            is_broken,
            clock,
            active,
            _lease: lease,
            runs: 0,
        }
    }

    fn breaks(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::SeqCst);
    }

    fn current(&self) -> Result<Option<Arc<Credential>>, Error> {
        let call = call(&StopToken::never(), NamedDeadline::NEVER);
        self.active.current(&call)
    }

    /// A request asks the source.
    #[track_caller]
    fn asks(&mut self) -> Result<Option<Arc<Credential>>, Error> {
        let current = self.current();
        self.runs = self.runs.saturating_add(1);
        until(|| self.active.status().unwrap().runs >= self.runs);
        current
    }

    /// A request asks the source after `pause`, and not before.
    fn asks_after(&mut self, pause: Duration) -> Result<Option<Arc<Credential>>, Error> {
        let moment = Duration::from_millis(1);
        if !pause.is_zero() {
            self.clock.advance(pause.saturating_sub(moment));
            drop(self.current());
            assert_eq!(self.active.status().unwrap().runs, self.runs, "{pause:?}");
            self.clock.advance(moment);
        }
        self.asks()
    }
}

/// The plugin, the token source and the token file are asked again as their rows of the policy say.
#[test]
fn sources_are_asked_again_as_the_policy_says() {
    for row in [&PLUGIN, &PROGRAM, &TOKEN_FILE] {
        // Others can be used: the caller sees nothing.
        let mut user = ByRow::new(row);
        user.asks().unwrap();
        user.breaks(true);
        user.asks_after(Duration::from_secs(100)).unwrap();
        for _ in 0..3 {
            user.asks_after(row.retry_with).unwrap();
        }

        // None can be used: the caller sees the failure, also while nothing is asked.
        let mut nobody = ByRow::new(row);
        nobody.breaks(true);
        assert!(nobody.asks().is_err());
        let (mut pause, longest) = row.pauses;
        for _ in 0..7 {
            assert!(nobody.asks_after(pause).is_err());
            pause = pause.saturating_mul(2).min(longest);
            assert!(pause.is_zero() || nobody.current().is_err());
        }
        assert_eq!(pause, longest);
        nobody.breaks(false);
        nobody.asks_after(pause).unwrap();

        // A 401 asks at once, and then for a while no more.
        for _ in 0..3 {
            let rejected = nobody.current().unwrap();
            assert!(nobody.active.rejected(rejected.as_deref()));
            let given = nobody.asks().unwrap();
            let between = row.between_rejections;
            if !between.is_zero() {
                let moment = Duration::from_millis(1);
                nobody.clock.advance(between.saturating_sub(moment));
                assert!(!nobody.active.rejected(given.as_deref()));
                nobody.clock.advance(moment);
            }
        }
    }
}
