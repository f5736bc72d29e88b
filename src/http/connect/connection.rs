//! A TCP connection, with or without TLS, as ureq's transport. It waits within the limits of the
//! thread's call context.

use std::io::{self, Read, Write};
use std::mem;

use rustix::event::PollFlags;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

use super::super::calls::call_context;
use super::super::calls::interrupt::{Interrupt, attempt};
use super::super::tls::speaks_tls;
use super::buffers::{GrowingBuffers, UNREAD_BYTES_MAX};
use super::byte_stream::ByteStream;
use super::session::Session;
use crate::error::{Error, ErrorKind, debug_of};

/// The first byte of a TLS alert. No answer of HTTP begins with it.
const TLS_ALERT: u8 = 0x15;

/// Where the status begins in an answer: `HTTP/1.1 403`.
const STATUS_AT: usize = 9;

/// A connection to the server, as ureq keeps it in its pool.
pub(crate) struct Connection {
    stream: ByteStream,
    tls: Option<Session>,
    buffers: GrowingBuffers,
    /// Whether the server has sent something.
    answered: bool,
    /// The server has answered a request that it has not read to its end. The rest is not sent.
    answers_early: bool,
    broken: bool,
}

impl Connection {
    pub(crate) fn new(stream: ByteStream, tls: Option<Session>) -> Self {
        Self {
            stream,
            tls,
            buffers: GrowingBuffers::default(),
            answered: false,
            answers_early: false,
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
            Some(session) => attempt(|| session.read(&mut self.stream, room))?,
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
        call_context::current(|call| call.received(count))??;
        Ok(filled)
    }

    fn await_bytes(&mut self) -> Result<bool, Interrupt> {
        loop {
            // A connection that always has bytes to read never waits.
            call_context::current(|call| call.check())??;
            if let Some(count) = self.fill()? {
                return Ok(count > 0);
            }
            self.buffers.release();
            call_context::current(|call| call.wait(&self.stream, PollFlags::IN))??;
        }
    }

    fn send(&mut self, amount: usize) -> Result<(), Interrupt> {
        call_context::current(|call| call.use_socket(self.stream.socket()))?;
        if let Some(session) = &mut self.tls {
            let mut writer = session.connection.writer();
            writer.write_all(self.buffers.to_send(amount))?;
        }
        let mut sent = 0_usize;
        loop {
            let rest = self.buffers.to_send(amount).get(sent..).unwrap_or_default();
            let (stream, interest) = (&mut self.stream, PollFlags::IN | PollFlags::OUT);
            let count = match &mut self.tls {
                Some(session) if session.connection.wants_write() => {
                    write(stream, interest, |stream| {
                        session.connection.write_tls(stream)
                    })?
                }
                None if !rest.is_empty() => write(stream, interest, |stream| stream.write(rest))?,
                Some(_) | None => return flush(stream),
            };
            sent = sent.saturating_add(count);
            if count == 0 && self.take_early_answer()? {
                return Ok(());
            }
        }
    }

    /// Takes the answer of a server that does not read the request to its end, as it refuses large
    /// bodies: nothing more is sent. Returns whether there is one.
    fn take_early_answer(&mut self) -> Result<bool, Interrupt> {
        if self.fill()? == Some(0) {
            return Err(Interrupt::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        // An informational answer (1xx) is not the last one.
        let status = self.buffers.input().get(STATUS_AT);
        self.answers_early = status.is_some_and(|digit| *digit != b'1');
        if self.answers_early {
            self.broken = true;
            self.buffers.offer();
        }
        Ok(self.answers_early)
    }

    /// Takes the answer that came before the end of the connection, or explains that end.
    fn explain_unsent(&mut self, interrupt: Interrupt) -> Result<(), Interrupt> {
        let why = self.explain(interrupt);
        let is_begun = call_context::current(|call| call.bytes_out > 0)?;
        // Before its first byte, it is no answer to this request.
        if is_begun && why.is_closed_by_peer() && self.take_early_answer().unwrap_or_default() {
            return Ok(());
        }
        Err(why)
    }

    /// Replaces the end of a new connection by the alert that came before it.
    fn explain(&mut self, interrupt: Interrupt) -> Interrupt {
        match &mut self.tls {
            // The end of a kept one is no failure: its request goes out again.
            Some(session) if !self.answered && interrupt.is_closed_by_peer() => {
                session.last_words(&mut self.stream).unwrap_or(interrupt)
            }
            _ => interrupt,
        }
    }
}

/// Writes once and returns the number of bytes. Waits for `interest` when the stream takes none.
fn write(
    stream: &mut ByteStream,
    interest: PollFlags,
    mut write: impl FnMut(&mut ByteStream) -> io::Result<usize>,
) -> Result<usize, Interrupt> {
    match attempt(|| write(stream))? {
        Some(0) => Err(Interrupt::Io(io::ErrorKind::WriteZero.into())),
        Some(count) => call_context::current(|call| {
            call.bytes_out = call.bytes_out.saturating_add(count);
            count
        }),
        None => {
            call_context::current(|call| call.wait(&*stream, interest))??;
            Ok(0)
        }
    }
}

/// Sends what the stream itself holds. Waits until it is sent.
fn flush(stream: &mut ByteStream) -> Result<(), Interrupt> {
    while write(stream, PollFlags::OUT, |stream| stream.flush().map(|()| 1))? == 0 {}
    Ok(())
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let sent = if self.answers_early {
            Ok(())
        } else {
            self.send(amount)
                .or_else(|interrupt| self.explain_unsent(interrupt))
        };
        self.buffers.release_output();
        self.broken |= sent.is_err();
        Ok(sent.and(call_context::current(call_context::CallContext::sent))?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let awaited = self.await_bytes();
        if let Err(interrupt) = &awaited {
            self.broken |= !matches!(interrupt, Interrupt::Limit(_) | Interrupt::WouldBlock);
        }
        Ok(awaited?)
    }

    /// Whether another request may use this connection.
    fn is_open(&mut self) -> bool {
        if self.broken || !self.buffers.input().is_empty() {
            return false;
        }
        let read = match &mut self.tls {
            Some(session) if !session.is_current() => return false,
            // Unread session tickets are allowed; data or an end are not.
            Some(session) => attempt(|| session.read(&mut self.stream, &mut [0])),
            None => attempt(|| self.stream.read(&mut [0])),
        };
        self.buffers.release();
        matches!(read, Ok(None))
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

debug_of!([] Connection, |it| tls: it.tls.is_some(), ..);
