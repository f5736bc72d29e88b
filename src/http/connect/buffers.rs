//! The buffers of one connection. They grow with the traffic and are freed while the connection is
//! idle.

use ureq::unversioned::transport::Buffers;

use super::super::calls::call_context;
use crate::wire::{Buffer, Wiped};

/// The first size of the input buffer: a bookmark or a small event fits.
const INPUT_BYTES_MIN: usize = 4 * 1024;

/// The maximum of the room for one read.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The maximum of the output buffer of a request's body.
pub(crate) const BODY_PIECE_BYTES_MAX: usize = 64 * 1024;

/// The maximum of unread bytes, and so of the head of a response.
pub(crate) const UNREAD_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct GrowingBuffers {
    input: Buffer,
    output: Wiped,
    progress: bool,
}

impl Default for GrowingBuffers {
    fn default() -> Self {
        Self {
            input: Buffer::new(INPUT_BYTES_MIN, INPUT_BYTES_MAX),
            output: Wiped::default(),
            progress: false,
        }
    }
}

impl GrowingBuffers {
    /// Frees the empty buffers.
    pub(crate) fn release(&mut self) {
        self.release_output();
        self.input.release();
    }

    pub(crate) fn release_output(&mut self) {
        self.output = Wiped::default();
    }

    /// Has what was read used without another read.
    pub(crate) fn offer(&mut self) {
        self.progress = true;
    }

    /// The part of the output to send.
    pub(crate) fn to_send(&self, amount: usize) -> &[u8] {
        self.output.get(..amount).unwrap_or(&self.output)
    }
}

impl Buffers for GrowingBuffers {
    fn output(&mut self) -> &mut [u8] {
        let needed = call_context::output_bytes();
        if self.output.len() < needed {
            self.output = Wiped::beginning_with(&[], needed);
        }
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        self.input.pending()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.space()
    }

    fn input_appended(&mut self, amount: usize) {
        self.input.filled(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.input.take(amount);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.output();
        (self.input.space(), &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.progress && !self.input.pending().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffers: &mut GrowingBuffers, bytes: &[u8]) {
        let room = buffers.input_append_buf();
        room[..bytes.len()].copy_from_slice(bytes);
        buffers.input_appended(bytes.len());
    }

    #[test]
    fn unread_input_survives_growth_and_release() {
        let mut buffers = GrowingBuffers::default();
        push(&mut buffers, b"head");
        buffers.release();
        assert_eq!(buffers.input(), b"head");
        buffers.input_consume(2);
        push(&mut buffers, &vec![b'x'; INPUT_BYTES_MIN - 2]);
        assert_eq!(buffers.input().len(), INPUT_BYTES_MIN);
        push(&mut buffers, b"tail");
        assert!(buffers.input().starts_with(b"adx") && buffers.input().ends_with(b"xtail"));
    }

    #[test]
    fn an_idle_connection_holds_no_buffer() {
        let mut buffers = GrowingBuffers::default();
        push(&mut buffers, b"event");
        assert_eq!(buffers.output().len(), call_context::output_bytes());
        buffers.input_consume(5);
        buffers.release();
        assert_eq!(buffers.input.held() + buffers.output.held(), 0);
    }

    #[test]
    fn reads_that_fill_the_buffer_make_it_larger_up_to_its_maximum() {
        let mut buffers = GrowingBuffers::default();
        for _ in 0..20 {
            let room = buffers.input_append_buf().len();
            buffers.input_appended(room);
            buffers.input_consume(room);
        }
        assert_eq!(buffers.input.held(), INPUT_BYTES_MAX);
    }
}
