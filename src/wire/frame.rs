//! Lines out of chunks: bounded, each delivered when its newline arrives, no memory held in between.

use memchr::memchr;

use super::buffer::Buffer;
use crate::error::{Error, ErrorKind};

/// What a quiet stream offers to read into: all it holds while it waits.
const READ_BYTES_MIN: usize = 512;

/// What a busy stream offers to read into: as much as the transport hands over at once.
const READ_BYTES_MAX: usize = 16 * 1024;

/// The lines of one stream.
pub(super) struct Frames {
    buffer: Buffer,
    /// Pending bytes known to hold no newline.
    searched: usize,
    read: usize,
    line_bytes_max: usize,
}

impl Frames {
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self {
            buffer: Buffer::default(),
            searched: 0,
            read: READ_BYTES_MIN,
            line_bytes_max,
        }
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

    /// The next whole line without its newline. `None` asks for bytes.
    pub(super) fn next(&mut self) -> Result<Option<&mut [u8]>, Error> {
        let pending = self.buffer.pending();
        let unsearched = pending.get(self.searched..).unwrap_or_default();
        let found = memchr(b'\n', unsearched);
        let length = self
            .searched
            .saturating_add(found.unwrap_or(unsearched.len()));
        if length > self.line_bytes_max {
            return Err(self.too_large());
        }
        if found.is_none() {
            self.searched = length;
            if length == 0 {
                self.release();
            }
            return Ok(None);
        }
        self.searched = 0;
        let line = self.buffer.take(length.saturating_add(1));
        Ok(line.get_mut(..length))
    }

    /// Bytes of a line whose newline has not come.
    pub(super) fn partial(&self) -> usize {
        self.buffer.pending().len()
    }

    /// Gives the memory back unless part of a line is held.
    pub(super) fn release(&mut self) {
        if self.partial() == 0 {
            self.buffer.release();
            self.read = READ_BYTES_MIN;
        }
    }

    pub(super) fn held(&self) -> usize {
        self.buffer.held()
    }

    fn too_large(&self) -> Error {
        Error::new(
            ErrorKind::TooLarge,
            format!(
                "a line of the watch is longer than {} bytes; DecodeOptions::frame_bytes_max raises the limit",
                self.line_bytes_max
            ),
        )
    }
}
