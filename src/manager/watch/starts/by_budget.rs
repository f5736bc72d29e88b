//! Decides which objects have a watch where there is no room for all: those that are read most. The
//! others are polled.

use super::Starts;
use crate::error::Error;
use crate::manager::watch::entry::{WatchEntry, WatchedObject};
use crate::manager::watch::read_history::ReadHistory;
use crate::object::Object;

impl<K: Object> Starts<K> {
    /// Watches polled objects while there is room, those that are read most first.
    pub(crate) fn promote(&self) {
        for (_, object) in self.ranked(WatchEntry::is_polled).into_iter().rev() {
            if !self.watch_polled(&object) {
                return;
            }
        }
    }

    /// Polls the watched objects whose place others deserve. Once such a watch has ended, its room
    /// goes to the polled object that is read most.
    pub(crate) fn rebalance(&self) {
        let polled = self.ranked(WatchEntry::is_polled).into_iter().rev();
        let watched = self.ranked(WatchEntry::is_watched_by_name);
        for ((wants, _), (has, object)) in polled.zip(watched) {
            if !wants.is_clearly_above(has) {
                return;
            }
            self.poll_watched(&object);
        }
    }

    /// Starts the watch by name of a polled object. Returns whether there was room.
    fn watch_polled(&self, object: &WatchedObject<K>) -> bool {
        let prepared = self.context.registry.change(object, |entry| {
            entry.is_polled().then(|| entry.prepare()).flatten()
        });
        let Some(id) = prepared else { return true };
        let launched = self.launch_successor(object, id);
        self.settle_successor(object, id, launched)
    }

    /// Starts to poll a watched object.
    pub(crate) fn poll_watched(&self, object: &WatchedObject<K>) {
        let prepared = self.context.registry.change(object, WatchEntry::prepare);
        let Some(id) = prepared else { return };
        let run = self.poll(object, id);
        let launched = run.ok_or_else(|| Error::stopped("the poller"));
        self.settle_successor(object, id, launched);
    }

    /// The objects which `are` such and have no successor yet, the one that is read least first.
    /// None where there is no poller.
    fn ranked(&self, are: fn(&WatchEntry<K>) -> bool) -> Vec<(ReadHistory, WatchedObject<K>)> {
        if self.poller.is_none() {
            return Vec::new();
        }
        let entries = self.context.registry.entries().into_iter();
        let histories = entries.filter_map(|object| {
            let history = {
                let entry = object.state.lock();
                (are(&entry) && entry.successor().is_none()).then(|| entry.history)
            };
            history.map(|history| (history, object))
        });
        let mut ranked: Vec<_> = histories.collect();
        ranked.sort_by(|(a, one), (b, other)| (a.rank(), &one.key).cmp(&(b.rank(), &other.key)));
        ranked
    }
}
