//! The credential socket: as a unit starts, systemd reads values of objects from it, for a
//! `LoadCredential=` that names its path. The address it connects from names unit and credential.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::select;
use kubecache::clock::{Clock, Deadline};
use kubecache::worker::{StopToken, Wake, Worker};
use kubecache::{Error, ErrorKind};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_peercred};
use rustix::process::geteuid;

use crate::bell::Bell;
use crate::managers::{Managers, ObjectId};
use crate::socket_file::SocketFile;

/// How long a unit waits for its credential: less than systemd waits for the unit.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Units that are answered at a time. Others wait to be taken.
const HANDS: usize = 16;
/// How often a hand looks whether its client still waits, and what is declared.
const TICK: Duration = Duration::from_secs(1);
/// Until descriptors are looked for again.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// As much as systemd takes for one credential.
const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// So much is sent in place of a value: a unit with so large a credential fails. After an end
/// without a byte, systemd would start the unit with an empty one.
const REFUSAL_BYTES: usize = 2 * VALUE_BYTES_MAX;
/// How long a client may take for a refusal.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);
/// How long a client may take for the rest when the agent ends.
const LAST_WAIT: Duration = Duration::from_millis(400);
/// How often a hand whose client takes nothing looks at the clock and the stop.
const WRITE_TICK: Duration = Duration::from_millis(200);

/// Refusals that are told in a period.
const LINES_MAX: u32 = 20;
const LINES_PERIOD: Duration = Duration::from_secs(60);

/// What the flags and the declaration say of credentials.
#[derive(Clone, Debug)]
pub(crate) struct CredentialOptions {
    /// `None`: no socket. `-`: standard input is the socket.
    pub(crate) socket: Option<PathBuf>,
    /// `None`: without end.
    pub(crate) timeout: Option<Duration>,
    pub(crate) declared: Declared,
}

impl Default for CredentialOptions {
    fn default() -> Self {
        Self {
            socket: None,
            timeout: Some(TIMEOUT),
            declared: Declared::default(),
        }
    }
}

/// The credentials of each unit, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) units: BTreeMap<String, BTreeMap<String, Source>>,
}

/// Where the value of a credential is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) object: ObjectId,
    pub(crate) key: String,
}

impl Declared {
    /// The objects that have the values. They are kept as references.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        let sources = self.units.values().flat_map(BTreeMap::values);
        sources.map(|source| &source.object)
    }
}

/// The socket and the threads that answer. The drop of it ends them within a second.
pub(crate) struct Credentials {
    desk: Arc<Desk>,
    hands: Vec<Worker>,
    /// `None`: the socket came from systemd. Last: it goes when nobody answers any more.
    file: Option<SocketFile>,
}

/// What the threads share.
struct Desk {
    listener: UnixListener,
    /// Readable once a thread has to end.
    heard: UnixStream,
    declared: Mutex<Declared>,
    managers: Managers,
    timeout: Option<Duration>,
    clock: Clock,
    told: Mutex<Told>,
}

/// How many refusals were told of late.
#[derive(Debug)]
struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Credentials {
    /// Listens, and answers from now on; `None` without a socket.
    pub(crate) fn start(
        options: &CredentialOptions,
        managers: &Managers,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = &options.socket else {
            return Ok(None);
        };
        let wrong = |why: String| {
            let text = format!("--credential-socket {}: {why}", path.display());
            Error::new(ErrorKind::Resources, text)
        };
        let (listener, file) = if path == Path::new("-") {
            (standard_input().map_err(wrong)?, None)
        } else {
            let (listener, file) = SocketFile::listen(path).map_err(wrong)?;
            (listener, Some(file))
        };
        let failed = |error: io::Error| wrong(error.to_string());
        let (ring, heard) = Bell::pair().map_err(failed)?;
        let clock = Clock::system();
        let desk = Arc::new(Desk {
            listener,
            heard,
            declared: Mutex::new(options.declared.clone()),
            managers: managers.clone(),
            timeout: options.timeout,
            told: Mutex::new(Told::since(clock.now())),
            clock,
        });
        let ring: Arc<dyn Wake> = ring;
        let hands = (1..=HANDS).map(|number| {
            let (desk, ring) = (Arc::clone(&desk), Arc::clone(&ring));
            Worker::spawn(format!("agent-cred-{number}"), move |stop| {
                let _registration = stop.register(&ring);
                desk.take_clients(stop);
            })
        });
        let hands = hands.collect::<io::Result<_>>().map_err(failed)?;
        Ok(Some(Self { desk, hands, file }))
    }

    /// Answers by this declaration from now on, also those that wait.
    pub(crate) fn declare(&self, declared: Declared) {
        *self.desk.declared.lock() = declared;
    }

    /// Whether clients find the socket, and are answered.
    pub(crate) fn health(&self) -> Result<(), Error> {
        if self.hands.iter().any(Worker::is_finished) {
            return Err(Error::stopped("a thread of the credential socket"));
        }
        if self.file.as_ref().is_some_and(|file| !file.is_in_place()) {
            let text =
                "the file of the credential socket was removed or replaced: restart the agent";
            return Err(Error::new(ErrorKind::Resources, text));
        }
        Ok(())
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        // All at once; their drops join them.
        self.hands.iter().for_each(Worker::stop);
    }
}

