//! A TCP connection, with or without TLS, as ureq's transport. It waits within the limits of the
//! thread's call context.

use std::io::{self, Read, Write};
use std::mem;

use rustix::event::PollFlags;
use rustls::{ClientConfig, ClientConnection};
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

use super::super::calls::call_context;
use super::super::calls::interrupt::Interrupt;
use super::super::tls::{Tls, speaks_tls};
use super::buffers::{GrowingBuffers, UNREAD_BYTES_MAX};
use super::byte_stream::ByteStream;
use crate::error::{Error, ErrorKind, debug_of};
use crate::sync::Arc;

/// The first byte of a TLS alert. No answer of HTTP begins with it.
const TLS_ALERT: u8 = 0x15;

/// A connection to the server, as ureq keeps it in its pool.
pub(crate) struct Connection {
    stream: ByteStream,
    tls: Option<Session>,
    buffers: GrowingBuffers,
    /// Whether the server has sent something.
    answered: bool,
    broken: bool,
}

/// The TLS half of a connection.
pub(crate) struct Session {
    connection: Box<ClientConnection>,
    /// Explains failures, and tells whether `config` is still current.
    tls: Arc<Tls>,
    config: Arc<ClientConfig>,
}

impl Session {
    pub(crate) fn new(
        connection: Box<ClientConnection>,
        tls: Arc<Tls>,
        config: Arc<ClientConfig>,
    ) -> Self {
        Self {
            connection,
            tls,
            config,
        }
    }

    /// Reads the available bytes. `None` when there are none; 0 is the end.
    fn fill(
        &mut self,
        stream: &mut ByteStream,
        room: &mut [u8],
    ) -> Result<Option<usize>, Interrupt> {
        loop {
            let read = attempt(|| self.connection.reader().read(room))?;
            if read.is_some() {
                return Ok(read);
            }
            self.flush(stream)?;
            // Trying before polling also makes rustls give back what a large record made it hold.
            if attempt(|| self.connection.read_tls(stream))?.is_none() {
                return Ok(None);
            }
            let processed = self.connection.process_new_packets();
            processed.map_err(|error| Interrupt::Failed(self.tls.explain(error)))?;
            // Records without data can go on without end.
            call_context::current(|call| call.check())?;
        }
    }

