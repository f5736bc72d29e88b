//! Which objects have a watch where there is not room for all: those that are read most. The others
//! are polled.

use super::launch::Keeper;
use crate::manager::watch::entry::{WatchEntry, WatchedObject};
use crate::manager::watch::read_history::ReadHistory;
use crate::object::Object;

impl<K: Object> Keeper<K> {
    /// Has polled objects watched while there is room, those that are read most first.
    pub(crate) fn promote(&self) {
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
    pub(crate) fn rebalance(&self) {
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
        let entries = self.context.registry.entries().into_iter();
        let histories = entries.filter_map(|object| {
            let history = {
                let entry = object.state.lock();
                (are(&entry) && entry.successor().is_none()).then(|| entry.history)
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
