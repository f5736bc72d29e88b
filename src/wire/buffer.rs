//! The bytes in hand: what was read and not yet used up, in one piece, in memory that follows the need.

use super::wiped::Wiped;

/// Bytes read and not yet used up. Holds no memory while it is empty and released.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Wiped,
    start: usize,
    end: usize,
}

impl Buffer {
    /// At least `least` bytes to read into, behind what is pending. The memory follows `least` and what is pending,
    /// up and down.
    pub(super) fn space(&mut self, least: usize) -> &mut [u8] {
        let pending = self.pending().len();
        let needed = pending.saturating_add(least);
        let length = self.bytes.len();
        let oversized = length > needed.saturating_mul(4);
        if length.saturating_sub(self.end) < least || oversized {
            // Moving costs what is pending; it is paid for by the half that was used up.
            let roomy = length >= needed && self.start >= length / 2;
            if roomy && !oversized {
                self.bytes.copy_within(self.start..self.end, 0);
            } else {
                self.reallocate(needed);
            }
            self.start = 0;
            self.end = pending;
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    fn reallocate(&mut self, needed: usize) {
        let grown = match self.pending().len() {
            0 => needed,
            _ => needed.saturating_mul(2),
        };
        self.bytes = Wiped::beginning_with(self.pending(), grown);
    }

    /// `count` bytes of the space were filled.
    pub(super) fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Uses up `count` bytes and hands them out; they stay where they are until the next call of `space`.
    pub(super) fn take(&mut self, count: usize) -> &mut [u8] {
        let from = self.start;
        self.start = from.saturating_add(count).min(self.end);
        self.bytes.get_mut(from..self.start).unwrap_or_default()
    }

    /// What was used up and is still where it was; it goes away with the next call of `space`.
    pub(super) fn consumed(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.start).unwrap_or_default()
    }

    /// Gives the memory back when nothing is pending.
    pub(super) fn release(&mut self) {
        if self.start == self.end {
            *self = Self::default();
        }
    }

    /// The memory held, in bytes.
    pub(super) fn held(&self) -> usize {
        self.bytes.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &mut Buffer, bytes: &[u8]) {
        let space = buffer.space(bytes.len());
        space[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    #[test]
    fn what_is_pending_survives_every_move() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        for round in 0..300_usize {
            let chunk: Vec<u8> = (0..round % 37).map(|n| u8::try_from(n).unwrap()).collect();
            put(&mut buffer, &chunk);
            expected.extend_from_slice(&chunk);
            let used = expected.len().min(round % 23);
            assert_eq!(buffer.take(used), &expected[..used]);
            expected.drain(..used);
            assert_eq!(buffer.pending(), expected);
        }
    }

    #[test]
    fn a_large_piece_leaves_no_large_memory_behind() {
        let mut buffer = Buffer::default();
        put(&mut buffer, &vec![7; 1 << 20]);
        buffer.take((1 << 20) - 10);
        assert!(!buffer.space(512).is_empty());
        assert!(buffer.held() <= 2048, "{}", buffer.held());
        assert_eq!(buffer.pending(), [7; 10]);
        buffer.take(10);
        buffer.release();
        assert_eq!(buffer.held(), 0);
    }
}
