//! The bytes to and from a server: on a socket, or inside the TLS session with a proxy. No method
//! blocks.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustls::ClientConnection;

use super::super::calls::call_context;
use super::super::calls::interrupt::Interrupt;
use super::super::tls::Tls;
use crate::sync::Arc;

/// The bytes of one connection.
pub(crate) struct ByteStream {
    /// Shared with the watch that waits for it to become readable.
    socket: Arc<TcpStream>,
    proxy: Option<ProxySession>,
}

/// The TLS session with a proxy.
struct ProxySession {
    connection: Box<ClientConnection>,
    /// Explains failures.
    tls: Arc<Tls>,
}

impl ByteStream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self {
            socket: Arc::new(socket),
            proxy: None,
        }
    }

    /// The same bytes, from now on inside the TLS session with a proxy.
    pub(crate) fn within(self, connection: ClientConnection, tls: &Arc<Tls>) -> Self {
        let connection = Box::new(connection);
        let tls = Arc::clone(tls);
        Self {
            proxy: Some(ProxySession { connection, tls }),
            ..self
        }
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }
}

impl ProxySession {
    /// Sends pending records. `WouldBlock` if some are left.
    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn read(&mut self, mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.connection.read_tls(&mut socket)?;
            if let Err(error) = self.connection.process_new_packets() {
                return Err(carried(Interrupt::Failed(self.tls.explain(error))));
            }
            // Records without data can go on without end.
            call_context::current(|call| call.check()).map_err(carried)?;
        }
    }
}

/// An interrupt within an error of the system, from which [`Interrupt::from`] takes it again.
fn carried(interrupt: Interrupt) -> io::Error {
    io::Error::other(ureq::Error::from(interrupt))
}

impl Read for ByteStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.proxy {
            None => (&*self.socket).read(into),
            Some(session) => {
                // A reply of TLS itself may wait. Its loss shows when data is sent.
                drop(session.flush(&self.socket));
                session.read(&self.socket, into)
            }
        }
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.proxy {
            None => (&*self.socket).write(bytes),
            Some(session) => {
                // No more than these bytes ever wait in the session.
                session.flush(&self.socket)?;
                session.connection.writer().write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.proxy {
            None => Ok(()),
            Some(session) => session.flush(&self.socket),
        }
    }
}

/// The descriptor to wait for.
impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
