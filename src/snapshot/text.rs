//! The plain text of a snapshot in memory: it grows without leaving copies behind, and is
//! overwritten on drop.

use std::io;

use zeroize::Zeroizing;

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
        let need = self.bytes.len().saturating_add(piece.len());
        if need > self.limit {
            self.limit = 0;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if need > self.bytes.capacity() {
            // A vector that grows by itself leaves a copy behind.
            let room = need.max(self.bytes.capacity().saturating_mul(2));
            let mut larger = Zeroizing::new(Vec::with_capacity(room));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
