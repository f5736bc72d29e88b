//! Makes a TCP connection to the first of several addresses that accepts it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketType, sockopt};

use super::super::calls::call_context::CallContext;
use super::super::calls::interrupt::Interrupt;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::RequestPhase;

/// The next address is tried after this time, while the attempts before it go on.
const STAGGER: Duration = Duration::from_millis(250);

/// The silence after which the kernel sends keep-alive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// The time between two keep-alive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of unanswered probes that end the connection.
const KEEPALIVE_PROBES: u32 = 3;

/// The kernel closes the connection when bytes stay unacknowledged for this many milliseconds.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MILLIS: u32 = 60_000;

/// Connects to the first address that accepts. Blocks within the limit of `call`, which covers all
/// addresses together.
///
/// # Errors
///
/// The stop, the limit, or the errors of all addresses.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    call: &CallContext,
) -> Result<TcpStream, Interrupt> {
    let mut attempts = Attempts::default();
    let mut left = addresses.iter().copied();
    loop {
        let next = left.next();
        if let Some(address) = next {
            call.enter_phase(RequestPhase::Connecting(address));
            if let Some(stream) = attempts.begin(address) {
                return Ok(stream);
            }
        } else if attempts.under_way.is_empty() {
            return Err(Interrupt::Failed(attempts.failure()));
        }
        if attempts.under_way.is_empty() {
            continue;
        }
        let pause = if left.len() > 0 {
            Clock::system().after(STAGGER)
        } else {
            Deadline::NEVER
        };
        if let Some(stream) = attempts.wait(call, pause)? {
            return Ok(stream);
        }
    }
}

#[derive(Default)]
struct Attempts {
    under_way: Vec<(OwnedFd, SocketAddr)>,
    failed: Vec<String>,
}

impl Attempts {
    /// Begins a connect; `Some` when it is done already.
    fn begin(&mut self, address: SocketAddr) -> Option<TcpStream> {
        let opened = open(address).map_err(|error| self.failed(address, &error.into()));
        let socket = opened.ok()?;
        if let Err(refused) = tune(&socket) {
            log::debug!("the system refuses an option of the connection to {address}: {refused}");
        }
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return self.connected(socket, address),
            Err(Errno::INPROGRESS | Errno::INTR) => self.under_way.push((socket, address)),
            Err(error) => self.failed(address, &error.into()),
        }
        None
    }

    /// Waits until an attempt has ended or the pause is over.
    fn wait(
        &mut self,
        call: &CallContext,
        pause: Deadline,
    ) -> Result<Option<TcpStream>, Interrupt> {
        let ready: Vec<bool> = {
            let sockets = self.under_way.iter().map(|(socket, _)| socket);
            let sockets = sockets.map(|socket| PollFd::new(socket, PollFlags::OUT));
            let mut polled: Vec<_> = sockets.chain([call.wake_descriptor()]).collect();
            call.wait_for_any(&mut polled, pause)?;
            let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
            polled.iter().map(is_ready).collect()
        };
        let mut won = None;
        let attempts = std::mem::take(&mut self.under_way);
        for ((socket, address), ready) in attempts.into_iter().zip(ready) {
            if !ready {
                self.under_way.push((socket, address));
                continue;
            }
            match sockopt::socket_error(&socket) {
                Ok(Ok(())) => won = self.connected(socket, address).or(won),
                Ok(Err(error)) | Err(error) => self.failed(address, &error.into()),
            }
        }
        Ok(won)
    }

    /// The stream of a connection. A connect to a closed port of this machine may get that port as
    /// its own, and reach itself.
    fn connected(&mut self, socket: OwnedFd, address: SocketAddr) -> Option<TcpStream> {
        let stream = TcpStream::from(socket);
        let own = stream.local_addr().ok();
        if own.is_some() && own == stream.peer_addr().ok() {
            self.failed(address, &Errno::CONNREFUSED.into());
            return None;
        }
        Some(stream)
    }

    fn failed(&mut self, address: SocketAddr, error: &io::Error) {
        self.failed.push(format!("{address}: {error}"));
    }

    fn failure(&self) -> Error {
        let message = format!("connecting to {}", self.failed.join("; "));
        Error::new(ErrorKind::Unreachable, message)
    }
}

