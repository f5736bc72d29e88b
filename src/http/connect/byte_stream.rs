//! The bytes to and from a server: on a socket, or inside the TLS session with a proxy. No method
//! blocks.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use super::super::calls::call_context;
use super::session::Session;
use crate::sync::Arc;

/// The bytes of one connection.
pub(crate) struct ByteStream {
    /// Shared with the watch that waits for it to become readable.
    socket: Arc<TcpStream>,
    proxy: Option<Session>,
}

impl ByteStream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self {
            socket: Arc::new(socket),
            proxy: None,
        }
    }

    /// The same bytes, from now on inside the TLS session with a proxy.
    pub(crate) fn within(self, session: Session) -> Self {
        Self {
            proxy: Some(session),
            ..self
        }
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }
}

impl Read for ByteStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.proxy {
            None => call_context::receive(&*self.socket, into),
            Some(session) => session.read(&mut &*self.socket, into),
        }
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.proxy {
            None => (&*self.socket).write(bytes),
            Some(session) => {
                // No more than these bytes ever wait in the session.
                session.flush(&mut &*self.socket)?;
                session.connection.writer().write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.proxy {
            None => Ok(()),
            Some(session) => session.flush(&mut &*self.socket),
        }
    }
}

/// The descriptor to wait for.
impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