    /// Sends pending TLS records. Never blocks.
    fn flush(&mut self, stream: &mut ByteStream) -> Result<(), Interrupt> {
        while self.connection.wants_write() {
            if attempt(|| self.connection.write_tls(stream))?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl Connection {
    pub(crate) fn new(stream: ByteStream, tls: Option<Session>) -> Self {
        Self {
            stream,
            tls,
            buffers: GrowingBuffers::default(),
            answered: false,
            broken: false,
        }
    }

    /// Reads the available bytes into the buffers. `None` when there are none; 0 is the end.
    fn fill(&mut self) -> Result<Option<usize>, Interrupt> {
        if self.buffers.input().len() > UNREAD_BYTES_MAX {
            let message = format!(
                "the answer's framing has no end: more than {UNREAD_BYTES_MAX} bytes of one chunk \
                 size or trailer"
            );
            return Err(Interrupt::Failed(Error::new(ErrorKind::TooLarge, message)));
        }
        let room = self.buffers.input_append_buf();
        let filled = match &mut self.tls {
            Some(session) => session.fill(&mut self.stream, room)?,
            None => attempt(|| self.stream.read(room))?,
        };
        let count = filled.unwrap_or_default();
        if count > 0 && !mem::replace(&mut self.answered, true) {
            let is_alert = room.first() == Some(&TLS_ALERT);
            if is_alert && self.tls.is_none() {
                return Err(Interrupt::Failed(speaks_tls()));
            }
        }
        self.buffers.input_appended(count);
        call_context::current(|call| call.received(count))?;
        Ok(filled)
    }

    fn await_bytes(&mut self) -> Result<bool, Interrupt> {
        loop {
            // A connection that always has bytes to read never waits.
            call_context::current(|call| call.check())?;
            if let Some(count) = self.fill()? {
                return Ok(count > 0);
            }
            self.buffers.release();
            call_context::current(|call| call.wait(&self.stream, PollFlags::IN))?;
        }
    }

    fn send(&mut self, amount: usize) -> Result<(), Interrupt> {
        call_context::current(|call| {
            call.use_socket(self.stream.socket());
            Ok(())
        })?;
        let mut rest = self.buffers.to_send(amount);
        if let Some(session) = &mut self.tls {
            session.connection.writer().write_all(rest)?;
            while session.connection.wants_write() {
                write(&mut self.stream, |stream| {
                    session.connection.write_tls(stream)
                })?;
            }
            return flush(&mut self.stream);
        }
        while !rest.is_empty() {
            let count = write(&mut self.stream, |stream| stream.write(rest))?;
            rest = rest.get(count..).unwrap_or_default();
        }
        flush(&mut self.stream)
    }

    /// Replaces the end of a new connection by the alert that came before it.
    fn explain(&mut self, interrupt: Interrupt) -> Interrupt {
        match &mut self.tls {
            // The end of a kept one is no failure: its request goes out again.
            Some(session) if !self.answered && interrupt.is_closed_by_peer() => {
                let alert = last_words(&mut session.connection, &mut self.stream);
                alert.map_or(interrupt, |alert| {
                    Interrupt::Failed(session.tls.explain(alert))
                })
            }
            _ => interrupt,
        }
    }

    /// Whether another request may use this connection.
    fn is_usable(&mut self) -> bool {
        if self.broken || !self.buffers.input().is_empty() {
            return false;
        }
        let idle = match &mut self.tls {
            Some(session) if !Arc::ptr_eq(&session.config, &session.tls.current()) => false,
            // Unread session tickets are allowed; data or an end are not.
            Some(session) => matches!(session.fill(&mut self.stream, &mut [0]), Ok(None)),
            None => matches!(attempt(|| self.stream.read(&mut [0])), Ok(None)),
        };
        self.buffers.release();
        idle
    }
}

/// Reads what the server said before it ended a connection that can no longer be written to:
/// often the alert that tells why. Never blocks.
pub(crate) fn last_words(
    connection: &mut ClientConnection,
    stream: &mut ByteStream,
) -> Option<rustls::Error> {
    while let Ok(Some(1..)) = attempt(|| connection.read_tls(stream)) {
        if let Err(error) = connection.process_new_packets() {
            return Some(error);
        }
    }
    None
}

/// Tries a read or a write that never blocks. `None` when it would block.
pub(crate) fn attempt(
    mut run: impl FnMut() -> io::Result<usize>,
) -> Result<Option<usize>, Interrupt> {
    loop {
        match run() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Interrupt::from(error)),
        }
    }
}

/// Writes once and returns the number of bytes. Waits when the stream takes none.
fn write(
    stream: &mut ByteStream,
    mut write: impl FnMut(&mut ByteStream) -> io::Result<usize>,
) -> Result<usize, Interrupt> {
    match attempt(|| write(stream))? {
        Some(0) => Err(Interrupt::Io(io::ErrorKind::WriteZero.into())),
        Some(count) => call_context::current(|call| {
            call.bytes_out = call.bytes_out.saturating_add(count);
            Ok(count)
        }),
        None => {
            call_context::current(|call| call.wait(&*stream, PollFlags::OUT))?;
            Ok(0)
        }
    }
}

/// Sends what the stream itself holds. Waits until it is sent.
fn flush(stream: &mut ByteStream) -> Result<(), Interrupt> {
    while write(stream, |stream| stream.flush().map(|()| 1))? == 0 {}
    Ok(())
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let sent = self
            .send(amount)
            .map_err(|interrupt| self.explain(interrupt));
        self.buffers.release_output();
        self.broken |= sent.is_err();
        let told = call_context::current(|call| {
            call.sent();
            Ok(())
        });
        Ok(sent.and(told)?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let awaited = self.await_bytes();
        if let Err(interrupt) = &awaited {
            self.broken |= !matches!(interrupt, Interrupt::Limit(_) | Interrupt::WouldBlock);
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

debug_of!([] Connection, |it| tls: it.tls.is_some(), ..);
