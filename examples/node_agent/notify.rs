//! What systemd is told over `$NOTIFY_SOCKET`: that the agent is ready, reloads, lives and stops.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::reads::later;
use crate::tell::one_line;

/// The variables of the service manager. No program that the agent runs gets their values.
pub(crate) const VARIABLES: [&str; 3] = [SOCKET, "WATCHDOG_USEC", "WATCHDOG_PID"];

const SOCKET: &str = "NOTIFY_SOCKET";

/// How often the agent looks whether all files are there, until they are.
const LOOK: Duration = Duration::from_millis(100);

/// How often it looks once it has told that it is ready.
const LATE_LOOK: Duration = Duration::from_secs(1);

/// The status of an agent that lacks nothing.
const COMPLETE: &str = "every object is there";

/// So many of the objects that are missing are named.
const NAMED_MAX: usize = 5;

/// The maximum of a status, in characters: a socket takes no message of any length.
const STATUS_MAX: usize = 1000;

/// What the service manager knows of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ready {
    /// It starts.
    #[default]
    NotYet,
    /// It is ready.
    Told,
    /// It reloads: a full socket did not take the end of that.
    Owed,
}

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often a sign of life is due, and when the next one is.
    watchdog: Option<(Duration, Instant)>,
    /// When it is told that the agent is ready, whatever is missing.
    late: Option<Instant>,
    ready: Ready,
    /// What was told last.
    status: String,
    /// It is told that every object is there.
    is_complete: bool,
}

impl Notifier {
    /// Reads the variables of the environment.
    pub(crate) fn from_environment(
        ready_timeout: Option<Duration>,
        now: Instant,
    ) -> Result<Self, String> {
        let [socket, period, process] = VARIABLES.map(std::env::var_os);
        let Some(name) = socket.filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let wrong = |why: &dyn std::fmt::Display| format!("${SOCKET} {}: {why}", name.display());
        let address = address(&name).map_err(|error| wrong(&error))?;
        let socket = UnixDatagram::unbound().map_err(|error| wrong(&error))?;
        // A service manager that takes nothing holds up nothing.
        socket
            .set_nonblocking(true)
            .map_err(|error| wrong(&error))?;
        let number = |text: Option<std::ffi::OsString>| text?.to_str()?.parse::<u64>().ok();
        let is_ours = process.is_none() || number(process) == Some(u64::from(std::process::id()));
        let period = number(period).filter(|period| is_ours && *period > 0);
        Ok(Self {
            socket: Some((socket, address)),
            watchdog: period.map(|period| (Duration::from_micros(period / 2), now)),
            late: ready_timeout.map(|timeout| later(now, timeout)),
            ..Self::default()
        })
    }

