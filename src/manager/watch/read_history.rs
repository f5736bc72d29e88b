//! How much an object is read, as the keeper's sweeps see it. The objects that are read most have
//! the watches. Pure.

use crate::clock::Coarse;

/// In which of the keeper's last sixteen sweeps the object had been read since the one before.
/// A new object counts as read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadHistory {
    sweeps: u16,
    /// The last read that was counted.
    counted: Option<Coarse>,
}

impl ReadHistory {
    /// One more sweep, which finds the last read at `read_at`.
    pub(super) fn sweep(&mut self, read_at: Coarse) {
        let is_read = self.counted.is_none_or(|counted| counted < read_at);
        self.counted = Some(read_at);
        self.sweeps = (self.sweeps >> 1) | if is_read { 1 << 15 } else { 0 };
    }

    /// In how many of the sweeps it was read; of two that are alike there, the one that was read
    /// later comes first.
    pub(super) fn rank(self) -> (u32, u16) {
        (self.sweeps.count_ones(), self.sweeps)
    }

    /// Whether it was read more than twice as often, and twice at least. With less, two that are
    /// read alike would change places: of an object that is read once a minute, a sweep may see two
    /// reads as one, and the next one none.
    pub(super) fn is_clearly_above(self, other: Self) -> bool {
        let twice = other.sweeps.count_ones().saturating_mul(2);
        self.sweeps.count_ones() > twice.saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, FakeClock};
    use std::time::Duration;

    #[test]
    fn a_history_counts_sweeps_with_a_read_and_forgets_old_ones() {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let (mut read, mut unread) = (ReadHistory::default(), ReadHistory::default());
        let once = clock.coarse();
        for minute in 0..16 {
            fake.advance(Duration::from_secs(60));
            read.sweep(clock.coarse());
            unread.sweep(once);
            assert_eq!(read.is_clearly_above(unread), minute >= 3, "{minute}");
            assert!(!unread.is_clearly_above(read));
        }
        assert_eq!(read.rank(), (16, u16::MAX));
        assert_eq!(unread.rank(), (1, 1));
        unread.sweep(once);
        assert_eq!(unread.rank(), (0, 0));
    }
}