/// The socket of a socket unit, for a service with `StandardInput=socket`.
fn standard_input() -> Result<UnixListener, String> {
    let input = io::stdin();
    let is_it = socket_domain(&input).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && socket_acceptconn(&input).is_ok_and(|listens| listens);
    if !is_it {
        let why = "standard input is no Unix socket that listens; write StandardInput=socket";
        return Err(why.to_owned());
    }
    let listener = input.as_fd().try_clone_to_owned().map(UnixListener::from);
    let ready = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    ready.map_err(|error| error.to_string())
}

impl Desk {
    /// Takes a client after the other.
    fn take_clients(&self, stop: &StopToken) {
        while !stop.is_stopped() {
            let mut awaited = [
                PollFd::new(&self.heard, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            let ready = poll(&mut awaited, None).map_err(io::Error::from);
            match ready.and_then(|_| self.listener.accept()) {
                Ok((client, address)) => self.serve(&client, &address, stop),
                Err(error) if may_go_on(&error) => {}
                Err(error) if is_exhausted(&error) => {
                    self.warn(&format!("a client waits: {error}"));
                    stop.wait_until(&self.clock, self.clock.after(EXHAUSTED_PAUSE));
                }
                Err(error) => return log::error!("--credential-socket: it is over: {error}"),
            }
        }
    }

    fn serve(&self, client: &UnixStream, address: &SocketAddr, stop: &StopToken) {
        let ready = client.set_write_timeout(Some(WRITE_TICK));
        let peer = ready.and_then(|()| Ok(socket_peercred(client)?));
        let user = match peer {
            Ok(peer) => peer.uid,
            Err(error) => return self.warn(&format!("a client is left: {error}")),
        };
        if !user.is_root() && user != geteuid() {
            let user = user.as_raw();
            return self.warn(&format!("user {user} is refused: it is not systemd's"));
        }
        let why = match asked(address) {
            None => format!("{address:?} is refused: it names no unit and credential"),
            Some((unit, credential)) => {
                let name = format!("unit {unit:?}, credential {credential:?}");
                match self.answer(client, (unit, credential), stop) {
                    Ok(()) => return log::info!("{name}: given"),
                    Err(why) => format!("{name}: {why}"),
                }
            }
        };
        self.warn(&why);
        let until = self.clock.after(REFUSAL_WAIT);
        // Pages that are never written take no memory.
        let refusal = vec![0; REFUSAL_BYTES];
        if let Err(error) = send(client, &refusal, until, &self.clock, stop) {
            log::debug!("--credential-socket: a refusal is not taken: {error}");
        }
    }

    /// Waits for the value, and gives it to the client. The error says what is missing.
    fn answer(
        &self,
        client: &UnixStream,
        (unit, credential): (&str, &str),
        stop: &StopToken,
    ) -> Result<(), String> {
        let until = self
            .timeout
            .map_or(Deadline::NEVER, |timeout| self.clock.after(timeout));
        let (secrets, config_maps) = self.managers.subscribe();
        loop {
            let declared = self
                .declared
                .lock()
                .units
                .get(unit)
                .and_then(|of| of.get(credential))
                .cloned();
            let source = declared.ok_or("it is not declared")?;
            let found = self
                .managers
                .with_value(&source.object, &source.key, |value| {
                    if value.len() > VALUE_BYTES_MAX {
                        let bytes = value.len();
                        return Err(format!(
                            "{bytes} bytes are more than systemd takes, {VALUE_BYTES_MAX}"
                        ));
                    }
                    let sent = send(client, value, until, &self.clock, stop);
                    sent.map_err(|error| format!("systemd does not take the value: {error}"))
                });
            let missing = match found {
                Ok(given) => return given,
                Err(missing) => missing,
            };
            if stop.is_stopped() {
                return Err("the agent ends".to_owned());
            }
            if is_gone(client) {
                return Err(format!("systemd did not wait longer; {missing}"));
            }
            let now = self.clock.now();
            let left = until.remaining(now).map_or(TICK, |left| left.min(TICK));
            if left.is_zero() {
                return Err(missing);
            }
            let changes = select! {
                recv(secrets.signal()) -> told => Some((told, &secrets)),
                recv(config_maps.signal()) -> told => Some((told, &config_maps)),
                recv(stop.channel()) -> _ => None,
                default(left) => None,
            };
            match changes {
                Some((Ok(()), changes)) => drop(changes.take()),
                // Nothing comes any more.
                Some((Err(_), _)) => return Err(missing),
                None => {}
            }
        }
    }

    /// Tells of a refusal. Whoever asks without end gets few lines.
    fn warn(&self, why: &str) {
        // The log may block, and other hands tell too.
        let (left_out, is_told) = self.told.lock().count(self.clock.now());
        if left_out > 0 {
            log::warn!("--credential-socket: {left_out} refusals were not told");
        }
        if is_told {
            log::warn!("--credential-socket: {why}");
        }
    }
}

impl Told {
    fn since(since: Instant) -> Self {
        Self {
            since,
            lines: 0,
            left_out: 0,
        }
    }

    /// Counts a refusal. Returns how many were left out in the period that ended, and whether this
    /// one is told.
    fn count(&mut self, now: Instant) -> (u64, bool) {
        let mut left_out = 0;
        if now.saturating_duration_since(self.since) >= LINES_PERIOD {
            left_out = std::mem::replace(self, Self::since(now)).left_out;
        }
        let is_told = self.lines < LINES_MAX;
        if is_told {
            self.lines = self.lines.saturating_add(1);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
        (left_out, is_told)
    }
}

/// Unit and credential of an address that systemd connects from: `@RANDOM/unit/UNIT/CREDENTIAL`.
fn asked(address: &SocketAddr) -> Option<(&str, &str)> {
    let name = std::str::from_utf8(address.as_abstract_name()?).ok()?;
    let mut words = name.split('/');
    let random = words.next()?;
    let is_random = !random.is_empty() && random.chars().all(|digit| digit.is_ascii_hexdigit());
    let is_unit = words.next()? == "unit";
    let (unit, credential) = (words.next()?, words.next()?);
    let is_it = is_random && is_unit && words.next().is_none();
    is_it.then_some((unit, credential))
}

/// Whether the next call may do better.
fn may_go_on(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        ConnectionAborted | Interrupted | TimedOut | WouldBlock
    )
}

/// Whether the system is short of something.
fn is_exhausted(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    number.is_some_and(|number| short.contains(&number))
}

/// Whether the client has closed its side.
fn is_gone(client: &UnixStream) -> bool {
    let mut awaited = [PollFd::new(client, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut awaited, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Sends all, as far as the client takes it until the deadline. A stop leaves it a moment.
fn send(
    mut client: &UnixStream,
    mut bytes: &[u8],
    mut until: Deadline,
    clock: &Clock,
    stop: &StopToken,
) -> io::Result<()> {
    let mut is_stopped = false;
    while !bytes.is_empty() {
        if !is_stopped && stop.is_stopped() {
            is_stopped = true;
            until = until.earlier(clock.after(LAST_WAIT));
        }
        match client.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if may_go_on(&error) => {}
            Err(error) => return Err(error),
        }
        if !bytes.is_empty() && clock.has_passed(until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::Secret;
    use kubecache::http::{Client, ClientOptions, Config};
    use kubecache::manager::{ChangeDetection, ManagerOptions};
    use kubecache::testing::{ApiServer, objects};
    use rustix::net::{SocketAddrUnix, SocketType, bind, connect, socket};

    use super::*;
    use crate::references;
    use crate::temp_directory::TempDirectory;

    /// An agent's credentials: `app.service` has `db`, which is the key `password` of a Secret, and
    /// `flag`, which is the key `tax` of a ConfigMap.
    struct Machine {
        // Ends first.
        credentials: Credentials,
        managers: Managers,
        server: ApiServer,
        directory: TempDirectory,
    }

    fn declared() -> Declared {
        let source = |kind, name, key: &str| Source {
            object: references::of_flag(kind, name).unwrap(),
            key: key.to_owned(),
        };
        let app = [
            ("db", source("secret", "shop/db", "password")),
            ("flag", source("configmap", "shop/flags", "tax")),
        ];
        let app = app.map(|(name, source)| (name.to_owned(), source));
        Declared {
            units: [("app.service".to_owned(), app.into())].into(),
        }
    }

    fn start(timeout: Option<Duration>, strategy: ChangeDetection) -> Machine {
        let server = ApiServer::new().unwrap();
        let config = Config::for_server(&server.url());
        let client = Client::new(&config.unwrap(), ClientOptions::default()).unwrap();
        let managers = Managers::new(&client, &ManagerOptions::default(), strategy, None);
        let managers = managers.unwrap();
        let objects: BTreeSet<_> = declared().objects().cloned().collect();
        managers.refer(&objects, &BTreeSet::new());
        let directory = TempDirectory::new("credentials");
        let options = CredentialOptions {
            socket: Some(directory.join("s")),
            timeout,
            declared: declared(),
        };
        Machine {
            credentials: Credentials::start(&options, &managers).unwrap().unwrap(),
            managers,
            server,
            directory,
        }
    }

    impl Machine {
        fn set_password(&self, password: &str) {
            let secret = objects::secret("shop", "db", "", &[("password", password)]);
            self.server.apply(&secret).unwrap();
        }

        /// Connects as systemd does.
        fn ask(&self, credential: &str) -> UnixStream {
            static ASKED: AtomicUsize = AtomicUsize::new(0);
            let number = ASKED.fetch_add(1, Ordering::Relaxed);
            let process = std::process::id();
            let name = format!("{process:x}{number:08x}/unit/app.service/{credential}");
            ask(&self.directory.join("s"), name.as_bytes())
        }
    }

    fn ask(path: &Path, name: &[u8]) -> UnixStream {
        let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&client, &SocketAddrUnix::new_abstract_name(name).unwrap()).unwrap();
        connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
        client.into()
    }

    fn answer(mut client: &UnixStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    /// More than systemd takes, and none of it a value.
    fn is_refusal(answer: &str) -> bool {
        answer.len() > VALUE_BYTES_MAX && answer.bytes().all(|byte| byte == 0)
    }

    #[test]
    fn a_unit_gets_its_value_as_soon_as_object_and_key_are_there() {
        for strategy in ChangeDetection::ALL {
            let machine = start(None, strategy);
            let waits = [machine.ask("db"), machine.ask("flag")];
            let without = objects::secret("shop", "db", "", &[("user", "jane")]);
            machine.server.apply(&without).unwrap();
            let map = objects::config_map("shop", "flags", "", &[("tax", "")]);
            machine.server.apply(&map).unwrap();
            assert_eq!(answer(&waits[1]), "");
            machine.set_password("canary");
            assert_eq!(answer(&waits[0]), "canary");
            assert_eq!(
                machine.credentials.health().map_err(|e| e.to_string()),
                Ok(())
            );
        }
    }

    #[test]
    fn what_is_missing_at_the_deadline_is_refused() {
        let machine = start(Some(Duration::from_millis(50)), ChangeDetection::Watch);
        assert!(is_refusal(&answer(&machine.ask("db"))));
        machine.set_password(&"x".repeat(VALUE_BYTES_MAX));
        while answer(&machine.ask("db")).len() != VALUE_BYTES_MAX {}
        // A value that is too large is no value.
        machine.set_password(&"x".repeat(VALUE_BYTES_MAX + 1));
        while !is_refusal(&answer(&machine.ask("db"))) {}
        machine.set_password("canary");
        while is_refusal(&answer(&machine.ask("db"))) {}
        machine.server.delete::<Secret>("shop", "db").unwrap();
        while !is_refusal(&answer(&machine.ask("db"))) {}
    }

    #[test]
    fn all_else_is_refused_at_once_until_it_is_declared() {
        let machine = start(None, ChangeDetection::Watch);
        machine.set_password("canary");
        let path = machine.directory.join("s");
        assert!(is_refusal(&answer(&machine.ask("other"))));
        let unnamed = UnixStream::connect(&path).unwrap();
        assert!(is_refusal(&answer(&unnamed)));
        let long = [b"7/unit/app.service/".as_slice(), &[b'x'; 88]].concat();
        let names: [&[u8]; 11] = [
            b"",
            b"7/unit/app.service",
            b"7/unit/app.service/db/",
            b"7/unit/x/app.service/db",
            b"7/unit/../app.service/db",
            b"7/unit//db",
            b"/unit/app.service/db",
            b"0x7/unit/app.service/db",
            b"7/cryptsetup/app.service/db",
            b"7/unit/app.service/db\xff",
            &long,
        ];
        for name in names {
            assert!(
                is_refusal(&answer(&ask(&path, name))),
                "{}",
                name.escape_ascii()
            );
        }
        let mut more = declared();
        let app = more.units.get_mut("app.service").unwrap();
        app.insert("other".to_owned(), app["db"].clone());
        machine.credentials.declare(more);
        assert_eq!(answer(&machine.ask("other")), "canary");
        // What waits is refused too, once it is not declared any more.
        let waits = machine.ask("flag");
        machine.credentials.declare(Declared::default());
        assert!(is_refusal(&answer(&waits)));
        let told = machine.credentials.desk.told.lock();
        assert_eq!((told.lines, told.left_out), (14, 0));
    }

    #[test]
    fn clients_that_take_nothing_or_wait_are_few_at_a_time_and_hold_up_no_end() {
        let machine = start(Some(Duration::from_millis(50)), ChangeDetection::Watch);
        machine.set_password(&"x".repeat(VALUE_BYTES_MAX));
        while answer(&machine.ask("db")).len() != VALUE_BYTES_MAX {}
        let idle: Vec<_> = (0..HANDS).map(|_| machine.ask("db")).collect();
        while answer(&machine.ask("db")).len() != VALUE_BYTES_MAX {}
        drop(idle);

        let machine = start(None, ChangeDetection::Watch);
        let mut waiting: Vec<_> = (0..HANDS).map(|_| machine.ask("flag")).collect();
        machine.set_password("canary");
        let later = machine.ask("db");
        // A hand is free once its client has gone.
        drop(waiting.pop());
        assert_eq!(answer(&later), "canary");
        let silent = waiting.split_off(1);
        let reads = std::thread::Builder::new();
        let reads = reads.spawn(move || assert!(is_refusal(&answer(&waiting[0]))));
        let reads = reads.unwrap();
        drop(machine.credentials);
        reads.join().unwrap();
        drop(silent);
        assert!(!machine.directory.join("s").exists());
        drop((machine.managers, machine.server));
    }

    #[test]
    fn a_socket_file_that_is_gone_or_a_thread_that_ended_fails_the_check() {
        let machine = start(None, ChangeDetection::Watch);
        let other = machine.directory.join("other");
        fs::write(&other, "").unwrap();
        fs::rename(&other, machine.directory.join("s")).unwrap();
        let error = machine.credentials.health().unwrap_err();
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        // Its end leaves what is not its own.
        machine.credentials.hands[0].stop();
        while !machine.credentials.hands[0].is_finished() {
            std::thread::yield_now();
        }
        let error = machine.credentials.health().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        drop(machine.credentials);
        assert!(machine.directory.join("s").exists());
    }

    #[test]
    fn who_asks_without_end_gets_few_lines() {
        let machine = start(None, ChangeDetection::Watch);
        for _ in 0..LINES_MAX + 7 {
            machine.credentials.desk.warn("again");
        }
        let told = machine.credentials.desk.told.lock();
        assert_eq!((told.lines, told.left_out), (LINES_MAX, 7));
    }
}