    /// When there is something to tell although nothing came.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Instant> {
        let waits = self.socket.is_some() && !self.is_complete;
        let pause = match self.ready {
            Ready::Told => LATE_LOOK,
            Ready::NotYet | Ready::Owed => LOOK,
        };
        let look = waits.then(|| later(now, pause));
        self.watchdog
            .map(|(_, next)| next)
            .into_iter()
            .chain(look)
            .min()
    }

    /// The agent's loop goes on.
    pub(crate) fn lives(&mut self, now: Instant) {
        if let Some((period, next)) = &mut self.watchdog
            && *next <= now
        {
            *next = later(now, *period);
            self.tell("WATCHDOG=1");
        }
    }

    /// Tells that the agent is ready, once nothing is missing or the time is over. From then on it
    /// tells what is missing, until all of it is there.
    pub(crate) fn look(&mut self, now: Instant, missing: impl FnOnce() -> Vec<String>) {
        if self.socket.is_none() || self.is_complete {
            return;
        }
        let missing = missing();
        let status = if missing.is_empty() {
            COMPLETE.to_owned()
        } else if self.ready != Ready::NotYet || self.late.is_some_and(|late| late <= now) {
            let named: Vec<_> = missing.iter().take(NAMED_MAX).map(String::as_str).collect();
            let more = missing.len().saturating_sub(named.len());
            let named = named.join(", ");
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            // A pod may name what it likes: another line would be another message.
            let status = one_line(&format!("missing: {named}{more}"));
            status.chars().take(STATUS_MAX).collect()
        } else {
            return;
        };
        // What was not taken is told at the next look.
        let is_ready = self.ready == Ready::Told;
        let ready = if is_ready { "" } else { "READY=1\n" };
        let is_told = is_ready && status == self.status;
        if is_told || self.tell(&format!("{ready}STATUS={status}")) {
            if !missing.is_empty() && self.ready == Ready::NotYet {
                log::warn!("ready without what is {status}");
            }
            (self.status, self.ready) = (status, Ready::Told);
            self.is_complete = missing.is_empty();
        }
    }

    /// Others may be missing by now.
    pub(crate) fn look_again(&mut self) {
        self.is_complete = false;
    }

    /// Something is read again; [`reloaded`](Self::reloaded) follows.
    pub(crate) fn reloads(&self) {
        if self.ready == Ready::NotYet {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now
            .tv_sec
            .saturating_mul(1_000_000)
            .saturating_add(now.tv_nsec / 1000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// A reload is over, whatever came of it. An agent that is not ready yet tells that later.
    pub(crate) fn reloaded(&mut self) {
        if self.ready != Ready::NotYet {
            let is_taken = self.tell("READY=1");
            self.ready = if is_taken { Ready::Told } else { Ready::Owed };
            self.is_complete &= is_taken;
        }
    }

    /// The agent ends.
    pub(crate) fn stops(&self) {
        self.tell("STOPPING=1");
    }

    /// Returns false if the socket is full. Nobody waits for it, and one that is gone misses it.
    fn tell(&self, text: &str) -> bool {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            log::debug!("${SOCKET} does not take {text:?}: {error}");
            return error.kind() != io::ErrorKind::WouldBlock;
        }
        true
    }
}

/// A path, or a name that begins with `@`.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::other("it is neither a path nor a name after @")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_directory::TempDirectory;

    /// Seen: a pod's name of a Secret was more lines, such as one that ends the agent.
    #[test]
    fn a_name_is_no_message_and_of_any_length() {
        let directory = TempDirectory::new("notify-name");
        let path = directory.join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        let now = kubecache::clock::Clock::system().now();
        for name in ["a/\nWATCHDOG=trigger\n", &"\u{fc}".repeat(300_000)] {
            let mut notifier = Notifier {
                socket: Some((
                    socket.try_clone().unwrap(),
                    address(path.as_os_str()).unwrap(),
                )),
                late: Some(now),
                ..Notifier::default()
            };
            notifier.look(now, || vec![format!("secret {name}")]);
            let mut bytes = [0; 4096];
            let length = manager.recv(&mut bytes).unwrap();
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            assert!(
                text.starts_with("READY=1\nSTATUS=missing: secret "),
                "{text}"
            );
            assert_eq!(text.lines().count(), 2, "{text}");
        }
    }

    /// Seen: it was taken for told, and the service manager ended the agent at its time limit.
    #[test]
    fn what_a_full_socket_does_not_take_is_told_at_the_next_look() {
        let directory = TempDirectory::new("notify-full");
        let path = directory.join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut notifier = Notifier {
            socket: Some((socket, address(path.as_os_str()).unwrap())),
            ..Notifier::default()
        };
        let fill = |notifier: &Notifier| while notifier.tell("WATCHDOG=1") {};
        let taken = || {
            let mut bytes = [0; 64];
            let mut texts = Vec::new();
            while let Ok(length) = manager.recv(&mut bytes) {
                texts.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
            texts.retain(|text| text != "WATCHDOG=1");
            texts
        };
        let now = kubecache::clock::Clock::system().now();
        fill(&notifier);
        notifier.look(now, Vec::new);
        assert_eq!(taken(), [""; 0]);
        notifier.look(now, Vec::new);
        notifier.look(now, || vec!["secret shop/db".to_owned()]);
        assert_eq!(taken(), ["READY=1\nSTATUS=every object is there"]);

        // A reload, after which something is missing.
        notifier.reloads();
        notifier.look_again();
        fill(&notifier);
        notifier.reloaded();
        assert!(taken().len() == 1, "RELOADING=1");
        for _ in 0..2 {
            notifier.look(now, || vec!["secret shop/db".to_owned()]);
        }
        notifier.look(now, Vec::new);
        let told = [
            "READY=1\nSTATUS=missing: secret shop/db",
            "STATUS=every object is there",
        ];
        assert_eq!(taken(), told);
    }
}
