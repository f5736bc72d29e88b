//! TCP and TLS fused into one of ureq's transports: non-blocking, its waits ended by the thread's blocking context.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustls::ClientConnection;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

use super::blocking;
use super::buffers::{GrowingBuffers, UNREAD_BYTES_MAX};
use super::halt::Halt;
use super::tls::Tls;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// A connection to the server, as ureq keeps it in its pool.
pub(crate) struct Connection {
    /// Shared with the watch that waits for it to become readable.
    socket: Arc<TcpStream>,
    tls: Option<Session>,
    buffers: GrowingBuffers,
    broken: bool,
}

/// The TLS half of a connection.
pub(crate) struct Session {
    connection: Box<ClientConnection>,
    /// Explains failures, and says whether its configuration is still the current one.
    tls: Arc<Tls>,
    generation: u64,
}

/// What one look at the socket gave.
enum Filled {
    Bytes,
    Nothing,
    End,
}

impl Session {
    pub(crate) fn new(connection: Box<ClientConnection>, tls: Arc<Tls>, generation: u64) -> Self {
        Self {
            connection,
            tls,
            generation,
        }
    }

    fn fill(&mut self, mut socket: &TcpStream, room: &mut [u8]) -> Result<(Filled, usize), Halt> {
        loop {
            match self.connection.reader().read(room) {
                Ok(0) => return Ok((Filled::End, 0)),
                Ok(count) => return Ok((Filled::Bytes, count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Halt::Io(error)),
            }
            self.flush(socket)?;
            // Trying before polling also makes rustls give back what a large record made it hold.
            match self.connection.read_tls(&mut socket) {
                Ok(_) => {
                    if let Err(error) = self.connection.process_new_packets() {
                        return Err(Halt::Failed(self.tls.explain(error)));
                    }
                    // Records without data can come for ever.
                    blocking::check()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((Filled::Nothing, 0));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Halt::Io(error)),
            }
        }
    }

    /// Sends what TLS has to say of its own, as far as that goes without waiting.
    fn flush(&mut self, mut socket: &TcpStream) -> Result<(), Halt> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Halt::Io(error)),
            }
        }
        Ok(())
    }
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, tls: Option<Session>) -> Self {
        Self {
            socket: Arc::new(socket),
            tls,
            buffers: GrowingBuffers::default(),
            broken: false,
        }
    }

    fn fill(&mut self) -> Result<Filled, Halt> {
        if self.buffers.input().len() > UNREAD_BYTES_MAX {
            let message = format!(
                "the answer's framing has no end: more than {UNREAD_BYTES_MAX} bytes of one chunk size or trailer"
            );
            return Err(Halt::Failed(Error::new(ErrorKind::TooLarge, message)));
        }
        let room = self.buffers.input_append_buf();
        let (filled, count) = match &mut self.tls {
            Some(session) => session.fill(&self.socket, room)?,
            None => read(&self.socket, room)?,
        };
        self.buffers.input_appended(count);
        blocking::received(count)?;
        Ok(filled)
    }

    fn await_bytes(&mut self) -> Result<bool, Halt> {
        loop {
            // Where there is always something to read, nothing ever waits.
            blocking::check()?;
            match self.fill()? {
                Filled::Bytes => return Ok(true),
                Filled::End => return Ok(false),
                Filled::Nothing => {}
            }
            self.buffers.release();
            blocking::wait(self.socket.as_fd(), PollFlags::IN)?;
        }
    }

    fn send(&mut self, amount: usize) -> Result<(), Halt> {
        blocking::goes_out_on(&self.socket);
        let mut rest = self.buffers.to_send(amount);
        if let Some(session) = &mut self.tls {
            session.connection.writer().write_all(rest)?;
            while session.connection.wants_write() {
                let written = session.connection.write_tls(&mut &*self.socket);
                sent(written, &self.socket)?;
            }
            return Ok(());
        }
        while !rest.is_empty() {
            let written = (&*self.socket).write(rest);
            let count = sent(written, &self.socket)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Whether another request may go out on this connection.
    fn is_usable(&mut self) -> bool {
        if self.broken || !self.buffers.input().is_empty() {
            return false;
        }
        let idle = match &mut self.tls {
            Some(session) if session.generation != session.tls.generation() => false,
            // Session tickets may stand there unread; data or an end may not.
            Some(session) => {
                matches!(
                    session.fill(&self.socket, &mut [0]),
                    Ok((Filled::Nothing, _))
                )
            }
            None => would_block(self.socket.peek(&mut [0])),
        };
        self.buffers.release();
        idle
    }
}

fn would_block(result: io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn read(mut socket: &TcpStream, room: &mut [u8]) -> Result<(Filled, usize), Halt> {
    loop {
        match socket.read(room) {
            Ok(0) => return Ok((Filled::End, 0)),
            Ok(count) => return Ok((Filled::Bytes, count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok((Filled::Nothing, 0));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Halt::Io(error)),
        }
    }
}

/// How much a write took; waits when the socket takes nothing.
fn sent(written: io::Result<usize>, socket: &TcpStream) -> Result<usize, Halt> {
    match written {
        Ok(0) => Err(Halt::Io(io::ErrorKind::WriteZero.into())),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            blocking::wait(socket.as_fd(), PollFlags::OUT)?;
            Ok(0)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(Halt::Io(error)),
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let sent = self.send(amount);
        self.buffers.release_output();
        self.broken |= sent.is_err();
        blocking::sent();
        Ok(sent?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let awaited = self.await_bytes();
        if let Err(halt) = &awaited {
            self.broken |= !matches!(halt, Halt::Limit(_) | Halt::WouldBlock);
        }
        Ok(awaited?)
    }

    fn is_open(&mut self) -> bool {
        self.is_usable()
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("socket", &self.socket)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}
