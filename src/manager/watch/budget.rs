//! Which objects have a watch where there is not room for all: those that are read most. The others
//! are polled.

use super::entry::{WatchEntry, WatchedObject};
use super::launch::Runs;
use crate::clock::Coarse;
use crate::object::Object;

/// In how many more minutes of the last sixteen a polled object must have been read than a watched
/// one to get its place. With less, two that are read alike would change places each minute.
const MARGIN: u32 = 2;

/// In which of the housekeeper's last sixteen sweeps the object had been read since the one before.
/// Its first read counts when it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadHistory {
    sweeps: u16,
    /// The last read that was counted.
    counted: Option<Coarse>,
}

impl ReadHistory {
    pub(super) const NONE: Self = Self {
        sweeps: 0,
        counted: None,
    };

    /// One more sweep, which finds the last read at `read_at`.
    pub(super) fn sweep(&mut self, read_at: Coarse) {
        let is_read = self.counted.is_none_or(|counted| counted < read_at);
        self.counted = Some(read_at);
        self.sweeps = (self.sweeps >> 1) | if is_read { 1 << 15 } else { 0 };
    }

    /// In how many of the sweeps it was read; of two that are alike there, the one that was read
    /// later comes first.
    fn rank(self) -> (u32, u16) {
        (self.sweeps.count_ones(), self.sweeps)
    }

    fn is_clearly_above(self, other: Self) -> bool {
        self.sweeps.count_ones() >= other.sweeps.count_ones().saturating_add(MARGIN)
    }
}

impl<K: Object> Runs<K> {
    /// Has polled objects watched while there is room, those that are read most first.
    pub(super) fn promote(&self) {
        if self.poller.is_none() {
            return;
        }
        for (_, object) in self.ranked(WatchEntry::is_polled).into_iter().rev() {
            if !self.watch_polled(&object) {
                return;
            }
        }
    }

    /// Has the watched objects polled whose place others deserve. Once such a watch has ended, its
    /// room goes to the polled object that is read most.
    pub(super) fn rebalance(&self) {
        if self.poller.is_none() {
            return;
        }
        let polled = self.ranked(WatchEntry::is_polled).into_iter().rev();
        let watched = self.ranked(WatchEntry::is_watched_by_name);
        for ((wants, _), (has, object)) in polled.zip(watched) {
            if !wants.is_clearly_above(has) {
                return;
            }
            self.poll_watched(&object);
        }
    }

    /// The objects which `are` such and have no successor yet, that which is read least first.
    fn ranked(&self, are: fn(&WatchEntry<K>) -> bool) -> Vec<(ReadHistory, WatchedObject<K>)> {
        let entries = self.context.table.entries().into_iter();
        let histories = entries.filter_map(|object| {
            let history = {
                let entry = object.state.lock();
                (are(&entry) && !entry.has_successor()).then(|| entry.history)
            };
            history.map(|history| (history, object))
        });
        let mut ranked: Vec<_> = histories.collect();
        ranked.sort_by(|(a, one), (b, other)| {
            a.rank()
                .cmp(&b.rank())
                .then_with(|| one.key.cmp(&other.key))
        });
        ranked
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
        let (mut read, mut unread) = (ReadHistory::NONE, ReadHistory::NONE);
        let once = clock.coarse();
        for minute in 0..16 {
            fake.advance(Duration::from_secs(60));
            read.sweep(clock.coarse());
            unread.sweep(once);
            assert_eq!(read.is_clearly_above(unread), minute >= 2, "{minute}");
            assert!(!unread.is_clearly_above(read));
        }
        assert_eq!(read.rank(), (16, u16::MAX));
        assert_eq!(unread.rank(), (1, 1));
        unread.sweep(once);
        assert_eq!(unread.rank(), (0, 0));
    }
}
