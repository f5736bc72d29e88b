//! Events out of chunks: each is one JSON value, bounded, found when its last byte has come, no
//! memory held in between.

use memchr::memchr;

use super::buffer::{Buffer, Grant};
use super::event_scan::{Envelope, EventScan};
use super::members::NotAnObject;
use super::scan::{Cutting, Shape, is_space};
use crate::error::{Error, ErrorKind};

/// What a quiet stream offers to read into: all it holds while it waits.
const READ_BYTES_MIN: usize = 512;

/// What a busy stream offers to read into: as much as the transport hands over at once.
const READ_BYTES_MAX: usize = 16 * 1024;

/// How large an event may be, and the option that says so.
#[derive(Clone, Copy)]
pub(super) struct FrameLimit {
    pub(super) bytes_max: usize,
    pub(super) option: &'static str,
}

/// The events of one stream.
pub(super) struct Frames {
    buffer: Buffer,
    scan: EventScan,
    /// Pending bytes known to hold no newline.
    searched: usize,
    /// Bytes of events and between them that were used up.
    used: usize,
    read: usize,
    limit: FrameLimit,
}

/// One event, and where in it is what.
pub(super) struct Frame<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) envelope: Envelope,
    pub(super) shape: &'a Shape,
}

/// What the next bytes came to.
pub(super) enum Framed<'a> {
    Event(Frame<'a>),
    /// They are no JSON object.
    Broken(NotAnObject),
    /// The last byte of the event has not come.
    NotYet,
}

impl Frames {
    pub(super) fn new(cutting: Cutting, limit: FrameLimit) -> Self {
        Self {
            buffer: Buffer::default(),
            scan: EventScan::new(cutting),
            searched: 0,
            used: 0,
            read: READ_BYTES_MIN,
            limit,
        }
    }

    pub(super) fn reserve(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        self.buffer.reserve(self.read, grant)
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        self.buffer.space(self.read)
    }

    pub(super) fn filled(&mut self, count: usize) {
        if count >= self.read {
            self.read = self.read.saturating_mul(2).min(READ_BYTES_MAX);
        }
        self.buffer.filled(count);
    }

    /// The next whole event.
    ///
    /// # Errors
    ///
    /// `TooLarge`, naming the option, when an event exceeds its maximum.
    pub(super) fn next(&mut self) -> Result<Framed<'_>, Error> {
        if self.scan.is_between() {
            self.pass_blanks();
        }
        let pending = self.buffer.pending();
        let within = pending.get(..self.limit.bytes_max).unwrap_or(pending);
        let mut scanned = self.scan.advance(within);
        if !self.scan.is_strict()
            && let Ok(length) = scanned
        {
            let until = length.unwrap_or(within.len());
            let unsearched = within.get(self.searched..until).unwrap_or_default();
            self.searched = until;
            // Servers end an event with its only newline. One before its end either stands between
            // tokens, or tells that the event was cut off in a string: such a string would swallow
            // the events behind it.
            if memchr(b'\n', unsearched).is_some() {
                self.scan.begin_strictly();
                scanned = self.scan.advance(within);
            }
        }
        let length = match scanned {
            Ok(length) => length,
            Err(broken) => return Ok(Framed::Broken(broken)),
        };
        if length.is_none() && within.len() < pending.len() {
            return Err(self.too_large());
        }
        let Some(length) = length else {
            self.release();
            return Ok(Framed::NotYet);
        };
        self.searched = 0;
        self.used = self.used.saturating_add(length);
        let envelope = self.scan.end();
        Ok(Framed::Event(Frame {
            bytes: self.buffer.take(length),
            envelope,
            shape: self.scan.shape(),
        }))
    }

    fn pass_blanks(&mut self) {
        let pending = self.buffer.pending();
        let blanks = pending.iter().position(|byte| !is_space(*byte));
        let blanks = blanks.unwrap_or(pending.len());
        self.used = self.used.saturating_add(blanks);
        self.buffer.take(blanks);
    }

    /// Bytes used up so far: those of whole events, and what stood between them.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes of an event that has not come whole.
    pub(super) fn partial(&self) -> usize {
        self.buffer.pending().len()
    }

    /// Gives the memory back unless part of an event is held.
    pub(super) fn release(&mut self) {
        if self.partial() == 0 {
            self.buffer.release();
            self.scan.release();
            self.read = READ_BYTES_MIN;
        }
    }

    /// Gives all memory back, and what was read with it: the stream is at its end.
    pub(super) fn discard(&mut self) {
        self.buffer = Buffer::default();
        self.scan.release();
    }

    pub(super) fn held(&self) -> usize {
        self.buffer.held().saturating_add(self.scan.held())
    }

    fn too_large(&self) -> Error {
        let FrameLimit { bytes_max, option } = self.limit;
        let message = format!(
            "an event of the watch is larger than {bytes_max} bytes; DecodeOptions::{option} raises the limit"
        );
        Error::new(ErrorKind::TooLarge, message)
    }
}