/// Sets the options that make a connection faster, or report its death sooner. If a sandbox forbids
/// them, a connection works without them.
///
/// # Errors
///
/// The first refusal; the other options are set all the same.
fn tune(socket: &OwnedFd) -> Result<(), Errno> {
    let set = [
        sockopt::set_tcp_nodelay(socket, true),
        sockopt::set_socket_keepalive(socket, true),
        keepalive(socket),
    ];
    set.into_iter().collect()
}

#[cfg(target_os = "linux")]
fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
    use rustix::net::{SocketFlags, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = SocketAddrAny::from(address).address_family();
    socket_with(family, SocketType::STREAM, flags, None)
}

#[cfg(not(target_os = "linux"))]
fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = SocketAddrAny::from(address).address_family();
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn keepalive(socket: &OwnedFd) -> Result<(), Errno> {
    let set = [
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE),
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL),
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES),
        sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MILLIS),
    ];
    set.into_iter().collect()
}

/// Other systems keep their own intervals: the names of the options differ.
#[cfg(not(target_os = "linux"))]
fn keepalive(_socket: &OwnedFd) -> Result<(), Errno> {
    let _intervals = (KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::{bind, getsockname};

    use super::*;
    use crate::http::calls::call_context::NamedDeadline;
    use crate::http::calls::interrupt::Limit;
    use crate::worker::StopToken;

    fn call(until: NamedDeadline) -> CallContext {
        CallContext::new(&StopToken::never(), until).unwrap()
    }

    #[test]
    fn a_connection_to_itself_is_a_refused_one() {
        // A connect to no address reaches this machine.
        for asked in [[127, 0, 0, 1], [0, 0, 0, 0]] {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let socket = open(any).unwrap();
            bind(&socket, &any).unwrap();
            let own = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
            let asked = SocketAddr::from((asked, own.port()));
            let _begun = rustix::net::connect(&socket, &asked);
            let mut attempts = Attempts::default();
            assert!(attempts.connected(socket, asked).is_none());
            let text = attempts.failure().to_string();
            assert!(text.contains("Connection refused"), "{text}");
        }
    }

    /// One that listened would answer while a child that another test just forked has it.
    fn closed_port() -> SocketAddr {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = open(any).unwrap();
        bind(&socket, &any).unwrap();
        getsockname(&socket).unwrap().try_into().unwrap()
    }

    /// A listener whose queue of one is full: it answers no connect.
    fn deaf() -> (TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let queued = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener, queued)
    }

    #[test]
    fn addresses_that_refuse_or_do_not_answer_are_passed_over() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = server.local_addr().unwrap();
        let (silent, _queued) = deaf();
        let silent = silent.local_addr().unwrap();
        for addresses in [vec![there], vec![closed_port(), there], vec![silent, there]] {
            let stream = connect(&addresses, &call(NamedDeadline::NEVER)).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), there);
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert!(stream.nodelay().unwrap());
            server.accept().unwrap();
        }
    }

    /// F21: a kernel, or a sandbox, that knows no such option still connects.
    #[test]
    fn a_refused_option_leaves_the_others_set() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        assert!(tune(&socket).is_err(), "it is no TCP");
        assert!(sockopt::socket_keepalive(&socket).unwrap());
    }

    #[test]
    fn when_all_refuse_each_is_named() {
        let addresses = [closed_port(), closed_port()];
        let Err(Interrupt::Failed(error)) = connect(&addresses, &call(NamedDeadline::NEVER)) else {
            panic!("no listener");
        };
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        for address in addresses {
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
    }

    #[test]
    fn the_limit_covers_all_addresses_together() {
        let (silent, _queued) = deaf();
        let silent = silent.local_addr().unwrap();
        let until = NamedDeadline::NEVER.within(Duration::from_millis(20), Limit::Connect);
        let ended = connect(&[silent, silent], &call(until));
        assert!(
            matches!(ended, Err(Interrupt::Limit(Limit::Connect(_)))),
            "{ended:?}"
        );
    }
}
