//! The plain text of a snapshot in memory: it grows without leaving copies behind, and is
//! overwritten on drop.

use std::io;

use zeroize::Zeroizing;

use crate::object::wipe::append;

/// The plain text. It refuses to grow beyond its limit, and all writes after that.
pub(super) struct PlainText {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    limit: usize,
}

impl PlainText {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            bytes: Zeroizing::default(),
            limit,
        }
    }
}

impl io::Write for PlainText {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(piece.len()) > self.limit {
            self.limit = 0;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        append(&mut self.bytes, piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
