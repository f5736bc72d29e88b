//! A loopback listener whose connections are threads with an owner: the ground under the test
//! servers and the recorder.
//!
//! One thread accepts, notices clients that hang up, joins ended threads, and at its stop ends and
//! joins the others. Only that thread owns the connections, so they need no lock.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use crate::worker::{StopToken, Wake, Worker};

/// The pause before the next try after descriptors or threads ran out, while a waiting client keeps
/// the listener readable.
const EXHAUSTED_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The handler of one connection. It ends when the client has gone or `stop` is raised; both also
/// end a blocked read or write of the socket.
pub(in crate::testing) trait Handler: Send + Sync + 'static {
    /// The decision about a connection before it gets a thread.
    type Admitted: Send + 'static;

    /// Decides about the next connection, in the order of arrival.
    fn admit(&self) -> Self::Admitted;

    fn serve(&self, socket: TcpStream, admitted: Self::Admitted, stop: &StopToken);
}

/// A listener on a loopback port of its own. Dropping it ends and joins every thread of it.
#[derive(Debug)]
pub(in crate::testing) struct Service {
    address: SocketAddr,
    acceptor: Worker,
    crashes: Arc<AtomicBool>,
}

impl Service {
    /// Listens on `port` of the loopback address, or on a free one for 0. `name` is that of its
    /// threads.
    pub(in crate::testing) fn spawn(
        name: &'static str,
        port: u16,
        handler: Arc<impl Handler>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Self::on(listener, name, handler)
    }

    fn on(
        listener: TcpListener,
        name: &'static str,
        handler: Arc<impl Handler>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (ring, listens) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        listens.set_nonblocking(true)?;
        let bell = Arc::new(ServiceBell(ring));
        let crashes = Arc::new(AtomicBool::new(false));
        let crash = Arc::clone(&crashes);
        let acceptor = Worker::spawn(name, move |stop| {
            let wake: Arc<dyn Wake> = Arc::<ServiceBell>::clone(&bell);
            let registration = stop.register(&wake);
            let mut acceptor = Acceptor {
                name,
                listener,
                listens,
                bell,
                handler,
                connections: Vec::new(),
                exhausted: false,
            };
            while !stop.is_stopped() {
                acceptor.turn();
            }
            acceptor.close();
            if crash.load(Ordering::SeqCst) {
                acceptor.connections.iter().for_each(OpenConnection::reset);
            }
            drop(registration);
        })?;
        Ok(Self {
            address,
            acceptor,
            crashes,
        })
    }

    pub(in crate::testing) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets every connection, like a killed process. Returns when all threads have ended.
    pub(in crate::testing) fn crash(self) {
        self.crashes.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Ends every connection; returns when all threads have ended.
    pub(in crate::testing) fn stop(self) {
        if let Err(panic) = self.acceptor.join() {
            log::error!("the thread that accepts connections panicked: {panic}");
        }
    }
}

/// Wakes the accepting thread from its poll.
#[derive(Debug)]
struct ServiceBell(UnixStream);

impl Wake for ServiceBell {
    fn wake(&self) {
        // A full pipe has already woken it; a closed one belongs to a thread past its poll.
        let _rung = (&self.0).write(&[1]);
    }
}

struct Acceptor<H> {
    name: &'static str,
    listener: TcpListener,
    listens: UnixStream,
    bell: Arc<ServiceBell>,
    handler: Arc<H>,
    connections: Vec<OpenConnection>,
    /// The system has no resources for another connection, so none is accepted until the next turn.
    exhausted: bool,
}

struct OpenConnection {
    socket: TcpStream,
    worker: Worker,
    ended: Arc<AtomicBool>,
    hung_up: bool,
}

impl OpenConnection {
    fn reset(&self) {
        if let Err(error) = reset(&self.socket) {
            log::debug!("a connection could not be reset: {error}");
        }
    }

    fn end(&mut self) {
        self.hung_up = true;
        self.worker.stop();
        // It may be closed already.
        let _closed = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.end();
    }
}

impl<H: Handler> Acceptor<H> {
    /// Prevents further connections, even if another process has the listener: a child has it from
    /// fork to exec.
    fn close(&self) {
        let closed = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Err(error) = closed {
            log::debug!("{}: its port was not shut: {error}", self.name);
        }
    }

    fn turn(&mut self) {
        self.wait();
        let mut rung = [0; 64];
        while matches!((&self.listens).read(&mut rung), Ok(count) if count > 0) {}
        self.connections
            .retain(|connection| !connection.ended.load(Ordering::SeqCst));
        self.exhausted = false;
        loop {
            match self
                .listener
                .accept()
                .and_then(|(socket, _)| self.open(socket))
            {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log::warn!("{}: a connection could not be taken: {error}", self.name);
                    self.exhausted = true;
                    return;
                }
            }
        }
    }

    /// Blocks until a client connects or hangs up, a thread ends, or the stop.
    fn wait(&mut self) {
        let (arrivals, timeout) = if self.exhausted {
            (PollFlags::empty(), Some(&EXHAUSTED_PAUSE))
        } else {
            (PollFlags::IN, None)
        };
        let mut descriptors = vec![
            PollFd::new(&self.listener, arrivals),
            PollFd::new(&self.listens, PollFlags::IN),
        ];
        let open = |connection: &&OpenConnection| !connection.hung_up;
        let watched = self.connections.iter().filter(open);
        descriptors.extend(watched.map(|connection| PollFd::new(&connection.socket, HUNG_UP)));
        if let Err(error) = poll(&mut descriptors, timeout) {
            log::debug!("{}: poll: {error}", self.name);
            return;
        }
        let gone: Vec<_> = descriptors
            .iter()
            .skip(2)
            .map(|at| !at.revents().is_empty())
            .collect();
        drop(descriptors);
        let watched = self
            .connections
            .iter_mut()
            .filter(|connection| !connection.hung_up);
        for (connection, gone) in watched.zip(gone) {
            if gone {
                connection.end();
            }
        }
    }

    fn open(&mut self, socket: TcpStream) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        // Accepted sockets inherit the listener's mode on some systems.
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        let ours = socket.try_clone()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = ServiceEnd {
            ended: Arc::clone(&ended),
            bell: Arc::clone(&self.bell),
            socket: socket.try_clone()?,
        };
        let handler = Arc::clone(&self.handler);
        let admitted = handler.admit();
        let name = format!("{}-{}", self.name, COUNT.fetch_add(1, Ordering::Relaxed));
        let worker = Worker::spawn(name, move |stop| {
            let _end = end;
            handler.serve(socket, admitted, stop);
        })?;
        self.connections.push(OpenConnection {
            socket: ours,
            worker,
            ended,
            hung_up: false,
        });
        Ok(())
    }
}

/// Resets a connection, even if another process has its socket, so that blocked calls return.
pub(in crate::testing) fn reset(socket: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(socket)?)
}

#[cfg(target_os = "linux")]
const HUNG_UP: PollFlags = PollFlags::RDHUP;
/// Outside Linux, only a reset is noticed while an answer waits for its time (untested).
#[cfg(not(target_os = "linux"))]
const HUNG_UP: PollFlags = PollFlags::HUP;

/// The end of a connection's thread, even by a panic: the client sees the end, and the acceptor
/// joins the thread.
struct ServiceEnd {
    ended: Arc<AtomicBool>,
    bell: Arc<ServiceBell>,
    socket: TcpStream,
}

impl Drop for ServiceEnd {
    fn drop(&mut self) {
        let _closed = self.socket.shutdown(Shutdown::Both);
        self.ended.store(true, Ordering::SeqCst);
        self.bell.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Handler for Nothing {
        type Admitted = ();

        fn admit(&self) {}

        fn serve(&self, _socket: TcpStream, (): (), _stop: &StopToken) {}
    }

    /// A child process has all descriptors from fork to exec.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_port_is_closed_although_another_process_has_the_listener_still() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let copy = listener.try_clone().unwrap();
        let service = Service::on(listener, "closes", Arc::new(Nothing)).unwrap();
        let address = service.address();
        service.crash();
        assert!(TcpStream::connect(address).is_err());
        drop(copy);
    }
}
